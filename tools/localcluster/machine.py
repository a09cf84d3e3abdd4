"""What the machine must offer before nodes can run on it: root, and a few programs."""

from __future__ import annotations

import os
import shutil
import subprocess

from localcluster.build import Say
from localcluster.errors import LocalClusterError
from localcluster.node import cni_program_folder

_PACKAGES = {
    "containerd": "containerd",
    "runc": "runc",
    "nft": "nftables",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "openssl": "openssl",
}
_NETWORK_PLUGINS = "containernetworking-plugins"


def require_root() -> None:
    """Nodes are made of namespaces, mounts and control groups, which only root may make."""
    if os.geteuid() != 0:
        raise LocalClusterError(
            "a cluster on this machine needs root (namespaces, mounts, control groups). Run the same command with "
            "sudo, or use a cluster that you have: CLUSTER=existing takes the current kubeconfig."
        )


def missing_packages() -> list[str]:
    """Debian packages whose programs are not here."""
    missing = [package for program, package in _PACKAGES.items() if shutil.which(program) is None]
    return missing if cni_program_folder() else [*missing, _NETWORK_PLUGINS]


def install_missing(progress: Say) -> None:
    """Install what is missing, after saying so."""
    packages = missing_packages()
    if not packages:
        return
    if shutil.which("apt-get") is None:
        raise LocalClusterError(f"install {', '.join(packages)} (Debian's package names) and run again")
    progress(f"installing Debian packages: {' '.join(packages)}")
    install = ["apt-get", "-oDPkg::Lock::Timeout=300", "install", "--yes", "--no-install-recommends", *packages]
    answer = _apt(install)
    if answer.returncode != 0:
        # The package lists may be old or absent.
        _apt(["apt-get", "update"])
        answer = _apt(install)
    if answer.returncode != 0 or missing_packages():
        raise LocalClusterError(
            f"apt-get could not install {' '.join(packages)}:\n{answer.stderr.strip()}\nInstall them and run again."
        )


def _apt(command: list[str]) -> subprocess.CompletedProcess[str]:
    # RUNLEVEL: the packages' own services are not to be started on this machine.
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

"""Prometheus and promtool for tests, out of Debian's package, which is not installed: that would start a service."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from localcluster.cache import cache_root, digest_of, make_once

PROGRAMS = ("prometheus", "promtool")


def programs() -> Path:
    """Folder with both; fetched from the host's package mirror on first use.

    Raises:
        RuntimeError: it cannot be fetched; the message has apt's words.
    """
    return make_once(cache_root() / "prometheus" / digest_of(["debian", *PROGRAMS]), _fetch)


def _fetch(folder: Path) -> None:
    if shutil.which("apt-get") is None:
        raise RuntimeError("Prometheus is taken out of Debian's package: there is no apt-get here")
    with tempfile.TemporaryDirectory() as scratch:
        fetch = ["apt-get", "-q", "-oAPT::Sandbox::User=root", "download", "prometheus"]
        fetched = subprocess.run(fetch, cwd=scratch, capture_output=True, text=True, check=False)
        if fetched.returncode != 0:  # the package lists may be old or absent
            subprocess.run(
                ["apt-get", "-q", "-oDPkg::Lock::Timeout=300", "update"], capture_output=True, text=True, check=False
            )
            fetched = subprocess.run(fetch, cwd=scratch, capture_output=True, text=True, check=False)
        if fetched.returncode != 0:
            raise RuntimeError(f"apt-get could not download prometheus: {fetched.stderr.strip()}")
        (package,) = Path(scratch).glob("*.deb")
        subprocess.run(["dpkg-deb", "--extract", package, f"{scratch}/out"], check=True)
        for name in PROGRAMS:
            shutil.move(f"{scratch}/out/usr/bin/{name}", folder / name)

"""The first process of one node: sets up the machine, keeps containerd, kubelet and kube-proxy running, reaps orphans.

It is process 1 of its own PID namespace, so that a power cut is one SIGKILL: the kernel then ends everything in the
node at once, containers included. /run and /var/lib are memory as far as the node is concerned, except for what a real
disk would keep.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

from localcluster import kernel
from localcluster.errors import LocalClusterError
from localcluster.layout import (
    CLUSTER_DOMAIN,
    CONTROL_PLANE_ADDRESS,
    IDENTITY_IN_NODE,
    NODE_NETWORK_BITS,
    POD_NETWORK,
    SHARED_IN_NODE,
    Layout,
    Node,
    load_layout,
)
from localcluster.patience import PATIENCE_SECONDS

PAUSE_IMAGE = "localcluster.local/pause:1"
CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
LINK = "eth0"
CNI_PROGRAM_FOLDERS = ("/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni")
_CONFIGURATION = Path("/run/node")
_PROGRAMS = Path("/run/node-programs")
_POLL_SECONDS = 0.01
_RESTART_SECONDS = 1.0
_MACHINE_FILES = (Path("/etc/machine-id"), Path("/sys/class/dmi/id/product_uuid"))

# The kubelet would set these for the whole kernel. It sees the values that it wants already there, and is told to give
# up (protectKernelDefaults) rather than to write, so the host keeps its own.
_KERNEL_SETTINGS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


def cni_program_folder() -> Path | None:
    """Where the distribution keeps the container network plugins."""
    return next((Path(folder) for folder in CNI_PROGRAM_FOLDERS if Path(folder, "bridge").exists()), None)


def containerd_configuration(root: Path, state: Path, socket_path: str, cni: Path | None = None) -> str:
    """containerd's configuration file: all that it writes is in `root` and `state`, and no profile in the kernel."""
    return f"""version = 2
root = "{root}"
state = "{state}"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.aufs"]
[grpc]
address = "{socket_path}"
[plugins."io.containerd.internal.v1.opt"]
path = "{root / "opt"}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE_IMAGE}"
restrict_oom_score_adj = true
disable_apparmor = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{cni_program_folder() or CNI_PROGRAM_FOLDERS[0]}"
conf_dir = "{cni or state / "cni"}"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
"""


def _cni_configuration(node: Node) -> str:
    bridge = {
        "type": "bridge",
        "bridge": "pods",
        "isGateway": True,
        "hairpinMode": True,
        "ipMasq": False,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": node.pod_network}]],
            "routes": [{"dst": "0.0.0.0/0"}],
            # Leases end with the power, as the pods that hold them do.
            "dataDir": "/run/cni-leases",
        },
    }
    return json.dumps({"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]})


def _kubelet_configuration(layout: Layout, node: Node) -> str:
    nothing = {"memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%"}
    configuration = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node.address,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(_CONFIGURATION / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{layout.cluster_id}/{node.name}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "clusterDNS": [CONTROL_PLANE_ADDRESS],
        "clusterDomain": CLUSTER_DOMAIN,
        "resolvConf": str(_CONFIGURATION / "resolv.conf"),
        # The machine is shared by all nodes: what is left of it says nothing about one of them.
        "evictionHard": nothing,
        "makeIPTablesUtilChains": False,
        "imageGCLowThresholdPercent": 99,
        "imageGCHighThresholdPercent": 100,
        "oomScoreAdj": 0,
        "protectKernelDefaults": True,
        "readOnlyPort": 0,
        "serializeImagePulls": False,
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
    }
    return json.dumps(configuration)


def _proxy_configuration(node: Node) -> str:
    configuration = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clientConnection": {"kubeconfig": str(_CONFIGURATION / "kube-proxy.kubeconfig")},
        "clusterCIDR": POD_NETWORK,
        "hostnameOverride": node.name,
        "oomScoreAdj": 0,
        # Zero: leave the kernel's connection tracking alone.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }
    return json.dumps(configuration)


def _mount_disks(layout: Layout, node: Node) -> None:
    """Give the node its own /run, /var/lib and /var/log; the host's stay as they are."""
    disks = {
        _PROGRAMS: layout.programs,
        Path(IDENTITY_IN_NODE): node.identity,
        Path("/var/lib/containerd"): node.containerd,
        Path("/var/lib/kubelet"): node.state / "kubelet",
        Path("/var/log"): node.state / "log",
        Path(SHARED_IN_NODE): layout.shared,
    }
    # Opened first: the cache itself may be in a folder that is hidden next.
    opened = {target: os.open(source, os.O_PATH) for target, source in disks.items()}
    for hidden in ("/run", "/var/lib"):
        kernel.mount_tmpfs(Path(hidden))
    for target, descriptor in opened.items():
        target.mkdir(parents=True, exist_ok=True)
        kernel.bind(descriptor, target)
        os.close(descriptor)
    # Where the kubelet finds the machine's UUID, which is one for all nodes unless each shows its own.
    for shown in _MACHINE_FILES:
        if shown.exists():
            kernel.bind(Path(IDENTITY_IN_NODE, "machine_id"), shown)
    for setting, value in _KERNEL_SETTINGS.items():
        target = Path("/proc/sys") / setting
        if target.exists():
            pretended = _CONFIGURATION / "kernel-settings" / setting.replace("/", ".")
            pretended.parent.mkdir(parents=True, exist_ok=True)
            pretended.write_text(value + "\n")
            kernel.bind(pretended, target)
    kernel.share_mounts(Path("/"))


def _read_credentials(layout: Layout, node: Node) -> dict[str, bytes]:
    source = layout.control_plane
    return {
        "ca.crt": (source / "pki" / "ca.crt").read_bytes(),
        "kubelet.kubeconfig": (source / f"{node.user.replace(':', '-')}.kubeconfig").read_bytes(),
        "kube-proxy.kubeconfig": (source / "system-kube-proxy.kubeconfig").read_bytes(),
    }


def _write_configuration(layout: Layout, node: Node, credentials: dict[str, bytes]) -> None:
    for name, content in credentials.items():
        (_CONFIGURATION / name).write_bytes(content)
    containerd = containerd_configuration(
        Path("/var/lib/containerd"), Path("/run/containerd"), CONTAINERD_SOCKET, _CONFIGURATION / "cni"
    )
    texts = {
        "resolv.conf": f"nameserver {CONTROL_PLANE_ADDRESS}\n",
        "containerd.toml": containerd,
        "cni/10-pods.conflist": _cni_configuration(node),
        "kubelet.json": _kubelet_configuration(layout, node),
        "kube-proxy.json": _proxy_configuration(node),
    }
    for name, text in texts.items():
        path = _CONFIGURATION / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


def _connect(layout: Layout, node: Node) -> None:
    """Bring up the link that the cluster plugged into this node, and the routes to the other nodes' pods."""
    end = time.monotonic() + PATIENCE_SECONDS
    while LINK not in {name for _, name in socket.if_nameindex()}:
        if time.monotonic() > end:
            raise LocalClusterError(f"{node.name} got no network link; see {layout.logs / 'supervisor.log'}")
        time.sleep(_POLL_SECONDS)
    others = [other for other in layout.nodes if other != node]
    kernel.ip_batch(
        "link set lo up",
        f"address add {node.address}/{NODE_NETWORK_BITS} dev {LINK}",
        f"link set {LINK} up",
        f"route add default via {CONTROL_PLANE_ADDRESS}",
        *(f"route add {other.pod_network} via {other.address}" for other in others),
    )
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1\n")


def _commands(node: Node) -> dict[str, list[str]]:
    labels = ",".join(f"{key}={value}" for key, value in node.labels.items())
    return {
        "containerd": ["containerd", "--config", str(_CONFIGURATION / "containerd.toml")],
        "kubelet": [
            str(_PROGRAMS / "kubelet"),
            f"--config={_CONFIGURATION / 'kubelet.json'}",
            f"--kubeconfig={_CONFIGURATION / 'kubelet.kubeconfig'}",
            f"--hostname-override={node.name}",
            f"--node-ip={node.address}",
            f"--node-labels={labels}",
            f"--boot-id-file={IDENTITY_IN_NODE}/boot_id",
            f"--machine-id-file={IDENTITY_IN_NODE}/machine_id",
        ],
        "kube-proxy": [str(_PROGRAMS / "kube-proxy"), f"--config={_CONFIGURATION / 'kube-proxy.json'}"],
    }


def _start(name: str, command: list[str]) -> subprocess.Popen[bytes]:
    with Path("/var/log", f"{name}.log").open("ab") as log:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/"
        )


def _keep_running(commands: dict[str, list[str]]) -> None:
    """Start the services, restart one that ends, and reap what the containers leave, for ever."""
    # The objects are kept: of one that is dropped `subprocess` waits for the process itself, and we never hear of its
    # end.
    running = {}
    for name, command in commands.items():
        running[name] = _start(name, command)
        if name == "containerd":  # without which the kubelet gives up
            _wait_for_containerd()
    while True:
        pid, _ = os.wait()
        name = next((name for name, process in running.items() if process.pid == pid), "")
        if not name:
            continue
        time.sleep(_RESTART_SECONDS)
        if name == "kubelet":  # a containerd that came up without what it needs goes on to run, and serves no kubelet
            running["containerd"].terminate()
            running["containerd"].wait()
            Path(CONTAINERD_SOCKET).unlink(missing_ok=True)
            running["containerd"] = _start("containerd", commands["containerd"])
            _wait_for_containerd()
        running[name] = _start(name, commands[name])


def _wait_for_containerd() -> None:
    while not Path(CONTAINERD_SOCKET).exists():
        time.sleep(_POLL_SECONDS)


def main() -> None:
    layout = load_layout(Path(sys.argv[1]))
    node = layout.node(sys.argv[2])
    socket.sethostname(node.name)
    credentials = _read_credentials(layout, node)
    _mount_disks(layout, node)
    _write_configuration(layout, node, credentials)
    _connect(layout, node)
    if shutil.which("containerd") is None:
        raise LocalClusterError("containerd is missing: install it and run `up` again")
    _keep_running(_commands(node))


if __name__ == "__main__":
    main()

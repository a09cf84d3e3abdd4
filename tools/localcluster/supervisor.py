"""The process that is a running cluster: control plane, network and nodes live and die with it.

It is process 1 of a PID namespace, in network and mount namespaces of its own, so that one SIGKILL ends a whole
cluster and leaves nothing on the host but folders. Commands (power, restarts) come one JSON line each through a socket.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from localcluster import cgroups, kernel
from localcluster.controlplane import ControlPlane, User
from localcluster.errors import LocalClusterError
from localcluster.layout import (
    API_PORT,
    BRIDGE,
    CLUSTER_DOMAIN,
    CONTROL_PLANE_ADDRESS,
    NODE_NETWORK_BITS,
    Layout,
    Node,
    load_layout,
)
from localcluster.node import LINK
from localcluster.patience import PATIENCE_SECONDS
from localcluster.processes import spawn

_DNS_USER = "system:coredns"
_POLL_SECONDS = 0.01
_BRIDGE_MAC = "02:00:00:00:00:01"
_PAUSED_COMPONENTS = ("kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd")

NAMESPACES = ("--net", "--mount", "--uts", "--ipc", "--pid")
UNSHARE = ("unshare", *NAMESPACES, "--propagation", "private", "--mount-proc", "--fork", "--kill-child=SIGKILL")


class Supervisor:
    """All that runs, and the operations on it; operations on one node never overlap."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._machines: dict[str, subprocess.Popen[bytes]] = {}
        self._locks = {node.name: threading.Lock() for node in layout.nodes}
        self._control_plane = ControlPlane(
            layout.control_plane,
            controller_manager=True,
            scheduler=True,
            address=CONTROL_PLANE_ADDRESS,
            port=API_PORT,
            users=[
                User("system:kube-proxy"),
                User(_DNS_USER),
                *(User(node.user, ("system:nodes",)) for node in layout.nodes),
            ],
        )
        self.operations: dict[str, Callable[[str], object]] = {
            "power_on": self.power_on,
            "power_off": self.power_off,
            "start_apiserver": lambda _: self._control_plane.start_apiserver(),
            "stop_apiserver": lambda _: self._control_plane.stop_apiserver(),
            "restart_apiserver": lambda _: self._control_plane.restart_apiserver(),
            "pause_control_plane": lambda _: self._signal_control_plane(signal.SIGSTOP),
            "resume_control_plane": lambda _: self._signal_control_plane(signal.SIGCONT),
            "running_nodes": lambda _: [name for name, machine in self._machines.items() if machine.poll() is None],
        }

    def start(self, listener: int) -> None:
        """Bring everything up; `listener` is the host's listening socket."""
        layout = self._layout
        self._make_network()
        forwarder = [sys.executable, "-m", "localcluster.forward", str(listener), CONTROL_PLANE_ADDRESS, str(API_PORT)]
        spawn(forwarder, layout.logs / "forward.log", pass_fds=[listener])
        self._control_plane.start()
        with ThreadPoolExecutor(len(layout.nodes) + 1) as pool:
            tasks = [pool.submit(self.power_on, node.name) for node in layout.nodes]
            tasks.append(pool.submit(self._start_dns))
            for task in tasks:
                task.result()
        host, port = socket.socket(fileno=os.dup(listener)).getsockname()
        self._control_plane.write_kubeconfig("admin", layout.state / "kubeconfig", f"https://{host}:{port}")

    def power_on(self, name: str) -> None:
        """Boot one node with a new boot id; nothing when it is on."""
        layout, node = self._layout, self._layout.node(name)
        with self._locks[name]:
            machine = self._machines.get(name)
            if machine is not None and machine.poll() is None:
                return
            self._clear(node)
            for folder in (node.containerd, node.state / "kubelet", node.state / "log", node.identity):
                folder.mkdir(parents=True, exist_ok=True)
            (node.identity / "boot_id").write_text(f"{uuid.uuid4()}\n")
            (node.identity / "kmsg").write_text("")
            machine_id = node.identity / "machine_id"
            if not machine_id.exists():
                machine_id.write_text(uuid.uuid4().hex + "\n")
            cgroups.make(layout.cluster_id, name)
            command = [*UNSHARE, sys.executable, "-m", "localcluster.node", str(layout.state), name]
            self._machines[name] = spawn(command, layout.logs / f"{name}.log")
            self._plug_in(node, self._first_process(self._machines[name]))

    def power_off(self, name: str) -> None:
        """Cut one node's power: the link goes down first, so that no goodbye leaves; then everything in it dies."""
        node = self._layout.node(name)
        with self._locks[name]:
            machine = self._machines.get(name)
            if machine is None or machine.poll() is not None:
                return
            kernel.ip_batch(f"link set {name} down")
            os.kill(self._first_process(machine), signal.SIGKILL)
            # The kernel lets this end only after every process in the node's PID namespace is gone.
            machine.wait()
            self._clear(node)

    def _clear(self, node: Node) -> None:
        """Remove what a node leaves when its power is gone: its end of the cable and its control groups."""
        if node.name in {name for _, name in socket.if_nameindex()}:
            kernel.ip_batch(f"link delete {node.name}")
        cgroups.remove(self._layout.cluster_id, node.name)

    def _make_network(self) -> None:
        kernel.ip_batch(
            "link set lo up",
            # An address of its own: otherwise it takes a port's, changes it when that node's cable is pulled, and every
            # other node loses the control plane until its ARP entry expires.
            f"link add {BRIDGE} address {_BRIDGE_MAC} type bridge",
            f"address add {CONTROL_PLANE_ADDRESS}/{NODE_NETWORK_BITS} dev {BRIDGE}",
            f"link set {BRIDGE} up",
            *(f"route add {node.pod_network} via {node.address}" for node in self._layout.nodes),
        )

    def _plug_in(self, node: Node, pid: int) -> None:
        kernel.ip_batch(
            f"link add {node.name} type veth peer name {LINK} netns {pid}",
            f"link set {node.name} master {BRIDGE} up",
        )

    def _first_process(self, machine: subprocess.Popen[bytes]) -> int:
        """The node's process 1: the only child of the `unshare` that made its namespaces."""
        children = Path(f"/proc/{machine.pid}/task/{machine.pid}/children")
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            found = children.read_text().split()
            if found:
                return int(found[0])
            if machine.poll() is not None or time.monotonic() > end:
                raise LocalClusterError(f"a node did not start; see the logs in {self._layout.logs}")
            time.sleep(_POLL_SECONDS)

    def _start_dns(self) -> None:
        layout = self._layout
        self._grant_dns()
        corefile = layout.control_plane / "Corefile"
        kubeconfig = self._control_plane.kubeconfig_of(_DNS_USER)
        # There is no world outside: other names do not exist, which is a quick answer instead of a slow timeout.
        corefile.write_text(
            f"{CLUSTER_DOMAIN} in-addr.arpa ip6.arpa {{\n  errors\n  ready {CONTROL_PLANE_ADDRESS}:8181\n  "
            f"kubernetes {CLUSTER_DOMAIN} in-addr.arpa ip6.arpa {{\n    kubeconfig {kubeconfig}\n    ttl 5\n  "
            "}\n}\n.  {\n  template ANY ANY {\n    rcode NXDOMAIN\n  }\n}\n"
        )
        spawn([str(layout.programs / "coredns"), "-conf", str(corefile)], layout.logs / "coredns.log")

    def _grant_dns(self) -> None:
        rbac = "rbac.authorization.k8s.io"
        watch = ["list", "watch"]
        core = {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": watch}
        slices = {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": watch}
        role = {"kind": "ClusterRole", "name": _DNS_USER}
        api = self._control_plane.api
        api.create(f"/apis/{rbac}/v1/clusterroles", {"metadata": {"name": _DNS_USER}, "rules": [core, slices]})
        binding = {
            "metadata": {"name": _DNS_USER},
            "roleRef": {"apiGroup": rbac, **role},
            "subjects": [{"kind": "User", "apiGroup": rbac, "name": _DNS_USER}],
        }
        api.create(f"/apis/{rbac}/v1/clusterrolebindings", binding)

    def _signal_control_plane(self, number: signal.Signals) -> None:
        pids = self._control_plane.pids()
        for component in _PAUSED_COMPONENTS:
            if component in pids:
                os.kill(pids[component], number)


def _answer(supervisor: Supervisor, connection: socket.socket) -> None:
    with connection, connection.makefile("rw") as stream:
        request = json.loads(stream.readline())
        try:
            result = supervisor.operations[request["operation"]](request["argument"])
            answer = {"result": result}
        except (LocalClusterError, OSError) as error:
            answer = {"error": str(error)}
        stream.write(json.dumps(answer) + "\n")


def main() -> None:
    layout = load_layout(Path(sys.argv[1]))
    supervisor = Supervisor(layout)
    supervisor.start(int(sys.argv[2]))
    # Bound under a short name: the length of a socket's path is limited, the length of a clone's is not.
    os.chdir(layout.state)
    with socket.socket(socket.AF_UNIX) as control:
        control.bind("control.new")
        control.listen()
        # Its being there under its real name tells the starter that all is up.
        shutil.move("control.new", layout.control_socket.name)
        while True:
            connection, _ = control.accept()
            threading.Thread(target=_answer, args=(supervisor, connection), daemon=True).start()


if __name__ == "__main__":
    main()

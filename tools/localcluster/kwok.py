"""A control plane with thousands of nodes that are not there: KWOK plays their kubelets.

Pods bound to such a node are Running at once and gone at once, so what is left of a start or a recovery is what the
control plane and the operator take. Each machine is a KWOK process: the `fleet` plays all ordinary nodes, and a machine
of its own can be killed like a server that loses power (`power_off`): its leases stop, its pods hang.

    with KwokControlPlane.temporary_with(64) as cluster:
        cluster.api.get("/api/v1/nodes")

From a shell, until Ctrl-C: `PYTHONPATH=tools python3 -m localcluster.kwok --nodes 64`.
"""

from __future__ import annotations

import argparse
import http.client
import json
import signal
import ssl
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from localcluster.api import ApiError, wait_for
from localcluster.build import KWOK, extra
from localcluster.controlplane import ADMIN, ControlPlane, ControlPlaneError, User, free_port
from localcluster.errors import LocalClusterError
from localcluster.processes import spawn

FLEET = "fleet"
NODES_PER_RACK = 16
NODES_PER_BLOCK = 64
BLOCK_LABEL = "topology.muster.dev/block"
RACK_LABEL = "topology.muster.dev/rack"
TOLERATION = {"key": "kwok.x-k8s.io/node", "operator": "Exists", "effect": "NoSchedule"}
"""What a pod needs to run on these nodes."""

CLIENT_LIMITS = {
    "apiserver_read_in_flight": 3000,
    "apiserver_write_in_flight": 1000,
    "controller_manager_queries_per_second": 1000,
    "scheduler_queries_per_second": 1000,
    "burst_factor": 2,
}
"""The defaults of 20 and 50 queries a second would be what is measured."""

_CAPACITY = {"cpu": "192", "memory": "2Ti", "pods": "110", "nvidia.com/gpu": "8"}
_ETCD_QUOTA_BYTES = 4 << 30
# A lease is renewed after a quarter of its duration; kubelets use these values, too.
_LEASE_SECONDS = 40
_ANNOTATION = "kwok.x-k8s.io/node"
_NOT_READY = "node.kubernetes.io/not-ready"
# No pod-complete: training does not end by itself.
_STAGES = (
    "node/fast/node-initialize.yaml",
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod/fast/pod-ready.yaml",
)
_OWN_STAGES = Path(__file__).parent / "stages"
_CONNECTIONS = 8
_NODES_READY_SECONDS = 600.0  # on a machine with much else to do

Object = dict[str, Any]


@dataclass(frozen=True)
class FakeNode:
    """One GPU node; `machine` names the KWOK process that plays its kubelet."""

    name: str
    block: str
    rack: str
    machine: str = FLEET

    def manifest(self) -> Object:
        """The Node object as its kubelet would register it."""
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": self.name,
                "annotations": {_ANNOTATION: self.machine},
                "labels": {
                    "kubernetes.io/hostname": self.name,
                    "kubernetes.io/os": "linux",
                    "type": "kwok",
                    "nvidia.com/gpu.product": "NVIDIA-H200",
                    BLOCK_LABEL: self.block,
                    RACK_LABEL: self.rack,
                },
            },
            "spec": {"taints": [{"key": _ANNOTATION, "value": "fake", "effect": "NoSchedule"}]},
            "status": {"allocatable": _CAPACITY, "capacity": _CAPACITY},
        }


def fleet(count: int, first: int = 0) -> list[FakeNode]:
    """`count` ordinary nodes, filled into racks of 16 and blocks of 64 in the order of their numbers."""
    return [
        FakeNode(f"gpu-{number:05d}", f"b{number // NODES_PER_BLOCK}", f"r{number // NODES_PER_RACK}")
        for number in range(first, first + count)
    ]


class KwokControlPlane(ControlPlane):
    """etcd, API server, controller manager, scheduler and `nodes` fake GPU nodes, all Ready when the context begins.

    Client limits are far above the defaults (`CLIENT_LIMITS`). Everything runs without root.
    """

    def __init__(
        self,
        directory: Path | str,
        *,
        nodes: int = 0,
        scheduler: bool = True,
        controllers: str = "*",
        users: Sequence[User] = (),
        api_server_arguments: Sequence[str] = (),
    ) -> None:
        limits = CLIENT_LIMITS
        super().__init__(
            directory,
            controller_manager=True,
            scheduler=scheduler,
            controllers=controllers,
            users=users,
            api_server_arguments=(
                f"--max-requests-inflight={limits['apiserver_read_in_flight']}",
                f"--max-mutating-requests-inflight={limits['apiserver_write_in_flight']}",
                *api_server_arguments,
            ),
            client_queries_per_second=limits["controller_manager_queries_per_second"],
        )
        self._nodes = nodes
        self._kwok: Path | None = None

    @classmethod
    def temporary_with(cls, nodes: int, **options: Any) -> Self:
        """One in a new temporary folder, which goes when the context ends without an error; options as of the class."""
        made = cls(tempfile.mkdtemp(prefix="muster-kwok-"), nodes=nodes, **options)
        made._temporary = True
        return made

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Once it has to stop nobody reads the logs.
        stopped = isinstance(error, KeyboardInterrupt | SystemExit)
        super().__exit__(kind, None if stopped else error, trace)

    def start(self) -> None:
        """Start the control plane, then the fleet's nodes, and wait until they are Ready."""
        with self._lock:
            self._kwok = extra(KWOK)
            super().start()
            try:
                self.add_nodes(fleet(self._nodes))
            except BaseException:
                self.stop()
                raise

    def add_nodes(self, nodes: Sequence[FakeNode]) -> None:
        """Register nodes and wait until all are Ready; a machine that does not run yet is started."""
        if not nodes:
            return
        for machine in sorted({node.machine for node in nodes}):
            if _component(machine) not in self.pids():
                self._on_free_ports(lambda machine=machine: self._power_on(machine))  # type: ignore[misc]
        self._each("POST", [("/api/v1/nodes", node.manifest()) for node in nodes])
        wanted = {node.name for node in nodes}
        wait_for(lambda: self._ready(wanted), f"{len(wanted)} nodes Ready", _NODES_READY_SECONDS)

    def remove_nodes(self, names: Iterable[str]) -> None:
        """Delete Node objects, the way a cloud's controller does with machines that are gone."""
        self._each("DELETE", [(f"/api/v1/nodes/{name}", None) for name in names])

    def power_off(self, machine: str) -> None:
        """A machine is dead from now on: its nodes stop renewing their leases, their pods neither start nor end."""
        if machine == FLEET:
            raise LocalClusterError("the fleet is every ordinary node: add nodes with a machine of their own")
        self.kill_component(_component(machine))

    def _power_on(self, machine: str) -> None:
        if self._kwok is None:
            raise ControlPlaneError("the control plane was never started: call start() first")
        name, port = _component(machine), free_port()
        configuration = self.directory / f"{name}.yaml"
        configuration.write_text(_configuration(machine, self._kwok / "kustomize" / "stage"))
        command = [
            *(str(self._kwok / "kwok"), f"--kubeconfig={self.kubeconfig_of(ADMIN)}"),
            *(f"--config={configuration}", f"--server-address=127.0.0.1:{port}"),
        ]
        self._processes[name] = spawn(command, self.log(name))
        self._wait(name, lambda: _healthy(port))

    def _start(self, name: str, command: Sequence[str]) -> None:
        quota = [f"--quota-backend-bytes={_ETCD_QUOTA_BYTES}"] if name == "etcd" else []
        super()._start(name, [*command, *quota])

    def _ready(self, wanted: set[str]) -> bool:
        started = time.monotonic()
        listed = self.api.get("/api/v1/nodes?resourceVersion=0")["items"]
        ready = wanted <= {node["metadata"]["name"] for node in listed if _is_ready(node)}
        if not ready:
            # To list thousands of nodes is work that those who make them Ready would have to wait for.
            time.sleep(4 * (time.monotonic() - started))
        return ready

    def _each(self, method: str, requests: Sequence[tuple[str, Object | None]]) -> None:
        """Many requests over a few connections that are kept: thousands of nodes in seconds.

        Raises:
            ApiError: for the first that is refused.
        """
        api, context = self.api, ssl.create_default_context(cafile=str(self.pki.ca))
        headers = {"Authorization": f"Bearer {api.token}", "Content-Type": "application/json"}
        host = api.server.removeprefix("https://")

        def some(mine: Sequence[tuple[str, Object | None]]) -> None:
            connection = http.client.HTTPSConnection(host, context=context, timeout=30)
            try:
                for path, body in mine:
                    connection.request(method, path, None if body is None else json.dumps(body), headers)
                    answer = connection.getresponse()
                    text = answer.read().decode()
                    if answer.status >= http.HTTPStatus.BAD_REQUEST:
                        raise ApiError(answer.status, f"{method} {path}: {answer.status} {text}")
            finally:
                connection.close()

        with ThreadPoolExecutor(_CONNECTIONS) as pool:
            list(pool.map(some, [requests[start::_CONNECTIONS] for start in range(_CONNECTIONS)]))


def _component(machine: str) -> str:
    return "kwok" if machine == FLEET else f"kwok-{machine}"


def _configuration(machine: str, stages: Path) -> str:
    options = {
        "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
        "kind": "KwokConfiguration",
        "metadata": {"name": "kwok"},
        "options": {
            "manageAllNodes": False,
            "manageNodesWithAnnotationSelector": f"{_ANNOTATION}={machine}",
            "nodeLeaseDurationSeconds": _LEASE_SECONDS,
            # Without an address of the node pods get none, either.
            "nodeIP": "10.0.0.1",
            "podPlayStageParallelism": 16,
            "nodePlayStageParallelism": 16,
            "nodeLeaseParallelism": 4,
            "podsOnNodeSyncParallelism": 4,
        },
    }
    files = [*(stages / stage for stage in _STAGES), *sorted(_OWN_STAGES.glob("*.yaml"))]
    return "\n---\n".join([json.dumps(options), *(file.read_text() for file in files)])


def _healthy(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == http.HTTPStatus.OK
    except OSError:
        return False
    finally:
        connection.close()


def _is_ready(node: Object) -> bool:
    """Ready, and the controller manager has taken the taint off that every new node begins with."""
    conditions = node["status"].get("conditions") or ()
    taints = node["spec"].get("taints") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions) and not any(
        each["key"] == _NOT_READY for each in taints
    )


def main() -> None:
    """Run one until Ctrl-C or SIGTERM."""
    parser = argparse.ArgumentParser(prog="localcluster.kwok", description=main.__doc__)
    parser.add_argument("--nodes", type=int, default=64, help="fake GPU nodes (default 64)")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        with KwokControlPlane.temporary_with(arguments.nodes) as cluster:
            print(f"{arguments.nodes} nodes are Ready: export KUBECONFIG={cluster.kubeconfig}", flush=True)
            signal.pause()
    except KeyboardInterrupt:
        print("stopped")
    except LocalClusterError as error:
        sys.exit(f"{error}")


if __name__ == "__main__":
    main()

"""The control plane that everything of one gang size runs on, and what the bench itself does to it."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from bench.api import STRATEGIC_PATCH, Connection, Object
from bench.writes import write_counts
from localcluster.api import wait_for
from localcluster.kwok import NODES_PER_BLOCK, NODES_PER_RACK, TOLERATION, FakeNode, KwokControlPlane

ROOT = Path(__file__).resolve().parents[1]
NAMESPACE = "bench"
VICTIM = "victim"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_SPARES = 8
_SERVED_SECONDS = 60.0
_EXIT_CODE = 1


class Bed:
    """One KWOK control plane with as many nodes as the gang has pods, and the namespace of the gangs."""

    def __init__(self, cluster: KwokControlPlane, size: int) -> None:
        self.cluster = cluster
        self.size = size
        self.connection = self.connect()
        self.connection.post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"
        wait_for(lambda: bool(cluster.api.get(account)), "the namespace's service account", 30)

    def connect(self) -> Connection:
        """A connection of its own, as the administrator."""
        api = self.cluster.api
        return Connection(api.server, api.token, api.ca)

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """kubectl's output; it must succeed."""
        command = [
            *(str(self.cluster.kubectl), f"--kubeconfig={self.cluster.kubeconfig}"),
            *(f"--cache-dir={self.cluster.directory / 'kubectl-cache'}", *arguments),
        ]
        answer = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120, check=False)
        if answer.returncode != 0:
            raise RuntimeError(f"kubectl {' '.join(arguments[:3])}: {answer.stderr.strip()}")
        return answer.stdout

    def apply(self, documents: Sequence[Object]) -> None:
        """Server-side apply of many objects."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(documents)})
        self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)

    def install_definitions(self, documents: Sequence[Object]) -> None:
        """Apply CustomResourceDefinitions and wait until they are served."""
        self.apply(documents)
        names = {document["metadata"]["name"] for document in documents}
        wait_for(lambda: names <= self._served(), "the definitions are served", _SERVED_SECONDS)

    def _served(self) -> set[str]:
        listed = self.connection.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")["items"]
        established = {"type": "Established", "status": "True"}
        return {
            each["metadata"]["name"]
            for each in listed
            if any(established.items() <= condition.items() for condition in each["status"].get("conditions") or ())
        }

    def write_counts(self) -> Mapping[str, int]:
        """The API server's writes so far."""
        return write_counts(self.connection.raw("/metrics").decode())

    def fail(self, pods: Sequence[str]) -> None:
        """What a kubelet writes when the container of a pod ends with an error."""
        now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        state = {"terminated": {"exitCode": _EXIT_CODE, "reason": "Error", "startedAt": now, "finishedAt": now}}
        container = {"name": "trainer", "image": "trainer", "ready": False, "restartCount": 0, "state": state}
        conditions = [{"type": kind, "status": "False", "reason": "PodFailed"} for kind in ("Ready", "ContainersReady")]
        status = {"phase": "Failed", "conditions": conditions, "containerStatuses": [{**container, "imageID": ""}]}
        for pod in pods:
            self.connection.patch(f"{PODS}/{pod}/status", {"status": status}, STRATEGIC_PATCH)

    def place_victim(self) -> None:
        """Put a node that can die in the place of the last one: the gang has to take it, there is no other."""
        last = self.size - 1
        self.cluster.remove_nodes([f"gpu-{last:05d}"])
        self.cluster.add_nodes([_in_the_place_of(last, VICTIM, VICTIM)])

    def add_spares(self) -> list[str]:
        """Nodes beside the victim for its replacement."""
        spares = [_in_the_place_of(self.size - 1, f"spare-{number}") for number in range(_SPARES)]
        self.cluster.add_nodes(spares)
        return [spare.name for spare in spares]

    def cut_victim(self) -> None:
        """The victim's machine dies."""
        self.cluster.power_off(VICTIM)

    def bury_victims_pods(self) -> None:
        """Take away what hangs on the dead node: nobody else ends it."""
        self.cluster.power_off(VICTIM)
        for pod in self.connection.get(PODS, {"fieldSelector": f"spec.nodeName={VICTIM}"})["items"]:
            name = pod["metadata"]["name"]
            if pod["metadata"].get("finalizers"):
                self.connection.patch(f"{PODS}/{name}", {"metadata": {"finalizers": None}})
            self.connection.delete(f"{PODS}/{name}", {"gracePeriodSeconds": 0})

    def remove_victim(self, spares: Sequence[str]) -> None:
        """All nodes as they were before `place_victim`."""
        self.cluster.remove_nodes([VICTIM, *spares])
        last = self.size - 1
        self.cluster.add_nodes(
            [FakeNode(f"gpu-{last:05d}", f"b{last // NODES_PER_BLOCK}", f"r{last // NODES_PER_RACK}")]
        )


def _in_the_place_of(number: int, name: str, machine: str | None = None) -> FakeNode:
    block, rack = f"b{number // NODES_PER_BLOCK}", f"r{number // NODES_PER_RACK}"
    return FakeNode(name, block, rack) if machine is None else FakeNode(name, block, rack, machine)


def pod_spec() -> Object:
    """One whole node's worth of pod, the same for every system."""
    container = {
        "name": "trainer",
        "image": "trainer",
        "command": ["train"],
        "resources": {"limits": {"cpu": "32", "memory": "256Gi", "nvidia.com/gpu": "8"}},
    }
    return {"restartPolicy": "Never", "tolerations": [TOLERATION], "containers": [container]}


def documents(path: Path) -> list[Object]:
    """The YAML documents of a file."""
    return [document for document in yaml.load_all(path.read_text(), yaml.CSafeLoader) if document]

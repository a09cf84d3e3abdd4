"""The executable as a user runs it, against the real API server; the tests write what operator and kubelets would."""

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from localcluster.controlplane import ControlPlane
from muster.world.names import gang_name

ROOT = Path(__file__).resolve().parents[3]
BLOCK, RACK = "topology.muster.dev/block", "topology.muster.dev/rack"
Object = dict[str, Any]


def ago(seconds: float) -> str:
    """A moment in the past."""
    return (datetime.now(UTC) - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@dataclass
class User:
    """Somebody at a terminal that is no terminal: pipes."""

    kubeconfig: Path

    def __call__(self, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        """Run `kubectl-muster ARGUMENTS`; the caller judges the result."""
        inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "FORCE_COLOR")}
        given = {"KUBECONFIG": str(self.kubeconfig), "PYTHONPATH": str(ROOT / "operator"), **environment}
        return subprocess.run(
            [sys.executable, "-m", "muster.cli", *arguments],
            env={**inherited, **given},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def json(self, *arguments: str) -> Any:
        """What it finds, as a program reads it."""
        result = self(*arguments, "-o", "json")
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)


@dataclass
class Hand:
    """Writes what operator and kubelets would; everything goes at the end."""

    kubectl: Callable[..., "subprocess.CompletedProcess[str]"]
    namespace: str
    nodes: list[str]

    def create(self, body: Object) -> Object:
        result = self.kubectl("create", "-f", "-", "-o", "json", stdin=json.dumps(body))
        assert result.returncode == 0, result.stderr
        made: Object = json.loads(result.stdout)
        return made

    def patch_status(self, kind: str, name: str, status: Object, *where: str) -> None:
        patch = ("--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))
        result = self.kubectl("patch", kind, name, *where, *patch)
        assert result.returncode == 0, result.stderr

    def job(self, name: str, status: Object | None = None, nodes: int = 2, **spec: Any) -> Object:
        template = {"spec": {"containers": [{"name": "main", "image": "trainer:1", "command": ["train"]}]}}
        body = {"nodes": nodes, "template": template, **spec}
        made = self.create(
            {
                "apiVersion": "muster.dev/v1alpha1",
                "kind": "TrainingJob",
                "metadata": {"name": name, "namespace": self.namespace},
                "spec": body,
            }
        )
        if status is not None:
            self.patch_status("tj", name, {"observedGeneration": 1, **status}, "-n", self.namespace)
        return made

    def gang(self, job: Object, *nodes: str) -> None:
        meta = job["metadata"]
        owner = {"apiVersion": job["apiVersion"], "kind": job["kind"], "name": meta["name"], "uid": meta["uid"]}
        spec = {"jobUid": meta["uid"], "attempt": 1, "time": ago(60), "level": "Start", "reason": "Start"}
        self.create(
            {
                "apiVersion": "muster.dev/v1alpha1",
                "kind": "Gang",
                "metadata": {
                    "name": gang_name(meta["name"], meta["uid"]),
                    "namespace": self.namespace,
                    "ownerReferences": [{**owner, "controller": True}],
                },
                "spec": {**spec, "members": [{"node": node} for node in nodes]},
            }
        )

    def node(self, name: str, block: str = "", rack: str = "", gpus: int = 8, ready: bool = True, **spec: Any) -> str:
        """A node of the test's own; its labels' values, too, so that other tests' nodes stand elsewhere."""
        unique = f"{name}-{self.namespace}"
        labels = {key: value for key, value in ((BLOCK, block), (RACK, rack)) if value}
        self.create(
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": unique, "labels": labels}, "spec": spec}
        )
        self.nodes.append(unique)
        amounts = {"nvidia.com/gpu": str(gpus), "cpu": "64", "memory": "512Gi", "pods": "110"}
        condition = {"type": "Ready", "status": str(ready), "reason": "Test", "message": ""}
        times = {"lastHeartbeatTime": ago(1)[:19] + "Z", "lastTransitionTime": ago(1)[:19] + "Z"}
        self.patch_status(
            "node", unique, {"allocatable": amounts, "capacity": amounts, "conditions": [{**condition, **times}]}
        )
        # Until a controller manager, which is not there, takes it off; see TaintNodesByCondition.
        result = self.kubectl("taint", "node", unique, "node.kubernetes.io/not-ready-")
        assert result.returncode in (0, 1), result.stderr
        return unique

    def heartbeat(self, node: str, seconds_ago: float) -> None:
        self.create(
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": node, "namespace": "kube-node-lease"},
                "spec": {"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": ago(seconds_ago)},
            }
        )

    def event(self, job: Object, reason: str, note: str, kind: str = "Normal") -> None:
        meta = job["metadata"]
        regarding = {"apiVersion": job["apiVersion"], "kind": job["kind"], "name": meta["name"], "uid": meta["uid"]}
        self.create(
            {
                "apiVersion": "events.k8s.io/v1",
                "kind": "Event",
                "metadata": {"name": f"{meta['name']}.{uuid.uuid4().hex[:8]}", "namespace": self.namespace},
                "regarding": {**regarding, "namespace": self.namespace},
                "eventTime": ago(30),
                "type": kind,
                "reason": reason,
                "action": "Reconcile",
                "note": note,
                "reportingController": "muster.dev/operator",
                "reportingInstance": "test",
            }
        )


@pytest.fixture
def user(api_server: ControlPlane) -> User:
    """The administrator."""
    return User(api_server.kubeconfig)


@pytest.fixture
def hand(kubectl: Callable[..., "subprocess.CompletedProcess[str]"], namespace: str) -> Iterator[Hand]:
    """Objects of the test's own."""
    kubectl("create", "namespace", "kube-node-lease")
    made = Hand(kubectl, namespace, [])
    yield made
    if made.nodes:
        kubectl("delete", "node", *made.nodes, "--wait=false")
        kubectl("delete", "lease", "-n", "kube-node-lease", "--ignore-not-found", *made.nodes)

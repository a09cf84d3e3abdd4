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
import yaml

from localcluster.controlplane import ControlPlane
from localcluster.patience import PATIENCE_SECONDS
from muster.world.names import gang_name

ROOT = Path(__file__).resolve().parents[4]
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
            timeout=PATIENCE_SECONDS,
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

    def create(self, body: Object) -> Object:
        result = self.kubectl("create", "-f", "-", "-o", "json", stdin=json.dumps(body))
        assert result.returncode == 0, result.stderr
        made: Object = json.loads(result.stdout)
        return made

    def block(self, name: str) -> str:
        """The label of a block in which no other test has nodes."""
        return f"{name}-{self.namespace}"

    def pod(self, name: str, node: str, gpus: int = 0) -> None:
        """Somebody's pod on a node."""
        resources = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
        container = {"name": "main", "image": "notebook:1", "resources": resources}
        metadata = {"name": name, "namespace": self.namespace}
        self.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": metadata,
                "spec": {"nodeName": node, "containers": [container]},
            }
        )

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

    def node(self, name: str, block: str, rack: str = "", gpus: int = 8, ready: bool = True, **spec: Any) -> str:
        """A node of the test's own, in a block of the test's own."""
        unique = f"{name}-{self.namespace}"
        labels = {"test": self.namespace, BLOCK: self.block(block), **({RACK: rack} if rack else {})}
        self.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": unique, "labels": labels}, "spec": spec})
        amounts = {"nvidia.com/gpu": str(gpus), "cpu": "64", "memory": "512Gi", "pods": "110"}
        condition = {"type": "Ready", "status": str(ready), "reason": "Test", "message": ""}
        times = {"lastHeartbeatTime": ago(1)[:19] + "Z", "lastTransitionTime": ago(1)[:19] + "Z"}
        self.patch_status(
            "node", unique, {"allocatable": amounts, "capacity": amounts, "conditions": [{**condition, **times}]}
        )
        # Admission puts it on each new node; the node controller, which is not there, takes it off.
        result = self.kubectl("taint", "node", unique, "node.kubernetes.io/not-ready-")
        assert result.returncode == 0, result.stderr
        return unique

    def heartbeat(self, node: str, seconds_ago: float) -> None:
        self.create(
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": node, "namespace": "kube-node-lease", "labels": {"test": self.namespace}},
                "spec": {"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": ago(seconds_ago)},
            }
        )

    def grant(self, role: str, *, everywhere: bool = False) -> None:
        """Bind a ClusterRole of the manifests to the stranger."""
        roles = [f"--filename={ROOT}/manifests/{folder}/user-roles.yaml" for folder in ("base", "components/jobs")]
        given = ["clusterrolebinding", f"{role}-{self.namespace}"] if everywhere else ["rolebinding", role]
        binding = ["create", *given, f"--clusterrole={role}", f"--serviceaccount={self.namespace}:stranger"]
        for arguments in (["apply", *roles], [*binding, "-n", self.namespace]):
            result = self.kubectl(*arguments)
            assert result.returncode == 0, result.stderr

    def health(self, node: str, state: str, reason: str, seconds_ago: float = 60) -> None:
        """The operator's verdict on a node, which may have a NodeHealth already."""
        body = {"apiVersion": "muster.dev/v1alpha1", "kind": "NodeHealth", "metadata": {"name": node}}
        status: Object = {"state": state, "reason": reason, "message": f"{reason}: seen", "since": ago(seconds_ago)}
        is_out = state in ("Validating", "Degraded", "Unhealthy", "Quarantined")
        status["exclusion"] = {"reason": reason} if is_out else None
        result = self.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps({**body, "spec": {}}))
        assert result.returncode == 0, result.stderr
        self.patch_status("nodehealth", node, status)

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
def stranger(api_server: ControlPlane, hand: Hand, tmp_path: Path) -> User:
    """A service account of the namespace without any right: `hand.grant()` gives it some."""
    hand.kubectl("create", "serviceaccount", "stranger", "-n", hand.namespace)
    token = hand.kubectl("create", "token", "stranger", "-n", hand.namespace).stdout.strip()
    config = yaml.safe_load(api_server.kubeconfig.read_text())
    config["users"] = [{"name": entry["name"], "user": {"token": token}} for entry in config["users"]]
    for entry in config["contexts"]:
        entry["context"]["namespace"] = hand.namespace
    path = tmp_path / "stranger.kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return User(path)


@pytest.fixture
def hand(kubectl: Callable[..., "subprocess.CompletedProcess[str]"], namespace: str) -> Iterator[Hand]:
    """Objects of the test's own."""
    kubectl("create", "namespace", "kube-node-lease")
    yield Hand(kubectl, namespace)
    for path in ("/api/v1/nodes", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"):
        result = kubectl("delete", "--raw", f"{path}?labelSelector=test%3D{namespace}")  # all at once
        assert result.returncode == 0, result.stderr
    kubectl("delete", "nodehealths", "--all")

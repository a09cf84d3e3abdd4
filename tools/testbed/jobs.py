"""Jobs of the fast trainer (tests/e2e/trainers/steps.py), and everything that tests want to know of them."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localcluster.patience import PATIENCE_SECONDS
from testbed.bed import Bed
from testbed.gangwatch import GangWatch, Seen
from testbed.kube import wait_until

CLAIM = "shared"
SHARED = "/shared"


@dataclass(eq=False)
class Job:
    """One TrainingJob of the fast trainer, and everything a test wants to know of it."""

    bed: Bed
    namespace: str
    name: str
    folder: Path
    watch: GangWatch
    nodes: int

    def status(self) -> dict[str, Any]:
        path = f"/apis/muster.dev/v1alpha1/namespaces/{self.namespace}/trainingjobs"
        listed = self.bed.items(path, fieldSelector=f"metadata.name={self.name}")
        return next((dict(job.get("status") or {}) for job in listed), {})

    def lines(self) -> list[dict[str, Any]]:
        """What all ranks have logged, in the order of the machine's clock."""
        found = []
        for path in self.folder.glob("log-*.jsonl"):
            found += [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
        return sorted(found, key=lambda line: line["monotonic"])

    def events(self, event: str, attempt: int | None = None) -> list[dict[str, Any]]:
        return [line for line in self.lines() if line["event"] == event and attempt in (None, line["attempt"])]

    def step(self, attempt: int | None = None) -> int:
        return max((line["step"] for line in self.events("step", attempt)), default=0)

    def newest_checkpoint(self) -> int:
        """The step of the newest one that was published; 0 before there is any."""
        return max((line["step"] for line in self.events("checkpoint")), default=0)

    def wait_step(self, step: int, attempt: int | None = None) -> None:
        wait_until(f"step {step} of {self.name}", lambda: self.step(attempt) >= step)

    def wait_training_again(self, after_attempt: int) -> Seen:
        """Wait until every rank has made a step in a later attempt; the state of that attempt."""

        def attempt() -> int | None:
            ranks: dict[int, set[int]] = {}
            for line in self.events("step"):
                ranks.setdefault(line["attempt"], set()).add(line["rank"])
            return next((a for a in sorted(ranks) if a > after_attempt and len(ranks[a]) == self.nodes), None)

        number = wait_until(f"{self.name} training again", attempt)
        return wait_until(
            f"the record of attempt {number} of {self.name}",
            lambda: next((seen for seen in self.watch.seen if seen.attempt == number and seen.going), None),
        )

    def current(self) -> Seen:
        return wait_until(f"the gang of {self.name}", lambda: self.watch.latest)

    def completion(self, timeout_seconds: float = PATIENCE_SECONDS) -> dict[str, Any]:
        return wait_until(f"the end of {self.name}", lambda: self.status().get("completion"), timeout_seconds, 0.3)

    def pods(self) -> dict[int, dict[str, Any]]:
        """Live pods by index; the newest incarnation of each."""
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        listed = self.bed.items(path, labelSelector=f"muster.dev/job={self.name}")
        live = [pod for pod in listed if not pod["metadata"].get("deletionTimestamp")]
        live.sort(key=lambda pod: int(pod["metadata"]["labels"]["muster.dev/incarnation"]))
        return {int(pod["metadata"]["labels"]["muster.dev/index"]): pod for pod in live}

    def rank_pids(self, index: int) -> list[int]:
        """Host pids of a worker's trainer processes (not of its launcher)."""
        pod = self.pods()[index]
        found = self.bed.cluster.pids_of(pod["spec"]["nodeName"], self.namespace, pod["metadata"]["name"], "trainer")
        return [
            p.pid for p in found if any("steps.py" in word for word in p.command) and "/muster/run.pyz" not in p.command
        ]

    def signal_rank(self, index: int, number: int = signal.SIGKILL) -> None:
        pids = self.rank_pids(index)
        assert pids, f"worker {index} of {self.name} has no rank process"
        os.kill(pids[0], number)

    def kill(self, pid: int) -> None:
        """End a rank whose host pid was asked for before: without an API server nobody can be asked."""
        os.kill(pid, signal.SIGKILL)

    def ranks_of_a_later_attempt(self, attempt: int) -> set[int]:
        """The ranks that have made a step in the first attempt after this one in which any has."""
        steps = [line for line in self.events("step") if line["attempt"] > attempt]
        first = min((line["attempt"] for line in steps), default=0)
        return {line["rank"] for line in steps if line["attempt"] == first}

    def events_of(self) -> list[dict[str, Any]]:
        listed = self.bed.items(f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events")
        return [event for event in listed if (event.get("regarding") or {}).get("name") == self.name]

    def reasons(self) -> set[str]:
        return {event["reason"] for event in self.events_of()}

    def wait_reasons(self, *reasons: str) -> None:
        """Wait until Events with these reasons are there: they are written after what they tell of."""
        wait_until(f"Events {', '.join(reasons)} of {self.name}", lambda: self.reasons() >= set(reasons))

    def weights(self) -> set[str]:
        return {line["weights_sha256"] for line in self.events("done")}

    def describe(self) -> str:
        """What somebody has to know who was not there when a test failed; whatever cannot be had is left out."""
        pods = self.bed.kubectl.json("get", "pods", "-n", self.namespace, "-l", f"muster.dev/job={self.name}")["items"]
        told = [line for line in self.lines() if line["event"] != "step"][-20:]
        events = [f"{it['reason']}: {it.get('note', '')}" for it in self.events_of()][-15:]
        parts = [
            f"{self.name}: {json.dumps(self.status())}",
            *events,
            f"step {self.step()}, trainers:",
            *map(str, told),
        ]
        for pod in pods:
            name = pod["metadata"]["name"]
            parts.append(f"{name} on {pod['spec'].get('nodeName')}: {pod['status'].get('phase')}")
            parts.append(self.bed.kubectl("logs", "-n", self.namespace, name, "--tail=12", check=False))
        return "\n".join(parts)

    def delete(self) -> None:
        self.bed.kubectl("delete", "trainingjob", "-n", self.namespace, self.name, "--ignore-not-found")


def stage(namespace: str, trainer: Path) -> dict[str, Any]:
    """A List of a namespace with Pod Security `restricted`, a shared volume, and the trainer in a ConfigMap."""
    label = {"pod-security.kubernetes.io/enforce": "restricted"}
    claim = {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "shared",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    items: list[dict[str, Any]] = [
        {"kind": "Namespace", "metadata": {"name": namespace, "labels": label}},
        {"kind": "PersistentVolumeClaim", "metadata": {"name": CLAIM, "namespace": namespace}, "spec": claim},
        {
            "kind": "ConfigMap",
            "metadata": {"name": "trainer", "namespace": namespace},
            "data": {trainer.name: trainer.read_text()},
        },
    ]
    return {"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", **item} for item in items]}


def manifest(
    bed: Bed,
    namespace: str,
    name: str,
    nodes: int,
    arguments: list[str],
    image: str = "",
    command: list[str] | None = None,
    sidecar: list[str] | None = None,
    local: str = "",
    pattern: str = "",
    save_timeout: int = 300,
    reshape: Callable[[dict[str, Any]], None] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A TrainingJob that fits Pod Security `restricted`.

    Args:
        sidecar: the command of another container beside the trainer's.
        local: where the trainer also saves, in a volume that every pod has for itself; "" = nowhere.
        pattern: of its checkpoints; "" = they are of a format that is known.
        save_timeout: seconds for a save before a planned move.
        reshape: changes the spec of the pod.
    """
    container: dict[str, Any] = {
        "name": "trainer",
        "image": image or bed.images["torch-ddp"],
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "/trainer/steps.py", *arguments] if command is None else command,
        "env": [
            {"name": "RUN_DIR", "value": f"{SHARED}/{name}"},
            {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        ],
        "resources": {"requests": {"cpu": "20m", "memory": "32Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "shared", "mountPath": SHARED},
            {"name": "trainer", "mountPath": "/trainer"},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
    }
    pod: dict[str, Any] = {
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
        "terminationGracePeriodSeconds": 30,
        "containers": [container, *([{**container, "name": "sidecar", "command": sidecar}] if sidecar else [])],
        "volumes": [
            {"name": "shared", "persistentVolumeClaim": {"claimName": CLAIM}},
            {"name": "trainer", "configMap": {"name": "trainer"}},
            {"name": "tmp", "emptyDir": {}},
        ],
    }
    checkpoint: dict[str, Any] = {"directory": f"{SHARED}/{name}/checkpoints", "saveTimeoutSeconds": save_timeout}
    if local:
        container["volumeMounts"].append({"name": "local", "mountPath": local})
        pod["volumes"].append({"name": "local", "emptyDir": {}})
        checkpoint["localDirectory"] = local
    if pattern:
        checkpoint["pattern"] = pattern
    if reshape is not None:
        reshape(pod)
    body = {
        "nodes": nodes,
        "checkpoint": checkpoint,
        "template": {"spec": pod},
        **spec,
    }
    return {
        "apiVersion": "muster.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": body,
    }

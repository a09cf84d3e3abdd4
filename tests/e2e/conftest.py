"""Fixtures of the end-to-end tests: one cluster with Muster in it, and jobs of a trainer that starts in 0.2 s."""

from __future__ import annotations

import json
import os
import signal
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from testbed.bed import ROOT, SYSTEM_NAMESPACE, Bed
from testbed.gangwatch import GangWatch, Seen
from testbed.kube import wait_until

TRAINER = ROOT / "tests" / "e2e" / "trainers" / "steps.py"
NAMESPACE = "muster-e2e"
CLAIM = "shared"
SHARED = "/shared"


@pytest.fixture(scope="session")
def bed() -> Iterator[Bed]:
    """The cluster, with this tree's Muster installed."""
    opened = Bed.open()
    opened.install()
    yield opened


@dataclass(frozen=True)
class ClusterForTrainer:
    """What the trainer's own test needs."""

    bed: Bed

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self.bed.kubectl(*arguments, stdin=stdin, timeout_seconds=300)

    def image(self, name: str) -> str:
        return self.bed.images[name]


@pytest.fixture(scope="session")
def cluster(bed: Bed) -> ClusterForTrainer:
    return ClusterForTrainer(bed)


@pytest.fixture(scope="session")
def namespace(bed: Bed) -> Iterator[str]:
    """A namespace with Pod Security `restricted`, a shared volume and the trainer in a ConfigMap."""
    bed.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait=true", timeout_seconds=180)
    label = {"pod-security.kubernetes.io/enforce": "restricted"}
    objects: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": label}},
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": CLAIM, "namespace": NAMESPACE},
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "storageClassName": "shared",
                "resources": {"requests": {"storage": "1Gi"}},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "trainer", "namespace": NAMESPACE},
            "data": {"steps.py": TRAINER.read_text()},
        },
    ]
    bed.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    yield NAMESPACE
    bed.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait=false")


@dataclass
class Job:
    """One TrainingJob of the fast trainer, and everything a test wants to know of it."""

    bed: Bed
    namespace: str
    name: str
    folder: Path
    watch: GangWatch
    nodes: int
    submitted: bool = field(default=False)

    def status(self) -> dict[str, Any]:
        job = self.bed.kubectl.find("get", "trainingjob", "-n", self.namespace, self.name)
        return dict((job or {}).get("status") or {})

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

    def wait_step(self, step: int, attempt: int | None = None) -> None:
        wait_until(f"step {step} of {self.name}", lambda: self.step(attempt) >= step, 180)

    def wait_training_again(self, after_attempt: int, timeout_seconds: float = 240) -> Seen:
        """Wait until every rank has made a step in a later attempt; the state of that attempt."""

        def attempt() -> int | None:
            ranks: dict[int, set[int]] = {}
            for line in self.events("step"):
                ranks.setdefault(line["attempt"], set()).add(line["rank"])
            return next((a for a in sorted(ranks) if a > after_attempt and len(ranks[a]) == self.nodes), None)

        number = wait_until(f"{self.name} training again", attempt, timeout_seconds)
        return next(seen for seen in self.watch.seen if seen.attempt == number and seen.going)

    def current(self) -> Seen:
        return wait_until(f"the gang of {self.name}", lambda: self.watch.latest)

    def completion(self, timeout_seconds: float = 240) -> dict[str, Any]:
        return wait_until(f"the end of {self.name}", lambda: self.status().get("completion"), timeout_seconds, 0.3)

    def pods(self) -> dict[int, dict[str, Any]]:
        """Live pods by index; the newest incarnation of each."""
        listed = self.bed.kubectl.json("get", "pods", "-n", self.namespace, "-l", f"muster.dev/job={self.name}")[
            "items"
        ]
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

    def signal_rank(self, index: int, number: int = signal.SIGKILL) -> list[int]:
        pids = self.rank_pids(index)
        assert pids, f"worker {index} of {self.name} has no rank process"
        for pid in pids:
            os.kill(pid, number)
        return pids

    def events_of(self) -> list[dict[str, Any]]:
        listed = self.bed.kubectl.json("get", "events.events.k8s.io", "-n", self.namespace)["items"]
        return [event for event in listed if (event.get("regarding") or {}).get("name") == self.name]

    def reasons(self) -> set[str]:
        return {event["reason"] for event in self.events_of()}

    def weights(self) -> set[str]:
        return {line["weights_sha256"] for line in self.events("done")}

    def delete(self) -> None:
        self.bed.kubectl("delete", "trainingjob", "-n", self.namespace, self.name, "--ignore-not-found")


@pytest.fixture
def submit(bed: Bed, namespace: str) -> Iterator[Callable[..., Job]]:
    """Submit a job of the fast trainer: submit("name", nodes=3, trainer=["--steps=..."], spec={...})."""
    jobs: list[Job] = []
    shared = bed.cluster.folder_of_claim(namespace, CLAIM)

    def submit_job(name: str, nodes: int = 3, trainer: list[str] | None = None, **changes: Any) -> Job:
        name = f"{name}-{int(time.time() * 10) % 1000000}"
        folder = shared / name
        job = Job(bed, namespace, name, folder, GangWatch(bed.kubectl, namespace, name), nodes)
        jobs.append(job)
        arguments = [
            "--checkpoint-dir",
            f"{SHARED}/{name}/checkpoints",
            "--run-dir",
            f"{SHARED}/{name}",
            *(trainer or []),
        ]
        bed.kubectl("create", "-f", "-", stdin=json.dumps(manifest(bed, namespace, name, nodes, arguments, **changes)))
        return job

    yield submit_job
    for job in jobs:
        job.delete()
    for job in jobs:
        wait_until(f"pods of {job.name} to go", lambda job=job: not job.pods(), 90)
        job.watch.close()


def manifest(
    bed: Bed,
    namespace: str,
    name: str,
    nodes: int,
    arguments: list[str],
    image: str = "",
    command: list[str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A TrainingJob that fits Pod Security `restricted`."""
    container = {
        "name": "trainer",
        "image": image or bed.images["torch-ddp"],
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "/trainer/steps.py", *arguments] if command is None else command,
        "env": [{"name": "RUN_DIR", "value": f"{SHARED}/{name}"}],
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
    pod = {
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
        "terminationGracePeriodSeconds": 30,
        "containers": [container],
        "volumes": [
            {"name": "shared", "persistentVolumeClaim": {"claimName": CLAIM}},
            {"name": "trainer", "configMap": {"name": "trainer"}},
            {"name": "tmp", "emptyDir": {}},
        ],
    }
    body = {
        "nodes": nodes,
        "checkpoint": {"directory": f"{SHARED}/{name}/checkpoints"},
        "template": {"spec": pod},
        **spec,
    }
    return {
        "apiVersion": "muster.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": body,
    }


@pytest.fixture(autouse=True)
def whole_cluster(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test begins and ends with four Ready, uncordoned nodes and two operators."""
    if "bed" not in request.fixturenames:
        yield
        return
    bed: Bed = request.getfixturevalue("bed")
    yield
    mend(bed)


def mend(bed: Bed) -> None:
    """Undo what a test may have left broken."""
    for node in bed.kubectl.json("get", "nodes")["items"]:
        name = node["metadata"]["name"]
        ready = next(c["status"] for c in node["status"]["conditions"] if c["type"] == "Ready")
        bed.cluster.heal(name)
        if ready != "True":
            bed.cluster.power_on(name)
        if node["spec"].get("unschedulable"):
            bed.kubectl("uncordon", name)
    bed.kubectl("scale", "deployment/muster", "-n", SYSTEM_NAMESPACE, "--replicas=2")
    bed.kubectl("rollout", "status", "deployment/muster", "-n", SYSTEM_NAMESPACE, "--timeout=120s", timeout_seconds=150)
    wait_until("a leader", bed.leader)


def script(text: str) -> str:
    """A little program, dedented."""
    return textwrap.dedent(text).strip()

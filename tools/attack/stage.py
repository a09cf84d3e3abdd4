"""The cluster, two jobs in it, and what is known of both while faults happen."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from attack import journal
from attack.checks import Removal, Thaw
from attack.journal import Line
from attack.packets import Packets
from attack.way import Way
from localcluster.cluster import GPU_RESOURCE, GPUS_PER_NODE
from testbed.bed import SYSTEM_NAMESPACE, Bed
from testbed.jobs import CLAIM, SHARED, manifest, stage
from testbed.kube import KubectlError, wait_until

NAMESPACE = "muster-attack"
STEP_SECONDS = 0.1
CHECKPOINT_EVERY = 10
# How many steps are made in peace before the end, once everything is repaired.
LAST_STEPS = 30

CHAOS = {
    "ignores-sigterm": "--ignore-sigterm",
    "orphans": "--orphan-writes",
    "asynchronous": "--asynchronous-seconds=0.4",
}

SPEC: dict[str, Any] = {
    "recovery": {
        "applicationRestartsPerDay": 100,
        "fallBackFromUnloadable": False,  # ranks are killed whenever, and the journals know no suspicion
        "hardwareRestartsPerDay": 100,
        "unreachableTimeoutSeconds": 10,
    },
    "progress": {"stepTimeoutSeconds": 15, "startTimeoutSeconds": 90},
}


class NotMadeError(Exception):
    """A fault has nothing to hit at this moment; says why."""


@dataclass(eq=False)
class Job:
    """A job of the exact trainer; each worker has a node for itself.

    Attributes:
        name: its name in stories.
        full_name: its name in the cluster, new each time.
        folder: its journal and checkpoints, as this machine sees them.
        document: what it was created from.
    """

    name: str
    full_name: str
    nodes: int
    folder: Path
    document: dict[str, Any] = field(default_factory=dict)
    removals: list[Removal] = field(default_factory=list)

    def lines(self) -> list[Line]:
        """Its journal."""
        return journal.read(self.folder)

    def finish_soon(self) -> None:
        """Let the training end a few steps from here."""
        self.folder.mkdir(exist_ok=True)
        (self.folder / "last-step").write_text(str(journal.newest_step(self.lines()) + LAST_STEPS))

    def ended(self) -> bool:
        """Whether its last attempt has come to the last step on all ranks."""
        lines = self.lines()
        newest = max((line.attempt for line in lines), default=0)
        return len({line.rank for line in lines if line.event == "done" and line.attempt == newest}) == self.nodes


@dataclass(eq=False)
class Stage:
    """What faults are made on.

    Attributes:
        way: the operator's way to the API server, where faults are to be made on it.
        thaws: what ran again after it was frozen.
        api_away: whether the API server is kept from answering, so that nobody waits for it in vain.
    """

    bed: Bed
    packets: Packets
    way: Way | None = None
    jobs: dict[str, Job] = field(default_factory=dict)
    thaws: list[Thaw] = field(default_factory=list)
    api_away: threading.Event = field(default_factory=threading.Event)

    @property
    def nodes(self) -> list[str]:
        """All nodes, on or off."""
        return list(self.bed.cluster.node_names)

    def kubectl(self, *arguments: str) -> str:
        """What a person does.

        Raises:
            NotMadeError: the API server does not answer, or refuses it.
        """
        with self._asks():
            return self.bed.kubectl(*arguments, "--request-timeout=10s", timeout_seconds=20)

    def create(self, document: dict[str, Any]) -> None:
        """Create an object; it is there already when the answer to an earlier try was lost.

        Raises:
            NotMadeError: the API server does not answer, or refuses it.
        """
        with self._asks():
            try:
                text = json.dumps(document)
                self.bed.kubectl("create", "-f", "-", "--request-timeout=10s", stdin=text, timeout_seconds=20)
            except KubectlError as error:
                if "AlreadyExists" not in str(error):
                    raise

    def muster(self, *arguments: str) -> str:
        """`kubectl muster`, as a person calls it.

        Raises:
            NotMadeError: the API server does not answer, or refuses it.
        """
        with self._asks():
            done = self.bed.muster(*arguments)
        if done.returncode:
            raise NotMadeError(done.stderr.strip() or done.stdout.strip())
        return done.stdout

    @contextmanager
    def _asks(self) -> Iterator[None]:
        if self.api_away.is_set():
            raise NotMadeError("the API server is away")
        try:
            yield
        except (KubectlError, subprocess.TimeoutExpired) as error:
            raise NotMadeError(str(error)) from error

    def state_of(self, job: str) -> str:
        """status.state of a job; "" while nobody can be asked."""
        if job not in self.jobs:
            return ""
        try:
            return self.kubectl(
                "get",
                "tj",
                "-n",
                NAMESPACE,
                self.jobs[job].full_name,
                "-o",
                "jsonpath={.status.state}",
            )
        except NotMadeError:
            return ""

    def operators(self) -> list[dict[str, Any]]:
        text = self.kubectl("get", "pods", "-n", SYSTEM_NAMESPACE, "-l", "app.kubernetes.io/name=muster", "-o", "json")
        return list(json.loads(text)["items"])

    def operator_addresses(self) -> list[str]:
        """Of those that have one."""
        return sorted(pod["status"]["podIP"] for pod in self.operators() if pod["status"].get("podIP"))

    def leader(self) -> dict[str, Any]:
        """The leading pod.

        Raises:
            NotMadeError: there is none now, or nobody can be asked.
        """
        holder = self.kubectl(
            "get", "lease", "-n", SYSTEM_NAMESPACE, "muster-leader", "-o", "jsonpath={.spec.holderIdentity}"
        ).rpartition("_")[0]
        for pod in self.operators():
            if pod["metadata"]["name"] == holder and pod["status"].get("podIP"):
                return pod
        raise NotMadeError("nobody leads")


@contextmanager
def opened(bed: Bed, chaos: Sequence[str], way: Way | None = None) -> Iterator[Stage]:
    """Two jobs that train: `a`, and its neighbour `b`; gone again afterwards.

    Raises:
        SystemExit: the cluster is too small.
    """
    nodes = len(bed.cluster.node_names)
    sizes = {"a": 3, "b": 2} if nodes >= 6 else {"a": 2, "b": 1}
    if nodes < 4:
        raise SystemExit(f"The cluster has {nodes} nodes; an attack takes at least 4: `make cluster-up NODES=4`.")
    delete = ("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait=true")
    bed.kubectl(*delete, timeout_seconds=180)
    bed.kubectl("apply", "-f", "-", stdin=json.dumps(stage(NAMESPACE, journal.TRAINER)))
    made = Stage(bed, Packets(bed.cluster), way)
    shared = bed.cluster.folder_of_claim(NAMESPACE, CLAIM)
    try:
        for name, size in sizes.items():
            made.jobs[name] = _submit(bed, name, size, shared, chaos)
        for job in made.jobs.values():
            wait_until(f"steps of {job.full_name}", partial(_trains, job), 180, 0.5)
        yield made
    finally:
        bed.kubectl("delete", "tj", "-n", NAMESPACE, "--all", "--timeout=60s", check=False, timeout_seconds=90)
        with suppress(subprocess.TimeoutExpired):
            bed.kubectl(*delete, timeout_seconds=120, check=False)


def _trains(job: Job) -> bool:
    return bool(journal.training(job.lines(), job.nodes))


def _submit(bed: Bed, name: str, nodes: int, shared: Path, chaos: Sequence[str]) -> Job:
    full_name = f"{name}-{int(time.time() * 10) % 1000000}"
    run = f"{SHARED}/{full_name}"
    arguments = [
        *("--checkpoint-dir", f"{run}/checkpoints", "--run-dir", run, "--last-step-file", f"{run}/last-step"),
        *("--steps=1000000", f"--step-seconds={STEP_SECONDS}", f"--checkpoint-every={CHECKPOINT_EVERY}", "--keep=20"),
        *(CHAOS[one] for one in chaos),
    ]
    checkpoint = {"directory": f"{run}/checkpoints", "saveTimeoutSeconds": 30}
    document = manifest(bed, NAMESPACE, full_name, nodes, arguments, checkpoint=checkpoint, **SPEC)
    amounts = {GPU_RESOURCE: GPUS_PER_NODE}
    container = document["spec"]["template"]["spec"]["containers"][0]
    container["resources"]["requests"] |= amounts
    container["resources"]["limits"] = amounts
    bed.kubectl("create", "-f", "-", stdin=json.dumps(document))
    return Job(name, full_name, nodes, shared / full_name, document)

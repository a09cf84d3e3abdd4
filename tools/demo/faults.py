"""The three faults of the demo, and what each of them cost."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from demo.trainer_log import TrainerLog, last_first, newest_step, resumed_step, stepped_attempt
from testbed.bed import Bed
from testbed.gangwatch import GangWatch
from testbed.kube import wait_until

RECOVERY_DEADLINE_SECONDS = 240

KILL_RANK = """
import os, signal
for entry in os.listdir("/proc"):
    if entry.isdigit() and int(entry) != os.getpid():
        words = open("/proc/%s/cmdline" % entry, "rb").read().split(b"\\0")
        if any(word.endswith(b"train.py") for word in words) and not any(word.endswith(b"run.pyz") for word in words):
            os.kill(int(entry), signal.SIGKILL)
            print(entry)
"""


@dataclass(frozen=True)
class Job:
    """The job that faults happen to."""

    bed: Bed
    namespace: str
    name: str
    ranks: int
    log: TrainerLog
    watch: GangWatch

    def member_pods(self) -> dict[int, dict[str, Any]]:
        """Running pods by worker index."""
        pods = self.bed.kubectl.json("get", "pods", "-n", self.namespace, "-l", f"muster.dev/job={self.name}")["items"]
        return {
            int(pod["metadata"]["labels"]["muster.dev/index"]): pod
            for pod in pods
            if pod["status"].get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")
        }


@dataclass(frozen=True)
class Measured:
    """One fault; seconds count from the injection, on one monotonic clock."""

    kind: str
    victim: str
    level: str
    detected_seconds: float
    ranks_started_seconds: float
    first_new_step_seconds: float
    last_step_before_fault: int
    resumed_from_step: int
    lost_steps: int

    def to_json(self) -> dict[str, Any]:
        """As it stands in the report."""
        return {key: round(value, 2) if isinstance(value, float) else value for key, value in asdict(self).items()}


def kill_rank(job: Job) -> str:
    """SIGKILL the training process of the second worker, from inside its container."""
    pod = job.member_pods()[1]["metadata"]["name"]
    killed = job.bed.kubectl("exec", "-n", job.namespace, pod, "-c", "trainer", "--", "python3", "-c", KILL_RANK)
    if not killed.strip():
        raise RuntimeError(f"no training process found in pod {pod}")
    return f"rank 1 in pod {pod}"


def delete_pod(job: Job) -> str:
    """Delete the pod of the third worker with its default grace."""
    pod = job.member_pods()[2]["metadata"]["name"]
    job.bed.kubectl("delete", "pod", "-n", job.namespace, pod, "--wait=false")
    return f"pod {pod}"


def cut_power(job: Job) -> str:
    """Cut the power of a worker's node; not the leader's: losing both at once is another story, told by a test."""
    leaders_node = wait_until("a leader", job.bed.leader)["spec"]["nodeName"]
    nodes = [str(pod["spec"]["nodeName"]) for _, pod in sorted(job.member_pods().items(), reverse=True)]
    node = next(node for node in nodes if node != leaders_node)
    job.bed.cluster.power_off(node)
    return node


Fault = Callable[[Job], str]
FAULTS: dict[str, Fault] = {"RankKilled": kill_rank, "PodDeleted": delete_pod, "NodePowerCut": cut_power}


def suffer(job: Job, kind: str, inject: Fault) -> Measured:
    """Inject a fault and wait until every rank has finished a step again."""
    assert job.watch.latest is not None
    before = job.watch.latest.attempt
    begun, started = time.monotonic(), job.log.now()
    victim = inject(job)
    seen = job.watch.wait_attempt(before, RECOVERY_DEADLINE_SECONDS)
    attempt = wait_until(
        f"a step of every rank after {kind}",
        lambda: stepped_attempt(job.log.lines(), before, job.ranks),
        RECOVERY_DEADLINE_SECONDS,
        job.log.pause_seconds,
    )
    level = next(state.level for state in job.watch.seen if state.attempt == attempt)
    lines = job.log.lines()
    # The ranks go on until the fault has hit, which takes its time where the machine is busy.
    last = newest_step(line for line in lines if line.attempt <= before)
    resumed = resumed_step(lines, attempt)
    return Measured(
        kind=kind,
        victim=victim,
        level=level,
        detected_seconds=seen.monotonic_seconds - begun,
        ranks_started_seconds=last_first(lines, attempt, "start") - started,
        first_new_step_seconds=last_first(lines, attempt, "step") - started,
        last_step_before_fault=last,
        resumed_from_step=resumed,
        lost_steps=last - resumed,
    )

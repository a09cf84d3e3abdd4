"""The three faults that the demo and the recipes do to a job, by kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from testbed.bed import Bed
from testbed.kube import wait_until

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
class Victim:
    """The job that faults happen to."""

    bed: Bed
    namespace: str
    name: str

    def member_pods(self) -> dict[int, dict[str, Any]]:
        """Running pods by worker index."""
        pods = self.bed.kubectl.json("get", "pods", "-n", self.namespace, "-l", f"muster.dev/job={self.name}")["items"]
        return {
            int(pod["metadata"]["labels"]["muster.dev/index"]): pod
            for pod in pods
            if pod["status"].get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")
        }


def kill_rank(job: Victim) -> str:
    """SIGKILL the training processes of the second worker, from inside its container."""
    pod = job.member_pods()[1]["metadata"]["name"]
    killed = job.bed.kubectl("exec", "-n", job.namespace, pod, "-c", "trainer", "--", "python3", "-c", KILL_RANK)
    if not killed.strip():
        raise RuntimeError(f"no training process found in pod {pod}")
    return f"rank 1 in pod {pod}"


def delete_pod(job: Victim) -> str:
    """Delete the pod of the last worker with its default grace."""
    pods = job.member_pods()
    pod = pods[max(pods)]["metadata"]["name"]
    job.bed.kubectl("delete", "pod", "-n", job.namespace, pod, "--wait=false")
    return f"pod {pod}"


def cut_power(job: Victim) -> str:
    """Cut the power of a worker's node; not the leader's: losing both at once is another story, told by a test."""
    leaders_node = wait_until("a leader", job.bed.leader)["spec"]["nodeName"]
    nodes = [str(pod["spec"]["nodeName"]) for _, pod in sorted(job.member_pods().items(), reverse=True)]
    node = next(node for node in nodes if node != leaders_node)
    job.bed.cluster.power_off(node)
    return node


Fault = Callable[[Victim], str]
FAULTS: dict[str, Fault] = {"RankKilled": kill_rank, "PodDeleted": delete_pod, "NodePowerCut": cut_power}

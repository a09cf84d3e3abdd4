"""What end-to-end tests do to jobs and operators, and what must hold afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from localcluster.controlplane import free_port
from localcluster.patience import PATIENCE_SECONDS
from testbed.bed import SYSTEM_NAMESPACE, Bed
from testbed.jobs import Job
from testbed.kube import wait_until

_LAST_STEP = "last-step"
ENDLESS = ("--steps=1000000", "--step-seconds=0.1", f"--last-step-file={_LAST_STEP}")
"""Arguments of the trainer: it trains on, however long a test takes, until `end` is called."""


def reference_weights(steps: int, ranks: int) -> str:
    """Run the same trainer program as local processes, undisturbed."""
    trainer = Path(__file__).parent / "trainers" / "steps.py"
    common = {**os.environ, "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}

    def output(rank: int) -> str:
        command = ["python3", str(trainer), f"--steps={steps}", "--step-seconds=0"]
        environment = {**common, "RANK": str(rank)}
        return subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, text=True, check=True, timeout=PATIENCE_SECONDS
        ).stdout

    with ThreadPoolExecutor(ranks) as pool:  # a rank whose output nobody reads stops once its pipe is full
        outputs = list(pool.map(output, range(ranks)))
    done = [json.loads(line) for output in outputs for line in output.splitlines() if '"done"' in line]
    weights = {line["weights_sha256"] for line in done}
    assert len(done) == ranks
    assert len(weights) == 1
    return weights.pop()


def finishes_right(job: Job, weights: str) -> None:
    completion = job.completion()
    assert completion["result"] == "Succeeded", completion
    assert job.weights() == {weights}


def every_step_was_made_once(job: Job, steps: int, ranks: int) -> None:
    made = Counter((line["rank"], line["step"]) for line in job.events("step"))
    assert set(made) == {(rank, step) for rank in range(ranks) for step in range(1, steps + 1)}
    assert set(made.values()) == {1}, "a step was lost and made again"


def end(job: Job) -> None:
    """Let an ENDLESS trainer end with its next step."""
    (job.folder / _LAST_STEP).write_text(str(job.step()))


def ends_right(job: Job) -> None:
    """Let an ENDLESS trainer end, with the weights of as many steps as it has made."""
    end(job)
    job.completion()
    finishes_right(job, reference_weights(job.step(), job.nodes))


def victim_node(job: Job) -> str:
    """A worker's node that does not host the leader."""
    leader = leader_node(job.bed)
    return next(
        pod["spec"]["nodeName"]
        for _, pod in sorted(job.pods().items(), reverse=True)
        if pod["spec"]["nodeName"] != leader
    )


def leader_node(bed: Bed) -> str:
    return str(wait_until("a leader", bed.leader)["spec"]["nodeName"])


def move_leader(bed: Bed, away_from: str) -> None:
    """Delete the leader's pod until the leader is on another node."""
    while leader_node(bed) == away_from:
        leader = bed.leader()
        assert leader is not None
        name = leader["metadata"]["name"]
        bed.kubectl("delete", "pod", "-n", SYSTEM_NAMESPACE, name, "--wait=true")


def kill_operator(bed: Bed, pod: dict[str, Any]) -> None:
    """SIGKILL the operator's process: no goodbye, no release of the lease."""
    for pid in pids_of_operator(bed, pod):
        os.kill(pid, signal.SIGKILL)


def pids_of_operator(bed: Bed, pod: dict[str, Any]) -> list[int]:
    """The operator's processes in this pod, as this machine counts them."""
    name = pod["metadata"]["name"]
    return [found.pid for found in bed.cluster.pids_of(pod["spec"]["nodeName"], SYSTEM_NAMESPACE, name, "operator")]


def assert_every_rank_started_once(job: Job) -> None:
    starts = [(line["attempt"], line["rank"]) for line in job.events("start")]
    assert len(starts) == len(set(starts)), f"a rank was started twice in one attempt: {sorted(starts)}"


def node_condition(bed: Bed, node: str) -> str:
    conditions = bed.kubectl.json("get", "node", node)["status"]["conditions"]
    return str(next(c["status"] for c in conditions if c["type"] == "Ready"))

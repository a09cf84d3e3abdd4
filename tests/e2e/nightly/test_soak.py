"""Random faults at random moments, for as long as one likes: SOAK_MINUTES=60 makes it an hour."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable

import pytest

from testbed.bed import SYSTEM_NAMESPACE, Bed
from testbed.jobs import Job
from testbed.kube import wait_until

MINUTES = float(os.environ.get("SOAK_MINUTES", "10"))
SEED = int(os.environ.get("MUSTER_SEED") or time.time())


def kill_rank(job: Job, dice: random.Random) -> None:
    job.signal_rank(dice.randrange(job.nodes))


def delete_pod(job: Job, dice: random.Random) -> None:
    pod = job.pods()[dice.randrange(job.nodes)]["metadata"]["name"]
    job.bed.kubectl("delete", "pod", "-n", job.namespace, pod, "--wait=false")


def stop_rank(job: Job, dice: random.Random) -> None:
    job.signal_rank(dice.randrange(job.nodes), signal.SIGSTOP)


def cut_power(job: Job, dice: random.Random) -> None:
    node = dice.choice(sorted(pod["spec"]["nodeName"] for pod in job.pods().values()))
    job.bed.cluster.power_off(node)


def drop_packets(job: Job, dice: random.Random) -> None:
    node = dice.choice(sorted(pod["spec"]["nodeName"] for pod in job.pods().values()))
    job.bed.cluster.drop_packets(node)


def kill_operator(job: Job, dice: random.Random) -> None:
    pods = job.bed.kubectl.json("get", "pods", "-n", SYSTEM_NAMESPACE, "-l", "app.kubernetes.io/name=muster")["items"]
    name = dice.choice(sorted(pod["metadata"]["name"] for pod in pods))
    job.bed.kubectl("delete", "pod", "-n", SYSTEM_NAMESPACE, name, "--grace-period=0", "--force", check=False)


FAULTS: list[Callable[[Job, random.Random], None]] = [
    kill_rank,
    delete_pod,
    stop_rank,
    cut_power,
    drop_packets,
    kill_operator,
]


@pytest.mark.timeout(0)
def test_random_faults_at_random_moments(
    bed: Bed,
    submit: Callable[..., Job],
    repaired: Callable[[], None],
    record_property: Callable[[str, object], None],
) -> None:
    record_property("seed", SEED)
    dice, until = random.Random(SEED), time.monotonic() + 60 * MINUTES
    budget = {"applicationRestartsPerDay": 100, "hardwareRestartsPerDay": 100}
    trainer = ["--steps=100000", "--step-seconds=0.1", "--checkpoint-every=10"]
    job = submit(
        "soak", trainer=trainer, recovery=budget, progress={"stepTimeoutSeconds": 15, "startTimeoutSeconds": 60}
    )
    while time.monotonic() < until:
        before = job.step()
        wait_until("ten more steps", lambda before=before: job.step() > before + 10 or job.current().attempt > 90, 600)
        time.sleep(dice.uniform(0, 3))
        fault = dice.choice(FAULTS)
        print(f"{time.monotonic():.1f} attempt {job.current().attempt} step {job.step()}: {fault.__name__}", flush=True)
        fault(job, dice)
        if fault in (cut_power, drop_packets):
            time.sleep(dice.uniform(0, 60))
            repaired()
    alive_at_once(job)


def alive_at_once(job: Job) -> None:
    """No rank of an attempt has done anything after a rank of a later attempt has started."""
    started: dict[int, float] = {}
    for line in job.lines():
        if line["event"] == "start":
            started[line["attempt"]] = min(line["monotonic"], started.get(line["attempt"], line["monotonic"]))
    for line in job.lines():
        later = [at for attempt, at in started.items() if attempt > line["attempt"] and at < line["monotonic"]]
        assert not later, (
            f"rank {line['rank']} of attempt {line['attempt']} was alive after a later attempt began: {line}"
        )

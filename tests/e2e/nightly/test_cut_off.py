"""Racks that are cut off while they train on: this takes eight nodes.

What is cut off keeps its storage, as it does where storage has a network of its own: nothing but Muster keeps two
attempts from publishing over each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.e2e.faults import ENDLESS, ends_right

from testbed.bed import SYSTEM_NAMESPACE, Bed
from testbed.jobs import Job
from testbed.kube import wait_until

TRAINER = [*ENDLESS, "--checkpoint-every=10", "--keep=20"]
QUICK = {"unreachableTimeoutSeconds": 10}

Submit = Callable[..., Job]


@pytest.fixture
def operators(bed: Bed) -> Iterator[list[str]]:
    """The two nodes on which the operator runs; whatever was cut off is whole again afterwards."""
    assert len(bed.cluster.node_names) == 8, "six are left for workers: not enough for another five beside a rack"
    listed = bed.kubectl.json("get", "pods", "-n", SYSTEM_NAMESPACE, "-l", "app.kubernetes.io/name=muster")["items"]
    yield sorted({pod["spec"]["nodeName"] for pod in listed})
    heal(bed)


def heal(bed: Bed) -> None:
    for node in bed.cluster.node_names:
        bed.cluster.heal(node)


def test_the_inner_ones_of_a_rack_that_is_cut_off_end_their_ranks(
    bed: Bed, submit: Submit, operators: list[str]
) -> None:
    """Five of six workers; those in the middle of the five hear only each other."""
    job = submit("rack", nodes=6, trainer=TRAINER, placement={"avoidNodes": operators}, recovery=QUICK)
    job.wait_step(25)
    pods = job.pods()
    rack = [pods[index]["spec"]["nodeName"] for index in range(5)]
    pids = {index: job.rank_pids(index) for index in range(5)}
    bed.cluster.cut_off(rack)
    wait_until("every rank in the rack to end", lambda: not any(map(alive, pids.values())))
    assert {line["attempt"] for line in job.events("start")} == {1}, "there are not enough nodes for another one yet"
    heal(bed)
    again = job.wait_training_again(1)
    ends_right(job)
    assert nothing_after_its_successor(job, again.attempt)


def test_a_gang_that_is_cut_off_whole_is_told_by_the_fence_file(bed: Bed, submit: Submit, operators: list[str]) -> None:
    """It misses nobody and trains on; the shared directory tells it that it has been replaced."""
    common = {"trainer": TRAINER, "placement": {"avoidNodes": operators}, "recovery": QUICK}
    job, neighbour = submit("whole", nodes=2, **common), submit("neighbour", nodes=1, **common)
    for one in (job, neighbour):
        one.wait_step(25)
    old = [pid for index in range(2) for pid in job.rank_pids(index)]
    rack = [pod["spec"]["nodeName"] for pod in job.pods().values()]
    bed.cluster.cut_off(rack)
    job.wait_step(job.step() + 100)
    again = job.wait_training_again(1)
    assert not set(again.nodes) & set(rack)
    assert not alive(old), "its successor trains while it does"
    assert nothing_after_its_successor(job, again.attempt)
    assert neighbour.current().attempt == 1
    heal(bed)
    ends_right(job)


def alive(pids: list[int]) -> bool:
    return any(Path(f"/proc/{pid}").exists() for pid in pids)


def nothing_after_its_successor(job: Job, attempt: int) -> bool:
    """Whether no earlier attempt did anything after this one had started."""
    started = min(line["monotonic"] for line in job.events("start", attempt))
    late = [line for line in job.lines() if line["attempt"] < attempt and line["monotonic"] > started]
    return late == []

"""Racks that are cut off while they train on: a cluster of its own, of eight small nodes.

What is cut off keeps its storage, as it does where storage has a network of its own: nothing but Muster keeps two attempts
from publishing over each other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.e2e.conftest import made_namespace, submitter
from tests.e2e.test_faults import finishes_right, reference_weights
from tests.fakes.nvml.build import library

from localcluster.cluster import Cluster
from testbed.bed import IMAGES, SYSTEM_NAMESPACE, Bed
from testbed.jobs import Job
from testbed.kube import Kubectl, wait_until

NODES = 8
STEPS = 1500
TRAINER = [f"--steps={STEPS}", "--step-seconds=0.1", "--checkpoint-every=10", "--keep=20", f"--hold-at={STEPS - 50}"]
QUICK = {"unreachableTimeoutSeconds": 10}

Submit = Callable[..., Job]


@pytest.fixture(scope="module")
def racks() -> Iterator[Bed]:
    """The cluster, with Muster in it."""
    cluster = Cluster("racks")
    cluster.down()
    archives = [Path(entry["archive"]) for entry in json.loads(IMAGES.read_text()).values()]
    cluster.up(NODES, archives)
    try:
        bed = Bed(Kubectl(cluster.kubeconfig, str(cluster.kubectl)), cluster)
        bed.install(library())
        yield bed
    finally:
        cluster.down()


@pytest.fixture(scope="module")
def namespace_there(racks: Bed) -> Iterator[str]:
    with made_namespace(racks) as name:
        yield name


@pytest.fixture
def submit_there(racks: Bed, namespace_there: str) -> Iterator[Submit]:
    yield from submitter(racks, namespace_there)


@pytest.fixture
def operators(racks: Bed) -> Iterator[list[str]]:
    """The nodes on which the operator runs; whatever was cut off is whole again afterwards."""
    listed = racks.kubectl.json("get", "pods", "-n", SYSTEM_NAMESPACE, "-l", "app.kubernetes.io/name=muster")["items"]
    yield sorted({pod["spec"]["nodeName"] for pod in listed})
    heal(racks)


def heal(racks: Bed) -> None:
    for node in racks.cluster.node_names:
        racks.cluster.heal(node)


def test_the_inner_ones_of_a_rack_that_is_cut_off_end_their_ranks(
    racks: Bed, submit_there: Submit, operators: list[str]
) -> None:
    """Five of six workers; those in the middle of the five hear only each other."""
    job = submit_there("rack", nodes=6, trainer=TRAINER, placement={"avoidNodes": operators}, recovery=QUICK)
    job.wait_step(25)
    pods = job.pods()
    rack = [pods[index]["spec"]["nodeName"] for index in range(5)]
    pids = {index: job.rank_pids(index) for index in range(5)}
    racks.cluster.cut_off(rack)
    wait_until("every rank in the rack to end", lambda: not any(map(alive, pids.values())), 180)
    assert {line["attempt"] for line in job.events("start")} == {1}, "there are not enough nodes for another one yet"
    heal(racks)
    again = job.wait_training_again(1)
    finishes_right(job, reference_weights(STEPS, 6))
    assert nothing_after_its_successor(job, again.attempt)


def test_a_gang_that_is_cut_off_whole_is_told_by_the_marker(
    racks: Bed, submit_there: Submit, operators: list[str]
) -> None:
    """It misses nobody and trains on; the shared directory tells it that it has been replaced."""
    common = {"trainer": TRAINER, "placement": {"avoidNodes": operators}, "recovery": QUICK}
    job, neighbour = submit_there("whole", nodes=2, **common), submit_there("neighbour", nodes=1, **common)
    for one in (job, neighbour):
        one.wait_step(25)
    old = [pid for index in range(2) for pid in job.rank_pids(index)]
    rack = [pod["spec"]["nodeName"] for pod in job.pods().values()]
    racks.cluster.cut_off(rack)
    job.wait_step(job.step() + 100)
    again = job.wait_training_again(1)
    assert not set(again.nodes) & set(rack)
    assert not alive(old), "its successor trains while it does"
    assert nothing_after_its_successor(job, again.attempt)
    assert neighbour.current().attempt == 1
    heal(racks)
    finishes_right(job, reference_weights(STEPS, 2))


def alive(pids: list[int]) -> bool:
    return any(Path(f"/proc/{pid}").exists() for pid in pids)


def nothing_after_its_successor(job: Job, attempt: int) -> bool:
    """Whether no earlier attempt did anything after this one had started."""
    started = min(line["monotonic"] for line in job.events("start", attempt))
    late = [line for line in job.lines() if line["attempt"] < attempt and line["monotonic"] > started]
    return late == []

"""Fixtures of the end-to-end tests: one cluster with Muster in it, and jobs of a trainer that starts in 0.2 s."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.e2e.sick_nodes import forget
from tests.fakes.nvml.build import library

from testbed import checkers
from testbed.bed import ROOT, Bed
from testbed.gangwatch import GangWatch
from testbed.jobs import CLAIM, SHARED, Job, manifest, stage
from testbed.kube import wait_until

TRAINER = ROOT / "tests" / "e2e" / "trainers" / "steps.py"
NAMESPACE = "muster-e2e"
SUBMITTED = pytest.StashKey[list[Job]]()


@pytest.fixture(scope="session")
def bed() -> Iterator[Bed]:
    """The cluster, with this tree's Muster installed, and eight GPUs on each node for the agents to look at."""
    opened = Bed.open()
    opened.install(library())
    return opened


@dataclass(frozen=True)
class ClusterForTrainer:
    """What the trainer's own test needs."""

    bed: Bed

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self.bed.kubectl(*arguments, stdin=stdin)

    def image(self, name: str) -> str:
        return self.bed.images[name]


@pytest.fixture(scope="session")
def cluster(bed: Bed) -> ClusterForTrainer:
    return ClusterForTrainer(bed)


@pytest.fixture(scope="session")
def namespace(bed: Bed) -> Iterator[str]:
    """A namespace with Pod Security `restricted`, a shared volume and the trainer in a ConfigMap."""
    bed.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait=true")
    bed.kubectl("apply", "-f", "-", stdin=json.dumps(stage(NAMESPACE, TRAINER)))
    yield NAMESPACE
    bed.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait=false")  # whoever comes next waits


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that fails on a machine where nobody looks tells how its jobs stood."""
    report = yield
    if report.when == "call" and report.failed:
        for job in item.stash.get(SUBMITTED, []):
            try:
                report.sections.append((f"how {job.name} stands", job.describe()))
            except Exception as error:  # noqa: BLE001 - the test's own failure is what counts
                report.sections.append((f"how {job.name} stands", f"cannot be told: {error}"))
    return report


@pytest.fixture
def submit(request: pytest.FixtureRequest, bed: Bed, namespace: str) -> Iterator[Callable[..., Job]]:
    """Submit a job of the fast trainer: submit("name", nodes=3, trainer=["--steps=..."], spec={...})."""
    yield from submitter(bed, namespace, request.node.stash.setdefault(SUBMITTED, []))


@pytest.fixture(scope="module")
def submit_for_all(bed: Bed, namespace: str) -> Iterator[Callable[..., Job]]:
    """The same, for jobs that all tests of a module share."""
    yield from submitter(bed, namespace, [])


def submitter(bed: Bed, namespace: str, jobs: list[Job]) -> Iterator[Callable[..., Job]]:
    """The function that submits, noting what; afterwards that is gone again."""
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
        wait_until(f"pods of {job.name} to go", lambda job=job: not job.pods())
        job.watch.close()


@pytest.fixture(autouse=True)
def whole_cluster(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test begins and ends with Ready, uncordoned nodes and two operators."""
    if "bed" not in request.fixturenames:
        yield
        return
    bed: Bed = request.getfixturevalue("bed")
    yield
    bed.repair()


@pytest.fixture
def repaired(bed: Bed) -> Callable[[], None]:
    """Makes the cluster whole again."""
    return bed.repair


@pytest.fixture(scope="module")
def taints(bed: Bed) -> Iterator[None]:
    """A policy by which unhealthy nodes are tainted; the default budget allows one of four."""
    bed.apply_policy({"health": {"enforcement": "Nodes"}}, "taints")
    yield
    forget(bed)
    bed.open_fleet()


@pytest.fixture(scope="module")
def training(bed: Bed, submit_for_all: Callable[..., Job], taints: None) -> Job:
    """A job of two nodes that all tests of a module share, one after the other."""
    job = submit_for_all("health", nodes=2, trainer=["--steps=100000", "--step-seconds=0.1", "--checkpoint-every=10"])
    job.wait_step(15)
    return job


@pytest.fixture
def well_nodes(bed: Bed, taints: None) -> None:
    """Four healthy nodes, and nothing that is remembered against any of them."""
    forget(bed)


@pytest.fixture(scope="module")
def burn_in(bed: Bed) -> Iterator[None]:
    """Checkers on all nodes, and a policy by which every gang is tested."""
    with checkers.installed(bed, onInconclusive="Wait", idleMaxAgeSeconds=0):
        yield


@pytest.fixture
def untested_nodes(bed: Bed, burn_in: None) -> Iterator[None]:
    """Healthy nodes without a record of earlier tests, and checkers that can test."""
    with checkers.fresh(bed):
        yield

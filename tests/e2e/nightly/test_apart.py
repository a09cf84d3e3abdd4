"""The overlay is deleted under a gang and applied again: pods train on, and the next operator repairs the gang."""

from __future__ import annotations

from collections.abc import Callable

from tests.e2e.faults import ENDLESS, assert_every_rank_started_once, ends_right
from tests.fakes.nvml.build import library

from testbed.bed import SYSTEM_NAMESPACE, Bed
from testbed.jobs import Job
from testbed.kube import wait_until

TRAINER = [*ENDLESS, "--checkpoint-every=10", "--keep=5"]


def test_a_gang_outlives_the_overlay_and_the_next_operator_repairs_it(bed: Bed, submit: Callable[..., Job]) -> None:
    job = submit("outlives", trainer=TRAINER)
    job.wait_step(25)
    before = _uids(job)
    bed.remove_operator()
    try:
        pods = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/pods"
        wait_until("the operators to go", lambda: not bed.items(pods))
        job.wait_step(job.step() + 50)
        assert _uids(job) == before
    finally:
        bed.install(library())
    assert _uids(job) == before
    assert job.current().attempt == 1
    assert_every_rank_started_once(job)
    job.signal_rank(1)
    again = job.wait_training_again(1)
    assert (again.attempt, again.level) == (2, "R0"), "launchers trust the coordinator of now, and it knows their gang"
    ends_right(job)


def _uids(job: Job) -> dict[int, str]:
    return {index: pod["metadata"]["uid"] for index, pod in job.pods().items()}

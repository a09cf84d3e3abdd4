"""Backfill on real nodes: a small job runs on a node that is reserved for a gang, and the gang starts in time."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from tests.e2e.faults import ENDLESS, ends_right, every_step_was_made_once, finishes_right, reference_weights

from testbed.jobs import Job
from testbed.kube import wait_until

HOUR, MONTH = 3600, 30 * 24 * 3600
SHORT = ["--steps=60", "--step-seconds=0.1"]

Submit = Callable[..., Job]


def lasts(seconds: int) -> dict[str, int]:
    return {"expectedDurationSeconds": seconds}


def wait_estimate(job: Job) -> None:
    wait_until(f"the start time of {job.name}", lambda: (job.status().get("startEstimate") or {}).get("time"))


def wait_behind(job: Job, gang: Job) -> None:
    wait_until(f"{job.name} to stay behind", lambda: job.status().get("reason") == "BehindInQueue")
    message = next(each["message"] for each in job.status()["conditions"] if each["type"] == "Placed")
    assert f"reserved for {gang.namespace}/{gang.name}" in message


def happened_in_order(*moments: tuple[Job, str]) -> None:
    """Each of these events of a job has come, on all of its ranks, before the next one on any."""
    for (job, event), (next_job, next_event) in pairwise(moments):
        came, next_came = job.events(event), next_job.events(next_event)
        assert len(came) >= job.nodes, f"{job.name} lacks {event}"
        assert came[-1]["monotonic"] < next_came[0]["monotonic"], f"{event} of {job.name} came too late"


def test_a_small_job_passes_a_gang_in_time(submit: Submit) -> None:
    holder = submit("holder", nodes=3, trainer=[*ENDLESS], progress={"totalSteps": 36_000})
    holder.wait_step(5)
    gang = submit("gang", nodes=4, trainer=SHORT)
    wait_estimate(gang)
    long = submit("long", nodes=1, trainer=SHORT, queueing=lasts(MONTH))
    wait_behind(long, gang)
    small = submit("small", nodes=1, trainer=SHORT, queueing=lasts(60))
    finishes_right(small, reference_weights(60, 1))
    assert small.current().spec["backfilled"]
    assert gang.watch.latest is None
    ends_right(holder)
    finishes_right(gang, reference_weights(60, 4))
    finishes_right(long, reference_weights(60, 1))
    happened_in_order((small, "done"), (holder, "done"), (gang, "start"))
    happened_in_order((gang, "done"), (long, "start"))
    assert gang.watch.seen[-1].attempt == small.watch.seen[-1].attempt == 1
    assert "WaitingForPreemption" not in gang.reasons()


def test_a_small_job_lasts_longer_than_expected(submit: Submit) -> None:
    holder = submit("holder", nodes=3, trainer=[*ENDLESS], queueing=lasts(HOUR))
    holder.wait_step(5)
    gang = submit("gang", nodes=4, trainer=SHORT)
    wait_estimate(gang)
    behind = submit("behind", nodes=1, trainer=SHORT)
    wait_behind(behind, gang)
    seldom = ["--checkpoint-every=1000000", "--leaves=0"]
    small = submit("small", nodes=1, trainer=[*ENDLESS, *seldom], queueing=lasts(1))
    small.wait_step(30)
    ends_right(holder)
    finishes_right(gang, reference_weights(60, 4))
    small.wait_training_again(1)
    ends_right(small)
    finishes_right(behind, reference_weights(60, 1))
    every_step_was_made_once(small, small.step(), 1)
    happened_in_order((holder, "done"), (small, "asked"), (small, "left"), (gang, "start"))
    happened_in_order((gang, "done"), (behind, "start"))
    happened_in_order((gang, "done"), (small, "resumed"))
    gang.wait_reasons("WaitingForPreemption")
    small.wait_reasons("EvacuationPlanned", "Preempted")
    notes = " ".join(event.get("note", "") for event in small.events_of())
    assert f"backfills and gives way to {gang.namespace}/{gang.name}" in notes

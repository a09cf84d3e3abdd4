"""The precedence of situations: where several hold, the decision is about the first."""

from collections.abc import Collection
from typing import Any

import pytest
from tests.unit.lifecycle.builders import Scene, a_job, an_incident, at, running, succeeded

from muster.api.trainingjob import CompletionRecord, CompletionResult
from muster.lifecycle.situation import (
    BlameDue,
    Deleting,
    Ejected,
    Ending,
    Failing,
    Finished,
    Leaving,
    Pending,
    Starting,
    Training,
    situation_of,
)
from muster.world.job import JobWorld

ORDER: tuple[type, ...] = (Deleting, Finished, Ejected, Ending, Failing, BlameDue, Leaving, Training)


def world_in(situations: Collection[type]) -> JobWorld:
    """A job with nodes in all of these situations at once."""
    job = a_job()
    if Deleting in situations:
        job = job.model_copy(update={"metadata": job.metadata.model_copy(update={"deletion_timestamp": at(100)})})
    if Finished in situations:
        end = CompletionRecord(result=CompletionResult.SUCCEEDED, reason="Completed", attempt=1, time=at(100))
        job = job.model_copy(update={"status": job.status.model_copy(update={"completion": end})})
    scene = Scene(job).fleet(6)
    scene.gang(incidents=[an_incident(settled=BlameDue not in situations)], ejected=Ejected in situations).pods()
    scene.all(succeeded(1) if Ending in situations else running(1, step=7))
    scene.node("n1", unschedulable=Leaving in situations)
    if Failing in situations:
        del scene.nodes["n0"]
    return scene.world()


@pytest.mark.parametrize("first", range(len(ORDER)), ids=[situation.__name__ for situation in ORDER])
def test_the_first_of_the_situations_that_hold_is_dealt_with(first: int) -> None:
    assert type(situation_of(world_in(ORDER[first:]))) is ORDER[first]


def test_a_gang_without_a_start_is_starting() -> None:
    assert type(situation_of(Scene(a_job()).fleet().gang(go=False).world())) is Starting


@pytest.mark.parametrize(
    "gang",
    [None, {}, {"incidents": [an_incident(settled=False)]}, {"incidents": [an_incident(reason="StartFailed")]}],
    ids=["new", "nodes-given-back", "blame-due", "cannot-start"],
)
def test_a_job_without_nodes_waits(gang: dict[str, Any] | None) -> None:
    scene = Scene(a_job()).fleet()
    if gang is not None:
        scene.gang(go=False, members=[], **gang)
    assert situation_of(scene.world()) == Pending()

"""A waiting job's start in its status: written when it has moved, kept for the comparison, and not beyond the wait."""

from typing import Any

import pytest
from tests.unit.lifecycle.builders import SETTINGS, Scene, a_job, at

from muster.api.trainingjob import StartEstimateStatus, TrainingJobStatus
from muster.lifecycle.step import decide
from muster.status.start_estimate import is_news
from muster.world.queuedecision import StartEstimate

NOW = 100.0
WAITS = "default/a ends by its step rate"
FIRST = StartEstimateStatus(
    time=at(NOW + 3600), reason=WAITS, generation=1, first_time=at(NOW + 1800), first_estimated_time=at(50)
)


def shown(scene: Scene) -> StartEstimateStatus | None:
    found = decide(scene.world(), SETTINGS).status
    assert found is not None
    return found.start_estimate


def before(scene: Scene, estimate: StartEstimateStatus | None) -> Scene:
    scene.job = scene.job.model_copy(update={"status": TrainingJobStatus(start_estimate=estimate)})
    return scene


def waiting(estimate: StartEstimate | None, old: StartEstimateStatus | None = None, **changes: Any) -> Scene:
    """A job for three nodes of which there are two, with what was estimated now and before."""
    return before(Scene(a_job()).fleet(2), old).but(start_estimate=estimate, **changes)


def test_the_first_with_a_time_is_kept() -> None:
    unknown = shown(waiting(StartEstimate(None, "not known")))
    assert unknown == StartEstimateStatus(reason="not known", generation=1)
    first = shown(waiting(StartEstimate(at(500), WAITS), unknown))
    made = {"first_time": at(500), "first_estimated_time": at(NOW)}
    assert first == StartEstimateStatus(time=at(500), reason=WAITS, generation=1, **made)
    later = shown(waiting(StartEstimate(at(9000), WAITS), first))
    assert later == StartEstimateStatus(time=at(9000), reason=WAITS, generation=1, **made)


@pytest.mark.parametrize(
    ("new", "news"),
    [
        (StartEstimate(at(NOW + 3600), WAITS), False),
        (StartEstimate(at(NOW + 3600 + 360), WAITS), False),
        (StartEstimate(at(NOW + 3600 - 360), WAITS), False),
        (StartEstimate(at(NOW + 3600 + 361), WAITS), True),
        (StartEstimate(at(NOW + 3600 - 361), WAITS), True),
        (StartEstimate(at(NOW + 3600), "another"), True),
        (StartEstimate(None, WAITS), True),
    ],
)
def test_what_is_written_again(new: StartEstimate, news: bool) -> None:
    scene = waiting(new, FIRST)
    assert is_news(scene.job, new, at(NOW)) is news
    now = shown(scene)
    assert now is not None
    assert (now.time, now.reason) == ((new.time, new.reason) if news else (FIRST.time, FIRST.reason))


def test_two_minutes_are_no_news_however_short_the_wait() -> None:
    soon = FIRST.model_copy(update={"time": at(NOW + 10)})
    for seconds, news in ((130, False), (131, True)):
        assert is_news(waiting(None, soon).job, StartEstimate(at(NOW + seconds), WAITS), at(NOW)) is news


def test_without_a_new_one_the_old_stays() -> None:
    assert shown(waiting(None, FIRST)) == FIRST


def test_a_changed_job_is_estimated_anew() -> None:
    older = FIRST.model_copy(update={"generation": 0})
    assert shown(waiting(None, older)) is None
    again = shown(waiting(StartEstimate(at(500), WAITS), older))
    assert again is not None
    assert (again.first_time, again.generation) == (at(500), 1)


def test_the_start_stands_beside_the_first_estimate() -> None:
    scene = before(Scene(a_job()).fleet().gang().pods(), FIRST)
    started = shown(scene)
    assert started == FIRST.model_copy(update={"started_time": at(40)})
    assert started is not None
    assert started.late_seconds == 40 - (NOW + 1800)
    assert shown(before(scene.gang(2), started)) == started, "a later attempt is no start"


def test_the_clock_is_the_api_servers() -> None:
    started = shown(before(Scene(a_job()).fleet().gang().pods(), FIRST).but(ahead_seconds=30.0))
    assert started is not None
    assert started.started_time == at(10)


@pytest.mark.parametrize(
    "old",
    [FIRST.model_copy(update={"first_time": None}), FIRST.model_copy(update={"generation": 0}), None],
    ids=["never a time", "changed since", "none"],
)
def test_a_start_that_nothing_was_said_of_does_not_count(old: StartEstimateStatus | None) -> None:
    assert shown(before(Scene(a_job()).fleet().gang().pods(), old)) is None


def test_a_job_that_is_suspended_while_it_waits_does_not_count() -> None:
    assert shown(before(Scene(a_job(suspend=True)).fleet(2), FIRST)) is None


def test_a_job_that_waits_again_begins_again() -> None:
    over = FIRST.model_copy(update={"started_time": at(40)})
    again = shown(waiting(StartEstimate(at(500), WAITS), over))
    assert again is not None
    assert (again.first_time, again.started_time) == (at(500), None)
    assert shown(waiting(None, over)) is None


def test_a_replacement_leaves_the_comparison_alone() -> None:
    over = FIRST.model_copy(update={"started_time": at(40)})
    scene = before(Scene(a_job()).fleet(3).node("n0", unschedulable=True).gang(2, go=False).pods(), over)
    assert scene.record is not None
    scene.record = scene.record.model_copy(
        update={"members": [scene.record.members[0].model_copy(update={"node": ""}), *scene.record.members[1:]]}
    )
    assert shown(scene.but(start_estimate=StartEstimate(at(500), WAITS))) == over

"""How soon a job that trains is decided about again though nothing is seen to change."""

from typing import Any

import pytest
from hypothesis import given, settings
from tests.unit.lifecycle.builders import SETTINGS, Scene, a_job, an_incident, an_unfenced_worker, at
from tests.unit.lifecycle.silence import Silence, a_gang, heard, nothing_would_have_been_decided_otherwise, silences

from muster.api.gang import Evacuation
from muster.lifecycle.step import decide
from muster.lifecycle.training import CALM_SECONDS, TICK_SECONDS
from muster.protocol.messages import IDLE

LEAVE = Evacuation(since=at(90), deadline=at(120), reason="NodeCordoned", nodes=["n1"], after_step=3)


def wake(scene: Scene) -> float | None:
    plan = decide(scene.world(), SETTINGS)
    assert plan.status_report is not None
    assert plan.status_report.state == "Training"
    return plan.wake_in_seconds


def test_while_all_are_well_it_can_wait() -> None:
    assert wake(a_gang()) == CALM_SECONDS


@pytest.mark.parametrize(("unreachable", "silent", "seconds"), [(20, 12.0, 3.0), (20, 16.0, 1.0), (5, 1.0, 4.0)])
def test_it_is_looked_at_when_somebody_could_have_fallen_silent(
    unreachable: int, silent: float, seconds: float
) -> None:
    scene = a_gang(recovery={"unreachableTimeoutSeconds": unreachable}).launcher(1, heard(silent))
    assert wake(scene) == seconds


@pytest.mark.parametrize(
    ("view", "seconds"),
    [
        pytest.param(heard(1.0, step_age_seconds=27.0), 4.0, id="a step: 26 s when it was told"),
        pytest.param(heard(1.0, step_age_seconds=90.0, standstill_seconds=63.0), 4.0, id="a node that stood still"),
        pytest.param(heard(1.0, step_age_seconds=2.0), CALM_SECONDS, id="a step that is young"),
        pytest.param(heard(1.0, step=None, started_age_seconds=36.0), 5.0, id="no step yet, within 40 s"),
    ],
)
def test_it_is_looked_at_when_a_hang_could_be_one(view: Any, seconds: float) -> None:
    assert wake(a_gang(progress={"stepTimeoutSeconds": 30, "startTimeoutSeconds": 40}).all(view)) == seconds


@pytest.mark.parametrize(
    "scene",
    [
        pytest.param(a_gang().node("n1", ready=False, ready_reason="NodeStatusUnknown"), id="a node that is not ready"),
        pytest.param(a_gang().node("n1", unschedulable=True).gang(evacuation=LEAVE).pods(), id="a leave"),
        pytest.param(a_gang().gang(incidents=[an_incident(time=at(99))]).pods(), id="blame that may change"),
        pytest.param(a_gang().launcher(1, heard(1.0, state=IDLE)), id="a launcher that has not started its ranks"),
        pytest.param(a_gang().launcher(1, heard(1.0, attempt=0)), id="one in the attempt before"),
        pytest.param(
            a_gang().gang(unfenced_workers=[an_unfenced_worker("pod-old", 10.0)]).pods(),
            id="somebody of before may be alive",
        ),
    ],
)
def test_as_soon_as_anybody_is_not_as_he_should_be_it_is_looked_at_each_second(scene: Scene) -> None:
    assert wake(scene) == TICK_SECONDS


def test_without_launchers_it_is_the_nodes_that_count() -> None:
    scene = Scene(a_job(launch={"mode": "Plain"}, checkpoint={})).fleet().gang().pods()
    assert wake(scene) == CALM_SECONDS
    assert wake(scene.node("n1", ready=False, ready_reason="NodeStatusUnknown")) == TICK_SECONDS


@settings(max_examples=30)
@given(news=silences)
def test_until_then_nothing_would_have_been_decided_otherwise(news: Silence) -> None:
    nothing_would_have_been_decided_otherwise(news)

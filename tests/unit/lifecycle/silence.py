"""Gangs that train and of which nothing is heard until they are decided about again."""

from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st
from tests.unit.lifecycle.builders import SETTINGS, Scene, a_job, running

from muster.lifecycle.plan import CommitGang, Plan
from muster.lifecycle.step import decide
from muster.lifecycle.training import TICK_SECONDS


def a_gang(**spec: Any) -> Scene:
    """Three workers that train, each heard a second ago."""
    scene = Scene(a_job(**spec)).fleet().gang().pods()
    return scene.all(heard(1.0))


def heard(seconds: float, **changes: Any) -> Any:
    """A worker that trains, last heard so long ago."""
    return replace(running(1, 7), heard_age_seconds=seconds, **changes)


@dataclass(frozen=True)
class Silence:
    """What was heard last, and for which part of the time until the next decision nothing is."""

    talks: bool
    heard_ago: list[float]
    step_left: float
    beat_ago: float
    unreachable: int
    limit: int | None
    waits: float


silences = st.builds(
    Silence,
    talks=st.booleans(),
    heard_ago=st.lists(st.floats(0.0, 14.0), min_size=3, max_size=3),
    step_left=st.floats(0.0, 20.0),
    beat_ago=st.floats(0.0, 60.0),
    unreachable=st.integers(5, 20),
    limit=st.none() | st.integers(10, 60),
    waits=st.floats(0.0, 0.999),  # nobody wakes to the nanosecond
)


def nothing_would_have_been_decided_otherwise(news: Silence) -> None:
    """The worst that can happen without news: all but one fall silent, or none tells of a step; no kubelet is heard."""

    def after(seconds: float) -> Plan:
        progress = {"stepTimeoutSeconds": news.limit} if news.limit else {}
        scene = a_gang(recovery={"unreachableTimeoutSeconds": news.unreachable}, progress=progress).lease(
            "n1", news.beat_ago + seconds
        )
        for index, ago in enumerate(news.heard_ago):
            silent = ago if news.talks or index == 0 else ago + seconds
            step_age = max(0.0, (news.limit or 30) - news.step_left) + ago + seconds
            view = heard(silent, step_age_seconds=step_age, started_age_seconds=100.0 + seconds)
            scene.launcher(index, view)
        scene.seconds += seconds
        return decide(scene.world(), SETTINGS)

    plan = after(0.0)
    if plan.acts or plan.wake_in_seconds is None or plan.wake_in_seconds <= TICK_SECONDS:
        return
    later = after(news.waits * plan.wake_in_seconds)
    assert not any(isinstance(action, CommitGang) for action in later.actions)
    assert later.status_report is not None
    assert later.status_report.state == "Training"

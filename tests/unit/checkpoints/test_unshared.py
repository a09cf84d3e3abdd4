"""A checkpoint that one worker sees and another does not, while the ranks train."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.lifecycle.builders import EPOCH, SETTINGS, Scene, a_job, at, running

from muster.api.trainingjob import JobWarning, TrainingJobStatus
from muster.checkpoints.unshared import NOT_SHARED, UNSEEN_SECONDS, unshared_warning
from muster.lifecycle.step import decide
from muster.protocol.messages import CheckpointReport

NOW = 1000.0


def saved(step: int, ago: float) -> CheckpointReport:
    written = EPOCH.timestamp() + NOW - ago
    return CheckpointReport(step, f"/checkpoints/step-{step}", int(written * 1e9))


def a_scene(*seen: tuple[CheckpointReport, ...], job: dict[str, Any] | None = None, **changes: Any) -> Scene:
    """A gang that has trained for 900 s, whose workers see these; changes are those of the last one."""
    here = Scene(a_job(nodes=len(seen), **(job or {})), seconds=100.0).fleet(6).gang(1).pods()
    here.seconds = NOW
    for index, checkpoints in enumerate(seen):
        view: dict[str, Any] = {"checkpoints": checkpoints, "listed_age_seconds": 3.0}
        view |= changes if index == len(seen) - 1 else {}
        here.launcher(index, running(1, 24, index, **view))
    return here


def warned(here: Scene) -> str:
    assert here.record is not None
    found = unshared_warning(here.world(), here.record)
    return found.message if found is not None else ""


OLD = (saved(20, UNSEEN_SECONDS + 1.0),)


def test_a_checkpoint_that_another_worker_does_not_list_is_told_before_a_fault() -> None:
    here = a_scene(OLD, ())
    assert warned(here).startswith(
        "worker 1 on n1 does not see the checkpoints in /checkpoints that worker 0 on n0 does: the "
        "directory is not shared"
    )
    plan = decide(here.world(), SETTINGS)
    assert plan.status is not None
    assert [warning.reason for warning in plan.status.warnings] == [NOT_SHARED]
    assert [one.reason for one in plan.announcements if one.warning] == [NOT_SHARED]


@pytest.mark.parametrize(
    "here",
    [
        pytest.param(a_scene(OLD, OLD), id="both see it"),
        pytest.param(a_scene((saved(20, UNSEEN_SECONDS - 1.0),), ()), id="a mount may show it late"),
        pytest.param(a_scene((saved(30, 5.0), *OLD), OLD), id="the newest may come late where an older one came"),
        pytest.param(a_scene((saved(20, 2000.0),), ()), id="it was there before the ranks, or was copied"),
        pytest.param(a_scene(OLD, (), listed_age_seconds=None), id="a launcher of before does not say that it lists"),
        pytest.param(a_scene(OLD, (), listed_age_seconds=61.0), id="it has not listed for long"),
        pytest.param(a_scene(OLD, (), checkpoint_error="no answer"), id="its storage gives no answer, which is told"),
        pytest.param(a_scene(OLD, (), heard_age_seconds=60.0), id="it is not heard"),
        pytest.param(a_scene(OLD), id="there is one worker"),
        pytest.param(a_scene((), ()), id="there is none"),
        pytest.param(
            a_scene(OLD, (), job={"checkpoint": {"directory": "s3://bucket/run"}}), id="a store is one for all workers"
        ),
        pytest.param(
            a_scene(OLD, tuple(saved(step, 10.0) for step in range(30, 38))), id="its list has no room for it"
        ),
        pytest.param(a_scene(OLD, (), OLD, OLD, OLD, OLD), id="it is no verifier, and lists nothing while ranks run"),
    ],
)
def test_nothing_is_told_where(here: Scene) -> None:
    assert warned(here) == ""


def test_the_warning_stays_until_both_see_one_checkpoint_of_the_attempt() -> None:
    before = TrainingJobStatus(warnings=[JobWarning(reason=NOT_SHARED, message="m", since=at(0))])
    here = a_scene((saved(30, 5.0),), ())
    here.job = here.job.model_copy(update={"status": before})
    assert warned(here)
    here = a_scene((saved(30, 5.0), *OLD), OLD)
    here.job = here.job.model_copy(update={"status": before})
    assert not warned(here)

"""A job whose saves are looked at, and what people are told of them."""

from __future__ import annotations

from typing import Any

from tests.unit.lifecycle.builders import EPOCH, SETTINGS, Scene, a_job, at, running

from muster.api.trainingjob import CheckpointSave, TrainingJobStatus
from muster.lifecycle.plan import Plan
from muster.lifecycle.step import decide
from muster.protocol.messages import CheckpointReport

GB = 10**9
HOUR = 3600.0
START_NS = int(EPOCH.timestamp()) * 10**9


def report(step: int, seconds: float, **changes: Any) -> CheckpointReport:
    values: dict[str, Any] = {"size_bytes": 96 * GB, "save_seconds": 20.0} | changes
    return CheckpointReport(step, f"/checkpoints/step-{step}", START_NS + int(seconds * 1e9), **values)


class Life:
    """A job that trains from second 0 on and is looked at now and then; its status is what was told last."""

    def __init__(self, directory: str = "/checkpoints") -> None:
        self.job = a_job(nodes=1, checkpoint={"directory": directory})
        self.plan = Plan()

    def look(
        self,
        seconds: float,
        *reports: CheckpointReport,
        step: int | None = None,
        free: int | None = None,
        go: float = 0.0,
        **told: Any,
    ) -> TrainingJobStatus:
        scene = Scene(self.job, seconds=seconds).fleet().gang().pods()
        assert scene.record is not None
        assert scene.record.start is not None
        scene.record = scene.record.model_copy(update={"start": scene.record.start.model_copy(update={"time": at(go)})})
        scene.all(running(1, step=step, checkpoints=reports, free_bytes=free, **told))
        self.plan = decide(scene.world(), SETTINGS)
        assert self.plan.status is not None
        self.job = self.job.model_copy(update={"status": self.plan.status})
        return self.plan.status

    @property
    def announced(self) -> list[str]:
        return [told.reason for told in self.plan.announcements]

    @property
    def concerns(self) -> dict[str, str]:
        checkpoint = self.job.status.checkpoint
        return {} if checkpoint is None else {c.reason.value: c.message for c in checkpoint.concerns}

    @property
    def saves(self) -> list[CheckpointSave]:
        assert self.job.status.checkpoint is not None
        return self.job.status.checkpoint.saves


def hourly(life: Life, count: int, free: list[int] | None = None, **changes: Any) -> None:
    """A save of 96 GB every hour and 1,000 steps; the trainer keeps the newest two."""
    for number in range(1, count + 1):
        kept = [report(1000 * n, HOUR * n, **changes) for n in (number, number - 1) if n]
        life.look(HOUR * number + 5, *kept, step=1000 * number + 1, free=None if free is None else free[number - 1])


def room_comes_and_goes(turns: int) -> None:
    """Two jobs on one volume; or a launcher that says whatever it likes. It is looked at every two seconds."""
    life, events, statuses = Life(), 0, 0
    hourly(life, 3, free=[900 * GB] * 3)
    for turn in range(turns):
        before = life.job.status.checkpoint
        life.look(HOUR * 3 + 10 + 2 * turn, report(3000, HOUR * 3), step=3001, free=900 * GB * (turn % 2))
        events += len(life.announced)
        statuses += life.job.status.checkpoint != before
    assert (events <= 6, statuses <= 12) == (True, True)

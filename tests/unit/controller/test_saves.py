"""The figures of jobs' saves: a row for what is known, none for the rest, and an end to how many jobs have them."""

from datetime import UTC, datetime
from typing import Any

import pytest
from prometheus_client import REGISTRY

from muster.api.trainingjob import (
    CheckpointConcern,
    CheckpointSave,
    CheckpointStatus,
    CheckpointTrouble,
    CompletionRecord,
    CompletionResult,
    Condition,
    ConditionStatus,
    TrainingJobStatus,
)
from muster.controller import saves
from muster.controller.saves import SaveFigures

TIME = datetime(2026, 1, 31, 12, tzinfo=UTC)
JOB = ("ns", "llama")


def status(*concerns: CheckpointTrouble, **save: Any) -> TrainingJobStatus:
    return TrainingJobStatus(
        checkpoint=CheckpointStatus(
            step=20,
            path="/c/20",
            time=TIME,
            saves=[CheckpointSave(step=10, bytes=1), CheckpointSave(step=20, **save)],
            concerns=[CheckpointConcern(reason=reason, message="look", since=TIME) for reason in concerns],
        )
    )


def shown(name: str, job: tuple[str, str] = JOB, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(f"muster_checkpoint_{name}", {"namespace": job[0], "job_name": job[1], **labels})


def test_the_newest_save_has_rows_for_what_is_known_of_it() -> None:
    figures = SaveFigures()
    figures.set_status(JOB, status(CheckpointTrouble.SPACE_LOW, bytes=96, stall_seconds=0, save_seconds=12))
    assert (shown("bytes"), shown("stall_seconds"), shown("save_seconds")) == (96, 0, 12)
    assert shown("durable_seconds") is None
    assert shown("concern", reason="CheckpointSpaceLow") == 1
    assert shown("concern", reason="NoNewCheckpoint") is None

    figures.set_status(JOB, status(CheckpointTrouble.NO_NEW_CHECKPOINT, bytes=97))
    assert (shown("bytes"), shown("stall_seconds")) == (97, None)
    assert shown("concern", reason="CheckpointSpaceLow") is None
    assert shown("concern", reason="NoNewCheckpoint") == 1
    figures.forget(JOB)
    assert shown("bytes") is None
    assert shown("concern", reason="NoNewCheckpoint") is None


def test_a_job_that_has_ended_was_ejected_or_has_no_checkpoint_has_no_rows() -> None:
    figures = SaveFigures()
    figures.set_status(JOB, status(bytes=96))
    ejected = Condition(type="Ejected", status=ConditionStatus.TRUE, reason="Ejected", last_transition_time=TIME)
    figures.set_status(JOB, status(bytes=96).model_copy(update={"conditions": [ejected]}))
    assert shown("bytes") is None
    figures.set_status(JOB, status(bytes=96))
    end = CompletionRecord(result=CompletionResult.SUCCEEDED, reason="Completed", time=TIME, attempt=1)
    figures.set_status(JOB, status(bytes=96).model_copy(update={"completion": end}))
    assert shown("bytes") is None
    figures.set_status(JOB, status(bytes=96))
    figures.set_status(JOB, TrainingJobStatus())
    assert shown("bytes") is None


def test_only_so_many_jobs_have_rows_and_others_come_in_their_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saves, "MAX_JOBS", 2)
    figures = SaveFigures()
    jobs = [("ns", f"j{number}") for number in range(3)]
    for job in jobs:
        figures.set_status(job, status(bytes=5))
    assert [shown("bytes", job) for job in jobs] == [5, 5, None]
    figures.forget(jobs[0])
    figures.set_status(jobs[2], status(bytes=6))
    assert [shown("bytes", job) for job in jobs] == [None, 5, 6]
    for job in jobs:
        figures.forget(job)

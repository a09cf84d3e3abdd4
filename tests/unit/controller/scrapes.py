"""A scrape of the figures of many jobs, and what it may cost."""

from datetime import UTC, datetime
from typing import Any

from prometheus_client import generate_latest
from tests.unit.counting import CountedWork

from muster.api.goodput import Bucket, Goodput
from muster.api.trainingjob import CheckpointSave, CheckpointStatus, TrainingJobStatus
from muster.controller import jobfigures
from muster.controller.jobfigures import JobFigures

TIME = datetime(2026, 1, 31, 12, tzinfo=UTC)
GOODPUT = Goodput(
    creation_time=TIME,
    counted_until=TIME,
    seconds={"compute": 900, "lostWork": 100},
    gpu_seconds={"compute": 7200},
    ettr_permille=900,
    failures=3,
    lost_steps=40,
    step_milliseconds=1500,
    step_p90_milliseconds=1750,
)


def status(state: str = "Running", reason: str = "Training", **fields: Any) -> TrainingJobStatus:
    return TrainingJobStatus(state=state, reason=reason, **{"goodput": GOODPUT, **fields})


def a_scrape_is_bounded_in_rows_and_work() -> None:
    """Of twice as many jobs as have rows."""
    figures = JobFigures(lambda: TIME)
    everything = {bucket.value: 10**6 for bucket in Bucket}
    account = GOODPUT.model_copy(update={"seconds": everything, "gpu_seconds": everything})
    save = CheckpointSave(step=20, bytes=1, save_seconds=1, stall_seconds=1, durable_seconds=1, free_bytes=1)
    saved = CheckpointStatus(step=20, path="/c/20", time=TIME, saves=[save])
    for number in range(2 * jobfigures.MAX_JOBS):
        figures.set_status(
            (f"namespace-{number % 7}", f"job-{number}"), status(goodput=account, step=5, checkpoint=saved)
        )
    with CountedWork() as counted:
        text = generate_latest()
    lines = [line for line in text.splitlines() if line.startswith((b"muster_job", b"muster_checkpoint"))]
    assert len(lines) < jobfigures.MAX_JOBS * 47
    assert counted.steps < 500 * len(text.splitlines())
    JobFigures(lambda: TIME)

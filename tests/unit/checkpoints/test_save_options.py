"""A command that says to save beside spec.checkpoint.directory is warned of at once, and only where that is sure."""

from typing import Any

import pytest
from tests.unit.lifecycle.builders import CHECKPOINTS_MOUNT, CHECKPOINTS_VOLUME, SETTINGS, Scene, a_job, running
from tests.unit.record.test_corruption import seen

from muster.api.trainingjob import CheckpointStatus, TrainingJob
from muster.checkpoints.save_options import elsewhere_warning
from muster.lifecycle.step import decide

DIRECTORY = "/checkpoints/run"


def saving(*command: str, directory: str | None = DIRECTORY, **checkpoint: Any) -> TrainingJob:
    mounts = [CHECKPOINTS_MOUNT, {"name": CHECKPOINTS_MOUNT["name"], "mountPath": "/same"}]
    container = {"name": "main", "image": "i", "command": list(command), "volumeMounts": mounts}
    template = {"spec": {"containers": [container], "volumes": [CHECKPOINTS_VOLUME]}}
    return a_job(template=template, checkpoint={"directory": directory, **checkpoint} if directory else {})


def warned(job: TrainingJob) -> str:
    found = elsewhere_warning(Scene(job).world())
    return found.message if found is not None else ""


@pytest.mark.parametrize(
    ("told", "command"),
    [
        ("--output_dir /scratch/x", ["torchrun", "train.py", "--output_dir", "/scratch/x"]),
        ("--save-dir /scratch/x", ["python3", "train.py", "--save-dir=/scratch/x/"]),
        ("--save /checkpoints/run-2", ["torchrun", "pretrain_gpt.py", "--save", "/checkpoints/run-2"]),
        ("trainer.output_dir /scratch/x", ["python3", "train.py", "trainer.output_dir=/scratch/x"]),
        (
            "--out_dir /scratch/x",
            ["bash", "-c", "python3 prepare.py --out_dir=/checkpoints/run & torchrun t.py --out_dir=/scratch/x"],
        ),
        ("--out_dir /scratch/x", ["bash", "-c", "cd /code && OUT=/scratch; exec python3 train.py --out_dir $OUT/x"]),
    ],
)
def test_a_command_that_saves_elsewhere_is_warned_of(told: str, command: list[str]) -> None:
    assert warned(saving(*command)) == (
        f"the command says {told}, and spec.checkpoint.directory is /checkpoints/run: Muster sees no checkpoint that "
        "is saved elsewhere, and restarts would begin without one. Write /checkpoints/run into the command, or correct "
        "spec.checkpoint.directory"
    )


@pytest.mark.parametrize(
    "words",
    [
        ["--output_dir=/checkpoints/run"],
        ["--output_dir=/checkpoints"],
        ["--output_dir=/checkpoints/run/attempt"],
        ["--output_dir=/same/run"],
        ["--output_dir=/local/x"],
        ["--output_dir=/scratch/x", "--save=/checkpoints/run"],
        ["--output_dir=/scratch/x", "--save=runs/a"],
        ["--output_dir=$(OUT)"],
        ["--output_dir=${OUT}/x"],
        ["--output_dir=s3://bucket/run"],
        ["--output_dir=../x"],
        ["--output_dir=/scratch/result.json"],
        ["--logger.save_dir=/scratch/x"],
        ["--logging_dir=/scratch/x"],
        ["--checkpoint_dir=/models/llama"],
        ["--out=/scratch/x"],
        [],
    ],
    ids=lambda words: " ".join(words),
)
def test_nothing_is_said_where_it_may_be_the_directory_or_no_checkpoint(words: list[str]) -> None:
    assert warned(saving("torchrun", "train.py", *words, localDirectory="/local")) == ""


@pytest.mark.parametrize(
    ("job", "is_warned"),
    [
        (saving("torchrun", "t.py", "--save=s3://bucket/other", directory="s3://bucket/run"), True),
        (saving("torchrun", "t.py", "--save=s3://bucket/run/", directory="s3://bucket/run"), False),
        (saving("torchrun", "t.py", "--save=gs://bucket/other", directory="s3://bucket/run"), False),
        (saving("torchrun", "t.py", "--save=/scratch/x", directory="s3://bucket/run"), False),
        (saving("torchrun", "t.py", "--save=/scratch/x", directory=None), False),
        (saving("bash", "-c", "python3 a.py --save=/scratch/x; python3 b.py --save=/scratch/x"), False),
        (saving("bash", "-c", f"python3 a.py --save=/scratch/x #{'x' * 40_000}"), False),
    ],
    ids=["another prefix", "one prefix", "another kind", "uploads", "no directory", "two programs", "too long"],
)
def test_what_is_compared(job: TrainingJob, is_warned: bool) -> None:
    assert bool(warned(job)) is is_warned


def test_it_stands_in_the_status_until_a_checkpoint_is_seen_in_the_directory() -> None:
    scene = Scene(saving("torchrun", "t.py", "--save=/scratch/x", directory="/checkpoints")).fleet().gang(2).pods()

    def reasons() -> list[str]:
        status = decide(scene.world(), SETTINGS).status
        assert status is not None
        return [warning.reason for warning in status.warnings]

    scene.all(running(2, 10))
    assert reasons() == ["SavesElsewhere"]
    scene.all(running(2, 10, checkpoints=seen(5)))
    assert reasons() == []


def test_one_that_a_former_record_showed_is_enough() -> None:
    job = saving("torchrun", "t.py", "--save=/scratch/x", directory="/checkpoints")
    there = CheckpointStatus(step=5, path="/checkpoints/step-5", time="2026-01-01T00:00:00Z")
    elsewhere = there.model_copy(update={"path": "/base/step-5"})
    for checkpoint, told in ((there, False), (elsewhere, True)):
        known = job.model_copy(update={"status": job.status.model_copy(update={"checkpoint": checkpoint})})
        assert bool(warned(known)) is told

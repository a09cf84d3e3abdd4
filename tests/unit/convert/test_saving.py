"""Where a converted job saves: a directory in the command is proposed, and never set."""

from typing import Any

import pytest
from tests.unit.convert.builders import a_pytorch_job, job_of

from muster.convert.documents import Result, convert_objects
from muster.convert.saving import questions

MOUNTS = [
    {"name": "claim", "mountPath": "/ckpt"},
    {"name": "scratch", "mountPath": "/tmp"},
    {"name": "settings", "mountPath": "/etc/job"},
    {"name": "data", "mountPath": "/data", "readOnly": True},
]
VOLUMES: list[dict[str, Any]] = [
    {"name": "claim", "persistentVolumeClaim": {"claimName": "claim"}},
    {"name": "scratch", "emptyDir": {}},
    {"name": "settings", "configMap": {"name": "settings"}},
    {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
]


def asked(*command: str) -> str:
    """What is said of spec.checkpoint.directory."""
    (found,) = (
        note
        for note in questions({"command": list(command), "volumeMounts": MOUNTS}, VOLUMES)
        if note.startswith("spec.checkpoint.directory: ")
    )
    return found


def converted(command: list[str]) -> Result:
    source = a_pytorch_job(command, volumeMounts=MOUNTS)
    source["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["volumes"] = VOLUMES
    (found,) = convert_objects([source])
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("option", "command"),
    [
        ("--out", ["torchrun", "train.py", "--out=/ckpt/a"]),
        ("--output_dir", ["torchrun", "train.py", "--output_dir", "/ckpt/a"]),
        ("--save-dir", ["torchrun", "train.py", "--save-dir", "/ckpt/a/"]),
        ("--checkpoint-dir", ["python3", "train.py", "--checkpoint-dir=/ckpt/a"]),
        ("--ckpt-dir", ["python3", "train.py", "--ckpt-dir=/ckpt/a"]),
        ("--save", ["torchrun", "pretrain_gpt.py", "--save", "/ckpt/a"]),
        ("output_dir", ["python3", "train.py", "output_dir=/ckpt/a"]),
        ("+trainer.output_dir", ["python3", "train.py", "+trainer.output_dir=/ckpt/a"]),
        ("--out", ["bash", "-c", "cd /code && ROOT=/ckpt; torchrun train.py --out $ROOT/a 2>&1"]),
    ],
)
def test_a_directory_in_the_command_is_proposed(option: str, command: list[str]) -> None:
    assert asked(*command).endswith(f"; {option} in the command may be it: /ckpt/a")


@pytest.mark.parametrize(
    "word",
    [
        "--out=runs/a",
        "--out=/elsewhere/a",
        "--out=/ckptx/a",
        "--out=/tmp/a",
        "--out=/etc/job/a",
        "--out=/data/a",
        "--out=/ckpt/model.pt",
        "--out=/ckpt/../etc",
        "--out=/ckpt/$(NAME)",
        "--out=/ckpt/a\x1b[31m",
        "--out=/ckpt/a b",
        f"--out=/ckpt/{'a' * 1024}",
        "--out=",
        "--out",
        "--data=/ckpt/data",
        "/ckpt/a",
    ],
)
def test_what_may_not_be_a_directory_on_storage_is_not_proposed(word: str) -> None:
    assert "may be it" not in asked("torchrun", "train.py", word)
    assert "may be it" not in asked("bash", "-c", f"torchrun train.py {word.replace(' ', chr(92) + ' ')}")


def test_at_most_three_directories_are_named_each_once() -> None:
    words = [f"--out=/ckpt/{number // 2}" for number in range(40)]
    found = asked("torchrun", "train.py", *words)
    assert [f"/ckpt/{number}" in found for number in range(4)] == [True, True, True, False]
    assert found.count("/ckpt/0") == 1


def test_a_line_that_is_too_long_to_be_parsed_is_passed_over() -> None:
    assert "may be it" not in asked("bash", "-c", f"torchrun train.py --out=/ckpt/a #{'x' * 40_000}")


def test_a_proposal_is_never_set() -> None:
    found = converted(["torchrun", "train.py", "--out=/ckpt/a"])
    assert "checkpoint" not in job_of(found)["spec"]
    assert any(note.endswith("--out in the command may be it: /ckpt/a") for note in found.notes.check)


def test_what_steps_and_checkpoints_need_is_said() -> None:
    notes = converted(["torchrun", "train.py"]).notes.check
    for begin in ("spec.checkpoint.directory: ", "spec.checkpoint.pattern: ", "spec.progress.stepPattern: "):
        assert len([note for note in notes if note.startswith(begin)]) == 1
    assert len([note for note in notes if "MUSTER_RESUME_PATH" in note]) == 1


def test_an_option_that_is_left_out_is_not_said_to_have_become_another() -> None:
    found = converted(["torchrun", "--rdzv_endpoint=a-worker-0:29500", "train.py", "--master=a-worker-0"])
    assert [note for note in found.notes.became if "a-worker-0" in note] == ["command: a-worker-0 -> $(MASTER_ADDR)"]
    assert any(note.startswith("--rdzv_endpoint=a-worker-0:29500: ") for note in found.notes.left_out)

    found = converted(["torchrun", "--rdzv_endpoint=a-worker-0:29500", "train.py"])
    assert not any("MASTER_ADDR" in note for note in found.notes.became)

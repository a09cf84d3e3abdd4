"""What is moved aside before a start: nothing that is whole, nothing by a link, and nothing is ever deleted."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.checkpoint.recordings import archive, recorded
from tests.unit.checkpoint.saves import dcp

from muster.node.checkpoint import move_incomplete
from muster.node.checkpoint.move_incomplete import NAME, Moved, move_incomplete_beyond
from muster.node.checkpoint.unrecognized import misleading
from muster.protocol.checkpoints import branch_of


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A directory with step 100 whole, and incomplete ones beyond it."""
    root = tmp_path / "ckpt"
    for step in (100, 200, 300):
        write(root / f"step-{step}", step, whole=step == 100)
    return root


def write(target: Path, step: int, whole: bool = True) -> None:
    target.mkdir(parents=True)
    (target / "model.bin").write_bytes(b"x")
    if whole:
        text = json.dumps({"step": step, "files": [{"path": "model.bin", "bytes": 1}]})
        (target / "muster-checkpoint.json").write_text(text)


def names(root: Path) -> list[str]:
    return sorted(each.name for each in root.iterdir())


def moved(root: Path, **how: Any) -> Moved:
    return move_incomplete_beyond(str(root), str(root / "step-100"), **how)


def test_what_is_torn_beyond_the_checkpoint_is_moved_with_all_its_files(here: Path) -> None:
    found = moved(here)

    assert found == Moved(("step-300", "step-200"))
    assert found.summary == "step-300, step-200 moved to .muster-incomplete"
    assert (names(here), names(here / NAME)) == ([NAME, "step-100"], ["step-200", "step-300"])
    assert (here / NAME / "step-300" / "model.bin").read_bytes() == b"x"


def test_done_again_it_does_nothing(here: Path) -> None:
    moved(here)
    assert moved(here) == Moved(())


@pytest.mark.parametrize("step", [101, 5000])
def test_what_is_whole_stays_whatever_its_step(here: Path, step: int) -> None:
    write(here / f"step-{step}", step)
    assert f"step-{step}" not in moved(here).names
    assert (here / f"step-{step}").is_dir()


def test_unless_it_is_of_a_history_that_does_not_count(here: Path) -> None:
    write(here / "step-400", 400)
    assert "step-400" in moved(here, branch=branch_of(100, "", frozen=True)).names


def test_a_single_file_is_moved_where_it_does_not_count_and_only_then(tmp_path: Path) -> None:
    for step in (100, 200, 300):
        (tmp_path / f"step_{step}.pt").write_bytes(b"x")
        os.utime(tmp_path / f"step_{step}.pt", (step, step))
    (tmp_path / "step_400.pt").symlink_to("step_300.pt")
    chosen = str(tmp_path / "step_100.pt")
    assert move_incomplete_beyond(str(tmp_path), chosen) == Moved(())
    excluded = branch_of(100, f"300:{300 * 10**9},400:{300 * 10**9},200:7")
    assert move_incomplete_beyond(str(tmp_path), chosen, excluded) == Moved(("step_300.pt",))
    assert names(tmp_path / NAME) == ["step_300.pt"]
    assert names(tmp_path) == [NAME, "step_100.pt", "step_200.pt", "step_400.pt"]


def test_what_is_older_or_called_otherwise_stays(here: Path) -> None:
    for name in ("step-50", "step-100-hf", "logs-20260101", "step-x", ".step-900", "tmp-step-900", "export"):
        (here / name).mkdir()
    before = {name for name in names(here) if name not in ("step-200", "step-300")}
    moved(here)
    assert set(names(here)) == before | {NAME}


def test_a_link_is_not_followed_nor_moved(here: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (here / "step-900").symlink_to(tmp_path / "elsewhere")
    assert "step-900" not in moved(here).names
    assert (tmp_path / "elsewhere").is_dir()
    assert (here / "step-900").is_symlink()


def test_nothing_is_moved_through_a_link(here: Path, tmp_path: Path) -> None:
    """Whoever can write there could have put it there."""
    (tmp_path / "elsewhere").mkdir()
    (here / NAME).symlink_to(tmp_path / "elsewhere")
    found = moved(here)
    assert found.names == ()
    assert found.error
    assert (names(tmp_path / "elsewhere"), "step-300" in names(here)) == ([], True)


def test_what_lies_there_already_is_not_replaced(here: Path) -> None:
    """An empty directory would be, by a rename onto it."""
    (here / NAME / "step-300").mkdir(parents=True)
    moved(here)
    assert names(here / NAME) == ["step-200", "step-300", "step-300.1"]
    assert names(here / NAME / "step-300") == []


def test_what_cannot_be_read_stays(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(move_incomplete.Finder, "_stat", refused)
    assert moved(here).names == ()


def test_a_checkpoint_elsewhere_moves_nothing(here: Path) -> None:
    assert move_incomplete_beyond(str(here), "/base/step-100") == Moved(())
    assert names(here) == ["step-100", "step-200", "step-300"]


def test_a_directory_that_is_none_is_told(tmp_path: Path) -> None:
    found = move_incomplete_beyond(str(tmp_path / "none"), str(tmp_path / "none" / "step-100"))
    assert "No such file or directory" in found.error


def test_weights_without_an_optimizer_are_not_torn(here: Path, settled: None) -> None:
    for step in (100, 500):
        place = here / f"checkpoint-{step}"
        place.mkdir()
        (place / "trainer_state.json").write_text(json.dumps({"global_step": step, "max_steps": 500}))
        (place / "model.safetensors").write_bytes(b"\x02" + bytes(7) + b"{}")
        (place / "training_args.bin").write_bytes(b"x")
    found = move_incomplete_beyond(str(here), str(here / "checkpoint-100"))
    assert found == Moved(())


@pytest.mark.parametrize("call", ["mkdir", "open", "stat", "rename", "fsync", "scandir", "close"])
@pytest.mark.parametrize("time", range(6))
def test_a_death_on_any_line_loses_nothing(here: Path, monkeypatch: pytest.MonkeyPatch, call: str, time: int) -> None:
    """And the next one does what is left."""

    class Killed(BaseException):
        pass

    real, left = getattr(os, call), [time]

    def fatal(*arguments: Any, **named: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        return real(*arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(move_incomplete.os, call, fatal)
        with contextlib.suppress(Killed):
            moved(here)
    moved(here)

    assert (names(here), names(here / NAME)) == ([NAME, "step-100"], ["step-200", "step-300"])
    assert all((here / NAME / name / "model.bin").read_bytes() == b"x" for name in names(here / NAME))


@pytest.mark.parametrize(
    ("chosen", "others", "wanted"),
    [
        ("checkpoint-500", ["checkpoint-600", "checkpoint-1000", "checkpoint-400"],
         ["checkpoint-1000", "checkpoint-600"]),
        ("iter_0000500", ["iter_0000600", "iter_0000400", "iter_x"], ["iter_0000600"]),
        ("epoch=1-step=500", ["epoch=0-step=900", "epoch=2-step=400"], ["epoch=0-step=900"]),
        ("m--val_loss=1.25-step=500", ["m--val_loss=0.5-step=600", "m--val_loss=1-step=600"],
         ["m--val_loss=0.5-step=600"]),
        ("500", ["600", "0600x", "70"], ["600"]),
        ("last", ["last-2", "9"], []),
        ("step-1", ["step-२"], []),
        ("a+b-1", ["a+b-2", "aab-3"], ["a+b-2"]),
    ],
)  # fmt: skip
def test_names_that_mislead(chosen: str, others: list[str], wanted: list[str]) -> None:
    assert misleading([*others, chosen], chosen) == wanted


def test_a_name_that_is_no_text_is_told_readably() -> None:
    assert "\x1b" not in Moved(("step-\x1b[2J",)).summary
    assert Moved(("step-\udcff9",)).summary.encode()


def hugging_face(root: Path, step: int, whole: bool) -> None:
    """Hugging Face's Trainer with DeepSpeed, without what it writes last where it was cut short."""
    parts = [
        (path.partition("/")[2], content) for path, content in recorded("deepspeed-0.19-zero2") if "step1/" in path
    ]
    files = {f"global_step{step}/{name}": content for name, content in parts}
    files |= {name: archive({}) for name in ("rng_state_0.pth", "rng_state_1.pth")} | {
        "latest": f"global_step{step}".encode()
    }
    if whole:
        files["trainer_state.json"] = json.dumps({"global_step": step}).encode()
    put(root / f"checkpoint-{step}", files)


def accelerate(root: Path, number: int, whole: bool) -> None:
    """Accelerate's `save_state` under FSDP, likewise."""
    files = {path: content for part in ("pytorch_model_fsdp_0", "optimizer_0") for path, content in dcp(f"{part}/")}
    if whole:
        files |= {"scheduler.bin": archive({}), "random_states_0.pkl": archive({"step": 1})}
    put(root / f"checkpoint_{number}", files)


def put(target: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_bytes(content)


@pytest.mark.parametrize(("write_one", "name"), [(hugging_face, "checkpoint-%d"), (accelerate, "checkpoint_%d")])
def test_what_is_torn_is_moved_also_where_its_parts_are_whole(
    tmp_path: Path, write_one: Callable[[Path, int, bool], None], name: str
) -> None:
    for number, whole in ((5, True), (6, False), (7, True), (8, False)):
        write_one(tmp_path, number, whole)
    chosen = tmp_path / (name % 5)
    assert move_incomplete_beyond(str(tmp_path), str(chosen)) == Moved((name % 8, name % 6))


def test_what_has_whole_checkpoints_in_it_that_are_no_parts_stays(here: Path) -> None:
    write(here / "step-900" / "step-1", 1)
    assert "step-900" not in moved(here).names

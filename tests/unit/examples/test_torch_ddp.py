"""The parts of the example trainer that need no torch: which checkpoints it keeps, and what it reports."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

TRAIN = Path(__file__).parents[3] / "examples" / "torch-ddp" / "train.py"


@pytest.fixture(scope="module")
def train() -> ModuleType:
    spec = importlib.util.spec_from_file_location("torch_ddp_train", TRAIN)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def checkpoints(directory: Path, complete: list[int], torn: tuple[int, ...] = ()) -> None:
    for step in (*complete, *torn):
        (directory / f"step-{step}").mkdir()
        (directory / f"step-{step}" / "__0_0.distcp").touch()
    for step in complete:
        (directory / f"step-{step}" / ".metadata").touch()


def steps(directory: Path) -> list[int]:
    return sorted(int(path.name.removeprefix("step-")) for path in directory.iterdir())


@pytest.mark.parametrize(
    ("complete", "torn", "newest_step", "keep", "want"),
    [
        ([10, 20, 30, 40], (), 40, 3, [20, 30, 40]),
        ([10, 20, 30], (), 30, 1, [20, 30]),
        ([10], (), 10, 3, [10]),
        ([10, 20, 40], (30,), 40, 2, [20, 30, 40]),
        ([20, 30, 40], (10,), 40, 3, [20, 30, 40]),
        ([10, 20, 30, 90], (80,), 30, 2, [20, 30, 80, 90]),
    ],
    ids=["oldest-goes", "two-at-least", "only-one", "torn-does-not-count", "torn-and-old-goes", "rolled-back-stays"],
)
def test_newest_complete_checkpoints_are_kept(
    train: ModuleType,
    tmp_path: Path,
    complete: list[int],
    torn: tuple[int, ...],
    newest_step: int,
    keep: int,
    want: list[int],
) -> None:
    checkpoints(tmp_path, complete, torn)
    train.remove_old_checkpoints(tmp_path, newest_step, keep)
    assert steps(tmp_path) == want


def test_other_folders_are_left_alone(train: ModuleType, tmp_path: Path) -> None:
    checkpoints(tmp_path, [10, 20, 30])
    (tmp_path / "step-10.bak").mkdir()
    train.remove_old_checkpoints(tmp_path, 30, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-10.bak", "step-20", "step-30"]


def test_progress_is_appended(train: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSTER_PROGRESS", str(tmp_path / "progress"))
    train.report_progress(1, loss=2.5)
    train.report_progress(2, request=3)
    lines = (tmp_path / "progress").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [{"step": 1, "loss": 2.5}, {"step": 2, "request": 3}]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("", 0),
        ('{"number": 3, "kind": "Save", "seconds": 1.0, "reason": "SaveRequested"}', 6),
        ('{"number": 3, "kind": "Leave", "seconds": 1.0, "reason": "NodeCordoned"}', 7),
        ('{"number": 3, "kind": "Dance", "seconds": 1.0, "reason": "Why"}', 0),
    ],
)
def test_a_request_has_its_number_and_kind(
    train: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, want: int
) -> None:
    path = tmp_path / "requests.json"
    if text:
        path.write_text(text)
    monkeypatch.setenv("MUSTER_REQUESTS", str(path))
    assert train.readable_request() == want


def test_events_carry_attempt_rank_and_both_clocks(train: ModuleType, tmp_path: Path) -> None:
    identity = train.Identity(rank=2, world_size=3, local_rank=0, attempt=7)
    train.EventLog(tmp_path, identity).write("resumed", step=40)
    (line,) = (tmp_path / "log" / "attempt-0007-rank-0002.jsonl").read_text().splitlines()
    event = json.loads(line)
    assert event.pop("monotonic_seconds") > 0
    assert event.pop("wall_seconds") > 1e9
    assert event == {"event": "resumed", "step": 40, "rank": 2, "attempt": 7}


@pytest.mark.parametrize(
    ("environment", "want"),
    [
        ({}, None),
        ({"MUSTER_RESUME_PATH": ""}, None),
        ({"MUSTER_RESUME_PATH": "/c/step-40", "MUSTER_RESUME_STEP": "40"}, (Path("/c/step-40"), 40)),
    ],
)
def test_resume_follows_the_environment(
    train: ModuleType, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], want: tuple[Path, int] | None
) -> None:
    for name in ("MUSTER_RESUME_PATH", "MUSTER_RESUME_STEP"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    resume = train.Resume.from_environment()
    assert (resume and (resume.path, resume.step)) == want

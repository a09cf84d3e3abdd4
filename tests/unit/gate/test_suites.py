"""`make test` and `make test-all`: what is run, what is kept, and what a second run makes of it."""

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import gate.__main__ as gate
from gate import all as everything
from gate import kept
from gate.parts import PARTS
from gate.stage import Outcome, run, table

ROOT = Path(__file__).resolve().parents[3]
COMMIT = "c0ffee"
Ran = list[tuple[str, Sequence[str], Mapping[str, str]]]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MUSTER_CACHE", str(tmp_path))
    monkeypatch.setattr(kept, "clean_commit", lambda: COMMIT)
    monkeypatch.setattr(everything, "_venv", lambda: "/venv")  # it would be made anew in that folder
    return tmp_path


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """`ran(fails)`: stages are not run but noted; those named fail, each by one test."""

    def replace(*fails: str) -> Ran:
        noted: Ran = []

        def note(name: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> Outcome:
            noted.append((name, command, environment or {}))
            tests = [{"name": f"{name}::test", "result": "failed" if name in fails else "passed", "seconds": 1.0}]
            return Outcome(name, int(name in fails), 2.0, 3.0, tests)

        for module in (gate, everything):
            monkeypatch.setattr(module, "run", note)
        return noted

    return replace


def test_a_green_gate_is_kept_by_commit(cache: Path, ran: Callable[..., Ran]) -> None:
    noted = ran()
    assert gate.main() == 0
    assert [name for name, _, _ in noted] == ["lint", "verify", "unit", "integration", "e2e"]
    found = json.loads((cache / "gate" / f"{COMMIT}.json").read_text())
    assert found["green"] is True
    assert found["failed"] == []
    assert found["stages"]["unit"] == {
        "code": 0, "tests": 1, "wallSeconds": 2.0, "cpuSeconds": 3.0, "failed": [], "reran": []
    }  # fmt: skip


def test_a_red_gate_names_the_tests_and_stops(
    cache: Path, ran: Callable[..., Ran], capsys: pytest.CaptureFixture[str]
) -> None:
    noted = ran("unit")
    assert gate.main() == 1
    assert [name for name, _, _ in noted] == ["lint", "verify", "unit"]
    found = json.loads((cache / "gate" / f"{COMMIT}.json").read_text())
    assert (found["green"], found["failed"]) == (False, ["unit::test"])
    assert "failed: unit::test" in capsys.readouterr().out


@pytest.mark.parametrize("answers", [[None, None], [COMMIT, None], [COMMIT, "another"]])
def test_a_tree_that_is_or_was_edited_is_no_commits_result(
    answers: list[str | None], cache: Path, ran: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran()
    told = iter(answers)
    monkeypatch.setattr(kept, "clean_commit", lambda: next(told))
    assert gate.main() == 0
    assert not (cache / "gate").exists()


def test_every_part_is_run_after_a_failure_and_only_what_failed_is_run_again(
    cache: Path, ran: Callable[..., Ran], capsys: pytest.CaptureFixture[str]
) -> None:
    noted = ran("unit-fuzz")
    assert everything.main([]) == 1
    assert [name for name, _, _ in noted] == [part.name for part in PARTS]
    assert "failed: unit-fuzz::test" in capsys.readouterr().out
    noted = ran()
    assert everything.main([]) == 0
    assert [name for name, _, _ in noted] == ["unit-fuzz"]
    noted = ran()
    assert everything.main(["--again"]) == 0
    assert len(noted) == len(PARTS)


def test_a_part_during_which_the_tree_is_edited_is_no_commits_result(
    cache: Path, ran: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran()
    answers = iter([COMMIT, COMMIT, *[None] * len(PARTS)])
    monkeypatch.setattr(kept, "clean_commit", lambda: next(answers))
    assert everything.main([]) == 0
    assert [path.name for path in (cache / "test-all" / COMMIT).iterdir()] == ["lint.json"]
    assert len(list((cache / "test-all" / "not-clean").iterdir())) == len(PARTS) - 1


def test_results_are_kept_with_the_seed_that_was_drawn(cache: Path, ran: Callable[..., Ran]) -> None:
    ((_, command, environment),) = _run_part(ran, "unit-lives")
    found = json.loads((cache / "test-all" / COMMIT / "unit-lives.json").read_text())
    assert found["results"] == [{"name": "unit-lives::test", "result": "passed", "seconds": 1.0}]
    assert environment["MUSTER_SEED"] == str(found["seed"])
    assert f"--hypothesis-seed={found['seed']}" in command


def test_a_part_with_nodes_brings_a_cluster_up_and_takes_it_down_whatever_happens(
    cache: Path, ran: Callable[..., Ran]
) -> None:
    ((_, command, environment),) = _run_part(ran, "e2e-faults")
    assert environment["CLUSTER_NAME"] == "nightly"
    assert command[:2] == ["bash", "-c"]
    assert command[2].startswith("trap 'python3 -m localcluster down --name nightly' EXIT; python3 -m imagebuild && ")
    assert "localcluster up --name nightly --nodes 4" in command[2]


def _run_part(ran: Callable[..., Ran], name: str) -> Ran:
    noted = ran()
    assert everything.main(["--part", name]) == 0
    return noted


def test_the_oldest_part_is_the_one_that_no_commit_has_run_for_longest(cache: Path, ran: Callable[..., Ran]) -> None:
    ran()
    everything.main([])
    for number, part in enumerate(PARTS):
        os.utime(cache / "test-all" / COMMIT / f"{part.name}.json", (1000.0 + number, 1000.0 + number))
    (cache / "test-all" / "another").mkdir()
    (cache / "test-all" / COMMIT / f"{PARTS[0].name}.json").rename(cache / "test-all" / "another" / "lint.json")
    os.utime(cache / "test-all" / "another" / "lint.json", (5000.0, 5000.0))
    ((name, _, _),) = _run_part(ran, "oldest")
    assert name == PARTS[1].name
    (cache / "test-all" / COMMIT / f"{PARTS[7].name}.json").unlink()  # never run
    ((name, _, _),) = _run_part(ran, "oldest")
    assert name == PARTS[7].name


def test_a_part_that_does_not_exist_is_refused_with_those_that_do(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        everything.main(["--part", "e2e-fault"])
    told = capsys.readouterr().err
    assert "PART=e2e-fault: no such part" in told
    assert "e2e-faults" in told


def test_each_nightly_test_belongs_to_one_part() -> None:
    files = [path for level in ("unit", "integration", "e2e") for path in _tests(ROOT / "tests" / level / "nightly")]
    assert len(files) > 20
    named = [ROOT / path for part in PARTS for path in part.tests if "nightly" in path]
    assert [path for path in named if not path.exists()] == []
    assert {
        path: owners for path in files if len(owners := [n for n in named if n in (path, *path.parents)]) != 1
    } == {}


def _tests(folder: Path) -> list[Path]:
    return list(folder.rglob("test_*.py"))


def test_a_stage_tells_what_its_processes_took_and_that_it_failed_without_a_test(tmp_path: Path) -> None:
    burn = "import time\nwhile time.process_time() < 0.3: pass\nraise SystemExit(3)"
    outcome = run("burns", [sys.executable, "-c", burn])
    assert outcome.code == 3
    assert outcome.cpu_seconds >= 0.3
    assert outcome.failed == ["burns"]
    assert outcome.tests == []


def test_the_table_has_a_line_for_each_stage_their_sum_and_what_failed() -> None:
    one: dict[str, Any] = {"name": "a", "result": "passed", "seconds": 0.1}
    lines = table([Outcome("lint", 0, 10.0, 8.4), Outcome("unit", 1, 20.0, 30.0, [one])], {"unit": "480 s CPU"})
    assert [line.split() for line in lines.splitlines()] == [
        [],
        ["stage", "result", "tests", "wall", "s", "cpu", "s", "budget"],
        ["lint", "passed", "-", "10", "8"],
        ["unit", "FAILED", "(1)", "1", "20", "30", "480", "s", "CPU"],
        ["all", "1", "30", "38"],
        [],
        ["failed:", "unit"],
    ]

"""What the pytest plugin writes of a run: alone, side by side, with reruns and with a seed."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from gate import results

ROOT = Path(__file__).resolve().parents[3]
FILE = "results.jsonl"
TESTS = """
import pytest

ran = []

def test_passes(record_property):
    record_property("seed", 17)

def test_fails():
    assert not "this one fails"

@pytest.mark.flaky(reruns=1)
def test_passes_when_run_again():
    print("what was seen before")
    ran.append(1)
    assert len(ran) == 2, "why it failed at first"

@pytest.fixture
def broken():
    yield
    raise RuntimeError("in the teardown")

def test_ends_badly(broken):
    pass

@pytest.mark.skip(reason="not here")
def test_is_skipped():
    pass
"""
RESULTS = {
    "test_passes": "passed",
    "test_fails": "failed",
    "test_passes_when_run_again": "passed",
    "test_ends_badly": "failed",
    "test_is_skipped": "skipped",
}
CRASHES = """
import os
import pytest

def test_crashes():
    os._exit(3)

@pytest.mark.flaky(reruns=1)
def test_crashes_again():
    os._exit(3)

def test_passes_beside_it():
    pass
"""


def lines_of(folder: Path, *options: str, code: int = 1) -> dict[str, dict[str, Any]]:
    """What is written of a run of the tests in a folder, by the name of the test; one line for each.

    Args:
        folder: where the tests are.
        options: of pytest.
        code: what pytest exits with. 1: tests failed. 2: it was stopped before any test.
    """
    ended = run_tests(folder, *options)
    assert ended.returncode == code, ended.stdout + ended.stderr
    lines = [(line["name"].rpartition("::")[2], line) for line in results.read(folder / FILE)]
    assert len(dict(lines)) == len(lines)
    return dict(lines)


def run_tests(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, results.VARIABLE: str(folder / FILE), "PYTHONPATH": str(ROOT / "tools")}
    left_out = [f"-pno:{plugin}" for plugin in ("cacheprovider", "hypothesispytest", "asyncio", "timeout")]
    command = [sys.executable, "-m", "pytest", "-p", "gate.results", *left_out, "-q", *options]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_each_test_has_one_line(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    lines = lines_of(tmp_path)
    assert {name: line["result"] for name, line in lines.items()} == RESULTS
    assert lines["test_passes"]["seed"] == 17
    assert lines["test_passes_when_run_again"]["reruns"] == 1


def test_a_file_that_cannot_be_collected_is_a_failure_and_nothing_else_is_run(tmp_path: Path) -> None:
    """Neither `make test` nor `make test-all` has pytest go on after it."""
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "test_broken.py").write_text("import nothing_of_this_name\n")
    lines = lines_of(tmp_path, code=2)
    assert {name: line["result"] for name, line in lines.items()} == {"test_broken.py": "failed"}


def test_each_test_has_one_line_side_by_side_and_one_that_kills_its_worker_is_named(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "test_that_crash.py").write_text(CRASHES)
    lines = lines_of(tmp_path, "-n", "2")
    crashes = {"test_crashes": "failed", "test_crashes_again": "failed", "test_passes_beside_it": "passed"}
    assert {name: line["result"] for name, line in lines.items()} == RESULTS | crashes
    assert lines["test_passes"]["seed"] == 17
    assert lines["test_passes_when_run_again"]["reruns"] == 1


def test_why_a_test_was_run_again_is_printed_although_it_passed(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    ended = run_tests(tmp_path, "-k", "run_again")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count("AssertionError: why it failed at first") == 1
    assert "what was seen before" in ended.stdout


def test_without_a_run_there_are_no_lines(tmp_path: Path) -> None:
    assert results.read(tmp_path / "none.jsonl") == []

"""What the pytest plugin writes of a run: alone, side by side, with reruns and with a seed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gate import results

ROOT = Path(__file__).resolve().parents[3]
TESTS = """
import pytest

ran = []

def test_passes(record_property):
    record_property("seed", 17)

def test_fails():
    assert not "this one fails"

@pytest.mark.flaky(reruns=1)
def test_passes_when_run_again():
    ran.append(1)
    assert len(ran) == 2

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


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "side by side"])
def test_each_test_has_one_line(tmp_path: Path, workers: tuple[str, ...]) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    file = tmp_path / "results.jsonl"
    environment = {**os.environ, results.VARIABLE: str(file), "PYTHONPATH": str(ROOT / "tools")}
    command = [sys.executable, "-m", "pytest", "-p", "gate.results", "-p", "no:cacheprovider", "-q", *workers]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 1, run.stdout + run.stderr
    lines = {line["name"].rpartition("::")[2]: line for line in results.read(file)}
    assert {name: line["result"] for name, line in lines.items()} == {
        "test_passes": "passed",
        "test_fails": "failed",
        "test_passes_when_run_again": "passed",
        "test_ends_badly": "failed",
        "test_is_skipped": "skipped",
    }
    assert lines["test_passes"]["seed"] == 17
    assert lines["test_passes_when_run_again"]["reruns"] == 1


@pytest.mark.parametrize("reruns", ["", "@pytest.mark.flaky(reruns=1)"])
def test_a_test_that_kills_its_worker_is_named(tmp_path: Path, reruns: str) -> None:
    crash = f"import os, pytest\n{reruns}\ndef test_crashes(): os._exit(3)\ndef test_passes(): pass\n"
    (tmp_path / "test_some.py").write_text(crash)
    file = tmp_path / "results.jsonl"
    environment = {**os.environ, results.VARIABLE: str(file), "PYTHONPATH": str(ROOT / "tools")}
    command = [sys.executable, "-m", "pytest", "-p", "gate.results", "-p", "no:cacheprovider", "-q", "-n", "1"]
    subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=False)
    found = sorted((line["name"].rpartition("::")[2], line["result"]) for line in results.read(file))
    assert found == [("test_crashes", "failed"), ("test_passes", "passed")]


def test_a_file_that_cannot_be_collected_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text("import nothing_of_this_name\n")
    file = tmp_path / "results.jsonl"
    environment = {**os.environ, results.VARIABLE: str(file), "PYTHONPATH": str(ROOT / "tools")}
    command = [sys.executable, "-m", "pytest", "-p", "gate.results", "-p", "no:cacheprovider", "-q"]
    subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert [(line["name"], line["result"]) for line in results.read(file)] == [("test_some.py", "failed")]


def test_without_a_run_there_are_no_lines(tmp_path: Path) -> None:
    assert results.read(tmp_path / "none.jsonl") == []

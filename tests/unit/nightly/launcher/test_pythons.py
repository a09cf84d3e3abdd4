"""Launcher and checker on each Python from 3.8 on: a type checker looks at them with 3.11's grammar and library
alone."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.checker.conftest import Coordinator as Judge
from tests.unit.checker.conftest import Nodes
from tests.unit.launcher.real_launchers import steps, write_checkpoint

from muster.protocol.checks import NODE, READY, CheckOrder
from muster.protocol.messages import EXIT, EXITED, IDLE

VERSIONS = [(3, minor) for minor in range(8, 15)]
SAVES = """
import json, os
for step in range(1, 4):
    with open(os.environ["MUSTER_PROGRESS"], "a") as file:
        file.write(json.dumps({"step": step}) + "\\n")
target = os.path.join(os.environ["MUSTER_CHECKPOINT_DIRECTORY"], "step-3")
os.mkdir(target)
with open(os.path.join(target, "muster-checkpoint.json"), "w") as file:
    file.write(json.dumps({"step": 3, "files": []}))
"""


def python_of(version: tuple[int, int]) -> str | None:
    """A Python of this version: this one, one on the PATH, or one that pyenv has; None: this machine has none."""
    if sys.version_info[:2] == version:
        return sys.executable
    name = "python{}.{}".format(*version)
    kept = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for candidate in itertools.chain([shutil.which(name)], map(str, sorted(kept.glob(f"{name[6:]}.*/bin/python")))):
        if candidate and _answers(candidate, version):
            return candidate
    return None


def _answers(program: str, version: tuple[int, int]) -> bool:
    code = f"import ssl, sys; assert sys.version_info[:2] == {version}"
    return subprocess.run([program, "-c", code], check=False, capture_output=True).returncode == 0


@pytest.fixture(params=VERSIONS, ids=lambda version: "{}.{}".format(*version))
def python(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A Python that `launch` and `nodes` start the program with."""
    program = python_of(request.param)
    if program is None:
        pytest.skip("this machine has no Python {}.{}".format(*request.param))
    monkeypatch.setenv("MUSTER_TEST_PYTHON", program)
    return program


def test_this_machine_has_the_oldest_or_says_so() -> None:
    assert python_of(sys.version_info[:2]) == sys.executable
    assert python_of((2, 0)) is None


def test_a_launcher_runs_its_ranks_and_finds_what_they_save(
    python: str, coordinator: Any, run_python: Any, tmp_path: Path
) -> None:
    write_checkpoint(tmp_path / "ckpt", 1)
    launcher = run_python(SAVES, MUSTER_CHECKPOINT_DIRECTORY=str(tmp_path / "ckpt"))
    coordinator.wait_to_run(1)
    coordinator.wait_for(lambda r: r.state == IDLE and r.checkpoints_scanned_for_attempt == 1)
    coordinator.run(1)
    report = coordinator.wait_for(lambda r: r.state == EXITED and steps(r) == [3, 1])
    assert report.step == 3
    coordinator.set(kind=EXIT, attempt=1, exit_code=7, reason="all ranks have finished")
    assert launcher.wait() == 7, launcher.error_text
    assert "Traceback" not in launcher.error_text


def test_a_checker_tests_its_node(python: str, tmp_path: Path) -> None:
    judge = Judge(tmp_path)
    nodes = Nodes(tmp_path, judge)
    try:
        nodes.start("a")
        first = judge.wait_for("a", lambda r: r.state == READY)
        assert first.library == "torch-0.0.double/gloo"
        judge.tell("a", orders=(CheckOrder("node-a", NODE, "Deep", namespace="ml"),), hold_seconds=600.0)
        report = judge.wait_for("a", lambda r: r.answers)
        assert (report.answers[0].outcome, report.answers[0].message) == ("Result", "")
    finally:
        nodes.kill_all()
        judge.close()

"""Children die with the process that made them, and not with the thread that asked for them."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from localcluster.errors import LocalClusterError
from localcluster.kernel import environment_values, processes_with_environment, read_process
from localcluster.patience import PATIENCE_SECONDS
from localcluster.processes import kill, log_tail, run, spawn

TOOLS = Path(__file__).resolve().parents[3] / "tools"
SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


def wait_until_gone(pid: int) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while read_process(pid) is not None:
        assert time.monotonic() < end, f"process {pid} is still there"
        time.sleep(0.01)


def test_a_child_dies_with_its_killed_parent(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from localcluster.processes import spawn\n"
        f"print(spawn({SLEEP!r}, Path(sys.argv[1])).pid, flush=True); time.sleep(600)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "log")]
    parent = subprocess.Popen(command, env={"PYTHONPATH": str(TOOLS)}, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert read_process(child) is not None

    parent.kill()
    parent.wait()

    wait_until_gone(child)


def test_a_child_outlives_the_thread_that_asked_for_it(tmp_path: Path) -> None:
    children: list[subprocess.Popen[bytes]] = []
    thread = threading.Thread(target=lambda: children.append(spawn(SLEEP, tmp_path / "log")))
    thread.start()
    thread.join()

    with pytest.raises(subprocess.TimeoutExpired):
        children[0].wait(timeout=0.2)

    kill(children[0])
    assert children[0].returncode is not None


def test_output_goes_to_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"

    spawn([sys.executable, "-c", "print(*range(20), sep='\\n')"], log).wait()

    assert log_tail(log, lines=2) == "18\n19"
    assert log_tail(tmp_path / "absent") == "(no output)"


def test_a_failed_command_is_named_with_its_complaint() -> None:
    with pytest.raises(LocalClusterError, match=r"-c .* failed: sorry"):
        run([sys.executable, "-c", "import sys; sys.exit('sorry')"])


def test_processes_are_found_by_their_mark() -> None:
    mark = f"mark-{time.monotonic_ns()}"
    process = subprocess.Popen(SLEEP, env={"LOCALCLUSTER_TEST": mark})
    try:
        # Until it has its new environment it looks like this process.
        end = time.monotonic() + PATIENCE_SECONDS
        while not (found := list(processes_with_environment("LOCALCLUSTER_TEST", mark))):
            assert time.monotonic() < end
        assert [entry.pid for entry in found] == [process.pid]
        assert list(found[0].command) == SLEEP
        assert mark in environment_values("LOCALCLUSTER_TEST")
    finally:
        process.kill()
        process.wait()
    assert not list(processes_with_environment("LOCALCLUSTER_TEST", mark))

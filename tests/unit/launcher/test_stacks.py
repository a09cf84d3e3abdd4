"""A hang: where the ranks stand is printed and reported before they are ended, whatever they do."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
from typing import Any

import pytest
from tests.unit.launcher.real_launchers import read_pid

from localcluster.patience import PATIENCE_SECONDS
from muster.node.launcher import stacks, trainers
from muster.node.launcher.reclaim import Process
from muster.node.launcher.stack_reader import StackReader
from muster.protocol.messages import EXIT, IDLE, RUNNING, TERMINATING, Report

PUBLISH = """
import os, signal, sys, threading, time
def publish(name):
    with open(os.path.join(os.environ["TEST_DIRECTORY"], name + ".new"), "w") as file:
        file.write(str(os.getpid()))
    os.rename(file.name, file.name[:-4])
def load():
    publish("rank")
    time.sleep(600)
"""
CHILDREN = (
    PUBLISH
    + """
import subprocess
text = "import os, sys, time\\ndef wait_in_%s():\\n    open(os.environ['TEST_DIRECTORY'] + '/up%s', 'w').close()\\n"
text += "    time.sleep(600)\\nwait_in_%s()\\n"
for local, name in enumerate(("reduce", "load")):
    environment = dict(os.environ, RANK=str(4 + local), LOCAL_RANK=str(local), TORCHELASTIC_RUN_ID="none")
    subprocess.Popen([sys.executable, "-S", "-c", text % (name, local, name)], env=environment)
publish("rank")
time.sleep(600)
"""
)


def after_the_hang(coordinator: Any, attempt: int = 1) -> Report:
    """What is reported once the attempt was ended because no step was finished."""
    coordinator.wait_to_run(attempt + 1, stacks_of_attempt=attempt, reason="StepTimeout")
    found: Report = coordinator.wait_for(lambda r: r.state == IDLE and r.attempt == attempt + 1)
    return found


def test_the_stack_of_a_hung_rank_is_reported_and_in_its_log(coordinator, run_python, tmp_path, alive, until):
    launcher = run_python(PUBLISH + "load()")
    coordinator.run(1)
    pid = read_pid(until((tmp_path / "rank").exists, "the rank") and tmp_path / "rank")
    coordinator.wait_for(lambda r: r.state == RUNNING)
    report = after_the_hang(coordinator)
    (stack,) = report.stacks
    assert (report.stacks_attempt, stack.rank, stack.problem) == (1, 0, "")
    assert stack.frames.splitlines() == ["<string>:9 in load", "<string>:10 in <module>"]
    assert not alive(pid)
    assert [(rank.ended_by_launcher, rank.signal) for rank in report.previous_ranks] == [(True, signal.SIGABRT)]
    assert "Fatal Python error: Aborted" in launcher.error_text
    until(lambda: "rank 0 stood at <string>:9 in load" in launcher.error_text, "the launcher's line")
    coordinator.run(2)
    coordinator.wait_for(lambda r: r.state == RUNNING and r.attempt == 2 and r.stacks == ())


def test_a_launcher_whose_pod_is_replaced_reports_the_stacks_before_it_exits(coordinator, run_python, tmp_path, until):
    run_python(PUBLISH + "load()")
    coordinator.run(1)
    until((tmp_path / "rank").exists, "the rank")
    coordinator.wait_for(lambda r: r.state == RUNNING)
    coordinator.set(kind=EXIT, stacks_of_attempt=1, reason="this pod is no longer a member of its gang")
    report = coordinator.wait_for(lambda r: r.state == TERMINATING)
    (stack,) = report.stacks
    assert (report.stacks_attempt, stack.frames.splitlines()[0]) == (1, "<string>:9 in load")


def test_ranks_of_torchrun_print_one_after_the_other_by_their_own_numbers(coordinator, run_python, tmp_path, until):
    run_python(CHILDREN)
    coordinator.run(1)
    for name in ("rank", "up0", "up1"):
        until((tmp_path / name).exists, name)
    found = {stack.rank: stack.frames.splitlines()[0] for stack in after_the_hang(coordinator).stacks}
    assert found == {4: "<string>:4 in wait_in_reduce", 5: "<string>:4 in wait_in_load"}


def test_a_shell_around_the_program_is_passed_over(coordinator, launch, tmp_path, until):
    program = tmp_path / "train.py"
    program.write_text(PUBLISH + "load()")
    launch("sh", "-c", f"{sys.executable} -S {program}; exit 3")
    coordinator.run(1)
    until((tmp_path / "rank").exists, "the rank")
    (stack,) = after_the_hang(coordinator).stacks
    assert stack.frames.splitlines()[0] == f"{program}:9 in load"


@pytest.mark.parametrize(
    ("before", "problem"),
    [
        ("signal.signal(signal.SIGABRT, signal.SIG_IGN)", "it ignores SIGABRT"),
        ("import faulthandler; faulthandler.disable()", "Python's faulthandler is off in it"),
        ("signal.signal(signal.SIGABRT, lambda *_: load())", "it has not printed its stack within 1 s"),
    ],
    ids=["ignores the signal", "no faulthandler", "uses the signal"],
)
def test_a_program_without_a_stack_is_ended_all_the_same(
    coordinator, run_python, tmp_path, alive, until, before, problem
):
    run_python(PUBLISH + before + "\nload()")
    coordinator.run(1)
    pid = read_pid(until((tmp_path / "rank").exists, "the rank") and tmp_path / "rank")
    (stack,) = after_the_hang(coordinator).stacks
    assert stack.frames == ""
    assert stack.problem.startswith(problem)
    assert "state S (sleeping)" in stack.problem
    assert not alive(pid)


def test_a_stopped_rank_prints_where_it_stood(coordinator, run_python, tmp_path, until):
    run_python(PUBLISH + "def freeze():\n    publish('rank')\n    os.kill(os.getpid(), signal.SIGSTOP)\nfreeze()")
    coordinator.run(1)
    until((tmp_path / "rank").exists, "the rank")
    (stack,) = after_the_hang(coordinator).stacks
    assert stack.frames.splitlines()[0] == "<string>:12 in freeze"


def test_of_many_threads_with_deep_stacks_none_is_taken_for_the_main_one(coordinator, run_python, tmp_path, until):
    deep = """
threading.stack_size(262144)
def dive(depth):
    return dive(depth - 1) if depth else time.sleep(600)
for _ in range(300):
    threading.Thread(target=dive, args=(50,), daemon=True).start()
load()
"""
    launcher = run_python(PUBLISH + deep)
    coordinator.run(1)
    until((tmp_path / "rank").exists, "the rank")
    (stack,) = after_the_hang(coordinator).stacks
    assert (stack.frames, "more than the 100 threads" in stack.problem) == ("", True)
    assert launcher.error_text.count("most recent call first") <= 101


def test_a_program_that_prints_without_end_at_the_signal_holds_nothing_up(coordinator, run_python, tmp_path, until):
    flood = """
import faulthandler
def flood(*_):
    while True:
        os.write(2, b'  File "/a.py", line 1 in forged\\n' * 1000)
signal.signal(signal.SIGABRT, flood)
publish("rank")
while True:
    time.sleep(0.01)
"""
    run_python(PUBLISH + flood)
    coordinator.run(1)
    until((tmp_path / "rank").exists, "the rank")
    (stack,) = after_the_hang(coordinator).stacks
    assert (stack.frames, "within 1 s" in stack.problem) == ("", True)


def test_without_a_hang_nothing_is_printed(coordinator, run_python, tmp_path, until):
    launcher = run_python(PUBLISH + "load()")
    coordinator.run(1)
    until((tmp_path / "rank").exists, "the rank")
    coordinator.wait_to_run(2, stacks_of_attempt=7)
    report = coordinator.wait_for(lambda r: r.state == IDLE and r.attempt == 2)
    assert (report.stacks, report.stacks_attempt) == ((), 0)
    assert "Fatal Python error" not in launcher.error_text


class TestReader:
    def read(self, text: str) -> StackReader:
        reader = StackReader()
        reader.feed(text.encode().split(b"\n"))
        return reader

    def test_the_main_thread_is_the_last(self) -> None:
        text = (
            "Fatal Python error: Aborted\n\n"
            "Current thread 0x00007f01 (most recent call first):\n"
            '  File "/usr/lib/python3.12/threading.py", line 359 in wait\n'
            "\nThread 0x00007f02 [python3] (most recent call first):\n"
            '  File "/venv/lib/python3.12/site-packages/torch/distributed/c10d.py", line 2501 in all_reduce\n'
            '  File "/code/train.py", line ??? in main\n'
            "\nExtension modules: numpy (total: 1)\n"
        )
        assert self.read(text).frames == ("torch/distributed/c10d.py:2501 in all_reduce", "/code/train.py:??? in main")

    def test_of_more_threads_than_python_prints_none_is_taken_for_the_main_one(self) -> None:
        """A signal may be taken by any of them."""
        current = 'Current thread 0x02 (most recent call first):\n  File "/a.py", line 2 in main\n'
        many = 'Thread 0x01 (most recent call first):\n  File "/a.py", line 1 in other\n' * 99
        found = self.read(f"{current}{many}...\n")
        assert (found.frames, found.problem) == ((), "it has more than the 100 threads that Python prints")

    def test_nothing_printed_is_no_problem_of_the_reader(self) -> None:
        assert (self.read("hello\n").frames, self.read("hello\n").problem) == ((), "")

    def test_long_names_and_deep_stacks_are_cut(self) -> None:
        frame = f'  File "/{"x" * 900}.py", line 1 in {"f" * 500}\n'
        frames = self.read("Thread 0x01 (most recent call first):\n" + frame * 100).frames
        assert len(frames) == 32
        assert {len(each) for each in frames} == {160 + len(":1 in ") + 160}


def test_the_stacks_of_many_ranks_fit_into_a_report() -> None:
    targets = []
    for number in range(64):
        target = stacks._Target(None, None, number, "state S (sleeping)", is_blocked=False)  # type: ignore[arg-type]
        frame = b'  File "/%s.py", line 1 in f' % (b"x" * 300)
        target.reader.feed([b"Thread 0x01 (most recent call first):", *[frame] * 9])
        targets.append(target)
    reports = stacks._reports(targets)
    assert [report.rank for report in reports] == list(range(64))
    assert all(report.frames for report in reports)
    assert sum(len(report.frames) for report in reports) <= 16 * 1024


def test_a_process_whose_memory_the_kernel_holds_holds_up_no_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    is_released = threading.Event()
    monkeypatch.setattr(trainers, "read_of", lambda *_: b"RANK=4" if is_released.wait(PATIENCE_SECONDS) else b"")
    try:
        assert trainers._environments([Process(7, 1, 0)]) == {}
    finally:
        is_released.set()


class TestCore:
    @pytest.mark.parametrize("is_piped", [True, False])
    @pytest.mark.parametrize(
        ("limits", "left"),
        [((0, 0), (0, 0)), ((0, 4096), (1, 4096)), ((4096, 4096), (1, 4096))],
        ids=["none at all", "none unless asked for", "some"],
    )
    def test_no_core_is_dumped(
        self, monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], left: tuple[int, int], is_piped: bool
    ) -> None:
        """A program that takes dumps from a pipe gets them whatever the limit is, unless it is 1."""
        monkeypatch.setattr(stacks, "_dumps_into_file", lambda: not is_piped)
        process = subprocess.Popen(["sleep", "600"])
        try:
            resource.prlimit(process.pid, resource.RLIMIT_CORE, limits)
            assert stacks._drop_core(process.pid) is (limits != (0, 0) or not is_piped)
            assert resource.prlimit(process.pid, resource.RLIMIT_CORE) == left
        finally:
            process.kill()
            process.wait()

    def test_a_process_whose_limit_cannot_be_set_is_not_aborted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: Any) -> Any:
            raise PermissionError

        monkeypatch.setattr(resource, "prlimit", refuse)
        assert not stacks._drop_core(os.getpid())


@pytest.mark.parametrize(
    ("state", "flags", "ticks", "is_ending"),
    [
        pytest.param("S", 0, 5, False, id="lives"),
        pytest.param("S", 0x4, 5, True, id="is ending"),
        pytest.param("R", 0x400, 5, True, id="is ended by a signal"),
        pytest.param("Z", 0, 5, True, id="a zombie"),
        pytest.param("X", 0, 5, True, id="is dead"),
        pytest.param("S", 0, 6, True, id="a later one with its pid"),
    ],
)
def test_a_zombie_does_not_count_as_living(
    monkeypatch: pytest.MonkeyPatch, state: str, flags: int, ticks: int, is_ending: bool
) -> None:
    fields = [state, *"12345", str(flags), *["0"] * 12, str(ticks), "0"]
    monkeypatch.setattr(stacks, "read_of", lambda *_: f"7 (a) b) {' '.join(fields)}".encode())
    assert stacks._is_ending(Process(7, 1, 5)) is is_ending

"""Reclaim and SIGTERM: whatever ranks do, nothing of them stays behind."""

from __future__ import annotations

import os
import re
import signal

import pytest
from tests.unit.launcher.real_launchers import DAEMON, a_rank_is_gone_before_idle_is_reported, read_pid

from muster.node.launcher import reclaim
from muster.node.launcher.environment import OWN_SHARED_MEMORY
from muster.node.launcher.host import Host, Wakeup
from muster.node.launcher.reclaim import descendants
from muster.protocol.messages import EXITED, IDLE, RUNNING, TERMINATING


def test_orphaned_data_loaders_and_daemons_are_killed_when_their_rank_is_gone(
    coordinator, run_python, tmp_path, alive, until
):
    run_python(DAEMON + "daemon('loader'); daemon('quiet'); publish('rank'); time.sleep(0.1)")
    coordinator.run(1)
    coordinator.wait_for(lambda r: r.state == EXITED)
    pids = [read_pid(until((tmp_path / name).exists, name) and tmp_path / name) for name in ("loader", "quiet")]
    assert all(alive(pid) for pid in pids)
    coordinator.wait_to_run(2)
    coordinator.wait_for(lambda r: r.state == IDLE and r.attempt == 2)
    assert not any(alive(pid) for pid in pids)


def test_a_rank_is_gone_before_idle_is_reported_although_it_forks_without_end(
    coordinator, run_python, tmp_path, alive, until
):
    a_rank_is_gone_before_idle_is_reported(coordinator, run_python, tmp_path, alive, until, "forks without end")


def test_sigterm_ends_the_ranks_and_the_launcher(coordinator, run_python, tmp_path, alive, until):
    launcher = run_python(
        DAEMON + "signal.signal(signal.SIGTERM, signal.SIG_IGN); daemon('loader'); publish('rank'); time.sleep(600)",
        patient=True,
    )
    coordinator.run(1)
    pids = [read_pid(until((tmp_path / name).exists, name) and tmp_path / name) for name in ("loader", "rank")]
    coordinator.wait_for(lambda r: r.state == RUNNING)
    launcher.process.terminate()
    assert launcher.wait() == 128 + signal.SIGTERM
    assert not any(alive(pid) for pid in pids)
    report = coordinator.latest
    assert report.state == TERMINATING
    assert [(rank.alive, rank.ended_by_launcher) for rank in report.ranks] == [(False, True)]


def test_sigterm_is_obeyed_although_the_coordinator_answers_nothing(coordinator, run_python):
    launcher = run_python("import time; time.sleep(600)")
    coordinator.run(1)
    coordinator.wait_for(lambda r: r.state == RUNNING)
    coordinator.stall(stalled=True)
    launcher.process.terminate()
    assert launcher.wait() == 128 + signal.SIGTERM


LEFT = {"nccl-rank", "sem.rank", "torch_99999999_rank"}  # no process has that pid


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """Takes the place of /dev/shm, which is the whole machine's."""
    folder = tmp_path / "shm"
    folder.mkdir()
    monkeypatch.setattr(reclaim, "_SHARED_MEMORY", str(folder))
    return folder


@pytest.mark.parametrize("own", [True, False])
def test_shared_memory_that_the_ranks_made_is_removed_where_nobody_else_sees_it(shared, tmp_path, own):
    host = Host([], [], {OWN_SHARED_MEMORY: "1"} if own else {}, str(tmp_path), False, Wakeup())
    (shared / "nccl-before").touch()
    before = host.shared_memory()
    kept = {"nccl-before", "other", f"torch_{os.getpid()}_somebody"}
    for name in LEFT | kept:
        (shared / name).touch()
    host.remove_shared_memory(before)
    assert {path.name for path in shared.iterdir()} == (kept if own else LEFT | kept)


def test_without_shared_memory_nothing_is_removed(shared):
    shared.rmdir()
    assert reclaim.shared_memory() == frozenset()
    assert reclaim.remove_shared_memory(frozenset()) == 0


def test_zombies_of_orphans_are_reaped(coordinator, run_python, tmp_path, until):
    launcher = run_python(
        """
import os, time
for _ in range(50):
    if os.fork() == 0:
        if os.fork() == 0:
            os._exit(0)
        time.sleep(0.02)
        os._exit(0)
while True:
    try:
        os.wait()
    except ChildProcessError:
        break
print("all waited for", flush=True)
time.sleep(600)
"""
    )
    coordinator.run(1)
    until(lambda: "all waited for" in launcher.text, "the rank")
    # the rank, and perhaps the process that scans; no zombie
    until(lambda: len(descendants(launcher.process.pid)) <= 1, "the zombies to be reaped")


def test_output_of_a_rank_is_complete_and_unchanged(coordinator, run_python, until):
    launcher = run_python(
        """
import os, sys
data = bytes(range(256)) * 64
for _ in range(256):
    os.write(1, data)
for i in range(20000):
    os.write(1, b"line %d\\n" % i)
os.write(1, b"x" * 3000000 + b"\\nno line end")
"""
    )
    coordinator.run(1)
    coordinator.wait_for(lambda r: r.state == EXITED)
    expected = bytes(range(256)) * 64 * 256 + b"".join(b"line %d\n" % i for i in range(20000))
    expected += b"x" * 3000000 + b"\nno line end"
    until(lambda: launcher.output.stat().st_size >= len(expected), "all output")
    assert launcher.output.read_bytes() == expected


def test_lines_of_two_ranks_are_not_mixed(coordinator, run_python, until):
    launcher = run_python(
        "import os\nletter = 'ab'[int(os.environ['LOCAL_RANK'])]\nfor _ in range(5000): print(letter * 99, flush=True)"
    )
    coordinator.run(1, processes_per_node=2)
    coordinator.wait_for(lambda r: r.state == EXITED)
    until(lambda: launcher.output.stat().st_size >= 1000000, "all output")
    lines = launcher.text.splitlines()
    assert len(lines) == 10000
    assert all(re.fullmatch("a{99}|b{99}", line) for line in lines)


def test_a_log_that_nobody_reads_does_not_stop_supervision(coordinator, run_python, until):
    read, write = os.pipe()
    try:
        launcher = run_python("import os\nwhile True: os.write(1, b'x' * 65536)", stdout=write)
        coordinator.run(1)
        coordinator.wait_for(lambda r: r.state == RUNNING)
        sequence = coordinator.latest.sequence
        coordinator.wait_for(lambda r: r.sequence > sequence + 3)
        coordinator.wait_to_run(2)
        coordinator.wait_for(lambda r: r.state == IDLE and r.attempt == 2)
        launcher.process.terminate()
        assert launcher.wait() == 128 + signal.SIGTERM
    finally:
        os.close(read)
        os.close(write)


def test_output_without_a_line_end_appears_while_the_rank_runs(coordinator, run_python, until):
    launcher = run_python("import sys, time; sys.stdout.write('step 1 of 2'); sys.stdout.flush(); time.sleep(600)")
    coordinator.run(1)
    until(lambda: launcher.text == "step 1 of 2", "the prompt")


def test_the_tail_of_a_failed_rank_has_no_colours_and_no_moves(coordinator, run_python):
    run_python("import sys; sys.stderr.write('100%|##|\\x1b[A\\n\\x1b[1;31mKeyError: 7\\x1b[0m\\n'); sys.exit(3)")
    coordinator.run(1)
    report = coordinator.wait_for(lambda r: r.state == EXITED)
    assert report.ranks[0].tail == "100%|##|\nKeyError: 7\n"


def test_binary_output_of_a_failed_rank_has_a_readable_tail(coordinator, run_python):
    run_python("import os; os.write(2, bytes(range(256)) * 100 + b'\\nfailed here\\n'); os._exit(3)")
    coordinator.run(1)
    report = coordinator.wait_for(lambda r: r.state == EXITED)
    tail = report.ranks[0].tail
    assert tail.endswith("\nfailed here\n")
    assert len(tail) <= 2048
    assert all(
        character.isprintable() or character in "\n\t" for character in tail.replace("\N{REPLACEMENT CHARACTER}", "")
    )

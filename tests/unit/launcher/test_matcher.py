"""Steps in the output: whatever the pattern, and however much is printed, the launcher goes on."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from pathlib import Path

from tests.unit.launcher.turns import LONG_LINE

from muster.node.launcher.matcher import Matcher, Printed
from muster.node.launcher.reclaim import reap
from muster.protocol.messages import IDLE, RUNNING
from muster.protocol.presets import AUTO, BY_NAME, PLAIN_LOOP


@contextlib.contextmanager
def stopped(pid: int):
    """Stop this process; it goes on after two minutes, so that nothing waits for it for ever.

    Yields:
        An event that is set when it went on before the end of the block.
    """
    released = threading.Event()

    def release() -> None:
        released.set()
        os.kill(pid, signal.SIGCONT)

    timer = threading.Timer(120.0, release)
    timer.start()
    os.kill(pid, signal.SIGSTOP)
    try:
        yield released
    finally:
        timer.cancel()
        os.kill(pid, signal.SIGCONT)


def test_the_steps_of_each_rank_in_their_order(turns):
    one = turns(r"step (\d+)", ranks=3)
    one.printed[0].put([b"step 4", b"loss 3", b"step 5", "schöner step 6 \N{SNOWMAN}".encode()])
    one.printed[2].put([b"", b" ", b"step 40", b"\xff\x00 step 41"])
    one.until(lambda: not one.printed[2].is_waiting, "an answer")
    assert [printed.take_steps() for printed in one.printed] == [[4, 5, 6], [], [40, 41]]
    assert [printed.take_steps() for printed in one.printed] == [[], [], []]
    one.printed[0].put([b"step 7"])
    one.until(lambda: one.printed[0].take_steps() == [7], "a second answer of the same child")
    assert len(one.pids) == 1


def test_by_a_preset_the_child_tells_which_and_what_else_the_output_looks_like(turns):
    one = turns("", ranks=2, preset=AUTO)
    one.printed[0].put([preset.lines[0].sample.encode() for preset in (BY_NAME["Megatron"], BY_NAME["DeepSpeed"])])
    lightning = BY_NAME["Lightning"].lines[0].sample
    one.printed[1].put([lightning.replace("100/", f"{batch}/").encode() for batch in (100, 101, 102)])
    one.until(lambda: one.matcher.looks_like, "an answer")
    assert [(printed.take_steps()[:1], printed.preset) for printed in one.printed] == [([300], "Megatron"), ([], "")]
    assert one.matcher.looks_like == "Lightning"


def test_the_child_tells_what_it_makes_of_a_loop_of_ones_own(turns):
    one = turns("", ranks=2, preset=AUTO)
    one.printed[0].put([b"step %d | loss nan" % step for step in (1, 2, 3)])
    one.printed[1].put([b"3.5 s: step %d" % step for step in (1, 2, 3)])
    one.until(lambda: not any(printed.is_waiting for printed in one.printed), "an answer")
    assert (one.printed[0].take_steps(), one.printed[0].preset, one.printed[0].loss) == ([3], PLAIN_LOOP, "nan")
    assert [printed.not_finite_since for printed in one.printed] == [1, None]
    assert one.matcher.proposed == ("", "")  # some count
    one.printed[0].put([b"step 1 | loss 0.5"])
    one.until(lambda: one.printed[0].problem, "the problem")
    assert one.printed[0].not_finite_since == 1
    one.printed[0] = Printed()  # of another attempt
    one.printed[0].put([b"[%d] step %d" % (step, step) for step in (1, 2, 3)])
    one.until(lambda: one.matcher.proposed[0], "a proposal")
    assert one.matcher.proposed == (r"\bstep\s+([0-9]+)", "[3] step 3")
    assert (one.printed[0].problem, one.printed[0].not_finite_since) == ("", None)


def test_a_preset_that_this_launcher_does_not_know_is_named(turns):
    one = turns("", preset="Horovod")
    one.printed[0].put([b"step 1"])
    one.until(lambda: one.matcher.error, "the error")
    assert "progress.preset Horovod is ignored: there is no preset Horovod" in one.matcher.error


def test_a_pattern_goes_before_a_preset(turns):
    one = turns(r"step (\d+)", preset=AUTO)
    one.printed[0].put([BY_NAME["Megatron"].lines[0].sample.encode(), b"step 4"])
    one.until(lambda: not one.printed[0].is_waiting, "an answer")
    assert (one.printed[0].take_steps(), one.printed[0].preset) == ([4], "")


def test_a_line_that_takes_for_ever_ends_the_child_and_the_next_one_goes_on(turns):
    one = turns(r"(?:(a+)+!$)|step (?P<n>\d+)".replace("(a+)+!", "(?:a+)+b").replace("(?P<n>", "("))
    one.printed[0].put([LONG_LINE.encode()])
    one.until(lambda: one.matcher.pids, "a child")
    one.until(lambda: not one.matcher.pids, "its end")
    one.printed[0].put([b"step 3"])
    one.until(lambda: one.printed[0].take_steps() == [3], "a step")
    assert not one.matcher.error


def test_an_unreadable_pattern_is_named_though_its_child_has_ended(turns):
    """A newer Python's: the operator has taken it for a good one."""
    one = turns("(")
    one.printed[0].put([b"step 4"])
    one.until(lambda: one.matcher.pids, "a child")
    (pid,) = one.matcher.pids
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    one.poll()
    assert "is ignored" in one.matcher.error
    assert one.matcher.pids == frozenset()


def test_a_pattern_that_fails_three_times_is_given_up_and_named():
    """A nightly test has one that takes for ever, with its children."""
    log: list[str] = []
    matcher = Matcher(r"step (\d+)", log.append)
    for now in (100.0, 101.0, 102.0):
        assert matcher.is_on
        matcher._failed(now, "a line of output takes too long")
    assert r"'step (\\d+)' is given up after 3 failures" in matcher.error
    assert "a line of output takes too long" in matcher.error
    assert log == [matcher.error]
    assert (matcher.is_on, matcher.descriptor, matcher.next_at()) == (False, None, None)


def test_failures_of_long_ago_are_forgiven():
    matcher = Matcher(r"step (\d+)", lambda _text: None)
    for now in (100.0, 200.0, 5000.0, 5100.0):
        matcher._failed(now, "somebody has killed it")
        assert not matcher.error
    matcher._failed(5200.0, "somebody has killed it")
    assert "somebody has killed it" in matcher.error


def test_a_child_that_somebody_killed_is_replaced(turns):
    one = turns(r"step (\d+)")
    one.printed[0].put([b"step 1"])
    one.until(lambda: one.printed[0].take_steps() == [1], "a step")
    os.kill(next(iter(one.matcher.pids)), signal.SIGKILL)
    one.until(lambda: not one.matcher.pids, "its end to be seen")
    one.printed[0].put([b"step 2"])
    one.until(lambda: one.printed[0].take_steps() == [2], "a step")
    assert not one.matcher.error


def test_a_pattern_that_is_none_is_named(turns):
    one = turns("step (")
    one.printed[0].put([b"step 1"])
    one.until(lambda: one.matcher.error, "the error")
    assert "is ignored: not a regular expression" in one.matcher.error
    one.until(lambda: not one.matcher.pids, "the end of the child")


def test_excess_output_keeps_the_newest_and_no_turn_waits_for_the_child(turns):
    one = turns(r"step (\d+)")
    one.printed[0].put([b"step 1"])
    one.until(lambda: one.printed[0].take_steps() == [1], "a step")
    (child,) = one.pids
    line = b"x" * 90 + b" step %d"
    with stopped(child) as released:
        for step in range(20_000):
            one.printed[0].put([line % step])
            if step % 1000 == 0:
                one.matcher.poll(time.monotonic(), reap(), one.printed)
        assert one.printed[0].take_steps() == []
        assert not released.is_set(), "a turn waits for the child"
    one.until(lambda: one.printed[0].take_steps()[-1:] == [19_999], "the newest step")
    assert len(one.pids) == 1


def test_what_waits_is_bounded_however_long_the_lines_are():
    printed = Printed()
    for number in range(100):
        printed.put([b"%d" % number + b"y" * 50_000])
    taken = printed.take_lines(10**9)
    assert sum(map(len, taken)) <= 64 * 1024
    assert taken[-1].startswith(b"99y")
    assert printed.take_lines(10**9) == []
    printed.put([b"more"])
    assert printed.take_lines(1) == [b"more"]


def test_without_a_pattern_that_can_be_read_the_launcher_obeys_and_tells(coordinator, run_python, until):
    """A nightly test has one that takes for ever."""
    launcher = run_python("import time; print('iter 1', flush=True); time.sleep(600)", MUSTER_STEP_PATTERN="iter (")
    coordinator.run(1)
    report = coordinator.wait_for(lambda r: r.progress_error)
    assert (report.state, report.step, report.step_age_seconds) == (RUNNING, None, None)
    assert "is ignored: not a regular expression" in report.progress_error
    until(lambda: "steps in the output are not counted" in launcher.error_text, "the log")
    coordinator.wait_to_run(2)
    coordinator.wait_for(lambda r: (r.state, r.attempt) == (IDLE, 2))


def test_while_the_child_stands_still_the_launcher_turns_and_obeys(coordinator, run_python):
    launcher = run_python(
        "import time\nfor step in range(9000): print('iter', step, flush=True); time.sleep(0.05)",
        MUSTER_STEP_PATTERN=r"iter (\d+)",
    )
    coordinator.run(1)
    coordinator.wait_for(lambda r: r.step is not None)
    (child,) = matchers_of(launcher.process.pid)
    with stopped(child) as released:
        report = coordinator.latest
        report = coordinator.wait_for(lambda r: r.sequence > report.sequence + 5)
        assert report.state == RUNNING
        coordinator.wait_to_run(2)
        coordinator.wait_for(lambda r: (r.state, r.attempt) == (IDLE, 2))
        assert not released.is_set(), "the launcher waits for the child"


def test_once_the_pattern_is_given_up_the_progress_file_still_counts(coordinator, run_python, until):
    launcher = run_python(
        "import os, time\n"
        "step = 0\n"
        "while True:\n"
        "    step += 1; print('step', step, flush=True)\n"
        "    open(os.environ['MUSTER_PROGRESS'], 'a').write('{\"step\": %d}\\n' % step)\n"
        "    time.sleep(0.1)",
        MUSTER_STEP_PATTERN="step (",
    )
    coordinator.run(1)
    until(lambda: "steps in the output are not counted" in launcher.error_text, "the pattern to be given up")
    step = coordinator.wait_for(lambda r: r.step is not None).step
    report = coordinator.wait_for(lambda r: r.step > step + 10)
    assert (report.progress_error, report.step_age_seconds is not None) == ("", True)


def children_of(pid: int) -> set[int]:
    return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


def matchers_of(pid: int) -> set[int]:
    return {child for child in children_of(pid) if b"--match-steps" in Path(f"/proc/{child}/cmdline").read_bytes()}


def test_the_child_is_no_rank_and_goes_with_the_launcher(coordinator, run_python, alive, until):
    program = "import time\nfor step in range(9000): print('iter', step, flush=True); time.sleep(0.05)"
    launcher = run_python(program, MUSTER_STEP_PATTERN=r"iter (\d+)")
    coordinator.run(1)
    coordinator.wait_for(lambda r: r.step is not None)
    child = matchers_of(launcher.process.pid)
    coordinator.wait_to_run(2)
    coordinator.wait_for(lambda r: (r.state, r.attempt) == (IDLE, 2))
    coordinator.run(2)
    coordinator.wait_for(lambda r: r.attempt == 2 and r.step is not None)
    assert (len(child), matchers_of(launcher.process.pid)) == (1, child)
    launcher.process.terminate()
    launcher.wait()
    until(lambda: not any(alive(pid) for pid in child), "the end of the child")


def test_the_child_of_a_launcher_that_was_killed_ends(coordinator, run_python, alive, until):
    launcher = run_python(
        "import time; print('iter 1', flush=True); time.sleep(600)", MUSTER_STEP_PATTERN=r"iter (\d+)"
    )
    coordinator.run(1)
    coordinator.wait_for(lambda r: r.step == 1)
    left = children_of(launcher.process.pid)
    (child,) = matchers_of(launcher.process.pid)
    launcher.process.kill()
    launcher.wait()
    until(lambda: not alive(child), "the end of the child")
    for pid in left - {child}:
        os.kill(pid, signal.SIGKILL)

"""Patterns that take for ever: each line of theirs burns a second of processor time before its child is ended."""

from __future__ import annotations

from tests.unit.launcher.turns import LONG_LINE

from muster.protocol.messages import IDLE, RUNNING

CATASTROPHE = r"(a+)+\d$"


def test_a_pattern_that_takes_for_ever_again_and_again_is_given_up_and_named(turns):
    one = turns(CATASTROPHE)

    def is_given_up() -> bool:
        one.printed[0].put([LONG_LINE.encode()])
        return bool(one.matcher.error)

    one.until(is_given_up, "the pattern to be given up")
    assert len(one.pids) == 3
    assert f"'{CATASTROPHE.encode('unicode_escape').decode()}' is given up after 3 failures" in one.matcher.error
    assert "a line of output takes more than 1 s of processor time" in one.matcher.error
    assert one.log == [one.matcher.error]
    assert (one.matcher.is_on, one.matcher.descriptor, one.matcher.next_at()) == (False, None, None)
    one.until(lambda: not one.matcher.pids, "the end of the last child")


PRINTS = f"""
import os, time
print("iter 1", flush=True)
while not os.path.exists(os.path.join(os.environ["TEST_DIRECTORY"], "worse")):
    time.sleep(0.01)
while True:
    print("{LONG_LINE}", flush=True)
    time.sleep(0.1)
"""


def test_under_the_worst_pattern_the_launcher_obeys_and_tells(coordinator, run_python, tmp_path, until):
    launcher = run_python(PRINTS, MUSTER_STEP_PATTERN=r"iter (\d+)|(?:a+)+b$")
    coordinator.run(1)
    report = coordinator.wait_for(lambda r: r.step == 1)
    assert (report.progress_error, report.step_age_seconds is not None) == ("", True)
    (tmp_path / "worse").touch()
    report = coordinator.wait_for(lambda r: r.progress_error)
    assert (report.state, report.step, report.step_age_seconds) == (RUNNING, 1, None)
    assert "a line of output takes more than 1 s" in report.progress_error
    until(lambda: "steps in the output are not counted" in launcher.error_text, "the log")
    coordinator.wait_to_run(2)
    coordinator.wait_for(lambda r: (r.state, r.attempt) == (IDLE, 2))

"""What the end of a rank's output says of the processes it started; tests/data/reports has what launchers print."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from muster.node.launcher import first_failure
from muster.node.launcher.first_failure import MAX_BYTES, FirstFailure, LastBytes, find

NO_TRACEBACK = "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"


def failed(rank: Any, code: Any = 1, time: str = "2026-05-21_15:43:03", traceback: str = NO_TRACEBACK) -> str:
    lines = ["[0]:", f"  time      : {time}", "  host      : gpu-1", f"  rank      : {rank} (local_rank: {rank})"]
    return "\n".join([*lines, f"  exitcode  : {code} (pid: 77)", "  error_file: <N/A>", f"  traceback : {traceback}"])


def block(root: str, *others: str, raised: str = "ChildFailedError:", title: str = "train.py FAILED") -> str:
    parts = ["torch.distributed.elastic.multiprocessing.errors." + raised, "=" * 60, title, "-" * 60, "Failures:"]
    parts += [*(others or ["  <NO_OTHER_FAILURES>"]), "-" * 60, "Root Cause (first observed failure):", root, "=" * 60]
    return "\n".join(parts) + "\n"


def exception(rank: int, text: str) -> str:
    return "".join(f"[rank{rank}]: {line}\n" for line in ("Traceback (most recent call last):", "  File x", text))


def first_of(*texts: str) -> FirstFailure | None:
    return find([text.encode() for text in texts])


def last_of(*texts: str) -> str:
    first = first_of(*texts)
    assert first is not None
    return first.lines[-1] if first.lines else ""


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        "=" * 60,
        block(failed(1), raised="AssertionError:"),
        block(failed(1), title="train.py has failed"),
        block(failed(1)).replace("Root Cause (first observed failure):", "Root Cause:"),
        block(failed("one")),
        block(failed(1234567)),
        block(failed(1, code=0)),
        block(failed(1, code=256)),
        block(failed(1, code=-65)),
        block(failed(1, code="none")),
        block("[0]:"),
        block(failed(1))[:-20],
        block(failed(1)) + "retrying\n",
        block(failed(1)) + "\n" * 20,
        block(failed(1)).replace("=" * 60, "=" * 59, 1),
    ],
)
def test_what_is_no_whole_block_at_the_end_names_nothing(text: str) -> None:
    assert first_of(text) is None


def test_the_interpreter_may_warn_behind_the_block() -> None:
    behind = "\n/usr/lib/python3.11/multiprocessing/resource_tracker.py:254: UserWarning: resource_tracker: 6 leaked\n"
    behind += "  warnings.warn('resource_tracker: There appear to be 6 leaked semaphore objects')\n"
    assert last_of(exception(3, "ValueError: no") + block(failed(3)) + behind) == "ValueError: no"


def test_colours_hide_neither_the_block_nor_the_exception() -> None:
    text = exception(1, "\x1b[1;31mKeyError\x1b[0m: \x1b[35m'labels'\x1b[0m") + f"\x1b[31m{block(failed(1))}\x1b[0m"
    assert last_of(text) == "KeyError: 'labels'"


def test_the_block_may_be_in_either_stream() -> None:
    whole = exception(3, "ValueError: no") + block(failed(3))
    assert (
        first_of(whole, "")
        == first_of("", whole)
        == FirstFailure(3, 3, 1, None, ("Traceback (most recent call last):", "  File x", "ValueError: no"))
    )


def test_other_ranks_lines_are_left_out_where_the_named_rank_raised_none() -> None:
    own = "[rank1]:[E521 15:43:02 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout\n"
    text = exception(0, "RuntimeError: Connection closed by peer") + own + block(failed(1, code=-6))
    first = first_of(text)
    assert first is not None
    assert first.lines == (own.strip(), "Signal 6 (SIGABRT) received by PID 77")


def test_the_exception_is_found_behind_seven_victims_and_their_noise() -> None:
    """The noise is what their libraries print."""
    noise = "node-7:4242:77 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n" * 50
    victims = [exception(rank, "RuntimeError: Connection closed by peer") + noise for rank in range(7)]
    assert last_of(noise + exception(7, "ValueError: no") + "".join(victims) + block(failed(7))) == "ValueError: no"


def test_what_has_scrolled_out_of_what_is_kept_is_not_made_up() -> None:
    first = first_of((exception(3, "ValueError: no") + "step 1\n" * 20_000 + block(failed(3)))[-MAX_BYTES:])
    assert first is not None
    assert (first.rank, set(first.lines)) == (3, {"step 1"})


def test_the_other_stream_has_the_lines_where_the_one_with_the_block_has_none() -> None:
    assert last_of(block(failed(0, code=3)), "step 1\nno such dataset: /data\n") == "no such dataset: /data"


def test_the_traceback_of_the_block_comes_before_what_was_printed() -> None:
    told = "Traceback (most recent call last):\n    File x\n  ValueError: of the error file\n"
    assert (
        last_of(exception(3, "ValueError: printed") + block(failed(3, traceback=told)))
        == "ValueError: of the error file"
    )


@pytest.mark.parametrize(
    ("others", "before", "rank"),
    [
        ([failed(1)], exception(1, "ValueError: cause") + exception(0, "closed by peer"), 1),
        ([failed(1)], exception(0, "ValueError: cause") + exception(1, "closed by peer"), 0),
        ([failed(1)], "", 0),
        ([failed(1, code=-9)], exception(0, "closed by peer"), 1),
        ([failed(1, code=-15)], exception(0, "ValueError: cause"), 0),
        ([failed(1, time="2026-05-21_15:43:04", code=-9)], exception(1, "closed by peer"), 0),
    ],
    ids=["first printed", "root is first", "nothing printed", "killed", "ended by torchrun", "a second later"],
)
def test_of_several_in_one_second_the_one_that_failed_first_counts(
    others: Sequence[str], before: str, rank: int
) -> None:
    """torchrun takes the lowest rank: its clock has whole seconds."""
    first = first_of(before + block(failed(0), *others))
    assert first is not None
    assert first.rank == rank


def test_exceptions_of_earlier_rounds_of_torchrun_do_not_count() -> None:
    log = (
        "E0521 15:43:01.000000 7 torch/distributed/elastic/multiprocessing/api.py:882] failed (exitcode: 1) "
        "local_rank: 1 (pid: 3) of binary: python3\n"
    )
    text = exception(1, "ValueError: the first") + log + "RuntimeError: the last\n" + log + block(failed(1))
    assert last_of(text) == "RuntimeError: the last"


def test_log_lines_and_drawn_frames_of_other_versions_are_no_lines_of_the_program() -> None:
    log = "%s:torch.distributed.elastic.multiprocessing.api:%s\n"
    before = "WARNING:torch.distributed.run:\n" + "*" * 41 + "\n"
    before += "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default.\nValueError: no\n"
    before += log % ("WARNING", "Sending process 7 closing signal SIGTERM")
    before += log % ("ERROR", "failed (exitcode: 1) local_rank: 0 (pid: 8) of binary: /usr/bin/python3")
    frames = "Traceback (most recent call last):\n  File x\n    raise ChildFailedError(\n"
    drawn = "╭──── Traceback (most recent call last) ────╮\n│ /usr/bin/accelerate:8 in <module> │\n╰────╯\n"
    framed = block(failed(0)).replace("torch.distributed.elastic.multiprocessing.errors.", "")
    for text in (before + frames + block(failed(0)), before + drawn + framed):
        first = first_of(text)
        assert first is not None
        assert first.lines == ("ValueError: no",)


def test_deepspeeds_launcher_names_the_local_rank() -> None:
    head = "[2026-05-21 15:43:03,113] [%s] [launch.py:%d:sigkill_handler] "
    line = (
        head % ("ERROR", 325)
        + "['/usr/bin/python3', '-u', 'train.py', '--local_rank=5', '--x'] exits with return code = %d\n"
    )
    before = "ValueError: no\n" + head % ("INFO", 319) + "Killing subprocess 14\n"
    assert first_of(before + line % 3) == FirstFailure(None, 5, 3, None, ("ValueError: no",))
    assert first_of(before + line % -9) == FirstFailure(
        None, 5, None, 9, ("ValueError: no", "exits with return code = -9")
    )
    assert first_of(before + line % 0) is None


def test_accelerates_one_process_may_be_killed() -> None:
    text = (
        'Traceback (most recent call last):\n  File "/usr/bin/accelerate", line 8, in <module>\n'
        '  File "/usr/lib/python3/accelerate/commands/launch.py", line 783, in simple_launcher\n'
        "subprocess.CalledProcessError: Command '['/usr/bin/python3', 'train.py']' died with <Signals.SIGKILL: 9>.\n"
    )
    assert first_of(text) == FirstFailure(None, None, None, 9, ("died with <Signals.SIGKILL: 9>",))


@pytest.mark.parametrize(
    "part", ["=", "[", "[rank1]:", "[rank1]: Traceback (most recent call last):\n", "\x00", "]' ", "\n"]
)
def test_what_a_hostile_program_repeats_names_nothing(part: str) -> None:
    assert first_of((part * MAX_BYTES)[:MAX_BYTES]) is None


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_lines_may_end_as_on_a_terminal(end: str) -> None:
    whole = exception(3, "ValueError: no") + block(failed(3))
    assert first_of(whole.replace("\n", end)) == first_of(whole)


def test_a_long_line_where_the_error_is_named_is_looked_at_once() -> None:
    """The names of modules before an error were searched for at each place of the line: that took seconds."""
    assert not hasattr(first_failure._RAISED, "search")
    assert first_of("\n".join(["x" * 300 + "." * 50_000, *block(failed(3)).splitlines()[-12:]])) is None


def test_no_pattern_repeats_without_a_bound_within_another_text() -> None:
    """Output of a rank is searched by the loop that also reports: a pattern may not take the square of a line."""
    line = "[default1]:" * 6000
    assert first_of(line + "\n" + block(failed(1))) is not None


def test_the_last_bytes_are_kept_and_no_more() -> None:
    last = LastBytes(most=8)
    for part in (b"abc", b"defgh", b"ij", b"k" * 3, b"0123456789abcdef", b"xy"):
        last.add(part)
    assert last.get() == b"abcdefxy"
    assert len(last._kept) <= 16

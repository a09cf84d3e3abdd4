"""Last lines of ranks that ended with code 0, which a traceback ends or not."""

from __future__ import annotations

import pytest

from muster.protocol.messages import RankReport
from muster.recovery.ended_well import raised_at_the_end
from muster.recovery.exits import raised_before_success, reported_cause
from muster.world.views import RankView

HEAD = 'Traceback (most recent call last):\n  File "/code/train.py", line 7, in <module>\n    main()\n'
RAISED = f'{HEAD}  File "/code/train.py", line 3, in main\n    raise RuntimeError("no")\nRuntimeError: no\n'
CUDA = (
    "RuntimeError: CUDA error: device-side assert triggered\nCUDA kernel errors might be asynchronously reported at "
    "some other API call\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\nCompile with `TORCH_USE_CUDA_DSA` to "
    "enable device-side assertions.\n\n"
)
BLOCK = (
    f"{HEAD}torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n{'=' * 60}\ntrain.py FAILED\n"
    f"{'-' * 60}\nFailures:\n  <NO_OTHER_FAILURES>\n{'-' * 60}\nRoot Cause (first observed failure):\n[0]:\n"
    f"  rank      : 1 (local_rank: 1)\n  exitcode  : 1 (pid: 7)\n{'=' * 60}\n"
)


def with_rank(text: str, rank: int) -> str:
    """The text as PyTorch prints an exception of a rank."""
    return "".join(f"[rank{rank}]: {line}\n" for line in text.splitlines())


@pytest.mark.parametrize(
    ("tail", "raised"),
    [
        (f"step 1\n{RAISED}", "RuntimeError: no"),
        (RAISED.partition("\n")[2], "RuntimeError: no"),  # the head is cut off
        (HEAD + "AssertionError", "AssertionError"),
        (HEAD + "    ~~~~^^\nbotocore.exceptions.ClientError: An error occurred", "botocore.exceptions.ClientError: An error occurred"),  # noqa: E501
        (HEAD + "KeyboardInterrupt\n\n", "KeyboardInterrupt"),
        (with_rank(RAISED, 1), "RuntimeError: no"),
        (with_rank(RAISED, 0) + with_rank(RAISED.replace("no", "of 1"), 1), "RuntimeError: of 1"),
        (with_rank(RAISED, 1) + "[rank1]:[W1128 12:00:00.1 ProcessGroupNCCL.cpp:1250] Warning: destroy it\n", "RuntimeError: no"),  # noqa: E501
        (f"{RAISED}\nDuring handling of the above exception, another exception occurred:\n\n{HEAD}ValueError: b\n", "ValueError: b"),  # noqa: E501
        (HEAD + CUDA, "RuntimeError: CUDA error: device-side assert triggered"),
        (BLOCK, "torch.distributed.elastic.multiprocessing.errors.ChildFailedError"),
        (HEAD + "ValueError: " + "x" * 2000, "ValueError: " + "x" * 288),
    ],
)  # fmt: skip
def test_a_traceback_at_the_very_end_is_found(tail: str, raised: str) -> None:
    assert raised_at_the_end(tail) == raised


@pytest.mark.parametrize(
    "tail",
    [
        "",
        "\n\n",
        "step 1\nRuntimeError: no\n",
        f"{RAISED}step 2\n",
        f"{RAISED}Done: saved to /out\n",
        f"{BLOCK}restarted, and done\n",
        f"{'=' * 60}\nthe end\n{'=' * 60}\n",
        HEAD,
        f"Exception ignored in: <function Loader.__del__ at 0x7f>\n{RAISED}",
        f"Error in atexit._run_exitfuncs:\n{RAISED}",
        "Exception ignored in: <x>\n" + RAISED.partition("\n")[2],
        f"{RAISED}{' ' * 4}of what is printed in a table\nTotal: 3\n",
    ],
)
def test_what_does_not_end_with_a_traceback_is_none(tail: str) -> None:
    assert raised_at_the_end(tail) == ""


def test_lines_of_a_rank_that_ended_well_are_read_once_as_they_come() -> None:
    ended = RankReport(0, 0, alive=False, exit_code=0, tail=RAISED)
    assert reported_cause(ended) == "RuntimeError: no"
    read = RankView(**{**vars(ended), "tail": "step 1"}, cause=reported_cause(ended))
    assert raised_before_success(read) == "RuntimeError: no"


@pytest.mark.parametrize(
    "rank", [RankReport(0, 0, alive=False, exit_code=1, tail=RAISED), RankReport(0, 0, alive=True)]
)
def test_a_rank_that_failed_or_lives_has_raised_nothing_before_a_success(rank: RankReport) -> None:
    assert raised_before_success(rank) == ""

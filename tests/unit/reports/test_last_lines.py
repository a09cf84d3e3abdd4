"""tests/data/reports/last_lines: why a rank ended, by its last lines.

`right` is `LostPeer`, `Killed`, `Own`, or `Unknown` where nothing in it says: that counts as the program's own. Besides
an input, `exitCode` (1 where neither is given) or `signal` says how the rank ended; `from` names the thread that a case
is from.
"""

import pytest
from tests.unit.reports.corpus import by_report, cases

from muster.recovery import last_lines
from muster.recovery.last_lines import Cause, cause_of, is_of_program

CASES = cases("last_lines")
REPORTS = by_report(CASES)
RIGHT = {"LostPeer": Cause.LOST_PEER, "Killed": Cause.KILLED, "Own": Cause.OWN, "Unknown": Cause.OWN}


@pytest.mark.parametrize("report", REPORTS)
def test_last_lines_say_why_a_rank_ended(report: str) -> None:
    wrong = {}
    for case in REPORTS[report]:
        exit_code = case.besides.get("exitCode", None if "signal" in case.besides else 1)
        found = cause_of(case.given, exit_code, case.besides.get("signal"))
        if found is not RIGHT[case.right]:
            wrong[str(case)] = found
    assert wrong == {}


@pytest.mark.parametrize("prefix", ["[rank1]: ", "[default0]:", "[1]: ", "3: "])
def test_the_rank_before_each_line_changes_nothing(prefix: str) -> None:
    wrong = {}
    for case in [case for case in CASES if case.right == "LostPeer"]:
        tail = "\n".join(prefix + line for line in case.given.splitlines())
        found = cause_of(tail, None if "signal" in case.besides else 1, case.besides.get("signal"))
        if found is not Cause.LOST_PEER:
            wrong[str(case)] = found
    assert wrong == {}


@pytest.mark.parametrize(
    "part",
    ["Connection ", "ncclRemote", "gloo/", "a.", "E", "UCX  ERROR ", "DistStoreError: ", "DeepEP a ", "remote agent '"],
)
def test_a_line_as_long_as_a_report_takes_is_read_in_one_pass(part: str) -> None:
    assert cause_of((part * 2048)[:2048], 1, None) is Cause.OWN


def test_no_pattern_takes_the_square_of_a_line_that_repeats_its_beginning() -> None:
    """Such a pattern is tried from each repetition to the end: 120 ranks with such lines took seconds."""
    searched = [last_lines._LOST_PEER, last_lines._SOCKET, last_lines._SERVICE, last_lines._OWN_GPU]
    searched += [last_lines._REPEATS, *(reason for _, reason in last_lines._CONCLUDES)]
    searched += [last_lines._NAMES_NODE, last_lines._NODE_FAULT]
    searched += [part for way in (*last_lines._LOST_PEER_BEHIND, *last_lines._OWN_COMPLETION) for part in way]
    assert [pattern.pattern for pattern in searched if ".*" in pattern.pattern or "\\S+" in pattern.pattern] == []


def raised(exception: str, before: str = "") -> str:
    """The last lines of a program that an exception has ended."""
    frames = 'Traceback (most recent call last):\n  File "/code/train.py", line 88, in main\n    train(step)\n'
    return f"{before}{frames}{exception}\n"


HANDLING = "\nDuring handling of the above exception, another exception occurred:\n\n"


@pytest.mark.parametrize(
    "tail",
    [
        raised("ValueError: loss is NaN at step 49"),
        raised("AssertionError", "step 48, loss 2.31, gpu memory 61 GB\n"),
        raised("RuntimeError: mat1 and mat2 shapes cannot be multiplied (64x512 and 256x128)"),
        raised("__main__.DivergedError: the loss rises since step 12"),
        raised("json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)"),
        raised("KeyError: 'input_ids'", raised("IndexError: list index out of range") + HANDLING),
        "\n".join(f"[rank3]: {line}" for line in raised("TypeError: 'NoneType' object is not iterable").splitlines()),
    ],
)
def test_a_traceback_about_the_program_s_own_values_is_of_the_program(tail: str) -> None:
    assert is_of_program(tail)


@pytest.mark.parametrize(
    "tail",
    [
        raised("RuntimeError: CUDA error: an illegal memory access was encountered"),
        raised("RuntimeError: CUDA error: uncorrectable ECC error encountered"),
        raised("RuntimeError: CUDA error: unspecified launch failure\nCompile with `TORCH_USE_CUDA_DSA` to enable"),
        raised("torch.AcceleratorError: CUDA error: unspecified launch failure"),
        raised("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"),
        raised("RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"),
        raised("RuntimeError: HIP error: the operation cannot be performed in the present state"),
        raised("RuntimeError: No HIP GPUs are available"),
        raised("RuntimeError: Triton Error [CUDA]: misaligned address"),
        raised("RuntimeError: Pin memory thread exited unexpectedly"),
        raised("RuntimeError: DataLoader worker (pid 71) is killed by signal: Bus error."),
        raised("RuntimeError: NCCL communicator was aborted on rank 0."),
        raised("torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2028, unhandled system error"),
        raised("jaxlib.xla_extension.XlaRuntimeError: INTERNAL: failed to execute"),
        raised("OSError: [Errno 5] Input/output error: '/data/shard-17'"),
        raised("FileNotFoundError: [Errno 2] No such file or directory: '/local/shard-17'"),
        raised("MemoryError"),
        raised("RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory"),
        raised("ImportError: /usr/lib/libfoo.so: invalid ELF header"),
        raised("RuntimeError: checksum mismatch in shard 3"),
        raised("RuntimeError: can't start new thread"),
        raised("RuntimeError: std::bad_alloc"),
        raised("ValueError: no data", raised("OSError: [Errno 5] Input/output error") + HANDLING),
        raised("KeyError: 'loss'", raised("torch.AcceleratorError: device lost") + HANDLING),
        raised("ValueError: no data", "gpu-1:7:9 [1] proxy.cc:1533 NCCL WARN [Service thread] Error encountered\n"),
        raised("ValueError: no data", "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n"),
        raised("ValueError: no data") + "saving what is there\n",
        "ValueError: no data\n",
        "",
    ],
)
def test_what_may_come_of_the_node_is_not(tail: str) -> None:
    assert not is_of_program(tail)


def test_no_lost_peer_and_no_signal_is_of_the_program() -> None:
    assert [str(case) for case in CASES if case.right in ("LostPeer", "Killed") and is_of_program(case.given)] == []

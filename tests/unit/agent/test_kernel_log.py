"""Reading the log as it grows: files, pipes, rotation, floods."""

import os
import random
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agent.conftest import EPOCH, AgentClock
from tests.unit.agent.floods import XID, assert_that_a_flood_of_one_xid_is_one, assert_that_noise_has_no_verdict

from muster.node.agent import kinds
from muster.node.agent.agent import _EXPIRES
from muster.node.agent.kernel_lines import KERNEL_LINES
from muster.node.agent.kernel_log import KernelLog


@pytest.fixture
def log(tmp_path: Path) -> Iterator[KernelLog]:
    (tmp_path / "kmsg").touch()
    made = KernelLog(tmp_path / "kmsg")
    yield made
    made.close()


def append(path: Path, text: str) -> None:
    with path.open("a") as stream:
        stream.write(text)


def test_lines_come_as_they_are_written(log: KernelLog, tmp_path: Path) -> None:
    assert list(log.read()) == []
    append(tmp_path / "kmsg", XID[:20])
    assert list(log.read()) == []
    append(tmp_path / "kmsg", XID[20:] + "\nother\n")
    (entry,) = log.read()
    assert (entry.fact.kind, entry.fact.code, entry.boot_seconds) == (kinds.XID, 79, None)
    assert list(log.read()) == []


def test_what_was_there_counts_only_with_a_date(log: KernelLog, tmp_path: Path) -> None:
    append(tmp_path / "kmsg", f"{XID}\n4,1,7000000,-;{XID}\n")
    (entry,) = log.read()
    assert entry.boot_seconds == 7.0


def test_a_file_that_is_rotated_or_cut_is_read_on(log: KernelLog, tmp_path: Path) -> None:
    list(log.read())
    append(tmp_path / "kmsg", f"{XID}\n")
    (tmp_path / "kmsg").rename(tmp_path / "kmsg.1")
    (tmp_path / "kmsg").write_text(f"{XID}\n")
    assert len(list(log.read())) == 2
    append(tmp_path / "kmsg", "x" * 1000 + "\n")
    list(log.read())
    (tmp_path / "kmsg").write_text(f"{XID}\n")
    assert len(list(log.read())) == 1


def test_a_log_that_is_not_there_is_a_problem_until_it_is(tmp_path: Path) -> None:
    log = KernelLog(tmp_path / "late")
    assert list(log.read()) == []
    assert "cannot be read" in log.problem
    (tmp_path / "late").touch()
    list(log.read())
    assert log.problem == ""
    append(tmp_path / "late", f"{XID}\n")
    assert len(list(log.read())) == 1
    log.close()


def test_records_of_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    log = KernelLog(tmp_path / "pipe")
    assert log.open()
    assert log.fileno() is not None
    writer = os.open(tmp_path / "pipe", os.O_WRONLY)
    os.write(writer, f"4,1,5000000,-;{XID}\n SUBSYSTEM=pci\n DEVICE={XID}\n".encode())
    assert [entry.boot_seconds for entry in log.read()] == [5.0]
    os.close(writer)
    log.close()


@pytest.mark.parametrize(
    "prefix", ["4,1,5000000,-;", "[   12.345678][  T123] ", "Nov 20 09:00:00 gpu-17 kernel: [   12.3] "]
)
def test_lines_of_one_message_may_come_one_by_one(log: KernelLog, tmp_path: Path, prefix: str) -> None:
    list(log.read())
    found: list[Any] = []
    for line in (
        "NVRM: The NVIDIA GPU 0000:b3:00.0",
        "NVRM: (PCI ID: 10de:26b5) installed in this system has",
        "NVRM: fallen off the bus and is not responding to commands.",
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error (First)",
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Severity 0 Engine instance 32 Sub-engine instance 00",
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Data {0x000001c0, 0x00000000}",
    ):
        append(tmp_path / "kmsg", f"{prefix}{line}\n")
        found += [(entry.fact.kind, entry.fact.device) for entry in log.read()]
    assert found == [(kinds.GPU_LOST, "0000:b3:00"), (kinds.SXID, "nvidia-nvswitch3")]


def test_the_agent_knows_for_how_long_every_kind_of_line_stands() -> None:
    by_nvml_or_sysfs = {kinds.GPU_LOST, kinds.GPU_INIT, kinds.CLOCK_SOURCE}
    assert {row.kind for row in KERNEL_LINES} - by_nvml_or_sysfs <= set(_EXPIRES)


def test_a_file_that_grows_faster_than_it_is_read_is_skipped(log: KernelLog, tmp_path: Path) -> None:
    list(log.read())
    with (tmp_path / "kmsg").open("wb") as stream:
        stream.truncate(100 * 1024 * 1024)
    append(tmp_path / "kmsg", f"\n{XID}\n")
    found: list[Any] = []
    for _ in range(20):
        found += log.read()
    assert len(found) == 1
    assert log.skipped_bytes > 90 * 1024 * 1024


def test_binary_garbage_and_endless_lines_are_harmless(log: KernelLog, tmp_path: Path) -> None:
    list(log.read())
    with (tmp_path / "kmsg").open("ab") as stream:
        stream.write(random.Random(1).randbytes(200_000) + b"\n" + b"NVRM: " * 100_000 + b"\n" + XID.encode() + b"\n")
    assert [entry.fact.code for entry in [*log.read(), *log.read()]] == [79]


def test_a_flood_of_one_xid_is_one_piece_of_evidence_and_few_writes(node: Any, run: Any) -> None:
    assert_that_a_flood_of_one_xid_is_one(node, run, 3)


def test_a_flood_of_noise_has_no_verdict(node: Any, run: Any) -> None:
    assert_that_noise_has_no_verdict(node, run, 500)


def test_the_log_s_own_time_is_told(node: Any, run: Any) -> None:
    node.log(f"4,1,2500000000,-;{XID}")
    found = run(clock=AgentClock(held=5000.0)).wait_for(kinds.XID)
    assert datetime.fromisoformat(found["firstSeen"]).timestamp() == EPOCH + 2500.0


def test_what_the_log_holds_from_too_long_ago_is_past(node: Any, run: Any) -> None:
    node.log(f"4,1,2500000000,-;{XID}")
    agent = run(thresholds={"xid.expires": 2000.0}, clock=AgentClock(held=5000.0))
    agent.wait_until_looking()
    agent.wait_for_log(1)
    assert agent.evidence == []


def test_the_kernel_s_own_log_can_be_read() -> None:
    log = KernelLog(Path("/dev/kmsg"))
    if not log.open():
        assert "cannot be read" in log.problem
        return
    list(log.read())
    assert log.lines > 0
    assert log.fileno() is not None
    log.close()

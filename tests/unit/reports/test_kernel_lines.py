"""tests/data/reports/kernel: every line, with every prefix that Linux 5.4 and later give it, through filter and
patterns.

`input` is one message, of several lines if need be. `right` is `nothing`, or the evidence that comes of it: kind,
device, code where it has one, and what it weighs.
"""

from collections.abc import Callable, Iterator

import pytest
from tests.unit.health.builders import NOW, evidence
from tests.unit.reports.corpus import Case, by_report, cases

from muster.health.kinds import sign_of
from muster.node.agent.kernel_lines import DISK_PATHS, KERNEL_LINES, KernelLine
from muster.node.agent.log_lines import Joiner, LogFact, may_be_known, parse, recovery_taken_back, split

CASES = cases("kernel")
REPORTS = by_report(CASES)
NOTHING = "nothing"
NO_EVIDENCE = {row.kind for row in DISK_PATHS}

Way = Callable[[list[str]], list[str]]


def each(prefix: str) -> Way:
    """Every line of a message has the prefix: the console, dmesg and old kernels."""
    return lambda lines: [prefix + line for line in lines]


def one(prefix: str, end: str) -> Way:
    """A message is one record."""
    return lambda lines: [prefix + end.join(lines)]


WAYS: dict[str, Way] = {
    "bare": each(""),
    "console": each("[   12.345678] "),
    "console of a thread": each("[   12.345678][  T123] "),
    "console of a core": each("[   12.345678][    C3] "),
    "without a stamp, of a thread": each("[    T1] "),
    "serial console": each("<4>[12345.678901] "),
    "serial console, of a core": each("<4>[12345.678901][   C47] "),
    "dmesg of a thread": each("[   12.345678] [  T123] "),
    "dmesg --ctime": each("[Thu Nov 20 09:00:00 2025] "),
    "dmesg --reltime": lambda lines: ["[Nov20 09:00] " + lines[0], *("[  +0.000844] " + line for line in lines[1:])],
    "dmesg --reltime, later": each("[  +0.000844] "),
    "dmesg --time-format=iso": each("2025-11-20T09:00:00,123456+00:00 "),
    "dmesg --decode": each("kern  :err   : [   12.345678] "),
    "syslog": each("Nov 20 09:00:00 gpu-17 kernel: [12345.678901] "),
    "syslog, day of one digit": each("Nov  2 09:00:00 gpu-17 kernel: "),
    "syslog, no space": each("2025-11-20T09:00:00 gpu-17 kernel:[75215.928853] "),
    "syslog of RFC 5424": each("<4>1 2025-11-20T09:00:00.123456+00:00 gpu-17 kernel - - - [12345.678901] "),
    "journal, with the host": each("2025-11-20T09:00:00.123456+0000 gpu-17.example.com kernel: "),
    "journal, monotonic": each("[12345.678901] gpu-17 kernel: "),
    "records of their own": each("4,77,5000000,-;"),
    "records of a thread": each("4,77,5000000,-,caller=T123;"),
    "record": one("4,77,5000000,-;", "\\x0a"),
    "record of a core": one("3,4711,12345678901,-,caller=C47;", "\\x0a"),
    "rsyslog": one("Nov 20 09:00:00 gpu-17 kernel: [12345.678901] ", "#012"),
    "journal": lambda lines: ["Nov 20 09:00:00 gpu-17 kernel: " + lines[0], *(" " * 40 + line for line in lines[1:])],
}


def read(lines: list[str]) -> Iterator[LogFact]:
    """As `KernelLog.read` does."""
    joiner = Joiner()
    for line in lines:
        parts = split(line) if may_be_known(line) else None
        fact = parse(joiner.joined(parts[0])) if parts is not None else None
        if fact is not None and fact.kind not in NO_EVIDENCE:
            yield fact


def said(case: Case, way: Way) -> list[dict[str, object]]:
    """What is read, in the words of `right`, each once: the agent counts what comes at once as one."""
    found: list[dict[str, object]] = []
    for fact in read(way(str(case.given).split("\n"))):
        entry = evidence(fact.kind, fact.code, value=fact.value, message=fact.message, subject=fact.device)
        words: dict[str, object] = {"kind": fact.kind, "weighs": sign_of(entry, NOW).severity.value}
        words |= {"code": fact.code} if fact.code else {}
        words |= {"device": fact.device} if fact.device else {}
        if words not in found:
            found.append(words)
    return found


@pytest.mark.parametrize("report", REPORTS)
def test_each_line_says_what_it_says(report: str) -> None:
    wrong: dict[tuple[str, str], object] = {}
    for case in REPORTS[report]:
        right = [] if case.right == NOTHING else [case.right]
        wrong |= {(case.given, name): found for name, way in WAYS.items() if (found := said(case, way)) != right}
    assert wrong == {}


@pytest.mark.parametrize("row", KERNEL_LINES, ids=lambda row: row.name)
def test_every_row_of_the_table_has_lines_and_near_misses_in_its_file(row: KernelLine) -> None:
    assert {case.right == NOTHING for case in CASES if case.report == row.name} == {True, False}


@pytest.mark.parametrize("row", KERNEL_LINES, ids=lambda row: row.name)
def test_the_lines_of_a_row_are_those_of_its_pattern(row: KernelLine) -> None:
    given = [str(case.given) for case in CASES if case.report == row.name and case.right != NOTHING]
    for text in given:
        first = next(
            other for other in KERNEL_LINES if any(word in text for word in other.words) and other.pattern.match(text)
        )
        assert first is row, (text, first.name)


@pytest.mark.parametrize("row", KERNEL_LINES, ids=lambda row: row.name)
def test_every_word_of_a_row_is_needed(row: KernelLine) -> None:
    """A word that no line has is a way for noise to pass the filter."""
    lines = [line for case in CASES if case.report == row.name for line in str(case.given).split("\n")]
    assert [word for word in row.words if not any(word in line for line in lines)] == []


@pytest.mark.parametrize(
    ("asked", "reset"),
    [
        ("0x1 (GPU Reset Required)", True),
        ("0x1 (PF FLR)", True),
        ("0x2 (Node Reboot Required)", True),
        ("0x2 (OS Reboot)", True),
        ("0x3 (Drain P2P)", False),
        ("0x4 (Drain and Reset)", True),
        ("0x5 (Recover IMEX Domain)", False),
    ],
)
def test_what_the_driver_asks_for_no_more_is_taken_back_whatever_its_name_is(asked: str, reset: bool) -> None:
    fact = parse(f"NVRM: Xid (PCI:0000:1b:00): 154, GPU recovery action changed from {asked} to 0x0 (None)")
    assert fact is not None
    assert recovery_taken_back(fact) is reset


@pytest.mark.parametrize(
    "line",
    [
        "Nov 20 09:00:00 gpu-17 python3[77]: kernel: NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.",
        "Nov 20 09:00:00 gpu-17 trainer: NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.",
        "user  :err   : [   12.345678] NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.",
        "12,77,5000000,-;NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.",
        "                    NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.",
    ],
)
def test_what_a_program_writes_is_not_the_kernel_s(line: str) -> None:
    assert list(read([line])) == []


def test_a_continuation_belongs_to_the_line_before_alone() -> None:
    first, _, last = (
        "NVRM: The NVIDIA GPU 0000:b3:00.0",
        "",
        "NVRM: fallen off the bus and is not responding to commands.",
    )
    assert [fact.kind for fact in read([first, last])] == ["GpuLost"]
    assert list(read([first, "EXT4-fs (sda1): I/O error while reading", "XFS (sda1): Ending clean mount", last])) == []

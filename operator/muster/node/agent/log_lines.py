"""Parses lines of the kernel log: pure functions over text. `kernel_lines` is the table of what counts.

A line counts only if the kernel wrote it. Records of /dev/kmsg name their writer: those of user space never have
facility 0. In plain text a pattern must match at the very beginning of the message. A process that prints "NVRM: Xid"
to some log is no evidence.

Some lines of the kernel's own begin with the name of a process, which is that process's to choose (prctl(PR_SET_NAME),
15 bytes). A process that calls itself `EDAC MC0: 1 UE ` and crashes would make the kernel print that. A line that
begins with a process's name is no evidence, and patterns are longer than such a name.
"""

import re
from dataclasses import dataclass

from muster.node.agent import kinds
from muster.node.agent.facts import pci_address
from muster.node.agent.kernel_lines import CONTAINED, DISK_PATHS, KERNEL_LINES, KernelLine

_MAX_LINE = 1024
_KMSG = re.compile(r"(\d{1,6}),\d+,(\d{1,18}),[^;]{0,256};")
# Of Linux, with and without a stamp and the caller's id (CONFIG_PRINTK_TIME, CONFIG_PRINTK_CALLER), from the console,
# dmesg (also with --ctime, --reltime, --time-format=iso and --decode), the journal and syslog, whose program must be
# the kernel.
_STAMP = (
    r"(?:\[ *\+?\d+\.\d+\]|\[[A-Z][a-z]{2} ?[ \d]\d \d\d:\d\d\]"
    r"|\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}\]|[A-Z][a-z]{2} [ \d]\d "
    r"\d\d:\d\d:\d\d(?:\.\d+)?"
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)"
)
_PLAIN = re.compile(
    rf"(?:<\d{{1,3}}>)?(?:1 )?(?:kern *:\w{{1,8}} *: ?)?(?:(?:{_STAMP} )?(?:[\w.-]{{1,255}} )?kernel(?:: ?| - - - ))?"
    rf"(?:{_STAMP} ?)?(?:\[ *[TC]\d+\] ?)?"
)
_LINUX_PRIORITY_BITS = 3
# arch/x86/mm/fault.c and its like, mm/oom_kill.c, mm/page_alloc.c, fs/drop_caches.c, kernel/signal.c, kernel/exit.c.
# /dev/kmsg writes a byte that cannot be printed as \xNN.
_NAMED = re.compile(
    r"(?:\\x[0-9a-f]{2}|[^\\]){1,15}"
    r"(?:\[\d{1,10}\]: | invoked oom-killer: |: page allocation failure|: Corrupted page table| \(\d{1,10}\)[: "
    r"]|/\d{1,10}: potentially )"
)

_ROWS = (*KERNEL_LINES, *DISK_PATHS)
_WORDS = tuple(dict.fromkeys(word for row in _ROWS for word in row.words))
"""The words of the cheap filter."""
_LONG = tuple(row for row in KERNEL_LINES if row.begins is not None)

# Newer drivers have other names for the values: PF FLR for a reset, OS Reboot.
_TAKEN_BACK = re.compile(r"changed from 0x([0-9a-f]{1,8}) \([^)]{1,64}\) to 0x0 \(None\)", re.IGNORECASE)
# The content of the line of an NVLink XID.
_NVLINK_SEVERITY = re.compile(
    r"[\w/]{1,64} +(Fatal|Nonfatal) +XC.{1,32}? Link +-?\d+ +[(\[]0x([0-9a-f]{1,8})", re.IGNORECASE
)
_NVLINK_REGISTERS = re.compile(r"link \d{1,3} ?(\(0x[0-9a-f]{1,8}(?:, ?0x[0-9a-f]{1,8}){6}\))", re.IGNORECASE)

TAKEN_AWAY = ("Fatal", CONTAINED)
"""Values of errors of a bridge after which the devices below it cannot be used."""

# Devices that are no disks of the node, or may fail without harm: loop, floppy, optical, RAM.
_NO_DISK = re.compile(r"(?:loop|fd|sr|ram|zram)\d")
# Block devices that are a network's end on this node, whatever stands behind them: Ceph, NBD, DRBD.
_NETWORK_DISK = re.compile(r"(?:rbd|nbd|drbd)\d")
_OF_DISKS = frozenset({kinds.DISK_ERROR, kinds.READ_ONLY_FILESYSTEM})


@dataclass(frozen=True)
class LogFact:
    """The content of one line."""

    kind: str
    code: int = 0
    device: str = ""
    """PCI address of a GPU or network card, name of a switch, disk or server."""
    value: str = ""
    message: str = ""


def may_be_known(line: str) -> bool:
    """Whether `parse` may know this line; a cheap test."""
    for word in _WORDS:  # without a generator it takes half as long  # noqa: SIM110
        if word in line:
            return True
    return False


def split(line: str) -> tuple[str, float | None] | None:
    r"""The message of a line, its own lines separated by \n, and when it was written in seconds since boot if it says
    so; None: not the kernel's."""
    record = _KMSG.match(line)
    if record is not None:
        if int(record[1]) >> _LINUX_PRIORITY_BITS != 0:
            return None
        return _in_lines(line[record.end() : record.end() + _MAX_LINE]), int(record[2]) / 1e6
    plain = _PLAIN.match(line)
    return _in_lines(line[plain.end() if plain else 0 :][:_MAX_LINE]), None


def _in_lines(message: str) -> str:
    """Return the message with its own line ends: /dev/kmsg writes the end of a line within it as \\x0a, rsyslog as
    #012."""
    return message.replace("\\x0a", "\n").replace("#012", "\n")


class Joiner:
    """Joins messages whose lines come as records of their own."""

    def __init__(self) -> None:
        self._begun = ""

    def joined(self, message: str) -> str:
        """Return the message, joined to the earlier lines that belong to it."""
        line = message.lstrip(" ")
        whole = (
            f"{self._begun}\n{line}"[:_MAX_LINE]
            if self._begun and any(_goes_on(row, line) for row in _LONG)
            else message
        )
        self._begun = whole if any(row.begins is not None and row.begins.match(whole) for row in _LONG) else ""
        return whole


def _goes_on(row: KernelLine, line: str) -> bool:
    return row.goes_on is not None and row.goes_on.match(line) is not None


def parse(message: str) -> LogFact | None:
    """Return the content of a kernel message; None: nothing that matters."""
    if _NAMED.match(message):
        return None
    for row in _ROWS:
        if any(word in message for word in row.words):
            match = row.pattern.match(message)
            if match is not None:
                return _fact(row, match, message)
    return None


def _fact(row: KernelLine, match: re.Match[str], message: str) -> LogFact | None:
    groups = {name: text for name, text in match.groupdict().items() if text}
    device = next((text for name, text in groups.items() if name.startswith("device")), "")
    kind, value, code = row.kind, groups.get("value", row.value), int(groups.get("code", "0"))
    if "gpu" in groups:
        device = pci_address(groups["gpu"]) or ""
        if not device:
            return None
    if kind in _OF_DISKS:
        if _NO_DISK.match(device):
            return None
        kind = kinds.NETWORK_DISK_ERROR if _NETWORK_DISK.match(device) else kind
    if kind == kinds.XID:
        value = _of_nvlink(code, message[match.end() :])
    return LogFact(kind, code, device, value, message)


def recovery_taken_back(fact: LogFact) -> bool | None:
    """Whether the driver requested a reset or a boot that it now withdraws; None: the line is about something else."""
    if fact.kind != kinds.XID or fact.code != kinds.RECOVERY_XID:
        return None
    match = _TAKEN_BACK.search(fact.message)
    if match is None:
        return None
    return int(match[1], 16) in kinds.RESET_ACTIONS


def _of_nvlink(code: int, text: str) -> str:
    """Return the part of the line that separates errors with the same number and different severity."""
    if code == kinds.NVLINK_XID:
        registers = _NVLINK_REGISTERS.search(text)
        return registers[1] if registers is not None else ""
    severity_match = _NVLINK_SEVERITY.search(text) if code in kinds.NVLINK5_XIDS else None
    if severity_match is None:
        return ""
    of_a_link = code == kinds.NVLINK5_LINK_XID and "MFDE" not in severity_match[0]
    reason = f", reason {int(severity_match[2], 16) >> 20 & 0x3F}" if of_a_link else ""
    return f"{severity_match[1].capitalize()}{reason}"

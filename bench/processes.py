"""What processes cost: CPU seconds and peak memory, from /proc."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
# Fields of /proc/PID/stat behind the name, which may hold blanks: user and system time, threads and all.
_USER, _SYSTEM = 11, 12
_RESET_PEAK = "5"


def cpu_seconds(pids: Mapping[str, int]) -> dict[str, float]:
    """CPU seconds since the start of each process that still lives, by its name here."""
    found = {}
    for name, pid in pids.items():
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            continue  # it was ended on purpose: a dead machine's
        fields = stat[stat.rindex(")") + 2 :].split()
        found[name] = (int(fields[_USER]) + int(fields[_SYSTEM])) / _TICKS
    return found


def spent(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """What each process spent between two readings; those that are in both."""
    return {name: after[name] - seconds for name, seconds in before.items() if name in after}


def reset_peaks(pids: Iterable[int]) -> None:
    """Peak memory counts from now on."""
    for pid in pids:
        Path(f"/proc/{pid}/clear_refs").write_text(_RESET_PEAK)


def peak_mebibytes(pids: Iterable[int]) -> float:
    """Peak resident memory of these processes together since the last reset, in MiB."""
    total = 0
    for pid in pids:
        found = re.search(r"^VmHWM:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
        total += int(found[1]) if found else 0
    return total / 1024


def machine_seconds() -> float:
    """CPU seconds that all processors together have been busy since the boot."""
    user, nice, system, _idle, _wait, irq, softirq, *_ = map(
        int, Path("/proc/stat").read_text().split("\n")[0].split()[1:]
    )
    return (user + nice + system + irq + softirq) / _TICKS

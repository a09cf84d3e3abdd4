"""Reads the machine itself: its boot, its identity, its filesystems and the fabric manager. Files only, nothing that
can hang.

Tests: tests/unit/agent/test_infiniband.py.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from muster.node.agent import kinds
from muster.node.agent.facts import Signal, clean, pci_address
from muster.node.agent.thresholds import Thresholds

_MAX_FILE_BYTES = 1024 * 1024
_MAX_MOUNTS = 1024
_FABRIC_MANAGER = b"nv-fabricmanage"  # the kernel keeps 15 characters
_GPUS = "driver/nvidia/gpus"
_CLOCK_SOURCE = "devices/system/clocksource/clocksource0/current_clocksource"
_FALLBACKS = ("hpet", "acpi_pm", "jiffies", "refined-jiffies")
_SWITCHES = "driver/nvidia-nvswitch/devices"


def read_text(path: Path | None, length: int = 64) -> str:
    """Return the text of a small file; "" if it cannot be read."""
    if path is None:
        return ""
    try:
        with path.open("rb") as stream:
            return clean(stream.read(256).decode("ascii", "replace"), length)
    except OSError:
        return ""


def gpus_of_the_driver(proc: Path) -> frozenset[str]:
    """Return the PCI addresses of the GPUs that the kernel module has taken, also of those that NVML cannot name."""
    try:
        names = os.listdir(proc / _GPUS)  # noqa: PTH208
    except OSError:
        return frozenset()
    return frozenset(address for address in map(pci_address, names) if address is not None)


def gpu_of_minor(proc: Path, minor: str) -> str | None:
    """Return the PCI address of the GPU whose device file has this number; None: the driver does not say."""
    for address in sorted(gpus_of_the_driver(proc)):
        information = _small(proc / _GPUS / f"{address}.0" / "information")
        if any(line.split() == ["Device", "Minor:", minor] for line in information.splitlines()):
            return address
    return None


def _small(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return stream.read(4096).decode("utf-8", "replace")
    except OSError:
        return ""


class ClockSource:
    """The kernel's clock source: with a fallback each read of the time is a slow system call."""

    def __init__(self, sysfs: Path) -> None:
        self._path = sysfs / _CLOCK_SOURCE
        self.why = ""
        """The kernel log's reason for the fallback."""

    def signals(self) -> list[Signal]:
        """Return whether the clock source has fallen back; no signal where that cannot be read."""
        now = read_text(self._path)
        if not now:
            return []
        text = f"the kernel tells the time by {now}: {self.why or 'the processor cannot be trusted for it'}"
        bad = now in _FALLBACKS
        return [Signal(kinds.CLOCK_SOURCE, "", bad, 0, now if bad else "", "tsc", text)]


class Mounts:
    """Filesystems on disks that were writable and are not any more."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writable: set[str] = set()

    def restart(self) -> None:
        """Forget all filesystems: the node has booted."""
        self._writable.clear()

    def signals(self) -> list[Signal]:
        """Return a signal for every filesystem that was writable once."""
        now = dict(self._mounts())
        self._writable.update(place for place, read_only in now.items() if not read_only)
        self._writable &= set(now)  # an unmounted filesystem is no fault
        return [
            Signal(
                kinds.READ_ONLY_FILESYSTEM,
                place,
                read_only,
                message=f"the filesystem at {place} could be written to and is read-only now",
            )
            for place, read_only in now.items()
            if place in self._writable
        ]

    def _mounts(self) -> Iterator[tuple[str, bool]]:
        try:
            with self._path.open(encoding="utf-8", errors="replace") as stream:
                lines = stream.read(_MAX_FILE_BYTES).splitlines()
        except OSError:
            return
        for line in lines[:_MAX_MOUNTS]:
            parts = line.split(" ")
            # Pods may mount a filesystem read-only: only the machine's own mounts count.
            if len(parts) >= 4 and parts[0].startswith("/dev/") and "/kubelet/" not in parts[1]:
                yield clean(parts[1], 100), "ro" in parts[3].split(",")


class FabricManager:
    """The daemon without which the GPUs behind an NVSwitch cannot be used."""

    def __init__(self, proc: Path, thresholds: Thresholds) -> None:
        self._proc = proc
        self._thresholds = thresholds
        self._pid = ""

    def signals(self) -> list[Signal]:
        """Return whether the daemon runs; no signal where there is no NVSwitch."""
        try:
            switches = os.listdir(self._proc / _SWITCHES)  # noqa: PTH208
        except OSError:
            return []
        if not switches:
            return []
        runs = self._is(self._pid) or self._search()
        return [
            Signal(
                kinds.FABRIC_MANAGER,
                "",
                not runs,
                message=f"there are {len(switches)} NVSwitches and no nv-fabricmanager runs",
                sustain_seconds=self._thresholds["fabricmanager.sustain"],
            )
        ]

    def _search(self) -> bool:
        try:
            names = os.listdir(self._proc)  # noqa: PTH208
        except OSError:
            return False
        self._pid = next((name for name in names if name.isdecimal() and self._is(name)), "")
        return bool(self._pid)

    def _is(self, pid: str) -> bool:
        if not pid:
            return False
        try:
            with (self._proc / pid / "comm").open("rb") as stream:
                return stream.read(32).strip() == _FABRIC_MANAGER
        except OSError:
            return False

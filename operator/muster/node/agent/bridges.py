"""Knows which PCIe bridges are above GPUs and the network cards of jobs: a fatal error of a bridge takes away what is
below.

Read from sysfs, where the path of a device goes through all bridges above it. What was once seen is kept for the boot,
because a device whose port was contained is gone from there when its line is read.

Tests: tests/unit/agent/test_infiniband.py.
"""

import os
import re
from pathlib import Path

from muster.node.agent.kernel_lines import DRIVERS_OF_JOBS

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_MOST_DEVICES = 4096


class Bridges:
    """The PCIe bridges of one machine."""

    def __init__(self, sysfs: Path) -> None:
        self._root = sysfs / "bus/pci/devices"
        self._above: set[str] = set()

    def inspect(self) -> None:
        """Read which devices are there now."""
        try:
            names = os.listdir(self._root)[:_MOST_DEVICES]  # noqa: PTH208
        except OSError:
            return
        for name in names:
            try:  # links are read and not followed: there are hundreds
                if _link(f"{self._root}/{name}/driver")[-1] in DRIVERS_OF_JOBS:
                    self._above.update(part for part in _link(f"{self._root}/{name}")[:-1] if _ADDRESS.fullmatch(part))
            except OSError:  # the device has no driver, or has just vanished
                continue

    def is_above(self, address: str) -> bool:
        """Whether a device that jobs use is below the bridge."""
        return address.lower() in self._above


def _link(path: str) -> list[str]:
    return os.readlink(path).split("/")  # noqa: PTH115

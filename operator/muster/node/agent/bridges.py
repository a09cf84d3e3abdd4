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
_MOST_NAMED = 2


class Bridges:
    """The PCIe bridges of one machine."""

    def __init__(self, sysfs: Path) -> None:
        self._root = sysfs / "bus/pci/devices"
        self._below: dict[str, list[str]] = {}

    def inspect(self) -> None:
        """Read which devices are there now."""
        try:
            names = os.listdir(self._root)[:_MOST_DEVICES]  # noqa: PTH208
        except OSError:
            return
        for name in sorted(names):
            try:  # links are read and not followed: there are hundreds
                driver = _link(f"{self._root}/{name}/driver")[-1]
                path = _link(f"{self._root}/{name}")[:-1] if driver in DRIVERS_OF_JOBS else []
            except OSError:  # the device has no driver, or has just vanished
                continue
            for bridge in filter(_ADDRESS.fullmatch, path):
                below = self._below.setdefault(bridge, [])
                if f"{driver} {name}" not in below:
                    below.append(f"{driver} {name}")

    def below(self, address: str) -> str:
        """The devices that jobs use below the bridge, each with its driver, the first ones of many; "": none is."""
        below = self._below.get(address.lower(), [])
        more = f" and {len(below) - _MOST_NAMED} more" if len(below) > _MOST_NAMED else ""
        return ", ".join(below[:_MOST_NAMED]) + more


def _link(path: str) -> list[str]:
    return os.readlink(path).split("/")  # noqa: PTH115

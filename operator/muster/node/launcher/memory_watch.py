"""Whether the kernel has killed a process of this container because the container reached its memory limit.

Two counters of the container's cgroup have to rise: how often its own limit was reached with nothing left to reclaim,
and how many processes were killed. A kill without the first is for the memory of the node, or of the pod as a whole.
Version 1 of cgroups has no such counter: its memory.failcnt rises whenever caches fill the limit. These files are the
kernel's own: to read them waits for no storage.

Source: Linux, Documentation/admin-guide/cgroup-v2.rst (memory.events).

Tests: tests/unit/launcher/test_memory_watch.py.
"""

from __future__ import annotations

import os
from typing import Dict, Iterator, Optional, Tuple

from muster.protocol.messages import MAX_NUMBER

ROOT = "/sys/fs/cgroup"
MEMBERSHIPS = "/proc/self/cgroup"
_MAX_FILE_BYTES = 16384


class MemoryWatch:
    """What was killed in the container since this was made; never waits."""

    def __init__(self, root: str = ROOT, memberships: str = MEMBERSHIPS) -> None:
        places = _directories(root, memberships)
        self._directory = next((directory for directory in places if _counters(directory) is not None), "")
        self._before = _counters(self._directory)

    def limit_if_killed(self) -> Optional[int]:
        """Return the limit in bytes at which a process was killed; None: none was, or it cannot be seen."""
        now = _counters(self._directory)
        if self._before is None or now is None or now[0] <= self._before[0] or now[1] <= self._before[1]:
            return None
        text = _read(os.path.join(self._directory, "memory.max")).strip()
        return int(text) if text.isdigit() and int(text) <= MAX_NUMBER else None


def _directories(root: str, memberships: str) -> Iterator[str]:
    """Where the container's own cgroup may be: by its path, which a container with a namespace of its own does not see,
    or as the whole of what is mounted."""
    for line in _read(memberships).splitlines():
        _, kinds, path = [*line.split(":", 2), "", ""][:3]
        if not kinds:
            yield os.path.join(root, path.lstrip("/"))
            yield root


def _counters(directory: str) -> Optional[Tuple[int, int]]:
    """How often the limit was reached, and how many processes were killed; None where that cannot be read."""
    events = _table(os.path.join(directory, "memory.events"))
    return (events["oom"], events["oom_kill"]) if "oom" in events and "oom_kill" in events else None


def _table(path: str) -> Dict[str, int]:
    pairs = (line.partition(" ") for line in _read(path).splitlines())
    return {name: int(value) for name, _, value in pairs if value.isdigit()}


def _read(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(_MAX_FILE_BYTES).decode("ascii", "replace")
    except OSError:
        return ""

"""Records whether the agent sees the node: when each part of it last answered a poll.

An agent that runs and sees nothing is worse than none, because it hides that the node is not monitored. So its Pod is
Ready only while all parts were seen lately. A poll that was answered by errors alone does not count.

Tests: tests/unit/agent/test_ready.py.
"""

from collections.abc import Mapping

NVML, PORTS, LOG = "NVML", "the network ports", "the kernel log"


class Inspections:
    """When each part was last seen. The loop writes it; the server of probes reads it, too.

    Args:
        lasts_seconds: by part: for how long a poll counts.
    """

    def __init__(self, lasts_seconds: Mapping[str, float]) -> None:
        self._lasts_seconds = dict(lasts_seconds)
        self._seen: dict[str, float] = {}

    def seen(self, part: str, mono: float) -> None:
        """Note that a part was seen at a moment of the monotonic clock."""
        self._seen[part] = max(mono, self._seen.get(part, mono))

    def forget(self) -> None:
        """Forget all polls: they are of another boot, or were made before it was known what to expect."""
        self._seen = {}

    def has(self, *parts: str) -> bool:
        """Whether each of these parts has been seen at least once."""
        return self._seen.keys() >= set(parts)

    def missing(self, mono: float) -> list[str]:
        """Return the parts that were not seen lately, or never."""
        seen = self._seen
        return [part for part, lasts in self._lasts_seconds.items() if part not in seen or mono - seen[part] > lasts]

"""Whether the agent sees: when each part of the node was last looked at and answered.

An agent that runs and sees nothing is worse than none, because nobody misses it: its Pod is Ready only while all parts
were seen lately. A look that was answered by errors alone is none.
"""

from collections.abc import Mapping

NVML, PORTS, LOG = "NVML", "the ports of the network", "the kernel log"


class Looks:
    """Written by the loop, read by the server of probes, too.

    Args:
        lasts_seconds: for so long a look of each part counts.
    """

    def __init__(self, lasts_seconds: Mapping[str, float]) -> None:
        self._lasts_seconds = dict(lasts_seconds)
        self._seen: dict[str, float] = {}

    def seen(self, part: str, mono: float) -> None:
        """A part was seen at a moment of the monotonic clock."""
        self._seen[part] = max(mono, self._seen.get(part, mono))

    def forget(self) -> None:
        """What was seen does not count any more: it is of another boot, or it was not known what to compare it with."""
        self._seen = {}

    def has(self, *parts: str) -> bool:
        """Whether each of these parts has been seen once."""
        return self._seen.keys() >= set(parts)

    def missing(self, mono: float) -> list[str]:
        """What was not seen lately, or never."""
        seen = self._seen
        return [part for part, lasts in self._lasts_seconds.items() if part not in seen or mono - seen[part] > lasts]

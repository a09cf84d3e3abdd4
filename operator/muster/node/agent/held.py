"""Remembers GPUs for which a call of NVML does not return: they are left out, so that the others are polled.

A batch queries all GPUs one after the other, so that one of them can hide all. One hang may come from a slow machine. A
GPU at which a second batch hangs, before it has answered one of that kind, is left out for a while, longer each time.
"""

from collections.abc import Iterable
from dataclasses import dataclass

_TWICE = 2
_LONGEST_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class _Hang:
    batch: str
    times: int
    until: float


class Held:
    """The GPUs that are left out, by NVML's numbers.

    Args:
        pause_seconds: how long a GPU is left out the first time.
    """

    def __init__(self, pause_seconds: float) -> None:
        self._pause = pause_seconds
        self._hangs: dict[int, _Hang] = {}

    def hung(self, gpu: int, batch: str, mono: float) -> bool:
        """Note that a batch hung at this GPU; return whether the GPU is left out from now on."""
        previous_hang = self._hangs.get(gpu)
        times = previous_hang.times + 1 if previous_hang is not None else 1
        pause = min(_LONGEST_SECONDS, self._pause * 2.0 ** min(times - _TWICE, 10)) if times >= _TWICE else 0.0
        self._hangs[gpu] = _Hang(batch, times, mono + pause)
        return times >= _TWICE

    def answered(self, gpus: Iterable[int], batch: str) -> None:
        """Note that these GPUs have answered a batch: earlier hangs in batches of that kind do not count any more."""
        for gpu in gpus:
            hang = self._hangs.get(gpu)
            if hang is not None and hang.batch == batch:
                del self._hangs[gpu]

    def skipped_gpus(self, mono: float) -> frozenset[int]:
        """Return the GPUs that are not queried now."""
        return frozenset(gpu for gpu, hang in self._hangs.items() if mono < hang.until)

    def clear(self) -> None:
        """Forget everything: the node has booted."""
        self._hangs.clear()

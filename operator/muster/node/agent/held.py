"""GPUs about which a call of NVML does not come back: they are left out, so that the others are looked at.

A batch asks all GPUs one after the other, so that one of them can hide all. Once may be the machine's slowness; the one
at which a second batch hangs, before it has answered the like, is left out for a while, longer each time.
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
    """By the number that NVML gives a GPU.

    Args:
        pause_seconds: for so long one is left out at first.
    """

    def __init__(self, pause_seconds: float) -> None:
        self._pause = pause_seconds
        self._hangs: dict[int, _Hang] = {}

    def hung(self, gpu: int, batch: str, mono: float) -> bool:
        """A batch did not come back from this one; whether it is left out from now on."""
        before = self._hangs.get(gpu)
        times = before.times + 1 if before is not None else 1
        pause = min(_LONGEST_SECONDS, self._pause * 2.0 ** min(times - _TWICE, 10)) if times >= _TWICE else 0.0
        self._hangs[gpu] = _Hang(batch, times, mono + pause)
        return times >= _TWICE

    def answered(self, gpus: Iterable[int], batch: str) -> None:
        """These have answered a batch: one that hung in the like does not any more."""
        for gpu in gpus:
            hang = self._hangs.get(gpu)
            if hang is not None and hang.batch == batch:
                del self._hangs[gpu]

    def left_out(self, mono: float) -> frozenset[int]:
        """Those that are not asked now."""
        return frozenset(gpu for gpu, hang in self._hangs.items() if mono < hang.until)

    def clear(self) -> None:
        """The node has booted."""
        self._hangs.clear()

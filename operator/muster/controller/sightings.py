"""Since when this process has seen each pod as it is, by a clock that does not step.

The times in a pod are by the clocks of the API server and of its kubelet. Where these differ from ours by minutes, a
pod that was made just now would be long overdue, and one that hangs would never be.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from muster.world.job import PodAges
from muster.world.views import PodView


@dataclass(slots=True)
class _SeenTimes:
    """The times since when a pod was first seen in each of its states; None for states that it is not in."""

    there: float
    running: float | None = None
    deleting: float | None = None


class Sightings:
    """The times since when each pod has been as it is.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seen: dict[str, _SeenTimes] = {}

    def note(self, old: PodView | None, new: PodView | None) -> None:
        """Take in that a pod has come, changed or gone."""
        if old is not None and (new is None or new.uid != old.uid):
            self._seen.pop(old.uid, None)
        if new is None:
            return
        now = self._clock()
        seen = self._seen.setdefault(new.uid, _SeenTimes(now))
        if new.phase == "Pending":
            seen.running = None
        elif seen.running is None:
            seen.running = now
        if new.deleting and seen.deleting is None:
            seen.deleting = now

    def ages(self, uids: Iterable[str]) -> dict[str, PodAges]:
        """The ages of these pods' states, by uid; pods that are gone are left out."""
        now = self._clock()
        return {uid: _ages(seen, now) for uid in uids if (seen := self._seen.get(uid))}


def _ages(seen: _SeenTimes, now: float) -> PodAges:
    return PodAges(
        now - seen.there,
        0.0 if seen.running is None else now - seen.running,
        0.0 if seen.deleting is None else now - seen.deleting,
    )

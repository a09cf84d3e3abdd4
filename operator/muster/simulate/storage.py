"""The shared checkpoint directory of a job, as each node sees it: late, or not at all for a while."""

from dataclasses import dataclass, field

from muster.launcher.marker import Standing
from muster.simulate.clocks import WallClock


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint.

    Attributes:
        at: when its marker was written, by the clock that only goes on.
        written_ns: the same as a file has it.
        attempt: whose ranks saved it.
        torn: that it has its marker, and not all of it is there.
    """

    step: int
    path: str
    at: float
    written_ns: int
    attempt: int
    torn: bool = False


@dataclass
class Directory:
    """One directory.

    Attributes:
        saved: the checkpoints by path.
        lag_seconds: by node, how late it shows what others write; 0 where it is not named.
        stalls: nodes on which nothing that touches it ever ends.
        full: nothing can be written.
    """

    path: str
    clock: WallClock
    saved: dict[str, Saved] = field(default_factory=dict)
    removed: dict[str, tuple[Saved, float]] = field(default_factory=dict)
    marker: tuple[int, str] = (0, "")
    lag_seconds: dict[str, float] = field(default_factory=dict)
    stalls: set[str] = field(default_factory=set)
    full: bool = False
    _marker_before: tuple[tuple[int, str], float] = ((0, ""), float("-inf"))  # and until when it stood there

    def save(self, step: int, attempt: int, now: float) -> Saved:
        """A checkpoint is complete."""
        path = f"{self.path}/step-{step}"
        written = int(self.clock.at(now).timestamp() * 1e9)
        saved = self.saved[path] = Saved(step, path, now, written, attempt)
        return saved

    def remove(self, path: str, now: float) -> None:
        """It is gone."""
        saved = self.saved.pop(path, None)
        if saved is not None:
            self.removed[path] = saved, now

    def seen_from(self, node: str, now: float) -> list[Saved]:
        """What a node sees: not yet what is new, and still what is gone."""
        then = now - self.lag_seconds.get(node, 0.0)
        there = [saved for saved in self.saved.values() if saved.at <= then]
        if then < now:
            there += [
                saved
                for path, (saved, gone_at) in self.removed.items()
                if gone_at > then and saved.at <= then and path not in self.saved
            ]
        return there

    def marker_seen_from(self, node: str, now: float) -> Standing:
        """The marker as a node sees it."""
        before, until = self._marker_before
        attempt, lineage = before if now - self.lag_seconds.get(node, 0.0) < until else self.marker
        return Standing(attempt, lineage)

    def claim(self, attempt: int, lineage: str, now: float) -> Standing:
        """Write an attempt into the marker, unless a later one stands there; writers see it as it is."""
        if self.full:
            return Standing(self.marker[0], self.marker[1], "cannot write the marker: no space left on device")
        if attempt > self.marker[0]:
            self._marker_before = self.marker, now
            self.marker = attempt, self.marker[1] or lineage
        return Standing(*self.marker)

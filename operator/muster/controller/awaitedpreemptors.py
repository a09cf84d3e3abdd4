"""The jobs for which running ones were asked to leave, until they begin: one that does not begin has cost the others
their time for nothing, and pays.

A new leader awaits those for which others still leave, as its plan says. Which nodes were left for a job is on no
record. So one that has got them pays only as any gang that holds nodes in vain.
"""

from collections.abc import Callable
from dataclasses import dataclass

from muster.controller.bus import Key

# A job uses the nodes for which others were asked to leave within so long, or pays for it.
PREEMPTOR_SECONDS = 600.0


@dataclass(slots=True)
class _Preemptor:
    job_uid: str
    since: float | None = None  # it holds nodes


class AwaitedPreemptors:
    """The jobs that are awaited. `charge` is called with namespace and uid of one that does not begin."""

    def __init__(self, clock: Callable[[], float], charge: Callable[[str, str], None]) -> None:
        self._clock = clock
        self._charge = charge
        self._jobs: dict[Key, _Preemptor] = {}

    def __contains__(self, key: Key) -> bool:
        """Whether the job is awaited."""
        return key in self._jobs

    def expect(self, key: Key, job_uid: str) -> None:
        """Await a job, unless it is awaited already."""
        self._jobs.setdefault(key, _Preemptor(job_uid))

    def forget(self, key: Key) -> None:
        """Await a job no longer: it has paid otherwise."""
        self._jobs.pop(key, None)

    def check(self, key: Key, job_uid: str, *, holds_nodes: bool, has_begun: bool) -> None:
        """Charge an awaited job that does not begin in time, or wants no nodes any more.

        Args:
            key: of the job.
            job_uid: of the job; "": there is none that wants nodes.
            holds_nodes: whether it has got nodes.
            has_begun: whether it has begun to use them.
        """
        preemptor = self._jobs.get(key)
        if preemptor is None:
            return
        if not holds_nodes:
            preemptor.since = None
        elif preemptor.since is None:
            preemptor.since = self._clock()
        is_late = preemptor.since is not None and self._clock() - preemptor.since >= PREEMPTOR_SECONDS
        if has_begun or is_late or preemptor.job_uid != job_uid:
            del self._jobs[key]
            if not has_begun:
                self._charge(key[0], preemptor.job_uid)

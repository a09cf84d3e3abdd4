"""For how long this leader itself has seen what proves that unfenced workers are dead: by clocks that do not step.

What an earlier leader has seen is not handed over. A new leader counts from 0, which costs one fence at the most.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from muster.api.gang import Gang, UnfencedWorker
from muster.world.views import NodeView

# Kubelets renew their leases every ten seconds; two that are missing are a break.
BREAK_SECONDS = 25.0


class Beats:
    """Since when each node's heartbeats have been coming without a break of more than 25 s.

    Moments are readings of the clock of `LeaseAges`, in seconds; it stands still while the API server cannot be
    reached.
    """

    def __init__(self) -> None:
        # node -> the first and the last one without a break, and when the last one had not come yet
        self._runs: dict[str, tuple[float, float, float]] = {}

    def renewed(self, node: str, by: float, after: float) -> None:
        """Record a heartbeat of a node.

        Args:
            node: its name.
            by: the moment at which the heartbeat had come.
            after: the last moment at which the heartbeat had not come yet.
        """
        first, last, _ = self._runs.get(node, (by, by, by))
        self._runs[node] = (first if by - last <= BREAK_SECONDS else by, by, after)

    def forget(self, node: str) -> None:
        """Forget the node, because it has no heartbeat any more."""
        self._runs.pop(node, None)

    def lasting_seconds(self, node: str, since: float) -> float:
        """Return for how many seconds a node's heartbeats have come without a break, up to the last one.

        Args:
            node: its name.
            since: the moment from which to count, if the last break ended before it.
        """
        first, _, last = self._runs.get(node, (since, since, since))
        return max(0.0, last - max(first, since))


@dataclass(slots=True)
class UnfencedAges:
    """For how long this leader has seen the facts about one job's attempt and unfenced workers.

    `update` has to be called for every decision.

    Attributes:
        ages: as JobWorld.unfenced_ages.
        removed_seconds: as JobWorld.removed_seconds.
        attempt_age_seconds: since this leader first saw the record of this attempt; 0 without a record.
        listing_age_seconds: since this leader first saw the request for the present listing of checkpoints.
        start_age_seconds: since this leader first saw the start barrier open in this attempt; 0 while it is closed.
    """

    ages: Mapping[str, float] = field(default_factory=dict)  # as JobWorld.unfenced_ages
    removed_seconds: Mapping[str, float] = field(default_factory=dict)  # as JobWorld.removed_seconds
    attempt_age_seconds: float = 0.0
    listing_age_seconds: float = 0.0
    start_age_seconds: float = 0.0
    _first: dict[tuple[str, str], float] = field(default_factory=dict)  # uid and proof -> when first seen
    _gone: dict[str, float] = field(
        default_factory=dict
    )  # uid -> since when the API server does not have its pod, by the beats' clock
    _attempt: tuple[tuple[int, datetime] | None, float] = (None, 0.0)  # the record's attempt and time, and when seen
    _listing: tuple[int, float] = (0, 0.0)  # the record's listing, and when seen in that attempt
    _start: tuple[int, float] = (0, 0.0)  # the attempt whose go was seen, and when

    def update(
        self,
        gang: Gang | None,
        present_uids: Collection[str],
        nodes: Mapping[str, NodeView],
        beats: Beats,
        now: float,
        beating: float,
    ) -> None:
        """Update all ages for one decision.

        Args:
            gang: the job's record; None: there is none.
            present_uids: UIDs of pods that the API server has and that have not ended.
            nodes: by name.
            beats: the heartbeats of nodes.
            now: a monotonic reading, in seconds.
            beating: a reading of the clock of `beats`, in seconds.
        """
        record = gang.spec if gang else None
        unfenced_workers = record.unfenced_workers if record else []
        self._first = {(g.pod_uid, g.proof): self._first.get((g.pod_uid, g.proof), now) for g in unfenced_workers}
        self._gone = {
            g.pod_uid: self._gone.get(g.pod_uid, beating)
            for g in unfenced_workers
            if _is_removed(g, present_uids, nodes)
        }
        self.ages = {uid: now - first for (uid, _), first in self._first.items()}
        self.removed_seconds = {g.pod_uid: self._lasting(g, beats) for g in unfenced_workers if g.pod_uid in self._gone}
        which = (record.attempt, record.time) if record else None
        listing = record.listing_round if record else 0
        if which != self._attempt[0] or listing != self._listing[0]:
            self._listing = listing, now
        if which != self._attempt[0]:
            self._attempt = which, now
        self.attempt_age_seconds = now - self._attempt[1] if record else 0.0
        self.listing_age_seconds = now - self._listing[1] if record else 0.0
        if record is None or record.start is None:  # one that is made anew by hand may count its attempts from lower
            self._start = (0, 0.0)
        elif self._start[0] != record.attempt:
            self._start = (record.attempt, now)
        self.start_age_seconds = now - self._start[1] if self._start[0] else 0.0

    def _lasting(self, unfenced_worker: UnfencedWorker, beats: Beats) -> float:
        return beats.lasting_seconds(unfenced_worker.node, self._gone[unfenced_worker.pod_uid])


def _is_removed(unfenced_worker: UnfencedWorker, present_uids: Collection[str], nodes: Mapping[str, NodeView]) -> bool:
    node = nodes.get(unfenced_worker.node)
    return node is not None and node.ready and unfenced_worker.pod_uid not in present_uids

"""Keeps the last decisions of each job with the world that they were made of (`muster.controller.keptdecisions`)."""

from collections import Counter
from dataclasses import replace

from muster.controller.bus import Key
from muster.controller.keptdecisions import KeptDecisions
from muster.decision.decided import Decided
from muster.world.job import JobWorld

# In all: 15 MB at most. The launcher of each worker is seen anew in every world; a node is one entry in dictionaries of
# the snapshot.
MOST_WORKER_VIEWS = 5_000
NODES_PER_WORKER_VIEW = 16


class KeptJobs(KeptDecisions[Key, Decided]):
    """The last decisions, by job. Their size is the number of worker views in them."""

    def __init__(self, most_worker_views: float = MOST_WORKER_VIEWS) -> None:
        super().__init__(most_worker_views)
        self._sharing: Counter[int] = Counter()  # identity of a snapshot's nodes -> worlds that have it in common

    def keep(self, key: Key, decided: Decided) -> None:
        """Add the newest decision about a job."""
        # What the decision has worked out and remembers in its world can be worked out again.
        self._add(key, replace(decided, world=replace(decided.world)))

    def _size_change(self, decision: Decided, sign: int) -> float:
        nodes = decision.world.fleet.nodes
        old_count = self._sharing[id(nodes)]
        self._sharing[id(nodes)] = new_count = old_count + sign
        if not new_count:
            del self._sharing[id(nodes)]
        shared = 0.0 if old_count and new_count else len(nodes) / NODES_PER_WORKER_VIEW
        return sign * (_worker_views_of(decision.world) + shared)

    def _merged(self, old: Decided, new: Decided) -> Decided | None:
        return new if _said(old) == _said(new) and not (_does(old) or _does(new)) else None


def _worker_views_of(world: JobWorld) -> int:
    return 1 + max(len(world.pods), len(world.launchers), len(world.gang.spec.members) if world.gang else 0)


def _does(decided: Decided) -> bool:
    return decided.plan is not None and (decided.plan.acts or bool(decided.plan.announcements))


def _said(decided: Decided) -> tuple[str, ...]:
    status_report = decided.plan.status_report if decided.plan else None
    return (decided.error, status_report.state, status_report.reason) if status_report else (decided.error,)

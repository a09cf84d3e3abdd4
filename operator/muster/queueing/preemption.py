"""Jobs that hold nodes and have to give way to a waiting one: preemptible jobs, and jobs that backfill. Pure.

A preemptible job starts on what is free, reserved or not. It leaves, after a save, as soon as a job that is not
preemptible would start with its nodes. It gives way to no other preemptible job, and stands behind all jobs that are
not when it waits again. A job that backfills gives way to the jobs before it in the queue alone. So no two jobs give
way to each other in turn.

Tests: tests/unit/queueing/test_preemption.py.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from muster.queueing.charges import Charged
from muster.queueing.waiting import WaitingJob
from muster.world.queuedecision import NotPlaced, Preemptors

Place = tuple[int, datetime, str]
"""A place in the queue among jobs that are neither preemptible nor replacements; who comes first has the least."""
WAITING_FOR_PREEMPTION = "WaitingForPreemption"
"""The reason of a waiting job that starts once other jobs have given way to it."""
MAX_SPARED = 8
"""Of so many jobs that would give way it is tried whether the others are enough."""


@dataclass(frozen=True, slots=True)
class WaitingForPreemption(NotPlaced):
    """The answer that a job starts once other jobs have given way to it.

    Attributes:
        nodes: those that it then has.
        giving: the uids of the jobs that leave all of their nodes.
    """

    nodes: tuple[str, ...] = ()
    giving: frozenset[str] = frozenset()


def place_of(job: WaitingJob) -> Place:
    """The place in the queue of a waiting job."""
    return -job.priority, job.created, job.name


@dataclass(frozen=True, slots=True)
class PreemptionCandidate:
    """A job that holds nodes and may have to give way.

    Attributes:
        name: `<namespace>/<name>`.
        since: when its attempt began.
        leaves: whether it is giving way already.
        place: in the queue, of a job that backfills: it gives way to jobs before it; None: to all that are not
            preemptible.
        old_nodes: those that it has left already, and that its pods hold until they have ended.
    """

    name: str
    since: datetime
    leaves: bool = False
    place: Place | None = None
    old_nodes: frozenset[str] = frozenset()


@dataclass(slots=True)
class Preemption:
    """The jobs of a plan that may have to give way.

    Attributes:
        jobs: those that hold nodes, by uid.
        to: filled in by the plan: the jobs that each of them gives way to, by uid.
        charged: set by the plan: which jobs stand behind the others.
    """

    jobs: Mapping[str, PreemptionCandidate] = field(default_factory=dict)
    to: dict[str, Preemptors] = field(default_factory=dict)
    charged: Charged = field(default_factory=Charged)

    def uids_for(self, job: WaitingJob) -> frozenset[str]:
        """The uids of those that may give way to a waiting job."""
        return frozenset(uid for uid, holder in self.jobs.items() if self._may_give_way(uid, holder, job))

    def in_order(self, job: WaitingJob) -> list[str]:
        """The same in the order in which they give way: who leaves already comes first, then who has run least."""

        def spared(uid: str) -> tuple[bool, datetime, str]:
            holder = self.jobs[uid]
            return holder.leaves or uid in self.to, holder.since, uid

        return sorted(self.uids_for(job), key=spared, reverse=True)

    def _may_give_way(self, uid: str, holder: PreemptionCandidate, job: WaitingJob) -> bool:
        """Whether a waiting job may have a holder's nodes.

        A gang that backfills has its own place while it waits for a replacement, too. Otherwise two of them could give
        way to each other in turn.
        """
        if job.preemptible or holder.place is None:
            return not job.preemptible
        if job.replacement and job.job_uid not in self.jobs:
            return True
        namespace = holder.name.partition("/")[0]
        behind = self._is_charged(job.namespace, job.job_uid), self._is_charged(namespace, uid)
        return (behind[0], place_of(job)) < (behind[1], holder.place)

    def _is_charged(self, namespace: str, uid: str) -> bool:
        return self.charged.payer(namespace, uid) is not None

    def preempt(self, uids: Collection[str], to: str) -> None:
        """Have these jobs give way to a waiting one."""
        for uid in uids:
            self.to[uid] = (*self.to.get(uid, ()), to)

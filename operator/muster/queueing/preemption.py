"""Preemptible jobs that hold nodes, and which of them have to give way to a waiting job. Pure.

A preemptible job starts on what is free, reserved or not. It leaves, after a save, as soon as a job that is not
preemptible would start with its nodes. A preemptible job gives way to no other one, and stands behind all jobs that are
not preemptible when it waits again, so no two jobs give way to each other in turn.

Tests: tests/unit/queueing/test_preemption.py.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime

WAITING_FOR_PREEMPTION = "WaitingForPreemption"
"""The reason of a waiting job that starts once preemptible jobs have given way to it."""
MAX_SPARED = 8
"""Of so many jobs that would give way it is tried whether the others are enough."""


@dataclass(frozen=True, slots=True)
class PreemptibleJob:
    """A preemptible job that holds nodes.

    Attributes:
        name: `<namespace>/<name>`.
        since: when its attempt began.
        leaves: whether it is giving way already.
    """

    name: str
    since: datetime
    leaves: bool = False


@dataclass(slots=True)
class Preemption:
    """The preemptible jobs of a plan.

    Attributes:
        jobs: those that hold nodes, by uid.
        to: filled in by the plan: the names of the jobs that each of them gives way to, by uid.
    """

    jobs: Mapping[str, PreemptibleJob] = field(default_factory=dict)
    to: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def uids(self) -> frozenset[str]:
        """The uids of the preemptible jobs."""
        return frozenset(self.jobs)

    def in_order(self) -> list[str]:
        """The uids in the order in which jobs give way: who leaves already comes first, then who has run least."""

        def spared(uid: str) -> tuple[bool, datetime, str]:
            job = self.jobs[uid]
            return job.leaves or uid in self.to, job.since, uid

        return sorted(self.jobs, key=spared, reverse=True)

    def preempt(self, uids: Collection[str], to: str) -> None:
        """Have these jobs give way to a waiting one."""
        for uid in uids:
            self.to[uid] = (*self.to.get(uid, ()), to)

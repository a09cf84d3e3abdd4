"""Jobs that hold nodes and have to give way to a waiting one: preemptible jobs, jobs that backfill, and, where the
FleetPolicy says so, jobs of lower priority. Pure.

A preemptible job starts on what is free, reserved or not. It leaves, after a save, as soon as a job that is not
preemptible would start with its nodes. It gives way to no other preemptible job, and stands behind all jobs that are
not when it waits again. A job that backfills gives way to the jobs before it in the queue alone, once the time is over
for which its nodes were lent (docs/decisions/0100). A job of lower priority stands behind the one that preempts it. So
each job waits behind the one that it gives way to, and no two give way to each other in turn (docs/decisions/0098).

Tests: tests/unit/queueing/test_preemption.py.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import NamedTuple

from muster.api.fleetpolicy import PriorityPreemption
from muster.queueing.charges import Charged
from muster.queueing.waiting import WaitingJob
from muster.world.queuedecision import NotPlaced, Preemptor, Preemptors

Place = tuple[int, datetime, str]
"""A place in the queue by priority, age and name alone; the job that comes first has the least."""
WAITING_FOR_PREEMPTION = "WaitingForPreemption"
"""The reason of a waiting job that starts once other jobs have given way to it."""
LENDS_FREELY_SECONDS = 7 * 86400.0
"""A job with an older place in the queue lends its nodes only until it starts by its estimate (docs/decisions/0101)."""
MAX_LENT_SECONDS = 48 * 3600.0
"""A job that backfills keeps its nodes for no longer than this where others need them."""
MAX_LOST_SECONDS = 3600.0
"""What a job says of its saves decides between two like ones, and no more than this counts."""

_LEAST_PRIORITY = -(2**31)


@dataclass(frozen=True, slots=True)
class WaitingForPreemption(NotPlaced):
    """The answer that a job starts once other jobs have given way to it.

    Attributes:
        nodes: those that it then has.
        giving: the uids of the jobs that leave all of their nodes.
    """

    nodes: tuple[str, ...] = ()
    giving: frozenset[str] = frozenset()


def is_lent(until: datetime | None, now: datetime) -> bool:
    """Whether a job keeps nodes that are lent to it until then, by the API server's clock.

    A time that is far from now, because a clock has stepped by more than nodes are lent for, spares no job.
    """
    return until is not None and now < until <= now + timedelta(seconds=2 * MAX_LENT_SECONDS)


def exempt_until(
    policy: PriorityPreemption, placed: datetime, preempted: Sequence[datetime], now: datetime
) -> datetime:
    """Return until when priority does not take a job's nodes: it has just got them, or was preempted too often.

    A time that is far from now, because a clock has stepped, spares no job.

    Args:
        policy: for how long it keeps them, and how often a day it is preempted.
        placed: since when it has them.
        preempted: when it was preempted within the last day.
        now: by the same clock.
    """
    least = timedelta(seconds=policy.min_run_seconds)
    times = [placed + least] if abs(now - placed) < least else []
    if len(preempted) >= policy.preemptions_per_day:
        times.append(preempted[-policy.preemptions_per_day] + timedelta(days=1))
    return max(times, default=now)


def place_of(job: WaitingJob) -> Place:
    """The place in the queue of a waiting job."""
    return -job.priority, job.created, job.name


@dataclass(frozen=True, slots=True)
class Borrower:
    """A job that holds nodes which are not its own: they are lent, or it has given them back and its pods still end.

    Attributes:
        name: `<namespace>/<name>`.
        since: when its attempt began.
        leaves: whether it is giving way already.
        place: in the queue, of a job that backfills: it gives way to jobs before it; None: to all that are not
            preemptible.
        lent_until: of a job that backfills: until when it keeps its nodes; None: it gives way at any time.
        old_nodes: those that it has left already, and that its pods hold until they have ended.
    """

    name: str
    since: datetime
    leaves: bool = False
    place: Place | None = None
    lent_until: datetime | None = None
    old_nodes: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Victim:
    """A job that holds nodes of its own, which one of higher priority may take.

    Attributes:
        name: `<namespace>/<name>`.
        priority: value of its PriorityClass.
        nodes: how many it holds.
        placed: since when.
        exempt_until: until when none may take them.
        saved: when its newest checkpoint was seen; None: it has none, which spares it nothing.
        leaves: whether it is giving way already.
        answered: whether it did as it was asked when it last gave way.
        old_nodes: those that it has left already, and that its pods hold until they have ended.
    """

    name: str
    priority: int
    nodes: int
    placed: datetime
    exempt_until: datetime
    saved: datetime | None = None
    leaves: bool = False
    answered: bool = True
    old_nodes: frozenset[str] = frozenset()

    @property
    def namespace(self) -> str:
        """The namespace of the job."""
        return self.name.partition("/")[0]

    def may_be_preempted_by(self, job: WaitingJob, now: datetime) -> bool:
        """Whether a waiting job may have its nodes."""
        return self.is_outranked_by(job) and (self.leaves or now >= self.exempt_until)

    def is_outranked_by(self, job: WaitingJob) -> bool:
        """Whether a waiting job may have its nodes, now or later."""
        return bool(job.preempts_by) and not job.preemptible and job.priority > self.priority

    def cost(self, now: datetime) -> tuple[bool, int, int]:
        """What decides between jobs of one priority and size; the one with less gives way first."""
        lost_seconds = 0.0 if self.saved is None else min((now - self.saved).total_seconds(), MAX_LOST_SECONDS)
        return self.answered, int((now - self.placed).total_seconds() // 3600), int(lost_seconds // 60)


PreemptionCandidate = Borrower | Victim
"""A job that holds nodes and may have to give way."""


class Loan(NamedTuple):
    """Nodes that one attempt of a job has been lent."""

    job_uid: str
    since: datetime


_Rank = tuple[bool, Place]


@dataclass(slots=True)
class _BorrowersByRank:
    """The borrowers in the order of the queue, so that those that give way to a job are the last ones.

    Attributes:
        uids: of those with a place in the queue, and behind them those without.
        ranks: of those with a place.
        keeping: the uids of those that keep their nodes for now, from jobs that preempt none.
        start: where the uids of `last` begin.
        last: those that were asked for last: the next job in the queue has mostly the same.
    """

    uids: Sequence[str]
    ranks: Sequence[_Rank]
    keeping: frozenset[str]
    start: int = 0
    last: frozenset[str] = frozenset()

    def behind(self, start: int) -> frozenset[str]:
        """The uids from this place on."""
        if start != self.start or not self.last:
            self.start, self.last = start, frozenset(self.uids[start:])
        return self.last


@dataclass(slots=True)
class Preemption:
    """The jobs of a plan that may have to give way.

    Attributes:
        borrowers: those that hold nodes which are not their own, by uid.
        victims: the others that hold nodes, where priority may preempt, by uid.
        now: by the API server's clock.
        charged: which jobs stand behind the others.
        preempted_by: filled in by the plan: the jobs that each of them gives way to, by uid.
    """

    borrowers: Mapping[str, Borrower] = field(default_factory=dict)
    victims: Mapping[str, Victim] = field(default_factory=dict)
    now: datetime = datetime.min.replace(tzinfo=UTC)
    charged: Charged = field(default_factory=Charged)
    preempted_by: dict[str, Preemptors] = field(default_factory=dict)
    _by_rank: _BorrowersByRank | None = field(default=None, init=False, repr=False, compare=False)
    _lowest: Victim | None = field(default=None, init=False, repr=False, compare=False)  # of the victims

    @property
    def loans(self) -> frozenset[Loan]:
        """The loans of the borrowers."""
        return frozenset(Loan(uid, borrower.since) for uid, borrower in self.borrowers.items())

    def owing_now(self, job: WaitingJob) -> frozenset[str]:
        """The uids of those that may give way to a waiting job now."""
        owing = self.owing(job)
        if job.replacement:
            return owing
        keeping = self._ranked().keeping
        if job.preempts_by:
            keeping = frozenset(uid for uid in owing & keeping if self.keeps(uid, job))
        return owing - keeping

    def owing(self, job: WaitingJob) -> frozenset[str]:
        """The uids of those that may give way to a waiting job, now or later: jobs without a place of their own, and
        those behind it in the queue.

        A gang that backfills has its own place while it waits for a replacement, too. Otherwise two of them could give
        way to each other in turn.
        """
        if job.preemptible:
            return frozenset()
        ranked = self._ranked()
        if job.replacement and job.job_uid not in self.borrowers:
            return ranked.behind(0)
        return ranked.behind(bisect_right(ranked.ranks, self._rank(job.namespace, job.job_uid, place_of(job))))

    def _ranked(self) -> _BorrowersByRank:
        if self._by_rank is None:
            ranks = {
                uid: self._rank(holder.name.partition("/")[0], uid, holder.place)
                for uid, holder in self.borrowers.items()
                if holder.place is not None
            }
            placed = sorted(ranks, key=ranks.__getitem__)
            keeping = frozenset(uid for uid in placed if self._is_lent(self.borrowers[uid]))
            others = [uid for uid in self.borrowers if uid not in ranks]
            self._by_rank = _BorrowersByRank([*placed, *others], [ranks[uid] for uid in placed], keeping)
        return self._by_rank

    def _rank(self, namespace: str, uid: str, place: Place) -> _Rank:
        return self.charged.stands_behind(namespace, uid), place

    def lent_until(self, holders: Collection[str], job: WaitingJob) -> datetime | None:
        """Until when one of these keeps what it has to give back to a waiting job later; None: none does."""
        owing = self.owing(job).intersection(holders)
        return max((self.kept_until(uid) for uid in owing if self.keeps(uid, job)), default=None)

    def newest_first(self, uids: Iterable[str]) -> list[str]:
        """Such jobs in the order in which they give way, if none leaves already: those first that have run least."""
        return sorted(uids, key=lambda uid: (self.borrowers[uid].since, uid), reverse=True)

    def keeps(self, uid: str, job: WaitingJob) -> bool:
        """Whether a job that backfills keeps its nodes for now.

        Not where a gang with a node less idles, and not from a job that may have the nodes of those it outranks.
        """
        holder = self.borrowers[uid]
        if job.replacement or holder.place is None:
            return False
        outranked = bool(job.preempts_by) and -job.priority < holder.place[0]
        return self._is_lent(holder) and not outranked

    def _is_lent(self, holder: Borrower) -> bool:
        return not holder.leaves and holder.lent_until is not None and self.now < holder.lent_until

    def victims_of(self, job: WaitingJob, spared: Collection[str] = ()) -> list[str]:
        """The uids of those that a waiting job may preempt, none of the spared namespaces, in the order in which they
        give way: lower priority, fewer nodes, and then less cost."""

        def rank(uid: str) -> tuple[int, int, tuple[bool, int, int], str]:
            victim = self.victims[uid]
            return victim.priority, victim.nodes, victim.cost(self.now), uid

        outranked = (uid for uid, victim in self.victims.items() if victim.may_be_preempted_by(job, self.now))
        return sorted((uid for uid in outranked if self.victims[uid].namespace not in spared), key=rank)

    def preempts_from(self, job: WaitingJob) -> datetime | None:
        """From when on a waiting job may preempt one more job than now; None: it may preempt all that it outranks."""
        return min((self.victims[uid].exempt_until for uid in self.exempt(job)), default=None)

    def outranks_any(self, job: WaitingJob) -> bool:
        """Whether a waiting job may preempt one of them, now or later."""
        if self._lowest is None:
            self._lowest = min(self.victims.values(), key=attrgetter("priority"), default=None)
        return self._lowest is not None and self._lowest.is_outranked_by(job)

    def outranked(self, job: WaitingJob) -> frozenset[str]:
        """The uids of those that a waiting job may preempt, now or later."""
        return frozenset(uid for uid, victim in self.victims.items() if victim.is_outranked_by(job))

    def exempt(self, job: WaitingJob) -> frozenset[str]:
        """The uids of those that a waiting job may preempt later, and not now."""
        victims = self.victims
        return frozenset(
            uid for uid in self.outranked(job) if victims[uid].exempt_until > self.now and not victims[uid].leaves
        )

    def kept_until(self, uid: str) -> datetime:
        """Until when a job keeps its nodes from those that may have them later."""
        if uid in self.victims:
            return self.victims[uid].exempt_until
        return self.borrowers[uid].lent_until or self.now

    def toll(self, uids: Collection[str]) -> tuple[int, int, int]:
        """What it costs that these jobs give way: of those with nodes of their own that do not leave already the
        highest priority, how many nodes they hold, and how many they are."""
        victims = [self.victims[uid] for uid in uids if uid in self.victims and not self.leaves(uid)]
        highest = max((victim.priority for victim in victims), default=_LEAST_PRIORITY)
        return highest, sum(victim.nodes for victim in victims), len(victims)

    def leaves(self, uid: str) -> bool:
        """Whether a job gives way already."""
        return uid in self.preempted_by or self.holder(uid).leaves

    def holds(self, uids: Collection[str]) -> bool:
        """Whether one of these has nodes that it may have to give back."""
        return not (self.borrowers.keys().isdisjoint(uids) and self.victims.keys().isdisjoint(uids))

    def holder(self, uid: str) -> PreemptionCandidate:
        """The job of this uid."""
        return self.borrowers[uid] if uid in self.borrowers else self.victims[uid]

    def preempt(self, uids: Collection[str], job: WaitingJob) -> None:
        """Have these jobs give way to the waiting one."""
        for uid in uids:
            preemptor = Preemptor(job.name, job.preempts_by if uid in self.victims else "")
            self.preempted_by[uid] = (*self.preempted_by.get(uid, ()), preemptor)

"""When the first jobs of the queue start, as far as it is known when the jobs on their nodes end. Pure.

The queue is walked in its order. Each job gets the domain in which enough nodes become free first, and keeps what
becomes free there before that, as its reservation does. Its nodes are then taken until it ends. Jobs that give way to
it count as gone once they may be asked, for it alone; what such a job leaves beside is free for the jobs behind. This
is simpler than the plan: it knows no fragmentation, and no failure. What is not known is said, with the name of the job
that would have to be known.
"""

import math
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice

from muster.placement.domain import Path
from muster.placement.fleet_index import NodeEligibility
from muster.placement.names import visible_name
from muster.placement.natural import natural
from muster.placement.reasons import INSUFFICIENT_NODES, TOPOLOGY_UNSATISFIED
from muster.placement.request import Request
from muster.placement.space import prepare_trees
from muster.placement.usable import usable_nodes
from muster.queueing.ends import PART, EndBasis, JobEnd, RemainingTime
from muster.queueing.freed import Event, Freed, time_order
from muster.queueing.limits import BEHIND_IN_QUEUE, OverLimit
from muster.queueing.preemption import LENDS_FREELY_SECONDS, Preemption, WaitingForPreemption
from muster.queueing.start_texts import GIVE_WAY, NOT_SIDE_BY_SIDE, Cause, known_text, other_reason_text, unknown_text
from muster.queueing.waiting import WaitingJob
from muster.world.fleet import Fleet
from muster.world.queuedecision import LendingTerms, NotPlaced, Placed, StartEstimate

MAX_ESTIMATED = 16
"""For so many jobs of the queue, the first ones, it is estimated when they start, and for the first ones that only
nodes keep waiting."""
NOT_ESTIMATED = f"only the first {MAX_ESTIMATED} of the queue, and of those that wait for nodes, are estimated"
"""Why the start of any other job is not known."""
# The answers to jobs that only nodes keep waiting; the others reserve none.
_FOR_NODES = frozenset({INSUFFICIENT_NODES, TOPOLOGY_UNSATISFIED, BEHIND_IN_QUEUE})
_OF_WAITING_JOBS = frozenset({Event.WAITING_JOB_STARTS, Event.WAITING_JOB_ENDS})
_ByTime = Sequence[tuple[Freed, Sequence[NodeEligibility]]]
_FREE = Freed(0.0)
_GIVEN = Freed(0.0, Event.HOLDERS_GIVE_WAY)
_FULL = Freed(math.inf, Event.OTHER_PODS_END)


@dataclass(frozen=True, slots=True)
class _Owing:
    """The jobs that give their nodes back to a waiting one.

    Attributes:
        gone: the uids of those that are as good as gone.
        now: of those that may be asked now: they backfill, or are of lower priority.
        later: of such jobs that keep their nodes for now.
    """

    gone: frozenset[str]
    now: frozenset[str]
    later: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Choice:
    """A domain that may hold a job, and the nodes that are free there first.

    Attributes:
        path: of the domain.
        chosen: their names, and when each is free.
        last: when the last of them is free.
        unknown: those of which it is not known when they are free: how many wait for each event.
    """

    path: Path
    chosen: Sequence[tuple[str, Freed]]
    last: Freed
    unknown: Mapping[Freed, int]

    @property
    def nodes(self) -> Sequence[str]:
        """The names of the nodes."""
        return [name for name, _ in self.chosen]

    @property
    def not_kept(self) -> frozenset[str]:
        """The names of those that no job before in the queue has until then."""
        return frozenset(name for name, freed in self.chosen if freed.event not in _OF_WAITING_JOBS)

    @property
    def order(self) -> tuple[object, ...]:
        """The better choice is less."""
        return self.last.seconds, sum(self.unknown.values()), [natural(name) for name in self.path]


@dataclass(frozen=True, slots=True)
class Ends:
    """When jobs end.

    Attributes:
        of_holder: of a holder of nodes (`Fleet.holders`): when it ends.
        of_waiting: of a waiting job's uid: for how long it would hold nodes.
    """

    of_holder: Callable[[str], JobEnd]
    of_waiting: Callable[[str], RemainingTime]


def jobs_to_estimate(
    queue: Sequence[tuple[WaitingJob, Placed | NotPlaced]],
) -> list[tuple[WaitingJob, Placed | NotPlaced]]:
    """Return those jobs of the queue, in its order, whose starts are estimated.

    A job that something else keeps waiting may stay the first for ever. If such jobs took all the places, no job
    behind them would have an estimate, and nothing that is reserved would be lent.
    """
    first = queue[:MAX_ESTIMATED]
    for_nodes = (entry for entry in queue[MAX_ESTIMATED:] if _takes_nodes(entry[1]))
    return [*first, *islice(for_nodes, sum(not _takes_nodes(answer) for _, answer in first))]


def _takes_nodes(answer: Placed | NotPlaced) -> bool:
    """Whether nodes are given to a job, or reserved for it."""
    if isinstance(answer, Placed | WaitingForPreemption):
        return True
    return answer.reason in _FOR_NODES and not isinstance(answer, OverLimit)


def start_times(
    fleet: Fleet,
    queue: Sequence[tuple[WaitingJob, Placed | NotPlaced]],
    ends: Ends,
    preemption: Preemption,
    now: datetime,
) -> Generator[None, None, dict[str, StartEstimate]]:
    """Work out when jobs start, with a pause after each few milliseconds; returned by job uid.

    Args:
        fleet: the fleet, kept up to date.
        queue: the first jobs of the queue in its order (`jobs_to_estimate`), with the plan's answers.
        ends: when jobs end, unless they give way.
        preemption: the jobs that may have to give way.
        now: by the API server's clock.
    """
    walk = _Walk(fleet, ends, preemption, now)
    estimates = {}
    for job, answer in queue:
        if isinstance(answer, Placed):  # it starts now, which is no estimate
            walk.assign_nodes(job, (*answer.nodes, *answer.spares), 0.0)
            continue
        estimate = yield from walk.next_start(job, answer)
        if not job.replacement:
            estimates[job.job_uid] = estimate
        yield
    return estimates


class _Walk:
    """The times at which nodes are free, as the jobs before in the queue leave them."""

    def __init__(self, fleet: Fleet, ends: Ends, preemption: Preemption, now: datetime) -> None:
        self._fleet = fleet
        self._ends = ends
        self._preemption = preemption
        self._now = now
        self._leaving = {uid for uid, holder in preemption.borrowers.items() if holder.leaves}
        self._holders: dict[str, tuple[Freed, JobEnd]] = {}
        self._looked_at = 0
        self._by_namespace: dict[str, list[str]] | None = None
        self._leaves: dict[str, Freed] = {}  # holders that leave for a job before in the queue, by uid
        self._after_holders: dict[tuple[frozenset[str], ...], Freed] = {}
        self._kept: dict[str, Freed] = {}  # nodes that a job before in the queue has or keeps, and until when
        self._names: dict[str, str] = {}  # of the jobs before, by uid
        self._bases: dict[str, EndBasis | None] = {}  # what the ends of these jobs follow from

    def next_start(self, job: WaitingJob, answer: NotPlaced) -> Generator[None, None, StartEstimate]:
        """Return when the next job of the queue starts."""
        if self._preemption.charged.stands_behind(job.namespace, job.job_uid):
            job = replace(job, preempts_by="")  # those that it would preempt come before it now
        if isinstance(answer, WaitingForPreemption):
            self._leaving |= answer.giving
            self.assign_nodes(job, answer.nodes, 0.0)
            return StartEstimate(self._now, GIVE_WAY)
        if isinstance(answer, OverLimit) and answer.ever:
            return (yield from self._next_within_limit(job, answer))
        if answer.reason not in _FOR_NODES:
            return StartEstimate(None, other_reason_text(answer))
        best, by_time = yield from self._best_domain(job)
        if best is not None and best.last.seconds == 0.0 and job.preempts_by:
            # The plan knows why it takes no nodes of jobs of lower priority now.
            best, by_time = yield from self._best_domain(replace(job, preempts_by=""))
        if best is None:
            return StartEstimate(None, NOT_SIDE_BY_SIDE)
        seconds = best.last.seconds
        kept = Freed(seconds, Event.WAITING_JOB_STARTS, job.job_uid)
        if job.request.segment_size == 1:  # as its reservation does
            for freed, nodes in by_time:
                if freed.seconds < seconds:
                    self._kept.update((node.entry.name, kept) for node in nodes)
        self.assign_nodes(job, best.nodes, seconds)
        if math.isinf(seconds):
            return StartEstimate(None, self._unknown_text(_most_common(best.unknown), job))
        self._note_leaving(best)
        yield
        lends = self._lends(job, best.path, by_time, seconds) if job.request.segment_size == 1 else None
        return self._estimate(best.last, self._known_text(best.last, job), lends, best.not_kept)

    def _note_leaving(self, choice: _Choice) -> None:
        """Note that the jobs whose nodes a job is to have will have left all of theirs."""
        for _, freed in choice.chosen:
            if freed.event is Event.HOLDERS_GIVE_WAY and freed.uid:
                seconds = min(choice.last.seconds, self._end_of(freed.uid)[0].seconds)
                self._leaves.setdefault(freed.uid, Freed(seconds, Event.HOLDER_LEAVES, freed.uid))
        self._after_holders.clear()

    def _lends(self, job: WaitingJob, path: Path, by_time: _ByTime, seconds: float) -> LendingTerms | None:
        """Return what a job lends that would start in this domain if jobs that have passed it were not asked.

        Nodes of other jobs that give way do not count as extra: these jobs keep them where no job needs them. A job
        whose place is old lends until it starts, so that those that pass never delay it (docs/decisions/0101).
        """
        unasked = sorted(((freed.unasked, nodes) for freed, nodes in by_time), key=lambda group: time_order(group[0]))
        choice = _choice(path, unasked, job.request, len(self._fleet.policy.topology.levels))
        if choice is None or math.isinf(choice.last.seconds):
            return None
        in_time = (group for group in unasked if group[0].seconds <= choice.last.seconds)
        free = sum(len(nodes) for freed, nodes in in_time if freed.event is not Event.HOLDERS_GIVE_WAY)
        ends_by = self._now + timedelta(seconds=choice.last.seconds)
        has_old_place = (self._now - job.created).total_seconds() > LENDS_FREELY_SECONDS
        until = self._now + timedelta(seconds=seconds) if has_old_place else ends_by
        return LendingTerms(ends_by, until, max(free - job.needs, 0))

    def _next_within_limit(self, job: WaitingJob, answer: OverLimit) -> Generator[None, None, StartEstimate]:
        """Return when a job starts that its namespace's limit keeps waiting. No nodes are reserved for such a job."""
        limited = yield from self._when_ended(job.namespace, answer.excess)
        if limited is None:
            return StartEstimate(None, other_reason_text(answer))
        if math.isinf(limited.seconds):
            return StartEstimate(None, f"its namespace is at its limit, and {self._unknown_text(limited, job)}")
        if not answer.fits:
            best, _ = yield from self._best_domain(job)
            if best is None:
                return StartEstimate(None, NOT_SIDE_BY_SIDE)
            if math.isinf(best.last.seconds):
                return StartEstimate(None, self._unknown_text(_most_common(best.unknown), job))
            if best.last.seconds > limited.seconds:
                return self._estimate(best.last, self._known_text(best.last, job))
        return self._estimate(limited, f"its namespace is at its limit until {self._known_text(limited, job)}")

    def _estimate(
        self, last: Freed, reason: str, lends: LendingTerms | None = None, nodes: frozenset[str] = frozenset()
    ) -> StartEstimate:
        return StartEstimate(self._now + timedelta(seconds=last.seconds), reason, lends, nodes)

    def _when_ended(self, namespace: str, nodes: int) -> Generator[None, None, Freed | None]:
        """Return when jobs of a namespace that hold so many nodes together have ended; None if it has too few."""
        ends = []
        for number, uid in enumerate(self._holders_in(namespace), start=1):
            ends.append((_GIVEN if uid in self._leaving else self._end_of(uid)[0], len(self._fleet.nodes_of(uid))))
            if number % PART == 0:
                yield
        for freed, held in sorted(ends, key=lambda end: time_order(end[0])):
            nodes -= held
            if nodes <= 0:
                return freed
        return None

    def _holders_in(self, namespace: str) -> Sequence[str]:
        """Return the uids of the jobs of a namespace that hold nodes."""
        if self._by_namespace is None:
            self._by_namespace = {}
            for uid, name in self._fleet.names.items():
                if self._fleet.nodes_of(uid):
                    self._by_namespace.setdefault(name.partition("/")[0], []).append(uid)
        return self._by_namespace.get(namespace, ())

    def _best_domain(self, job: WaitingJob) -> Generator[None, None, tuple[_Choice | None, _ByTime]]:
        """Return the domain that can hold a job first, with its nodes by the time at which they are free."""
        yield from prepare_trees(self._fleet, job.request)
        levels = len(self._fleet.policy.topology.levels)
        owing = self._owing(job)
        best: _Choice | None = None
        in_best: _ByTime = []
        for path, nodes in usable_nodes(self._fleet, job.request).items():
            by_time = yield from self._by_time(nodes, job.job_uid, owing)
            yield
            choice = _choice(path, by_time, job.request, levels)
            if choice is not None and (best is None or choice.order < best.order):
                best, in_best = choice, by_time
        return best, in_best

    def _owing(self, job: WaitingJob) -> _Owing:
        preemption = self._preemption
        owing, outranked, exempt = preemption.owing(job), preemption.outranked(job), preemption.exempt(job)
        passed = frozenset(uid for uid in owing if preemption.borrowers[uid].place is not None)
        keeping = frozenset(uid for uid in passed if preemption.keeps(uid, job))
        later = (keeping | exempt) - self._leaving
        now = (passed | outranked) - later - self._leaving
        return _Owing((owing - passed) | self._leaving | {job.job_uid}, now, later)

    def assign_nodes(self, job: WaitingJob, nodes: Iterable[str], seconds: float) -> None:
        """Count these nodes as the job's from so many seconds on, until it ends."""
        lasts = self._ends.of_waiting(job.job_uid)
        until = math.inf if lasts.seconds is None else seconds + max(lasts.seconds, 0.0)
        event = Event.WAITING_JOB_STARTS if math.isinf(seconds) else Event.WAITING_JOB_ENDS
        self._kept.update(dict.fromkeys(nodes, Freed(until, event, job.job_uid)))
        self._names[job.job_uid], self._bases[job.job_uid] = job.name, lasts.basis

    def _by_time(self, nodes: Sequence[NodeEligibility], own_uid: str, owing: _Owing) -> Generator[None, None, _ByTime]:
        """Return the nodes of a domain by the time at which they are free, those that are free first come first."""
        groups: dict[Freed, list[NodeEligibility]] = {}
        for node in nodes:
            self._looked_at += 1
            if self._looked_at % PART == 0:
                yield
            if node.why is not None and not node.holders:
                freed = _FULL
            else:
                freed = self._after(node.holders, own_uid, owing)
                kept = self._kept.get(node.entry.name)
                if kept is not None:
                    freed = max(kept, freed, key=time_order)
            groups.setdefault(freed, []).append(node)
        return sorted(groups.items(), key=lambda group: time_order(group[0]))

    def _after(self, holders: frozenset[str], own_uid: str, owing: _Owing) -> Freed:
        """Return when a job may have a node: the last of the holders that do not give it back now has ended, or may be
        asked for it."""
        remaining = holders if holders.isdisjoint(owing.gone) else holders - owing.gone
        if not remaining:
            return _GIVEN if holders - {own_uid} else _FREE
        key = remaining, remaining & owing.now, remaining & owing.later
        if key not in self._after_holders:
            self._after_holders[key] = max((self._given_by(holder, owing) for holder in remaining), key=time_order)
        return self._after_holders[key]

    def _given_by(self, holder: str, owing: _Owing) -> Freed:
        """Return when a job has ended, or may be asked to give its nodes back."""
        end = self._leaves.get(holder) or self._end_of(holder)[0]
        if holder in owing.now:
            asked_after = 0.0
        elif holder in owing.later:
            asked_after = (self._preemption.kept_until(holder) - self._now).total_seconds()
            if end.seconds <= asked_after:
                return end
        else:
            return end
        has_passed = holder in self._preemption.borrowers and not math.isinf(end.seconds)
        return Freed(asked_after, Event.HOLDERS_GIVE_WAY, holder, end.seconds if has_passed else None)

    def _end_of(self, holder: str) -> tuple[Freed, JobEnd]:
        if holder not in self._holders:
            end = self._ends.of_holder(holder)
            seconds = math.inf if end.time is None else max((end.time - self._now).total_seconds(), 0.0)
            self._holders[holder] = Freed(seconds, Event.HOLDER_ENDS, holder), end
        return self._holders[holder]

    def _known_text(self, last: Freed, job: WaitingJob) -> str:
        return known_text(last, self._cause(last, job))

    def _unknown_text(self, freed: Freed, job: WaitingJob) -> str:
        return unknown_text(freed, self._cause(freed, job))

    def _cause(self, freed: Freed, job: WaitingJob) -> Cause:
        """Return what a waiting job may know of the one that has to end, to leave or to start."""
        uid = freed.uid
        name = visible_name(self._names.get(uid) or self._fleet.name_of(uid), job.request.viewer)
        if freed.event is Event.HOLDER_ENDS:
            end = self._end_of(uid)[1]
            return Cause(name, end.basis, end.overdue_since)
        return Cause(name, self._bases.get(uid), is_outranked=uid in self._preemption.victims)


def _choice(path: Path, by_time: _ByTime, request: Request, levels: int) -> _Choice | None:
    """Return the nodes of a domain that are free for the request first; None where the domain could not hold it."""
    size = 1 if request.broken else request.segment_size
    chosen: list[tuple[str, Freed]] = []
    spare: list[tuple[str, Freed]] = []
    incomplete: dict[Path, list[tuple[str, Freed]]] = {}  # the segment of each innermost domain that is not complete
    for freed, nodes in by_time:
        for node in nodes:
            if len(chosen) >= request.count and len(spare) >= request.spares:
                break
            if len(chosen) >= request.count or (size > 1 and len(node.path) < levels):
                spare.append((node.entry.name, freed))
                continue
            segment = incomplete.setdefault(node.path if size > 1 else (), [])
            segment.append((node.entry.name, freed))
            if len(segment) == size:
                chosen += segment
                segment.clear()
    spare += [entry for segment in incomplete.values() for entry in segment]
    spare.sort(key=lambda entry: time_order(entry[1]))
    if len(chosen) < request.count or len(spare) < request.spares:
        return None
    chosen += spare[: request.spares]
    last = max((freed for _, freed in chosen), key=time_order)
    unknown = Counter(freed for _, freed in chosen if math.isinf(freed.seconds))
    return _Choice(path, chosen, last, unknown)


def _most_common(causes: Mapping[Freed, int]) -> Freed:
    return min(causes, key=lambda cause: (-causes[cause], cause.event.value, cause.uid))

"""Which job comes next, and which nodes it gets: one plan for all jobs that wait.

A job gets all of its nodes or none. A job that gets none has the nodes reserved that it needs in its best domain.
Otherwise smaller jobs behind it would take every node that becomes free, and a large gang would wait for ever. They go
ahead on all other nodes, and on reserved ones if they are preemptible, or are expected to end in time, those first that
have waited longest for their length: then they give way to the jobs before them (`preemption`). Where the FleetPolicy
says so, jobs of lower priority give way, too. To keep everything for the first in the queue was rejected: the fleet
would idle for a job that wants one rack.

How long a reservation can last: no job behind keeps a reserved node for more than MAX_LENT_SECONDS when it is needed,
and what is lent counts as reserved. So the number of reserved nodes, which decides which domain is the best, never
falls while the job is first. At one number the choice moves to domains of earlier names only. Without segments all free
nodes of the domain are reserved. A choice that stays is empty once its running jobs have ended, and a domain is chosen
only if it can hold the job. With segments look at the innermost domain that comes nearest to a further segment. All of
its free nodes are reserved. Each job that ends there adds to their number, and at one number the nearest can be
replaced only by an equally near one of an earlier name. So after the longest running time for each domain there is one
more reserved node, and there are never more than the job needs.
"""

import functools
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeVar

from muster.placement.names import (
    OTHERS,
    promised_refusal,
    reserved_refusal,
    visible_counts,
    visible_name,
)
from muster.placement.reasons import NEVER_FITS, UNKNOWN_TOPOLOGY_LEVEL
from muster.placement.space import Space, prepare_trees
from muster.queueing.charges import Charged
from muster.queueing.enabling import NotEnabled
from muster.queueing.lending import Lenders, LendingOffer
from muster.queueing.limits import BEHIND_IN_QUEUE, Limits, OverLimit
from muster.queueing.phrases import before_in_queue_text, jobs_text, more_text, part_text
from muster.queueing.preemption import (
    WAITING_FOR_PREEMPTION,
    Place,
    Preemption,
    WaitingForPreemption,
    place_of,
)
from muster.queueing.preemption_search import PreemptionSearch
from muster.queueing.quotas import NamespaceQuotas, OverQuota, Quotas, no_quotas
from muster.queueing.waiting import WaitingJob
from muster.world.fleet import Fleet
from muster.world.names import nodes_text, verb_for
from muster.world.queuedecision import LentNodes, NotPlaced, Placed, QueueDecision

INTERNAL_ERROR = "InternalError"
MAX_PREEMPTORS = 8
"""For so many jobs of a queue, the first ones that may preempt by their priority, it is tried. As many that lack nodes
may stand before them."""
_NONE_CHARGED = Charged()
_Answer = TypeVar("_Answer")
# Waiting does not help these: they block no other job.
_HOPELESS = frozenset({NEVER_FITS, UNKNOWN_TOPOLOGY_LEVEL})


@dataclass(frozen=True, slots=True)
class Behind(NotPlaced):
    """The answer that a job has no place now, only because nodes are reserved for jobs that come first.

    Attributes:
        reserved_for: by job, how many of the free nodes that this one could use are reserved for it.
        may_pass: whether backfill trusts an estimate of this job.
        is_replacement: whether it is for a gang that holds its other nodes meanwhile, which passes none.
    """

    reserved_for: Mapping[str, int] = field(default_factory=dict)
    may_pass: bool = False
    is_replacement: bool = False


@dataclass(frozen=True, slots=True)
class Failed(NotPlaced):
    """The answer that is missing because a defect of Muster prevented it; the other jobs in the queue have theirs.

    Attributes:
        error: the exception.
    """

    error: Exception | None = None


def order(waiting: Iterable[WaitingJob], charged: Charged = _NONE_CHARGED) -> list[WaitingJob]:
    """The waiting jobs, first come first: replacements (they let other nodes idle), then higher priority, age, and
    name. Preemptible jobs stand behind all others, so that no two of them give way to each other in turn.

    Args:
        waiting: the queue, in any order.
        charged: which jobs stand behind the others (`muster.queueing.charges`).
    """

    def rank(job: WaitingJob) -> tuple[bool, bool, bool, Place]:
        return job.preemptible, not job.replacement, charged.stands_behind(job.namespace, job.job_uid), place_of(job)

    return sorted(waiting, key=rank)


@dataclass(frozen=True, slots=True)
class NamespaceRules:
    """What decides about the jobs of a namespace, besides the fleet.

    Attributes:
        limits: nodes that the jobs of a namespace may hold together; none for a namespace that is absent.
        held: nodes that count for a namespace's limit now; a gang that waits for a replacement counts with its whole
            size.
        quotas: the ResourceQuotas of a namespace, asked once for each namespace of the queue.
        closed: namespaces of which no job starts. A gang that has nodes gets replacements there, too.
    """

    limits: Mapping[str, int] = field(default_factory=dict)
    held: Mapping[str, int] = field(default_factory=dict)
    quotas: Callable[[str], NamespaceQuotas] = no_quotas
    closed: Mapping[str, NotEnabled] = field(default_factory=dict)


_NO_RULES = NamespaceRules()


def plan_steps(
    fleet: Fleet,
    waiting: Iterable[WaitingJob],
    rules: NamespaceRules = _NO_RULES,
    preemption: Preemption | None = None,
    offers: Mapping[str, LendingOffer] | None = None,
    reserved: dict[str, str] | None = None,
) -> Iterator[tuple[str, QueueDecision] | None]:
    """Work out the answers for all waiting jobs in the order of the queue, each when it is asked for.

    Args:
        fleet: the fleet. If it changes between two steps, each answer is for the fleet as it was at one of them.
        waiting: the queue, in any order.
        rules: of the namespaces.
        preemption: the jobs that hold nodes and may have to give way, and which jobs stand behind the others; filled
            in: which of the former have to.
        offers: by uid, what waiting jobs lend until they start, as far as their start is known.
        reserved: filled in: the names of the jobs for which free nodes are reserved, by node.

    Yields:
        Job uid and answer; None between parts of the work on one job, so that other work may run. Answers that are
        `Placed` do not overlap, so that all of them may take their nodes. A job that passes others has a second answer,
        after the first ones of all.
    """
    preemption = preemption or Preemption()
    charged = preemption.charged
    queue = order(waiting, charged)
    planner = _Planner(fleet, rules, preemption, offers or {}, {} if reserved is None else reserved)
    decisions: dict[str, QueueDecision] = {}
    for position, job in enumerate(queue, start=1):
        payer = charged.payer(job.namespace, job.job_uid)
        # Those that it would preempt come before it now.
        answer = yield from _guarded(planner.answer(job if payer is None else replace(job, preempts_by="")))
        payer = None if job.replacement else payer
        of_it = planner.of_last
        decisions[job.job_uid] = QueueDecision(
            position=position,
            queued=len(queue),
            answer=answer,
            payer=payer,
            reserved=of_it.reserved,
            lent=of_it.lent,
            preempts_from=of_it.preempts_from,
            too_many_before=of_it.too_many_before,
        )
        yield job.job_uid, decisions[job.job_uid]
    for job in sorted(planner.may_pass, key=functools.partial(_length_per_wait, now=preemption.now)):
        passing = yield from _guarded(planner.pass_others(job))
        if passing is not None:
            first = decisions[job.job_uid]
            yield job.job_uid, QueueDecision(first.position, first.queued, passing, first.payer)


def _length_per_wait(job: WaitingJob, now: datetime) -> float:
    """Return how long a job is expected to last, per second that it has waited: the least passes others first."""
    waited_seconds = max((now - job.created).total_seconds(), 0.0)
    return (job.expected_seconds or 0.0) / (waited_seconds + 1.0)


def _guarded(answering: Generator[None, None, _Answer]) -> Generator[None, None, _Answer | Failed]:
    try:
        return (yield from answering)
    except Exception as error:  # noqa: BLE001 - whatever one job asks for, the others get their answers
        text = f"a defect of Muster kept it from placing this job ({type(error).__name__}: {error})"
        return Failed(INTERNAL_ERROR, f"{text}. Muster tries again. Report it with the operator's log.", error=error)


@dataclass(slots=True)
class _Besides:
    """What is said of a waiting job besides its answer.

    Attributes:
        reserved: how many free nodes are reserved for it.
        lent: what is lent of the other nodes that are reserved for it.
        preempts_from: from when on it may preempt more jobs than now.
        too_many_before: whether it preempts none since too many jobs before it do, or lack nodes.
    """

    reserved: int = 0
    lent: LentNodes | None = None
    preempts_from: datetime | None = None
    too_many_before: bool = False


class _Planner:
    """Answers one job after the other, and remembers what those before it have left.

    Attributes:
        of_last: what else is said of the job that was answered last.
        may_pass: jobs without a place that may pass those that nodes are reserved for.
    """

    def __init__(
        self,
        fleet: Fleet,
        rules: NamespaceRules,
        preemption: Preemption,
        offers: Mapping[str, LendingOffer],
        reserved: dict[str, str],
    ) -> None:
        self._closed = rules.closed
        self._preemption = preemption
        self._preemptors = 0
        self._blocked: list[WaitingJob] = []  # those with too few nodes, in their order
        self.may_pass: list[WaitingJob] = []
        self._lenders = Lenders(offers)
        self._fleet = fleet
        self._limits = Limits(rules.limits, rules.held)
        self._quotas = Quotas(fleet, rules.quotas)
        self._space = Space(fleet)
        self._unreserved = Space(fleet)  # the same, as if nothing were reserved
        self._search = PreemptionSearch(fleet, self._space, self._unreserved, preemption)
        self.of_last = _Besides()
        # Namespaces with a job that its limit or a quota keeps waiting: what a job there leaves may go to that one.
        self._without_room: set[str] = set()
        self._reserved = reserved  # node -> for which job

    def answer(self, job: WaitingJob) -> Generator[None, None, Placed | NotPlaced]:
        """Return the answer of the next job. Its nodes are given away, or reserved, for the jobs behind it."""
        self.of_last = _Besides()
        answer = yield from self._answer(job)
        if isinstance(answer, OverLimit | OverQuota) and answer.ever:
            self._without_room.add(job.namespace)
        return answer

    def _answer(self, job: WaitingJob) -> Generator[None, None, Placed | NotPlaced]:
        if job.namespace in self._closed and not job.replacement:
            return self._closed[job.namespace]
        yield from prepare_trees(self._fleet, job.request)
        answer = yield from (self._unreserved if job.preemptible else self._space).solve(job.request)
        if isinstance(answer, NotPlaced) and answer.reason in _HOPELESS:
            return answer
        over_limit = self._limits.refusal(job, answer)
        if over_limit is not None:
            if over_limit.ever:
                self._limits.reserve(job)
            return over_limit
        yield from self._quotas.prepare(job)
        chosen = (*answer.nodes, *answer.spares) if isinstance(answer, Placed) else ()
        over_quota = self._quotas.refusal(job, answer, chosen)
        if over_quota is not None:
            return over_quota
        if isinstance(answer, Placed):
            self._promise(job, chosen)
            return answer
        return answer if job.preemptible else (yield from self._answer_without_place(job, answer))

    def _answer_without_place(self, job: WaitingJob, answer: NotPlaced) -> Generator[None, None, Placed | NotPlaced]:
        """Return the answer of a job for which too few nodes are free: others give way to it, or it has nodes
        reserved."""
        yield
        answer = yield from self._preempting(job, answer)
        if isinstance(answer, WaitingForPreemption | OverQuota):
            return answer
        behind = yield from self._behind(job, answer)
        yield
        over_quota = yield from self._reserve(job, answer)
        if over_quota is None and job.expected_seconds is not None:
            self.may_pass.append(job)
        return over_quota or behind or answer

    def pass_others(self, job: WaitingJob) -> Generator[None, None, Placed | None]:
        """Return nodes for one of `may_pass` that jobs before it in the queue lend, which they are reserved for, or
        which count on them: to those that end in time, and to those that leave them enough; None: there are none."""
        yield
        request = self._lenders.request_of(job)
        answer = (yield from self._unreserved.find(request)) if request is not None else None
        if answer is None:
            return None
        chosen = (*answer.nodes, *answer.spares)
        if self._quotas.refusal(job, answer, chosen) is not None:
            return None
        self._promise(job, chosen)
        return replace(answer, backfill=self._lenders.lend(job, chosen, self._preemption.now))

    def _promise(self, job: WaitingJob, chosen: tuple[str, ...]) -> None:
        self._limits.promise(job)
        self._quotas.promise(job, chosen)
        for space in (self._space, self._unreserved):
            space.reserve_nodes(chosen, promised_refusal(job.name))

    def _reserve(self, job: WaitingJob, answer: NotPlaced) -> Generator[None, None, OverQuota | None]:
        """Reserve nodes for a job without a place, and return None.

        Where a quota allows fewer than would be kept from other jobs, none is reserved; returns that quota's refusal.
        """
        owing = self._preemption.owing(job)
        yield
        kept = yield from self._space.reservation(replace(job.request, given_back=owing))
        yield
        over_quota = self._quotas.refusal(job, answer, kept)
        if over_quota is not None:
            return over_quota
        self._limits.reserve(job)
        self._blocked.append(job)
        self._space.reserve_nodes(kept, reserved_refusal(job.name))
        self._lenders.add(job, self._note_reserved(job, kept))
        yield
        self._note_lent(job, kept)
        return None

    def _note_reserved(self, job: WaitingJob, kept: Iterable[str]) -> Sequence[str]:
        """Note those of these nodes that are free, and return them."""
        free = [name for name in kept if not self._preemption.holds(self._fleet.holders(name))]
        self._reserved.update(dict.fromkeys(free, job.name))
        self.of_last.reserved = len(free)
        return free

    def _note_lent(self, job: WaitingJob, kept: Iterable[str]) -> None:
        counts = Counter(map(self._fleet.holders, kept))
        until = {holders: self._preemption.lent_until(holders, job) for holders in counts}
        lent = {holders: time for holders, time in until.items() if time is not None}
        nodes = sum(counts[holders] for holders in lent)
        self.of_last.lent = LentNodes(nodes, max(lent.values())) if lent else None

    def _preempting(self, job: WaitingJob, answer: NotPlaced) -> Generator[None, None, NotPlaced]:
        """Return the answer of a job that starts once other jobs have given way; where that would not help, the answer
        that counts what is lent to them as free."""
        preemption, nodes_of = self._preemption, self._fleet.nodes_of
        owing = preemption.owing_now(job)
        yield
        lent = preemption.newest_first(self._search.not_all_reserved(owing))
        yield
        may_preempt = self._counts_as_preemptor(job)
        victims = preemption.victims_of(job, self._without_room) if may_preempt else []
        yield
        choice = yield from self._search.best(job, self._blocked, lent, victims)
        if choice is None:
            self._note_no_victims(job, may_preempt=may_preempt)
            return (yield from self._answer_without(job, lent)) or answer
        yield
        chosen, giving = choice
        if not giving:  # nodes have become free meanwhile: the next plan finds them
            return answer
        over_quota = self._quotas.refusal(job, answer, chosen)
        if over_quota is not None:
            return over_quota
        self._promise(job, chosen)
        self._note_reserved(job, chosen)
        holders = {uid: preemption.holder(uid) for uid in giving}
        chosen_nodes = frozenset(chosen)
        asked = frozenset(uid for uid in giving if chosen_nodes.intersection(nodes_of(uid)) - holders[uid].old_nodes)
        preemption.preempt(asked, job)
        nodes = {uid: len(nodes_of(uid)) for uid in giving}
        names = visible_counts(nodes, lambda uid: visible_name(holders[uid].name, job.request.viewer))
        message = (
            f"needs {nodes_text(job.needs, more_text(job.needs, job.size))}: {jobs_text(names)} "
            f"{'give' if len(giving) > 1 or OTHERS & names.keys() else 'gives'} way to it after a save"
        )
        return WaitingForPreemption(WAITING_FOR_PREEMPTION, message, answer.shortfall, chosen, asked)

    def _answer_without(self, job: WaitingJob, lent: Sequence[str]) -> Generator[None, None, NotPlaced | None]:
        """Return why a job would have no place if all gave way whose nodes are lent; None where none are."""
        if not lent:
            return None
        answer = yield from self._space.solve(replace(job.request, given_back=frozenset(lent)))
        return answer if isinstance(answer, NotPlaced) else None

    def _counts_as_preemptor(self, job: WaitingJob) -> bool:
        """Return whether a job, among the first MAX_PREEMPTORS, may take the nodes of jobs of lower priority."""
        if not self._preemption.outranks_any(job):
            return False
        if self._preemptors >= MAX_PREEMPTORS or len(self._blocked) > MAX_PREEMPTORS:
            return False
        self._preemptors += 1
        return True

    def _note_no_victims(self, job: WaitingJob, *, may_preempt: bool) -> None:
        """Note why a job that outranks others preempts none of them now."""
        if may_preempt:
            self.of_last.preempts_from = self._preemption.preempts_from(job)
        else:
            self.of_last.too_many_before = self._preemption.outranks_any(job)

    def _behind(self, job: WaitingJob, answer: NotPlaced) -> Generator[None, None, Behind | None]:
        """Return the answer of a job that would have its nodes if none were reserved; None for any other job."""
        free = (yield from self._free_without_reservations(job)) if self._reserved else ()
        if not free:
            return None
        viewer = job.request.viewer
        reserved_for = Counter(filter(None, map(self._reserved.get, free)))
        if not reserved_for:  # they have become free meanwhile: the next plan finds them
            return None
        waiting_for = visible_counts(reserved_for, lambda name: visible_name(name, viewer))
        alone = len(waiting_for) == 1 and not OTHERS & waiting_for.keys()
        inside = f" in one {job.request.required}" if job.request.required else ""
        message = (
            f"needs {nodes_text(job.needs, more_text(job.needs, job.size))}: {len(free)} {verb_for(len(free))} free "
            f"for it{inside}, but {part_text(waiting_for.total(), len(free))} reserved for {jobs_text(waiting_for)}, "
            f"{before_in_queue_text(1 if alone else 2)}"
        )
        may_pass = job.expected_seconds is not None
        return Behind(BEHIND_IN_QUEUE, message, answer.shortfall, dict(waiting_for), may_pass, job.replacement)

    def _free_without_reservations(self, job: WaitingJob) -> Generator[None, None, tuple[str, ...]]:
        """Return the free nodes among which a job finds its own if none are reserved; none if they are too few."""
        if job.request.segment_size == 1:  # the count decides, which costs less than an answer
            free = yield from self._unreserved.reservation(job.request)
            return free if len(free) >= job.needs else ()
        answer = yield from self._unreserved.find(job.request)
        return (*answer.nodes, *answer.spares) if answer is not None else ()

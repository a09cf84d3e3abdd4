"""Simulates one life of a gang: from failure to failure, without anything in between. Pure.

While nothing fails, training and saving follow each other at a known pace and need no simulation. The cost of a life
grows only with its number of failures. Each second of the gang belongs to exactly one bucket.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from muster.api.trainingjob import Recovery
from muster.recovery.budgets import WINDOW
from muster.whatif.failure_model import Blow
from muster.whatif.plan import Plan
from muster.whatif.recovery_model import Leaves, Way


@dataclass(slots=True)
class Loss:
    """The cost of one cause, in seconds of the whole gang.

    Attributes:
        failures: number of failures.
        redone: training that no complete checkpoint held.
        noticing: until the failure was seen, decided on, and all ranks were proved to have ended.
        waiting: until a node was available.
        replacing: until the new pod ran.
        starting: until the first step.
    """

    failures: int = 0
    redone: float = 0.0
    noticing: float = 0.0
    waiting: float = 0.0
    replacing: float = 0.0
    starting: float = 0.0

    @property
    def seconds(self) -> float:
        """Return the sum of all parts."""
        return self.redone + self.noticing + self.waiting + self.replacing + self.starting


@dataclass(slots=True)
class LifeAccount:
    """Where the time of one life went, in seconds of the whole gang.

    Attributes:
        useful: training that was kept in the end.
        saving: stalls of training for saves.
        losses: the cost of each cause, by its index in the list of causes.
        own_budget_exhausted: the job's own failures have exhausted the default budget of restarts, and would have ended
            it.
        nodes_budget_exhausted: the failures of nodes have exhausted theirs.
    """

    useful: float = 0.0
    saving: float = 0.0
    losses: list[Loss] = field(default_factory=list)
    own_budget_exhausted: bool = False
    nodes_budget_exhausted: bool = False


Moments = tuple[float, float, float]
"""In this order: when all failures are noticed, when a node is available for each worker, when the ranks may start."""
_NOTHING: Moments = (0.0, 0.0, 0.0)
_DEFAULTS = Recovery()


_WINDOW_SECONDS = WINDOW.total_seconds()


@dataclass(slots=True)
class _Budget:
    """The failures of one restart budget, counted as `muster.recovery.budgets` does: within a day, without progress
    since.

    Attributes:
        most: the number of failures that the budget allows.
        counted: of each failure its time and the progress then, in seconds of training.
    """

    most: int
    counted: list[tuple[float, float]] = field(default_factory=list)

    def budget_exhausted(self, at: float, reached: float, complete: float) -> bool:
        """Count one more failure; return whether that exhausts the budget.

        Args:
            at: time of the failure, in seconds from the beginning.
            reached: progress of the training then, in seconds of training.
            complete: progress in the newest complete checkpoint.
        """
        self.counted = [
            failure for failure in self.counted if at - failure[0] < _WINDOW_SECONDS and failure[1] >= complete
        ]
        self.counted.append((at, reached))
        return len(self.counted) > self.most


@dataclass(slots=True)
class _Recovery:
    """A recovery from a failure, as scheduled at the moment of the failure.

    Attributes:
        cause: index in the list of causes; -1: nothing has failed yet.
        since: when the failure struck.
        due: when each phase of the recovery ends.
        trains: when the first step begins.
        held: the moments that every later start has to wait for as well: nodes that were left and not replaced yet. A
            restart of ranks in place is not among them: any other restart includes it.
    """

    cause: int
    since: float
    due: Moments
    trains: float
    held: Moments


def live(plan: Plan, ways: Sequence[Way], blows: Sequence[Blow]) -> LifeAccount:
    """Simulate one life of a gang through its failures.

    Args:
        plan: the gang.
        ways: the recovery from each cause.
        blows: the failures, in the order of time.
    """
    account = LifeAccount(losses=[Loss() for _ in ways])
    free = [0.0] * plan.spares  # the moment from which each node outside the gang is free
    heapify(free)
    away: dict[int, float] = {}  # by place: until when it has no node
    own, nodes = _Budget(_DEFAULTS.application_restarts_per_day), _Budget(_DEFAULTS.hardware_restarts_per_day)
    now = _Recovery(-1, 0.0, _NOTHING, 0.0, _NOTHING)
    for blow in blows:
        if blow.at < away.get(blow.place, 0.0):
            continue
        way = ways[blow.cause]
        if way.needs_ranks and _changes_nothing(way, blow, now):
            continue
        lost = 0.0
        if blow.at < now.trains:
            _recover(account, now, blow.at)
        else:
            _recover(account, now, now.trains)
            lost = _train(account, plan, blow.at - now.trains)
            account.losses[blow.cause].redone += lost
        account.losses[blow.cause].failures += 1
        if way.own:
            if not account.own_budget_exhausted:
                account.own_budget_exhausted = own.budget_exhausted(blow.at, account.useful + lost, account.useful)
        elif not account.nodes_budget_exhausted:
            account.nodes_budget_exhausted = nodes.budget_exhausted(blow.at, account.useful + lost, account.useful)
        now = _recovery(plan, way, blow, now, free, away)
    if plan.seconds < now.trains:
        _recover(account, now, plan.seconds)
    else:
        _recover(account, now, now.trains)
        rest = _train(account, plan, plan.seconds - now.trains)
        account.useful += rest  # the end of the plan loses nothing
    return account


def _changes_nothing(way: Way, blow: Blow, now: _Recovery) -> bool:
    """Whether the failing ranks are not running, or are restarted anyway before this failure is noticed."""
    return blow.at < now.held[2] or blow.at < now.due[0] <= blow.at + way.noticed_seconds


def _recovery(
    plan: Plan, way: Way, blow: Blow, earlier: _Recovery, free: list[float], away: dict[int, float]
) -> _Recovery:
    """Schedule the recovery from a failure. Nodes for which an earlier recovery still waits are waited for as well."""
    noticed = blow.at + way.noticed_seconds
    leaves = way.leaves is Leaves.ALWAYS or (way.leaves is Leaves.IF_FREE and bool(free) and free[0] <= noticed)
    node = ready = noticed
    if leaves:
        heappush(free, noticed + blow.repair * plan.repair_seconds)
        node = away[blow.place] = max(noticed, heappop(free))
        ready = node + plan.pod_seconds
    due = (max(noticed, earlier.held[0]), max(node, earlier.held[1]), max(ready, earlier.held[2]))
    return _Recovery(blow.cause, blow.at, due, due[2] + plan.start_seconds, due if leaves else earlier.held)


def _train(account: LifeAccount, plan: Plan, seconds: float) -> float:
    """Add this many seconds of training to the account. Return how much of the training no complete checkpoint
    holds."""
    interval, save = plan.interval_seconds, plan.save_seconds
    cycles, rest = divmod(seconds, interval + save)
    work = cycles * interval + min(rest, interval)
    complete = max(0.0, (seconds - plan.durable_seconds) // (interval + save))
    kept = complete * interval
    account.saving += seconds - work
    account.useful += kept
    return work - kept


def _recover(account: LifeAccount, recovery: _Recovery, until: float) -> None:
    """Add the time of a recovery up to a moment to the account."""
    if recovery.cause < 0:
        return
    loss, since = account.losses[recovery.cause], recovery.since
    ends = [min(until, moment) for moment in (*recovery.due, recovery.trains)]
    loss.noticing += max(0.0, ends[0] - since)
    loss.waiting += max(0.0, ends[1] - max(since, ends[0]))
    loss.replacing += max(0.0, ends[2] - max(since, ends[1]))
    loss.starting += max(0.0, ends[3] - max(since, ends[2]))

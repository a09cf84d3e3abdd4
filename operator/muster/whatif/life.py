"""One life of a gang: from failure to failure, without anything in between. Pure.

While nothing fails, training and saving follow each other at a known pace, so that no time is spent on them: a life
costs as much as it has failures. Each second of the gang is put on one account.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from muster.api.trainingjob import Recovery
from muster.recovery.budgets import WINDOW
from muster.whatif.plan import Plan
from muster.whatif.ways import Leaves, Way
from muster.whatif.weather import Blow


@dataclass(slots=True)
class Loss:
    """What one cause has cost, in seconds of the whole gang.

    Attributes:
        failures: how many.
        redone: training that no complete checkpoint held.
        noticing: until the failure was seen, decided on, and all ranks were proved to have ended.
        waiting: until there was a node.
        replacing: until the new pod was there.
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
        """All of it."""
        return self.redone + self.noticing + self.waiting + self.replacing + self.starting


@dataclass(slots=True)
class Account:
    """Where the time of one life went, in seconds of the whole gang.

    Attributes:
        useful: training that was kept.
        saving: training stood still for a save.
        losses: what each cause has cost, by its place in the list.
        own_budget_exhausted: the job's own failures have exhausted the default budget of restarts, and would have ended
            it.
        nodes_budget_exhausted: the same of failures of nodes.
    """

    useful: float = 0.0
    saving: float = 0.0
    losses: list[Loss] = field(default_factory=list)
    own_budget_exhausted: bool = False
    nodes_budget_exhausted: bool = False


Moments = tuple[float, float, float]
"""When all failures are noticed, when there are nodes for all, when the ranks may start; in this order."""
_NOTHING: Moments = (0.0, 0.0, 0.0)
_DEFAULTS = Recovery()


_WINDOW_SECONDS = WINDOW.total_seconds()


@dataclass(slots=True)
class _Budget:
    """The failures that count, as `muster.recovery.budgets` counts them: of a day, without progress since.

    Attributes:
        most: so many may be.
        counted: when each was, and how far the training had come.
    """

    most: int
    counted: list[tuple[float, float]] = field(default_factory=list)

    def budget_exhausted(self, at: float, reached: float, complete: float) -> bool:
        """Count one more; whether that ends the job.

        Args:
            at: when it is.
            reached: how far the training had come, in seconds of training.
            complete: how far the newest complete checkpoint has.
        """
        self.counted = [one for one in self.counted if at - one[0] < _WINDOW_SECONDS and one[1] >= complete]
        self.counted.append((at, reached))
        return len(self.counted) > self.most


@dataclass(slots=True)
class _Recovery:
    """What lies ahead after a failure.

    Attributes:
        cause: place in the list of causes; -1: nothing has failed yet.
        since: when it struck.
        due: when the gang is through with it, as moments.
        trains: when the first step begins.
        held: what every later start has to wait for as well: nodes that were left and not replaced yet. What would have
            restarted the ranks where they are needs nothing more once something else restarts them.
    """

    cause: int
    since: float
    due: Moments
    trains: float
    held: Moments


def live(plan: Plan, ways: Sequence[Way], blows: Sequence[Blow]) -> Account:
    """Let a gang live through its failures.

    Args:
        plan: the gang.
        ways: how each cause goes.
        blows: what strikes it, in the order of time.
    """
    account = Account(losses=[Loss() for _ in ways])
    free = [0.0] * plan.spares  # since when, or from when on, each node is free that the gang has not got
    heapify(free)
    away: dict[int, float] = {}  # until when no node stands in a place
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
        account.useful += rest  # at the end nothing is lost
    return account


def _changes_nothing(way: Way, blow: Blow, now: _Recovery) -> bool:
    """Whether ranks that fail like this are not there, or are about to be restarted before this is noticed."""
    return blow.at < now.held[2] or blow.at < now.due[0] <= blow.at + way.noticed_seconds


def _recovery(
    plan: Plan, way: Way, blow: Blow, before: _Recovery, free: list[float], away: dict[int, float]
) -> _Recovery:
    """What follows a failure; a node that an earlier one still waits for is waited for as well."""
    noticed = blow.at + way.noticed_seconds
    leaves = way.leaves is Leaves.ALWAYS or (way.leaves is Leaves.IF_FREE and bool(free) and free[0] <= noticed)
    node = ready = noticed
    if leaves:
        heappush(free, noticed + blow.repair * plan.repair_seconds)
        node = away[blow.place] = max(noticed, heappop(free))
        ready = node + plan.pod_seconds
    due = (max(noticed, before.held[0]), max(node, before.held[1]), max(ready, before.held[2]))
    return _Recovery(blow.cause, blow.at, due, due[2] + plan.start_seconds, due if leaves else before.held)


def _train(account: Account, plan: Plan, seconds: float) -> float:
    """Train for so long, until something ends it; returns how much of the training no complete checkpoint holds."""
    interval, save = plan.interval_seconds, plan.save_seconds
    cycles, rest = divmod(seconds, interval + save)
    work = cycles * interval + min(rest, interval)
    complete = max(0.0, (seconds - plan.durable_seconds) // (interval + save))
    kept = complete * interval
    account.saving += seconds - work
    account.useful += kept
    return work - kept


def _recover(account: Account, recovery: _Recovery, until: float) -> None:
    """Put the time of a recovery up to a moment on its accounts."""
    if recovery.cause < 0:
        return
    loss, since = account.losses[recovery.cause], recovery.since
    ends = [min(until, moment) for moment in (*recovery.due, recovery.trains)]
    loss.noticing += max(0.0, ends[0] - since)
    loss.waiting += max(0.0, ends[1] - max(since, ends[0]))
    loss.replacing += max(0.0, ends[2] - max(since, ends[1]))
    loss.starting += max(0.0, ends[3] - max(since, ends[2]))

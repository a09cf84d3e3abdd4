"""The circuit breaker of health: how many of the unhealthy nodes Muster takes out.

It protects the fleet from a rule, a driver or a monitor that reports every node as unhealthy.

A verdict alone takes no node out. Muster evacuates a node (and taints it, where the policy asks for that) only within
budgets. Each pool of like nodes has a budget per window and one for all nodes that are out at the same time. Each
innermost domain has a budget of the pool's nodes there. At least one node may always be taken out. A part of each
budget is reserved for certain faults. No single cause may exhaust the rest, so that a false alarm leaves room for other
causes (`muster.health.causes`). New workers are placed on a held node only where no other node is left, and never where
its fault is certain (`muster.health.effects`). The status and an Event report that.

The breaker opens when a window's budget, for a cause or for all uncertain faults, is exhausted and more nodes are
unhealthy. It then tries one node at a time, after a pause that doubles with each. It closes by itself when no unhealthy
node waits any more. Its state is not stored. The state follows from the incidents in NodeHealth and from the taints on
nodes, so that a restart loses nothing. An incident records when it began, and when and for which cause Muster acted. An
action is written into its incident before it is done (`Verdict.after_taking_out`), and is not counted again when it is
repeated.

Muster leaves a node to another system that claims to repair it, without a charge, but not a whole pool at once. One
label on every node is more often a mistake than maintenance.
"""

from bisect import bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property
from operator import attrgetter
from typing import NamedTuple

from muster.api.fleetpolicy import Enforcement
from muster.api.nodehealth import HealthIncident
from muster.health.pools import OTHERS, pools_with_own_budget
from muster.health.sources import Rules
from muster.health.verdict import Verdict

MAX_PAUSE_SECONDS = 14400
"""The pause between two tries doubles up to four hours."""
_REMEDY = "find what they share, or raise spec.health.budgets"


class Act(StrEnum):
    """What may be done about one node.

    Nothing: the node may be used. Take: jobs are evacuated, and Muster taints the node where the policy asks for that.
    Hold: the node is unhealthy, but the budget keeps it in use: only new workers avoid it. Yield: another system
    repairs the node: new workers avoid it, and jobs are evacuated after the next checkpoint. Untaint: the node has
    Muster's taint without need.
    """

    NOTHING = "Nothing"
    TAKE = "Take"
    HOLD = "Hold"
    YIELD = "Yield"
    UNTAINT = "Untaint"


class BreakerState(StrEnum):
    """The state of a pool's breaker, which limits how many nodes are taken out.

    Closed: the demand is within the budgets. Open: more nodes are unhealthy than a budget or a cap allows. HalfOpen:
    the breaker is open, and one more node is tried now.
    """

    CLOSED = "Closed"
    OPEN = "Open"
    HALF_OPEN = "HalfOpen"


@dataclass(frozen=True, slots=True)
class Ruling:
    """What the breaker allows to be done about one node.

    Attributes:
        act: what may be done.
        why: the reason as text for users, for Hold and Yield; "" for others.
        charge: whether this act is new, so that the incident has to record it first (`charged`).
        cause: the cause to which the budget is charged, e.g. `agent/Xid79`.
        certain: whether the budget's part for certain faults is used.
        pool: the pool whose budget is used.
    """

    act: Act
    why: str = ""
    charge: bool = False
    cause: str = ""
    certain: bool = False
    pool: str = ""

    def charged(self, verdict: Verdict, now: datetime) -> Verdict:
        """Return the verdict as NodeHealth has to record it before this ruling is carried out.

        Args:
            verdict: on the node of the ruling.
            now: the time that the incident records.
        """
        if not self.charge:
            return verdict
        if self.act is Act.YIELD:
            return verdict.after_yielding(now)
        return verdict.after_taking_out(now, self.cause, self.certain, self.pool)


@dataclass(frozen=True, slots=True)
class PoolFigures:
    """The figures of one pool's breaker, for status texts and metrics.

    Attributes:
        pool: its name.
        state: of the pool's breaker.
        budget: how many nodes may be taken out per window, for all causes together.
        used: how many nodes were taken out within the window that ends now.
        cap: how many nodes may be out at the same time.
        out: how many nodes Muster has out now.
        held: how many unhealthy nodes the budget keeps in use.
        yields: how many nodes are left to other systems that repair them.
        held_yields: how many nodes other systems claim beyond the number that may be left to them.
        by_cause: for each cause, how many of the `held` nodes name it first.
    """

    pool: str
    state: BreakerState
    budget: int
    used: int
    cap: int
    out: int
    held: int
    yields: int = 0
    held_yields: int = 0
    by_cause: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Breaker:
    """The breaker's state and figures for status texts: the sums over all pools, and each pool that has something to
    report.

    Attributes:
        state: the worst of the pools' states: Open before HalfOpen before Closed.
        budget: how many nodes may be taken out per window.
        used: how many nodes were taken out within the window that ends now.
        cap: how many nodes may be out at the same time.
        out: how many nodes Muster has out now.
        held: how many nodes the budget keeps in use, with those that other systems claim beyond their number.
        next_try: when one of the held nodes may be taken out; None: none is held, or time alone frees none.
        message: the state as text for users; "" while no node is held.
        pools: the figures of each pool that has a node out, held or yielded, or a used budget.
    """

    state: BreakerState
    budget: int
    used: int
    cap: int
    out: int
    held: int
    next_try: datetime | None
    message: str
    pools: tuple[PoolFigures, ...] = ()


@dataclass(frozen=True, slots=True)
class Situation:
    """The facts about all nodes from which `rule` makes its rulings.

    Attributes:
        verdicts: by node, on nodes that exist. A node that is neither tainted nor `concerned` may be absent: nothing is
        ruled about it.
        tainted: names of the nodes that have Muster's taint.
        domains: by node, the path of its innermost domain; absent, or with an empty last part: the node is in none.
        gone: incidents of NodeHealth objects whose node does not exist; they count for the window.
        pools: by node, its pool; absent: the pool "".
        pool_sizes: by pool, its number of nodes; None: the nodes in `verdicts` are counted.
        sizes: by pool and domain path, the number of nodes; None: the nodes in `verdicts` are counted.
        ahead: for how many seconds each incident time in the future has been known; absent: it is new
        (`muster.health.ahead`).
    """

    verdicts: Mapping[str, Verdict]
    tainted: Collection[str] = frozenset()
    domains: Mapping[str, Sequence[str]] = field(default_factory=dict)
    gone: Iterable[HealthIncident] = ()
    pools: Mapping[str, str] = field(default_factory=dict)
    pool_sizes: Mapping[str, int] | None = None
    sizes: Mapping[tuple[str, tuple[str, ...]], int] | None = None
    ahead: Mapping[datetime, float] = field(default_factory=dict)


def concerned(verdict: Verdict) -> bool:
    """Whether the breaker has to know a node with this verdict: it is out, or Muster took it out before."""
    return verdict.out or any(incident.taken_out_time is not None for incident in verdict.record.incidents)


def held_back(ruling: Ruling) -> Ruling:
    """Return the ruling to use while the FleetPolicy cannot be read: no new node is taken out, no taint is removed."""
    if ruling.charge:
        return Ruling(Act.HOLD, "the FleetPolicy cannot be read, and Muster takes no node out until it can")
    return Ruling(Act.NOTHING) if ruling.act is Act.UNTAINT else ruling


def rule(situation: Situation, rules: Rules, now: datetime) -> tuple[dict[str, Ruling], Breaker]:
    """Return what may be done about each node in `situation.verdicts`, and the breaker's state.

    Where the policy only observes, the rulings show what would be done, and no budget is charged. So a later change of
    the policy finds the whole budget.

    Args:
        situation: the verdicts and counts of all nodes.
        rules: the fleet's policy, with the budgets.
        now: the time.

    Returns:
        The rulings by node, and the breaker's figures.
    """
    sizes = situation.pool_sizes
    if sizes is None:
        sizes = Counter(situation.pools.get(name, "") for name in situation.verdicts)
    own = pools_with_own_budget(sizes)
    size_of: Counter[str] = Counter()
    for pool, size in sizes.items():
        size_of[pool if pool in own else OTHERS] += size
    members: defaultdict[str, list[str]] = defaultdict(list)
    for name in situation.verdicts:
        pool = situation.pools.get(name, "")
        members[pool if pool in own else OTHERS].append(name)
    gone: defaultdict[str, list[HealthIncident]] = defaultdict(list)
    for incident in situation.gone:
        # An incident without a pool counts for every pool: it costs each of them one node for a window.
        for pool in (incident.pool if incident.pool in own else OTHERS,) if incident.pool else [*members]:
            gone[pool].append(incident)
    path_sizes = situation.sizes
    if path_sizes is None:
        path_sizes = Counter(
            (situation.pools.get(name, ""), tuple(path))
            for name, path in situation.domains.items()
            if name in situation.verdicts
        )

    rulings: dict[str, Ruling] = {}
    figures: list[PoolFigures] = []
    moments: list[datetime] = []
    for pool in sorted(members):
        books = _Pool(pool, size_of[pool], members[pool], gone[pool], path_sizes, situation, rules, now)
        rulings |= books.rule()
        if not books.is_quiet:
            figures.append(books.figures())
        moments += books.next_moments()
    return rulings, _summed(figures, min(moments, default=None), now, size_of, rules)


class _Charge(NamedTuple):
    """One time that Muster took a node out, as the budget counts it; charges sort by time."""

    time: datetime
    certain: bool = False
    cause: str = ""


_Domain = tuple[str, tuple[str, ...]]
"""A pool, and the path of an innermost domain."""
_Like = tuple[bool, tuple[str, ...], _Domain | None]
"""Nodes that wait for the same budget: whether their fault is certain, their causes and domain."""


class _Times:
    """The sorted times at which nodes were taken out by one budget."""

    def __init__(self, times: Iterable[datetime] = ()) -> None:
        self.all = sorted(times)

    def within(self, window: timedelta, until: datetime) -> int:
        """How many removals of nodes there were in the window that ends at this moment."""
        return bisect_right(self.all, until) - bisect_right(self.all, until - window)

    def after(self, moment: datetime) -> int:
        """How many removals of nodes there were after this moment."""
        return len(self.all) - bisect_right(self.all, moment)


@dataclass(frozen=True, slots=True)
class _Gate:
    """How many nodes one budget allows now.

    Attributes:
        room: this many nodes.
        is_open: whether the breaker of this budget is open, so that its pause counts and not the window alone.
        next: when the next node may pass, if none may now; None: one may now.
    """

    room: int
    is_open: bool
    next: datetime | None

    @classmethod
    def at_time(
        cls,
        waiting_since: Iterable[datetime],
        taken: _Times,
        tries: _Times,
        budget: int,
        window: timedelta,
        now: datetime,
    ) -> "_Gate":
        """Return how many of the nodes that wait for one budget may pass now.

        A node that could be taken out was taken out at once. So a node that waits, and became unhealthy while the
        budget was exhausted, shows that the breaker opened then. The nodes taken out since then were tries, and their
        number gives the pause.

        Args:
            waiting_since: since when each node has waited for this budget alone.
            taken: when nodes were taken out by this budget.
            tries: those of them that lengthen the pause.
            budget: how many nodes may be taken out per window.
            window: the length of the window.
            now: the time.
        """
        room = max(0, budget - taken.within(window, now))
        in_window = taken.all[bisect_right(taken.all, now - window) :]
        slot = in_window[len(in_window) - budget] + window if not room else None
        opened = min((since for since in waiting_since if taken.within(window, since) >= budget), default=None)
        if opened is None:
            return cls(room, False, slot)
        count = tries.after(opened)
        # 2 ** 16 windows are beyond any pause.
        seconds = min(window.total_seconds() * 2 ** min(count, 16), max(MAX_PAUSE_SECONDS, window.total_seconds()))
        ends = (tries.all[-1] if count else opened) + timedelta(seconds=seconds)
        if now < ends:
            return cls(0, True, max(ends, slot) if slot else ends)
        return cls(min(room, 1), True, slot)


class _Pool:
    """The state of one pool while its rulings are made."""

    def __init__(
        self,
        pool: str,
        size: int,
        names: Sequence[str],
        gone: Iterable[HealthIncident],
        path_sizes: Mapping[tuple[str, tuple[str, ...]], int],
        situation: Situation,
        rules: Rules,
        now: datetime,
    ) -> None:
        self.pool, self.size, self.now, self.rules = pool, size, now, rules
        self.budgets = rules.budgets
        self.window = timedelta(seconds=self.budgets.window_seconds)
        self.verdicts = {name: situation.verdicts[name] for name in names}
        self.tainted = situation.tainted
        self.per_window = self.budgets.in_window(size)
        self.cap = self.budgets.at_once(size)
        self.domains, self.pools = situation.domains, situation.pools
        self.domain_sizes = path_sizes
        self.gone, self.ahead = tuple(gone), situation.ahead
        self.out: dict[str, _Charge] = {}
        self.out_by: Counter[str] = Counter()  # cause -> nodes with an uncertain fault
        self.out_in: Counter[tuple[str, tuple[str, ...]]] = Counter()
        self.uncertain_in: Counter[tuple[str, tuple[str, ...]]] = Counter()
        self.uncertain_out = 0
        self.rulings: dict[str, Ruling] = {}
        self.waiting: list[str] = []
        self.blocked: dict[_Like, str] = {}  # of all that are alike, until another one is out
        self.yields = self.held_yields = 0
        self.state = BreakerState.CLOSED

    def rule(self) -> dict[str, Ruling]:
        """Return the ruling about each node of the pool, by node."""
        self._settle()
        if self.held_yields:
            self.state = BreakerState.OPEN
        if not self.waiting:
            return self.rulings
        # Certain faults come first. A taint without a record (a user has deleted it, or has ended a cordon) needs a
        # budget, but comes before nodes without the taint.
        self.waiting.sort(
            key=lambda n: (not self.verdicts[n].grounds.certain, n not in self.tainted, *_urgency(n, self.verdicts[n]))
        )
        gates = self._gates()
        if gates.is_open:
            self.state = BreakerState.OPEN
        for name in self.waiting:
            grounds = self.verdicts[name].grounds
            cause, why = self._payer(name, gates)
            if why:
                self.rulings[name] = Ruling(Act.HOLD, why)
                continue
            if gates.is_open:
                self.state = BreakerState.HALF_OPEN
            gates.pay(cause, grounds.certain)
            charge = _Charge(self.now, grounds.certain, cause)
            insort(self.charges, charge)
            self._put_out(name, charge)
            news = self.rules.enforcement is not Enforcement.OBSERVE
            self.rulings[name] = Ruling(Act.TAKE, "", news, cause, grounds.certain, self.pool if news else "")
        held = (name for name in self.waiting if self.rulings[name].act is Act.HOLD)
        if self.state is BreakerState.CLOSED and any(self._blocked(name, cap_only=True) for name in held):
            self.state = BreakerState.OPEN
        return self.rulings

    @property
    def is_quiet(self) -> bool:
        """Whether the pool has nothing to report: no node out, waiting or claimed, and no budget used."""
        return not (self.out or self.waiting or self.yields or self.held_yields or self.used)

    @property
    def used(self) -> int:
        """The number of nodes taken out within the window that ends now."""
        begin = self.now - self.window
        if not self.waiting:  # so none was taken just now
            return sum(time > begin for time, _ in self._taken())
        return len(self.charges) - bisect_right(self.charges, begin, key=attrgetter("time"))

    def figures(self) -> PoolFigures:
        """Return the pool's figures for status texts; call it after `rule`."""
        held = [name for name in self.waiting if self.rulings[name].act is Act.HOLD]
        by_cause = Counter(self.verdicts[name].grounds.causes[0] for name in held)
        return PoolFigures(
            self.pool,
            self.state if held or self.held_yields else BreakerState.CLOSED,
            self.per_window.total,
            self.used,
            self.cap.total,
            len(self.out),
            len(held),
            self.yields,
            self.held_yields,
            tuple(sorted(by_cause.items(), key=lambda item: (-item[1], item[0]))),
        )

    def next_moments(self) -> Iterator[datetime]:
        """Yield the moments at which a held node of the pool may be taken out by time alone; call it after `rule`."""
        held = [name for name in self.waiting if self.rulings[name].act is Act.HOLD]
        if not held:
            return
        self.waiting = held
        gates = self._gates()
        for name in held:
            if not self._blocked(name):
                moment = gates.opens_at(self.verdicts[name])
                if moment is not None and moment > self.now:
                    yield moment

    @cached_property
    def charges(self) -> list[_Charge]:
        """The times at which Muster took nodes of the pool out, as far as they count, oldest first.

        The list is long, so it is sorted only where a node waits for the budget.
        """
        return sorted(_Charge(time, incident.certain, incident.charged_to) for time, incident in self._taken())

    def _taken(self) -> Iterator[tuple[datetime, HealthIncident]]:
        """Yield the incidents for which Muster took nodes out, with the time of that.

        A node that was taken out again within the window counts once, by the last time: budgets are numbers of nodes,
        and one agent whose reports come and go must not use up what other nodes need.
        """
        for verdict in self.verdicts.values():
            later = None
            for incident in reversed(verdict.record.incidents):
                if incident.taken_out_time is not None:
                    time = self._time(incident.taken_out_time)
                    if later is None or later - time >= self.window:
                        yield time, incident
                    later = time
        for incident in self.gone:
            if incident.taken_out_time is not None:
                yield self._time(incident.taken_out_time), incident

    def _time(self, taken: datetime) -> datetime:
        """Return the time at which a removal counts: the recorded time, or, if that lies ahead, when it was first met.

        A recorded time ahead of now comes from a clock that is, or was, wrong.
        """
        met = self.now - timedelta(seconds=self.ahead[taken]) if taken in self.ahead else self.now
        return min(taken, met)

    def _settle(self) -> None:
        """Make the rulings that need no budget, count the nodes that are out, and collect the nodes that wait for the
        budget."""
        claimed = []
        used, untainted, taken = Ruling(Act.NOTHING), Ruling(Act.UNTAINT), Ruling(Act.TAKE)
        for name, verdict in self.verdicts.items():
            if not verdict.out:
                self.rulings[name] = untainted if name in self.tainted else used
                continue
            incident, grounds = verdict.open_incident, verdict.grounds
            acted = incident is not None and incident.taken_out_time is not None
            if grounds.stays and not acted:
                # `muster.health.silence` limits how many nodes that may be at once.
                self.rulings[name] = untainted if name in self.tainted else used
            elif acted or grounds.cordoned or grounds.only_planned:
                # This holds even if another system has begun a repair since: a taint should not come and go.
                self.rulings[name] = taken
                if acted and incident is not None:
                    self._put_out(name, _Charge(self.now, incident.certain, incident.charged_to))
            elif grounds.in_charge:
                claimed.append(name)
            else:
                self.waiting.append(name)
        self._settle_claimed(claimed)

    def _settle_claimed(self, claimed: list[str]) -> None:
        """Leave to other systems the nodes that they repair, up to a share of the pool.

        Nodes that were left to them before come first, then those out for longest. One innermost domain may exceed the
        share, because maintenance is done by the rack. A domain that is the whole pool may not, because it may as well
        be a mistake.

        Args:
            claimed: names of the nodes that other systems repair; sorted in place.
        """
        claimed.sort(key=lambda name: (not self._was_yielded(name), _began(self.verdicts[name], self.now), name))
        most = self.budgets.repaired_by_others(self.size)
        left: set[tuple[str, tuple[str, ...]] | None] = set()
        for name in claimed:
            grounds, domain = self.verdicts[name].grounds, self._domain(name)
            one_rack = domain is not None and left <= {domain} and self.domain_sizes.get(domain, 0) < self.size
            if self._was_yielded(name) or self.yields < most or one_rack:
                self.yields += 1
                left.add(domain)
                news = not self._was_yielded(name) and self.rules.enforcement is not Enforcement.OBSERVE
                self.rulings[name] = Ruling(Act.YIELD, f"{grounds.in_charge} repairs the node", news)
            elif grounds.certain:
                self.waiting.append(name)  # a certain fault counts whatever others claim
            else:
                self.held_yields += 1
                self.rulings[name] = Ruling(
                    Act.HOLD,
                    f"{grounds.in_charge} claims too many nodes of the pool at once: Muster leaves at most {most} to "
                    "other systems",
                )

    def _was_yielded(self, name: str) -> bool:
        incident = self.verdicts[name].open_incident
        return incident is not None and incident.yielded_time is not None

    def _put_out(self, name: str, charge: _Charge) -> None:
        self.out[name] = charge
        self.blocked.clear()
        domain = self._domain(name)
        if domain is not None:
            self.out_in[domain] += 1
        if not charge.certain:
            self.uncertain_out += 1
            self.out_by[charge.cause] += 1
            if domain is not None:
                self.uncertain_in[domain] += 1

    def _domain(self, name: str) -> _Domain | None:
        """Return the node's innermost domain within the pool; None: the node is in none."""
        path = self.domains.get(name)
        return (self.pools.get(name, ""), tuple(path)) if path and all(path) else None

    def _blocked(self, name: str, *, cap_only: bool = False) -> str:
        """Return why only the return of other nodes, and no time, lets this node be taken out; "" if time does.

        The text has no figures that change, so that it stays the same while the reason lasts.

        Args:
            name: of the node.
            cap_only: leave the limit of the topology domain out.
        """
        grounds = self.verdicts[name].grounds
        like = (grounds.certain, grounds.causes, None if cap_only else self._domain(name))
        found = self.blocked.get(like)
        if found is None:
            found = self.blocked[like] = self._blocks(*like)
        return found

    def _blocks(self, certain: bool, causes: Sequence[str], domain: _Domain | None) -> str:
        cap = self.cap.total if certain else self.cap.uncertain
        if len(self.out) >= self.cap.total or (not certain and self.uncertain_out >= cap):
            kept = "" if certain or cap == self.cap.total else " for uncertain faults"
            return (
                f"of the pool's {self.size} nodes, at most {cap} may be out{kept} ({self.cap.total} in all): {_REMEDY}"
            )
        if not certain and all(self._is_used_up(cause) for cause in causes):
            return (
                f"of the pool's {self.size} nodes, at most {self.cap.cause} may be out for {causes[0]} "
                f"({self.cap.uncertain} for all uncertain faults): {_REMEDY}"
            )
        if domain is None:
            return ""
        size = self.domain_sizes[domain]
        share = self.budgets.in_domain(size)
        most = share.total if certain else share.uncertain
        if self.out_in[domain] >= share.total or (not certain and self.uncertain_in[domain] >= most):
            kept = "" if certain or most == share.total else " for uncertain faults"
            return f"of the pool's {size} nodes in {'/'.join(domain[1])}, at most {most} may be out{kept}"
        return ""

    def _is_used_up(self, cause: str) -> bool:
        return self.out_by[cause] >= self.cap.cause

    def _payer(self, name: str, gates: "_Gates") -> tuple[str, str]:
        """Return the cause to which the removal of a node is charged, and why none can be charged; one of the two is
        ""."""
        grounds = self.verdicts[name].grounds
        why = self._blocked(name)
        if why:
            return "", why
        causes = [cause for cause in grounds.causes if grounds.certain or not self._is_used_up(cause)]
        paid = next((cause for cause in causes if gates.lets(cause, grounds.certain)), None)
        if paid is not None:
            return paid, ""
        seconds = self.budgets.window_seconds
        if grounds.certain:
            return "", f"the budget of {_nodes(self.per_window.total)} of the pool in {seconds} s is exhausted"
        most, whose = self.per_window.uncertain, "uncertain faults"
        if gates.lets_uncertain:
            most, whose = self.per_window.cause, causes[0]
        return "", (
            f"the budget of {_nodes(most)} in {seconds} s for {whose} is exhausted ({self.per_window.total} of the "
            f"pool's {self.size} nodes for all faults)"
        )

    def _gates(self) -> "_Gates":
        """Return how many nodes each budget of the pool allows now.

        The narrow budgets are computed first: a node that waits for a narrow budget does not wait for a wide one.
        """
        able = [name for name in self.waiting if not self._blocked(name)]
        sure = [name for name in able if self.verdicts[name].grounds.certain]
        unsure = [name for name in able if not self.verdicts[name].grounds.certain]
        uncertain = [charge for charge in self.charges if not charge.certain]
        times = _Times(charge.time for charge in self.charges)
        tries = _Times(charge.time for charge in self.charges if charge.certain)
        of_uncertain = _Times(charge.time for charge in uncertain)
        by_cause: defaultdict[str, list[str]] = defaultdict(list)
        for name in unsure:
            for cause in self.verdicts[name].grounds.causes:
                by_cause[cause].append(name)
        charged: defaultdict[str, list[datetime]] = defaultdict(list)
        for charge in uncertain:
            charged[charge.cause].append(charge.time)
        causes = {}
        for cause, names in by_cause.items():
            taken = _Times(charged[cause])
            causes[cause] = self._gate(names, taken, taken, self.per_window.cause)
        up = [name for name in unsure if any(causes[cause].room for cause in self.verdicts[name].grounds.causes)]
        return _Gates(
            total=self._gate((), times, times, self.per_window.total),
            certain=self._gate(sure, times, tries, self.per_window.total),
            uncertain=self._gate(up, of_uncertain, of_uncertain, self.per_window.uncertain),
            causes=causes,
        )

    def _gate(self, names: Iterable[str], taken: _Times, tries: _Times, budget: int) -> _Gate:
        since = {_began(self.verdicts[name], self.now) for name in names}
        return _Gate.at_time(since, taken, tries, budget, self.window, self.now)


class _Gates:
    """What is left of a pool's budgets while its rulings are made, one node after the other."""

    def __init__(self, total: _Gate, certain: _Gate, uncertain: _Gate, causes: Mapping[str, _Gate]) -> None:
        self._total, self._certain, self._uncertain, self._causes = total, certain, uncertain, causes
        self._room_total, self._room_certain, self._room_uncertain = total.room, certain.room, uncertain.room
        self._room = {cause: gate.room for cause, gate in causes.items()}
        self.is_open = any(gate.is_open for gate in (certain, uncertain, *causes.values()))

    @property
    def lets_uncertain(self) -> bool:
        """Whether the budgets let any node with an uncertain fault be taken out."""
        return self._room_uncertain > 0 and self._room_total > 0

    def lets(self, cause: str, certain: bool) -> bool:
        """Whether the budgets let one more node be taken out for this cause.

        Args:
            cause: of the fault; not used where the fault is certain.
            certain: whether the fault is certain.
        """
        if certain:
            return self._room_certain > 0 and self._room_total > 0
        return self.lets_uncertain and self._room.get(cause, 0) > 0

    def pay(self, cause: str, certain: bool) -> None:
        """Take one node off the budgets for this cause, as one more node is taken out."""
        self._room_total -= 1
        if certain:
            self._room_certain -= 1
        else:
            self._room_uncertain -= 1
            self._room[cause] -= 1

    def opens_at(self, verdict: Verdict) -> datetime | None:
        """Return when the budgets allow a held node with this verdict by time alone; None: they do now."""
        grounds = verdict.grounds
        if grounds.certain:
            return _latest(self._total, self._certain)
        own = [moment for cause in grounds.causes if (moment := _latest(self._causes[cause])) is not None]
        others = _latest(self._total, self._uncertain)
        if len(own) < len(grounds.causes) or not own:  # one of its causes has room
            return others
        return max(min(own), others) if others is not None else min(own)


def _latest(*gates: _Gate) -> datetime | None:
    """Return when all of these budgets allow a node; None: all do now."""
    return max((gate.next for gate in gates if not gate.room and gate.next is not None), default=None)


def _urgency(name: str, verdict: Verdict) -> tuple[bool, float, str]:
    incident = verdict.open_incident
    return not verdict.grounds.fatal, incident.time.timestamp() if incident else 0.0, name


def _began(verdict: Verdict, now: datetime) -> datetime:
    return min(verdict.open_incident.time, now) if verdict.open_incident else now


def _nodes(count: int) -> str:
    return f"{count} node{'s' * (count != 1)}"


_WORST = (BreakerState.OPEN, BreakerState.HALF_OPEN, BreakerState.CLOSED)


def _summed(
    pools: Sequence[PoolFigures], next_try: datetime | None, now: datetime, sizes: Mapping[str, int], rules: Rules
) -> Breaker:
    held = sum(pool.held + pool.held_yields for pool in pools)
    shares = [(rules.budgets.in_window(size), rules.budgets.at_once(size)) for size in sizes.values() if size > 0]
    return Breaker(
        state=min((pool.state for pool in pools), key=_WORST.index, default=BreakerState.CLOSED),
        budget=sum(window.total for window, _ in shares),
        used=sum(pool.used for pool in pools),
        cap=sum(cap.total for _, cap in shares),
        out=sum(pool.out for pool in pools),
        held=held,
        next_try=next_try if held else None,
        message=_message(pools, next_try, now) if held else "",
        pools=tuple(sorted(pools, key=attrgetter("pool"))),
    )


def _message(pools: Iterable[PoolFigures], next_try: datetime | None, now: datetime) -> str:
    parts = []
    for pool in pools:
        where = f" of pool {pool.pool!r}" if pool.pool else ""
        if pool.held:
            what = ", ".join(f"{cause}: {count}" for cause, count in pool.by_cause[:4])
            parts.append(
                f"The budget keeps {pool.held} unhealthy node{'s' * (pool.held != 1)}{where} in use ({what}): Muster "
                f"took out {pool.used} of {pool.budget} nodes in this window; {pool.out} of at most {pool.cap} are out."
            )
        if pool.held_yields:
            parts.append(
                f"Other systems claim {_nodes(pool.held_yields)}{where} for repair beyond the budget; Muster has left "
                f"{pool.yields} to them. If this is maintenance, raise the budget for RepairByOthers in "
                "spec.health.budgets of the FleetPolicy."
            )
    parts.append("New workers are placed on these nodes only where no other node is left.")
    if next_try and next_try > now:
        parts.append(f"Muster takes the next node out at {next_try:%Y-%m-%d %H:%M:%S} UTC.")
    if any(pool.state is not BreakerState.CLOSED for pool in pools):
        parts.append(
            "So many nodes at once usually have one cause: look for what they share (a roll-out, a driver, a switch, "
            "the monitor itself). If the nodes are really unhealthy, raise spec.health.budgets of the FleetPolicy."
        )
    return " ".join(parts)

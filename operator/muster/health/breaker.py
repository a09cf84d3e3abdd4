"""The circuit breaker of health: how many of the unhealthy nodes Muster takes out.

It protects the fleet from a rule, a driver or a monitor that reports every node as unhealthy.

A verdict alone takes no node out. Muster evacuates a node (and taints it, where the policy asks for that) only within
budgets. Each pool of like nodes has a budget per window and one for all nodes that are out at the same time. Each
innermost domain has a budget of the pool's nodes there. At least one node may always be taken out. A part of each
budget is reserved for certain faults. No single cause may exhaust the rest, so that a false alarm leaves room for other
causes (`muster.health.remaining`). New workers are placed on a held node only where no other node is left, and never
where its fault is certain (`muster.health.effects`). The status and an Event report that.

The breaker is open while a budget holds nodes (`muster.health.held`). Once a window's budget is exhausted and more
nodes become unhealthy, it tries one node at a time (`muster.health.window_budgets`). Its state is not stored. It
follows from the incidents in NodeHealth and from the taints on nodes, so that a restart loses nothing. An incident
records when it began, and when and for which cause Muster acted. An action is written into its incident before it is
done (`Verdict.after_taking_out`), and is not counted again when it is repeated.

Muster leaves a node to another system that claims to repair it, without a charge, but not a whole pool at once
(`muster.health.yields`).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from muster.api.fleetpolicy import Enforcement
from muster.health.figures import Breaker, ExhaustedBudget, PoolFigures, breaker_of
from muster.health.held import exhausted_budget, why_held
from muster.health.remaining import Candidate, Choices, Disruption, Remaining, Span
from muster.health.rulings import Act, Ruling
from muster.health.situation import BudgetPool, Situation, budget_pools
from muster.health.sources import Rules
from muster.health.verdict import Verdict
from muster.health.window_budgets import Charge, Times, Window, charges_on_record
from muster.health.yields import Claim, YieldLimit, rule_claims

_USED, _UNTAINTED, _TAKEN = Ruling(Act.NOTHING), Ruling(Act.UNTAINT), Ruling(Act.TAKE)
_UNREADABLE = Ruling(Act.HOLD, "its NodeHealth cannot be read, so that Muster cannot record that it takes the node out")


def rule(situation: Situation, rules: Rules, now: datetime) -> tuple[dict[str, Ruling], Breaker]:
    """Return what may be done about each node in `situation.verdicts`, and the breaker's figures.

    In pools where the policy only observes, the rulings show what would be done, and no budget is charged. So a later
    change of the policy finds the whole budget.

    Args:
        situation: the verdicts and counts of all nodes.
        rules: the fleet's policy, with the budgets.
        now: the time.

    Returns:
        The rulings by node, and the breaker's figures.
    """
    ruled, rulings = [], dict[str, Ruling]()
    for pool in budget_pools(situation, lambda name: rules.of_pool(name).budgets):
        length = timedelta(seconds=pool.limits.budgets.window_seconds)
        ruled_pool = _rule_pool(pool, Window(length, now, situation.ahead))
        ruled.append(ruled_pool)
        is_observed = rules.of_pool(pool.name).enforcement is Enforcement.OBSERVE
        rulings |= _without_charges(ruled_pool.rulings) if is_observed else ruled_pool.rulings
    moments = [pool.next_try for pool in ruled if pool.next_try is not None]
    figures = [pool.figures for pool in ruled]
    breaker = breaker_of(figures, min(moments, default=None), now, lambda name: rules.of_pool(name).budgets.path)
    return rulings, breaker


def _without_charges(rulings: Mapping[str, Ruling]) -> dict[str, Ruling]:
    return {
        name: replace(ruling, charge=False, pool="") if ruling.charge else ruling for name, ruling in rulings.items()
    }


@dataclass(frozen=True, slots=True)
class _RuledPool:
    """What is ruled about one pool.

    Attributes:
        rulings: by node.
        figures: of the pool's breaker.
        next_try: when time alone lets one of its held nodes be taken out; None: never.
    """

    rulings: Mapping[str, Ruling]
    figures: PoolFigures
    next_try: datetime | None


@dataclass(frozen=True, slots=True)
class _Settled:
    """What is clear about a pool's nodes before any budget is asked.

    Attributes:
        rulings: by node, about all but those below.
        yields: by node that another system claims, the rulings about these.
        out: the disruptions of the nodes that are out.
        waiting: the nodes that need the budgets, in the order in which these are asked.
    """

    rulings: Mapping[str, Ruling]
    yields: Mapping[str, Ruling]
    out: Sequence[Disruption]
    waiting: Sequence[Candidate]


@dataclass(frozen=True, slots=True)
class _Paid:
    """What the budgets pay for.

    Attributes:
        rulings: by node that waited.
        out: the new disruptions.
        held: the nodes that wait on.
        held_by: the budget that holds each of these.
    """

    rulings: Mapping[str, Ruling]
    out: Sequence[Disruption]
    held: Sequence[Candidate]
    held_by: Sequence[ExhaustedBudget]


def _rule_pool(pool: BudgetPool, window: Window) -> _RuledPool:
    settled = _settle(pool, window)
    charges = list(charges_on_record(pool.verdicts, pool.gone, window))
    paid = _pay(pool, settled.waiting, pool.limits.remaining(settled.out, charges, settled.waiting, window))
    out = [*settled.out, *paid.out]
    charges += [
        Charge(window.now, name, ruling.certain, ruling.cause) for name, ruling in paid.rulings.items() if ruling.charge
    ]
    after = pool.limits.remaining(out, charges, paid.held, window)
    claims = Counter(ruling.act for ruling in settled.yields.values())
    by_cause = Counter(candidate.choices[0].cause for candidate in paid.held)
    figures = PoolFigures(
        pool=pool.name,
        budget=pool.limits.share(Span.WINDOW).total,
        used=Times.of_charges(charges, window).within(window.length, window.now),
        cap=pool.limits.share(Span.AT_ONCE).total,
        out=len(out),
        held=len(paid.held),
        yields=claims[Act.YIELD],
        held_yields=claims[Act.HOLD],
        by_cause=tuple(sorted(by_cause.items(), key=lambda item: (-item[1], item[0]))),
        by_budget=tuple(Counter(paid.held_by).most_common()),
    )
    return _RuledPool(
        {**settled.rulings, **settled.yields, **paid.rulings}, figures, _next_try(after, paid.held, window.now)
    )


def _pay(pool: BudgetPool, waiting: Iterable[Candidate], left: Remaining) -> _Paid:
    """Have the budgets pay for the nodes that wait, one after the other, as long as they have room."""
    rulings, out, held, held_by = dict[str, Ruling](), list[Disruption](), list[Candidate](), list[ExhaustedBudget]()
    refused: dict[Choices, tuple[ExhaustedBudget, Ruling]] = {}  # of all alike, until the budgets pay for another one
    for candidate in waiting:
        choices = candidate.choices
        disruption = None if choices in refused else left.payer(choices)
        if disruption is not None:
            rulings[candidate.name] = Ruling(Act.TAKE, "", True, disruption.cause, disruption.certain, pool.name)
            out.append(disruption)
            left = left.after(disruption)
            refused.clear()
        else:
            if choices not in refused:
                budget = exhausted_budget(choices, left, pool.limits)
                refused[choices] = budget, Ruling(Act.HOLD, why_held(budget, pool.limits.budgets.path))
            budget, rulings[candidate.name] = refused[choices]
            held.append(candidate)
            held_by.append(budget)
    return _Paid(rulings, out, held, held_by)


def _next_try(after: Remaining, held: Sequence[Candidate], now: datetime) -> datetime | None:
    """Return when time alone lets one of the held nodes be taken out; None: never."""
    alike = {candidate.choices for candidate in held}
    moments = [after.opens_at(choices) for choices in alike if not after.waits_for_others(choices)]
    return min((moment for moment in moments if moment is not None and moment > now), default=None)


def _settle(pool: BudgetPool, window: Window) -> _Settled:
    """Make the rulings that need no budget, count the nodes that are out, and collect the nodes that wait for the
    budgets."""
    rulings, out, claimed, waiting = dict[str, Ruling](), list[Disruption](), list[str](), list[str]()
    situation = pool.situation
    for name, verdict in pool.verdicts.items():
        incident, grounds = verdict.open_incident, verdict.grounds
        acted = incident is not None and incident.taken_out_time is not None
        # What was charged for a record that cannot be read was never done, unless it is on the record that was read.
        acted = acted and (name not in situation.unreadable or name in situation.uncleared)
        if not verdict.out or (grounds.stays and not acted):
            # `muster.health.silence` limits how many nodes may stay out so at once.
            rulings[name] = _UNTAINTED if name in situation.tainted else _USED
            # Its place is free once its return is on record.
            if (incident := situation.uncleared.get(name)) is not None:
                out.append(Disruption(incident.certain, incident.charged_to, pool.domains.get(name)))
        elif acted or grounds.cordoned or grounds.only_planned:
            # This holds even if another system has begun a repair since: a taint should not come and go.
            rulings[name] = _TAKEN
            if acted and incident is not None:
                out.append(Disruption(incident.certain, incident.charged_to, pool.domains.get(name)))
        elif name in situation.unreadable and not _was_yielded(verdict):
            rulings[name] = _UNREADABLE
        else:
            (claimed if grounds.in_charge else waiting).append(name)
    yields = _rule_claimed(pool, claimed, window.now)
    waiting += [name for name in claimed if name not in yields]
    waiting.sort(key=lambda name: _urgency(name, pool))
    return _Settled(rulings, yields, out, [_candidate(name, pool, window.now) for name in waiting])


def _rule_claimed(pool: BudgetPool, claimed: Sequence[str], now: datetime) -> dict[str, Ruling]:
    """Return the rulings about nodes that other systems repair.

    Nodes that were left to them before come first, then those out for longest.
    """
    claims = []
    for name in claimed:
        verdict, grounds = pool.verdicts[name], pool.verdicts[name].grounds
        claims.append(Claim(name, grounds.in_charge, grounds.certain, pool.domains.get(name), _was_yielded(verdict)))
    claims.sort(key=lambda claim: _precedence(claim, pool, now))
    limits = pool.limits
    most = limits.budgets.repaired_by_others(limits.size)
    return rule_claims(claims, YieldLimit(most, limits.size, limits.domain_sizes))


def _was_yielded(verdict: Verdict) -> bool:
    """Whether the node is on record as left to the system that repairs it now."""
    incident = verdict.open_incident
    return bool(verdict.grounds.in_charge) and incident is not None and incident.yielded_time is not None


def _precedence(claim: Claim, pool: BudgetPool, now: datetime) -> tuple[bool, bool, datetime, str]:
    """Return the sort key of a claim: nodes left to others before come first, those whose record was refused last."""
    began = _began(pool.verdicts[claim.name], now)
    return not claim.was_yielded, claim.name in pool.situation.refused, began, claim.name


def _candidate(name: str, pool: BudgetPool, now: datetime) -> Candidate:
    grounds, domain = pool.verdicts[name].grounds, pool.domains.get(name)
    choices = tuple(Disruption(grounds.certain, cause, domain) for cause in grounds.causes)
    return Candidate(name, _began(pool.verdicts[name], now), choices)


def _urgency(name: str, pool: BudgetPool) -> tuple[bool, bool, bool, bool, float, str]:
    """Return the sort key of a node that waits: certain faults come first, and of equals the nodes out for longest.

    A node whose record was refused comes after all others, however grave its fault. While it is refused it cannot be
    taken out, and the place that it holds is of no use. A held node is recorded, too: that succeeds as soon as the API
    server takes its record again. A taint without a record (a user has deleted it, or has ended a cordon) needs a
    budget, but comes before nodes without the taint.
    """
    grounds, incident, situation = pool.verdicts[name].grounds, pool.verdicts[name].open_incident, pool.situation
    began = incident.time.timestamp() if incident else 0.0
    return name in situation.refused, not grounds.certain, name not in situation.tainted, not grounds.fatal, began, name


def _began(verdict: Verdict, now: datetime) -> datetime:
    return min(verdict.open_incident.time, now) if verdict.open_incident else now

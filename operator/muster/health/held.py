"""Says which budget keeps an unhealthy node in use.

The text has no figures that change, so that it stays the same while the reason lasts.

Tests: tests/unit/health/test_breaker.py, tests/unit/health/test_budgets.py.
"""

from muster.health.figures import BudgetKind, ExhaustedBudget
from muster.health.remaining import Budget, Choices, Limits, Part, Remaining, Span
from muster.world.names import nodes_text


def exhausted_budget(choices: Choices, left: Remaining, limits: Limits) -> ExhaustedBudget:
    """Return the budget that does not let a node be taken out.

    Args:
        choices: the disruptions that would take the node out.
        left: what remains of the budgets.
        limits: the budgets of the node's pool.
    """
    domain = choices[0].domain
    if left.is_used_up(Span.AT_ONCE, choices):
        return ExhaustedBudget(BudgetKind.AT_ONCE, _too_many_out(choices, left, limits))
    if domain is not None and left.is_used_up(domain, choices):
        return ExhaustedBudget(BudgetKind.DOMAIN, _too_many_in_domain(choices, limits))
    return ExhaustedBudget(BudgetKind.WINDOW, _window_exhausted(choices, left, limits))


def why_held(budget: ExhaustedBudget, path: str) -> str:
    """Return, as text for users of a node, why this budget does not let it be taken out; with the remedy, where time
    alone does not help.

    Args:
        budget: that holds the node.
        path: the field of the FleetPolicy that has it.
    """
    if budget.kind is BudgetKind.WINDOW:
        return budget.limit
    return f"{budget.limit}: find what they share, or raise {path}"


def _too_many_out(choices: Choices, left: Remaining, limits: Limits) -> str:
    cap, first = limits.share(Span.AT_ONCE), choices[0]
    most = cap.total if first.certain else cap.uncertain
    part = Part.CERTAIN if first.certain else Part.UNCERTAIN
    if not all(left.has_room(Budget(Span.AT_ONCE, budget_part)) for budget_part in (Part.ALL, part)):
        kept = "" if most == cap.total else " for uncertain faults"
        return f"at most {most} of the pool's {limits.size} nodes may be out{kept} ({cap.total} in all)"
    return (
        f"at most {cap.cause} of the pool's {limits.size} nodes may be out for {first.cause} "
        f"({cap.uncertain} for all uncertain faults)"
    )


def _too_many_in_domain(choices: Choices, limits: Limits) -> str:
    first = choices[0]
    assert first.domain is not None
    share = limits.share(first.domain)
    most = share.total if first.certain else share.uncertain
    kept = "" if most == share.total else " for uncertain faults"
    size, path = limits.domain_sizes[first.domain], "/".join(first.domain[1])
    return f"at most {most} of the pool's {size} nodes in {path} may be out{kept}"


def _window_exhausted(choices: Choices, left: Remaining, limits: Limits) -> str:
    share, first, seconds = limits.share(Span.WINDOW), choices[0], limits.budgets.window_seconds
    if first.certain:
        return f"the budget of {nodes_text(share.total)} of the pool in {seconds} s is exhausted"
    most, cause_text = share.uncertain, "uncertain faults"
    if all(left.has_room(Budget(Span.WINDOW, part)) for part in (Part.ALL, Part.UNCERTAIN)):
        most, cause_text = share.cause, first.cause
    return (
        f"the budget of {nodes_text(most)} in {seconds} s for {cause_text} is exhausted ({share.total} of the "
        f"pool's {limits.size} nodes for all faults)"
    )

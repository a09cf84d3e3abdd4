"""How many nodes of a pool the FleetPolicy lets Muster take out: the list `spec.health.budgets` as numbers of nodes.

Of the budgets that bound the same thing the smallest counts. A percentage is rounded up, as karpenter does it, so that
at least one node may always be taken out.
"""

from collections.abc import Collection
from dataclasses import dataclass

from muster.api.fleetpolicy import BudgetReason, BudgetScope, DisruptionBudget

_WINDOW_SECONDS = 600
"""The breaker's first pause where no budget has a window."""


@dataclass(frozen=True, slots=True)
class Share:
    """What the budgets of one kind allow, in nodes.

    Attributes:
        total: for all faults together.
        uncertain: for faults that are not certain. Where they have a budget of their own, one node of `total` is beyond
            it.
        cause: for one cause of faults that are not certain.
    """

    total: int
    uncertain: int
    cause: int


@dataclass(frozen=True, slots=True)
class Budgets:
    """The budgets of a FleetPolicy.

    Attributes:
        window_seconds: the window in which nodes are counted, and the first pause of the breaker.
    """

    _budgets: tuple[DisruptionBudget, ...]
    window_seconds: int

    @classmethod
    def from_policy(cls, budgets: Collection[DisruptionBudget]) -> "Budgets":
        """The CRD lets all budgets with a window have the same one; without any, nothing is counted by window."""
        windows = [budget.window_seconds for budget in budgets if budget.window_seconds is not None]
        return cls(tuple(budgets), min(windows, default=_WINDOW_SECONDS))

    def in_window(self, nodes: int) -> Share:
        """How many of a pool of so many nodes may be taken out within the window."""
        return self._share(nodes, BudgetScope.POOL, windowed=True)

    def at_once(self, nodes: int) -> Share:
        """How many of a pool of so many nodes may be out at the same time."""
        return self._share(nodes, BudgetScope.POOL, windowed=False)

    def in_domain(self, nodes: int) -> Share:
        """How many of a pool's so many nodes in one innermost topology domain may be out at the same time."""
        return self._share(nodes, BudgetScope.DOMAIN, windowed=False)

    def repaired_by_others(self, nodes: int) -> int:
        """How many of a pool of so many nodes may be left at the same time because other systems repair them."""
        return self._limit(nodes, BudgetReason.REPAIR_BY_OTHERS, windowed=False)

    def window_limit(self, nodes: int) -> int:
        """How many of a pool of so many nodes the window's budgets for all faults name."""
        return self._limit(nodes, None, windowed=True)

    def limit(self, nodes: int) -> int:
        """How many of a pool of so many nodes the budgets for all faults let be out at the same time."""
        return self._limit(nodes, None, windowed=False)

    def _share(self, nodes: int, scope: BudgetScope, *, windowed: bool) -> Share:
        total = self._smallest(nodes, scope, None, windowed=windowed)
        uncertain = self._smallest(nodes, scope, BudgetReason.UNCERTAIN_FAULT, windowed=windowed)
        if uncertain is None:
            total = uncertain = nodes if total is None else total
        else:
            uncertain = max(1, min(uncertain, nodes if total is None else total - 1))
            total = max(nodes if total is None else total, uncertain + 1)
        cause = self._smallest(nodes, BudgetScope.CAUSE, None, windowed=windowed) if scope is BudgetScope.POOL else None
        return Share(total, uncertain, uncertain if cause is None else min(cause, uncertain))

    def _limit(self, nodes: int, reason: BudgetReason | None, *, windowed: bool) -> int:
        """The smallest of a pool's budgets for this, in nodes; all nodes if there is none."""
        found = self._smallest(nodes, BudgetScope.POOL, reason, windowed=windowed)
        return nodes if found is None else found

    def _smallest(self, nodes: int, scope: BudgetScope, reason: BudgetReason | None, *, windowed: bool) -> int | None:
        """The smallest of the budgets for this, in nodes; None if there is none."""
        return min(
            (
                in_nodes(budget.nodes, nodes)
                for budget in self._budgets
                if budget.per is scope
                and (budget.window_seconds is not None) is windowed
                and (reason in budget.reasons if reason else not budget.reasons)
            ),
            default=None,
        )


def in_nodes(budget: str, nodes: int) -> int:
    """A number or a percentage of a pool of so many nodes, e.g. "4" or "10%"."""
    share = -(-nodes * int(budget[:-1]) // 100) if budget.endswith("%") else int(budget)
    return min(max(share, 1), nodes)

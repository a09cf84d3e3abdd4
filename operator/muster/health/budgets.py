"""How many nodes of a pool the FleetPolicy lets Muster take out: a list such as `spec.health.budgets` as numbers of
nodes.

The smallest of the budgets for the same thing counts. A percentage is rounded up, as karpenter does it, so that
at least one node may always be taken out.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from muster.api.fleetpolicy import BudgetReason, BudgetScope, DisruptionBudget, FleetPolicySpec

_WINDOW_SECONDS = 600
"""The breaker's first pause where no budget has a window."""
OF_FLEET = "spec.health.budgets"
"""The field of the FleetPolicy with the budgets of the fleet."""


@dataclass(frozen=True, slots=True)
class Share:
    """How many nodes the budgets of one kind allow to be taken out.

    Attributes:
        total: for all faults together.
        uncertain: for faults that are not certain. Where these have a budget of their own, it is at least one node less
        than `total`.
        cause: for one cause of faults that are not certain.
    """

    total: int
    uncertain: int
    cause: int


@dataclass(frozen=True, slots=True)
class Budgets:
    """The disruption budgets of a FleetPolicy, to be asked for numbers of nodes.

    Attributes:
        window_seconds: the window in which removals are counted, and the first pause of the breaker.
        path: the field of the FleetPolicy that has them.
    """

    _budgets: tuple[DisruptionBudget, ...]
    window_seconds: int
    path: str

    @classmethod
    def from_policy(cls, budgets: Collection[DisruptionBudget], path: str) -> "Budgets":
        """Return the budgets of the field `path` of a FleetPolicy.

        The CRD lets all budgets with a window have the same one. Without any, no removals are counted by window.
        """
        windows = [budget.window_seconds for budget in budgets if budget.window_seconds is not None]
        return cls(tuple(budgets), min(windows, default=_WINDOW_SECONDS), path)

    def in_window(self, nodes: int) -> Share:
        """How many nodes may be taken out within the window, of a pool with this number of nodes."""
        return self._share(nodes, BudgetScope.POOL, windowed=True)

    def at_once(self, nodes: int) -> Share:
        """How many nodes may be out at the same time, of a pool with this number of nodes."""
        return self._share(nodes, BudgetScope.POOL, windowed=False)

    def in_domain(self, nodes: int) -> Share:
        """How many nodes of one innermost topology domain may be out at the same time.

        Args:
            nodes: the number of the pool's nodes in the domain.
        """
        return self._share(nodes, BudgetScope.DOMAIN, windowed=False)

    def repaired_by_others(self, nodes: int) -> int:
        """How many nodes may be left to other systems that repair them at the same time, of a pool with this number of
        nodes."""
        return self._limit(nodes, BudgetReason.REPAIR_BY_OTHERS, windowed=False)

    def window_limit(self, nodes: int) -> int:
        """The smallest number of nodes that the windowed budgets for all faults allow, of a pool with this number of
        nodes."""
        return self._limit(nodes, None, windowed=True)

    def limit(self, nodes: int) -> int:
        """How many nodes the budgets for all faults let be out at the same time, of a pool with this number of
        nodes."""
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
        """Return the smallest of a pool's budgets, in nodes; all nodes of the pool if no budget applies.

        Args:
            nodes: the number of the pool's nodes.
            reason: the kind of fault; None: the budgets for all faults.
            windowed: whether the budgets with a window, or those without, are asked.
        """
        smallest = self._smallest(nodes, BudgetScope.POOL, reason, windowed=windowed)
        return nodes if smallest is None else smallest

    def _smallest(self, nodes: int, scope: BudgetScope, reason: BudgetReason | None, *, windowed: bool) -> int | None:
        """Return the smallest of the budgets that apply, in nodes; None if none applies.

        Args:
            nodes: the number of nodes of which the budgets are a share.
            scope: what the budgets count: a pool, a domain or a cause.
            reason: the kind of fault; None: the budgets for all faults.
            windowed: whether the budgets with a window, or those without, are asked.
        """
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


def budgets_by_entry(policy: FleetPolicySpec) -> Mapping[str, Budgets]:
    """Return the budgets of the fleet, by "", and those of each entry of `spec.pools` with `health`, by its name."""
    fleet = Budgets.from_policy(policy.health.budgets, OF_FLEET)
    budgets = {"": fleet}
    for pool in policy.pools:
        if pool.health is not None:
            own = pool.health.budgets
            path = f"spec.pools[{pool.name}].health.budgets"
            budgets[pool.name] = fleet if own is None else Budgets.from_policy(own, path)
    return budgets


def in_nodes(budget: str, nodes: int) -> int:
    """Return a budget as a number of nodes: at least one, at most all.

    Args:
        budget: a number or a percentage, e.g. "4" or "10%"; a percentage is rounded up.
        nodes: the number of nodes of which the budget is a share.
    """
    share = -(-nodes * int(budget[:-1]) // 100) if budget.endswith("%") else int(budget)
    return min(max(share, 1), nodes)

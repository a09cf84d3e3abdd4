"""The facts about all nodes from which the breaker rules, and the pools in which it counts them.

Tests: tests/unit/health/test_breaker.py, tests/unit/health/test_budgets.py.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from muster.api.nodehealth import HealthIncident
from muster.health.budgets import Budgets
from muster.health.pools import others_of, pools_with_own_budget
from muster.health.remaining import Domain, Limits
from muster.health.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Situation:
    """The facts about all nodes from which the breaker makes its rulings.

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
        uncleared: by node that Muster has out by its record, the incident there, whatever the verdict is by now.
        refused: names of the nodes whose last record the API server refused.
        unreadable: names of the nodes whose record cannot be read.
    """

    verdicts: Mapping[str, Verdict]
    tainted: Collection[str] = frozenset()
    domains: Mapping[str, Sequence[str]] = field(default_factory=dict)
    gone: Iterable[HealthIncident] = ()
    pools: Mapping[str, str] = field(default_factory=dict)
    pool_sizes: Mapping[str, int] | None = None
    sizes: Mapping[Domain, int] | None = None
    ahead: Mapping[datetime, float] = field(default_factory=dict)
    uncleared: Mapping[str, HealthIncident] = field(default_factory=dict)
    refused: Collection[str] = frozenset()
    unreadable: Collection[str] = frozenset()

    def pool_of(self, name: str) -> str:
        """Return the pool of a node."""
        return self.pools.get(name, "")


def concerned(verdict: Verdict) -> bool:
    """Whether the breaker has to know a node with this verdict: it is out, or Muster took it out before."""
    return verdict.out or any(incident.taken_out_time is not None for incident in verdict.record.incidents)


@dataclass(frozen=True, slots=True)
class BudgetPool:
    """Nodes that have budgets together.

    Attributes:
        name: of the pool.
        limits: the budgets as numbers of nodes.
        verdicts: by node of the pool.
        domains: by node that is out, its innermost domain within its pool of like nodes; absent: it is in none.
        gone: incidents of nodes of the pool that do not exist any more.
        situation: the facts about all nodes.
    """

    name: str
    limits: Limits
    verdicts: Mapping[str, Verdict]
    domains: Mapping[str, Domain]
    gone: Sequence[HealthIncident]
    situation: Situation


def budget_pools(situation: Situation, budgets_of: Callable[[str], Budgets]) -> list[BudgetPool]:
    """Return the pools in which the breaker counts the nodes: those with budgets of their own, and all others under
    the same policy together.

    Args:
        situation: the facts about all nodes.
        budgets_of: returns the budgets that the FleetPolicy sets for a pool.
    """
    sizes = situation.pool_sizes
    if sizes is None:
        sizes = Counter(map(situation.pool_of, situation.verdicts))
    own = pools_with_own_budget(sizes)
    size_of: Counter[str] = Counter()
    for pool, size in sizes.items():
        size_of[pool if pool in own else others_of(pool)] += size
    verdicts_by_pool: defaultdict[str, dict[str, Verdict]] = defaultdict(dict)
    for name, verdict in situation.verdicts.items():
        pool = situation.pool_of(name)
        verdicts_by_pool[pool if pool in own else others_of(pool)][name] = verdict
    domain_sizes, removed_incidents = _domain_sizes(situation), _gone(situation, own, verdicts_by_pool.keys())
    return [
        BudgetPool(
            pool,
            Limits(budgets_of(pool), size_of[pool], domain_sizes),
            verdicts := verdicts_by_pool.get(pool, {}),
            {
                name: (situation.pool_of(name), tuple(path))
                for name, verdict in verdicts.items()
                if (verdict.out or name in situation.uncleared) and (path := situation.domains.get(name)) and all(path)
            },
            removed_incidents[pool],
            situation,
        )
        for pool in sorted(verdicts_by_pool.keys() | {pool for pool, size in size_of.items() if size > 0})
    ]


def _domain_sizes(situation: Situation) -> Mapping[Domain, int]:
    if situation.sizes is not None:
        return situation.sizes
    return Counter(
        (situation.pool_of(name), tuple(path)) for name, path in situation.domains.items() if name in situation.verdicts
    )


def _gone(situation: Situation, own: Collection[str], pools: Collection[str]) -> Mapping[str, list[HealthIncident]]:
    """Return the incidents of nodes that do not exist any more, by the pool that they count for.

    An incident without a pool counts for every pool: it costs each of them one node for a window.

    Args:
        situation: the facts about all nodes.
        own: the pools with budgets of their own.
        pools: those that have a node with a verdict.
    """
    incidents_by_pool: defaultdict[str, list[HealthIncident]] = defaultdict(list)
    for incident in situation.gone:
        its = incident.pool if incident.pool in own else others_of(incident.pool)
        for pool in pools:
            if pool == its or not incident.pool:
                incidents_by_pool[pool].append(incident)
    return incidents_by_pool

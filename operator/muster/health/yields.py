"""Leaves nodes to other systems that repair them, but not a whole pool at once.

One label on every node is more often a mistake than maintenance.

Tests: tests/unit/health/test_budgets.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from muster.health.remaining import Domain
from muster.health.rulings import Act, Ruling


@dataclass(frozen=True, slots=True)
class Claim:
    """A node that another system says it repairs.

    Attributes:
        name: of the node.
        claimant: the other system.
        certain: whether the node's fault is certain, so that it counts whatever others claim.
        domain: of the node; None: it is in none.
        was_yielded: whether the node was left to the other system before.
    """

    name: str
    claimant: str
    certain: bool
    domain: Domain | None
    was_yielded: bool


@dataclass(frozen=True, slots=True)
class YieldLimit:
    """How many nodes of a pool may be left to others.

    Attributes:
        most: this many at the same time.
        size: the number of the pool's nodes.
        domain_sizes: by domain, the number of the pool's nodes there.
    """

    most: int
    size: int
    domain_sizes: Mapping[Domain, int]


def rule_claims(claims: Sequence[Claim], limit: YieldLimit) -> dict[str, Ruling]:
    """Return the rulings about claimed nodes, by node; a node with a certain fault beyond the limit is left out.

    One innermost domain may exceed the limit, because maintenance is done by the rack. A domain that is the whole pool
    may not, because it may as well be a mistake.

    Args:
        claims: those that come first are granted first.
        limit: how many may be granted.
    """
    rulings: dict[str, Ruling] = {}
    granted, domains = 0, set[Domain | None]()
    for claim in claims:
        is_one_rack = (
            claim.domain is not None
            and domains <= {claim.domain}
            and limit.domain_sizes.get(claim.domain, 0) < limit.size
        )
        if claim.was_yielded or granted < limit.most or is_one_rack:
            granted += 1
            domains.add(claim.domain)
            rulings[claim.name] = Ruling(Act.YIELD, f"{claim.claimant} repairs the node", not claim.was_yielded)
        elif not claim.certain:
            rulings[claim.name] = Ruling(
                Act.HOLD,
                f"{claim.claimant} claims too many nodes of the pool at once: Muster leaves at most {limit.most} to "
                "other systems",
            )
    return rulings

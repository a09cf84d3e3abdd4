"""What has to be put into force for which nodes: one decision about all of them, from what is known at one moment. Pure."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from muster.api.nodehealth import VerdictState
from muster.health.assess import Verdict
from muster.health.books import Books, Ground
from muster.health.breaker import Act, Breaker, Ruling, Situation, held_back, rule
from muster.health.effects import Effect, effect
from muster.health.sources import Rules

_NO_RULING = Ruling(Act.NOTHING)


@dataclass(frozen=True, slots=True)
class InForce:
    """What was last put into force for a node.

    Attributes:
        observed: what was told of what the policy only observes; "" nothing.
    """

    state: VerdictState | None
    reason: str
    effect: Effect
    observed: str = ""


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be put into force for a node.

    Attributes:
        verdict: as it is to be on record, the incident marked as acted on where that is news.
    """

    name: str
    verdict: Verdict
    ruling: Ruling
    effect: Effect


@dataclass(frozen=True, slots=True)
class View:
    """What one decision looks at.

    Attributes:
        nodes: names of those that there are.
        judged: those whose verdict, or record, is not what is in force.
        in_force: by node.
        under_way: what is being put into force, by node.
        policy_unknown: nobody knows what the policy says: nothing new is done by it.
    """

    now: datetime
    rules: Rules
    books: Books
    ground: Ground
    nodes: Collection[str]
    judged: Collection[str]
    in_force: Mapping[str, InForce]
    under_way: Mapping[str, Effect]
    policy_unknown: bool = False


def decide(view: View) -> tuple[list[Order], Breaker]:
    """What to put into force, who is sick first, and the breaker's state."""
    rulings, breaker = rule(_situation(view), view.rules, view.now)
    if view.policy_unknown:
        rulings = {name: held_back(ruling) for name, ruling in rulings.items()}
    return list(_orders(view, rulings)), breaker


def _orders(view: View, rulings: Mapping[str, Ruling]) -> Iterator[Order]:
    # A ruling can change without its node: the budget is everybody's.
    for name, ruling in rulings.items():
        order = _order(view, name, ruling)
        if name in view.judged or _is_news(view, order):
            yield order
    for name in view.judged:
        if name not in rulings and name in view.books.verdicts:
            yield _order(view, name, _NO_RULING)


def _order(view: View, name: str, ruling: Ruling) -> Order:
    verdict = view.books.verdicts[name]
    verdict = ruling.charged(verdict, view.now)
    wanted = effect(verdict, ruling, view.rules.enforcement)
    if view.policy_unknown:  # what it says of taints, too: they stay as they are
        wanted = replace(wanted, taint=name in view.ground.tainted)
    return Order(name, verdict, ruling, wanted)


def _is_news(view: View, order: Order) -> bool:
    """Whether something else has to be in force than is, or is about to be."""
    if order.name in view.under_way:
        return view.under_way[order.name] != order.effect
    known = view.in_force.get(order.name)
    tainted = order.name in view.ground.tainted
    return order.ruling.charge or known is None or known.effect != order.effect or order.effect.taint != tainted


def _situation(view: View) -> Situation:
    """Everything that a ruling can be about: what is out, what was, and what bears our taint."""
    books, ground = view.books, view.ground
    names = [name for name in books.concerned | ground.tainted if name in books.verdicts and name in view.nodes]
    return Situation(
        verdicts={name: books.verdicts[name] for name in names},
        tainted=ground.tainted,
        domains={name: ground.domains[name] for name in names},
        pools={name: ground.pools[name] for name in names},
        gone=[i for name, several in ground.incidents.items() if name not in view.nodes for i in several],
        pool_sizes=ground.pool_sizes,
        sizes=ground.sizes,
    )

"""What has to be put into force for which nodes: one decision about all of them, from what is known at one moment.
Pure."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
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
        ahead: for how many seconds times are known that lie ahead.
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
    ahead: Mapping[datetime, float] = field(default_factory=dict)


def decide(view: View) -> tuple[list[Order], Breaker]:
    """What to put into force, who is sick first, and the breaker's state."""
    rulings, breaker = rule(_situation(view), view.rules, view.now)
    if view.policy_unknown:
        rulings = {name: held_back(ruling) for name, ruling in rulings.items()}
    return list(_orders(view, rulings)), breaker


def _orders(view: View, rulings: Mapping[str, Ruling]) -> Iterator[Order]:
    # A ruling can change without its node: the budget is everybody's.
    for name, ruling in rulings.items():
        wanted = _wanted(view, name, ruling)
        if name in view.judged or _is_news(view, name, ruling, wanted):
            yield _order(view, name, ruling, wanted)
    for name in view.judged:
        if name not in rulings and name in view.books.verdicts:
            yield _order(view, name, _NO_RULING, _wanted(view, name, _NO_RULING))


def _wanted(view: View, name: str, ruling: Ruling) -> Effect:
    wanted = effect(view.books.verdicts[name], ruling, view.rules.enforcement)
    if view.policy_unknown:  # what it says of taints, too: they stay as they are
        return wanted._replace(taint=name in view.ground.tainted)
    return wanted


def _order(view: View, name: str, ruling: Ruling, wanted: Effect) -> Order:
    return Order(name, ruling.charged(view.books.verdicts[name], view.now), ruling, wanted)


def _is_news(view: View, name: str, ruling: Ruling, wanted: Effect) -> bool:
    """Whether something else has to be in force than is, or is about to be."""
    if name in view.under_way:
        return view.under_way[name] != wanted
    known = view.in_force.get(name)
    tainted = name in view.ground.tainted
    return ruling.charge or known is None or known.effect != wanted or wanted.taint != tainted


def _situation(view: View) -> Situation:
    """Everything that a ruling can be about: what is out, what was, and what bears our taint."""
    books, ground = view.books, view.ground
    names = [name for name in books.concerned | ground.tainted if name in books.verdicts and name in view.nodes]
    return Situation(
        verdicts={name: books.verdicts[name] for name in names},
        tainted=ground.tainted,
        domains=ground.domains,
        pools=ground.pools,
        gone=[i for name, several in ground.incidents.items() if name not in view.nodes for i in several],
        pool_sizes=ground.pool_sizes,
        sizes=ground.sizes,
        ahead=view.ahead,
    )

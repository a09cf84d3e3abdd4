"""The orders of health: what has to be put into force for which nodes, as one decision about all of them. Pure."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from muster.api.nodehealth import HealthIncident, VerdictState
from muster.health.breaker import rule
from muster.health.effects import Effect, effect
from muster.health.figures import Breaker
from muster.health.rulings import Act, Ruling, held_back
from muster.health.situation import Situation
from muster.health.sources import Rules
from muster.health.verdict import Verdict
from muster.health.verdict_index import NodeIndex, VerdictIndex

_NO_RULING = Ruling(Act.NOTHING)


@dataclass(frozen=True, slots=True)
class InForce:
    """What was last put into force for a node.

    Attributes:
        state: of the node's verdict; None: nothing was known.
        reason: of the verdict.
        effect: what Muster does about the node.
        observed: what was reported of findings that the policy only observes; "" if nothing.
    """

    state: VerdictState | None
    reason: str
    effect: Effect
    observed: str = ""


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be put into force for a node.

    Attributes:
        name: of the node.
        verdict: as NodeHealth has to record it, the incident marked where Muster newly acts on it.
        ruling: what the breaker allows.
        effect: what Muster does about the node.
    """

    name: str
    verdict: Verdict
    ruling: Ruling
    effect: Effect

    @property
    def outcome(self) -> InForce:
        """What is in force for the node once the order is carried out."""
        conclusion = self.verdict.conclusion
        return InForce(conclusion.state, conclusion.reason, self.effect, observed_effect(self.verdict))


def observed_effect(verdict: Verdict) -> str:
    """Return the effect that an order would have if the policy did not only observe, as text for comparison."""
    conclusion = verdict.conclusion
    return "" if conclusion.would is None else f"{conclusion.would.state}: {conclusion.would.reason}"


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What is known beside the verdicts when one decision about all nodes is made.

    Attributes:
        nodes: names of the nodes that exist.
        in_force: by node, what was last put into force.
        under_way: by node, what is being put into force.
        policy_unknown: whether the policy cannot be read: then no node is newly taken out.
        ahead: for how many seconds times that lie ahead have been known.
        refused: names of the nodes whose last record the API server refused.
        unreadable: names of the nodes whose record cannot be read, so that nothing is begun about them.
    """

    nodes: Collection[str]
    in_force: Mapping[str, InForce]
    under_way: Mapping[str, Effect]
    policy_unknown: bool = False
    ahead: Mapping[datetime, float] = field(default_factory=dict)
    refused: Collection[str] = frozenset()
    unreadable: Collection[str] = frozenset()


@dataclass(frozen=True, slots=True)
class View:
    """The facts from which one decision about all nodes is made.

    Attributes:
        now: the time.
        rules: the fleet's policy.
        verdict_index: the verdicts on all nodes, and counts of them.
        node_index: facts about all nodes that rulings need.
        judged: names of the nodes whose verdict or record is not what is in force.
        circumstances: what else is known.
    """

    now: datetime
    rules: Rules
    verdict_index: VerdictIndex
    node_index: NodeIndex
    judged: Collection[str]
    circumstances: Circumstances

    def rules_of(self, name: str) -> Rules:
        """Return the rules for a node: those of its pool."""
        return self.rules.of_pool(self.node_index.pools.get(name, ""))


def decide(view: View) -> tuple[list[Order], Breaker]:
    """Return the orders to put into force, for the gravest nodes first and equals by name, and the breaker's state."""
    rulings, breaker = rule(_situation(view), view.rules, view.now)
    if view.circumstances.policy_unknown:
        rulings = {name: held_back(ruling) for name, ruling in rulings.items()}
    return list(_orders(view, rulings)), breaker


def _orders(view: View, rulings: Mapping[str, Ruling]) -> Iterator[Order]:
    # A ruling can change without its node, because all nodes of a pool share the budget.
    for name, ruling in rulings.items():
        wanted = _wanted(view, name, ruling)
        if name in view.judged or _is_news(view, name, ruling, wanted):
            yield _order(view, name, ruling, wanted)
    for name in sorted(view.judged):
        if name not in rulings and name in view.verdict_index.verdicts:
            yield _order(view, name, _NO_RULING, _wanted(view, name, _NO_RULING))


def _wanted(view: View, name: str, ruling: Ruling) -> Effect:
    wanted = effect(view.verdict_index.verdicts[name], ruling, view.rules_of(name).enforcement)
    if view.circumstances.policy_unknown:  # the policy on taints is unknown, too, so taints stay as they are
        return wanted._replace(taint=name in view.node_index.tainted)
    return wanted


def _order(view: View, name: str, ruling: Ruling, wanted: Effect) -> Order:
    return Order(name, ruling.charged(view.verdict_index.verdicts[name], view.now), ruling, wanted)


def _is_news(view: View, name: str, ruling: Ruling, wanted: Effect) -> bool:
    """Whether the effect wanted for a node is not in force, nor being put into force.

    Args:
        view: the facts of the decision.
        name: of the node.
        ruling: what the breaker allows.
        wanted: what Muster should do about the node.
    """
    if name in view.circumstances.under_way:
        return view.circumstances.under_way[name] != wanted
    in_force = view.circumstances.in_force.get(name)
    tainted = name in view.node_index.tainted
    return ruling.charge or in_force is None or in_force.effect != wanted or wanted.taint != tainted


def _situation(view: View) -> Situation:
    """Return the breaker's view of the fleet: the nodes that are out, were out, or bear Muster's taint, and the
    counts."""
    verdicts, node_index = view.verdict_index.verdicts, view.node_index
    candidates = view.verdict_index.concerned | node_index.tainted
    names = [name for name in sorted(candidates) if name in verdicts and name in view.circumstances.nodes]
    return Situation(
        verdicts={name: verdicts[name] for name in names},
        tainted=node_index.tainted,
        domains=node_index.domains,
        uncleared={
            name: last for name in names if (last := _taken_out(node_index.incidents.get(name, ()))) is not None
        },
        pools=node_index.pools,
        gone=_incidents_of_gone(view),
        pool_sizes=node_index.pool_sizes,
        sizes=node_index.sizes,
        ahead=view.circumstances.ahead,
        refused=view.circumstances.refused,
        unreadable=view.circumstances.unreadable,
    )


def _incidents_of_gone(view: View) -> list[HealthIncident]:
    """Return the incidents of nodes that do not exist any more.

    A node that has a verdict still was deleted while its record is being written: what that charges counts already.
    """
    verdicts, recorded = view.verdict_index.verdicts, view.node_index.incidents
    return [
        incident
        for name in recorded.keys() | view.verdict_index.concerned
        if name not in view.circumstances.nodes
        for incident in (verdicts[name].record.incidents if name in verdicts else recorded[name])
    ]


def _taken_out(incidents: Sequence[HealthIncident]) -> HealthIncident | None:
    """Return the incident for which Muster has a node out by these incidents on record; None: it has not."""
    last = incidents[-1] if incidents else None
    return last if last is not None and last.cleared_time is None and last.taken_out_time is not None else None

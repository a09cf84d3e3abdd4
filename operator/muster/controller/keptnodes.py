"""Keeps the last decisions about each node that is or was not healthy (`muster.controller.keptdecisions`)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from muster.api.fleetpolicy import FleetPolicySpec
from muster.api.nodehealth import VerdictState
from muster.controller.keptdecisions import KeptDecisions
from muster.health.memory import MachineOffences
from muster.health.node_decision import NodeDecision, failed
from muster.health.node_world import NodeWorld
from muster.health.orders import Order
from muster.health.verdict import Verdict

# In all: some 14 MB where nothing is shared with what the watches keep; it does for 100 nodes with a few findings each.
MOST_ENTRIES = 5_000
ENTRIES_PER_NODE = 8


class KeptNodes(KeptDecisions[str, NodeDecision]):
    """The last decisions, by node; a node that is healthy all along is not kept.

    Their size is the number of evidence, findings, incidents and reports in them, beside `ENTRIES_PER_NODE` for each.
    """

    def __init__(self, most_entries: int = MOST_ENTRIES) -> None:
        super().__init__(most_entries)

    def assess_and_keep(
        self, assess: Callable[[NodeWorld], Verdict], policy: FleetPolicySpec, world: NodeWorld
    ) -> Verdict:
        """Return the verdict of `assess` on the node, and keep the decision, also where it fails.

        Args:
            assess: the decision.
            policy: the fleet's policy, of which the world's rules were made.
            world: what is known of the node.
        """
        name = world.facts.node.name
        try:
            verdict = assess(world)
        except Exception as error:
            self._add(name, failed(policy, _frozen(world), error))
            raise
        if name in self._of or not (_is_healthy(verdict.conclusion.state) and _is_healthy(world.before.state)):
            self._add(name, NodeDecision(policy, _frozen(world), verdict))
        return verdict

    def note_order(self, order: Order) -> None:
        """Add to the newest kept decision about the order's node what followed from it."""
        numbers = self._of.get(order.name)
        if numbers:
            self._kept[numbers[-1]] = (order.name, replace(self._kept[numbers[-1]][1], order=order))

    def _size_change(self, decision: NodeDecision, sign: int) -> float:
        return sign * _entries_of(decision.world)

    def _merged(self, old: NodeDecision, new: NodeDecision) -> NodeDecision | None:
        # A charge whose write has failed is decided again and again.
        is_charged = old.order is not None and old.order.ruling.charge and _has_charge(new.world)
        return None if is_charged or _summary(old) != _summary(new) else replace(new, order=old.order)


def _frozen(world: NodeWorld) -> NodeWorld:
    """Return the world without what changes later, and without what the decision has worked out in it."""
    memory = None if world.memory is None else MachineOffences(world.memory.accounts_of(world.machine))
    return replace(world, memory=memory, reports=tuple(world.reports), burn_ins=tuple(world.burn_ins))


def _entries_of(world: NodeWorld) -> int:
    recorded = world.before
    listed = len(recorded.evidence) + len(recorded.findings) + len(recorded.incidents)
    return ENTRIES_PER_NODE + listed + len(world.reports) + len(world.burn_ins)


def _has_charge(world: NodeWorld) -> bool:
    """Whether the node is on record as taken out."""
    return any(incident.taken_out_time is not None for incident in world.before.incidents[-1:])


def _is_healthy(state: VerdictState | None) -> bool:
    return state in (None, VerdictState.HEALTHY)


def _summary(decision: NodeDecision) -> tuple[Any, ...]:
    if decision.verdict is None:
        return (decision.error,)
    conclusion = decision.verdict.conclusion
    marks = [(finding.source, finding.reason, finding.severity, finding.observed) for finding in conclusion.findings]
    return conclusion.state, conclusion.reason, conclusion.own, marks

"""Keeps the last decisions about each node that is or was not healthy, to explain later why they were made.

As with jobs (`muster.controller.worlds`), they are kept as references, and of several decisions in a row that say the
same, only the last is kept. A node that is healthy all along is not kept.
"""

import itertools
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from muster.api.fleetpolicy import FleetPolicySpec
from muster.api.nodehealth import VerdictState
from muster.health.memory import MachineOffences
from muster.health.node_decision import NodeDecision, failed
from muster.health.node_world import NodeWorld
from muster.health.orders import Order
from muster.health.verdict import Verdict

PER_NODE = 3
# In all: some 14 MB where nothing is shared with what the watches keep; it does for 100 nodes with a few findings each.
MOST_ENTRIES = 5_000
ENTRIES_PER_NODE = 8


class KeptNodes:
    """The last decisions, by node; the oldest of all are dropped first.

    Args:
        most_entries: the number of evidence, findings, incidents and reports in all kept decisions, beside
            `ENTRIES_PER_NODE` for each; the newest decision is kept whatever its size.
    """

    def __init__(self, most_entries: int = MOST_ENTRIES) -> None:
        self._most = most_entries
        self._numbers = itertools.count()
        self._kept: OrderedDict[int, NodeDecision] = OrderedDict()  # the oldest first
        self._of: dict[str, list[int]] = {}
        self._entries = 0

    def assess_and_keep(
        self, assess: Callable[[NodeWorld], Verdict], policy: FleetPolicySpec, world: NodeWorld
    ) -> Verdict:
        """Return the verdict of `assess` on the node, and keep the decision, also where it fails.

        Args:
            assess: the decision.
            policy: the fleet's policy, of which the world's rules were made.
            world: what is known of the node.
        """
        try:
            verdict = assess(world)
        except Exception as error:
            self._keep(failed(policy, world, error))
            raise
        name = world.facts.node.name
        if name in self._of or not (_is_healthy(verdict.conclusion.state) and _is_healthy(world.before.state)):
            self._keep(NodeDecision(policy, world, verdict))
        return verdict

    def note_order(self, order: Order) -> None:
        """Add to the newest kept decision about the order's node what followed from it."""
        mine = self._of.get(order.name)
        if mine:
            self._kept[mine[-1]] = replace(self._kept[mine[-1]], order=order)

    def decisions_of(self, name: str) -> list[NodeDecision]:
        """The kept decisions about a node, the newest last."""
        return [self._kept[number] for number in self._of.get(name, ())]

    @property
    def entries(self) -> int:
        """The size of all kept decisions, in entries."""
        return self._entries

    def _keep(self, decision: NodeDecision) -> None:
        name = decision.world.facts.node.name
        mine = self._of.get(name, [])
        if mine and _says_the_same(self._kept[mine[-1]], decision):
            decision = replace(decision, order=self._kept[mine[-1]].order)  # it is still in force
            self._drop(mine[-1])
        elif len(mine) >= PER_NODE:
            self._drop(mine[0])
        number = next(self._numbers)
        self._kept[number] = replace(decision, world=_frozen(decision.world))
        self._of.setdefault(name, []).append(number)
        self._entries += _entries_of(decision.world)
        while self._entries > self._most and len(self._kept) > 1:
            self._drop(next(iter(self._kept)))

    def _drop(self, number: int) -> None:
        world = self._kept.pop(number).world
        name = world.facts.node.name
        self._entries -= _entries_of(world)
        self._of[name].remove(number)
        if not self._of[name]:
            del self._of[name]


def _frozen(world: NodeWorld) -> NodeWorld:
    """Return the world without what changes later, and without what the decision has worked out in it."""
    memory = None if world.memory is None else MachineOffences(world.memory.accounts_of(world.machine))
    return replace(world, memory=memory, reports=tuple(world.reports), burn_ins=tuple(world.burn_ins))


def _entries_of(world: NodeWorld) -> int:
    before = world.before
    listed = len(before.evidence) + len(before.findings) + len(before.incidents)
    return ENTRIES_PER_NODE + listed + len(world.reports) + len(world.burn_ins)


def _is_healthy(state: VerdictState | None) -> bool:
    return state in (None, VerdictState.HEALTHY)


def _says_the_same(before: NodeDecision, now: NodeDecision) -> bool:
    """Whether both say the same, and no budget was charged for the one before."""
    return _summary(before) == _summary(now) and not (before.order and before.order.ruling.charge)


def _summary(decision: NodeDecision) -> tuple[Any, ...]:
    if decision.verdict is None:
        return (decision.error,)
    conclusion = decision.verdict.conclusion
    marks = [(each.source, each.reason, each.severity, each.observed) for each in conclusion.findings]
    return conclusion.state, conclusion.reason, conclusion.own, marks

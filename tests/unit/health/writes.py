"""Decisions whose writes succeed, fail or are answered late, and leaders that die between the two.

`Operator` drives the engine as `muster.controller.nodereconciler` does: it charges a removal when that is decided, does
not judge a node again while its record is being written, and leaves it alone for a moment after a write that failed.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.unit.health.builders import NOW, evidence, healthy, node, sick, written
from tests.unit.health.pools import DEFAULT, off_the_bus

from muster.api.fleetpolicy import FleetPolicySpec
from muster.api.nodehealth import HealthIncident, NodeHealth
from muster.health.assess import assess
from muster.health.budgets import Share
from muster.health.engine import Engine
from muster.health.facts import NodeFacts
from muster.health.node_world import NodeWorld
from muster.health.orders import Circumstances, InForce, Order
from muster.health.sources import Rules
from muster.world.fleet import Fleet

KINDS = ("IbPortDown", "RowRemapPending", "DiskError", "Xid")
WINDOW = timedelta(seconds=600)


def a_fleet(count: int, models: int = 1, per_rack: int = 0) -> Fleet:
    """Nodes of so many models in turn, in racks; 0 in a rack: without topology."""
    fleet = Fleet(FleetPolicySpec())
    for number in range(count):
        labels = {"nvidia.com/gpu.product": f"model-{number % models}"}
        if per_rack:
            labels |= {
                "topology.muster.dev/block": "block",
                "topology.muster.dev/rack": f"rack-{number // per_rack}",
            }
        name = f"node-{number:02}"
        fleet.nodes[name] = node(name, labels=labels)
    return fleet


def all_healthy(fleet: Fleet) -> dict[str, NodeHealth]:
    """The records of these nodes, each another machine."""
    return {name: healthy(name, system_uuid=f"board-{name}", gpu_serials=[f"gpu-{name}"]) for name in fleet.nodes}


@dataclass
class Operator:
    """One leader: what it knows, and the writes that it has begun.

    Attributes:
        fleet: the nodes.
        store: the records, as the API server has them.
        in_force: what was put into force, by node.
        writing: the orders whose record is being written, by node.
        resting: nodes of which a write failed just now.
        dirty: nodes to be judged.
        refused: nodes whose last record the API server refused.
    """

    fleet: Fleet
    store: dict[str, NodeHealth]
    engine: Engine = field(default_factory=Engine)
    in_force: dict[str, InForce] = field(default_factory=dict)
    writing: dict[str, Order] = field(default_factory=dict)
    resting: set[str] = field(default_factory=set)
    dirty: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.rules = Rules.from_policy(self.fleet.policy)
        self.engine.node_index.rebuild(self.fleet)
        for name in self.store:
            self.notice(name)

    def notice(self, name: str, *, is_echo: bool = False) -> None:
        """The informer has a node's record; an echo is what this operator wrote."""
        self.engine.note_record(name, self.store[name].status)
        self.engine.note_echo(name, is_echo=is_echo)
        self.dirty.add(name)

    def delete_node(self, name: str) -> None:
        """The Node object goes; its record stays."""
        del self.fleet.nodes[name]
        self.engine.node_index.set_node(name, None, self.fleet)
        self.dirty.add(name)

    def decide(self, now: datetime) -> None:
        self.dirty |= self.engine.woken(now)
        due, self.dirty = self.dirty - self.writing.keys(), self.dirty & self.writing.keys()
        judged = {name for name in sorted(due) if self._differs(name, now)}
        under_way = {name: order.effect for name, order in self.writing.items()}
        nodes = self.fleet.nodes.keys()
        circumstances = Circumstances(nodes, self.in_force, under_way, refused=self.refused)
        for order in self.engine.decide(now, self.rules, judged, circumstances):
            if order.name in self.writing:
                self.dirty.add(order.name)
            elif order.name not in self.resting:
                self.begin(order)

    def _differs(self, name: str, now: datetime) -> bool:
        """Judge a node; whether its verdict may ask for something new."""
        if name not in self.fleet.nodes:
            self.engine.set_verdict(name, None)
            return False
        before = self.engine.verdict_index.verdicts.get(name)
        facts = NodeFacts.from_node(self.fleet.nodes[name])
        world = NodeWorld(facts, self.store[name], self.rules, now, memory=self.engine.memory)
        self.engine.set_verdict(name, assess(world))
        return self.engine.note_difference(name, before)

    def begin(self, order: Order) -> None:
        self.engine.begin(order)
        self.writing[order.name] = order

    def answered(self, name: str, *, is_stored: bool, is_told: bool) -> None:
        """The write of a node's record ends.

        Args:
            name: of the node.
            is_stored: whether the API server stored it.
            is_told: whether the operator received a success; otherwise an error, or no answer in time.
        """
        order = self.writing.pop(name)
        if is_stored:
            self.store[name] = written(self.store[name], order.verdict)
            self.notice(name, is_echo=True)
        if is_told:
            self.in_force[name] = order.outcome
            self.refused.discard(name)
        else:
            self.resting.add(name)

    def refuse(self, name: str) -> None:
        """The API server refuses the record of a node."""
        self.answered(name, is_stored=False, is_told=False)
        self.refused.add(name)

    def rested(self, name: str) -> None:
        self.resting.discard(name)
        self.dirty.add(name)

    def settle(self, now: datetime) -> None:
        """Let all writes succeed, until nothing is left to write."""
        for name in sorted(self.resting):
            self.rested(name)
        self.decide(now)
        for _ in range(10):
            for name in sorted(self.writing):
                self.answered(name, is_stored=True, is_told=True)
            self.decide(now)
        assert not self.writing


class Writes(RuleBasedStateMachine):
    """Nodes become unhealthy and healthy, and the writes that follow end in any order and in any way."""

    @initialize(shape=st.sampled_from([(2, 1, 0), (6, 2, 0), (12, 1, 4), (24, 1, 4)]))
    def begin(self, shape: tuple[int, int, int]) -> None:
        self.now = NOW
        fleet = a_fleet(*shape)
        self.operator = Operator(fleet, all_healthy(fleet))
        self.operator.settle(self.now)

    def _name(self, index: int) -> str:
        names = sorted(self.operator.store)
        return names[index % len(names)]

    def _one_of(self, names: Iterable[str], index: int) -> str:
        ordered = sorted(names)
        return ordered[index % len(ordered)]

    def _report(self, name: str, health: NodeHealth) -> None:
        self.operator.store[name] = health
        self.operator.notice(name)

    @rule(first=st.integers(0, 23), count=st.integers(1, 4), kind=st.sampled_from(KINDS))
    def nodes_become_unhealthy(self, first: int, count: int, kind: str) -> None:
        """A node whose return is not on record yet keeps its place in the record, and is left out."""
        at = (self.now - NOW).total_seconds()
        for index in range(first, first + count):
            name = self._name(index)
            health = self.operator.store[name]
            if health.status.evidence or self._incident(name) is not None:
                continue
            boot = health.status.agent.boot_id if health.status.agent else ""
            several = off_the_bus(at, boot) if kind == "Xid" else [evidence(kind, at=at, boot_id=boot)]
            self._report(name, sick(*several, health=health))
        self.operator.decide(self.now)

    @rule(index=st.integers(0, 23))
    def a_node_becomes_healthy(self, index: int) -> None:
        name = self._name(index)
        status = self.operator.store[name].status
        assert status.agent is not None
        agent = status.agent.model_copy(update={"boot_id": f"boot-{name}-{self.now.timestamp()}"})
        changed = status.model_copy(update={"agent": agent, "evidence": []})
        self._report(name, self.operator.store[name].model_copy(update={"status": changed}))
        self.operator.decide(self.now)

    @precondition(lambda self: self.operator.writing)
    @rule(index=st.integers(0, 23), is_stored=st.booleans(), is_told=st.booleans())
    def a_write_ends(self, index: int, is_stored: bool, is_told: bool) -> None:
        """A success is told only of what was stored."""
        name = self._one_of(self.operator.writing, index)
        self.operator.answered(name, is_stored=is_stored, is_told=is_stored and is_told)
        self.operator.decide(self.now)

    @precondition(lambda self: self.operator.writing)
    @rule(index=st.integers(0, 23))
    def a_write_is_refused(self, index: int) -> None:
        self.operator.refuse(self._one_of(self.operator.writing, index))
        self.operator.decide(self.now)

    @precondition(lambda self: self.operator.resting)
    @rule(index=st.integers(0, 23))
    def a_failed_write_is_tried_again(self, index: int) -> None:
        self.operator.rested(self._one_of(self.operator.resting, index))
        self.operator.decide(self.now)

    @rule(stored=st.integers(0, 63))
    def the_leader_dies(self, stored: int) -> None:
        """Some of its writes were stored; the next leader starts from the records."""
        for name in sorted(self.operator.writing):
            self.operator.answered(name, is_stored=stored % 2 == 0, is_told=False)
            stored //= 2
        self.operator = Operator(self.operator.fleet, self.operator.store)
        self.operator.decide(self.now)

    @rule(seconds=st.sampled_from([1, 300, 601, 3600]))
    def time_passes(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)
        self.operator.decide(self.now)

    @rule()
    def everything_is_written(self) -> None:
        """No place is lost for good: another leader, which knows the records alone, decides the same."""
        self.operator.settle(self.now)
        another = Operator(self.operator.fleet, self.operator.store)
        another.decide(self.now)
        assert not any(order.ruling.charge for order in another.writing.values())
        assert another.engine.breaker == self.operator.engine.breaker

    def _incident(self, name: str) -> HealthIncident | None:
        """The incident by which the node is out, by its record."""
        incidents = self.operator.store[name].status.incidents
        return incidents[-1] if incidents and incidents[-1].cleared_time is None else None

    def _out(self, names: Iterable[str]) -> list[HealthIncident]:
        """The incidents of the unhealthy ones of these nodes that are taken out, by their records."""
        sick = [self._incident(name) for name in names if self.operator.store[name].status.evidence]
        return [incident for incident in sick if incident is not None and incident.taken_out_time is not None]

    @invariant()
    def no_budget_is_exceeded(self) -> None:
        index = self.operator.engine.node_index
        for pool, size in index.pool_sizes.items():
            names = [name for name, its in index.pools.items() if its == pool]
            self._assert_within(DEFAULT.at_once(size), self._out(names), "at once")
            for path, in_domain in index.sizes.items():
                if path[0] == pool and all(path[1]):
                    there = [name for name in names if index.domains[name] == path[1]]
                    share = DEFAULT.in_domain(in_domain)
                    assert len(self._out(there)) <= share.total, path
                    assert sum(not each.certain for each in self._out(there)) <= share.uncertain, path
            taken = [
                [i for i in self.operator.store[name].status.incidents if i.taken_out_time is not None]
                for name in names
            ]
            for until in {i.taken_out_time for several in taken for i in several}:
                within = [[i for i in several if until - WINDOW < i.taken_out_time <= until] for several in taken]
                self._assert_within_window(DEFAULT.in_window(size), within, f"within the window until {until}")

    def _assert_within_window(self, share: Share, within: list[list[HealthIncident]], when: str) -> None:
        """Each budget counts a node once, however often it was taken out by it."""
        causes = [{incident.charged_to for incident in several if not incident.certain} for several in within]
        assert sum(map(bool, within)) <= share.total, when
        assert sum(map(bool, causes)) <= share.uncertain, when
        assert max(Counter(cause for several in causes for cause in several).values(), default=0) <= share.cause, when

    def _assert_within(self, share: Share, incidents: list[HealthIncident], when: str) -> None:
        uncertain = [incident for incident in incidents if not incident.certain]
        causes = Counter(incident.charged_to for incident in uncertain)
        assert len(incidents) <= share.total, when
        assert len(uncertain) <= share.uncertain, when
        assert max(causes.values(), default=0) <= share.cause, when

"""The operator's part: hands the shipped engine what is known, and keeps what it answers. Decides nothing itself.

`muster.health.engine` decides, as in the operator. What is decided is put on record and in force at once, without
an API server, and read from the records when another operator takes over.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from muster.api.base import ObjectMeta
from muster.api.fleetpolicy import FleetPolicySpec
from muster.api.nodehealth import AgentStatus, Decision, Evidence, HumanDecision, NodeHealth, NodeHealthStatus
from muster.health.assess import assess
from muster.health.effects import Effect
from muster.health.engine import Engine
from muster.health.facts import NodeFacts
from muster.health.node_world import FailedBurnIn, NodeWorld
from muster.health.orders import Circumstances, InForce, Order
from muster.health.pools import Pools
from muster.health.silence import AgentContacts
from muster.health.sources import UNHEALTHY_TAINT, Rules
from muster.health.story import recorded_status
from muster.health.verdict import Verdict
from muster.world.fleet import Fleet
from muster.world.views import NodeView, Taint
from simulate.clocks import START

Told = Callable[[Order, float], None]


class Keeper:
    """Verdicts, rulings and effects of one fleet.

    Args:
        told: called with each order and the time.
    """

    def __init__(self, policy: FleetPolicySpec, told: Told) -> None:
        self.policy, self.rules = policy, Rules.from_policy(policy)
        self.fleet = Fleet(policy)
        self._on_order = told
        self.health: dict[str, NodeHealth] = {}
        self.passed: dict[str, float] = {}
        self.burned: dict[str, list[FailedBurnIn]] = {}
        self.looks = 0
        self._adopt()

    def _adopt(self) -> None:
        self.engine = Engine()
        self.engine.node_index.rebuild(self.fleet)
        self.dirty: set[str] = set()  # nodes to be judged
        self.in_force: dict[str, InForce] = {}
        self.agents = AgentContacts()

    def restart(self, now: float) -> None:
        """Another operator takes over: it knows what is on record, and of silences only what begins now."""
        before = self.agents
        self._adopt()
        for name, health in self.health.items():
            self._recorded(name, health)
        self.agents.ready = before.ready
        for name, since in before.silent.items():
            self.agents.note_silent(name, now, paused=since.paused)
        self.dirty.update(self.fleet.nodes)

    def effect(self, name: str) -> Effect:
        """What is in force for a node."""
        found = self.in_force.get(name)
        return Effect() if found is None else found.effect

    def rules_of(self, name: str) -> Rules:
        """The rules for a node: those of its pool."""
        return self.rules.of_pool(self.engine.node_index.pools.get(name, ""))

    def verdict(self, name: str) -> Verdict | None:
        return self.engine.verdict_index.verdicts.get(name)

    # What is said.

    def put_node(self, node: NodeView) -> None:
        taint = (Taint(UNHEALTHY_TAINT, "", "NoSchedule"),) if self.effect(node.name).taint else ()
        node = replace(node, taints=(*(each for each in node.taints if each.key != UNHEALTHY_TAINT), *taint))
        self.fleet.nodes[node.name] = node
        if node.name not in self.agents.silent:
            self.agents.note_ready(node.name)
        self.engine.node_index.set_node(node.name, node, self.fleet)
        self.dirty.add(node.name)

    def record_of(self, name: str) -> NodeHealth:
        """The node's record, an empty one where there is none."""
        return self.health.get(name) or NodeHealth(metadata=ObjectMeta(name=name))

    def agent_says(self, name: str, status: Mapping[str, Any]) -> None:
        health = self.record_of(name)
        evidence = [Evidence.model_validate(item) for item in status["evidence"]]
        agent = AgentStatus.model_validate(status["agent"])
        self._put(name, health.status.model_copy(update={"evidence": evidence, "agent": agent}))

    def human_says(self, name: str, decision: Decision, reason: str, now: float) -> None:
        """`kubectl muster release` or `cordon`."""
        health = self.record_of(name)
        human = HumanDecision(decision=decision, reason=reason, user="somebody", time=_time(now))
        spec = health.spec.model_copy(update={"override": human})
        self.health[name] = health.model_copy(update={"spec": spec})
        self.burned.pop(name, None)
        self.dirty.add(name)

    def tested(self, name: str, fails: str, now: float) -> None:
        """A burn-in of the node came to an end; `fails`: what it failed, "" for none."""
        if not fails:
            self.passed[name] = now
        else:
            agent = self.record_of(name).status.agent
            self.burned.setdefault(name, []).append(
                FailedBurnIn(agent.boot_id if agent else "", fails, f"test of the node: {fails}", _time(now))
            )
        self.dirty.add(name)

    def _put(self, name: str, status: NodeHealthStatus) -> None:
        health = self.record_of(name).model_copy(update={"status": status})
        self.health[name] = health
        self._recorded(name, health)
        self.dirty.add(name)

    def _recorded(self, name: str, health: NodeHealth) -> None:
        self.engine.note_record(name, health.status)

    # What follows.

    def look(self, now: float) -> float | None:
        """Judge, decide, put into force; returns in how long something is due by time alone."""
        self.looks += 1
        moment = _time(now)
        pools = Pools(self.engine.node_index.pools, self.engine.node_index.pool_sizes)
        self.dirty.update(self.agents.changed(now, pools, self.rules.window_limit, lambda _: "its agent is not Ready"))
        names = (self.dirty | self.engine.woken(moment)) & self.fleet.nodes.keys()
        self.dirty.clear()
        for name in sorted(names):
            self._assess(name, moment)
        circumstances = Circumstances(self.fleet.nodes.keys(), self.in_force, {})
        for order in self.engine.decide(moment, self.rules, names, circumstances):
            self._put_into_force(order, now)
        return self._pause(now, moment)

    def _assess(self, name: str, moment: datetime) -> None:
        passed = self.passed.get(name)
        verdict = assess(
            NodeWorld(
                NodeFacts.from_node(self.fleet.nodes[name]),
                self.record_of(name),
                self.rules_of(name),
                moment,
                memory=self.engine.memory,
                burn_ins=self.burned.get(name, ()),
                passed=None if passed is None else _time(passed),
                silence=self.agents.silence_of(name),
            )
        )
        self.engine.set_verdict(name, verdict)

    def _put_into_force(self, order: Order, now: float) -> None:
        name, verdict = order.name, order.verdict
        self.engine.verdict_index.set_verdict(name, verdict)
        status = self.record_of(name).status
        ours = recorded_status(order, self.rules_of(name))
        ours = ours.model_copy(update={"evidence": status.evidence, "agent": status.agent})
        if ours != status:
            # As it comes back from the API server.
            dirty = name in self.dirty
            self._put(name, NodeHealthStatus.model_validate(ours.to_json()))
            if not dirty:
                self.dirty.discard(name)
        self.in_force[name] = order.outcome
        if order.effect.taint != (name in self.engine.node_index.tainted):
            self.put_node(self.fleet.nodes[name])
            self.dirty.discard(name)
        self._on_order(order, now)

    def _pause(self, now: float, moment: datetime) -> float | None:
        waits = [(each - moment).total_seconds() for each in self.engine.moments()]
        following = self.agents.next_seconds(now)
        waits += [following] if following is not None else []
        return max(0.001, min(waits)) if waits else None


def _time(now: float) -> datetime:
    """A moment of the simulation as an object has it: to the microsecond."""
    return (START + timedelta(seconds=now)).astimezone(UTC)

"""A decision about one node with all of its inputs, as plain JSON: it can be made again and compared with the first
result. Pure.

A `NodeWorld` is written as the API objects and views that it was made from: the policy in place of the rules, the
accounts of offences in place of their index. `tools/verdicts` records its inputs in the same form.

Tests: tests/unit/health/test_node_decision.py, tests/unit/test_replay.py.
"""

import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache
from typing import Any, get_type_hints

from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

from muster.api.fleetpolicy import FleetPolicySpec
from muster.api.nodehealth import Offences
from muster.health.assess import assess
from muster.health.facts import NodeFacts
from muster.health.memory import MachineOffences
from muster.health.node_world import NodeWorld
from muster.health.orders import Order
from muster.health.pools import budget_pool_of
from muster.health.sources import Rules
from muster.health.verdict import Verdict

Plain = dict[str, Any]

_KINDS = {
    **get_type_hints(NodeFacts),
    **get_type_hints(NodeWorld),
    "policy": FleetPolicySpec,
    "memory": list[Offences] | None,
}
_ADAPTERS: Mapping[str, TypeAdapter[Any]] = {
    name: TypeAdapter(kind) for name, kind in _KINDS.items() if name not in ("facts", "rules")
}
_NEEDED = ("policy", "node", "health", "now")


def to_plain(name: str, value: Any) -> Any:
    """Convert an input of a decision to values that `json` takes, without what has its default."""
    return _ADAPTERS[name].dump_python(value, mode="json", by_alias=True, exclude_defaults=True)


def from_plain(name: str, plain: Any) -> Any:
    """Restore an input that `to_plain` has converted."""
    return _ADAPTERS[name].validate_python(plain)


DEFAULTS: Plain = {
    field.name: to_plain(field.name, field.default) for field in fields(NodeWorld) if field.default is not MISSING
}
"""The optional inputs, where nothing is known."""


@dataclass(frozen=True, slots=True)
class NodeDecision:
    """One decision about a node with its inputs.

    Attributes:
        policy: the fleet's policy, of which the world's rules were made.
        world: what `assess` was given.
        verdict: the result; None where `assess` failed.
        error: the error with which it failed; "" where it did not.
        order: the newest order for the node that followed; None: none did.
    """

    policy: FleetPolicySpec
    world: NodeWorld
    verdict: Verdict | None
    error: str = ""
    order: Order | None = None


@dataclass(frozen=True, slots=True)
class ReplayedNode:
    """The verdict on a node then and the verdict on the same inputs now, both as `outcome` gives them.

    The order depends on all nodes, so that it is not repeated: `order` has its ruling and effect as they were. If the
    line was `redacted`, what was taken out can change the verdict now.
    """

    world: NodeWorld
    then: Plain
    now: Plain
    order: Plain | None
    redacted: bool = False

    @property
    def same(self) -> bool:
        """Whether the verdict is the same now as it was then."""
        return self.then == self.now


def failed(policy: FleetPolicySpec, world: NodeWorld, error: Exception) -> NodeDecision:
    """Return the decision that ended with an error."""
    return NodeDecision(policy, world, None, f"{type(error).__name__}: {error}")


def write(decision: NodeDecision) -> str:
    """Return the decision as one line of JSON with the keys world, verdict and order."""
    order = decision.order
    document = {
        "world": node_input(decision.policy, decision.world),
        "verdict": outcome(decision),
        "order": None
        if order is None
        else to_jsonable_python({"ruling": order.ruling, "effect": order.effect._asdict()}),
    }
    return json.dumps(document, separators=(",", ":"))


def replay(document: Plain) -> ReplayedNode:
    """Judge the node again with the inputs of a line that `write` has written.

    Args:
        document: the line, parsed.

    Raises:
        ValueError: the line is not of that form; the message says why.
    """
    if not all(isinstance(document.get(name), dict) for name in ("world", "verdict")):
        raise ValueError("an object with world and verdict is needed, as GET /nodes/NODE gives it")
    plain = document["world"]
    world, policy = read(plain), from_plain("policy", plain["policy"])
    return ReplayedNode(
        world,
        document["verdict"],
        outcome(_attempted(policy, world)),
        document.get("order"),
        bool(document.get("redacted")),
    )


def outcome(decision: NodeDecision) -> Plain:
    """Return the verdict's fields, without those that say nothing, in values that `json` knows; or the error."""
    return {"error": decision.error} if decision.verdict is None else verdict_fields(decision.verdict)


def verdict_fields(verdict: Verdict) -> Plain:
    """Return the fields of a verdict's four parts, without those that say nothing, in values that `json` knows."""
    parts = (verdict.conclusion, verdict.grounds, verdict.record, verdict.follow_up)
    values = {field.name: getattr(part, field.name) for part in parts for field in fields(part)}
    plain: Plain = to_jsonable_python(values, by_alias=True, exclude_none=True)
    return {name: value for name, value in plain.items() if value not in ("", [], {}, False)}


def facts_input(facts: NodeFacts) -> Plain:
    """Return what a verdict reads of a Node, as plain JSON."""
    return {field.name: to_plain(field.name, getattr(facts, field.name)) for field in fields(facts)}


def node_input(policy: FleetPolicySpec, world: NodeWorld) -> Plain:
    """Return what a verdict is made from, as plain JSON.

    Args:
        policy: the fleet's policy, of which the world's rules were made.
        world: what `assess` is given.
    """
    inputs: Plain = {name: getattr(world, name) for name in ("health", "now", *DEFAULTS)}
    inputs["memory"] = None if world.memory is None else world.memory.accounts_of(world.machine) or None
    plain = facts_input(world.facts) | {"policy": to_plain("policy", policy)}
    plain |= {name: to_plain(name, value) for name, value in inputs.items()}
    return {name: value for name, value in plain.items() if name not in DEFAULTS or value != DEFAULTS[name]}


def read(plain: Plain) -> NodeWorld:
    """Restore what `node_input` has written: `assess` gives the same verdict. A missing field has its default.

    Raises:
        ValueError: this is no such input; the text names the field and the cause.
    """
    missing = [name for name in _NEEDED if name not in plain]
    if missing:
        raise ValueError(f"no world of a node: it has no {' and no '.join(missing)}")
    more = {name: from_plain(name, plain[name]) for name in DEFAULTS if name in plain}
    if more.get("memory") is not None:
        more["memory"] = MachineOffences(more["memory"])
    health, now = from_plain("health", plain["health"]), from_plain("now", plain["now"])
    facts, policy = facts_of(plain), from_plain("policy", plain["policy"])
    rules = rules_of(plain).of_pool(budget_pool_of(facts.node, policy))
    return NodeWorld(facts, health, rules, now, **more)


def facts_of(plain: Plain) -> NodeFacts:
    """Restore what a verdict reads of a Node."""
    return NodeFacts(
        **{field.name: from_plain(field.name, plain[field.name]) for field in fields(NodeFacts) if field.name in plain}
    )


def rules_of(plain: Plain) -> Rules:
    """Return the rules for the whole fleet by the policy of an input."""
    return _rules(json.dumps(plain["policy"], sort_keys=True))


@cache
def _rules(policy: str) -> Rules:
    return Rules.from_policy(from_plain("policy", json.loads(policy)))


def _attempted(policy: FleetPolicySpec, world: NodeWorld) -> NodeDecision:
    try:
        return NodeDecision(policy, world, assess(world))
    except Exception as error:  # noqa: BLE001 - it is what there is to tell
        return failed(policy, world, error)

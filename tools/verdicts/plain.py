"""Inputs and results of `assess` and of the breaker as plain JSON values, and back.

All that depends on the shape of these two functions is here, so that a recording outlives a change of it.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from functools import cache
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

from muster.api.fleetpolicy import FleetPolicySpec
from muster.api.nodehealth import HealthIncident, NodeHealth, Offences, VerdictState
from muster.health import assess, breaker
from muster.health.equals import Lack
from muster.health.facts import NodeFacts
from muster.health.memory import MachineOffences, same_machine
from muster.health.node_world import FailedBurnIn, NodeWorld
from muster.health.repairs import RepairStatus
from muster.health.silence import Silence
from muster.health.situation import Situation
from muster.health.sources import Rules
from muster.health.verdict import Conclusion, Grounds, Record, Verdict
from muster.world.jobfailures import JobFailureReport
from muster.world.views import ConditionView, NodeView

Plain = dict[str, Any]

DEFAULTS: Plain = {
    "memory": [],
    "reports": [],
    "burn_ins": [],
    "passed": None,
    "answered": None,
    "silence": None,
    "lack": None,
    "repair": None,
    "time_is_sure": True,
}
"""The optional parts of what a node's verdict is made from, where nothing is known."""

_TYPES: Mapping[str, TypeAdapter[Any]] = {
    name: TypeAdapter(kind)
    for name, kind in dict[str, Any](
        {
            "node": NodeView,
            "conditions": tuple[ConditionView, ...],
            "capacity": Mapping[str, int],
            "health": NodeHealth,
            "policy": FleetPolicySpec,
            "now": datetime,
            "memory": list[Offences],
            "reports": Sequence[JobFailureReport],
            "burn_ins": Sequence[FailedBurnIn],
            "passed": datetime | None,
            "answered": datetime | None,
            "silence": Silence | None,
            "lack": Lack | None,
            "repair": RepairStatus | None,
            "time_is_sure": bool,
            "incidents": tuple[HealthIncident, ...],
            "state": VerdictState | None,
        }
    ).items()
}
_READ_BY_BREAKER = (
    "state",
    "incidents",
    "stays",
    "cordoned",
    "only_planned",
    "in_charge",
    "certain",
    "causes",
    "fatal",
)


def _plain(name: str, value: Any) -> Any:
    return _TYPES[name].dump_python(value, mode="json", by_alias=True, exclude_defaults=True)


def _value(name: str, plain: Any) -> Any:
    return _TYPES[name].validate_python(plain)


@cache
def _rules(policy: str) -> Rules:
    return Rules.from_policy(_value("policy", json.loads(policy)))


def _rules_of(one: Plain) -> Rules:
    return _rules(json.dumps(one["policy"], sort_keys=True))


def _facts(one: Plain) -> NodeFacts:
    return NodeFacts(*(_value(name, one[name]) for name in ("node", "conditions", "capacity")))


def rows_of(one: Plain) -> set[str]:
    """The names of the rows of the table of marks that match a node."""
    return {match.row.name for match in _rules_of(one)._matches(_facts(one))}  # noqa: SLF001


def facts_input(facts: NodeFacts) -> Plain:
    """What a verdict reads of a Node."""
    return {each.name: _plain(each.name, getattr(facts, each.name)) for each in fields(facts)}


def node_input(policy: FleetPolicySpec, world: NodeWorld) -> Plain:
    """What a verdict is made from."""
    known: Plain = {name: getattr(world, name) for name in ("health", "now", *DEFAULTS)}
    if world.memory is not None:
        of_all = world.memory._named.values()  # noqa: SLF001
        offences = [account for accounts in of_all for account in accounts.values()]
        known["memory"] = [each for each in offences if same_machine(world.machine, each.hardware)]
    found = facts_input(world.facts) | {"policy": _plain("policy", policy)}
    found |= {name: _plain(name, value) for name, value in known.items() if value is not None}
    return {name: value for name, value in found.items() if name not in DEFAULTS or value != DEFAULTS[name]}


def node_result(one: Plain) -> Plain:
    """What is decided about one node: state, reason, message, findings, incidents, account and what follows."""
    more = {name: _value(name, one[name]) for name in DEFAULTS if name in one}
    if "memory" in more:
        more["memory"] = MachineOffences(more["memory"])
    health, now = _value("health", one["health"]), _value("now", one["now"])
    return _said(assess.assess(NodeWorld(_facts(one), health, _rules_of(one), now, **more)))


def _said(verdict: Verdict) -> Plain:
    parts = (verdict.conclusion, verdict.grounds, verdict.record, verdict.follow_up)
    values = {each.name: getattr(part, each.name) for part in parts for each in fields(part)}
    plain: Plain = to_jsonable_python(values, by_alias=True, exclude_none=True)
    return {name: value for name, value in plain.items() if value not in ("", [], {}, False)}


def sketch_of(verdict: Verdict) -> tuple[Any, ...]:
    """What tells verdicts apart at little cost."""
    incident, said = verdict.open_incident, verdict.conclusion
    marks = tuple((each.source, each.reason, each.severity, each.observed) for each in said.findings)
    is_taken = incident is not None and incident.taken_out_time is not None
    return said.state, said.reason, said.own, marks, is_taken


def fleet_input(policy: FleetPolicySpec, situation: Situation, now: datetime) -> Plain:
    """What the breaker rules from."""
    sizes = situation.sizes
    said = {name: _said(verdict) for name, verdict in situation.verdicts.items()}
    found = {
        "policy": _plain("policy", policy),
        "now": _plain("now", now),
        "verdicts": {name: {part: v[part] for part in _READ_BY_BREAKER if part in v} for name, v in said.items()},
        "tainted": sorted(situation.tainted),
        "domains": {name: list(path) for name, path in situation.domains.items() if name in said},
        "gone": [_plain("incidents", (each,))[0] for each in situation.gone],
        "pools": {name: pool for name, pool in situation.pools.items() if name in said},
        "pool_sizes": None if situation.pool_sizes is None else dict(situation.pool_sizes),
        "sizes": None if sizes is None else [[pool, list(path), count] for (pool, path), count in sizes.items()],
        "ahead": [[_plain("now", time), seconds] for time, seconds in situation.ahead.items()],
    }
    return {name: value for name, value in found.items() if name == "policy" or value not in ({}, [], None)}


def fleet_result(one: Plain) -> Plain:
    """What may be done about each node, and the figures of the breaker."""
    sizes = one.get("sizes")
    situation = Situation(
        {name: _verdict(plain) for name, plain in one.get("verdicts", {}).items()},
        frozenset(one.get("tainted", ())),
        {name: tuple(path) for name, path in one.get("domains", {}).items()},
        _value("incidents", one.get("gone", ())),
        one.get("pools", {}),
        Counter(one["pool_sizes"]) if "pool_sizes" in one else None,
        None if sizes is None else Counter({(pool, tuple(path)): count for pool, path, count in sizes}),
        {_value("now", time): seconds for time, seconds in one.get("ahead", ())},
    )
    rulings, figures = breaker.rule(situation, _rules_of(one), _value("now", one["now"]))
    found: Plain = to_jsonable_python({"rulings": rulings, "breaker": figures}, by_alias=True)
    return found


def _verdict(plain: Plain) -> Verdict:
    causes = tuple(plain.get("causes", ()))
    names = {each.name for each in fields(Grounds)} - {"causes"}
    grounds = Grounds(causes, **{name: value for name, value in plain.items() if name in names})
    incidents = _value("incidents", plain.get("incidents", ()))
    return Verdict(Conclusion(_value("state", plain.get("state"))), grounds, Record(incidents))

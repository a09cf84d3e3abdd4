"""Inputs and results of the breaker as plain JSON values, and back; those of `assess` have the form of kept decisions
(`muster.health.node_decision`).

All that depends on the shape of these two functions is in these two files, so that a recording outlives a change of it.
"""

from collections import Counter
from dataclasses import fields
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

from muster.api.fleetpolicy import FleetPolicySpec
from muster.api.nodehealth import HealthIncident, VerdictState
from muster.health import assess, breaker
from muster.health.node_decision import Plain, facts_of, from_plain, read, rules_of, to_plain, verdict_fields
from muster.health.situation import Situation
from muster.health.verdict import Conclusion, Grounds, Record, Verdict

_INCIDENTS = TypeAdapter(tuple[HealthIncident, ...])
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


def rows_of(one: Plain) -> set[str]:
    """The names of the rows of the table of marks that match a node."""
    return {match.row.name for match in rules_of(one)._matches(facts_of(one))}  # noqa: SLF001


def node_result(one: Plain) -> Plain:
    """What is decided about one node: state, reason, message, findings, incidents, account and what follows."""
    return verdict_fields(assess.assess(read(one)))


def sketch_of(verdict: Verdict) -> tuple[Any, ...]:
    """What tells verdicts apart at little cost."""
    incident, conclusion = verdict.open_incident, verdict.conclusion
    marks = tuple((each.source, each.reason, each.severity, each.observed) for each in conclusion.findings)
    is_taken = incident is not None and incident.taken_out_time is not None
    return conclusion.state, conclusion.reason, conclusion.own, marks, is_taken


def fleet_input(policy: FleetPolicySpec, situation: Situation, now: datetime) -> Plain:
    """What the breaker rules from."""
    sizes = situation.sizes
    verdicts = {name: verdict_fields(verdict) for name, verdict in situation.verdicts.items()}
    found = {
        "policy": to_plain("policy", policy),
        "now": to_plain("now", now),
        "verdicts": {name: {part: v[part] for part in _READ_BY_BREAKER if part in v} for name, v in verdicts.items()},
        "tainted": sorted(situation.tainted),
        "domains": {name: list(path) for name, path in situation.domains.items() if name in verdicts},
        "gone": [
            _INCIDENTS.dump_python((each,), mode="json", by_alias=True, exclude_defaults=True)[0]
            for each in situation.gone
        ],
        "pools": {name: pool for name, pool in situation.pools.items() if name in verdicts},
        "pool_sizes": None if situation.pool_sizes is None else dict(situation.pool_sizes),
        "sizes": None if sizes is None else [[pool, list(path), count] for (pool, path), count in sizes.items()],
        "ahead": [[to_plain("now", time), seconds] for time, seconds in situation.ahead.items()],
        "uncleared": {
            name: _INCIDENTS.dump_python((each,), mode="json", by_alias=True, exclude_defaults=True)[0]
            for name, each in situation.uncleared.items()
        },
        "refused": sorted(situation.refused),
        "unreadable": sorted(situation.unreadable),
    }
    return {name: value for name, value in found.items() if name == "policy" or value not in ({}, [], None)}


def fleet_result(one: Plain) -> Plain:
    """What may be done about each node, and the figures of the breaker."""
    sizes = one.get("sizes")
    situation = Situation(
        {name: _verdict(plain) for name, plain in one.get("verdicts", {}).items()},
        frozenset(one.get("tainted", ())),
        {name: tuple(path) for name, path in one.get("domains", {}).items()},
        _INCIDENTS.validate_python(one.get("gone", ())),
        one.get("pools", {}),
        Counter(one["pool_sizes"]) if "pool_sizes" in one else None,
        None if sizes is None else Counter({(pool, tuple(path)): count for pool, path, count in sizes}),
        {from_plain("now", time): seconds for time, seconds in one.get("ahead", ())},
        {name: _INCIDENTS.validate_python([plain])[0] for name, plain in one.get("uncleared", {}).items()},
        frozenset(one.get("refused", ())),
        frozenset(one.get("unreadable", ())),
    )
    rulings, figures = breaker.rule(situation, rules_of(one), from_plain("now", one["now"]))
    found: Plain = to_jsonable_python({"rulings": rulings, "breaker": figures}, by_alias=True)
    return found


def _verdict(plain: Plain) -> Verdict:
    causes = tuple(plain.get("causes", ()))
    names = {each.name for each in fields(Grounds)} - {"causes"}
    grounds = Grounds(causes, **{name: value for name, value in plain.items() if name in names})
    incidents = _INCIDENTS.validate_python(plain.get("incidents", ()))
    return Verdict(Conclusion(VerdictState(plain["state"]) if "state" in plain else None), grounds, Record(incidents))

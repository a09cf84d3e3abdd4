"""Inputs near those that tests and simulations ask about, as plain JSON."""

import importlib
from collections.abc import Iterator
from datetime import datetime, timedelta

from muster.health.kinds import KINDS, RECOVERY_ACTION
from muster.health.node_decision import Plain, facts_input
from muster.health.sources import ROWS, Condition

_AFTER_SECONDS = (61, 901, 3601, 8 * 86400)
_RECORDED = {
    "state": "state",
    "reason": "reason",
    "since": "since",
    "recommended_action": "recommendedAction",
    "findings": "findings",
    "incidents": "incidents",
    "offences": "offences",
    "earlier_offences": "earlierOffences",
    "maintenance": "maintenance",
    "node_uid": "nodeUid",
    "boot_id": "bootId",
}
_START = "2026-11-20T09:41:07Z"
_AGENT = {
    "version": "0.1.0",
    "bootId": "boot-1",
    "systemUuid": "4c4c4544-0051-3910",
    "gpuSerials": ["1", "2"],
    "gpus": 2,
}
_NODE = {"name": "node-1", "uid": "uid-1", "resource_version": 1, "ready": True, "boot_id": "boot-1"}


def _later(time: str, seconds: float) -> str:
    return (datetime.fromisoformat(time) + timedelta(seconds=seconds)).isoformat()


def _decided(one: Plain, decision: str, time: str) -> Plain:
    override = {"decision": decision, "reason": "looked at it", "user": "ann", "time": time}
    return {**one, "health": {**one["health"], "spec": {"override": override}}}


def _with_status(one: Plain, **changes: object) -> Plain:
    return {**one, "health": {**one["health"], "status": {**one["health"].get("status", {}), **changes}}}


def _under_policy(one: Plain, **health: object) -> Plain:
    policy = one["policy"]
    return {**one, "policy": {**policy, "health": {**policy.get("health", {}), **health}}}


def of_tables() -> Iterator[Plain]:
    """A node for each kind of evidence, and for each type and reason of a condition that the tables name."""
    base = {"conditions": [], "capacity": {}, "policy": {}, "now": _later(_START, 3600)}
    start = {**base, "node": _NODE, "health": {"metadata": {"name": "node-1"}, "status": {"agent": _AGENT}}}
    for kind in KINDS:
        for code in range(9) if kind == RECOVERY_ACTION else (79,):
            times = {"firstSeen": _START, "lastSeen": _START, "bootId": "boot-1"}
            yield _with_status(start, evidence=[{"kind": kind, "code": code, "subject": "GPU-5d2a", **times}])
    taint = {"key": "karpenter.sh/disruption", "value": "disrupting", "effect": "NoSchedule"}
    yield {**start, "node": {**_NODE, "taints": [taint]}}
    tests = importlib.import_module("tests.unit.health.marks")
    facts_of = importlib.import_module("tests.unit.health.builders").facts_of
    yield from ({**start, **facts_input(facts_of(one.node))} for one in tests.examples() if one.bad)
    for mark in (row.mark for row in ROWS if isinstance(row.mark, Condition)):
        for kind in mark.type.split("|"):
            for reason in mark.reason.split("|"):
                said = {"type": kind, "status": mark.statuses[0], "reason": reason, "message": "", "since": _START}
                yield {**start, "conditions": [said]}


def variants(one: Plain, result: Plain) -> Iterator[Plain]:
    """The node later, with its verdict on record, under another policy, with other decisions and facts beside it."""
    now, status = one["now"], one["health"].get("status", {})
    yield from ({**one, "now": _later(now, seconds)} for seconds in _AFTER_SECONDS)
    yield _decided(one, "Release", _later(now, -1))
    reasons = sorted({each["reason"] for each in result.get("findings", ())})
    yield _under_policy(one, observedReasons=[*reasons, "AgentSilent"])
    yield from _beside(one, now)
    recorded = {field: result[name] for name, field in _RECORDED.items() if name in result}
    *past, last = result.get("incidents") or [{}]
    taken = [[*past, {**last, "takenOutTime": now, "chargedTo": "agent/Xid79"}]] if last else []
    left = [[*past, {**last, "takenOutTime": now, "repairEndedTime": now}], [*past, {**last, "yieldedTime": now}]]
    kept = {name: value for name, value in status.items() if name in ("agent", "evidence", "check")}
    for incidents in [result.get("incidents", [])] + taken + (left if last else []):
        charged = {"offences": result["offences_if_taken"]} if incidents in taken else {}
        written = {**kept, **recorded, **charged, "incidents": incidents}
        after = {**one, "now": _later(now, 30), "health": {**one["health"], "status": written}}
        yield after
        yield from _after(after, now)


def _after(after: Plain, before: str) -> Iterator[Plain]:
    now = after["now"]
    yield {**after, "time_is_sure": False, "now": _later(now, 40 * 86400)}
    yield {**after, "now": _later(now, 800), "passed": _later(now, 700)}
    gone = {**_with_status(after, evidence=[]), "conditions": []}
    gone["node"] = {name: after["node"][name] for name in _NODE if name in after["node"]}
    yield gone
    yield {**gone, "now": _later(now, 5000)}
    yield {**gone, "passed": now}
    yield {**gone, "policy": {**after["policy"], "preflight": {"profile": "Disabled"}}}
    yield _decided(after, "Cordon", before)
    yield {**after, "health": {**after["health"], "spec": {}}}
    yield _decided(after, "Release", _later(before, 10))
    yield _decided(gone, "Release", _later(now, 3600))
    agent = after["health"]["status"].get("agent")
    if agent:
        yield _with_status(gone, agent={**agent, "bootId": "boot-9"})
        yield _with_status(after, agent={**agent, "systemUuid": "other-board", "gpuSerials": ["8", "9"]})
    offences = {**after["health"]["status"].get("offences", {}), "score": "2.9", "asOf": _later(now, -60)}
    yield _with_status(after, offences=offences)
    yield {**after, "memory": [offences]} if offences.get("hardware") else after
    yield from _beside(after, now, "boot-1")


def _beside(one: Plain, now: str, boot: str = "") -> Iterator[Plain]:
    """What else may be known about a node."""
    failure = {"attempt": 3, "what": "a rank was killed", "went_on": True}
    reports = [
        {**failure, "owner": owner, "job": f"{owner}/a", "time": _later(now, -600 * (number + 1))}
        for number, owner in enumerate("abc")
    ]
    yield {**one, "reports": reports}
    yield {**one, "reports": reports, "answered": _later(now, -900)}
    yield {
        **one,
        "burn_ins": [{"boot": boot, "probe": "gemm", "message": "slow", "time": _later(now, -30), "job": "a/a"}],
    }
    yield {**one, "silence": {"weighs": "Degraded", "message": "the agent has not been Ready for 10 min"}}
    yield {**one, "silence": {"weighs": None}}
    yield {**one, "lack": {"message": "7 GPUs, its peers have 8", "severity": "Degraded", "lasts": True}}
    for stage in ("Unknown", "Asked", "InProgress", "Failed", "Done"):
        yield {**one, "repair": {"stage": stage, "action": "Reboot", "message": "ticket 7"}}

"""A decision about a node, written and made again: from case to case, from other versions, and from broken files."""

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.health.builders import (
    NOW,
    after,
    agent,
    decided,
    evidence,
    facts,
    finding,
    healthy,
    recorded,
    sick,
    world,
)

from muster.api.fleetpolicy import FleetPolicySpec
from muster.api.nodehealth import Decision, HealthIncident, Offences, Severity, VerdictState
from muster.health import node_decision
from muster.health.assess import assess
from muster.health.effects import effect
from muster.health.equals import Lack
from muster.health.memory import MachineOffences, identity
from muster.health.node_decision import NodeDecision, node_input, read, replay, write
from muster.health.node_world import FailedBurnIn, NodeWorld
from muster.health.orders import Order
from muster.health.repairs import RepairStatus, Stage
from muster.health.rulings import Act, Ruling
from muster.health.silence import Silence
from muster.health.sources import Rules
from muster.world.jobfailures import JobFailureReport
from muster.world.views import ConditionView

XID_79 = evidence("Xid", 79, message="GPU has fallen off the bus")
BURNT = {"name": "burnt", "label": {"key": "x/burnt"}, "severity": "Fatal", "action": "Replace"}
OWING = Offences(score="2.5", as_of=NOW, hardware=identity(agent()))
TAKEN_OUT = recorded(
    state=VerdictState.UNHEALTHY,
    incidents=[HealthIncident(time=NOW, reason="Xid79", state=VerdictState.UNHEALTHY, taken_out_time=NOW)],
)
CASES: dict[str, tuple[dict[str, Any], NodeWorld, str]] = {
    "nothing is wrong": ({}, world(), "Healthy"),
    "an agent's finding": ({}, world(sick(XID_79)), "Unhealthy"),
    "a finding on record": ({}, world(recorded(finding("agent", "IbPortDown"))), "Healthy"),
    "only observed": ({"health": {"observedReasons": ["Xid79"]}}, world(sick(XID_79)), "Healthy"),
    "a condition": (
        {},
        world(None, ConditionView("KernelDeadlock", "True", "DockerHung", "hung", after(-600))),
        "Degraded",
    ),
    "a rule of the policy": (
        {"health": {"rules": [BURNT]}},
        world(facts=facts(labels={"x/burnt": "yes"}, capacity={"nvidia.com/gpu": 8})),
        "Unhealthy",
    ),
    "a cordon": ({}, world(decided(healthy(), Decision.CORDON)), "Quarantined"),
    "a silent agent": ({}, world(silence=Silence(Severity.DEGRADED, "silent")), "Degraded"),
    "a lack": ({}, world(lack=Lack("7 of 8 GPUs", Severity.DEGRADED, lasts=True)), "Degraded"),
    "a repair": ({}, world(repair=RepairStatus(Stage.IN_PROGRESS, "Reboot")), "Degraded"),
    "a failed burn-in": ({}, world(burn_ins=[FailedBurnIn("boot-1", "gemm", "slow", NOW, "team/a")]), "Degraded"),
    "failures of jobs": (
        {},
        world(
            reports=[
                JobFailureReport(owner=team, job=f"{team}/j", attempt=1, what="crashed", time=NOW, went_on=True)
                for team in ("a", "b")
            ],
            answered=after(-600),
        ),
        "Suspect",
    ),
    "offences of the machine under another name": (
        {},
        world(sick(XID_79), memory=MachineOffences([OWING])),
        "Unhealthy",
    ),
    "a wait for a burn-in": ({"preflight": {"profile": "Standard"}}, world(TAKEN_OUT), "Validating"),
    "a passed burn-in, and a clock that is not sure": (
        {"preflight": {"profile": "Standard"}},
        world(TAKEN_OUT, passed=after(30), time_is_sure=False),
        "Healthy",
    ),
}


def made(case: str, **changes: Any) -> NodeDecision:
    policy, known, _ = CASES[case]
    spec = FleetPolicySpec.model_validate(policy)
    known = replace(known, rules=Rules.from_policy(spec), **changes)
    return NodeDecision(spec, known, assess(known))


def document(decision: NodeDecision, **changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(write(decision))
    found["world"] |= changes
    return found


@pytest.mark.parametrize("case", CASES)
def test_a_decision_is_made_again_the_same(case: str) -> None:
    decision = made(case)
    assert decision.verdict is not None
    assert decision.verdict.conclusion.state == CASES[case][2]
    replayed = replay(document(decision))
    assert replayed.same
    assert replayed.now["state"] == CASES[case][2]
    assert assess(replayed.world) == decision.verdict


def test_what_is_written_is_what_was_known_and_no_more() -> None:
    others = MachineOffences([OWING, Offences(score="9", as_of=NOW, hardware="other:gpu")])
    plain = node_input(FleetPolicySpec(), world(sick(XID_79), memory=others))
    assert [each["hardware"] for each in plain["memory"]] == [OWING.hardware]
    assert sorted(plain) == ["capacity", "conditions", "health", "memory", "node", "now", "policy"]


def test_what_an_older_version_did_not_write_has_its_default() -> None:
    plain = document(made("an agent's finding"))["world"]
    for name in ("conditions", "capacity"):
        del plain[name]
    assert read(plain).facts.conditions == ()
    assert read(plain).time_is_sure
    plain["what a newer version writes"] = 1
    assert assess(read(plain)).conclusion.reason == "Xid79"


def test_another_verdict_now_is_seen() -> None:
    found = document(made("a silent agent"))
    assert replay(found).same
    found["verdict"]["reason"] = "Xid79"
    replayed = replay(found)
    assert (replayed.same, replayed.then["reason"], replayed.now["reason"]) == (False, "Xid79", "AgentSilent")


def test_an_error_is_written_and_met_again(monkeypatch: pytest.MonkeyPatch) -> None:
    decision, error = made("an agent's finding"), OverflowError("date value out of range")
    found = document(node_decision.failed(decision.policy, decision.world, error))
    assert found["verdict"] == {"error": "OverflowError: date value out of range"}
    assert not replay(found).same

    def fails(_world: NodeWorld) -> None:
        raise error

    monkeypatch.setattr(node_decision, "assess", fails)
    assert replay(found).same


def test_the_order_is_shown_as_it_was() -> None:
    decision = made("an agent's finding")
    assert decision.verdict is not None
    ruling = Ruling(Act.TAKE, charge=True, cause="agent/Xid79")
    order = Order(
        "node-1", decision.verdict, ruling, effect(decision.verdict, ruling, decision.world.rules.enforcement)
    )
    shown = replay(document(replace(decision, order=order))).order
    assert shown is not None
    assert (shown["ruling"]["act"], shown["ruling"]["cause"], shown["effect"]["avoid"]) == ("Take", "agent/Xid79", True)


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        ({"verdict": {}}, "world and verdict"),
        ({"verdict": "Unhealthy", "world": {}}, "world and verdict"),
        ({"verdict": {}, "world": {"node": {}}}, "it has no policy and no health and no now"),
        ({"verdict": {}, "world": document(made("a cordon"), now="yesterday")["world"]}, "yesterday"),
    ],
)
def test_what_is_no_decision_is_refused(broken: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        replay(broken)

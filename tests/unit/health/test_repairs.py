"""Repairs by others: who is asked for, what holds a node, and what it takes to come back."""

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from tests.unit.health.builders import after, agent, decided, evidence, facts, healthy, rules, sick, written

from muster.api.fleetpolicy import Enforcement, RepairPolicy
from muster.api.nodehealth import MAX_EVIDENCE, Decision, NodeHealth, RecommendedAction, VerdictState
from muster.api.repairrequest import RepairAction, RepairRequest
from muster.health.assess import assess
from muster.health.effects import Effect, effect
from muster.health.facts import NodeFacts
from muster.health.node_world import NodeWorld
from muster.health.orders import Order
from muster.health.repairs import (
    GONE_SECONDS,
    LOOK_SECONDS,
    NOT_EMPTY,
    NOT_READ,
    Case,
    ExistingRequest,
    RepairStatus,
    RepairWorld,
    Stage,
    is_held,
    plan,
)
from muster.health.rulings import Act, Ruling
from muster.health.silence import Silence
from muster.health.sources import Rules
from muster.health.story import status_message
from muster.health.verdict import Verdict

REBOOT, REPLACE = RepairAction.REBOOT, RepairAction.REPLACE
ALL = RepairPolicy(actions=list(RepairAction))
NONE = RepairPolicy()
SICK = sick(evidence("Xid", 79))
PORT_DOWN = sick(evidence("IbPortDown", subject="mlx5_3/1", value="DOWN"))
DEAF = [{"name": "agent", "enabled": False}]


def case(name: str = "a", wants: RepairAction | None = REBOOT, **changes: Any) -> Case:
    return replace(Case(name, after(0), wants), **changes)


def word(stage: Stage, action: RepairAction = REBOOT, message: str = "") -> RepairStatus:
    return RepairStatus(stage, action.value, message)


def request(stage: Stage, action: RepairAction = REBOOT, incident: datetime | None = None) -> ExistingRequest:
    return ExistingRequest(word(stage, action), incident or after(0))


class TestPlan:
    @pytest.mark.parametrize(
        ("it", "policy", "wanted"),
        [
            pytest.param(case(), ALL, ("hold", "a"), id="it is held first"),
            pytest.param(case(held=True), ALL, ("create", "a"), id="then asked for"),
            pytest.param(case(is_empty=False), ALL, None, id="somebody uses it"),
            pytest.param(case(wants=None), ALL, None, id="nothing has to be done"),
            pytest.param(case(), RepairPolicy(actions=[REPLACE]), None, id="of another kind"),
            pytest.param(case(), NONE, None, id="nobody wants that"),
            pytest.param(case(incident_time=None), ALL, None, id="it is in use"),
        ],
    )
    def test_who_is_asked_for(self, it: Case, policy: RepairPolicy, wanted: tuple[str, str] | None) -> None:
        found = plan(RepairWorld({"a": it}, {}, policy))
        assert [*(("hold", n) for n in found.holds), *(("create", n) for n in found.creates)] == [wanted][
            : bool(wanted)
        ]

    @pytest.mark.parametrize(
        ("it", "there", "policy", "missing", "why"),
        [
            pytest.param(case(held=True), request(Stage.ASKED), ALL, None, "", id="it is still wanted"),
            pytest.param(case(held=True), request(Stage.ASKED), NONE, None, "no repairs", id="asked, policy off"),
            pytest.param(case(is_empty=False), request(Stage.ASKED), ALL, None, NOT_EMPTY, id="somebody came"),
            pytest.param(case(wants=None), request(Stage.ASKED), ALL, None, "or none", id="the evidence is gone"),
            pytest.param(case(wants=REPLACE), request(Stage.ASKED), ALL, None, "another action", id="another action"),
            pytest.param(case(incident_time=None), request(Stage.ASKED), ALL, None, "in use", id="it is back"),
            pytest.param(None, request(Stage.ASKED), ALL, None, "", id="nobody can say just now"),
            pytest.param(None, request(Stage.ASKED), ALL, 0.0, "gone", id="asked, gone"),
            pytest.param(case(incident_time=None), request(Stage.IN_PROGRESS), NONE, None, "", id="somebody is at it"),
            pytest.param(None, request(Stage.IN_PROGRESS), ALL, GONE_SECONDS - 1, "", id="it is installed anew"),
            pytest.param(None, request(Stage.IN_PROGRESS), ALL, GONE_SECONDS, "gone", id="it does not come back"),
            pytest.param(case(held=True), request(Stage.DONE), ALL, None, "", id="done is not on record yet"),
            pytest.param(
                case(incident_time=None, held=True), request(Stage.DONE), ALL, None, "", id="nor for one in use"
            ),
            pytest.param(case(), request(Stage.DONE), ALL, None, "", id="done, and it is not proved"),
            pytest.param(case(incident_time=None), request(Stage.DONE), ALL, None, "in use", id="done and proved"),
            pytest.param(
                case(incident_time=after(9)),
                request(Stage.DONE),
                ALL,
                None,
                "a fault that has ended",
                id="done, a new fault",
            ),
            pytest.param(case(wants=REPLACE), request(Stage.DONE), ALL, None, "needs Replace now", id="it took more"),
            pytest.param(case(), request(Stage.DONE, REPLACE), ALL, None, "", id="less is asked for than was done"),
            pytest.param(case(), request(Stage.FAILED), NONE, None, "", id="failed, policy off"),
            pytest.param(
                case(incident_time=None), request(Stage.FAILED), ALL, None, "in use", id="failed and released"
            ),
            pytest.param(
                case(incident_time=after(9)),
                request(Stage.FAILED),
                ALL,
                None,
                "a fault that has ended",
                id="another machine",
            ),
        ],
    )
    def test_which_requests_stay(
        self, it: Case | None, there: ExistingRequest, policy: RepairPolicy, missing: float | None, why: str
    ) -> None:
        gone = {} if missing is None else {"a": missing}
        found = plan(RepairWorld({"a": it} if it else {}, {"a": there}, policy, gone))
        assert (why in found.ends["a"] and why != "") if found.ends else why == ""
        assert set(found.kept) == (set() if why else {"a"})
        assert (found.creates, found.holds) == ((), ())  # the old one goes first

    def test_no_more_at_once_than_the_policy_says_and_those_that_are_held_already_first(self) -> None:
        cases = {name: case(name, incident_time=after(at)) for name, at in (("a", 3), ("b", 1), ("c", 2), ("d", 0))}
        cases["a"] = replace(cases["a"], held=True)
        there = {"d": request(Stage.IN_PROGRESS), "e": request(Stage.DONE)}
        found = plan(RepairWorld(cases, there, ALL.model_copy(update={"max_concurrent": 3})))
        assert (found.creates, found.holds) == (("a",), ("b",))

    def test_a_node_that_rests_is_not_asked_for(self) -> None:
        assert plan(RepairWorld({"a": case()}, {}, ALL, resting={"a"})).holds == ()

    @pytest.mark.parametrize(
        ("phase", "why"),
        [("InProgress", ""), ("OfLater", ""), ("", "a fault that has ended"), ("Done", "a fault that has ended")],
    )
    def test_one_that_cannot_be_read_is_let_be_only_while_somebody_is_at_it(self, phase: str, why: str) -> None:
        found = plan(RepairWorld({"a": case()}, {"a": ExistingRequest.unreadable(phase, "x")}, ALL))
        assert bool(found.ends) == bool(why)
        assert why in found.ends.get("a", "")

    def test_the_request_says_what_whoever_repairs_needs(self) -> None:
        verdict = judged(SICK)
        spec = case(
            reason=verdict.conclusion.reason, message=verdict.conclusion.message, findings=verdict.conclusion.findings
        ).spec()
        body = {"metadata": {"name": "a"}, "spec": spec.to_json()}
        again = RepairRequest.model_validate(body).spec
        assert (again.node, again.action, again.incident_time, again.reason) == ("a", REBOOT, after(0), "Xid79")
        assert [each.reason for each in again.evidence] == ["Xid79"]


def judged(
    health: NodeHealth, at: float = 0, repair: RepairStatus | None = None, policy: Rules | None = None, **more: Any
) -> Verdict:
    here: NodeFacts = more.pop("facts", facts(boot_id=health.status.agent.boot_id if health.status.agent else ""))
    return assess(NodeWorld(here, health, policy or rules(), after(at), repair=repair, **more))


def lived(health: NodeHealth, at: float, repair: RepairStatus | None = None, **more: Any) -> NodeHealth:
    """The object after a look."""
    verdict = judged(health, at, repair, **more)
    if verdict.open_incident and verdict.open_incident.taken_out_time is None:
        verdict = verdict.after_taking_out(after(at))
    return written(health, verdict)


def in_repair(at: float = 20) -> NodeHealth:
    """A node that somebody is at, with nothing against it any more: it was booted."""
    health = lived(lived(SICK, 0), at - 10, word(Stage.ASKED))
    health = lived(health, at, word(Stage.IN_PROGRESS))
    return sick(
        health=health.model_copy(update={"status": health.status.model_copy(update={"agent": agent("boot-2")})})
    )


def reasons(verdict: Verdict) -> list[str]:
    return [each.reason for each in verdict.conclusion.findings if each.source == "repair"]


class TestVerdict:
    def test_a_node_that_is_asked_for_stays_out_though_its_evidence_goes(self) -> None:
        health = lived(lived(PORT_DOWN, 0), 1, word(Stage.ASKED))
        assert is_held(health.status.findings)
        verdict = judged(sick(health=health), 5, word(Stage.ASKED))
        assert (verdict.conclusion.state, reasons(verdict)) == (VerdictState.DEGRADED, ["RepairRequested"])

    def test_what_it_asks_for_is_what_the_fault_needs_and_not_what_the_hold_says(self) -> None:
        verdict = judged(lived(SICK, 0), 1, word(Stage.ASKED))
        assert (verdict.conclusion.reason, verdict.follow_up.repair) == ("Xid79", RecommendedAction.REBOOT)
        gone = judged(sick(health=lived(PORT_DOWN, 0)), 1, word(Stage.ASKED))
        assert gone.follow_up.repair is RecommendedAction.NONE

    def test_without_a_request_everything_is_as_before(self) -> None:
        assert judged(SICK, repair=None) == judged(SICK, repair=NOT_READ)

    @pytest.mark.parametrize("decision", [None, Decision.RELEASE])
    def test_while_somebody_is_at_it_it_stays_out_whatever_is_seen_and_released(
        self, decision: Decision | None
    ) -> None:
        health = decided(in_repair(), decision, at=25)
        verdict = judged(health, 30, word(Stage.IN_PROGRESS))
        assert (verdict.conclusion.state, verdict.conclusion.reason) == (VerdictState.DEGRADED, "RepairInProgress")

    @pytest.mark.parametrize(
        ("repair", "wanted"), [(word(Stage.IN_PROGRESS), Effect(avoid=True)), (word(Stage.ASKED), Effect())]
    )
    def test_where_muster_only_observes_it_keeps_off_what_somebody_is_at_all_the_same(
        self, repair: RepairStatus, wanted: Effect
    ) -> None:
        assert effect(judged(SICK, 30, repair), Ruling(Act.TAKE), Enforcement.OBSERVE) == wanted

    def test_a_new_leader_that_has_not_read_the_requests_holds_what_was_held(self) -> None:
        assert reasons(judged(in_repair(), 30, NOT_READ)) == ["RepairInProgress"]
        assert judged(healthy(), 30, NOT_READ).conclusion.state is VerdictState.HEALTHY

    @pytest.mark.parametrize(
        "repair", [word(Stage.DONE), None, word(Stage.ASKED)], ids=["done", "deleted", "deleted and asked for anew"]
    )
    def test_the_end_of_a_repair_alone_lets_nobody_back(self, repair: RepairStatus | None) -> None:
        health = lived(in_repair(), 30, repair)
        assert health.status.incidents[-1].repair_ended_time == after(30)
        verdict = judged(health, 30 + LOOK_SECONDS - 1, None)
        assert (verdict.conclusion.state, reasons(verdict)) == (VerdictState.DEGRADED, ["RepairNotVerified"])
        assert verdict.follow_up.wake == after(30 + LOOK_SECONDS)

    def test_it_comes_back_once_its_agent_has_looked_at_everything(self) -> None:
        health = lived(in_repair(), 30, word(Stage.DONE))
        verdict = judged(health, 30 + LOOK_SECONDS, word(Stage.DONE))
        assert verdict.conclusion.state is VerdictState.HEALTHY
        assert verdict.record.incidents[-1].cleared_by == "the repair has ended, and the evidence is gone"

    @pytest.mark.parametrize(
        "more",
        [
            pytest.param({"silence": Silence(None, "silent")}, id="its agent is not Ready"),
            pytest.param({"facts": facts(boot_id="boot-3")}, id="its agent has not looked at this boot"),
        ],
    )
    def test_it_stays_out_for_as_long_as_nobody_has_looked(self, more: dict[str, Any]) -> None:
        health = lived(in_repair(), 30, word(Stage.DONE))
        assert reasons(judged(health, 9000, word(Stage.DONE), **more)) == ["RepairNotVerified"]

    def test_where_no_agent_runs_nobody_waits_for_one(self) -> None:
        health = lived(in_repair(), 30, word(Stage.DONE), policy=rules(sources=DEAF))
        assert judged(health, 31, word(Stage.DONE), policy=rules(sources=DEAF)).conclusion.state is VerdictState.HEALTHY

    def test_done_with_the_fault_still_there_changes_nothing(self) -> None:
        health = sick(
            evidence("Xid", 79), health=lived(lived(lived(SICK, 0), 10, word(Stage.ASKED)), 20, word(Stage.DONE))
        )
        verdict = judged(health, 900, word(Stage.DONE))
        assert (verdict.conclusion.state, verdict.conclusion.reason) == (VerdictState.UNHEALTHY, "Xid79")

    def test_a_test_that_was_passed_before_the_repair_ended_counts_for_nothing(self) -> None:
        policy = replace(rules(), validates=True)
        health = lived(in_repair(), 30, word(Stage.DONE), policy=policy)
        for passed, state in ((None, "Validating"), (after(25), "Validating"), (after(40), "Healthy")):
            assert judged(health, 200, word(Stage.DONE), policy=policy, passed=passed).conclusion.state == state

    def test_a_repair_that_failed_keeps_it_out_and_charges_nobody_for_it(self) -> None:
        before = in_repair()
        health = lived(before, 30, word(Stage.FAILED, message="no answer from its BMC"))
        verdict = judged(health, 9000, word(Stage.FAILED, message="no answer from its BMC"))
        assert (verdict.conclusion.state, verdict.conclusion.reason) == (VerdictState.DEGRADED, "RepairFailed")
        assert "no answer from its BMC" in verdict.conclusion.message
        assert verdict.follow_up.repair is RecommendedAction.NONE
        assert verdict.record.offences == before.status.offences
        assert reasons(judged(health, 9000, NOT_READ)) == ["RepairFailed"]

    def test_a_humans_release_ends_that(self) -> None:
        health = decided(lived(in_repair(), 30, word(Stage.FAILED)), Decision.RELEASE, at=60)
        assert judged(health, 61, word(Stage.FAILED)).conclusion.state is VerdictState.HEALTHY

    def test_another_machine_under_the_name_is_kept_off_while_somebody_is_at_it(self) -> None:
        other = agent("boot-9", system_uuid="another board", gpu_serials=[f"77{n}" for n in range(8)])
        before = in_repair()
        health = before.model_copy(update={"status": before.status.model_copy(update={"agent": other})})
        verdict = judged(health, 30, word(Stage.IN_PROGRESS))
        assert (verdict.conclusion.state, verdict.conclusion.reason) == (VerdictState.DEGRADED, "RepairInProgress")
        health = lived(written(health, verdict), 40, word(Stage.DONE))
        assert judged(health, 40 + LOOK_SECONDS, None).conclusion.state is VerdictState.HEALTHY

    def test_a_clock_that_was_far_ahead_holds_nobody_for_ever(self) -> None:
        health = lived(in_repair(20), 90 * 86400, word(Stage.DONE))
        health = lived(health, 100, word(Stage.DONE))
        assert health.status.incidents[-1].repair_ended_time == after(100)
        assert judged(health, 100 + LOOK_SECONDS, word(Stage.DONE)).conclusion.state is VerdictState.HEALTHY

    def test_its_mark_is_on_record_however_much_stands_against_it(self) -> None:
        many = sick(*(evidence("Xid", 79, subject=f"GPU-{number}") for number in range(MAX_EVIDENCE)))
        verdict = judged(many, 0, word(Stage.ASKED))
        assert is_held(verdict.conclusion.findings)
        assert len(verdict.conclusion.findings) == MAX_EVIDENCE

    @pytest.mark.parametrize(
        ("health", "repair", "words"),
        [
            pytest.param(in_repair(), word(Stage.IN_PROGRESS), "when its repair has ended", id="in progress"),
            pytest.param(in_repair(), word(Stage.DONE), "once its agent is Ready and has checked", id="done"),
            pytest.param(in_repair(), word(Stage.FAILED), "Its repair has failed", id="failed"),
            pytest.param(
                sick(evidence("Xid", 79, boot_id="boot-2"), health=in_repair()),
                word(Stage.DONE),
                "Its repair has ended, but the evidence is still there: kubectl delete repairrequest n",
                id="done in vain",
            ),
        ],
    )
    def test_people_read_what_it_waits_for(self, health: NodeHealth, repair: RepairStatus, words: str) -> None:
        verdict = judged(health, 30, repair)
        order = Order("n", verdict, Ruling(Act.TAKE), Effect(avoid=True, taint=True))
        text = status_message(order, rules())
        assert words in text

    def test_looks_that_follow_say_the_same(self) -> None:
        for repair in (word(Stage.ASKED), word(Stage.IN_PROGRESS), word(Stage.FAILED), word(Stage.DONE)):
            once = lived(in_repair(), 30, repair)
            assert lived(once, 35, repair) == once

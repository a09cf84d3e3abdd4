"""One source, rule or reason that the policy only observes: judged and told, and nothing follows."""

from datetime import timedelta
from typing import Any

import pytest
from tests.unit.health.builders import (
    NOW,
    Stored,
    after,
    agent,
    decided,
    evidence,
    facts,
    healthy,
    rules,
    sick,
    written,
)

from muster.api.fleetpolicy import Enforcement, FleetPolicySpec
from muster.api.nodehealth import Decision, Evacuate, NodeHealth, RecommendedAction, Severity, VerdictState
from muster.health.assess import assess
from muster.health.effects import effect
from muster.health.fitness import suspicion_of
from muster.health.node_world import FailedBurnIn, NodeWorld
from muster.health.orders import Order
from muster.health.repairs import RepairStatus, Stage
from muster.health.rulings import Act, Ruling
from muster.health.silence import Silence
from muster.health.sources import ROWS, Rules
from muster.health.story import EFFECT_LENGTH, MESSAGE_LENGTH, effect_text, status_message
from muster.health.verdict import Verdict, node_fault
from muster.health.verdict_index import VerdictIndex
from muster.world.jobfailures import JobFailureReport
from muster.world.views import ConditionView

XID_79 = evidence("Xid", 79, message="GPU has fallen off the bus")
PORT_DOWN = evidence("IbPortDown", subject="mlx5_3/1", value="DOWN")
NPD_BAD = ConditionView("KernelDeadlock", "True", "DockerHung", "hung", after(-600))
REPAIRS = {"sagemaker.amazonaws.com/node-health-status": "UnschedulablePendingReboot"}
_RULE = {"name": "burnt", "label": {"key": "x/burnt"}, "severity": "Fatal", "action": "Replace"}

AGENT_OBSERVED = {"sources": [{"name": "agent", "observeOnly": True}]}
XID_OBSERVED = {"observedReasons": ["Xid79"]}


def judged(health: NodeHealth, at: float = 0, policy: dict[str, Any] | None = None, **changes: Any) -> Verdict:
    options = {"facts": facts()} | changes
    fleet = {"health": policy or {}, "preflight": {"profile": options.pop("profile", "Disabled")}}
    judging = Rules.from_policy(FleetPolicySpec.model_validate(fleet))
    return assess(NodeWorld(options.pop("facts"), health, judging, after(at), **options))


def order(verdict: Verdict, enforcement: Enforcement) -> Order:
    ruling = Ruling(Act.NOTHING)
    return Order("node-1", verdict, ruling, effect(verdict, ruling, enforcement))


def told(verdict: Verdict, enforcement: Enforcement = Enforcement.NODES) -> str:
    return status_message(order(verdict, enforcement), rules(enforcement=enforcement, **XID_OBSERVED))


class TestNothingFollows:
    @pytest.mark.parametrize(
        ("policy", "health", "changes", "reason", "state"),
        [
            pytest.param(XID_OBSERVED, sick(XID_79), {}, "Xid79", "Unhealthy", id="a reason"),
            pytest.param(AGENT_OBSERVED, sick(XID_79), {}, "Xid79", "Unhealthy", id="the agent"),
            pytest.param(
                {"sources": [{"name": "npd", "observeOnly": True}]},
                healthy(),
                {"facts": facts(conditions=[NPD_BAD])},
                "DockerHung",
                "Degraded",
                id="a condition",
            ),
            pytest.param(
                {"sources": [{"name": "hyperpod", "observeOnly": True}]},
                healthy(),
                {"facts": facts(labels=REPAIRS)},
                "HyperPodRepairs",
                "Degraded",
                id="somebody's repair",
            ),
            pytest.param(
                {"rules": [_RULE | {"observeOnly": True}]},
                healthy(),
                {"facts": facts(labels={"x/burnt": "yes"})},
                "MarkedByRule",
                "Unhealthy",
                id="a rule",
            ),
            pytest.param(
                {"sources": [{"name": "burn-in", "observeOnly": True}]},
                healthy(),
                {"burn_ins": [FailedBurnIn("boot-1", "gemm", "slow", NOW)]},
                "BurnInFailed",
                "Degraded",
                id="a burn-in",
            ),
            pytest.param(
                {"observedReasons": ["AgentSilent"]},
                healthy(),
                {"silence": Silence(Severity.DEGRADED, "silent")},
                "AgentSilent",
                "Degraded",
                id="silence",
            ),
        ],
    )
    def test_of_what_is_observed(
        self, policy: dict[str, Any], health: NodeHealth, changes: dict[str, Any], reason: str, state: str
    ) -> None:
        without = judged(health, policy=policy | {"sources": [], "observedReasons": [], "rules": [_RULE]}, **changes)
        assert (without.conclusion.state, without.conclusion.reason) == (state, reason)
        verdict = judged(health, policy=policy, **changes)
        assert (verdict.conclusion.state, verdict.conclusion.reason, verdict.record.incidents) == (
            VerdictState.HEALTHY,
            "",
            (),
        )
        assert (verdict.follow_up.recommended_action, verdict.follow_up.repair) == (
            RecommendedAction.NONE,
            RecommendedAction.NONE,
        )
        assert verdict.grounds.causes == judged(healthy()).grounds.causes
        assert (
            verdict.grounds.certain,
            verdict.grounds.in_charge,
            node_fault(verdict),
            verdict.grounds.needs_boot,
        ) == (False, "", "", False)
        assert verdict.record.offences_if_taken == verdict.record.offences == judged(healthy()).record.offences
        assert effect(verdict, Ruling(Act.NOTHING), Enforcement.NODES) == effect(
            judged(healthy()), Ruling(Act.NOTHING), Enforcement.NODES
        )
        [finding] = verdict.conclusion.findings
        [counted] = without.conclusion.findings
        assert finding == counted.model_copy(update={"observed": True})
        assert verdict.conclusion.would is not None
        assert (verdict.conclusion.would.state, verdict.conclusion.would.reason) == (state, reason)

    def test_also_where_nobody_else_says_anything(self) -> None:
        verdict = judged(
            NodeHealth(metadata=healthy().metadata),
            policy={"sources": [{"name": "npd", "observeOnly": True}]},
            facts=facts(conditions=[NPD_BAD]),
        )
        assert verdict.conclusion.state is VerdictState.HEALTHY
        assert [finding.observed for finding in verdict.conclusion.findings] == [True]

    def test_of_jobs_failures(self) -> None:
        words = [
            JobFailureReport(job=f"{team}/a", owner=team, attempt=1, what="crashed", time=after(-60), went_on=True)
            for team in ("a", "b")
        ]
        assert judged(healthy(), reports=words).follow_up.wants_check
        for policy in ({"sources": [{"name": "jobs", "observeOnly": True}]}, {"observedReasons": ["CheckRequested"]}):
            verdict = judged(healthy(), policy=policy, reports=words)
            assert (
                verdict.follow_up.wants_check,
                verdict.follow_up.followed,
                suspicion_of(verdict, Enforcement.JOBS),
            ) == (
                False,
                None,
                None,
            )
            assert verdict.follow_up.wake is not None
            assert "a/a" not in told(verdict)
            assert "b/a" not in told(verdict)
            assert "CheckRequested" in told(verdict)

    def test_but_what_counts_goes_on_counting(self) -> None:
        verdict = judged(sick(XID_79, PORT_DOWN), policy=XID_OBSERVED)
        assert (verdict.conclusion.state, verdict.conclusion.reason) == (VerdictState.UNHEALTHY, "IbPortDown")
        assert verdict.grounds.causes == ("agent/IbPortDown",)
        assert [(f.reason, f.observed) for f in verdict.conclusion.findings] == [("IbPortDown", False), ("Xid79", True)]
        assert verdict.conclusion.would is None
        assert "Xid79" not in told(verdict)

    def test_and_no_budget_is_used_by_a_whole_fleet(self) -> None:
        fleet = Stored.of(20, rules(enforcement="Nodes", observedReasons=["Xid79"]))
        for name in [*fleet.healths][:15]:
            fleet.report(name, XID_79)
        fleet.report("node-0019", PORT_DOWN)
        _, rulings, effects, breaker = fleet.step(NOW)
        assert fleet.tainted == {"node-0019"}
        assert breaker.held == 0
        assert rulings["node-0019"].act is Act.TAKE
        assert not any(effects[name].avoid for name in effects if name != "node-0019")

    def test_what_people_and_repairs_say_is_never_observed(self) -> None:
        policy = {"observedReasons": ["RepairRequested", "RepairInProgress", "RepairFailed", "Cordoned"]}
        held = judged(healthy(), policy=policy, repair=RepairStatus(Stage.IN_PROGRESS, "Reboot"))
        assert held.out
        assert held.handed_over
        assert judged(decided(healthy(), Decision.CORDON), policy=policy).grounds.cordoned


class TestChanges:
    def taken(self, policy: dict[str, Any] | None = None) -> NodeHealth:
        verdict = judged(sick(XID_79), policy=policy)
        return written(sick(XID_79), verdict.after_taking_out(NOW))

    def test_a_node_that_is_out_comes_back_at_once(self) -> None:
        verdict = judged(self.taken(), 60, XID_OBSERVED, profile="Quick")
        assert verdict.conclusion.state is VerdictState.HEALTHY
        [incident] = verdict.record.incidents
        assert (incident.cleared_time, incident.cleared_by) == (after(60), "the FleetPolicy only observes Xid79 now")

    def test_one_that_somebody_has_worked_on_is_proved_first(self) -> None:
        health = self.taken()
        last = health.status.incidents[-1].model_copy(update={"repair_ended_time": after(10)})
        health = health.model_copy(update={"status": health.status.model_copy(update={"incidents": [last]})})
        assert judged(health, 600, XID_OBSERVED, profile="Quick").conclusion.reason == "RepairNotVerified"
        seen = facts(boot_id="boot-1")
        verdict = judged(health, 600, XID_OBSERVED, profile="Quick", facts=seen)
        assert verdict.conclusion.state is VerdictState.VALIDATING

    def test_one_whose_evidence_is_gone_is_proved_as_ever(self) -> None:
        health = self.taken()
        health = health.model_copy(
            update={"status": health.status.model_copy(update={"evidence": [], "agent": agent("boot-2")})}
        )
        assert judged(health, 60, XID_OBSERVED, profile="Quick").conclusion.state is VerdictState.VALIDATING

    def test_it_goes_back_through_the_budget(self) -> None:
        observed = written(self.taken(), judged(self.taken(), 60, XID_OBSERVED))
        verdict = judged(observed, 120)
        assert verdict.conclusion.state is VerdictState.UNHEALTHY
        assert verdict.open_incident is not None
        assert (verdict.open_incident.time, verdict.open_incident.taken_out_time) == (after(120), None)
        assert [finding.observed for finding in verdict.conclusion.findings] == [False]

    def test_a_finding_that_only_a_boot_ends_is_kept_while_it_is_observed(self) -> None:
        once = written(sick(XID_79), judged(sick(XID_79), policy=XID_OBSERVED))
        silent = once.model_copy(update={"status": once.status.model_copy(update={"evidence": []})})
        again = judged(silent, 3600, XID_OBSERVED)
        assert [(f.reason, f.severity) for f in again.conclusion.findings] == [("Xid79", Severity.FATAL)]
        assert judged(written(silent, again), 7200).conclusion.state is VerdictState.UNHEALTHY

    def test_nothing_is_written_anew_while_nothing_changes(self) -> None:
        first = judged(sick(XID_79), policy=XID_OBSERVED)
        health = written(sick(XID_79), first)
        second = judged(health, 3600, XID_OBSERVED)
        assert written(health, second) == health
        assert told(first) == told(second)

    def test_a_repair_that_nobody_has_taken_on_is_not_wanted_any_more(self) -> None:
        asked = RepairStatus(Stage.ASKED, "Reboot")
        health = written(self.taken(), judged(self.taken(), 10, repair=asked))
        verdict = judged(health, 60, XID_OBSERVED, repair=asked)
        assert (verdict.out, verdict.follow_up.repair) == (True, RecommendedAction.NONE)
        back = judged(written(health, verdict), 70, XID_OBSERVED)
        assert back.conclusion.state is VerdictState.HEALTHY

    def test_a_release_covers_what_is_observed(self) -> None:
        health = written(sick(XID_79), judged(sick(XID_79), policy=XID_OBSERVED))
        verdict = judged(decided(health, Decision.RELEASE, 10), 20, XID_OBSERVED)
        assert verdict.conclusion.would is None
        assert [finding.severity for finding in verdict.conclusion.findings] == [Severity.INFO]


class TestTold:
    @pytest.mark.parametrize(
        ("enforcement", "says"),
        [
            (
                Enforcement.NODES,
                "within the budget, excluded from placement, tainted; running jobs would be evacuated now",
            ),
            (Enforcement.JOBS, "within the budget, excluded from placement; running jobs would be evacuated now"),
            (Enforcement.OBSERVE, "Muster would do nothing"),
        ],
    )
    def test_what_would_follow(self, enforcement: Enforcement, says: str) -> None:
        verdict = judged(sick(XID_79), policy=XID_OBSERVED)
        text = told(verdict, enforcement)
        assert "Only observed: Xid79" in text
        assert "would be Unhealthy" in text
        assert says in text
        assert "uses no budget and is not charged to the machine" in text
        did = effect_text(order(verdict, enforcement), rules(enforcement=enforcement, **XID_OBSERVED))
        assert did == "nothing: spec.health of the FleetPolicy only observes Xid79"
        assert len(did) <= EFFECT_LENGTH

    def test_to_whom_it_would_be_left(self) -> None:
        verdict = judged(
            healthy(), policy={"sources": [{"name": "hyperpod", "observeOnly": True}]}, facts=facts(labels=REPAIRS)
        )
        assert verdict.conclusion.would is not None
        assert (verdict.conclusion.would.in_charge, verdict.conclusion.would.evacuate) == (
            "hyperpod",
            Evacuate.AFTER_CHECKPOINT,
        )
        assert "left to hyperpod" in told(verdict)

    def test_beside_what_counts(self) -> None:
        verdict = judged(sick(XID_79, evidence("PcieGeneration")), policy=XID_OBSERVED)
        assert verdict.conclusion.state is VerdictState.SUSPECT
        assert "Only observed: Xid79" in told(verdict)
        assert "the node stays in use" in told(verdict)

    def test_within_bounds(self) -> None:
        long = evidence("Xid", 79, message="x" * 512)
        assert len(told(judged(sick(long), policy=XID_OBSERVED))) <= MESSAGE_LENGTH

    def test_counted_by_reason(self) -> None:
        index = VerdictIndex()
        index.set_verdict("node-1", judged(sick(XID_79), policy=XID_OBSERVED))
        assert (dict(index.observed), dict(index.reasons)) == ({"Xid79": 1}, {})
        index.set_verdict("node-1", judged(decided(sick(XID_79), Decision.CORDON), policy=XID_OBSERVED))
        assert (dict(index.observed), +index.reasons) == ({"Xid79": 1}, {})
        index.set_verdict("node-1", None)
        assert not index.observed


class TestNames:
    @pytest.mark.parametrize(
        ("reason", "says"),
        [
            ("PcieRepaly", "did you mean PcieReplay?"),
            ("HyperPodRepair", "did you mean HyperPodRepairs?"),
            ("KernelDeadlok", "did you mean KernelDeadlock?"),
            ("Qqqq", "docs/node-health.md lists the reasons"),
            ("Cordoned", "Muster makes no finding with the reason Cordoned"),
        ],
    )
    def test_one_that_is_never_given_is_told(self, reason: str, says: str) -> None:
        [problem] = rules(observedReasons=[reason]).problems
        assert says in problem
        assert reason in problem

    def test_those_that_are_given_are_none(self) -> None:
        fixed = [row.reason for row in ROWS if row.reason]
        conditions = ["KernelDeadlock", "GpuPcieWatch", "NvidiaXID79Error", "NvidiaNVLinkError", "KernelReady"]
        own = [
            "Xid79",
            "SXid12028",
            "RecoveryActionReset",
            "PcieReplay",
            "AgentSilent",
            "BurnInFailed",
            "CheckRequested",
        ]
        assert rules(observedReasons=list(dict.fromkeys([*fixed, *conditions, *own]))[:64]).problems == ()

    def test_the_rules_of_a_policy_are_told_apart(self) -> None:
        policy = rules(
            rules=[_RULE | {"observeOnly": True}, {"name": "b", "label": {"key": "x/b"}, "severity": "Fatal"}]
        )
        marks, _ = policy.signs(facts(labels={"x/burnt": "1", "x/b": "1"}), {}, NOW + timedelta(seconds=1))
        assert {sign.source: policy.observes(sign) for sign in marks} == {"rule/burnt": True, "rule/b": False}

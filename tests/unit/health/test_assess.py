"""The verdict on one node, from case to case and through its life."""

import ast
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.health.builders import (
    GPU,
    NOW,
    Stored,
    after,
    agent,
    decided,
    evidence,
    facts,
    healthy,
    node,
    rules,
    sick,
    written,
)

from muster.api.nodehealth import Decision, Evidence, NodeHealth, NodeHealthStatus, RecommendedAction, VerdictState
from muster.health import assess as assess_module
from muster.health.assess import assess
from muster.health.kinds import KINDS
from muster.health.memory import MachineOffences
from muster.health.node_world import FailedBurnIn, NodeWorld
from muster.health.verdict import Verdict, node_fault
from muster.world.jobfailures import JobFailureReport
from muster.world.views import ConditionView

XID_79 = evidence("Xid", 79, message="NVRM: Xid (PCI:0000:5d:00): 79, GPU has fallen off the bus.")
PORT_DOWN = evidence("IbPortDown", subject="mlx5_3/1", value="DOWN")
EKS_BAD = ConditionView("AcceleratedHardwareReady", "False", "NvidiaNVLinkError", "link 3", after(-60))
WEEK = 604800


def judged(health: NodeHealth, at: float = 0, *conditions: ConditionView, **changes: Any) -> Verdict:
    options = {"facts": facts(conditions=conditions), "rules": rules()} | changes
    return assess(NodeWorld(options.pop("facts"), health, options.pop("rules"), after(at), **options))


def lived(health: NodeHealth, at: float, *conditions: ConditionView, taken: bool = True, **changes: Any) -> NodeHealth:
    """The object after one more pass of an operator that may take the node out."""
    verdict = judged(health, at, *conditions, **changes)
    incident = verdict.open_incident
    if taken and incident and incident.taken_out_time is None:
        verdict = verdict.after_taking_out(after(at))
    return written(health, verdict)


class TestStates:
    @pytest.mark.parametrize(
        ("entries", "state", "reason", "action"),
        [
            pytest.param([], "Healthy", "", "None", id="nothing seen"),
            pytest.param([evidence("Xid", 45)], "Healthy", "", "None", id="a program crashed"),
            pytest.param([evidence("Xid", 9999)], "Suspect", "Xid9999", "Inspect", id="unknown XID"),
            pytest.param([evidence("Tachyons")], "Suspect", "Tachyons", "Inspect", id="unknown kind"),
            pytest.param([evidence("RowRemapPending")], "Degraded", "RowRemapPending", "Reset", id="reset pending"),
            pytest.param([XID_79], "Unhealthy", "Xid79", "Reboot", id="off the bus"),
            pytest.param(
                [evidence("RecoveryAction", 2)], "Unhealthy", "RecoveryActionReboot", "Reboot", id="field 230"
            ),
            pytest.param(
                [evidence("RecoveryAction", 4)], "Degraded", "RecoveryActionDrainAndReset", "Reset", id="drain"
            ),
            pytest.param([evidence("NvmlHang")], "Degraded", "NvmlHang", "Reboot", id="NVML hangs"),
            pytest.param(
                [evidence("RowRemapFailed"), evidence("Xid", 48), evidence("Xid", 13)],
                "Unhealthy",
                "RowRemapFailed",
                "Replace",
                id="what repairs most comes first",
            ),
            pytest.param(
                [evidence("SramThreshold", at=9), evidence("EccCorrected")],
                "Unhealthy",
                "SramThreshold",
                "Replace",
                id="SRAM",
            ),
        ],
    )
    def test_follow_the_gravest_sign(self, entries: list[Evidence], state: str, reason: str, action: str) -> None:
        verdict = judged(sick(*entries), at=60)
        assert (verdict.conclusion.state, verdict.conclusion.reason, verdict.follow_up.recommended_action) == (
            state,
            reason,
            action,
        )
        assert len(verdict.conclusion.findings) == len(entries)
        assert verdict.out is (state in ("Degraded", "Unhealthy"))
        assert verdict.grounds.fatal is (state == "Unhealthy")

    @pytest.mark.parametrize("code", [8, 11, 13, 31, 32, 43, 45, 68, 69, 80])
    def test_what_a_program_can_cause_evicts_nobody(self, code: int) -> None:
        assert not judged(sick(evidence("Xid", code)), at=60).out

    def test_nothing_known_is_no_verdict(self) -> None:
        unknown = healthy().model_copy(update={"status": NodeHealthStatus()})
        verdict = judged(unknown)
        assert (
            verdict.conclusion.state,
            verdict.conclusion.reason,
            verdict.conclusion.since,
            verdict.conclusion.findings,
        ) == (None, "", None, ())

    def test_a_node_without_a_driver_is_not_sick_and_says_so(self) -> None:
        verdict = judged(healthy(driver="", gpus=0, gpu_serials=[], problem="no driver"))
        assert verdict.conclusion.state is VerdictState.HEALTHY
        assert "no driver" in verdict.conclusion.message

    def test_marks_of_others_count_without_an_agent(self) -> None:
        unknown = healthy().model_copy(update={"status": NodeHealthStatus()})
        verdict = judged(unknown, 0, EKS_BAD)
        assert (verdict.conclusion.state, verdict.conclusion.reason) == ("Unhealthy", "NvidiaNVLinkError")
        gone = written(unknown, verdict)
        assert judged(gone, 60).conclusion.state is None, (
            "that the mark is gone does not make it healthy, but it is no longer out"
        )

    def test_since_is_kept_while_the_state_is(self) -> None:
        health = lived(sick(evidence("RowRemapPending")), 0)
        assert judged(health, 50).conclusion.since == NOW
        assert judged(sick(evidence("RowRemapPending"), XID_79, health=health), 60).conclusion.since == after(60)

    def test_a_second_look_changes_nothing(self) -> None:
        health = lived(sick(XID_79, PORT_DOWN, evidence("Xid", 13)), 0)
        later = sick(
            XID_79,
            PORT_DOWN.model_copy(update={"value": "POLLING", "last_seen": after(3000)}),
            evidence("Xid", 13),
            health=health,
        )
        assert written(later, judged(later, 3600)).status == later.status

    def test_switched_off_the_agent_says_nothing(self) -> None:
        off = rules(sources=[{"name": "agent", "enabled": False}])
        assert not judged(sick(XID_79), rules=off).out


class TestClearing:
    def test_cleared_evidence_lets_the_node_back(self) -> None:
        health = lived(sick(PORT_DOWN), 0)
        verdict = judged(sick(health=health), 60)
        assert verdict.conclusion.state is VerdictState.HEALTHY
        (incident,) = verdict.record.incidents
        assert (incident.cleared_time, incident.cleared_by) == (after(60), "the evidence is gone")

    def test_a_log_line_that_grew_old_is_no_repair(self) -> None:
        health = lived(sick(XID_79), 0)
        for hours in (1, 25, 99):
            health = lived(sick(health=health), 3600 * hours)
            assert (health.status.state, health.status.reason) == ("Unhealthy", "Xid79")
        verdict = judged(health, 3600 * 100)
        assert verdict.grounds.needs_boot
        assert verdict.follow_up.recommended_action is RecommendedAction.REBOOT

    @pytest.mark.parametrize("kind", ["DiskError", "HostErrorUncorrected", "PcieAerFatal", "PcieAerUncorrected"])
    def test_a_line_that_nvml_cannot_confirm_stands_until_a_new_boot_clears_it(self, kind: str) -> None:
        """Found by simulated fleets: nobody uses the disk of a node that is out, so that it says nothing more."""
        health = lived(sick(evidence(kind)), 0)
        later = lived(sick(health=health), 25 * 3600)
        assert later.status.state in ("Degraded", "Unhealthy")
        booted = later.status.model_copy(update={"agent": agent("boot-2")})
        assert judged(later.model_copy(update={"status": booted}), 26 * 3600).conclusion.state is VerdictState.HEALTHY

    def test_a_new_boot_clears_what_only_a_boot_ends(self) -> None:
        health = lived(lived(sick(XID_79), 0), 60)
        rebooted = sick(health=health).model_copy(
            update={"status": health.status.model_copy(update={"evidence": [], "agent": agent("boot-2")})}
        )
        verdict = judged(rebooted, 600)
        assert verdict.conclusion.state is VerdictState.HEALTHY
        assert verdict.record.incidents[-1].cleared_by == "the node was rebooted, and the evidence is gone"

    def test_what_was_seen_before_the_boot_does_not_count(self) -> None:
        health = sick(XID_79, health=healthy(boot="boot-2"))
        assert judged(health).conclusion.state is VerdictState.HEALTHY

    def test_as_long_as_the_agent_has_not_spoken_since_the_boot_nothing_is_known(self) -> None:
        health = lived(sick(PORT_DOWN), 0)
        rebooted = replace(facts(), node=node(boot_id="kubelet-boot-2"))
        assert judged(health, 60, facts=rebooted).conclusion.state is VerdictState.UNHEALTHY

    @pytest.mark.parametrize("kind", sorted(KINDS))
    def test_every_kind_is_cleared_in_the_end(self, kind: str) -> None:
        health = lived(sick(evidence(kind, 2 if kind == "RecoveryAction" else 79, count=99)), 0)
        gone = health.model_copy(
            update={"status": health.status.model_copy(update={"evidence": [], "agent": agent("boot-2")})}
        )
        assert judged(gone, 60).conclusion.state is VerdictState.HEALTHY

    def test_without_boot_ids_a_log_line_ends_with_its_evidence(self) -> None:
        health = lived(
            sick(XID_79.model_copy(update={"boot_id": ""}), health=healthy(boot="")), 0, facts=facts(boot_id="")
        )
        assert judged(sick(health=health), 60, facts=facts(boot_id="")).conclusion.state is VerdictState.HEALTHY


class TestHumans:
    def test_a_cordon_sticks_and_gives_the_humans_reason(self) -> None:
        health = decided(healthy(), Decision.CORDON, reason="liquid under rack 7")
        for at in (0, 3600, 10**7):
            health = lived(health, at, taken=False)
            assert (health.status.state, health.status.reason) == ("Quarantined", "Cordoned")
        verdict = judged(health, 10**7)
        assert verdict.grounds.cordoned
        assert verdict.conclusion.message == "cordoned by ann: liquid under rack 7"
        assert verdict.record.offences.score == "0"
        back = judged(decided(health, None), 10**7 + 1)
        assert back.conclusion.state is VerdictState.HEALTHY
        assert back.record.incidents[-1].cleared_by == "a user ended the cordon"

    def test_under_a_cordon_that_is_taken_back_the_fault_is_told(self) -> None:
        health = lived(decided(healthy(), Decision.CORDON), 0, taken=False)
        health = lived(decided(sick(PORT_DOWN, health=health), None), 60, taken=False)
        (incident,) = health.status.incidents
        assert (incident.state, incident.reason, incident.time) == ("Unhealthy", "IbPortDown", NOW)

    def test_a_release_holds_until_something_new_happens(self) -> None:
        health = lived(sick(PORT_DOWN, XID_79), 0)
        health = lived(decided(health, Decision.RELEASE, at=100), 100)
        assert (health.status.state, health.status.reason) == ("Healthy", "Released")
        assert health.status.incidents[-1].cleared_by == "released by ann: looked at it"
        assert {finding.severity for finding in health.status.findings} == {"Info"}
        again = [PORT_DOWN.model_copy(update={"last_seen": after(9000)}), XID_79]
        assert judged(sick(*again, health=health), 9000).conclusion.state is VerdictState.HEALTHY, (
            "it lasts: that is not new"
        )
        new = [PORT_DOWN, XID_79.model_copy(update={"last_seen": after(9000), "count": 2})]
        verdict = judged(sick(*new, health=health), 9000)
        assert (verdict.conclusion.state, verdict.conclusion.reason) == ("Unhealthy", "Xid79")
        assert verdict.conclusion.findings[0].since == after(9000)

    def test_a_release_lets_go_of_what_only_a_boot_ends(self) -> None:
        health = lived(sick(XID_79), 0)
        health = lived(sick(health=decided(health, Decision.RELEASE, at=100)), 100)
        assert health.status.state == "Healthy"
        assert lived(health, 200).status.state == "Healthy"

    def test_news_after_a_release_outlast_their_evidence(self) -> None:
        health = lived(decided(sick(XID_79), Decision.RELEASE, at=10), 20)
        health = lived(sick(XID_79.model_copy(update={"last_seen": after(30)}), health=health), 40)
        assert lived(sick(health=health), 90000).status.state == "Unhealthy"

    def test_a_mark_without_a_time_is_released_as_well(self) -> None:
        marked = facts(labels={"autopilot.ibm.com/gpuhealth": "EVICT"})
        health = lived(healthy(), 0, facts=marked)
        assert health.status.state == "Degraded"
        health = decided(health, Decision.RELEASE, at=50)
        for at in (60, 600):
            health = lived(health, at, facts=marked)
            assert health.status.state == "Healthy"
        unmarked = lived(health, 700)
        assert lived(unmarked, 800, facts=marked).status.state == "Degraded", "it was gone and has come again"

    def test_a_fault_that_appears_after_a_release_counts_whatever_the_nodes_clock_says(self) -> None:
        health = sick(PORT_DOWN)
        health = decided(written(health, judged(health, 1)), Decision.RELEASE, at=3600)
        health = written(health, judged(health, 3600))
        slow = sick(PORT_DOWN, evidence("GpuLost", at=60), health=health)  # an hour behind
        for at in (3700, 3800, 8000):
            verdict = judged(slow, at)
            slow = written(slow, verdict)
            assert (verdict.conclusion.state, verdict.conclusion.reason) == (VerdictState.UNHEALTHY, "GpuLost")
        slow = decided(slow, Decision.RELEASE, at=8001)
        assert judged(slow, 8002).conclusion.state is VerdictState.HEALTHY

    @pytest.mark.parametrize(
        "what", [PORT_DOWN, XID_79, evidence("DiskError", subject="nvme0n1")], ids=lambda e: e.kind
    )
    def test_a_release_covers_what_was_there_though_the_nodes_clock_is_hours_ahead(self, what: Evidence) -> None:
        ahead = {"first_seen": after(3 * 3600), "last_seen": after(3 * 3600)}
        health = lived(sick(what.model_copy(update=ahead)), 60)
        assert health.status.state in ("Unhealthy", "Degraded")
        health = decided(health, Decision.RELEASE, at=120)
        for at in (125, 200, 600, 3600, 10860, 14400, 90000):
            health = lived(health, at)
            assert (health.status.state, at) == ("Healthy", at)

    @pytest.mark.parametrize("at", [300, 12000])
    def test_after_a_release_what_such_a_node_sees_anew_counts(self, at: float) -> None:
        ahead = XID_79.model_copy(update={"first_seen": after(10800), "last_seen": after(10800)})
        health = lived(decided(lived(sick(ahead), 60), Decision.RELEASE, at=120), 125)
        again = ahead.model_copy(update={"last_seen": after(10800 + at), "count": 2})
        health = lived(sick(again, health=health), at)
        assert (health.status.state, health.status.reason) == ("Unhealthy", "Xid79")
        assert lived(health, at + 60).status.state == "Unhealthy"
        assert lived(decided(health, Decision.RELEASE, at=at + 90), at + 100).status.state == "Healthy"

    def test_a_port_that_comes_and_goes_again_on_such_a_node_counts(self) -> None:
        down = evidence("IbPortDown", subject="mlx5_3/1", at=10800)
        health = lived(decided(lived(sick(down), 60), Decision.RELEASE, at=120), 125)
        health = lived(sick(health=health), 200)
        assert lived(sick(down, health=health), 300).status.state == "Unhealthy"

    def test_a_release_from_a_clock_far_ahead_waits_for_its_time(self) -> None:
        health = decided(sick(XID_79), Decision.RELEASE, at=86400)
        verdict = judged(health, 0)
        assert verdict.conclusion.state is VerdictState.UNHEALTHY
        assert verdict.follow_up.wake == after(86400)
        assert judged(health, 86400).conclusion.state is VerdictState.HEALTHY


def word(owner: str = "a", job: str = "llama", at: float = 0, **changes: Any) -> JobFailureReport:
    values: dict[str, Any] = {"attempt": 3, "what": "RankFailed (exit code 1)", "time": after(at), "went_on": True}
    return JobFailureReport(owner, f"{owner}/{job}", **(values | changes))


class TestJobs:
    TWICE = (word(), word("a", "bert", 60))
    BOTH = (word(), word("b", "gpt", 60))

    @pytest.mark.parametrize(
        ("words", "state", "reason"),
        [
            pytest.param([], "Healthy", "", id="nobody"),
            pytest.param([word()], "Healthy", "", id="one failure"),
            pytest.param(TWICE, "Suspect", "FollowedByFailures", id="one owner, twice"),
            pytest.param([word(job=f"j{i}") for i in range(100)], "Suspect", "FollowedByFailures", id="one who shouts"),
            pytest.param(BOTH, "Suspect", "CheckRequested", id="two owners"),
            pytest.param([word(f"t{i}") for i in range(100)], "Suspect", "CheckRequested", id="everybody"),
        ],
    )
    def test_jobs_make_a_node_suspect_and_ask_for_a_check_and_no_more(
        self, words: list[JobFailureReport], state: str, reason: str
    ) -> None:
        verdict = judged(healthy(), 120, reports=words)
        assert (verdict.conclusion.state, verdict.conclusion.reason) == (state, reason)
        assert (verdict.out, verdict.grounds.causes, node_fault(verdict)) == (False, (f"muster/{reason}",), "")
        assert verdict.follow_up.wants_check is (reason == "CheckRequested")
        assert verdict.record.offences == verdict.record.offences_if_taken

    def test_beside_hardware_they_weigh_nothing_more(self) -> None:
        alone, beside = judged(sick(PORT_DOWN), 120), judged(sick(PORT_DOWN), 120, reports=self.BOTH)
        assert (beside.conclusion.state, beside.conclusion.reason, beside.grounds.causes) == (
            alone.conclusion.state,
            alone.conclusion.reason,
            alone.grounds.causes,
        )
        assert (beside.grounds.stays, beside.grounds.fatal, beside.grounds.certain) == (
            alone.grounds.stays,
            alone.grounds.fatal,
            alone.grounds.certain,
        )

    def test_the_finding_names_jobs_and_attempts_and_what_everybody_reads_does_not(self) -> None:
        verdict = judged(healthy(), 120, reports=self.BOTH)
        (finding,) = verdict.conclusion.findings
        for job in ("a/llama", "b/gpt"):
            assert f"{job} attempt 3 RankFailed (exit code 1)" in finding.message
            assert job not in verdict.conclusion.message
        assert verdict.conclusion.message.startswith("jobs of 2 owners have failed on this node")

    def test_a_repeat_offender_tells_nobody_of_jobs(self) -> None:
        health = healthy()
        for day in (0, 1, 2):
            health = lived(
                sick(PORT_DOWN.model_copy(update={"first_seen": after(day * 86400)}), health=health), day * 86400
            )
            health = lived(health, day * 86400 + 1)
            health = lived(sick(health=health), day * 86400 + 60)
        words = [word(at=2 * 86400 + 100), word("b", at=2 * 86400 + 100)]
        verdict = judged(health, 2 * 86400 + 120, reports=words)
        assert (verdict.conclusion.state, verdict.conclusion.findings[0].reason) == ("Quarantined", "CheckRequested")
        assert "a/llama" not in verdict.conclusion.message
        assert verdict.follow_up.wants_check

    def test_a_finding_has_room(self) -> None:
        words = [word("n" * 63, "j" * 189 + str(i), what="x" * 90) for i in range(40)]
        (finding,) = judged(healthy(), 120, reports=words).conclusion.findings
        assert len(finding.message) <= 512

    def test_their_word_fades(self) -> None:
        verdict = judged(healthy(), 120, reports=self.BOTH)
        assert verdict.follow_up.wake is not None
        just = (verdict.follow_up.wake - NOW).total_seconds()
        assert 2 * 86400 - 5 <= just <= 2 * 86400 + 65
        assert judged(healthy(), just - 2, reports=self.BOTH).follow_up.wants_check
        assert judged(healthy(), just, reports=self.BOTH).conclusion.state is VerdictState.HEALTHY

    @pytest.mark.parametrize(
        "answer",
        [
            pytest.param(
                lambda health: judged(decided(health, Decision.RELEASE, at=70), 120, reports=TestJobs.BOTH),
                id="a human",
            ),
            pytest.param(lambda health: judged(health, 120, reports=TestJobs.BOTH, answered=after(70)), id="a test"),
        ],
    )
    def test_what_came_before_is_answered_by(self, answer: Callable[[NodeHealth], Verdict]) -> None:
        assert answer(healthy()).conclusion.state is VerdictState.HEALTHY

    def test_a_test_does_not_answer_what_came_after_it(self) -> None:
        words = [*self.BOTH, word("a", at=90), word("b", at=95)]
        assert judged(healthy(), 120, reports=words, answered=after(70)).follow_up.wants_check

    def test_that_the_node_was_taken_out_has_told_what_came_before(self) -> None:
        health = lived(sick(PORT_DOWN), 61)
        health = lived(sick(health=health), 100)
        assert judged(health, 120, reports=self.BOTH).conclusion.state is VerdictState.HEALTHY
        assert judged(health, 120, reports=[word(at=110), word("b", at=110)]).follow_up.wants_check

    def test_a_word_from_a_clock_ahead_is_of_now_and_from_one_far_ahead_waits(self) -> None:
        words = [word(at=200), word("b", at=200)]
        assert judged(healthy(), 0, reports=words).follow_up.followed == NOW
        assert (
            judged(decided(healthy(), Decision.RELEASE, at=0), 0, reports=words).conclusion.state
            is VerdictState.HEALTHY
        )
        assert (
            judged(healthy(), 0, reports=[word(at=10**9), word("b", at=10**9)]).conclusion.state is VerdictState.HEALTHY
        )

    def test_nobody_listens_where_the_policy_says_so(self) -> None:
        deaf = rules(sources=[{"name": "jobs", "enabled": False}])
        verdict = judged(healthy(), 120, reports=self.BOTH, rules=deaf)
        assert (verdict.conclusion.state, verdict.follow_up.followed) == (VerdictState.HEALTHY, None)


class TestMemory:
    def _incident(self, health: NodeHealth, at: float) -> NodeHealth:
        health = lived(sick(PORT_DOWN.model_copy(update={"first_seen": after(at)}), health=health), at)
        health = lived(health, at + 1)
        return lived(sick(health=health), at + 60)

    def test_the_third_incident_in_short_order_is_quarantine(self) -> None:
        health = healthy()
        for day in (0, 1):
            health = self._incident(health, day * 86400)
            assert health.status.state == "Healthy"
        health = self._incident(health, 2 * 86400)
        assert (health.status.state, health.status.reason) == ("Quarantined", "RepeatOffender")
        assert health.status.recommended_action == "Inspect"
        assert len(health.status.incidents) == 3

    def test_three_in_three_months_are_not(self) -> None:
        health = healthy()
        for month in (0, 1, 2):
            health = self._incident(health, month * 30 * 86400)
            assert health.status.state == "Healthy"

    def test_quarantine_ends_by_itself_when_enough_has_faded(self) -> None:
        health = healthy()
        for hour in (0, 1, 2):
            health = self._incident(health, hour * 3600)
        wake = judged(health, 8000).follow_up.wake
        assert wake is not None
        assert after(WEEK) < wake < after(2 * WEEK)
        before, then = (wake - NOW - timedelta(hours=3)).total_seconds(), (wake - NOW).total_seconds()
        assert judged(health, before).conclusion.state is VerdictState.QUARANTINED
        assert judged(health, then).conclusion.state is VerdictState.HEALTHY
        assert judged(health, then).record.incidents[-1].cleared_by == "the machine's offence score has faded"

    @pytest.mark.parametrize("days", [9, 30, 3650])
    def test_a_time_that_is_not_sure_ends_no_quarantine(self, days: int) -> None:
        """A leader whose clock is far ahead used to empty quarantines, and the right time did not bring them back."""
        health = healthy()
        for hour in (0, 1, 2):
            health = self._incident(health, hour * 3600)
        verdict = judged(health, days * 86400, time_is_sure=False)
        assert (verdict.conclusion.state, verdict.conclusion.reason, verdict.follow_up.faded) == (
            VerdictState.QUARANTINED,
            "RepeatOffender",
            True,
        )
        assert verdict.open_incident is not None
        back = judged(written(health, verdict), 8000, time_is_sure=False)
        assert (back.conclusion.state, back.follow_up.faded) == (VerdictState.QUARANTINED, False)
        sure = judged(health, days * 86400)
        assert (sure.conclusion.state, sure.follow_up.faded) == (VerdictState.HEALTHY, True)
        assert not judged(written(health, sure), days * 86400 + 1).follow_up.faded

    @pytest.mark.parametrize("score", ["100m", "NaN", "", "-1"])
    def test_a_stored_account_that_is_no_number_is_judged_as_0(self, score: str) -> None:
        health = healthy()
        for hour in (0, 1, 2):
            health = self._incident(health, hour * 3600)
        offences = health.status.offences.model_copy(update={"score": score})
        health = health.model_copy(update={"status": health.status.model_copy(update={"offences": offences})})
        verdict = judged(health, 8000, time_is_sure=False)
        assert verdict.conclusion.reason == "RepeatOffender"
        assert "(offence score 0.0)" in verdict.conclusion.message

    def test_a_mark_that_flaps_is_one_fault(self) -> None:
        """Three flips in forty seconds used to be a quarantine; and each flip a move of the job, and four writes."""
        fleet, told, changes = Stored.of(8, rules()), None, 0
        for at in range(0, 3600, 10):
            bad = ConditionView("NebiusGPUError", "True", "Broken", "", after(at))
            fleet.mark("node-0007", *([bad] if at % 20 == 0 else []))
            fleet.step(after(at))
            status = fleet.healths["node-0007"].status
            changes += told is not None and told != status
            told = status
        assert status.offences.score == "1"
        assert changes <= 6, "each is written, and the taint with some"
        assert status.state == "Degraded"
        fleet.mark("node-0007")
        fleet.step(after(920 + 3600 + 20))
        assert fleet.healths["node-0007"].status.state == "Healthy"
        for at in range(6 * 3600, 10 * 3600, 600):  # the breaker's pauses are over
            fleet.mark("node-0007", bad)
            fleet.step(after(at))
            fleet.step(after(at + 5))
            fleet.mark("node-0007")
            fleet.step(after(at + 10))
        state = fleet.healths["node-0007"].status.state
        assert state == "Quarantined", "that goes on for hours is no flicker"

    @pytest.mark.parametrize("what", ["nothing", "boot", "release", "switched off"])
    def test_a_mark_that_came_back_stands_unless_something_was_done(self, what: str) -> None:
        bad = ConditionView("NebiusGPUError", "True", "Broken", "", NOW)
        fleet = Stored.of(100, rules())
        for at in (0, 60):
            fleet.mark("node-0007", replace(bad, since=after(at)))
            fleet.step(after(at))
            fleet.mark("node-0007")
            if at:
                break
            verdicts, *_ = fleet.step(after(at + 30))
            assert verdicts["node-0007"].conclusion.state is VerdictState.HEALTHY
        if what == "boot":
            fleet.reboot("node-0007", "boot-2")
        elif what == "release":
            fleet.healths["node-0007"] = decided(fleet.healths["node-0007"], Decision.RELEASE, at=80)
        elif what == "switched off":
            fleet.rules = rules(sources=[{"name": "nebius", "enabled": False}])
        verdicts, *_ = fleet.step(after(90))
        stands = what == "nothing"
        assert (verdicts["node-0007"].conclusion.state is VerdictState.DEGRADED) is stands
        if stands:
            assert verdicts["node-0007"].follow_up.wake == after(60 + 900)
            verdicts, *_ = fleet.step(after(60 + 900))
            assert verdicts["node-0007"].conclusion.state is VerdictState.HEALTHY

    @pytest.mark.parametrize(
        ("mark", "stands"),
        [
            pytest.param(
                ConditionView("NebiusGPUError", "True", "Broken", "", NOW), True, id="a fault, held by the breaker"
            ),
            pytest.param(ConditionView("MaintenancePlanned", "True", "Firmware", "", NOW), False, id="planned"),
            pytest.param(ConditionView("SlurmNodeDrain", "True", "Drained", "", NOW), False, id="being repaired"),
        ],
    )
    def test_only_faults_that_others_tell_of_stand(self, mark: ConditionView, stands: bool) -> None:
        health = healthy()
        for at in (0, 20, 40):
            health = lived(health, at, replace(mark, since=after(at)), taken=False)
            health = lived(health, at + 10, taken=False)
        assert (health.status.state == "Degraded") is stands

    @pytest.mark.parametrize("what", ["boot", "release", "another"])
    def test_what_comes_back_after_something_was_done_is_charged_again(self, what: str) -> None:
        fleet = Stored.of(100, rules())
        fleet.report("node-0007", PORT_DOWN)
        fleet.step(NOW)
        fleet.report("node-0007")
        fleet.step(after(10))
        again = PORT_DOWN.model_copy(update={"first_seen": after(60), "last_seen": after(60)})
        if what == "boot":
            fleet.reboot("node-0007", "boot-2")
            again = again.model_copy(update={"boot_id": "boot-2"})
        elif what == "release":
            fleet.healths["node-0007"] = decided(fleet.healths["node-0007"], Decision.RELEASE, at=30)
        else:
            again = evidence("GpuLost", at=60)
        fleet.report("node-0007", again)
        fleet.step(after(60))
        assert float(fleet.healths["node-0007"].status.offences.score) > 1.9

    def test_a_human_who_vouches_ends_it_but_the_memory_stays(self) -> None:
        health = healthy()
        for hour in (0, 1, 2):
            health = self._incident(health, hour * 3600)
        health = lived(decided(health, Decision.RELEASE, at=9000), 9000)
        assert health.status.state == "Healthy"
        assert self._incident(health, 10000).status.state == "Quarantined"

    def test_what_the_breaker_holds_back_is_not_charged(self) -> None:
        health = healthy()
        for hour in range(6):
            health = lived(sick(PORT_DOWN, health=health), hour * 3600, taken=False)
            health = lived(sick(health=health), hour * 3600 + 60, taken=False)
        assert health.status.offences.score == "0"
        assert health.status.state == "Healthy"

    def test_maintenance_is_no_offence(self) -> None:
        planned = ConditionView("MaintenancePlanned", "True", "Firmware", "", after(-1))
        health = healthy()
        for day in range(5):
            health = lived(health, day * 86400, planned)
            health = lived(health, day * 86400 + 60)
        assert health.status.offences.score == "0"
        assert len(health.status.incidents) == 5

    def test_the_same_hardware_under_another_name_inherits(self) -> None:
        old = self._incident(self._incident(healthy("old"), 0), 3600)
        memory = MachineOffences([old.status.offences])
        new = lived(healthy("new", system_uuid="new-vm"), 7000, memory=memory)
        assert new.status.offences.hardware != ""
        assert new.status.offences.score == judged(healthy("new"), 7000, memory=memory).record.offences.score != "0"
        assert self._incident(new, 7200).status.state == "Quarantined"

    def test_the_same_name_with_other_hardware_inherits_nothing(self) -> None:
        health = healthy()
        for hour in (0, 1, 2):
            health = self._incident(health, hour * 3600)
        health = lived(sick(XID_79, health=health), 9000)
        assert health.status.state == "Quarantined"
        status = health.status.model_copy(
            update={"agent": agent("boot-9", system_uuid="other", gpu_serials=["a", "b"]), "evidence": []}
        )
        verdict = judged(
            health.model_copy(update={"status": status}), 9100, memory=MachineOffences([health.status.offences])
        )
        assert verdict.conclusion.state is VerdictState.HEALTHY
        assert verdict.record.offences.score == "0"
        assert verdict.record.incidents[-1].cleared_by == "another machine has the node's name now"

    def test_what_is_inherited_is_inherited_once(self) -> None:
        """A clone of the mainboard's UUID is not charged for what the other one does."""
        old = self._incident(healthy("old"), 0)
        new = lived(healthy("new"), 7000, memory=MachineOffences([old.status.offences]))
        old = self._incident(old, 7100)
        later = lived(new, 7200, memory=MachineOffences([old.status.offences]))
        assert later.status.offences == new.status.offences

    def test_a_machine_that_another_agent_claims_to_be_is_not_charged_for_it(self) -> None:
        """Whoever has that agent's token reads the serial numbers, claims them, and fails for days."""
        known = lived(healthy(), 0)
        claimed = MachineOffences([known.status.offences.model_copy(update={"score": "1000", "as_of": after(60)})])
        later = lived(known, 120, memory=claimed)
        assert (later.status.state, later.status.offences.score) == ("Healthy", "0")
        failed = lived(sick(XID_79, health=later), 180, memory=claimed)
        assert (failed.status.state, failed.status.offences.score) == ("Unhealthy", "1")

    def test_a_new_board_whose_gpus_do_not_answer_is_no_other_machine_yet(self) -> None:
        stored = Stored.of(20, rules())
        name = "node-0003"
        stored.report(name, evidence("GpuLost"))
        stored.step(after(1))

        def starts_anew(at: float, *seen: Evidence, **machine: Any) -> Verdict:
            status = stored.healths[name].status
            assert status.agent is not None
            now = status.agent.model_copy(update={"boot_id": "boot-2", "system_uuid": "another", **machine})
            changed = status.model_copy(update={"agent": now, "evidence": list(seen)})
            stored.healths[name] = stored.healths[name].model_copy(update={"status": changed})
            return stored.step(after(at))[0][name]

        hangs = evidence("NvmlHang", at=600, boot_id="boot-2", subject="")
        verdict = starts_anew(600, hangs, gpu_serials=[], gpus=0)
        assert verdict.open_incident is not None
        assert verdict.open_incident.taken_out_time is not None
        verdict = starts_anew(700, gpu_serials=[f"{name}-0"], gpus=1)
        assert (verdict.record.offences.score, verdict.record.incidents[-1].cleared_by) == (
            "1",
            "the node was rebooted, and the evidence is gone",
        )
        verdict = starts_anew(800, gpu_serials=["other-0", "other-1"])
        assert verdict.record.offences.score == "0"

    def test_another_node_object_with_another_board_is_another_machine(self) -> None:
        health = written(sick(XID_79), judged(sick(XID_79), 1).after_taking_out(after(1)))
        other = health.model_copy(
            update={
                "status": health.status.model_copy(
                    update={"agent": agent("boot-2", system_uuid="another", gpu_serials=[])}
                )
            }
        )
        verdict = assess(NodeWorld(facts(uid="another"), other, rules(), after(60)))
        assert verdict.record.incidents[-1].cleared_by == "another machine has the node's name now"

    def test_marks_on_a_new_machine_under_the_old_name_are_new(self) -> None:
        marked = facts(labels={"autopilot.ibm.com/gpuhealth": "EVICT"})
        health = lived(healthy(), 0, facts=marked)
        status = health.status.model_copy(update={"agent": agent(system_uuid="other", gpu_serials=["a", "b"])})
        verdict = judged(health.model_copy(update={"status": status}), 600, facts=marked)
        assert [finding.since for finding in verdict.conclusion.findings] == [after(600)]
        assert [incident.time for incident in verdict.record.incidents] == [NOW, after(600)]

    def test_a_lost_gpu_loses_no_memory(self) -> None:
        health = self._incident(self._incident(healthy(), 0), 3600)
        known = health.status.offences.hardware
        less = health.status.model_copy(
            update={"agent": agent(gpu_serials=[f"165212300{i}" for i in range(7)], gpus=7)}
        )
        health = self._incident(health.model_copy(update={"status": less}), 7200)
        assert health.status.state == "Quarantined"
        assert health.status.offences.hardware == known

    def test_the_same_fault_again_was_not_repaired_by_what_was_done(self) -> None:
        health = lived(sick(XID_79), 0)
        assert health.status.recommended_action == "Reboot"
        booted = health.status.model_copy(update={"agent": agent("boot-2"), "evidence": []})
        health = lived(health.model_copy(update={"status": booted}), 600)
        again = XID_79.model_copy(update={"boot_id": "boot-2", "first_seen": after(900), "last_seen": after(900)})
        health = lived(sick(again, health=health), 900)
        assert health.status.recommended_action == "Replace"

    def test_the_list_of_incidents_is_bounded(self) -> None:
        health, lenient = healthy(), rules(quarantine={"incidents": 32})
        for hour in range(0, 4000, 100):
            health = lived(sick(PORT_DOWN, health=health), hour * 3600, rules=lenient)
            health = lived(sick(health=health), hour * 3600 + 60, rules=lenient)
        assert len(health.status.incidents) == 32
        assert health.status.incidents[-1].time == after(3900 * 3600)


class TestRepairByOthers:
    """NVSentinel's keys in the order in which it writes and removes them."""

    LABEL = "dgxc.nvidia.com/nvsentinel-state"

    def test_it_is_in_charge_from_its_first_key_to_its_last(self) -> None:
        bad = ConditionView(
            "GpuNvlinkWatch", "True", "GpuNvlinkWatchIsNotHealthy", "Recommended Action=RESTART_VM", NOW
        )
        good = ConditionView("GpuNvlinkWatch", "False", "GpuNvlinkWatchIsHealthy", "", after(900))
        states = ["quarantined", "draining", "drain-succeeded", "remediating", "remediation-succeeded"]
        health = healthy()
        for index, state in enumerate(states):
            marked = replace(facts(labels={self.LABEL: state}, unschedulable=True), conditions=(bad,))
            verdict = judged(health, 10 * index, facts=marked)
            assert (verdict.conclusion.state, verdict.grounds.in_charge) == ("Unhealthy", "nvsentinel")
            health = written(health, verdict)
        almost = replace(facts(labels={self.LABEL: states[-1]}, unschedulable=True), conditions=(good,))
        assert judged(health, 900, facts=almost).grounds.in_charge == "nvsentinel"
        over = replace(facts(), conditions=(good,))
        verdict = judged(health, 910, facts=over)
        assert (verdict.conclusion.state, verdict.grounds.in_charge) == ("Healthy", "")
        assert len(verdict.record.incidents) == 1

    def test_a_cordon_after_the_word_of_eks_is_the_beginning_of_its_repair(self) -> None:
        assert judged(healthy(), 0, EKS_BAD).grounds.in_charge == ""
        assert (
            judged(healthy(), 0, facts=replace(facts(unschedulable=True), conditions=(EKS_BAD,))).grounds.in_charge
            == "eks"
        )

    def test_our_own_finding_on_a_cordoned_node_is_ours(self) -> None:
        assert judged(sick(XID_79), 0, facts=facts(unschedulable=True)).grounds.in_charge == ""


class TestClocks:
    @pytest.mark.parametrize("jump", [-10 * 365 * 86400, -3600, 3600, 10 * 365 * 86400])
    def test_a_jump_neither_condemns_nor_releases(self, jump: float) -> None:
        well = lived(healthy(), 0)
        assert judged(well, jump).conclusion.state is VerdictState.HEALTHY
        bad = lived(sick(PORT_DOWN), 0)
        verdict = judged(bad, jump)
        assert verdict.conclusion.state is VerdictState.UNHEALTHY
        assert len(verdict.record.incidents) == 1
        back = lived(bad, jump)
        assert judged(back, 60).conclusion.state is VerdictState.UNHEALTHY
        assert judged(sick(health=back), 60).conclusion.state is VerdictState.HEALTHY


texts = st.text(max_size=20)
moments = st.integers(-(10**8), 10**8).map(after)
kinds = st.sampled_from([*KINDS, "Tachyons", "X", "Xid79", "ReportedByJobs"])


@st.composite
def garbage(draw: st.DrawFn) -> Evidence:
    return Evidence(
        kind=draw(kinds),
        subject=draw(texts),
        code=draw(st.integers(-(2**31), 2**63)),
        value=draw(texts),
        threshold=draw(texts),
        message=draw(texts),
        first_seen=draw(moments),
        last_seen=draw(moments),
        count=draw(st.integers(1, 2**40)),
        boot_id=draw(st.sampled_from(["", "boot-1", "boot-2"])),
    )


@settings(max_examples=settings().max_examples * 3 // 2)
@given(st.lists(garbage(), max_size=8), moments, moments)
def test_garbage_is_judged_without_an_error_and_the_second_look_agrees(
    entries: list[Evidence], now: Any, later: Any
) -> None:
    health = sick(*entries)
    first = assess(NodeWorld(facts(), health, rules(), now))
    stored = written(health, first)
    second = assess(NodeWorld(facts(), stored, rules(), now))
    assert (second.conclusion.state, second.conclusion.reason) == (first.conclusion.state, first.conclusion.reason)
    assert second.record.incidents == tuple(stored.status.incidents)
    assess(NodeWorld(facts(), written(stored, second), rules(), later))


@given(
    st.lists(st.tuples(texts, st.sampled_from(["Unknown", "", "True"]), texts), max_size=6),
    st.dictionaries(texts, texts, max_size=6),
)
def test_no_verdict_out_of_what_nobody_knows(conditions: list[tuple[str, str, str]], labels: dict[str, str]) -> None:
    """Conditions of unknown types or of no known status, and labels of nobody: no node is out for these."""
    known = ("AcceleratedHardwareReady", "KernelReady", "Ready")
    views = [ConditionView(t, s, r, "", NOW) for t, s, r in conditions]
    views += [ConditionView(t, "Unknown", "NvidiaXID79Error", "", NOW) for t in known]
    unknown = healthy().model_copy(update={"status": NodeHealthStatus()})
    verdict = judged(unknown, 3600, facts=replace(facts(labels=labels), conditions=tuple(views)))
    assert not verdict.out


def test_what_is_written_has_room_in_the_api() -> None:
    long = {"subject": "s" * 128, "message": "m" * 512, "value": "v" * 128, "threshold": "t" * 128}
    health = lived(decided(sick(evidence("RowRemapPending", **long)), None), 0)
    worse = sick(evidence("GpuLost", **long), health=health)
    verdict = judged(worse, 60)
    released = judged(decided(written(worse, verdict), Decision.RELEASE, at=70, reason="r" * 512), 80)
    for incident in (*verdict.record.incidents, *released.record.incidents):
        assert len(incident.message) <= 512
        assert len(incident.cleared_by) <= 128
    assert verdict.record.incidents[0].reason == "GpuLost"
    assert all(len(finding.message) <= 512 for finding in verdict.conclusion.findings)


def test_looking_is_cheap_enough_for_thousands() -> None:
    """Counted, not timed: each key of labels and conditions is compared with the patterns once in the fleet."""
    fleet = Stored.of(50, rules())
    for name in fleet.facts:
        fleet.facts[name] = facts(name, labels={f"label-{index}": name for index in range(30)})
    fleet.step(NOW)
    assert len(fleet.rules._known) == 30


def test_of_equal_findings_the_older_comes_first_and_each_says_where_it_is_from() -> None:
    verdict = judged(sick(XID_79), 0, EKS_BAD)
    assert [(f.source, f.reason, f.subject, f.severity) for f in verdict.conclusion.findings] == [
        ("eks", "NvidiaNVLinkError", "AcceleratedHardwareReady", "Fatal"),
        ("agent", "Xid79", GPU, "Fatal"),
    ]


class TestBurnIn:
    BITS = FailedBurnIn("boot-1", "bit-exact", "burn-in: GPU 3: bits differ", after(0), job="ml/llm")

    def test_who_has_failed_is_out_and_says_what_failed_him(self) -> None:
        verdict = judged(healthy(), 1, burn_ins=[self.BITS])
        assert (verdict.conclusion.state, verdict.conclusion.reason) == (VerdictState.DEGRADED, "BurnInFailed")
        assert [(f.source, f.subject, f.message, f.job) for f in verdict.conclusion.findings] == [
            ("burn-in", "bit-exact", "burn-in: GPU 3: bits differ", "ml/llm")
        ]

    @pytest.mark.parametrize("records", [0, 1], ids=["from the record of its gang", "from the finding"])
    def test_only_its_finding_names_the_job(self, records: int) -> None:
        health = lived(healthy(), 1, burn_ins=[self.BITS]) if records else healthy()
        verdict = judged(health, 2, burn_ins=[] if records else [self.BITS])
        assert verdict.conclusion.findings[0].job == "ml/llm"
        assert "ml/llm" not in verdict.conclusion.findings[0].message
        assert (
            verdict.conclusion.message
            == verdict.record.incidents[-1].message
            == "bit-exact: burn-in: GPU 3: bits differ"
        )
        assert node_fault(verdict) == "BurnInFailed: burn-in: GPU 3: bits differ"

    def test_it_stands_when_the_gang_is_gone_and_after_a_boot(self) -> None:
        health = lived(healthy(), 1, burn_ins=[self.BITS])
        assert judged(health, 2 * WEEK).conclusion.state is VerdictState.DEGRADED
        booted = health.model_copy(update={"status": health.status.model_copy(update={"agent": agent("boot-2")})})
        assert judged(booted, 2 * WEEK, burn_ins=[self.BITS]).conclusion.state is VerdictState.DEGRADED

    def test_a_record_of_another_boot_condemns_nobody_anew(self) -> None:
        assert judged(healthy(boot="boot-2"), 5, burn_ins=[self.BITS]).conclusion.state is not VerdictState.DEGRADED

    def test_a_human_ends_it_until_it_fails_again(self) -> None:
        health = decided(lived(healthy(), 1, burn_ins=[self.BITS]), Decision.RELEASE, 10)
        assert judged(health, 11, burn_ins=[self.BITS]).conclusion.state is not VerdictState.DEGRADED
        again = replace(self.BITS, time=after(20))
        assert judged(health, 21, burn_ins=[self.BITS, again]).conclusion.state is VerdictState.DEGRADED

    def test_who_does_not_listen_hears_nothing(self) -> None:
        deaf = rules(sources=[{"name": "burn-in", "enabled": False}])
        assert judged(healthy(), 1, rules=deaf, burn_ins=[self.BITS]).conclusion.state is not VerdictState.DEGRADED

    @pytest.mark.parametrize(
        ("passed", "state"),
        [(None, VerdictState.VALIDATING), (5, VerdictState.VALIDATING), (50, VerdictState.HEALTHY)],
    )
    def test_what_was_taken_out_has_to_pass_before_it_comes_back(
        self, passed: float | None, state: VerdictState
    ) -> None:
        strict = replace(rules(), validates=True)
        out = lived(sick(evidence("RowRemapPending")), 10, rules=strict)
        at = None if passed is None else after(passed)
        verdict = judged(sick(health=out), 60, rules=strict, passed=at)
        assert verdict.conclusion.state is state
        assert verdict.out is (state is VerdictState.VALIDATING)
        assert (verdict.open_incident is None) is (state is VerdictState.HEALTHY)

    def test_a_human_lets_it_back_without_a_pass(self) -> None:
        strict = replace(rules(), validates=True)
        out = decided(lived(sick(evidence("RowRemapPending")), 10, rules=strict), Decision.RELEASE, 20)
        assert judged(sick(health=out), 60, rules=strict).conclusion.state is VerdictState.HEALTHY

    def test_what_evidence_stands_is_not_outweighed_by_a_pass(self) -> None:
        strict = replace(rules(), validates=True)
        out = lived(sick(evidence("RowRemapPending")), 10, rules=strict)
        assert judged(out, 60, rules=strict, passed=after(50)).conclusion.state is VerdictState.DEGRADED


def test_passing_through_deep_health_checks_charges_nothing() -> None:
    """HyperPod's three states of a checked node, over and over: no offence, no quarantine, and never taken out."""
    key = "sagemaker.amazonaws.com/"
    fleet = Stored.of(4, rules(enforcement="Nodes"))
    plain = fleet.facts["node-0001"]
    for number in range(6):
        for minute, labels in enumerate(
            (
                {f"{key}node-health-status": "Unschedulable"},
                {f"{key}node-health-status": "Unschedulable", f"{key}deep-health-check-status": "InProgress"},
                {f"{key}node-health-status": "Schedulable", f"{key}deep-health-check-status": "Passed"},
            )
        ):
            fleet.facts["node-0001"] = replace(plain, node=replace(plain.node, labels=labels))
            fleet.step(after(number * 3600 + minute * 60))
            assert fleet.tainted == set()
    status = fleet.healths["node-0001"].status
    assert (status.state, status.offences.score, len(status.incidents)) == ("Healthy", "0", 6)
    assert all(incident.taken_out_time is None for incident in status.incidents)


def test_a_node_that_only_waits_for_its_test_ails_of_nothing() -> None:
    strict = replace(rules(), validates=True)
    out = lived(sick(evidence("RowRemapPending")), 10, rules=strict)
    assert node_fault(judged(out, 60, rules=strict)).startswith("RowRemapPending: ")
    waiting = judged(sick(health=out), 60, rules=strict)
    assert (waiting.conclusion.state, node_fault(waiting)) == (VerdictState.VALIDATING, "")


STEPS = ("assess", "collect", "weigh", "account", "conclude", "action", "incidents", "node_world", "verdict")


@pytest.mark.parametrize("module", STEPS)
def test_each_step_of_a_verdict_is_short_and_takes_few_parameters(module: str) -> None:
    tree = ast.parse((Path(assess_module.__file__).parent / f"{module}.py").read_text())
    functions = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)]
    assert functions
    for each in functions:
        parameters = [*each.args.args, *each.args.kwonlyargs]
        assert each.end_lineno is not None
        assert each.end_lineno - each.lineno < 40, each.name
        assert len([one for one in parameters if one.arg != "self"]) <= 4, each.name

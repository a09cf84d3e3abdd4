"""The condition that others can read: what it says, and when it has to be written."""

from typing import Any

import pytest
from tests.unit.health.builders import (
    NOW,
    Stored,
    after,
    decided,
    evidence,
    facts,
    healthy,
    node,
    rules,
    sick,
    written,
)

from muster.api.base import ObjectMeta, rfc3339
from muster.api.fleetpolicy import FleetPolicySpec
from muster.api.nodehealth import Decision, NodeHealth
from muster.health.assess import assess
from muster.health.condition import Mark, mark_of, patch
from muster.health.facts import NodeFacts
from muster.health.node_world import NodeWorld
from muster.health.sources import Rules
from muster.world.views import ConditionView

BAD = Mark("False", "Xid79", "bad")
OTHER = ConditionView("Ready", "True", "KubeletReady", "", after(-60))


def on_node(status: str = "False", reason: str = "Xid79", message: str = "bad", **changes: Any) -> ConditionView:
    return ConditionView("MusterHealthy", status, reason, message, changes.get("since", after(-60)))


@pytest.mark.parametrize(
    ("health", "status", "reason"),
    [
        pytest.param(healthy(), "True", "Healthy", id="well"),
        pytest.param(sick(evidence("PcieGeneration")), "True", "PcieGeneration", id="suspect"),
        pytest.param(sick(evidence("Xid", 79)), "False", "Xid79", id="unhealthy"),
        pytest.param(decided(healthy(), Decision.CORDON), "False", "Cordoned", id="cordoned"),
        pytest.param(NodeHealth(metadata=ObjectMeta(name="node-1")), "Unknown", "NothingKnown", id="unknown"),
    ],
)
def test_it_tells_the_verdict_in_words_of_its_own(health: NodeHealth, status: str, reason: str) -> None:
    mark = mark_of("node-1", assess(NodeWorld(facts(), health, rules(), NOW)))
    assert (mark.status, mark.reason) == (status, reason)
    assert mark.message
    assert "looked at it" not in mark.message


LABEL = {"dgxc.nvidia.com/nvsentinel-state": "quarantined"}
TESTS = Rules.from_policy(FleetPolicySpec.model_validate({"preflight": {"profile": "Quick"}}))


class TestMarksOfOthers:
    @pytest.mark.parametrize("answers", ["condition", "taint"])
    def test_an_answer_to_muster_s_own_mark_does_not_hold_it(self, answers: str) -> None:
        """The other system marks the node as NVSentinel does by a rule of its object monitor: while the condition is
        False, until it is True; or while the taint is there."""
        fleet = Stored.of(10, rules(enforcement="Nodes"))
        name, is_marked, seen = "node-0000", False, []
        fleet.report(name, evidence("Xid", 79))
        for minute in range(1, 9):
            if minute == 4:
                fleet.reboot(name, "boot-2")
            verdicts, *_ = fleet.step(after(60 * minute))
            status = mark_of(name, verdicts[name]).status
            seen.append((status, name in fleet.tainted))
            if answers == "condition":
                is_marked = {"True": False, "False": True}.get(status, is_marked)
            else:
                is_marked = name in fleet.tainted
            fleet.facts[name] = facts(name, labels=LABEL if is_marked else {}, unschedulable=is_marked)
        assert seen == [("False", True)] * 3 + [("True", False)] * 5
        assert not verdicts[name].out

    def test_the_verdict_has_them_and_the_message_names_them(self) -> None:
        verdict = assess(NodeWorld(facts(labels=LABEL), healthy(), rules(), NOW))
        mark = mark_of("node-1", verdict)
        assert verdict.conclusion.reason == "NVSentinelRepairs"
        assert (mark.status, mark.reason) == ("True", "MarkedByOthers")
        assert "nvsentinel marks it (NVSentinelRepairs)" in mark.message
        mark = mark_of("node-1", assess(NodeWorld(facts(labels=LABEL), sick(evidence("Xid", 79)), rules(), NOW)))
        assert (mark.status, mark.reason) == ("False", "Xid79")
        assert "nvsentinel marks it (NVSentinelRepairs)" in mark.message

    def test_without_an_agent_they_leave_it_unknown(self) -> None:
        nothing = NodeHealth(metadata=ObjectMeta(name="node-1"))
        mark = mark_of("node-1", assess(NodeWorld(facts(labels=LABEL), nothing, rules(), NOW)))
        assert (mark.status, mark.reason) == ("Unknown", "NothingKnown")
        assert "NVSentinelRepairs" in mark.message

    def test_a_burn_in_that_is_due_counts_beside_them_until_it_is_passed(self) -> None:
        out = assess(NodeWorld(facts(), sick(evidence("Xid", 79)), TESTS, NOW)).after_taking_out(NOW)
        rebooted = healthy(boot="boot-2")
        known = written(rebooted, out)
        due = assess(NodeWorld(facts(labels=LABEL), known, TESTS, after(60)))
        passed = assess(NodeWorld(facts(labels=LABEL), known, TESTS, after(60), passed=after(30)))
        assert [mark_of("node-1", each).reason for each in (due, passed)] == ["AwaitsBurnIn", "MarkedByOthers"]

    def test_the_taint_stays_for_a_mark_for_which_the_node_was_taken_out(self) -> None:
        fleet = Stored.of(10, rules(enforcement="Nodes"))
        hung = ConditionView("KernelDeadlock", "True", "DockerHung", "hung", after(-600))
        for minute in range(3):
            fleet.mark("node-0000", hung)
            fleet.step(after(60 * minute))
            assert fleet.tainted == {"node-0000"}
            hung = ConditionView("KernelDeadlock", "True", "DockerHung", "hung", after(60 * minute + 30))

    def test_the_taint_stays_for_what_a_detector_has_found_since(self) -> None:
        fleet = Stored.of(10, rules(enforcement="Nodes"))
        fleet.report("node-0000", evidence("Xid", 79))
        for minute in range(1, 9):
            if minute == 3:
                fleet.mark("node-0000", ConditionView("KernelDeadlock", "True", "DockerHung", "hung", after(180)))
            if minute == 6:
                fleet.reboot("node-0000", "boot-2")
            fleet.step(after(60 * minute))
            assert fleet.tainted == {"node-0000"}, minute

    def test_a_mark_alone_has_no_burn_in_of_muster_s_own_behind_it(self) -> None:
        fleet = Stored.of(10, TESTS)
        fleet.mark("node-0000", ConditionView("KernelDeadlock", "True", "DockerHung", "hung", after(0)))
        for minute in range(1, 5):
            verdicts, *_ = fleet.step(after(60 * minute))
            mark = mark_of("node-0000", verdicts["node-0000"])
            assert (mark.status, mark.reason) == ("True", "MarkedByOthers")


class TestPatch:
    def said(self, *conditions: ConditionView, wanted: Mark | None = BAD) -> dict[str, Any]:
        body = patch(conditions, wanted, NOW)
        assert body is not None
        [said] = body["status"]["conditions"]
        return dict(said)

    def test_a_new_one_has_begun_now(self) -> None:
        said = self.said(OTHER)
        assert (said["type"], said["status"], said["lastTransitionTime"]) == ("MusterHealthy", "False", rfc3339(NOW))

    def test_what_is_there_is_not_written_again(self) -> None:
        assert patch([OTHER, on_node()], BAD, NOW) is None

    @pytest.mark.parametrize("change", [{"reason": "Xid48"}, {"message": "worse"}])
    def test_the_same_status_keeps_its_time(self, change: dict[str, str]) -> None:
        assert "lastTransitionTime" not in self.said(on_node(**change))

    def test_another_status_has_begun_now(self) -> None:
        assert self.said(on_node("True"))["lastTransitionTime"] == rfc3339(NOW)

    def test_one_without_a_time_gets_one(self) -> None:
        assert self.said(on_node(reason="Other", since=None))["lastTransitionTime"] == rfc3339(NOW)

    def test_it_is_taken_away_only_where_it_is(self) -> None:
        assert self.said(OTHER, on_node(), wanted=None) == {"$patch": "delete", "type": "MusterHealthy"}
        assert patch([OTHER], None, NOW) is None

    def test_a_node_that_was_never_known_gets_none(self) -> None:
        unknown = Mark("Unknown", "NothingKnown", "nothing")
        assert patch([OTHER], unknown, NOW) is None
        assert self.said(on_node(), wanted=unknown)["status"] == "Unknown"


def test_muster_does_not_read_its_own() -> None:
    seen = NodeFacts.from_node(node(conditions=(OTHER, on_node())))
    assert seen.conditions == (OTHER,)

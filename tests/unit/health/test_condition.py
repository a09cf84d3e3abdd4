"""The condition that others can read: what it says, and when it has to be written."""

from typing import Any

import pytest
from tests.unit.health.builders import NOW, after, decided, evidence, facts, healthy, node, rules, sick

from muster.api.base import ObjectMeta, rfc3339
from muster.api.nodehealth import Decision, NodeHealth
from muster.health.assess import assess
from muster.health.condition import Mark, mark_of, patch
from muster.health.facts import NodeFacts
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
    mark = mark_of("node-1", assess(facts(), health, rules(), NOW))
    assert (mark.status, mark.reason) == (status, reason)
    assert mark.message
    assert "looked at it" not in mark.message


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

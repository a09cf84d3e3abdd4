"""Which signs count: what a user has released does not, nor does what the policy only observes."""

from typing import Any

import pytest
from tests.unit.health.builders import after, decided, evidence, facts, finding, recorded, rules, sick, world

from muster.api.nodehealth import MAX_EVIDENCE, Decision, HealthIncident, NodeHealth, VerdictState
from muster.health.collect import collect
from muster.health.incidents import history_of
from muster.health.node_world import NodeWorld
from muster.health.repairs import RepairStatus, Stage
from muster.health.weigh import Weighed, findings_of, weigh
from muster.world.views import ConditionView

XID_79 = evidence("Xid", 79)
XIDS_OBSERVED = rules(observedReasons=["Xid79"])
OUT = HealthIncident(time=after(0), state=VerdictState.UNHEALTHY, reason="Xid79", boot_id="boot-1")
EVICTED = ConditionView("DrainInProgress", "True", "", "", after(1))


def weighed(given: NodeWorld) -> Weighed:
    return weigh(given, collect(given), history_of(given))


def released(health: NodeHealth, at: float = 30) -> NodeHealth:
    return decided(health, Decision.RELEASE, at)


def known(*incidents: HealthIncident) -> NodeHealth:
    """XID 79, on record and still reported."""
    return recorded(finding("agent", "Xid79", "Fatal", XID_79.subject), evidence=[XID_79], incidents=list(incidents))


@pytest.mark.parametrize(
    ("given", "counting", "observed", "forgiven"),
    [
        pytest.param(world(sick(XID_79)), ["Xid79"], [], [], id="a fault"),
        pytest.param(world(sick(XID_79), rules=XIDS_OBSERVED), [], ["Xid79"], [], id="only observed"),
        pytest.param(world(released(known())), [], [], ["Xid79"], id="released"),
        pytest.param(world(released(known()), rules=XIDS_OBSERVED), [], [], ["Xid79"], id="released and observed"),
        pytest.param(world(released(known(), 1000)), ["Xid79"], [], [], id="a release that is to come"),
        pytest.param(world(released(sick(evidence("Xid", 79, at=40)))), ["Xid79"], [], [], id="new since the release"),
        pytest.param(
            world(released(known(), 30), facts=facts(conditions=[EVICTED])),
            ["DrainInProgress"],
            [],
            ["Xid79"],
            id="a removal is not released",
        ),
        pytest.param(
            world(released(known(OUT)), repair=RepairStatus(Stage.IN_PROGRESS)),
            ["RepairInProgress"],
            [],
            ["Xid79"],
            id="nor is a repair",
        ),
    ],
)
def test_which_signs_count(given: NodeWorld, counting: list[str], observed: list[str], forgiven: list[str]) -> None:
    found = weighed(given)
    parts = (found.counting, found.observed, found.forgiven)
    assert tuple([sign.reason for sign in part] for part in parts) == (counting, observed, forgiven)


@pytest.mark.parametrize(
    ("changes", "only_observed"),
    [({"rules": XIDS_OBSERVED}, True), ({}, False), ({"rules": rules(observedReasons=["GpuLost"])}, False)],
)
def test_the_fault_that_had_the_node_out_is_only_observed_now(changes: dict[str, Any], only_observed: bool) -> None:
    assert weighed(world(known(OUT), **changes)).only_observed is only_observed


def test_the_strongest_findings_are_recorded_and_those_of_a_repair_always() -> None:
    several = [evidence("Xid", 79, subject=f"GPU-{number}") for number in range(MAX_EVIDENCE)]
    given = world(sick(*several), repair=RepairStatus(Stage.ASKED, "Reboot"))
    found = findings_of(given, weighed(given))
    assert len(found) == MAX_EVIDENCE
    assert [each.reason for each in found if each.source == "repair"] == ["RepairRequested"]


def test_a_message_whose_figures_alone_differ_is_kept() -> None:
    given = world(recorded(finding("agent", "EccCorrected", "Warning", XID_79.subject), evidence=[]))
    old = given.before.findings[0].model_copy(update={"message": "many corrected memory errors: 7"})
    now = evidence("EccCorrected", count=9, message="9 of them")
    given = world(recorded(old, evidence=[now]))
    assert findings_of(given, weighed(given))[0].message.partition(":")[0] == old.message.partition(":")[0]

"""State, reason, message and action of a verdict, from the signs that count."""

from typing import Any

import pytest
from tests.unit.health.builders import NOW, after, decided, evidence, finding, healthy, recorded, rules, sick, world

from muster.api.fleetpolicy import FleetPolicySpec
from muster.api.nodehealth import Decision, HealthIncident, NodeHealth, NodeHealthStatus, VerdictState
from muster.health.account import account_of
from muster.health.collect import collect
from muster.health.conclude import conclude
from muster.health.incidents import history_of
from muster.health.node_world import NodeWorld
from muster.health.silence import Silence
from muster.health.sources import Rules
from muster.health.verdict import Conclusion
from muster.health.weigh import weigh
from muster.world.views import ConditionView

XID_79, GONE = evidence("Xid", 79), evidence("GpuLost")
NEBIUS = ConditionView("NebiusGPUError", "True", "Broken", "", NOW)
TESTED = Rules.from_policy(FleetPolicySpec.model_validate({"preflight": {"profile": "Standard"}}))
UNKNOWN = healthy().model_copy(update={"status": NodeHealthStatus()})


def concluded(given: NodeWorld) -> Conclusion:
    history = history_of(given)
    weighed = weigh(given, collect(given), history)
    return conclude(given, history, weighed, account_of(given, history, is_offence=weighed.is_offence))


def was_out(reason: str = "Xid79", **changes: Any) -> NodeHealth:
    values = {"time": after(0), "state": "Unhealthy", "reason": reason, "bootId": "boot-1", "takenOutTime": after(1)}
    return recorded(incidents=[HealthIncident.model_validate(values | changes)])


@pytest.mark.parametrize(
    ("given", "state", "own", "reason"),
    [
        pytest.param(world(UNKNOWN), None, None, "", id="nothing is known"),
        pytest.param(world(UNKNOWN, NEBIUS), "Degraded", None, "Broken", id="others alone know something"),
        pytest.param(world(), "Healthy", "Healthy", "", id="no sign"),
        pytest.param(world(None, NEBIUS), "Degraded", "Healthy", "Broken", id="a mark is not Muster's own"),
        pytest.param(world(sick(XID_79)), "Unhealthy", "Unhealthy", "Xid79", id="a fault"),
        pytest.param(
            world(sick(XID_79), rules=rules(observedReasons=["Xid79"])), "Healthy", "Healthy", "", id="only observed"
        ),
        pytest.param(
            world(decided(healthy(), Decision.CORDON)), "Quarantined", "Quarantined", "Cordoned", id="cordoned"
        ),
        pytest.param(world(was_out(), rules=TESTED), "Validating", "Validating", "AwaitsBurnIn", id="not yet tested"),
        pytest.param(
            world(was_out("Broken"), NEBIUS, rules=TESTED),
            "Degraded",
            "Healthy",
            "Broken",
            id="the mark that took it out is there",
        ),
        pytest.param(world(silence=Silence("Degraded")), "Degraded", "Degraded", "AgentSilent", id="silent"),
    ],
)
def test_state_and_reason(given: NodeWorld, state: str | None, own: str | None, reason: str) -> None:
    found = concluded(given)
    assert (found.state, found.own, found.reason) == (state, own, reason)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (world(), ""),
        (world(healthy(problem="no driver")), "the agent cannot check the whole node: no driver"),
        (world(decided(healthy(), Decision.CORDON)), "cordoned by ann: looked at it"),
        (world(decided(sick(XID_79), Decision.RELEASE, 30)), "released by ann: looked at it"),
        (
            world(was_out(), rules=TESTED),
            "no finding counts against the node any more; its checker tests it before Muster uses it again",
        ),
    ],
)
def test_messages(given: NodeWorld, message: str) -> None:
    assert concluded(given).message == message


def test_since_is_when_the_state_began() -> None:
    kept = recorded(
        finding("agent", "Xid79", "Fatal"), state=VerdictState.UNHEALTHY, since=after(-900), evidence=[XID_79]
    )
    assert concluded(world(kept)).since == after(-900)
    assert concluded(world(sick(XID_79))).since == after(60)
    assert concluded(world(UNKNOWN)).since is None


def test_what_observed_findings_would_change() -> None:
    found = concluded(world(sick(XID_79, evidence("NvmlHang")), rules=rules(observedReasons=["Xid79"]))).would
    assert found is not None
    assert (found.state, found.reason, found.evacuate) == ("Unhealthy", "Xid79", "Now")
    assert concluded(world(sick(XID_79, GONE), rules=rules(observedReasons=["Xid79"]))).would is None, "no worse"

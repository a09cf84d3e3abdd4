"""How incidents begin, go on and end, and what a node has to pass before it comes back."""

from typing import Any

import pytest
from tests.unit.health.builders import after, agent, decided, evidence, finding, recorded, world

from muster.api.fleetpolicy import FleetPolicySpec
from muster.api.nodehealth import MAX_INCIDENTS, Decision, HealthIncident, NodeHealth, Offences, VerdictState
from muster.health.assess import assess
from muster.health.incidents import ANOTHER_MACHINE, awaits_burn_in, history_of, incidents_of
from muster.health.memory import identity
from muster.health.node_world import NodeWorld
from muster.health.repairs import RepairStatus, Stage
from muster.health.sources import Rules
from muster.health.verdict import AWAITS_BURN_IN, CORDONED, Conclusion

TESTED = Rules.from_policy(FleetPolicySpec.model_validate({"preflight": {"profile": "Standard"}}))
UNTESTED = Rules.from_policy(FleetPolicySpec.model_validate({"preflight": {"profile": "Disabled"}}))
OTHER = Offences(hardware=identity(agent(system_uuid="another", gpu_serials=["7", "8"])))


def incident(reason: str = "Xid79", state: str = "Unhealthy", **changes: Any) -> HealthIncident:
    values = {"time": after(0), "state": state, "reason": reason, "bootId": "boot-1", "takenOutTime": after(1)}
    return HealthIncident.model_validate(values | changes)


def known(*incidents: HealthIncident, **changes: Any) -> NodeHealth:
    return recorded(incidents=list(incidents), **changes)


CLEARED = incident(clearedTime=after(10))
HEALTHY = Conclusion(VerdictState.HEALTHY)


@pytest.mark.parametrize(
    ("given", "past", "is_open"),
    [
        pytest.param(world(), 0, False, id="none"),
        pytest.param(world(known(CLEARED)), 1, False, id="a closed one"),
        pytest.param(world(known(CLEARED, incident())), 1, True, id="an open one"),
        pytest.param(world(known(incident(), offences=OTHER, node_uid="gone")), 1, False, id="of another machine"),
    ],
)
def test_what_is_on_record(given: NodeWorld, past: int, is_open: bool) -> None:
    found = history_of(given)
    assert (len(found.past), found.open is not None) == (past, is_open)


def test_another_machine_closes_the_incident_and_says_so() -> None:
    found = history_of(world(known(incident(), offences=OTHER, node_uid="gone")))
    assert (found.past[-1].cleared_by, found.past[-1].cleared_time) == (ANOTHER_MACHINE, after(60))


def test_the_end_of_a_repair_is_noted_once() -> None:
    health = recorded(finding("repair", "RepairInProgress"), incidents=[incident()])
    ended = history_of(world(health, repair=RepairStatus(Stage.DONE)))
    assert ended.repair_ended == after(60)
    assert history_of(world(known(incident(repairEndedTime=after(20))))).repair_ended == after(20)
    assert history_of(world(known(incident(repairEndedTime=after(900))))).repair_ended == after(60), "a clock was ahead"


@pytest.mark.parametrize(
    ("last", "changes", "awaits"),
    [
        pytest.param(incident(), {}, True, id="taken out"),
        pytest.param(incident(), {"rules": UNTESTED}, False, id="nothing is tested"),
        pytest.param(incident(), {"passed": after(30)}, False, id="passed"),
        pytest.param(incident(), {"passed": after(-30)}, True, id="passed before"),
        pytest.param(incident(repairEndedTime=after(40)), {"passed": after(30)}, True, id="passed before the repair"),
        pytest.param(incident(takenOutTime=None), {}, False, id="never taken out"),
        pytest.param(incident(CORDONED, "Quarantined"), {}, False, id="cordoned"),
        pytest.param(incident(clearedTime=after(5)), {}, False, id="back already"),
    ],
)
def test_what_was_taken_out_has_to_pass(last: HealthIncident, changes: dict[str, Any], awaits: bool) -> None:
    given = world(known(last), **({"rules": TESTED} | changes))
    assert awaits_burn_in(given, history_of(given)) is awaits


def test_a_release_is_as_good_as_a_test() -> None:
    given = world(decided(known(incident()), Decision.RELEASE, 30), rules=TESTED)
    assert not awaits_burn_in(given, history_of(given))


@pytest.mark.parametrize(
    ("last", "changes", "why"),
    [
        (incident(), {}, "the evidence is gone"),
        (incident(bootId="boot-0"), {}, "the node was rebooted, and the evidence is gone"),
        (incident(repairEndedTime=after(9)), {}, "the repair has ended, and the evidence is gone"),
        (incident(AWAITS_BURN_IN, "Validating"), {}, "the node passed its burn-in"),
        (incident("RepeatOffender", "Quarantined"), {}, "the machine's offence score has faded"),
        (incident(CORDONED, "Quarantined"), {}, "a user ended the cordon"),
        (incident(), {"only_observed": True}, "the FleetPolicy only observes Xid79 now"),
    ],
)
def test_why_an_incident_is_over(last: HealthIncident, changes: dict[str, bool], why: str) -> None:
    given = world(known(last))
    (found,) = incidents_of(given, history_of(given), HEALTHY, **({"only_observed": False} | changes))
    assert (found.cleared_by, found.cleared_time) == (why, after(60))


@pytest.mark.parametrize(
    ("before", "state", "reason", "kept"),
    [
        pytest.param(None, "Degraded", "NvmlHang", ("Degraded", "NvmlHang"), id="begins"),
        pytest.param(incident(), "Degraded", "NvmlHang", ("Unhealthy", "Xid79"), id="the gravest is kept"),
        pytest.param(incident("NvmlHang", "Degraded"), "Unhealthy", "Xid79", ("Unhealthy", "Xid79"), id="grows worse"),
        pytest.param(
            incident(CORDONED, "Quarantined"), "Degraded", "NvmlHang", ("Degraded", "NvmlHang"), id="no longer cordoned"
        ),
    ],
)
def test_what_an_open_incident_says(
    before: HealthIncident | None, state: str, reason: str, kept: tuple[str, str]
) -> None:
    given = world(known(*([before] if before else [])))
    said = Conclusion(VerdictState(state), reason)
    *_, found = incidents_of(given, history_of(given), said, only_observed=False)
    assert (found.state, found.reason, found.cleared_time) == (*kept, None)


def test_a_node_in_use_has_no_new_incident() -> None:
    given = world(known(CLEARED))
    assert incidents_of(given, history_of(given), HEALTHY, only_observed=False) == (CLEARED,)


def test_only_the_newest_are_kept() -> None:
    given = world(recorded(incidents=[CLEARED] * MAX_INCIDENTS, evidence=[evidence("Xid", 79)]))
    found = assess(given).record.incidents
    assert (len(found), found[-1].cleared_time) == (MAX_INCIDENTS, None)

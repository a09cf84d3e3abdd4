"""What a machine is charged for, and when it is quarantined and comes back."""

from datetime import timedelta
from typing import Any

import pytest
from tests.unit.health.builders import after, agent, decided, recorded, world

from muster.api.nodehealth import Decision, HealthIncident, NodeHealth, Offences
from muster.health.account import OffenceAccount, account_of, offences_if_taken
from muster.health.incidents import history_of
from muster.health.memory import MachineOffences, identity
from muster.health.node_world import NodeWorld

MACHINE = identity(agent())
HALF_LIFE = 7 * 86400
OPEN = {"time": after(0), "state": "Unhealthy", "reason": "Xid79", "bootId": "boot-1", "takenOutTime": after(1)}
PAST = {**OPEN, "chargedTo": "agent/Xid79", "clearedTime": after(20)}
QUARANTINED = {**OPEN, "state": "Quarantined", "reason": "RepeatOffender"}


def owing(score: str, *incidents: dict[str, Any], at: float = 10, machine: str = MACHINE) -> NodeHealth:
    offences = Offences(hardware=machine, score=score, as_of=after(at))
    return recorded(incidents=[HealthIncident.model_validate(each) for each in incidents], offences=offences)


def account(given: NodeWorld, *, is_offence: bool = True) -> OffenceAccount:
    return account_of(given, history_of(given), is_offence=is_offence)


@pytest.mark.parametrize(
    ("given", "is_offence", "is_quarantined", "faded"),
    [
        pytest.param(world(owing("2.9", OPEN)), True, True, False, id="too many offences"),
        pytest.param(world(owing("2.9", OPEN)), False, False, False, id="what has it out is no offence"),
        pytest.param(world(owing("2", OPEN)), True, False, False, id="too few"),
        pytest.param(world(owing("2.9", OPEN, at=-9)), True, False, False, id="not charged for this incident"),
        pytest.param(world(owing("2.9")), True, False, False, id="not out"),
        pytest.param(world(owing("2.9", QUARANTINED)), False, True, False, id="in quarantine"),
        pytest.param(world(owing("1", QUARANTINED)), False, False, True, id="faded"),
        pytest.param(world(owing("1", QUARANTINED), time_is_sure=False), False, True, True, id="by a clock that jumps"),
        pytest.param(
            world(decided(owing("2.9", QUARANTINED), Decision.RELEASE, 30)), False, False, False, id="released"
        ),
        pytest.param(
            world(decided(owing("2.9", QUARANTINED), Decision.CORDON, 30)),
            False,
            False,
            False,
            id="a cordon stands above it",
        ),
    ],
)
def test_when_a_machine_is_quarantined(given: NodeWorld, is_offence: bool, is_quarantined: bool, faded: bool) -> None:
    found = account(given, is_offence=is_offence)
    assert (found.is_quarantined, found.faded) == (is_quarantined, faded)


def test_a_quarantine_ends_when_half_of_the_limit_is_left() -> None:
    given = world(owing("2.5", QUARANTINED, at=60))
    fades = account(given).fades(given)
    assert fades is not None
    assert fades - after(60) == timedelta(seconds=given.rules.quarantine.half_life_seconds + 60)
    assert account(world(owing("1", QUARANTINED))).fades(given) is None


def test_a_machine_is_known_again_under_another_name() -> None:
    memory = MachineOffences([Offences(hardware=MACHINE, score="2", as_of=after(60))])
    assert account(world(memory=memory)).offences.score == "2.0000"
    assert account(world(owing("0", machine=identity(agent(system_uuid="other"))), memory=memory)).offences.score == "0"


@pytest.mark.parametrize(
    ("health", "causes", "score"),
    [
        pytest.param(owing("1"), ["agent/Xid79"], "2", id="one more"),
        pytest.param(owing("1", PAST), ["agent/Xid79"], "1", id="the same fault within an hour"),
        pytest.param(owing("1", PAST), ["agent/GpuLost"], "2", id="another cause"),
        pytest.param(owing("1", {**PAST, "bootId": "boot-0"}), ["agent/Xid79"], "2", id="another boot"),
        pytest.param(owing("1", {**PAST, "repairEndedTime": after(15)}), ["agent/Xid79"], "2", id="a repair since"),
        pytest.param(owing("1", PAST, at=-3600), ["agent/Xid79"], "2", id="an hour later"),
        pytest.param(decided(owing("1", PAST), Decision.RELEASE, 30), ["agent/Xid79"], "2", id="a release since"),
    ],
)
def test_what_a_machine_is_charged(health: NodeHealth, causes: list[str], score: str) -> None:
    given = world(health)
    found = offences_if_taken(given, history_of(given).past, account(given), causes)
    assert round(float(found.score)) == int(score)

"""What an on-call engineer reads."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.health.builders import GPU, NOW, Stored, after, decided, evidence, rules

from muster.api.nodehealth import Decision, NodeHealthStatus
from muster.health.orders import Order
from muster.health.story import EFFECT_LENGTH, MESSAGE_LENGTH, effect_text, status_message
from muster.world.jobfailures import JobFailureReport
from muster.world.views import ConditionView

XID_79 = evidence("Xid", 79, message="NVRM: Xid (PCI:0000:5d:00): 79, GPU has fallen off the bus.")
PORT_DOWN = evidence("IbPortDown", subject="mlx5_3/1", value="state DOWN")
NODE = "node-0001"


def told(fleet: Stored, at: float = 60, node: str = NODE) -> tuple[str, str]:
    """Message and effect."""
    verdicts, rulings, effects, _ = fleet.step(after(at))
    order = Order(node, verdicts[node], rulings[node], effects[node])
    return status_message(order, fleet.rules), effect_text(order, fleet.rules)


def fleet(count: int = 10, **health: Any) -> Stored:
    return Stored.of(count, rules(**{"enforcement": "Nodes", **health}))


def test_what_happened_since_when_what_muster_did_and_what_to_do() -> None:
    stored = fleet()
    stored.report(NODE, XID_79, evidence("RowRemapPending"), evidence("Xid", 13))
    message, effect = told(stored)
    assert message == (
        f"Xid79: {GPU}: the GPU has fallen off the bus: NVRM: Xid (PCI:0000:5d:00): 79, GPU has fallen off the bus. "
        "Unhealthy since 2026-11-20 09:42:07 UTC. Other findings: RowRemapPending. "
        "Muster: tainted; running jobs are evacuated now, and continue elsewhere from their newest checkpoint. "
        "To do: reboot the node. "
        "Muster uses the node again after a reboot, or after kubectl muster release node-0001 --reason ..."
    )
    assert effect == "tainted; running jobs are evacuated now, and continue elsewhere from their newest checkpoint"


def test_it_changes_only_when_something_happens() -> None:
    stored = fleet(100)
    for name in stored.facts:
        stored.report(name, PORT_DOWN)
    stored.step(NOW)
    assert told(stored, 60) == told(stored, 500)
    assert told(stored, 60, "node-0050") == told(stored, 3000, "node-0050")


def a_cordon() -> Stored:
    stored = fleet()
    stored.healths[NODE] = decided(stored.healths[NODE], Decision.CORDON, reason="liquid under rack 7")
    return stored


def held_back() -> Stored:
    stored = fleet()
    stored.report("node-0000", PORT_DOWN)
    stored.step(NOW)
    stored.report(NODE, PORT_DOWN)
    return stored


def repaired_by_others() -> Stored:
    stored = fleet()
    bad = ConditionView("AcceleratedHardwareReady", "False", "NvidiaFabricError", "GPU 3 is not registered", NOW)
    plain = stored.facts[NODE]
    stored.facts[NODE] = replace(plain, node=replace(plain.node, unschedulable=True), conditions=(bad,))
    return stored


def observed() -> Stored:
    stored = fleet(enforcement="Observe")
    stored.report(NODE, PORT_DOWN)
    return stored


def suspected() -> Stored:
    stored = fleet()
    stored.words[NODE] = [
        JobFailureReport("team-a", "team-a/llama", attempt, "RankFailed (exit code 1)", NOW, went_on=True)
        for attempt in (3, 4)
    ]
    return stored


def released() -> Stored:
    stored = fleet()
    stored.report(NODE, PORT_DOWN)
    stored.healths[NODE] = decided(stored.healths[NODE], Decision.RELEASE, at=10, reason="cable replaced")
    return stored


def no_driver() -> Stored:
    stored = fleet()
    status = stored.healths[NODE].status
    agent = status.agent and status.agent.model_copy(update={"problem": "no driver"})
    stored.healths[NODE] = stored.healths[NODE].model_copy(
        update={"status": status.model_copy(update={"agent": agent})}
    )
    return stored


def offender() -> Stored:
    stored = fleet(count=1)
    for hour in range(3):
        stored.report(NODE[:-1] + "0", evidence("IbPortDown", at=hour * 3600))
        stored.step(after(hour * 3600))
        stored.step(after(hour * 3600 + 1))
        stored.report(NODE[:-1] + "0")
        stored.step(after(hour * 3600 + 60))
    return stored


@pytest.mark.parametrize(
    ("stored", "says", "did"),
    [
        pytest.param(
            a_cordon,
            ["Cordoned: cordoned by ann: liquid under rack 7.", "when a user ends the cordon"],
            "tainted; running jobs are evacuated after their next checkpoint",
            id="cordoned",
        ),
        pytest.param(
            held_back,
            ["IbPortDown: mlx5_3/1: a network port is down: state DOWN.", "To do: inspect the machine"],
            "given work only where no other node is left; running jobs stay: the budget of 1 node in 600 s for "
            "uncertain faults is exhausted (2 of the pool's 10 nodes for all faults)",
            id="held back",
        ),
        pytest.param(
            repaired_by_others,
            [
                "NvidiaFabricError: AcceleratedHardwareReady: GPU 3 is not",
                "Muster uses the node again when eks has finished with it.",
            ],
            "excluded from placement; running jobs are evacuated after their next checkpoint; eks repairs the node, so "
            "Muster does not taint it",
            id="repaired by others",
        ),
        pytest.param(
            observed,
            ["Unhealthy since", "when the evidence is gone"],
            "nothing: spec.health.enforcement of the FleetPolicy is Observe",
            id="observed",
        ),
        pytest.param(
            suspected,
            [
                "FollowedByFailures: jobs of one owner keep failing on this node",
                "Muster: nothing; the node stays in use, after other nodes that are as near.",
            ],
            "",
            id="suspect",
        ),
        pytest.param(released, ["released by ann: cable replaced."], "", id="released"),
        pytest.param(no_driver, ["the agent cannot check the whole node: no driver."], "", id="no driver"),
    ],
)
def test_each_situation_is_explained(stored: Any, says: list[str], did: str) -> None:
    message, effect = told(stored())
    for words in says:
        assert words in message
    assert effect == did
    assert not did or f"Muster: {did}." in message


def test_a_repeat_offender() -> None:
    message, _ = told(offender(), 9000, "node-0000")
    assert message.startswith("RepeatOffender: the machine keeps failing (offence score 3.0)")
    assert "no fault is reported now" in message
    assert "kubectl muster release node-0000" in message


def test_the_account_in_words_does_not_fade_from_minute_to_minute() -> None:
    stored = offender()
    assert told(stored, 9000, "node-0000") == told(stored, 9600, "node-0000")


def test_nothing_known_is_not_talked_about() -> None:
    stored = fleet()
    stored.healths[NODE] = stored.healths[NODE].model_copy(update={"status": NodeHealthStatus()})
    assert told(stored) == ("", "")


def test_everything_has_room() -> None:
    stored = fleet()
    long = [evidence("Xid", code, subject="G" * 128, message="m" * 512) for code in (46, 48, 54, 62, 64, 79, 95)]
    stored.report(NODE, *long)
    message, effect = told(stored)
    assert len(message) <= MESSAGE_LENGTH
    assert len(effect) <= EFFECT_LENGTH
    assert "and 2 more" in message
    assert "To do: reboot the node." in message

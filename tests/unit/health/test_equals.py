"""What a machine lacks is told by its equals, where nearly all of them agree and it lasts."""

from typing import Any

import pytest
from tests.unit.health.builders import after, agent, decided, facts, healthy, node, rules

from muster.api.nodehealth import Decision, Finding, NodeHealth, Severity, VerdictState
from muster.health.assess import assess
from muster.health.equals import FEWER_THAN_EQUALS, LASTS_SECONDS, Lack, MachineEquipment, MachineKinds, kind_of
from muster.health.node_world import NodeWorld

TYPE = "node.kubernetes.io/instance-type"


def lacking(outfits: list[MachineEquipment]) -> dict[int, Severity]:
    """Which of some machines of one kind lack something."""
    equals = MachineKinds()
    for number, outfit in enumerate(outfits):
        equals.set_machine(f"n{number}", "kind", outfit)
    equals.changed(0.0)
    equals.changed(LASTS_SECONDS)
    found = {number: equals.lack_of_node(f"n{number}") for number in range(len(outfits))}
    return {number: lack.severity for number, lack in found.items() if lack is not None and lack.lasts}


def machines(count: int, gpus: int = 8, ports: int | None = 8) -> list[MachineEquipment]:
    return [MachineEquipment(gpus, ports)] * count


WHO = {
    "one with a GPU less": (machines(3) + machines(1, gpus=7), {3: "Degraded"}),
    "one with a port less": (machines(3) + machines(1, ports=7), {3: "Warning"}),
    "one with less of both": (machines(3) + machines(1, gpus=7, ports=0), {3: "Degraded"}),
    "a quarter": (machines(9) + machines(3, gpus=4), {9: "Degraded", 10: "Degraded", 11: "Degraded"}),
    "more than a quarter are another machine": (machines(8) + machines(3, gpus=4), {}),
    "too few to tell": (machines(2) + machines(1, gpus=7), {}),
    "one with more is no measure": (machines(1, gpus=16, ports=9) + machines(5), {}),
    "agents that do not tell of ports": (machines(9) + machines(3, ports=None), {}),
    "alone": (machines(1, gpus=7), {}),
}


@pytest.mark.parametrize("name", WHO)
def test_who_lacks_something(name: str) -> None:
    outfits, wanted = WHO[name]
    assert lacking(outfits) == wanted


def test_it_has_to_last_and_ends_at_once() -> None:
    """Ports come up one after the other when all machines start together."""
    equals = MachineKinds()
    for number in range(4):
        equals.set_machine(f"n{number}", "kind", MachineEquipment(8, 8))
    equals.set_machine("n4", "kind", MachineEquipment(8, 5))
    equals.set_machine("other", "another kind", MachineEquipment(1, 0))
    assert equals.changed(100.0) == {"n4"}
    assert equals.lack_of_node("n4") == Lack("5 ports up, but 8 on nearly all machines of its kind", Severity.WARNING)
    assert equals.next_seconds(100.0) == LASTS_SECONDS
    equals.set_machine("n4", "kind", MachineEquipment(8, 7))
    assert equals.changed(400.0) == {"n4"}
    assert equals.changed(99.0 + LASTS_SECONDS) == set()
    assert equals.changed(100.0 + LASTS_SECONDS) == {"n4"}
    assert equals.lack_of_node("n4") == Lack(
        "7 ports up, but 8 on nearly all machines of its kind", Severity.WARNING, lasts=True
    )
    assert equals.next_seconds(1e6) is None
    equals.set_machine("n4", "kind", MachineEquipment(8, 8))
    assert equals.next_seconds(1e6) == 0.0
    assert equals.changed(1e6) == {"n4"}
    assert equals.lack_of_node("n4") is None


def test_machines_that_are_gone_are_no_equals() -> None:
    equals = MachineKinds()
    for number in range(4):
        equals.set_machine(f"n{number}", "kind", MachineEquipment(8, 8))
    equals.set_machine("n4", "kind", MachineEquipment(7, 8))
    assert equals.changed(0.0) == {"n4"}
    equals.set_machine("n0", "", None)
    equals.set_machine("n1", "kind", None)
    assert equals.changed(1.0) == {"n4"}
    assert equals.lack_of_node("n4") is None
    for number in range(5):
        equals.set_machine(f"n{number}", "", None)
    assert equals.changed(2.0) == set()


@pytest.mark.parametrize(
    ("labels", "changes", "wanted"),
    [
        ({TYPE: "p5"}, {}, "no accelerator/p5/H200"),
        (
            {"nvidia.com/gpu.machine": "DGXH200", "nvidia.com/gpu.product": "H200"},
            {},
            "nvidia.com/gpu H200/DGXH200/H200",
        ),
        ({}, {}, ""),
        ({TYPE: "p5"}, {"gpus_expected": 0}, ""),
    ],
)
def test_which_machines_were_built_alike(labels: dict[str, str], changes: dict[str, Any], wanted: str) -> None:
    told = agent(**{"gpu_model": "H200", "gpus_expected": 8, **changes})
    assert kind_of(node(labels=labels), told, "nvidia.com/gpu") == wanted


def judged(health: NodeHealth, lack: Lack | None, at: float = 0) -> Any:
    return assess(NodeWorld(facts(), health, rules(), after(at), lack=lack))


GPU_LESS = Lack("7 GPUs, but 8 on nearly all machines of its kind", Severity.DEGRADED, lasts=True)


def test_what_follows() -> None:
    verdict = judged(healthy(), GPU_LESS)
    assert (verdict.conclusion.state, verdict.conclusion.reason) == (VerdictState.DEGRADED, FEWER_THAN_EQUALS)
    assert verdict.grounds.causes == (f"agent/{FEWER_THAN_EQUALS}",)
    assert judged(healthy(), Lack("7 ports up", Severity.WARNING, lasts=True)).conclusion.state is VerdictState.SUSPECT
    assert judged(healthy(), Lack("7 GPUs", Severity.DEGRADED)).conclusion.state is VerdictState.HEALTHY


def test_a_new_leader_that_has_not_waited_long_enough_lets_nobody_back() -> None:
    finding = Finding(source="agent", reason=FEWER_THAN_EQUALS, severity=Severity.DEGRADED, message="x", since=after(0))
    before = healthy()
    before = before.model_copy(update={"status": before.status.model_copy(update={"findings": [finding]})})
    verdict = judged(before, Lack("7 GPUs", Severity.DEGRADED), 60)
    assert verdict.conclusion.state is VerdictState.DEGRADED
    assert verdict.conclusion.findings[0].since == after(0)
    assert judged(before, None, 60).conclusion.state is VerdictState.HEALTHY


def test_a_human_has_released_it_with_what_it_has() -> None:
    assert judged(decided(healthy(), Decision.RELEASE, at=0), GPU_LESS, 60).conclusion.state is VerdictState.HEALTHY

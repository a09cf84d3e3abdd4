"""A node that has fewer GPUs than all others of its kind: from its record to the exclusion, and back."""

from typing import Any

import pytest
from tests.unit.controller.test_agents import Fleet

from muster.health.equals import FEWER_THAN_EQUALS, LASTS_SECONDS

TYPE = {"node.kubernetes.io/instance-type": "p5"}


class Kind(Fleet):
    """Four nodes of one kind."""

    def use_clock(self) -> None:
        super().use_clock()
        self.nodes.worlds._equipment._clock = lambda: self.seconds

    def has(self, name: str, gpus: int, *, ports: int = 8, **labels: str) -> None:
        self.node(name, **(labels or TYPE))
        self.say(name)
        record: dict[str, Any] = self.api.objects["nodehealths", name]
        told = {**record["status"]["agent"], "gpusExpected": gpus, "portsExpected": ports, "gpuModel": "H200"}
        told["portsExpectedUp"] = [f"mlx5_{number}/1" for number in range(ports)]
        self.api.put("nodehealths", {**record, "status": {**record["status"], "agent": told}})


@pytest.fixture
def fleet() -> Kind:
    return Kind()


async def test_a_node_with_a_gpu_less_than_its_equals_is_not_used(fleet: Kind) -> None:
    for number in range(3):
        fleet.has(f"n{number}", 8)
    fleet.has("n3", 7)
    await fleet.after(LASTS_SECONDS - 1)
    assert fleet.state("n3")[0] == "Healthy"
    await fleet.after(LASTS_SECONDS)
    assert fleet.state("n3") == ("Degraded", FEWER_THAN_EQUALS)
    assert "7 GPUs, but 8 on nearly all machines of its kind" in fleet.status("n3")["message"]
    assert fleet.cluster.fleet.exclusion("n3") is not None
    assert {fleet.state(f"n{number}")[0] for number in range(3)} == {"Healthy"}
    fleet.has("n3", 8)
    await fleet.after(1)
    assert fleet.state("n3") == ("Healthy", "")
    assert fleet.cluster.fleet.exclusion("n3") is None


async def test_a_node_whose_labels_say_that_it_is_another_kind_lacks_nothing(fleet: Kind) -> None:
    for number in range(3):
        fleet.has(f"n{number}", 8)
    fleet.has("n3", 4)
    await fleet.after(0)
    fleet.node("n3", **{"node.kubernetes.io/instance-type": "p5.half"})
    await fleet.after(2 * LASTS_SECONDS)
    assert fleet.state("n3")[0] == "Healthy"
    assert fleet.nodes.worlds._equipment.next_seconds() is None


async def test_it_is_looked_at_again_when_it_has_lasted(fleet: Kind) -> None:
    for number in range(3):
        fleet.has(f"n{number}", 8)
    fleet.has("n3", 7)
    await fleet.after(0)
    pause = fleet.nodes.reconciler._pause()
    assert pause is not None
    assert pause <= LASTS_SECONDS


async def test_ports_that_the_policy_leaves_out_are_no_difference(fleet: Kind) -> None:
    for number in range(3):
        fleet.has(f"n{number}", 8)
    fleet.has("n3", 8, ports=7)
    await fleet.after(0)
    await fleet.after(LASTS_SECONDS)
    assert fleet.state("n3") == ("Suspect", FEWER_THAN_EQUALS)
    fleet.policy(ignoredPorts=[{"names": ["mlx5_7"]}])
    await fleet.after(0)
    assert fleet.state("n3") == ("Healthy", "")

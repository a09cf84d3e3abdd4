"""What an agent makes of a boot: a GPU or a port that was missing and still is stays evidence, and nobody is well
before he was looked at."""

from typing import Any

import pytest
from tests.unit.agent.boots import (
    MACHINE,
    MISSED_PORTS,
    RELEASED,
    WITH_EIGHT_GPUS,
    WITHOUT_MORE_GPUS,
    assert_that_a_port_is_missed,
    assert_that_no_gpu_is_missed,
    assert_that_the_first_word_tells_of_a_worn_gpu,
    assert_that_the_first_word_tells_of_the_missing_gpu,
    assert_that_the_next_boot_knows_of_eight_gpus,
    evidence,
    first_word,
    stored,
)

from muster.health.node_plan import AGENTS_PART
from muster.node.agent import kinds
from muster.node.agent.earlier import Earlier
from muster.node.agent.inspections import NVML, PORTS


def earlier(before: dict[str, Any]) -> Earlier:
    return Earlier.from_stored({"status": before, "spec": before.get("spec", {})}, "boot-1", MACHINE)


@pytest.mark.parametrize("before", WITH_EIGHT_GPUS)
def test_how_many_gpus_a_machine_had_is_known(before: dict[str, Any]) -> None:
    assert earlier(before).gpus == 8


@pytest.mark.parametrize("before", WITHOUT_MORE_GPUS)
def test_no_more_gpus_are_known_than_a_machine_had(before: dict[str, Any]) -> None:
    assert earlier(before).gpus <= 7


@pytest.mark.parametrize(("before", "missed"), MISSED_PORTS)
def test_how_many_ports_a_machine_had_is_known(before: dict[str, Any], missed: bool) -> None:
    assert (earlier(before).ports == 4) is missed


@pytest.mark.parametrize("before", WITH_EIGHT_GPUS[:2])
def test_a_gpu_that_is_missing_after_a_boot_is_told_with_the_first_word(
    node: Any, run: Any, before: dict[str, Any]
) -> None:
    assert_that_the_first_word_tells_of_the_missing_gpu(node, run, before)


def test_an_agent_writes_no_other_field_of_the_status(run: Any) -> None:
    assert set(first_word(run())) == AGENTS_PART, "an older operator takes every other one over (docs/versions.md)"


def test_a_machine_that_never_had_more_misses_nothing(node: Any, run: Any) -> None:
    assert_that_no_gpu_is_missed(node, run, stored(uuid="4c4c4544-0002"))


def test_a_release_from_before_the_fault_covers_nothing() -> None:
    later = evidence(kinds.GPU_COUNT, threshold="8 GPUs", first="2026-01-03T00:00:00Z")
    found = Earlier.from_stored({"status": stored(7, evidence=[later]), "spec": RELEASED}, "boot-1", MACHINE)
    assert found.gpus == 8
    assert found.another_boot


def test_nobody_is_well_before_nvml_has_answered_in_the_new_boot(node: Any, run: Any) -> None:
    node.faults("hang_seconds=3600")
    agent = run(stored=stored(evidence=[evidence(kinds.GPU_LOST, "GPU-1")]), thresholds={"nvml.start_deadline": 1e9})
    agent.wait(lambda: agent.agent._inspections.has(PORTS))
    agent.advance(1e6)
    assert agent.wrote.offers == []  # what stood against it stands
    agent.wait(agent.agent.is_alive)


def test_the_first_word_after_a_boot_tells_of_memory_and_fabric(node: Any, run: Any) -> None:
    assert_that_the_first_word_tells_of_a_worn_gpu(node, run, ["fabric=3", "fabric=1@gpu3"], kinds.FABRIC_STATE)


def test_nobody_whom_an_old_line_has_out_is_well_before_nvml_has_answered(node: Any, run: Any) -> None:
    """What the log told a day ago is evidence no more, and stands by the operator's record until the boot: a slow
    driver used to end that."""
    finding = {"source": "agent", "reason": "Xid79", "severity": "Fatal", "subject": "GPU-1"}
    node.faults("hang_seconds=3600")
    agent = run(stored=stored(findings=[finding]), thresholds={"nvml.start_deadline": 1e9})
    agent.wait(lambda: agent.agent._inspections.has(PORTS))
    agent.advance(1e6)
    assert agent.wrote.offers == []


def test_a_driver_that_answers_nothing_after_a_boot_is_told_in_the_end(node: Any, run: Any) -> None:
    node.faults("every_call_fails=999")
    agent = run(stored=stored(), thresholds={"boot.grace": 1.0, "nvml.failed": 0.1})
    assert agent.wait_for(kinds.NVML_FAILED)["threshold"] == "8 GPUs"


def test_a_driver_that_hangs_after_a_boot_is_told(node: Any, run: Any) -> None:
    node.faults("hang_seconds=3600")
    agent = run(stored=stored(), thresholds={"nvml.start_deadline": 0.3})
    assert first_word(agent)["evidence"][0]["kind"] == kinds.NVML_HANG


def test_a_driver_that_is_not_loaded_yet_after_a_boot_proves_nothing(node: Any, run: Any) -> None:
    """Found by simulated fleets: the agent was there before the driver, and a node with a GPU less came back for two
    minutes."""
    node.faults("init_error=9")
    before = stored(7, seen=8, evidence=[evidence(kinds.GPU_LOST, "GPU-1")])
    agent = run(stored=before, thresholds={"nvml.retry_period": 0.2, "nvml.unloaded": 3600.0})
    agent.look_for(600.0, ("start",))
    assert agent.wrote.offers == []
    assert agent.agent.not_ready() != ""
    node.faults("count=7")
    assert first_word(agent)["evidence"][0]["kind"] == kinds.GPU_COUNT


def test_a_driver_that_is_never_loaded_after_a_boot_is_told_in_the_end(node: Any, run: Any) -> None:
    node.faults("init_error=9")
    before = stored(evidence=[evidence(kinds.GPU_LOST, "GPU-1")])
    agent = run(stored=before, thresholds={"nvml.retry_period": 0.2, "nvml.unloaded": 0.5})
    assert [item["kind"] for item in first_word(agent)["evidence"]] == [kinds.NVML_FAILED]


def test_a_node_without_gpus_speaks_once_its_ports_were_seen(run: Any) -> None:
    word = first_word(run(driver=None, stored=stored(0)))
    assert word["agent"]["bootId"] == "boot-1"
    assert word["evidence"] == []


def test_a_port_that_is_down_before_and_after_a_boot_has_not_to_be_so_for_long_again(node: Any, run: Any) -> None:
    node.port("mlx5_0/1", "1: DOWN", "3: Disabled")
    before = stored(evidence=[evidence(kinds.IB_PORT_DOWN, "mlx5_0/1", "ACTIVE, LinkUp")])
    word = first_word(run(stored=before, thresholds={"infiniband.down": 3600.0}))
    assert [(item["kind"], item["subject"]) for item in word["evidence"]] == [(kinds.IB_PORT_DOWN, "mlx5_0/1")]


@pytest.mark.parametrize(("before", "missed"), [MISSED_PORTS[0], MISSED_PORTS[3]])
def test_a_port_that_does_not_come_up_after_a_boot_is_missed(
    node: Any, run: Any, before: dict[str, Any], missed: bool
) -> None:
    assert_that_a_port_is_missed(node, run, before, missed)


def test_a_node_that_was_out_is_not_well_while_its_ports_are_still_coming_up(node: Any, run: Any) -> None:
    for number in range(3):
        node.port(f"mlx5_{number}/1")
    before = stored(ports=4, portsExpected=4, evidence=[evidence(kinds.GPU_LOST, "GPU-1")])
    slow = run(stored=before, thresholds={"boot.grace": 1e6})
    slow.wait(lambda: slow.agent._inspections.has(NVML, PORTS))
    assert slow.wrote.offers == []
    node.port("mlx5_3/1")
    assert first_word(slow)["evidence"] == []
    slow.stop()
    node.port("mlx5_3/1", "1: DOWN", "2: Polling")
    never = run(stored=before, thresholds={"boot.grace": 1.0})
    assert [item["kind"] for item in first_word(never)["evidence"]] == [kinds.IB_PORT_DOWN]


def test_an_agent_that_starts_again_tells_of_a_port_once(node: Any, run: Any) -> None:
    for number in range(4):
        node.port(f"mlx5_{number}/1")
    first = run(thresholds={"boot.grace": 0.3})
    first.wait(lambda: first.status["agent"].get("portsExpected") == 4)
    node.port("mlx5_3/1", "1: DOWN", "2: Polling")
    first.wait_for(kinds.IB_PORT_DOWN)
    first.stop()
    second = run(stored=first.status, thresholds={"boot.grace": 0.3})
    second.wait_until_looking()
    second.look_for(30.0)
    assert [(item["kind"], item["subject"]) for item in second.evidence] == [(kinds.IB_PORT_DOWN, "mlx5_3/1")]


def test_an_agent_that_lives_through_a_boot_looks_as_one_that_starts(node: Any, run: Any) -> None:
    agent = run()
    agent.wait_until_looking()
    node.faults("count=7", "xid=79@gpu1")
    agent.wait_for(kinds.GPU_COUNT)
    agent.wait_for(kinds.XID)
    node.boot("boot-2")
    agent.wait(lambda: agent.status["agent"]["bootId"] == "boot-2")
    words = [status for status, _ in agent.wrote.offers if status["agent"]["bootId"] == "boot-2"]
    assert all([item["kind"] for item in word["evidence"]] == [kinds.GPU_COUNT] for word in words)


def test_what_one_boot_cannot_count_the_next_one_misses(node: Any, run: Any) -> None:
    assert_that_the_next_boot_knows_of_eight_gpus(node, run, ("lost=3",))

"""GPUs that are dead without saying so: real pynvml, real child process, the fake library and the kernel's lines."""

import os
import signal
from typing import Any

import pytest
from tests.unit.agent.conftest import AgentClock
from tests.unit.agent.dead_gpus import (
    GPU1,
    INIT_FAILED,
    PCI1,
    about,
    assert_that_a_line_is_history,
    assert_that_a_node_without_gpus_is_quiet,
    assert_that_errors_alone_are_fatal,
    assert_that_lost_links_are_told,
    assert_that_no_link_is_missed,
    assert_that_nvml_that_had_worked_is_missed,
    assert_that_saving_power_is_no_fault,
    weight,
)

from muster.api.nodehealth import Severity
from muster.node.agent import kinds
from muster.node.agent.gpus import Gpus
from muster.node.agent.thresholds import DEFAULTS


def test_a_gpu_that_answers_only_errors_while_others_answer(node: Any, run: Any) -> None:
    assert_that_errors_alone_are_fatal("gpu_fails=999@gpu1", node, run)


def test_an_answer_without_gpus_and_without_their_number_is_a_failure() -> None:
    signals = Gpus(DEFAULTS, 8).fast({"gpus": [], "errors": {"nvmlDeviceGetCount": 999}})
    assert [(each.kind, each.bad, each.code) for each in signals] == [(kinds.NVML_FAILED, True, 999)]


def test_errors_of_a_moment_accuse_nobody(node: Any, run: Any) -> None:
    agent = run(thresholds={"gpu.unreachable": 3600.0, "nvml.failed": 3600.0, "fabric.sustain": 3600.0})
    agent.wait_until_looking()
    for fault in ("gpu_fails=999@gpu1", "every_call_fails=999"):
        node.faults(fault)
        agent.wait(lambda: "999" in agent.status["agent"]["problem"])
        node.faults()
        agent.wait(lambda: agent.status["agent"]["problem"] == "")
    assert not any(offer["evidence"] for offer, _ in agent.wrote.offers)


def test_a_gpu_without_a_handle_is_seen_and_tried_again(node: Any, run: Any) -> None:
    """`nvidia-smi`: Unable to determine the device handle for GPU 0000:11:00.0: Unknown Error (999)."""
    node.faults("handle_error=999@gpu1")
    agent = run()
    found = agent.wait_for(kinds.GPU_UNREACHABLE)
    assert (found["subject"], found["value"]) == ("GPU 1", "NVML error 999")
    assert "nvmlDeviceGetHandleByIndex 999" in agent.status["agent"]["problem"]
    node.faults()
    agent.wait_until_gone(kinds.GPU_UNREACHABLE)
    agent.wait(lambda: agent.status["agent"]["gpus"] == 8 and len(agent.status["agent"]["gpuSerials"]) == 8)
    assert agent.evidence == []
    assert agent.nvml.starts == 1


def test_the_handle_of_a_gpu_fails_once(node: Any, run: Any) -> None:
    node.faults("handle_error=999@gpu1")
    clock = AgentClock(held=5000.0)
    agent = run(thresholds={"gpu.unreachable": 0.0}, clock=clock)
    agent.wait(lambda: "999" in agent.status["agent"].get("problem", ""))
    node.faults()
    clock.release()  # only now the next try is due
    agent.wait(lambda: agent.status["agent"]["gpus"] == 8)
    assert not any(offer["evidence"] for offer, _ in agent.wrote.offers)


def test_a_gpu_without_a_handle_has_the_address_that_the_driver_knows(node: Any, run: Any) -> None:
    for bus in range(0x10, 0x18):
        (node.folder / f"proc/driver/nvidia/gpus/0000:{bus:02x}:00.0").mkdir(parents=True)
    node.faults("handle_error=999@gpu1")
    agent = run()
    assert agent.wait_for(kinds.GPU_UNREACHABLE)["subject"] == f"PCI:{PCI1}"
    node.faults()
    agent.wait_until_gone(kinds.GPU_UNREACHABLE)
    assert agent.evidence == []


def test_a_gpu_that_had_a_name_keeps_it_without_a_handle(node: Any, run: Any) -> None:
    agent = run()
    agent.wait_until_looking()
    node.faults("handle_error=999@gpu1")
    os.kill(agent.nvml.pid, signal.SIGKILL)
    assert agent.wait_for(kinds.GPU_UNREACHABLE)["subject"] == GPU1


def test_no_permission_speaks_of_the_agent_and_not_of_the_gpu(node: Any, run: Any) -> None:
    node.faults("handle_error=4@gpu1")
    agent = run()
    agent.wait(lambda: "nvmlDeviceGetHandleByIndex 4" in agent.status["agent"].get("problem", ""))
    agent.look_for(300.0)
    assert agent.evidence == []
    assert agent.status["agent"]["gpus"] == 7


@pytest.mark.parametrize("code", [999, 9])
def test_nvml_that_had_worked_in_this_boot_does_not_start_any_more(code: int, node: Any, run: Any) -> None:
    assert_that_nvml_that_had_worked_is_missed(code, node, run)


def test_an_unloaded_driver_has_time_for_an_upgrade(node: Any, run: Any) -> None:
    agent = run(thresholds={"nvml.unloaded": 3600.0})
    agent.wait_until_looking()
    node.faults("init_error=9")
    os.kill(agent.nvml.pid, signal.SIGKILL)
    agent.wait(lambda: "not loaded" in agent.status["agent"]["problem"])
    agent.look_for(300.0, ("start",))
    assert agent.evidence == []


def test_a_node_that_never_had_gpus_is_quiet(node: Any, run: Any) -> None:
    assert_that_a_node_without_gpus_is_quiet(9, node, run)


def test_nvml_does_not_start_where_gpus_are_configured(node: Any, run: Any) -> None:
    node.faults("init_error=999")
    assert weight(run(expected_gpus=8).wait_for(kinds.NVML_FAILED)) is Severity.DEGRADED


def test_a_new_agent_knows_that_there_were_gpus(node: Any, run: Any) -> None:
    first = run()
    first.wait_until_looking()
    first.stop()
    node.faults("init_error=999")
    second = run(stored=first.status)
    second.wait_for(kinds.NVML_FAILED)
    second.stop()
    third = run(stored=second.status)  # by now no GPU is seen any more
    third.wait_for(kinds.NVML_FAILED)
    node.faults()
    third.wait_until_gone(kinds.NVML_FAILED)


def test_every_call_is_answered_by_an_error(node: Any, run: Any) -> None:
    agent = run()
    agent.wait_until_looking()
    node.faults("every_call_fails=999")
    found = agent.wait_for(kinds.NVML_FAILED)
    assert "every call of NVML returns error 999" in found["message"]
    assert about(agent) == {(kinds.NVML_FAILED, "")}
    node.faults()
    agent.wait_until_gone(kinds.NVML_FAILED)


def test_the_only_gpu_of_a_node_answers_only_errors(node: Any, run: Any) -> None:
    node.faults("gpus=1")
    agent = run()
    agent.wait_until_looking()
    node.faults("gpus=1", "gpu_fails=999")
    agent.wait_for(kinds.NVML_FAILED)


def test_a_gpu_that_the_driver_cannot_start(node: Any, run: Any) -> None:
    node.faults("count=7", "gpus=7")
    agent = run()
    agent.wait_until_looking()
    node.log("NVRM: GPU 0000:17:00.0: RmInitAdapter failed! (0x26:0x56:1474)")
    found = agent.wait_for(kinds.GPU_INIT)
    assert (found["subject"], found["message"]) == (
        "PCI:0000:17:00",
        "NVRM: GPU 0000:17:00.0: RmInitAdapter failed! (0x26:0x56:1474)",
    )
    assert weight(found) is Severity.FATAL
    node.faults()
    os.kill(agent.nvml.pid, signal.SIGKILL)
    agent.wait_until_gone(kinds.GPU_INIT)
    assert agent.evidence == []


OLD, GSP = (
    "NVRM: rm_init_adapter failed for device bearing minor number {}",
    "NVRM: GPU{} _kgspLogRpcTimeout: ********************************* GSP Timeout **********************************",
)


@pytest.mark.parametrize("line", [OLD, GSP])
def test_a_line_names_a_gpu_by_the_number_of_its_device_file(line: str, node: Any, run: Any) -> None:
    node.faults("count=7", "gpus=7")
    folder = node.folder / "proc/driver/nvidia/gpus"
    for bus, minor in (("11", 0), ("17", 1)):
        (folder / f"0000:{bus}:00.0").mkdir(parents=True)
        (folder / f"0000:{bus}:00.0/information").write_text(f"Model: \t\t Tesla V100\nDevice Minor: \t {minor}\n")
    agent = run()
    agent.wait_until_looking()
    node.log(line.format(1), line.format(7))
    assert agent.wait_for(kinds.GPU_INIT)["subject"] == "PCI:0000:17:00"
    agent.wait_for_log(2)
    assert about(agent) == {(kinds.GPU_INIT, "PCI:0000:17:00")}


def test_a_gpu_that_was_dead_before_the_driver_came(node: Any, run: Any) -> None:
    """Nothing else tells of it on a machine of which nobody knows how many it has: there is no XID, and NVML never saw
    it."""
    node.faults("count=7", "gpus=7")
    node.log(
        "3,1,9000000,-;NVRM: The NVIDIA GPU 0000:17:00.0\\x0aNVRM: (PCI ID: 10de:2335) installed in this system "
        "has\\x0aNVRM: fallen off the bus and is not responding to commands."
    )
    found = run().wait_for(kinds.GPU_LOST)
    assert found["subject"] == "PCI:0000:17:00"
    assert weight(found) is Severity.FATAL


def test_a_line_about_a_gpu_that_answers_is_history(node: Any, run: Any) -> None:
    assert_that_a_line_is_history(INIT_FAILED, node, run)


def test_a_gpu_that_cannot_be_started_has_its_name(node: Any, run: Any) -> None:
    agent = run()
    agent.wait_until_looking()
    node.faults("gpu_fails=999@gpu1")
    node.log(INIT_FAILED)
    agent.wait(lambda: about(agent) == {(kinds.GPU_INIT, GPU1), (kinds.GPU_UNREACHABLE, GPU1)})
    node.faults()
    agent.wait(lambda: agent.evidence == [])


def test_all_gpus_lose_links_at_once(node: Any, run: Any) -> None:
    assert_that_lost_links_are_told(14, node, run)


def test_a_new_agent_and_a_new_child_know_how_many_links_there_were(node: Any, run: Any) -> None:
    node.faults("nvlinks=18", "model=2")  # a model of which nothing is known
    first = run()
    first.wait_until_looking()
    gone = ("nvlinks=18", "model=2", "nvlink_down=18")
    node.faults(*gone)
    first.wait(lambda: len(first.about(kinds.NVLINK_DOWN)) == 8)
    os.kill(first.nvml.pid, signal.SIGKILL)
    node.faults("model=2")  # and after a new start of NVML they are not even there
    first.wait(lambda: first.nvml.starts == 2)
    first.look_for(30.0)
    assert len(first.about(kinds.NVLINK_DOWN)) == 8
    first.stop()
    node.faults(*gone)
    second = run(stored=first.status)
    second.wait_until_looking()
    second.look_for(30.0)
    assert len(second.about(kinds.NVLINK_DOWN)) == 8


@pytest.mark.parametrize("left", [14, 0])
def test_links_that_are_missing_from_the_start(left: int, node: Any, run: Any) -> None:
    node.faults("nvlinks=18", f"nvlink_down={18 - left}")
    agent = run()
    agent.wait(lambda: len(agent.about(kinds.NVLINK_DOWN)) == 8)
    assert {(item["value"], item["threshold"]) for item in agent.evidence} == {(f"{left} links", "18 links")}


@pytest.mark.parametrize("faults", [("nvlink_down=4", "model=1"), ("nvlink_down=18", "gpus=1")])
def test_links_that_may_be_missing(faults: tuple[str, ...], node: Any, run: Any) -> None:
    assert_that_no_link_is_missed(faults, node, run)


def test_links_that_cannot_be_read_are_not_down(node: Any, run: Any) -> None:
    node.faults("nvlinks=18")
    agent = run(thresholds={"fabric.sustain": 0.0})
    agent.wait_until_looking()
    node.faults("nvlinks=18", "link_error=999@gpu1")
    agent.wait(lambda: "nvmlDeviceGetNvLinkState 999" in agent.status["agent"]["problem"])
    agent.look_for(30.0)
    os.kill(agent.nvml.pid, signal.SIGKILL)  # nor when they cannot be counted
    agent.wait(lambda: agent.nvml.starts == 2)
    agent.look_for(30.0)
    assert agent.evidence == []


def test_a_pcie_link_of_a_lower_generation_under_load(node: Any, run: Any) -> None:
    agent = run()
    agent.wait_until_looking()
    node.faults("pcie_generation=1@gpu1", "throttle=0@gpu1")
    found = agent.wait_for(kinds.PCIE_GENERATION)
    assert (found["subject"], found["value"], found["threshold"]) == (GPU1, "generation 1", "generation 5")
    assert weight(found) is Severity.WARNING
    node.faults("pcie_generation=1@gpu1")  # idle again: that says nothing
    agent.look_for(30.0)
    assert agent.about(kinds.PCIE_GENERATION)
    node.faults("throttle=0@gpu1")
    agent.wait_until_gone(kinds.PCIE_GENERATION)


def test_an_idle_gpu_saves_power(node: Any, run: Any) -> None:
    assert_that_saving_power_is_no_fault("throttle=1", node, run)


def test_persistence_mode_is_off(node: Any, run: Any) -> None:
    agent = run()
    agent.wait_until_looking()
    node.faults("persistence=0@gpu1")
    found = agent.wait_for(kinds.PERSISTENCE_MODE)
    assert (found["value"], found["threshold"], weight(found)) == ("off on 1 of 8 GPUs", "on", Severity.INFO)
    node.faults()
    agent.wait_until_gone(kinds.PERSISTENCE_MODE)

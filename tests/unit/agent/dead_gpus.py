"""What is told of GPUs that are dead without saying so, and what is not."""

import os
import signal
from datetime import UTC, datetime
from typing import Any

from muster.api.nodehealth import Evidence, Severity
from muster.health.kinds import sign_of
from muster.node.agent import kinds

GPU1 = "GPU-00000000-0000-4000-8000-000000000002"
PCI1 = "0000:11:00"
# NVIDIA developer forum and open-gpu-kernel-modules issues: what the driver writes when it cannot start a GPU.
INIT_FAILED = "NVRM: GPU 0000:11:00.0: RmInitAdapter failed! (0x26:0x56:1474)"


def weight(item: dict[str, Any]) -> Severity:
    return sign_of(Evidence.model_validate(item), datetime.now(UTC)).severity


def about(agent: Any) -> set[tuple[str, str]]:
    return {(item["kind"], item["subject"]) for item in agent.evidence}


def assert_that_errors_alone_are_fatal(fault: str, node: Any, run: Any) -> None:
    agent = run()
    agent.wait_until_looking()
    node.faults(fault)
    found = agent.wait_for(kinds.GPU_UNREACHABLE)
    assert (found["subject"], found["value"]) == (GPU1, f"NVML error {fault[10:].split('@')[0]}")
    assert weight(found) is Severity.FATAL
    assert agent.status["agent"]["gpus"] == 7
    assert about(agent) == {(kinds.GPU_UNREACHABLE, GPU1)}
    node.faults()
    agent.wait_until_gone(kinds.GPU_UNREACHABLE)
    assert agent.evidence == []


def assert_that_nvml_that_had_worked_is_missed(code: int, node: Any, run: Any) -> None:
    agent = run()
    agent.wait_until_looking()
    node.faults(f"init_error={code}")
    os.kill(agent.nvml.pid, signal.SIGKILL)
    found = agent.wait_for(kinds.NVML_FAILED)
    assert (found["subject"], found["value"], found["code"]) == ("", f"0 GPUs, NVML error {code}", code)
    assert found["threshold"] == "8 GPUs"
    assert weight(found) is Severity.DEGRADED
    node.faults()
    agent.wait_until_gone(kinds.NVML_FAILED)
    assert agent.evidence == []


def assert_that_a_node_without_gpus_is_quiet(code: int, node: Any, run: Any) -> None:
    node.faults(f"init_error={code}")
    agent = run()
    agent.wait(lambda: agent.status["agent"].get("problem"))
    agent.look_for(300.0, ("start",))
    assert agent.evidence == []


def assert_that_a_line_is_history(line: str, node: Any, run: Any) -> None:
    """An agent that starts reads the log of the whole boot; the GPU may have been reset since."""
    node.log(line)
    agent = run()
    agent.wait_until_looking()
    node.log(line)
    agent.wait_for_log(2)
    agent.look_for(30.0)
    assert not any(offer["evidence"] for offer, _ in agent.wrote.offers)


def assert_that_lost_links_are_told(left: int, node: Any, run: Any) -> None:
    """An NVSwitch of six is lost: each GPU has three links to it."""
    node.faults("nvlinks=18")
    agent = run()
    agent.wait_until_looking()
    node.faults("nvlinks=18", f"nvlink_down={18 - left}")
    agent.wait(lambda: len(agent.about(kinds.NVLINK_DOWN)) == 8)
    assert {(item["value"], item["threshold"]) for item in agent.evidence} == {(f"{left} links", "18 links")}
    assert {weight(item) for item in agent.evidence} == {Severity.FATAL}
    node.faults("nvlinks=18")
    agent.wait(lambda: agent.evidence == [])


def assert_that_no_link_is_missed(faults: tuple[str, ...], node: Any, run: Any) -> None:
    node.faults("nvlinks=18", *faults)
    agent = run()
    agent.wait_until_looking()
    agent.look_for(30.0)
    assert agent.evidence == []


def assert_that_saving_power_is_no_fault(idle: str, node: Any, run: Any) -> None:
    node.faults("pcie_generation=1", *({"throttle=0", "performance_state=0"} - {idle[:-1] + "0"}), idle)
    agent = run()
    agent.wait_until_looking()
    agent.look_for(30.0)
    assert agent.evidence == []

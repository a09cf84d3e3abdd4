"""Every fault of the fake library becomes its evidence and goes again: real pynvml, real child process."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agent.conftest import DEADLINE
from tests.unit.agent.faults import CASES, GPU1, assert_that_a_fault_comes_and_goes

from muster.node.agent import kinds

ALONE = ["GPU lost", "reset required", "seven of eight"]  # of such a GPU nothing else is read


@pytest.mark.parametrize("case", [*ALONE, "fabric degraded"])
def test_a_fault_is_evidence_until_it_is_gone(case: str, node: Any, run: Any) -> None:
    assert_that_a_fault_comes_and_goes(case, node, run)


def test_faults_of_all_gpus_are_told_side_by_side(node: Any, run: Any) -> None:
    """All the other cases, on any GPU of a node."""
    lines, told = ["fabric=3"], set[tuple[str, str]]()
    side_by_side = [case for name, case in CASES.items() if name not in ALONE]
    for number, (faults, kind, subject) in enumerate(side_by_side):
        gpu = number % 8
        lines += [line.replace("@gpu1", f"@gpu{gpu}") for line in faults if "@" in line]
        told.add((kind, f"{subject[:-1]}{gpu + 1}"))
    agent = run()
    agent.wait_until_looking()
    node.faults(*lines)
    agent.wait(lambda: {(item["kind"], item["subject"]) for item in agent.evidence} == told)


def test_a_driver_drifts(node: Any, run: Any) -> None:
    node.faults("vbios=0x1F@gpu1")
    agent = run()
    odd = agent.wait_for(kinds.DRIVER_DRIFT)
    assert (odd["subject"], odd["value"], odd["threshold"]) == (GPU1, "96.00.A5.00.1F", "96.00.A5.00.1A")


def test_a_library_that_does_not_fit_the_module_is_drift(node: Any, run: Any) -> None:
    node.faults("init_error=18")
    agent = run()
    assert agent.wait_for(kinds.DRIVER_DRIFT)["code"] == 18
    node.faults()
    agent.wait_until_gone(kinds.DRIVER_DRIFT)
    agent.wait_until_looking()


def test_an_nvlink_that_goes_down_on_one_gpu(node: Any, run: Any) -> None:
    node.faults("nvlinks=18")
    agent = run()
    agent.wait_until_looking()
    node.faults("nvlinks=18", "nvlink_down=2@gpu1")
    found = agent.wait_for(kinds.NVLINK_DOWN)
    assert (found["subject"], found["value"], found["threshold"]) == (GPU1, "16 links", "18 links")
    assert found["message"] == "NVLinks that are down: 0, 1"
    node.faults("nvlinks=18")
    agent.wait_until_gone(kinds.NVLINK_DOWN)


def test_nvlink_recoveries_count_when_they_grow(node: Any, run: Any) -> None:
    node.faults("nvlink_recoveries=5@gpu1")
    agent = run()
    agent.wait_until_looking()
    assert agent.evidence == []
    node.faults("nvlink_recoveries=6@gpu1")
    assert agent.wait_for(kinds.NVLINK_ERRORS)["value"] == "1 recoveries in an hour"


def test_pcie_replays_count_by_the_minute(node: Any, run: Any) -> None:
    node.faults("pcie_replays=1000@gpu1")
    agent = run()
    agent.wait_until_looking()
    node.faults("pcie_replays=1031@gpu1")
    agent.wait_for_looks()
    assert agent.evidence == []  # 31 a minute are allowed for x16 of generation 5
    node.faults("pcie_replays=1032@gpu1")
    assert agent.wait_for(kinds.PCIE_REPLAY)["threshold"] == "31/min"


def test_the_driver_s_action_follows_the_driver(node: Any, run: Any) -> None:
    agent = run()
    agent.wait_until_looking()
    node.faults("recovery_action=1@gpu1")
    assert agent.wait_for(kinds.RECOVERY_ACTION)["code"] == 1
    node.faults("recovery_action=2@gpu1")
    agent.wait(lambda: agent.about(kinds.RECOVERY_ACTION)[0]["code"] == 2)
    assert "reboot the node" in agent.about(kinds.RECOVERY_ACTION)[0]["message"]


def test_an_xid_by_event_and_by_log_is_one(node: Any, run: Any) -> None:
    agent = run()
    agent.wait_until_looking()
    node.faults("xid=79@gpu1")
    node.log("NVRM: Xid (PCI:0000:11:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.")
    found = agent.wait_for(kinds.XID)
    assert (found["subject"], found["code"], found["count"]) == (GPU1, 79, 1)
    agent.wait(lambda: agent.nvml.events == 1)
    agent.wait_for_log(1)
    assert [(item["kind"], item["count"]) for item in agent.evidence] == [(kinds.XID, 1)]


def test_the_xid_of_a_gpu_that_is_lost_has_its_name(node: Any, run: Any) -> None:
    agent = run()
    agent.wait_until_looking()
    node.faults("lost=1@gpu1", "xid=79@gpu1")
    agent.wait(lambda: {item["kind"] for item in agent.evidence} == {kinds.XID, kinds.GPU_LOST})
    assert [(item["kind"], item["subject"]) for item in agent.evidence] == [(kinds.GPU_LOST, GPU1), (kinds.XID, GPU1)]


def test_a_gpu_that_answers_now_and_then_is_no_news_each_time(node: Any, run: Any) -> None:
    agent = run(thresholds={"gpu.clear": 3600.0})
    agent.wait_until_looking()
    for _ in range(10):
        node.faults("lost=1@gpu1")
        agent.wait_for_looks(("fast",))
        node.faults()
        agent.wait_for_looks(("fast",))
    assert [item["kind"] for item in agent.evidence] == [kinds.GPU_LOST]
    assert sum(urgent for _, urgent in agent.wrote.offers) <= 3


def test_an_xid_is_told_and_goes_when_it_is_old(node: Any, run: Any) -> None:
    agent = run(thresholds={"xid.expires": 100.0, "burst": 0.1})
    agent.wait_until_looking()
    node.faults("xid=31@gpu1")
    agent.wait_for(kinds.XID)
    agent.advance(100.0)
    agent.wait_until_gone(kinds.XID)


def test_unknown_xids_are_told_with_their_number(node: Any, run: Any) -> None:
    agent = run()
    agent.wait_until_looking()
    node.faults("xid=4242@gpu1", "xid=0@gpu1")
    assert agent.wait_for(kinds.XID)["code"] == 4242
    assert len(agent.evidence) == 1


def test_nvml_that_hangs_is_evidence_and_holds_nothing_up(node: Any, run: Any) -> None:
    agent = run()
    agent.wait_until_looking()
    first = agent.nvml.pid
    node.faults("hang_seconds=3600")
    for _ in range(2):
        agent.let_nvml_hang()
    found = agent.wait_for(kinds.NVML_HANG)
    assert "did not answer" in found["message"]
    node.log("NVRM: Xid (PCI:0000:11:00): 79, GPU has fallen off the bus.")
    agent.wait_for(kinds.XID)
    agent.wait(lambda: not Path(f"/proc/{first}").exists())
    node.faults()
    agent.end_what_hangs()
    agent.wait_until_gone(kinds.NVML_HANG)
    assert agent.nvml.hangs >= 2


def test_nvml_that_hangs_once_accuses_nobody(node: Any, run: Any) -> None:
    agent = run()
    agent.wait_until_looking()
    os.kill(agent.nvml.pid, signal.SIGSTOP)
    agent.let_nvml_hang()
    agent.wait(lambda: agent.agent._hung == set())
    node.faults("recovery_action=1@gpu1")
    agent.wait_for(kinds.RECOVERY_ACTION)
    assert all(item["kind"] != kinds.NVML_HANG for status, _ in agent.wrote.offers for item in status["evidence"])


def test_a_gpu_about_which_nvml_hangs_blinds_only_itself(node: Any, run: Any) -> None:
    agent = run(thresholds={"nvml.hang_backoff": 1e6})
    agent.wait_until_looking()
    node.faults("hang_seconds=3600@gpu1")
    for _ in range(2):
        agent.let_nvml_hang(gpu=1)
    agent.wait(lambda: [item["subject"] for item in agent.about(kinds.NVML_HANG)] == [GPU1])
    assert "about GPU 1" in agent.about(kinds.NVML_HANG)[0]["message"]
    node.faults("hang_seconds=3600@gpu1", "recovery_action=1@gpu2")
    agent.wait_for(kinds.RECOVERY_ACTION)
    agent.wait(lambda: agent.agent.not_ready() == "")
    assert (agent.status["agent"]["gpus"], agent.status["agent"]["gpusExpected"]) == (7, 8)
    assert len(agent.status["agent"]["gpuSerials"]) == 8
    assert {item["kind"] for item in agent.evidence} == {kinds.NVML_HANG, kinds.RECOVERY_ACTION}


def test_a_gpu_that_was_left_out_is_asked_again(node: Any, run: Any) -> None:
    agent = run(thresholds={"nvml.hang_backoff": DEADLINE / 2})
    agent.wait_until_looking()
    node.faults("hang_seconds=3600@gpu1")
    for _ in range(2):
        agent.let_nvml_hang(gpu=1)
    agent.wait(lambda: [item["subject"] for item in agent.about(kinds.NVML_HANG)] == [GPU1])
    node.faults()
    agent.wait_for_looks()
    assert agent.status["agent"]["gpus"] == 7
    agent.advance(DEADLINE / 2)
    agent.wait_until_gone(kinds.NVML_HANG)
    agent.wait(lambda: agent.status["agent"]["gpus"] == 8)
    assert agent.evidence == []


def test_nvml_that_hangs_for_less_than_the_deadline_is_none(node: Any, run: Any) -> None:
    agent = run()
    agent.wait_until_looking()
    node.faults("hang_seconds=1@gpu7")
    agent.wait(lambda: agent.nvml.outstanding is not None and agent.nvml.outstanding.gpu == 7)
    node.faults()
    agent.wait_for_looks()
    assert agent.evidence == []
    assert agent.nvml.hangs == 0


def test_a_child_that_dies_is_started_again(node: Any, run: Any) -> None:
    agent = run()
    agent.wait_until_looking()
    first = agent.nvml.pid
    os.kill(first, signal.SIGSEGV)
    agent.wait(lambda: agent.nvml.pid not in (None, first))
    node.faults("recovery_action=1@gpu1")
    agent.wait_for(kinds.RECOVERY_ACTION)
    agent.wait(lambda: agent.status["agent"]["problem"] == "")


def test_a_lost_gpu_keeps_its_name_when_nvml_starts_again(node: Any, run: Any) -> None:
    agent = run()
    agent.wait_until_looking()
    node.faults("lost=1@gpu1")
    agent.wait_for(kinds.GPU_LOST)
    os.kill(agent.nvml.pid, signal.SIGKILL)
    agent.wait(lambda: agent.nvml.starts == 2 and agent.status["agent"]["problem"] == "")
    agent.wait(lambda: agent.status["agent"]["gpus"] == 7)
    agent.wait_for_looks()
    assert [(item["kind"], item["subject"]) for item in agent.evidence] == [(kinds.GPU_LOST, GPU1)]


def test_a_library_that_prints_disturbs_nobody(node: Any, run: Any) -> None:
    node.faults("noise=1")
    agent = run()
    agent.wait_until_looking()
    node.faults("noise=1", "recovery_action=1@gpu1")
    agent.wait_for(kinds.RECOVERY_ACTION)
    assert agent.nvml.starts == 1


def test_without_a_driver_there_is_no_sickness(run: Any) -> None:
    agent = run(driver=None)
    agent.wait(lambda: "no driver" in agent.status["agent"].get("problem", ""))
    assert agent.status["agent"]["driver"] == ""
    assert agent.evidence == []


def test_a_module_that_is_not_loaded_is_no_sickness(node: Any, run: Any) -> None:
    node.faults("init_error=9")
    agent = run()
    agent.wait(lambda: "not loaded" in agent.status["agent"].get("problem", ""))
    assert agent.evidence == []
    node.faults()
    agent.wait(lambda: agent.status["agent"]["gpus"] == 8)


@pytest.mark.parametrize("library", [b"", b"\x7fELF\x02\x01\x01", b"not a library\n"], ids=["empty", "cut off", "text"])
def test_a_library_that_cannot_be_loaded_is_no_sickness(
    library: bytes, node: Any, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that is being installed, or whose installation broke off."""
    (node.folder / "libnvidia-ml.so.1").write_bytes(library)
    agent = run(driver=None)
    agent.wait(lambda: "no driver" in agent.status["agent"].get("problem", ""))
    assert agent.evidence == []
    assert agent.agent.is_alive()


def test_an_old_driver_lacks_things_and_is_healthy(node: Any, run: Any) -> None:
    agent = run(driver="old")
    agent.wait_until_looking()
    agent.look_for(30.0)
    assert agent.evidence == []
    assert agent.status["agent"]["problem"] == ""
    node.faults("ecc=1@gpu1")
    agent.wait_for(kinds.ECC_UNCORRECTED)
    node.faults("lost=1@gpu1")
    agent.wait_for(kinds.GPU_LOST)


def test_an_xid_has_the_counters_read_at_once(node: Any, run: Any) -> None:
    """With both a fault is certain; a driver before r570 has nothing else to confirm it."""
    agent = run(driver="old", thresholds={"nvml.normal_period": 3600.0})
    agent.wait_until_looking()
    node.faults("ecc=1@gpu1")
    agent.look_for(6.0, ("fast",))
    assert agent.evidence == []
    node.log(
        "4,1,1000000,-;NVRM: Xid (PCI:0000:11:00): 48, pid=7, name=python, An uncorrectable double bit error (DBE)"
    )
    agent.wait_for(kinds.ECC_UNCORRECTED)


def test_a_driver_that_answers_only_errors_is_a_problem_and_no_evidence(node: Any, run: Any) -> None:
    agent = run(thresholds={"gpu.unreachable": 3600.0, "nvml.failed": 3600.0, "fabric.sustain": 3600.0})
    agent.wait_until_looking()
    node.faults("every_call_fails=999")
    agent.wait(lambda: "999" in agent.status["agent"]["problem"])
    assert agent.evidence == []
    node.faults()
    agent.wait(lambda: agent.status["agent"]["problem"] == "")


def test_the_configured_number_of_gpus_counts_from_the_start(node: Any, run: Any) -> None:
    node.faults("count=7")
    agent = run(expected_gpus=8)
    assert agent.wait_for(kinds.GPU_COUNT)["threshold"] == "8 GPUs"


def test_the_agent_says_what_it_looks_at(run: Any) -> None:
    agent = run()
    agent.wait_until_looking()
    status = agent.status["agent"]
    assert status["gpus"] == 8
    assert status["driver"] == "580.159.04"
    assert status["gpuModel"] == "NVIDIA H200"
    assert status["gpuSerials"] == [str(1650000000001 + index) for index in range(8)]
    assert (status["bootId"], status["systemUuid"]) == ("boot-1", "4c4c4544-0001")


def test_a_new_boot_forgets_what_a_boot_repairs(node: Any, run: Any) -> None:
    agent = run()
    agent.wait_until_looking()
    node.faults("xid=79@gpu1", "count=7")
    agent.wait(lambda: {item["kind"] for item in agent.evidence} == {kinds.XID, kinds.GPU_COUNT})
    node.faults()
    node.boot("boot-2")
    agent.wait(lambda: agent.status["agent"]["bootId"] == "boot-2" and agent.evidence == [])
    assert agent.status["agent"]["gpus"] == 8


def test_an_agent_goes_on_where_the_one_before_it_stopped(node: Any, run: Any) -> None:
    first = run()
    first.wait_until_looking()
    node.port("mlx5_0/1")
    first.wait(lambda: first.status["agent"]["ports"] == 1)
    node.faults("count=7", "xid=79@gpu1")
    node.port("mlx5_0/1", "1: DOWN", "3: Disabled")
    wanted = {kinds.GPU_COUNT, kinds.XID, kinds.IB_PORT_DOWN}
    first.wait(lambda: {item["kind"] for item in first.evidence} == wanted)
    first.stop()
    second = run(stored=first.status)
    second.wait(lambda: {item["kind"] for item in second.evidence} == wanted)
    second.wait_for_looks()
    assert {item["kind"] for item in second.evidence} == wanted
    before = {item["kind"]: (item["firstSeen"], item["count"]) for item in first.evidence}
    assert {item["kind"]: (item["firstSeen"], item["count"]) for item in second.evidence} == before
    node.faults()
    node.port("mlx5_0/1")
    second.wait(lambda: [item["kind"] for item in second.evidence] == [kinds.XID])


def test_the_rest_of_an_earlier_boot_is_not_taken_over(node: Any, run: Any) -> None:
    first = run()
    first.wait_until_looking()
    node.faults("xid=79@gpu1")
    first.wait_for(kinds.XID)
    first.stop()
    node.boot("boot-2")
    second = run(stored=first.status)
    second.wait_until_looking()
    assert second.evidence == []


AMD_LINES = (
    "amdgpu 0000:83:00.0: amdgpu: device lost from bus!",
    "amdgpu 0000:84:00.0: amdgpu: 2 uncorrectable hardware errors detected in umc block",
)


def test_a_gpu_of_amd_is_known_by_the_log(node: Any, run: Any) -> None:
    agent = run(driver=None)
    agent.wait(lambda: "no driver" in agent.status["agent"].get("problem", ""))
    for line in AMD_LINES:
        node.log(line)
    agent.wait_for_log(len(AMD_LINES))
    assert {(item["kind"], item["subject"]) for item in agent.evidence} == {
        (kinds.AMD_GPU, "0000:83:00"),
        (kinds.AMD_GPU, "0000:84:00"),
    }


def test_a_processor_s_own_gpu_beside_those_of_nvidia_says_nothing(node: Any, run: Any) -> None:
    agent = run()
    agent.wait_until_looking()
    for line in AMD_LINES:
        node.log(line)
    agent.wait_for_log(len(AMD_LINES))
    assert agent.evidence == []

"""Faults of the fake library and the evidence of each."""

from typing import Any

from muster.api.nodehealth import NodeHealthStatus
from muster.node.agent import kinds

GPU1 = "GPU-00000000-0000-4000-8000-000000000002"

CASES = {
    "GPU lost": (["lost=1@gpu1"], kinds.GPU_LOST, GPU1),
    "reset required": (["reset_required=1@gpu1"], kinds.RESET_REQUIRED, GPU1),
    "recovery action": (["recovery_action=2@gpu1"], kinds.RECOVERY_ACTION, GPU1),
    "seven of eight": (["count=7"], kinds.GPU_COUNT, ""),
    "uncorrected ECC": (["ecc=3@gpu1"], kinds.ECC_UNCORRECTED, GPU1),
    "corrected ECC": (["ecc_corrected=50000001@gpu1"], kinds.ECC_CORRECTED, GPU1),
    "SRAM errors": (["sram=1@gpu1"], kinds.SRAM_UNCORRECTED, GPU1),
    "SRAM threshold": (["sram_flag=1@gpu1"], kinds.SRAM_THRESHOLD, GPU1),
    "remap pending": (["remap_pending=1@gpu1"], kinds.ROW_REMAP_PENDING, GPU1),
    "remap failed": (["remap_failed=1@gpu1"], kinds.ROW_REMAP_FAILED, GPU1),
    "remaps": (["remaps=512@gpu1"], kinds.ROW_REMAPS, GPU1),
    "retired pages": (["retired=11@gpu1"], kinds.RETIRED_PAGES, GPU1),
    "retirement pending": (["retired_pending=1@gpu1"], kinds.RETIRED_PAGES_PENDING, GPU1),
    "channel repair": (["repair=1@gpu1"], kinds.REPAIR_PENDING, GPU1),
    "TPC repair": (["repair=2@gpu1"], kinds.REPAIR_PENDING, GPU1),
    "InfoROM": (["inforom=1@gpu1"], kinds.INFOROM, GPU1),
    "fabric not started": (["fabric=3", "fabric=1@gpu1"], kinds.FABRIC_STATE, GPU1),
    "fabric failed": (["fabric=3", "fabric_status=999@gpu1"], kinds.FABRIC_STATE, GPU1),
    "fabric degraded": (["fabric=3", "fabric_mask=1@gpu1"], kinds.FABRIC_STATE, GPU1),
    "fabric misconfigured": (["fabric=3", "fabric_mask=0x500@gpu1"], kinds.FABRIC_STATE, GPU1),
    "PCIe width": (["pcie_width=8@gpu1"], kinds.PCIE_WIDTH, GPU1),
    "PCIe fatal": (["pcie_fatal=1@gpu1"], kinds.PCIE_FATAL, GPU1),
    "hot": (["margin=-3@gpu1"], kinds.TEMPERATURE, GPU1),
    "thermal slowdown": (["throttle=0x40@gpu1"], kinds.THROTTLE, GPU1),
    "power brake": (["throttle=0x80@gpu1"], kinds.THROTTLE, GPU1),
    "energy counter stands": (["energy_stuck=1@gpu1"], kinds.ENERGY_COUNTER, GPU1),
}


def assert_that_a_fault_comes_and_goes(case: str, node: Any, run: Any) -> None:
    faults, kind, subject = CASES[case]
    agent = run()
    agent.wait_until_looking()
    assert agent.evidence == []
    node.faults(*faults)
    found = agent.wait_for(kind)
    assert found["subject"] == subject
    assert found["bootId"] == "boot-1"
    NodeHealthStatus.model_validate(agent.status)
    healthy = [line for line in faults if "@" not in line and not line.startswith("count")]
    healthy += ["retired=0", "retired_pending=0"]  # a GPU that has those once keeps them
    node.faults(*healthy)
    agent.wait_until_gone(kind)
    resets = [kinds.GPU_RESET] if kinds.proves_reset(kind, found["code"]) else []
    assert [item["kind"] for item in agent.evidence] == resets

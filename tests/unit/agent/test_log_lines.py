"""What kernel log lines say, and what says nothing although it looks like it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.agent import kinds
from muster.agent.log_lines import is_worth_a_look, parse, split

FACTS = {
    "XID 79": (
        "NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        (kinds.XID, 79, "0000:1b:00"),
    ),
    "a real H200's XID 31": (
        "NVRM: Xid (PCI:0000:00:06): 31, pid=472, name=python3, channel 0x0000000a, intr 00000000. MMU Fault: ENGINE "
        "GRAPHICS GPC5 GPCCLIENT_T1_2 faulted @ 0x0_00000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_WRITE",
        (kinds.XID, 31, "0000:00:06"),
    ),
    "its XID 43": (
        "NVRM: Xid (PCI:0000:00:06): 43, pid=523, name=python3, channel 0x0000000a",
        (kinds.XID, 43, "0000:00:06"),
    ),
    "its XID 13, one of 591": (
        "NVRM: Xid (PCI:0000:00:06): 13, Graphics SM Warp Exception on (GPC 0, TPC 0, SM 0): Misaligned Address",
        (kinds.XID, 13, "0000:00:06"),
    ),
    "another of them": (
        "NVRM: Xid (PCI:0000:00:06): 13, pid=502, name=ld-linux-x86-64, Graphics Exception: ESR 0x557730=0xd33000f "
        "0x557734=0x24 0x557728=0x1f81fb60 0x55772c=0x1174",
        (kinds.XID, 13, "0000:00:06"),
    ),
    "XID with function": (
        "NVRM: Xid (PCI:0000:CA:00.0): 154, GPU recovery action changed",
        (kinds.XID, 154, "0000:ca:00"),
    ),
    "XID without text": ("NVRM: Xid (PCI:0000:1b:00): 43", (kinds.XID, 43, "0000:1b:00")),
    "unknown XID": ("NVRM: Xid (PCI:0000:1b:00): 99999, what", (kinds.XID, 99999, "0000:1b:00")),
    "fell off": ("NVRM: GPU 0000:1b:00.0: GPU has fallen off the bus.", (kinds.GPU_LOST, 0, "0000:1b:00")),
    "SXid": (
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error",
        (kinds.SXID, 12028, "nvidia-nvswitch3"),
    ),
    "ext4": ("EXT4-fs (nvme0n1p1): Remounting filesystem read-only", (kinds.READ_ONLY_FILESYSTEM, 0, "nvme0n1p1")),
    "ext4 error": ("EXT4-fs error (device sda1): ext4_lookup:1855: inode #2", (kinds.DISK_ERROR, 0, "sda1")),
    "xfs": (
        "XFS (dm-0): Corruption of in-memory data detected.  Shutting down filesystem",
        (kinds.READ_ONLY_FILESYSTEM, 0, "dm-0"),
    ),
    "I/O error": (
        "I/O error, dev nvme1n1, sector 2048 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2",
        (kinds.DISK_ERROR, 0, "nvme1n1"),
    ),
    "old I/O error": ("blk_update_request: I/O error, dev sda, sector 4", (kinds.DISK_ERROR, 0, "sda")),
    "nvme time-out": ("nvme nvme0: I/O 12 QID 3 timeout, aborting", (kinds.DISK_ERROR, 0, "nvme0")),
    "nvme down": ("nvme nvme2: controller is down; will reset: CSTS=0xffffffff", (kinds.DISK_ERROR, 0, "nvme2")),
    "raid": ("md/raid1:md0: Disk failure on sdb1, disabling device.", (kinds.DISK_ERROR, 0, "sdb1")),
    "beyond the end": ("nvme0n1: attempt to access beyond end of device", (kinds.DISK_ERROR, 0, "")),
    "mlx5": (
        "mlx5_core 0000:5e:00.0: poll_health:825:(pid 0): Fatal error 1 detected",
        (kinds.NIC_ERROR, 0, "0000:5e:00.0"),
    ),
    "mlx5 power": (
        "mlx5_core 0000:5e:00.0: mlx5_pcie_event:301:(pid 2): Detected insufficient power on the PCIe slot (27W).",
        (kinds.NIC_ERROR, 0, "0000:5e:00.0"),
    ),
    "netdev": ("NETDEV WATCHDOG: eth0 (mlx5_core): transmit queue 3 timed out", (kinds.NIC_ERROR, 0, "eth0")),
    "soft lockup": ("watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python:77]", (kinds.KERNEL_HANG, 0, "")),
    "hung task": ("INFO: task python:77 blocked for more than 120 seconds.", (kinds.KERNEL_HANG, 0, "")),
    "rcu": ("rcu: INFO: rcu_sched detected stalls on CPUs/tasks:", (kinds.KERNEL_HANG, 0, "")),
}

NOTHING = {
    "what a driver says before an XID": "NVRM: GPU at PCI:0000:00:06: GPU-5d2a3f0e-1111-2222-3333-444455556666",
    "the GPU's number": "NVRM: GPU Board Serial Number: 1650000000000",
    "XID 0": "NVRM: Xid (PCI:0000:1b:00): 0, nothing",
    "no address": "NVRM: Xid (PCI:hello): 79, x",
    "an address of nowhere": "NVRM: Xid (PCI:0000:1ff:00): 79, x",
    "no number": "NVRM: Xid (PCI:0000:1b:00): x79",
    "driver's start": "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.159.04",
    "somebody prints": "python[77]: NVRM: Xid (PCI:0000:1b:00): 79, not the kernel",
    "loop device": "I/O error, dev loop3, sector 0",
    "optical drive": "blk_update_request: I/O error, dev sr0, sector 0",
    "mlx5 is well": "mlx5_core 0000:5e:00.0 eth0: Link up",
    "out of memory": "Memory cgroup out of memory: Killed process 77 (python)",
    "empty": "",
}


@pytest.mark.parametrize("name", FACTS)
def test_a_line_says(name: str) -> None:
    line, wanted = FACTS[name]
    for way in (
        line,
        f"[  123.456789] {line}",
        f"Nov 20 09:00:00 node-1 kernel: [  123.4] {line}",
        f"4,77,5000000,-;{line}",
    ):
        assert is_worth_a_look(way)
        parts = split(way)
        assert parts is not None
        fact = parse(parts[0])
        assert fact is not None
        assert (fact.kind, fact.code, fact.device) == wanted
        assert fact.message == line


@pytest.mark.parametrize("name", NOTHING)
def test_a_line_says_nothing(name: str) -> None:
    parts = split(NOTHING[name])
    assert parts is None or parse(parts[0]) is None


def test_a_record_says_when() -> None:
    assert split("4,77,5000000,-;NVRM: x") == ("NVRM: x", 5.0)


@pytest.mark.parametrize("priority", [8, 12, 14, 191])
def test_what_user_space_puts_into_the_kernel_log_is_not_the_kernel_s(priority: int) -> None:
    assert split(f"{priority},77,5000000,-;NVRM: Xid (PCI:0000:1b:00): 79, forged") is None


@given(st.text(max_size=3000))
def test_garbage_is_harmless(text: str) -> None:
    for line in (
        text,
        f"NVRM: {text}",
        f"NVRM: Xid (PCI:{text}): 79",
        f"4,1,1,-;{text}",
        f"mlx5_core {text}",
        f"XFS ({text}",
    ):
        parts = split(line)
        fact = parse(parts[0]) if parts is not None else None
        assert fact is None or len(fact.message) <= 1024

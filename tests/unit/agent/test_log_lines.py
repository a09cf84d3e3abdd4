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
    # NVIDIA, "GPU memory error management" for A100: of a MIG instance.
    "XID of a MIG instance": (
        "NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No",
        (kinds.XID, 94, "0000:01:00"),
    ),
    "XID of a compute instance": (
        "NVRM: Xid (PCI:0000:3b:00 GPU-I:01 GPU-CI:02): 13, pid=9, name=a, Graphics Exception: ESR 0x50c7b0=0x2",
        (kinds.XID, 13, "0000:3b:00"),
    ),
    # NVIDIA's XID catalogue, an example without "PCI:".
    "XID of an old driver": ("NVRM: Xid (0000:03:00): 14, Channel 00000001", (kinds.XID, 14, "0000:03:00")),
    "XID in a domain of its own": ("NVRM: Xid (PCI:0018:01:00): 79, pid=9", (kinds.XID, 79, "0018:01:00")),
    "XID of a driver that tells no domain": ("NVRM: Xid (01:00): 6, PE0001", (kinds.XID, 6, "0000:01:00")),
    # open-gpu-kernel-modules, a report of a T4 whose GSP does not answer.
    "a GPU that cannot be started": (
        "NVRM: GPU 0000:00:06.0: RmInitAdapter failed! (0x22:0x56:731)",
        (kinds.GPU_INIT, 0, "0000:00:06"),
    ),
    # Linux, drivers/pci/pcie/aer.c: before 6.8, with a prefix as some kernels have it, and since.
    "AER of a GPU, fatal": (
        "nvidia 0000:03:00.0: AER: PCIe Bus Error: severity=Uncorrected (Fatal), type=Inaccessible, "
        "(Unregistered Agent ID)",
        (kinds.AER_FATAL, 0, "0000:03:00"),
    ),
    "AER of a network card": (
        "mlx5_core 0000:5e:00.0: PCIe Bus Error: severity=Uncorrectable (Non-Fatal), type=Transaction Layer, "
        "(Requester ID)",
        (kinds.AER_UNCORRECTED, 0, "0000:5e:00.0"),
    ),
    "AER, corrected": (
        "nvidia 0000:1B:00.0: PCIe Bus Error: severity=Correctable, type=Data Link Layer, (Receiver ID)",
        (kinds.AER_CORRECTED, 0, "0000:1b:00"),
    ),
    # gpu-burn #1, a port above a GPU, followed by XID 79.
    "AER of a bridge": (
        "pcieport 0000:00:02.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, "
        "id=0010(Receiver ID)",
        (kinds.AER_ELSEWHERE, 0, "0000:00:02.0"),
    ),
    "DPC": (
        "pcieport 0000:00:1b.0: DPC: containment event, status:0x1f01 source:0x0000",
        (kinds.AER_ELSEWHERE, 0, "0000:00:1b.0"),
    ),
    # linux-kernel and linux-edac: as reported there.
    "machine check": (
        "mce: [Hardware Error]: CPU 18: Machine Check Exception: 5 Bank 7: be00000001010091",
        (kinds.HOST_UNCORRECTED, 0, "bank 7"),
    ),
    "machine check, corrected": (
        "mce: [Hardware Error]: CPU 0: Machine Check: 0 Bank 7: 8c00004000010091",
        (kinds.HOST_CORRECTED, 0, ""),
    ),
    "machine checks": ("mce: [Hardware Error]: Machine check events logged", (kinds.HOST_CORRECTED, 0, "")),
    "memory read by a program": (
        "mce: Uncorrected hardware memory error in user-access at 7740c0340",
        (kinds.HOST_UNCORRECTED, 0, ""),
    ),
    "EDAC UE": (
        "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1 slot:0 page:0x7740c0)",
        (kinds.HOST_UNCORRECTED, 0, "MC0"),
    ),
    "EDAC CE": (
        "EDAC MC0: 2 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1 slot:0)",
        (kinds.HOST_CORRECTED, 0, "MC0"),
    ),
    "EDAC on Arm": (
        "EDAC MC0: 1 UE Multi-bit ECC on unknown memory (node:0 card:1 module:71 bank:7 row:0 col:0)",
        (kinds.HOST_UNCORRECTED, 0, "MC0"),
    ),
    # Linux, drivers/firmware/efi/cper.c.
    "firmware, corrected": ("{1}[Hardware Error]: event severity: corrected", (kinds.HOST_CORRECTED, 0, "")),
    "firmware, recoverable": ("{3}[Hardware Error]: event severity: recoverable", (kinds.HOST_CORRECTED, 0, "")),
    "firmware, fatal": ("{12}[Hardware Error]: event severity: fatal", (kinds.HOST_UNCORRECTED, 0, "")),
    # Linux, kernel/time/clocksource.c and arch/x86/kernel/tsc.c.
    "clock": (
        "clocksource: timekeeping watchdog on CPU3: Marking clocksource 'tsc' as unstable because the skew is too large:",
        (kinds.CLOCK_SOURCE, 0, ""),
    ),
    "TSC": ("tsc: Marking TSC unstable due to check_tsc_sync_source failed", (kinds.CLOCK_SOURCE, 0, "")),
    # open-gpu-kernel-modules, src/nvidia/arch/nvalloc/unix/src/osapi.c, and NVSentinel #155: no XID comes with it.
    "fell off before the driver came": (
        "NVRM: The NVIDIA GPU 0000:b3:00.0\\x0aNVRM: (PCI ID: 10de:26b5) installed in this system has\\x0aNVRM: fallen off the "
        "bus and is not responding to commands.",
        (kinds.GPU_LOST, 0, "0000:b3:00"),
    ),
    "the same as syslog writes it": (
        "NVRM: The NVIDIA GPU 0000:b3:00.0#012NVRM: (PCI ID: 10de:26b5) installed in this system has#012NVRM: fallen off the bus "
        "and is not responding to commands.",
        (kinds.GPU_LOST, 0, "0000:b3:00"),
    ),
    # Bumblebee #554, an old driver.
    "fell off at": ("NVRM: GPU at 0000:01:00.0 has fallen off the bus.", (kinds.GPU_LOST, 0, "0000:01:00")),
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
    # block/blk-core.c: BLK_STS_MEDIUM, what a disk answers that cannot read a sector any more
    "a sector that cannot be read": (
        "critical medium error, dev nvme0n1, sector 2048 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2",
        (kinds.DISK_ERROR, 0, "nvme0n1"),
    ),
    "old I/O error": ("blk_update_request: I/O error, dev sda, sector 4", (kinds.DISK_ERROR, 0, "sda")),
    "nvme time-out": ("nvme nvme0: I/O 12 QID 3 timeout, aborting", (kinds.DISK_ERROR, 0, "nvme0")),
    "nvme down": ("nvme nvme2: controller is down; will reset: CSTS=0xffffffff", (kinds.DISK_ERROR, 0, "nvme2")),
    "ceph": ("I/O error, dev rbd0, sector 8 op 0x1:(WRITE)", (kinds.NETWORK_DISK_ERROR, 0, "rbd0")),
    "nbd": ("blk_update_request: I/O error, dev nbd3, sector 0", (kinds.NETWORK_DISK_ERROR, 0, "nbd3")),
    "a file system on drbd": (
        "EXT4-fs (drbd1): Remounting filesystem read-only",
        (kinds.NETWORK_DISK_ERROR, 0, "drbd1"),
    ),
    "raid": ("md/raid1:md0: Disk failure on sdb1, disabling device.", (kinds.DISK_ERROR, 0, "sdb1")),
    "beyond the end of a shared disk": (
        "python: attempt to access beyond end of device\\x0arbd0: rw=0, sector=8, nr_sectors = 8 limit=8",
        (kinds.NETWORK_DISK_ERROR, 0, "rbd0"),
    ),
    "beyond the end of a named disk": (
        "python: attempt to access beyond end of device\\x0asda: rw=0, sector=8, nr_sectors = 8 limit=8",
        (kinds.DISK_ERROR, 0, "sda"),
    ),
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
    "hung task": ("INFO: task python:77 blocked for more than 120 seconds.", (kinds.TASK_HANG, 0, "")),
    "rcu": ("rcu: INFO: rcu_sched detected stalls on CPUs/tasks:", (kinds.KERNEL_HANG, 0, "")),
}

NOTHING = {
    "what a driver says before an XID": "NVRM: GPU at PCI:0000:00:06: GPU-5d2a3f0e-1111-2222-3333-444455556666",
    "the GPU's number": "NVRM: GPU Board Serial Number: 1650000000000",
    "XID 0": "NVRM: Xid (PCI:0000:1b:00): 0, nothing",
    "a GPU without an address": "NVRM: GPU has fallen off the bus.",
    "no address": "NVRM: Xid (PCI:hello): 79, x",
    "an address of nowhere": "NVRM: Xid (PCI:0000:1ff:00): 79, x",
    "no number": "NVRM: Xid (PCI:0000:1b:00): x79",
    "driver's start": "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.159.04",
    "somebody prints": "python[77]: NVRM: Xid (PCI:0000:1b:00): 79, not the kernel",
    "a disk corrects itself": (
        "nvme 0000:34:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)"
    ),
    "a bridge's own summary": "pcieport 0000:00:03.1: AER: Correctable error message received from 0000:00:00.0",
    "a machine check goes on": "mce: [Hardware Error]: TSC ae4b410af0b8 ADDR 10b5ce000 MISC 86",
    "firmware goes on": "{1}[Hardware Error]:  Error 0, type: corrected",
    "EDAC starts": "EDAC MC0: Giving out device to module i10nm_edac controller Intel_10nm Socket#0 IMC#0",
    "another clock": "clocksource: Switched to clocksource tsc",
    "a GPU that is started": "NVRM: GPU 0000:1b:00.0: RmInitAdapter succeeded",
    "loop device": "I/O error, dev loop3, sector 0",
    "beyond the end of a loop device": "mount: attempt to access beyond end of device\\x0aloop1: rw=0, sector=8, limit=8",
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
        f"nvidia 0000:1b:00.0: PCIe Bus Error: {text}",
        f"mce: [Hardware Error]: CPU {text}",
        f"NVRM: Xid (PCI:0000:1b:00): 149, {text}",
    ):
        parts = split(line)
        fact = parse(parts[0]) if parts is not None else None
        assert fact is None or len(fact.message) <= 1024


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("145, RLW_REMAP Nonfatal XC0 i0 Link 02 (0x00000004 0x00000001 0x00000000 0x00000000)", "Nonfatal"),
        (
            "149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 09 (0x025525c6 0x00000000 0x00000000 0x00000000)",
            "Fatal, reason 37",
        ),
        ("145, pid=4, name=<unknown>, RLW_SRC_TRACK Fatal XC0 i1 Link 00 (0x00000001 0x00000002)", "Fatal"),
        ("149, x", ""),
        (
            "74, NVLink: fatal error detected on link 14(0x0, 0x0, 0x10, 0x0, 0x0, 0x0, 0x0)",
            "(0x0, 0x0, 0x10, 0x0, 0x0, 0x0, 0x0)",
        ),
        ("79, GPU has fallen off the bus. Fatal XC0", ""),
    ],
)
def test_an_xid_of_nvlink_says_what_tells_it_apart(line: str, value: str) -> None:
    fact = parse(f"NVRM: Xid (PCI:0018:01:00): {line}")
    assert fact is not None
    assert fact.value == value


# Written by Linux 6.18 for programs of a user without any rights that had named themselves so: prctl(PR_SET_NAME), then a bad access.
_SEGFAULT = "[10499]: segfault at 0 ip 000055a0b2dc716a sp 00007ffc1d7a2f70 error 6 in a.out[116a,55a0b2dc7000+1000]"
_OOM = " invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=1000"


@pytest.mark.parametrize(
    "name",
    [
        "EDAC MC0: 1 UE ",
        "I/O error dev s",
        "Oops",
        "kernel BUG at x",
        "mlx5_core 0: ",
        "BUG: soft lockup",
        "NVRM: Xid (1:2)",
    ],
)
@pytest.mark.parametrize(
    "end",
    [_SEGFAULT, _OOM, ": page allocation failure: order:0", " (7): drop_caches: 3", r"\xe9[7]: segfault at 0 ip 0"],
)
def test_a_process_that_gives_itself_a_name_is_no_evidence(name, end):
    message = name[:15] + end if not end.startswith("\\") else name[:14] + end
    assert parse(split(f"6,346,1091005010,-;{message}")[0]) is None


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (
            "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0 (channel:0 slot:0)",
            "HostErrorUncorrected",
        ),
        ("I/O error, dev sda, sector 2048 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2", "DiskError"),
        ("Buffer I/O error on dev nvme0n1p2, logical block 7, lost async page write", "DiskError"),
        ("Oops: 0002 [#1] PREEMPT SMP NOPTI", "KernelHang"),
        ("Oops: general protection fault, probably for non-canonical address 0xdead: 0000 [#1] SMP", "KernelHang"),
        ("Internal error: Oops: 0000000096000004 [#1] SMP", "KernelHang"),
        ("kernel BUG at mm/slub.c:379!", "KernelHang"),
    ],
)
def test_what_the_kernel_says_itself_still_counts(line, kind):
    assert parse(line).kind == kind

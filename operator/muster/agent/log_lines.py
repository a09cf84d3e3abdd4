"""What lines of the kernel log say: pure functions over text.

A line counts only if the kernel wrote it. Records of /dev/kmsg say who wrote them (what user space puts there never has
facility 0), and in plain text a pattern must stand at the very beginning of the message. A process that prints
"NVRM: Xid" to some log is no evidence.

Some lines of the kernel's own begin with the name of a process, which is that process's to choose (prctl(PR_SET_NAME), 15 bytes): one that
calls itself `EDAC MC0: 1 UE ` and crashes would have the kernel say so. What begins with a name is no evidence, and patterns go on beyond
what fits into one.
"""

import re
from dataclasses import dataclass

from muster.agent import kinds
from muster.agent.facts import pci_address

_MAX_LINE = 1024
_KMSG = re.compile(r"(\d{1,6}),\d+,(\d{1,18}),[^;]{0,64};")
_PLAIN = re.compile(r"(?:[^\[\]]{0,128}?\bkernel: )?(?:\[ *\d+\.\d+\] ?)?")
_LINUX_PRIORITY_BITS = 3

# arch/x86/mm/fault.c and its like, mm/oom_kill.c, mm/page_alloc.c, fs/drop_caches.c, kernel/signal.c, kernel/exit.c. /dev/kmsg writes a
# byte that cannot be printed as \xNN.
_NAMED = re.compile(
    r"(?:\\x[0-9a-f]{2}|[^\\]){1,15}"
    r"(?:\[\d{1,10}\]: | invoked oom-killer: |: page allocation failure|: Corrupted page table| \(\d{1,10}\)[: ]|/\d{1,10}: potentially )"
)

_WORTH_A_LOOK = ("NVRM: ", "SXid", "I/O ", "medium error", "ead-only", "hutting down", "nvme", "Disk failure", "EXT4-fs error",
                 "beyond end of device", "lockup", "blocked for more than", "Oops", "kernel BUG", "detected stall",
                 "unregister_netdevice", "mlx5_core", "NETDEV WATCHDOG", "PCIe Bus Error", "DPC: containment",
                 "[Hardware Error]", "EDAC MC", "mce: Uncorrected", "Marking ")  # fmt: skip

# Of a MIG instance the line names instance and compute instance, too: `(PCI:0000:01:00 GPU-I:05 GPU-CI:00)`.
_TAKEN_BACK = re.compile(r"changed from 0x[0-9a-f]{1,8} \(([^)]{1,64})\) to 0x0 \(None\)", re.IGNORECASE)
_XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]{1,32})(?: GPU-I:\w{1,8})?(?: GPU-CI:\w{1,8})?\): (\d{1,6})\b(.*)"
)
_NVLINK_SEVERITY = re.compile(
    r"[\w/]{1,64} +(Fatal|Nonfatal) +XC.{1,32}? Link +-?\d+ +[(\[]0x([0-9a-f]{1,8})", re.IGNORECASE
)
_NVLINK_REGISTERS = re.compile(r"link \d{1,3} ?(\(0x[0-9a-f]{1,8}(?:, ?0x[0-9a-f]{1,8}){6}\))", re.IGNORECASE)
_INIT_FAILED = re.compile(r"NVRM: GPU (?:at )?(?:PCI:)?([0-9a-fA-F:.]{1,32}?):? RmInitAdapter failed")
# When the driver is loaded it says so in three lines of one record, whose ends /dev/kmsg writes as \\x0a and syslog as #012.
_FELL_OFF = re.compile(
    r"NVRM: (?:The NVIDIA )?GPU (?:at )?(?:PCI:)?([0-9a-fA-F:.]{7,32}?):?(?:\s|\\x0a|#012).{0,400}fallen off the bus",
    re.DOTALL,
)
_SXID = re.compile(r"(nvidia-nvswitch\d+): SXid \(PCI:[0-9a-fA-F:.]{1,32}\): (\d{1,6})\b(?:, (Fatal|Non-fatal))?")
_MLX5 = re.compile(r"mlx5_core ([0-9a-fA-F:.]{1,32}):? ?")
_MLX5_BAD = re.compile(
    r"health poll failed|unrecoverable|[Ff]atal|cmd.{0,40}timeout|[Ii]nsufficient power|[Hh]igh [Tt]emperature"
    r"|ACCESS_REG.{0,40}failed|health compromised"
)
# Since Linux 6.8 "Uncorrectable" and "Correctable"; some kernels put "AER: " before it (drivers/pci/pcie/aer.c).
_AER = re.compile(
    r"([\w-]{1,32}) ([0-9a-fA-F:.]{7,32}): (?:AER: )?PCIe Bus Error: severity=(Corr|Uncorr)ect(?:ed|able)"
    r"(?: \((Fatal|Non-Fatal)\))?"
)
_DPC = re.compile(r"pcieport ([0-9a-fA-F:.]{7,32}): DPC: containment event")
_GPU_DRIVERS = frozenset({"nvidia"})
_NETWORK_DRIVERS = frozenset({"mlx5_core", "efa", "bnxt_en", "ice", "irdma", "ionic", "gve", "mana", "hfi1"})
DRIVERS_OF_JOBS = _GPU_DRIVERS | _NETWORK_DRIVERS
"""Of the PCIe devices that jobs use."""
# arch/x86/kernel/cpu/mce: bit 61 of the status (UC) says that the error could not be corrected.
_MACHINE_CHECK = re.compile(
    r"mce: \[Hardware Error\]: CPU \d+: Machine Check(?: Exception)?: [0-9a-f]+ Bank (\d+): ([0-9a-f]{16})"
)
_UNCORRECTED_BIT = 1 << 61
_EDAC = re.compile(r"EDAC (MC\d+): \d+ (UE|CE) .{1,200}? on \S")
_HOST = (
    (kinds.HOST_CORRECTED, re.compile(r"mce: \[Hardware Error\]: Machine check events logged")),
    (kinds.HOST_UNCORRECTED, re.compile(r"mce: Uncorrected hardware memory error")),
    (kinds.HOST_UNCORRECTED, re.compile(r"\{\d+\}\[Hardware Error\]: event severity: fatal")),
    (kinds.HOST_CORRECTED, re.compile(r"\{\d+\}\[Hardware Error\]: event severity: (?:corrected|recoverable)")),
)
_CLOCK = re.compile(r"clocksource: .{0,120}Marking clocksource '?tsc\S*'? as unstable|tsc: Marking TSC unstable")

TAKEN_AWAY = ("Fatal", "contained")
"""Values of errors of a bridge after which what is below cannot be used."""

_NETDEV = re.compile(r"NETDEV WATCHDOG: (\S{1,32})")

# What is no disk of the node, or may fail without harm: loop, floppy, optical, RAM.
_NO_DISK = re.compile(r"(?:loop|fd|sr|ram|zram)\d")
# Block devices that are a network's end on this node, whatever stands behind them: Ceph, NBD, DRBD.
_NETWORK_DISK = re.compile(r"(?:rbd|nbd|drbd)\d")

_DISK = (
    (
        kinds.READ_ONLY_FILESYSTEM,
        re.compile(r"(?:EXT4-fs|BTRFS|F2FS-fs|XFS)[^(]{0,40}\((?:device )?([\w.-]{1,64})\).{0,80}ead-only"),
    ),
    (kinds.READ_ONLY_FILESYSTEM, re.compile(r"XFS \(([\w.-]{1,64})\): .{0,120}[Ss]hutting down")),
    (kinds.DISK_ERROR, re.compile(r"EXT4-fs error \(device ([\w.-]{1,64})\)")),
    (
        kinds.DISK_ERROR,
        re.compile(
            r"(?:blk_update_request: |Buffer )?(?:I/O|critical medium) error,? (?:on )?dev(?:ice)? ([\w.-]{1,64}), "
        ),
    ),
    (kinds.DISK_ERROR, re.compile(r"md/\S{1,32} ?Disk failure on ([\w.-]{1,64})")),
    (
        kinds.DISK_ERROR,
        re.compile(
            r"nvme (nvme\d+): (?:I/O .{0,64}timeout|controller is down|Device not ready|"
            r"Disabling device|Removing after|Abort status.{0,16}0x[1-9])"
        ),
    ),
    # The second line of the record names the device (block/blk-core.c); /dev/kmsg writes the end of the first as \x0a.
    (
        kinds.DISK_ERROR,
        re.compile(r"(?:[\w./-]{1,64}: )?attempt to access beyond end of device(?:(?:\\x0a|\n)([\w.-]{1,64}): )?"),
    ),
)
# It waits for storage, as a rule, and that can be a server of a tenant's own.
_BLOCKED = re.compile(r"INFO: task .{0,80}blocked for more than \d+ seconds")
_KERNEL = (
    re.compile(r"(?:watchdog: )?BUG: soft lockup"),
    re.compile(r"(?:NMI )?watchdog: .{0,40}hard LOCKUP"),
    re.compile(r"(?:Internal error: |general protection fault.{0,40})?Oops: .{1,160}\[#\d"),
    re.compile(r"kernel BUG at \S{1,200}:\d"),
    re.compile(r"(?:rcu: )?INFO: rcu\w* .{0,40}detected stall"),
    re.compile(r"unregister_netdevice: waiting for "),
)


@dataclass(frozen=True)
class LogFact:
    """What one line says."""

    kind: str
    code: int = 0
    device: str = ""
    """PCI address of a GPU or network card, name of a switch or disk."""
    value: str = ""
    message: str = ""


def is_worth_a_look(line: str) -> bool:
    """Cheap: whether a line may be one of those that `parse` knows."""
    return any(part in line for part in _WORTH_A_LOOK)


def split(line: str) -> tuple[str, float | None] | None:
    """The message of a line, and when it was written in seconds since boot if it says so; None: not the kernel's."""
    record = _KMSG.match(line)
    if record is not None:
        if int(record[1]) >> _LINUX_PRIORITY_BITS != 0:
            return None
        return line[record.end() : record.end() + _MAX_LINE], int(record[2]) / 1e6
    plain = _PLAIN.match(line)
    return line[plain.end() if plain else 0 :][:_MAX_LINE], None


def parse(message: str) -> LogFact | None:
    """What a message of the kernel says; None: nothing that matters."""
    if _NAMED.match(message):
        return None
    if message.startswith("NVRM: "):
        return _nvidia(message)
    switch = _SXID.match(message)
    if switch is not None:
        return LogFact(kinds.SXID, int(switch[2]), switch[1], switch[3] or "", message)
    if message.startswith("mlx5_core ") and "PCIe Bus Error" not in message:
        card = _MLX5.match(message)
        bad = card is not None and _MLX5_BAD.search(message) is not None
        return LogFact(kinds.NIC_ERROR, device=card[1].rstrip(":"), message=message) if bad and card else None
    hardware = _hardware(message)
    if hardware is not None:
        return hardware
    watchdog = _NETDEV.match(message)
    if watchdog is not None:
        return LogFact(kinds.NIC_ERROR, device=watchdog[1], message=message)
    for kind, pattern in _DISK:
        found = pattern.match(message)
        if found is not None:
            device = found[1] or ""
            if _NO_DISK.match(device):
                return None
            shared = _NETWORK_DISK.match(device) is not None
            return LogFact(kinds.NETWORK_DISK_ERROR if shared else kind, device=device, message=message)
    if _BLOCKED.match(message):
        return LogFact(kinds.TASK_HANG, message=message)
    if any(pattern.match(message) for pattern in _KERNEL):
        return LogFact(kinds.KERNEL_HANG, message=message)
    return None


def recovery_taken_back(fact: LogFact) -> bool | None:
    """Whether the driver asked for a reset or a boot, now that it asks for nothing any more; None: the line is no such word."""
    if fact.kind != kinds.XID or fact.code != kinds.RECOVERY_XID:
        return None
    found = _TAKEN_BACK.search(fact.message)
    if found is None:
        return None
    return any(word in found[1].lower() for word in ("reset", "reboot"))


def _of_nvlink(code: int, text: str) -> str:
    """What tells errors of one number apart that weigh differently."""
    if code == kinds.NVLINK_XID:
        registers = _NVLINK_REGISTERS.search(text)
        return registers[1] if registers is not None else ""
    said = _NVLINK_SEVERITY.search(text) if code in kinds.NVLINK5_XIDS else None
    if said is None:
        return ""
    of_a_link = code == kinds.NVLINK5_LINK_XID and "MFDE" not in said[0]
    reason = f", reason {int(said[2], 16) >> 20 & 0x3F}" if of_a_link else ""
    return f"{said[1].capitalize()}{reason}"


def _hardware(message: str) -> LogFact | None:
    """What PCIe's error reporting, machine checks, EDAC and the watchdog of the clock say."""
    error = _AER.match(message)
    if error is not None:
        return _of_pcie(error, message)
    contained = _DPC.match(message)
    if contained is not None:
        return LogFact(kinds.AER_ELSEWHERE, device=contained[1], value=TAKEN_AWAY[1], message=message)
    check = _MACHINE_CHECK.match(message)
    if check is not None:
        bad = int(check[2], 16) & _UNCORRECTED_BIT
        return (
            LogFact(kinds.HOST_UNCORRECTED, device=f"bank {check[1]}", message=message)
            if bad
            else LogFact(kinds.HOST_CORRECTED, message=message)
        )
    memory = _EDAC.match(message)
    if memory is not None:
        kind = kinds.HOST_UNCORRECTED if memory[2] == "UE" else kinds.HOST_CORRECTED
        return LogFact(kind, device=memory[1], message=message)
    if _CLOCK.match(message):
        return LogFact(kinds.CLOCK_SOURCE, message=message)
    return next((LogFact(kind, message=message) for kind, pattern in _HOST if pattern.match(message)), None)


def _of_pcie(error: re.Match[str], message: str) -> LogFact | None:
    driver, address, corrected, fatal = error[1], error[2], error[3] == "Corr", error[4] == "Fatal"
    if driver not in DRIVERS_OF_JOBS:
        # Disks and bridges correct themselves all the time.
        value = error[4] or ""
        return None if corrected else LogFact(kinds.AER_ELSEWHERE, device=address, value=value, message=message)
    kind = kinds.AER_CORRECTED if corrected else kinds.AER_FATAL if fatal else kinds.AER_UNCORRECTED
    device = (pci_address(address) or address) if driver in _GPU_DRIVERS else address
    return LogFact(kind, device=device, message=message)


def _nvidia(message: str) -> LogFact | None:
    found = _XID.match(message)
    if found is not None:
        device, code = pci_address(found[1]), int(found[2])
        # The driver numbers XIDs from 1; 0 was seen from clock events and says nothing.
        value = _of_nvlink(code, found[3])
        return LogFact(kinds.XID, code, device, value, message) if device is not None and code > 0 else None
    init = _INIT_FAILED.match(message)
    if init is not None:
        device = pci_address(init[1])
        return LogFact(kinds.GPU_INIT, device=device, message=message) if device is not None else None
    fell = _FELL_OFF.match(message)
    if fell is not None:
        device = pci_address(fell[1])
        return LogFact(kinds.GPU_LOST, device=device, message=message) if device is not None else None
    return None

"""What lines of the kernel log say: pure functions over text.

A line counts only if the kernel wrote it. Records of /dev/kmsg say who wrote them (what user space puts there never has
facility 0), and in plain text a pattern must stand at the very beginning of the message. A process that prints
"NVRM: Xid" to some log is no evidence.
"""

import re
from dataclasses import dataclass

from muster.agent import kinds
from muster.agent.facts import pci_address

_MAX_LINE = 1024
_KMSG = re.compile(r"(\d{1,6}),\d+,(\d{1,18}),[^;]{0,64};")
_PLAIN = re.compile(r"(?:[^\[\]]{0,128}?\bkernel: )?(?:\[ *\d+\.\d+\] ?)?")
_LINUX_PRIORITY_BITS = 3

_WORTH_A_LOOK = ("NVRM: ", "SXid", "I/O ", "ead-only", "hutting down", "nvme", "Disk failure", "EXT4-fs error",
                 "beyond end of device", "lockup", "blocked for more than", "Oops", "kernel BUG", "detected stall",
                 "unregister_netdevice", "mlx5_core", "NETDEV WATCHDOG")  # fmt: skip

_XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]{1,32})\): (\d{1,6})\b(.*)")
_FELL_OFF = re.compile(r"NVRM: (?:GPU (?:at )?(?:PCI:)?([0-9a-fA-F:.]{1,32}?):? )?.*fallen off the bus")
_SXID = re.compile(r"(nvidia-nvswitch\d+): SXid \(PCI:[0-9a-fA-F:.]{1,32}\): (\d{1,6})\b(?:, (Fatal|Non-fatal))?")
_MLX5 = re.compile(r"mlx5_core ([0-9a-fA-F:.]{1,32}):? ?")
_MLX5_BAD = re.compile(
    r"health poll failed|unrecoverable|[Ff]atal|cmd.{0,40}timeout|[Ii]nsufficient power|[Hh]igh [Tt]emperature"
    r"|ACCESS_REG.{0,40}failed|health compromised"
)
_NETDEV = re.compile(r"NETDEV WATCHDOG: (\S{1,32})")

# What is no disk of the node, or may fail without harm: loop, floppy, optical, RAM.
_NO_DISK = re.compile(r"(?:loop|fd|sr|ram|zram|nbd)\d")

_DISK = (
    (
        kinds.READ_ONLY_FILESYSTEM,
        re.compile(r"(?:EXT4-fs|BTRFS|F2FS-fs|XFS)[^(]{0,40}\((?:device )?([\w.-]{1,64})\).{0,80}ead-only"),
    ),
    (kinds.READ_ONLY_FILESYSTEM, re.compile(r"XFS \(([\w.-]{1,64})\): .{0,120}[Ss]hutting down")),
    (kinds.DISK_ERROR, re.compile(r"EXT4-fs error \(device ([\w.-]{1,64})\)")),
    (kinds.DISK_ERROR, re.compile(r"(?:blk_update_request: |Buffer )?I/O error,? (?:on )?dev(?:ice)? ([\w.-]{1,64})")),
    (kinds.DISK_ERROR, re.compile(r"md/\S{1,32} ?Disk failure on ([\w.-]{1,64})")),
    (
        kinds.DISK_ERROR,
        re.compile(
            r"nvme (nvme\d+): (?:I/O .{0,64}timeout|controller is down|Device not ready|"
            r"Disabling device|Removing after|Abort status.{0,16}0x[1-9])"
        ),
    ),
    (kinds.DISK_ERROR, re.compile(r"(?:[\w./-]{1,64}: )?attempt to access beyond end of device()")),
)
_KERNEL = (
    re.compile(r"(?:watchdog: )?BUG: soft lockup"),
    re.compile(r"(?:NMI )?watchdog: .{0,40}hard LOCKUP"),
    re.compile(r"INFO: task .{0,80}blocked for more than \d+ seconds"),
    re.compile(r"(?:Internal error: |general protection fault.{0,40})?Oops"),
    re.compile(r"kernel BUG at "),
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
    if message.startswith("NVRM: "):
        return _nvidia(message)
    switch = _SXID.match(message)
    if switch is not None:
        return LogFact(kinds.SXID, int(switch[2]), switch[1], switch[3] or "", message)
    if message.startswith("mlx5_core "):
        card = _MLX5.match(message)
        bad = card is not None and _MLX5_BAD.search(message) is not None
        return LogFact(kinds.NIC_ERROR, device=card[1].rstrip(":"), message=message) if bad and card else None
    watchdog = _NETDEV.match(message)
    if watchdog is not None:
        return LogFact(kinds.NIC_ERROR, device=watchdog[1], message=message)
    for kind, pattern in _DISK:
        found = pattern.match(message)
        if found is not None:
            return None if _NO_DISK.match(found[1]) else LogFact(kind, device=found[1], message=message)
    if any(pattern.match(message) for pattern in _KERNEL):
        return LogFact(kinds.KERNEL_HANG, message=message)
    return None


def _nvidia(message: str) -> LogFact | None:
    found = _XID.match(message)
    if found is not None:
        device, code = pci_address(found[1]), int(found[2])
        # The driver numbers XIDs from 1; 0 was seen from clock events and says nothing.
        return LogFact(kinds.XID, code, device, message=message) if device is not None and code > 0 else None
    fell = _FELL_OFF.match(message)
    if fell is not None and fell[1]:
        device = pci_address(fell[1])
        return LogFact(kinds.GPU_LOST, device=device, message=message) if device is not None else None
    return None

"""Knows whether a disk is behind a network, or a thin volume: such a disk fails because it is shared or full, not by a
fault of the node.

A thin volume fails when its pool is full, because of its writers and not of the node. A failing disk below it has log
lines under its own name. A pool of LVM is known by its UUID, another pool once the log calls it full.

A disk behind an unavailable network vanishes from sysfs, and its log lines go on: its kind is remembered until another
disk has its name. An agent that starts later reads it from the kernel log, which names the driver of an iSCSI disk's
host, and the paths of a multipath map as they fail: the map in sysfs names only those that are left.

Read from sysfs, by what the kernel documents: the path of an iSCSI disk goes through its session, that of a Fibre
Channel disk through the remote port, an NVMe controller names its transport, and the virtual disks of clouds their
model. A disk that cannot be read counts as the node's own: otherwise the faults of such a local disk would never show.
"""

import math
import os
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path

_NETWORK_PATH = re.compile(r"/session\d+/|/rport-|/nvme-fabrics/|/(?:rbd|nbd|drbd)\d")
# Azure's by SCSI, as the udev rules of github.com/Azure/azure-vm-utils know them: that with the system, by the
# controller of the first generation or as the first of the first controller (its second is the machine's own), and the
# data disks at the others.
_AZURE_PATH = re.compile(
    r"/VMBUS:\d+/(?:00000000-0000-|f8b3781[bcd]-1e82-4818-a1c3-63d806ec15bb/|f8b3781a-1e82-4818-a1c3-63d806ec15bb/(?:[^/]+/)*\d+:\d+:\d+:0/)"
)
_NVME = re.compile(r"(nvme\d+)(?:c\d+)?(?:n\d+)?(?:p\d+)?")
_NETWORK_TRANSPORTS = frozenset({"tcp", "rdma", "fc"})
_CLOUD_MODELS = ("Amazon Elastic Block Store", "nvme_card-pd", "PersistentDisk", "MSFT NVMe Accelerator", "BlockVolume")
"""Models that clouds give to disks that are not in the machine: Amazon's, Google's, Azure's and Oracle's."""
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}")
_THIN_POOL = "-tpool"
"""The end of the device mapper's UUID of an LVM thin pool (lib/activate/dev_manager.c), on which its thin volumes
lie."""
_NUMBER = re.compile(r"\d{1,4}:\d{1,7}")
"""The kernel log's name of a pool: its major and minor number."""
_SUBSYSTEM = re.compile(r"/nvme-subsystem/[^/]+/[^/]+/")
"""The place of a namespace that several controllers reach, by nvme-core's own multipath; their names are beside it."""
_ISCSI_DRIVER = re.compile(r"iSCSI Initiator over (?:TCP/IP|iSER)$")
"""How drivers/scsi/iscsi_tcp.c and drivers/infiniband/ulp/iser/iscsi_iser.c call their hosts."""
_SCSI_MAJORS = (8, *range(65, 72), *range(128, 136))
"""Each has sixteen disks of sixteen numbers (include/linux/major.h)."""
_SCSI_PART = re.compile(r"(sd[a-z]{1,8})\d{1,4}")
_MAX_DEPTH = 4
_MAX_DISKS = 4096
_CACHE_SECONDS = 60.0
"""How long an answer is kept: a dying disk writes thousands of lines; later its name can belong to another disk."""


class Disks:
    """The block devices of one machine, and which of them are behind a network or thin.

    Args:
        sysfs: root of sysfs.
        monotonic: the clock that measures how old an answer is.
    """

    def __init__(self, sysfs: Path, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._sysfs = sysfs
        self._monotonic = monotonic
        self._present: frozenset[str] = frozenset()
        self._settled: frozenset[str] = frozenset()
        self._shared: set[str] = set()
        self._iscsi_hosts: set[str] = set()  # their numbers
        self._iscsi_disks: set[str] = set()  # those that the kernel log has attached to one of these hosts
        self._own: dict[str, float] = {}  # disks that are not shared, and when that was read

    def inspect(self) -> None:
        """Note new disks; what is known of vanished ones is kept.

        A disk is read twice: the device mapper creates one before it shows its parts.
        """
        names = _names(self._sysfs / "class/block") | _names(self._sysfs / "class/nvme")
        for name in names - self._settled:
            if self._reads_shared(name, _MAX_DEPTH):
                self._shared.add(name)
            elif name not in self._present:  # the disk is new: the one with this name before was another
                self._shared.discard(name)
                self._iscsi_disks.discard(name)
        self._present, self._settled = names, names & self._present
        for name in sorted(self._shared - names)[_MAX_DISKS:]:
            self._shared.discard(name)

    def remember(self, devices: Iterable[str]) -> frozenset[str]:
        """Take over from an earlier agent which devices were shared; return those that do not exist any more."""
        gone_devices = frozenset(
            name for name in devices if _NAME.fullmatch(name) and not {name, _controller(name)} & self._present
        )
        self._shared |= gone_devices
        return gone_devices

    def note_full(self, number: str) -> None:
        """Note from the kernel log that the device of this number is a full thin pool, whatever software made it.

        Errors on it follow from that.
        """
        if _NUMBER.fullmatch(number) is not None:
            self._note_shared(number)

    def note_host(self, number: str, driver: str) -> None:
        """Take from the kernel log that the SCSI host of this number is this driver's: numbers are used again."""
        if _ISCSI_DRIVER.match(driver) is None:
            self._iscsi_hosts.discard(number)
        elif len(self._iscsi_hosts) < _MAX_DISKS:
            self._iscsi_hosts.add(number)

    def note_attached(self, device: str, host: str) -> None:
        """Take from the kernel log that a SCSI disk has come at the host of this number: names are used again."""
        if host not in self._iscsi_hosts:
            self._iscsi_disks.discard(device)
        elif len(self._iscsi_disks) < _MAX_DISKS:
            self._iscsi_disks.add(device)

    def note_failed_path(self, number: str, path: str) -> None:
        """Take from the kernel log that a path of the multipath map of this number has failed.

        The map is behind a network if the path is. Both are given by major and minor number: the path may be gone.
        """
        if (disk := _scsi_disk(path)) in self._iscsi_disks or disk in self._shared:
            self._note_shared(number)

    def _note_shared(self, number: str) -> None:
        """Note that the device of this number, where there is one, is behind a network or thin."""
        try:
            name = (self._sysfs / "dev/block" / number).resolve(strict=True).name
        except (OSError, RuntimeError):
            return
        self._shared.add(name)
        self._own.clear()

    def is_shared(self, device: str) -> bool:
        """Whether a block device, a part of one, or an NVMe controller is behind a network or thin. A stacked device is
        if any of its parts is."""
        if _NAME.fullmatch(device) is None:
            return False
        if device in self._shared or _controller(device) in self._shared or _disk(device) in self._iscsi_disks:
            return True
        now = self._monotonic()
        if now - self._own.get(device, -math.inf) < _CACHE_SECONDS:
            return False
        if self._reads_shared(device, _MAX_DEPTH):
            self._shared.add(device)
            return True
        if len(self._own) >= _MAX_DISKS:
            self._own.clear()
        self._own[device] = now
        return False

    def _reads_shared(self, device: str, depth: int) -> bool:
        place, parts = self._place(device)
        path = f"{place}/"
        if _NVME.fullmatch(device) is not None:
            several = place is not None and _SUBSYSTEM.search(path) is not None
            controllers = _names(place.parent, _NVME) if place is not None and several else {_controller(device)}
            return any(self._is_network_controller(name) for name in controllers)
        if place is None:
            return False
        disk = place if (place / "device").exists() else place.parent  # of a part of a disk, the disk
        if (
            _NETWORK_PATH.search(path)
            or _AZURE_PATH.search(path)
            or _text(disk / "device/model").startswith(_CLOUD_MODELS)
        ):
            return True
        if _text(place / "dm/uuid").endswith(_THIN_POOL):
            return True
        return depth > 0 and any(
            part in self._shared or _disk(part) in self._iscsi_disks or self._reads_shared(part, depth - 1)
            for part in parts[:16]
        )

    def _place(self, device: str) -> tuple[Path | None, list[str]]:
        """Return the device's place in sysfs (None: it has none), and the devices of which it is made."""
        try:
            place = (self._sysfs / "class/block" / device).resolve(strict=True)
            parts = sorted(part.name for part in (place / "slaves").iterdir()) if (place / "slaves").is_dir() else []
        except (OSError, RuntimeError):
            return None, []
        return place, parts

    def _is_network_controller(self, name: str) -> bool:
        controller = self._sysfs / "class/nvme" / name
        return _text(controller / "transport") in _NETWORK_TRANSPORTS or _text(controller / "model").startswith(
            _CLOUD_MODELS
        )


def _controller(device: str) -> str:
    """Return the controller of an NVMe disk, with which the disk comes and goes; for others the device."""
    nvme = _NVME.fullmatch(device)
    return nvme[1] if nvme is not None else device


def _disk(device: str) -> str:
    """Return the SCSI disk of a partition; for anything else, the device."""
    part = _SCSI_PART.fullmatch(device)
    return part[1] if part is not None else device


def _scsi_disk(number: str) -> str:
    """Return the SCSI disk of a major and minor number, as drivers/scsi/sd.c (sd_major, sd_format_disk_name) gives
    them; "": the number is of no such disk."""
    major, minor = (int(part) for part in number.split(":"))
    if major not in _SCSI_MAJORS:
        return ""
    index, letters = _SCSI_MAJORS.index(major) * 16 + minor // 16, ""
    while index >= 0:
        index, letter = divmod(index, 26)
        index, letters = index - 1, chr(ord("a") + letter) + letters
    return f"sd{letters}"


def _names(folder: Path, pattern: re.Pattern[str] = _NAME) -> frozenset[str]:
    try:
        return frozenset(name for name in os.listdir(folder)[:_MAX_DISKS] if pattern.fullmatch(name))  # noqa: PTH208
    except OSError:
        return frozenset()


def _text(file: Path) -> str:
    try:
        with file.open(encoding="utf-8", errors="replace") as stream:
            return stream.read(256).strip()
    except OSError:
        return ""

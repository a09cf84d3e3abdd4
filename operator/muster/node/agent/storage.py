"""Whether a disk is behind a network, or a thin volume: what fails there is shared, or full, and no fault of the node.

A thin volume fails when its pool is full, which is whoever wrote it, on each node at once where all do. A disk below it
that fails says so itself, under its own name. A pool of LVM is known by its UUID, another one once the log calls it
full.

A disk behind a network that is away vanishes from sysfs, and its lines go on: what a disk was is kept until another one
has its name.

Read from sysfs, by what the kernel documents: the path of an iSCSI disk goes through its session, that of a Fibre
Channel disk through the remote port, an NVMe controller names its transport, and the virtual disks of clouds their
model. What cannot be read is taken for the node's own: a fault that is missed shows again, but a local disk that is
never believed does not.
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
"""Models that clouds give to what is no disk of the machine: Amazon's, Google's, Azure's and Oracle's."""
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}")
_THIN_POOL = "-tpool"
"""How the device mapper's UUID of a pool ends that LVM has made (lib/activate/dev_manager.c); its thin volumes lie on
that."""
_NUMBER = re.compile(r"\d{1,4}:\d{1,7}")
"""What the kernel log calls a pool: its major and minor number."""
_SUBSYSTEM = re.compile(r"/nvme-subsystem/[^/]+/[^/]+/")
"""Where a namespace is that several controllers reach, by nvme-core's own multipath; their names are beside it."""
_MAX_DEPTH = 4
_MAX_DISKS = 4096
_CACHE_SECONDS = 60.0
"""So long an answer counts: a disk that dies writes thousands of lines; its name can be another disk's later."""


class Disks:
    """The block devices of one machine, and which of them are behind a network or thin.

    Args:
        sysfs: its root.
        monotonic: the clock that measures how old an answer is.
    """

    def __init__(self, sysfs: Path, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._sysfs = sysfs
        self._monotonic = monotonic
        self._present: frozenset[str] = frozenset()
        self._settled: frozenset[str] = frozenset()
        self._shared: set[str] = set()
        self._own: dict[str, float] = {}  # those that are not shared, and when that was read

    def inspect(self) -> None:
        """See which disks have come; what is known of those that went is kept.

        A disk is looked at twice: the device mapper makes one before it says what it is made of.
        """
        names = _names(self._sysfs / "class/block") | _names(self._sysfs / "class/nvme")
        for name in names - self._settled:
            if self._reads_shared(name, _MAX_DEPTH):
                self._shared.add(name)
            elif name not in self._present:  # it has come: what had the name before was another one
                self._shared.discard(name)
        self._present, self._settled = names, names & self._present
        for name in sorted(self._shared - names)[_MAX_DISKS:]:
            self._shared.discard(name)

    def remember(self, devices: Iterable[str]) -> frozenset[str]:
        """Take over from an earlier agent that these were shared; answers those that are not there any more."""
        gone = frozenset(
            name for name in devices if _NAME.fullmatch(name) and not {name, _controller(name)} & self._present
        )
        self._shared |= gone
        return gone

    def note_full(self, number: str) -> None:
        """Take from the kernel log that the device of this number is a thin pool, whatever made it, and full.

        What fails on it follows from that.
        """
        if _NUMBER.fullmatch(number) is None:
            return
        try:
            pool = (self._sysfs / "dev/block" / number).resolve(strict=True).name
        except (OSError, RuntimeError):
            return
        self._shared.add(pool)
        self._own.clear()

    def is_shared(self, device: str) -> bool:
        """Whether a block device, a part of one, or an NVMe controller is behind a network or thin. A stack is, if any
        part of it is."""
        if _NAME.fullmatch(device) is None:
            return False
        if device in self._shared or _controller(device) in self._shared:
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
        return depth > 0 and any(part in self._shared or self._reads_shared(part, depth - 1) for part in parts[:16])

    def _place(self, device: str) -> tuple[Path | None, list[str]]:
        """Where it is in sysfs, None: nowhere; and what it is made of."""
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
    """Of an NVMe disk its controller, with which it goes and comes; else the device."""
    nvme = _NVME.fullmatch(device)
    return nvme[1] if nvme is not None else device


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

"""Whether a disk is behind a network, or a thin volume: what fails there is shared, or full, and no fault of the node.

A thin volume fails when its pool is full, which is whoever wrote it, on each node at once where all do. A disk below it that fails says so
itself, under its own name.

Read from sysfs, by what the kernel documents: the path of an iSCSI disk goes through its session, that of a Fibre Channel
disk through the remote port, an NVMe controller names its transport, and the virtual disks of clouds their model. What
cannot be read is taken for the node's own: a fault that is missed shows again, but a local disk that is never believed does not.
"""

import re
import time
from functools import lru_cache
from pathlib import Path

_NETWORK_PATH = re.compile(r"/session\d+/|/rport-|/nvme-fabrics/|/(?:rbd|nbd|drbd)\d")
# Azure's by SCSI, as the udev rules of github.com/Azure/azure-vm-utils know them: that with the system, by the controller of the first
# generation or as the first of the first controller (its second is the machine's own), and the data disks at the others.
_AZURE_PATH = re.compile(
    r"/VMBUS:\d+/(?:00000000-0000-|f8b3781[bcd]-1e82-4818-a1c3-63d806ec15bb/|f8b3781a-1e82-4818-a1c3-63d806ec15bb/(?:[^/]+/)*\d+:\d+:\d+:0/)"
)
_NVME = re.compile(r"(nvme\d+)(?:c\d+)?(?:n\d+)?(?:p\d+)?")
_NETWORK_TRANSPORTS = frozenset({"tcp", "rdma", "fc"})
_CLOUD_MODELS = ("Amazon Elastic Block Store", "nvme_card-pd", "PersistentDisk", "MSFT NVMe Accelerator", "BlockVolume")
"""Models that clouds give to what is no disk of the machine: Amazon's, Google's, Azure's and Oracle's."""
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}")
_THIN_POOL = "-tpool"
"""How the device mapper's UUID of a pool ends that LVM has made (lib/activate/dev_manager.c); its thin volumes lie on that."""
_MAX_DEPTH = 4


def is_shared(device: str, sysfs: Path) -> bool:
    """Whether a block device, a part of one, or an NVMe controller is behind a network or thin. A stack is, if any part of it is."""
    return _NAME.fullmatch(device) is not None and _within_a_minute(device, sysfs, time.monotonic() // 60)


@lru_cache(maxsize=64)
def _within_a_minute(device: str, sysfs: Path, _minute: float) -> bool:
    """A disk that dies writes thousands of lines; its name can be another disk's later."""
    return _is_shared(device, sysfs, _MAX_DEPTH)


def _is_shared(device: str, sysfs: Path, depth: int) -> bool:
    nvme = _NVME.fullmatch(device)
    if nvme is not None:
        controller = sysfs / "class/nvme" / nvme[1]
        return _text(controller / "transport") in _NETWORK_TRANSPORTS or _text(controller / "model").startswith(
            _CLOUD_MODELS
        )
    try:
        place = (sysfs / "class/block" / device).resolve(strict=True)
        parts = sorted(part.name for part in (place / "slaves").iterdir()) if (place / "slaves").is_dir() else []
    except (OSError, RuntimeError):
        return False
    disk = place if (place / "device").exists() else place.parent  # of a part of a disk, the disk
    if (
        _NETWORK_PATH.search(f"{place}/")
        or _AZURE_PATH.search(f"{place}/")
        or _text(disk / "device/model").startswith(_CLOUD_MODELS)
    ):
        return True
    if _text(place / "dm/uuid").endswith(_THIN_POOL):
        return True
    return depth > 0 and any(_is_shared(part, sysfs, depth - 1) for part in parts[:16])


def _text(file: Path) -> str:
    try:
        with file.open(encoding="utf-8", errors="replace") as stream:
            return stream.read(256).strip()
    except OSError:
        return ""

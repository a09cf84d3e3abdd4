"""Whether a disk is behind a network: what fails there is shared, and no fault of the node.

Read from sysfs, by what the kernel documents: the path of an iSCSI disk goes through its session, that of a Fibre Channel
disk through the remote port, an NVMe controller names its transport, and the virtual disks of clouds their model. What
cannot be read is taken for the node's own: a fault that is missed shows again, but a local disk that is never believed does not.
"""

import re
import time
from functools import lru_cache
from pathlib import Path

_NETWORK_PATH = re.compile(r"/session\d+/|/rport-|/nvme-fabrics/|/(?:rbd|nbd|drbd)\d")
_NVME = re.compile(r"(nvme\d+)(?:c\d+)?(?:n\d+)?(?:p\d+)?")
_NETWORK_TRANSPORTS = frozenset({"tcp", "rdma", "fc"})
_CLOUD_MODELS = ("Amazon Elastic Block Store", "nvme_card-pd", "PersistentDisk")
"""Models that clouds give to what is no disk of the machine: Amazon's and Google's. Azure's cannot be told from a local one."""
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}")
_MAX_DEPTH = 4


def is_shared(device: str, sysfs: Path) -> bool:
    """Whether a block device, a part of one, or an NVMe controller is behind a network. A stack is, if any part of it is."""
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
    if _NETWORK_PATH.search(f"{place}/") or _text(disk / "device/model").startswith(_CLOUD_MODELS):
        return True
    return depth > 0 and any(_is_shared(part, sysfs, depth - 1) for part in parts[:16])


def _text(file: Path) -> str:
    try:
        with file.open(encoding="utf-8", errors="replace") as stream:
            return stream.read(256).strip()
    except OSError:
        return ""

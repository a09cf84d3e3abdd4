"""Which disks are behind a network, by trees as the kernel makes them."""

from pathlib import Path

import pytest

from muster.agent.storage import is_shared

ISCSI = "devices/platform/host6/session1/target6:0:0/6:0:0:1/block/sdb"
SATA = "devices/pci0000:00/0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0/block/sda"
FIBRE = "devices/pci0000:5d/0000:5e:00.0/host7/rport-7:0-2/target7:0:0/7:0:0:0/block/sdc"


def disk(sysfs: Path, place: str, name: str = "", model: str = "") -> None:
    """A block device at its place, and the link to it."""
    target = sysfs / place
    (target / "device").mkdir(parents=True)
    (target / "device/model").write_text(f"{model}\n")
    link(sysfs, name or target.name, target)


def link(sysfs: Path, name: str, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    (sysfs / "class/block").mkdir(parents=True, exist_ok=True)
    (sysfs / "class/block" / name).symlink_to(target)


def controller(sysfs: Path, name: str, transport: str, model: str = "SAMSUNG MZWLJ3T8HBLS-00007") -> None:
    place = sysfs / "class/nvme" / name
    place.mkdir(parents=True)
    (place / "transport").write_text(f"{transport}\n")
    (place / "model").write_text(f"{model:<40}\n")


@pytest.mark.parametrize(("place", "shared"), [(ISCSI, True), (FIBRE, True), (SATA, False)])
def test_a_scsi_disk_by_the_way_to_it(tmp_path: Path, place: str, shared: bool) -> None:
    disk(tmp_path, place)
    name = place.rpartition("/")[2]
    link(tmp_path, f"{name}1", tmp_path / place / f"{name}1")
    assert is_shared(name, tmp_path) is is_shared(f"{name}1", tmp_path) is shared


@pytest.mark.parametrize(
    ("transport", "model", "shared"),
    [
        ("pcie", "SAMSUNG MZWLJ3T8HBLS-00007", False),
        ("pcie", "Amazon EC2 NVMe Instance Storage", False),
        ("pcie", "Amazon Elastic Block Store", True),
        ("tcp", "Linux", True),
        ("rdma", "Linux", True),
        ("fc", "Linux", True),
    ],
)
@pytest.mark.parametrize("device", ["nvme3", "nvme3n1", "nvme3n1p2", "nvme3c3n1"])
def test_an_nvme_disk_by_its_transport_and_model(
    tmp_path: Path, device: str, transport: str, model: str, shared: bool
) -> None:
    controller(tmp_path, "nvme3", transport, model)
    assert is_shared(device, tmp_path) is shared


def test_a_stack_is_shared_if_any_part_is(tmp_path: Path) -> None:
    disk(tmp_path, ISCSI)
    disk(tmp_path, SATA)
    for name, part in (("dm-0", "sdb"), ("dm-1", "sda"), ("dm-2", "dm-0")):
        (tmp_path / f"devices/virtual/block/{name}/slaves/{part}").mkdir(parents=True)
        link(tmp_path, name, tmp_path / "devices/virtual/block" / name)
    assert [is_shared(f"dm-{number}", tmp_path) for number in range(3)] == [True, False, True]


def test_a_google_persistent_disk_by_its_model(tmp_path: Path) -> None:
    disk(tmp_path, SATA, model="PersistentDisk  ")
    assert is_shared("sda", tmp_path)


@pytest.mark.parametrize("device", ["", "..", "../../etc", "sdz", "a/b", "x" * 100])
def test_what_cannot_be_read_is_the_node_s_own(tmp_path: Path, device: str) -> None:
    assert not is_shared(device, tmp_path)


def test_a_ring_of_devices_ends(tmp_path: Path) -> None:
    for name, part in (("dm-0", "dm-1"), ("dm-1", "dm-0")):
        (tmp_path / f"devices/virtual/block/{name}/slaves/{part}").mkdir(parents=True)
        link(tmp_path, name, tmp_path / "devices/virtual/block" / name)
    assert not is_shared("dm-0", tmp_path)

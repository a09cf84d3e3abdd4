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
        ("pcie", "Microsoft NVMe Direct Disk", False),
        ("pcie", "MSFT NVMe Accelerator v1.0", True),  # github.com/Azure/azure-vm-utils: "remote NVMe disks"
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


@pytest.mark.parametrize("model", ["PersistentDisk  ", "BlockVolume     "])
def test_a_disk_of_a_cloud_by_its_model(tmp_path: Path, model: str) -> None:
    """Google's, and Oracle's where it is attached by virtio."""
    disk(tmp_path, SATA, model=model)
    assert is_shared("sda", tmp_path)


@pytest.mark.parametrize(
    ("way", "shared"),
    [
        ("f8b3781a-1e82-4818-a1c3-63d806ec15bb/host0/target0:0:0/0:0:0:0", True),  # the system's
        ("f8b3781a-1e82-4818-a1c3-63d806ec15bb/host0/target0:0:0/0:0:0:1", False),  # the temporary one: of the machine
        ("f8b3781b-1e82-4818-a1c3-63d806ec15bb/host1/target1:0:0/1:0:0:0", True),  # data disks
        ("f8b3781d-1e82-4818-a1c3-63d806ec15bb/host3/target3:0:0/3:0:0:17", True),
        ("00000000-0000-8899-0000-000000000000/host0/target0:0:0/0:0:0:0", True),  # of the first generation
        ("00000000-0001-8899-0000-000000000000/host1/target1:0:1/1:0:1:0", False),
    ],
)
def test_a_disk_of_azure_by_its_controller(tmp_path: Path, way: str, shared: bool) -> None:
    """As the udev rules of github.com/Azure/azure-vm-utils tell them apart."""
    bus = "devices/LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00"
    disk(tmp_path, f"{bus}/{way}/block/sda", model="Virtual Disk")
    link(tmp_path, "sda1", tmp_path / f"{bus}/{way}/block/sda/sda1")
    assert is_shared("sda", tmp_path) is is_shared("sda1", tmp_path) is shared


@pytest.mark.parametrize("device", ["", "..", "../../etc", "sdz", "a/b", "x" * 100])
def test_what_cannot_be_read_is_the_node_s_own(tmp_path: Path, device: str) -> None:
    assert not is_shared(device, tmp_path)


def test_a_ring_of_devices_ends(tmp_path: Path) -> None:
    for name, part in (("dm-0", "dm-1"), ("dm-1", "dm-0")):
        (tmp_path / f"devices/virtual/block/{name}/slaves/{part}").mkdir(parents=True)
        link(tmp_path, name, tmp_path / "devices/virtual/block" / name)
    assert not is_shared("dm-0", tmp_path)


def test_a_thin_volume_is_its_tenants_and_what_lies_below_the_nodes(tmp_path: Path) -> None:
    """As LVM lays them out: a volume with a file system, its pool, and the pool's data on a disk of the machine."""
    below = (
        ("dm-7", "dm-4"),
        ("dm-4", "dm-3"),
        ("dm-4", "dm-2"),
        ("dm-3", "nvme0n1"),
        ("dm-2", "nvme0n1"),
        ("dm-0", "nvme0n1"),
    )
    uuids = {
        "dm-7": "LVM-Sdqg",
        "dm-4": "LVM-Sdqh-tpool",
        "dm-3": "LVM-Sdqi-tdata",
        "dm-2": "LVM-Sdqj-tmeta",
        "dm-0": "LVM-Root",
    }
    for name, part in below:
        (tmp_path / f"devices/virtual/block/{name}/slaves/{part}").mkdir(parents=True)
    for name, uuid in uuids.items():
        place = tmp_path / f"devices/virtual/block/{name}"
        (place / "dm").mkdir()
        (place / "dm/uuid").write_text(f"{uuid}\n")
        link(tmp_path, name, place)
    controller(tmp_path, "nvme0", "pcie")
    assert {name: is_shared(name, tmp_path) for name in uuids} == {
        "dm-7": True,
        "dm-4": True,
        "dm-3": False,
        "dm-2": False,
        "dm-0": False,
    }

"""Which disks are behind a network, by trees as the kernel makes them."""

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.unit.clock import Clock

from muster.node.agent import kinds
from muster.node.agent.kernel_lines import SCSI_HOST
from muster.node.agent.log_lines import parse
from muster.node.agent.storage import Disks

ISCSI = "devices/platform/host6/session1/target6:0:0/6:0:0:1/block/sdb"
SATA = "devices/pci0000:00/0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0/block/sda"
FIBRE = "devices/pci0000:5d/0000:5e:00.0/host7/rport-7:0-2/target7:0:0/7:0:0:0/block/sdc"


def shared_in(sysfs: Path, device: str) -> bool:
    return Disks(sysfs).is_shared(device)


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
    assert shared_in(tmp_path, name) is shared_in(tmp_path, f"{name}1") is shared


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
    assert shared_in(tmp_path, device) is shared


def test_a_stack_is_shared_if_any_part_is(tmp_path: Path) -> None:
    disk(tmp_path, ISCSI)
    disk(tmp_path, SATA)
    for name, part in (("dm-0", "sdb"), ("dm-1", "sda"), ("dm-2", "dm-0")):
        (tmp_path / f"devices/virtual/block/{name}/slaves/{part}").mkdir(parents=True)
        link(tmp_path, name, tmp_path / "devices/virtual/block" / name)
    assert [shared_in(tmp_path, f"dm-{number}") for number in range(3)] == [True, False, True]


@pytest.mark.parametrize("model", ["PersistentDisk  ", "BlockVolume     "])
def test_a_disk_of_a_cloud_by_its_model(tmp_path: Path, model: str) -> None:
    """Google's, and Oracle's where it is attached by virtio."""
    disk(tmp_path, SATA, model=model)
    assert shared_in(tmp_path, "sda")


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
    assert shared_in(tmp_path, "sda") is shared_in(tmp_path, "sda1") is shared


@pytest.mark.parametrize("device", ["", "..", "../../etc", "sdz", "a/b", "x" * 100])
def test_what_cannot_be_read_is_the_node_s_own(tmp_path: Path, device: str) -> None:
    assert not shared_in(tmp_path, device)


def test_a_ring_of_devices_ends(tmp_path: Path) -> None:
    for name, part in (("dm-0", "dm-1"), ("dm-1", "dm-0")):
        (tmp_path / f"devices/virtual/block/{name}/slaves/{part}").mkdir(parents=True)
        link(tmp_path, name, tmp_path / "devices/virtual/block" / name)
    assert not shared_in(tmp_path, "dm-0")


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
    assert {name: shared_in(tmp_path, name) for name in uuids} == {
        "dm-7": True,
        "dm-4": True,
        "dm-3": False,
        "dm-2": False,
        "dm-0": False,
    }


def vanish(sysfs: Path, name: str) -> None:
    (sysfs / "class/block" / name).unlink()


def test_a_disk_of_a_network_that_has_vanished_is_still_one(tmp_path: Path) -> None:
    """Its session has ended, and what was to be written to it fails now."""
    disk(tmp_path, ISCSI)
    disk(tmp_path, SATA)
    link(tmp_path, "sdb1", tmp_path / ISCSI / "sdb1")
    controller(tmp_path, "nvme3", "tcp", "Linux")
    disks = Disks(tmp_path)
    disks.inspect()
    for name in ("sdb", "sdb1", "sda"):
        vanish(tmp_path, name)
    shutil.rmtree(tmp_path / "class/nvme/nvme3")
    disks.inspect()
    names = ("sdb", "sdb1", "nvme3", "nvme3n1", "sda")
    assert {name: disks.is_shared(name) for name in names} == {**dict.fromkeys(names, True), "sda": False}


def test_the_next_disk_of_the_name_is_judged_by_itself(tmp_path: Path) -> None:
    disk(tmp_path, ISCSI)
    disks = Disks(tmp_path)
    disks.inspect()
    vanish(tmp_path, "sdb")
    disks.inspect()
    disk(tmp_path, SATA, "sdb")
    disks.inspect()
    assert not disks.is_shared("sdb")


def test_a_stack_stays_shared_when_its_parts_have_vanished(tmp_path: Path) -> None:
    """Multipath without any path; and the device mapper makes a device before it says what it is made of."""
    disk(tmp_path, ISCSI)
    place = tmp_path / "devices/virtual/block/dm-0"
    link(tmp_path, "dm-0", place)
    disks = Disks(tmp_path)
    disks.inspect()
    (place / "slaves/sdb").mkdir(parents=True)
    disks.inspect()
    (place / "slaves/sdb").rmdir()
    vanish(tmp_path, "sdb")
    disks.inspect()
    assert disks.is_shared("dm-0")


@pytest.mark.parametrize(("transport", "shared"), [("rdma", True), ("pcie", False)])
def test_a_namespace_that_several_controllers_reach(tmp_path: Path, transport: str, shared: bool) -> None:
    """The number in its name is the subsystem's, and no controller's."""
    place = "devices/virtual/nvme-subsystem/nvme-subsys7"
    for number in (3, 4):
        controller(tmp_path, f"nvme{number}", transport)
        (tmp_path / place / f"nvme{number}").mkdir(parents=True)
    link(tmp_path, "nvme7n1", tmp_path / place / "nvme7n1")
    assert shared_in(tmp_path, "nvme7n1") is shared


def test_an_answer_is_read_anew_after_a_minute(tmp_path: Path, clock: Clock) -> None:
    disk(tmp_path, SATA)
    disks = Disks(tmp_path, clock)
    assert not disks.is_shared("sda")
    vanish(tmp_path, "sda")
    disk(tmp_path, ISCSI, "sda")
    assert not disks.is_shared("sda")
    clock.advance(61)
    assert disks.is_shared("sda")


LINE = "I/O error, dev sdb, sector 2048 op 0x1:(WRITE) flags 0x800 phys_seg 1 prio class 2"
LINE_OF_SDC = LINE.replace("sdb", "sdc")


def test_the_agent_knows_a_disk_that_has_vanished(node: Any, run: Any) -> None:
    disk(node.folder / "sys", ISCSI)
    agent = run()
    agent.wait_until_looking()
    vanish(node.folder / "sys", "sdb")
    node.log(LINE)
    assert agent.wait_for(kinds.NETWORK_DISK_ERROR)["subject"] == "sdb"
    assert agent.about(kinds.DISK_ERROR) == []


def test_an_agent_that_starts_later_knows_it_from_the_one_before(node: Any, run: Any) -> None:
    now = datetime.now(UTC).isoformat()
    entry = {"kind": kinds.NETWORK_DISK_ERROR, "subject": "sdb", "bootId": "boot-1", "firstSeen": now, "lastSeen": now}
    node.log(f"3,77,12000000,-;{LINE}")
    agent = run(
        thresholds={"disk.expires": 1e9},
        stored={"agent": {"bootId": "boot-1"}, "evidence": [{**entry, "message": LINE}]},
    )
    agent.wait_until_looking()
    agent.wait_for_log(1)
    assert {(item["kind"], item["subject"]) for item in agent.evidence} == {(kinds.NETWORK_DISK_ERROR, "sdb")}


HOST = "scsi host6: iSCSI Initiator over TCP/IP"
ATTACHED = "sd 6:0:0:1: [sdb] Attached SCSI disk"


def read(*lines: str) -> Disks:
    """What the kernel log tells of disks that are not there any more."""
    disks = Disks(Path("/nonexistent"))
    for fact in filter(None, map(parse, lines)):
        if fact.kind == SCSI_HOST:
            disks.note_host(fact.device, fact.value)
        else:
            disks.note_attached(fact.device, host=fact.value)
    return disks


@pytest.mark.parametrize(
    ("lines", "shared"),
    [
        ([HOST, ATTACHED], True),
        (["scsi host6: iSCSI Initiator over iSER", ATTACHED], True),
        ([HOST, "sd 6:0:0:1: [sdb] Attached SCSI removable disk"], True),
        ([ATTACHED], False),
        (["scsi host6: ahci", ATTACHED], False),
        ([HOST, "sd 60:0:0:1: [sdb] Attached SCSI disk"], False),
        ([HOST, "sd 6:0:0:1: [sdc] Attached SCSI disk"], False),
        ([HOST, "sd 6:0:0:1: [sdb] 41943040 512-byte logical blocks: (21.5 GB/20.0 GiB)"], False),
        ([HOST, "sd 6:0:0:1: Attached scsi generic sg2 type 0"], False),
        ([HOST, "scsi host6: usb-storage 1-1:1.0", ATTACHED], False),
        ([HOST, ATTACHED, "scsi host0: ahci", "sd 0:0:0:0: [sdb] Attached SCSI disk"], False),
        (["trainer[77]: scsi host6: iSCSI Initiator over TCP/IP", ATTACHED], False),
    ],
)
def test_the_log_tells_which_vanished_disks_were_iscsi(lines: list[str], shared: bool) -> None:
    """As drivers/scsi/hosts.c and drivers/scsi/sd.c print it."""
    disks = read(*lines)
    assert [disks.is_shared(name) for name in ("sdb", "sdb1", "sdbb")] == [shared, shared, False]


def test_an_agent_that_starts_after_an_iscsi_disk_has_vanished_knows_it_from_the_log(node: Any, run: Any) -> None:
    for number, line in enumerate((HOST, ATTACHED, LINE, "sd 7:0:0:0: [sdc] Attached SCSI disk", LINE_OF_SDC)):
        node.log(f"3,{number},{number + 12}000000,-;{line}")
    agent = run(thresholds={"disk.expires": 1e9})
    agent.wait_until_looking()
    agent.wait_for_log(5)
    assert {(item["kind"], item["subject"]) for item in agent.evidence} == {
        (kinds.NETWORK_DISK_ERROR, "sdb"),
        (kinds.DISK_ERROR, "sdc"),
    }


def pool_without_a_uuid(sysfs: Path) -> None:
    """As containerd's devmapper makes it: `dmsetup create` gives no UUID, and the log knows the pool by its number."""
    (sysfs / "devices/virtual/block/dm-7/slaves/dm-4").mkdir(parents=True)
    (sysfs / "devices/virtual/block/dm-4/slaves/nvme0n1").mkdir(parents=True)
    (sysfs / "dev/block").mkdir(parents=True)
    for name in ("dm-4", "dm-7"):
        link(sysfs, name, sysfs / "devices/virtual/block" / name)
    (sysfs / "dev/block/253:4").symlink_to(sysfs / "devices/virtual/block/dm-4")


def test_a_pool_that_the_log_calls_full_is_thin(tmp_path: Path) -> None:
    pool_without_a_uuid(tmp_path)
    disks = Disks(tmp_path)
    disks.inspect()
    assert not disks.is_shared("dm-7")
    disks.note_full("253:4")
    disks.note_full("253:9")
    assert {name: disks.is_shared(name) for name in ("dm-4", "dm-7", "nvme0n1")} == {
        "dm-4": True,
        "dm-7": True,
        "nvme0n1": False,
    }


def test_what_follows_from_a_full_pool_is_no_fault_of_the_disk(node: Any, run: Any) -> None:
    pool_without_a_uuid(node.folder / "sys")
    agent = run()
    agent.wait_until_looking()
    node.log("device-mapper: thin: 253:4: switching pool to out-of-data-space (error IO) mode")
    node.log("Buffer I/O error on dev dm-7, logical block 1129, lost async page write")
    node.log("dm-7: writeback error on inode 135, offset 0, sector 9048")
    node.log("XFS (dm-7): log I/O error -28")
    agent.wait_for_log(4)
    assert {(item["kind"], item["subject"]) for item in agent.evidence} == {
        (kinds.NETWORK_DISK_ERROR, "253:4"),
        (kinds.NETWORK_DISK_ERROR, "dm-7"),
    }


FAILING = "device-mapper: multipath: 253:3: Failing path 8:16."


def a_map_without_paths(sysfs: Path) -> None:
    """Whose paths have all gone, with a volume of LVM on it."""
    (sysfs / "devices/virtual/block/dm-4/slaves/dm-3").mkdir(parents=True)
    (sysfs / "dev/block").mkdir(parents=True)
    (sysfs / "devices/virtual/block/dm-3").mkdir(parents=True)
    for name in ("dm-3", "dm-4"):
        link(sysfs, name, sysfs / "devices/virtual/block" / name)
    (sysfs / "dev/block/253:3").symlink_to(sysfs / "devices/virtual/block/dm-3")


def test_map_paths_gone_before_the_agent_starts_are_known_from_the_log(node: Any, run: Any) -> None:
    a_map_without_paths(node.folder / "sys")
    lines = (HOST, ATTACHED, FAILING, *(LINE.replace("sdb", name) for name in ("dm-3", "dm-4", "sdb")))
    for number, line in enumerate(lines):
        node.log(f"3,{number},{number + 12}000000,-;{line}")
    agent = run(thresholds={"disk.expires": 1e9})
    agent.wait_until_looking()
    agent.wait_for_log(len(lines))
    assert {(item["kind"], item["subject"]) for item in agent.evidence} == {
        (kinds.NETWORK_DISK_ERROR, name) for name in ("dm-3", "dm-4", "sdb")
    }


@pytest.mark.parametrize(
    ("attached", "path", "shared"),
    [
        ("sdb", "8:16", True),
        ("sdb", "8:32", False),
        ("sdq", "65:0", True),
        ("sdaa", "65:160", True),
        ("sdzz", "135:144", False),
        ("sdiv", "135:240", True),
        ("sdb", "259:1", False),
    ],
)
def test_a_path_is_known_by_its_number(tmp_path: Path, attached: str, path: str, shared: bool) -> None:
    a_map_without_paths(tmp_path)
    disks = Disks(tmp_path)
    disks.inspect()
    disks.note_host("6", "iSCSI Initiator over TCP/IP")
    disks.note_attached(attached, host="6")
    disks.note_failed_path("253:3", path=path)
    disks.note_failed_path("253:9", path=path)
    assert {name: disks.is_shared(name) for name in ("dm-3", "dm-4")} == dict.fromkeys(("dm-3", "dm-4"), shared)


def test_a_map_that_still_names_its_vanished_path(tmp_path: Path) -> None:
    (tmp_path / "devices/virtual/block/dm-3/slaves/sdb").mkdir(parents=True)
    link(tmp_path, "dm-3", tmp_path / "devices/virtual/block/dm-3")
    disks = Disks(tmp_path)
    disks.note_host("6", "iSCSI Initiator over TCP/IP")
    disks.note_attached("sdb", host="6")
    assert disks.is_shared("dm-3")

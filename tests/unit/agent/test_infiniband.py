"""Ports and counters, in sysfs trees made of files; and the rest of what comes from files."""

import os
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from localcluster.patience import PATIENCE_SECONDS
from muster.api.nodehealth import Evidence
from muster.health.kinds import sign_of
from muster.node.agent import kinds
from muster.node.agent.bridges import Bridges
from muster.node.agent.facts import Signal
from muster.node.agent.infiniband import InfiniBand
from muster.node.agent.interfaces import NodeNetwork
from muster.node.agent.machine import ClockSource
from muster.node.agent.thresholds import DEFAULTS, Thresholds

PATIENT = Thresholds({**DEFAULTS.values, "sysfs.device_wait": 3600.0})
"""A slow machine reads a device late; that is no device that hangs."""


def ports_of(node: Any, thresholds: Thresholds = PATIENT, expected: int | None = None) -> InfiniBand:
    return InfiniBand(node.folder / "sys", thresholds, expected, NodeNetwork(node.folder / "sys", node.folder / "proc"))


@pytest.fixture
def fabric(node: Any) -> InfiniBand:
    return ports_of(node)


def bad(signals: list[Signal]) -> list[tuple[str, str]]:
    return [(signal.kind, signal.subject) for signal in signals if signal.bad]


def wait_for_states(fabric: InfiniBand, wanted: list[tuple[str, str]]) -> None:
    """Poll until these are bad, and no others."""
    until = time.monotonic() + PATIENCE_SECONDS
    while (found := bad(fabric.states())) != wanted:
        assert time.monotonic() < until, found


def test_a_port_that_was_never_up_is_no_fault(node: Any, fabric: InfiniBand) -> None:
    node.port("mlx5_0/1")
    node.port("mlx5_1/1", "1: DOWN", "3: Disabled")
    assert bad(fabric.states()) == []


@pytest.mark.parametrize(
    ("state", "physical"),
    [
        ("1: DOWN", "3: Disabled"),
        ("1: DOWN", "2: Polling"),
        ("2: INIT", "5: LinkUp"),
        ("4: ACTIVE", "6: LinkErrorRecovery"),
    ],
)
def test_a_port_that_was_up_and_is_down(node: Any, fabric: InfiniBand, state: str, physical: str) -> None:
    node.port("mlx5_0/1")
    fabric.states()
    node.port("mlx5_0/1", state, physical)
    assert bad(fabric.states()) == [(kinds.IB_PORT_DOWN, "mlx5_0/1")]
    node.port("mlx5_0/1")
    assert bad(fabric.states()) == []


def test_a_device_that_is_gone(node: Any, fabric: InfiniBand) -> None:
    node.port("mlx5_0/1")
    fabric.states()
    shutil.rmtree(node.folder / "sys/class/infiniband/mlx5_0")
    assert bad(fabric.states()) == [(kinds.IB_DEVICE_MISSING, "mlx5_0")]


def test_too_few_ports_where_the_number_is_configured(node: Any) -> None:
    node.port("mlx5_0/1", "1: DOWN", "3: Disabled")
    fabric = ports_of(node, expected=1)
    assert bad(fabric.states()) == [(kinds.IB_PORT_DOWN, "")]


RATES = {
    "link_downed": (5, 6),
    "excessive_buffer_overrun_errors": (0, 1),
    "local_link_integrity_errors": (0, 1),
    "rnr_nak_retry_err": (0, 1),
    "symbol_error": (100, 100 + 301),
    "link_error_recovery": (0, 3),
    "port_rcv_errors": (0, 301),
    "local_ack_timeout_err": (0, 31),
    "port_xmit_discards": (0, 3001),
    "roce_slow_restart": (0, 301),
}


@pytest.mark.parametrize("counter", RATES)
def test_a_counter_that_grows_too_fast(node: Any, fabric: InfiniBand, counter: str) -> None:
    before, after = RATES[counter]
    node.port("mlx5_0/1", **{counter: before})
    fabric.states()
    assert bad(fabric.counters(0.0)) == []
    assert bad(fabric.counters(15.0)) == []
    node.port("mlx5_0/1", **{counter: after})
    (found,) = [signal for signal in fabric.counters(30.0) if signal.bad]
    assert (found.kind, found.subject) == (kinds.IB_COUNTERS, "mlx5_0/1")
    assert counter in found.value
    assert bad(fabric.counters(400.0)) == []


def test_a_counter_that_grows_slowly_is_no_fault(node: Any, fabric: InfiniBand) -> None:
    for moment in range(0, 600, 15):
        node.port("mlx5_0/1", symbol_error=moment * 9, port_rcv_errors=moment * 9)
        fabric.states()
        assert bad(fabric.counters(float(moment))) == []


def test_a_counter_that_was_reset_is_no_fault(node: Any, fabric: InfiniBand) -> None:
    node.port("mlx5_0/1", symbol_error=10**12)
    fabric.states()
    fabric.counters(0.0)
    node.port("mlx5_0/1", symbol_error=3)
    assert bad(fabric.counters(15.0)) == []


def test_a_port_that_goes_down_thrice_flaps(node: Any, fabric: InfiniBand) -> None:
    for times in range(4):
        node.port("mlx5_0/1", link_downed=times)
        fabric.states()
        flaps = [signal for signal in fabric.counters(times * 3600.0) if signal.kind == kinds.IB_PORT_FLAP]
        assert [signal.bad for signal in flaps] == [times == 3]


def flaps(fabric: InfiniBand, hour: float) -> bool:
    """Whether port 1 of mlx5_0 flaps at that hour."""
    fabric.states()
    (found,) = [signal.bad for signal in fabric.counters(hour * 3600) if signal.kind == kinds.IB_PORT_FLAP]
    return found


def test_a_flapped_port_is_trusted_once_up_for_as_long_as_flaps_count(node: Any, fabric: InfiniBand) -> None:
    for hour in range(4):
        node.port("mlx5_0/1", link_downed=hour)
        assert flaps(fabric, hour) is (hour == 3)
    assert flaps(fabric, 13)  # of three the first is forgotten; the last is not
    node.port("mlx5_0/1", link_downed=4)
    assert flaps(fabric, 14.9)
    assert flaps(fabric, 26)
    assert not flaps(fabric, 27)


def test_an_agent_that_starts_again_does_not_trust_a_port_that_flapped(node: Any, fabric: InfiniBand) -> None:
    fabric.adopt([], ["mlx5_0/1"], 1)
    node.port("mlx5_0/1", link_downed=3)
    assert flaps(fabric, 0)
    assert flaps(fabric, 11.9)
    assert not flaps(fabric, 12)


@pytest.mark.parametrize(
    ("state", "physical", "wanted"), [("1: DOWN", "2: Polling", True), ("2: INIT", "5: LinkUp", False)]
)
def test_a_port_that_counts_nothing_is_watched(
    state: str, physical: str, wanted: bool, node: Any, fabric: InfiniBand
) -> None:
    """Ethernet's leave `link_downed` at 0. One that only waits for a subnet manager has not lost its link."""
    for hour in range(4):
        node.port("mlx5_0/1", state, physical, link_downed=0)
        fabric.states()
        node.port("mlx5_0/1", link_downed=0)
        assert flaps(fabric, hour) is (wanted and hour == 3)


def test_a_virtual_function_belongs_to_who_uses_it(node: Any, fabric: InfiniBand) -> None:
    """It goes into the network namespace of a pod, where nobody else sees it, and comes back."""
    node.port("mlx5_8/1")
    (node.folder / "sys/class/infiniband/mlx5_8/device/physfn").mkdir(parents=True)
    assert fabric.states() == []
    shutil.rmtree(node.folder / "sys/class/infiniband/mlx5_8")
    assert bad(fabric.states()) == []


def test_a_device_that_hangs_blinds_only_itself(node: Any) -> None:
    fabric = ports_of(node, Thresholds({**DEFAULTS.values, "sysfs.device_wait": 0.05}))
    states = [node.port(f"mlx5_{number}/1") / "state" for number in range(3)]
    wait_for_states(fabric, [])
    states[1].unlink()
    os.mkfifo(states[1])  # opening it waits for somebody who writes
    wait_for_states(fabric, [(kinds.SYSFS_HANG, "mlx5_1")])
    node.port("mlx5_2/1", "1: DOWN", "2: Polling")
    wait_for_states(fabric, [(kinds.IB_PORT_DOWN, "mlx5_2/1"), (kinds.SYSFS_HANG, "mlx5_1")])
    assert fabric.unseen == frozenset()
    with states[1].open("w") as late:
        late.write("1: DOWN\n")
    states[1].unlink()
    node.port("mlx5_1/1", "1: DOWN", "2: Polling")
    wait_for_states(fabric, [(kinds.IB_PORT_DOWN, "mlx5_1/1"), (kinds.IB_PORT_DOWN, "mlx5_2/1")])


EFA = ("ports/1/hw_counters", "hw_counters")
"""Until Linux 5.14 all counters of an EFA device were its port's; since then those of its commands are the device's."""


@pytest.mark.parametrize("folder", EFA)
def test_an_efa_device_whose_firmware_is_gone(folder: str, node: Any, fabric: InfiniBand) -> None:
    device = node.port("rdmap0s31/1").parent.parent  # its driver (efa_verbs.c) calls it ACTIVE and LinkUp for ever
    (device / folder).mkdir(exist_ok=True)
    lost = device / folder / "no_completion_cmds"
    lost.write_text("2")
    fabric.states()
    assert bad(fabric.counters(0.0)) == []
    lost.write_text("3")
    (found,) = [signal for signal in fabric.counters(15.0) if signal.bad]
    assert (found.kind, found.subject, found.value) == (kinds.EFA_UNRESPONSIVE, "rdmap0s31", "+1 in 5 min")
    shutil.rmtree(device)
    assert bad(fabric.states()) == [(kinds.IB_DEVICE_MISSING, "rdmap0s31")]


@pytest.mark.parametrize(
    ("source", "slow"),
    [("tsc", False), ("hpet", True), ("acpi_pm", True), ("kvm-clock", False), ("arch_sys_counter", False), ("", False)],
)
def test_the_clock_falls_back(source: str, slow: bool, node: Any) -> None:
    path = node.folder / "sys/devices/system/clocksource/clocksource0"
    path.mkdir(parents=True)
    (path / "current_clocksource").write_text(f"{source}\n")
    clock = ClockSource(node.folder / "sys")
    assert bad(clock.signals()) == ([(kinds.CLOCK_SOURCE, "")] if slow else [])


def test_the_kernel_says_why_the_clock_has_fallen_back(node: Any, run: Any) -> None:
    why = (
        "clocksource: timekeeping watchdog on CPU3: Marking clocksource 'tsc' as unstable because the skew is too "
        "large:"
    )
    path = node.folder / "sys/devices/system/clocksource/clocksource0"
    path.mkdir(parents=True)
    (path / "current_clocksource").write_text("tsc\n")
    agent = run()
    agent.wait_until_looking()
    node.log(why)
    agent.wait_for_log(1)
    (path / "current_clocksource").write_text("hpet\n")
    found = agent.wait_for(kinds.CLOCK_SOURCE)
    assert (found["value"], found["threshold"]) == ("hpet", "tsc")
    assert why in found["message"]


def test_the_agent_tells_of_hardware_errors_in_the_log(node: Any, run: Any) -> None:
    agent = run()
    agent.wait_until_looking()
    node.log("nvidia 0000:11:00.0: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Data Link Layer, (Receiver ID)")
    node.log("mlx5_core 0000:5e:00.0: PCIe Bus Error: severity=Correctable, type=Physical Layer, (Receiver ID)")
    node.log("EDAC MC1: 1 UE memory read error on CPU_SrcID#1_MC#0_Chan#0_DIMM#0 (channel:0 slot:0 page:0x7740c0)")
    wanted = {
        (kinds.AER_FATAL, "GPU-00000000-0000-4000-8000-000000000002"),
        (kinds.AER_CORRECTED, "PCI:0000:5e:00.0"),
        (kinds.HOST_UNCORRECTED, "MC1"),
    }
    agent.wait(lambda: {(item["kind"], item["subject"]) for item in agent.evidence} == wanted)


def device(node: Any, driver: str, *path: str) -> Path:
    """A PCIe device below its bridges, as sysfs has it."""
    place: Path = node.folder.joinpath("sys/devices/pci0000:00", *path)
    place.mkdir(parents=True)
    (node.folder / "sys/bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
    (place / "driver").symlink_to(node.folder / "sys/bus/pci/drivers" / driver)
    (node.folder / "sys/bus/pci/devices").mkdir(exist_ok=True)
    (node.folder / "sys/bus/pci/devices" / path[-1]).symlink_to(place)
    return place


# gpu-burn #1 (a port above a GPU, before its XID 79), and Linux, drivers/pci/pcie/dpc.c.
OF_BRIDGES = {
    "pcieport 0000:00:02.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, id=0010(Receiver "
    "ID)": True,
    "pcieport 0000:00:02.0: DPC: containment event, status:0x1f01 source:0x0000": True,
    (
        "pcieport 0000:00:02.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer, (Requester "
        "ID)"
    ): False,
    "pcieport 0000:00:03.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, id=0018(Receiver "
    "ID)": False,
}


@pytest.mark.parametrize("line", OF_BRIDGES)
def test_a_bridge_above_a_gpu_takes_it_away(line: str, node: Any, run: Any) -> None:
    gpu = device(node, "nvidia", "0000:00:02.0", "0000:01:00.0", "0000:11:00.0")
    device(node, "nvme", "0000:00:03.0", "0000:02:00.0")
    agent = run()
    agent.wait_until_looking()
    (node.folder / "sys/bus/pci/devices" / gpu.name).unlink()  # contained: it is gone before anybody looks
    node.log(line)
    kind = kinds.AER_FATAL if OF_BRIDGES[line] else kinds.AER_ELSEWHERE
    found = agent.wait_for(kind)
    assert found["subject"] == (f"PCI:{line[9:21]}" if OF_BRIDGES[line] else line[9:21])
    assert ("(above nvidia 0000:11:00.0)" in found["message"]) is OF_BRIDGES[line]
    assert sign_of(Evidence.model_validate(found), datetime.now(UTC)).severity == (
        "Fatal" if OF_BRIDGES[line] else "Warning"
    )


def test_of_many_devices_below_a_bridge_the_first_are_named(node: Any) -> None:
    for number in range(3):
        device(node, "nvidia", "0000:00:02.0", f"0000:0{number + 1}:00.0")
    bridges = Bridges(node.folder / "sys")
    bridges.inspect()
    bridges.inspect()
    assert bridges.below("0000:00:02.0") == "nvidia 0000:01:00.0, nvidia 0000:02:00.0 and 1 more"
    assert bridges.below("0000:00:03.0") == ""


def test_a_pcie_error_that_is_not_fatal_while_drivers_start(node: Any, run: Any) -> None:
    line = (
        "mlx5_core 0000:5e:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer, (Receiver "
        "ID)"
    )
    node.log(f"3,77,12000000,-;{line}")
    agent = run(thresholds={"hardware.expires": 1e9})
    agent.wait_until_looking()
    agent.wait_for_log(1)
    assert agent.evidence == []
    node.log(f"3,78,400000000,-;{line}")
    assert agent.wait_for(kinds.AER_UNCORRECTED)["subject"] == "PCI:0000:5e:00.0"


def test_garbage_in_sysfs_is_harmless(node: Any, fabric: InfiniBand) -> None:
    path: Path = node.port("mlx5_0/1", link_downed=1)
    fabric.states()
    (path / "state").write_bytes(b"\xff\x00")
    (path / "counters/link_downed").write_text("-5 apples")
    (path / "counters/symbol_error").mkdir()
    fabric.states()
    assert bad(fabric.counters(0.0)) == []


def test_a_port_whose_state_cannot_be_read_in_time_holds_nothing_up(node: Any, run: Any) -> None:
    path = node.port("mlx5_0/1")
    agent = run()
    agent.wait_until_looking()
    (path / "state").unlink()
    os.mkfifo(path / "state")  # opening it waits for somebody who writes
    agent.wait(lambda: agent.agent._infiniband._states.overdue_devices)
    node.faults("recovery_action=1@gpu1")
    agent.wait_for(kinds.RECOVERY_ACTION)
    agent.wait(agent.agent.is_alive)


def test_the_agent_tells_of_ports_and_disks(node: Any, run: Any) -> None:
    node.port("mlx5_0/1", link_downed=0)
    agent = run()
    agent.wait_until_looking()
    node.port("mlx5_0/1", "1: DOWN", "2: Polling", link_downed=1)
    node.mount(read_only=True)
    wanted = {kinds.IB_PORT_DOWN, kinds.IB_COUNTERS, kinds.READ_ONLY_FILESYSTEM}
    agent.wait(lambda: {item["kind"] for item in agent.evidence} == wanted)
    node.port("mlx5_0/1")
    node.mount(read_only=False)
    agent.wait(lambda: {item["kind"] for item in agent.evidence} == {kinds.IB_COUNTERS})


def test_the_agent_tells_of_a_fabric_manager_that_is_gone(node: Any, run: Any) -> None:
    agent = run()
    agent.wait_until_looking()
    assert agent.evidence == []
    (node.folder / "proc/driver/nvidia-nvswitch/devices/0000:c1:00.0").mkdir(parents=True)
    agent.wait_for(kinds.FABRIC_MANAGER)
    (node.folder / "proc/77").mkdir()
    (node.folder / "proc/77/comm").write_text("nv-fabricmanage\n")
    agent.wait_until_gone(kinds.FABRIC_MANAGER)

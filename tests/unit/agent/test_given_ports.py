"""Ports and devices that other software starts and stops, and those of the node's own network: in sysfs trees made of
files."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agent.test_infiniband import bad, ports_of

from muster.node.agent import kinds
from muster.node.agent.facts import Signal
from muster.node.agent.infiniband import InfiniBand
from muster.node.agent.interfaces import NodeNetwork

DOWN = ("1: DOWN", "3: Disabled")
ROUTES = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
ROUTES_6 = "{to} {length} 00000000000000000000000000000000 00 {by} 00000400 00000001 00000000 {flags} {name}\n"
NOWHERE, GATEWAY = "0" * 32, "fe80" + "0" * 27 + "1"


class Host:
    """The network cards of a node: PCIe functions with a driver, an RDMA device and an interface."""

    def __init__(self, node: Any) -> None:
        self.node = node
        self.sysfs: Path = node.folder / "sys"
        self.interfaces: dict[str, str] = {}

    def card(self, name: str, address: str, layer: str = "Ethernet", driver: str = "mlx5_core") -> None:
        """`name`: of the RDMA device; its interface is called after it."""
        place = self.pci(address)
        place.mkdir(parents=True)
        (self.sysfs / "bus/pci/devices").mkdir(parents=True, exist_ok=True)
        (self.sysfs / "bus/pci/devices" / address).symlink_to(place)
        (place / "vendor").write_text("0x15b3\n")
        (place / "class").write_text("0x020000\n")
        (place / "driver_override").write_text("(null)\n")
        self.bind(address, driver)
        self.appear(name, address, layer)
        if layer == "Ethernet":
            self.interface(name, address, f"eth_{name}")

    def pci(self, address: str) -> Path:
        return self.sysfs / "devices/pci0000:00" / address

    def bind(self, address: str, driver: str) -> None:
        """To another driver, or to none."""
        (self.pci(address) / "driver").unlink(missing_ok=True)
        if driver:
            (self.pci(address) / "driver").symlink_to(self.sysfs / "bus/pci/drivers" / driver)

    def appear(self, name: str, address: str, layer: str = "Ethernet") -> None:
        """The RDMA device is in the host's namespace, and up."""
        port = self.node.port(f"{name}/1")
        (port / "link_layer").write_text(f"{layer}\n")
        (self.sysfs / "class/infiniband" / name / "device").symlink_to(self.pci(address))

    def vanish(self, name: str) -> None:
        shutil.rmtree(self.sysfs / "class/infiniband" / name)

    def verbs(self, name: str, address: str) -> None:
        """As the class without namespaces has it."""
        place = self.sysfs / "class/infiniband_verbs" / f"uverbs_{name}"
        place.mkdir(parents=True)
        (place / "ibdev").write_text(f"{name}\n")
        (place / "device").symlink_to(self.pci(address))

    def interface(self, name: str, address: str, interface: str, label: str = "p0") -> None:
        """An interface that is on; `label`: which port of its card it is."""
        (self.pci(address) / "net" / interface).mkdir(parents=True)
        place = self.sysfs / "class/net" / interface
        place.mkdir(parents=True)
        (place / "flags").write_text("0x1003\n")
        (place / "phys_port_name").write_text(f"{label}\n")
        self.interfaces[name] = interface

    def switch(self, name: str, *, on: bool) -> None:
        (self.sysfs / "class/net" / self.interfaces[name] / "flags").write_text("0x1003\n" if on else "0x1002\n")
        self.node.port(f"{name}/1", *(() if on else DOWN))

    def give_interface(self, name: str, address: str) -> None:
        """It goes into the network namespace of a pod."""
        shutil.rmtree(self.pci(address) / "net" / self.interfaces[name])
        shutil.rmtree(self.sysfs / "class/net" / self.interfaces[name])
        self.node.port(f"{name}/1", *DOWN)

    def route(self, *interfaces: str) -> None:
        """The node's default routes."""
        folder = self.node.folder / "proc/1/net"
        folder.mkdir(exist_ok=True)
        lines = [f"{name}\t00000000\t0102000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n" for name in interfaces]
        other = "eth_mlx5_0\t0000010A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n"
        (folder / "route").write_text(ROUTES + "".join(lines) + other)


@pytest.fixture
def host(node: Any) -> Host:
    return Host(node)


def address(number: int) -> str:
    return f"0000:{number + 16:02x}:00.0"


def cards(host: Host, count: int, layer: str = "Ethernet") -> None:
    for number in range(count):
        host.card(f"mlx5_{number}", address(number), layer)


def kept(signals: list[Signal]) -> list[tuple[str, str]]:
    """Bad for so short a time that it may be an interface that is being switched off."""
    return [(signal.kind, signal.subject) for signal in signals if signal.bad and not signal.sustain_seconds]


def sustain(signals: list[Signal], kind: str) -> float:
    (found,) = [signal.sustain_seconds for signal in signals if signal.bad and signal.kind == kind]
    return found


def test_an_interface_in_a_pod_s_namespace_says_nothing(node: Any, host: Host) -> None:
    cards(host, 2)
    fabric = ports_of(node)
    fabric.states()
    host.give_interface("mlx5_0", address(0))
    assert bad(fabric.states()) == []


def test_an_interface_that_is_switched_off_is_no_port_that_has_failed(node: Any, host: Host) -> None:
    """As it comes back from a pod that has ended."""
    cards(host, 2)
    fabric = ports_of(node)
    fabric.states()
    host.switch("mlx5_0", on=False)
    (found,) = [signal for signal in fabric.states() if signal.bad]
    assert (found.kind, found.subject, found.value) == (kinds.IB_PORT_OFF, "mlx5_0/1", "eth_mlx5_0 is switched off")
    host.switch("mlx5_0", on=True)
    assert bad(fabric.states()) == []


def test_a_port_of_ethernet_that_has_lost_its_link_is_told_after_some_seconds(node: Any, host: Host) -> None:
    """Its state goes before the flag of its interface does, when that is switched off."""
    cards(host, 2)
    fabric = ports_of(node)
    fabric.states()
    node.port("mlx5_0/1", *DOWN)
    found = fabric.states()
    assert bad(found) == [(kinds.IB_PORT_DOWN, "mlx5_0/1")]
    assert kept(found) == []


def test_a_port_of_infiniband_is_told_at_once(node: Any, host: Host) -> None:
    cards(host, 2, "InfiniBand")
    fabric = ports_of(node)
    fabric.states()
    node.port("mlx5_0/1", *DOWN)
    assert kept(fabric.states()) == [(kinds.IB_PORT_DOWN, "mlx5_0/1")]


def test_a_port_that_pods_take_and_give_back_does_not_flap(node: Any, host: Host) -> None:
    cards(host, 2)
    fabric = ports_of(node)
    for hour in range(6):
        host.switch("mlx5_0", on=True)
        fabric.states()
        node.port("mlx5_0/1", *DOWN)  # a look in the moment before its flag goes
        fabric.states()
        host.switch("mlx5_0", on=False)
        fabric.states()
        assert not [found for found in fabric.counters(hour * 3600.0) if found.bad]


def test_a_link_of_ethernet_that_comes_and_goes_flaps(node: Any, host: Host) -> None:
    cards(host, 2)
    fabric = ports_of(node)
    for hour in range(4):
        node.port("mlx5_0/1", *DOWN)
        fabric.states()
        node.port("mlx5_0/1")
        fabric.states()
        flaps = [found.bad for found in fabric.counters(hour * 3600.0) if found.kind == kinds.IB_PORT_FLAP]
        assert any(flaps) is (hour == 3)


def test_representors_of_virtual_functions_are_no_interface_of_a_port(node: Any, host: Host) -> None:
    cards(host, 1)
    host.interface("of a function", address(0), "eth_mlx5_0v3", "pf0vf3")
    fabric = ports_of(node)
    fabric.states()
    (host.sysfs / "class/net/eth_mlx5_0v3/flags").write_text("0x1002\n")
    node.port("mlx5_0/1", *DOWN)
    assert bad(fabric.states()) == [(kinds.IB_PORT_DOWN, "mlx5_0/1")]
    host.give_interface("mlx5_0", address(0))
    assert bad(fabric.states()) == []


@pytest.mark.parametrize("name", ["mlx5_0", "net1"], ids=["its own name", "another one"])
def test_a_device_in_a_pod_s_rdma_namespace_is_not_gone(name: str, node: Any, host: Host) -> None:
    cards(host, 2, "InfiniBand")
    fabric = ports_of(node)
    fabric.states()
    host.vanish("mlx5_0")
    host.verbs("mlx5_1", address(1))
    assert bad(fabric.states()) == [(kinds.IB_DEVICE_MISSING, "mlx5_0")]
    host.verbs(name, address(0))
    assert bad(fabric.states()) == []
    host.vanish("mlx5_1")
    shutil.rmtree(host.sysfs / "class/infiniband_verbs/uverbs_mlx5_1")
    assert (kinds.IB_DEVICE_MISSING, "mlx5_1") in bad(fabric.states())


def test_a_virtual_function_in_a_pod_s_namespace_explains_no_device_that_is_gone(node: Any, host: Host) -> None:
    cards(host, 2, "InfiniBand")
    fabric = ports_of(node)
    fabric.states()
    host.vanish("mlx5_0")
    (host.pci("0000:10:00.2") / "physfn").mkdir(parents=True)
    host.verbs("mlx5_8", "0000:10:00.2")
    assert bad(fabric.states()) == [(kinds.IB_DEVICE_MISSING, "mlx5_0")]


def test_a_subfunction_belongs_to_who_uses_it(node: Any, host: Host) -> None:
    cards(host, 1)
    place = host.pci(address(0)) / "mlx5_core.sf.4"
    place.mkdir()
    node.port("mlx5_4/1")
    (host.sysfs / "class/infiniband/mlx5_4/device").symlink_to(place)
    fabric = ports_of(node)
    fabric.states()
    host.vanish("mlx5_4")
    assert bad(fabric.states()) == []


@pytest.mark.parametrize("driver", ["vfio-pci", "mlx5_vfio_pci", "pci-stub"])
def test_a_device_that_a_virtual_machine_has_is_not_gone(driver: str, node: Any, host: Host) -> None:
    cards(host, 2)
    fabric = ports_of(node)
    fabric.states()
    host.vanish("mlx5_0")
    host.bind(address(0), driver)
    assert bad(fabric.states()) == []
    again = ports_of(node)  # an agent that starts later knows how many there were
    again.adopt([], [], 2)
    assert bad(again.states()) == []


def test_a_device_that_is_being_given_to_a_virtual_machine_is_not_gone(node: Any, host: Host) -> None:
    cards(host, 2)
    fabric = ports_of(node)
    fabric.states()
    host.vanish("mlx5_0")
    host.bind(address(0), "")
    (host.pci(address(0)) / "driver_override").write_text("vfio-pci\n")
    assert bad(fabric.states()) == []


def test_a_device_without_a_driver_is_given_time_to_get_one(node: Any, host: Host) -> None:
    cards(host, 2)
    fabric = ports_of(node)
    fabric.states()
    host.vanish("mlx5_0")
    assert sustain(fabric.states(), kinds.IB_DEVICE_MISSING) == 3
    host.bind(address(0), "")
    assert sustain(fabric.states(), kinds.IB_DEVICE_MISSING) == 900
    shutil.rmtree(host.pci(address(0)))
    assert sustain(fabric.states(), kinds.IB_DEVICE_MISSING) == 3


@pytest.mark.parametrize("expected", [None, 4])
def test_what_is_elsewhere_is_not_counted_as_missing(expected: int | None, node: Any, host: Host) -> None:
    """Also by an agent that starts when it is there already."""
    cards(host, 4)
    before = ports_of(node, expected=expected)
    before.states()
    host.switch("mlx5_1", on=False)
    host.vanish("mlx5_2")
    host.verbs("mlx5_2", address(2))
    after = ports_of(node, expected=expected)
    after.adopt([], [], 4 if expected is None else 0)
    for fabric in (before, after):
        assert (kinds.IB_PORT_DOWN, "") not in bad(fabric.states())
    host.vanish("mlx5_3")
    wanted = (kinds.IB_DEVICE_MISSING, "mlx5_3") if expected is None else (kinds.IB_PORT_DOWN, "")
    assert wanted in bad(after.states())


def test_a_port_that_did_not_come_up_after_a_boot_is_counted(node: Any, host: Host) -> None:
    cards(host, 3)
    node.port("mlx5_1/1", *DOWN)
    fabric = ports_of(node)
    fabric.adopt([], [], 3)
    assert bad(fabric.states()) == [(kinds.IB_PORT_DOWN, "")]


def routed(node: Any, host: Host, count: int, *interfaces: str) -> tuple[InfiniBand, NodeNetwork]:
    cards(host, count)
    host.route(*interfaces)
    network = NodeNetwork(host.sysfs, node.folder / "proc")
    network.inspect()
    fabric = ports_of(node)
    fabric._network = network
    fabric.states()
    return fabric, network


def test_a_port_of_the_node_s_own_network_is_no_training_port(node: Any, host: Host) -> None:
    fabric, network = routed(node, host, 3, "eth_mlx5_2")
    node.port("mlx5_2/1", *DOWN)
    (found,) = [signal for signal in fabric.states() if signal.bad]
    assert (found.kind, found.subject) == (kinds.FRONT_END_DOWN, "mlx5_2/1")
    assert "default route" in found.message
    host.route()  # they go with the link
    network.inspect()
    assert bad(fabric.states()) == [(kinds.FRONT_END_DOWN, "mlx5_2/1")]
    host.route("eno1")  # and another one is left
    network.inspect()
    assert bad(fabric.states()) == [(kinds.FRONT_END_DOWN, "mlx5_2/1")]
    host.vanish("mlx5_2")
    assert bad(fabric.states()) == [(kinds.FRONT_END_DOWN, "mlx5_2")]
    node.port("mlx5_1/1", *DOWN)
    assert (kinds.IB_PORT_DOWN, "mlx5_1/1") in bad(fabric.states())


def test_a_port_below_a_bond_and_a_vlan_carries_the_route(node: Any, host: Host) -> None:
    net = host.sysfs / "class/net"
    (net / "bond0.7/lower_bond0").mkdir(parents=True)
    for name in ("eth_mlx5_3", "eth_mlx5_4"):
        (net / f"bond0/lower_{name}").mkdir(parents=True)
    fabric, _ = routed(node, host, 5, "bond0.7")
    node.port("mlx5_4/1", *DOWN)
    assert bad(fabric.states()) == [(kinds.FRONT_END_DOWN, "mlx5_4/1")]


def test_where_training_and_the_node_share_their_ports_all_count(node: Any, host: Host) -> None:
    fabric, _ = routed(node, host, 2, "eth_mlx5_0")
    node.port("mlx5_0/1", *DOWN)
    assert bad(fabric.states()) == [(kinds.IB_PORT_DOWN, "mlx5_0/1")]


def test_a_port_of_the_node_s_own_network_neither_flaps_nor_counts_errors(node: Any, host: Host) -> None:
    fabric, _ = routed(node, host, 3, "eth_mlx5_2")
    for hour in range(5):
        node.port("mlx5_2/1", link_downed=hour, symbol_error=hour * 10**6)
        fabric.states()
        assert bad(fabric.counters(hour * 3600.0)) == []


@pytest.mark.parametrize(
    ("to", "length", "flags", "name", "found"),
    [
        (NOWHERE, "00", "00000003", "eth7", True),
        (NOWHERE, "00", "00200200", "eth7", False),  # it refuses
        (NOWHERE, "00", "00000001", "lo", False),
        (GATEWAY, "80", "00000005", "eth7", False),
    ],
)
def test_a_default_route_of_ipv6(
    to: str, length: str, flags: str, name: str, found: bool, node: Any, host: Host
) -> None:
    host.route()
    line = ROUTES_6.format(to=to, length=length, by=GATEWAY, flags=flags, name=name)
    (node.folder / "proc/1/net/ipv6_route").write_text(line)
    network = NodeNetwork(host.sysfs, node.folder / "proc")
    network.inspect()
    assert network.interfaces == (frozenset({name}) if found else frozenset())


def test_the_agent_tells_of_its_ports_and_what_was_known_of_them(node: Any, host: Host, run: Any) -> None:
    cards(host, 3)
    host.route("eth_mlx5_2")
    agent = run()
    agent.wait_until_looking()
    up = ["mlx5_0/1", "mlx5_1/1", "mlx5_2/1"]
    agent.wait(lambda: (agent.status["agent"]["portsUp"], agent.status["agent"]["portsExpectedUp"]) == (up, up))
    node.port("mlx5_2/1", *DOWN)
    agent.wait_until_looking()
    agent.look_for(4.0)
    assert [(item["kind"], item["subject"]) for item in agent.evidence] == [(kinds.FRONT_END_DOWN, "mlx5_2/1")]
    assert (agent.status["agent"]["portsUp"], agent.status["agent"]["portsExpectedUp"]) == (up[:2], up)
    host.route()
    before = agent.status
    agent.stop()
    later = run(stored=before)
    later.wait(lambda: later.wrote.offers)
    later.look_for(4.0)
    assert [(item["kind"], item["subject"]) for item in later.evidence] == [(kinds.FRONT_END_DOWN, "mlx5_2/1")]
    assert later.status["agent"]["portsExpectedUp"] == up

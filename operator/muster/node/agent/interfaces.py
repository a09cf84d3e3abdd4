"""Finds out what other software does with the network devices of a node, from sysfs and procfs.

A device can be given to a pod or a virtual machine, and its interface switched off: all of that is done on purpose, and
none of it is a fault. A device in an RDMA namespace of its own is not in `class/infiniband` of the host, and still in
`infiniband_verbs`, a class without namespaces (drivers/infiniband/core/uverbs_main.c). A device of a virtual machine is
bound to a pass-through driver.

Tests: tests/unit/agent/test_given_ports.py.
"""

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

_VERBS = "class/infiniband_verbs"
_PCI = "bus/pci/devices"
_NET = "class/net"
_HANDING_OUT = frozenset({"vfio-pci", "mlx5_vfio_pci", "pci-stub", "xen-pciback", "uio_pci_generic", "igb_uio"})
"""Drivers that give a device to a program or a virtual machine."""
_MELLANOX = "0x15b3"
_PCI_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_SUBFUNCTION = re.compile(r"\.sf\.\d+$")
_UPLINK = re.compile(r"p\d+|")
"""The names of a port in its card; names of the representors of virtual functions are longer (`pf0vf3`). Most cards
have none."""
_UP, _RTF_UP, _RTF_REJECT = 0x1, 0x1, 0x200
_MOST_BYTES, _MOST_NAMES, _MOST_LAYERS = 1024 * 1024, 4096, 8


class Handed:
    """Where the RDMA devices of one machine are while the host does not have them."""

    def __init__(self, sysfs: Path) -> None:
        self._sysfs = sysfs
        self._addresses: dict[str, str] = {}

    def is_made_by_software(self, device: str) -> bool:
        """Whether software creates and removes the device: a virtual function or a subfunction."""
        place = self._sysfs / "class/infiniband" / device / "device"
        target = _target(place)
        if _PCI_ADDRESS.fullmatch(target):
            self._addresses[device] = target
        return _is_made_by_software(place)

    def in_namespaces(self) -> dict[str, str]:
        """Return the PCI addresses of the devices in RDMA namespaces other than the host's, by their names there,
        without virtual functions."""
        host_devices = set(_names(self._sysfs / "class/infiniband"))
        addresses = {}
        for entry in _names(self._sysfs / _VERBS):
            place = self._sysfs / _VERBS / entry
            name = _read_text(place / "ibdev")
            if name and name not in host_devices and not _is_made_by_software(place / "device"):
                addresses[name] = _target(place / "device")
        return addresses

    def is_among(self, device: str, elsewhere: Mapping[str, str]) -> bool:
        """Whether a vanished device is one of those of `in_namespaces`: a pod may have renamed it."""
        address = self._addresses.get(device)
        return device in elsewhere if address is None else address in elsewhere.values()

    def is_given_away(self, device: str) -> bool:
        """Whether a vanished device is still on the bus, and bound to a pass-through driver."""
        address = self._addresses.get(device)
        return address is not None and _is_handed_out(self._sysfs / _PCI / address)

    def is_without_driver(self, device: str) -> bool:
        """Whether a vanished device is still on the bus without a driver: the kernel by itself unbinds none."""
        address = self._addresses.get(device)
        place = self._sysfs / _PCI / (address or "")
        return address is not None and place.exists() and not _target(place / "driver")

    def unknown(self, taken_devices: Collection[str]) -> int:
        """Return how many devices elsewhere were never seen here: in namespaces, or Mellanox network cards with
        programs or virtual machines. `taken_devices`: those that were seen."""
        seen_addresses = set(self._addresses.values())
        elsewhere = sum(
            name not in taken_devices and address not in seen_addresses
            for name, address in self.in_namespaces().items()
        )
        return elsewhere + sum(
            address not in seen_addresses
            and _is_handed_out(place := self._sysfs / _PCI / address)
            and _read_text(place / "vendor") == _MELLANOX
            and _read_text(place / "class").startswith("0x02")
            and not (place / "physfn").exists()
            for address in _names(self._sysfs / _PCI)
        )


class NodeNetwork:
    """The interfaces that carry the node's default routes: its own network, that of the kubelet."""

    def __init__(self, sysfs: Path, proc: Path) -> None:
        self._net = sysfs / _NET
        self._proc = proc
        self.interfaces: frozenset[str] = frozenset()
        """These interfaces and their parts: the ports of a bond, the interface below a VLAN. Empty: nothing is known
        now."""
        self.looks = 0

    def inspect(self) -> None:
        """Read the present routes and interfaces."""
        interfaces = set(_default_routes(self._proc))
        new = interfaces
        for _ in range(_MOST_LAYERS):
            new = {below for name in new for below in self._below(name)} - interfaces
            interfaces |= new
        self.interfaces = frozenset(interfaces)
        self.looks += 1

    def _below(self, interface: str) -> Iterator[str]:
        for name in _names(self._net / interface):
            if name.startswith("lower_"):
                yield name.removeprefix("lower_")


def interfaces_of(sysfs: Path, device: str) -> list[str]:
    """Return the interfaces of an RDMA device in the host's network namespace."""
    return _names(sysfs / "class/infiniband" / device / "device/net")


def without_representors(sysfs: Path, interfaces: Iterable[str]) -> list[str]:
    """Return those of the interfaces that belong to a port itself. The read waits for programs that configure the
    network, so it is not for each poll."""
    return [name for name in interfaces if _UPLINK.fullmatch(_read_text(sysfs / _NET / name / "phys_port_name"))]


def switched_off(sysfs: Path, interfaces: Iterable[str]) -> str:
    """Return the first of these interfaces that was switched off by software; "": none."""
    for name in interfaces:
        flags = _read_text(sysfs / _NET / name / "flags")
        if flags.startswith("0x") and not int(flags, 16) & _UP:
            return name
    return ""


def _default_routes(proc: Path) -> Iterator[str]:
    for line in _text(proc / "1/net/route").splitlines()[1:]:
        fields = line.split()
        if len(fields) > 7 and fields[1] == fields[7] == "00000000" and _is_up(fields[3]):
            yield fields[0]
    for line in _text(proc / "1/net/ipv6_route").splitlines():
        fields = line.split()
        if (
            len(fields) > 9
            and fields[0].strip("0") == ""
            and fields[1] == "00"
            and fields[9] != "lo"
            and _is_up(fields[8])
        ):
            yield fields[9]


def _is_up(flags: str) -> bool:
    try:
        number = int(flags, 16)
    except ValueError:
        return False
    return bool(number & _RTF_UP) and not number & _RTF_REJECT


def _is_made_by_software(device: Path) -> bool:
    return (device / "physfn").exists() or _SUBFUNCTION.search(_target(device)) is not None


def _is_handed_out(place: Path) -> bool:
    driver = _target(place / "driver")
    return driver in _HANDING_OUT or (not driver and _read_text(place / "driver_override") in _HANDING_OUT)


def _target(link: Path) -> str:
    try:
        return os.path.basename(os.readlink(link))  # noqa: PTH115, PTH119
    except OSError:
        return ""


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))[:_MOST_NAMES]  # noqa: PTH208
    except OSError:
        return []


def _text(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return stream.read(_MOST_BYTES).decode("ascii", "replace")
    except OSError:
        return ""


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return stream.read(256).decode("ascii", "replace").strip()
    except OSError:
        return ""

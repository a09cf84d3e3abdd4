"""Monitors InfiniBand, RoCE and EFA ports, from sysfs.

A port counts by its name once it has been up in this boot: an unplugged one is no fault. From before the boot only the
number of ports counts. Names follow the order in which the kernel finds the cards: with one card fewer all others may
have other names.

What other software starts and stops on purpose is no fault: a port whose interface is switched off or in a pod's
network namespace, a device in another RDMA namespace or given to a virtual machine. The port of the node's own network
carries no training.
"""

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from muster.node.agent import kinds
from muster.node.agent.apart import Apart
from muster.node.agent.facts import Signal, clean
from muster.node.agent.interfaces import Handed, NodeNetwork, interfaces_of, switched_off, without_representors
from muster.node.agent.rates import Windows
from muster.node.agent.thresholds import Thresholds

_CLASS = "class/infiniband"
_MAX_PORTS = 128
_FIVE_MINUTES, _MINUTE, _SAMPLE = 300.0, 60.0, 0.01
_ANY_INCREASE = (
    ("counters", "link_downed"),
    ("counters", "excessive_buffer_overrun_errors"),
    ("counters", "local_link_integrity_errors"),
    ("hw_counters", "rnr_nak_retry_err"),
)
_RATES = (
    ("counters", "symbol_error"),
    ("counters", "link_error_recovery"),
    ("counters", "port_rcv_errors"),
    ("counters", "port_xmit_discards"),
    ("hw_counters", "local_ack_timeout_err"),
    ("hw_counters", "roce_slow_restart"),
)

_OF_OTHERS = frozenset({"rnr_nak_retry_err", "local_ack_timeout_err", "port_xmit_discards", "roce_slow_restart"})
"""Counters that every port increases when a peer has died or the fabric is congested: they count as one occurrence at
most."""


_LOST_COMMANDS = "no_completion_cmds"


@dataclass(frozen=True)
class Port:
    """The state of one port at one poll."""

    name: str
    """`mlx5_0/1`"""
    state: str
    physical: str
    ethernet: bool = False
    interfaces: tuple[str, ...] = ()
    """For Ethernet: the port's interfaces in the host's network namespace."""
    off: str = ""
    """For a port that is not up: its interface that was switched off by software."""
    away: bool = False
    """For a port that is not up: whether its interface is in another network namespace."""

    @property
    def up(self) -> bool:
        """Whether the port can carry traffic. A port that reports no physical state counts by its logical state."""
        return self.state == "ACTIVE" and self.physical in ("LinkUp", "")

    @property
    def linked(self) -> bool:
        """Whether the port's link is up; a missing subnet manager is no fault of the link."""
        return self.state != "DOWN" and self.physical in ("LinkUp", "")

    @property
    def released(self) -> bool:
        """Whether software has switched the port off, or has given it to a pod."""
        return bool(self.off) or self.away


class InfiniBand:
    """The ports of this node. `states` and `counters` are called by one thread.

    Args:
        sysfs: where /sys is.
        thresholds: of the counters.
        expected_ports: the configured number of ports that must be up; None: as many as were up before.
        network: the node's own network.
        apart: reads the devices.
    """

    def __init__(
        self,
        sysfs: Path,
        thresholds: Thresholds,
        expected_ports: int | None,
        network: NodeNetwork,
        apart: type[Apart[Any]] = Apart,
    ) -> None:
        self._sysfs = sysfs
        self._root = sysfs / _CLASS
        self._network = network
        self._handed = Handed(sysfs)
        self._front_end: frozenset[str] = frozenset()
        self._adopted_own: frozenset[str] = frozenset()
        self._fell: set[str] = set()
        self._own: set[str] = set()
        # by device of a pod or virtual machine: the poll of the network that found it
        self._elsewhere: dict[str, int] = {}
        self._excuse, self._unknown = (-1, 0), 0
        self._layers: dict[str, str] = {}  # by port; it changes only when the device goes and comes back
        # by device, with the poll of the network that found them
        self._interfaces: dict[str, tuple[int, tuple[str, ...]]] = {}
        self._thresholds = thresholds
        self._expected_ports = expected_ports
        self._windows = Windows()
        self._been_up: set[str] = set()
        self._adopted: frozenset[str] = frozenset()
        self._flapping: set[str] = set()
        self._last_down: dict[str, float] = {}
        self._downs: Counter[str] = Counter()
        self._linked: set[str] = set()
        self._met: set[str] = set()
        self._states: Apart[list[Port]] = apart(self._ports_of, thresholds["sysfs.device_wait"])
        self._counters: Apart[Mapping[str, Mapping[str, float]]] = apart(
            self._counters_of, thresholds["sysfs.device_wait"]
        )
        self.up = 0
        """The number of ports that are up now."""
        self.seen = 0
        """The largest number of ports that were up at once, as far as is known."""
        self.up_names: tuple[str, ...] = ()
        """The ports that are up now."""
        self.had_names: tuple[str, ...] = ()
        """The names of the ports at the time when the most ports with known names were up."""
        self.unseen: frozenset[str] = frozenset()
        """Devices that are there and have never been read, because the read does not end."""

    def adopt(
        self,
        missed: Iterable[str],
        flapped: Iterable[str],
        seen: int,
        had_names: Iterable[str] = (),
        front_end: Iterable[str] = (),
    ) -> None:
        """Take over what an earlier agent knew. Any thread may call it.

        Args:
            missed: ports and devices that were missing in this boot or before: they were up once.
            flapped: ports that went up and down in this boot.
            seen: how many were up at once.
            had_names: the names of those that were up at once.
            front_end: ports and devices of the node's own network that were missing in this boot.
        """
        missed_ports = sorted(subject if "/" in subject else f"{subject}/?" for subject in missed if subject)
        self._adopted = frozenset(missed_ports[:_MAX_PORTS])
        self._flapping |= set(flapped)
        self._met = set()
        self.seen = max(self.seen, min(seen, _MAX_PORTS))
        names = tuple(had_names)[:_MAX_PORTS]
        self.had_names = names if len(names) > len(self.had_names) else self.had_names
        self._adopted_own = frozenset(front_end)

    def states(self) -> list[Signal]:
        """Return signals about which ports are up, and which devices are gone."""
        devices = self._devices()
        ports_by_device = self._states.each(devices)
        read = {device: ports_by_device[device] for device in devices if device in ports_by_device}
        held = self._states.overdue_devices.keys() | self._counters.overdue_devices.keys()
        self._met |= read.keys()
        self.unseen = frozenset(devices) - self._met
        ports = [port for device in read for port in read[device]][:_MAX_PORTS]
        for port in ports:
            self._watch_link(port)
        self._been_up |= {port.name for port in ports if port.up} | self._adopted
        self._front_end = self._node_s_own(ports)
        bound_devices = {device for device in devices if read.get(device) != []}
        for name in [name for name in list(self._layers) if _device(name) not in bound_devices]:
            self._layers.pop(name, None)
        gone_devices = {_device(name) for name in self._been_up} - bound_devices
        taken_devices = self._taken(gone_devices)
        return [
            *self._port_signals(ports),
            *self._device_signals(gone_devices, taken_devices),
            *([] if set(devices) - read.keys() else self._count_signal(ports, gone_devices, taken_devices)),
            *(self._hang(device, hangs=True) for device in sorted(held)),
            *(self._hang(device, hangs=False) for device in sorted(read.keys() - held)),
        ]

    def _hang(self, device: str, *, hangs: bool) -> Signal:
        limit = self._thresholds["sysfs.deadline"]
        return Signal(
            kinds.SYSFS_HANG,
            device,
            hangs,
            value=f"more than {limit:g} s",
            threshold=f"{limit:g} s",
            message=f"reading {device} in /sys/class/infiniband hangs: the state of its ports is unknown",
            sustain_seconds=limit,
            clear_seconds=self._thresholds["infiniband.clear"],
        )

    def _watch_link(self, port: Port) -> None:
        """Count that a port has lost its link. An interface that is switched off looks the same for a moment, so the
        next poll decides."""
        if port.name in self._fell:
            self._fell.discard(port.name)
            self._downs[port.name] += not port.released
        if port.linked:
            self._linked.add(port.name)
        elif port.name in self._linked:
            self._linked.discard(port.name)
            if port.ethernet:
                self._fell.add(port.name)
            else:
                self._downs[port.name] += 1

    def _node_s_own(self, ports: list[Port]) -> frozenset[str]:
        """Return the ports of the node's own network: they carry a default route, and most ports do not.

        A port that is down stays in its group, because its routes may have gone with its link. So does a port whose
        device is gone.
        """
        now = {port.name for port in ports}
        previous_names = self._front_end | self._adopted_own
        if not self._network.interfaces:
            return previous_names
        carrying = {
            port.name
            for port in ports
            if not self._network.interfaces.isdisjoint(port.interfaces) or (not port.up and port.name in previous_names)
        }
        others = self._been_up - carrying
        present_devices = {_device(name) for name in now}
        kept = {name for name in previous_names if _device(name) not in present_devices}
        return frozenset((carrying if len(others) > len(carrying) else set()) | kept)

    def _port_signals(self, ports: list[Port]) -> Iterator[Signal]:
        for port in ports:
            if port.name in self._been_up:
                state = clean(", ".join(filter(None, (port.state, port.physical))), 64)
                down = not port.up and not port.released
                closing = self._thresholds["infiniband.closing"] if port.ethernet else 0.0
                yield from self._down(
                    kinds.IB_PORT_DOWN,
                    port.name,
                    down,
                    f"InfiniBand port {port.name} is {state}",
                    max(closing, self._thresholds["infiniband.down"]),
                    state,
                )
                if port.ethernet:
                    yield self._off(port)

    def _off(self, port: Port) -> Signal:
        return Signal(
            kinds.IB_PORT_OFF,
            port.name,
            bool(port.off),
            value=f"{port.off} is switched off" if port.off else "",
            message=(
                f"the interface {port.off} of port {port.name} is switched off: no job can use the port until it is on"
            ),
            sustain_seconds=self._thresholds["infiniband.off"],
        )

    def _down(
        self, kind: str, subject: str, bad: bool, message: str, sustain: float, state: str = ""
    ) -> Iterator[Signal]:
        """Yield that a port or a device cannot be used. For the node's own network the evidence has another kind."""
        own = subject in self._front_end or any(_device(name) == subject for name in self._front_end)
        if own:
            self._own.add(subject)
        signals = [(kind, not own), (kinds.FRONT_END_DOWN, own)] if subject in self._own else [(kind, True)]
        for signal_kind, is_of_kind in signals:
            yield Signal(
                signal_kind,
                subject,
                bad and is_of_kind,
                value=state,
                threshold="ACTIVE, LinkUp" if state else "",
                message=f"{message}; it carries the node's default route" if own else message,
                sustain_seconds=sustain,
                clear_seconds=self._thresholds["infiniband.clear"],
            )

    def _taken(self, gone_devices: set[str]) -> set[str]:
        """Return the devices that are not gone but elsewhere: in the RDMA namespace of a pod, or with a virtual
        machine."""
        looks = self._network.looks  # devices elsewhere are searched for again with each poll of the network
        self._elsewhere = {
            device: when for device, when in self._elsewhere.items() if device in gone_devices and when == looks
        }
        if gone_devices - self._elsewhere.keys():
            elsewhere = self._handed.in_namespaces()
            for device in gone_devices - self._elsewhere.keys():
                if self._handed.is_among(device, elsewhere) or self._handed.is_given_away(device):
                    self._elsewhere[device] = looks
        return set(self._elsewhere)

    def _device_signals(self, gone_devices: Collection[str], taken_devices: Collection[str]) -> Iterator[Signal]:
        for device in sorted({_device(name) for name in self._been_up}):
            missing = device in gone_devices and device not in taken_devices
            unbound = missing and self._handed.is_without_driver(device)
            yield from self._down(
                kinds.IB_DEVICE_MISSING,
                device,
                missing,
                f"InfiniBand device {device} {'has no driver' if unbound else 'is missing'}",
                self._thresholds["infiniband.unloaded" if unbound else "infiniband.missing"],
            )

    def _count_signal(
        self, ports: list[Port], gone_devices: Collection[str], taken_devices: Collection[str]
    ) -> Iterator[Signal]:
        """Yield whether fewer ports are up than there should be. Ports missing by name have signals of their own,
        unless the number is configured."""
        names = tuple(sorted(port.name for port in ports if port.up))
        self.up_names, self.up = names, (up := len(names))
        self.seen = max(self.seen, up)
        if up >= len(self.had_names):
            self.had_names = names
        down = {port.name for port in ports if not port.up}
        excused = {port.name for port in ports if port.released}
        expected, source = self.seen, "the machine has had"
        sustain = self._thresholds["boot.grace"]  # after a boot they come up one after the other
        if self._expected_ports is None:
            excused |= {name for name in self._been_up if name in down or _device(name) in gone_devices}
        else:
            excused |= {name for name in self._been_up if _device(name) in taken_devices}
            expected, source = self._expected_ports, "the configuration has"
            sustain = self._thresholds["infiniband.missing"]
        missing = expected - up - len(excused)
        if missing > 0:  # these may be elsewhere since before this agent started
            if self._excuse != (self._network.looks, missing):
                self._excuse = self._network.looks, missing
                self._unknown = self._handed.unknown(taken_devices)
            missing -= self._unknown
        if expected:
            yield Signal(
                kinds.IB_PORT_DOWN,
                "",
                missing > 0,
                value=f"{up} ports up",
                threshold=f"{expected} ports up",
                message=f"{up} InfiniBand ports are up, {source} {expected}",
                sustain_seconds=sustain,
                clear_seconds=self._thresholds["infiniband.clear"],
            )

    def counters(self, mono: float) -> list[Signal]:
        """Return signals from the counters of the present ports."""
        read = self._counters.each(self._devices())
        signals: list[Signal] = []
        for device in sorted(read):
            of_device = read[device].get("", {})
            for name in sorted(read[device].keys() - {""} - self._front_end):
                signals += self._of_port(name, read[device][name], mono)
            signals += self._efa(device, of_device, mono)
        return signals

    def _of_port(self, name: str, values: Mapping[str, float], mono: float) -> Iterator[Signal]:
        wrong = []
        for _, counter in _ANY_INCREASE:
            value = values.get(counter)
            if value is None:
                continue
            grown, _ = self._windows.increase(f"{name} {counter}", value, mono, _FIVE_MINUTES)
            if grown > self._thresholds[f"infiniband.{counter}"]:
                wrong.append((counter, f"+{grown:g} in 5 min", f"{self._thresholds[f'infiniband.{counter}']:g}"))
        yield self._flap(name, values.get("link_downed", 0.0), mono)
        for _, counter in _RATES:
            value = values.get(counter)
            if value is None:
                continue
            grown, seconds = self._windows.increase(f"{name} {counter}", value, mono, _MINUTE)
            rate = grown / seconds if seconds else 0.0
            if rate > self._thresholds[f"infiniband.{counter}"]:
                wrong.append((counter, f"{rate:.3g}/s", f"{self._thresholds[f'infiniband.{counter}']:.3g}/s"))
        text = "; ".join(f"{counter} {value}" for counter, value, _ in wrong)
        allowed = "; ".join(f"{counter} {limit}" for counter, _, limit in wrong)
        yield Signal(
            kinds.IB_COUNTERS,
            name,
            bool(wrong),
            value=text,
            threshold=allowed,
            message=f"errors on port {name}: {text}",
            counter=None if any(counter not in _OF_OTHERS for counter, _, _ in wrong) else 0.0,
            clear_seconds=self._thresholds["infiniband.counters_clear"],
            episode_seconds=self._thresholds["infiniband.episode"],
        )

    def _efa(self, device: str, values: Mapping[str, float], mono: float) -> Iterator[Signal]:
        """Yield the signal of an EFA adapter (AWS), whose driver always calls the port active. Commands without
        completion show that its firmware is dead. The counter belongs to the device and not to the port."""
        value = values.get(_LOST_COMMANDS)
        if value is None:
            return
        grown, _ = self._windows.increase(f"{device} lost", value, mono, _FIVE_MINUTES)
        yield Signal(
            kinds.EFA_UNRESPONSIVE,
            device,
            grown > 0,
            value=f"+{grown:g} in 5 min",
            threshold="0",
            message=f"the EFA device {device} has not completed {grown:g} commands of its driver in 5 min",
            clear_seconds=self._thresholds["efa.clear"],
        )

    def _flap(self, name: str, downs: float, mono: float) -> Signal:
        """Return whether the port goes down too often, until a whole window has passed without that. Ethernet ports,
        which do not count it, are watched."""
        window = self._thresholds["infiniband.flap_window"]
        most = self._thresholds["infiniband.flaps"]
        seen = float(self._downs[name])
        counted, _ = self._windows.increase(f"{name} flaps", downs, mono, window)
        watched, _ = self._windows.increase(f"{name} flaps seen", seen, mono, window)
        grown = max(counted, watched)
        lately, _ = self._windows.increase(f"{name} flaps lately", max(downs, seen), mono, _SAMPLE)
        if lately > 0 or (name in self._flapping and name not in self._last_down):
            self._last_down[name] = mono
        if grown > most:
            self._flapping.add(name)
        elif mono - self._last_down.get(name, mono) >= window:
            self._flapping.discard(name)
        value, hours = f"down {grown:g} times in {window / 3600:g} h", f"{most:g}"
        return Signal(kinds.IB_PORT_FLAP, name, name in self._flapping, 0, value, hours, f"port {name} went {value}")

    # The functions below read one device, in threads of their own.

    def _devices(self) -> list[str]:
        """Return all devices but virtual functions and the like: those belong to their users, and move into network
        namespaces of pods."""
        names = _names(self._root)[:_MAX_PORTS]
        return [name for name in names if not self._handed.is_made_by_software(name)]

    def _ports_of(self, device: str) -> list[Port]:
        return [self._port(device, name, path, state) for name, path, state in self._paths_of(device)]

    def _port(self, device: str, name: str, path: Path, state: str) -> Port:
        port = Port(name, state, _state_text(path / "phys_state") or "")
        layer = self._layers.get(name) or _state_text(path / "link_layer") or "InfiniBand"
        self._layers[name] = layer
        if layer != "Ethernet" or not (self._root / device / "device").exists():
            return port
        looks, interfaces = self._interfaces.get(device, (-1, ()))
        if not port.up or looks != self._network.looks:
            looks, interfaces = self._network.looks, tuple(interfaces_of(self._sysfs, device))
            self._interfaces[device] = looks, interfaces
        if port.up:
            return replace(port, ethernet=True, interfaces=interfaces)
        interfaces = tuple(without_representors(self._sysfs, interfaces))
        off = switched_off(self._sysfs, interfaces)
        return replace(port, ethernet=True, interfaces=interfaces, off=off, away=not interfaces)

    def _counters_of(self, device: str) -> Mapping[str, Mapping[str, float]]:
        """Return the counters by port; those of the device itself have the key ""."""
        counters: dict[str, Mapping[str, float]] = {}
        lost = _number(self._root / device / "hw_counters" / _LOST_COMMANDS)
        for name, path, _ in self._paths_of(device):
            # Dozens for each port: joining a Path for each costs more than reading it.
            read = {counter: _number(f"{path}/{folder}/{counter}") for folder, counter in (*_ANY_INCREASE, *_RATES)}
            counters[name] = {counter: value for counter, value in read.items() if value is not None}
            if lost is None:
                lost = _number(path / "hw_counters" / _LOST_COMMANDS)  # before Linux 5.14
        counters[""] = {} if lost is None else {_LOST_COMMANDS: lost}
        return counters

    def _paths_of(self, device: str) -> Iterator[tuple[str, Path, str]]:
        for number in _names(self._root / device / "ports")[:_MAX_PORTS]:
            path = self._root / device / "ports" / number
            state = _state_text(path / "state")
            if state is not None:
                yield clean(f"{device}/{number}", 100), path, state


def _device(port: str) -> str:
    return port.rsplit("/", 1)[0]


def _names(path: Path) -> list[str]:
    try:
        return sorted(os.listdir(path))  # noqa: PTH208
    except OSError:
        return []


def _text(path: Path | str) -> str | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(descriptor, 256).decode("ascii", "replace").strip()
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _state_text(path: Path) -> str | None:
    """Return the word after the number in a file: `4: ACTIVE` -> `ACTIVE`."""
    text = _text(path)
    return None if text is None else text.rpartition(":")[2].strip()


def _number(path: Path | str) -> float | None:
    text = _text(path)
    return float(text) if text is not None and text.isdecimal() else None

"""InfiniBand, RoCE and EFA ports, from sysfs.

A port counts by its name once it has been up in this boot: an unplugged one is no fault. Of before the boot only their number
is known, because names follow the order in which the kernel finds the cards: with one less all others may have other names.
"""

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from muster.agent import kinds
from muster.agent.apart import Apart
from muster.agent.facts import Signal, clean
from muster.agent.rates import Windows
from muster.agent.thresholds import Thresholds

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
"""What a peer that has died or a crowded fabric makes every port count that talks to it: it never counts as often."""


_LOST_COMMANDS = "no_completion_cmds"


@dataclass(frozen=True)
class Port:
    """One port now."""

    name: str
    """`mlx5_0/1`"""
    state: str
    physical: str

    @property
    def up(self) -> bool:
        """Whether it can carry traffic. What says nothing about its physical state is believed."""
        return self.state == "ACTIVE" and self.physical in ("LinkUp", "")

    @property
    def linked(self) -> bool:
        """Whether its link is there; that no subnet manager has made it active is no fault of the link."""
        return self.state != "DOWN" and self.physical in ("LinkUp", "")


class InfiniBand:
    """The ports of this node. `states` and `counters` are called by one thread.

    Args:
        expected_ports: how many must be up, as it is configured; None: as many as there were.
        apart: what reads the devices.
    """

    def __init__(
        self, sysfs: Path, thresholds: Thresholds, expected_ports: int | None, apart: type[Apart[Any]] = Apart
    ) -> None:
        self._root = sysfs / _CLASS
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
        self._states: Apart[list[Port]] = apart(self._ports_of, thresholds["sysfs.patience"])
        self._counters: Apart[Mapping[str, Mapping[str, float]]] = apart(
            self._counters_of, thresholds["sysfs.patience"]
        )
        self.up = 0
        """How many are up now."""
        self.seen = 0
        """The most ports that were up at once, as far as is known."""
        self.unseen: frozenset[str] = frozenset()
        """Devices that are there and have never been read, because that does not come to an end."""

    def adopt(self, missed: Iterable[str], flapped: Iterable[str], seen: int) -> None:
        """What an earlier agent knew. Called by any thread.

        Args:
            missed: ports and devices that it missed in this boot or before: they were up once.
            flapped: ports that went up and down in this boot.
            seen: how many were up at once.
        """
        known = sorted(subject if "/" in subject else f"{subject}/?" for subject in missed if subject)
        self._adopted = frozenset(known[:_MAX_PORTS])
        self._flapping |= set(flapped)
        self._met = set()
        self.seen = max(self.seen, min(seen, _MAX_PORTS))

    def states(self) -> list[Signal]:
        """Which ports are up, and which devices are gone."""
        devices = self._devices()
        found = self._states.each(devices)
        read = {device: found[device] for device in devices if device in found}
        held = self._states.held.keys() | self._counters.held.keys()
        self._met |= read.keys()
        self.unseen = frozenset(devices) - self._met
        ports = [port for device in read for port in read[device]][:_MAX_PORTS]
        for port in ports:
            if not port.linked and port.name in self._linked:
                self._downs[port.name] += 1
            (self._linked.add if port.linked else self._linked.discard)(port.name)
        self._been_up |= {port.name for port in ports if port.up} | self._adopted
        there = {device for device in devices if read.get(device) != []}
        return [
            *self._port_signals(ports),
            *self._device_signals(there),
            *([] if set(devices) - read.keys() else self._count_signal(ports, there)),
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
            message=f"reading {device} in /sys/class/infiniband does not come to an end: nothing is known of its ports",
            sustain_seconds=limit,
            clear_seconds=self._thresholds["infiniband.clear"],
        )

    def _port_signals(self, ports: list[Port]) -> Iterator[Signal]:
        for port in ports:
            if port.name in self._been_up:
                state = ", ".join(filter(None, (port.state, port.physical)))
                yield Signal(
                    kinds.IB_PORT_DOWN,
                    port.name,
                    not port.up,
                    value=clean(state, 64),
                    threshold="ACTIVE, LinkUp",
                    message=f"InfiniBand port {port.name} is {clean(state, 64)}",
                    sustain_seconds=self._thresholds["infiniband.down"],
                    clear_seconds=self._thresholds["infiniband.clear"],
                )

    def _device_signals(self, there: Collection[str]) -> Iterator[Signal]:
        for device in sorted({_device(name) for name in self._been_up}):
            yield Signal(
                kinds.IB_DEVICE_MISSING,
                device,
                device not in there,
                message=f"InfiniBand device {device} is gone",
                sustain_seconds=self._thresholds["infiniband.missing"],
                clear_seconds=self._thresholds["infiniband.clear"],
            )

    def _count_signal(self, ports: list[Port], there: Collection[str]) -> Iterator[Signal]:
        """Fewer than there should be. Those that are missed by name are told of as such, unless the number is configured."""
        self.up = up = sum(port.up for port in ports)
        self.seen = max(self.seen, up)
        down = {port.name for port in ports if not port.up}
        missed = sum(name in down or _device(name) not in there for name in self._been_up)
        expected, source = self.seen, "the machine has had"
        sustain = self._thresholds["boot.look"]  # after a boot they come up one after the other
        if self._expected_ports is not None:
            expected, missed, source = self._expected_ports, 0, "the configuration has"
            sustain = self._thresholds["infiniband.missing"]
        if expected:
            yield Signal(
                kinds.IB_PORT_DOWN,
                "",
                up + missed < expected,
                value=f"{up} ports up",
                threshold=f"{expected} ports up",
                message=f"{up} InfiniBand ports are up, {source} {expected}",
                sustain_seconds=sustain,
                clear_seconds=self._thresholds["infiniband.clear"],
            )

    def counters(self, mono: float) -> list[Signal]:
        """What the counters of the ports that are there say."""
        read = self._counters.each(self._devices())
        signals: list[Signal] = []
        for device in sorted(read):
            of_device = read[device].get("", {})
            for name in sorted(read[device].keys() - {""}):
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
        """AWS's adapter. Its driver calls the port active whatever happens; that commands are not completed any more
        says that its firmware is gone. The counter is the device's and not the port's."""
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
        """Down too often, until it has not been down for as long as that is counted. Ports that do not count it themselves (Ethernet's)
        are watched."""
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

    # What is read of one device: by threads of their own.

    def _devices(self) -> list[str]:
        """All but virtual functions: they belong to who uses them, and go into the network namespace of a pod."""
        names = _names(self._root)[:_MAX_PORTS]
        return [name for name in names if not (self._root / name / "device" / "physfn").exists()]

    def _ports_of(self, device: str) -> list[Port]:
        return [Port(name, state, _word(path / "phys_state") or "") for name, path, state in self._paths_of(device)]

    def _counters_of(self, device: str) -> Mapping[str, Mapping[str, float]]:
        """By port; of the device itself by ""."""
        found: dict[str, Mapping[str, float]] = {}
        lost = _number(self._root / device / "hw_counters" / _LOST_COMMANDS)
        for name, path, _ in self._paths_of(device):
            read = {counter: _number(path / folder / counter) for folder, counter in (*_ANY_INCREASE, *_RATES)}
            found[name] = {counter: value for counter, value in read.items() if value is not None}
            if lost is None:
                lost = _number(path / "hw_counters" / _LOST_COMMANDS)  # before Linux 5.14
        found[""] = {} if lost is None else {_LOST_COMMANDS: lost}
        return found

    def _paths_of(self, device: str) -> Iterator[tuple[str, Path, str]]:
        for number in _names(self._root / device / "ports")[:_MAX_PORTS]:
            path = self._root / device / "ports" / number
            state = _word(path / "state")
            if state is not None:
                yield clean(f"{device}/{number}", 100), path, state


def _device(port: str) -> str:
    return port.rsplit("/", 1)[0]


def _names(path: Path) -> list[str]:
    try:
        return sorted(os.listdir(path))  # noqa: PTH208
    except OSError:
        return []


def _text(path: Path) -> str | None:
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


def _word(path: Path) -> str | None:
    """`4: ACTIVE` -> `ACTIVE`."""
    text = _text(path)
    return None if text is None else text.rpartition(":")[2].strip()


def _number(path: Path) -> float | None:
    text = _text(path)
    return float(text) if text is not None and text.isdecimal() else None

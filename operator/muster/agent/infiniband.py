"""InfiniBand, RoCE and EFA ports, from sysfs. A port counts once it has been up in this boot: an unplugged one is no fault."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from muster.agent import kinds
from muster.agent.facts import Signal, clean
from muster.agent.rates import Windows
from muster.agent.thresholds import Thresholds

_CLASS = "class/infiniband"
_MAX_PORTS = 128
_FIVE_MINUTES, _MINUTE = 300.0, 60.0
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


@dataclass(frozen=True)
class Port:
    """One port now."""

    name: str
    """`mlx5_0/1`"""
    path: Path
    state: str
    physical: str

    @property
    def up(self) -> bool:
        """Whether it can carry traffic. What says nothing about its physical state is believed."""
        return self.state == "ACTIVE" and self.physical in ("LinkUp", "")


class InfiniBand:
    """The ports of this node. `states` and `counters` are called by one thread."""

    def __init__(self, sysfs: Path, thresholds: Thresholds, expected_ports: int | None) -> None:
        self._root = sysfs / _CLASS
        self._thresholds = thresholds
        self._expected_ports = expected_ports
        self._windows = Windows()
        self._been_up: set[str] = set()
        self._adopted: frozenset[str] = frozenset()
        self._paths: dict[str, Path] = {}

    def adopt(self, subjects: Iterable[str]) -> None:
        """Ports and devices that an earlier agent missed in this boot: they were up before. Called by any thread."""
        known = sorted(subject if "/" in subject else f"{subject}/?" for subject in subjects if subject)
        self._adopted = frozenset(known[:_MAX_PORTS])

    def states(self) -> list[Signal]:
        """Which ports are up, and which devices are gone."""
        ports = list(self._ports())
        self._paths = {port.name: port.path for port in ports}
        self._been_up |= {port.name for port in ports if port.up} | self._adopted
        return [*self._port_signals(ports), *self._device_signals(ports), *self._count_signal(ports)]

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

    def _device_signals(self, ports: list[Port]) -> Iterator[Signal]:
        there = {_device(port.name) for port in ports}
        for device in sorted({_device(name) for name in self._been_up}):
            yield Signal(
                kinds.IB_DEVICE_MISSING,
                device,
                device not in there,
                message=f"InfiniBand device {device} is gone",
                sustain_seconds=self._thresholds["infiniband.missing"],
                clear_seconds=self._thresholds["infiniband.clear"],
            )

    def _count_signal(self, ports: list[Port]) -> Iterator[Signal]:
        if self._expected_ports is not None:
            up = sum(port.up for port in ports)
            yield Signal(
                kinds.IB_PORT_DOWN,
                "",
                up < self._expected_ports,
                value=f"{up} ports up",
                threshold=f"{self._expected_ports} ports up",
                message=f"{up} InfiniBand ports are up, the configuration has {self._expected_ports}",
                sustain_seconds=self._thresholds["infiniband.missing"],
                clear_seconds=self._thresholds["infiniband.clear"],
            )

    def counters(self, mono: float) -> list[Signal]:
        """What the counters of the ports that are there say."""
        return [signal for name, path in sorted(self._paths.items()) for signal in self._of_port(name, path, mono)]

    def _of_port(self, name: str, path: Path, mono: float) -> Iterator[Signal]:
        wrong = []
        for folder, counter in _ANY_INCREASE:
            value = _number(path / folder / counter)
            if value is None:
                continue
            grown, _ = self._windows.increase(f"{name} {counter}", value, mono, _FIVE_MINUTES)
            if grown > self._thresholds[f"infiniband.{counter}"]:
                wrong.append((counter, f"+{grown:g} in 5 min", f"{self._thresholds[f'infiniband.{counter}']:g}"))
            if counter == "link_downed":
                yield self._flap(name, value, mono)
        for folder, counter in _RATES:
            value = _number(path / folder / counter)
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
        yield from self._efa(name, path, mono)

    def _efa(self, name: str, path: Path, mono: float) -> Iterator[Signal]:
        """AWS's adapter. Its driver calls the port active whatever happens; that commands are not completed any more
        says that its firmware is gone. The counter is the device's and not the port's."""
        device = _device(name)
        value = _number(path.parent.parent / "hw_counters" / "no_completion_cmds")
        if value is None:
            value = _number(path / "hw_counters" / "no_completion_cmds")  # before Linux 5.14
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
        window = self._thresholds["infiniband.flap_window"]
        grown, _ = self._windows.increase(f"{name} flaps", downs, mono, window)
        most = self._thresholds["infiniband.flaps"]
        value, hours = f"down {grown:g} times in {window / 3600:g} h", f"{most:g}"
        return Signal(kinds.IB_PORT_FLAP, name, grown > most, 0, value, hours, f"port {name} went {value}")

    def _ports(self) -> Iterator[Port]:
        found = 0
        for device in _names(self._root):
            for number in _names(self._root / device / "ports"):
                path = self._root / device / "ports" / number
                state, physical = _word(path / "state"), _word(path / "phys_state")
                if state is None:
                    continue
                found += 1
                if found > _MAX_PORTS:
                    return
                yield Port(clean(f"{device}/{number}", 100), path, state, physical or "")


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

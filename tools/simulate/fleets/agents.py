"""The shipped agent on a simulated machine: its loop, ledger and pace as they are; only what waits and what asks is
replaced."""

import os
from collections.abc import Callable, Iterable, Iterator
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any, cast

from muster.node.agent.agent import Agent
from muster.node.agent.apart import Apart
from muster.node.agent.facts import Signal
from muster.node.agent.infiniband import InfiniBand
from muster.node.agent.inspections import LOG, NVML, PORTS
from muster.node.agent.kernel_log import KernelLog
from muster.node.agent.nvml_process import NvmlProcess, Outstanding
from muster.node.agent.sampler import Sampler
from muster.node.agent.settings import Settings
from muster.node.agent.thresholds import DEFAULTS
from muster.node.agent.writer import Pace, Writer
from simulate.clocks import START
from simulate.fleets.machine import Machine

_MOST_TURNS = 8
_FRESH_SECONDS = 30.0
Look = tuple[float, Callable[[], list[Signal]]]


class Nvml(NvmlProcess):
    """The driver's library: answers at once, or not at all."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(())
        self._machine = machine
        self._lives = False

    @property
    def running(self) -> bool:
        """Whether there is a child that can be asked."""
        return self._lives

    def start(self, now: float) -> bool:
        """Start a child if there is none and it is time."""
        if self._lives or now < self._not_before:
            return False
        self._lives, self.started_at = True, now
        self.starts += 1
        return True

    def ask(self, batch: str, now: float, deadline_seconds: float) -> None:
        self.outstanding = Outstanding(batch, now, now + deadline_seconds)

    def read(self, now: float) -> Iterator[dict[str, Any]]:
        asked = self.outstanding
        if not self._lives or self._machine.hangs:
            return
        while self._machine.events:
            yield {"event": self._machine.events.pop(0)}
        if asked is not None:
            self.outstanding, self._failures = None, 0
            yield {"batch": asked.batch, "answer": self._machine.answer(asked.batch)}

    def _stop(self) -> None:
        self._lives, self.outstanding = False, None

    @property
    def next_start(self) -> float:
        """When another child may be started, on the agent's clock."""
        return self._not_before


class AtOnce(Apart[Any]):
    """Nothing hangs here, and no thread is needed."""

    def each(self, names: Iterable[str]) -> dict[str, Any]:
        """What was read of each."""
        return {name: self._read(name) for name in names}


class Ports(Sampler):
    """Looks when it is asked for what has been seen, instead of in a thread. A machine whose ports were well and have
    not changed is not looked at again: it would say the same."""

    def __init__(self, looks: Iterable[Look], machine: Machine, now: Callable[[], float]) -> None:
        super().__init__(looks, lambda: None)
        self._machine, self._now = machine, now
        self._due = [0.0] * len(self._looks)

    def start(self) -> None:
        """Begin."""

    def is_alive(self) -> bool:
        return True

    def pop_signals(self) -> list[Signal]:
        now, signals = self._now(), []
        answered = self._answered == self._asked
        changed = self._machine.booted_at + now - self._machine.ports_changed_at < _PORTS_MATTER_SECONDS
        for number, (period, look) in enumerate(self._looks):
            if not answered or (changed and now >= self._due[number]):
                self._due[number] = now + period
                signals += look()
        self._answered, self.looked_at = self._asked, now
        return signals


_TELL = ("fast", "normal")
"""What is asked of the driver in which a machine of the simulator can say anything new."""
_PORTS_MATTER_SECONDS = 14 * 3600.0
"""Longer than the window in which flaps are counted."""


class Lines(KernelLog):
    """The kernel's log, in memory."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(Path("/dev/kmsg"))
        self._machine = machine
        self._read_to = 0

    @property
    def is_read(self) -> bool:
        """Whether nothing has been written since it was read."""
        return self._read_to == len(self._machine.lines)

    def open(self) -> bool:
        return True

    def close(self) -> None:
        """Nothing has to be closed."""

    def _records(self) -> Iterator[bytes]:
        lines = self._machine.lines[self._read_to :]
        self._read_to = len(self._machine.lines)
        for seconds, message in lines:
            yield f"4,1,{round(seconds * 1e6)},-;{message}".encode()
        self.caught_up = True


class Words:
    """A small file that always says the same."""

    def __init__(self, text: str) -> None:
        self._text = text

    def open(self, mode: str = "r", **_: str) -> Any:
        return BytesIO(self._text.encode()) if "b" in mode else StringIO(self._text)


class Wrote:
    """The writer: keeps the pace of the real one, and says when there is something to be sent."""

    def __init__(
        self, stored: dict[str, Any], on_stored: Callable[[dict[str, Any]], None], now: Callable[[], float]
    ) -> None:
        self._stored, self._on_stored, self._now = stored, on_stored, now
        self._pace = Pace(DEFAULTS)
        self._urgent = False
        self._wanted: dict[str, Any] | None = None
        self.writes = self.errors = self.refused = 0
        self.refused_seconds, self.problem = 0.0, ""

    def start(self) -> None:
        """What an earlier agent wrote has been read."""
        self._on_stored(self._stored)

    def is_alive(self) -> bool:
        return True

    def offer(self, status: dict[str, Any], *, urgent: bool) -> None:
        self._wanted, self._urgent = status, self._urgent or urgent

    @property
    def due(self) -> float | None:
        """When there is something to write, on the agent's clock; None: nothing is offered."""
        return None if self._wanted is None else self._pace.due(self._urgent)

    def take(self) -> dict[str, Any] | None:
        """What is to be written, if it is time."""
        now = self._now()
        if self._wanted is None or now < self._pace.due(self._urgent):
            return None
        self._pace.wrote(now, self._urgent)
        status, self._wanted, self._urgent = self._wanted, None, False
        self.writes += 1
        return status


class NodeAgent(Agent):
    """One node's agent, turned by the simulation.

    Args:
        stored: the node's record as it is in the API server.
        now: seconds of the simulation.
        ahead_seconds: of the machine's wall clock.
        chance: between 0 and 1, for where in its periods the agent is when something happens.
    """

    def __init__(
        self,
        machine: Machine,
        stored: dict[str, Any],
        now: Callable[[], float],
        ahead_seconds: float,
        chance: Callable[[], float],
    ) -> None:
        self._chance = chance
        self.surprised = False
        """Something happens in the midst of its periods: it is not looked at everything just now."""
        self._surprised_at = 0.0
        self._is_at_rest = False
        self.machine = machine
        self._nvml_of_machine = Nvml(machine)
        made: list[Wrote] = []

        def monotonic() -> float:
            return now() - machine.booted_at

        def writer(on_stored: Callable[[dict[str, Any]], None]) -> Writer:
            made.append(Wrote(stored, on_stored, monotonic))
            return cast("Writer", made[0])

        super().__init__(
            _settings(machine),
            DEFAULTS,
            (),
            self._nvml_of_machine,
            writer,
            monotonic,
            lambda: START.timestamp() + now() + ahead_seconds,
        )
        self.wrote = made[0]
        self._selector.close()
        for descriptor in (self._wake_read, self._wake_write):
            os.close(descriptor)
        self._log = Lines(machine)
        self._looked_at = monotonic()
        self.wrote.start()

    def look(self) -> None:
        """Everything that is due, now. What was quiet since the last look was looked at meanwhile, with the same
        answers."""
        now = self._monotonic()
        if self._is_at_rest and not self.surprised:
            self._finds_nothing(now)
            return
        if self.surprised:
            self._surprised_at = now
        if now - self._looked_at > _FRESH_SECONDS and not self.machine.hangs:
            for part in (NVML, PORTS, LOG):
                if self._inspections.has(part):
                    self._inspections.seen(part, now)
            for batch in ("fast", "normal") if self.surprised else ():
                if self._initialised and batch in self._due:
                    self._due[batch] = now + self._chance() * self._thresholds[f"nvml.{batch}_period"]
        self.surprised = False
        self._looked_at = now
        for _ in range(_MOST_TURNS):
            self._poll()
            if not self._nvml.running or self._nvml.outstanding is None or self.machine.hangs:
                break
        if self._looking_at_once:
            self._poll()
        self._is_at_rest = self._is_exhausted()

    def _is_exhausted(self) -> bool:
        """Whether it has looked at everything since something last happened and nothing is kept, waited for or to be
        told: as long as nothing happens, each look ends as this one did.
        """
        ledger, machine, now = self._ledger, self.machine, self._monotonic()
        if len(ledger) or ledger._bad_since or machine.hangs or machine.events:  # noqa: SLF001 - what may yet become evidence
            return False
        if not cast("Lines", self._log).is_read:
            return False
        if not self._initialised or not self._nvml.running or self._nvml.outstanding is not None:
            return False
        if self._looking_at_once or self._gpus.unreachable or self.wrote.due is not None or self.not_ready():
            return False
        if machine.booted_at + now - machine.ports_changed_at < _PORTS_MATTER_SECONDS or self._told is None:
            return False
        asked = (self._due.get(batch, 0.0) - self._thresholds[f"nvml.{batch}_period"] for batch in _TELL)
        return not self._problem() and min(asked) > self._surprised_at

    def _finds_nothing(self, now: float) -> None:
        """What a look does where there is nothing to be seen."""
        for part in (NVML, PORTS, LOG):
            self._inspections.seen(part, now)
        for batch in (*_TELL, "slow"):
            if now >= self._due[batch]:
                self._due[batch] = now + self._thresholds[f"nvml.{batch}_period"]
        self._looked_at = now

    @property
    def due_seconds(self) -> float | None:
        """In how long something is due that no change brings: a deadline, the start of another child, a write."""
        now, waits = self._monotonic(), []
        if self._nvml.outstanding is not None:
            waits.append(self._nvml.outstanding.deadline)
        elif not self._nvml.running:
            waits.append(self._nvml_of_machine.next_start)
        if self.wrote.due is not None:
            waits.append(self.wrote.due)
        return max(0.0, min(waits) - now) if waits else None

    def _wait(self) -> None:
        """The simulation does."""

    def _wake(self) -> None:
        """Nobody sleeps."""

    def _make_ports_sampler(self) -> tuple[InfiniBand, Sampler]:
        fabric = InfiniBand(
            self._settings.sysfs, self._thresholds, self._settings.expected_ports, self._network, AtOnce
        )
        looks = (
            (self._thresholds["infiniband.state_period"], fabric.states),
            (self._thresholds["infiniband.counter_period"], lambda: fabric.counters(self._monotonic())),
        )
        return fabric, Ports(looks, self.machine, self._monotonic)


def _settings(machine: Machine) -> Settings:
    nowhere = machine.folder / "nowhere"
    return Settings(
        node=machine.name,
        api_server="https://nowhere",
        token_file=nowhere,
        ca_file=nowhere,
        kernel_log=nowhere,
        sysfs=machine.folder / "sys",
        proc=nowhere,
        boot_id_file=cast("Path", Words(machine.boot_id)),
        system_uuid_file=cast("Path", Words(f"board-{machine.name}")),
        mounts_file=cast("Path", Words("/dev/nvme0n1p1 / ext4 rw 0 0\n")),
        thresholds_file=None,
        expected_gpus=None,
        expected_ports=None,
        node_addresses=frozenset(),
        listen=("127.0.0.1", 0),
    )

"""An agent without processes, whose days pass in a simulated clock, and what it looks at.

Collectors, ledger and the writer's pace are the agent's own. What the API server would be written is judged as the
operator judges it.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from muster.api.nodehealth import Evidence
from muster.health.kinds import sign_of
from muster.node.agent import kinds
from muster.node.agent.facts import Clock
from muster.node.agent.gpus import Gpus
from muster.node.agent.infiniband import InfiniBand
from muster.node.agent.interfaces import NodeNetwork
from muster.node.agent.ledger import Ledger
from muster.node.agent.thresholds import DEFAULTS
from muster.node.agent.writer import Pace
from simulate.fleets.agents import AtOnce

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
EPOCH = 1_790_000_000.0
UUID = "GPU-00000000-0000-4000-8000-000000000001"
Sample = Callable[[float], Any]


class Simulated:
    """An agent without processes: `run` looks, keeps and writes as the agent's loop does."""

    def __init__(self, folder: Any = None, gpus: int = 1) -> None:
        self.now = 1000.0
        self.writes: list[tuple[float, list[dict[str, Any]]]] = []
        self.ledger = Ledger("boot-1", DEFAULTS["burst"])
        self.pace = Pace(DEFAULTS)
        self.gpus = Gpus(DEFAULTS, None)
        self.fabric = InfiniBand(folder, DEFAULTS, None, NodeNetwork(folder, folder), AtOnce) if folder else None
        self._waiting, self._urgent = False, False
        self._gpus = range(gpus)
        known = {"serial": "1", "model": "H", "vbios": "1"}
        named = [{"index": i, "uuid": f"{UUID[:-1]}{i}", "pci": f"0000:{i:02x}:00.0", **known} for i in self._gpus]
        self.ledger.sample(self.gpus.started({"gpus": named, "driver": "580"}), self.clock)

    @property
    def clock(self) -> Clock:
        return Clock(self.now, EPOCH + self.now)

    def run(self, seconds: float, sample: Sample, period: float = 30.0) -> None:
        until = self.now + seconds
        while self.now < until:
            if self.fabric is not None:
                sample(self.now)
                self.ledger.sample([*self.fabric.states(), *self.fabric.counters(self.now)], self.clock)
            else:
                # Each GPU is some minutes ahead of the one before it.
                values = [sample(self.now + 700.0 * index) for index in self._gpus]
                answer = [
                    {"index": i, "pcie_width": 16, "pcie_width_most": 16, **each} for i, each in enumerate(values)
                ]
                self.ledger.sample(self.gpus.normal({"gpus": answer}, self.now), self.clock)
            self._waiting |= self.ledger.news or self.ledger.counted
            self._urgent |= self.ledger.news
            self.ledger.news = self.ledger.counted = False
            if self._waiting and self.now >= self.pace.due(self._urgent):
                self.pace.wrote(self.now, self._urgent)
                self.writes.append((self.now, self.ledger.evidence()))
                self._waiting = self._urgent = False
            self.now += period

    def written(self) -> list[dict[str, Any]]:
        return self.writes[-1][1] if self.writes else []

    def verdicts(self, kind: str) -> set[str]:
        """What the operator makes of what was written last."""
        moment = datetime.fromtimestamp(EPOCH + self.now, UTC)
        found = [Evidence.model_validate(item) for item in self.written() if item["kind"] == kind]
        return {sign_of(item, moment).severity.value for item in found}

    def most_in_an_hour(self) -> int:
        moments = [moment for moment, _ in self.writes]
        return max((sum(first <= other < first + HOUR for other in moments) for first in moments), default=0)


def replays(rate: Callable[[float], float]) -> Sample:
    """PCIe replays at a rate in replays a minute."""
    total, last = 0.0, None

    def sample(now: float) -> dict[str, float]:
        nonlocal total, last
        total += rate(now) * ((now - last) / MINUTE if last is not None else 0.0)
        last = now
        return {"pcie_replays": float(int(total)), "pcie_generation": 5}

    return sample


class PortCounter:
    """A counter of a port that only grows. Its file is written when it has grown, and nothing else is."""

    def __init__(self, node: Any, name: str, counter: str) -> None:
        path = node.port(name, **{counter: 0})
        (self._file,) = path.glob(f"*/{counter}")
        self._value = 0

    def count(self, value: int) -> None:
        """It has come to this."""
        assert value >= self._value
        if value > self._value:
            self._value = value
            with self._file.open("r+") as stream:  # no shorter than before: nothing to cut off
                stream.write(f"{value}\n")


def ports_that_err(node: Any, count: int, apart: float, began: float) -> Sample:
    """Ports with 20 symbol errors more each second, each beginning so long after the one before it."""
    ports = [PortCounter(node, f"mlx5_{number}/1", "symbol_error") for number in range(count)]

    def sample(now: float) -> None:
        for number, port in enumerate(ports):
            port.count(int(max(0.0, now - began - apart * number)) * 20)

    return sample


def gpus_that_toggle(period: float) -> Sample:
    """Replays in one half of each period and none in the other, and one recovery a period."""

    def sample(now: float) -> dict[str, float]:
        bad = now % period < period / 2
        return {"pcie_replays": now * (20.0 if bad else 0.0) // 1, "nvlink_recoveries": now // period}

    return sample


def assert_that_a_toggling_rate_is_written_seldom(period: float, seconds: float) -> None:
    agent = Simulated()
    agent.run(seconds, replays(lambda now: 400.0 if now % period < period / 2 else 0.0))
    assert agent.most_in_an_hour() <= 10
    assert agent.verdicts(kinds.PCIE_REPLAY) == {"Degraded"}


def assert_that_gpus_that_toggle_are_written_seldom(period: float, seconds: float) -> None:
    agent = Simulated(gpus=8)
    agent.run(seconds, gpus_that_toggle(period))
    assert agent.most_in_an_hour() <= 10
    assert len(agent.writes) > 20


def assert_that_errors_of_ports_weigh_more_within_the_hour(node: Any, ports: int, later: float) -> None:
    """And so many seconds later, they still do."""
    agent = Simulated(node.folder / "sys")
    sample = ports_that_err(node, ports, 0.0, 0.0)
    agent.run(10 * MINUTE, sample, 15.0)
    assert agent.verdicts(kinds.IB_COUNTERS) == {"Warning"}
    for seconds in (HOUR, later):
        agent.run(seconds, sample, 15.0)
        assert agent.verdicts(kinds.IB_COUNTERS) == {"Degraded"}
    assert agent.most_in_an_hour() <= 10


def assert_that_ports_that_err_are_written_seldom(node: Any, ports: int, hours: float, period: float) -> None:
    """Each for itself would count four times an hour, and each at another time than the others.

    Args:
        node: the node's files.
        ports: their number; from three on, they would be written more than ten times an hour if each had its own pace.
        hours: how long they err.
        period: seconds between two looks at them.
    """
    agent = Simulated(node.folder / "sys")
    agent.run(hours * HOUR, ports_that_err(node, ports, 110.0, agent.now), period)
    assert agent.most_in_an_hour() <= 10
    assert len(agent.writes) > 5 * hours
    assert agent.verdicts(kinds.IB_COUNTERS) == {"Degraded"}
    assert len(agent.written()) == ports


def assert_that_dying_peers_condemn_nobody(node: Any, counter: str, seconds: float) -> None:
    """A job that crashes every ten minutes makes all its nodes count errors of the one that went first."""
    agent = Simulated(node.folder / "sys")
    port = PortCounter(node, "mlx5_0/1", counter)
    agent.run(seconds, lambda now: port.count(int(now / 600) * 100_000), 15.0)
    assert agent.verdicts(kinds.IB_COUNTERS) == {"Warning"}
    assert agent.written()[0]["count"] == 1

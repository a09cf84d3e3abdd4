"""Rates through the agent: NVML's and sysfs's samples in, evidence, writes and what the operator makes of it out.

Days in a simulated clock: collectors, ledger and the writer's pace are the agent's own, and each sample comes as often
as on a node. What the API server would be written is judged as the operator judges it.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from muster.api.nodehealth import Evidence
from muster.health.kinds import sign_of
from muster.node.agent import kinds
from muster.node.agent.earlier import stored_evidence
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


def test_two_thousand_replays_a_minute_for_a_day_weigh_more_than_a_moment_of_them() -> None:
    agent = Simulated()
    sample = replays(lambda now: 2000.0 if now > 1000.0 + 5 * MINUTE else 0.0)
    agent.run(10 * MINUTE, sample)
    assert agent.verdicts(kinds.PCIE_REPLAY) == {"Warning"}
    agent.run(DAY, sample)
    assert agent.verdicts(kinds.PCIE_REPLAY) == {"Degraded"}
    assert agent.written()[0]["count"] in (24, 25)
    assert agent.most_in_an_hour() <= 10
    agent.run(DAY, replays(lambda _: 0.0))
    assert agent.written() == []


def test_it_weighs_more_within_hours() -> None:
    agent = Simulated()
    agent.run(2.5 * HOUR, replays(lambda _: 2000.0))
    assert agent.verdicts(kinds.PCIE_REPLAY) == {"Degraded"}


def test_one_bad_minute_in_a_day_warns_and_goes() -> None:
    agent = Simulated()
    sample = replays(lambda now: 2000.0 if now % DAY < 2 * MINUTE else 0.0)
    agent.now = DAY - MINUTE
    agent.run(20 * MINUTE, sample)
    assert agent.verdicts(kinds.PCIE_REPLAY) == {"Warning"}
    agent.run(9 * HOUR, sample)
    assert agent.written() == []
    assert len(agent.writes) == 2


@pytest.mark.parametrize("hours", [1, 4, 7])
def test_three_bad_minutes_in_a_day_weigh_more(hours: int) -> None:
    agent = Simulated()
    sample = replays(lambda now: 2000.0 if now % (hours * HOUR) < 2 * MINUTE else 0.0)
    agent.now = hours * HOUR - MINUTE
    agent.run(2 * hours * HOUR - HOUR / 2, sample)
    assert agent.verdicts(kinds.PCIE_REPLAY) == {"Warning"}
    agent.run(HOUR, sample)
    assert agent.verdicts(kinds.PCIE_REPLAY) == {"Degraded"}


@pytest.mark.parametrize("period", [90.0, 150.0, 300.0, 1200.0, 1800.0, 3000.0, 7200.0])
def test_a_rate_that_toggles_is_written_ten_times_an_hour_at_most(period: float) -> None:
    agent = Simulated()
    agent.run(2 * DAY, replays(lambda now: 400.0 if now % period < period / 2 else 0.0))
    assert agent.most_in_an_hour() <= 10
    assert agent.verdicts(kinds.PCIE_REPLAY) == {"Degraded"}


@pytest.mark.parametrize("period", [150.0, 1800.0, 5400.0, 40000.0])
def test_eight_gpus_whose_rates_toggle_are_written_ten_times_an_hour_at_most(period: float) -> None:
    agent = Simulated(gpus=8)

    def sample(now: float) -> dict[str, float]:
        bad = now % period < period / 2
        return {"pcie_replays": now * (20.0 if bad else 0.0) // 1, "nvlink_recoveries": now // period}

    agent.run(DAY, sample)
    assert agent.most_in_an_hour() <= 10
    assert len(agent.writes) > 20


def test_what_the_rate_is_now_is_no_news() -> None:
    agent = Simulated()
    agent.run(50 * MINUTE, replays(lambda now: 100.0 + now % 977))
    assert len(agent.writes) == 1


def test_an_agent_that_starts_again_goes_on_counting() -> None:
    first = Simulated()
    first.run(1.5 * HOUR, replays(lambda _: 2000.0))
    assert first.written()[0]["count"] == 2
    second = Simulated()
    second.now = first.now
    second.ledger.adopt(stored_evidence({"evidence": first.written()}), {}, second.clock)
    second.run(2 * HOUR, replays(lambda _: 2000.0))
    assert second.verdicts(kinds.PCIE_REPLAY) == {"Degraded"}
    assert second.written()[0]["firstSeen"] == first.written()[0]["firstSeen"]


def test_an_agent_that_starts_again_and_again_counts_no_faster() -> None:
    agent = Simulated()
    sample = replays(lambda _: 2000.0)
    agent.run(10 * MINUTE, sample)
    for _ in range(8):
        again = Simulated()
        again.now = agent.now
        again.ledger.adopt(stored_evidence({"evidence": agent.written()}), {}, again.clock)
        again.writes = agent.writes
        again.run(5 * MINUTE, sample)
        agent = again
    assert agent.written()[0]["count"] <= 2
    assert agent.verdicts(kinds.PCIE_REPLAY) == {"Warning"}


def recoveries(moments: list[float]) -> Sample:
    return lambda now: {"nvlink_recoveries": float(sum(moment <= now for moment in moments))}


def test_recoveries_of_an_nvlink_count_by_themselves() -> None:
    agent = Simulated()
    agent.run(DAY / 4, recoveries([2 * HOUR]))
    assert agent.verdicts(kinds.NVLINK_ERRORS) == {"Warning"}
    assert agent.written()[0]["count"] == 1  # it was one, however long it is told
    agent.run(DAY / 2, recoveries([2 * HOUR]))
    assert agent.written() == []


def test_recoveries_three_times_in_a_day_weigh_more() -> None:
    agent = Simulated()
    sample = recoveries([2 * HOUR, 7 * HOUR, 12 * HOUR])
    agent.run(11 * HOUR, sample)
    assert agent.verdicts(kinds.NVLINK_ERRORS) == {"Warning"}
    agent.run(2 * HOUR, sample)
    assert agent.verdicts(kinds.NVLINK_ERRORS) == {"Degraded"}


def test_a_burst_of_recoveries_is_one() -> None:
    agent = Simulated()
    agent.run(6 * HOUR, recoveries([2 * HOUR + 40 * number for number in range(60)]))
    assert agent.verdicts(kinds.NVLINK_ERRORS) == {"Warning"}


@pytest.mark.parametrize(
    ("every", "verdict"),
    [(30.0, {"Degraded"}), (50.0, {"Degraded"}), (90.0, set[str]()), (600.0, set[str]()), (1e9, set[str]())],
)
def test_a_link_of_nvlink_5_is_bad_that_keeps_recovering(every: float, verdict: set[str]) -> None:
    agent = Simulated()
    agent.run(4 * HOUR, lambda now: {"link_recoveries": {str(link): now // every * (link == 7) for link in range(18)}})
    assert agent.verdicts(kinds.NVLINK_ERRORS) == verdict
    assert not verdict or agent.written()[0]["value"].startswith("link 7 recovers in ")


def test_crc_errors_that_last_weigh_more() -> None:
    agent = Simulated()
    agent.run(3 * HOUR, lambda now: {"nvlink_recoveries": 0.0, "nvlink_crc": now * 150})
    assert agent.verdicts(kinds.NVLINK_ERRORS) == {"Degraded"}
    assert agent.most_in_an_hour() <= 10


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


@pytest.fixture
def port(node: Any) -> Callable[[Callable[[float], int]], Sample]:
    """Ports whose symbol errors are what a function of the time says."""

    def make(symbol_errors: Callable[[float], int]) -> Sample:
        ports = [PortCounter(node, f"mlx5_{number}/1", "symbol_error") for number in range(4)]

        def sample(now: float) -> None:
            for each in ports:
                each.count(symbol_errors(now))

        return sample

    return make


def test_errors_of_a_port_weigh_more_within_the_hour(node: Any, port: Any) -> None:
    agent = Simulated(node.folder / "sys")
    sample = port(lambda now: int(now * 20))
    agent.run(10 * MINUTE, sample, 15.0)
    assert agent.verdicts(kinds.IB_COUNTERS) == {"Warning"}
    agent.run(HOUR, sample, 15.0)
    assert agent.verdicts(kinds.IB_COUNTERS) == {"Degraded"}
    agent.run(3 * HOUR, sample, 15.0)
    assert agent.verdicts(kinds.IB_COUNTERS) == {"Degraded"}
    assert agent.most_in_an_hour() <= 10


@pytest.mark.parametrize("counter", ["rnr_nak_retry_err", "local_ack_timeout_err", "port_xmit_discards"])
def test_peers_that_die_again_and_again_condemn_nobody(counter: str, node: Any) -> None:
    """A job that crashes every ten minutes makes all its nodes count errors of the one that went first."""
    agent = Simulated(node.folder / "sys")
    port = PortCounter(node, "mlx5_0/1", counter)
    agent.run(6 * HOUR, lambda now: port.count(int(now / 600) * 100_000), 15.0)
    assert agent.verdicts(kinds.IB_COUNTERS) == {"Warning"}
    assert agent.written()[0]["count"] == 1


def test_a_port_whose_own_link_errs_as_well_weighs_more(node: Any) -> None:
    agent = Simulated(node.folder / "sys")
    both = lambda now: node.port("mlx5_0/1", rnr_nak_retry_err=int(now / 600), symbol_error=int(now * 20))  # noqa: E731
    agent.run(2 * HOUR, both, 15.0)
    assert agent.verdicts(kinds.IB_COUNTERS) == {"Degraded"}


def test_many_ports_that_err_are_written_ten_times_an_hour_at_most(node: Any) -> None:
    """Each for itself would count four times an hour, and each at another time than the others."""
    agent = Simulated(node.folder / "sys")
    began = agent.now
    ports = [PortCounter(node, f"mlx5_{number}/1", "symbol_error") for number in range(8)]

    def sample(now: float) -> None:
        for number, port in enumerate(ports):
            port.count(int(max(0.0, now - began - 110 * number)) * 20)

    agent.run(4 * HOUR, sample, 15.0)
    assert agent.most_in_an_hour() <= 10
    assert len(agent.writes) > 20
    assert agent.verdicts(kinds.IB_COUNTERS) == {"Degraded"}
    assert len(agent.written()) == 8


def test_something_grave_is_written_at_once_whatever_rates_have_used_up() -> None:
    agent = Simulated()
    sample = replays(lambda now: 400.0 if now % 120 < 60 else 0.0)
    agent.run(3 * HOUR, sample)
    before = agent.now
    agent.run(MINUTE, lambda now: {**sample(now), "remap_failed": 1})
    assert agent.writes[-1][0] == before
    assert kinds.ROW_REMAP_FAILED in {item["kind"] for item in agent.written()}

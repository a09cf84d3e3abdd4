"""Rates through the agent: NVML's and sysfs's samples in, evidence, writes and what the operator makes of it out.

Hours in a simulated clock; days, and more ports, in tests/unit/nightly/agent/test_rates.py.
"""

from typing import Any

import pytest
from tests.unit.agent.simulated import (
    DAY,
    HOUR,
    MINUTE,
    PortCounter,
    Sample,
    Simulated,
    assert_that_a_toggling_rate_is_written_seldom,
    assert_that_dying_peers_condemn_nobody,
    assert_that_errors_of_ports_weigh_more_within_the_hour,
    assert_that_gpus_that_toggle_are_written_seldom,
    assert_that_ports_that_err_are_written_seldom,
    replays,
)

from muster.node.agent import kinds
from muster.node.agent.earlier import stored_evidence


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


@pytest.mark.parametrize("period", [300.0, 3000.0])
def test_a_rate_that_toggles_is_written_ten_times_an_hour_at_most(period: float) -> None:
    assert_that_a_toggling_rate_is_written_seldom(period, DAY / 2)


def test_eight_gpus_whose_rates_toggle_are_written_ten_times_an_hour_at_most() -> None:
    assert_that_gpus_that_toggle_are_written_seldom(1800.0, 4 * HOUR)


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


def test_errors_of_a_port_weigh_more_within_the_hour(node: Any) -> None:
    assert_that_errors_of_ports_weigh_more_within_the_hour(node, ports=1, later=0.0)


def test_peers_that_die_again_and_again_condemn_nobody(node: Any) -> None:
    assert_that_dying_peers_condemn_nobody(node, "rnr_nak_retry_err", 1.5 * HOUR)


def test_a_port_whose_own_link_errs_as_well_weighs_more(node: Any) -> None:
    agent = Simulated(node.folder / "sys")
    peers, link = (PortCounter(node, "mlx5_0/1", counter) for counter in ("rnr_nak_retry_err", "symbol_error"))

    def both(now: float) -> None:
        peers.count(int(now / 600))
        link.count(int(now * 20))

    agent.run(2 * HOUR, both, 15.0)
    assert agent.verdicts(kinds.IB_COUNTERS) == {"Degraded"}


def test_ports_that_err_at_different_times_are_written_ten_times_an_hour_at_most(node: Any) -> None:
    assert_that_ports_that_err_are_written_seldom(node, ports=4, hours=1.5, period=60.0)


def test_something_grave_is_written_at_once_whatever_rates_have_used_up() -> None:
    agent = Simulated()
    sample = replays(lambda now: 400.0 if now % 120 < 60 else 0.0)
    agent.run(3 * HOUR, sample)
    before = agent.now
    agent.run(MINUTE, lambda now: {**sample(now), "remap_failed": 1})
    assert agent.writes[-1][0] == before
    assert kinds.ROW_REMAP_FAILED in {item["kind"] for item in agent.written()}

"""Rates through the agent: days in a simulated clock, with each sample as often as on a node."""

from typing import Any

import pytest
from tests.unit.agent.simulated import (
    DAY,
    HOUR,
    MINUTE,
    Simulated,
    assert_that_a_toggling_rate_is_written_seldom,
    assert_that_dying_peers_condemn_nobody,
    gpus_that_toggle,
    ports_that_err,
)

from muster.node.agent import kinds


@pytest.mark.parametrize("period", [90.0, 150.0, 300.0, 1200.0, 1800.0, 3000.0, 7200.0])
def test_a_rate_that_toggles_is_written_ten_times_an_hour_at_most(period: float) -> None:
    assert_that_a_toggling_rate_is_written_seldom(period, 2 * DAY)


@pytest.mark.parametrize("period", [150.0, 1800.0, 5400.0, 40000.0])
def test_eight_gpus_whose_rates_toggle_are_written_ten_times_an_hour_at_most(period: float) -> None:
    agent = Simulated(gpus=8)
    agent.run(DAY, gpus_that_toggle(period))
    assert agent.most_in_an_hour() <= 10
    assert len(agent.writes) > 20


def test_errors_of_a_port_weigh_more_within_the_hour(node: Any) -> None:
    agent = Simulated(node.folder / "sys")
    sample = ports_that_err(node, 4, 0.0, 0.0)
    agent.run(10 * MINUTE, sample, 15.0)
    assert agent.verdicts(kinds.IB_COUNTERS) == {"Warning"}
    agent.run(HOUR, sample, 15.0)
    assert agent.verdicts(kinds.IB_COUNTERS) == {"Degraded"}
    agent.run(3 * HOUR, sample, 15.0)
    assert agent.verdicts(kinds.IB_COUNTERS) == {"Degraded"}
    assert agent.most_in_an_hour() <= 10


@pytest.mark.parametrize("counter", ["rnr_nak_retry_err", "local_ack_timeout_err", "port_xmit_discards"])
def test_peers_that_die_again_and_again_condemn_nobody(counter: str, node: Any) -> None:
    assert_that_dying_peers_condemn_nobody(node, counter, 6 * HOUR)


def test_many_ports_that_err_are_written_ten_times_an_hour_at_most(node: Any) -> None:
    """Each for itself would count four times an hour, and each at another time than the others."""
    agent = Simulated(node.folder / "sys")
    agent.run(4 * HOUR, ports_that_err(node, 8, 110.0, agent.now), 15.0)
    assert agent.most_in_an_hour() <= 10
    assert len(agent.writes) > 20
    assert agent.verdicts(kinds.IB_COUNTERS) == {"Degraded"}
    assert len(agent.written()) == 8

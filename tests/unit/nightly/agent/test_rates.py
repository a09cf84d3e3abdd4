"""Rates through the agent: days in a simulated clock, with each sample as often as on a node."""

from typing import Any

import pytest
from tests.unit.agent.simulated import (
    DAY,
    HOUR,
    assert_that_a_toggling_rate_is_written_seldom,
    assert_that_dying_peers_condemn_nobody,
    assert_that_errors_of_ports_weigh_more_within_the_hour,
    assert_that_gpus_that_toggle_are_written_seldom,
    assert_that_ports_that_err_are_written_seldom,
)


@pytest.mark.parametrize("period", [90.0, 150.0, 300.0, 1200.0, 1800.0, 3000.0, 7200.0])
def test_a_rate_that_toggles_is_written_ten_times_an_hour_at_most(period: float) -> None:
    assert_that_a_toggling_rate_is_written_seldom(period, 2 * DAY)


@pytest.mark.parametrize("period", [150.0, 1800.0, 5400.0, 40000.0])
def test_eight_gpus_whose_rates_toggle_are_written_ten_times_an_hour_at_most(period: float) -> None:
    assert_that_gpus_that_toggle_are_written_seldom(period, DAY)


def test_errors_of_a_port_weigh_more_within_the_hour(node: Any) -> None:
    assert_that_errors_of_ports_weigh_more_within_the_hour(node, ports=4, later=3 * HOUR)


@pytest.mark.parametrize("counter", ["rnr_nak_retry_err", "local_ack_timeout_err", "port_xmit_discards"])
def test_peers_that_die_again_and_again_condemn_nobody(counter: str, node: Any) -> None:
    assert_that_dying_peers_condemn_nobody(node, counter, 6 * HOUR)


def test_many_ports_that_err_are_written_ten_times_an_hour_at_most(node: Any) -> None:
    assert_that_ports_that_err_are_written_seldom(node, ports=8, hours=4, period=15.0)

"""The time that is told and written."""

from datetime import timedelta

from tests.unit.lifecycle.builders import at

from muster.answers.clock import agreed_time


def test_the_api_servers_clock_counts_where_this_one_is_wrong() -> None:
    local = at(0.7)
    assert agreed_time(local, None) == local
    assert agreed_time(local, at(0)) == local
    assert agreed_time(local, at(3600)) == at(3600)
    assert agreed_time(local + timedelta(days=1), at(0)) == at(0)

"""How often a signal that comes and goes is told, for hours."""

import pytest
from tests.unit.agent.signals import assert_that_it_is_gone_for_longer_each_time


@pytest.mark.parametrize("clear", [0.0, 5.0, 30.0, 60.0])
@pytest.mark.parametrize("pause", [1, 61, 599, 1799])
def test_what_comes_and_goes_is_gone_for_longer_each_time(pause: int, clear: float) -> None:
    assert_that_it_is_gone_for_longer_each_time(pause, clear, 8 * 3600)

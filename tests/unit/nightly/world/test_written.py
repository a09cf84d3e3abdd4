"""A world that is written down and read again is the same world: with more examples than in the gate."""

from hypothesis import HealthCheck, given, settings
from tests.unit.world.odd_worlds import again, content, odd_worlds

from muster.world.job import JobWorld


@settings(max_examples=50, suppress_health_check=list(HealthCheck))
@given(world=odd_worlds())
def test_whatever_is_seen_comes_back(world: JobWorld) -> None:
    assert content(again(world)) == content(world)

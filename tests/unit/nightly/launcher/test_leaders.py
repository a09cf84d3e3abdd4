"""A change of the leader in more random orders of events than the gate has."""

from __future__ import annotations

import pytest
from tests.unit.launcher.test_leaders import (
    SEEDS,
    an_old_leader_has_half_of_the_service,
    an_old_leader_sends_everybody_on,
)

MORE = range(SEEDS.stop, 8)


@pytest.mark.parametrize("seed", MORE)
def test_an_old_leader_that_lost_its_lease_sends_everybody_on(seed):
    an_old_leader_sends_everybody_on(seed)


@pytest.mark.parametrize("seed", MORE)
def test_an_old_leader_on_a_dead_node_still_has_half_of_the_service(seed):
    an_old_leader_has_half_of_the_service(seed)

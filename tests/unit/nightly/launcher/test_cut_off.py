"""Large gangs of which a part is cut off: the simulation of one takes up to half a minute."""

from __future__ import annotations

import pytest
from tests.unit.launcher.simulated import World
from tests.unit.launcher.test_cut_off import any_set_is_cut_off_together

from muster.protocol.fence import fenced_after_seconds

FENCE = 15.0


@pytest.mark.parametrize("block", [range(40, 120), range(0, 160, 2)], ids=["a row", "every other one"])
def test_half_of_a_large_gang(block):
    world = World(160)
    world.start()
    world.cut(set(block))
    world.clock.run(fenced_after_seconds(FENCE))
    assert {worker.index for worker in world.workers if not worker.is_training} == set(block)


@pytest.mark.parametrize("seed", range(4))
def test_any_set_that_is_cut_off_together(seed):
    any_set_is_cut_off_together(24, seed)

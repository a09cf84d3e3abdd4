"""The simulator's faults at random on real nodes, judged by the trainers' journals: for ATTACK_MINUTES."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import pytest

from attack.__main__ import attack, some_chaos
from attack.stage import CHAOS
from attack.way import Way, routed_through_proxy
from simulate.play import Story
from testbed.bed import Bed

SHORT_SECONDS = 45.0
SEEDS = (4, 10, 13)
MINUTES = float(os.environ.get("ATTACK_MINUTES", "12"))
SEED = int(os.environ.get("MUSTER_SEED") or time.time())


@pytest.fixture(scope="module")
def way(bed: Bed) -> Iterator[Way]:
    """A fault proxy between the operator and the API server."""
    with routed_through_proxy(bed) as made:
        yield made


@pytest.mark.parametrize("seed", SEEDS)
def test_a_short_life(bed: Bed, way: Way, seed: int) -> None:
    outcome = attack(bed, Story(seed, []), f"e2e-{seed}", some_chaos(seed), seconds=SHORT_SECONDS, way=way)
    assert outcome.violations == []
    assert any(not made.why_not for made in outcome.made), "nothing was attacked"


@pytest.mark.timeout(0)
def test_lives_until_the_time_is_over(bed: Bed, way: Way, record_property: Callable[[str, object], None]) -> None:
    """Each as long as four minutes of faults, so that a violation is near the faults that led to it."""
    record_property("seed", SEED)
    seed, until = SEED, time.monotonic() + 60 * MINUTES
    while time.monotonic() < until:
        chaos = sorted(CHAOS) if seed % 4 == 0 else some_chaos(seed)
        outcome = attack(bed, Story(seed, []), f"long-{seed}", chaos, seconds=240, way=way)
        assert outcome.violations == [], f"seed {seed}"
        seed += 1

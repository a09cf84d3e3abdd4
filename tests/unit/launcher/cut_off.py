"""Gangs of any size of which a part is cut off: what the tests of the gate and the nightly ones share."""

from __future__ import annotations

import random
from functools import partial

import pytest
from tests.unit.launcher.gang import World

from muster.node.launcher.fence_file import PERIOD_SECONDS
from muster.protocol.fence import fenced_after_seconds

FENCE = 15.0


def behind_one_switch(size: int) -> set[int]:
    """Of twelve the five from 3 on."""
    first = size // 4
    return set(range(first, first + size * 5 // 12))


def is_cut_right(world: World, members: set[int]) -> None:
    """Those who are cut off end in time, the others go on."""
    world.run(fenced_after_seconds(world.served_fence_seconds))
    ended = {worker.index for worker in world.workers if not worker.is_training}
    assert ended == members
    world.run(3 * FENCE)
    assert {worker.index for worker in world.workers if not worker.is_training} == members


def neighbours_behind_one_switch(size: int) -> None:
    world = World(size)
    world.start()
    cut = behind_one_switch(size)
    world.cut(cut)
    world.run(FENCE - 2)
    assert all(worker.is_training for worker in world.workers)
    world.run(2)
    is_cut_right(world, cut)


def any_set_is_cut_off_together(size: int, seed: int) -> None:
    chance = random.Random(seed)
    first, count = chance.randrange(size), chance.randint(1, size - 1)
    in_a_row = {(first + place) % size for place in range(count)}
    members = in_a_row if seed % 2 else set(chance.sample(range(size), count))
    world = World(size, seed)
    world.start()
    world.cut(members)
    is_cut_right(world, members)


def half_is_cut_off(size: int, block: range) -> None:
    world = World(size)
    world.start()
    world.cut(set(block))
    world.run(fenced_after_seconds(FENCE))
    assert {worker.index for worker in world.workers if not worker.is_training} == set(block)


def packets_pass_in_one_direction_only(size: int, *, outward: bool, inward: bool) -> None:
    world = World(size)
    world.start()
    cut = behind_one_switch(size)
    world.cut(cut, outward=outward, inward=inward)
    is_cut_right(world, cut)


def a_gang_makes_no_steps(size: int) -> None:
    """At least none of which its launchers know."""
    world = World(size)
    world.makes_steps = False
    world.start()
    cut = behind_one_switch(size)
    world.cut(cut)
    is_cut_right(world, cut)


def the_length_that_is_served_counts(size: int) -> None:
    world = World(size, served_fence_seconds=60.0)
    world.start()
    cut = behind_one_switch(size)
    world.cut(cut)
    world.run(58)
    assert all(worker.is_training for worker in world.workers)
    is_cut_right(world, cut)


def a_length_that_was_just_served_counts(size: int) -> None:
    """No report has told of it yet."""
    world = World(size)
    world.start()
    world.served_fence_seconds = 60.0
    members = behind_one_switch(size)
    cut = [world.workers[index] for index in sorted(members)]
    while not all(worker.supervisor._gang.served_fence_seconds == 60.0 for worker in cut):  # type: ignore[union-attr]
        world.run(0.001)
    assert any(worker.reporter.contact().fence_seconds == 15.0 for worker in cut)  # type: ignore[union-attr]
    world.cut(members)
    world.run(58)
    assert all(worker.is_training for worker in world.workers)
    is_cut_right(world, members)


def a_length_that_is_lowered_within_an_attempt_stays(size: int) -> None:
    world = World(size, served_fence_seconds=60.0)
    world.start()
    world.served_fence_seconds = 15.0
    world.run(5)
    world.cut(behind_one_switch(size))
    world.run(58)
    assert all(worker.is_training for worker in world.workers)


def the_length_counts_that_the_coordinator_was_told(size: int) -> None:
    """None is served, and steps that became longer since then are known here alone."""
    world = World(size, served_fence_seconds=0.0)
    world.start()
    members = behind_one_switch(size)
    world.cut(members)
    cut = [world.workers[index] for index in sorted(members)]
    for worker in cut:
        clock = worker.rank.clock
        assert clock.step is not None
        clock.add_step(clock.step + 1, world.agenda.now)
        clock._intervals.extend([40.0] * 64)
    assert all(worker.supervisor._fence_seconds(worker.supervisor._gang) == 120.0 for worker in cut)
    world.run(FENCE - 2)
    assert all(worker.is_training for worker in world.workers)
    world.run(2)
    is_cut_right(world, members)


def the_coordinator_alone_is_lost(size: int, *, makes_steps: bool) -> None:
    world = World(size)
    world.makes_steps = makes_steps
    world.start()
    world.cut(set(range(size)))  # from the coordinator, since nobody else is left
    world.run(4 * FENCE)
    assert all(worker.is_training for worker in world.workers)


def the_fence_file_is_asked_once_an_answer_is_overdue(seconds: float) -> None:
    """Thousands of launchers report less often, and the coordinator holds an answer for that long."""
    world = World(4, has_storage=True)
    world.pace_seconds = seconds
    world.start()
    world.write_fence_file(2)
    world.run(100)
    assert all(worker.is_training for worker in world.workers)
    world.cut(range(4))
    world.run(2 * seconds + 2 * PERIOD_SECONDS)
    assert not any(worker.is_training for worker in world.workers)


AT_ANY_SIZE = [
    pytest.param(neighbours_behind_one_switch, id="neighbours behind one switch"),
    pytest.param(
        partial(packets_pass_in_one_direction_only, outward=True, inward=False), id="they hear and are not heard"
    ),
    pytest.param(
        partial(packets_pass_in_one_direction_only, outward=False, inward=True), id="they are heard and do not hear"
    ),
    pytest.param(a_gang_makes_no_steps, id="the gang makes no steps of which its launchers know"),
    pytest.param(the_length_that_is_served_counts, id="the length that is served counts"),
    pytest.param(a_length_that_was_just_served_counts, id="it counts though no report has told it yet"),
    pytest.param(a_length_that_is_lowered_within_an_attempt_stays, id="one that is lowered within an attempt stays"),
    pytest.param(the_length_counts_that_the_coordinator_was_told, id="none is served: the one counts that it was told"),
    pytest.param(partial(the_coordinator_alone_is_lost, makes_steps=True), id="without the coordinator alone"),
    pytest.param(partial(the_coordinator_alone_is_lost, makes_steps=False), id="without it and without steps"),
]
"""What holds of a gang of any size: each is called with the number of its workers."""

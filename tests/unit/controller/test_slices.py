"""Long work lets other tasks run after each slice, and only then."""

import asyncio
from collections.abc import Generator

import pytest
from tests.unit.clock import Clock

from muster.controller.slices import SLICE_SECONDS, Slices, in_slices


def steps(clock: Clock, *seconds: float) -> Generator[None, None, str]:
    for each in seconds:
        clock.now += each
        yield
    return "done"


async def others_that_ran(clock: Clock, *seconds: float) -> tuple[int, str]:
    """How many tasks of others came to run during the work, and what the work returned."""
    ran = list[int]()
    others = [asyncio.get_running_loop().create_task(_note(ran, number)) for number in range(3)]
    result = await in_slices(steps(clock, *seconds), clock)
    counted = len(ran)
    await asyncio.gather(*others)
    return counted, result


async def _note(ran: list[int], number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)
    ran.append(number)


async def test_short_work_is_done_in_one_slice(clock: Clock) -> None:
    assert await others_that_ran(clock, SLICE_SECONDS / 4, SLICE_SECONDS / 4) == (0, "done")


async def test_after_each_slice_others_run(clock: Clock) -> None:
    assert await others_that_ran(clock, 2 * SLICE_SECONDS, 0.75 * SLICE_SECONDS, 0.75 * SLICE_SECONDS) == (2, "done")


async def test_a_pause_returns_the_seconds_that_others_took(clock: Clock) -> None:
    async def other() -> None:
        clock.now += 7.0

    slices = Slices(clock)
    clock.now += 2 * SLICE_SECONDS
    task = asyncio.get_running_loop().create_task(other())
    assert await slices.pause() == pytest.approx(7.0)
    assert await slices.pause() == 0.0
    await task

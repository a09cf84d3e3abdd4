"""A process that loses a loop ends there and then, unless it is stopping."""

import asyncio

import pytest

from muster.controller.loops import Loops
from muster.kube.errors import LeadershipLost


@pytest.mark.parametrize("error", [LeadershipLost("another replica leads"), RuntimeError("a defect")])
async def test_a_loop_that_fails_ends_the_process(error: Exception) -> None:
    codes = list[int]()
    loops = Loops("me", codes.append)

    async def fails() -> None:
        raise error

    loops.start("fails", fails)
    await asyncio.sleep(0)
    assert (codes, loops.ended()) == ([1], ["fails"])


async def test_a_stop_ends_all_loops_and_lets_the_process_go_on_to_its_end() -> None:
    codes, ended = list[int](), list[str]()
    loops = Loops("me", codes.append)

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("waits")

    async def fails_at_its_end() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise LeadershipLost("the lease is over")

    loops.start("waits", waits)
    loops.start("fails at its end", fails_at_its_end)
    await asyncio.sleep(0)
    assert loops.ended() == []
    await loops.stop()
    loops.give_up("lease lost")
    assert (codes, ended, loops.ended()) == ([], ["waits"], ["waits", "fails at its end"])

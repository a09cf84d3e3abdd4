"""Simulated time: everything in its order, and nothing waits for a real clock."""

import asyncio

import pytest

from simulate.loop import SimulatedLoop, StandstillError


def test_events_and_timers_come_at_their_moments_in_one_order() -> None:
    loop, seen = SimulatedLoop(0.0), []

    async def sleeper(seconds: float) -> None:
        await asyncio.sleep(seconds)
        seen.append(("slept", loop.time()))

    async def all_of_it() -> None:
        loop.agenda.at(2.0, lambda: seen.append(("event", loop.time())))
        loop.agenda.at(7200.0, lambda: seen.append(("late event", loop.time())))
        loop.agenda.at(2.0, lambda: seen.append(("second event", loop.time())))
        await asyncio.gather(sleeper(1.0), sleeper(3600.0), sleeper(7201.0))

    loop.run_until_complete(all_of_it())
    assert seen == [
        ("slept", 1.0),
        ("event", 2.0),
        ("second event", 2.0),
        ("slept", 3600.0),
        ("late event", 7200.0),
        ("slept", 7201.0),
    ]


def test_an_event_wakes_who_waits_for_it() -> None:
    loop = SimulatedLoop(0.0)

    async def wait() -> float:
        come = asyncio.Event()
        loop.agenda.after(5.0, come.set)
        async with asyncio.timeout(6.0):
            await come.wait()
        return loop.time()

    assert loop.run_until_complete(wait()) == 5.0


def test_where_nothing_can_happen_any_more_nobody_waits_for_ever() -> None:
    loop = SimulatedLoop()
    with pytest.raises(StandstillError):
        loop.run_until_complete(asyncio.Event().wait())


def test_an_event_that_fails_is_told_and_the_others_come() -> None:
    loop, seen, failed = SimulatedLoop(0.0), [], []
    loop.set_exception_handler(lambda _, context: failed.append(context["exception"]))
    loop.agenda.at(1.0, lambda: 1 / 0)
    loop.agenda.at(2.0, lambda: seen.append(loop.time()))
    loop.run_until_complete(asyncio.sleep(3.0))
    assert seen == [2.0]
    assert [type(error) for error in failed] == [ZeroDivisionError]

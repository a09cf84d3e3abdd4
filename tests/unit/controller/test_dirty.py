"""The queue of keys."""

import asyncio
from typing import Any

from tests.unit.counting import CountedWork

from localcluster.patience import PATIENCE_SECONDS
from muster.controller.dirty import DirtyKeys

A, B, C = ("ns", "a"), ("ns", "b"), ("other", "c")


async def taken(dirty: DirtyKeys) -> tuple[str, str] | None:
    """What is due now, None when nothing is."""
    task = asyncio.create_task(dirty.next_key())
    for _ in range(5):
        await asyncio.sleep(0)
    if task.done():
        return task.result()
    task.cancel()
    return None


async def test_each_key_is_there_once_and_the_soonest_time_counts(clock: Any) -> None:
    dirty = DirtyKeys(clock)
    dirty.add(A, 10.0)
    dirty.add(B, 5.0)
    dirty.add(A, 1.0)
    dirty.add(A, 20.0)
    assert len(dirty) == 2
    assert await taken(dirty) is None
    clock.advance(1.0)
    assert await taken(dirty) == A
    clock.advance(30.0)
    assert await taken(dirty) == B
    assert await taken(dirty) is None


async def test_a_key_is_not_handed_out_twice_at_a_time(clock: Any) -> None:
    dirty = DirtyKeys(clock)
    dirty.add(A)
    assert await taken(dirty) == A
    dirty.add(A, 7.0)
    dirty.add(A)
    assert await taken(dirty) is None
    dirty.done(A, rest_seconds=2.0)
    clock.advance(1.9)
    assert await taken(dirty) is None
    clock.advance(0.1)
    assert await taken(dirty) == A
    dirty.done(A)
    clock.advance(30.0)
    assert await taken(dirty) is None, "it was added before it was taken again, not since"


async def test_a_key_rests_whenever_it_is_added(clock: Any) -> None:
    dirty = DirtyKeys(clock)
    for _ in range(2):
        dirty.add(A)
        assert await taken(dirty) == A
        dirty.done(A, rest_seconds=2.0)
        clock.advance(1.0)
        dirty.add(A)
        dirty.add(B)
        assert await taken(dirty) == B, "another one does not rest"
        dirty.done(B)
        assert await taken(dirty) is None
        clock.advance(1.0)
        assert await taken(dirty) == A
        dirty.done(A)


async def test_a_waiting_worker_sees_a_key_that_comes_later() -> None:
    dirty = DirtyKeys()
    waiting = [asyncio.create_task(dirty.next_key()) for _ in range(2)]
    await asyncio.sleep(0)
    dirty.add(B, 0.02)
    dirty.add(A)
    assert await asyncio.wait_for(asyncio.gather(*waiting), PATIENCE_SECONDS) in ([A, B], [B, A])


async def test_namespaces_take_turns_however_many_keys_of_one_are_due(clock: Any) -> None:
    dirty = DirtyKeys(clock)
    for number in range(1000):
        dirty.add(("many", f"{number:03}"))
    clock.advance(1.0)
    assert await taken(dirty) == ("many", "000")
    dirty.add(("few", "a"))
    dirty.add(("few", "b"))
    clock.advance(1.0)
    got = [await taken(dirty) for _ in range(5)]
    assert got == [("many", "001"), ("few", "a"), ("many", "002"), ("few", "b"), ("many", "003")]
    assert len(dirty) == 996
    for key in got:
        assert key is not None
        dirty.done(key)
    assert [await taken(dirty) for _ in range(997)][-2:] == [("many", "999"), None]


async def test_a_hurried_job_does_not_rest(clock: Any) -> None:
    dirty = DirtyKeys(clock)
    dirty.add(A)
    assert await taken(dirty) == A
    dirty.done(A, rest_seconds=5.0)
    dirty.hurry(A)
    assert await taken(dirty) == A
    dirty.hurry(A)
    dirty.done(A, rest_seconds=5.0)
    assert await taken(dirty) == A
    dirty.done(A, rest_seconds=5.0)
    dirty.add(A)
    assert await taken(dirty) is None


async def test_a_key_that_is_always_changed_and_due_in_a_year_leaves_nothing_behind(clock: Any) -> None:
    dirty = DirtyKeys(clock)
    dirty.add(B, 1e6)
    for _ in range(5000):
        dirty.add(A)
        assert await dirty.next_key() == A
        dirty.add(A, 1e7)
        dirty.done(A)
    assert len(dirty._heap) < 1100
    clock.advance(1e7)
    assert {await taken(dirty), await taken(dirty)} == {A, B}


async def test_all_that_is_due_is_handed_out_at_once_and_each_is_done_by_itself(clock: Any) -> None:
    dirty = DirtyKeys(clock)
    for key, seconds in ((A, 0.0), (B, 0.0), (C, 5.0)):
        dirty.add(key, seconds)
    assert dirty.next_keys() == [A, B]
    assert dirty.next_keys() == []
    dirty.add(A)
    dirty.done(B)
    assert dirty.next_keys() == [], "A is being worked on"
    dirty.done(A)
    assert dirty.next_keys() == [A]


async def test_a_key_with_news_is_not_reserved_and_one_that_is_due_later_stays_so(clock: Any) -> None:
    dirty = DirtyKeys(clock)
    dirty.add(A)
    assert not dirty.reserve_key(A), "it is looked at first"
    assert dirty.next_keys() == [A]
    dirty.add(B, 5.0)
    assert dirty.reserve_key(B)
    assert not dirty.has_news(B)
    dirty.done(B)
    clock.advance(5.0)
    assert dirty.next_keys() == [B]
    dirty.add(B)
    assert dirty.has_news(B)


async def test_rests_that_are_over_are_dropped_now_and_then(clock: Any) -> None:
    dirty, keys = DirtyKeys(clock), [("", f"n{number}") for number in range(3000)]
    for key in keys:
        dirty.add(key)
    assert sorted(dirty.next_keys()) == sorted(keys)
    with CountedWork() as counted:
        for key in keys:
            dirty.done(key, rest_seconds=1.0)
    assert counted.steps < 100 * len(keys)
    for turn in range(5000):
        clock.advance(2.0)
        assert dirty.reserve_key(("", f"m{turn}"))
        dirty.done(("", f"m{turn}"), rest_seconds=1.0)
    assert len(dirty._rests) <= 4096


async def test_a_key_that_is_not_due_is_reserved_unless_it_is_busy_or_rests(clock: Any) -> None:
    dirty = DirtyKeys(clock)
    assert dirty.reserve_key(B)
    assert not dirty.reserve_key(B)
    dirty.done(B, rest_seconds=2.0)
    clock.advance(1.0)
    assert not dirty.reserve_key(B)
    assert dirty.next_keys() == []
    clock.advance(1.0)
    assert dirty.next_keys() == [B], "it was asked for while it was busy"


async def test_who_waits_is_woken_by_a_key_or_when_the_time_is_over(clock: Any) -> None:
    dirty = DirtyKeys(clock)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await dirty.wait(0.0)
        waits = asyncio.create_task(dirty.wait(3600.0))
        await asyncio.sleep(0)
        assert not waits.done()
        dirty.add(A)
        await waits
        await dirty.wait(3600.0)
    assert dirty.next_keys() == [A], "to wait takes nothing"

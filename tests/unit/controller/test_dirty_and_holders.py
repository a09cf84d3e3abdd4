"""The queue of keys, and the account of who holds which node."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.controller.dirty import DirtyKeys
from muster.controller.holders import Holders

A, B = ("ns", "a"), ("ns", "b")


async def taken(dirty: DirtyKeys) -> tuple[str, str] | None:
    """What is due now, None when nothing is."""
    task = asyncio.create_task(dirty.take())
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
    dirty.done(A, not_before_seconds=2.0)
    clock.advance(1.9)
    assert await taken(dirty) is None
    clock.advance(0.1)
    assert await taken(dirty) == A
    dirty.done(A)
    clock.advance(30.0)
    assert await taken(dirty) is None, "it was added before it was taken again, not since"


async def test_a_waiting_worker_sees_a_key_that_comes_later() -> None:
    dirty = DirtyKeys()
    waiting = [asyncio.create_task(dirty.take()) for _ in range(2)]
    await asyncio.sleep(0)
    dirty.add(B, 0.02)
    dirty.add(A)
    assert await asyncio.wait_for(asyncio.gather(*waiting), 30) in ([A, B], [B, A])


def test_a_node_is_free_when_its_last_source_lets_go() -> None:
    holders = Holders()
    assert not holders.set("gang", "job-1", frozenset({"n0", "n1"}))
    assert not holders.set("pod", "job-1", frozenset({"n0"}))
    assert not holders.set("other", "job-2", frozenset({"n1"}))
    assert not holders.set("gang", "job-1", frozenset()), "each of the two has another source"
    assert dict(holders) == {"n0": {"job-1"}, "n1": {"job-2"}}
    assert holders.set("pod", "job-1", frozenset({"n2"}))
    assert dict(holders) == {"n1": {"job-2"}, "n2": {"job-1"}}
    with pytest.raises(KeyError):
        holders["n0"]


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from("xy"), st.frozensets(st.sampled_from(["n0", "n1", "n2"])))
    )
)
def test_the_account_is_what_the_sources_last_said(changes: list[tuple[str, str, frozenset[str]]]) -> None:
    holders, said = Holders(), {}
    for source, holder, nodes in changes:
        before = set(holders)
        freed = holders.set(source, holder, nodes)
        said[source] = (holder, nodes)
        want: dict[str, set[str]] = {}
        for who, where in said.values():
            for node in where:
                want.setdefault(node, set()).add(who)
        assert dict(holders) == want
        assert len(holders) == len(want)
        assert freed == bool(before - set(want))

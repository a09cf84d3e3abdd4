"""One stream for each purpose and object: what draws once more, or comes new, moves nothing else."""

import asyncio
from typing import Any

import pytest

from simulate.client import SimulatedClient
from simulate.fault import Fault
from simulate.play import Story, play
from simulate.streams import Streams


def test_a_draw_more_moves_no_other_stream() -> None:
    one, other = Streams(7), Streams(7)
    one.stream("pace", "a").random()
    assert one.stream("pace", "b").random() == other.stream("pace", "b").random()
    assert one.stream("latency", "b").random() == other.stream("latency", "b").random()
    assert one.stream("pace", "a").random() != other.stream("pace", "a").random(), "the first has drawn before"


def test_streams_differ_by_seed_purpose_and_name() -> None:
    streams = [Streams(seed).stream(*key) for seed in (7, 8) for key in (("pace", "a"), ("pace", "b"), ("save", "a"))]
    assert len({stream.random() for stream in streams}) == len(streams)


def test_one_api_request_more_moves_nothing_else_of_a_life(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator asks for the nodes beside each of its requests: the life stays the same, to its last event."""
    told = Story(1, [Fault(40.0, "RankKilled", job="a"), Fault(60.0, "PodDeleted", job="b"), Fault(80.0, "WatchesEnd")])
    as_it_is = play(told)
    request = SimulatedClient._request
    more: set[asyncio.Task[Any]] = set()

    async def twice(self: SimulatedClient, *arguments: Any) -> bytes:
        task = asyncio.create_task(request(self, "GET", "/api/v1/nodes/n0", None, None, "", 10.0))
        more.add(task)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await request(self, *arguments)

    monkeypatch.setattr(SimulatedClient, "_request", twice)
    other = play(told)
    assert len(more) > 100
    assert (other.seconds, other.events, other.checks) == (as_it_is.seconds, as_it_is.events, as_it_is.checks)
    assert other.violation == as_it_is.violation == ""

"""The decisions that are kept, over real HTTP, on the loopback address alone."""

from collections.abc import AsyncIterator

import aiohttp
import pytest
from tests.unit.lifecycle.builders import SETTINGS, a_fleet, a_job, a_node, at

from muster.coordinator.worlds import serve_worlds
from muster.lifecycle.decided import Decided, replay
from muster.lifecycle.plan import Plan
from muster.lifecycle.step import decide
from muster.world.job import JobWorld


def decided(seconds: float) -> Decided:
    world = JobWorld(at(seconds), a_job(), fleet=a_fleet([a_node("n0")]))
    return Decided(world, SETTINGS, decide(world, SETTINGS))


KEPT = {("default", "job"): [decided(1), decided(2)]}


@pytest.fixture
async def served() -> AsyncIterator[tuple[str, int]]:
    runner = await serve_worlds(0, lambda key: KEPT.get(key, []))
    yield runner.addresses[0][:2]
    await runner.cleanup()


async def get(served: tuple[str, int], path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://{served[0]}:{served[1]}{path}") as answer:
        return answer.status, await answer.text()


async def test_a_line_for_each_decision_the_newest_last(served: tuple[str, int]) -> None:
    status, text = await get(served, "/worlds/default/job")
    replayed = [replay(line) for line in text.splitlines()]
    assert (status, [each.world.now for each in replayed]) == (200, [at(1), at(2)])
    assert all(each.same for each in replayed)


async def test_a_job_that_nobody_knows_is_told_with_the_replica_to_ask(served: tuple[str, int]) -> None:
    status, text = await get(served, "/worlds/default/other")
    assert status == 404
    assert "default/other" in text
    assert "muster-leader" in text


async def test_only_this_pod_can_ask(served: tuple[str, int]) -> None:
    assert served[0] == "127.0.0.1"


async def test_a_port_that_is_taken_is_an_error(served: tuple[str, int]) -> None:
    with pytest.raises(OSError, match="in use"):
        await serve_worlds(served[1], lambda _key: [Decided(JobWorld(at(0), a_job()), SETTINGS, Plan())])

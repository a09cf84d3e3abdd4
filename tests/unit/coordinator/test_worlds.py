"""The decisions that are kept, over real HTTP, on the loopback address alone."""

import json
from collections.abc import AsyncIterator
from functools import partial

import aiohttp
import pytest
from tests.unit.health.builders import after, evidence, sick
from tests.unit.health.builders import world as node_world
from tests.unit.lifecycle.builders import SETTINGS, a_fleet, a_job, a_node, at

from muster.api.fleetpolicy import FleetPolicySpec
from muster.coordinator.worlds import Line, serve_worlds
from muster.decision.decided import Decided, replay, write
from muster.health import node_decision
from muster.health.assess import assess
from muster.health.node_decision import NodeDecision
from muster.lifecycle.step import decide
from muster.world.job import JobWorld


def decided(seconds: float) -> Line:
    world = JobWorld(at(seconds), a_job(), fleet=a_fleet([a_node("n0")]))
    return partial(write, Decided(world, SETTINGS, decide(world, SETTINGS)))


def judged(seconds: float) -> Line:
    world = node_world(sick(evidence("Xid", 79)), now=after(seconds))
    return partial(node_decision.write, NodeDecision(FleetPolicySpec(), world, assess(world)))


KEPT = {("default", "job"): [decided(1), decided(2)]}
KEPT_OF_NODES = {"node-1": [judged(1), judged(2)]}


@pytest.fixture
async def served() -> AsyncIterator[tuple[str, int]]:
    runner = await serve_worlds(0, lambda key: KEPT.get(key, []), lambda name: KEPT_OF_NODES.get(name, []))
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


async def test_a_line_for_each_decision_about_a_node_the_newest_last(served: tuple[str, int]) -> None:
    status, text = await get(served, "/nodes/node-1")
    replayed = [node_decision.replay(json.loads(line)) for line in text.splitlines()]
    assert (status, [each.world.now for each in replayed]) == (200, [after(1), after(2)])
    assert all(each.same and each.now["reason"] == "Xid79" for each in replayed)


async def test_of_a_node_that_was_healthy_all_along_the_answer_names_the_replica_to_ask(
    served: tuple[str, int],
) -> None:
    status, text = await get(served, "/nodes/node-2")
    assert status == 404
    assert "node-2" in text
    assert "not healthy" in text
    assert "muster-leader" in text


async def test_only_this_pod_can_ask(served: tuple[str, int]) -> None:
    assert served[0] == "127.0.0.1"


async def test_a_port_that_is_taken_is_an_error(served: tuple[str, int]) -> None:
    with pytest.raises(OSError, match="in use"):
        await serve_worlds(served[1], lambda _key: [decided(0)], lambda _name: [])

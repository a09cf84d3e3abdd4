"""The queue of conditions: a few writes, whoever rewrites them, and one word where the right is missing."""

import asyncio
import json
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

from tests.unit.health.builders import NOW, evidence, facts, healthy, node, rules, sick
from tests.unit.waiting import until

from localcluster.patience import PATIENCE_SECONDS
from muster.controller import nodemarks
from muster.controller.nodemarks import NodeMarks
from muster.controller.pace import MAX_WRITES_PER_HOUR
from muster.health.assess import assess
from muster.health.node_world import NodeWorld
from muster.health.verdict import Verdict
from muster.kube.errors import Forbidden, from_status
from muster.world.views import ConditionView

WELL = assess(NodeWorld(facts(), healthy(), rules(), NOW))
SICK = assess(NodeWorld(facts(), sick(evidence("Xid", 79)), rules(), NOW))

DENIAL = {
    "kind": "Status",
    "reason": "Forbidden",
    "message": "nodes \"node-1\" is forbidden: ValidatingAdmissionPolicy 'muster-scope' denied request: it is outside",
}


class World:
    """A node whose condition somebody else takes away after each write."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.refuses = refuses
        self.denies = ""
        self.writes: list[Any] = []
        self.events: list[str] = []
        self.granted = asyncio.Event()
        self.seconds = 0.0
        self.on = True
        self.unknown = False
        self.nodes = {"node-1": node()}
        policy = lambda: SimpleNamespace(health=SimpleNamespace(node_condition=self.on))  # noqa: E731
        self.cluster = SimpleNamespace(
            fleet=SimpleNamespace(nodes=self.nodes),
            policy=policy,
            policy_unknown=False,
            nodes=SimpleNamespace(assume=lambda _answer: None),
            policies=SimpleNamespace(
                store={("", "default"): SimpleNamespace(metadata=SimpleNamespace(uid="u"))},
            ),
        )
        recorder = SimpleNamespace(record=lambda _about, _kind, reason, _text: self.events.append(reason))
        self.marks = NodeMarks(
            cast("Any", self),
            cast("Any", self.cluster),
            cast("Any", recorder),
            lambda: self.seconds,
            lambda: NOW + timedelta(seconds=self.seconds),
        )

    async def patch(self, path: str, body: Any, content_type: str) -> bytes:
        self.writes.append((path, body, content_type))
        if len(self.writes) == 4:
            self.refuses = False
            self.granted.set()
        if self.refuses:
            raise Forbidden(403, "Forbidden", "no")
        if self.denies and self.denies in path:
            raise from_status(403, json.dumps(DENIAL).encode())
        return b""

    async def turns(self, verdict: Verdict, count: int) -> None:
        for _ in range(count):
            self.marks.want("node-1", verdict)
            await self.marks.write_condition("node-1")


async def test_a_writer_that_removes_it_again_and_again_costs_ten_writes_an_hour() -> None:
    world = World()
    await world.turns(SICK, 25)
    assert len(world.writes) == MAX_WRITES_PER_HOUR
    world.seconds = 3601
    await world.turns(SICK, 25)
    assert len(world.writes) == 2 * MAX_WRITES_PER_HOUR
    path, body, _ = world.writes[-1]
    assert path == "/api/v1/nodes/node-1/status"
    assert body["metadata"] == {"uid": "uid-node-1"}
    world.marks.forget("node-1")


async def test_what_is_so_costs_no_write() -> None:
    world = World()
    message = "Muster itself sees no fault of this node."
    world.nodes["node-1"] = node(conditions=(ConditionView("MusterHealthy", "True", "Healthy", message, NOW),))
    await world.turns(WELL, 5)
    assert world.writes == []


async def test_nothing_is_done_where_it_is_off_or_nobody_knows_what_the_policy_says() -> None:
    world = World()
    world.on = False
    await world.turns(SICK, 3)
    world.on, world.cluster.policy_unknown = True, True
    await world.turns(SICK, 3)
    assert world.writes == []


async def test_a_right_that_is_missing_is_told_once_and_asked_for_again_after_a_while(monkeypatch: Any) -> None:
    monkeypatch.setattr(nodemarks, "REFUSED_SECONDS", 0.01)
    world = World(refuses=True)
    world.marks.want("node-1", SICK)
    running = asyncio.create_task(world.marks.run())
    async with asyncio.timeout(PATIENCE_SECONDS):
        await world.granted.wait()
    running.cancel()
    assert world.events == ["NodeConditionRefused"]


async def test_a_denial_for_one_node_holds_up_no_other() -> None:
    world = World()
    world.denies = "node-1"
    world.nodes["node-2"] = replace(node(), name="node-2")
    for name in world.nodes:
        world.marks.want(name, SICK)
    running = asyncio.create_task(world.marks.run())
    await until(lambda: [path.split("/")[-2] for path, _, _ in world.writes] == ["node-1", "node-2"])
    assert (world.events, list(world.marks._waiting)) == ([], ["node-1"])
    running.cancel()


async def test_a_condition_that_may_not_be_removed_is_reported_as_left(monkeypatch: Any) -> None:
    monkeypatch.setattr(nodemarks, "REFUSED_SECONDS", 0.01)
    world = World(refuses=True)
    world.on = False
    world.nodes["node-1"] = node(conditions=(ConditionView("MusterHealthy", "True", "Healthy", "", NOW),))
    world.marks.want("node-1", WELL)
    running = asyncio.create_task(world.marks.run())
    async with asyncio.timeout(PATIENCE_SECONDS):
        await world.granted.wait()
    running.cancel()
    assert world.events == ["NodeConditionLeft"]

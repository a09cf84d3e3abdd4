"""When the nodes' leases are read, and what is made of the answer."""

import asyncio
import json
from typing import Any

import pytest

from muster.kube.decode import NodeLease
from muster.kube.errors import ServerError
from muster.kube.nodeleases import NEAR_LEASES_PER_SECOND, REST_SECONDS, NodeLeases


def lease(name: str, version: int, renewed: Any = "2026-11-01T00:00:00Z") -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": str(version)}, "spec": {"renewTime": renewed}}


class Server:
    """Answers with the same leases, and says when it was asked."""

    def __init__(self, *items: dict[str, Any]) -> None:
        self.items = items
        self.asked: list[float] = []
        self.fails = 0

    async def get(self, path: str, query: Any = None, *, deadline_seconds: float | None = None) -> bytes:
        self.asked.append(asyncio.get_running_loop().time())
        if self.fails:
            self.fails -= 1
            raise ServerError(500, "InternalError", "not now")
        return json.dumps({"metadata": {"resourceVersion": "77"}, "items": self.items}).encode()


def reader(server: Server, taken: list[Any]) -> NodeLeases:
    return NodeLeases(
        server,  # type: ignore[arg-type]
        lambda leases, version, _: taken.append((leases, version)),
        lambda: asyncio.get_running_loop().time(),
    )


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Lets so many seconds of the loop's clock pass, in an instant."""
    skipped = 0.0
    now = asyncio.BaseEventLoop.time
    monkeypatch.setattr(asyncio.BaseEventLoop, "time", lambda loop: now(loop) + skipped)

    async def passing(count: float) -> None:
        nonlocal skipped
        for _ in range(round(count * 4)):
            for _ in range(6):
                await asyncio.sleep(0)
            skipped += 0.25

    return passing


async def count(server: Server, seconds: Any, during: float) -> int:
    before = len(server.asked)
    await seconds(during)
    return len(server.asked) - before


async def test_leases_are_read_at_rest_and_near_to_each_other_while_somebody_asks(seconds: Any) -> None:
    server, taken = Server(lease("n0", 70)), list[Any]()
    leases = reader(server, taken)
    task = asyncio.create_task(leases.run())
    try:
        assert await count(server, seconds, 1.0) == 1
        assert leases.synced.is_set()
        assert taken == [([NodeLease("n0", "2026-11-01T00:00:00Z", 70)], 77)]
        assert 3 <= await count(server, seconds, 4 * REST_SECONDS) <= 4
        leases.ask()
        assert await count(server, seconds, 0.5) >= 1, "whoever asks does not wait for the next one"
        leases.ask()
        assert 8 <= await count(server, seconds, 10.0) <= 11
        await seconds(10.0)
        assert 3 <= await count(server, seconds, 4 * REST_SECONDS) <= 4, "nobody asks any more"
    finally:
        task.cancel()


async def test_a_large_fleet_is_looked_at_less_often(seconds: Any) -> None:
    number = 4 * NEAR_LEASES_PER_SECOND
    server, taken = Server(*(lease(f"n{each}", 70) for each in range(number))), list[Any]()
    leases = reader(server, taken)
    task = asyncio.create_task(leases.run())
    try:
        await seconds(1.0)
        leases.ask()
        assert await count(server, seconds, 8.0) in (1, 2, 3)
    finally:
        task.cancel()


async def test_a_look_that_fails_is_tried_again_at_once(seconds: Any) -> None:
    server, taken = Server(lease("n0", 70)), list[Any]()
    server.fails = 2
    leases = reader(server, taken)
    task = asyncio.create_task(leases.run())
    try:
        assert await count(server, seconds, 2.0) == 3
        assert len(taken) == 1
    finally:
        task.cancel()


async def test_a_lease_that_cannot_be_read_hides_no_other() -> None:
    taken: list[Any] = []
    bare = {"metadata": {"name": "n2", "resourceVersion": "72"}}
    await reader(Server(lease("n0", 70), lease("n1", 71, renewed=5), bare), taken).read_leases()
    want = [NodeLease("n0", "2026-11-01T00:00:00Z", 70), NodeLease("n1", "", 71), NodeLease("n2", "", 72)]
    assert taken == [(want, 77)]

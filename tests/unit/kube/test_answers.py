"""Who is asked on which connection, and what is known of the API server's answers; against a server that is played."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from aiohttp import web
from kubernetes.aio.client import Configuration

from localcluster.patience import PATIENCE_SECONDS
from muster.kube.client import AWAY_SECONDS, DATED_SECONDS, Answers, Client
from muster.kube.errors import ApiError


class Server:
    """Answers leases at once, pods when `gate` is open, everything else with `status`."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.status = 200
        self.asked = 0

    async def __call__(self, request: web.Request) -> web.Response:
        self.asked += 1
        if "pods" in request.path:
            await self.gate.wait()
        return web.json_response({"kind": "Anything"}, status=self.status)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.__call__)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"  # type: ignore[attr-defined]
    yield made
    made.gate.set()
    await runner.cleanup()


@pytest.fixture
async def client(server: Any) -> AsyncIterator[Client]:
    configuration = Configuration()
    configuration.host = server.url
    made = Client(configuration)
    yield made
    await made.close()


async def test_a_sibling_waits_for_nobodys_writes(server: Any, client: Client) -> None:
    pods, lease = "/api/v1/namespaces/x/pods", "/apis/coordination.k8s.io/v1/namespaces/x/leases/l"
    posts = [asyncio.create_task(client.post(pods, {}, deadline_seconds=PATIENCE_SECONDS)) for _ in range(512)]
    sibling = client.sibling()
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            taken = -1
            while taken != server.asked:  # until no more connections are opened
                taken = server.asked
                await asyncio.sleep(0.1)
            await sibling.put(lease, {}, guarded=False, deadline_seconds=PATIENCE_SECONDS)
        assert taken < len(posts), "the others wait for a connection"
        assert not any(post.done() for post in posts)
    finally:
        server.gate.set()
        await asyncio.gather(*posts)
        await sibling.close()


@pytest.mark.parametrize(("status", "heard"), [(200, True), (403, True), (404, True), (500, False), (503, False)])
async def test_an_answer_to_a_sibling_counts_a_server_in_trouble_does_not(
    server: Any, client: Client, status: int, heard: bool
) -> None:
    moments: list[str] = []
    client.answers.heard = lambda _date: moments.append("heard")  # type: ignore[method-assign]
    server.status = status
    sibling = client.sibling()
    with contextlib.suppress(ApiError):
        await sibling.put("/version", {}, guarded=False)
    await sibling.close()
    assert server.asked == 1
    assert bool(moments) is heard


def test_time_counts_only_while_the_api_server_answers() -> None:
    now = [0.0]
    answers = Answers(lambda: now[0])
    for moment in (10.0, 30.0, 50.0):
        now[0] = moment
        answers.heard()
    now[0] = 1000.0
    assert answers.since_seconds(0.0) == 50.0
    assert answers.since_seconds(45.0) == 5.0
    assert answers.since_seconds(60.0) == 0.0
    answers.heard()
    assert answers.since_seconds(0.0) == 0.0
    now[0] = 1000.0 + AWAY_SECONDS
    answers.heard()
    assert answers.since_seconds(0.0) == AWAY_SECONDS


def test_the_server_tells_what_time_it_has() -> None:
    now = [100.0]
    answers = Answers(lambda: now[0])
    assert answers.server_time() is None
    answers.heard("Tue, 06 Jan 2026 10:00:00 GMT")
    answers.heard()
    now[0] += 30.0
    assert answers.server_time() == datetime(2026, 1, 6, 10, 0, 30, tzinfo=UTC)
    now[0] += DATED_SECONDS
    assert answers.server_time() is None, "too long ago"
    answers.heard("yesterday")
    assert answers.server_time() is None


async def test_each_answer_has_a_time(client: Client) -> None:
    await client.get("/version")
    told = client.answers.server_time()
    assert told is not None
    assert abs((datetime.now(UTC) - told).total_seconds()) < 60

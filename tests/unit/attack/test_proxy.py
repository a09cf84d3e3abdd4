import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import ClientError, ClientSession, ClientTimeout, web
from aiohttp.test_utils import TestServer
from yarl import URL

from attack import proxy as module
from attack.proxy import END, LAG, LOSE, REFUSE, SLOW, Proxy, Wrong, resource_of
from localcluster.patience import PATIENCE_SECONDS
from simulate.loop import SimulatedLoop

Pair = tuple[Proxy, ClientSession]
POD = "/api/v1/namespaces/one/pods/a"


class Upstream:
    """Counts writes; its watches show an event every 20 ms."""

    def __init__(self) -> None:
        self.writes = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            response = web.StreamResponse()
            await response.prepare(request)
            while True:
                await response.write(b"event\n")
                await asyncio.sleep(0.02)
        self.writes += request.method != "GET"
        return web.json_response({"path": request.raw_path, "body": await request.text()})


@pytest.fixture
async def upstream() -> Upstream:
    return Upstream()


@pytest.fixture
async def proxy(upstream: Upstream) -> AsyncIterator[Pair]:
    target = TestServer(_application(upstream))
    await target.start_server()
    made = Proxy(str(target.make_url("")).rstrip("/"), "")
    server = TestServer(_application(made))
    await server.start_server()
    async with ClientSession(server.make_url("/"), timeout=ClientTimeout(total=PATIENCE_SECONDS)) as session:
        yield made, session
    await made.close()
    await server.close()
    await target.close()


@pytest.fixture
def sleeps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """For how long the proxy waits each time: its clock stands still, and it waits only as long as others are ready."""
    asked: list[float] = []

    async def sleep(seconds: float) -> None:
        asked.append(seconds)
        await asyncio.sleep(0)

    monkeypatch.setattr(module, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": sleep}))
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: 0.0))
    return asked


def _application(handler: Proxy | Upstream) -> web.Application:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handler.handle)
    return application


async def test_what_is_well_passes_unchanged(proxy: Pair) -> None:
    path = f"{POD}?dryRun=All&fieldSelector=metadata.name%3Da"
    async with proxy[1].post(URL(path, encoded=True), data="text") as answer:
        assert await answer.json() == {"path": path, "body": "text"}


async def test_a_refused_request_is_not_executed(proxy: Pair, upstream: Upstream) -> None:
    proxy[0].take([Wrong(1, REFUSE, (), "pods", 429)])
    async with proxy[1].post(POD) as answer:
        assert (answer.status, answer.headers["Retry-After"], (await answer.json())["code"]) == (429, "1", 429)
    assert upstream.writes == 0
    async with proxy[1].post("/apis/muster.dev/v1alpha1/namespaces/one/gangs") as answer:
        assert answer.status == 200
    proxy[0].take([])
    async with proxy[1].post(POD) as answer:
        assert answer.status == 200


async def test_a_lost_answer_is_that_of_a_write_that_was_done(
    proxy: Pair, upstream: Upstream, sleeps: list[float]
) -> None:
    proxy[0].take([Wrong(1, LOSE, (), "pods")])
    with pytest.raises(ClientError):
        await proxy[1].post(POD)
    assert sleeps == [30.0]
    assert upstream.writes == 1
    async with proxy[1].get(POD) as answer:
        assert answer.status == 200


async def test_it_happens_to_whom_it_is_meant_for(proxy: Pair) -> None:
    proxy[0].take([Wrong(1, REFUSE, ("192.0.2.1",), "", 500)])
    async with proxy[1].get(POD) as answer:
        assert answer.status == 200
    proxy[0].take([Wrong(2, REFUSE, ("192.0.2.1", "127.0.0.1"), "", 500)])
    async with proxy[1].get(POD) as answer:
        assert answer.status == 500


async def test_a_slow_answer_comes(proxy: Pair, sleeps: list[float]) -> None:
    proxy[0].take([Wrong(1, SLOW, (), "", 300.0)])
    async with proxy[1].get(POD) as answer:
        assert answer.status == 200
    assert sleeps == [300.0]


async def test_a_late_watch_shows_everything_later(proxy: Pair, sleeps: list[float]) -> None:
    proxy[0].take([Wrong(1, LAG, (), "pods", 300.0)])
    async with proxy[1].get("/api/v1/pods?watch=1") as answer:
        for _ in range(2):
            assert await answer.content.readline() == b"event\n"
    assert sleeps[0] == 300.0


def test_each_piece_of_a_late_watch_waits_for_itself_and_not_for_the_one_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop, shown = SimulatedLoop(0.0), []
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=loop.time))

    async def pieces() -> AsyncIterator[bytes]:
        for number in range(3):
            yield b"%d" % number
            await asyncio.sleep(0.25)

    async def watch() -> None:
        answer: Any = SimpleNamespace(content=SimpleNamespace(iter_any=pieces))
        shown.extend([(loop.time(), data) async for data in module._late(answer, 10.0)])
        shown.append((loop.time(), b""))

    loop.run_until_complete(watch())
    assert shown == [(10.0, b"0"), (10.25, b"1"), (10.5, b"2"), (10.75, b"")]


async def test_open_watches_end_and_later_ones_do_not(proxy: Pair) -> None:
    async with proxy[1].get("/api/v1/pods?watch=1") as answer:
        assert await answer.content.readline() == b"event\n"
        proxy[0].take([Wrong(1, END, (), "gangs")])
        assert await answer.content.readline() == b"event\n"
        proxy[0].take([Wrong(2, END, (), "pods")])
        await asyncio.wait_for(answer.content.read(), PATIENCE_SECONDS)
    async with proxy[1].get("/api/v1/pods?watch=1") as answer:
        for _ in range(3):
            assert await answer.content.readline() == b"event\n"


@pytest.mark.parametrize(
    ("path", "resource"),
    [
        ("/api/v1/nodes", "nodes"),
        ("/api/v1/namespaces/one", "namespaces"),
        (POD, "pods"),
        (f"{POD}/binding", "pods"),
        ("/apis/muster.dev/v1alpha1/gangs", "gangs"),
        ("/apis/coordination.k8s.io/v1/namespaces/one/leases/muster-leader", "leases"),
        ("/version", ""),
        ("/apis", ""),
    ],
)
def test_what_a_path_is_about(path: str, resource: str) -> None:
    assert resource_of(path) == resource


def test_orders_are_read_as_they_are_written() -> None:
    wrong = Wrong(3, LAG, ("192.0.2.1",), "pods", 2.5)
    assert Wrong.from_json(wrong.to_json()) == wrong

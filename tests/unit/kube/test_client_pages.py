"""A page that is too large is not read to its end, and the connection to the API server goes on."""

from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from muster.kube import library
from muster.kube.client import Client
from muster.kube.errors import PageTooLarge

PART = b"x" * 65_536
PARTS = 512


class Pages:
    """Answers `/large` with 32 MiB, and counts how much of it could be sent."""

    def __init__(self) -> None:
        self.sent = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.path != "/large":
            return web.Response(body=b"small")
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(PARTS):
            await response.write(PART)
            self.sent += 1
        return response


@pytest.fixture
async def pages() -> AsyncIterator[tuple[Pages, Client]]:
    made, app = Pages(), web.Application()
    app.router.add_get("/{path:.*}", made.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    configuration = library.part("client").Configuration()
    configuration.host = f"http://127.0.0.1:{runner.addresses[0][1]}"
    client = Client(configuration)
    yield made, client
    await client.close()
    await runner.cleanup()


async def test_no_more_of_it_is_read_than_may_be(pages: tuple[Pages, Client]) -> None:
    made, client = pages
    with pytest.raises(PageTooLarge, match="a page of /large has more than 1048576 bytes"):
        await client.get("/large", {"limit": 500}, most_bytes=2**20)
    assert made.sent < PARTS
    assert await client.get("/small", {"limit": 500}, most_bytes=2**20) == b"small"


async def test_what_has_no_bound_is_read_whole(pages: tuple[Pages, Client]) -> None:
    assert len(await pages[1].get("/large")) == PARTS * len(PART)

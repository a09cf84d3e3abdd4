"""A port of a pod behind an API server, over real websockets; tests/integration/kube has a real API server between."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
from aiohttp import web
from tests.unit.kube.port_forwards import Kubelet

from muster.kube import client as client_module
from muster.kube import library
from muster.kube.client import Client
from muster.kube.errors import ApiError, Forbidden, NotFound, PageTooLarge, Unreachable
from muster.kube.portforward import forwarded_port

PATH = "/api/v1/namespaces/muster-system/pods/operator-1/portforward"
MOST = 1_000_000
Handler = Callable[[web.Request], Coroutine[Any, Any, web.StreamResponse]]
Serve = Callable[[str, Handler], Coroutine[Any, Any, int]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Serve one path on a port of the loopback address."""
    runners: list[web.AppRunner] = []

    async def start(path: str, handler: Handler) -> int:
        app = web.Application()
        app.add_routes([web.get(path, handler)])
        runner = web.AppRunner(app, shutdown_timeout=0, handler_cancellation=True)
        runners.append(runner)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port: int = runner.addresses[0][1]
        return port

    yield start
    for runner in runners:
        await runner.cleanup()


@pytest.fixture
async def client_of() -> AsyncIterator[Callable[[int], Client]]:
    made: list[Client] = []

    def connect(port: int) -> Client:
        configuration = library.part("client").Configuration()
        configuration.host = f"http://127.0.0.1:{port}"
        configuration.api_key = {"BearerToken": "Bearer my-token"}
        made.append(Client(configuration))
        return made[-1]

    yield connect
    for client in made:
        await client.close()


async def page(request: web.Request) -> web.StreamResponse:
    """Answers with its path: in chunks, or with its length where none is kept."""
    if request.path == "/none":
        return web.Response(status=404, text="nothing is kept")
    answer = web.StreamResponse()
    await answer.prepare(request)
    for _ in range(100):
        await answer.write(f"{request.path} {'x' * 100}\n".encode())
    return answer


@pytest.fixture
async def kubelet(serve: Serve) -> Kubelet:
    return Kubelet(await serve("/{path:.*}", page))


async def test_answers_follow_each_other_on_one_connection(
    kubelet: Kubelet, serve: Serve, client_of: Callable[[int], Client]
) -> None:
    client = client_of(await serve(PATH, kubelet.forward))
    async with forwarded_port(client, "muster-system", "operator-1", 8081) as port:
        for path, status, lines in (("/a", 200, 100), ("/none", 404, 1), ("/b", 200, 100)):
            answer = await port.get(path, MOST)
            assert (answer.status, len(answer.body.splitlines())) == (status, lines)
    assert kubelet.asked == [8081]


async def test_the_users_own_credentials_are_sent_and_a_refusal_says_which_right_lacks(
    serve: Serve, client_of: Callable[[int], Client]
) -> None:
    seen = []

    async def refuse(request: web.Request) -> web.StreamResponse:
        seen.append(request.headers["Authorization"])
        message = 'pods "operator-1" is forbidden: User "bob" cannot get resource "pods/portforward"'
        return web.json_response({"kind": "Status", "reason": "Forbidden", "message": message}, status=403)

    with pytest.raises(Forbidden, match='User "bob" cannot get resource "pods/portforward"'):
        await open_port(client_of(await serve(PATH, refuse)))
    assert set(seen) == {"Bearer my-token"}


async def open_port(client: Client) -> None:
    async with forwarded_port(client, "muster-system", "operator-1", 8081):
        pass


async def test_a_pod_that_is_gone_is_not_found(serve: Serve, client_of: Callable[[int], Client]) -> None:
    async def none(_: web.Request) -> web.StreamResponse:
        return web.json_response({"kind": "Status", "reason": "NotFound", "message": "no such pod"}, status=404)

    with pytest.raises(NotFound, match="no such pod"):
        await open_port(client_of(await serve(PATH, none)))


async def test_a_kubelet_that_is_away_is_an_error_despite_a_plain_answer(
    serve: Serve, client_of: Callable[[int], Client]
) -> None:
    """A plain request gets another answer."""

    async def away(request: web.Request) -> web.StreamResponse:
        upgrade = "Upgrade" in request.headers
        body = {"kind": "Status", "message": "no route to host" if upgrade else "Upgrade request required"}
        return web.json_response(body, status=502 if upgrade else 400)

    with pytest.raises(ApiError, match="HTTP 502"):
        await open_port(client_of(await serve(PATH, away)))


async def test_an_api_server_that_does_not_answer_is_given_up(
    serve: Serve, client_of: Callable[[int], Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "DEFAULT_DEADLINE_SECONDS", 0.1)

    async def silent(_: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    with pytest.raises(Unreachable):
        await open_port(client_of(await serve(PATH, silent)))


async def get(client: Client, most_bytes: int = MOST) -> None:
    async with forwarded_port(client, "muster-system", "operator-1", 8081) as port:
        await port.get("/a", most_bytes)


async def test_where_nothing_listens_the_kubelets_message_is_the_error(
    serve: Serve, client_of: Callable[[int], Client]
) -> None:
    with pytest.raises(Unreachable, match="failed to connect to localhost:8081"):
        await get(client_of(await serve(PATH, Kubelet(0).forward)))


async def test_an_answer_that_is_cut_short_is_an_error(
    kubelet: Kubelet, serve: Serve, client_of: Callable[[int], Client]
) -> None:
    kubelet.cut_after = 3000
    with pytest.raises(Unreachable, match="cut short"):
        await get(client_of(await serve(PATH, kubelet.forward)))


async def test_an_answer_that_is_no_http_is_an_error(serve: Serve, client_of: Callable[[int], Client]) -> None:
    async def other(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        for data in (b"\x00\x91\x1f", b"\x01\x91\x1f", b"", b"\x00SSH-2.0-OpenSSH\r\n\r\n"):
            await socket.send_bytes(data)
        await socket.receive()
        return socket

    with pytest.raises(Unreachable, match="cut short"):
        await get(client_of(await serve(PATH, other)))


async def test_no_more_of_an_answer_is_read_than_is_wanted(
    kubelet: Kubelet, serve: Serve, client_of: Callable[[int], Client]
) -> None:
    with pytest.raises(PageTooLarge):
        await get(client_of(await serve(PATH, kubelet.forward)), most_bytes=3000)

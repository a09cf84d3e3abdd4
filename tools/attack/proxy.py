"""What stands between the operator and the API server: passes everything on, and does wrong what it is told.

It runs beside the API server, in the network of the control plane, with the API server's own certificate. Its orders
come line by line through its standard input: each line is the whole list of what is wrong from then on.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout, TCPConnector, web
from yarl import URL

SLOW, REFUSE, LOSE, LAG, END = "slow", "refuse", "lose", "lag", "end"
# Nobody waits longer for an answer that is lost.
_LOST_SECONDS = 30.0
_OF_THE_CONNECTION = {"connection", "host", "transfer-encoding", "content-length", "keep-alive", "upgrade"}


@dataclass(frozen=True)
class Wrong:
    """One thing that goes wrong on the way.

    Attributes:
        number: tells it from others that are alike.
        what: SLOW: an answer takes longer, LOSE: a write is done and its answer lost, REFUSE: a request is not even
            passed on, LAG: watches opened now show everything late, END: watches that are open end.
        addresses: the clients that it happens to; none named: all.
        resource: of which requests, in the plural; "": of all.
        amount: seconds of SLOW and LAG, HTTP status of REFUSE.
    """

    number: int
    what: str
    addresses: tuple[str, ...] = ()
    resource: str = ""
    amount: float = 0.0

    def hits(self, what: str, address: str, resource: str) -> bool:
        """Whether it is about this request."""
        return (
            self.what == what and (not self.addresses or address in self.addresses) and self.resource in ("", resource)
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Wrong:
        return cls(**{**data, "addresses": tuple(data["addresses"])})


def resource_of(path: str) -> str:
    """The plural name of what a request is about; "" for what is no resource."""
    parts = path.strip("/").split("/")
    rest = parts[2:] if parts[0] == "api" else parts[3:] if parts[0] == "apis" else []
    if len(rest) > 2 and rest[0] == "namespaces":
        rest = rest[2:]
    return rest[0] if rest else ""


def refusal(status: int) -> dict[str, Any]:
    """The body of such an answer."""
    reasons = {409: "Conflict", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable"}
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": "as the fault says",
        "reason": reasons.get(status, ""),
        "code": status,
    }


class Proxy:
    """Passes requests on."""

    def __init__(self, target: str, authority: str) -> None:
        self._target = target
        self._trust = ssl.create_default_context(cafile=authority or None)
        self._wrongs: list[Wrong] = []
        self._watches: dict[asyncio.Event, tuple[str, str]] = {}
        self._session: ClientSession | None = None

    def take(self, wrongs: Iterable[Wrong]) -> None:
        """What is wrong from now on."""
        known = {wrong.number for wrong in self._wrongs}
        self._wrongs = list(wrongs)
        for wrong in self._wrongs:
            if wrong.number not in known:
                for ended, (address, resource) in self._watches.items():
                    if wrong.hits(END, address, resource):
                        ended.set()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if self._session is None:
            connector = TCPConnector(ssl=self._trust, limit=0, keepalive_timeout=15)
            self._session = ClientSession(connector=connector, auto_decompress=False, timeout=ClientTimeout(total=None))
        address, resource = request.remote or "", resource_of(request.path)
        is_watch = request.query.get("watch", "") in ("1", "true", "True")
        found = {what: self._wrong(what, address, resource) for what in (SLOW, REFUSE, LOSE, LAG)}
        if (slow := found[SLOW]) is not None:
            await asyncio.sleep(slow.amount)
        if (refuse := found[REFUSE]) is not None and not is_watch:
            status = int(refuse.amount)
            headers = {"Retry-After": "1"} if status == 429 else {}
            return web.json_response(refusal(status), status=status, headers=headers)
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _OF_THE_CONNECTION}
        body = await request.read()
        try:
            url = URL(f"{self._target}{request.raw_path}", encoded=True)
            async with self._session.request(request.method, url, headers=headers, data=body or None) as answer:
                if found[LOSE] is not None and request.method != "GET" and answer.status < 400:
                    await answer.read()
                    await asyncio.sleep(_LOST_SECONDS)
                    return _broken(request)
                if is_watch and answer.status == 200:
                    lag = found[LAG]
                    return await self._watch(request, answer, lag.amount if lag else 0.0, (address, resource))
                content = await answer.read()
                return web.Response(status=answer.status, body=content, headers=_passed(answer))
        except (ClientError, OSError):
            return _broken(request)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def _wrong(self, what: str, address: str, resource: str) -> Wrong | None:
        return next((wrong for wrong in self._wrongs if wrong.hits(what, address, resource)), None)

    async def _watch(
        self, request: web.Request, answer: ClientResponse, lag_seconds: float, key: tuple[str, str]
    ) -> web.StreamResponse:
        response = web.StreamResponse(status=answer.status, headers=_passed(answer))
        await response.prepare(request)
        ended = asyncio.Event()
        self._watches[ended] = key
        copying = asyncio.ensure_future(_copy(answer, response, lag_seconds))
        ending = asyncio.ensure_future(ended.wait())
        try:
            await asyncio.wait({copying, ending}, return_when=asyncio.FIRST_COMPLETED)
            if copying.done():
                copying.result()
            return response
        finally:
            del self._watches[ended]
            copying.cancel()
            ending.cancel()


async def _copy(answer: ClientResponse, response: web.StreamResponse, lag_seconds: float) -> None:
    async for data in _late(answer, lag_seconds):
        await response.write(data)


async def _late(answer: ClientResponse, lag_seconds: float) -> AsyncIterator[bytes]:
    """What comes, each piece so much later; a connection that breaks does so when all before it was shown."""
    if not lag_seconds:
        async for data in answer.content.iter_any():
            yield data
        return
    queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def read() -> None:
        try:
            async for data in answer.content.iter_any():
                queue.put_nowait((time.monotonic() + lag_seconds, data))
        finally:
            queue.put_nowait((time.monotonic() + lag_seconds, b""))

    reading = asyncio.ensure_future(read())
    try:
        while True:
            due, data = await queue.get()
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            if not data:
                return
            yield data
    finally:
        reading.cancel()


def _passed(answer: ClientResponse) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name.lower() not in _OF_THE_CONNECTION}


def _broken(request: web.Request) -> web.Response:
    """The connection breaks, and no answer comes."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=502)


async def serve(proxy: Proxy, address: str, port: int, certificate: str, key: str) -> web.AppRunner:
    """Listen, with TLS."""
    application = web.Application(client_max_size=1 << 26)
    application.router.add_route("*", "/{path:.*}", proxy.handle)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trust.load_cert_chain(certificate, key)
    await web.TCPSite(runner, address, port, ssl_context=trust).start()
    return runner


async def _main(address: str, port: int, target: str, authority: str, certificate: str, key: str) -> None:
    proxy = Proxy(target, authority)
    await serve(proxy, address, port, certificate, key)
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        proxy.take(Wrong.from_json(data) for data in json.loads(line))
        print("taken", flush=True)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:]))

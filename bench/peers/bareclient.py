"""The raw client behind `bare`: `bareclient SERVER CA NAMESPACE CONNECTIONS`, orders on standard input, one JSON a line.

An order {"delete": [PODS], "pods": {POD: NODE}} deletes, then creates all pods, then binds them all; "done" is printed
when the last answer is there. HTTP is spoken by hand over kept TLS connections, because a library's time would be the
floor's time.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import ssl
import sys
from collections.abc import Iterable

from bench.bed import pod_spec

_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)\r\n")
_LAST_CHUNK = b"\r\n0\r\n\r\n"
_SCHEDULER = "bench-bare"


class Client:
    """Connections that share a queue of requests."""

    def __init__(self, host: str, port: int, namespace: str, token: str) -> None:
        self._address = (host, port)
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._token = token
        self._streams: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def open(self, connections: int, ca: str) -> None:
        """Connect; the handshakes are no part of what is measured, other systems have theirs behind them, too."""
        context = ssl.create_default_context(cafile=ca)
        host, port = self._address
        for _ in range(connections):
            self._streams.append(await asyncio.open_connection(host, port, ssl=context))

    async def carry_out(self, order: dict[str, object]) -> None:
        """Delete, create all, then bind all."""
        delete, pods = order.get("delete") or [], order.get("pods") or {}
        assert isinstance(delete, list)
        assert isinstance(pods, dict)
        now = json.dumps({"gracePeriodSeconds": 0}).encode()
        await self._send(self._request("DELETE", f"/{name}", now) for name in delete)
        spec = json.dumps({**pod_spec(), "schedulerName": _SCHEDULER})
        await self._send(
            self._request("POST", "", b'{"metadata":{"name":"%b"},"spec":%b}' % (name.encode(), spec.encode()))
            for name in pods
        )
        binding = b'{"metadata":{"name":"%b"},"target":{"apiVersion":"v1","kind":"Node","name":"%b"}}'
        await self._send(
            self._request("POST", f"/{name}/binding", binding % (name.encode(), node.encode()))
            for name, node in pods.items()
        )

    async def _send(self, requests: Iterable[bytes]) -> None:
        left = iter(requests)
        await asyncio.gather(*(self._work(left, reader, writer) for reader, writer in self._streams))

    async def _work(self, left: Iterable[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for request in left:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = _LENGTH.search(head)
            # Long answers come in chunks. JSON has no line ends of this kind in it, so the last chunk cannot be missed.
            body = await (reader.readexactly(int(length[1])) if length else reader.readuntil(_LAST_CHUNK))
            if head[9:10] != b"2":
                raise ConnectionError(f"{request.split(b' HTTP')[0]!r}: {body!r}")

    def _request(self, method: str, path: str, body: bytes) -> bytes:
        head = (
            f"{method} {self._pods}{path} HTTP/1.1\r\nHost: {self._address[0]}\r\nAuthorization: Bearer {self._token}\r\n"
            f"Accept: application/json\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


async def main(server: str, ca: str, namespace: str, connections: str) -> None:
    """Carry out orders until the input ends."""
    host, port = server.removeprefix("https://").split(":")
    client = Client(host, int(port), namespace, os.environ["BENCH_TOKEN"])
    await client.open(int(connections), ca)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        await client.carry_out(json.loads(line))
        print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

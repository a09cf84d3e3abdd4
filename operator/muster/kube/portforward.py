"""Reaches a port on the loopback address of a pod through the API server, without a port on this machine.

It speaks the channel protocol of websockets: the first byte of a frame is its channel, 0 for data and 1 for the error
that ends them. The first frame of each is the port's number. Source: kubernetes/cri-streaming,
pkg/streaming/portforward/websocket.go. It needs the right to `get` the pod's `portforward`, and from Kubernetes 1.35 on
to `create` it, too.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import aiohttp

from muster.kube import paths, pipes
from muster.kube.client import Client
from muster.kube.errors import PageTooLarge, Unreachable

PROTOCOL = "v4.channel.k8s.io"
DATA, ERROR = 0, 1


class ForwardedPort:
    """An HTTP server behind a forwarded port. Make it with `forwarded_port`."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._reader = asyncio.StreamReader(limit=pipes.MAX_HEAD_BYTES)
        self._begun: set[int] = set()

    async def get(self, path: str, most_bytes: int) -> pipes.Answer:
        """Read what the server has at a path, one path at a time; after an error nothing more can be read.

        Raises:
            PageTooLarge: the answer has more than `most_bytes`; no more of it was read.
            Unreachable: nothing listens there, or the connection broke.
        """
        receiving = asyncio.create_task(self._receive(most_bytes))
        try:
            await self._socket.send_bytes(bytes([DATA]) + f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            answer, _ = await pipes.read_answer(self._reader)
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError, aiohttp.ClientError) as error:
            raise Unreachable(0, "Unreachable", f"the forwarded connection was cut short: {error}") from error
        finally:
            receiving.cancel()
        return answer

    async def _receive(self, most_bytes: int) -> None:
        """Pass on what comes through data until the answer is complete."""
        async for message in self._socket:
            if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
                continue
            channel, data = message.data[0], message.data[1:]
            if channel not in self._begun:
                self._begun.add(channel)  # and `data` is the number of the port
            elif channel == ERROR:
                return self._reader.set_exception(Unreachable(0, "Unreachable", data.decode(errors="replace")))
            else:
                most_bytes -= len(data)
                if most_bytes < 0:
                    return self._reader.set_exception(PageTooLarge(0, "PageTooLarge", "the answer is too large"))
                self._reader.feed_data(data)
        return self._reader.feed_eof()


@contextlib.asynccontextmanager
async def forwarded_port(client: Client, namespace: str, pod: str, port: int) -> AsyncIterator[ForwardedPort]:
    """Forward a port of a pod.

    Raises:
        Forbidden: this user may not.
        ApiError: there is no such pod, or its kubelet does not answer.
    """
    path = paths.core("pods", namespace=namespace, name=pod, subresource="portforward")
    socket = await client.websocket(path, {"ports": port}, PROTOCOL)
    try:
        yield ForwardedPort(socket)
    finally:
        await socket.close()

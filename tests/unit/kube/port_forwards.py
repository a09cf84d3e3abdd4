"""A kubelet that forwards ports by websocket, as kubernetes/cri-streaming does (pkg/streaming/portforward)."""

import asyncio

from aiohttp import WSMsgType, web

PROTOCOL = "v4.channel.k8s.io"


class Kubelet:
    """Whatever the pod, its port is one of this machine's loopback; 0: nothing listens there.

    Attributes:
        asked: the ports that were to be forwarded.
        cut_after: the connection ends after so many bytes of data.
    """

    def __init__(self, port: int) -> None:
        self.asked: list[int] = []
        self.cut_after: int | None = None
        self._port = port

    async def forward(self, request: web.Request) -> web.StreamResponse:
        port = int(request.query.get("port") or request.query["ports"])
        self.asked.append(port)
        socket = web.WebSocketResponse(protocols=(PROTOCOL,))
        await socket.prepare(request)
        for channel in (b"\0", b"\1"):
            await socket.send_bytes(channel + port.to_bytes(2, "little"))
        if not self._port:
            text = f"error forwarding port {port} to pod p, uid u: failed to connect to localhost:{port}"
            await socket.send_bytes(b"\1" + text.encode())
            return socket
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        back = asyncio.create_task(self._send_back(reader, socket))
        async for message in socket:
            if message.type is WSMsgType.BINARY and message.data[:1] == b"\0":
                writer.write(message.data[1:])
        back.cancel()
        writer.close()
        return socket

    async def _send_back(self, reader: asyncio.StreamReader, socket: web.WebSocketResponse) -> None:
        left = self.cut_after
        while data := await reader.read(1000):
            await socket.send_bytes(b"\0" + data[:left])
            left = None if left is None else left - len(data)
            if left is not None and left <= 0:
                break
        await socket.close()

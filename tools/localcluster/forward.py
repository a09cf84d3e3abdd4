"""The cluster's one door to the host: passes connections from a listening socket on to the API server.

A socket stays in the network namespace where it was made, so the host's loopback port is opened by the command that
starts the cluster and handed down as a file descriptor; this process itself lives in the control plane's namespace.
No interface, route or packet filter of the host is touched.
"""

from __future__ import annotations

import asyncio
import socket
import sys

_CHUNK_BYTES = 1 << 16
_CONNECT_SECONDS = 5.0


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(_CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:
        # One side broke the connection: so must the other, at once and in both directions.
        writer.transport.abort()


async def _serve(listener: socket.socket, host: str, port: int) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            target_reader, target_writer = await asyncio.wait_for(asyncio.open_connection(host, port), _CONNECT_SECONDS)
        except (OSError, TimeoutError):
            writer.transport.abort()
            return
        await asyncio.gather(_copy(reader, target_writer), _copy(target_reader, writer))
        target_writer.close()
        writer.close()

    server = await asyncio.start_server(connected, sock=listener)
    await server.serve_forever()


def main() -> None:
    descriptor, host, port = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    asyncio.run(_serve(socket.socket(fileno=descriptor), host, port))


if __name__ == "__main__":
    main()

"""Clients without a good token, over real TLS connections to a coordinator on this machine."""

import asyncio
import ssl

from localcluster.patience import PATIENCE_SECONDS
from muster.protocol.messages import MAX_REPORT_BYTES, REPORT_PATH

UNDECIDED = "undecided"  # nobody finds out whether this token is good
TOKENS = ("wrong", UNDECIDED)


class Strangers:
    """They come to a port of 127.0.0.1."""

    def __init__(self, port: int, trust: ssl.SSLContext) -> None:
        self._port = port
        self._trust = trust

    async def visit(
        self, token: str, body_bytes: int, within: float = PATIENCE_SECONDS
    ) -> tuple[int, asyncio.StreamWriter | None]:
        """Send a head and so much of a longer body; the answer's status, 0 for none."""
        writer = None
        head = f"POST {REPORT_PATH} HTTP/1.1\r\nAuthorization: {token}\r\nContent-Length: {MAX_REPORT_BYTES}\r\n\r\n"
        try:
            async with asyncio.timeout(within):
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", self._port, ssl=self._trust, server_hostname="localhost"
                )
                writer.write(head.encode() + b"x" * body_bytes)
                return int((await reader.readline()).split()[1]), writer
        except (OSError, TimeoutError, IndexError):
            return 0, writer

    async def send_big_bodies(self, token: str, count: int, within: float) -> list[asyncio.StreamWriter | None]:
        """So many clients with this token at once; the connections that they have then."""
        answers = await asyncio.gather(*[self.visit(token, MAX_REPORT_BYTES - 1, within) for _ in range(count)])
        statuses = {status for status, _ in answers}
        assert statuses <= {0, 401}, "some may see the door closed, or nobody who decides"
        assert (401 in statuses) == (token != UNDECIDED)
        return [writer for _, writer in answers]

    async def silent_connections_keep_no_client_out(self, of_address: int, addresses: int, within: float) -> None:
        """So many connections from each of some addresses, which say nothing; then a client from another one."""

        async def silent(host: str) -> asyncio.StreamWriter:
            _, writer = await asyncio.open_connection("127.0.0.1", self._port, local_addr=(host, 0))
            return writer

        hosts = [f"127.0.0.{number}" for number in range(2, 2 + addresses)]
        mob = await asyncio.gather(*[silent(host) for host in hosts for _ in range(of_address)])
        status, writer = await self.visit("wrong", 10, within)
        abort([*mob, writer])
        assert status == 401


def abort(writers: list[asyncio.StreamWriter | None]) -> None:
    for writer in writers:
        if writer is not None:
            writer.transport.abort()

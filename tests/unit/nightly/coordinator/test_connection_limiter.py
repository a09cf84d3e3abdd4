"""What unauthenticated clients cost a coordinator in a process of its own, and floods from more addresses than in the
gate."""

import asyncio
import re
import ssl
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.unit.coordinator.floods import (
    a_launcher_does_not_wait_behind_a_flood,
    handshakes_have_a_budget,
    launchers_wait_for_their_handshakes_alone,
)

from muster.coordinator.connection_limiter import Limits
from muster.protocol.messages import MAX_REPORT_BYTES, REPORT_PATH

MIB = 1024 * 1024
DEADLINE = 300.0
WARM = 40  # the first connections also pay for imports and caches
# A coordinator in a process of its own, whose memory is its own; it trusts nobody, or never finds out whether to.
COORDINATOR = """
import asyncio, sys
from datetime import UTC, datetime
from muster.coordinator import metered_tls, server as module
from muster.coordinator.auth import AuthError
from muster.coordinator.hub import Hub
from muster.coordinator.server import CoordinatorServer
from muster.kube.certificates import new_authority, new_serving

class Verifier:
    def known(self, authorization):
        return None

    async def verify(self, authorization):
        if authorization == "undecided":
            await asyncio.Event().wait()
        raise AuthError("no")

async def main():
    module.HANDSHAKE_SECONDS = 1000.0  # so that no place becomes free by itself
    metered_tls.UNAUTHENTICATED_SHARE = 1.0  # what handshakes compute keeps nobody waiting
    nobody = lambda caller: None
    server = CoordinatorServer(Hub(), Verifier(), nobody, nobody, lambda: "", cpu_clock=lambda: 0.0)
    now = datetime.now(UTC)
    serving = new_serving(new_authority(now), ("localhost",), now)
    print(await server.start("127.0.0.1", 0, serving.certificate, serving.key), flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


class Coordinator:
    """One in a process of its own."""

    def __init__(self, pid: int, port: int) -> None:
        self.pid = pid
        self.port = port
        self.trust = ssl.create_default_context()
        self.trust.check_hostname, self.trust.verify_mode = False, ssl.CERT_NONE

    @property
    def most_bytes(self) -> int:
        """The most memory that it has had so far."""
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text())
        assert found is not None
        return int(found[1]) * 1024

    async def visit(self, token: str, body_bytes: int, within: float = 60.0) -> tuple[int, asyncio.StreamWriter | None]:
        """Send a head and so much of a longer body; the answer's status, 0 for none."""
        writer = None
        head = f"POST {REPORT_PATH} HTTP/1.1\r\nAuthorization: {token}\r\nContent-Length: {MAX_REPORT_BYTES}\r\n\r\n"
        try:
            async with asyncio.timeout(within):
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=self.trust)
                writer.write(head.encode() + b"x" * body_bytes)
                return int((await reader.readline()).split()[1]), writer
        except (OSError, TimeoutError, IndexError):
            return 0, writer


@pytest.fixture
async def coordinator() -> AsyncIterator[Coordinator]:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", COORDINATOR, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(DEADLINE):
            yield Coordinator(process.pid, int(await process.stdout.readline()))
    finally:
        process.kill()
        await process.wait()


@pytest.mark.parametrize("token", ["wrong", "undecided"])
async def test_four_hundred_unauthenticated_clients_with_big_bodies_cost_little(
    coordinator: Coordinator, token: str
) -> None:
    await asyncio.gather(*[coordinator.visit("wrong", 10) for _ in range(WARM)])
    before = coordinator.most_bytes
    within = 60.0 if token == "wrong" else 2.0  # some see the door closed, or nobody who decides
    visits = [coordinator.visit(token, MAX_REPORT_BYTES - 1, within) for _ in range(400)]
    answers = await asyncio.gather(*visits)
    assert {status for status, _ in answers} <= {0, 401}
    assert (401 in {status for status, _ in answers}) == (token == "wrong")
    cost = coordinator.most_bytes - before
    for _, writer in answers:
        if writer is not None:
            writer.transport.abort()
    assert cost < 20 * MIB, f"{cost / MIB:.1f} MiB of the 102 that they send"


async def test_silent_connections_from_a_few_addresses_keep_no_client_out(coordinator: Coordinator) -> None:
    async def silent(host: str) -> asyncio.StreamWriter:
        _, writer = await asyncio.open_connection("127.0.0.1", coordinator.port, local_addr=(host, 0))
        return writer

    hosts = [f"127.0.0.{number}" for number in range(2, 10)]
    mob = await asyncio.gather(*[silent(host) for host in hosts for _ in range(2 * Limits().of_address)])
    status, writer = await coordinator.visit("wrong", 10, within=DEADLINE)
    assert status == 401
    for one in [*mob, writer]:
        assert one is not None
        one.transport.abort()


@pytest.mark.parametrize("addresses", [1, 1000])
def test_handshakes_without_a_good_token_have_a_budget_from_however_many_addresses(
    monkeypatch: pytest.MonkeyPatch, addresses: int
) -> None:
    handshakes_have_a_budget(monkeypatch, addresses)


def test_a_launcher_does_not_wait_behind_a_flood_of_handshakes(monkeypatch: pytest.MonkeyPatch) -> None:
    a_launcher_does_not_wait_behind_a_flood(monkeypatch, 1000)


@pytest.mark.parametrize("hosts", [800, 100])
def test_launchers_that_all_come_at_once_wait_for_their_handshakes_alone(
    monkeypatch: pytest.MonkeyPatch, hosts: int
) -> None:
    """Each on a node of its own, or eight on one."""
    launchers_wait_for_their_handshakes_alone(monkeypatch, hosts)

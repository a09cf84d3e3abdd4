"""What unauthenticated clients cost a coordinator in a process of its own, and floods from as many addresses as there
may be."""

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
from tests.unit.coordinator.strangers import TOKENS, UNDECIDED, Strangers, abort

MIB = 1024 * 1024
DEADLINE = 300.0
WARM = 40  # the first connections also pay for imports and caches
# A coordinator in a process of its own, whose memory is its own; it trusts nobody, or never finds out whether to.
COORDINATOR = """
import asyncio, sys
from datetime import UTC, datetime
from muster.coordinator import server as module
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
        trust = ssl.create_default_context()
        trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
        self.strangers = Strangers(port, trust)

    @property
    def most_bytes(self) -> int:
        """The most memory that it has had so far."""
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text())
        assert found is not None
        return int(found[1]) * 1024


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


@pytest.mark.parametrize("token", TOKENS)
async def test_four_hundred_unauthenticated_clients_with_big_bodies_cost_little(
    coordinator: Coordinator, token: str
) -> None:
    await asyncio.gather(*[coordinator.strangers.visit("wrong", 10) for _ in range(WARM)])
    before = coordinator.most_bytes
    writers = await coordinator.strangers.send_big_bodies(token, 400, within=2.0 if token == UNDECIDED else 60.0)
    cost = coordinator.most_bytes - before
    abort(writers)
    assert cost < 20 * MIB, f"{cost / MIB:.1f} MiB of the 102 that they send"


async def test_silent_connections_from_a_few_addresses_keep_no_client_out(coordinator: Coordinator) -> None:
    await coordinator.strangers.silent_connections_keep_no_client_out(128, 8, within=DEADLINE)


@pytest.mark.parametrize("addresses", [1, 64, 1000])
def test_handshakes_without_a_good_token_have_a_budget_from_however_many_addresses(
    monkeypatch: pytest.MonkeyPatch, addresses: int
) -> None:
    handshakes_have_a_budget(monkeypatch, addresses)


def test_a_launcher_does_not_wait_behind_a_flood_of_handshakes(monkeypatch: pytest.MonkeyPatch) -> None:
    a_launcher_does_not_wait_behind_a_flood(monkeypatch, 1000)


@pytest.mark.parametrize("hosts", [800, 100, 1])
def test_launchers_that_all_come_at_once_wait_for_their_handshakes_alone(
    monkeypatch: pytest.MonkeyPatch, hosts: int
) -> None:
    """Each on a node of its own, eight on one, or all behind one gateway."""
    launchers_wait_for_their_handshakes_alone(monkeypatch, hosts)

"""Launchers and clients without a token before the coordinator's door, in simulated time."""

import asyncio
from typing import Any

import pytest
from tests.unit.coordinator.simulated import simulated

from muster.coordinator import connection_limiter as module
from muster.coordinator.connection_limiter import ConnectionLimiter, Limits

HANDSHAKE_SECONDS = 0.0014  # of the loop
REQUEST_SECONDS = 0.01  # from a handshake to the good token of a launcher
PATIENCE_SECONDS = 3.0  # a launcher waits so long for its handshake
RETRY_SECONDS = 0.5  # and so long before it tries again


class Visitor:
    """A connection that has no socket."""

    def __init__(self) -> None:
        self.settled = asyncio.Event()  # connected or closed
        self.is_connected = False
        self.has_hung_up = False

    def close(self) -> None:
        """The operator closes it."""
        self.settled.set()


class Coordinated:
    """A door before a loop that computes one handshake after the other, in simulated time.

    Args:
        per_second: the budget for handshakes.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, per_second: float = module.HANDSHAKES_PER_SECOND) -> None:
        monkeypatch.setattr(module, "_has_hung_up", lambda visitor: visitor.has_hung_up)
        self.handshakes = 0
        self._per_second = per_second
        self._idle_at = 0.0

    async def open(self) -> None:
        """Listen from now on."""
        self.door = ConnectionLimiter(self._enter, per_second=lambda: self._per_second)

    def come(self, host: str) -> Visitor:
        """A client connects."""
        visitor = Visitor()
        self.door.enqueue(visitor, host)  # type: ignore[arg-type]
        return visitor

    async def flood(self, hosts: list[str], seconds: float, ahead: int = 4) -> None:
        """Clients without a token keep so many connections waiting for each address, and hang up once connected."""
        until = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < until:
            for host in hosts:
                for _ in range(ahead - self.door._length(host)):
                    self.come(host)
            await asyncio.sleep(0.05)

    async def connect(self, host: str) -> float:
        """A launcher connects as often as it takes; the answer is how long that was."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while True:
            visitor = self.come(host)
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await visitor.settled.wait()
            except TimeoutError:
                visitor.has_hung_up = True
            if visitor.is_connected:
                await asyncio.sleep(REQUEST_SECONDS)
                self.door.note_settled(host, is_known=True)
                return loop.time() - began
            await asyncio.sleep(RETRY_SECONDS)

    def _enter(self, visitor: Any, host: str) -> None:
        loop = asyncio.get_running_loop()
        self.handshakes += 1
        self._idle_at = max(self._idle_at, loop.time()) + HANDSHAKE_SECONDS
        loop.call_at(self._idle_at, self._connected, visitor, host)

    def _connected(self, visitor: Visitor, host: str) -> None:
        visitor.is_connected = True
        visitor.settled.set()
        if host.startswith("hostile"):
            self.door.note_settled(host)


def hostile(count: int) -> list[str]:
    return [f"hostile-{number}" for number in range(count)]


def handshakes_have_a_budget(monkeypatch: pytest.MonkeyPatch, addresses: int) -> None:
    """Those of clients without a good token, who come from so many addresses."""
    coordinated = Coordinated(monkeypatch)

    async def run() -> None:
        await coordinated.open()
        await coordinated.flood(hostile(addresses), 60.0)

    simulated(run())
    most = Limits().handshakes + 60 * module.HANDSHAKES_PER_SECOND
    assert most - 2 <= coordinated.handshakes <= most + 2


def a_launcher_does_not_wait_behind_a_flood(monkeypatch: pytest.MonkeyPatch, addresses: int) -> None:
    coordinated = Coordinated(monkeypatch)

    async def run() -> list[float]:
        await coordinated.open()
        flood = asyncio.create_task(coordinated.flood(hostile(addresses), 3600.0))
        await asyncio.sleep(60)
        found = []
        for number in range(30):
            await asyncio.sleep(3)
            found.append(await coordinated.connect(f"launcher-{number % 3}"))
        flood.cancel()
        return found

    assert max(simulated(run())) < 0.1


def launchers_wait_for_their_handshakes_alone(monkeypatch: pytest.MonkeyPatch, hosts: int) -> None:
    """As after a change of the leader: 800 launchers come at once, from so many addresses."""
    launchers = 800

    def last(per_second: float, addresses: int) -> float:
        coordinated = Coordinated(monkeypatch, per_second)

        async def run() -> float:
            await coordinated.open()
            flood = asyncio.create_task(coordinated.flood(hostile(addresses), 3600.0))
            waits = await asyncio.gather(*[coordinated.connect(f"node-{n % hosts}") for n in range(launchers)])
            flood.cancel()
            return max(waits)

        found: float = simulated(run())
        return found

    unpaced, paced, flooded = (
        last(1e9, 0),
        last(module.HANDSHAKES_PER_SECOND, 0),
        last(module.HANDSHAKES_PER_SECOND, 64),
    )
    print(f"{launchers} launchers, {hosts} addresses: {unpaced:.1f} s, paced {paced:.1f}, in a flood {flooded:.1f}")
    assert max(paced, flooded) < unpaced + 5

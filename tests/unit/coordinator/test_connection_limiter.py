"""What unauthenticated clients can cost: many connections without a valid token that send as much as they can."""

import asyncio
import re
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.coordinator.simulated import simulated

from muster.coordinator import connection_limiter as module
from muster.coordinator.connection_limiter import ConnectionLimiter, Limits
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


class Hall:
    """Counts who is let in by a door."""

    def __init__(
        self,
        few_of_address: int = 16,
        waiting: int = 6,
        waiting_of_address: int = 3,
        per_second: float = module.HANDSHAKES_PER_SECOND,
        handshakes: int = 128,
    ) -> None:
        self.inside: list[str] = []
        self.entered: list[socket.socket] = []
        limits = Limits(4, 2, few_of_address, waiting, waiting_of_address, handshakes)
        self.door = ConnectionLimiter(self._enter, limits, lambda: per_second)

    def _enter(self, visitor: socket.socket, host: str) -> None:
        self.inside.append(host)
        self.entered.append(visitor)

    def knocks(self, host: str, times: int = 1) -> list[socket.socket]:
        visitors = [socket.socket() for _ in range(times)]
        for visitor in visitors:
            self.door.enqueue(visitor, host)
        return visitors

    def leaves(self, host: str) -> None:
        self.inside.remove(host)
        self.door.note_settled(host)


async def test_one_address_cannot_take_all_places() -> None:
    hall = Hall()
    mob = hall.knocks("mob", 6)
    assert hall.inside == ["mob", "mob"]
    assert [visitor.fileno() >= 0 for visitor in mob] == [True] * 5 + [False], "three wait, one is sent away"
    late = hall.knocks("other")
    assert hall.inside == ["mob", "mob", "other"]
    hall.leaves("mob")
    assert hall.inside == ["mob", "other", "mob"]
    for visitor in mob + late:
        visitor.close()


async def test_a_good_token_lets_the_next_in_though_a_timer_runs() -> None:
    hall = Hall(per_second=1e-6, handshakes=1)
    visitors = hall.knocks("launcher") + hall.knocks("other") + hall.knocks("third")
    assert hall.inside == ["launcher"], "the budget is used up"
    hall.door.note_settled("launcher", is_known=True)
    assert hall.inside == ["launcher", "other"]
    for visitor in visitors:
        visitor.close()


async def test_the_port_learns_whose_handshakes_begin_and_whose_token_is_good() -> None:
    """It counts only the other connections, those that wait or have hung up, and counts anew after a good token."""
    began: list[str] = []
    good: list[tuple[str, int]] = []

    class Port:
        note_let_in = began.append

        def note_good(self, client: str, connections: int) -> None:
            good.append((client, connections))

        async def serve(self, enqueue: Callable[[socket.socket, str], None]) -> None:
            """One of the launcher has hung up, and a third and fourth of the flood find no place."""
            theirs, client = socket.socketpair()
            client.close()
            enqueue(theirs, "launcher")
            for host in ("launcher", "flood", "flood", "flood", "flood"):
                enqueue(socket.socket(), host)

    hall = Hall()
    await hall.door.serve(Port())  # type: ignore[arg-type]
    assert began == hall.inside == ["launcher", "flood", "flood"]
    hall.door.note_settled("flood")
    hall.door.note_settled("launcher", is_known=True)
    assert good == [("launcher", Limits().after_good)]
    for visitor in hall.entered:
        visitor.close()


async def test_an_address_with_many_places_has_one_too_many_only_while_another_has_none() -> None:
    hall = Hall(few_of_address=1)
    visitors = hall.knocks("mob", 2) + hall.knocks("other")
    assert hall.door.too_many_of() is None, "there is a place left"
    visitors += hall.knocks("third")
    assert hall.door.too_many_of() is None, "all have a place who wait for one"
    visitors += hall.knocks("late")
    assert hall.door.too_many_of() == "mob"
    hall.leaves("mob")
    assert hall.inside == ["mob", "other", "third", "late"]
    visitors += hall.knocks("later")
    assert hall.door.too_many_of() is None, "all have but a few"
    for visitor in visitors:
        visitor.close()


async def test_an_address_whose_own_wait_behind_its_slow_ones_has_too_many() -> None:
    hall = Hall()
    visitors = hall.knocks("host", 3)
    assert (hall.inside, hall.door.too_many_of()) == (["host", "host"], "host")
    hall.leaves("host")
    assert (hall.inside, hall.door.too_many_of()) == (["host", "host"], None)
    for visitor in visitors:
        visitor.close()


async def test_who_comes_when_too_many_wait_takes_a_free_place_or_the_last_of_the_many_goes() -> None:
    hall = Hall(waiting=3)
    mob = hall.knocks("mob", 5)
    other = hall.knocks("other")
    assert hall.inside == ["mob", "mob", "other"]
    late = hall.knocks("x") + hall.knocks("y")
    assert hall.inside == ["mob", "mob", "other", "x"]
    assert [visitor.fileno() >= 0 for visitor in mob] == [True] * 4 + [False]
    for visitor in mob + other + late:
        visitor.close()


async def test_an_address_beyond_its_share_of_what_waits_sends_nobody_else_away() -> None:
    hall = Hall(waiting=4, waiting_of_address=4)
    visitors = hall.knocks("a", 2) + hall.knocks("b", 2)  # all places
    waiting = hall.knocks("c", 2) + hall.knocks("d") + hall.knocks("e")
    newest = hall.knocks("d")
    assert [visitor.fileno() >= 0 for visitor in waiting + newest] == [True] * 4 + [False]
    other = hall.knocks("f")
    assert [visitor.fileno() >= 0 for visitor in waiting + other] == [True, False, True, True, True]
    late = hall.knocks("g")
    assert late[0].fileno() < 0, "all have one: the newest has waited least"
    for visitor in visitors + waiting + newest + other + late:
        visitor.close()


async def test_addresses_take_turns() -> None:
    hall = Hall()
    visitors = hall.knocks("a", 2) + hall.knocks("b", 2) + hall.knocks("c", 3) + hall.knocks("d", 3)
    assert hall.inside == ["a", "a", "b", "b"]
    assert [visitor.fileno() >= 0 for visitor in hall.knocks("e")] == [True]
    assert [visitor.fileno() >= 0 for visitor in visitors] == [True] * 6 + [False] + [True] * 3, "too many wait"
    for host in ("a", "a", "b", "b"):
        hall.leaves(host)
    assert hall.inside == ["c", "d", "e", "c"]
    for visitor in visitors:
        visitor.close()


async def test_of_a_flooded_address_the_newest_connection_goes_first() -> None:
    """A launcher behind the same gateway comes last; two seconds of the budget's two handshakes a second wait."""
    hall = Hall(waiting=99, waiting_of_address=7, per_second=2.0)
    mob = hall.knocks("gateway", 3)
    hall.leaves("gateway")  # it has wasted one
    mob += hall.knocks("gateway", 7)
    (launcher,) = hall.knocks("gateway")
    assert [visitor.fileno() >= 0 for visitor in mob[3:]] == [False] + [True] * 6, "the oldest that waits is sent away"
    hall.leaves("gateway")
    assert hall.entered[-1] is launcher
    for visitor in [*mob, launcher]:
        visitor.close()


async def test_of_an_address_that_has_wasted_nothing_the_oldest_connection_goes_first() -> None:
    """As where thousands of launchers come at once from behind a gateway."""
    hall = Hall(waiting=99, waiting_of_address=99, per_second=2.0)
    crowd = hall.knocks("gateway", 12)
    hall.inside.remove("gateway")
    hall.door.note_settled("gateway", is_known=True)
    assert hall.entered[-1] is crowd[2]
    for visitor in crowd:
        visitor.close()


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


@pytest.mark.parametrize("addresses", [1, 64, 1000])
def test_handshakes_without_a_good_token_have_a_budget_from_however_many_addresses(
    monkeypatch: pytest.MonkeyPatch, addresses: int
) -> None:
    coordinated = Coordinated(monkeypatch)

    async def run() -> None:
        await coordinated.open()
        await coordinated.flood(hostile(addresses), 60.0)

    simulated(run())
    most = Limits().handshakes + 60 * module.HANDSHAKES_PER_SECOND
    assert most - 2 <= coordinated.handshakes <= most + 2


@pytest.mark.parametrize("addresses", [64, 1000])
def test_a_launcher_does_not_wait_behind_a_flood_of_handshakes(monkeypatch: pytest.MonkeyPatch, addresses: int) -> None:
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


@pytest.mark.parametrize(("minutes", "first"), [(0.0, "sound"), (20.0, "reformed")])
def test_what_an_address_has_wasted_is_forgotten_by_and_by(
    monkeypatch: pytest.MonkeyPatch, minutes: float, first: str
) -> None:
    monkeypatch.setattr(module, "_has_hung_up", lambda visitor: False)
    inside: list[str] = []

    async def run() -> None:
        door = ConnectionLimiter(lambda visitor, host: inside.append(host), Limits(unauthenticated=1))
        for _ in range(4):
            door.enqueue(Visitor(), "reformed")  # type: ignore[arg-type]
            door.note_settled("reformed")
        for _ in range(10):
            door.enqueue(Visitor(), "other")  # type: ignore[arg-type]
            await asyncio.sleep(minutes * 60 / 10)
            door.note_settled("other", is_known=True)
        inside.clear()
        for host in ("other", "reformed", "sound"):
            door.enqueue(Visitor(), host)  # type: ignore[arg-type]
        door.note_settled("other")

    simulated(run())
    assert inside == ["other", first]


@pytest.mark.parametrize("hosts", [800, 100, 1])
def test_launchers_that_all_come_at_once_wait_for_their_handshakes_alone(
    monkeypatch: pytest.MonkeyPatch, hosts: int
) -> None:
    """As after a change of the leader: each on a node of its own, eight on one, or all behind one gateway."""
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


async def test_a_client_that_has_hung_up_while_it_waited_costs_no_handshake() -> None:
    inside: list[str] = []
    door = ConnectionLimiter(lambda visitor, host: inside.append(host), Limits(unauthenticated=1))
    pairs = [socket.socketpair() for _ in range(3)]
    for (visitor, _), host in zip(pairs, ("first", "gone", "third"), strict=True):
        door.enqueue(visitor, host)
    assert inside == ["first"]
    pairs[1][1].sendall(b"a ClientHello")
    pairs[1][1].close()
    before = door._budget
    door.note_settled("first")
    assert inside == ["first", "third"]
    assert pairs[1][0].fileno() < 0
    assert door._budget < before + 1 - 1 + 0.5, "one handshake was begun"
    for visitor, client in pairs:
        visitor.close()
        client.close()

"""What unauthenticated clients can cost: many connections without a valid token that send as much as they can."""

import asyncio
import contextlib
import socket

import pytest
from tests.unit.coordinator.floods import (
    Visitor,
    a_launcher_does_not_wait_behind_a_flood,
    handshakes_have_a_budget,
    launchers_wait_for_their_handshakes_alone,
)
from tests.unit.coordinator.simulated import simulated

from localcluster.patience import PATIENCE_SECONDS
from muster import serve
from muster.coordinator import connection_limiter as module
from muster.coordinator.connection_limiter import ConnectionLimiter, Limits
from muster.serve import listening_socket


class Hall:
    """Counts who is let in by a door with four places."""

    def __init__(
        self,
        waiting: int = 6,
        waiting_of_address: int = 3,
        per_second: float = module.HANDSHAKES_PER_SECOND,
        handshakes: int = 128,
    ) -> None:
        self.inside: list[str] = []
        self.entered: list[socket.socket] = []
        self.door = ConnectionLimiter(
            self._enter, Limits(4, waiting, waiting_of_address, handshakes), lambda: per_second
        )

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


def close(visitors: list[socket.socket]) -> None:
    for visitor in visitors:
        visitor.close()


def are_open(visitors: list[socket.socket]) -> list[bool]:
    return [visitor.fileno() >= 0 for visitor in visitors]


async def test_all_places_are_taken_and_the_rest_of_an_address_waits_up_to_its_limit() -> None:
    hall = Hall()
    mob = hall.knocks("mob", 8)
    assert hall.inside == ["mob"] * 4
    assert are_open(mob) == [True] * 7 + [False], "three wait, one is sent away"
    assert hall.door.keeps_others_out()
    hall.leaves("mob")
    late = hall.knocks("other")
    hall.leaves("mob")
    assert hall.inside == ["mob", "mob", "mob", "other"], "it has wasted no handshake"
    close(mob + late)


async def test_places_that_are_taken_keep_nobody_out_while_nobody_waits() -> None:
    hall = Hall()
    visitors = hall.knocks("a", 4)
    assert not hall.door.keeps_others_out()
    close(visitors)


async def test_a_good_token_lets_the_next_in_though_a_timer_runs() -> None:
    hall = Hall(per_second=1e-6, handshakes=1)
    visitors = hall.knocks("launcher") + hall.knocks("other") + hall.knocks("third")
    assert hall.inside == ["launcher"], "the budget is used up"
    hall.door.note_settled("launcher", is_known=True)
    assert hall.inside == ["launcher", "other"]
    close(visitors)


async def test_a_connection_too_many_sends_away_the_last_of_the_busiest_address() -> None:
    hall = Hall(waiting=3)
    mob = hall.knocks("mob", 7)
    other = hall.knocks("other")
    assert are_open(mob) == [True] * 6 + [False]
    assert are_open(other) == [True]
    close(mob + other)


async def test_an_address_beyond_its_share_of_what_waits_sends_nobody_else_away() -> None:
    hall = Hall(waiting=4, waiting_of_address=4)
    visitors = hall.knocks("a", 2) + hall.knocks("b", 2)  # all places
    waiting = hall.knocks("c", 2) + hall.knocks("d") + hall.knocks("e")
    newest = hall.knocks("d")
    assert are_open(waiting + newest) == [True] * 4 + [False]
    other = hall.knocks("f")
    assert are_open(waiting + other) == [True, False, True, True, True]
    close(visitors + waiting + newest + other)


async def test_addresses_take_turns() -> None:
    hall = Hall()
    visitors = hall.knocks("a", 2) + hall.knocks("b", 2) + hall.knocks("c", 3) + hall.knocks("d", 3)
    for host in ("a", "a", "b", "b"):
        hall.leaves(host)
    assert hall.inside == ["c", "d", "c", "d"]
    close(visitors)


async def test_the_turn_of_an_address_whose_only_connection_was_sent_away_is_dropped() -> None:
    hall = Hall(waiting=1)
    visitors = hall.knocks("a", 4) + hall.knocks("b") + hall.knocks("c")
    assert are_open(visitors) == [True] * 5 + [False]
    hall.leaves("a")
    hall.leaves("a")
    assert hall.inside == ["a", "a", "b"]
    visitors += hall.knocks("c")
    assert hall.inside == ["a", "a", "b", "c"]
    close(visitors)


def test_a_flooded_address_serves_the_newest_connection_of_the_turn_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launcher behind the same gateway comes last but for those that hang up soon; there are two turns a second."""
    monkeypatch.setattr(module, "_has_hung_up", lambda visitor: visitor.has_hung_up)
    entered: list[Visitor] = []
    mob, launcher, recent = [Visitor() for _ in range(12)], Visitor(), [Visitor() for _ in range(3)]
    limits = Limits(waiting_of_address=7, handshakes=5)

    async def run() -> None:
        door = ConnectionLimiter(lambda visitor, host: entered.append(visitor), limits, lambda: 2.0)  # type: ignore[arg-type]

        def come(visitor: Visitor) -> None:
            door.enqueue(visitor, "gateway")  # type: ignore[arg-type]

        for visitor in mob[:5]:
            come(visitor)
        door.note_settled("gateway")
        for visitor in [*mob[5:], launcher]:
            come(visitor)
        await asyncio.sleep(0.4)
        for visitor in recent:
            come(visitor)
        recent[0].has_hung_up = True
        await asyncio.sleep(0.2)

    simulated(run())
    assert entered == [*mob[:5], launcher]
    assert [visitor.settled.is_set() for visitor in mob[5:]] == [True] * 4 + [False] * 3, "the oldest were sent away"


async def test_of_an_address_that_has_wasted_nothing_the_oldest_connection_goes_first() -> None:
    """As where thousands of launchers come at once from behind a gateway."""
    hall = Hall(waiting=99, waiting_of_address=99, per_second=2.0)
    crowd = hall.knocks("gateway", 12)
    hall.door.note_settled("gateway", is_known=True)
    assert hall.entered[-1] is crowd[4]
    close(crowd)


def test_handshakes_without_a_good_token_have_a_budget_from_however_many_addresses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handshakes_have_a_budget(monkeypatch, 64)


def test_a_launcher_does_not_wait_behind_a_flood_of_handshakes(monkeypatch: pytest.MonkeyPatch) -> None:
    a_launcher_does_not_wait_behind_a_flood(monkeypatch, 64)


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


def test_launchers_that_all_come_at_once_wait_for_their_handshakes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """All behind one gateway."""
    launchers_wait_for_their_handshakes_alone(monkeypatch, 1)


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


async def connected(count: int, port: int, host: str = "127.0.0.1") -> list[socket.socket]:
    loop = asyncio.get_running_loop()
    clients = []
    for _ in range(count):
        client = socket.socket()
        client.setblocking(False)
        await loop.sock_connect(client, (host, port))
        clients.append(client)
    return clients


async def test_what_is_wrong_with_one_connection_ends_nothing() -> None:
    hosts: list[str] = []
    done = asyncio.Event()

    def enter(visitor: socket.socket, host: str) -> None:
        visitor.close()
        hosts.append(host)
        if len(hosts) == 1:
            raise ValueError("of the first")
        done.set()

    with listening_socket("127.0.0.1", 0, module.BACKLOG) as listener:
        serving = asyncio.create_task(ConnectionLimiter(enter).serve(listener))
        clients = await connected(2, listener.getsockname()[1])
        async with asyncio.timeout(PATIENCE_SECONDS):
            await done.wait()
        serving.cancel()
        close(clients)
    assert hosts == ["127.0.0.1"] * 2


async def test_connections_that_follow_each_other_are_accepted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first comes alone; those that come while the loop lets others in wait for one turn of it."""
    turns: list[int] = []
    is_done = asyncio.Event()
    hosts: list[str] = []

    def enter(visitor: socket.socket, host: str) -> None:
        hosts.append(host)
        visitor.close()
        if len(hosts) == 40:
            is_done.set()

    gathered = ConnectionLimiter._accept_waiting

    def count(door: ConnectionLimiter, listener: socket.socket) -> None:
        begun = len(hosts)
        gathered(door, listener)
        turns.append(len(hosts) - begun)

    monkeypatch.setattr(ConnectionLimiter, "_accept_waiting", count)
    with listening_socket("127.0.0.1", 0, module.BACKLOG) as listener:
        address = listener.getsockname()
        clients = [socket.create_connection(address) for _ in range(40)]  # in the backlog
        serving = asyncio.create_task(ConnectionLimiter(enter).serve(listener))
        async with asyncio.timeout(PATIENCE_SECONDS):
            await is_done.wait()
        serving.cancel()
        close(clients)
    assert max(turns) > 20, "a loop that stands still between two may accept a few alone"


async def test_while_launchers_come_no_more_are_accepted_than_are_let_in_soon() -> None:
    """16,000 that come at once would wait until they have given up, and be closed."""
    entered: list[socket.socket] = []
    door = ConnectionLimiter(lambda visitor, host: entered.append(visitor), Limits(unauthenticated=1))
    with listening_socket("127.0.0.1", 0, module.BACKLOG) as listener:
        clients = [socket.create_connection(listener.getsockname()) for _ in range(60)]
        door.enqueue(listener.accept()[0], "127.0.0.1")
        door.note_settled("127.0.0.1", is_known=True)
        soon = round(module.AHEAD_SECONDS / module.GATHERING_SECONDS)
        door._accept_waiting(listener)
        assert len(entered) + door._queued == 1 + soon
        door._accept_waiting(listener)  # no good token has come since: a flood is not left in the kernel
        assert len(entered) + door._queued == 60
        close(clients + entered)


async def test_who_comes_again_and_again_leaves_no_one_in_the_kernels_queue() -> None:
    """A tenant's pods have good tokens, and may flood the port beside them."""
    door, rooms = ConnectionLimiter(lambda *_: None), []
    door._queued = 200  # of the flood
    door._count(asyncio.get_running_loop().time())
    for turn in range(200):
        door._unauthenticated += 1
        door.note_settled(f"10.0.0.{turn % 64}", is_known=True)
        rooms.append(door._room())
    assert set(rooms[: 64 * module.LINES]) == {0}
    assert set(rooms[64 * module.LINES :]) == {module.GATHERED}


async def test_a_port_takes_connections_of_both_families_and_buffers_little() -> None:
    """What a client sends to a socket that waits is the kernel's memory, and the pod's."""
    visitors: list[tuple[socket.socket, str]] = []
    all_are_in = asyncio.Event()

    def enter(visitor: socket.socket, host: str) -> None:
        visitors.append((visitor, host))
        if len(visitors) == 2:
            all_are_in.set()

    with listening_socket("", 0, module.BACKLOG) as listener:
        serving = asyncio.create_task(ConnectionLimiter(enter).serve(listener))
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)), socket.create_connection(("::1", port)):
            async with asyncio.timeout(PATIENCE_SECONDS):
                await all_are_in.wait()
        serving.cancel()
    assert {host for _, host in visitors} == {"127.0.0.1", "::/64"}
    buffers = [visitor.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) for visitor, _ in visitors]
    assert max(buffers) <= 2 * serve.RECEIVE_BUFFER_BYTES
    close([visitor for visitor, _ in visitors])


async def test_those_who_wait_when_the_port_is_closed_are_closed() -> None:
    with listening_socket("127.0.0.1", 0, module.BACKLOG) as listener:
        door = ConnectionLimiter(lambda visitor, host: None, Limits(unauthenticated=0))
        serving = asyncio.create_task(door.serve(listener))
        await asyncio.sleep(0)
        waiting = [socket.socket()]
        door.enqueue(waiting[0], "host")
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving
    assert are_open(waiting) == [False]

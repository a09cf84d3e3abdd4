"""What unauthenticated clients can cost: many connections without a valid token that send as much as they can."""

import asyncio
import socket
from collections.abc import Callable

import pytest
from tests.unit.coordinator.floods import (
    Visitor,
    a_launcher_does_not_wait_behind_a_flood,
    handshakes_have_a_budget,
    launchers_wait_for_their_handshakes_alone,
)
from tests.unit.coordinator.simulated import simulated

from muster.coordinator import connection_limiter as module
from muster.coordinator.connection_limiter import ConnectionLimiter, Limits


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

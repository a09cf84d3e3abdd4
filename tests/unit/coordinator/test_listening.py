"""What connections of a flood cost before anything is read from them."""

import asyncio
import contextlib
import errno
import math
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from itertools import chain, count, repeat
from typing import Any

import pytest
from tests.unit.coordinator.simulated import simulated

from localcluster.patience import PATIENCE_SECONDS
from muster.coordinator import listening as module
from muster.coordinator.listening import Listening
from muster.serve import client_network

MIB = 1024 * 1024
DEADLINE = 300.0
FLOODING, LAUNCHER = "127.0.0.7", "127.0.0.8"


class Visitor:
    """An accepted connection."""

    def setblocking(self, flag: bool) -> None:
        """Nothing blocks."""

    def close(self) -> None:
        """Nothing is open."""


class Listener:
    """A listening socket of simulated time.

    Args:
        times: when the next connection comes, in seconds from now.
        clients: the address of the connection with this number; 1 is the first.
        cost: called with each connection.
    """

    def __init__(self, times: Iterable[float], clients: Callable[[int], str], cost: Callable[[], object] = int) -> None:
        self.accepted = self.wakings = 0
        self._times = iter(times)
        self._next = next(self._times, math.inf)
        self._clients = clients
        self._cost = cost
        self._began = asyncio.get_running_loop().time()

    def accept(self) -> tuple[Any, Any]:
        """The next connection."""
        if self._next > asyncio.get_running_loop().time() - self._began:
            raise BlockingIOError
        self._next = next(self._times, math.inf)
        self.accepted += 1
        self._cost()
        return Visitor(), (self._clients(self.accepted), 1)

    async def wait(self) -> tuple[Any, Any]:
        """The next connection, once it has come."""
        self.wakings += 1
        if self._next == math.inf:
            await asyncio.Event().wait()
        await asyncio.sleep(max(self._began + self._next - asyncio.get_running_loop().time(), 0.0) + 1e-6)
        return self.accept()

    def close(self) -> None:
        """Nothing is open."""


@contextlib.asynccontextmanager
async def serving(
    monkeypatch: pytest.MonkeyPatch, *listeners: Listener, enqueue: Callable[[Any, str], None] = lambda *_: None
) -> AsyncIterator[Listening]:
    """A port with these sockets in place of the kernel's, while it accepts."""
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "sock_accept", Listener.wait)
    monkeypatch.setattr(module, "sort_by_source", lambda *_: None)
    accepting = Listening("127.0.0.1", 0, cpu_clock=loop.time)
    accepting.close()
    accepting._sockets = list(listeners)  # type: ignore[arg-type]
    task = asyncio.create_task(accepting.serve(enqueue))
    try:
        yield accepting
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(("seconds", "accepted"), [(0.001, 950), (0.0, module.GATHERED / module.GATHERING_SECONDS)])
def test_connections_of_a_flood_are_accepted_in_gatherings(
    monkeypatch: pytest.MonkeyPatch, seconds: float, accepted: float
) -> None:
    async def run() -> Listener:
        flood = Listener((seconds * number for number in count()), lambda number: f"10.{number % 97}.0.1")
        async with serving(monkeypatch, flood):
            await asyncio.sleep(1.0)
        return flood

    flood = simulated(run())
    assert flood.wakings <= 2 / module.GATHERING_SECONDS + 2
    assert 0.95 * accepted <= flood.accepted <= 1.1 * accepted


def test_one_that_comes_after_a_pause_does_not_wait_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> Listener:
        launchers = Listener((0.1 * number for number in count()), lambda number: f"10.{number}.0.1")
        async with serving(monkeypatch, launchers):
            await asyncio.sleep(1.05)
        return launchers

    assert simulated(run()).accepted == 11


def test_connections_of_a_flood_take_their_share_of_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> tuple[float, float]:
        spent, loop = 0.0, asyncio.get_running_loop()

        def cost() -> None:
            nonlocal spent
            spent += 0.00005

        flood = Listener(repeat(0.0), lambda _: FLOODING, cost)
        async with serving(monkeypatch, Listener([], str), flood) as accepting:
            accepting._cpu_clock = lambda: spent
            began = loop.time()
            await asyncio.sleep(100.0)
            return spent, loop.time() - began

    spent, seconds = simulated(run())
    allowed = seconds * module.FLOOD_SHARE + module.FLOOD_BURST_SECONDS
    assert 0.8 * allowed < spent <= allowed + 0.00005 * (module.GATHERED + 100 / module.GATHERING_SECONDS)


def test_an_address_is_sorted_out_for_a_minute_from_its_last_flood(monkeypatch: pytest.MonkeyPatch) -> None:
    sorted_out: list[Any] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        # A flood for half a second, and a launcher each second.
        times = chain((0.001 * number for number in range(500)), count(1.0))
        usual = Listener(times, lambda number: FLOODING if number <= 500 else LAUNCHER)
        async with serving(monkeypatch, usual, Listener([], str)):
            began = loop.time()
            monkeypatch.setattr(
                module, "sort_by_source", lambda _, clients, number: sorted_out.append((loop.time() - began, *clients))
            )
            await asyncio.sleep(2 * module.FLOOD_SECONDS)

    simulated(run())
    (begun, *flooding), (ended, *none) = sorted_out
    assert (flooding, none) == ([FLOODING], [])
    assert begun < 0.5
    assert module.FLOOD_SECONDS <= ended <= module.FLOOD_SECONDS + 3.0


@pytest.mark.parametrize(("waiting", "expected"), [(15, []), (16, [LAUNCHER])])
def test_connections_whose_handshake_begins_are_no_flood(
    monkeypatch: pytest.MonkeyPatch, waiting: int, expected: list[str]
) -> None:
    """Hundreds of launchers behind a gateway; so many of them have to wait."""
    sorted_out: list[str] = []

    async def run() -> None:
        gateway = Listener([0.0] * 500, lambda _: LAUNCHER)
        left = 500

        def enqueue(_: Any, host: str) -> None:
            nonlocal left
            left -= 1
            if left >= waiting:
                port.note_let_in(host)

        async with serving(monkeypatch, gateway, Listener([], str), enqueue=enqueue) as port:
            monkeypatch.setattr(module, "COUNTED_SECONDS", 60.0)
            monkeypatch.setattr(module, "sort_by_source", lambda _, clients, number: sorted_out.extend(clients))
            await asyncio.sleep(5.0)

    simulated(run())
    assert sorted_out == expected


def test_a_good_token_ends_an_addresss_being_sorted_out(monkeypatch: pytest.MonkeyPatch) -> None:
    sorted_out: list[list[str]] = []

    async def run() -> None:
        gateway = Listener([0.0] * 20 + [1.5] * 79 + [1.6] * 40 + [3.0], lambda _: LAUNCHER)
        async with serving(monkeypatch, gateway, Listener([], str)) as port:
            monkeypatch.setattr(module, "COUNTED_SECONDS", 60.0)
            monkeypatch.setattr(module, "sort_by_source", lambda _, clients, number: sorted_out.append([*clients]))
            await asyncio.sleep(1.0)
            port.note_good(LAUNCHER, 64)
            await asyncio.sleep(0.55)
            assert gateway.accepted >= 60
            await asyncio.sleep(5.0)

    simulated(run())
    assert sorted_out == [[LAUNCHER], [], [LAUNCHER]]


def test_a_filter_that_the_kernel_has_refused_is_offered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    offered: list[float] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()

        def refuse(*_: Any) -> None:
            offered.append(loop.time())
            raise OSError(errno.ENOMEM, "no memory")

        usual = Listener((0.01 * number for number in count()), lambda _: FLOODING)
        async with serving(monkeypatch, usual, Listener([], str)):
            monkeypatch.setattr(module, "sort_by_source", refuse)
            await asyncio.sleep(5 * module.FLOOD_SECONDS)

    simulated(run())
    assert 3 <= len(offered) <= 5


def test_what_is_wrong_with_one_connection_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str] = []

    async def run() -> None:
        def enqueue(_: Any, host: str) -> None:
            taken.append(host)
            raise ValueError("something unexpected")

        usual = Listener([0.0, 0.01, 1.0], lambda number: f"10.0.0.{number}")
        async with serving(monkeypatch, usual, enqueue=enqueue):
            await asyncio.sleep(2.0)

    simulated(run())
    assert taken == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]


def test_only_so_many_addresses_are_sorted_out_and_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    sorted_out: list[list[str]] = []

    async def run() -> None:
        usual = Listener(repeat(0.0), lambda number: f"10.{number % (module.MAX_FLOODING + 20)}.0.1")
        monkeypatch.setattr(module, "GATHERED", 1000)
        async with serving(monkeypatch, usual, Listener([], str)):
            monkeypatch.setattr(module, "sort_by_source", lambda _, clients, number: sorted_out.append([*clients]))
            await asyncio.sleep(3.0)

    simulated(run())
    assert max(map(len, sorted_out)) == module.MAX_FLOODING
    assert len(sorted_out) <= 3.0 / module.SORTING_SECONDS + 1


def test_hosts_of_one_ipv6_network_are_one_address(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = ["2001:db8:1:2::1", "2001:db8:1:2::2", "2001:db8:1:2:3::1", "2001:db8:1:3::1", "::ffff:10.1.2.3"]
    clients: list[str] = []

    async def run() -> None:
        arrivals = Listener([0.0] * len(hosts), lambda number: hosts[number - 1])
        async with serving(monkeypatch, arrivals, enqueue=lambda _, client: clients.append(client)):
            await asyncio.sleep(1.0)

    simulated(run())
    assert clients == [*["2001:db8:1:2::/64"] * 3, "2001:db8:1:3::/64", "10.1.2.3"]


@contextlib.contextmanager
def connected(port: int, source: str) -> Iterator[socket.socket]:
    host = "::1" if ":" in source else "127.0.0.1"
    with socket.create_connection((host, port), timeout=PATIENCE_SECONDS, source_address=(source, 0)) as client:
        yield client


@pytest.mark.parametrize(
    ("host", "flooding", "launcher"),
    [("127.0.0.1", FLOODING, LAUNCHER), ("", FLOODING, LAUNCHER), ("", "::1", LAUNCHER), ("", FLOODING, "::1")],
)
async def test_the_kernel_gives_a_flood_a_socket_of_its_own(
    monkeypatch: pytest.MonkeyPatch, host: str, flooding: str, launcher: str
) -> None:
    monkeypatch.setattr(module, "COUNTED_SECONDS", DEADLINE)  # however slowly this test connects
    accepting = Listening(host, 0)
    usual, flooded = accepting._sockets
    client = client_network(flooding)
    task = asyncio.create_task(accepting.serve(lambda visitor, _: visitor.close()))
    try:
        async with asyncio.timeout(DEADLINE):
            while not (client in accepting._flooding and accepting._is_sorted):
                await asyncio.to_thread(_connect, accepting.port, flooding)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        with connected(accepting.port, flooding), connected(accepting.port, launcher):
            assert set(_accepted(flooded)) == {client}
            assert _accepted(usual)[-1] == client_network(launcher)
    finally:
        task.cancel()
        accepting.close()
    assert [each.fileno() for each in (usual, flooded)] == [-1, -1]


def _connect(port: int, source: str) -> None:
    with connected(port, source):
        """And gone."""


def _accepted(listener: socket.socket) -> list[str]:
    """The addresses of all that a socket has."""
    hosts: list[str] = []
    with contextlib.suppress(BlockingIOError):
        while True:
            visitor, address = listener.accept()
            visitor.close()
            hosts.append(client_network(address[0]))
    return hosts


async def test_where_the_kernel_cannot_sort_one_socket_accepts_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def cannot(*_: Any) -> None:
        raise OSError(errno.ENOPROTOOPT, "no such option")

    monkeypatch.setattr(module, "sort_by_source", cannot)
    monkeypatch.setattr(module, "FLOOD_CONNECTIONS", 2)
    accepting = Listening("127.0.0.1", 0)
    assert len(accepting._sockets) == 1
    came = asyncio.Semaphore(0)

    def note(visitor: socket.socket, _: str) -> None:
        visitor.close()
        came.release()

    task = asyncio.create_task(accepting.serve(note))
    try:
        async with asyncio.timeout(DEADLINE):
            for _ in range(5):
                await asyncio.to_thread(_connect, accepting.port, FLOODING)
                await came.acquire()
    finally:
        task.cancel()
        accepting.close()


async def test_what_a_client_sends_to_a_socket_that_waits_takes_little_of_the_kernels_memory() -> None:
    accepting = Listening("127.0.0.1", 0)
    with contextlib.closing(accepting), socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        client.connect(("127.0.0.1", accepting.port))
        client.settimeout(1.0)  # nothing more is taken
        sent = 0
        with contextlib.suppress(TimeoutError):
            while sent < MIB:
                sent += client.send(b"x" * 4096)
    assert sent < 64 * 1024

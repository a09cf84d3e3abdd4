"""The server of probes and metrics, over real connections: what it answers, and what clients without rights cannot do
to it."""

import contextlib
import errno
import itertools
import select
import socket
import ssl
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.unit.clock import Clock

from localcluster.patience import PATIENCE_SECONDS
from muster import serve
from muster.coordinator.server import load_pair, server_context
from muster.kube.certificates import new_authority, new_serving
from muster.serve import (
    PLAIN,
    TLS,
    ConnectionQueue,
    Server,
    at_most_once_a_second,
    client_network,
    exposition,
    node_addresses,
    open_metrics,
    probe,
)

KUBELET = "127.0.0.1"
TENANT = "127.0.0.9"


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test but those of them depends on the seconds that a connection has."""
    for name, limits in (("PLAIN", PLAIN), ("TLS", TLS)):
        monkeypatch.setattr(serve, name, limits._replace(silence_seconds=300.0, connection_seconds=300.0))


@pytest.fixture
def start() -> Iterator[Any]:
    """`start(endpoints, tls, node)`: a server on a free port of this machine."""
    with contextlib.ExitStack() as stack:

        def started(endpoints: Any = None, tls: Any = None, node: Any = frozenset()) -> Server:
            made = Server(("127.0.0.1", 0), endpoints or {"/healthz": probe(str)}, tls, node)
            stack.callback(made.close)
            return made

        yield started


@contextlib.contextmanager
def connected(server: Server, host: str) -> Iterator[socket.socket]:
    """A connection from this address of this machine."""
    with socket.create_connection(
        ("127.0.0.1", server.port), timeout=PATIENCE_SECONDS, source_address=(host, 0)
    ) as made:
        yield made


def ask(server: Server, request: str = "GET /healthz HTTP/1.1\r\n\r\n", host: str = KUBELET) -> str:
    """All of the answer."""
    with connected(server, host) as connection:
        connection.sendall(request.encode())
        return b"".join(iter(lambda: connection.recv(65536), b"")).decode()


def get(server: Server, path: str, **headers: str) -> tuple[int, str]:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head, _, body = ask(server, f"GET {path} HTTP/1.1\r\n{lines}\r\n").partition("\r\n\r\n")
    return int(head.split()[1]), body


def test_prometheus_text() -> None:
    text = exposition([("a_total", "counter", "Help.", [({"gpu": 'x"\n\\'}, 1.5), ({}, 2)])])
    assert text == b'# HELP a_total Help.\n# TYPE a_total counter\na_total{gpu="x\\"\\n\\\\"} 1.5\na_total 2\n'


def test_each_endpoint_is_at_its_path(start: Any) -> None:
    problem = ["", "not yet"]
    server = start({"/healthz": probe(lambda: problem[0]), "/readyz": probe(lambda: problem[1])})
    assert get(server, "/healthz") == (200, "ok\n")
    assert get(server, "/readyz?verbose") == (503, "not yet\n")
    assert get(server, "/metrics") == (404, "there is: /healthz, /readyz\n")


def test_an_endpoint_has_the_token_whatever_the_case_of_its_header(start: Any) -> None:
    server = start({"/metrics": lambda authorization: (401, authorization.encode())})
    assert get(server, "/metrics", aUTHORIZATION="Bearer  it ") == (401, "Bearer  it")
    assert "\r\nWWW-Authenticate: Bearer\r\n" in ask(server, "GET /metrics HTTP/1.1\r\nHost: it\r\n\r\n")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        ("POST /healthz HTTP/1.1\r\n\r\n", 405),
        ("no request\r\n\r\n", 400),
        ("GET / SPDY/3\r\n\r\n", 400),
        ("\r\n\r\n", 400),
    ],
)
def test_what_is_no_request_is_refused(start: Any, request_: str, status: int) -> None:
    assert ask(start(), request_).startswith(f"HTTP/1.1 {status} ")


def test_a_head_that_does_not_end_is_not_read_for_long(start: Any) -> None:
    with contextlib.suppress(ConnectionError), connected(start(), TENANT) as client:
        for _ in range(10_000):
            client.sendall(b"x" * 16_384)
        pytest.fail("it took 160 MB")


@pytest.mark.parametrize(("seconds_of_cpu", "good_for"), [(0.01, 1.0), (0.12, 3.0), (2.0, 10.0)])
def test_a_rendering_that_takes_long_is_shared_for_longer(seconds_of_cpu: float, good_for: float) -> None:
    """So renderings take 4 % of a core, however many clients ask; and no figure is older than 10 s."""
    clock, cpu, numbers = Clock(), Clock(), itertools.count(1)

    def render() -> bytes:
        cpu.advance(seconds_of_cpu)
        return b"%d" % next(numbers)

    rendered = at_most_once_a_second(render, clock, cpu)
    assert rendered() == b"1"
    clock.advance(good_for - 0.1)
    assert rendered() == b"1"
    clock.advance(0.2)
    assert rendered() == b"2"


def test_metrics_are_rendered_at_most_once_a_second() -> None:
    clock, numbers = Clock(), itertools.count(1)
    rendered = at_most_once_a_second(lambda: b"%d" % next(numbers), clock)
    assert [rendered() for _ in range(5)] == [b"1"] * 5
    clock.advance(0.9)
    assert rendered() == b"1"
    clock.advance(0.2)
    assert rendered() == b"2"


def test_clients_that_ask_while_metrics_are_rendered_share_them(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "RENDERED_SECONDS", 3600.0)
    entered, finish, numbers = threading.Event(), threading.Event(), itertools.count(1)

    def render() -> bytes:
        entered.set()
        assert finish.wait(PATIENCE_SECONDS)
        return b"%d\n" % next(numbers)

    server = start({"/metrics": open_metrics(render), "/healthz": probe(str)})
    answers: list[tuple[int, str]] = []
    clients = [threading.Thread(target=lambda: answers.append(get(server, "/metrics"))) for _ in range(5)]
    for client in clients:
        client.start()
    assert entered.wait(PATIENCE_SECONDS)
    assert get(server, "/healthz") == (200, "ok\n"), "who renders keeps no probe waiting"
    finish.set()
    for client in clients:
        client.join(PATIENCE_SECONDS)
    assert answers == [(200, "1\n")] * 5


class TestTurns:
    """Which connection is answered next, and which no longer fits."""

    def test_addresses_take_turns(self) -> None:
        waiting: Any = ConnectionQueue()
        for host, name in (("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"), ("c", "c1"), ("b", "b2")):
            assert waiting.add(host, name) is None
        assert [waiting.next_connection()[1] for _ in range(len(waiting))] == ["a1", "b1", "c1", "a2", "b2", "a3"]
        assert not waiting

    def test_an_address_has_so_many_and_the_newest_does_not_fit(self) -> None:
        waiting: Any = ConnectionQueue()
        kept = [waiting.add("a", number) for number in range(serve._MAX_WAITING_OF_ADDRESS)]
        assert set(kept) == {None}
        assert waiting.add("a", "one too many") == "one too many"
        assert waiting.add("b", "another address") is None

    def test_of_all_there_are_so_many_and_the_address_with_the_most_loses_one(self) -> None:
        waiting: Any = ConnectionQueue()
        for number in range(serve._MAX_WAITING - 2):
            assert waiting.add(f"host {number}", "single") is None
        assert [waiting.add("a", each) for each in ("a1", "a2", "a3")] == [None, None, "a3"]
        assert waiting.add("new", "new") == "a2"
        assert len(waiting) == serve._MAX_WAITING

    def test_of_addresses_that_have_equally_many_the_newest_does_not_fit(self) -> None:
        waiting: Any = ConnectionQueue()
        first = [waiting.add(f"host {number}", number) for number in range(serve._MAX_WAITING)]
        assert set(first) == {None}
        assert [waiting.add(f"late {number}", f"late {number}") for number in range(3)] == [
            "late 0",
            "late 1",
            "late 2",
        ]
        assert waiting.next_connection()[1] == 0, "the connection that has waited longest is next"

    def test_all_of_them_are_fewer_than_the_usual_limit_of_open_files(self) -> None:
        ports = 2  # of probes and of metrics
        lanes = 2
        of_node = serve._MAX_WAITING_OF_ADDRESS
        assert ports * (serve._MAX_WAITING + of_node + lanes * serve._MAX_ANSWERED) < 1024 - 250


def test_clients_that_never_end_their_request_keep_nobody_waiting(start: Any) -> None:
    server = start()
    with contextlib.ExitStack() as stack:
        for _ in range(40):
            client = stack.enter_context(connected(server, TENANT))
            client.sendall(b"GET /heal")
            assert get(server, "/healthz") == (200, "ok\n")
        deadline = time.monotonic() + PATIENCE_SECONDS
        while sum(each.name == "http request" for each in threading.enumerate()) > serve._MAX_ANSWERED:
            assert time.monotonic() < deadline, "more are answered at a time"
            time.sleep(0.01)  # some are ending


def test_connections_that_say_nothing_have_no_thread(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server, threads = start(), list[str]()
    begin = server._answer_in_thread

    def note(connection: socket.socket, client: str) -> None:
        threads.append(client)
        begin(connection, client)

    monkeypatch.setattr(server, "_answer_in_thread", note)  # those of other tests may still be ending
    with contextlib.ExitStack() as stack:
        quiet = [stack.enter_context(connected(server, TENANT)) for _ in range(serve._MAX_ANSWERED + 4)]
        for client in quiet[:4]:
            assert client.recv(1) == b"", "too many: the oldest make room"
        assert threads == []
        quiet[-1].sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
        assert quiet[-1].recv(12) == b"HTTP/1.1 200"
        assert threads == [TENANT]


def test_clients_that_have_gone_when_their_turn_comes_have_no_thread(
    start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, mine, theirs = start(), *socket.socketpair()
    threads: list[str] = []
    monkeypatch.setattr(server, "_answer_in_thread", lambda _, client: threads.append(client))
    mine.close()
    server._start(server._other_lane, time.monotonic(), TENANT, theirs)
    assert threads == []
    assert theirs.fileno() < 0


def test_a_flood_from_one_address_leaves_the_others_their_turn(start: Any) -> None:
    server = start()
    with contextlib.ExitStack() as stack:
        for _ in range(400):
            stack.enter_context(connected(server, TENANT))
        assert get(server, "/healthz") == (200, "ok\n")


def test_of_a_flood_from_one_address_no_more_connections_are_kept_than_it_may_have(
    start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing but the limit closes one here."""
    monkeypatch.setattr(serve, "PLAIN", serve.PLAIN._replace(pause_seconds=3600.0))
    server = start()
    with contextlib.ExitStack() as stack:
        kept = [stack.enter_context(connected(server, TENANT)) for _ in range(400)]
        for client in kept:
            client.setblocking(False)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(kept) > serve._MAX_WAITING_OF_ADDRESS + serve._MAX_ANSWERED:
            assert time.monotonic() < deadline
            kept = [client for client in kept if is_open(client)]
            time.sleep(0.01)  # the server's thread takes them in
        assert len(kept) >= serve._MAX_WAITING_OF_ADDRESS


def is_open(client: socket.socket) -> bool:
    """Whether the server has not closed this connection, which does not block and on which it has sent nothing."""
    try:
        return client.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def use_up_turns(server: Server, stack: contextlib.ExitStack) -> None:
    """Let others come until none of them has a turn for `pause_seconds`, an hour: what comes then waits.

    Of those that come before, all may wait before the first has its turn.
    """
    lane = server._other_lane
    for number in range(30):
        stack.enter_context(connected(server, f"127.0.3.{number + 1}"))
    deadline = time.monotonic() + PATIENCE_SECONDS
    while lane.next <= time.monotonic() or len(lane.waiting) + len(lane.answered) < 30:
        assert time.monotonic() < deadline
        time.sleep(0.01)  # the server's thread takes them in


def test_a_connection_that_is_slow_to_notice_that_it_was_cut_off_is_cut_off_once(
    start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut: list[socket.socket] = []
    monkeypatch.setattr(serve, "_cut_off", cut.append)
    server = start()
    with contextlib.ExitStack() as stack:
        for _ in range(30):
            stack.enter_context(connected(server, TENANT)).sendall(b"G")
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(cut) < 30 - serve._MAX_ANSWERED:
            assert time.monotonic() < deadline
            time.sleep(0.01)  # each is answered in its turn
        assert len(set(cut)) == len(cut)
        assert len(server._other_lane.answered) == serve._MAX_ANSWERED


class TestAccepting:
    """Connections of addresses that are not preferred take a share of a core before anything is read."""

    @pytest.fixture
    def sockets(self) -> Iterator[list[socket.socket]]:
        made = serve.listening_sockets(("", 0), [8] * (1 + serve._GROUPS), 16384)
        yield made
        for each in made:
            each.close()

    def accepted(self, sockets: list[socket.socket], client: str) -> int:
        """Which socket the kernel gives a connection from this address to."""
        address = ("::1" if ":" in client else "127.0.0.1", sockets[0].getsockname()[1])
        with socket.create_connection(address, timeout=PATIENCE_SECONDS, source_address=(client, 0)):
            ready, _, _ = select.select(sockets, [], [], 60)
            for each in ready:
                each.accept()[0].close()
            (one,) = ready
            return sockets.index(one)

    @pytest.mark.parametrize("client", ["127.0.0.1", "127.0.0.2", "::1"])
    @pytest.mark.parametrize("others", [[], ["10.0.0.1", "2001:db8::1"], ["::2", "0:0:0:1::/64"]])
    def test_the_kernel_sorts_preferred_addresses_out(
        self, sockets: list[socket.socket], client: str, others: list[str]
    ) -> None:
        serve.sort_by_source(sockets[0], others, 0, serve._group())
        group = self.accepted(sockets, client)
        assert group > 0
        assert self.accepted(sockets, client) == group
        serve.sort_by_source(sockets[0], [*others, client], 0, serve._group())
        assert self.accepted(sockets, client) == 0

    def test_an_ipv6_network_is_preferred_as_a_whole(self, sockets: list[socket.socket]) -> None:
        serve.sort_by_source(sockets[0], ["2001:db8::/64", "::/64"], 0, serve._group())
        assert self.accepted(sockets, "::1") == 0
        assert self.accepted(sockets, "127.0.0.1") > 0

    def test_addresses_are_spread_over_the_groups(self, sockets: list[socket.socket]) -> None:
        serve.sort_by_source(sockets[0], [], 0, serve._group())
        groups = {self.accepted(sockets, f"127.0.0.{number}") for number in range(1, 255)}
        assert groups == set(range(1, 1 + serve._GROUPS))

    def test_others_take_their_share_of_a_core(self, start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each connection of a flood costs a fortieth of what may be taken at once."""
        clock, cpu = Clock(), Clock()
        server = start()
        listener: Any = Flood(cpu, serve._ACCEPTING_BURST_SECONDS / 40)
        monkeypatch.setattr(time, "thread_time", cpu)
        server._accepting = serve.CpuShare(serve._ACCEPTING_SHARE, serve._ACCEPTING_BURST_SECONDS, clock)
        for _ in range(1000):
            server._accept([listener])
            clock.advance(0.1)
        spent = listener.accepted * serve._ACCEPTING_BURST_SECONDS / 40
        allowed = 100.0 * serve._ACCEPTING_SHARE + serve._ACCEPTING_BURST_SECONDS
        once = serve._ACCEPTED_AT_ONCE * serve._ACCEPTING_BURST_SECONDS / 40
        assert allowed - once <= spent <= allowed + once

    def test_a_flood_leaves_the_connections_of_other_groups_their_turn(self, start: Any) -> None:
        server, cpu = start(), Clock()
        flood: Any = Flood(cpu, 0.0)
        other: Any = Flood(cpu, 0.0, most=1)
        server._accepting = self
        self.rounds = 3
        server._accept([flood, other])
        assert other.accepted == 1

    rounds = 0

    def pause_seconds(self) -> float:
        """A share that lasts for a few rounds."""
        self.rounds -= 1
        return 0.0 if self.rounds >= 0 else 1.0

    def charge(self, _: float) -> None:
        """Count nothing."""

    @pytest.mark.parametrize("path", ["/healthz", "/metrics"])
    def test_the_probe_is_answered_while_others_have_used_up_their_share(self, start: Any, path: str) -> None:
        server = start({path: probe(str)}, node=frozenset({KUBELET}))
        server._accepting.charge(1000.0)
        with connected(server, TENANT) as other:
            other.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
            for _ in range(5):
                assert get(server, path) == (200, "ok\n")
            assert not server._other_lane.waiting
            assert not server._other_lane.answered

    def test_where_the_kernel_cannot_sort_everybody_is_answered(
        self, start: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def cannot(*_: Any) -> None:
            raise OSError(errno.ENOPROTOOPT, "no such option")

        monkeypatch.setattr(serve, "sort_by_source", cannot)
        server = start(node=frozenset({KUBELET}))
        server._accepting.charge(1000.0)
        for number in range(20):
            assert ask(server, host=f"127.0.0.{number + 1}").startswith("HTTP/1.1 200 ")

    def test_no_port_is_shared_with_another_server(self, start: Any) -> None:
        with pytest.raises(OSError, match="in use"):
            Server(("127.0.0.1", start().port), {})

    def test_what_a_client_sends_to_a_socket_that_waits_takes_little_of_the_kernels_memory(
        self, sockets: list[socket.socket]
    ) -> None:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            client.connect(("127.0.0.1", sockets[0].getsockname()[1]))
            client.settimeout(1.0)  # nothing more is taken
            sent = 0
            with contextlib.suppress(TimeoutError):
                while sent < 1024 * 1024:
                    sent += client.send(b"x" * 4096)
        assert sent < 64 * 1024


class Flood:
    """A listening socket with connections that each cost so much to accept."""

    def __init__(self, cpu: Clock, cost: float, most: int = sys.maxsize) -> None:
        self.accepted = 0
        self._cpu, self._cost, self._most = cpu, cost, most

    def accept(self) -> tuple[Any, Any]:
        if self.accepted >= self._most:
            raise BlockingIOError
        self._cpu.advance(self._cost)
        self.accepted += 1
        return Closed(), ("10.0.0.1", 1)


class Closed:
    """A connection that its client has closed."""

    def setblocking(self, _: bool) -> None:
        raise OSError

    def close(self) -> None:
        """Nothing is open."""


class TestNode:
    """The node's own address, from which the kubelet's probes come, when many others take all turns that they can
    get."""

    def test_a_thousand_addresses_do_not_keep_the_probe_waiting(
        self, start: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """They have used up their turns for an hour, and all places in the queue are taken."""
        monkeypatch.setattr(serve, "PLAIN", serve.PLAIN._replace(pause_seconds=3600.0))
        server = start(node=frozenset({KUBELET}))
        lane: Any = server._other_lane
        with contextlib.ExitStack() as stack:
            use_up_turns(server, stack)
            for number in range(1000 - 30):
                mine, theirs = socket.socketpair()
                stack.enter_context(mine)
                extra = lane.waiting.add(f"10.0.{number // 250}.{number % 250}", theirs)
                if extra is not None:
                    extra.close()
            assert len(lane.waiting) == serve._MAX_WAITING
            for _ in range(5):
                assert get(server, "/healthz") == (200, "ok\n")

    def test_the_node_takes_no_turn_of_others(self, start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(serve, "PLAIN", serve.PLAIN._replace(pause_seconds=3600.0))
        server = start(node=frozenset({KUBELET}))
        with contextlib.ExitStack() as stack:
            for _ in range(40):
                stack.enter_context(connected(server, KUBELET))
            ask(server, host=TENANT)

    def test_places_of_the_node_are_its_own(self, start: Any) -> None:
        """Whom others cut off that are answered is one of theirs."""
        entered, finish = threading.Event(), threading.Event()

        def endpoint(_: str) -> tuple[int, bytes]:
            entered.set()
            assert finish.wait(PATIENCE_SECONDS)
            return 200, b"ok\n"

        server = start({"/healthz": endpoint}, node=frozenset({KUBELET}))
        answers: list[tuple[int, str]] = []
        kubelet = threading.Thread(target=lambda: answers.append(get(server, "/healthz")))
        kubelet.start()
        assert entered.wait(PATIENCE_SECONDS)
        with contextlib.ExitStack() as stack:
            crowd = [
                stack.enter_context(connected(server, f"127.0.1.{number + 1}"))
                for number in range(serve._MAX_ANSWERED + 1)
            ]
            assert crowd[0].recv(1) == b"", "one too many: the oldest makes room"
            finish.set()
            kubelet.join(PATIENCE_SECONDS)
        assert answers == [(200, "ok\n")]

    @pytest.mark.parametrize(
        ("host_ips", "gateway", "want"),
        [
            ("10.1.2.3", "", {"10.1.2.3"}),
            ("10.1.2.3,2001:DB8::1", "", {"10.1.2.3", "2001:db8::1"}),
            ("", "10.244.1.1", {"10.244.1.1"}),
            ("10.1.2.3", "169.254.1.1", {"10.1.2.3", "169.254.1.1"}),
            ("no address", "", set()),
        ],
    )
    def test_its_addresses_are_those_that_kubernetes_names_and_the_gateway(
        self, tmp_path: Path, host_ips: str, gateway: str, want: set[str]
    ) -> None:
        (tmp_path / "net").mkdir()
        number = f"{int.from_bytes(socket.inet_aton(gateway or '0.0.0.0'), sys.byteorder):08X}"
        lines = [
            "Iface\tDestination\tGateway\tFlags",
            "eth0\t0001F40A\t00000000\t0001",
            f"eth0\t00000000\t{number}\t0003",
        ]
        (tmp_path / "net/route").write_text("\n".join(lines) + "\n")
        assert node_addresses({"HOST_IPS": host_ips}, tmp_path) == want
        assert node_addresses({"HOST_IPS": host_ips}, tmp_path / "none") == want - {gateway}


@pytest.mark.parametrize(
    ("host", "want"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("host", "host"),
    ],
)
def test_one_client_has_one_address_of_ipv4_and_64_bits_of_ipv6(host: str, want: str) -> None:
    assert client_network(host) == want


def test_who_sends_a_byte_now_and_then_is_cut_off(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "PLAIN", PLAIN._replace(connection_seconds=0.5))
    pause = threading.Event()
    with connected(start(), TENANT) as client, pytest.raises(ConnectionError):
        while True:
            client.sendall(b"G")
            pause.wait(0.1)


def test_a_connection_that_says_nothing_is_closed(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "PLAIN", PLAIN._replace(silence_seconds=0.1))
    with connected(start(), TENANT) as client:
        assert client.recv(1) == b""


def test_after_close_nobody_listens(start: Any) -> None:
    server = start()
    server.close()
    with pytest.raises(OSError, match=r"refused|reset"):
        while True:  # until its thread has seen it
            ask(server)


class TestTls:
    """Over HTTPS."""

    @staticmethod
    def context(authority: Any, name: str) -> ssl.SSLContext:
        now = datetime.now(UTC)
        serving = new_serving(authority, (name,), now)
        made = server_context()
        load_pair(made, serving.certificate, serving.key)
        return made

    @pytest.fixture
    def authority(self) -> Any:
        return new_authority(datetime.now(UTC))

    @staticmethod
    def shown(server: Server, authority: Any, name: str, headers: str = "") -> tuple[int, bytes]:
        trust = ssl.create_default_context(cadata=authority.certificate.decode())
        with connected(server, KUBELET) as plain, trust.wrap_socket(plain, server_hostname=name) as connection:
            connection.sendall(f"GET /healthz HTTP/1.1\r\n{headers}\r\n".encode())
            answer = b"".join(iter(lambda: connection.recv(65536), b""))
        return int(answer.split()[1]), answer.partition(b"\r\n\r\n")[2]

    def test_a_new_certificate_is_shown_from_the_next_connection_on(self, start: Any, authority: Any) -> None:
        server = start(tls=self.context(authority, "old"))
        assert self.shown(server, authority, "old") == (200, b"ok\n")
        server.tls = self.context(authority, "new")
        assert self.shown(server, authority, "new") == (200, b"ok\n")

    def test_clients_that_never_shake_hands_keep_nobody_waiting(self, start: Any, authority: Any) -> None:
        server = start(tls=self.context(authority, "it"))
        with contextlib.ExitStack() as stack:
            for _ in range(100):
                stack.enter_context(connected(server, TENANT))
            assert self.shown(server, authority, "it") == (200, b"ok\n")

    def test_an_address_whose_token_was_good_does_not_wait_behind_hundreds_of_others(
        self, start: Any, authority: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """They have used up their turns for an hour, and all places in the queue are taken."""
        monkeypatch.setattr(serve, "TLS", serve.TLS._replace(pause_seconds=3600.0))
        endpoint = {"/healthz": lambda authorization: (200 if authorization == "Bearer good" else 401, b"")}
        server = start(endpoint, self.context(authority, "it"))
        assert self.shown(server, authority, "it", "Authorization: Bearer good\r\n")[0] == 200
        lane: Any = server._other_lane
        with contextlib.ExitStack() as stack:
            use_up_turns(server, stack)
            for number in range(300):
                stack.enter_context(connected(server, f"127.0.{1 + number // 200}.{1 + number % 200}"))
            deadline = time.monotonic() + PATIENCE_SECONDS
            while len(lane.waiting) < serve._MAX_WAITING:
                assert time.monotonic() < deadline
                time.sleep(0.01)  # the server's thread takes them in
            for token in ("good", "bad", "good"):
                want = 200 if token == "good" else 401
                assert self.shown(server, authority, "it", f"Authorization: Bearer {token}\r\n")[0] == want

    def test_an_address_whose_token_was_good_needs_no_share_of_the_others(self, start: Any, authority: Any) -> None:
        """The others have taken all that they may for an hour."""
        endpoint = {"/healthz": lambda authorization: (200 if authorization == "Bearer good" else 401, b"")}
        server = start(endpoint, self.context(authority, "it"))
        assert self.shown(server, authority, "it", "Authorization: Bearer good\r\n")[0] == 200
        server._accepting.charge(1000.0)
        for _ in range(3):
            assert self.shown(server, authority, "it", "Authorization: Bearer good\r\n")[0] == 200

    @pytest.mark.parametrize(("headers", "is_known"), [("", False), ("Authorization: Bearer good\r\n", True)])
    def test_who_shows_no_good_token_waits_with_the_others(
        self, start: Any, authority: Any, headers: str, is_known: bool
    ) -> None:
        endpoint = {"/healthz": lambda authorization: (200 if authorization == "Bearer good" else 401, b"")}
        server = start(endpoint, self.context(authority, "it"))
        self.shown(server, authority, "it", headers)
        assert (KUBELET in server._readers) == is_known
        for number in range(100):
            server._note_reader(f"10.0.0.{number}")
        assert len(server._readers) == serve._MAX_READERS

    def test_a_client_without_tls_gets_nothing(self, start: Any, authority: Any) -> None:
        with contextlib.suppress(ConnectionError):
            assert "200" not in ask(start(tls=self.context(authority, "it")))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_no_host_is_all_addresses_of_both_kinds(host: str) -> None:
    server = Server(("", 0), {"/healthz": probe(str)})
    try:
        address = f"[{host}]" if ":" in host else host
        with urllib.request.urlopen(f"http://{address}:{server.port}/healthz", timeout=PATIENCE_SECONDS) as answer:
            assert answer.read() == b"ok\n"
    finally:
        server.close()


def test_an_address_that_is_not_the_hosts_is_an_error() -> None:
    with pytest.raises(OSError, match=r"assign|known|resolution"):
        Server(("192.0.2.1", 0), {})

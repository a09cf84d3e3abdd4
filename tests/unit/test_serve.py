"""The server of probes and metrics, over real connections: what it answers, and what clients without rights cannot do
to it."""

import contextlib
import errno
import itertools
import socket
import ssl
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
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
        monkeypatch.setattr(serve, name, limits._replace(seconds=PATIENCE_SECONDS))


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


def test_a_head_that_is_too_long_is_refused(start: Any) -> None:
    assert ask(start(), "GET /healthz HTTP/1.1\r\n".ljust(PLAIN.head_bytes + 1, "x")).startswith("HTTP/1.1 400 ")


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


def until(condition: Callable[[], object]) -> None:
    """Wait for what the server's threads do."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_closed(client: socket.socket) -> bool:
    """Whether the server closes this connection, on which it has sent nothing; waits for it."""
    try:
        return client.recv(1) == b""
    except ConnectionError:
        return True


def use_up_rate(server: Server, clock: Callable[[], float] = time.monotonic) -> None:
    """Others have no answer any more, by this clock, until it has advanced by what a burst takes to come back."""
    share = serve.CpuShare(serve._ANSWERING_SHARE, serve._ANSWERING_BURST_SECONDS, clock)
    share.charge(1000.0 * serve._ANSWERING_BURST_SECONDS)
    server._other_lane.share = share


class TestPlaces:
    """Connections without a whole request: each costs a file descriptor, there are so many, and the oldest of the
    address with the most goes first."""

    @pytest.mark.parametrize("said", [b"", b"GET /heal"])
    def test_the_probe_is_answered_while_a_pod_of_its_address_says_nothing(self, start: Any, said: bytes) -> None:
        """The pod may send a part of a request, too."""
        server = start(node=frozenset({KUBELET}))
        with contextlib.ExitStack() as stack:
            for _ in range(serve._MAX_WAITING + 8):
                stack.enter_context(connected(server, KUBELET)).sendall(said)
            for _ in range(3):
                assert get(server, "/healthz") == (200, "ok\n")

    def test_one_that_is_too_much_is_the_oldest_of_the_address_with_the_most(self, start: Any) -> None:
        server = start()
        with contextlib.ExitStack() as stack:
            single = stack.enter_context(connected(server, "127.0.0.8"))
            until(lambda: server._waiting)
            clients = [stack.enter_context(connected(server, TENANT)) for _ in range(serve._MAX_WAITING)]
            assert is_closed(clients[0])
            until(lambda: len(server._waiting) == serve._MAX_WAITING)
            for client in (single, clients[1], clients[-1]):
                client.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
                assert client.recv(12) == b"HTTP/1.1 200"

    def test_places_of_the_node_are_its_own(self, start: Any) -> None:
        server = start(node=frozenset({KUBELET}))
        with contextlib.ExitStack() as stack:
            kubelet = stack.enter_context(connected(server, KUBELET))
            for number in range(serve._MAX_WAITING + 8):
                stack.enter_context(connected(server, f"127.0.1.{number + 1}"))
            until(lambda: len(server._waiting) == serve._MAX_WAITING + 1)
            kubelet.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
            assert kubelet.recv(12) == b"HTTP/1.1 200"

    def test_what_waits_has_no_thread(self, start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        server = start()
        answered = []
        begin = server._start_answer
        monkeypatch.setattr(server, "_start_answer", lambda each: (answered.append(each.client), begin(each)))
        with contextlib.ExitStack() as stack:
            silent, half = (stack.enter_context(connected(server, TENANT)) for _ in range(2))
            half.sendall(b"GET /healthz HTTP/1.1\r\n")
            until(lambda: len(server._waiting) == 2 and any(each.head for each in server._waiting.values()))
            assert answered == []
            half.sendall(b"\r\n")
            assert half.recv(12) == b"HTTP/1.1 200"
            assert answered == [TENANT]
            assert [each.head for each in server._waiting.values()] == [b""]
            assert silent.fileno() >= 0

    def test_a_request_in_too_many_pieces_is_not_read_to_its_end(self, start: Any) -> None:
        server = start()
        mine, theirs = socket.socketpair()
        with mine, theirs:
            pieces: Any = Pieces()
            connection = serve._Connection(theirs, TENANT, server._other_lane, float("inf"))
            connection.socket = pieces
            server._waiting[connection.number] = connection
            server._other_lane.waiting[TENANT] = {connection.number: connection}
            assert not server._read(connection)
            assert len(connection.head) <= serve._MAX_READS + 1
            assert pieces.is_closed
            assert not server._waiting

    def test_all_of_them_are_fewer_than_the_usual_limit_of_open_files(self) -> None:
        ports, lanes = 2, 2  # of probes and of metrics; of the node and of others
        assert ports * lanes * (serve._MAX_WAITING + serve._MAX_THREADS) < 1024 - 250

    def test_what_a_client_sends_before_it_is_read_takes_little_of_the_kernels_memory(self) -> None:
        with serve.listening_socket("127.0.0.1", 0, 8) as listener, socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            client.connect(listener.getsockname())
            client.settimeout(1.0)  # nothing more is taken
            sent = 0
            with contextlib.suppress(TimeoutError):
                while sent < 1024 * 1024:
                    sent += client.send(b"x" * 4096)
        assert sent < 64 * 1024


class Pieces:
    """A socket on which a request comes byte by byte."""

    is_closed = False

    def recv(self, _: int) -> bytes:
        return b"x"

    def close(self) -> None:
        self.is_closed = True


class TestRate:
    """Answers of so many a second, for all addresses that are not the node's; what exceeds them is closed."""

    def test_a_flood_has_so_many_answers_and_the_next_when_their_time_has_come(self, start: Any) -> None:
        clock = Clock()
        server = start()
        server._other_lane.share = serve.CpuShare(serve._ANSWERING_SHARE, serve._ANSWERING_BURST_SECONDS, clock)
        at_once = 1 + round(serve._ANSWERING_BURST_SECONDS / PLAIN.answer_seconds)
        assert self.count_answered(server) == at_once
        clock.advance(5.5 * PLAIN.answer_seconds / serve._ANSWERING_SHARE)
        assert self.count_answered(server) == 5
        clock.advance(60.0)
        assert self.count_answered(server) == at_once

    @staticmethod
    def count_answered(server: Server) -> int:
        """How many are answered, one after the other, before one is not."""
        count = 0
        with contextlib.suppress(ConnectionError):
            while count < 1000 and ask(server, host=TENANT).startswith("HTTP/1.1 200 "):
                count += 1
        return count

    def test_the_probe_is_answered_while_others_have_none(self, start: Any) -> None:
        server = start(node=frozenset({KUBELET}))
        use_up_rate(server)
        with connected(server, TENANT) as other:
            assert is_closed(other), "it is closed before it says anything"
        for _ in range(3):
            assert get(server, "/healthz") == (200, "ok\n")


class TestThreads:
    """Each answer has a thread, and there are so many for the node, and for others."""

    def test_the_probe_is_answered_while_other_clients_have_all_threads(self, start: Any) -> None:
        """The others are answered again afterwards."""
        finish = threading.Event()

        def endpoint(_: str) -> tuple[int, bytes]:
            assert finish.wait(PATIENCE_SECONDS)
            return 200, b"late\n"

        server = start({"/slow": endpoint, "/healthz": probe(str)}, node=frozenset({KUBELET}))
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(connected(server, TENANT)) for _ in range(serve._MAX_THREADS)]
            for client in clients:
                client.sendall(b"GET /slow HTTP/1.1\r\n\r\n")
            until(lambda: server._other_lane.threads._value == 0)
            with connected(server, TENANT) as surplus:
                surplus.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
                assert is_closed(surplus)
            assert get(server, "/healthz") == (200, "ok\n")
            finish.set()
            for client in clients:
                assert client.recv(12) == b"HTTP/1.1 200"
        until(lambda: server._other_lane.threads._value == serve._MAX_THREADS)
        assert ask(server, host=TENANT).startswith("HTTP/1.1 200 ")

    def test_a_client_that_does_not_read_its_answer_holds_a_thread_for_so_long(
        self, start: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(serve, "PLAIN", serve.PLAIN._replace(seconds=0.5))
        server = start({"/metrics": lambda _: (200, b"x" * 64 * 1024 * 1024)})
        with connected(server, TENANT) as client:
            client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            assert client.recv(12) == b"HTTP/1.1 200"
            until(lambda: server._other_lane.threads._value == serve._MAX_THREADS)

    def test_neither_does_one_that_reads_it_byte_by_byte(self, start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        server, clock = start({"/metrics": lambda _: (200, b"x" * 1000)}), Clock()
        mine, theirs = socket.socketpair()
        with mine, theirs:
            connection = serve._Connection(theirs, TENANT, server._other_lane, float("inf"))
        connection.head = b"GET /metrics HTTP/1.1\r\n\r\n"
        reader: Any = SlowReader(clock)
        connection.socket = reader
        assert server._other_lane.threads.acquire()
        monkeypatch.setattr(serve, "time", SimpleNamespace(monotonic=clock, sleep=time.sleep))
        server._answer(connection)
        assert reader.taken == server._limits.seconds


class SlowReader:
    """A socket that takes a byte each second."""

    def __init__(self, clock: Clock) -> None:
        self.taken = 0
        self._clock = clock

    def settimeout(self, seconds: float) -> None:
        assert seconds > 0

    def send(self, _: memoryview) -> int:
        self._clock.advance(1.0)
        self.taken += 1
        return 1

    def close(self) -> None:
        """Nothing is open."""


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
def test_the_nodes_addresses_are_those_that_kubernetes_names_and_the_gateway(
    tmp_path: Path, host_ips: str, gateway: str, want: set[str]
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


@pytest.mark.parametrize("said", [b"", b"GET /heal"])
def test_a_connection_that_does_not_send_its_request_in_time_is_closed(
    start: Any, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    monkeypatch.setattr(serve, "PLAIN", PLAIN._replace(seconds=0.5))
    with connected(start(), TENANT) as client:
        client.sendall(said)
        assert is_closed(client)


def test_after_close_nobody_listens(start: Any) -> None:
    server = start()
    with connected(server, TENANT) as client:
        until(lambda: server._waiting)
        server.close()
        assert is_closed(client)
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

    def test_an_endpoint_has_the_token(self, start: Any, authority: Any) -> None:
        endpoint = {"/healthz": lambda authorization: (200 if authorization == "Bearer good" else 401, b"x" * 300_000)}
        server = start(endpoint, self.context(authority, "it"))
        assert self.shown(server, authority, "it")[0] == 401
        status, body = self.shown(server, authority, "it", "Authorization: Bearer good\r\n")
        assert (status, len(body)) == (200, 300_000)

    @pytest.mark.parametrize("said", [b"", b"\x16\x03\x01"])
    def test_clients_that_never_shake_hands_have_no_thread_and_keep_nobody_waiting(
        self, start: Any, authority: Any, said: bytes
    ) -> None:
        server = start(tls=self.context(authority, "it"))
        with contextlib.ExitStack() as stack:
            for _ in range(8):
                stack.enter_context(connected(server, TENANT)).sendall(said)
            until(lambda: len(server._waiting) == 8)
            assert self.shown(server, authority, "it") == (200, b"ok\n")

    def test_handshakes_have_a_rate(self, start: Any, authority: Any) -> None:
        clock = Clock()
        server = start(tls=self.context(authority, "it"))
        server._other_lane.share = serve.CpuShare(serve._ANSWERING_SHARE, serve._ANSWERING_BURST_SECONDS, clock)
        count = 0
        with contextlib.suppress(OSError):
            while count < 1000:
                self.shown(server, authority, "it")
                count += 1
        assert count == round(serve._ANSWERING_BURST_SECONDS / TLS.answer_seconds) + 1
        clock.advance(1.0)
        assert self.shown(server, authority, "it") == (200, b"ok\n")

    def test_a_client_without_tls_gets_nothing_and_the_server_goes_on(self, start: Any, authority: Any) -> None:
        server = start(tls=self.context(authority, "it"))
        with contextlib.suppress(ConnectionError):
            assert "200" not in ask(server)
        assert self.shown(server, authority, "it") == (200, b"ok\n")

    def test_a_client_that_has_gone_before_the_handshake_ends_nothing_else(self, start: Any, authority: Any) -> None:
        context: Any = Gone()
        server = start(tls=context)
        with connected(server, TENANT) as client:
            client.sendall(b"x")
            until(lambda: context.detached)
        server.tls = self.context(authority, "it")
        assert self.shown(server, authority, "it") == (200, b"ok\n")
        assert not server._waiting


class Gone:
    """A TLS context that meets a client that has gone: the ssl module has taken the socket by then."""

    detached = False

    def wrap_socket(self, connection: socket.socket, **_: Any) -> None:
        socket.close(connection.detach())
        self.detached = True
        raise OSError(errno.ENOTCONN, "gone")


def test_no_port_is_shared_with_another_server(start: Any) -> None:
    with pytest.raises(OSError, match="in use"):
        Server(("127.0.0.1", start().port), {})


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

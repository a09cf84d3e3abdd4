"""Serves probes and metrics for the kubelet and Prometheus: a small HTTP server in threads of its own.

Any machine on the network may connect. So a connection costs a file descriptor until a whole request has come, and
places are few: of the address with the most, the oldest connection goes first. Answers have a rate and threads, and
what exceeds these is closed. The node's own addresses, from which the kubelet's probes come, have places, a rate and
threads of their own (docs/decisions/0078). A library's server gives a thread or a task, a TLS session and up to
megabytes of headers to every client that connects.

The operator, the page, the agent and the checker use it. The checker's Python may be 3.8.
"""

from __future__ import annotations

import contextlib
import functools
import http
import ipaddress
import resource
import select
import socket
import ssl
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import (
    Callable,
    Deque,
    Dict,
    FrozenSet,
    Iterable,
    Mapping,
    NamedTuple,
    Optional,
    Tuple,
    Union,
)

Metric = Tuple[str, str, str, Iterable[Tuple[Dict[str, str], float]]]
"""Name, type and help of a metric, and its values by label."""

Answer = Tuple[int, bytes]
"""HTTP status and body."""

Endpoint = Callable[[str], Answer]
"""Answers a GET. Its argument is the header Authorization, "" where there is none."""

RENDERED_SECONDS, MAX_RENDERED_SECONDS = 1.0, 10.0
"""All clients share one rendering of the metrics for this long: at least, and at most where rendering is costly."""

RENDERING_SHARE = 0.04
"""The share of a core that renderings may take: they hold the interpreter, and its other threads wait."""

HOST_IPS = "HOST_IPS"
"""Name of the environment variable with the addresses of the pod's node: `status.hostIPs` of the downward API."""


class Limits(NamedTuple):
    """The limits of one connection."""

    answer_seconds: float  # of a core, what an answer is counted as
    seconds: float  # for the request, and as many for the answer
    head_bytes: int


PLAIN = Limits(0.001, 3.0, 4 * 1024)
"""The limits of plain HTTP: a probe is one packet, and its answer is another."""

TLS = Limits(0.005, 10.0, 16 * 1024)
"""The limits of HTTPS: a handshake costs a millisecond of a core, and a token has one or two thousand bytes."""

_ANSWERING_SHARE, _ANSWERING_BURST_SECONDS = 0.1, 0.05  # of a core: 100 answers a second, 20 by TLS
_MAX_THREADS = 16  # that answer: for the node's own addresses, and as many for all others
_MAX_WAITING = 128  # connections without a whole request, of each of these: far below the usual 1,024 open files
_MAX_READS = 32  # pieces in which a request may come
_BACKLOG = 1024  # connections that the kernel keeps until they are accepted
_ACCEPTED_AT_ONCE = 256
RECEIVE_BUFFER_BYTES = 16 * 1024  # the kernel takes twice this
_NO_SOCKET_SECONDS = 0.1  # pause when there is no file descriptor left
_CHECK_SECONDS = 0.25  # between two checks for connections whose time is over
_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def exposition(metrics: Iterable[Metric]) -> bytes:
    """Render the metrics in Prometheus' text format."""
    lines = []
    for name, kind, help_text, values in metrics:
        lines += [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"]
        for labels, value in values:
            inner = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
            lines.append(f"{name}{{{inner}}} {value:.17g}" if inner else f"{name} {value:.17g}")
    return ("\n".join(lines) + "\n").encode()


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def probe(problem: Callable[[], str]) -> Endpoint:
    """Return an endpoint for the kubelet: status 503 with the problem, or 200 where the problem is ""."""

    def endpoint(_: str) -> Answer:
        text = problem()
        return (503 if text else 200), f"{text or 'ok'}\n".encode()

    return endpoint


class CpuShare:
    """What something may take of a core: a share of it, and so much at once after a quiet time.

    Args:
        share: of one core.
        burst_seconds: of one core.
        clock: monotonic seconds.
    """

    def __init__(self, share: float, burst_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._share = share
        self._burst = burst_seconds / share
        self._clock = clock
        self._paid_at = float("-inf")  # when the share will have grown to all that was taken

    @property
    def owes_nothing(self) -> bool:
        """Whether all of the burst may be taken."""
        return self._paid_at <= self._clock()

    def charge(self, seconds: float) -> None:
        """Count seconds of the core that were taken."""
        self._paid_at = max(self._paid_at, self._clock()) + seconds / self._share

    def pause_seconds(self) -> float:
        """Return for how long nothing more may be taken."""
        return max(self._paid_at - self._clock() - self._burst, 0.0)


def at_most_once_a_second(
    render: Callable[[], bytes],
    clock: Callable[[], float] = time.monotonic,
    cpu_clock: Callable[[], float] = time.thread_time,
) -> Callable[[], bytes]:
    """Return a renderer that renders again only when the last rendering is a second old; clients share it meanwhile.

    A rendering that took long is shared for longer, so that clients cannot have the process render all the time.
    """
    guard = threading.Lock()
    last: Deque[Tuple[float, bytes]] = deque(maxlen=1)  # until when it is good, and the rendering

    def rendered() -> bytes:
        with guard:
            if not last or clock() >= last[0][0]:
                begin_seconds = cpu_clock()
                body = render()
                pause = min(
                    max((cpu_clock() - begin_seconds) / RENDERING_SHARE, RENDERED_SECONDS), MAX_RENDERED_SECONDS
                )
                last.append((clock() + pause, body))
            return last[0][1]

    return rendered


def open_metrics(render: Callable[[], bytes]) -> Endpoint:
    """Return an endpoint that serves metrics to every client."""
    rendered = at_most_once_a_second(render)
    return lambda _: (200, rendered())


@functools.lru_cache(maxsize=1024)  # a flood asks for the same ones
def plain_address(host: str) -> str:
    """Return an address as text that can be compared: an IPv4 address that a dual-stack socket shows as IPv6 becomes
    IPv4."""
    return str(_parsed(host) or host)


@functools.lru_cache(maxsize=1024)
def client_network(host: str) -> str:
    """Return what counts as one client: an IPv4 address, or an IPv6 network of 64 bits, all of which one machine may
    have."""
    address = _parsed(host)
    if address is None or address.version == 4:
        return str(address or host)
    return str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))


def node_addresses(environment: Mapping[str, str], proc: Path = Path("/proc")) -> FrozenSet[str]:
    """Return the addresses from which the kubelet's probes come to this pod.

    These are the addresses of the node, and the pod's default gateway: plugins with a bridge give the node the bridge's
    address towards its pods, and so does Cilium with its router's. A gateway on another machine sends nothing of its
    own.
    """
    hosts = [*environment.get(HOST_IPS, "").split(","), _default_gateway(proc)]
    return frozenset(str(address) for address in map(_parsed, hosts) if address is not None)


def _default_gateway(proc: Path) -> str:
    """Return the IPv4 gateway; "" where there is none. The kernel writes addresses as numbers of the machine's byte
    order."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in (proc / "net/route").read_text("ascii").splitlines()[1:]:
            _, destination, gateway = line.split()[:3]
            if int(destination, 16) == 0 and int(gateway, 16) != 0:
                return str(ipaddress.IPv4Address(int(gateway, 16).to_bytes(4, sys.byteorder)))
    return ""


def _parsed(host: str) -> Union[ipaddress.IPv4Address, ipaddress.IPv6Address, None]:
    """Return the address, as IPv4 where a dual-stack socket shows it as IPv6; None for text that is not an address."""
    try:
        address = ipaddress.ip_address(host.strip().partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


class _Connection:
    """A connection whose request has not come yet, or not all of it."""

    __slots__ = ("client", "head", "lane", "number", "reads", "socket", "until")

    def __init__(self, connection: socket.socket, client: str, lane: _Lane, until: float) -> None:
        self.socket = connection
        self.number = connection.fileno()
        self.client = client
        self.lane = lane
        self.until = until  # when it is closed
        self.head = b""
        self.reads = 0


class _Lane:
    """What one kind of clients shares, the node's own addresses or all others: places to wait, a rate, threads."""

    def __init__(self) -> None:
        self.waiting: Dict[str, Dict[int, _Connection]] = {}  # by client and file descriptor, oldest first
        self.share = CpuShare(_ANSWERING_SHARE, _ANSWERING_BURST_SECONDS)
        self.threads = threading.BoundedSemaphore(_MAX_THREADS)

    def surplus_connection(self) -> Optional[_Connection]:
        """When too many wait, return the oldest connection of the client with the most."""
        if sum(map(len, self.waiting.values())) <= _MAX_WAITING:
            return None
        return next(iter(max(self.waiting.values(), key=len).values()))


class Server:
    """Answers GET requests from the moment it is made until `close`.

    Args:
        address: host, of IPv4 or IPv6, and port; no host: all addresses of both kinds; port 0: any.
        endpoints: by path.
        tls: for HTTPS; replace the attribute when the certificate is renewed. None: plain HTTP.
        node: addresses of this node (`node_addresses`), which share nothing with others.

    Attributes:
        port: the port on which it listens.

    Raises:
        OSError: the address cannot be used.
    """

    def __init__(
        self,
        address: Tuple[str, int],
        endpoints: Mapping[str, Endpoint],
        tls: Optional[ssl.SSLContext] = None,
        node: FrozenSet[str] = frozenset(),
    ) -> None:
        self.tls = tls
        self._limits = PLAIN if tls is None else TLS
        self._node = node
        self._endpoints = dict(endpoints)
        self._node_lane, self._other_lane = _Lane(), _Lane()
        self._waiting: Dict[int, _Connection] = {}  # by file descriptor, oldest first
        self._closed = False
        self._listener = listening_socket(*address, _BACKLOG)
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._run, name="http", daemon=True).start()

    def close(self) -> None:
        """Stop listening. Requests that are being answered still get their answer."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # this wakes the thread

    def _run(self) -> None:
        with self._listener, select.epoll() as poll:
            poll.register(self._listener, select.EPOLLIN)
            while not self._closed:
                for number, _ in poll.poll(_CHECK_SECONDS if self._waiting else None):
                    if number == self._listener.fileno():
                        self._accept(poll)
                    elif number in self._waiting and self._read(self._waiting[number]):
                        poll.unregister(number)
                        self._start_answer(self._waiting[number])
                self._close_overdue(time.monotonic())
            self._close_overdue(float("inf"))

    def _accept(self, poll: select.epoll) -> None:
        """Accept what has come, fast: while the backlog is full, the kernel drops connections of the kubelet, too."""
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                accepted, (host, *_) = self._listener.accept()
            except BlockingIOError:
                return
            except OSError:  # the client has gone, or no file descriptor is left
                time.sleep(_NO_SOCKET_SECONDS if not self._closed else 0.0)
                return
            lane = self._node_lane if plain_address(host) in self._node else self._other_lane
            if lane.share.pause_seconds() > 0:  # as cheap as it gets
                accepted.close()
                continue
            accepted.setblocking(False)
            poll.register(accepted, select.EPOLLIN)
            connection = _Connection(accepted, client_network(host), lane, time.monotonic() + self._limits.seconds)
            self._waiting[connection.number] = connection
            lane.waiting.setdefault(connection.client, {})[connection.number] = connection
            surplus = lane.surplus_connection()
            if surplus is not None:
                self._close(surplus)

    def _read(self, connection: _Connection) -> bool:
        """Read what has come. Return whether the head of a request is there. Close a connection that leads to none."""
        try:
            if self.tls is not None and not isinstance(connection.socket, ssl.SSLSocket):
                self._charge_answer(connection.lane)
                connection.socket = self.tls.wrap_socket(
                    connection.socket, server_side=True, do_handshake_on_connect=False
                )
            while b"\r\n\r\n" not in connection.head and len(connection.head) <= self._limits.head_bytes:
                connection.reads += 1
                piece = connection.socket.recv(4096)  # over TLS, this shakes hands first
                connection.head += piece
                if not piece or connection.reads > _MAX_READS:
                    raise ConnectionError("no request")
            if self.tls is None:
                self._charge_answer(connection.lane)
            return True
        except (BlockingIOError, ssl.SSLWantReadError):
            return False
        except OSError:
            self._close(connection)
            return False

    def _charge_answer(self, lane: _Lane) -> None:
        """Count an answer against the rate of its lane.

        Raises:
            ConnectionError: the rate is used up.
        """
        if lane.share.pause_seconds() > 0:
            raise ConnectionError("too many requests")
        lane.share.charge(self._limits.answer_seconds)

    def _start_answer(self, connection: _Connection) -> None:
        """Answer from a thread, if one is free."""
        threads = connection.lane.threads
        if not threads.acquire(blocking=False):
            self._close(connection)
            return
        self._forget(connection)
        try:
            threading.Thread(target=self._answer, args=(connection,), name="http request", daemon=True).start()
        except RuntimeError:  # the machine has no thread left
            connection.socket.close()
            threads.release()

    def _close_overdue(self, now: float) -> None:
        """Close connections that have not sent a request in time."""
        while self._waiting:
            oldest = next(iter(self._waiting.values()))
            if oldest.until > now:
                return
            self._close(oldest)

    def _close(self, connection: _Connection) -> None:
        self._forget(connection)
        connection.socket.close()

    def _forget(self, connection: _Connection) -> None:
        waiting = connection.lane.waiting
        del self._waiting[connection.number], waiting[connection.client][connection.number]
        if not waiting[connection.client]:
            del waiting[connection.client]

    def _answer(self, connection: _Connection) -> None:
        try:
            status, body = self._answer_to(connection.head)
            left = memoryview(_head(status, body) + body)
            until = time.monotonic() + self._limits.seconds
            while left and time.monotonic() < until:  # `sendall` over TLS has as long for each record
                connection.socket.settimeout(max(until - time.monotonic(), 0.001))
                left = left[connection.socket.send(left) :]
        except OSError:
            """The client has closed the connection, or is too slow."""
        finally:
            connection.socket.close()
            connection.lane.threads.release()

    def _answer_to(self, head: bytes) -> Answer:
        request, *lines = head.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
        words = request.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1.") or b"\r\n\r\n" not in head:
            kib = self._limits.head_bytes // 1024
            return 400, b"this is no HTTP/1.1 request with a head of %d KiB or less\n" % kib
        if words[0] != "GET":
            return 405, b"only GET is answered\n"
        endpoint = self._endpoints.get(words[1].partition("?")[0])
        if endpoint is None:
            return 404, f"there is: {', '.join(self._endpoints)}\n".encode()
        headers = (line.partition(":") for line in lines)
        return endpoint(next((value.strip() for name, _, value in headers if name.lower() == "authorization"), ""))


def listening_socket(host: str, port: int, backlog: int) -> socket.socket:
    """Return a socket that listens, and does not block.

    What clients send before it is read is the kernel's memory, and the pod's: 32 KiB of each at most, where Linux would
    give up to eight times as much.

    Args:
        host: to listen on; "": all addresses, IPv6 and IPv4 where both exist.
        port: 0: any.
        backlog: how many connections the kernel keeps until they are accepted.

    Raises:
        OSError: the port is taken, or there is no such address.
    """
    host = host or ("::" if socket.has_dualstack_ipv6() else "0.0.0.0")  # noqa: S104 - that is what was asked for
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    # Whatever the node's default for new sockets is, "::" serves both kinds where there are both.
    is_for_both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
    listener = socket.create_server((host, port), family=family, backlog=backlog, dualstack_ipv6=is_for_both)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
    listener.setblocking(False)
    return listener


def _head(status: int, body: bytes) -> bytes:
    login = "WWW-Authenticate: Bearer\r\n" if status == 401 else ""
    return (
        f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}\r\nContent-Type: {_CONTENT_TYPE}\r\n"
        f"Content-Length: {len(body)}\r\n{login}Connection: close\r\n\r\n"
    ).encode()


def open_as_many_files_as_allowed() -> None:
    """Raise the soft limit of open files to the hard one, as programs in Go do: at 1,024 files, clients could exhaust
    it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

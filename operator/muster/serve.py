"""A small HTTP server for probes and metrics, in threads of its own: for the kubelet and Prometheus.

Anybody on the network may connect, so unauthenticated clients must cost next to nothing and delay nobody. A connection
waits as a bare socket until its turn; addresses take turns, and turns come at a fixed pace. A library's server gives a
thread or a task, a TLS session and up to megabytes of headers to every client that connects.

The operator, the page, the agent and the checker have it. The checker's Python may be 3.8.
"""

from __future__ import annotations

import contextlib
import http
import selectors
import socket
import ssl
import threading
import time
from collections import Counter, OrderedDict, deque
from typing import Callable, Deque, Dict, Iterable, Mapping, Optional, Tuple

Metric = Tuple[str, str, str, Iterable[Tuple[Dict[str, str], float]]]
"""Name, type, help, and the values by label."""

Answer = Tuple[int, bytes]
"""Status and body."""

Endpoint = Callable[[str], Answer]
"""Answers a GET. Its argument is the header Authorization, "" where there is none."""

RENDERED_SECONDS = 1.0
"""For so long one rendering of the metrics is good for all clients."""

_PAUSE_SECONDS = 0.02  # between two connections that are answered
_TLS_PAUSE_SECONDS = 0.05  # a handshake costs a millisecond of a core
_BURST = 10  # that are answered at once after a quiet time
_MAX_ANSWERED = 16  # at a time: each has a thread
_MAX_WAITING = 256  # far below the usual 1,024 open files
_MAX_WAITING_OF_ADDRESS = 64
_BACKLOG = 1024
_NO_SOCKET_SECONDS = 0.1  # pause when there is no file descriptor left
_REQUEST_SECONDS = 2.0  # without a byte
_CONNECTION_SECONDS = 10.0
_MAX_HEAD_BYTES = 16 * 1024  # a token has one or two thousand
_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def exposition(metrics: Iterable[Metric]) -> bytes:
    """Prometheus' text format."""
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
    """An endpoint for the kubelet: status 503 with the problem, or 200 where it is ""."""

    def endpoint(_: str) -> Answer:
        found = problem()
        return (503 if found else 200), f"{found or 'ok'}\n".encode()

    return endpoint


def at_most_once_a_second(
    render: Callable[[], bytes], clock: Callable[[], float] = time.monotonic
) -> Callable[[], bytes]:
    """The same, rendered anew only when the last rendering is a second old; clients that come meanwhile share it."""
    guard = threading.Lock()
    last: Deque[Tuple[float, bytes]] = deque(maxlen=1)

    def rendered() -> bytes:
        with guard:
            if not last or clock() - last[0][0] >= RENDERED_SECONDS:
                body = render()
                last.append((clock(), body))
            return last[0][1]

    return rendered


def open_metrics(render: Callable[[], bytes]) -> Endpoint:
    """An endpoint of metrics for every client."""
    rendered = at_most_once_a_second(render)
    return lambda _: (200, rendered())


class Waiting:
    """Connections that wait for their turn, by address. Addresses take turns; the longest queues are cut first."""

    def __init__(self) -> None:
        self._by_host: OrderedDict[str, Deque[socket.socket]] = OrderedDict()  # the next address comes first
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, host: str, connection: socket.socket) -> Optional[socket.socket]:
        """Queue a connection. The answer is one that no longer fits; the caller closes it."""
        self._by_host.setdefault(host, deque()).append(connection)
        self._count += 1
        if len(self._by_host[host]) > _MAX_WAITING_OF_ADDRESS:
            return self._remove(host, last=True)
        if self._count > _MAX_WAITING:
            return self._remove(max(self._by_host, key=lambda each: len(self._by_host[each])), last=True)
        return None

    def take(self) -> Tuple[str, socket.socket]:
        """The oldest connection of the address whose turn it is, which comes last from now on.

        Raises:
            StopIteration: none waits.
        """
        host = next(iter(self._by_host))
        connection = self._remove(host, last=False)
        if host in self._by_host:
            self._by_host.move_to_end(host)
        return host, connection

    def _remove(self, host: str, last: bool) -> socket.socket:
        connections = self._by_host[host]
        connection = connections.pop() if last else connections.popleft()
        self._count -= 1
        if not connections:
            del self._by_host[host]
        return connection


class Server:
    """Answers GET requests from the moment it is made until `close`.

    Args:
        address: host, of IPv4 or IPv6, and port; no host: all addresses of both kinds; port 0: any.
        endpoints: by path.
        tls: for HTTPS; replace the attribute when the certificate is renewed. None: plain HTTP.

    Attributes:
        port: where it listens.

    Raises:
        OSError: the address cannot be used.
    """

    def __init__(
        self, address: Tuple[str, int], endpoints: Mapping[str, Endpoint], tls: Optional[ssl.SSLContext] = None
    ) -> None:
        self.tls = tls
        self._endpoints = dict(endpoints)
        self._waiting = Waiting()
        self._answered: Dict[socket.socket, Tuple[float, str]] = {}  # since when and for which address, oldest first
        self._guard = threading.Lock()
        self._next = 0.0  # when the next connection may be answered
        self._closed = False
        self._listener = _listen(address)
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._run, name="http", daemon=True).start()

    def close(self) -> None:
        """Listen no more. Requests that are being answered get their answer."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # it wakes the thread

    def _run(self) -> None:
        with self._listener, selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            while not self._closed:
                pause = self._let_in(time.monotonic())
                if self._waiting:  # a flood then wakes this thread once a turn, and not for each connection
                    time.sleep(pause or 0.0)
                    self._accept()
                elif selector.select(pause):
                    self._accept()
        while self._waiting:
            self._waiting.take()[1].close()

    def _accept(self) -> None:
        for _ in range(_BACKLOG):
            try:
                connection, address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError:  # the client has gone, or no file descriptor is left
                time.sleep(_NO_SOCKET_SECONDS if not self._closed else 0.0)
                return
            extra = self._waiting.add(address[0], connection)
            if extra is not None:
                extra.close()

    def _let_in(self, now: float) -> Optional[float]:
        """Answer the connections whose turn it is. The answer is how many seconds the next turn is away; None: no turn."""
        with self._guard:
            late = [each for each, (since, _) in self._answered.items() if now - since > _CONNECTION_SECONDS]
        for connection in late:
            _cut_off(connection)
        pause = _PAUSE_SECONDS if self.tls is None else _TLS_PAUSE_SECONDS
        self._next = max(self._next, now - _BURST * pause)
        while self._waiting and self._next <= now:
            self._next += pause
            self._start(now, *self._waiting.take())
        if self._waiting:
            return max(self._next - now, 0.0)
        with self._guard:
            oldest = next(iter(self._answered.values()), None)
        return None if oldest is None else max(oldest[0] + _CONNECTION_SECONDS - now, 0.1)

    def _start(self, now: float, host: str, connection: socket.socket) -> None:
        """Answer it from a thread. Of too many, the oldest connection of the address with the most makes room."""
        try:
            connection.settimeout(_REQUEST_SECONDS)
            if self.tls is not None:
                connection = self.tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        except OSError:  # the client has gone
            connection.close()
            return
        crowded = None
        with self._guard:
            self._answered[connection] = now, host
            if len(self._answered) > _MAX_ANSWERED:
                ((busiest, _),) = Counter(of for _, of in self._answered.values()).most_common(1)
                crowded = next(each for each, (_, of) in self._answered.items() if of == busiest)
        if crowded is not None:
            _cut_off(crowded)
        try:
            threading.Thread(target=self._answer, args=(connection,), name="http request", daemon=True).start()
        except RuntimeError:  # the machine has no thread left
            self._done(connection)

    def _answer(self, connection: socket.socket) -> None:
        try:
            if isinstance(connection, ssl.SSLSocket):
                connection.do_handshake()
            status, body = self._answer_to(_read_head(connection))
            connection.sendall(_head(status, body) + body)
        except OSError:
            """The client has gone, or it is too slow."""
        finally:
            self._done(connection)

    def _done(self, connection: socket.socket) -> None:
        with self._guard:
            self._answered.pop(connection, None)
        connection.close()

    def _answer_to(self, head: bytes) -> Answer:
        request, *lines = head.decode("latin-1").split("\r\n")
        words = request.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return 400, b"this is no HTTP/1.1 request with a head of 16 KiB or less\n"
        if words[0] != "GET":
            return 405, b"only GET is answered\n"
        endpoint = self._endpoints.get(words[1].partition("?")[0])
        if endpoint is None:
            return 404, f"there is: {', '.join(self._endpoints)}\n".encode()
        headers = (line.partition(":") for line in lines)
        return endpoint(next((value.strip() for name, _, value in headers if name.lower() == "authorization"), ""))


def _listen(address: Tuple[str, int]) -> socket.socket:
    """A socket on a host's address; on all addresses, of both kinds where the host has both, for "".

    Raises:
        OSError: the port is taken, or there is no such address.
    """
    host, port = address
    host = host or ("::" if socket.has_dualstack_ipv6() else "0.0.0.0")  # noqa: S104 - that is what was asked for
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    # Whatever the node's default for new sockets is, "::" serves both kinds where there are both.
    both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
    made = socket.create_server((host, port), family=family, backlog=_BACKLOG, dualstack_ipv6=both)
    made.setblocking(False)
    return made


def _read_head(connection: socket.socket) -> bytes:
    """The head of a request without the empty line that ends it; "" for what is none."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(4096)
        if not piece or len(data) > _MAX_HEAD_BYTES:
            return b""
        data += piece
    return data.partition(b"\r\n\r\n")[0]


def _head(status: int, body: bytes) -> bytes:
    login = "WWW-Authenticate: Bearer\r\n" if status == 401 else ""
    return (
        f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}\r\nContent-Type: {_CONTENT_TYPE}\r\n"
        f"Content-Length: {len(body)}\r\n{login}Connection: close\r\n\r\n"
    ).encode()


def _cut_off(connection: socket.socket) -> None:
    """End a connection that another thread has; the thread closes it."""
    with contextlib.suppress(OSError):  # it has just ended
        socket.socket.shutdown(connection, socket.SHUT_RDWR)  # an SSLSocket's own would end its session, too

"""Serves probes and metrics for the kubelet and Prometheus: a small HTTP server in threads of its own.

Any machine on the network may connect, so unauthenticated clients must cost next to nothing and delay no other client.
A connection waits as a bare socket until it is served. Addresses are served in rotation, at a fixed rate. The node's
own address, from which the kubelet's probes come, waits in a separate lane, and so do addresses that have sent a valid
token. The kernel sorts connections by their source before they are accepted. Those of these addresses are accepted at
once; those of all others take a small share of a core. A library's server gives a thread or a task, a TLS session and
up to megabytes of headers to every client that connects.

The operator, the page, the agent and the checker use it. The checker's Python may be 3.8.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import http
import ipaddress
import random
import resource
import selectors
import socket
import ssl
import struct
import sys
import threading
import time
from collections import Counter, OrderedDict, deque
from pathlib import Path
from typing import (
    Callable,
    Deque,
    Dict,
    FrozenSet,
    Iterable,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Set,
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

    pause_seconds: float  # between the starts of two answers
    silence_seconds: float  # a connection without a byte for this long is closed
    connection_seconds: float
    head_bytes: int


PLAIN = Limits(0.01, 1.0, 3.0, 4 * 1024)
"""The limits of plain HTTP: a probe is one packet, and its answer is another."""

TLS = Limits(0.05, 2.0, 10.0, 16 * 1024)
"""The limits of HTTPS: a handshake costs a millisecond of a core, and a token has one or two thousand bytes."""

_BURST = 10  # connections that are answered at once after a quiet time
_MAX_ANSWERED = 16  # connections that are answered at a time: each has a thread
_MAX_WAITING = 256  # connections that wait: far below the usual 1,024 open files
_MAX_WAITING_OF_ADDRESS = 64
_MAX_READERS = 64  # remembered addresses that have sent a valid token, the latest ones
_ACCEPTING_SHARE = 0.03  # of a core, for connections of addresses that are not preferred
_ACCEPTING_BURST_SECONDS = 0.06  # of a core at once, after a quiet time: some thousand connections
_GROUPS = 8  # of addresses that are not preferred: a flood from one fills the backlog of one group
_ACCEPTED_AT_ONCE = 16  # of one group, before the other groups have their turn
_BACKLOG = 128  # of each group
_RECEIVE_BUFFER_BYTES = 16 * 1024  # the kernel's memory for what clients send before it is read is the pod's
_GATHERING_SECONDS = 0.05  # connections that arrive within this time are accepted together
_NO_SOCKET_SECONDS = 0.1  # pause when there is no file descriptor left
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
        found = problem()
        return (503 if found else 200), f"{found or 'ok'}\n".encode()

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
                begun = cpu_clock()
                body = render()
                pause = min(max((cpu_clock() - begun) / RENDERING_SHARE, RENDERED_SECONDS), MAX_RENDERED_SECONDS)
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


class ConnectionQueue:
    """Connections that wait, by client. Clients are served in rotation; the newest connection of the longest queue is
    cut."""

    def __init__(self) -> None:
        self._by_client: OrderedDict[str, Deque[socket.socket]] = OrderedDict()  # the next client comes first
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, client: str, connection: socket.socket) -> Optional[socket.socket]:
        """Queue a connection. Return a connection that no longer fits, for the caller to close."""
        self._by_client.setdefault(client, deque()).append(connection)
        self._count += 1
        if len(self._by_client[client]) > _MAX_WAITING_OF_ADDRESS:
            return self._remove(client, last=True)
        if self._count > _MAX_WAITING:  # of equally long queues the last one in the rotation: it has waited least
            longest = max(reversed(self._by_client), key=lambda each: len(self._by_client[each]))
            return self._remove(longest, last=True)
        return None

    def next_connection(self) -> Tuple[str, socket.socket]:
        """Return the oldest connection of the next client, which moves to the end of the rotation.

        Raises:
            StopIteration: no connection waits.
        """
        client = next(iter(self._by_client))
        connection = self._remove(client, last=False)
        if client in self._by_client:
            self._by_client.move_to_end(client)
        return client, connection

    def _remove(self, client: str, last: bool) -> socket.socket:
        connections = self._by_client[client]
        connection = connections.pop() if last else connections.popleft()
        self._count -= 1
        if not connections:
            del self._by_client[client]
        return connection


class _Lane:
    """Connections that share a rate and a number of places: those that wait, and those that are answered."""

    def __init__(self) -> None:
        self.waiting = ConnectionQueue()
        self.answered: Dict[socket.socket, Tuple[float, str]] = {}  # since when and for which client, oldest first
        self.next = float("-inf")  # when the next connection may be answered

    def surplus_connection(self) -> Optional[socket.socket]:
        """When too many connections are answered, return the oldest connection of the client with the most."""
        if len(self.answered) <= _MAX_ANSWERED:
            return None
        ((busiest, _),) = Counter(client for _, client in self.answered.values()).most_common(1)
        return next(each for each, (_, client) in self.answered.items() if client == busiest)


class Server:
    """Answers GET requests from the moment it is made until `close`.

    Args:
        address: host, of IPv4 or IPv6, and port; no host: all addresses of both kinds; port 0: any.
        endpoints: by path.
        tls: for HTTPS, whose endpoints answer 200 to valid tokens only; replace the attribute when the certificate is
            renewed. None: plain HTTP.
        node: addresses of this node (`node_addresses`), whose connections wait behind no others.

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
        self._node_lane, self._reader_lane, self._other_lane = self._lanes = _Lane(), _Lane(), _Lane()
        self._guard = threading.Lock()  # of what is answered, and of the readers
        self._readers: OrderedDict[str, None] = OrderedDict()
        self._closed = False
        self._quiet: Set[socket.socket] = set()  # connections whose turn it is and that have sent nothing yet
        self._speaking = selectors.EpollSelector()  # of these: which of them send something now
        self._accepting = CpuShare(_ACCEPTING_SHARE, _ACCEPTING_BURST_SECONDS)
        # The first one is that of preferred addresses.
        self._listeners = listening_sockets(address, [_BACKLOG] * (1 + _GROUPS), _RECEIVE_BUFFER_BYTES)
        try:
            self._sort_by_preference()
        except OSError:  # this kernel cannot: one socket takes all connections at once
            for listener in self._listeners[1:]:
                listener.close()
            del self._listeners[1:]
        self.port = int(self._listeners[0].getsockname()[1])
        threading.Thread(target=self._run, name="http", daemon=True).start()

    def close(self) -> None:
        """Stop listening. Requests that are being answered still get their answer."""
        self._closed = True
        for listener in self._listeners:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # this wakes the thread

    def _sort_by_preference(self) -> None:
        """Have the kernel sort connections, with the node's and the readers' addresses as preferred ones.

        Raises:
            OSError: the kernel cannot.
        """
        with self._guard:
            sort_by_source(self._listeners[0], [*self._node, *self._readers], 0, _group())

    def _run(self) -> None:
        with contextlib.ExitStack() as stack:
            for listener in self._listeners:
                stack.enter_context(listener)
            all_listeners, preferred = (stack.enter_context(selectors.DefaultSelector()) for _ in range(2))
            speaking = stack.enter_context(self._speaking)
            for selector, listeners in ((all_listeners, self._listeners), (preferred, self._listeners[:1])):
                selector.register(speaking.fileno(), selectors.EVENT_READ)
                for listener in listeners:
                    selector.register(listener, selectors.EVENT_READ)
            while not self._closed:
                pause = self._answer_due(time.monotonic())
                if self._any_connection_waits():
                    # A flood then wakes this thread once a round, and not for each connection.
                    self._speaking.select(min(pause or 0.0, _GATHERING_SECONDS))
                    pause = 0.0
                rest = self._accepting.pause_seconds()
                if rest > 0:
                    ready = preferred.select(rest if pause is None else min(pause, rest))
                else:
                    ready = all_listeners.select(pause)
                for key, _ in self._speaking.select(0):
                    connection, client = key.data
                    self._note_not_quiet(connection)
                    self._answer_in_thread(connection, client)
                self._accept([key.fileobj for key, _ in ready if isinstance(key.fileobj, socket.socket)])
            for connection in list(self._quiet):
                self._close_early(connection)
        for lane in self._lanes:
            while lane.waiting:
                lane.waiting.next_connection()[1].close()

    def _any_connection_waits(self) -> bool:
        return any(lane.waiting for lane in self._lanes)

    def _accept(self, ready: List[socket.socket]) -> None:
        """Accept all preferred connections, and those of other addresses group by group while they may take CPU."""
        if self._listeners[0] in ready:
            ready.remove(self._listeners[0])
            self._accept_from(self._listeners[0], 1024)
        while ready and self._accepting.pause_seconds() <= 0:
            begun = time.thread_time()
            ready = [listener for listener in ready if self._accept_from(listener, _ACCEPTED_AT_ONCE)]
            self._accepting.charge(time.thread_time() - begun)

    def _accept_from(self, listener: socket.socket, most: int) -> bool:
        """Accept connections. Return whether there may be more."""
        for _ in range(most):
            try:
                connection, address = listener.accept()
            except BlockingIOError:
                return False
            except OSError:  # the client has gone, or no file descriptor is left
                time.sleep(_NO_SOCKET_SECONDS if not self._closed else 0.0)
                return False
            client = client_network(address[0])
            extra = self._lane_of(address[0], client).waiting.add(client, connection)
            if extra is not None:
                extra.close()
        return True

    def _lane_of(self, host: str, client: str) -> _Lane:
        if plain_address(host) in self._node:
            return self._node_lane
        with self._guard:
            return self._reader_lane if client in self._readers else self._other_lane

    def _answer_due(self, now: float) -> Optional[float]:
        """Answer the connections that are due. Return the seconds until the next one is due; None: none waits."""
        with self._guard:
            answered = [(each, since) for lane in self._lanes for each, (since, _) in lane.answered.items()]
        for connection, since in answered:
            if now > self._deadline(connection, since):
                self._close_early(connection)
        pause = self._limits.pause_seconds
        for lane in self._lanes:
            lane.next = max(lane.next, now - _BURST * pause)
            while lane.waiting and lane.next <= now:
                lane.next += pause
                self._start(lane, now, *lane.waiting.next_connection())
        if self._any_connection_waits():
            return max(min(lane.next for lane in self._lanes if lane.waiting) - now, 0.0)
        with self._guard:
            answered = [(each, since) for lane in self._lanes for each, (since, _) in lane.answered.items()]
        first = min((self._deadline(connection, since) for connection, since in answered), default=None)
        return None if first is None else max(first - now, 0.1)

    def _deadline(self, connection: socket.socket, since: float) -> float:
        is_quiet = connection in self._quiet
        return since + (self._limits.silence_seconds if is_quiet else self._limits.connection_seconds)

    def _close_early(self, connection: socket.socket) -> None:
        """Close a connection, or have the thread that answers it do so."""
        if connection in self._quiet:
            self._note_not_quiet(connection)
            self._release(connection)
        else:
            _cut_off(connection)

    def _note_not_quiet(self, connection: socket.socket) -> None:
        self._quiet.remove(connection)
        self._speaking.unregister(connection)

    def _start(self, lane: _Lane, now: float, client: str, connection: socket.socket) -> None:
        """Answer a connection from a thread, once it has sent something. When its lane has too many, one is cut off."""
        speaks = lane is not self._other_lane or _speaks(connection)
        try:
            if speaks is None:
                raise OSError("the client has gone")
            connection.settimeout(self._limits.silence_seconds)
            if self.tls is not None:
                connection = self.tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        except OSError:  # the client has gone
            connection.close()
            return
        with self._guard:
            lane.answered[connection] = now, client
            surplus = lane.surplus_connection()
            # removed here, because its thread may notice late and the next choice has to be another one
            if surplus is not None:
                del lane.answered[surplus]
        if surplus is not None:
            self._close_early(surplus)
        if speaks:
            self._answer_in_thread(connection, client)
        else:
            self._quiet.add(connection)
            self._speaking.register(connection, selectors.EVENT_READ, (connection, client))

    def _answer_in_thread(self, connection: socket.socket, client: str) -> None:
        try:
            threading.Thread(target=self._answer, args=(connection, client), name="http request", daemon=True).start()
        except RuntimeError:  # the machine has no thread left
            self._release(connection)

    def _answer(self, connection: socket.socket, client: str) -> None:
        try:
            if isinstance(connection, ssl.SSLSocket):
                connection.do_handshake()
            status, body = self._answer_to(_read_head(connection, self._limits.head_bytes), client)
            connection.sendall(_head(status, body) + body)
        except OSError:
            """The client has closed the connection, or is too slow."""
        finally:
            self._release(connection)

    def _release(self, connection: socket.socket) -> None:
        with self._guard:
            for lane in self._lanes:
                lane.answered.pop(connection, None)
        connection.close()

    def _answer_to(self, head: bytes, client: str) -> Answer:
        request, *lines = head.decode("latin-1").split("\r\n")
        words = request.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return 400, b"this is no HTTP/1.1 request with a head of %d KiB or less\n" % (
                self._limits.head_bytes // 1024
            )
        if words[0] != "GET":
            return 405, b"only GET is answered\n"
        endpoint = self._endpoints.get(words[1].partition("?")[0])
        if endpoint is None:
            return 404, f"there is: {', '.join(self._endpoints)}\n".encode()
        headers = (line.partition(":") for line in lines)
        token = next((value.strip() for name, _, value in headers if name.lower() == "authorization"), "")
        answer = endpoint(token)
        if self.tls is not None and token and answer[0] == 200:
            self._note_reader(client)
        return answer

    def _note_reader(self, client: str) -> None:
        """Note that this client has sent a valid token: from now on it does not wait behind clients that have sent
        none."""
        with self._guard:
            is_new = client not in self._readers
            self._readers[client] = None
            self._readers.move_to_end(client)
            if len(self._readers) > _MAX_READERS:
                self._readers.popitem(last=False)
        if is_new and len(self._listeners) > 1:
            with contextlib.suppress(OSError):  # the port was closed
                self._sort_by_preference()


def listening_sockets(
    address: Tuple[str, int], backlogs: Iterable[int], receive_buffer_bytes: int
) -> List[socket.socket]:
    """Return sockets that listen on the same port, one with each backlog. `sort_by_source` shares connections out.

    Args:
        address: host and port; no host: all addresses, of both kinds where the machine has both; port 0: any.
        backlogs: how many connections each socket keeps until they are accepted.
        receive_buffer_bytes: the kernel's memory for what a client of an accepted connection sends before it is read.

    Raises:
        OSError: the port is in use, or the machine has no such address.
    """
    host, port = address
    host = host or ("::" if socket.has_dualstack_ipv6() else "0.0.0.0")  # noqa: S104 - that is what was asked for
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    # Whatever the node's default for new sockets is, "::" serves both kinds where there are both.
    both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
    if port:  # the sockets below would share it with those of another server of this user
        socket.create_server((host, port), family=family, dualstack_ipv6=both).close()
    made: List[socket.socket] = []
    try:
        for backlog in backlogs:
            made.append(
                socket.create_server((host, port), family=family, backlog=backlog, dualstack_ipv6=both, reuse_port=True)
            )
            port = int(made[0].getsockname()[1])
            made[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
            made[-1].setblocking(False)
    except OSError:
        for each in made:
            each.close()
        raise
    return made


# Linux names it so; Python does not.
_SO_ATTACH_REUSEPORT_CBPF = 51
# The kernel's classic filters: instructions of 16 bits, two jumps of 8 bits, and a number.
_LOAD_WORD, _LOAD_BYTE, _SHIFT_RIGHT, _MULTIPLY, _ADD, _XOR_X = 0x20, 0x30, 0x74, 0x24, 0x04, 0xAC
_COPY_TO_X, _JUMP_EQUAL, _JUMP, _RETURN, _RETURN_A = 0x07, 0x15, 0x05, 0x06, 0x16
_NETWORK_HEADER = -0x100000  # offsets from here on are those of the IP header
_SOURCE_IPV4, _SOURCE_IPV6 = 12, 8
_HASH_MULTIPLIER = random.SystemRandom().getrandbits(32) | 1  # no client knows which addresses share a group

_Instruction = Tuple[int, int, int, int]  # code, jump if true, jump if false, number
_FIRST: Tuple[_Instruction, ...] = ((_RETURN, 0, 0, 0),)


def sort_by_source(
    listener: socket.socket, clients: Iterable[str], number: int, others: Sequence[_Instruction] = _FIRST
) -> None:
    """Have the kernel give new connections of these clients to one socket of a port.

    Args:
        listener: any of the sockets.
        clients: addresses, or networks as `client_network` returns them. Kernels have room for 110 of them at least.
        number: of their socket; 0 is the first.
        others: where other connections go; the first socket unless said.

    Raises:
        OSError: the kernel cannot.
    """
    networks = [ipaddress.ip_network(each) for each in clients]
    ipv4 = _match([each for each in networks if each.version == 4], _SOURCE_IPV4, number)
    ipv4 += [(_LOAD_WORD, 0, 0, _NETWORK_HEADER + _SOURCE_IPV4), *others]
    ipv6 = _match([each for each in networks if each.version == 6], _SOURCE_IPV6, number)
    ipv6 += [
        (_LOAD_WORD, 0, 0, _NETWORK_HEADER + _SOURCE_IPV6),
        (_COPY_TO_X, 0, 0, 0),
        (_LOAD_WORD, 0, 0, _NETWORK_HEADER + _SOURCE_IPV6 + 4),
        (_XOR_X, 0, 0, 0),
        *others,
    ]
    program = [
        (_LOAD_BYTE, 0, 0, _NETWORK_HEADER),
        (_SHIFT_RIGHT, 0, 0, 4),
        (_JUMP_EQUAL, 0, 1, 6),
        (_JUMP, 0, 0, len(ipv4)),
        *ipv4,
        *ipv6,
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *each[:3], each[3] % 2**32) for each in program))
    listener.setsockopt(
        socket.SOL_SOCKET, _SO_ATTACH_REUSEPORT_CBPF, struct.pack("HL", len(program), ctypes.addressof(code))
    )


def _match(
    networks: Iterable[Union[ipaddress.IPv4Network, ipaddress.IPv6Network]], offset: int, number: int
) -> List[_Instruction]:
    """Return instructions that give connections of these networks, of whole words, to the socket with this number."""
    made: List[_Instruction] = []
    for network in networks:
        words = struct.unpack(f"!{network.prefixlen // 32}I", network.network_address.packed[: network.prefixlen // 8])
        for index, word in enumerate(words):
            left = 2 * (len(words) - index - 1) + 1  # instructions until the next network
            made.append((_LOAD_WORD, 0, 0, _NETWORK_HEADER + offset + 4 * index))
            made.append((_JUMP_EQUAL, 0, left, word))
        made.append((_RETURN, 0, 0, number))
    return made


def _group() -> List[_Instruction]:
    """Return instructions that give a connection to the socket of its group, by the word that was loaded."""
    bits = 32 - _GROUPS.bit_length() + 1
    return [(_MULTIPLY, 0, 0, _HASH_MULTIPLIER), (_SHIFT_RIGHT, 0, 0, bits), (_ADD, 0, 0, 1), (_RETURN_A, 0, 0, 0)]


def _read_head(connection: socket.socket, most_bytes: int) -> bytes:
    """Return the head of a request without the empty line that ends it; "" where the client sends no complete head."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(4096)
        if not piece or len(data) > most_bytes:
            return b""
        data += piece
    return data.partition(b"\r\n\r\n")[0]


def _head(status: int, body: bytes) -> bytes:
    login = "WWW-Authenticate: Bearer\r\n" if status == 401 else ""
    return (
        f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}\r\nContent-Type: {_CONTENT_TYPE}\r\n"
        f"Content-Length: {len(body)}\r\n{login}Connection: close\r\n\r\n"
    ).encode()


def _speaks(connection: socket.socket) -> Optional[bool]:
    """Whether the client has sent something; None: it has gone."""
    try:
        connection.setblocking(False)
        return bool(connection.recv(1, socket.MSG_PEEK)) or None
    except BlockingIOError:
        return False
    except OSError:
        return None


def _cut_off(connection: socket.socket) -> None:
    """End a connection that another thread owns; that thread closes it."""
    with contextlib.suppress(OSError):  # it has just ended
        socket.socket.shutdown(connection, socket.SHUT_RDWR)  # an SSLSocket's own would end its session, too


def open_as_many_files_as_allowed() -> None:
    """Raise the soft limit of open files to the hard one, as programs in Go do: at 1,024 files, clients could exhaust
    it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

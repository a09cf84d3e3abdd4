"""The HTTPS endpoint for launchers and checkers: a report comes in, and the directive goes out, held back while nothing
is new.

A held answer is a long poll. It goes out the moment `notify` says that the pod's directive may have changed. So a
decision reaches thousands of pods at once, while each asks only every few seconds. A held answer is an entry in a
table, not a task that waits. `endpoints` says whose reports are taken on which path, and what is answered.
"""

import asyncio
import asyncio.sslproto
import functools
import os
import socket
import ssl
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import structlog
from prometheus_client import Counter, Gauge

from muster.coordinator import endpoints
from muster.coordinator.auth import AuthError, Caller, claimed
from muster.coordinator.connection_limiter import BACKLOG, HANDSHAKES_PER_SECOND, ConnectionLimiter
from muster.coordinator.endpoints import ReportEndpoint
from muster.coordinator.http import BadRequestError, Connection, Head, refusal
from muster.coordinator.hub import Hub, Membership
from muster.coordinator.memory import BurstDetector
from muster.coordinator.metered_tls import MAX_BODY_SECONDS, TlsMeter
from muster.coordinator.refused import RefusedWorkers
from muster.coordinator.tasks import Tasks
from muster.protocol.checks import CheckReport
from muster.protocol.messages import MAX_REPORT_BYTES, REPORT_PATH, Directive, ProtocolError, Report
from muster.serve import listening_socket

MAX_HOLD_SECONDS = 10.0
HANDSHAKE_SECONDS = 5.0
CLOSING_SECONDS = 1.0
SLOW_HANDSHAKE_SECONDS = 1.0  # a handshake takes milliseconds, and the queue for it before a place is not counted
SWEEP_SECONDS = 1.0  # how often connections are looked through for those that are over time
TLS_BUFFER_BYTES = 2 * 1024  # of each connection; a larger report is read in pieces
# The part of the loop's time for large directives. With what the nodes of a meeting have put, a directive for one of
# 256 nodes with 8 GPUs has half a megabyte.
SHARE_OF_MEETINGS = 0.5
# Of the loop's time one pod may take: a launcher's report costs 0.2 ms, and the costliest that can be sent fifty times
# that.
SHARE_OF_POD = 0.01
TAKING_IN_SECONDS_PER_BYTE = 1e-8  # to decrypt and gather a body
BODY_SECONDS = 0.1  # for a body that comes in pieces, before a newer request of the same pod cuts it off
MAX_CONNECTIONS_OF_POD = 8  # a launcher has two or three, and leaves some behind when its network fails
# After so many new connections in a row one of a pod's gives its handshake back to the budget this often: a token that
# is good pays for a flood of handshakes no more than one that is not.
CONNECTION_SECONDS = 10.0
# While this replica serves no directives, its loop decides nothing, and launchers come to be told who leads.
UNREADY_HANDSHAKES_PER_SECOND = 400.0

log = structlog.get_logger()
_reports = Counter(
    "muster_reports_total", "Reports of launchers and checkers, by the status of the response.", ["code"]
)
_held = Gauge("muster_reports_held", "Requests of launchers and checkers that wait for news (long polls).")

Answer = tuple[int, bytes]


class Verifier(Protocol):
    """Identifies callers by their `Authorization` headers."""

    def known(self, authorization: str) -> Caller | None:
        """The caller of a header that was verified before and still holds; None for any other header."""

    async def verify(self, authorization: str) -> Caller:
        """Verify a header and return its caller.

        Raises:
            AuthError: the token is not good, or could not be verified.
        """


class PendingRequest(Protocol):
    """A connection, or a stand-in for one, that waits for an answer."""

    on_lost: Callable[[], None] | None

    @property
    def is_open(self) -> bool:
        """False once no answer can be sent any more."""

    def answer(self, status: int, body: bytes) -> None:
        """Send the answer; to be called once."""


@dataclass(slots=True, eq=False)
class _Hold:
    """A request whose answer is held back until its directive changes or its time is up."""

    endpoint: ReportEndpoint[Any]
    connection: PendingRequest
    caller: Caller
    seen: str  # digest of the directive that the caller has
    timer: asyncio.TimerHandle | None = None


@dataclass(frozen=True, slots=True)
class _UnauthenticatedConnection:
    """A connection that has not authenticated yet."""

    host: str
    since: float  # by the loop's clock
    handshake: asyncio.Task[None]


class CoordinatorServer:
    """The HTTPS server for launchers and checkers.

    Args:
        hub: has the launchers' reports.
        verifier: identifies the caller of an `Authorization` header (TokenVerifier).
        directive_for: the directive of this pod; None when it is not a worker of any job.
        is_worker: whether this pod is a worker of any job.
        not_ready: says why no directives may be served; "" when they may.
        leader: None when this replica leads, else the address of the one that does; "" where that is not known.
        cpu_clock: seconds that the thread has computed so far.
        checkers: the desk for checkers; None = the server has none.
        addresses_of: the addresses from which a present worker's launcher connects; none for any other pod.
        membership_of: what a pod is to Muster's jobs.
    """

    def __init__(
        self,
        hub: Hub,
        verifier: Verifier,
        directive_for: Callable[[Caller], Directive | None],
        is_worker: Callable[[Caller], bool],
        not_ready: Callable[[], str],
        leader: Callable[[], str | None] = lambda: None,
        cpu_clock: Callable[[], float] = time.thread_time,
        checkers: ReportEndpoint[CheckReport] | None = None,
        addresses_of: Callable[[Caller], Collection[str]] = lambda _: (),
        membership_of: Callable[[Caller], Membership] = lambda _: Membership.MEMBER,
    ) -> None:
        self._verifier = verifier
        self._hub = hub
        self._addresses_of = addresses_of
        several = (endpoints.launcher_endpoint(hub, directive_for, is_worker, membership_of), checkers)
        self._desks: dict[str, ReportEndpoint[Any]] = {desk.path: desk for desk in several if desk is not None}
        self._not_ready = not_ready
        self._leader = leader
        self._cpu_clock = cpu_clock
        self._waiting: dict[str, _Hold] = {}  # by pod uid
        self._stopping = False
        self._large: dict[str, None] = {}  # pods that `_notify_large` has to look at
        self._notifying = False
        self.connections: set[Connection] = set()
        self._opened = 0  # connections so far
        self._unauthenticated: dict[
            Connection, _UnauthenticatedConnection
        ] = {}  # those whose caller is not known yet, the oldest first
        self._owners: dict[Connection, str] = {}  # the others -> the pod of their first token
        self._by_pod: dict[str, list[Connection]] = {}  # the same by pod, the oldest first
        self._refused = RefusedWorkers()
        self._rests: dict[str, float] = {}  # pods -> until when none of their requests is let in, by the loop's clock
        self._paid: dict[str, float] = {}  # pods -> until when their new connections count, by the loop's clock
        self._limiter = ConnectionLimiter(self._enter, per_second=self._handshakes_per_second)
        self._listener: socket.socket | None = None
        self._tasks = Tasks()
        self._tls = server_context()
        self._meter = TlsMeter(cpu_clock=cpu_clock, max_body_seconds=MAX_BODY_SECONDS)
        self._meter.watch(self._tls)

    async def start(self, host: str, port: int, certificate_pem: bytes, key_pem: bytes) -> int:
        """Listen with this certificate; returns the port, which the system chooses for port 0."""
        self.load_certificate(certificate_pem, key_pem)
        # asyncio gives each TLS connection a read buffer of 256 KiB: a gigabyte for 4,096 idle launchers.
        asyncio.sslproto.SSLProtocol.max_size = TLS_BUFFER_BYTES
        self._listener = listening_socket(host, port, BACKLOG)
        self._tasks.spawn(self._limiter.serve(self._listener))
        self._tasks.spawn(self._sweep())
        return int(self._listener.getsockname()[1])

    async def stop(self) -> None:
        """Answer the requests whose answers are held, then close all connections."""
        self._stopping = True
        self.notify(list(self._waiting))
        if self._listener is None:
            return
        await self._tasks.cancel()
        self._listener.close()
        for connection in list(self.connections):
            connection.close()
        until = asyncio.get_running_loop().time() + CLOSING_SECONDS
        while self.connections and asyncio.get_running_loop().time() < until:  # noqa: ASYNC110 - a last moment
            await asyncio.sleep(0.01)

    def load_certificate(self, certificate_pem: bytes, key_pem: bytes) -> None:
        """Use this certificate and key for connections from now on; open connections keep the old pair."""
        load_pair(self._tls, certificate_pem, key_pem)

    def notify(self, pod_uids: Iterable[str]) -> None:
        """Check the directives of these pods again, and answer the held requests of those whose directive has
        changed."""
        for uid in pod_uids:
            hold = self._waiting.get(uid)
            if hold is not None:
                self._check_hold(hold)

    def notify_one_by_one(self, pod_uids: Iterable[str]) -> None:
        """Do the same for pods whose directives are large: one in a turn of the loop, in `SHARE_OF_MEETINGS` of its
        time. A pod that waits for its turn is not noted twice."""
        self._large.update(dict.fromkeys(pod_uids))
        if not self._notifying:
            self._notifying = True
            self._tasks.spawn(self._notify_large())

    async def _notify_large(self) -> None:
        try:
            while self._large:
                uid = next(iter(self._large))
                del self._large[uid]
                began = self._cpu_clock()
                self.notify([uid])
                await asyncio.sleep((self._cpu_clock() - began) * (1 / SHARE_OF_MEETINGS - 1))
        finally:
            self._notifying = False

    def admit(self, head: Head) -> None:
        """Refuse a head whose body is not wanted from any sender.

        Raises:
            BadRequestError: the message says why.
        """
        if head.path not in self._desks:
            raise BadRequestError(404, f"reports go to {' or '.join(self._desks)}")
        if head.method != "POST":
            raise BadRequestError(405, "a report is posted")
        if head.length > MAX_REPORT_BYTES:
            raise BadRequestError(413, f"a report may have {MAX_REPORT_BYTES} bytes")

    def identify(self, connection: Connection, head: Head) -> None:
        """Let the body of a request come once its token is known to be good; refuse the request otherwise."""
        # To learn which replica leads, a client needs no token, and no key is needed to check one.
        answer = self._unready()
        if answer is not None:
            _refuse(connection, answer)
            return
        caller = self._verifier.known(head.authorization)
        if caller is not None:  # as almost always: no task is needed
            self._let_in(self._desks[head.path], connection, caller)
        else:
            self._tasks.spawn(self._identify(connection, head))

    async def _identify(self, connection: Connection, head: Head) -> None:
        try:
            caller = await self._verifier.verify(head.authorization)
            self._let_in(self._desks[head.path], connection, caller)
        except AuthError as error:
            self._note_refused(connection, head, error)
            _refuse(connection, (error.status, refusal(str(error))))
        except Exception:
            log.exception("a token could not be verified")
            _refuse(connection, _FAILED)

    def _note_refused(self, connection: Connection, head: Head, error: AuthError) -> None:
        """Count a worker whose token is refused. Checkers are not counted, since claiming to be one needs no secret."""
        if error.status != 401 or head.path != REPORT_PATH:
            return
        caller = claimed(head.authorization)
        if caller is not None and self._desks[head.path].is_known(caller):
            is_proven = connection.host in self._addresses_of(caller)
            self._refused.refuse(caller, str(error), asyncio.get_running_loop().time(), is_proven=is_proven)

    def _receive(self, desk: ReportEndpoint[Any], connection: Connection, caller: Caller) -> None:
        """Let the body of a known caller's request come, or refuse the request.

        Only one body of each pod comes in at a time: a launcher's bodies are small and come with their heads.
        """
        answer = self._refusal(desk, caller)
        if answer is not None:
            _refuse(connection, answer)
            return
        self._refused.accept(caller.pod_uid)
        if connection in self._unauthenticated:
            is_known = self._may_connect(caller.pod_uid)
            self._meter.note_authenticated(connection.transport)
            self._end_unauthenticated(connection, is_known=is_known)
            self._own(connection, caller.pod_uid)
        loop = asyncio.get_running_loop()
        rest = self._rests.get(caller.pod_uid, 0.0) - loop.time()
        if rest > 0:
            loop.call_later(rest, self._let_in, desk, connection, caller)
            return
        for other in list(self._by_pod.get(caller.pod_uid, ())):
            if other.receiving:
                other.abort()
        connection.welcome(caller)
        if connection.receiving:
            self._rest(caller.pod_uid, BODY_SECONDS)

    def _let_in(self, desk: ReportEndpoint[Any], connection: Connection, caller: Caller) -> None:
        """Let the body of a request come after its pod's pause, unless the caller has hung up."""
        if not connection.is_open:
            return
        try:
            self._receive(desk, connection, caller)
        except Exception:
            log.exception("a request could not be let in", pod=caller.pod_name)
            _refuse(connection, _FAILED)

    def serve(self, connection: Connection, head: Head, body: bytes) -> None:
        """Take in the report of a complete request, and send its answer now or hold it back."""
        caller, begin_seconds = connection.caller, self._cpu_clock()
        assert caller is not None
        try:
            answer = self._answer(self._desks[head.path], connection, caller, body)
        except Exception:
            log.exception("a report could not be answered", pod=caller.pod_name)
            answer = _FAILED
        if answer is not None:
            _send(connection, answer)
        cost = self._cpu_clock() - begin_seconds + len(body) * TAKING_IN_SECONDS_PER_BYTE
        cost += self._meter.collect_seconds(connection.transport)  # a body may come in records of one byte
        self._rest(caller.pod_uid, cost / SHARE_OF_POD)

    def lost(self, connection: Connection) -> None:
        """Drop a closed connection from the tables of connections."""
        self._end_unauthenticated(connection)
        pod_uid = self._owners.pop(connection, "")
        if pod_uid:  # of a body that was never complete
            self._rest(pod_uid, self._meter.collect_seconds(connection.transport) / SHARE_OF_POD)
        of_pod = self._by_pod.get(pod_uid)
        if of_pod is not None:
            of_pod.remove(connection)
            if not of_pod:
                del self._by_pod[pod_uid]

    def _rest(self, pod_uid: str, seconds: float) -> None:
        """Let in no request of a pod for so much longer."""
        now = asyncio.get_running_loop().time()
        self._rests[pod_uid] = max(self._rests.get(pod_uid, now), now) + seconds

    def _enter(self, visitor: socket.socket, host: str) -> None:
        connection = Connection(self)
        self._opened += 1
        handshake = self._tasks.spawn(self._shake_hands(visitor, connection))
        self._unauthenticated[connection] = _UnauthenticatedConnection(
            host, asyncio.get_running_loop().time(), handshake
        )

    async def _shake_hands(self, visitor: socket.socket, connection: Connection) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                visitor,
                ssl=self._tls,
                ssl_handshake_timeout=HANDSHAKE_SECONDS,
                ssl_shutdown_timeout=CLOSING_SECONDS,
            )
        except OSError:  # a client that breaks off, or is too slow, is gone
            self._end_unauthenticated(connection)

    def _make_room(self, now: float) -> None:
        """Close slow unauthenticated connections while they keep others out.

        Args:
            now: seconds of the event loop's clock.
        """
        if not self._limiter.keeps_others_out():
            return
        for connection, unauthenticated in list(self._unauthenticated.items()):
            if now - unauthenticated.since >= SLOW_HANDSHAKE_SECONDS and not connection.is_asked_about:
                unauthenticated.handshake.cancel()
                connection.abort()
                self._end_unauthenticated(connection)

    def _end_unauthenticated(self, connection: Connection, *, is_known: bool = False) -> None:
        unauthenticated = self._unauthenticated.pop(connection, None)
        if unauthenticated is not None:
            self._limiter.note_settled(unauthenticated.host, is_known=is_known)

    def _may_connect(self, pod_uid: str) -> bool:
        """Count a new connection of this pod; False where the pod has opened more than its share lately."""
        now = asyncio.get_running_loop().time()
        until = max(self._paid.get(pod_uid, now), now) + CONNECTION_SECONDS
        if until - now > MAX_CONNECTIONS_OF_POD * CONNECTION_SECONDS:
            return False
        self._paid[pod_uid] = until
        return True

    def _handshakes_per_second(self) -> float:
        return HANDSHAKES_PER_SECOND if self._unready() is None else UNREADY_HANDSHAKES_PER_SECOND

    def _own(self, connection: Connection, pod_uid: str) -> None:
        """Note that a connection belongs to this pod, by its first good token. Of too many the pod's oldest one is
        closed."""
        of_pod = self._by_pod.setdefault(pod_uid, [])
        of_pod.append(connection)
        self._owners[connection] = pod_uid
        if len(of_pod) > MAX_CONNECTIONS_OF_POD:
            of_pod[0].abort()

    def _answer(self, desk: ReportEndpoint[Any], connection: Connection, caller: Caller, body: bytes) -> Answer | None:
        """The status and body that answer a request, or None when the answer is held back."""
        return self._heard(desk, connection, caller, lambda: desk.decode(body))

    def heard(
        self, connection: PendingRequest, caller: Caller, report: Report | CheckReport, path: str = REPORT_PATH
    ) -> Answer | None:
        """The status and body that answer a known caller's report, or None when the connection is given the answer
        later."""
        desk = self._desks[path]
        return self._refusal(desk, caller) or self._heard(desk, connection, caller, lambda: report)

    def _heard(
        self,
        desk: ReportEndpoint[Any],
        connection: PendingRequest,
        caller: Caller,
        reported: Callable[[], Report | CheckReport],
    ) -> Answer | None:
        unready = self._unready()
        if unready is not None:
            return unready
        try:
            report = reported()
        except ProtocolError as error:
            return 400, refusal(f"{error}: the {desk.name} and the operator do not understand each other")
        desk.record_report(caller, report)
        directive = desk.encoded_for(caller)  # what was heard may have changed it at once
        if directive is None:
            return _refuse_outsider(desk, caller)
        digest, encoded = directive
        if report.hold_seconds <= 0:  # news: the request that waits beside it goes on waiting
            return 200, encoded
        self._release_older(caller.pod_uid)
        if self._stopping or digest != report.directive_seen:
            return 200, encoded
        hold = _Hold(desk, connection, caller, report.directive_seen)
        self._hold(hold, min(report.hold_seconds, MAX_HOLD_SECONDS))
        return None

    def _hold(self, hold: _Hold, seconds: float) -> None:
        if not hold.connection.is_open:
            return
        self._waiting[hold.caller.pod_uid] = hold
        _held.inc()
        hold.timer = asyncio.get_running_loop().call_later(seconds, self._end, hold)
        hold.connection.on_lost = functools.partial(self._drop, hold)

    def _drop(self, hold: _Hold) -> None:
        """Remove a held request from the table, and cancel its timer."""
        if self._waiting.get(hold.caller.pod_uid) is hold:
            del self._waiting[hold.caller.pod_uid]
            _held.dec()
        if hold.timer is not None:
            hold.timer.cancel()

    def _end(self, hold: _Hold) -> None:
        """Answer a held request now, even where its directive has not changed."""
        self._check_hold(hold, at_once=True)

    def _release_older(self, pod_uid: str) -> None:
        """Answer the held request of this pod now, because a newer one waits. The connection of the older one may be
        dead."""
        older = self._waiting.get(pod_uid)
        if older is not None:
            self._end(older)

    def _check_hold(self, hold: _Hold, *, at_once: bool = False) -> None:
        try:
            answer = self._answer_to(hold, at_once or self._stopping)
        except Exception:
            log.exception("a held report could not be answered", pod=hold.caller.pod_name)
            answer = _FAILED
        if answer is not None:
            self._drop(hold)
            _send(hold.connection, answer)

    def _answer_to(self, hold: _Hold, at_once: bool) -> Answer | None:
        unready = None if self._stopping else self._unready()
        if unready is not None:
            return unready
        directive = hold.endpoint.encoded_for(hold.caller)
        if directive is None:
            return _refuse_outsider(hold.endpoint, hold.caller)
        digest, encoded = directive
        return (200, encoded) if at_once or digest != hold.seen else None

    def _refusal(self, desk: ReportEndpoint[Any], caller: Caller) -> Answer | None:
        """The answer to a caller whose report is not taken in; None where it is."""
        answer = self._unready()
        if answer is None and not desk.is_known(caller):  # any pod can have a good token
            return _refuse_outsider(desk, caller)
        return answer

    def _unready(self) -> Answer | None:
        """The answer to every request while this replica serves no directives; None when it serves them."""
        if self._stopping:
            return 503, refusal("this replica is stopping: ask again")
        leader = self._leader()
        if leader is not None:
            return 421, msgspec.json.encode({"error": "this replica does not lead: ask the leader", "leader": leader})
        reason = self._not_ready()
        return (503, refusal(reason)) if reason else None

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        bursts = BurstDetector(loop.time(), forget=endpoints.encoded.cache_clear)
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            now = loop.time()
            bursts.check_burst(self._opened, self._opened - len(self.connections), now)
            self._make_room(now)
            self._refused.count(now, self._hub.expected_by_namespace())
            for connection in list(self.connections):
                connection.expire(now)
            self._rests = {pod_uid: until for pod_uid, until in self._rests.items() if until > now}
            self._paid = {pod_uid: until for pod_uid, until in self._paid.items() if until > now}


def server_context() -> ssl.SSLContext:
    """A TLS context for servers, for TLS 1.2 or later; `load_pair` gives it a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Clients do not resume sessions: with elliptic curves that would save next to nothing.
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET
    context.options |= ssl.OP_NO_RENEGOTIATION  # a client could ask for handshakes for ever on one connection
    return context


def load_pair(context: ssl.SSLContext, certificate_pem: bytes, key_pem: bytes) -> None:
    """Use this certificate and key, both as PEM, for new connections of the context."""
    # The ssl module reads files only; the key must not reach a disk.
    descriptor = os.memfd_create("muster-tls")
    try:
        os.write(descriptor, certificate_pem + b"\n" + key_pem)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


_FAILED = (500, refusal("the operator could not answer: its log says why"))


def _refuse(connection: Connection, answer: Answer) -> None:
    status, body = answer
    _answered(status).inc()
    connection.refuse(status, body)


def _send(connection: PendingRequest, answer: Answer) -> None:
    status, body = answer
    _answered(status).inc()
    connection.answer(status, body)


@functools.cache
def _answered(status: int) -> Counter:
    return _reports.labels(status)


def _refuse_outsider(endpoint: ReportEndpoint[Any], caller: Caller) -> Answer:
    return 403, refusal(endpoint.refusal_message(caller))

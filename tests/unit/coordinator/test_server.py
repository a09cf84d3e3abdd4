"""The launchers' door over real TLS connections: who gets in, what is held, what lets it go."""

import asyncio
import contextlib
import json
import ssl
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import aiohttp
import pytest
from cryptography import x509
from tests.unit.clock import StepClock
from tests.unit.coordinator.strangers import TOKENS, UNDECIDED, Strangers, abort
from tests.unit.waiting import until

from muster.coordinator import endpoints, memory, server
from muster.coordinator.auth import AuthError, Caller
from muster.coordinator.checkers import CheckerHub
from muster.coordinator.connection_limiter import HANDSHAKES_PER_SECOND, Limits
from muster.coordinator.http import Connection, Head
from muster.coordinator.hub import Hub
from muster.coordinator.server import SHARE_OF_POD, CoordinatorServer
from muster.kube.certificates import Authorities, certificates_after, new_authority, new_serving
from muster.protocol import messages
from muster.protocol.messages import MAX_REPORT_BYTES, REPORT_PATH, Directive, Report

NOW = datetime.now(UTC)
AUTHORITY = new_authority(NOW)
CERTIFICATES = certificates_after(None, Authorities(AUTHORITY), ("localhost",), NOW)
WAIT = Directive(kind=messages.WAIT, attempt=1, reason="waiting for the others")
DEADLINE = 90.0


class Controller:
    """Stands in for the decisions: what each pod is told, and whether we lead."""

    def __init__(self) -> None:
        self.directives: dict[str, Directive] = {"u1": WAIT}
        self.not_ready = ""
        self.leader: str | None = None
        self.verified: dict[str, Caller] = {}
        self.broken = ""  # pod for which no directive can be found out
        self.nodes = {"node"}

    def known(self, authorization: str) -> Caller | None:
        return self.verified.get(authorization)

    async def verify(self, authorization: str) -> Caller:
        if not authorization:
            raise AuthError("send a token")
        # A token of these tests is the pod's uid, after "namespace/account/" where it is not in `team`.
        *where, pod = authorization.rsplit("/", 2)
        namespace, account = where or ("team", "default")
        caller = Caller(namespace, f"pod-{pod}", pod, "node", "node-uid", account)
        self.verified[authorization] = caller
        return caller

    def directive_for(self, caller: Caller) -> Directive | None:
        if caller.pod_uid == self.broken:
            raise ValueError(caller.pod_uid)
        return self.directives.get(caller.pod_uid)


class Door:
    """The server and a client of it."""

    def __init__(self) -> None:
        self.cpu = StepClock(1e-5)
        self.controller = Controller()
        self.hub = Hub()
        self.checkers = CheckerHub()
        self.server = CoordinatorServer(
            self.hub,
            self.controller,
            self.controller.directive_for,
            lambda caller: self.controller.directive_for(caller) is not None,
            lambda: self.controller.not_ready,
            lambda: self.controller.leader,
            self.cpu,
            checkers=endpoints.checker_endpoint(
                self.checkers, "muster-check", lambda node: node in self.controller.nodes
            ),
        )
        self.port = 0
        self.sequence = 0
        self.session = aiohttp.ClientSession()
        self.trust = ssl.create_default_context(cadata=CERTIFICATES.bundle.decode())

    async def post(self, body: bytes, pod: str = "u1", path: str = REPORT_PATH) -> tuple[int, bytes]:
        url = f"https://localhost:{self.port}{path}"
        timeout = aiohttp.ClientTimeout(total=DEADLINE)
        async with self.session.post(
            url, data=body, headers={"Authorization": pod} if pod else {}, ssl=self.trust, timeout=timeout
        ) as response:
            return response.status, await response.read()

    async def report(self, pod: str = "u1", **fields: Any) -> tuple[int, bytes]:
        self.sequence += 1
        return await self.post(messages.encode(Report(sequence=self.sequence, state=messages.IDLE, **fields)), pod)

    async def held(self, pod: str = "u1", **fields: Any) -> "asyncio.Task[tuple[int, bytes]]":
        """A request that the server holds by now."""
        before = set(self.server._waiting.values())
        seen = messages.digest(self.controller.directives[pod])
        task = asyncio.create_task(self.report(pod, directive_seen=seen, hold_seconds=60.0, **fields))
        await until(lambda: task.done() or not set(self.server._waiting.values()) <= before)
        assert not task.done()
        return task


@pytest.fixture
async def door(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Door]:
    monkeypatch.setattr(server, "MAX_HOLD_SECONDS", 60.0)  # held for longer than a machine stands still
    made = Door()
    serving = CERTIFICATES.serving
    made.port = await made.server.start("localhost", 0, serving.certificate, serving.key)
    yield made
    await made.session.close()
    await made.server.stop()


async def test_report_is_recorded_and_answered_with_the_directive(door: Door) -> None:
    status, body = await door.report(step=12)
    assert (status, messages.decode_directive(body)) == (200, WAIT)
    view = door.hub.views_of(["u1"])["u1"]
    assert view.step == 12


@pytest.mark.parametrize(
    ("pod", "body", "want", "says"),
    [
        pytest.param("", b"{}", 401, "send a token", id="no token"),
        pytest.param("u1", b"nonsense", 400, "not JSON", id="no JSON"),
        pytest.param("u1", b'{"sequence": 1}', 400, "report.state is missing", id="incomplete"),
        pytest.param("u1", b" " * (MAX_REPORT_BYTES + 1), 413, "262144 bytes", id="too large"),
        pytest.param("u9", b'{"sequence": 1, "state": "Idle"}', 403, "pod team/pod-u9 is no worker", id="stranger"),
    ],
)
async def test_refused(door: Door, pod: str, body: bytes, want: int, says: str) -> None:
    status, answer = await door.post(body, pod)
    assert (status, says in json.loads(answer)["error"]) == (want, True)
    assert door.hub.views_of(["u1", "u9"]) == {}


async def test_a_worker_whose_token_is_accepted_counts_as_refused_no_more(door: Door) -> None:
    loop = asyncio.get_running_loop()
    for seconds in (0, 40):
        worker = Caller("team", "pod-u1", "u1", "", "")
        door.server._refused.refuse(worker, "no", loop.time() + seconds, is_proven=True)
    assert sum(door.server._refused.count(loop.time(), {}).values()) == 1
    await door.report()
    assert sum(door.server._refused.count(loop.time(), {}).values()) == 0


async def test_not_leading(door: Door) -> None:
    door.controller.not_ready = "still reading"
    assert await door.report() == (503, b'{"error":"still reading"}')
    assert door.hub.last("u1") is None


@pytest.mark.parametrize("pod", ["u1", "u9", ""], ids=["a worker", "a stranger", "nobody"])
@pytest.mark.parametrize("leader", ["10.0.0.7:8443", ""], ids=["known", "unknown"])
async def test_a_replica_that_does_not_lead_names_the_leader(door: Door, pod: str, leader: str) -> None:
    door.controller.not_ready, door.controller.leader = "still reading", leader
    status, body = await door.report(pod)
    said = json.loads(body)
    assert (status, said["leader"], "does not lead" in said["error"]) == (421, leader, True)
    assert door.hub.last("u1") is None


async def test_held_until_the_directive_changes(door: Door) -> None:
    task = await door.held()
    door.server.notify(["u1"])  # false alarm
    assert set(door.server._waiting) == {"u1"}
    run = replace(WAIT, kind=messages.RUN)
    door.controller.directives["u1"] = run
    assert not task.done()
    door.server.notify(["u1", "u2"])
    status, body = await task
    assert (status, messages.decode_directive(body)) == (200, run)


async def test_large_answers_leave_the_loop_to_others(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    rests, sleep = list[float](), asyncio.sleep
    least = 0.03 * (1 / server.SHARE_OF_MEETINGS - 1)

    async def rest(seconds: float) -> None:
        rests.append(seconds)
        await sleep(0 if 0.9 * least <= seconds < server.SWEEP_SECONDS else seconds)

    monkeypatch.setattr(server.asyncio, "sleep", rest)
    run = replace(WAIT, kind=messages.RUN)
    pods = [f"u{number}" for number in range(20)]
    door.controller.directives.update(dict.fromkeys(pods, WAIT))
    tasks = [await door.held(pod) for pod in pods]
    door.controller.directives.update(dict.fromkeys(pods, run))
    door.cpu.step_seconds = 0.03
    for _ in range(2):
        door.server.notify_one_by_one(pods)  # a second word adds nothing to what is still to come
    left = []
    while door.server._waiting:
        left.append(len(door.server._waiting))
        await asyncio.sleep(0)
    door.cpu.step_seconds = 1e-5
    assert sorted(set(left), reverse=True) == list(range(20, 0, -1)), "one in a turn"
    assert [messages.decode_directive((await task)[1]) for task in tasks] == [run] * 20
    await until(lambda: not door.server._notifying)
    assert door.server._large == {}
    assert sum(0.9 * least <= seconds < server.SWEEP_SECONDS for seconds in rests) == 20
    task = await door.held("u1")
    door.controller.directives["u1"] = WAIT
    door.server.notify_one_by_one(["u1"])
    assert messages.decode_directive((await task)[1]) == WAIT


async def test_hold_ends_by_itself(door: Door) -> None:
    assert (await door.report(directive_seen=messages.digest(WAIT), hold_seconds=0.05))[0] == 200


async def test_new_directive_is_not_held(door: Door) -> None:
    status, _ = await door.report(directive_seen="another", hold_seconds=10.0)
    assert status == 200
    assert not door.server._waiting


async def test_change_while_the_report_is_recorded_is_not_missed(door: Door) -> None:
    def decide(caller: Caller, _: Report) -> None:
        door.controller.directives["u1"] = replace(WAIT, kind=messages.RUN)
        door.server.notify([caller.pod_uid])

    door.hub.subscribe(decide)
    _, body = await door.report(directive_seen=messages.digest(WAIT), hold_seconds=10.0)
    assert messages.decode_directive(body).kind == messages.RUN


async def test_newer_request_of_a_pod_releases_the_older(door: Door) -> None:
    first = await door.held()
    second = await door.held(attempt=1)
    assert (await first)[0] == 200
    assert not second.done()
    door.controller.directives["u1"] = replace(WAIT, kind=messages.EXIT)
    door.server.notify(["u1"])
    assert messages.decode_directive((await second)[1]).kind == messages.EXIT


async def test_news_of_a_pod_leaves_its_held_answer_alone(door: Door) -> None:
    held = await door.held()
    assert (await door.report(step=5, directive_seen=messages.digest(WAIT)))[0] == 200
    assert set(door.server._waiting) == {"u1"}
    assert not held.done()
    view = door.hub.views_of(["u1"])["u1"]
    assert view.step == 5
    door.controller.directives["u1"] = replace(WAIT, kind=messages.EXIT)
    door.server.notify(["u1"])
    assert messages.decode_directive((await held)[1]).kind == messages.EXIT


class Waiting(dict[str, Any]):
    """Whose answers are held; does something as soon as one is."""

    def __init__(self, then: Callable[[], object]) -> None:
        super().__init__()
        self._then = then

    def __setitem__(self, pod: str, waiter: Any) -> None:
        super().__setitem__(pod, waiter)
        asyncio.get_running_loop().call_soon(self._then)


async def test_change_that_nobody_told_of_goes_out_when_the_hold_ends(door: Door) -> None:
    changed = replace(WAIT, poll_seconds=2.0)
    door.server._waiting = Waiting(lambda: door.controller.directives.update(u1=changed))
    _, body = await door.report(directive_seen=messages.digest(WAIT), hold_seconds=0.3)
    assert messages.decode_directive(body).poll_seconds == 2.0


async def test_trouble_with_one_pod_does_not_keep_the_others_waiting(door: Door) -> None:
    door.controller.directives["u2"] = WAIT
    tasks = [await door.held("u1"), await door.held("u2")]
    del door.controller.directives["u1"]
    door.controller.directives["u2"] = replace(WAIT, kind=messages.EXIT)
    door.controller.broken = "u1"
    door.server.notify(["u1", "u2"])
    assert [(await task)[0] for task in tasks] == [500, 200]
    assert (await door.report("u1"))[0] == 500


async def test_launcher_that_hangs_up_is_not_waited_for(door: Door) -> None:
    task = await door.held()
    task.cancel()
    await until(lambda: not door.server._waiting)


async def test_lost_leadership_ends_the_hold(door: Door) -> None:
    task = await door.held()
    door.controller.leader = "10.0.0.7:8443"
    door.server.notify(["u1"])
    assert (await task)[0] == 421


async def test_stop_answers_what_is_held(door: Door) -> None:
    door.controller.directives["u2"] = WAIT
    tasks = [await door.held("u1"), await door.held("u2")]
    await door.server.stop()
    assert [(await task)[0] for task in tasks] == [200, 200]


async def test_pod_that_was_replaced_while_held(door: Door) -> None:
    task = await door.held()
    del door.controller.directives["u1"]
    door.server.notify(["u1"])
    assert (await task)[0] == 403


async def test_memory_is_given_back_after_a_crowd_has_come_and_after_it_has_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[bool] = []
    door = Door()
    monkeypatch.setattr(server, "SWEEP_SECONDS", 0.01)
    monkeypatch.setattr(memory, "BURST_CONNECTIONS", 3)
    monkeypatch.setattr(memory, "release_memory", lambda *, garbage: given.append(garbage))
    serving = CERTIFICATES.serving
    door.port = await door.server.start("localhost", 0, serving.certificate, serving.key)

    async def opened(count: int) -> list[asyncio.StreamWriter]:
        return [(await asyncio.open_connection("localhost", door.port, ssl=door.trust))[1] for _ in range(count)]

    writers = await opened(3)
    try:
        await until(lambda: given == [False])
        writers += await opened(1)
        await asyncio.sleep(0.1)
        assert given == [False], "one more is no crowd"
        for writer in writers:
            writer.close()
        await until(lambda: given == [False, True])
    finally:
        for writer in writers:
            writer.close()
        await door.session.close()
        await door.server.stop()


def head_of(pod: str, length: int) -> bytes:
    return f"POST {REPORT_PATH} HTTP/1.1\r\nAuthorization: {pod}\r\nContent-Length: {length}\r\n\r\n".encode()


async def test_the_body_of_a_pod_that_is_no_worker_is_not_taken_in(door: Door) -> None:
    reader, writer = await asyncio.open_connection("localhost", door.port, ssl=door.trust)
    writer.write(head_of("u9", 250_000))
    assert (await asyncio.wait_for(reader.readline(), DEADLINE)).startswith(b"HTTP/1.1 403 ")
    writer.close()


@pytest.fixture
def distrustful(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """No token is good, and of one nobody finds out."""

    async def verify(authorization: str) -> Caller:
        if authorization == UNDECIDED:
            await asyncio.Event().wait()
        raise AuthError("no")

    monkeypatch.setattr(door.controller, "verify", verify)


@pytest.mark.usefixtures("distrustful")
@pytest.mark.parametrize("token", TOKENS)
async def test_of_clients_without_a_good_token_no_body_is_taken_in(
    door: Door, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    """What comes with the head is one record of TLS. Nightly, hundreds of them cost a process little memory."""
    clients, most_kept, receive = 20, dict[Connection, int](), Connection.data_received

    def data_received(connection: Connection, data: bytes) -> None:
        receive(connection, data)
        most_kept[connection] = max(most_kept.get(connection, 0), len(connection._received))

    monkeypatch.setattr(Connection, "data_received", data_received)
    sending = asyncio.create_task(Strangers(door.port, door.trust).send_big_bodies(token, clients, within=DEADLINE))
    await until(lambda: sending.done() or sum(one.is_asked_about for one in door.server.connections) == clients)
    await asyncio.sleep(0.05)  # for more to come
    for connection in list(door.server.connections):
        connection.abort()
    abort(await sending)
    assert len(most_kept) == clients
    assert max(most_kept.values()) <= 16 * 1024


async def test_of_one_pod_one_body_comes_in_at_a_time(door: Door) -> None:
    door.controller.directives["u2"] = WAIT
    opened = [await asyncio.open_connection("localhost", door.port, ssl=door.trust) for _ in range(3)]
    for (_, writer), pod in zip(opened, ("u2", "u1", "u1"), strict=True):
        writer.write(head_of(pod, 250_000) + b"x" * 100_000)
        await until(lambda pod=pod: any(c.receiving and c.caller.pod_uid == pod for c in door.server.connections))
    await until(lambda: len(door.server.connections) == 2)
    with contextlib.suppress(ConnectionResetError):  # as it is where not all was read that had been sent
        assert await opened[1][0].read() == b"", "the newest one's is waited for"
    assert sorted(c.caller.pod_uid for c in door.server.connections if c.caller) == ["u1", "u2"]
    for _, writer in opened:
        writer.close()


async def test_a_body_in_pieces_is_given_a_moment_before_a_newer_one_cuts_it_off(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "BODY_SECONDS", 2 * DEADLINE)
    body = messages.encode(Report(sequence=1, state=messages.IDLE))
    (first, sends), (second, sends_too) = [
        await asyncio.open_connection("localhost", door.port, ssl=door.trust) for _ in range(2)
    ]
    asked, receive = list[tuple[Any, ...]](), door.server._receive

    def asks(*request: Any) -> None:
        asked.append(request)
        receive(*request)

    monkeypatch.setattr(door.server, "_receive", asks)
    sends.write(head_of("u1", len(body)) + body[:10])
    await until(lambda: any(c.receiving for c in door.server.connections))
    sends_too.write(head_of("u1", len(body)) + body)
    await until(lambda: len(asked) == 2)
    sends.write(body[10:])
    assert (await asyncio.wait_for(first.readline(), DEADLINE)).startswith(b"HTTP/1.1 200 OK")
    door.server._rests.clear()  # the moment is over
    receive(*asked[1])
    assert (await asyncio.wait_for(second.readline(), DEADLINE)).startswith(b"HTTP/1.1 200 OK")
    for writer in (sends, sends_too):
        writer.close()


async def test_a_pod_has_so_many_connections_and_no_more(door: Door) -> None:
    body = messages.encode(Report(sequence=1, state=messages.IDLE))
    request = head_of("u1", len(body)) + body
    connections = []
    try:
        for count in range(1, server.MAX_CONNECTIONS_OF_POD + 3):
            connections.append(await asyncio.open_connection("localhost", door.port, ssl=door.trust))
            connections[-1][1].write(request)
            wanted = min(count, server.MAX_CONNECTIONS_OF_POD)
            assert (await connections[-1][0].readline()).startswith(b"HTTP/1.1 200 OK")
            await until(lambda: not door.server._unauthenticated and len(door.server.connections) == wanted)  # noqa: B023
        for reader, _ in connections[:2]:
            await reader.read()  # to its end: the oldest went
    finally:
        for _, writer in connections:
            writer.close()
    await until(lambda: not door.server.connections)
    assert (door.server._owners, door.server._by_pod) == ({}, {})


async def test_no_client_has_the_handshake_made_again_on_its_connection(door: Door) -> None:
    """`R` is s_client's command for it; TLS 1.3 has nothing of the kind."""
    port = f"localhost:{door.port}"
    client = await asyncio.create_subprocess_exec(
        "openssl", "s_client", "-connect", port, "-tls1_2", stdin=PIPE, stdout=PIPE, stderr=STDOUT
    )
    said, _ = await asyncio.wait_for(client.communicate(b"R\n"), DEADLINE)
    assert b"RENEGOTIATING" in said
    assert b"no renegotiation" in said
    assert server.server_context().options & ssl.OP_NO_RENEGOTIATION, "whatever the library's default is"


async def test_a_handshake_that_fails_leaves_nothing_behind(door: Door) -> None:
    _, writer = await asyncio.open_connection("localhost", door.port)
    await until(lambda: len(door.server._unauthenticated) == 1)
    writer.close()
    await until(lambda: not door.server._unauthenticated)
    assert door.server._limiter._unauthenticated == 0
    assert (await door.report())[0] == 200


@pytest.fixture
def quick_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """They alone end a handshake."""
    monkeypatch.setattr(server, "SWEEP_SECONDS", 0.02)
    monkeypatch.setattr(server, "HANDSHAKE_SECONDS", 1000.0)


@pytest.mark.usefixtures("quick_sweeps", "distrustful")
@pytest.mark.parametrize("addresses", [1, 3])
async def test_silent_connections_keep_no_client_out(
    door: Door, monkeypatch: pytest.MonkeyPatch, addresses: int
) -> None:
    """Nightly there are a thousand connections, and the limits that are shipped."""
    monkeypatch.setattr(server, "SLOW_HANDSHAKE_SECONDS", 0.02)
    door.server._limiter._limits = Limits(unauthenticated=6)
    strangers = Strangers(door.port, door.trust)
    await strangers.silent_connections_keep_no_client_out(8, addresses, within=DEADLINE)


class Budget:
    """A door's budget of two handshakes that grows by none."""

    def __init__(self, door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
        self._door = door.server._limiter
        self._port = door.port
        self._trust = door.trust
        monkeypatch.setattr(self._door, "_per_second", lambda: 1e-9)
        self._door._budget, self._door._counted_at = 2.0, asyncio.get_running_loop().time()

    @property
    def left(self) -> int:
        """How many handshakes there may be."""
        return round(self._door._budget)

    async def say(self, request: bytes) -> bytes:
        """The first line that comes back by a connection of its own, which is closed then; nothing of one that
        waits."""
        opening = asyncio.create_task(asyncio.open_connection("localhost", self._port, ssl=self._trust))
        await until(lambda: opening.done() or bool(self._door._waiting))
        if not opening.done():
            opening.cancel()
            return b""
        reader, writer = await opening
        writer.write(request)
        line = await asyncio.wait_for(reader.readline(), DEADLINE)
        writer.transport.abort()
        await until(lambda: self._door._unauthenticated == 0)
        return line


def report_of(pod: str) -> bytes:
    body = messages.encode(Report(sequence=1, state=messages.IDLE))
    return head_of(pod, len(body)) + body


async def test_a_good_token_gives_its_handshake_back_and_no_other_does(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    pods = [f"u{number}" for number in range(1, 6)]
    door.controller.directives = dict.fromkeys(pods, WAIT)
    budget = Budget(door, monkeypatch)
    for pod in pods:
        assert b" 200 " in await budget.say(report_of(pod))
    assert budget.left == 2
    assert b" 401 " in await budget.say(report_of(""))
    assert b" 403 " in await budget.say(report_of("nobody"))
    assert await budget.say(report_of("u1")) == b"", "it waits: nothing is left"


async def test_a_pod_that_connects_again_and_again_takes_from_the_budget(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    door.controller.directives["u2"] = WAIT
    monkeypatch.setattr(server, "CONNECTION_SECONDS", 3600.0)
    budget = Budget(door, monkeypatch)
    for _ in range(server.MAX_CONNECTIONS_OF_POD):
        assert b" 200 " in await budget.say(report_of("u1"))
    assert budget.left == 2
    assert b" 200 " in await budget.say(report_of("u1"))
    assert budget.left == 1
    assert b" 200 " in await budget.say(report_of("u2"))
    assert budget.left == 1


async def test_a_replica_that_serves_no_directives_answers_more_of_those_that_ask(door: Door) -> None:
    assert door.server._limiter._per_second() == HANDSHAKES_PER_SECOND
    door.controller.leader = "10.0.0.9:8443"
    assert door.server._limiter._per_second() == server.UNREADY_HANDSHAKES_PER_SECOND
    door.controller.leader, door.controller.not_ready = None, "lists are being read"
    assert door.server._limiter._per_second() == server.UNREADY_HANDSHAKES_PER_SECOND


async def test_certificate_is_replaced_under_a_running_server(door: Door) -> None:
    renewed = new_serving(AUTHORITY, ("localhost",), NOW)
    assert await served_serial(door) == CERTIFICATES.serving.parsed.serial_number
    door.server.load_certificate(renewed.certificate, renewed.key)
    assert await served_serial(door) == renewed.parsed.serial_number
    assert (await door.report())[0] == 200


async def served_serial(door: Door) -> int:
    _, writer = await asyncio.open_connection("localhost", door.port, ssl=door.trust)
    try:
        return x509.load_der_x509_certificate(writer.get_extra_info("ssl_object").getpeercert(True)).serial_number
    finally:
        writer.close()


def charge_reports_of(door: Door, pod: str, cpu_seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each report of this pod cost so much."""
    serve = door.server.serve

    def costly(connection: Connection, head: Head, body: bytes) -> None:
        answer = door.server._answer

        def computed(*args: Any) -> Any:
            assert connection.caller is not None
            door.cpu.advance(cpu_seconds if connection.caller.pod_uid == pod else 0.0)
            return answer(*args)

        with monkeypatch.context() as patch:
            patch.setattr(door.server, "_answer", computed)
            serve(connection, head, body)

    monkeypatch.setattr(door.server, "serve", costly)


async def test_a_pod_that_costs_much_makes_no_other_wait(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    door.controller.directives["mob"] = WAIT
    charge_reports_of(door, "mob", 2 * DEADLINE * SHARE_OF_POD, monkeypatch)
    clock = asyncio.get_running_loop().time
    assert (await door.report("mob"))[0] == 200
    flood = [asyncio.create_task(door.report("mob")) for _ in range(6)]
    assert (await door.report())[0] == 200
    assert door.server._rests["u1"] - clock() < 0.2
    assert door.server._rests["mob"] - clock() > DEADLINE, "a hundred times what it has cost"
    assert not any(task.done() for task in flood)
    for task in flood:
        task.cancel()
    await asyncio.gather(*flood, return_exceptions=True)


async def test_a_pod_that_costs_much_is_let_in_after_its_rest(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    charge_reports_of(door, "u1", 0.1 * SHARE_OF_POD, monkeypatch)
    begun = asyncio.get_running_loop().time()
    assert [(await door.report())[0] for _ in range(3)] == [200] * 3
    assert asyncio.get_running_loop().time() - begun > 2 * 0.1


async def test_a_pod_pays_for_bodies_that_it_never_completes(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    cost = {"seconds": 0.5}
    monkeypatch.setattr(door.server._meter, "collect_seconds", lambda transport: cost["seconds"] if transport else 0.0)
    _, writer = await asyncio.open_connection("localhost", door.port, ssl=door.trust)
    writer.write(head_of("u1", 250_000) + b"x" * 1000)
    await until(lambda: any(connection.receiving for connection in door.server.connections))
    writer.close()
    await until(lambda: not door.server.connections)
    assert door.server._rests["u1"] - asyncio.get_running_loop().time() > 0.5 * 0.9 / SHARE_OF_POD
    cost["seconds"] = 0.0


async def test_a_connection_says_from_which_address_it_comes(door: Door) -> None:
    """The listener is of IPv4 or of both kinds, as the machine has them."""
    task = await door.held()
    assert {connection.host for connection in door.server.connections} <= {"127.0.0.1", "::1"}
    task.cancel()

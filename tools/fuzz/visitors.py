"""Those who come to the coordinator's door: bytes through the shipped HTTP connection, with tokens that are good."""

import asyncio
import time
from typing import TYPE_CHECKING

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric import ec

from fuzz import wire
from fuzz.inputs import CHECK, REPORT, TOKEN, Input, Sender
from muster.coordinator.auth import DISCOVERY_PATH, JWKS_PATH
from muster.coordinator.http import Connection
from muster.protocol.checks import CHECK_PATH
from muster.protocol.messages import REPORT_PATH, TOKEN_AUDIENCE

if TYPE_CHECKING:
    from simulate.life import Life

SWEEP_SECONDS = 1.0
ANSWER_SECONDS = 40.0  # a report that is held is answered after ten
LIFETIME_SECONDS = 1e7
_PATHS = {REPORT: REPORT_PATH, CHECK: CHECK_PATH}
_ISSUER = "https://kubernetes.default.svc"
_KEY = ec.derive_private_key(0xF0220, ec.SECP256R1())


class UnansweredError(AssertionError):
    """A report that got no answer."""


class Visitors:
    """All connections of a round."""

    def __init__(self, life: "Life") -> None:
        self._life = life
        self._tokens: dict[Sender, str] = {}
        self._newest: dict[Sender, _Line] = {}
        public = jwt.get_algorithm_by_name("ES256").to_jwk(_KEY.public_key(), as_dict=True)
        life.server.documents |= {
            JWKS_PATH: msgspec.json.encode({"keys": [{**public, "kid": "k", "alg": "ES256", "use": "sig"}]}),
            DISCOVERY_PATH: msgspec.json.encode({"issuer": _ISSUER}),
        }
        life.agenda.after(SWEEP_SECONDS, self._sweep)

    def come(self, one: Input) -> None:
        """Connect to the leader and send it."""
        leader = self._life.leader
        assert one.sender is not None
        if leader is None:
            return
        token = self._token(one.sender)
        if one.kind in _PATHS:
            body = wire.encode(one.document) if one.data is None else one.data.encode("latin-1")
            path, length = _PATHS[one.kind], len(body)
            head = f"POST {path} HTTP/1.1\r\nAuthorization: Bearer {token}\r\nContent-Length: {length}\r\n\r\n"
            data = head.encode() + body
        else:
            data = (one.data or "").encode("latin-1").replace(TOKEN.encode(), token.encode())
        connection = Connection(leader.operator.server)
        line = _Line(connection)
        self._newest[one.sender] = line
        connection.connection_made(line)
        # As it comes from a network: in pieces.
        piece = 1 + self._life.stream("pieces", str(one.sender)).randrange(len(data) + 1)
        for number, start in enumerate(range(0, len(data), piece)):
            self._life.agenda.after(number * 0.01, lambda start=start: line.bring(data[start : start + piece]))  # type: ignore[misc]
        self._life.agenda.after(ANSWER_SECONDS, lambda: self._leave_early(line, one))

    def _leave_early(self, line: "_Line", one: Input) -> None:
        assert one.sender is not None
        # Of two that a pod sends at once the older one is cut off.
        cut_off = line.is_over and self._newest[one.sender] is not line
        answered = line.sent.startswith(b"HTTP/1.1 ") or cut_off
        if one.kind in _PATHS and not answered and self._life.leader is not None:
            raise UnansweredError(f"a report is not answered: it got {bytes(line.sent[:80])!r}")
        line.abort()

    def _token(self, sender: Sender) -> str:
        if sender not in self._tokens:
            bound = {
                "namespace": sender.namespace,
                "pod": {"name": sender.name, "uid": sender.uid},
                "node": {"name": sender.node, "uid": "node"},
                "serviceaccount": {"name": sender.service_account, "uid": "account"},
            }
            claims = {
                "aud": [TOKEN_AUDIENCE],
                "iss": _ISSUER,
                "exp": time.time() + LIFETIME_SECONDS,
                "kubernetes.io": bound,
            }
            self._tokens[sender] = jwt.encode(claims, _KEY, algorithm="ES256", headers={"kid": "k"})
        return self._tokens[sender]

    def _sweep(self) -> None:
        """As the door does with connections that are over time."""
        for replica in self._life.replicas:
            for connection in list(replica.operator.server.connections):
                connection.expire(self._life.loop.time())
        self._life.agenda.after(SWEEP_SECONDS, self._sweep)


class _Line(asyncio.Transport):
    """A connection's other end, which reads everything at once.

    Attributes:
        is_over: it was cut, by either side.
    """

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self.sent = bytearray()
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._reads, self.is_over = True, False
        self._waiting: list[bytes] = []

    def bring(self, data: bytes) -> None:
        if self.is_over:
            return
        if self._reads:
            self._connection.data_received(data)
        else:
            self._waiting.append(data)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += data

    def pause_reading(self) -> None:
        self._reads = False

    def resume_reading(self) -> None:
        self._reads = True
        self._loop.call_soon(self._continue)

    def close(self) -> None:
        if not self.is_over:
            self.is_over = True
            self._loop.call_soon(self._connection.connection_lost, None)

    def abort(self) -> None:
        self.close()

    def _continue(self) -> None:
        while self._waiting and self._reads and not self.is_over:
            self._connection.data_received(self._waiting.pop(0))

"""Exchange messages with the coordinator over one keep-alive HTTPS connection: the client's end.

The connection leads to the Service, or to the leader by its address. Token and authorities are read again when they
change, because both are mounted files that the cluster renews.
"""

from __future__ import annotations

import dataclasses
import http.client
import ipaddress
import json
import os
import socket
import ssl
from typing import Any, Callable, Generic, List, Optional, Tuple, TypeVar
from urllib.parse import urlsplit

from muster.protocol.messages import ProtocolError, digest_of, encode

_CONNECT_SECONDS = 1.0  # a replica that is gone does not answer, and another has to be found soon
_HANDSHAKE_SECONDS = 3.0  # a running replica may be busy with thousands of clients
_MAX_ANSWER_BYTES = 1024 * 1024
_MISDIRECTED = 421  # answer of a replica that does not lead

T = TypeVar("T")
Target = Optional[Tuple[str, int]]  # address of the leader, None = the Service


class UnreachableError(Exception):
    """No usable answer came; the message says why."""


class RedirectedError(Exception):
    """The replica does not lead; the error names the replica that does."""

    def __init__(self, leader: Tuple[str, int]) -> None:
        super().__init__("%s:%d leads" % leader)
        self.leader = leader


@dataclasses.dataclass(frozen=True)
class Endpoint:
    """Address of the coordinator, with the credentials that a client presents and trusts.

    Attributes:
        server_name: the name in the coordinator's certificate.
    """

    host: str
    port: int
    server_name: str
    token_file: str
    ca_file: str


def host_and_port(url: str) -> Tuple[str, int]:
    """Split `https://host:port` into its host and port.

    Raises:
        ValueError: the URL has another form.
    """
    parts = urlsplit(url)
    host, port = parts.hostname, parts.port
    if not host or parts.scheme != "https":
        raise ValueError("no https://host:port: %r" % url)
    return host, port or 443


def leader_in(data: bytes) -> Optional[Tuple[str, int]]:
    """Return the leader's address in the answer of a replica that does not lead; None without a usable one."""
    try:
        host, _, port = str(json.loads(data)["leader"]).rpartition(":")
        address = ipaddress.ip_address(host.strip("[]"))
        return (str(address), int(port)) if 0 < int(port) < 65536 else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


class Channel(Generic[T]):
    """One keep-alive HTTPS connection, to the Service or to the leader by its address.

    Args:
        endpoint: address, token and TLS settings.
        path: of the URL that takes these messages.
        decode: parses the bytes of an answer, or raises ProtocolError.
        stays: whether it keeps to a replica that does not lead, as long as that answers.
    """

    def __init__(self, endpoint: Endpoint, path: str, decode: Callable[[bytes], T], stays: bool = False) -> None:
        self._endpoint = endpoint
        self._path = path
        self._decode = decode
        self._stays = stays
        self._connection: Optional[http.client.HTTPSConnection] = None
        self._context: Optional[ssl.SSLContext] = None
        self._ca_version: Tuple[int, int, int] = (0, 0, 0)
        self._target: Target = None

    def exchange(self, message: Any, timeout_seconds: float, target: Target = None) -> Tuple[T, str]:
        """Send a message and return the answer with its digest, with one retry if a kept connection proves closed.

        Raises:
            RedirectedError: another replica leads.
            UnreachableError: no usable answer came.
        """
        if target != self._target:
            self.close()
            self._target = target
        body = encode(message)
        kept = self._connection is not None
        try:
            return self._exchange(body, timeout_seconds)
        except (OSError, http.client.HTTPException, ProtocolError, ValueError) as error:
            self.close()
            if not kept or not isinstance(error, ConnectionError):
                raise UnreachableError(_describe(error)) from error
        return self.exchange(message, timeout_seconds, target)  # by a new connection now

    def close(self) -> None:
        """Drop the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _exchange(self, body: bytes, timeout_seconds: float) -> Tuple[T, str]:
        with open(self._endpoint.token_file, encoding="ascii") as stream:
            token = stream.read().strip()
        connection = self._connect(timeout_seconds)
        connection.sock.settimeout(timeout_seconds)
        headers = {"Authorization": "Bearer " + token, "Content-Type": "application/json"}
        connection.request("POST", self._path, body=body, headers=headers)
        response = connection.getresponse()
        data = response.read(_MAX_ANSWER_BYTES + 1)
        if response.status == _MISDIRECTED:
            if response.will_close or not self._stays:
                self.close()
            leader = leader_in(data)
            if leader is not None:
                raise RedirectedError(leader)
        elif response.status != http.client.OK:
            self.close()
        if response.status != http.client.OK:
            detail = data[:200].decode("utf-8", "replace").strip()
            raise UnreachableError("it answered %d %s %s" % (response.status, response.reason, detail))
        return self._decode(data), digest_of(data)

    def _connect(self, timeout_seconds: float) -> http.client.HTTPSConnection:
        if self._connection is None:
            connection = _NamedConnection(self._endpoint, self._target, self._tls(), timeout_seconds)
            connection.connect()
            self._connection = connection
        return self._connection

    def _tls(self) -> ssl.SSLContext:
        status = os.stat(self._endpoint.ca_file)
        version = (status.st_mtime_ns, status.st_ino, status.st_size)
        if self._context is None or version != self._ca_version:
            self._context = ssl.create_default_context(cafile=self._endpoint.ca_file)
            self._ca_version = version
        return self._context


class _NamedConnection(http.client.HTTPSConnection):
    """An HTTPS connection to an address that verifies the coordinator's own name, which the certificate carries."""

    def __init__(self, endpoint: Endpoint, target: Target, context: ssl.SSLContext, timeout_seconds: float) -> None:
        host, port = target or (endpoint.host, endpoint.port)
        super().__init__(host, port, timeout=min(timeout_seconds, _HANDSHAKE_SECONDS), context=context)
        self._tls_context = context
        self._tls_name = endpoint.server_name
        self._parts: Optional[List[bytes]] = None

    def request(self, *arguments: Any, **named: Any) -> None:
        """Send head and body of a request in one piece.

        Sent apart, they cost the operator as much as two requests, and another request of the same pod waits for the
        body.
        """
        self._parts = []
        try:
            super().request(*arguments, **named)
            whole = b"".join(self._parts)
        finally:
            self._parts = None
        self.send(whole)

    def send(self, data: Any) -> None:
        """Send the data, or keep them until the request is complete."""
        if self._parts is None:
            super().send(data)
        else:
            self._parts.append(bytes(data))

    def connect(self) -> None:
        """Open the connection."""
        plain = socket.create_connection(
            (self.host, self.port), min(_CONNECT_SECONDS, self.timeout or _CONNECT_SECONDS)
        )
        try:
            plain.settimeout(self.timeout)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.sock = self._tls_context.wrap_socket(plain, server_hostname=self._tls_name)
        except BaseException:
            plain.close()
            raise


def _describe(error: BaseException) -> str:
    return str(error) or type(error).__name__

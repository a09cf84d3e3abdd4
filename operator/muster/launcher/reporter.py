"""Talks to the coordinator: the core says what and when, two threads with a connection each do it."""

from __future__ import annotations

import http.client
import ipaddress
import json
import os
import random
import socket
import ssl
import threading
import time
from typing import Callable, Optional, Tuple

from muster.launcher.environment import Settings
from muster.launcher.reporter_core import POLL, TELL, Contact, Pause, ReporterCore, Send, Target
from muster.launcher.snapshot import Snapshot
from muster.protocol.messages import REPORT_PATH, Directive, ProtocolError, Report, decode_directive, digest_of, encode

_CONNECT_SECONDS = 1.0  # a replica that is gone answers nothing, and another has to be found soon
_HANDSHAKE_SECONDS = 3.0  # one that is there may be busy with thousands
_LAST_PAUSE_SECONDS = 0.1
_MAX_ANSWER_BYTES = 1024 * 1024
_MISDIRECTED = 421  # as a replica answers that does not lead


class UnreachableError(Exception):
    """No usable answer; says why."""


class RedirectedError(Exception):
    """The replica that was asked does not lead; says which one does."""

    def __init__(self, leader: Tuple[str, int]) -> None:
        super().__init__("%s:%d leads" % leader)
        self.leader = leader


def leader_in(data: bytes) -> Optional[Tuple[str, int]]:
    """The leader's address in the answer of a replica that does not lead; None if it names none that can be used."""
    try:
        host, _, port = str(json.loads(data)["leader"]).rpartition(":")
        address = ipaddress.ip_address(host.strip("[]"))
        return (str(address), int(port)) if 0 < int(port) < 65536 else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


class Channel:
    """One keep-alive HTTPS connection, to the Service or to the leader by its address.

    Args:
        stays: with a replica that does not lead, as long as it answers.
    """

    def __init__(self, settings: Settings, stays: bool = False) -> None:
        self._settings = settings
        self._stays = stays
        self._connection: Optional[http.client.HTTPSConnection] = None
        self._context: Optional[ssl.SSLContext] = None
        self._ca_version: Tuple[int, int, int] = (0, 0, 0)
        self._target: Target = None

    def exchange(self, report: Report, timeout_seconds: float, target: Target = None) -> Tuple[Directive, str]:
        """Send a report; returns the answer and its digest. One retry when a kept connection turns out to be closed.

        Raises:
            RedirectedError: another replica leads.
            UnreachableError: no answer, or none that can be used.
        """
        if target != self._target:
            self.close()
            self._target = target
        body = encode(report)
        kept = self._connection is not None
        try:
            return self._exchange(body, timeout_seconds)
        except (OSError, http.client.HTTPException, ProtocolError, ValueError) as error:
            self.close()
            if not kept or not isinstance(error, ConnectionError):
                raise UnreachableError(_describe(error)) from error
        return self.exchange(report, timeout_seconds, target)  # by a new connection now

    def close(self) -> None:
        """Drop the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _exchange(self, body: bytes, timeout_seconds: float) -> Tuple[Directive, str]:
        with open(self._settings.token_file, encoding="ascii") as stream:
            token = stream.read().strip()
        connection = self._connect(timeout_seconds)
        connection.sock.settimeout(timeout_seconds)
        headers = {"Authorization": "Bearer " + token, "Content-Type": "application/json"}
        connection.request("POST", REPORT_PATH, body=body, headers=headers)
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
        return decode_directive(data), digest_of(data)

    def _connect(self, timeout_seconds: float) -> http.client.HTTPSConnection:
        if self._connection is None:
            connection = _NamedConnection(self._settings, self._target, self._tls(), timeout_seconds)
            connection.connect()
            self._connection = connection
        return self._connection

    def _tls(self) -> ssl.SSLContext:
        status = os.stat(self._settings.ca_file)
        version = (status.st_mtime_ns, status.st_ino, status.st_size)
        if self._context is None or version != self._ca_version:
            self._context = ssl.create_default_context(cafile=self._settings.ca_file)
            self._ca_version = version
        return self._context


class _NamedConnection(http.client.HTTPSConnection):
    """Connects to an address but verifies the coordinator's own name, which the certificate carries."""

    def __init__(self, settings: Settings, target: Target, context: ssl.SSLContext, timeout_seconds: float) -> None:
        host, port = target or (settings.host, settings.port)
        super().__init__(host, port, timeout=min(timeout_seconds, _HANDSHAKE_SECONDS), context=context)
        self._tls_context = context
        self._tls_name = settings.server_name

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


class Reporter:
    """Drives the core by two threads, so that DNS, TLS or a dropped packet never hold up supervision."""

    def __init__(
        self,
        settings: Settings,
        identity: Report,  # the fields that never change
        wake: Callable[[], None],
        log: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._wake = wake
        self._changed = threading.Condition()
        scans = bool(settings.checkpoint_directory)
        self._core = ReporterCore(identity, scans, time.monotonic(), log, random.random)

    def start(self) -> None:
        """Start both threads."""
        for name in (POLL, TELL):
            threading.Thread(target=self._drive, args=(name,), name=name, daemon=True).start()

    def publish(self, snapshot: Snapshot) -> None:
        """Take over a new state; news is sent at once. Never blocks on the network."""
        with self._changed:
            if self._core.publish(snapshot):
                self._changed.notify_all()

    def directive(self) -> Optional[Directive]:
        """The newest directive."""
        with self._changed:
            return self._core.directive

    def contact(self) -> Optional[Contact]:
        """The last answered report."""
        with self._changed:
            return self._core.contact

    def send_last(self, snapshot: Snapshot, deadline_seconds: float) -> None:
        """One final report on a connection of its own, waited for at most so long."""
        with self._changed:
            self._core.publish(snapshot)
        done = threading.Thread(target=self._send_last, args=(deadline_seconds,), name="last", daemon=True)
        done.start()
        done.join(deadline_seconds)

    def _send_last(self, deadline_seconds: float) -> None:
        until = time.monotonic() + deadline_seconds
        with self._changed:
            target = self._core.leader
        while time.monotonic() < until:
            with self._changed:
                report = self._core.send(time.monotonic(), 0.0, 0.0).report
            try:
                Channel(self._settings).exchange(report, until - time.monotonic(), target)
                return
            except RedirectedError as error:
                target = error.leader if target is None else None
            except UnreachableError:
                target = None
            time.sleep(_LAST_PAUSE_SECONDS)

    def _drive(self, name: str) -> None:
        channel = Channel(self._settings, stays=name == TELL)
        while True:
            with self._changed:
                action = self._core.next_action(name, time.monotonic())
                while isinstance(action, Pause):
                    if name == POLL:  # what it does not say the other line may have to
                        self._changed.notify_all()
                    self._changed.wait(action.seconds)
                    action = self._core.next_action(name, time.monotonic())
            self._exchange(name, channel, action)

    def _exchange(self, name: str, channel: Channel, action: Send) -> None:
        try:
            directive, seen = channel.exchange(action.report, action.timeout_seconds, action.target)
        except UnreachableError as error:
            with self._changed:
                self._core.on_error(name, action, str(error), time.monotonic())
                self._changed.notify_all()
        except RedirectedError as error:
            with self._changed:
                self._core.on_redirection(name, action, error.leader, time.monotonic())
                self._changed.notify_all()
        else:
            with self._changed:
                self._core.on_answer(name, action, directive, seen, time.monotonic())
            self._wake()

"""Asks the neighbours whether they are there, past the coordinator: small UDP packets, echoed.

Silence is counted from the moment a ping was sent that got an answer, so that it is never too short. An answer names the
attempt that the neighbour knows of: a worker that has lost only the coordinator learns there that it was replaced.
"""

from __future__ import annotations

import os
import socket
from typing import Dict, Optional, Tuple

from muster.protocol.messages import Peer

_PING, _PONG = b"muster-ping ", b"muster-pong "
_NONCE_BYTES = 16
_PERIOD_SECONDS = 1.0
_PACKETS_PER_TURN = 64
_MAX_OPEN_PINGS = 16  # per neighbour; an answer to an older one is late by that many seconds


class Peers:
    """One UDP socket: answers pings, and sends them to the neighbours of the current attempt."""

    def __init__(self, pod_ip: str) -> None:
        family = socket.AF_INET6 if ":" in pod_ip else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_DGRAM)
        self.socket.setblocking(False)
        self.socket.bind(("", 0))
        self.port = int(self.socket.getsockname()[1])
        self._asked_for: Tuple[Peer, ...] = ()
        self._peers: Tuple[Peer, ...] = ()
        self._heard_at: Dict[int, float] = {}
        self._open: Dict[int, Dict[bytes, float]] = {}
        self._next_ping_at = 0.0
        self.attempt = 0  # the newest attempt that we know of; told in each answer
        self.newest_heard = 0  # the newest attempt that an answer has named

    def watch(self, peers: Tuple[Peer, ...], now: float, attempt_started: bool) -> None:
        """Ping these from now on; a new attempt forgets old silence.

        Within an attempt none is forgotten: a coordinator that is new knows fewer, and silence must go on counting.
        """
        if peers == self._asked_for and not attempt_started:
            return
        self._asked_for = peers
        known = {} if attempt_started else {peer: self._heard_at[peer.index] for peer in self._peers}
        named = {peer.index for peer in peers}
        self._peers = peers + tuple(peer for peer in known if peer.index not in named)
        self._heard_at = {peer.index: known.get(peer, now) for peer in self._peers}
        self._open = {peer.index: {} for peer in self._peers}
        self._next_ping_at = now

    def heard(self) -> Tuple[Tuple[int, float], ...]:
        """For each neighbour: index and since when it can be said to answer."""
        return tuple((peer.index, self._heard_at[peer.index]) for peer in self._peers)

    def turn(self, now: float) -> None:
        """Answer what came in, and ping when it is time."""
        for _ in range(_PACKETS_PER_TURN):
            try:
                data, sender = self.socket.recvfrom(256)
            except OSError:  # nothing there, or an ICMP error for an earlier packet
                break
            self._receive(data, sender)
        if now >= self._next_ping_at and self._peers:
            self._next_ping_at = now + _PERIOD_SECONDS
            self._ping(now)

    def next_at(self) -> Optional[float]:
        """When `turn` has something to send."""
        return self._next_ping_at if self._peers else None

    def _receive(self, data: bytes, sender: Tuple[str, int]) -> None:
        kind, nonce, rest = data[: len(_PING)], data[len(_PING) :][:_NONCE_BYTES], data[len(_PING) + _NONCE_BYTES :]
        if len(nonce) != _NONCE_BYTES:
            return
        if kind == _PING:
            self._send(_PONG + nonce + b" %d" % self.attempt, sender)
        elif kind == _PONG:
            for index, sent in self._open.items():
                if nonce in sent:
                    self._heard_at[index] = max(self._heard_at[index], sent.pop(nonce))
                    if rest[:1] == b" " and rest[1:].isdigit():
                        self.newest_heard = max(self.newest_heard, int(rest[1:]))

    def _ping(self, now: float) -> None:
        for peer in self._peers:
            if not _is_address(peer.address):
                continue
            nonce = os.urandom(_NONCE_BYTES)
            sent = self._open[peer.index]
            sent[nonce] = now
            while len(sent) > _MAX_OPEN_PINGS:
                sent.pop(next(iter(sent)))
            self._send(_PING + nonce, (peer.address, peer.port))

    def _send(self, data: bytes, target: Tuple[str, int]) -> None:
        try:
            self.socket.sendto(data, target)
        except (OSError, OverflowError):  # no route, a full buffer: the same as a lost packet
            return


def _is_address(text: str) -> bool:
    """Whether it is an IP address: a name would be looked up, and that can hang."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, text)
        except OSError:
            continue
        return True
    return False

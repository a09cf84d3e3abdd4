"""Asks the neighbours whether they are there, past the coordinator, and passes on what they know: small UDP packets.

Silence is counted from the moment a ping was sent that got an answer, so that it is never too short. An answer names
the newest attempt that the neighbour knows of, by the coordinator or by its own neighbours, and how long ago one
last found the gang broken: a member silent for the length of the fence, or fenced. So a member cut off together with
all its neighbours learns it too. The news is asked for, not sent: an answer carries a number that only the one who was
asked knows, a ping does not. Who has news says so in its pings (`!`), and is asked at once.

    ping  muster-ping <16 bytes>[ ?|! <gang>]
    pong  muster-pong <the 16 bytes> <newest attempt>[ <attempt> <milliseconds since it was found broken>]

What is in brackets of a pong is sent to those alone who ask for it.

Tests: tests/unit/launcher/test_cut_off.py.
"""

from __future__ import annotations

import os
from typing import Callable, Dict, List, Optional, Tuple

from muster.node.launcher.datagrams import Address, Datagrams
from muster.protocol.messages import Peer

_PING, _PONG = b"muster-ping ", b"muster-pong "
_ASKS, _HAS_NEWS = b" ?", b" !"
_NONCE_BYTES = 16
_PERIOD_SECONDS = 1.0
_PACKETS_PER_TURN = 64
_MAX_OPEN_PINGS = 32  # per neighbour; an answer to an older one is too late
_SHORTEST_PERIOD_SECONDS = 0.05  # between pings of one neighbour, however often it says that it has news
_OLD_NEWS_SECONDS = 3.0  # what is newer by this than all before is told at once
_MAX_DIGITS = 15


class Peers:
    """Answers pings, sends them to the neighbours of the current attempt, and keeps the news of that attempt."""

    def __init__(self, datagrams: Datagrams, gang: str = "", nonce: Callable[[int], bytes] = os.urandom) -> None:
        self._datagrams = datagrams
        self._gang = gang.encode("ascii", "replace")
        self._nonce = nonce
        self._running = 0  # the attempt whose ranks are here, 0 = none
        self._asked_for: Tuple[Peer, ...] = ()
        self._peers: Tuple[Peer, ...] = ()
        self._count = 0  # of the neighbours, those of which nothing is known yet among them
        self._began_at = self._told_at = 0.0
        self._heard_at: Dict[int, float] = {}
        self._pinged_at: Dict[int, float] = {}
        self._open: Dict[int, Dict[bytes, float]] = {}
        self._next_ping_at = 0.0
        self._has_news = False  # that the neighbours may not know yet
        self._known = 0  # the newest attempt that the coordinator has named
        self.port = datagrams.port
        self.descriptor = datagrams.descriptor
        self.newest_heard = 0  # the newest attempt that an answer has named
        self.broken_at: Optional[float] = None  # when a launcher last found the gang of this attempt broken

    def note_attempt(self, attempt: int) -> None:
        """Take in an attempt that the coordinator has named; each later answer to a neighbour names it."""
        if attempt > max(self._known, self.newest_heard):
            self._spread()
        self._known = max(self._known, attempt)

    def begin(
        self, attempt: int, peers: Tuple[Peer, ...], count: int, now: float, told_at: Optional[float] = None
    ) -> None:
        """Forget old silence and news, because the ranks of an attempt start here, or none run any more.

        Args:
            attempt: the attempt that starts; 0 = no ranks run.
            peers: the neighbours to ping.
            count: how many neighbours there are in all; 0 = not known.
            now: seconds of the monotonic clock.
            told_at: when the report was sent whose answer opened the start barrier; None = now. The silence of a
                neighbour that
            never answers counts from then.
        """
        self._running = attempt
        self.broken_at = None
        self._peers = ()
        self._count = 0
        self._began_at, self._told_at = now, now if told_at is None else told_at
        self._heard_at = {}
        self._open = {}
        self._asked_for = ()
        self.set_neighbours(peers, count, now)

    def set_neighbours(self, peers: Tuple[Peer, ...], count: int, now: float) -> None:
        """Ping these neighbours from now on, besides those named earlier in the attempt.

        Within an attempt no neighbour is forgotten. A new coordinator may know fewer of them, and their silence has to
        go on counting, also after a change of their address.

        Args:
            peers: the neighbours to ping.
            count: how many neighbours there are in all; 0 = not known.
            now: seconds of the monotonic clock.
        """
        self._count = max(self._count, count)
        if peers == self._asked_for:
            return
        self._asked_for = peers
        previous_peers = {peer.index: peer for peer in self._peers}
        named = {peer.index for peer in peers}
        self._peers = peers + tuple(peer for index, peer in previous_peers.items() if index not in named)
        self._heard_at = {peer.index: self._heard_at.get(peer.index, now) for peer in self._peers}
        self._open = {
            peer.index: self._open[peer.index] if previous_peers.get(peer.index) == peer else {} for peer in self._peers
        }
        self._pinged_at = {}
        self._next_ping_at = now

    def silent_seconds(self, now: float) -> List[float]:
        """The seconds for which each neighbour has been silent. A neighbour without any answer counts from the start
        barrier.

        So does one entry for neighbours whose address is not known yet. A new coordinator cannot name a neighbour that
        is cut off from it. That neighbour gets no answer from here either: the rule needs both sides to notice their
        silence.
        """
        silences = [now - (at if at > self._began_at else self._told_at) for at in self._heard_at.values()]
        return [*silences, now - self._told_at] if len(silences) < self._count else silences

    def heard(self) -> Tuple[Tuple[int, float], ...]:
        """The index of each neighbour, and the time since when it is known to answer."""
        return tuple((peer.index, self._heard_at[peer.index]) for peer in self._peers)

    def found_broken(self, moment: float) -> None:
        """Note that a launcher has found the gang of this attempt broken at `moment`, and pass the news on."""
        previous_moment = self.broken_at
        if previous_moment is None or moment > previous_moment:
            self.broken_at = moment
            if previous_moment is None or moment > previous_moment + _OLD_NEWS_SECONDS:
                self._spread()

    def poll(self, now: float) -> bool:
        """Answer the packets that came in, and ping when it is time. Returns whether there is news of the gang."""
        previous_news = self.newest_heard, self.broken_at
        for _ in range(_PACKETS_PER_TURN):
            packet = self._datagrams.receive()
            if packet is None:
                break
            self._receive(packet[0], packet[1], now)
        if now >= self._next_ping_at and self._peers:
            self._next_ping_at = now + _PERIOD_SECONDS
            kind = _HAS_NEWS if self._has_news else _ASKS
            self._has_news = False
            for peer in self._peers:
                self._ping(peer, kind, now)
        return previous_news != (self.newest_heard, self.broken_at)

    def next_at(self) -> Optional[float]:
        """The time at which `poll` next has to send a ping; None where there are no neighbours."""
        return self._next_ping_at if self._peers else None

    def _spread(self) -> None:
        self._has_news = True
        self._next_ping_at = 0.0

    def _receive(self, data: bytes, sender: Address, now: float) -> None:
        kind, nonce, rest = data[: len(_PING)], data[len(_PING) :][:_NONCE_BYTES], data[len(_PING) + _NONCE_BYTES :]
        if len(nonce) != _NONCE_BYTES:
            return
        if kind == _PING:
            self._answer(nonce, rest, sender, now)
        elif kind == _PONG:
            self._note_answer(nonce, rest)

    def _answer(self, nonce: bytes, rest: bytes, sender: Address, now: float) -> None:
        asks, gang = rest[: len(_ASKS)], rest[len(_ASKS) + 1 :]
        if gang and self._gang and gang != self._gang:
            return  # the address is another's by now, and the one who was there is gone
        text = b" %d" % max(self._known, self.newest_heard)
        if asks in (_ASKS, _HAS_NEWS) and self.broken_at is not None:
            text += b" %d %d" % (self._running, max(0, int((now - self.broken_at) * 1000)))
        self._datagrams.send(_PONG + nonce + text, sender)
        if asks == _HAS_NEWS:
            for peer in self._peers:
                if peer.address == sender[0] and now - self._pinged_at.get(peer.index, 0.0) > _SHORTEST_PERIOD_SECONDS:
                    self._ping(peer, _ASKS, now)

    def _note_answer(self, nonce: bytes, rest: bytes) -> None:
        for index, sent in self._open.items():
            if nonce in sent:
                sent_at = sent.pop(nonce)
                self._heard_at[index] = max(self._heard_at[index], sent_at)
                self._learn(_numbers(rest), sent_at)

    def _learn(self, numbers: Tuple[int, ...], sent_at: float) -> None:
        """Take in the numbers of a neighbour's answer.

        The age of the news counts from when the answer was asked for, so that news never gets younger on its way.

        Args:
            numbers: newest attempt, and for news also the broken attempt and its age in milliseconds.
            sent_at: when the ping was sent.
        """
        if numbers and numbers[0] > self.newest_heard:
            self.newest_heard = numbers[0]
            if self.newest_heard > self._known:
                self._spread()
        if len(numbers) >= 3 and numbers[1] == self._running:
            self.found_broken(sent_at - numbers[2] / 1000.0)

    def _ping(self, peer: Peer, kind: bytes, now: float) -> None:
        nonce = self._nonce(_NONCE_BYTES)
        sent = self._open[peer.index]
        sent[nonce] = self._pinged_at[peer.index] = now
        while len(sent) > _MAX_OPEN_PINGS:
            sent.pop(next(iter(sent)))
        gang = b" " + self._gang if self._gang else b""
        self._datagrams.send(_PING + nonce + kind + gang, (peer.address, peer.port))


def _numbers(text: bytes) -> Tuple[int, ...]:
    """The numbers at the beginning of an answer, up to the first word that is no number."""
    numbers = []
    for word in text.split():
        if not word.isdigit() or len(word) > _MAX_DIGITS:
            break
        numbers.append(int(word))
    return tuple(numbers)

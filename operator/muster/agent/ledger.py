"""What stands against the node now: the life of each piece of evidence, from signals and incidents.

Times that decide (sustained, cleared, expired, burst) are monotonic; the wall clock, which may jump, is only told.
Nothing here can grow without bound: a flood ends in one entry, and of too many entries the weakest goes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from muster.agent import kinds
from muster.agent.facts import Clock, Incident, Signal, clean

MAX_SENT = 64
"""As many as NodeHealth holds."""
MAX_KEPT = 512
_SUBJECT, _VALUE, _MESSAGE, _CODE = 128, 128, 512, 2**31 - 1

_Key = tuple[str, str, int]


@dataclass(slots=True)
class Entry:
    """One piece of evidence."""

    kind: str
    subject: str
    code: int
    value: str
    threshold: str
    message: str
    first: Clock
    last: Clock
    count: int = 1
    burst_began: float = 0.0
    counter: float | None = None
    good_since: float | None = None
    expires_seconds: float | None = None
    """Of incidents; None: it goes when signals say that it is gone."""
    brief: bool = False
    """As of an incident."""

    @property
    def strength(self) -> tuple[int, float]:
        """Smaller is stronger; of the same rank the newer."""
        return kinds.rank(self.kind, self.code), -self.last.mono


@dataclass(frozen=True)
class Stored:
    """A piece of evidence as an agent before this one has written it."""

    kind: str
    subject: str
    code: int
    value: str
    threshold: str
    message: str
    first_wall: float
    last_wall: float
    count: int
    boot_id: str


class Ledger:
    """All evidence of one boot of the node."""

    def __init__(self, boot_id: str, burst_seconds: float) -> None:
        self.boot_id = boot_id
        self.news = False
        """Something appeared, went or changed its code since this was last set back."""
        self.counted = False
        """A count, a value or a message changed."""
        self._burst_seconds = burst_seconds
        self._entries: dict[_Key, Entry] = {}
        self._bad_since: dict[_Key, float] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def entries(self) -> list[Entry]:
        """Everything that is kept, strongest first."""
        return sorted(self._entries.values(), key=lambda entry: (*entry.strength, entry.subject, entry.code))

    def has(self, kind: str, subject: str | None = None) -> bool:
        """Whether there is evidence of a kind (about a subject)."""
        return any(key[0] == kind and subject in (None, key[1]) for key in self._entries)

    def sample(self, signals: Iterable[Signal], now: Clock) -> None:
        """Take in what is bad and what is good now."""
        for signal in signals:
            key = (signal.kind, clean(signal.subject, _SUBJECT), 0)
            if signal.bad:
                self._bad(key, signal, now)
            else:
                self._good(key, signal, now)

    def _bad(self, key: _Key, signal: Signal, now: Clock) -> None:
        since = self._bad_since.setdefault(key, now.mono)
        entry = self._entries.get(key)
        if entry is None:
            if now.mono - since >= signal.sustain_seconds:
                self._add(key, _of_signal(key[1], signal, now))
            return
        entry.good_since = None
        entry.last = _later(entry.last, now)
        if entry.code != signal.code:
            entry.code, entry.value, entry.threshold = signal.code, clean(signal.value, _VALUE), signal.threshold
            entry.message = clean(signal.message, _MESSAGE)
            self.news = True
        if signal.counter is not None:
            if entry.counter is not None and signal.counter > entry.counter:
                entry.value, entry.message = clean(signal.value, _VALUE), clean(signal.message, _MESSAGE)
                self._occurred(entry, now.mono)
                self.counted = True
            entry.counter = signal.counter

    def _good(self, key: _Key, signal: Signal, now: Clock) -> None:
        self._bad_since.pop(key, None)
        entry = self._entries.get(key)
        if entry is None:
            return
        if entry.good_since is None:
            entry.good_since = now.mono
        if now.mono - entry.good_since >= signal.clear_seconds:
            self._remove(key)

    def record(self, incident: Incident, now: Clock) -> None:
        """Take in something that happened; told twice, it counts once."""
        age = max(0.0, incident.age_seconds)
        if age >= incident.expires_seconds:
            return
        then = Clock(now.mono - age, now.wall - age)
        key = (incident.kind, clean(incident.subject, _SUBJECT), min(max(incident.code, 0), _CODE))
        entry = self._entries.get(key)
        if entry is None:
            self._add(key, _of_incident(key, incident, then))
            return
        if entry.brief and not incident.brief:
            entry.message, entry.brief = clean(incident.message, _MESSAGE), False
            self.counted = True
        if then.mono < entry.first.mono:
            entry.first = then
        if then.mono <= entry.last.mono:
            return
        self._occurred(entry, then.mono)
        entry.last = _later(entry.last, then)

    def _occurred(self, entry: Entry, mono: float) -> None:
        """Once more, unless it belongs to the burst that is counted already."""
        if mono - entry.burst_began > self._burst_seconds:
            entry.burst_began = mono
            entry.count += 1
            self.counted = True

    def expire(self, now: Clock) -> None:
        """Forget incidents that are too old."""
        old = [
            key
            for key, entry in self._entries.items()
            if entry.expires_seconds is not None and now.mono - entry.last.mono > entry.expires_seconds
        ]
        for key in old:
            self._remove(key)

    def adopt(self, stored: Iterable[Stored], expires: Mapping[str, float], now: Clock) -> None:
        """Take over what an earlier agent has written in this boot of the node; signals will clear what is gone.

        `expires`: by kind, in seconds, of the kinds that incidents have.
        """
        for item in stored:
            if item.boot_id != self.boot_id or item.kind not in kinds.STRONGEST_FIRST:
                continue
            expires_seconds = expires.get(item.kind) if not item.subject.startswith("/") else None
            age = max(0.0, now.wall - item.last_wall)
            if expires_seconds is not None and age > expires_seconds:
                continue
            last = Clock(now.mono - age, now.wall - age)
            first = Clock(last.mono - max(0.0, item.last_wall - item.first_wall), min(item.first_wall, last.wall))
            key = (item.kind, item.subject, item.code if expires_seconds is not None else 0)
            entry = Entry(
                item.kind,
                item.subject,
                item.code,
                item.value,
                item.threshold,
                item.message,
                first,
                last,
                max(1, item.count),
                burst_began=last.mono,
                expires_seconds=expires_seconds,
            )
            present = self._entries.get(key)
            if present is None:
                self._entries[key] = entry
            else:
                _merge(present, entry)
        self._bound()

    def rename(self, subjects: Mapping[str, str]) -> None:
        """Things that have got their proper names, by the ones that they had."""
        for key in [key for key in self._entries if key[1] in subjects]:
            entry = self._entries.pop(key)
            entry.subject = subjects[key[1]]
            renamed = (key[0], entry.subject, key[2])
            present = self._entries.get(renamed)
            if present is None:
                self._entries[renamed] = entry
            else:
                _merge(present, entry)
            self.news = True

    def restart(self, boot_id: str) -> None:
        """The node has booted: nothing of before stands any more."""
        self.boot_id = boot_id
        self.news = True
        self._entries.clear()
        self._bad_since.clear()

    def evidence(self) -> list[dict[str, Any]]:
        """As it is sent: the strongest that fit."""
        return [_rendered(entry, self.boot_id) for entry in self.entries()[:MAX_SENT]]

    def _add(self, key: _Key, entry: Entry) -> None:
        self._entries[key] = entry
        self.news = True
        self._bound()

    def _bound(self) -> None:
        if len(self._entries) > MAX_KEPT:
            weakest = max(self._entries.items(), key=lambda item: item[1].strength)
            del self._entries[weakest[0]]

    def _remove(self, key: _Key) -> None:
        del self._entries[key]
        self.news = True


def _of_signal(subject: str, signal: Signal, now: Clock) -> Entry:
    return Entry(
        signal.kind,
        subject,
        signal.code,
        clean(signal.value, _VALUE),
        clean(signal.threshold, _VALUE),
        clean(signal.message, _MESSAGE),
        now,
        now,
        burst_began=now.mono,
        counter=signal.counter,
    )


def _of_incident(key: _Key, incident: Incident, then: Clock) -> Entry:
    kind, subject, code = key
    value, message = clean(incident.value, _VALUE), clean(incident.message, _MESSAGE)
    return Entry(
        kind,
        subject,
        code,
        value,
        "",
        message,
        then,
        then,
        burst_began=then.mono,
        expires_seconds=incident.expires_seconds,
        brief=incident.brief,
    )


def _later(last: Clock, now: Clock) -> Clock:
    """The wall clock may have been set back; what was last seen never was before."""
    return now if now.wall >= last.wall else replace(now, wall=last.wall)


def _merge(into: Entry, other: Entry) -> None:
    if into.brief and not other.brief:
        into.message, into.brief = other.message, False
    if other.first.mono < into.first.mono:
        into.first = other.first
    if other.last.mono > into.last.mono:
        into.last = other.last
    into.burst_began = max(into.burst_began, other.burst_began)
    into.count = max(into.count, other.count)


def _rendered(entry: Entry, boot_id: str) -> dict[str, Any]:
    # Both times come from the same clock, but it may have been set back between them.
    last = max(entry.last.wall, entry.first.wall)
    return {
        "kind": entry.kind,
        "subject": entry.subject,
        "code": entry.code,
        "value": entry.value,
        "threshold": entry.threshold,
        "message": entry.message,
        "firstSeen": _time(entry.first.wall),
        "lastSeen": _time(last),
        "count": entry.count,
        "bootId": boot_id,
    }


def _time(wall: float) -> str:
    return datetime.fromtimestamp(max(0.0, wall), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

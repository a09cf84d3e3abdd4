"""Keeps the evidence against the node: the life of each piece of evidence, from signals and events.

Decisions (sustained, cleared, expired, burst) use monotonic times; the wall clock, which may jump, is only published.
Nothing here can grow without bound: a flood ends in one entry, and of too many entries the weakest goes.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from muster.node.agent import kinds
from muster.node.agent.facts import Clock, FaultEvent, Signal, clean

MAX_SENT = 64
"""The number of entries that NodeHealth holds."""
MAX_KEPT = 512
_SUBJECT, _VALUE, _MESSAGE, _CODE = 128, 128, 512, 2**31 - 1

_MOST_VARIANTS = 8
_CLOCKS_SECONDS = 120.0
"""The largest difference of the clocks that date events before this agent: the log's, and the wall clock of stored
evidence."""
_BACK_SECONDS = 3600.0
"""Evidence that returns within this time of its end has come back."""
_LONGEST_CLEAR_SECONDS = 3600.0
_RESET_VALUE = re.compile(r"(\d{1,12}\.\d{3}) s after the boot")

_Key = tuple[str, str, int, str]
"""Kind, subject, code, and for events the value: an error reported as fatal differs from one reported as not
fatal."""


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
    """For events; None: the entry ends when signals say that the fault is gone."""
    brief: bool = False
    """As of an event."""
    adopted: bool = False
    """Whether only an earlier agent has seen it, and this one not yet."""

    @property
    def strength(self) -> tuple[int, float]:
        """Return the sort key: smaller is stronger; within a rank the newer entry is stronger."""
        return kinds.rank(self.kind, self.code), -self.last.mono


@dataclass(frozen=True)
class Stored:
    """A piece of evidence as an earlier agent has written it."""

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
    """All evidence of one boot of the node. Events within `burst_seconds` count once. Evidence that comes back
    within an hour must be good for longer by the factor `growth`, each time.
    """

    def __init__(self, boot_id: str, burst_seconds: float, growth: float = 1.0) -> None:
        self.boot_id = boot_id
        self.news = False
        """Whether an entry that is not quiet appeared, ended or changed its code since this was last set back."""
        self.counted = False
        """Whether a count, a value or a message changed, or a quiet entry appeared or ended."""
        self._burst_seconds = burst_seconds
        self._growth = growth
        self._gone: dict[_Key, tuple[int, float]] = {}  # how often the evidence has ended and come back, and when last
        self._entries: dict[_Key, Entry] = {}
        self._bad_since: dict[_Key, float] = {}
        self._known_before: frozenset[str] = frozenset()
        self._known_until = 0.0
        self._resets: dict[str, float] = {}
        self.watched_since: float | None = None
        """Since when (monotonic) this agent and those before it have watched for resets of GPUs; None: not known yet.
        Older evidence expires: a reset may have repaired the fault unseen."""

    def __len__(self) -> int:
        return len(self._entries)

    def entries(self) -> list[Entry]:
        """Return all entries, strongest first."""
        return sorted(self._entries.values(), key=lambda entry: (*entry.strength, entry.subject, entry.code))

    def has(self, kind: str, subject: str | None = None) -> bool:
        """Whether there is evidence of a kind (about a subject)."""
        return any(key[0] == kind and subject in (None, key[1]) for key in self._entries)

    def awaits(self, kind: str) -> bool:
        """Whether something of a kind is bad, but not yet for long enough."""
        return any(key[0] == kind and key not in self._entries for key in self._bad_since)

    def sample(self, signals: Iterable[Signal], now: Clock) -> None:
        """Apply signals about what is bad and what is good now."""
        for signal in signals:
            key = (signal.kind, clean(signal.subject, _SUBJECT), 0, "")
            if signal.bad:
                self._bad(key, signal, now)
            else:
                self._good(key, signal, now)

    def _bad(self, key: _Key, signal: Signal, now: Clock) -> None:
        since = self._bad_since.setdefault(key, now.mono)
        entry = self._entries.get(key)
        if entry is None:
            is_known = key[0] in self._known_before and now.mono < self._known_until
            if is_known or now.mono - since >= signal.sustain_seconds:
                self._add(key, _of_signal(key[1], signal, now))
            return
        entry.good_since, entry.adopted = None, False
        entry.last = _later(entry.last, now)
        if entry.code != signal.code:
            entry.code, entry.value, entry.threshold = signal.code, clean(signal.value, _VALUE), signal.threshold
            entry.message = clean(signal.message, _MESSAGE)
            self._changed(key)
        grown = entry.counter is not None and signal.counter is not None and signal.counter > entry.counter
        if signal.episode_seconds is not None:
            self._lasted(entry, signal, signal.episode_seconds, grown or signal.counter is None, now)
        elif grown:
            entry.value, entry.message = clean(signal.value, _VALUE), clean(signal.message, _MESSAGE)
            self._occurred(entry, now.mono)
            self.counted = True
        if signal.counter is not None:
            entry.counter = signal.counter

    def _lasted(self, entry: Entry, signal: Signal, episode_seconds: float, occurs: bool, now: Clock) -> None:
        """Update the entry of a rate: its value changes all the time, which is no news; its duration counts once an
        episode."""
        if occurs and now.mono - entry.burst_began >= episode_seconds:
            entry.burst_began = now.mono
            entry.count += 1
            entry.value, entry.threshold = clean(signal.value, _VALUE), clean(signal.threshold, _VALUE)
            entry.message = clean(signal.message, _MESSAGE)
            self.counted = True

    def _good(self, key: _Key, signal: Signal, now: Clock) -> None:
        self._bad_since.pop(key, None)
        entry = self._entries.get(key)
        if signal.kind == kinds.RECOVERY_ACTION:
            self.clear_driver_requests(signal.subject, now.mono - signal.clear_seconds)
        if entry is None:
            return
        if entry.good_since is None:
            entry.good_since = now.mono
        times, clear_seconds = self._patience(key, entry, signal)
        if now.mono - entry.good_since >= clear_seconds:
            self._gone.pop(key, None)
            self._gone[key] = times + 1, now.mono  # the newest last
            if len(self._gone) > MAX_KEPT:
                del self._gone[next(iter(self._gone))]
            self._remove(key)
            if kinds.proves_reset(entry.kind, entry.code):
                # The exact time is unknown: an event after the last bad poll may have come after the reset.
                last = entry.last.mono + (_CLOCKS_SECONDS if entry.adopted else 0.0)
                self.reset(entry.subject, min(last, entry.good_since), now)

    def _patience(self, key: _Key, entry: Entry, signal: Signal) -> tuple[int, float]:
        """Return how often the evidence has come back lately, and how long it must be good to end. A fault that comes
        and goes is neither repaired each time nor worth a write each time."""
        times, went = self._gone.get(key, (0, float("-inf")))
        if entry.first.mono - went >= _BACK_SECONDS:
            times = 0
        longer = max(signal.clear_seconds, 1.0) * self._growth ** min(times, 32) if times else 0.0
        return times, max(signal.clear_seconds, min(longer, _LONGEST_CLEAR_SECONDS))

    def record(self, event: FaultEvent, now: Clock) -> None:
        """Add an event; the same event counts once."""
        age = max(0.0, event.age_seconds)
        then = Clock(now.mono - age, now.wall - age)
        value = self._event_text(event)
        held = kinds.stands_until_reset(event.kind, event.code, value)
        if age >= event.expires_seconds and not held:
            return
        if held:
            covered = self._resets.get(clean(event.subject, _SUBJECT), float("-inf"))
            if then.mono <= covered + (_CLOCKS_SECONDS if event.replayed else 0.0):
                return
        key = self._key_of(event)
        entry = self._entries.get(key)
        if entry is None:
            self._add(key, _of_event(key, event, then))
            if held:
                self._entries[key].expires_seconds = None
            return
        if held:
            entry.expires_seconds = None
        newest = event.code == kinds.RECOVERY_XID and not event.brief and then.mono > entry.last.mono
        if newest and entry.message != clean(event.message, _MESSAGE):
            entry.message = clean(event.message, _MESSAGE)
            self._changed(key)
        if entry.brief and not event.brief:
            # Its severity may depend on the message.
            entry.message, entry.brief = clean(event.message, _MESSAGE), False
            entry.expires_seconds = None if held else event.expires_seconds
            self._changed(key)
        if then.mono < entry.first.mono:
            entry.first = then
        if then.mono <= entry.last.mono:
            return
        self._occurred(entry, then.mono)
        entry.last = _later(entry.last, then)

    def _event_text(self, event: FaultEvent) -> str:
        """Return the message for an event: for a brief one the last more detailed message."""
        value = clean(event.value, _VALUE)
        if not event.brief:
            return value
        same = (event.kind, clean(event.subject, _SUBJECT), event.code)
        entries = [entry for key, entry in self._entries.items() if key[:3] == same]
        newest = max(entries, key=lambda entry: entry.last.mono, default=None)
        return newest.value if newest is not None else value

    def _key_of(self, event: FaultEvent) -> _Key:
        """Return the key of an event; a brief event shares the key of a detailed one, in either order."""
        kind, subject, code = event.kind, clean(event.subject, _SUBJECT), min(max(event.code, 0), _CODE)
        key = (kind, subject, code, clean(event.value, _VALUE))
        if key in self._entries or (not event.brief and not event.value):
            return key
        variants = [other for other in self._entries if other[:3] == key[:3]]
        if event.brief or len(variants) >= _MOST_VARIANTS:
            return max(variants, key=lambda other: self._entries[other].last.mono, default=key)
        entry = self._entries.get((kind, subject, code, ""))
        if entry is not None and entry.brief:
            self._entries[key] = self._entries.pop((kind, subject, code, ""))
            entry.value = key[3]
        return key

    def _occurred(self, entry: Entry, mono: float) -> None:
        """Count one more occurrence, unless it belongs to the burst that is already counted."""
        if mono - entry.burst_began > self._burst_seconds:
            entry.burst_began = mono
            entry.count += 1
            self.counted = True

    def watch_resets(self, since: float) -> None:
        """Note that resets of GPUs are watched since this moment (monotonic; 0: since the boot)."""
        self.watched_since = since

    def reset(self, subject: str, mono: float, now: Clock) -> None:
        """End the evidence that needed this reset of a GPU and is not newer than `mono`. The reset itself is noted for
        this boot."""
        subject = clean(subject, _SUBJECT)
        if mono <= self._resets.get(subject, float("-inf")):
            return
        self._resets[subject] = mono
        then = Clock(mono, now.wall - (now.mono - mono))
        text = "the GPU has been reset, or its driver loaded again: what needed that is over"
        value = f"{max(0.0, mono):.3f} s after the boot"
        key = (kinds.GPU_RESET, subject, 0, "")
        self._add(key, Entry(kinds.GPU_RESET, subject, 0, value, "", text, then, then, burst_began=mono))
        for old in [key for key, entry in self._entries.items() if self._is_over(entry, subject, mono)]:
            self._remove(old)

    def clear_driver_requests(self, subject: str, mono: float) -> None:
        """End the driver's earlier requests about a GPU: it requests nothing any more."""
        key = (kinds.XID, clean(subject, _SUBJECT), kinds.RECOVERY_XID, "")
        entry = self._entries.get(key)
        if entry is not None and entry.last.mono <= mono:
            self._remove(key)

    def retract(self, kind: str, subject: str) -> None:
        """Remove all evidence of a kind about a subject: it was read wrong."""
        for key in [key for key in self._entries if key[:2] == (kind, subject)]:
            self._remove(key)

    def _is_over(self, entry: Entry, subject: str, mono: float) -> bool:
        needs = kinds.stands_until_reset(entry.kind, entry.code, entry.value)
        return needs and entry.subject == subject and entry.last.mono <= mono

    def expire(self, now: Clock) -> None:
        """Remove events that are too old."""
        old = [
            key
            for key, entry in self._entries.items()
            if entry.expires_seconds is not None and now.mono - entry.last.mono > entry.expires_seconds
        ]
        for key in old:
            self._remove(key)

    def adopt(self, stored: Iterable[Stored], expires: Mapping[str, float], now: Clock) -> None:
        """Add the evidence that an earlier agent has written in this boot of the node; signals will clear what is gone.
        Kinds that only a later version knows stay until the next boot.

        `expires`: seconds until events expire, by kind.
        """
        boot_evidence = [item for item in stored if item.boot_id == self.boot_id]
        # At that time the writer was still polling, so the evidence still stood, though not each poll is written.
        written = max((item.last_wall for item in boot_evidence), default=0.0)
        for item in boot_evidence:
            expires_seconds = expires.get(item.kind) if not item.subject.startswith("/") else None
            age = max(0.0, now.wall - (written if kinds.proves_reset(item.kind, item.code) else item.last_wall))
            held = kinds.stands_until_reset(item.kind, item.code, item.value)
            if expires_seconds is not None and age > expires_seconds and not held:
                continue
            last = Clock(now.mono - age, now.wall - age)
            first = Clock(last.mono - max(0.0, item.last_wall - item.first_wall), min(item.first_wall, last.wall))
            happened = expires_seconds is not None or item.kind not in kinds.STRONGEST_FIRST
            key = (item.kind, item.subject, item.code if happened else 0, item.value if happened else "")
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
                expires_seconds=None if held else expires_seconds,
                adopted=True,
            )
            if item.kind == kinds.GPU_RESET:
                self._adopt_reset(entry)
            present = self._entries.get(key)
            if present is None:
                self._entries[key] = entry
            else:
                _merge(present, entry)
        self._bound()

    def _adopt_reset(self, entry: Entry) -> None:
        match = _RESET_VALUE.fullmatch(entry.value)
        mono = float(match[1]) if match else entry.last.mono
        self._resets[entry.subject] = max(mono, self._resets.get(entry.subject, mono))

    def remember(self, evidence: Iterable[Stored], until: float) -> None:
        """Keep the evidence from before a boot: until this moment (monotonic) the same evidence counts at once, without
        having to last again."""
        self._known_before = frozenset(item.kind for item in evidence)
        self._known_until = until

    def rename(self, subjects: Mapping[str, str]) -> None:
        """Give entries the proper names of their subjects, by the names that they had."""
        for key in [key for key in self._bad_since if key[1] in subjects]:
            since = self._bad_since.pop(key)
            renamed = (key[0], subjects[key[1]], *key[2:])
            self._bad_since[renamed] = min(since, self._bad_since.get(renamed, since))
        for old in [old for old in self._resets if old in subjects]:
            mono, name = self._resets.pop(old), subjects[old]
            self._resets[name] = max(mono, self._resets.get(name, mono))
        for key in [key for key in self._entries if key[1] in subjects]:
            entry = self._entries.pop(key)
            entry.subject = subjects[key[1]]
            renamed = (key[0], entry.subject, *key[2:])
            present = self._entries.get(renamed)
            if present is None:
                self._entries[renamed] = entry
            else:
                _merge(present, entry)
            self.news = True

    def restart(self, boot_id: str) -> None:
        """Remove all evidence: the node has booted."""
        self.boot_id = boot_id
        self.news = True
        self._entries.clear()
        self._bad_since.clear()
        self._gone.clear()
        self._known_before = frozenset()
        self._resets.clear()
        self.watched_since = None

    def evidence(self) -> list[dict[str, Any]]:
        """Return the evidence in the form that is sent: the strongest entries that fit."""
        return [_rendered(entry, self.boot_id) for entry in self.entries()[:MAX_SENT]]

    def _add(self, key: _Key, entry: Entry) -> None:
        self._entries[key] = entry
        self._changed(key)
        self._bound()

    def _changed(self, key: _Key) -> None:
        if key[0] in kinds.QUIET:
            self.counted = True
        else:
            self.news = True

    def _bound(self) -> None:
        if len(self._entries) > MAX_KEPT:
            weakest = max(self._entries.items(), key=lambda item: item[1].strength)
            del self._entries[weakest[0]]

    def _remove(self, key: _Key) -> None:
        del self._entries[key]
        self._changed(key)


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


def _of_event(key: _Key, event: FaultEvent, then: Clock) -> Entry:
    kind, subject, code, value = key
    message = clean(event.message, _MESSAGE)
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
        expires_seconds=event.expires_seconds,
        brief=event.brief,
    )


def _later(last: Clock, now: Clock) -> Clock:
    """Return the later time; the wall clock may have been set back, but the last occurrence never precedes the one
    before."""
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
    if other.expires_seconds is None:
        into.expires_seconds = None
    into.adopted = into.adopted and other.adopted
    if into.kind == kinds.GPU_RESET and into.last == other.last:
        into.value = other.value


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

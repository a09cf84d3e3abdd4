"""Defines what collectors report to the ledger: a `Signal` says whether something is bad now, a `FaultEvent`
that something happened.

Tests: tests/unit/agent/test_ledger.py.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Signal:
    """The result of one poll of one thing. Where it cannot be known (not supported, not readable), there is no
    signal."""

    kind: str
    subject: str
    bad: bool
    code: int = 0
    value: str = ""
    threshold: str = ""
    message: str = ""
    counter: float | None = None
    """The counter behind the signal, if there is one: an increase is one more occurrence."""
    sustain_seconds: float = 0.0
    """How long the thing has to be bad before it becomes evidence."""
    clear_seconds: float = 0.0
    """How long the thing has to be good before the evidence goes."""
    episode_seconds: float | None = None
    """For rates: this long after an occurrence the next one counts; without a `counter` whenever it is bad then."""


@dataclass(frozen=True)
class FaultEvent:
    """Something that happened; it is evidence until it expires."""

    kind: str
    subject: str
    expires_seconds: float
    code: int = 0
    value: str = ""
    message: str = ""
    age_seconds: float = 0.0
    """How long ago it happened; 0 is now."""
    brief: bool = False
    """The message says no more than kind and code do: the message of a more detailed event about the same is kept
    instead."""
    replayed: bool = False
    """The event was read again, at any age: only the log's own clock, which drifts, says when it happened."""


@dataclass(frozen=True)
class Clock:
    """Two readings of the same moment: `mono` measures, `wall` is for people and may jump."""

    mono: float
    """Seconds on the monotonic clock."""
    wall: float
    """Seconds since the epoch."""


def pci_address(text: str) -> str | None:
    """Return a PCI address without its function, in one spelling (`0000:1b:00`); None if the text is not one.

    The driver writes `0000:1b:00` into the log, NVML says `00000000:1B:00.0`.
    """
    parts = text.split(".", 1)[0].split(":")
    if len(parts) == 2:
        parts.insert(0, "0")
    if len(parts) != 3:
        return None
    try:
        domain, bus, device = (int(part, 16) for part in parts)
    except ValueError:
        return None
    if not (0 <= domain <= 0xFFFFFFFF and 0 <= bus <= 0xFF and 0 <= device <= 0x1F):
        return None
    return f"{domain:04x}:{bus:02x}:{device:02x}"


def clean(text: str, length: int) -> str:
    """Return text from outside in a form that an object may hold: without control characters, and at most `length`
    long."""
    text = text[: length * 2]
    if not text.isprintable():
        text = "".join(character if character.isprintable() else " " for character in text)
    kept = text.strip()
    return kept if len(kept) <= length else f"{kept[: length - 1]}…"

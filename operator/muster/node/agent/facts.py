"""What collectors tell the ledger: a `Signal` says whether something is bad now, an `Incident` that something
happened."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Signal:
    """One look at one thing. What cannot be known (not supported, not readable) is no signal at all."""

    kind: str
    subject: str
    bad: bool
    code: int = 0
    value: str = ""
    threshold: str = ""
    message: str = ""
    counter: float | None = None
    """Where the thing is counted: an increase is one more occurrence."""
    sustain_seconds: float = 0.0
    """It has to be bad for so long before it stands against the node ..."""
    clear_seconds: float = 0.0
    """... and good for so long before it does not any more."""
    episode_seconds: float | None = None
    """Of rates: so long after an occurrence the next one counts; without a `counter` whenever it is bad then."""


@dataclass(frozen=True)
class Incident:
    """Something that happened; it stands against the node until it is old."""

    kind: str
    subject: str
    expires_seconds: float
    code: int = 0
    value: str = ""
    message: str = ""
    age_seconds: float = 0.0
    """How long ago it happened; 0 is now."""
    brief: bool = False
    """The message says no more than kind and code do: whoever tells of the same in more words is quoted instead."""
    replayed: bool = False
    """Read again, of any age: when it happened is known by the log's own clock only, which drifts."""


@dataclass(frozen=True)
class Clock:
    """Two readings of the same moment: `mono` measures, `wall` is for people and may jump."""

    mono: float
    """Seconds of the monotonic clock."""
    wall: float
    """Seconds since the epoch."""


def pci_address(text: str) -> str | None:
    """A PCI address without its function, in one spelling (`0000:1b:00`); None if it is none.

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
    """Text from outside as it may stand in an object: no control characters, at most so long."""
    text = text[: length * 2]
    if not text.isprintable():
        text = "".join(character if character.isprintable() else " " for character in text)
    kept = text.strip()
    return kept if len(kept) <= length else f"{kept[: length - 1]}…"

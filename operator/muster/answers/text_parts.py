"""Format the words of all results: pure text, without the libraries that draw tables on a terminal.

The page uses them, too, and the operator's image has no such libraries.

Tests: tests/unit/cli/test_status.py.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from muster.goodput.figures import permille
from muster.protocol.numerals import significant

_UNITS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
# ECMA-48: control sequences (colours, moves of the cursor), and operating system commands (titles, links).
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?")
UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Categories of characters that are invisible, or move the displayed text."""
_NUMBERED = re.compile(r"([^.]*?)(\d+)([^\d.]*(?:\..*)?)")  # the last number of the host's own name


def printable(text: str) -> str:
    """Return the text without colours and control characters, except line breaks: it may come from a training
    process."""
    if text.isascii() and text.isprintable():  # nearly all of them, and the rest takes ten times as long
        return text
    plain = _ESCAPES.sub("", text).replace("\t", " ")
    return "".join(c for c in plain if c == "\n" or unicodedata.category(c) not in UNSEEN)


def on_one_line(text: str) -> str:
    """Return the printable text on one line."""
    return " ".join(printable(text).split())


def age(moment: datetime | None, now: datetime) -> str:
    """Format the time since a moment in the two largest units: 2d3h, 5m, 0s.

    "" for no moment. Clocks that differ give 0s.
    """
    if moment is None:
        return ""
    return duration(max((now - moment).total_seconds(), 0.0))


def duration(seconds: float) -> str:
    """Format a duration in the two largest units."""
    rest = int(seconds)
    for index, (unit, size) in enumerate(_UNITS):
        if rest >= size:
            more, next_size = _UNITS[index + 1] if index + 1 < len(_UNITS) else ("", 1)
            small = rest % size // next_size if more else 0
            return f"{rest // size}{unit}" + (f"{small}{more}" if small else "")
    return "0s"


def percent(share: float | None) -> str:
    """Format a share in per cent."""
    return "unknown" if share is None else f"{permille(share) / 10:.1f}%"


def hours(amount: float) -> str:
    """Format hours; less than one in minutes and seconds, less than a second with its digits."""
    seconds = amount * 3600
    if seconds >= 3600:
        return f"{amount:,.1f} h"
    return duration(seconds) if seconds >= 1 else f"{significant(seconds, 2)}s"


def moment(time: datetime) -> str:
    """Format a moment for people."""
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"


def count(number: int, singular: str, several: str = "") -> str:
    """Format a count: `1 node`, `2 nodes`."""
    return f"{number} {singular if number == 1 else several or singular + 's'}"


def rate(steps_per_second: float | None) -> str:
    """Format a rate in the unit in which it is not too small: 2.1/s, 34/min, 5.0/h."""
    if steps_per_second is None:
        return ""
    for times, unit in ((1, "s"), (60, "min"), (3600, "h")):
        if steps_per_second * times >= 1 or unit == "h":
            amount = steps_per_second * times
            return f"{amount:,.1f}/{unit}" if amount < 100 else f"{amount:,.0f}/{unit}"
    raise AssertionError("unreachable: an hour is the last")


def largest(amounts: Mapping[str, int], most: int) -> str:
    """Format the largest few amounts, and the sum of the others: `20 a, 4 b, 3 others`."""
    ordered = sorted(amounts.items(), key=lambda item: (-item[1], item[0]))
    shown = [f"{number} {name}" for name, number in ordered[:most]]
    rest = sum(number for _, number in ordered[most:])
    return ", ".join([*shown, *([count(rest, "other")] if rest else [])])


def folded(names: Iterable[str]) -> str:
    """Fold host names with their last numbers into ranges, the way Slurm does: gpu-[001-016,018], login."""
    series: dict[tuple[str, int, str], set[int]] = {}
    for name in names:
        match = _NUMBERED.fullmatch(name)
        head, digits, tail = match.groups() if match else (name, "", "")
        numbers = series.setdefault((head, len(digits), tail), set())
        if digits:
            numbers.add(int(digits))
    return ", ".join(_ranges(*key, sorted(numbers)) for key, numbers in series.items())


def _ranges(head: str, width: int, tail: str, numbers: Sequence[int]) -> str:
    if len(numbers) < 2:
        return f"{head}{''.join(f'{number:0{width}}' for number in numbers)}{tail}"
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][-1] == number - 1:
            parts[-1] = [parts[-1][0], number]
        else:
            parts.append([number])
    written = ",".join("-".join(f"{number:0{width}}" for number in part) for part in parts)
    return f"{head}[{written}]{tail}"

"""How findings are printed: text for people, JSON and YAML for programs, and the words that all commands share.

Tables fold at the width of a terminal. Where the output is no terminal nothing is folded or coloured, so that grep
finds whole lines; COLUMNS sets another width. What others wrote (last lines of a rank) is never markup, and cannot
move the cursor of whoever reads it.
"""

import json
import os
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

import yaml
from rich.console import Console
from rich.table import Table
from rich.text import Text

from muster.api.base import ApiModel

UNFOLDED_COLUMNS = 10_000
STATE_STYLES = {
    "Running": "green",
    "Succeeded": "green",
    "Free": "green",
    "Failed": "red",
    "Stalled": "red",
    "Excluded": "red",
    "Pending": "yellow",
    "Recovering": "yellow",
    "Healthy": "green",
    "Suspect": "yellow",
    "Degraded": "red",
    "Unhealthy": "red",
    "Quarantined": "red",
    "Validating": "yellow",
}
_UNITS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
# ECMA-48: control sequences (colours, moves of the cursor), and operating system commands (titles, links).
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?")
_NUMBERED = re.compile(r"([^.]*?)(\d+)([^\d.]*(?:\..*)?)")  # the last number of the host's own name


def as_json(found: ApiModel) -> str:
    """The finding as JSON."""
    return json.dumps(found.to_json(), indent=2, ensure_ascii=False)


def as_yaml(found: ApiModel) -> str:
    """The finding as YAML."""
    text: str = yaml.safe_dump(found.to_json(), sort_keys=False, allow_unicode=True)
    return text


def as_text(render: Callable[[Console], None]) -> str:
    """What `render` prints, without blanks at the ends of lines."""
    terminal = sys.stdout.isatty()
    columns = os.environ.get("COLUMNS", "")
    width = int(columns) if columns.isdigit() and int(columns) else None if terminal else UNFOLDED_COLUMNS
    console = Console(width=width, markup=False, highlight=False, emoji=False, legacy_windows=False)
    with console.capture() as captured:
        render(console)
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def printable(text: str) -> str:
    """The text without colours and control characters, line breaks apart: it may come from a training process."""
    plain = _ESCAPES.sub("", text).replace("\t", " ")
    return "".join(c for c in plain if c == "\n" or unicodedata.category(c) not in ("Cc", "Cf"))


def table(*columns: str, numbers: Iterable[str] = (), whole: Iterable[str] = ()) -> Table:
    """An empty table.

    Args:
        columns: their heads.
        numbers: heads of the columns that are aligned to the right.
        whole: heads of the columns that are not folded.
    """
    made = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        right, kept = name in numbers, name in {*numbers, *whole}
        made.add_column(name, justify="right" if right else "left", no_wrap=kept, overflow="fold")
    return made


def add(to: Table, *cells: object, style: str = "") -> None:
    """Add a row; None is an empty cell."""
    to.add_row(*(cell if isinstance(cell, Text) else _cell(cell) for cell in cells), style=style or None)


def _cell(value: object) -> Text:
    return Text(printable("" if value is None else str(value)))


def facts(console: Console, rows: Sequence[tuple[str, object]]) -> None:
    """Print names and values below each other; rows without a value are left out."""
    made = Table(box=None, pad_edge=False, show_header=False)
    made.add_column(no_wrap=True, style="bold")
    made.add_column(overflow="fold")
    for name, value in rows:
        if value not in (None, ""):
            add(made, name, value)
    console.print(made)


def headline(console: Console, text: str) -> None:
    """Print the head of a section, after an empty line."""
    console.print()
    console.print(Text(text, style="bold"))


def age(moment: datetime | None, now: datetime) -> str:
    """How long ago, in the two largest units: 2d3h, 5m, 0s; "" for no moment. Clocks that differ give 0s."""
    if moment is None:
        return ""
    return duration(max((now - moment).total_seconds(), 0.0))


def duration(seconds: float) -> str:
    """A duration in the two largest units."""
    rest = int(seconds)
    for index, (unit, size) in enumerate(_UNITS):
        if rest >= size:
            more, next_size = _UNITS[index + 1] if index + 1 < len(_UNITS) else ("", 1)
            small = rest % size // next_size if more else 0
            return f"{rest // size}{unit}" + (f"{small}{more}" if small else "")
    return "0s"


def moment(time: datetime) -> str:
    """A moment for people."""
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"


def count(number: int, one: str, several: str = "") -> str:
    """`1 node`, `2 nodes`."""
    return f"{number} {one if number == 1 else several or one + 's'}"


def largest(amounts: Mapping[str, int], most: int) -> str:
    """The largest few amounts, and the sum of the others: `20 a, 4 b, 3 others`."""
    ordered = sorted(amounts.items(), key=lambda item: (-item[1], item[0]))
    shown = [f"{number} {name}" for name, number in ordered[:most]]
    rest = sum(number for _, number in ordered[most:])
    return ", ".join([*shown, *([count(rest, "other")] if rest else [])])


def folded(names: Iterable[str]) -> str:
    """Host names with their last numbers written as ranges, the way Slurm does: gpu-[001-016,018], login."""
    series: dict[tuple[str, int, str], set[int]] = {}
    for name in names:
        found = _NUMBERED.fullmatch(name)
        head, digits, tail = found.groups() if found else (name, "", "")
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

"""Print results: text for people, JSON and YAML for programs, and the words that all commands share.

Tables fold at the width of a terminal. Where the output is no terminal nothing is folded or coloured, so that grep
finds whole lines; COLUMNS sets another width. Foreign text (last lines of a rank) is never markup, and cannot move the
reader's cursor.
"""

import json
import os
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Sequence

import yaml
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from muster.answers.text_parts import UNSEEN
from muster.answers.text_parts import age as age
from muster.answers.text_parts import count as count
from muster.answers.text_parts import duration as duration
from muster.answers.text_parts import folded as folded
from muster.answers.text_parts import largest as largest
from muster.answers.text_parts import moment as moment
from muster.answers.text_parts import on_one_line as on_one_line
from muster.answers.text_parts import percent as percent
from muster.answers.text_parts import printable as printable
from muster.answers.text_parts import rate as rate
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
    "Held": "yellow",
    "Healthy": "green",
    "Suspect": "yellow",
    "Degraded": "red",
    "Unhealthy": "red",
    "Quarantined": "red",
    "Validating": "yellow",
}
_NUMBER_OR_TRUTH = re.compile(r"[yYnN]|[-+]?\.?[0-9].*")
# Control characters, marks of direction, halves of pairs, and breaks that only some terminals know.
_UNCOMMON = re.compile(r"[^\n -~]")


def is_on_one_line(text: str) -> bool:
    """Whether a terminal shows the text as it is, on one line."""
    return printable(text) == text and "\n" not in text


def as_json(model: ApiModel) -> str:
    """Format the result as JSON. Escaped is what could move a terminal's cursor, which only strings contain."""
    return _UNCOMMON.sub(_escaped, json.dumps(model.to_json(), indent=2, ensure_ascii=False))


def as_yaml(model: ApiModel) -> str:
    """Format the result as YAML, escaped as JSON is."""
    return yaml_text(model.to_json(), Dumper)


def yaml_text(value: object, dumper: type[yaml.SafeDumper], width: int | None = None) -> str:
    """Format a value as YAML. Where it has what could move a terminal's cursor, all that is not ASCII is escaped."""
    text: str = yaml.dump(value, Dumper=dumper, sort_keys=False, allow_unicode=True, width=width)
    if _UNCOMMON.sub(_escaped, text) == text:
        return text
    escaped: str = yaml.dump(value, Dumper=dumper, sort_keys=False, allow_unicode=False, width=width)
    return escaped


class Dumper(yaml.SafeDumper):
    """Quotes texts that kubectl and others take for numbers and booleans, where YAML 1.1 does not: `1e-4`, `y`."""


def quoted(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    """Represent a text as one scalar that is a text for every reader."""
    style = "'" if _NUMBER_OR_TRUTH.fullmatch(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


Dumper.add_representer(str, quoted)


def _escaped(match: re.Match[str]) -> str:
    """Return a character, or its JSON escape where a terminal might act on it."""
    character = match[0]
    if unicodedata.category(character) not in UNSEEN:
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at] << 8 | units[at + 1]:04x}" for at in range(0, len(units), 2))


def as_text(render: Callable[[Console], None]) -> str:
    """Return what `render` prints, without blanks at the ends of lines."""
    terminal = sys.stdout.isatty()
    columns = os.environ.get("COLUMNS", "")
    width = int(columns) if columns.isdigit() and int(columns) else None if terminal else UNFOLDED_COLUMNS
    console = Console(width=width, markup=False, highlight=False, emoji=False, legacy_windows=False)
    with console.capture() as captured:
        render(console)
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def table(*columns: str, numbers: Iterable[str] = (), whole: Iterable[str] = ()) -> Table:
    """Create an empty table.

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


def print_foreign_text(console: Console, text: str) -> None:
    """Print foreign text, indented line by line: none of its lines can pass for Muster's own."""
    console.print(Padding(Text(printable(text.strip())), (0, 0, 0, 2), expand=False))


def headline(console: Console, text: str) -> None:
    """Print the head of a section, after an empty line."""
    console.print()
    console.print(Text(text, style="bold"))

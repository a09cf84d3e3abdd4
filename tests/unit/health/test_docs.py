"""docs/node-health.md has the tables of the code: each row, and no other. `python tests/unit/health/test_docs.py`
prints them."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import pytest

from muster.api.fleetpolicy import SourceName
from muster.api.nodehealth import RecommendedAction, Severity, VerdictState
from muster.health.breaker import Act, BreakerState
from muster.health.kinds import KINDS
from muster.health.signs import Clears, Repetition
from muster.health.sources import ROWS, Annotation, Condition, Deletion, Label, Row, TaintMark
from muster.health.xids import RECOVERY_ACTIONS, SXIDS, XIDS, ErrorCode

PAGE = Path(__file__).parents[3] / "docs/node-health.md"


def rows_of(heading: str) -> list[str]:
    """The rows of the first table below a heading."""
    section = re.split(r"^#+ ", PAGE.read_text().partition(f"# {heading}\n")[2], flags=re.MULTILINE)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    assert lines, f"there is no table below {heading!r}"
    return lines[2:]


def often(rule: Repetition | None) -> str:
    if rule is None:
        return ""
    unit = {86400: "day", 3600: "hour"}[rule.seconds]
    return f"{rule.times} in {'a' if unit == 'day' else 'an'} {unit}: {rule.severity.value}, {rule.action.value}"


def kinds() -> Iterator[str]:
    for name, kind in KINDS.items():
        then = f", then {kind.then.value}" if kind.then else ""
        clears = "reboot" if kind.clears is Clears.BOOT else "evidence"
        yield (
            f"| {name} | {kind.meaning} | {kind.severity.value} | {kind.action.value}{then} | {often(kind.often)} | "
            f"{clears} | {kind.source} |"
        )


def ranges(codes: list[int]) -> str:
    """1-7, 9, 12."""
    starts = [codes[0], *(after for before, after in pairwise(codes) if after != before + 1)]
    ends = [*(before for before, after in pairwise(codes) if after != before + 1), codes[-1]]
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))


def codes(table: Mapping[int, ErrorCode]) -> Iterator[str]:
    groups: dict[ErrorCode, list[int]] = defaultdict(list)
    for code in sorted(table):
        groups[table[code]].append(code)
    for row, several in groups.items():
        then = f", then {row.then.value}" if row.then else ""
        yield (
            f"| {ranges(several)} | {row.meaning} | {row.fault.value} | {row.severity.value} | "
            f"{row.action.value}{then} | {often(row.often)} | {row.source} |"
        )


def recovery_actions() -> Iterator[str]:
    for value, (name, severity, action) in RECOVERY_ACTIONS.items():
        yield f"| {value} | RecoveryAction{name} | {severity.value} | {action.value} |"


def mark(row: Row) -> str:
    def code(text: str) -> str:
        return "`" + text.replace("\\.", ".").replace("|", "\\|") + "`"

    look = row.mark
    if isinstance(look, Condition):
        reason = f", reason {code(look.reason)}" if look.reason != ".*" and "?!" not in look.reason else ""
        message = f", message {code(look.message)}" if look.message != ".*" and "?!" not in look.message else ""
        return f"condition {code(look.type)} {' or '.join(look.statuses)}{reason}{message}"
    if isinstance(look, Deletion):
        return "`metadata.deletionTimestamp`"
    if isinstance(look, Label | TaintMark | Annotation):
        kind = {Label: "label", TaintMark: "taint", Annotation: "annotation"}[type(look)]
        return f"{kind} {code(look.key)}{'' if look.value in ('.*', '.+') else f' = {code(look.value)}'}"
    return "fewer accelerators allocatable than in capacity"


def sources() -> Iterator[str]:
    for row in ROWS:
        age = f"{row.minimum_age_seconds} s" if row.minimum_age_seconds else ""
        removal = "" if row.removal is None else "final removal" if row.removal.final else "removal"
        flags = ", ".join(
            word
            for word, on in (("planned", row.planned), ("repairs", row.repairs and not removal), (removal, removal))
            if on
        )
        notes = "; ".join(part for part in (flags, row.note) if part)
        yield f"| {row.name} | {mark(row)} | {row.severity.value} | {row.action.value} | {age} | {notes} |"


TABLES = {
    "Kinds of evidence": lambda: list(kinds()),
    "XIDs": lambda: list(codes(XIDS)),
    "Recovery actions": lambda: list(recovery_actions()),
    "SXids": lambda: list(codes(SXIDS)),
    "Sources": lambda: list(sources()),
}


@pytest.mark.parametrize("heading", TABLES)
def test_a_table_is_that_of_the_code(heading: str) -> None:
    assert rows_of(heading) == TABLES[heading]()


@pytest.mark.parametrize(
    ("heading", "words"),
    [
        ("States", [state.value for state in VerdictState]),
        ("Severities", [severity.value for severity in Severity]),
        ("What to do", [action.value for action in RecommendedAction]),
        ("The breaker", [state.value for state in BreakerState]),
        ("Rulings", [act.value for act in Act]),
    ],
)
def test_each_value_is_explained_and_no_other(heading: str, words: list[str]) -> None:
    assert [row.split("|")[1].strip() for row in rows_of(heading)] == words


def test_every_source_is_named() -> None:
    text = PAGE.read_text()
    assert [name for name in SourceName if f"`{name.value}`" not in text] == []


if __name__ == "__main__":
    for title, lines in TABLES.items():
        print(f"\n## {title}\n", *lines(), sep="\n")

"""Writes the tables of docs/node-health.md from those of the code; the text around them is written by people."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise

from muster.health.kinds import KINDS
from muster.health.signs import Clears, Repetition
from muster.health.sources import ROWS, Annotation, Condition, Deletion, Label, Row, TaintMark
from muster.health.xids import RECOVERY_ACTIONS, SXIDS, XIDS, ErrorCode


def node_health(page: str) -> str:
    """Return the page with the rows of the code in each of its tables.

    Args:
        page: the page as it is.

    Raises:
        ValueError: the page has no table below one of the headings.
    """
    for heading, rows in _TABLES.items():
        before, found, after = page.partition(f"\n## {heading}\n")
        text, bar, table = after.partition("\n|")
        if not found or not bar or "\n## " in text:
            raise ValueError(f"docs/node-health.md has no table below {heading!r}")
        lines = (bar[1:] + table).splitlines(keepends=True)
        kept = next((number for number, line in enumerate(lines) if not line.startswith("|")), len(lines))
        head, rest = "".join(lines[:2]), "".join(lines[kept:])
        page = f"{before}{found}{text}\n{head}" + "".join(f"{row}\n" for row in rows()) + rest
    return page


def _often(rule: Repetition | None) -> str:
    if rule is None:
        return ""
    unit = {86400: "day", 3600: "hour"}[rule.seconds]
    return f"{rule.times} in {'a' if unit == 'day' else 'an'} {unit}: {rule.severity.value}, {rule.action.value}"


def _kinds() -> Iterator[str]:
    for name, kind in KINDS.items():
        then = f", then {kind.then.value}" if kind.then else ""
        clears = "reboot" if kind.clears is Clears.BOOT else "evidence"
        yield (
            f"| {name} | {kind.meaning} | {kind.severity.value} | {kind.action.value}{then} | {_often(kind.often)} | "
            f"{clears} | {kind.source} |"
        )


def _ranges(codes: list[int]) -> str:
    """1-7, 9, 12."""
    starts = [codes[0], *(after for before, after in pairwise(codes) if after != before + 1)]
    ends = [*(before for before, after in pairwise(codes) if after != before + 1), codes[-1]]
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))


def _codes(table: Mapping[int, ErrorCode]) -> Iterator[str]:
    groups: dict[ErrorCode, list[int]] = defaultdict(list)
    for code in sorted(table):
        groups[table[code]].append(code)
    for row, several in groups.items():
        then = f", then {row.then.value}" if row.then else ""
        yield (
            f"| {_ranges(several)} | {row.meaning} | {row.fault.value} | {row.severity.value} | "
            f"{row.action.value}{then} | {_often(row.often)} | {row.source} |"
        )


def _recovery_actions() -> Iterator[str]:
    for value, (name, severity, action) in RECOVERY_ACTIONS.items():
        yield f"| {value} | RecoveryAction{name} | {severity.value} | {action.value} |"


def _mark(row: Row) -> str:
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


def _sources() -> Iterator[str]:
    for row in ROWS:
        age = f"{row.minimum_age_seconds} s" if row.minimum_age_seconds else ""
        removal = "" if row.removal is None else "final removal" if row.removal.final else "removal"
        flags = ", ".join(
            word
            for word, on in (("planned", row.planned), ("repairs", row.repairs and not removal), (removal, removal))
            if on
        )
        notes = "; ".join(part for part in (flags, row.note) if part)
        yield f"| {row.name} | {_mark(row)} | {row.severity.value} | {row.action.value} | {age} | {notes} |"


_TABLES: Mapping[str, Callable[[], Iterator[str]]] = {
    "Sources": _sources,
    "Kinds of evidence": _kinds,
    "XIDs": lambda: _codes(XIDS),
    "Recovery actions": _recovery_actions,
    "SXids": lambda: _codes(SXIDS),
}

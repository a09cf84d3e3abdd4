"""The gang bench's rows and goals as tables for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from bench.figures import FIGURES, Row
from bench.goals import Goal

_UNREACHED = "-"
_VERDICTS = {True: "yes", False: "NO", None: "not measured"}


def rows_table(rows: Sequence[Row]) -> Table:
    """One line for each row, figures as min / median / max."""
    table = Table(title="Gangs on KWOK nodes: min / median / max")
    for heading in ("system", "size", "binding", "mode", "case"):
        table.add_column(heading)
    for heading in (*FIGURES, "writes_per_pod"):
        table.add_column(heading, justify="right")
    for each in sorted(rows, key=lambda each: (each["size"], each["case"])):
        names = [each["system"], str(each["size"]), each["binding"] or "", each["mode"] or "", each["case"]]
        table.add_row(*names, *(figure_text(each.get(name)) for name in (*FIGURES, "writes_per_pod")))
    return table


def figure_text(figure: object) -> str:
    """A figure as min / median / max, with as many digits as it can bear."""
    if not isinstance(figure, dict):
        return _UNREACHED
    return " / ".join(_number(figure[name]) for name in ("min", "median", "max"))


def goals_table(goals: Sequence[Goal]) -> Table:
    """Each goal with what was measured."""
    table = Table(title="Goals")
    for heading in ("what", "measured", "goal", "met"):
        table.add_column(heading)
    for goal in goals:
        bound = f"{'>=' if goal.at_least else '<='} {_number(goal.bound)}"
        measured = _UNREACHED if goal.measured is None else _number(goal.measured)
        table.add_row(goal.text, measured, bound, _VERDICTS[goal.met])
    return table


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.2f}"

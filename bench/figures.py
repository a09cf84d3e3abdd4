"""From the measurements of single runs to the rows of build/bench/gang.json. Pure.

A row is one system in one case at one size; a figure is what several runs gave: {min, median, max, runs}, or null where
there is nothing to measure or no run got there in time.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

FIGURES = ("created_s", "bound_s", "running_s", "recovery_s", "cpu_s", "rss_mb")
EXTRA_FIGURES = ("writes_per_pod", "manager_cpu_s", "cpu_us_per_pod_event")
_KEY = ("system", "size", "binding", "mode", "case")
_DIGITS = 4

Row = dict[str, Any]
Figure = dict[str, float | int]


@dataclass(frozen=True)
class Subject:
    """Whose row it is: a system as it was set up, a gang's size and what happened to it."""

    system: str
    size: int
    case: str
    binding: str | None = None
    mode: str | None = None


@dataclass(frozen=True)
class Measurement:
    """One run. Times in seconds since just before the request; None: not reached, or not a part of the case.

    Attributes:
        created_s: until the last pod was created.
        bound_s: until the last pod had its node.
        running_s: until the last pod was Running.
        recovery_s: from the failure until the whole gang ran again.
        cpu_s: CPU seconds of all components: control plane, KWOK, the system's managers, bare's client.
        rss_mb: peak resident memory of the system's own managers in MiB.
        writes_per_pod: writes of everybody that the API server served, divided by the gang's size.
        manager_cpu_s: CPU seconds of the system's own managers.
        cpu_us_per_pod_event: CPU microseconds of the managers for one event of a pod that runs (`cases.event_cost`).
        writes: the writes by verb and resource.
        notes: what else a reader has to know, such as bare's connections.
    """

    created_s: float | None = None
    bound_s: float | None = None
    running_s: float | None = None
    recovery_s: float | None = None
    cpu_s: float | None = None
    rss_mb: float | None = None
    writes_per_pod: float | None = None
    manager_cpu_s: float | None = None
    cpu_us_per_pod_event: float | None = None
    writes: Mapping[str, int] = field(default_factory=dict)
    notes: Mapping[str, int | str] = field(default_factory=dict)


def figure(values: Iterable[float | None]) -> Figure | None:
    """What the runs that got there gave; None when none did."""
    reached = [value for value in values if value is not None]
    if not reached:
        return None
    return {
        "min": round(min(reached), _DIGITS),
        "median": round(statistics.median(reached), _DIGITS),
        "max": round(max(reached), _DIGITS),
        "runs": len(reached),
    }


def row(subject: Subject, runs: Sequence[Measurement]) -> Row:
    """The row of several runs of one case."""
    made: Row = {name: getattr(subject, name) for name in _KEY}
    made |= {name: figure(getattr(run, name) for run in runs) for name in FIGURES}
    extra = {name: figure(getattr(run, name) for run in runs) for name in EXTRA_FIGURES}
    made |= {name: value for name, value in extra.items() if value is not None}
    if runs and runs[-1].writes:
        made["writes_of_last_run"] = dict(runs[-1].writes)
    if runs and runs[-1].notes:
        made["notes"] = dict(runs[-1].notes)
    made["attempted_runs"] = len(runs)
    return made


def merged(old: Sequence[Row], new: Sequence[Row]) -> list[Row]:
    """All rows, a new one in the place of the old one of the same subject, in the order of their first appearance."""
    rows = {_key(each): each for each in old}
    rows.update({_key(each): each for each in new})
    return list(rows.values())


def _key(each: Row) -> tuple[Any, ...]:
    return tuple(each[name] for name in _KEY)


def find(rows: Sequence[Row], subject: Subject) -> Row | None:
    """The row of a subject."""
    wanted = tuple(getattr(subject, name) for name in _KEY)
    return next((each for each in rows if _key(each) == wanted), None)


def value(rows: Sequence[Row], subject: Subject, name: str, which: str = "median") -> float | None:
    """One number of one figure; None where the row or the figure is missing."""
    found = find(rows, subject)
    measured = found.get(name) if found else None
    return None if measured is None else float(measured[which])

"""Stores what a checker remembers beyond its own life: passes until the next boot, figures beyond it. Pure.

Times are readings of one clock that counts suspended time and never jumps (CLOCK_BOOTTIME). In the file of figures they
are wall-clock times, because that clock starts again with each boot.

Tests: tests/unit/checker/test_keeping.py.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Dict, Iterable, Sequence, Tuple

from muster.node.checker.facts import Facts
from muster.protocol.checks import CheckGrant, FigureReport, PassReport
from muster.protocol.messages import LONGEST_SECONDS, decode, encode

MAX_PASSES = 16
MAX_FIGURES = 64
MAX_SPENT = 128


@dataclasses.dataclass(frozen=True)
class Pass:
    """A grant of the coordinator; `granted_at` is when it was first seen."""

    granted: str
    profile: str
    identity: str
    granted_at: float
    gpus: int = 0


@dataclasses.dataclass(frozen=True)
class Measured:
    """A good figure of this node, with everything by which it may be compared."""

    probe: str
    transport: str
    figure: float
    unit: str
    namespace: str
    model: str
    library: str
    version: str
    measured_at: float


@dataclasses.dataclass(frozen=True)
class Passes:
    """The passes of this boot.

    Attributes:
        spent: grants whose pass has expired, but which may still be declared: they are not granted again.
    """

    held: Tuple[Pass, ...] = ()
    spent: Tuple[str, ...] = ()

    def knows(self, grant_id: str) -> bool:
        """Whether this grant was seen before."""
        return grant_id in self.spent or any(held_pass.granted == grant_id for held_pass in self.held)

    def of_identity(self, identity: str) -> Passes:
        """Return the passes without those of another identity."""
        dropped = [held_pass.granted for held_pass in self.held if held_pass.identity != identity]
        if not dropped:
            return self
        kept = tuple(held_pass for held_pass in self.held if held_pass.identity == identity)
        return Passes(kept, tuple([*self.spent, *dropped][-MAX_SPENT:]))

    def with_grants(self, grants: Sequence[CheckGrant], identity: str, now: float) -> Passes:
        """Return the passes with those grants added that are seen for the first time."""
        new = [Pass(grant.id, grant.profile, identity, now, grant.gpus) for grant in grants if not self.knows(grant.id)]
        if not new:
            return self
        held = [*self.held, *new]
        too_many = [held_pass.granted for held_pass in held[:-MAX_PASSES]]
        return Passes(tuple(held[-MAX_PASSES:]), tuple([*self.spent, *too_many][-MAX_SPENT:]))

    def reports(self, now: float) -> Tuple[PassReport, ...]:
        """Return the passes in the form of the report."""
        return tuple(_pass_report(held_pass, now - held_pass.granted_at) for held_pass in self.held)


def with_figures(figures: Tuple[Measured, ...], new: Iterable[Measured]) -> Tuple[Measured, ...]:
    """Return the newest figure of each probe and transport, the newest one last."""
    by_key = {(measured.probe, measured.transport): measured for measured in figures}
    for measured in new:
        by_key.pop((measured.probe, measured.transport), None)
        by_key[measured.probe, measured.transport] = measured
    return tuple(list(by_key.values())[-MAX_FIGURES:])


def figure_reports(figures: Iterable[Measured], facts: Facts, now: float) -> Tuple[FigureReport, ...]:
    """Return the figures of the present model and libraries, in the form of the report."""
    return tuple(
        _report(measured, now - measured.measured_at)
        for measured in figures
        if (measured.model, measured.library, measured.version) == (facts.model, facts.library, facts.version)
    )


def _report(measured: Measured, age: float) -> FigureReport:
    return FigureReport(
        measured.probe, measured.figure, _age(age), measured.unit, measured.transport, measured.namespace
    )


def _pass_report(held_pass: Pass, age: float) -> PassReport:
    return PassReport(held_pass.profile, _age(age), held_pass.granted, held_pass.gpus)


def _age(seconds: float) -> float:
    return round(min(max(0.0, seconds), LONGEST_SECONDS), 3)


def passes_to_json(passes: Passes) -> Dict[str, Any]:
    """Return the content of the file of passes."""
    return {"passes": [dataclasses.asdict(held_pass) for held_pass in passes.held], "spent": list(passes.spent)}


def passes_from_json(data: Any, now: float) -> Passes:
    """Read the file of passes; a time in the future is of another boot.

    Raises:
        ValueError: it is not what this program writes.
    """
    try:
        held = [_checked(Pass(**item)) for item in data["passes"]]
        for held_pass in held:
            decode(PassReport, encode(_pass_report(held_pass, 0.0)), "pass")
        spent = [_text(grant_id) for grant_id in data["spent"]]
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError("no passes: %s" % error) from error
    return Passes(
        tuple(held_pass for held_pass in held if held_pass.granted_at <= now)[-MAX_PASSES:], tuple(spent[-MAX_SPENT:])
    )


def figures_to_json(figures: Iterable[Measured], now: float, wall: float) -> Dict[str, Any]:
    """Return the content of the file of figures; `wall` is the wall clock's reading now, in seconds."""
    return {"figures": [_at(measured, wall - (now - measured.measured_at)) for measured in figures]}


def _at(measured: Measured, seconds: float) -> Dict[str, Any]:
    return {**dataclasses.asdict(measured), "measured_at": round(seconds, 3)}


def figures_from_json(data: Any, now: float, wall: float) -> Tuple[Measured, ...]:
    """Read the file of figures. After a wall clock was set back, a figure from the future counts as new.

    Raises:
        ValueError: it is not what this program writes.
    """
    try:
        stored = [_checked(Measured(**item)) for item in data["figures"]]
        for measured in stored:  # one invalid entry would make the coordinator refuse the whole report
            decode(FigureReport, encode(_report(measured, 0.0)), "figure")
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError("no figures: %s" % error) from error
    ages = [max(0.0, wall - measured.measured_at) for measured in stored]
    figures = tuple(dataclasses.replace(measured, measured_at=now - age) for measured, age in zip(stored, ages))
    return figures[-MAX_FIGURES:]


def _checked(item: Any) -> Any:
    for field in dataclasses.fields(item):
        value = getattr(item, field.name)
        if field.type in ("float", "int"):
            numbers = (int, float) if field.type == "float" else int
            if isinstance(value, bool) or not isinstance(value, numbers) or not math.isfinite(value):
                raise ValueError("%s is no number: %r" % (field.name, value))
        else:
            _text(value)
    return item


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("no text: %r" % (value,))
    value.encode()  # half of a surrogate pair is not text, and a UnicodeEncodeError is a ValueError
    return value

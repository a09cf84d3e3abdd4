"""The goals of the gang bench: what they compare, and whether the rows at hand meet them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.figures import Row, Subject, value

SIZE = 1024
LARGEST = 2048
WRITES_PER_POD = 4.0
OPERATOR_MEGABYTES = 250e6 / (1 << 20)
CPU_MICROSECONDS_PER_EVENT = 100.0


@dataclass(frozen=True)
class Goal:
    """One goal with the numbers at hand.

    Attributes:
        text: what is compared.
        measured: the ratio or the figure; None while a row is missing.
        bound: what it must be: at most, or with `at_least` at least.
    """

    text: str
    measured: float | None
    bound: float
    at_least: bool = False

    @property
    def met(self) -> bool | None:
        """Whether it is met; None while a row is missing."""
        if self.measured is None:
            return None
        return self.measured >= self.bound if self.at_least else self.measured <= self.bound


def goals(rows: Sequence[Row]) -> list[Goal]:
    """Every goal, also those for which rows are missing."""
    jobset, kueue = Subject("jobset", SIZE, "Start"), Subject("jobset+kueue", SIZE, "Start")
    found: list[Goal] = []
    for mode in ("Plain", "Managed"):
        direct = Subject("muster", SIZE, "Start", "Direct", mode)
        scheduler = Subject("muster", SIZE, "Start", "Scheduler", mode)
        largest = Subject("muster", LARGEST, "Start", "Direct", mode)
        bound = value(rows, direct, "bound_s")
        found += [
            Goal(
                f"Direct {mode}: all bound at {SIZE} / bare",
                _ratio(bound, value(rows, Subject("bare", SIZE, "Start"), "bound_s")),
                1.3,
            ),
            Goal(
                f"Direct {mode}: all bound at {SIZE} / bare with the same pods",
                _ratio(bound, value(rows, Subject("bare", SIZE, "Start", None, mode), "bound_s")),
                1.3,
            ),
            Goal(
                f"JobSet + Kueue / Direct {mode}: all bound at {SIZE}",
                _ratio(value(rows, kueue, "bound_s"), bound),
                2.5,
                at_least=True,
            ),
            Goal(f"Direct {mode}: writes per pod", value(rows, direct, "writes_per_pod"), WRITES_PER_POD),
            Goal(
                f"Scheduler {mode}: median Running at {SIZE} / JobSet's maximum",
                _ratio(value(rows, scheduler, "running_s"), value(rows, jobset, "running_s", "max")),
                1.0,
            ),
            Goal(f"{mode}: operator's MiB at {LARGEST}", value(rows, largest, "rss_mb", "max"), OPERATOR_MEGABYTES),
            Goal(
                f"Direct {mode}: operator's CPU us per pod event at {SIZE}",
                value(rows, direct, "cpu_us_per_pod_event"),
                CPU_MICROSECONDS_PER_EVENT,
            ),
        ]
    for binding in ("Scheduler", "Direct"):
        managed = Subject("muster", SIZE, "FailOnePod", binding, "Managed")
        found.append(
            Goal(
                f"JobSet / {binding} Managed: recovery of one pod of {SIZE}",
                _ratio(
                    value(rows, Subject("jobset", SIZE, "FailOnePod"), "recovery_s"), value(rows, managed, "recovery_s")
                ),
                20.0,
                at_least=True,
            )
        )
    return found


def _ratio(upper: float | None, lower: float | None) -> float | None:
    return None if upper is None or not lower else upper / lower

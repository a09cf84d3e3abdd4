"""Random histories by the reference and by the shipped code: each sum is exact, each figure is the same or unknown.

MUSTER_SEED repeats one run; HISTORIES bounds it. A history that differs is shrunk before it is shown.
"""

import ast
import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from tests.unit.nightly.goodput import reference
from tests.unit.nightly.goodput.drawn import AttemptPlan, Plan, drawn, history, smaller
from tests.unit.nightly.goodput.played import Outcome, Player
from tests.unit.nightly.goodput.reference import (
    LEAST_MILLISECONDS_FOR_RATE,
    PRODUCTIVE,
    RANKS_LIVED,
    Attempt,
    End,
    Figures,
    History,
    Line,
    figures,
    median_step,
)

HISTORIES = int(os.environ.get("HISTORIES", "1000"))
MOST_SHOWN = 3
HOUR = 3_600_000
LEAST_TIME = 3000
WHOLE_SECONDS = 5000
"""Milliseconds that the whole seconds of three buckets with steps, and of two others, may add or take."""


def test_every_figure_is_that_of_the_reference_or_unknown(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    first = int(os.environ.get("MUSTER_SEED") or time.time_ns() // 1000)
    record_property("seed", first)
    found = []
    for seed in range(first, first + HISTORIES):
        plan = drawn(seed)
        if differences(plan, tmp_path):
            found.append(f"MUSTER_SEED={seed} HISTORIES=1: {shown(shrunk(plan, tmp_path), tmp_path)}")
        if len(found) == MOST_SHOWN:
            break
    assert not found, "\n".join(found)


def differences(plan: Plan, folder: Path) -> dict[str, str]:
    """What the shipped code shows otherwise than the reference, by the name of the figure."""
    true = history(plan)
    outcome = Player(plan, true, folder).play()
    wanted = figures(true)
    if any(more for _, more in plan.leaders) and not _is_corrected(plan, true):
        return dict(_under_clocks_that_disagree(plan, true, wanted, outcome))
    return dict(_different(plan, true, wanted, outcome))


def _is_corrected(plan: Plan, true: History) -> bool:
    """Whether the account goes on by its first leader's clock to the millisecond.

    Clocks that differ by less than ten seconds are taken as they are; one within five seconds of the API server's is
    taken for that. A suspension is dated by the leader that has seen it.
    """
    is_exact = plan.ahead % 1000 == 0 and (not plan.ahead or abs(plan.ahead) > 5000)
    return (
        is_exact
        and all(not more or (abs(more) > 10_000 and more % 1000 == 0) for _, more in plan.leaders)
        and not true.suspended
    )


def _slack(plan: Plan, true: History) -> int:
    """Milliseconds by which a bucket may differ.

    A step's time counts for the steps of a first line and of the two lines that an end may break off. It is a whole
    number of milliseconds, and that of one rank: the reference has the slowest one of each step. That rank may also
    have finished its first and its last line earlier. Each cut rounds.
    """
    return sum(
        3 + 3 * plan.stride * (1 + _between_medians(attempt)) + sum(map(_between_ranks, _ends(attempt.lines)))
        for attempt in true.attempts
    )


def _between_medians(attempt: Attempt) -> int:
    """Milliseconds between the median of the slowest steps and that of the steps of any one rank."""
    median = median_step(attempt)
    if median is None:
        return 0
    ranks = range(len(attempt.lines[0].finished))
    alone = (
        median_step(
            replace(attempt, lines=tuple(replace(line, finished=(line.finished[rank],)) for line in attempt.lines))
        )
        for rank in ranks
    )
    return math.ceil(max(abs(median - of_rank) for of_rank in alone if of_rank is not None))


def _between_ranks(line: Line) -> int:
    return max(line.finished) - min(line.finished)


def _ends(lines: tuple[Line, ...]) -> tuple[Line, ...]:
    return (lines[0], lines[-1]) if lines else ()


def _different(plan: Plan, true: History, wanted: Figures, outcome: Outcome) -> Iterator[tuple[str, str]]:
    ms = _slack(plan, true)
    gpus = plan.nodes * plan.gpus_of_node
    account, goodput, made = outcome.account, outcome.goodput, outcome.report
    for bucket in sorted({*wanted.milliseconds, *account.milliseconds}):
        right, gpu_right = wanted.milliseconds.get(bucket, 0), wanted.gpu_milliseconds.get(bucket, 0)
        yield from _near(bucket, right, account.milliseconds.get(bucket, 0), ms)
        yield from _near(f"{bucket} of GPUs", gpu_right, account.gpu_milliseconds.get(bucket, 0), ms * gpus)
        yield from _near(f"{bucket} told", right, 1000 * goodput.seconds.get(bucket, 0), ms + 1000)
        yield from _near(
            f"{bucket} of GPUs told", gpu_right, 1000 * goodput.gpu_seconds.get(bucket, 0), ms * gpus + 1000
        )
    yield from _same("lost steps", wanted.lost_steps, goodput.lost_steps)
    yield from _same("failures", (wanted.failures, wanted.failed_starts), (goodput.failures, goodput.failed_starts))
    yield from _same("steps", wanted.steps, goodput.steps or 0)
    total = sum(wanted.milliseconds.values()) - wanted.milliseconds.get("suspended", 0)
    for name, share, right, told in (
        ("ETTR", Fraction(total), wanted.ettr, goodput.ettr_permille),
        (
            "ETTR after the queue",
            total - wanted.milliseconds.get("queued", Fraction(0)),
            wanted.ettr_after_queue,
            goodput.ettr_after_queue_permille,
        ),
    ):
        yield from _same(f"whether {name} is known", right is None, told is None)
        if right is not None and told is not None:
            yield from _near(name, right * 1000, told, 1 + 1000 * (2 * ms + WHOLE_SECONDS) / share)
    yield from _failures(wanted, outcome, ms)
    yield from _near("first checkpoint", wanted.first_checkpoint, goodput.first_checkpoint_seconds, 1, 1000)
    if true.attempts[-1].end in (End.SUCCESS, End.DELETION) and len(true.attempts[-1].lines) > 1:
        slack = 1 + 2 * plan.lag
        yield from _near("step", wanted.step_median, goodput.step_milliseconds, slack)
        yield from _same("stride", wanted.stride, goodput.step_stride)
        yield from _near("p90", wanted.step_p90, goodput.step_p90_milliseconds, slack)
        yield from _same("steps between checkpoints", wanted.checkpoint_steps, goodput.checkpoint_steps)
    for place, (away, incident) in enumerate(zip(wanted.away, outcome.incidents, strict=True)):
        if incident.resumed_time is not None and incident.fault_time is not None:
            seconds = (incident.resumed_time - incident.fault_time).total_seconds()
            yield from _near(f"incident {place}, back after", away, seconds, Fraction(10 + plan.lag, 1000), 1000)
    yield from _worth(wanted, made, ms, gpus)


def _failures(wanted: Figures, outcome: Outcome, ms: int) -> Iterator[tuple[str, str]]:
    made, right = outcome.report, wanted.between_failures
    told = made.mttf_hours if made.mttf_hours is not None else made.mttf_at_least_hours
    lived = sum(wanted.milliseconds.get(bucket, 0) for bucket in RANKS_LIVED)
    unknown = wanted.milliseconds.get("unknown", 0)
    is_close = abs(9 * unknown - lived) < 9 * (ms + 1000) + len(RANKS_LIVED) * 1000
    if lived < LEAST_TIME or (unknown and is_close):
        return  # the report goes by whole seconds, which decide here
    yield from _same("whether MTTF is known", right is None, told is None)
    if right is None or told is None:
        return
    slack = Fraction(ms + 6000, HOUR)
    if right.mean is None:
        yield from _near("MTTF at least", right.least, made.mttf_at_least_hours, slack, HOUR)
        return
    yield from _near("MTTF", right.mean, made.mttf_hours, slack, HOUR)
    yield from _near("MTTF, lower bound", right.least, made.mttf_low_hours, slack, HOUR)
    yield from _near("MTTF, upper bound", right.most, made.mttf_high_hours, 40 * slack, HOUR)
    classes = {each.fault_class: each for each in made.mttf_by_class}
    yield from _same("classes", sorted(wanted.between_failures_by_class), sorted(classes))
    for name, each in wanted.between_failures_by_class.items():
        if name in classes:
            yield from _same(f"failures of {name}", each.failures, classes[name].failures)
            yield from _near(f"MTTF of {name}", each.mean, classes[name].mttf_hours, slack, HOUR)


def _worth(wanted: Figures, made: Any, ms: int, gpus: int) -> Iterator[tuple[str, str]]:
    held, productive = (
        sum(wanted.gpu_milliseconds.get(b, 0) for b in names) for names in (wanted.gpu_milliseconds, PRODUCTIVE)
    )
    share = float((ms * gpus + 2000) / max(held, 1))
    if made.cost is not None:
        yield from _alike("cost", wanted.cost, made.cost.total, share)
        yield from _alike(
            "cost of a million tokens", wanted.cost_of_million_tokens, made.cost.per_million_tokens, share
        )
        yield from _alike("cost of a checkpoint", wanted.cost_of_checkpoint, made.cost.per_checkpoint, share)
        lost = float((ms * gpus + 4000) / max(held - productive, 1))
        yield from _alike("cost of no progress", wanted.cost_of_no_progress, made.cost.not_productive, lost)
    time_in_steps = sum(wanted.milliseconds.get(bucket, 0) for bucket in PRODUCTIVE)
    rate = float((ms + 3000) / max(time_in_steps, 1))
    whole_seconds_decide = abs(time_in_steps - LEAST_MILLISECONDS_FOR_RATE) < ms + 1000
    if made.throughput is not None and not made.throughput.mfu_unknown and not whole_seconds_decide:
        yield from _alike("tokens", wanted.tokens, made.throughput.tokens, 0.0)
        yield from _alike("tokens per second", wanted.tokens_per_second, made.throughput.tokens_per_second, rate)
        yield from _alike("MFU", wanted.mfu, made.throughput.mfu, rate)


def _under_clocks_that_disagree(
    plan: Plan, true: History, wanted: Figures, outcome: Outcome
) -> Iterator[tuple[str, str]]:
    """What holds although leaders do not agree on the time: the sums (the player holds them), steps, failures, and no
    more progress."""
    goodput = outcome.goodput
    yield from _same("failures", (wanted.failures, wanted.failed_starts), (goodput.failures, goodput.failed_starts))
    ms = _slack(plan, true)
    for name in PRODUCTIVE:
        told, right = outcome.account.milliseconds.get(name, 0), wanted.milliseconds.get(name, 0)
        if told > right + ms:
            yield name, f"{told} in place of {float(right):.0f} at most"


def _same(name: str, right: object, told: object) -> Iterator[tuple[str, str]]:
    if right != told:
        yield name, f"{told} in place of {right}"


def _near(
    name: str, right: Fraction | float | None, told: float | None, slack: Fraction | float, unit: int = 1
) -> Iterator[tuple[str, str]]:
    if right is None or told is None:
        if told is not right:
            yield name, f"{told} in place of {right}"
    elif abs(Fraction(right) / unit - Fraction(told)) > slack:
        yield name, f"{told} in place of {float(Fraction(right) / unit):.3f}"


def _alike(name: str, right: Fraction | float | None, told: float | None, share: float) -> Iterator[tuple[str, str]]:
    if right is None or told is None:
        if told is not None:
            yield name, f"{told} in place of unknown"
    elif abs(float(right) - told) > share * max(abs(float(right)), abs(told)):
        yield name, f"{told} in place of {float(right):.6f}"


def shrunk(plan: Plan, folder: Path) -> Plan:
    """The smallest plan that can be found of which the same figure differs."""
    names = set(differences(plan, folder))
    candidates = smaller(plan)
    while (candidate := next(candidates, None)) is not None:
        if names & set(differences(candidate, folder)):
            plan, candidates = candidate, smaller(candidate)
    return plan


def shown(plan: Plan, folder: Path) -> str:
    """A plan as short as it can be written, and what differs."""
    parts = [f"{name}={value}" for name, value in _changed(plan, Plan(()), "attempts")]
    for attempt in plan.attempts:
        values = ", ".join(f"{name}={value}" for name, value in _changed(attempt, AttemptPlan()))
        parts.append(f"AttemptPlan({values})")
    found = "; ".join(f"{name}: {text}" for name, text in differences(plan, folder).items())
    return f"{', '.join(parts)}\n    {found}"


def _changed(plan: Any, plain: Any, *without: str) -> Iterator[tuple[str, object]]:
    for each in fields(plan):
        if each.name not in without and getattr(plan, each.name) != getattr(plain, each.name):
            yield each.name, getattr(plan, each.name)


def test_the_reference_knows_nothing_of_muster_and_has_documented_bounds() -> None:
    parsed = ast.walk(ast.parse(Path(reference.__file__).read_text()))
    modules = {name.name for node in parsed if isinstance(node, ast.Import) for name in node.names}
    assert modules <= {"math", "statistics"}
    parsed = ast.walk(ast.parse(Path(reference.__file__).read_text()))
    origins = {node.module or "" for node in parsed if isinstance(node, ast.ImportFrom)}
    assert not {origin for origin in origins if origin.startswith(("muster", "tests"))}
    four = reference.between_failures(Fraction(96 * HOUR), 4)
    assert four.most is not None
    assert (float(four.mean or 0), round(four.least / HOUR, 1), round(four.most / HOUR, 1)) == (24 * HOUR, 9.4, 88.1)

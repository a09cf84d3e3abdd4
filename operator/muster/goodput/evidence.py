"""Read how far the ranks of the current attempt have come from their launchers' reports. Pure.

Reports have ages, which a clock that steps cannot spoil.
"""

import math
import statistics
from collections.abc import Sequence
from itertools import pairwise

from muster.api.gang import GangSpec
from muster.api.goodput import LONGEST_MILLISECONDS, MAX_STEP, AttemptProgress, Bucket
from muster.api.throughput import MAX_PEAK
from muster.goodput.history import cleaned_text
from muster.protocol.checks import CheckReport
from muster.protocol.messages import MAX_VALUE_CHARS
from muster.recovery.verification import verifiers
from muster.world.job import JobWorld
from muster.world.views import LauncherView

GEMM = "gemm-bf16"
"""The probe of matrix products, in 10^12 operations a second."""
MOST_WATTS = 5000
"""The most that one accelerator can use."""
METER_MILLISECONDS = 60_000
"""Largest difference between the ages of a report and of its reading."""
LEAST_WITNESSES = 3
"""With fewer launchers that report steps, no single one is refuted by the others."""
FEW_STEPS = 64
SHORTER = 20.0
LATE_SECONDS = 120.0
MOST_STEPS = 10**6
"""The most steps of a rank that reports no pace."""


def current_evidence(world: JobWorld, record: GangSpec, elapsed: int) -> AttemptProgress | None:
    """Return the progress that launchers report; None where none reports a step. `elapsed` has the milliseconds since
    the start, as the account counts them.

    The launcher with the most steps counts for the gang: a step proves that all ranks were alive when it was finished.
    A report that cannot be true is ignored: by its own pace there was no time for so many steps, or the others are far
    behind.
    """
    views = [
        view
        for view in world.views.values()
        if view.attempt == record.attempt and view.step is not None and _reports_steps(view)
    ]
    views = _credible(views)
    if not views:
        return None
    # The first rank prints, or the last one.
    loss = next((cleaned_text(view.printed_loss, MAX_VALUE_CHARS) for view in views if view.printed_loss), "")
    of_any = {
        "loss": loss,
        "tokens_per_gpu_second": max(_integer(view.printed_tokens) for view in views),
        "printed_step_milliseconds": _printed_pace(world, views),
        "step_p90_milliseconds": max(map(_slow_step, views)),
        "gflops_per_gpu": max(_integer(view.printed_tflops, 1000) for view in views),
        "mfu_permille": min(max(_integer(view.printed_mfu, 1000) for view in views), 1000),
    }
    seen = _evidence_of_view(max(views, key=_order), elapsed, world, record)
    return _with_stall(_with_waits(seen.model_copy(update=of_any), views), views)


def _with_waits(seen: AttemptProgress, views: Sequence[LauncherView]) -> AttemptProgress:
    """Return the evidence with the gang's waiting times.

    The slowest loader holds up all ranks, and the others wait for it in a collective. So the input wait is the longest
    of any worker. Communication is the least that a worker has waited there beyond the longer wait of that loader.
    """
    inputs = {id(view): view.input_wait_seconds for view in views if view.input_wait_seconds is not None}
    longest = max(inputs.values(), default=0.0)
    spent = [
        max(view.communication_seconds - (longest - inputs.get(id(view), 0.0)), 0.0)
        for view in views
        if view.communication_seconds is not None
    ]
    reported_milliseconds = dict(seen.reported_milliseconds)
    if inputs:
        reported_milliseconds[Bucket.INPUT_WAIT.value] = milliseconds(longest)
    if spent:
        reported_milliseconds[Bucket.COMMUNICATION.value] = milliseconds(min(spent))
    return seen.model_copy(update={"reported_milliseconds": reported_milliseconds})


def _with_stall(seen: AttemptProgress, views: Sequence[LauncherView]) -> AttemptProgress:
    """Add what saves have cost: from the program, or else from the launcher that has measured the most saves.

    One rank may report it for all, and its launcher is not always the furthest. A save stops the gang for as long as
    its slowest rank.
    """
    reported = [view.checkpoint_stall_seconds for view in views if view.checkpoint_stall_seconds is not None]
    best = max(views, key=lambda view: view.measured_saves)
    stall = max(map(milliseconds, reported), default=milliseconds(best.measured_stall_seconds))
    reported_milliseconds = dict(seen.reported_milliseconds)
    if reported or stall:
        reported_milliseconds[Bucket.CHECKPOINT_STALL.value] = stall
    saves = 0 if reported else min(max(best.measured_saves, 0), MAX_STEP)
    return seen.model_copy(update={"reported_milliseconds": reported_milliseconds, "measured_saves": saves})


def _integer(printed: float | None, times: int = 1) -> int:
    """Return a printed quantity times `times` as a whole number; 0 for what is no quantity."""
    product = (printed or 0.0) * times
    return min(round(product), MAX_STEP) if math.isfinite(product) and product > 0 else 0


def _slow_step(view: LauncherView) -> int:
    """Return the milliseconds that one step in ten takes longer than; 0 where single steps are not seen."""
    return 0 if (view.step_stride or 1) > 1 else milliseconds(view.step_p90_seconds)


def _printed_pace(world: JobWorld, views: Sequence[LauncherView]) -> int:
    """Return the printed milliseconds of a step, or those that follow from its tokens per second; 0: unknown."""
    slowest = max((milliseconds(view.printed_step_seconds) for view in views), default=0)
    spec = world.job.spec
    tokens = max((view.printed_tokens or 0.0 for view in views if _integer(view.printed_tokens)), default=0.0)
    per_second = tokens * spec.nodes * spec.gpus_per_node
    if slowest or not per_second or spec.throughput.tokens_per_step is None:
        return slowest
    return milliseconds(spec.throughput.tokens_per_step / per_second)


def _credible(views: Sequence[LauncherView]) -> list[LauncherView]:
    """Return the launchers whose steps are possible."""
    timely = [view for view in views if _has_time(view)]
    if len(timely) < LEAST_WITNESSES:
        return timely
    middle = statistics.median_low([view.step or 0 for view in timely])
    lost = statistics.median_low([view.lost_steps for view in timely])
    return [
        view for view in timely if (view.step or 0) - middle <= _ahead(view) and view.lost_steps - lost <= FEW_STEPS
    ]


def _has_time(view: LauncherView) -> bool:
    """Whether its steps fit into the time since the first one at the pace of the newest ones.

    The margin is wide, since earlier steps may have been far shorter.
    """
    made = (view.step or 0) - (view.first_step or 0) + view.lost_steps
    span = (view.first_step_age_seconds or 0.0) - (view.step_age_seconds or 0.0)
    pace = view.step_seconds or 0.0
    return not made > FEW_STEPS + SHORTER * max(span, 0.0) / pace if pace > 0 else made <= MOST_STEPS


def _ahead(view: LauncherView) -> float:
    """Return by how many steps others may be behind: a report may be late, and steps short."""
    pace = view.step_seconds or 0.0
    return FEW_STEPS + (LATE_SECONDS / pace if pace > 0 else MOST_STEPS)


def _reports_steps(view: LauncherView) -> bool:
    """Whether the launcher reports the age of its first step: without it no step is finished."""
    return None not in (view.first_step, view.step_age_seconds, view.first_step_age_seconds)


def _order(view: LauncherView) -> tuple[int, float]:
    return (view.step or 0) + view.lost_steps, view.first_step_age_seconds or 0.0


def _evidence_of_view(view: LauncherView, elapsed: int, world: JobWorld, record: GangSpec) -> AttemptProgress:
    previous = record.account.progress if record.account else None
    last = milliseconds_ago(elapsed, view.step_age_seconds)
    first = min(milliseconds_ago(elapsed, view.first_step_age_seconds), last)
    joules, metered = _metered(world, record)
    lost_steps = view.lost_steps if view.lowest_restarted_step is not None else 0
    first_step = min(view.first_step or 0, (view.step or 0) + lost_steps)  # it may have gone back to before the first
    return AttemptProgress(
        start_milliseconds=min(milliseconds_ago(elapsed, view.started_age_seconds), first),
        first_step_milliseconds=first,
        last_step_milliseconds=last,
        first_step=first_step,
        step=view.step or 0,
        step_milliseconds=milliseconds(view.step_seconds),
        step_stride=max(view.step_stride or 0, 0),
        lost_steps=lost_steps,
        lost_milliseconds=min(milliseconds(view.lost_seconds), last - first) if lost_steps else 0,
        lowest_restarted_step=view.lowest_restarted_step if lost_steps else None,
        joules=joules,
        metered_gpu_milliseconds=metered,
        checkpoint_steps=_interval(world, record) or (previous.checkpoint_steps if previous else 0),
    )


def _metered(world: JobWorld, record: GangSpec) -> tuple[int, int]:
    """Return what the workers' accelerators have used in this attempt, and the metered milliseconds of one accelerator.

    A report of more time than the job's accelerators can have had includes those of others, or is wrong: it is ignored.
    So is a figure beyond what an accelerator can use.
    """
    joules = time = 0
    for view in world.views.values():
        used, gpu_time = view.energy_joules, view.energy_gpu_milliseconds
        if view.attempt != record.attempt or used is None or gpu_time is None:
            continue
        most = world.job.spec.gpus_per_node * (milliseconds(view.started_age_seconds) + METER_MILLISECONDS)
        if 0 < gpu_time <= most and 0 <= used * 1000 <= MOST_WATTS * gpu_time:
            joules, time = joules + used, time + gpu_time
    return min(joules, LONGEST_MILLISECONDS), min(time, LONGEST_MILLISECONDS)


def _interval(world: JobWorld, record: GangSpec) -> int:
    """Return the most frequent distance of listed complete checkpoints, in steps; 0 with fewer than two.

    The verifiers' longest list counts, since the worker that reports steps may be no verifier. An extra save, before a
    planned evacuation or of the best result so far, shows no interval.
    """
    lists = (
        sorted({c.step for c in worker.launcher.checkpoints if c.verified and not c.incomplete})
        for worker in verifiers(world, record)
        if worker.launcher is not None and worker.launcher.attempt == record.attempt
    )
    steps = max(lists, key=lambda listed: (len(listed), listed[-1:]), default=[])
    return statistics.median_high([later - step for step, later in pairwise(steps)]) if len(steps) > 1 else 0


def burn_in_milliseconds(world: JobWorld, record: GangSpec) -> int:
    """Return how long nodes were tested for this attempt, by the checkers' own clocks: the longest of all nodes counts.

    Nodes of the last attempt were tested already, unless the test is to find out why their results were wrong.
    """
    all_nodes = record.open_corruption is not None or (
        record.start is None and not any(m.is_replacement for m in record.members)
    )
    nodes = (member.node for member in record.members if all_nodes or member.is_replacement)
    checkers = (world.checkers[node] for node in nodes if node in world.checkers)
    return max(
        (sum(milliseconds(answer.seconds) for answer in checker.report.answers) for checker in checkers), default=0
    )


def reclaim_milliseconds(world: JobWorld, record: GangSpec, elapsed: int) -> int:
    """Return the time from the end of the last attempt until the last remaining launcher reported that its ranks are
    gone."""
    ages = [
        view.attempt_age_seconds
        for view in world.views.values()
        if view.attempt == record.attempt and 0 < view.previous_attempt < record.attempt
    ]
    return milliseconds_ago(elapsed, min(ages)) if ages else 0


def measured_tflops(world: JobWorld, record: GangSpec) -> int | None:
    """Return the burn-in's speed of one accelerator on the slowest node; None if a node has no such report."""
    views = [world.checkers.get(member.node) for member in record.members]
    speeds = [_gemm(view.report) if view is not None else 0.0 for view in views]
    slowest = min(speeds, default=0.0)
    return int(slowest) or None if slowest <= MAX_PEAK else None


def _gemm(report: CheckReport) -> float:
    """Return the speed of the report's matrix product; 0: it has no such figure."""
    speeds = (figure.figure for figure in report.figures if figure.probe == GEMM and report.device == "cuda")
    return max((speed for speed in speeds if speed > 0), default=0.0)


def milliseconds_ago(elapsed: int, age_seconds: float | None) -> int:
    """Convert an age to milliseconds within the elapsed time; an unknown age is 0."""
    return min(max(elapsed - milliseconds(age_seconds), 0), elapsed)


def milliseconds(seconds: float | None) -> int:
    """Round to whole milliseconds within what an account holds; 0 for None, for what is no number, and below zero."""
    if seconds is None or math.isnan(seconds) or seconds <= 0:
        return 0
    return round(min(seconds * 1000.0, float(LONGEST_MILLISECONDS)))

"""How far the ranks of the current attempt have come, as their launchers tell: by ages, which no clock that steps can
spoil. Pure."""

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
from muster.world.job import JobWorld
from muster.world.views import LauncherView

GEMM = "gemm-bf16"
"""The probe that multiplies matrices, in 10^12 operations a second."""
MOST_WATTS = 5000
"""Of one accelerator."""
METER_MILLISECONDS = 60_000
"""Ages of a report and of a reading may differ by so much."""
LEAST_WITNESSES = 3
"""So many have to tell of steps for one of them to be found alone with what it says."""
FEW_STEPS = 64
SHORTER = 20.0
LATE_SECONDS = 120.0
MOST_STEPS = 10**6
"""Of a rank that tells no pace."""


def current_evidence(world: JobWorld, record: GangSpec, elapsed: int) -> AttemptProgress | None:
    """What launchers say; None where none tells of a step.

    Of several the one that has made most steps speaks for the gang: a step proves that all were alive when it was
    finished. Not so one that cannot be true: by its own pace there was no time for so many, or the others are nowhere
    near.

    Args:
        elapsed: milliseconds since the go, as the account counts them.
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
    printed = {
        "loss": loss,
        "tokens_per_gpu_second": max(_whole(view.printed_tokens) for view in views),
        "printed_step_milliseconds": _printed_pace(world, views),
        "gflops_per_gpu": max(_whole(view.printed_tflops, 1000) for view in views),
        "mfu_permille": min(max(_whole(view.printed_mfu, 1000) for view in views), 1000),
    }
    seen = _evidence_of_view(max(views, key=_order), elapsed, world, record)
    return _with_stall(_with_waits(seen.model_copy(update=printed), views), views)


def _with_waits(seen: AttemptProgress, views: Sequence[LauncherView]) -> AttemptProgress:
    """The evidence with what the gang has waited for.

    The slowest loader holds up all, and the others wait for it in a collective. So the input wait is the longest of any
    worker, and communication the least that a worker has spent there beyond the longer wait of that loader.
    """
    inputs = {id(view): view.input_wait_seconds for view in views if view.input_wait_seconds is not None}
    longest = max(inputs.values(), default=0.0)
    spent = [
        max(view.communication_seconds - (longest - inputs.get(id(view), 0.0)), 0.0)
        for view in views
        if view.communication_seconds is not None
    ]
    told = dict(seen.reported_milliseconds)
    if inputs:
        told[Bucket.INPUT_WAIT.value] = milliseconds(longest)
    if spent:
        told[Bucket.COMMUNICATION.value] = milliseconds(min(spent))
    return seen.model_copy(update={"reported_milliseconds": told})


def _with_stall(seen: AttemptProgress, views: Sequence[LauncherView]) -> AttemptProgress:
    """The evidence with what saves have cost: where no program tells, as that launcher has measured that knows of most
    saves."""
    if any(view.checkpoint_stall_seconds is not None for view in views):
        return seen
    best = max(views, key=lambda view: view.measured_saves)
    stall = milliseconds(best.measured_stall_seconds)
    told = {**seen.reported_milliseconds, Bucket.CHECKPOINT_STALL.value: stall} if stall else seen.reported_milliseconds
    return seen.model_copy(
        update={"reported_milliseconds": told, "measured_saves": min(max(best.measured_saves, 0), MAX_STEP)}
    )


def _whole(printed: float | None, times: int = 1) -> int:
    """A printed quantity as a whole number, so many times; 0 for what is none."""
    told = (printed or 0.0) * times
    return min(round(told), MAX_STEP) if math.isfinite(told) and told > 0 else 0


def _printed_pace(world: JobWorld, views: Sequence[LauncherView]) -> int:
    """Milliseconds of a step, as any rank prints them, or the tokens of a second where the job says how many a step
    has; 0: unknown."""
    slowest = max((milliseconds(view.printed_step_seconds) for view in views), default=0)
    spec = world.job.spec
    tokens = max((view.printed_tokens or 0.0 for view in views if _whole(view.printed_tokens)), default=0.0)
    per_second = tokens * spec.nodes * spec.gpus_per_node
    if slowest or not per_second or spec.throughput.tokens_per_step is None:
        return slowest
    return milliseconds(spec.throughput.tokens_per_step / per_second)


def _credible(views: Sequence[LauncherView]) -> list[LauncherView]:
    """Those whose steps can have been made."""
    timely = [view for view in views if _has_time(view)]
    if len(timely) < LEAST_WITNESSES:
        return timely
    middle = statistics.median_low([view.step or 0 for view in timely])
    lost = statistics.median_low([view.lost_steps for view in timely])
    return [
        view for view in timely if (view.step or 0) - middle <= _ahead(view) and view.lost_steps - lost <= FEW_STEPS
    ]


def _has_time(view: LauncherView) -> bool:
    """Whether its steps fit into the time since the first, if each takes what its newest ones do: with much to spare,
    since steps may have been far shorter before."""
    made = (view.step or 0) - (view.first_step or 0) + view.lost_steps
    span = (view.first_step_age_seconds or 0.0) - (view.step_age_seconds or 0.0)
    pace = view.step_seconds or 0.0
    return not made > FEW_STEPS + SHORTER * max(span, 0.0) / pace if pace > 0 else made <= MOST_STEPS


def _ahead(view: LauncherView) -> float:
    """So many steps others may be behind: a report may be late, and steps short."""
    pace = view.step_seconds or 0.0
    return FEW_STEPS + (LATE_SECONDS / pace if pace > 0 else MOST_STEPS)


def _reports_steps(view: LauncherView) -> bool:
    """Whether it says since when: no step is finished before the first one."""
    return None not in (view.first_step, view.step_age_seconds, view.first_step_age_seconds)


def _order(view: LauncherView) -> tuple[int, float]:
    return (view.step or 0) + view.lost_steps, view.first_step_age_seconds or 0.0


def _evidence_of_view(view: LauncherView, elapsed: int, world: JobWorld, record: GangSpec) -> AttemptProgress:
    before = record.account.progress if record.account else None
    last = milliseconds_ago(elapsed, view.step_age_seconds)
    first = min(milliseconds_ago(elapsed, view.first_step_age_seconds), last)
    joules, metered = _metered(world, record)
    lost_steps = view.lost_steps if view.lowest_restarted_step is not None else 0
    first_step = min(view.first_step or 0, (view.step or 0) + lost_steps)  # it may have gone back to before the first
    stall = view.checkpoint_stall_seconds
    return AttemptProgress(
        start_milliseconds=min(milliseconds_ago(elapsed, view.started_age_seconds), first),
        first_step_milliseconds=first,
        last_step_milliseconds=last,
        first_step=first_step,
        step=view.step or 0,
        step_milliseconds=milliseconds(view.step_seconds),
        step_p90_milliseconds=0 if (view.step_stride or 1) > 1 else milliseconds(view.step_p90_seconds),
        step_stride=max(view.step_stride or 0, 0),
        lost_steps=lost_steps,
        lost_milliseconds=min(milliseconds(view.lost_seconds), last - first) if lost_steps else 0,
        lowest_restarted_step=view.lowest_restarted_step if lost_steps else None,
        joules=joules,
        metered_gpu_milliseconds=metered,
        checkpoint_steps=_interval(view) or (before.checkpoint_steps if before else 0),
        reported_milliseconds={} if stall is None else {Bucket.CHECKPOINT_STALL.value: milliseconds(stall)},
    )


def _metered(world: JobWorld, record: GangSpec) -> tuple[int, int]:
    """What the accelerators of all workers that tell have used in this attempt, and in how many milliseconds of one of
    them.

    Who tells of more time than the accelerators that the job asks for can have had sees others' too, or is wrong: that
    is not counted. Nor is what no accelerator can use.
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


def _interval(view: LauncherView) -> int:
    """Steps between complete checkpoints, as most of those that are listed are apart; 0 where there are not two.

    One that was saved out of turn, before a planned evacuation or because it was the best so far, tells of no interval.
    """
    steps = sorted({c.step for c in view.checkpoints if c.verified and not c.incomplete})
    return statistics.median_high([later - step for step, later in pairwise(steps)]) if len(steps) > 1 else 0


def burn_in_milliseconds(world: JobWorld, record: GangSpec) -> int:
    """For how long nodes were tested for this attempt, by the checkers' own clocks: the longest of all nodes counts.

    Nodes that were there before were tested before, unless what is tested is why their results were wrong.
    """
    everybody = record.open_corruption is not None or (
        record.start is None and not any(m.is_replacement for m in record.members)
    )
    nodes = (member.node for member in record.members if everybody or member.is_replacement)
    checkers = (world.checkers[node] for node in nodes if node in world.checkers)
    return max((sum(milliseconds(answer.seconds) for answer in each.report.answers) for each in checkers), default=0)


def reclaim_milliseconds(world: JobWorld, record: GangSpec, elapsed: int) -> int:
    """From the end of the attempt before until the last of the launchers that go on said that its ranks are gone."""
    ages = [
        view.attempt_age_seconds
        for view in world.views.values()
        if view.attempt == record.attempt and 0 < view.previous_attempt < record.attempt
    ]
    return milliseconds_ago(elapsed, min(ages)) if ages else 0


def last_step_of(world: JobWorld, record: GangSpec, attempt: int) -> int | None:
    """The newest step of an attempt that has ended, as launchers tell that were there and go on; None where none does.

    They look on until its ranks are gone, while what ended it may have been acted on before their next report.
    """
    views = (view for view in world.views.values() if view.attempt == record.attempt)
    return max(
        (v.previous_step for v in views if v.previous_step is not None and v.previous_attempt == attempt), default=None
    )


def measured_tflops(world: JobWorld, record: GangSpec) -> int | None:
    """What one accelerator has reached in the burn-in, of the slowest node; None where a node's checker does not tell,
    or had none."""
    views = [world.checkers.get(member.node) for member in record.members]
    found = [_gemm(view.report) if view is not None else 0.0 for view in views]
    slowest = min(found, default=0.0)
    return int(slowest) or None if slowest <= MAX_PEAK else None


def _gemm(report: CheckReport) -> float:
    """0: it has no such figure."""
    told = (each.figure for each in report.figures if each.probe == GEMM and report.device == "cuda")
    return max((figure for figure in told if figure > 0), default=0.0)


def milliseconds_ago(elapsed: int, age_seconds: float | None) -> int:
    """So long before the end, within what has elapsed; an age that nobody tells is none."""
    return min(max(elapsed - milliseconds(age_seconds), 0), elapsed)


def milliseconds(seconds: float | None) -> int:
    """The nearest whole number; 0 for what is no duration: nothing, not a number, below zero. Never more than an
    account holds."""
    if seconds is None or math.isnan(seconds) or seconds <= 0:
        return 0
    return round(min(seconds * 1000.0, float(LONGEST_MILLISECONDS)))

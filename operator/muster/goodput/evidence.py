"""How far the ranks of the current attempt have come, as their launchers tell: by ages, which no clock that steps can spoil. Pure."""

import math

from muster.api.gang import GangSpec
from muster.api.goodput import LONGEST_MILLISECONDS, TOLD, Seen
from muster.world.job import JobWorld
from muster.world.views import LauncherView


def told_now(world: JobWorld, record: GangSpec, elapsed: int) -> Seen | None:
    """What launchers say; None where none tells of a step.

    Of several the one whose newest step is the highest speaks for the gang: a step proves that all were alive when it was
    finished.

    Args:
        elapsed: milliseconds since the go, as the account counts them.
    """
    views = [
        view
        for view in world.views.values()
        if view.attempt == record.attempt and view.step is not None and _tells(view)
    ]
    return _of(max(views, key=_order), elapsed, record) if views else None


def _tells(view: LauncherView) -> bool:
    """Whether it says since when: launchers of old do not tell of the first step."""
    return None not in (view.first_step, view.step_age_seconds, view.first_step_age_seconds)


def _order(view: LauncherView) -> tuple[int, float]:
    return view.step or 0, view.first_step_age_seconds or 0.0


def _of(view: LauncherView, elapsed: int, record: GangSpec) -> Seen:
    before = record.account.seen if record.account else None
    last = ago(elapsed, view.step_age_seconds)
    first = min(ago(elapsed, view.first_step_age_seconds), last)
    first_step = min(view.first_step or 0, view.step or 0)
    told = (view.input_wait_seconds, view.communication_seconds, view.checkpoint_stall_seconds)
    return Seen(
        started=min(ago(elapsed, view.started_age_seconds), first),
        first=first,
        last=last,
        first_step=first_step,
        step=view.step or 0,
        step_milliseconds=milliseconds(view.step_seconds),
        step_p90_milliseconds=milliseconds(view.step_p90_seconds),
        checkpoint_steps=_interval(view) or (before.checkpoint_steps if before else 0),
        told={
            bucket: amount for bucket, seconds in zip(TOLD, told, strict=True) if (amount := milliseconds(seconds)) > 0
        },
    )


def _interval(view: LauncherView) -> int:
    """Steps between the two newest checkpoints that are complete; 0 where there are not two."""
    steps = sorted({c.step for c in view.checkpoints if c.judged and not c.torn}, reverse=True)
    return steps[0] - steps[1] if len(steps) > 1 else 0


def burn_in_milliseconds(world: JobWorld, record: GangSpec) -> int:
    """For how long nodes were tested for this attempt, by the checkers' own clocks: the longest of all nodes counts.

    Nodes that were there before were tested before, unless what is tested is why their results were wrong.
    """
    everybody = record.open_corruption is not None or (
        record.go is None and not any(m.newcomer for m in record.members)
    )
    nodes = (member.node for member in record.members if everybody or member.newcomer)
    checkers = (world.checkers[node] for node in nodes if node in world.checkers)
    return max((sum(milliseconds(answer.seconds) for answer in each.report.answers) for each in checkers), default=0)


def reclaim_milliseconds(world: JobWorld, record: GangSpec, elapsed: int) -> int:
    """From the end of the attempt before until the last of the launchers that go on said that its ranks are gone."""
    ages = [
        view.attempt_age_seconds
        for view in world.views.values()
        if view.attempt == record.attempt and 0 < view.previous_attempt < record.attempt
    ]
    return ago(elapsed, min(ages)) if ages else 0


def last_step_of(world: JobWorld, record: GangSpec, attempt: int) -> int | None:
    """The newest step of an attempt that has ended, as launchers tell that were there and go on; None where none does.

    They look on until its ranks are gone, while what ended it may have been acted on before their next report.
    """
    views = (view for view in world.views.values() if view.attempt == record.attempt)
    return max(
        (v.previous_step for v in views if v.previous_step is not None and v.previous_attempt == attempt), default=None
    )


def ago(elapsed: int, age_seconds: float | None) -> int:
    """So long before the end, within what has elapsed; an age that nobody tells is none."""
    return min(max(elapsed - milliseconds(age_seconds), 0), elapsed)


def milliseconds(seconds: float | None) -> int:
    """As a whole number; 0 for what is no duration: nothing, not a number, below zero. Never more than an account holds."""
    if seconds is None or math.isnan(seconds) or seconds <= 0:
        return 0
    return int(min(seconds * 1000.0, float(LONGEST_MILLISECONDS)))

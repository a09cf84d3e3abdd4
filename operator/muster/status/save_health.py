"""How saving goes: what each save was like, and what users should look at before it becomes expensive. Pure.

Facts come from launchers. Verifiers list the files of checkpoints anyway, and those whose ranks report steps see what a
save costs. The last few saves stand in the job's status, because trainers delete the old ones. Nothing here decides
anything: a concern is only reported.
"""

import statistics
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from muster.api.base import EARLIEST, LATEST
from muster.api.gang import GangSpec
from muster.api.trainingjob import (
    MAX_SAVE_SECONDS,
    MAX_SAVES,
    CheckpointConcern,
    CheckpointSave,
    CheckpointStatus,
    CheckpointTrouble,
)
from muster.checkpoints import resume
from muster.protocol.checkpoint_names import is_url
from muster.protocol.messages import CheckpointReport
from muster.record import incidents
from muster.recovery.verification import verifiers
from muster.world.job import JobWorld
from muster.world.views import FRESH_SECONDS, LauncherView

FIRST_SAVES = 4  # by which later ones are measured
MISSED_INTERVALS = 3
# Of intervals of seconds three are no time: a listing may take half a minute.
MISSED_SECONDS = 120.0
LEAST_INTERVALS = 2  # known, before one is called usual
# Of the newest checkpoint's size: so much room is little while room becomes less, and this little at any time.
LITTLE_ROOM = 5
NO_ROOM = 1
SHRUNK = 2  # of that size, in all the saves that are known: then room becomes less, and not only between two deletions
LONGER = 1.5  # than the first ones
LONGER_STILL = 1.3  # until then it is called so
LEAST_STILL = 0.6  # of the seconds below, likewise
NEWEST_SAVES = 3
_SAME_TIME_SECONDS = 30.0  # two mounts may tell one file's time with that difference; to save a step anew takes longer
_STANDS = timedelta(minutes=10)  # at least: what comes and goes is told once

_Measure = Callable[[CheckpointSave], int | None]
# What grows, in words, and by how many seconds at least: the moment at which one is seen whole depends on when it is
# looked for.
_MEASURES: Sequence[tuple[_Measure, str, int]] = (
    (lambda save: save.stall_seconds, "hold up the training for", 5),
    (lambda save: save.save_seconds, "take from their first file to their last", 10),
    (lambda save: save.durable_seconds, "are whole only after", 60),
)


def with_save_concerns(
    world: JobWorld, record: GangSpec, checkpoint: CheckpointStatus, *, trains: bool
) -> CheckpointStatus:
    """Return the newest checkpoint with the saves that are known and with concerns about saving.

    Args:
        world: the state of the job.
        record: of the gang.
        checkpoint: the newest one, as the status shows it.
        trains: whether the ranks have started. While they have not, the concerns stay as they are.
    """
    previous = world.job.status.checkpoint
    saves = _saves(world, record, checkpoint)
    updated = checkpoint.model_copy(update={"saves": saves})
    if trains:
        updated = updated.model_copy(update={"concerns": _concerns(world, record, updated, previous)})
    # Equal is the same: a status that changes is a write.
    return previous if previous is not None and previous == updated else updated


def _saves(world: JobWorld, record: GangSpec, checkpoint: CheckpointStatus) -> list[CheckpointSave]:
    by_step = {save.step: save for save in checkpoint.saves if save.step <= checkpoint.step}
    reports = [report for report in resume.complete_checkpoints(world, record) if report.step <= checkpoint.step]
    paths: dict[int, str] = {checkpoint.step: checkpoint.path}
    for report in sorted(reports, key=lambda report: report.path):
        paths.setdefault(report.step, report.path)
    for report in reports:  # a trainer may write a step twice, such as `last` beside it: one of them counts
        if report.path == paths[report.step]:
            by_step[report.step] = _merge_save(by_step.get(report.step), report)
    newest = by_step.get(checkpoint.step)
    if newest is not None and newest.free_bytes is None:
        by_step[checkpoint.step] = newest.model_copy(update={"free_bytes": _free_bytes(world, record)})
    ordered = [by_step[step] for step in sorted(by_step)]
    return ordered if len(ordered) <= MAX_SAVES else ordered[:FIRST_SAVES] + ordered[FIRST_SAVES - MAX_SAVES :]


def _merge_save(save: CheckpointSave | None, report: CheckpointReport) -> CheckpointSave:
    """Return what is known of a save after a launcher's report; earlier values count while it is the same save.

    Args:
        save: before the report; None: nothing.
        report: the report.
    """
    written = _time(report.written_ns)
    if save is None or not _is_same(save.time, written):
        save = CheckpointSave(step=report.step, time=written)
    measured = {
        "bytes": report.size_bytes,
        "save_seconds": _seconds(report.save_seconds),
        "stall_seconds": _seconds(report.stall_seconds),
        "durable_seconds": _seconds(report.durable_seconds),
    }
    news = {name: value for name, value in measured.items() if value is not None and getattr(save, name) is None}
    return save.model_copy(update=news) if news else save


def _time(written_ns: int) -> datetime | None:
    """Return the time of a save; None where it is not known, or outside sensible limits.

    Args:
        written_ns: nanoseconds since the epoch; 0: not known.
    """
    moment = datetime.fromtimestamp(written_ns // 1_000_000_000, UTC)
    return moment if EARLIEST < moment < LATEST else None


def _is_same(time: datetime | None, other_time: datetime | None) -> bool:
    if time is None or other_time is None:
        return time is other_time
    return abs((time - other_time).total_seconds()) <= _SAME_TIME_SECONDS


def _seconds(seconds: float | None) -> int | None:
    return None if seconds is None else min(round(seconds), MAX_SAVE_SECONDS)


def _free_bytes(world: JobWorld, record: GangSpec) -> int | None:
    """Return the free space of the checkpoint directory in bytes, as the verifiers see it; None: none of them reports
    it."""
    free_bytes = (
        worker_view.launcher.free_bytes for worker_view in verifiers(world, record) if worker_view.launcher is not None
    )
    return min((free for free in free_bytes if free is not None), default=None)


def _concerns(
    world: JobWorld, record: GangSpec, checkpoint: CheckpointStatus, previous: CheckpointStatus | None
) -> list[CheckpointConcern]:
    standing = {concern.reason: concern for concern in previous.concerns} if previous is not None else {}
    # While the newest is the same, so are the words: the room that is left changes all the time.
    same = previous is not None and (previous.step, previous.path) == (checkpoint.step, checkpoint.path)
    concerns = []
    for reason, message in (
        (CheckpointTrouble.NO_NEW_CHECKPOINT, _missed_saves_message(world, record, checkpoint)),
        (
            CheckpointTrouble.SPACE_LOW,
            _full_disk_message(world, record, checkpoint, CheckpointTrouble.SPACE_LOW in standing),
        ),
        (
            CheckpointTrouble.SAVES_TAKE_LONGER,
            _slow_saves_message(checkpoint, CheckpointTrouble.SAVES_TAKE_LONGER in standing),
        ),
    ):
        old = standing.get(reason)
        if message is None or (not message and old is not None and world.now < old.since + _STANDS):
            concerns += [old] if old is not None else []  # not known now, or it may come again at once
        elif message:
            words = old.message if old is not None and same else message
            concerns.append(CheckpointConcern(reason=reason, message=words, since=old.since if old else world.now))
    return concerns


def _missed_saves_message(world: JobWorld, record: GangSpec, checkpoint: CheckpointStatus) -> str | None:
    """Return the message that three saves in a row did not come; "" when saves come, None while no verifier looks.

    The time counts from the last save or from the start of the ranks. The steps must have gone on as far, too: a slow
    or evaluating training saves late. Steps alone say little, because a name may count epochs.
    """
    if record.start is None:
        return ""
    if not any(_sees(worker_view.launcher) for worker_view in verifiers(world, record)):
        return None
    newest = checkpoint.saves[-(MAX_SAVES - FIRST_SAVES) :]
    seconds, steps = _longest(_seconds_between(newest)), _longest(b.step - a.step for a, b in pairwise(newest))
    if seconds is None:
        return ""
    limit = max(MISSED_INTERVALS * seconds, MISSED_SECONDS)
    if (world.now - max(checkpoint.time, record.start.time)).total_seconds() < limit:
        return ""
    step = incidents.newest_step(world, record)
    if step is None or (steps is not None and step - checkpoint.step < MISSED_INTERVALS * steps):
        return ""
    return (
        f"checkpoint {checkpoint.step} ({checkpoint.path}) is the newest complete one, and {MISSED_INTERVALS} more "
        f"should have come since: the last ones came at most {_span(seconds)} apart. A fault now loses all steps "
        f"beyond it. See whether the trainer still saves, and whether {world.job.spec.checkpoint.directory} can be "
        "written to"
    )


def _full_disk_message(world: JobWorld, record: GangSpec, checkpoint: CheckpointStatus, stands: bool) -> str | None:
    """Return the message that the directory's file system is about to be full; "" when it is not, None when it is
    unknown.

    Args:
        world: the state of the job.
        record: of the gang.
        checkpoint: the newest checkpoint with its saves.
        stands: whether the concern is in the status already.
    """
    newest = checkpoint.saves[-(MAX_SAVES - FIRST_SAVES) :]
    size = max(
        (save.bytes for save in newest if save.bytes is not None), default=0
    )  # full ones and light ones may take turns
    free = _free_bytes(world, record)
    if free is None or not size:
        return "" if is_url(world.job.spec.checkpoint.directory or "") else None
    free_bytes = [save.free_bytes for save in newest if save.free_bytes is not None]
    lost = free_bytes[0] - free_bytes[-1] if len(free_bytes) > 1 else 0
    shrinks = lost >= SHRUNK * size
    rooms = (LITTLE_ROOM if shrinks else NO_ROOM) + (1 if stands else 0)  # a deletion more or less changes nothing
    if free >= rooms * size:
        return ""
    directory = world.job.spec.checkpoint.directory
    message = f"{_size(free)} can still be written below {directory}, and a checkpoint has {_size(size)}"
    if shrinks:
        per_save = lost / (len(free_bytes) - 1)
        left, seconds = int(free / per_save), _usual(_seconds_between(newest))
        when = f", in about {_span(left * seconds)}" if seconds is not None and left else ""
        saves = f"after {left} more save{'s' * (left != 1)}{when}" if left else "with the next save"
        message += f"; each save leaves {_size(int(per_save))} less, and it is full {saves}"
    return (
        message + ". Delete what is not needed, let the trainer keep fewer, or make the volume larger: "
        "a save on a full disk is lost"
    )


def _slow_saves_message(checkpoint: CheckpointStatus, stands: bool) -> str:
    """Return the message that saves take longer than the first ones did; "" while they do not, or too few are known.

    Args:
        checkpoint: the newest checkpoint with its saves.
        stands: whether the concern is in the status already.
    """
    factor = LONGER_STILL if stands else LONGER
    for measure, words, least in _MEASURES:
        durations = [seconds for save in checkpoint.saves if (seconds := measure(save)) is not None]
        first, newest = durations[: min(FIRST_SAVES, len(durations) - NEWEST_SAVES)], durations[-NEWEST_SAVES:]
        if len(first) < NEWEST_SAVES:
            continue
        then, now = statistics.median(first), statistics.median(newest)
        if now >= factor * then and now - then >= (LEAST_STILL if stands else 1) * least:
            return (
                f"checkpoints {words} {_span(now)} now, and the first ones {_span(then)}. See what else uses the "
                "storage, and how full it is; longer intervals cost less until it is repaired"
            )
    return ""


def _sees(launcher: LauncherView | None) -> bool:
    """Whether the launcher is heard and looks through the checkpoint directory."""
    return launcher is not None and launcher.heard_age_seconds < FRESH_SECONDS and not launcher.checkpoint_error


def _seconds_between(saves: Sequence[CheckpointSave]) -> list[float]:
    times = [save.time for save in saves if save.time is not None]
    return [(later - earlier).total_seconds() for earlier, later in pairwise(times)]


def _usual(gaps: Iterable[float]) -> float | None:
    """Return the median of the positive gaps, in seconds; None where too few are known."""
    positive = [gap for gap in gaps if gap > 0]
    return statistics.median(positive) if len(positive) >= LEAST_INTERVALS else None


def _longest(gaps: Iterable[float]) -> float | None:
    """Return the longest of the positive gaps, in seconds; None where too few are known."""
    positive = [gap for gap in gaps if gap > 0]
    return max(positive) if len(positive) >= LEAST_INTERVALS else None


def _span(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h"


def _size(count: int) -> str:
    for unit, bytes_each in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= bytes_each:
            return f"{count / bytes_each:.3g} {unit}"
    return f"{count / 1e3:.3g} kB"

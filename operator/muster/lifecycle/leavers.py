"""What ranks make of the request to save and leave: whether they follow it, and whether anything is worth waiting for.
Pure.

Tests: tests/unit/lifecycle/test_leavers.py.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median

from muster.api.gang import Evacuation, GangSpec
from muster.checkpoints import resume
from muster.protocol.messages import RankReport
from muster.record import incidents
from muster.recovery.exits import has_crashed
from muster.world.job import JobWorld
from muster.world.views import FRESH_SECONDS, LauncherView

# A trainer looks for a request at the end of a step. It has this long beside the longest time that a step took.
ANSWER_SECONDS = 30.0
# Of ranks that follow a request the last one ends this long after the first, with the checkpoint seen complete.
EXIT_SECONDS = 30.0
# A checkpoint that was complete when a rank crashed is seen by the others after this long: a launcher lists every two
# seconds, and some formats count once two lists 5 s apart have found the same files.
SEEN_SECONDS = 10.0
# Storage shows what is there after this long at the latest: clients of NFS keep a directory for 60 s (acdirmax).
SHOWN_SECONDS = 60.0


def follow(world: JobWorld, record: GangSpec) -> bool:
    """Whether a rank has said that it follows a request of this attempt to leave, be it withdrawn or not."""
    asked = record.evacuation_requests  # mostly none: each decision about each gang comes here
    return bool(asked) and any(view.request_answered in asked for view in _views(world, record))


def have_begun_to_end(world: JobWorld, record: GangSpec) -> bool:
    """Whether any rank of this attempt has ended by itself."""
    return any(_ended(world, record))


def have_ended(world: JobWorld, record: GangSpec) -> bool:
    """Whether every rank has ended and checkpoints were listed after that, or the first ended too long ago."""
    ages = [rank.exited_age_seconds or 0.0 for rank in _ended(world, record)]
    if max(ages, default=0.0) >= EXIT_SECONDS:
        return True
    return have_all_ended(world, record) and not any(view.lists_after_end for view in _views(world, record))


def have_all_ended(world: JobWorld, record: GangSpec) -> bool:
    """Whether every rank of this attempt has ended by itself, or was ended."""
    views = list(_views(world, record))
    return len(views) == len(record.members) and all(
        view.ranks and not any(rank.alive for rank in view.ranks) for view in views
    )


def have_failed(world: JobWorld, record: GangSpec) -> bool:
    """Whether the end of ranks is a failure, as long as no checkpoint of theirs is seen.

    A rank that has crashed saves nothing any more, and the others wait for it. Another code than 0 that a rank has
    chosen says less: storage may show its save late.
    """
    bad = [rank for rank in _ended(world, record) if rank.exit_code != 0]
    if not bad:
        return False
    crashed_seconds = max((rank.exited_age_seconds or 0.0 for rank in bad if has_crashed(rank)), default=None)
    if crashed_seconds is not None and (crashed_seconds >= SEEN_SECONDS or have_ended(world, record)):
        return True
    return max(rank.exited_age_seconds or 0.0 for rank in bad) >= SHOWN_SECONDS


def are_heard(world: JobWorld, record: GangSpec) -> bool:
    """Whether every worker has reported to this leader, or had its time to.

    Before that it is not known who follows a request, and which checkpoint is new.
    """
    return world.leader_age_seconds >= FRESH_SECONDS or len(world.views) == len(record.members)


def save_yet(world: JobWorld, record: GangSpec) -> bool:
    """Whether ranks that follow a request may be saving still what they have trained beyond the newest checkpoint.

    That one may come of a save that was under way when they were asked. Programs that count from 0 call the checkpoint
    of their last step by one less: one step behind is believed of ranks that have made no step for a while.
    """
    newest, last = resume.newest_checkpoint(world, record), incidents.newest_step(world, record)
    if newest is None or last is None or not follow(world, record) or have_ended(world, record):
        return False
    return newest.step < last - int(are_still(world))


def are_still(world: JobWorld) -> bool:
    """Whether the ranks have made no step for a while: they wait for their end, have ended, or hang."""
    return world.newest_step_age_seconds >= EXIT_SECONDS


def wait_in_vain(world: JobWorld, record: GangSpec, evacuation: Evacuation, deadline: datetime) -> bool:
    """Whether no rank answers the request, and no save that the program makes of itself can be expected in time.

    Where it has not been seen how often the program saves, a save may come at any time.
    """
    limit = ANSWER_SECONDS + max((view.longest_wait_seconds or 0.0 for view in _views(world, record)), default=0.0)
    is_early = world.now < evacuation.since + timedelta(seconds=limit) or not are_heard(world, record)
    if is_early or follow(world, record):
        return False
    expected = next_save(world, record)
    return expected is not None and expected > deadline


def next_save(world: JobWorld, record: GangSpec) -> datetime | None:
    """Return when the program should save next of itself, by its saves since the start; None where it is not known."""
    checkpoint, start = world.job.status.checkpoint, record.start
    if checkpoint is None or start is None:
        return None
    times = [save.time for save in checkpoint.saves if save.time is not None and save.time >= start.time]
    gaps = [(later - earlier).total_seconds() for earlier, later in pairwise(times)]
    return times[-1] + timedelta(seconds=median(gaps)) if gaps else None


def _views(world: JobWorld, record: GangSpec) -> Iterator[LauncherView]:
    return (view for view in world.views.values() if view.attempt == record.attempt)


def _ended(world: JobWorld, record: GangSpec) -> Iterator[RankReport]:
    ranks = (rank for view in _views(world, record) for rank in view.ranks)
    return (rank for rank in ranks if not rank.alive and not rank.ended_by_launcher)

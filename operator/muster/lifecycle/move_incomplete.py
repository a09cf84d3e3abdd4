"""Moves incomplete checkpoints out of the way before a start, where the job asks for it. Pure.

The order goes on record once only the opening of the start barrier is missing. Then no former rank can be alive, and
none starts before the barrier opens. One worker moves them, and the barrier waits for its report. So nothing is moved
under ranks, under any leader.
"""

from muster.api.gang import GangSpec
from muster.checkpoints.resume import Missing
from muster.protocol.checkpoint_names import is_url
from muster.protocol.resuming import is_own
from muster.record import starts
from muster.recovery.verification import NOT_MOVED
from muster.status.report import Announcement
from muster.world.job import JobWorld

SET_ASIDE = "IncompleteMoved"


def with_move_ordered(world: JobWorld, record: GangSpec, opened: GangSpec) -> GangSpec | None:
    """Return the record that orders incomplete checkpoints to be moved before the start; None: no order is needed.

    No order is needed where the job does not ask for it, it was given already, or the ranks start from scratch.

    Args:
        world: the state of the job.
        record: of the gang.
        opened: the record with the start barrier open, as it would be committed.
    """
    checkpoint, go = world.job.spec.checkpoint, opened.start
    if not checkpoint.move_incomplete or record.move_incomplete_beyond is not None or go is None or go.resume is None:
        return None
    directory = checkpoint.directory or ""
    if is_url(directory) or not is_own(go.resume.path, directory):
        return None
    suspect = opened.suspect_checkpoint
    # Where it goes back from a checkpoint that seems to load nowhere, that is to be moved, too: only what the record
    # excludes is.
    goes_back = suspect is not None and suspect.fallback == go.resume
    return starts.with_move_ordered(record, go.resume, opened if goes_back else None)


def awaited_move(world: JobWorld, record: GangSpec) -> Missing | None:
    """Return what the start waits for while incomplete checkpoints are being moved; None: nothing."""
    if record.move_incomplete_beyond is None:
        return None
    worker_view = world.worker_views[0]
    if worker_view.launcher is not None and worker_view.launcher.moved_attempt >= record.attempt:
        return None
    message = (
        f"The start waits for {worker_view.where} to move what is beyond checkpoint "
        f"{record.move_incomplete_beyond.step} and incomplete"
    )
    return Missing(NOT_MOVED, message)


def move_events(world: JobWorld, record: GangSpec) -> list[Announcement]:
    """Return the Events about incomplete checkpoints that were moved, or could not be."""
    launcher = world.worker_views[0].launcher if record.move_incomplete_beyond is not None else None
    if launcher is None:
        return []
    events = []
    if launcher.moved:
        events.append(Announcement(SET_ASIDE, f"in {world.job.spec.checkpoint.directory}: {launcher.moved}"))
    if launcher.moved_error:
        text = f"Not every incomplete checkpoint could be moved: {launcher.moved_error}"
        events.append(Announcement(NOT_MOVED, text, warning=True))
    return events

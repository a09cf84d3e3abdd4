"""A checkpoint directory that not all workers share, as seen while the ranks train: before a lost pod shows it. Pure.

While ranks run only the verifiers list checkpoints: two or three workers, on nodes of their own, spread over the gang.
What one of them has found complete and another never lists, lies on its node or in its pod. More workers need not list:
what two of them do not share is not shared.
"""

from muster.api.gang import GangSpec
from muster.checkpoints.resume import is_of_present_branch
from muster.pods.warned import Warned
from muster.protocol.checkpoint_names import is_url
from muster.protocol.checkpoints import MAX_LISTED
from muster.protocol.messages import RUNNING
from muster.recovery.verification import verifiers
from muster.world.job import JobWorld, WorkerView
from muster.world.views import FRESH_SECONDS, LauncherView

NOT_SHARED = "CheckpointNotShared"
# NFS clients keep what they know of a directory for up to 60 s, clocks differ, and a large checkpoint is verified.
UNSEEN_SECONDS = 180.0
# The newest listing must be younger, so that it began when others have long seen the checkpoint.
LISTED_SECONDS = 60.0


def unshared_warning(world: JobWorld, record: GangSpec) -> Warned | None:
    """Return the warning that a worker does not see a checkpoint that another has; None: none is known of.

    Once it is there it stays until the two see one checkpoint of this attempt.
    """
    directory = world.job.spec.checkpoint.directory
    if not directory or is_url(directory) or record.start is None:
        return None
    listing_views = [
        worker_view
        for worker_view in verifiers(world, record)
        if worker_view.launcher is not None and _lists(worker_view.launcher, record)
    ]
    is_warned = any(warning.reason == NOT_SHARED for warning in world.job.status.warnings)
    warnings = (
        Warned(NOT_SHARED, _message(seeing, blind, directory))
        for seeing in listing_views
        for blind in listing_views
        if blind is not seeing and _is_missed(world, record, seeing, blind, is_warned=is_warned)
    )
    return next(warnings, None)


def _lists(view: LauncherView, record: GangSpec) -> bool:
    """Whether a worker lists checkpoints beside its ranks, as far as was heard lately."""
    if view.attempt != record.attempt or view.state != RUNNING or view.heard_age_seconds >= FRESH_SECONDS:
        return False
    return (
        not view.checkpoint_error and view.listed_age_seconds is not None and view.listed_age_seconds < LISTED_SECONDS
    )


def _is_missed(world: JobWorld, record: GangSpec, seeing: WorkerView, blind: WorkerView, *, is_warned: bool) -> bool:
    """Whether a worker sees none of the checkpoints of this attempt that another has seen for long.

    Args:
        world: the state of the job.
        record: of the gang.
        seeing: the worker that has found some.
        blind: the worker that may not see them.
        is_warned: whether the warning is there: then time says nothing more.
    """
    assert seeing.launcher is not None
    assert blind.launcher is not None
    assert record.start is not None
    began = record.start.time.timestamp()
    saved = {
        (c.step, c.path): c.written_ns / 1e9
        for c in seeing.launcher.checkpoints
        if c.verified and is_of_present_branch(record, c) and c.written_ns / 1e9 >= began
    }
    listed = {(c.step, c.path) for c in blind.launcher.checkpoints}
    if not saved or any(key in listed for key in saved):
        return False
    if len(listed) >= MAX_LISTED and min(listed)[0] > max(saved)[0]:  # its list has no room for them
        return False
    return is_warned or world.now.timestamp() - min(saved.values()) >= UNSEEN_SECONDS


def _message(seeing: WorkerView, blind: WorkerView, directory: str) -> str:
    return (
        f"{blind.where} does not see the checkpoints in {directory} that {seeing.where} does: the directory is not "
        "shared, and what it holds may be lost with a pod or node. Mount one volume there in all workers (a claim with "
        "ReadWriteMany, NFS), or correct spec.checkpoint.directory. What is on each node's own disk belongs into "
        "spec.checkpoint.localDirectory"
    )

"""Resuming from the nodes' own disks, from a checkpoint that is newer than any shared one and complete on all nodes.

Such a checkpoint is lost with any of its nodes, so it never holds a start. Where one node lacks its whole share of the
very same save, the newest shared checkpoint is resumed, and a warning says what that costs. Launchers know which
attempt saved it, as which part of the gang, by what they wrote beside it (muster.node.checkpoint.local). Pure.
"""

from dataclasses import replace

from muster.api.gang import GangSpec, Member, Resume
from muster.api.trainingjob import TrainingJob
from muster.checkpoints import resume, unloadable
from muster.checkpoints.resume import Missing, Start, listed_seconds
from muster.protocol.messages import LocalReport
from muster.protocol.resuming import is_own
from muster.world.job import JobWorld, WorkerView

# A launcher gives up a disk that does not answer by itself, and says so.
WAIT_SECONDS = 30.0
NOT_LOOKED = "LocalCheckpointsNotListed"

_Key = tuple[int, str, int]  # step, path, the attempt that saved it


def share_of_gang(job: TrainingJob, record: GangSpec, member: Member) -> str | None:
    """Return the name of the member's part of the gang, such as `3/16x8`: rank, nodes and processes per node.

    None where the job keeps no checkpoints on the nodes' own disks.
    """
    checkpoint = job.spec.checkpoint
    if not checkpoint.local_directory or not checkpoint.directory:
        return None
    return f"{member.rank}/{record.node_count}x{job.spec.launch.processes_per_node}"


def local_start(world: JobWorld, record: GangSpec) -> Start | Missing:
    """Return where the next start resumes: from the shared directory, or from a newer save on the nodes' own disks.

    What a user asks for is done to the letter. After wrong results, no save on the nodes' own disks is used.

    Returns:
        The place; or what the start still waits for.
    """
    start = unloadable.start_of_next_attempt(world, record)
    if isinstance(start, Missing) or not _is_kept(world.job):
        return start
    if resume.requested_resume(world.job, record) is not None or record.open_corruption is not None:
        return start
    late = next(
        (
            worker_view
            for worker_view in world.worker_views
            if not _has_looked(worker_view, record) and not _why_not_needed(worker_view)
        ),
        None,
    )
    if late is not None and listed_seconds(world, record) < WAIT_SECONDS:
        return Missing(NOT_LOOKED, f"waiting for {late.where} to list the checkpoints on its node's own disk")
    beyond = start.resume.step if start.resume else -1
    held = {worker_view.index: _held(worker_view, record, beyond) for worker_view in world.worker_views}
    best = max(set.intersection(*held.values()), default=None) if held else None
    newest = max(set.union(*held.values()), default=None) if held else None
    if best is not None:
        step, path, attempt = best
        start = replace(start, resume=Resume(step=step, path=path), local_attempt=attempt, shared=start.resume)
    if newest is None:
        return _with_unlisted_warning(start, world, record)
    if best is not None and newest[0] <= best[0]:
        return start
    lacking = next(worker_view for worker_view in world.worker_views if newest not in held[worker_view.index])
    return _with_warning(start, f"{_named(newest)} are not used: {_why_not(lacking, record)}", newest[0])


def from_shared_instead(start: Start, why: str) -> Start:
    """Return the start from the shared directory instead, with a warning: the program cannot load what the nodes hold.

    Args:
        start: the start from the nodes' own disks.
        why: the reason, for the warning.
    """
    assert start.resume is not None
    text = f"checkpoint {start.resume.step} on the nodes' own disks ({start.resume.path}) is not used: {why}"
    other = replace(start, resume=start.shared, local_attempt=0, shared=None)
    return _with_warning(other, text, start.resume.step)


def local_start_text(resumed: Resume | None, job: TrainingJob, record: GangSpec) -> str:
    """Return the text that a start resumes from the nodes' own disks; "" where it does not."""
    if resumed is None or not is_local(job, resumed):
        return ""
    newest = (
        f"the newest in spec.checkpoint.directory is {record.checkpoint.step}" if record.checkpoint else "the only one"
    )
    return f", which every node holds on its own disk ({newest})"


def is_local(job: TrainingJob, where: Resume) -> bool:
    """Whether a checkpoint lies on the nodes' own disks."""
    return _is_kept(job) and is_own(where.path, job.spec.checkpoint.local_directory or "")


def local_saves_since(world: JobWorld, record: GangSpec, where: Start) -> int:
    """Return the first attempt whose saves on the nodes' own disks count after this start.

    It is the attempt of the save that is resumed, else this one. Where a launcher could not record that this attempt
    begins, its saves could be taken for earlier ones: then this attempt does not count either.

    Args:
        world: the state of the job.
        record: of the gang.
        where: where the start resumes.
    """
    if not _is_kept(world.job):
        return record.local_since_attempt
    if where.local_attempt:
        return where.local_attempt
    all_listed = all(
        _has_looked(worker_view, record) and not _why_not_needed(worker_view) for worker_view in world.worker_views
    )
    return record.attempt if all_listed else record.attempt + 1


def since_without_progress(world: JobWorld, record: GangSpec, newest_step: int | None) -> int:
    """Return the first attempt whose saves on the nodes' own disks count in the next attempt.

    A local save that was resumed and led to no further step is not tried again.

    Args:
        world: the state of the job.
        record: of the gang.
        newest_step: of this attempt; None: no step is known.
    """
    go = record.start
    if go is None or go.resume is None or not is_local(world.job, go.resume):
        return record.local_since_attempt
    if newest_step is not None and newest_step > go.resume.step:
        return record.local_since_attempt
    return max(record.local_since_attempt, record.attempt)


def _is_kept(job: TrainingJob) -> bool:
    return bool(job.spec.checkpoint.local_directory and job.spec.checkpoint.directory)


def _has_looked(worker_view: WorkerView, record: GangSpec) -> bool:
    view = worker_view.launcher
    return view is not None and (view.local_attempt, view.local_listing_round) == (record.attempt, record.listing_round)


def _why_not_needed(worker_view: WorkerView) -> str:
    """Return why the worker's own disk need not be waited for and holds nothing that counts; "": no reason."""
    return worker_view.launcher.local_error if worker_view.launcher is not None else ""


def _held(worker_view: WorkerView, record: GangSpec, beyond: int) -> set[_Key]:
    """Return the saves on the worker's own disk that count and lie beyond a step."""
    view = worker_view.launcher
    if view is None or not _has_looked(worker_view, record):
        return set()
    return {
        _key(report)
        for report in view.local
        if report.step > beyond and record.local_since_attempt <= report.attempt < record.attempt
    }


def _key(report: LocalReport) -> _Key:
    return report.step, report.path, report.attempt


def _named(key: _Key) -> str:
    return f"the parts of checkpoint {key[0]} on the nodes' own disks ({key[1]})"


def _why_not(worker_view: WorkerView, record: GangSpec) -> str:
    if _why_not_needed(worker_view):
        return f"{worker_view.where}: {_why_not_needed(worker_view)}"
    if not _has_looked(worker_view, record):
        return f"{worker_view.where} has not listed its own"
    if worker_view.member.is_replacement:
        return f"{worker_view.where} moved to its node after that save, and holds none"
    return f"{worker_view.where} does not hold its whole part of that save"


def _with_unlisted_warning(start: Start, world: JobWorld, record: GangSpec) -> Start:
    """Return the start with a warning where a disk that could not be listed may hold something newer."""
    worker_view = next(
        (
            worker_view
            for worker_view in world.worker_views
            if _why_not_needed(worker_view) or not _has_looked(worker_view, record)
        ),
        None,
    )
    if worker_view is None or record.attempt == 1:
        return start
    why = _why_not_needed(worker_view) or "it has not listed its own"
    return _also(start, f"what {worker_view.where} holds on its node's own disk does not count: {why}")


def _with_warning(start: Start, text: str, lost_step: int) -> Start:
    repeated_steps = lost_step - (start.resume.step if start.resume else 0)
    return _also(start, f"{text}; {repeated_steps} steps are trained again")


def _also(start: Start, text: str) -> Start:
    return replace(start, warning="; ".join(part for part in (start.warning, text) if part))

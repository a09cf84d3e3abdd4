"""A checkpoint on which starts die before their first step: the next older complete one is tried, once. Pure.

A file may look complete and yet load nowhere. Two failures of the program itself in a row, each before a step, each
from the same checkpoint, make it suspect. Where the older one fails so, too, the program is the likelier cause, and the
newest counts again (docs/decisions/0068). Only the record decides, so that each leader decides alike.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from muster.api.gang import FaultClass, GangIncident, GangSpec, Resume, SuspectCheckpoint
from muster.api.trainingjob import TrainingJob
from muster.checkpoints import resume
from muster.checkpoints.resume import Missing, Start
from muster.pods.warned import Warned
from muster.protocol.checkpoints import read_stamps, write_stamps
from muster.protocol.resuming import is_own
from muster.recovery.budgets import OWN_DOING
from muster.recovery.failure import Kind
from muster.world.job import JobWorld

FAILED_STARTS = 2
# A program whose steps were never seen may have made some, unless it has failed as soon as this.
QUICK_SECONDS = 300.0
# No load takes longer, also where steps were seen before: programs print some of them only.
LONGEST_LOAD_SECONDS = 3600.0
MAX_ATTEMPTS = 128
CHECKPOINT_SUSPECT = "CheckpointSuspect"
_MOVED_TO = ".muster-incomplete"


def with_failed_start(world: JobWorld, record: GangSpec, fault_class: FaultClass, kind: str) -> GangSpec:
    """Return the record of a failed attempt that notes on which checkpoint it failed before its first step.

    After such a failure on the older checkpoint the newest one counts again, unless it was moved away. Whether a
    failure counts is decided at the next start, when the blame is final.

    Args:
        world: the state of the job.
        record: of the attempt that failed.
        fault_class: of the failure.
        kind: of the failure.
    """
    where = record.start.resume if record.start is not None else None
    if where is None or kind != Kind.RANK_FAILED or fault_class not in OWN_DOING:
        return record
    if not is_own(where.path, world.job.spec.checkpoint.directory or "") or _may_have_made_a_step(world, record):
        return record
    suspect = record.suspect_checkpoint
    if suspect is not None and suspect.fallback == where:
        return _after_fallback_failed(world.job, record, suspect)
    if suspect is None or suspect.checkpoint != where:
        suspect = SuspectCheckpoint(checkpoint=where)
    attempts = [*suspect.attempts, record.attempt][-MAX_ATTEMPTS:]
    return record.model_copy(update={"suspect_checkpoint": suspect.model_copy(update={"attempts": attempts})})


def _after_fallback_failed(job: TrainingJob, record: GangSpec, suspect: SuspectCheckpoint) -> GangSpec:
    """Return the record after a failure on the older checkpoint, too: what its start excluded counts again, unless it
    was moved away."""
    attempts = [*suspect.fallback_attempts, record.attempt][-MAX_ATTEMPTS:]
    if job.spec.checkpoint.move_incomplete:
        return record.model_copy(
            update={"suspect_checkpoint": suspect.model_copy(update={"fallback_attempts": attempts})}
        )
    changes: dict[str, object] = {
        "suspect_checkpoint": suspect.model_copy(update={"fallback_attempts": attempts, "excluded_checkpoints": ""}),
        "checkpoint": suspect.checkpoint,  # or it would be one that was won since, and give the restart back
    }
    if record.branch is not None:
        kept = set(read_stamps(record.branch.excluded_checkpoints)) - set(read_stamps(suspect.excluded_checkpoints))
        changes["branch"] = record.branch.model_copy(update={"excluded_checkpoints": write_stamps(kept)})
    return record.model_copy(update=changes)


def after_attempt(world: JobWorld, record: GangSpec) -> SuspectCheckpoint | None:
    """Return what the record holds of a suspect checkpoint once its attempt is over: None if that made a step."""
    return None if record.start is not None and _may_have_made_a_step(world, record) else record.suspect_checkpoint


def after_start(record: GangSpec, where: Start) -> SuspectCheckpoint | None:
    """Return what the record holds of a suspect checkpoint once the next attempt has started.

    Args:
        record: of the gang before the start.
        where: where the start resumes.
    """
    suspect, old_branch = record.suspect_checkpoint, record.branch
    if suspect is None or record.open_corruption is not None:
        return None
    if where.instead_of is not None and where.branch is not None and where.branch != old_branch:
        added = set(read_stamps(where.branch.excluded_checkpoints))
        added -= set(read_stamps(old_branch.excluded_checkpoints if old_branch else ""))
        changes: dict[str, object] = {
            "fallback": where.lasting,
            "fallback_attempts": [],
            "excluded_checkpoints": write_stamps(added),
        }
        return suspect.model_copy(update=changes)
    asked, asked_before = (branch.resume_from if branch else "" for branch in (where.branch, old_branch))
    is_known = where.lasting in (suspect.checkpoint, suspect.fallback)
    return suspect if is_known and asked == asked_before else None


def start_of_next_attempt(world: JobWorld, record: GangSpec) -> Start | Missing:
    """Return where the next start resumes in the shared directory, or what it waits for.

    It is the newest complete checkpoint, or the next older one where starts from the newest keep failing. No start is
    held by this for longer than it takes to know why the last one failed, and to verify the older one.
    """
    start, suspect = resume.start_of_next_attempt(world, record), record.suspect_checkpoint
    if isinstance(start, Missing) or suspect is None:
        return start
    if _is_fallback_ordered(world, record, suspect, start):
        # The incidents may be gone from the record by now.
        failed = _counted(record, suspect.attempts) or suspect.attempts
        return _fallback_start(world.job, suspect, failed, start)
    if start.resume != suspect.checkpoint:
        return start
    if not world.job.spec.recovery.fall_back_from_unloadable or record.open_corruption is not None:
        return start
    if resume.requested_resume(world.job, record) is not None or len(suspect.attempts) < FAILED_STARTS:
        return start
    if not all(incident.settled for incident in _incidents_of(record, suspect)):
        return Missing(
            CHECKPOINT_SUSPECT, f"waiting to know why the last start from checkpoint {_named(start.resume)} failed"
        )
    failed = _counted(record, suspect.attempts)
    if len(failed) < FAILED_STARTS or _counted(record, suspect.fallback_attempts):
        return start
    if _was_loaded(world, record, suspect, failed):
        return start
    older = resume.start_behind(world, record, suspect.checkpoint)
    if isinstance(older, Missing):
        patient = resume.listed_seconds(world, record) < resume.NOT_VISIBLE_SECONDS
        return older if patient and not older.stalled else start
    if older.resume is None or _is_behind_request(record, older.resume):
        return start
    return _fallback_start(world.job, suspect, failed, older)


def _is_fallback_ordered(world: JobWorld, record: GangSpec, suspect: SuspectCheckpoint, start: Start) -> bool:
    """Whether a start is the first from the older checkpoint: what lies beyond it was ordered to be moved away for
    it."""
    if suspect.fallback is None or start.resume != suspect.fallback or resume.requested_resume(world.job, record):
        return False
    since = (incident for incident in record.incidents if incident.attempt >= suspect.attempts[-1])
    return all(incident.resumed_step is None for incident in since)


def _fallback_start(job: TrainingJob, suspect: SuspectCheckpoint, failed: Sequence[int], older: Start) -> Start:
    """Return the start from the next older checkpoint, with the reason as its warning.

    Args:
        job: the job.
        suspect: what the record holds of the newest one.
        failed: the attempts that resumed from that and failed.
        older: the start from the older one.
    """
    assert older.resume is not None
    text = (
        f"{_attempts_text(failed, 'attempt')} resumed from checkpoint {_named(suspect.checkpoint)} and failed before "
        f"the first step, so that it is suspect: this attempt goes on from the next older complete one, "
        f"{_named(older.resume)}, and {suspect.checkpoint.step} does not count until it is saved again. "
        f"{_self_found_text(job, suspect)}spec.recovery.fallBackFromUnloadable: false prevents that"
    )
    warning = "; ".join(part for part in (text, older.warning) if part)
    return replace(older, warning=warning, instead_of=suspect.checkpoint)


def _self_found_text(job: TrainingJob, suspect: SuspectCheckpoint) -> str:
    text = resume.self_found_text(job, suspect.checkpoint.path, f"{suspect.checkpoint.step} again")
    return f"{text}. " if text else ""


def fallback_warning(job: TrainingJob, record: GangSpec) -> Warned | None:
    """Return the warning that the job trains from an older checkpoint, as long as that has shown no step; None: not."""
    suspect = record.suspect_checkpoint
    if record.start is None or suspect is None or suspect.fallback is None or record.start.resume != suspect.fallback:
        return None
    return Warned(
        CHECKPOINT_SUSPECT,
        f"attempt {record.attempt} resumed from checkpoint {_named(suspect.fallback)}, since {len(suspect.attempts)} "
        f"starts from the newest one, {_named(suspect.checkpoint)}, failed before a step. It does not count until it "
        f"is saved again. {_self_found_text(job, suspect)}To train from it all the same, suspend the job"
        f"{f', move it back from {_MOVED_TO}' * job.spec.checkpoint.move_incomplete} and set "
        f"spec.checkpoint.resumeFrom: {suspect.checkpoint.step}",
    )


def fallback_text(where: Start) -> str:
    """Return that the attempt after a failure resumes from an older checkpoint, for the incident; "": it does not."""
    if where.instead_of is None or where.lasting is None:
        return ""
    return f"; the next attempt resumes from {_named(where.lasting)} instead of {_named(where.instead_of)}"


def failed_starts_text(world: JobWorld, record: GangSpec) -> str:
    """Return on which checkpoint the starts of a job that has failed died, and what a person can do; "": on none."""
    suspect = record.suspect_checkpoint
    failed = _counted(record, suspect.attempts) if suspect is not None else []
    if suspect is None or len(failed) < FAILED_STARTS:
        return ""
    newest = _named(suspect.checkpoint)
    text = f"{_attempts_text(failed, 'Attempt')} resumed from checkpoint {newest} and failed before a step"
    also = _counted(record, suspect.fallback_attempts)
    lowest = suspect.checkpoint
    if also and suspect.fallback is not None:
        lowest = suspect.fallback
        text += (
            f", and so did {_attempts_text(also, 'attempt')} from {_named(lowest)}: the program is the likelier cause. "
            + (
                f"Move {newest} back from {_MOVED_TO} before the job is created again"
                if world.job.spec.checkpoint.move_incomplete
                else "See whether it loads what MUSTER_RESUME_PATH names, and not the newest checkpoint that it finds "
                "itself (spec.checkpoint.moveIncomplete has that moved away)"
            )
        )
    steps = [step for step in resume.complete_steps(world, record) if step < lowest.step]
    older = suspect.fallback.step if suspect.fallback is not None and not also else max(steps, default=None)
    if older is None:
        return f"{text}. No older complete checkpoint is known"
    return (
        f"{text}. If the checkpoint cannot be loaded, create the job again with spec.checkpoint.resumeFrom: {older}, "
        "or let kubectl muster fork do that"
    )


def _may_have_made_a_step(world: JobWorld, record: GangSpec) -> bool:
    """Whether the attempt has finished a step, or may have: it has saved, or its steps are not seen and it ran for long
    enough."""
    go = record.start
    if go is None or any(view.step for view in world.views.values() if view.attempt == record.attempt):
        return True
    ran = world.gang.spec if world.gang else record  # in the next record more may count
    newest = resume.newest_checkpoint(world, ran)
    if go.resume is not None and newest is not None and newest.step > go.resume.step:
        return True
    are_seen = any(incident.trained for incident in record.incidents)
    return (world.now - go.time).total_seconds() > (LONGEST_LOAD_SECONDS if are_seen else QUICK_SECONDS)


def _was_loaded(world: JobWorld, record: GangSpec, suspect: SuspectCheckpoint, failed: Sequence[int]) -> bool:
    """Whether an attempt has begun to save beyond the suspect checkpoint since the first failure: it has loaded it.

    Args:
        world: the state of the job.
        record: of the gang.
        suspect: what the record holds of the checkpoint.
        failed: the attempts that resumed from it and failed.
    """
    since = next(incident.time for incident in record.incidents if incident.attempt == failed[0]).timestamp()
    seen = (c for view in world.views.values() for c in view.checkpoints)
    return any(c.step > suspect.checkpoint.step and c.written_ns / 1e9 > since for c in seen)


def _is_behind_request(record: GangSpec, where: Resume) -> bool:
    """Whether a checkpoint lies before the one from which a person let the job resume."""
    return record.branch is not None and bool(record.branch.resume_from) and where.step < record.branch.step


def _incidents_of(record: GangSpec, suspect: SuspectCheckpoint) -> list[GangIncident]:
    attempts = {*suspect.attempts, *suspect.fallback_attempts}
    return [incident for incident in record.incidents if incident.attempt in attempts]


def _counted(record: GangSpec, attempts: Collection[int]) -> list[int]:
    """Return those of the attempts that the program itself ended, as far as is known by now."""
    return [
        incident.attempt
        for incident in record.incidents
        if incident.attempt in attempts
        and incident.reason == Kind.RANK_FAILED
        and incident.fault_class is FaultClass.APPLICATION
    ]


def _named(where: Resume) -> str:
    return f"{where.step} ({where.path})"


def _attempts_text(attempts: Sequence[int], word: str) -> str:
    """Return the attempts by their numbers, such as `Attempts 3 and 4`; of many the newest three."""
    if len(attempts) == 1:
        return f"{word} {attempts[0]}"
    shown = [str(attempt) for attempt in attempts[-3:]]
    return f"{word}s {', '.join(shown[:-1])} and {shown[-1]}"

"""What the record keeps of wrong results: the ranks' reports, what tests have shown, and the start that follows. Pure.

A report makes checkpoints suspect and has nodes tested; only tests say whether a node is to blame
(docs/decisions/0019).
"""

from collections.abc import Sequence

from muster.api.gang import Corruption, Examination, FaultClass, GangSpec
from muster.checkpoints import resume
from muster.checkpoints.resume import Start
from muster.preflight.outcomes import Fail
from muster.recovery import budgets
from muster.recovery.corruption import CorruptionReport, new_reports
from muster.world.job import JobWorld

MAX_CULPRITS = 16
MAX_SUSPECT = 16


def with_new_reports(world: JobWorld, record: GangSpec, last_step: int) -> GangSpec:
    """Return the record after ranks have reported wrong results; unchanged where there is no new report.

    The record then names the step beyond which checkpoints are suspect, and nodes are tested before the next start.

    Args:
        world: the state of the job.
        record: of the gang.
        last_step: the newest finished step, or the step that the ranks resumed from.
    """
    reports = sorted(new_reports(world), key=lambda word: (word.beyond is None, word.beyond, word.rank))
    if not reports:
        return record
    previous = record.open_corruption
    corruption = (
        _first_report(world, record, reports, last_step) if previous is None else _extended_report(previous, reports)
    )
    record = record.model_copy(update={"corruption": corruption})
    return (
        resume.with_frozen_branch(world, record, corruption.suspect_beyond_step)
        if world.job.spec.checkpoint.directory
        else record
    )


def with_culprits(record: GangSpec, fails: Sequence[Fail]) -> GangSpec:
    """Return the record with the nodes that tests have proved to give wrong results: the job is not charged for them.

    A node that a member has moved to since the failure was not the cause, whatever its tests show.
    """
    corruption = record.open_corruption
    replacements = {member.node for member in record.members if member.is_replacement}
    wrong = [fail for fail in fails if fail.wrong and fail.node not in replacements]
    if not wrong or corruption is None:
        return record
    culprit = wrong[0]
    incidents = [
        incident.model_copy(
            update={
                "fault_class": FaultClass.HARDWARE,
                "node": culprit.node,
                "message": f"{incident.message}; the culprit is {culprit.node}: {culprit.message}"[:2048],
            }
        )
        if incident.attempt >= corruption.attempt and incident.fault_class in budgets.OWN_DOING
        else incident
        for incident in record.incidents
    ]
    culprits = list(dict.fromkeys([*corruption.culprits, *(fail.node for fail in wrong)]))[:MAX_CULPRITS]
    changes = {"culprits": culprits, "examination": Examination.CULPRIT_FOUND}
    return record.model_copy(update={"incidents": incidents, "corruption": corruption.model_copy(update=changes)})


def with_test_results(record: GangSpec, shown: Examination) -> GangSpec:
    """Return the record with what the tests of the nodes have shown; unchanged where it is known already."""
    corruption = record.corruption
    if corruption is None or corruption.examination is not None:
        return record
    return record.model_copy(update={"corruption": corruption.model_copy(update={"examination": shown})})


def close_report(corruption: Corruption | None, where: Start) -> Corruption | None:
    """Return the report of wrong results as closed, once training resumes from before it; None: there was none."""
    if corruption is None or not corruption.open:
        return corruption
    return corruption.model_copy(
        update={
            "open": False,
            "resumed_step": where.resume.step if where.resume else 0,
            "suspect_steps": list(where.suspect[:MAX_SUSPECT]),
            "suspect_count": len(where.suspect),
        }
    )


def _first_report(world: JobWorld, record: GangSpec, reports: Sequence[CorruptionReport], last_step: int) -> Corruption:
    """Return the first report of wrong results of an attempt, as the record keeps it.

    Args:
        world: the state of the job.
        record: of the gang.
        reports: the ranks' reports, those first that reach furthest back.
        last_step: the newest finished step, or the step that the ranks resumed from.
    """
    first, previous, newest = reports[0], record.corruption, record.checkpoint
    steps = [word.found_at for word in reports if word.found_at is not None]
    found_at = min(steps) if steps else _last_known_step(record, last_step)
    beyond = first.beyond if first.beyond is not None else max(found_at, 0) - 1
    has_recurred = previous is not None and (newest is None or newest.step < previous.found_at)
    if previous is not None and has_recurred and all(word.last_good is None for word in reports):
        # At the same place once more: what it has gone on from may have been wrong already.
        back = (previous.resumed_step or 0) - 1
        if any(seen <= back for seen in resume.complete_steps(world, record)):
            beyond = min(beyond, back)
    return Corruption(
        attempt=first.attempt,
        time=world.now,
        reason=first.reason,
        node=first.node,
        found_at=found_at,
        last_good=first.last_good,
        suspect_beyond_step=beyond,
        newest_checkpoint=newest,
        occurrences=previous.occurrences + 1 if previous is not None and has_recurred and not previous.culprits else 1,
        message=f"{first.where}: {first.text}"[:512],
    )


def _extended_report(previous: Corruption, reports: Sequence[CorruptionReport]) -> Corruption:
    """Return the report on record after other ranks have reported, with the earliest suspect step.

    Args:
        previous: on record.
        reports: the new reports, which reach further back.
    """
    first = reports[0]
    steps = [word.found_at for word in reports if word.found_at is not None]
    return previous.model_copy(
        update={
            "reason": first.reason,
            "node": first.node,
            "found_at": min([*steps, previous.found_at]),
            "last_good": first.last_good,
            "suspect_beyond_step": first.beyond,
            "message": f"{previous.message}; {first.where}: {first.text}"[:512],
        }
    )


def _last_known_step(record: GangSpec, last_step: int) -> int:
    """Return the newest step that the last ranks finished, or from which they resumed.

    A trainer that reports no steps is judged by its checkpoints.
    """
    last = record.incidents[-1] if record.incidents else None
    if record.start is None and last is not None and last.resumed_step is None and last.step is not None:
        last_step = last.step
    return max(last_step, record.checkpoint.step if record.checkpoint else 0)

"""The end of a job: how it is known, recorded and tidied up after. Pure.

Tests: tests/unit/lifecycle/test_ending.py, tests/unit/lifecycle/test_scenarios.py.
"""

from muster.api.gang import Gang, GangSpec
from muster.api.trainingjob import CompletionRecord, CompletionResult
from muster.burnin import progress as burnin
from muster.checkpoints import unloadable
from muster.lifecycle.commit import commit
from muster.lifecycle.plan import DeleteJob, DeletePod, Plan
from muster.record import incidents
from muster.record.attempts import budget_exhausted
from muster.recovery import budgets, repeats
from muster.recovery.failure import Kind
from muster.recovery.modes import mode_of
from muster.recovery.words import failures_text, what_tests_show
from muster.status.report import Announcement, State, StatusReport
from muster.status.suspect_success import is_without_step, raised_before_success
from muster.world.job import JobWorld

# A finished job's workers exit when told so; those that cannot be told are deleted after this long.
EXIT_GRACE_SECONDS = 30.0


def completion_of(world: JobWorld, gang: Gang) -> CompletionRecord | None:
    """Return how the job has ended just now, to be recorded before anything is cleaned up; None while it has not."""
    return _success_record(world, gang.spec) or _failure_record(world, gang.spec)


def is_about_to_fail(world: JobWorld, record: GangSpec) -> bool:
    """Whether no restart is left, and evidence that takes seconds is all that the end is waiting for."""
    return record.start is None and bool(budget_exhausted(world, record)) and not burnin.is_testing(world)


def record_end(world: JobWorld, gang: Gang, end: CompletionRecord) -> Plan:
    """Return the plan that records the end of the job.

    What tests have shown about wrong results is recorded before that, since no step follows the end.
    """
    corruption = gang.spec.open_corruption
    if corruption is not None and corruption.examination is None:
        spec, note = burnin.with_test_results(world, gang.spec, ended=True)
        return commit(world, spec, Announcement("CorruptionExamined", note, warning=True))
    event = Announcement(end.reason, end.message, warning=end.result is CompletionResult.FAILED)
    return Plan((), StatusReport(State.COMPLETED, completion=end), (event,), wake_in_seconds=0.0)


def clean_up(world: JobWorld, end: CompletionRecord) -> Plan:
    """Return the plan of a job that has ended: it deletes pods that do not go by themselves, and later the job.

    Launchers exit by their directive. A pod whose sidecar outlives the worker is deleted.
    """
    age = (world.now - end.time).total_seconds()
    alive = [pod for pod in world.pods.values() if not pod.terminal]
    has_time = abs(age) < EXIT_GRACE_SECONDS  # an end long after now was written by a clock that has been set back
    mode = mode_of(world.job)
    overdue = tuple(
        DeletePod(pod.name, pod.uid)
        for pod in alive
        if not pod.deleting and (not has_time or not mode.leaves_at_the_end(world, pod))
    )
    wakes = [EXIT_GRACE_SECONDS - age] if alive and has_time else []
    ttl = world.job.spec.completion.ttl_seconds_after_finished
    if ttl is not None and all(pod.deleting for pod in alive):  # one on a lost node may stay Terminating for ever
        if age >= ttl:
            return Plan((DeleteJob(),))
        wakes.append(ttl - age)
    report = StatusReport(State.COMPLETED, completion=end)
    return Plan(overdue, report, wake_in_seconds=min(wakes, default=None))


def _success_record(world: JobWorld, record: GangSpec) -> CompletionRecord | None:
    if not mode_of(world.job).has_succeeded(world, record):
        return None
    step = incidents.newest_step(world, record)
    message = f"every rank exited with code 0 in attempt {record.attempt}"
    if step is not None:
        message += f" after step {step}"
    elif is_without_step(world, record):
        message += "; no finished step was seen"
    raised = raised_before_success(world, record)
    if raised is not None:
        message += f"; the last lines of {raised[0]} are a traceback: {raised[1]}"
    return _completion(world, record, CompletionResult.SUCCEEDED, "Completed", message)


def _failure_record(world: JobWorld, record: GangSpec) -> CompletionRecord | None:
    """Return the failure of the job; None: it is not lost.

    It is lost when a restart budget is exhausted and the blame is final, or when it can never start.
    """
    last = record.incidents[-1] if record.incidents else None
    if record.start is not None or last is None:
        return None
    if last.reason == Kind.START_FAILED:
        return _completion(world, record, CompletionResult.FAILED, Kind.START_FAILED, f"{last.message}.")
    reason = budget_exhausted(world, record)
    if not reason or not last.settled or mode_of(world.job).awaits_evidence(world, record) or burnin.is_testing(world):
        return None
    remedy = (
        "Fix the program, then delete the job and create it again; spec.recovery.applicationRestartsPerDay is the "
        "budget."
        if reason == budgets.APPLICATION_EXHAUSTED
        else "Look at the nodes named in status.incidents; spec.recovery.hardwareRestartsPerDay is the budget."
    )
    budget_text = (
        failures_text(budgets.application_restarts(record, world.now))
        if reason == budgets.APPLICATION_EXHAUSTED
        else f"{failures_text(budgets.hardware_restarts(record, world.now))} of nodes and infrastructure"
    )
    worker = "" if last.index is None else f", worker {last.index} on {last.node}"
    last_one = f"Last: attempt {last.attempt}{worker}: {last.message}"
    if record.open_corruption is not None:
        last_one += f"; {what_tests_show(record.open_corruption, ended=True)}"
    repeat_text = repeats.repeated(record.incidents) if reason == budgets.APPLICATION_EXHAUSTED else ""
    failed = f" It failed {repeat_text}." if repeat_text else ""
    starts = unloadable.failed_starts_text(world, record)
    if starts:
        remedy = f"{starts}. {remedy}"
    # The last lines stand last: where a text is cut, the remedy is there.
    message = f"{budget_text} within 24 hours and no checkpoint beyond them.{failed} {remedy} {last_one}."
    return _completion(world, record, CompletionResult.FAILED, reason, message)


def _completion(
    world: JobWorld, record: GangSpec, result: CompletionResult, reason: str, message: str
) -> CompletionRecord:
    return CompletionRecord(
        result=result, reason=reason, message=message[:4096], time=world.now, attempt=record.attempt
    )

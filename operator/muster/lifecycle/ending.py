"""The end of a job: how it is known, recorded and tidied up after. Pure.

Tests: tests/unit/lifecycle/test_scenarios.py.
"""

from muster.api.gang import Gang, GangSpec
from muster.api.trainingjob import CompletionRecord, CompletionResult, LaunchMode
from muster.lifecycle import burnin, resume, unloadable
from muster.lifecycle import record as records
from muster.lifecycle.commit import commit
from muster.lifecycle.facts import Facts
from muster.lifecycle.modes import mode_of
from muster.lifecycle.plan import Announcement, DeleteJob, DeletePod, Plan, State, StatusReport
from muster.lifecycle.words import failures_text, what_tests_show
from muster.lifecycle.worker_pod import WorkerSettings
from muster.recovery import budgets, repeats
from muster.recovery.failure import Kind
from muster.world.job import JobWorld

# A finished job's workers exit when told so; those that cannot be told are deleted after this long.
EXIT_GRACE_SECONDS = 30.0


def completion_of(world: JobWorld, gang: Gang) -> CompletionRecord | None:
    """Return how the job has ended just now, to be recorded before anything is cleaned up; None while it has not."""
    return _success_record(world, gang.spec) or _failure_record(world, gang.spec)


def record_end(world: JobWorld, facts: Facts, settings: WorkerSettings) -> Plan:
    """Return the plan that records the end of the job.

    What tests have shown about wrong results is recorded before that, since no step follows the end.
    """
    end, gang = facts.end, facts.gang
    assert end is not None
    assert gang is not None
    found = gang.spec.open_corruption
    if found is not None and found.examination is None:
        spec, shown = burnin.with_test_results(world, gang.spec, ended=True)
        return commit(world, spec, shown)
    warning = end.result is CompletionResult.FAILED
    told = Announcement(end.reason, end.message, warning)
    return Plan((), StatusReport(State.COMPLETED, completion=end), (told,), wake_in_seconds=0.0)


def clean_up(world: JobWorld, facts: Facts, settings: WorkerSettings) -> Plan:
    """Return the plan of a job that has ended: it deletes pods that do not go by themselves, and later the job.

    Launchers exit by their directive. A pod whose sidecar outlives the worker is deleted.
    """
    completion = facts.completion
    assert completion is not None
    age = (world.now - completion.time).total_seconds()
    alive = [pod for pod in world.pods.values() if not pod.terminal]
    mode = mode_of(world.job)
    overdue = tuple(
        DeletePod(pod.name, pod.uid)
        for pod in alive
        if not pod.deleting and (age >= EXIT_GRACE_SECONDS or not mode.leaves_at_the_end(world, pod))
    )
    wakes = [EXIT_GRACE_SECONDS - age] if alive and age < EXIT_GRACE_SECONDS else []
    ttl = world.job.spec.completion.ttl_seconds_after_finished
    if ttl is not None and all(pod.deleting for pod in alive):  # one on a lost node may stay Terminating for ever
        if age >= ttl:
            return Plan((DeleteJob(),))
        wakes.append(ttl - age)
    told = StatusReport(State.COMPLETED, completion=completion)
    return Plan(overdue, told, wake_in_seconds=min(wakes, default=None))


def budget_exhausted(world: JobWorld, record: GangSpec) -> str:
    """Return the reason of the restart budget that is exhausted, given the newest checkpoint seen; "" if none is."""
    seen = record.model_copy(update={"checkpoint": resume.newest_checkpoint(world, record)})
    return budgets.exhausted(seen, world.job.spec.recovery, world.now)


def _success_record(world: JobWorld, record: GangSpec) -> CompletionRecord | None:
    if not mode_of(world.job).has_succeeded(world, record):
        return None
    step = records.newest_step(world, record)
    message = f"every rank exited with code 0 in attempt {record.attempt}"
    if step is not None:
        message += f" after step {step}"
    elif world.job.spec.launch.mode is LaunchMode.MANAGED and resume.newest_checkpoint(world, record) is None:
        message += (
            ". Muster has seen no step and no checkpoint of it: see whether it trained, by kubectl muster logs "
            f"{world.job.metadata.namespace}/{world.job.metadata.name}"
        )
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
    what = (
        failures_text(budgets.application_restarts(record, world.now))
        if reason == budgets.APPLICATION_EXHAUSTED
        else f"{failures_text(budgets.hardware_restarts(record, world.now))} of nodes and infrastructure"
    )
    last_one = f"Last: attempt {last.attempt}, worker {last.index} on {last.node}: {last.message}"
    if record.open_corruption is not None:
        last_one += f"; {what_tests_show(record.open_corruption, ended=True)}"
    again = repeats.repeated(record.incidents) if reason == budgets.APPLICATION_EXHAUSTED else ""
    failed = f" It failed {again}." if again else ""
    starts = unloadable.failed_starts_text(world, record)
    if starts:
        remedy = f"{starts}. {remedy}"
    message = f"{what} within 24 hours and no checkpoint beyond them.{failed} {last_one}. {remedy}"
    return _completion(world, record, CompletionResult.FAILED, reason, message)


def _completion(
    world: JobWorld, record: GangSpec, result: CompletionResult, reason: str, message: str
) -> CompletionRecord:
    return CompletionRecord(
        result=result, reason=reason, message=message[:4096], time=world.now, attempt=record.attempt
    )

"""The end of a job: how it is known, recorded and tidied up after. Pure.

Tests: tests/unit/lifecycle/test_ending.py, tests/unit/lifecycle/test_scenarios.py.
"""

from muster.api.gang import Gang, GangSpec
from muster.api.trainingjob import CompletionRecord, CompletionResult, LaunchMode, ProgressPreset
from muster.lifecycle import burnin, launching, resume, unloadable
from muster.lifecycle import record as records
from muster.lifecycle.commit import commit
from muster.lifecycle.modes import mode_of
from muster.lifecycle.plan import Announcement, DeleteJob, DeletePod, Plan, State, StatusReport
from muster.lifecycle.warned import Warned
from muster.lifecycle.words import failures_text, what_tests_show
from muster.recovery import budgets, exits, repeats
from muster.recovery.failure import Kind
from muster.recovery.last_lines import Cause, cause_of
from muster.world.job import JobWorld
from muster.world.redact import without_secrets

SUCCEEDED_AFTER_TRACEBACK = "SucceededAfterTraceback"
SUCCEEDED_WITHOUT_STEP = "SucceededWithoutStep"
# A finished job's workers exit when told so; those that cannot be told are deleted after this long.
EXIT_GRACE_SECONDS = 30.0


def completion_of(world: JobWorld, gang: Gang) -> CompletionRecord | None:
    """Return how the job has ended just now, to be recorded before anything is cleaned up; None while it has not."""
    return _success_record(world, gang.spec) or _failure_record(world, gang.spec)


def record_end(world: JobWorld, gang: Gang, end: CompletionRecord) -> Plan:
    """Return the plan that records the end of the job.

    What tests have shown about wrong results is recorded before that, since no step follows the end.
    """
    corruption = gang.spec.open_corruption
    if corruption is not None and corruption.examination is None:
        spec, shown = burnin.with_test_results(world, gang.spec, ended=True)
        return commit(world, spec, shown)
    event = Announcement(end.reason, end.message, warning=end.result is CompletionResult.FAILED)
    return Plan((), StatusReport(State.COMPLETED, completion=end), (event,), wake_in_seconds=0.0)


def clean_up(world: JobWorld, end: CompletionRecord) -> Plan:
    """Return the plan of a job that has ended: it deletes pods that do not go by themselves, and later the job.

    Launchers exit by their directive. A pod whose sidecar outlives the worker is deleted.
    """
    age = (world.now - end.time).total_seconds()
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
    report = StatusReport(State.COMPLETED, completion=end)
    return Plan(overdue, report, wake_in_seconds=min(wakes, default=None))


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
    elif _is_without_step(world, record):
        message += "; no finished step was seen"
    found = _raised(world, record)
    if found is not None:
        message += f"; the last lines of {found[0]} are a traceback: {found[1]}"
    return _completion(world, record, CompletionResult.SUCCEEDED, "Completed", message)


def success_warnings(world: JobWorld, record: GangSpec, end: CompletionRecord) -> list[Warned]:
    """Return why the success of a job is suspect, as it ends. The exit codes alone decide the result."""
    if end.result is not CompletionResult.SUCCEEDED:
        return []
    warned = []
    found = _raised(world, record)
    if found is not None:
        directory = world.job.spec.checkpoint.directory
        goes_on = ": it continues from its newest complete checkpoint" if directory is not None else ""
        warned.append(
            Warned(
                SUCCEEDED_AFTER_TRACEBACK,
                f"{found[0]} ended with exit code 0, but its last lines are a traceback: {found[1]}. Does the command "
                "hide the exit code, as `| tee` does without `set -o pipefail`? Muster goes by exit codes alone, so "
                "the job is Succeeded. If it has failed, correct the command, delete the job and create it again"
                f"{goes_on}",
            )
        )
    if _is_without_step(world, record) and _expects_steps(world):
        warned.append(
            Warned(
                SUCCEEDED_WITHOUT_STEP,
                f"the job has Succeeded, but Muster saw no finished step in attempt {record.attempt}, and no complete "
                "checkpoint. Did the program train? See its log; where it did, let it report its steps "
                "(docs/reference/progress.md)",
            )
        )
    return warned


def _raised(world: JobWorld, record: GangSpec) -> tuple[str, str] | None:
    """Return the first rank that ended with code 0 behind a traceback, and its exception; None: none did."""
    found: list[tuple[bool, int, int, str]] = []
    for index, view in world.views.items():
        if view.attempt != record.attempt:
            continue
        for rank in view.ranks:
            raised = exits.raised_before_success(rank)
            if raised:
                lost_a_peer = cause_of(raised, 1, None) is Cause.LOST_PEER  # then another rank was the first to end
                found.append((lost_a_peer, rank.rank, index, raised))
    if not found:
        return None
    _, rank_number, worker, raised = min(found)
    return f"rank {rank_number} (worker {worker})", without_secrets(raised, world.job.spec.containers)


def _is_without_step(world: JobWorld, record: GangSpec) -> bool:
    """Whether Muster has seen no step and no checkpoint, although it looks for steps."""
    job = world.job
    looks = job.spec.launch.mode is LaunchMode.MANAGED and job.spec.progress.preset is not ProgressPreset.OFF
    resumed = record.start is not None and record.start.resume is not None
    is_seen = records.newest_step(world, record) is not None or any(incident.trained for incident in record.incidents)
    is_saved = job.status.checkpoint is not None or resume.newest_checkpoint(world, record) is not None
    return looks and not (resumed or is_seen or is_saved)


def _expects_steps(world: JobWorld) -> bool:
    """Whether the job's spec says that it trains: a command that only prints something has nothing of this."""
    progress, spec = world.job.spec.progress, world.job.spec
    limits = (progress.step_timeout_seconds, progress.start_timeout_seconds)
    says = (progress.preset, progress.step_pattern, spec.checkpoint.directory, *limits)
    hides = any(each.reason == launching.EXIT_CODE_HIDDEN for each in launching.start_warnings(world.job))
    return hides or any(value is not None for value in says)


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
    worker = "" if last.index is None else f", worker {last.index} on {last.node}"
    last_one = f"Last: attempt {last.attempt}{worker}: {last.message}"
    if record.open_corruption is not None:
        last_one += f"; {what_tests_show(record.open_corruption, ended=True)}"
    again = repeats.repeated(record.incidents) if reason == budgets.APPLICATION_EXHAUSTED else ""
    failed = f" It failed {again}." if again else ""
    starts = unloadable.failed_starts_text(world, record)
    if starts:
        remedy = f"{starts}. {remedy}"
    # The last lines stand last: where a text is cut, the remedy is there.
    message = f"{what} within 24 hours and no checkpoint beyond them.{failed} {remedy} {last_one}."
    return _completion(world, record, CompletionResult.FAILED, reason, message)


def _completion(
    world: JobWorld, record: GangSpec, result: CompletionResult, reason: str, message: str
) -> CompletionRecord:
    return CompletionRecord(
        result=result, reason=reason, message=message[:4096], time=world.now, attempt=record.attempt
    )

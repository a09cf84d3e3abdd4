"""The end of a job: how it is known, recorded and tidied up after. Pure."""

from typing import TYPE_CHECKING

from muster.api.gang import Gang, GangSpec
from muster.api.trainingjob import CompletionRecord, CompletionResult, LaunchMode
from muster.lifecycle import record as records
from muster.lifecycle import resume
from muster.lifecycle.plan import Announcement, DeleteJob, DeletePod, Plan, State, Telling
from muster.lifecycle.worker_pod import WorkerSettings
from muster.protocol.messages import EXITED, IDLE
from muster.recovery import budgets
from muster.recovery.failure import Kind
from muster.world.job import JobWorld

if TYPE_CHECKING:
    from muster.lifecycle.facts import Facts

# A finished job's workers exit when told so; those that cannot be told are deleted after this long.
EXIT_GRACE_SECONDS = 30.0


def of(world: JobWorld, gang: Gang) -> CompletionRecord | None:
    """How the job has ended just now, to be recorded before anything is cleaned; None while it has not."""
    return _success(world, gang.spec) or _defeat(world, gang.spec)


def recorded(world: JobWorld, facts: "Facts", settings: WorkerSettings) -> Plan:
    """Records the end."""
    end = facts.end
    assert end is not None
    warning = end.result is CompletionResult.FAILED
    told = Announcement(end.reason, end.message, warning)
    return Plan((), Telling(State.COMPLETED, completion=end), (told,), wake_in_seconds=0.0)


def tidied(world: JobWorld, facts: "Facts", settings: WorkerSettings) -> Plan:
    """Workers are told to exit by their directive; here is what is left to tidy, and the end of the end.

    A sidecar that runs on when its worker has ended is not told: its pod is deleted.
    """
    completion = facts.completion
    assert completion is not None
    age = (world.now - completion.time).total_seconds()
    alive = [pod for pod in world.pods.values() if not pod.terminal]
    # In mode Plain nobody else tells those who still train; whoever has ended is about to be terminal, and keeps his log.
    plain = world.job.spec.launch.mode is LaunchMode.PLAIN
    overdue = tuple(
        DeletePod(pod.name, pod.uid)
        for pod in alive
        if not pod.deleting and (age >= EXIT_GRACE_SECONDS or (plain and not world.is_dead(pod.uid)))
    )
    wakes = [EXIT_GRACE_SECONDS - age] if alive and age < EXIT_GRACE_SECONDS else []
    ttl = world.job.spec.completion.ttl_seconds_after_finished
    if ttl is not None and all(pod.deleting for pod in alive):  # one on a lost node may stay Terminating for ever
        if age >= ttl:
            return Plan((DeleteJob(),))
        wakes.append(ttl - age)
    told = Telling(State.COMPLETED, completion=completion)
    return Plan(overdue, told, wake_in_seconds=min(wakes, default=None))


def overdrawn(world: JobWorld, record: GangSpec) -> str:
    """Which budget is overdrawn, in view of the newest checkpoint that anybody sees; "" if none is."""
    seen = record.model_copy(update={"checkpoint": resume.newest(world, record)})
    return budgets.exhausted(seen, world.job.spec.recovery, world.now)


def _success(world: JobWorld, record: GangSpec) -> CompletionRecord | None:
    if world.job.spec.launch.mode is LaunchMode.PLAIN:
        done = all(seat.over and seat.succeeded for seat in world.seats)
    else:
        done = (
            record.go is not None
            and len(world.views) == len(record.members)
            and all(
                view.attempt == record.attempt
                and view.state == EXITED
                and not view.fenced
                and all(not rank.alive and rank.exit_code == 0 for rank in view.ranks)
                for view in world.views.values()
            )
        )
    if not done:
        return None
    step = records.newest_step(world, record)
    message = f"every rank exited with code 0 in attempt {record.attempt}" + (
        f" after step {step}" if step is not None else ""
    )
    return _completion(world, record, CompletionResult.SUCCEEDED, "Completed", message)


def _defeat(world: JobWorld, record: GangSpec) -> CompletionRecord | None:
    """Whether the job is lost: a budget is overdrawn and the blame is final, or it can never start."""
    last = record.incidents[-1] if record.incidents else None
    if record.go is not None or last is None:
        return None
    if last.reason == Kind.START_FAILED:
        plain = world.job.spec.launch.mode is LaunchMode.PLAIN
        hint = (
            "correct the command in spec.template, delete the job and create it again"
            if plain
            else "the image needs python3 (3.8 or later) on its PATH for the launcher; add it, or set spec.launch.mode to Plain"
        )
        return _completion(
            world, record, CompletionResult.FAILED, Kind.START_FAILED, f"{last.message}. Remedy: {hint}."
        )
    reason = overdrawn(world, record)
    if not reason or not last.settled or _evidence_may_come(world, record):
        return None
    remedy = (
        "Fix the program, then delete the job and create it again; spec.recovery.applicationRestartsPerDay is the budget."
        if reason == budgets.APPLICATION_EXHAUSTED
        else "Look at the nodes named in status.incidents; spec.recovery.hardwareRestartsPerDay is the budget."
    )
    what = (
        f"{budgets.application_restarts(record, world.now)} failures within 24 hours and no checkpoint beyond them"
        if reason == budgets.APPLICATION_EXHAUSTED
        else f"{budgets.hardware_restarts(record, world.now)} failures of nodes and infrastructure within 24 hours"
    )
    message = f"{what}. Last: attempt {last.attempt}, worker {last.index} on {last.node}: {last.message}. {remedy}"
    return _completion(world, record, CompletionResult.FAILED, reason, message)


def _evidence_may_come(world: JobWorld, record: GangSpec) -> bool:
    """Whether a worker of the last start has not answered since: it may yet turn out that its node was lost first."""
    if world.job.spec.launch.mode is LaunchMode.PLAIN:
        return False
    views = [world.launchers.get(seat.pod.uid) for seat in world.seats if seat.member.pod_uid and seat.pod]
    return any(view is None or (view.state, view.attempt) != (IDLE, record.attempt) for view in views)


def _completion(
    world: JobWorld, record: GangSpec, result: CompletionResult, reason: str, message: str
) -> CompletionRecord:
    return CompletionRecord(
        result=result, reason=reason, message=message[:4096], time=world.now, attempt=record.attempt
    )

"""Finds the failures of the current attempt, member by member. They say what was seen and blame nothing yet. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from muster.api.gang import Gang, Level
from muster.api.nodehealth import Evacuate
from muster.api.trainingjob import LaunchMode
from muster.fencing.proofs import WHOLE_GANG_SECONDS
from muster.protocol.messages import TERMINATING
from muster.recovery import corruption
from muster.recovery.blame import OF_A_SICK_NODE
from muster.recovery.exits import pod_ended, rank_failed
from muster.recovery.failure import Failure, Kind, failure_of, is_hang
from muster.recovery.silence import silent_for_good, unheard, unreachable
from muster.recovery.starts import STUCK_SECONDS, barrier_failed, not_started, start_failed, stuck_predecessor
from muster.world.job import JobWorld, WorkerView
from muster.world.views import FRESH_SECONDS, LauncherView


def find(world: JobWorld) -> list[Failure]:
    """Return all failures of the current attempt: at most one for each member, and reports of unfenced workers.

    Where there is none, the failures of a gang that makes no progress are returned.
    """
    gang = world.gang
    if gang is None:
        return []
    judge = _plain_failure if world.job.spec.launch.mode is LaunchMode.PLAIN else _managed_failure
    failures = []
    for worker_view in world.worker_views:
        failure = (
            _common_failure(world, worker_view) or judge(world, gang, worker_view) if worker_view.member.node else None
        )
        if failure:
            failures.append(_as_node_fault(world, _with_age(world, gang, worker_view, failure)))
    return failures + corruption.failures_of_leavers(world) or _step_timeouts(world, gang)


def _common_failure(world: JobWorld, worker_view: WorkerView) -> Failure | None:
    """Return the failure that a lost or unhealthy node, or a pod that is gone, shows in either launch mode; None:
    none."""
    node = worker_view.member.node
    if worker_view.node is None:
        return failure_of(worker_view, Kind.NODE_GONE, Level.REPLACE, f"node {node} is gone from the cluster")
    exclusion = world.fleet.exclusion(node)
    if exclusion and exclusion.evacuate is Evacuate.NOW:
        message = f"node {node} is unhealthy ({exclusion.reason}): {exclusion.message}"
        return failure_of(worker_view, Kind.NODE_UNHEALTHY, Level.REPLACE, message)
    if worker_view.pod is None:
        if worker_view.member.pod_uid:
            return failure_of(worker_view, Kind.POD_GONE, Level.POD, f"pod {worker_view.name} is gone")
        return stuck_predecessor(world, worker_view)
    return None


def _as_node_fault(world: JobWorld, failure: Failure) -> Failure:
    """Return the failure as one of its node where that node is known to be unhealthy (Degraded or worse).

    Such a worker moves if another node is free, also where the breaker holds the node back or another system repairs
    it. A worker on a node that failures of jobs have followed moves, too, but its job pays for the failure.
    """
    node_fault, suspicion = world.fleet.node_fault(failure.node), world.fleet.suspicion_of(failure.node)
    if failure.node_fault or failure.kind not in OF_A_SICK_NODE:
        return failure
    if not node_fault:
        if suspicion is None or suspicion.followed is None or _cannot_start(world, failure):
            return failure
        if failure.unlocated:  # nothing says that it happened there
            return failure
        message = f"{failure.message}; jobs failed on this node before: the worker moves to another node if one is free"
        return replace(failure, message=message, suspected=True)
    return replace(failure, message=f"{failure.message}, on an unhealthy node ({node_fault})", node_fault=node_fault)


def _cannot_start(world: JobWorld, failure: Failure) -> bool:
    """Whether the exit code says that the program itself is wrong, so that another node does no better.

    A shell exits with 126 or 127 where it cannot run the command. Python exits with 2 where there is no such script, or
    no such option, before any step.
    """
    launcher = world.by_index[failure.index].launcher
    is_before_first_step = launcher is None or launcher.step is None
    return failure.exit_code in (126, 127) or (failure.exit_code == 2 and is_before_first_step)


def _with_age(world: JobWorld, gang: Gang, worker_view: WorkerView, failure: Failure) -> Failure:
    """Return the deletion of a pod as a failure with its age; other failures are returned as they are.

    A rank of that pod that failed by itself did so before the deletion and is returned instead. A pod that this process
    has only seen while it was being deleted has no known age.
    """
    if failure.kind is not Kind.POD_DELETED or worker_view.pod is None:
        return failure
    view = worker_view.launcher
    if view is not None and view.attempt == gang.spec.attempt:
        rank_failure = rank_failed(view.ranks, worker_view, world.fleet.node_fault(worker_view.member.node))
        if rank_failure is not None and not rank_failure.victim and not rank_failure.killed:
            return replace(
                rank_failure,
                level=Level.POD,
                message=f"{rank_failure.message}; pod {worker_view.name} was deleted after that",
            )
    ages = world.ages_of(worker_view.pod)
    return replace(failure, age_seconds=ages.deleting, dated=ages.there > ages.deleting)


def _plain_failure(world: JobWorld, gang: Gang, worker_view: WorkerView) -> Failure | None:
    if worker_view.pod is None or (worker_view.over and worker_view.succeeded):
        return None
    ended = pod_ended(worker_view, managed=False)
    return (
        ended
        or silent_for_good(world, worker_view, worker_view.pod)
        or start_failed(world, worker_view, worker_view.pod)
    )


def _managed_failure(world: JobWorld, gang: Gang, worker_view: WorkerView) -> Failure | None:
    if worker_view.pod is None:
        return None
    return (
        pod_ended(worker_view, managed=True)
        or unreachable(world, worker_view, worker_view.pod)
        or start_failed(world, worker_view, worker_view.pod)
        or unheard(world, gang, worker_view, worker_view.pod)
        or (_launcher_failure(world, gang, worker_view, worker_view.launcher) if worker_view.launcher else None)
    )


def _launcher_failure(world: JobWorld, gang: Gang, worker_view: WorkerView, launcher: LauncherView) -> Failure | None:
    if launcher.state == TERMINATING:  # it says so before the watch does
        return failure_of(
            worker_view, Kind.POD_DELETED, Level.POD, f"pod {worker_view.name} received the signal to terminate"
        )
    wrong = corruption.corruption_failure(world, worker_view)
    if wrong is not None:
        return wrong
    if gang.spec.start is None:
        return barrier_failed(world, gang, worker_view, launcher)
    if launcher.attempt != gang.spec.attempt:
        return not_started(world, gang, worker_view, launcher)
    if launcher.fenced:
        why = launcher.fence_file_error or "the gang stood still, or went on without it"
        message = f"worker {worker_view.index} lost contact with Muster and ended its ranks, so that no two save: {why}"
        return failure_of(worker_view, Kind.FENCED, Level.IN_PLACE, message)
    return (
        rank_failed(launcher.ranks, worker_view, world.fleet.node_fault(worker_view.member.node))
        or _trainer_behind(gang, worker_view, launcher)
        or not_started(world, gang, worker_view, launcher)
    )


def _trainer_behind(gang: Gang, worker_view: WorkerView, launcher: LauncherView) -> Failure | None:
    """Return the failure of a trainer that begins before the checkpoint from which it should resume; None: it does not.

    The gang is restarted once for that. After that, the status alone reports it (`runs_behind`).
    """
    resume = gang.spec.start.resume if gang.spec.start else None
    if not runs_behind(gang, launcher) or resume is None:
        return None
    if gang.spec.incidents and gang.spec.incidents[-1].reason == Kind.RESUMED_BEHIND:
        return None
    message = (
        f"its first step was {launcher.first_step}, but the ranks were given the checkpoint of step {resume.step} "
        f"({resume.path}): let the trainer load what MUSTER_RESUME_PATH names"
    )
    return failure_of(worker_view, Kind.RESUMED_BEHIND, Level.IN_PLACE, message)


def runs_behind(gang: Gang, launcher: LauncherView) -> bool:
    """Whether the launcher's first step of this attempt is older than the checkpoint from which its ranks should
    resume."""
    resume = gang.spec.start.resume if gang.spec.start else None
    if resume is None or launcher.attempt != gang.spec.attempt or not launcher.first_step:  # 0: nothing is finished
        return False
    return launcher.first_step < resume.step


def _step_timeouts(world: JobWorld, gang: Gang) -> list[Failure]:
    """Return the failures of the workers that are furthest behind where no step was finished within the limit; empty:
    none.

    Where no worker is behind the others, it is not known which one hangs: all have the failure, and none is blamed.
    Each step needs all workers, so the reports of those that are heard suffice. Where a worker fell silent with the
    last step, its silence is looked into first.
    """
    progress, go = world.job.spec.progress, gang.spec.start
    if go is None:
        return []
    heard = {
        index: view
        for index, view in world.views.items()
        if view.attempt == gang.spec.attempt and view.heard_age_seconds < FRESH_SECONDS and _has_looked(view)
    }
    views = {index: view for index, view in heard.items() if not view.progress_error}
    if not any(rank.alive for view in views.values() for rank in view.ranks):
        return []
    if any(view.step is not None for view in views.values()):
        limit, kind = progress.step_timeout_seconds, Kind.HANG
        ages = [
            age_at_report(view, view.step_age_seconds) for view in views.values() if view.step_age_seconds is not None
        ]
    else:
        limit, kind = progress.start_timeout_seconds, Kind.START_HANG
        ages = [age_at_report(view, view.started_age_seconds or 0.0) for view in views.values()]
    age = min(ages, default=0.0)
    if limit is None or age < limit or (age < limit + WHOLE_GANG_SECONDS and _has_fallen_silent(world, gang, age)):
        return []
    steps = _steps(views, printed=progress.step_pattern is not None or any(v.progress_preset for v in views.values()))
    lowest = min(steps.values())
    behind = [index for index, step in steps.items() if step == lowest]
    unlocated = len(behind) == len(steps) and len(world.worker_views) > 1
    suspects = list(heard) if unlocated else behind
    level = Level.POD if _hung_before(gang, lowest) else Level.IN_PLACE
    where = _why_unlocated(steps, lowest) if unlocated else _suspects_text(world, suspects, lowest)
    message = f"no step finished for {age:.0f} s (limit {limit} s); {where}"
    failures = [failure_of(world.by_index[index], kind, level, message) for index in suspects]
    return [
        replace(_as_node_fault(world, replace(failure, unlocated=unlocated)), age_seconds=age) for failure in failures
    ]


def _suspects_text(world: JobWorld, suspects: Sequence[int], step: int) -> str:
    """Return which workers are behind the others, for people; a worker that is the only one is behind none.

    Args:
        world: the state of the job.
        suspects: indices of these workers.
        step: their newest step; -1: they have none yet.
    """
    where = world.by_index[suspects[0]].where + (" and others" if len(suspects) > 1 else "")
    at = f"step {step}" if step >= 0 else "no step yet"
    return f"furthest behind: {where}, {at}" if len(world.worker_views) > 1 else f"{where} has finished {at}"


def _why_unlocated(steps: Mapping[int, int], step: int) -> str:
    """Return why no worker is behind the others, for people.

    Args:
        steps: the newest step of each worker that can be compared; all are the same.
        step: that step; -1: none has one yet.
    """
    unknown_text = "which rank hangs is not known"
    if step < 0:
        return f"{unknown_text}: no worker has reported a step yet"
    if len(steps) == 1:
        return f"{unknown_text}: only worker {next(iter(steps))} reports steps, the last was step {step}"
    return f"{unknown_text}: all {len(steps)} workers that report steps have finished step {step}"


def _has_fallen_silent(world: JobWorld, gang: Gang, seconds: float) -> bool:
    """Whether a worker with running ranks was last heard when the last step was finished, or has only just been heard
    again.

    Its node may have frozen: then the steps of the others stand still through no fault of the program.

    Args:
        world: the state of the job.
        gang: its record.
        seconds: the age of the last step.
    """
    for worker_view in world.worker_views:
        view = worker_view.launcher
        if (
            view is None
            or worker_view.over
            or view.attempt != gang.spec.attempt
            or not any(rank.alive for rank in view.ranks)
        ):
            continue
        silent = view.heard_age_seconds
        if (silent >= FRESH_SECONDS and silent + FRESH_SECONDS >= seconds) or not _has_looked(view):
            return True
    return False


def _steps(views: Mapping[int, LauncherView], *, printed: bool) -> dict[int, int]:
    """Return the last step of each worker that can be compared; -1 where it has none yet.

    Args:
        views: the launchers' reports by index of the worker.
        printed: whether steps are read from what ranks print. As a rule one rank prints them, so that a worker without
        steps is left out and not taken to be behind. The same holds where one of several writes them to its progress
        file.
    """
    steps = {index: view.step if view.step is not None else -1 for index, view in views.items()}
    steps_made = {index: step for index, step in steps.items() if step >= 0}
    return steps_made if steps_made and (printed or len(steps_made) == 1) else steps


def age_at_report(view: LauncherView, age_seconds: float) -> float:
    """Return an age as of the launcher's report, without the time for which its node stood still.

    What happened after the report is not known, and silence is no hang.

    Args:
        view: the launcher's report.
        age_seconds: the age now.
    """
    return age_seconds - view.heard_age_seconds - view.standstill_seconds


def _has_looked(view: LauncherView) -> bool:
    """Whether a launcher that was silent has looked at its ranks since it was heard again, or should have by now.

    The first report after a node stood still may be older than the standstill, and its ages include the standstill.
    """
    return view.loop_age_seconds <= view.talking_age_seconds or view.talking_age_seconds > STUCK_SECONDS


def _hung_before(gang: Gang, step: int) -> bool:
    """Whether the attempt before this one ended in a hang, too, and no step was won since.

    Args:
        gang: the record.
        step: the lowest step of the workers now; -1 before the first step.
    """
    last = gang.spec.incidents[-1] if gang.spec.incidents else None
    if last is None or not is_hang(last.reason):
        return False
    return step <= (-1 if last.step is None else last.step)


def fault_time(world: JobWorld, cause: Failure) -> datetime:
    """Return when a failure happened, as far as is known: not before the newest step, which proves all ranks alive."""
    last_step = world.newest_step_age_seconds
    age = cause.age_seconds
    if cause.kind is Kind.HANG:
        age = last_step
    elif not age:  # a silent launcher last reported then
        view = world.views.get(cause.index)
        age = view.heard_age_seconds if view is not None else 0.0
    begin = min(world.gang.spec.time, world.now) if world.gang else world.now
    age = min(age, last_step, (world.now - begin).total_seconds())
    return world.now - timedelta(seconds=max(age, 0.0))

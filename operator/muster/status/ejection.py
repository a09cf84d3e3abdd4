"""Why a gang cannot be ejected yet, and which workers have not acknowledged it (spec.eject). Pure.

Tests: tests/unit/lifecycle/test_ejecting.py.
"""

from collections.abc import Sequence

from muster.api.gang import GangSpec
from muster.api.trainingjob import LaunchMode, TrainingJob
from muster.protocol.messages import EXITED, RUNNING
from muster.world.job import JobWorld, WorkerView
from muster.world.names import shortened
from muster.world.views import FRESH_SECONDS

EJECTION_WAITS = "EjectionWaits"
EJECTING = "Ejecting"
EJECTED = "Ejected"
_MOST_NAMED = 3


def obstacle(world: JobWorld, record: GangSpec) -> str:
    """Return why a gang that trains cannot leave Muster now; "": it can.

    A launcher that cannot be told would end its ranks once the job is gone. A gang that has left gives its nodes to no
    other job.
    """
    if world.job.spec.queueing.preemptible:
        why = (
            "it is preemptible, and may hold nodes that are reserved for other jobs. Delete it and create it again "
            "without spec.queueing.preemptible"
        )
    elif record.backfilled:
        why = (
            "it backfills: its nodes are reserved for other jobs. Suspend it and let it go on, and it may get nodes "
            "that are not"
        )
    elif record.evacuation is not None:
        why = "the job is about to leave nodes"
    elif record.unfenced_workers:
        why = f"pod {record.unfenced_workers[0].pod} of an earlier attempt may still be alive"
    else:
        why = next(filter(None, (_obstacle_of(world, record, view) for view in world.worker_views)), "")
    return (
        why and f"spec.eject is set, and the job is not ejected yet: {why}. Until then Muster looks after it as usual"
    )


def _obstacle_of(world: JobWorld, record: GangSpec, worker_view: WorkerView) -> str:
    pod, view, name = worker_view.pod, worker_view.launcher, f"worker {worker_view.index} on {worker_view.member.node}"
    if pod is None or pod.deleting:
        return f"the pod of {name} is gone, or going"
    if world.job.spec.launch.mode is LaunchMode.PLAIN:
        return ""
    if view is None or view.heard_age_seconds > FRESH_SECONDS:
        return f"{name} does not report"
    if view.ejected is None:
        return (
            f"the launcher of {name} is of an earlier release, which cannot be ejected: suspend the job and let it go "
            "on, and its pods are new"
        )
    if view.attempt != record.attempt or view.state not in (RUNNING, EXITED) or view.fenced:
        return f"the ranks of {name} do not run"
    if len(view.ranks) < world.job.spec.launch.processes_per_node:
        return f"not all ranks of {name} are up"
    return ""


def unacknowledged(world: JobWorld) -> list[str]:
    """Return the workers of an ejected gang that may be alive and have not said that they know of it.

    In mode Plain there is nothing to know: pods run their ranks by themselves.
    """
    if world.job.spec.launch.mode is LaunchMode.PLAIN:
        return []
    waiting = (
        worker_view
        for worker_view in world.worker_views
        if worker_view.pod is not None
        and not (worker_view.over or world.is_dead(worker_view.pod.uid))
        and not (worker_view.launcher is not None and worker_view.launcher.ejected)
    )
    return [f"worker {worker_view.index} on {worker_view.member.node}" for worker_view in waiting]


def has_ended(world: JobWorld) -> bool:
    """Whether every pod of an ejected gang has ended, or is gone."""
    return all(view.pod is None or view.over or world.is_dead(view.pod.uid) for view in world.worker_views)


def progress(job: TrainingJob, waiting: Sequence[str], *, ended: bool) -> tuple[str, str]:
    """Return the reason and the message for an ejected gang of which these workers have not answered yet."""
    reason, message = _progress(job, waiting, ended=ended)
    if job.spec.suspend:
        message += (
            ". spec.suspend is true, and has no effect any more: set it to false, or delete the job to end its pods"
        )
    return reason, message


def _progress(job: TrainingJob, waiting: Sequence[str], *, ended: bool) -> tuple[str, str]:
    end = f"to delete it and leave the pods alone: kubectl muster eject -n {job.metadata.namespace} {job.metadata.name}"
    if not waiting:
        text = "every worker trains on without Muster until its ranks end"
        if ended:
            text = "the gang has left Muster, and every pod of it has ended or is gone: nothing restarts it"
        return EJECTED, f"{text}. The TrainingJob is what is left of it; {end}"
    return EJECTING, (
        "the gang has left Muster: nothing restarts it any more. Not heard to know of it: "
        f"{shortened(waiting, _MOST_NAMED)}. Such a worker ends its ranks when the job is deleted; its node "
        "may be dead"
    )

"""The ranks run without a failure: report how training goes. Pure."""

from collections.abc import Mapping

from muster.api.gang import Gang, GangSpec
from muster.api.trainingjob import LaunchMode
from muster.checkpoints import resume
from muster.lifecycle import saving
from muster.lifecycle.commit import commit, leftovers
from muster.lifecycle.plan import Action, ApplySupport, Plan
from muster.lifecycle.start_pods import support
from muster.pods.worker_pod import WorkerSettings, disruption_budget
from muster.protocol.messages import RUNNING
from muster.record.ejection import with_gang_ejected
from muster.record.fences import with_fence_file, with_longer_fences
from muster.status import ejection
from muster.status.report import Announcement, State, StatusReport
from muster.world.job import JobWorld
from muster.world.views import FRESH_SECONDS

TICK_SECONDS = 1.0
# Whatever is seen to change is decided about at once; this is for what only time brings.
CALM_SECONDS = 10.0


def plan(world: JobWorld, gang: Gang, settings: WorkerSettings, without_place: Mapping[str, str]) -> Plan:
    """Return the plan of a job whose ranks run without a failure.

    It keeps the objects that workers share, lengthens fences where steps need longer ones, and notes a late resumeFrom.

    Args:
        world: the state of the job.
        gang: of the job.
        settings: for its pods.
        without_place: by node, the reason to leave it, where no worker has a node to move to.
    """
    spec = gang.spec
    if world.job.spec.eject and not ejection.obstacle(world, spec):
        # Before this commit a failure restarts the gang. After it no leader decides anything about it any more
        # (docs/decisions/0084).
        return commit(world, with_gang_ejected(spec))
    asked = saving.plan(world, spec)
    if asked is not None:
        return asked
    longer = with_longer_fences(world, spec)
    if longer is not None:
        return commit(world, longer)
    marked = with_fence_file(world, spec)
    if marked is not None:
        return commit(world, marked)
    noted = resume.with_ignored_request(world.job, spec)
    if noted is not None:
        requested = world.job.spec.checkpoint.resume_from
        text = (
            f"spec.checkpoint.resumeFrom was set to {requested} while the job trains, and has no effect now. Suspend "
            "the job, clear the field, then set it again."
        )
        return commit(world, noted, Announcement("ResumeFromIgnored", text, warning=True))
    cleared = resume.without_cleared_request(world.job, spec)
    if cleared is not None:
        return commit(world, cleared)
    report = StatusReport(State.TRAINING, without_place=without_place)
    return Plan(upkeep(world, settings), report, wake_in_seconds=max(TICK_SECONDS, _calm_seconds(world, spec)))


def upkeep(world: JobWorld, settings: WorkerSettings) -> tuple[Action, ...]:
    """Return what keeps the objects of a gang as they should be: pods that are left over go, and what workers share
    is there.
    """
    return (*leftovers(world), *support(world, settings), ApplySupport(disruption_budget(world.job)))


def _calm_seconds(world: JobWorld, spec: GangSpec) -> float:
    """Return for how many seconds time alone can change nothing about the job; 0 as soon as any member is in another
    state.

    Without this, each of a thousand training jobs would be decided every second. An effect of time that is not
    considered here is late by `CALM_SECONDS` at most.
    """
    nodes = [worker_view.node for worker_view in world.worker_views]
    if spec.unfenced_workers or spec.evacuation or not all(incident.settled for incident in spec.incidents):
        return 0.0
    if not all(
        node and node.ready and not node.unschedulable and not world.fleet.exclusion(node.name) for node in nodes
    ):
        return 0.0
    if world.job.spec.launch.mode is LaunchMode.PLAIN:
        return CALM_SECONDS
    progress, calm = world.job.spec.progress, CALM_SECONDS
    unheard = min(FRESH_SECONDS, world.job.spec.recovery.unreachable_timeout_seconds)
    for view in (worker_view.launcher for worker_view in world.worker_views):
        if view is None or view.attempt != spec.attempt or view.state != RUNNING:
            return 0.0
        if view.step is None:
            limit, age = progress.start_timeout_seconds, view.started_age_seconds
        else:
            limit, age = progress.step_timeout_seconds, view.step_age_seconds
        calm = min(calm, unheard - view.heard_age_seconds)
        if limit is not None:
            calm = min(calm, limit - ((age or 0.0) - view.heard_age_seconds - view.standstill_seconds))
    return calm

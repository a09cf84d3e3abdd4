"""A job without nodes: checks of its template, suspension, and its place in the queue. Pure.

Tests: tests/unit/lifecycle/test_waiting_and_binding.py.
"""

from dataclasses import dataclass

from muster.api.gang import GangSpec, Member
from muster.burnin.state import INCONCLUSIVE
from muster.checkpoints import resume
from muster.checkpoints.location import DIRECTORY_IN_USE
from muster.lifecycle import placing
from muster.lifecycle.commit import commit, leftovers
from muster.lifecycle.plan import Action, CheckTemplate, Plan
from muster.pods.requirements import claims_of
from muster.pods.worker_pod import WorkerSettings, worker_manifest
from muster.queueing.priority_classes import PRIORITY_CLASS_MISSING, missing_class_remedy, named_class
from muster.record.attempts import NODES_YIELDED, with_new_placement
from muster.record.burn_in import BURN_IN_FAILED
from muster.record.starts import without_dead_workers
from muster.recovery import holds
from muster.recovery.words import on_nodes
from muster.status import warnings
from muster.status.report import Announcement, State, StatusReport
from muster.status.template import problem
from muster.world.job import JobWorld, VerdictKind
from muster.world.queuedecision import NotPlaced

TEMPLATE_RETRY_SECONDS = 30.0
PLACE_RETRY_SECONDS = 30.0
PROOF_RETRY_SECONDS = 30.0
HELD_RETRY_SECONDS = 5.0  # the jobs that come first announce nothing to those behind them
TICK_SECONDS = 1.0
INVALID_STEP_PATTERN, STEP_PATTERN_UNTRIED = "InvalidStepPattern", "StepPatternNotTested"
# Refusals of worker 0 that say nothing against the template: they pass without a change of the job.
PASSING_REFUSALS = frozenset(
    {
        "QuotaExceeded",
        "NamespaceTerminating",
        "WebhookFailed",
        "DryRunUnsupported",
        PRIORITY_CLASS_MISSING,
        STEP_PATTERN_UNTRIED,
    }
)


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a job without nodes is not queued for any.

    Attributes:
        status_report: for the status; None where only the API server's answer about the template is missing.
        wake_in_seconds: after this long to decide again though nothing changes; None: never.
        keeps_place: whether the job stays in the queue meanwhile: the API server has accepted it before.
    """

    status_report: StatusReport | None
    wake_in_seconds: float | None = None
    keeps_place: bool = False


def plan(world: JobWorld, settings: WorkerSettings) -> Plan:
    """Return the plan of a job without nodes."""
    spec = world.gang.spec if world.gang else None
    cleared = resume.without_cleared_request(world.job, spec) if spec else None
    if cleared is not None:
        return commit(world, cleared)
    fenced = without_dead_workers(world, spec) if spec else None
    if fenced is not None:
        return commit(world, fenced)
    stale, obstacle = leftovers(world), obstacle_of(world)
    if obstacle is None:
        return _plan_of_waiting(world, spec, stale)
    if obstacle.status_report is None:
        return _plan_of_check(world, settings)
    return Plan(stale, obstacle.status_report, wake_in_seconds=_wake_in_seconds(obstacle, spec))


def _wake_in_seconds(obstacle: Obstacle, spec: GangSpec | None) -> float | None:
    """Return after how many seconds to decide again. A kubelet's proof that a pod is dead comes with time alone."""
    if spec is None or not spec.unfenced_workers:
        return obstacle.wake_in_seconds
    return min(obstacle.wake_in_seconds or PROOF_RETRY_SECONDS, PROOF_RETRY_SECONDS)


def obstacle_of(world: JobWorld) -> Obstacle | None:
    """Return what has to be solved before a job without nodes is queued; None: nothing."""
    spec = world.gang.spec if world.gang else None
    old = next((pod for pod in world.pods.values() if not pod.terminal and not world.is_dead(pod.uid)), None)
    if spec is None and old is not None:
        where = f" on node {old.node}" if old.node else ""
        message = (
            f"The job's Gang was deleted, and pod {old.name}{where} has not ended. The job starts again once all of "
            "its old pods have ended."
        )
        if old.node:
            message += f" If that node is gone for good, run: kubectl muster lost {old.node}"
        return Obstacle(StatusReport(State.PENDING, "WaitingForOldPods", message), TICK_SECONDS)
    if world.job.spec.suspend:
        return Obstacle(StatusReport(State.SUSPENDED, "Suspended"))
    blocked = problem(world.job, world.fleet)
    if blocked:
        return Obstacle(StatusReport(State.STALLED, *blocked))
    verdict = world.template_verdict
    # What the API server has not looked at may have any shape. The template never changes.
    was_accepted = verdict is not None and verdict.kind is VerdictKind.ACCEPTED
    hold = _hold(world, spec) if was_accepted else None
    if verdict is None or verdict.generation != world.job.metadata.generation:
        return Obstacle(None, keeps_place=was_accepted and hold is None)
    if verdict.kind is VerdictKind.REFUSED:
        passing = verdict.reason in PASSING_REFUSALS
        state = State.PENDING if passing else State.STALLED
        of_template = not passing and verdict.reason != INVALID_STEP_PATTERN
        report = StatusReport(state, verdict.reason, verdict.message, template_refused=of_template)
        return Obstacle(report, verdict.retry_seconds or TEMPLATE_RETRY_SECONDS)
    return hold


def _hold(world: JobWorld, spec: GangSpec | None) -> Obstacle | None:
    """Return why a job that the API server accepts waits all the same; None: it does not."""
    held = warnings.held_by(world)
    if held is not None:
        state = State.PENDING if held.reason == DIRECTORY_IN_USE else State.STALLED
        return Obstacle(StatusReport(state, held.reason, held.message), HELD_RETRY_SECONDS)
    until = holds.held_until(world, spec) if spec else None
    if spec and until:
        text = f"gave its nodes back because {_why_given_back(spec)}; next try at {until:%H:%M:%S} UTC"
        return Obstacle(StatusReport(State.PENDING, spec.reason, text), (until - world.now).total_seconds())
    return None


def _why_given_back(spec: GangSpec) -> str:
    if spec.burn_in is not None and spec.reason == INCONCLUSIVE:
        return spec.burn_in.message
    if spec.burn_in is not None and spec.reason == BURN_IN_FAILED and spec.burn_in.failures:
        failure = spec.burn_in.failures[-1]
        return f"too many nodes in a row have failed the burn-in, {failure.node} last ({failure.message})"
    if spec.reason == NODES_YIELDED:
        return "it found no nodes for all of its workers"
    return "it could not be assembled on them"


def _plan_of_check(world: JobWorld, settings: WorkerSettings) -> Plan:
    trial = worker_manifest(world.job, Member(index=0, rank=0), settings)
    # A name that no other client can take beforehand: what the API server answers is the pod with all of its defaults.
    trial["metadata"]["generateName"] = f"{trial['metadata'].pop('name')}-trial-"
    claims = tuple(claims_of(world.job)) if world.fleet.binds_directly else ()
    pattern = world.job.spec.progress.step_pattern or ""
    return Plan((CheckTemplate(trial, world.job.metadata.generation, claims, pattern),), wake_in_seconds=0.0)


def _plan_of_waiting(world: JobWorld, spec: GangSpec | None, stale: tuple[Action, ...]) -> Plan:
    """Return the plan of a job that only waits for the queue's answer and for nodes."""
    if world.queue_decision is None:
        return Plan(stale)  # the queue rings when it has answered
    answer = world.queue_decision.answer
    if isinstance(answer, NotPlaced):
        # Exclusions end with time alone: no watch announces that.
        return Plan(stale, StatusReport(State.PENDING, answer=answer), wake_in_seconds=PLACE_RETRY_SECONDS)
    if world.lacks_class:
        name = named_class(world.job)
        why = f"PriorityClass {name} does not exist: pods that name it are refused"
        report = StatusReport(
            State.PENDING, PRIORITY_CLASS_MISSING, f"{why}. To change that, {missing_class_remedy(name)}."
        )
        return Plan(stale, report, wake_in_seconds=TICK_SECONDS)
    if not placing.are_still_free(world, answer):
        return Plan(stale, wake_in_seconds=TICK_SECONDS, overtaken=True)
    placed = with_new_placement(world, answer, "Resumed" if spec else "Started")
    return commit(world, placed, Announcement("Placed", f"attempt {placed.attempt}: {on_nodes(placed)}"))

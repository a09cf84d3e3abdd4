"""A job without nodes: checks, suspension, its turn. Pure."""

from muster.api.gang import GangSpec, Member
from muster.lifecycle import members, record
from muster.lifecycle.commit import commit, leftovers
from muster.lifecycle.facts import Facts
from muster.lifecycle.plan import Action, Announcement, CheckTemplate, Plan, State, Telling
from muster.lifecycle.template import claims_of, problem
from muster.lifecycle.words import on_nodes
from muster.lifecycle.worker_pod import WorkerSettings, worker_manifest
from muster.world.job import JobWorld, VerdictKind
from muster.world.turn import NotPlaced

TEMPLATE_RETRY_SECONDS = 30.0
PLACE_RETRY_SECONDS = 30.0
TICK_SECONDS = 1.0
# Refusals of worker 0 that say nothing against the template: they pass without anybody changing the job.
PASSING_REFUSALS = frozenset({"QuotaExceeded", "NamespaceTerminating"})


def plan(world: JobWorld, facts: Facts, settings: WorkerSettings) -> Plan:
    """Until it has nodes."""
    spec, stale = facts.gang.spec if facts.gang else None, leftovers(world)
    old = next((pod for pod in world.pods.values() if not pod.terminal and not world.is_dead(pod.uid)), None)
    if spec is None and old is not None:
        message = (
            f"its record is gone; waiting until its old pods have ended, first {old.name} on {old.node or 'no node'}; if that "
            f"node is gone for good, say so: kubectl muster lost {old.node or 'NODE'}"
        )
        return Plan(stale, Telling(State.PENDING, "WaitingForOldPods", message), wake_in_seconds=TICK_SECONDS)
    if world.job.spec.suspend:
        return Plan(stale, Telling(State.SUSPENDED, "Suspended"))
    blocked = problem(world.job, world.fleet)
    if blocked:
        return Plan(stale, Telling(State.STALLED, *blocked))
    verdict = world.template_verdict
    if verdict is None or verdict.generation != world.job.metadata.generation:
        return _checked(world, settings)
    if verdict.kind is VerdictKind.REFUSED:
        passing = verdict.reason in PASSING_REFUSALS
        state = State.PENDING if passing else State.STALLED
        telling = Telling(state, verdict.reason, verdict.message, template_refused=not passing)
        return Plan(stale, telling, wake_in_seconds=verdict.retry_seconds or TEMPLATE_RETRY_SECONDS)
    if spec and spec.hold_until and world.now < spec.hold_until:
        text = (
            f"gave its nodes back because it could not be assembled on them; next try at {spec.hold_until:%H:%M:%S} UTC"
        )
        wait = (spec.hold_until - world.now).total_seconds()
        return Plan(stale, Telling(State.PENDING, spec.reason, text), wake_in_seconds=wait)
    return _queued(world, spec, stale)


def _checked(world: JobWorld, settings: WorkerSettings) -> Plan:
    trial = worker_manifest(world.job, Member(index=0, rank=0), settings)
    trial["metadata"]["name"] += "-trial"
    claims = tuple(claims_of(world.job)) if world.fleet.binds_directly else ()
    return Plan((CheckTemplate(trial, world.job.metadata.generation, claims),), wake_in_seconds=0.0)


def _queued(world: JobWorld, spec: GangSpec | None, stale: tuple[Action, ...]) -> Plan:
    """Nothing is in the job's way any more but its turn, and the nodes."""
    if world.turn is None:
        return Plan(stale)  # the queue rings when it has answered
    answer = world.turn.answer
    if isinstance(answer, NotPlaced):
        # Exclusions end with time alone: no watch announces that.
        return Plan(stale, Telling(State.PENDING, answer=answer), wake_in_seconds=PLACE_RETRY_SECONDS)
    if not members.to_be_had(world, answer):
        return Plan(stale, wake_in_seconds=TICK_SECONDS, overtaken=True)
    placed = record.placed_anew(world, answer, "Resumed" if spec else "Started")
    return commit(world, placed, Announcement("Placed", f"attempt {placed.attempt}: {on_nodes(placed)}"))

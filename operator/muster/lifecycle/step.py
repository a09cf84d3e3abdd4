"""The one step of a job's life: look at the world, return a plan. Pure, so that operator, simulator and tests share it.

The phases below are tried in order; the first that has something to say ends the step. A step either commits the Gang
(one guarded update, nothing else) or brings pods into line with what is committed, never both: whatever a crash
interrupts, the next step finds in a state that some step before has left on purpose.
"""

from collections.abc import Mapping
from dataclasses import replace

from muster.api.fleetpolicy import Binding
from muster.api.gang import Gang, GangSpec, Member
from muster.api.trainingjob import CompletionRecord, CompletionResult, LaunchMode
from muster.lifecycle import attempt, status
from muster.lifecycle.plan import (
    Action,
    Announcement,
    ApplySupport,
    BindPod,
    CheckTemplate,
    CommitGang,
    CreatePod,
    DeleteJob,
    DeletePod,
    Plan,
)
from muster.lifecycle.template import claims_of, problem, scheduler_for
from muster.lifecycle.worker_pod import WorkerSettings, disruption_budget, support_manifests, worker_manifest
from muster.placement.eligibility import binding_of
from muster.protocol.messages import EXITED, IDLE
from muster.recovery import blame, budgets, failures
from muster.recovery.failures import FRESH_SECONDS, POD_START_SECONDS, Kind
from muster.world.fleet import Leave
from muster.world.job import CreateError, JobWorld, VerdictKind
from muster.world.turn import NotPlaced
from muster.world.views import SCHEDULER_NAME, PodView

# A finished job's workers exit when told so; those that cannot be told are deleted after this long.
EXIT_GRACE_SECONDS = 30.0
TEMPLATE_RETRY_SECONDS = 30.0
CREATE_RETRY_SECONDS = 10.0
# A start that takes longer names what it waits for.
WORTH_TELLING_SECONDS = 60.0
PLACE_RETRY_SECONDS = 30.0
# Refusals of worker 0 that say nothing against the template: they pass without anybody changing the job.
PASSING_REFUSALS = frozenset({"QuotaExceeded", "NamespaceTerminating"})
# While something is under way that no watch announces (ages, deadlines), look again this often.
TICK_SECONDS = 1.0


def decide(world: JobWorld, settings: WorkerSettings) -> Plan:
    """What to do next for one job."""
    if world.job.metadata.deletion_timestamp is not None:
        return Plan()
    if world.job.status.completion is not None:
        return _finished(world, world.job.status.completion)
    record = world.gang.spec if world.gang else None
    if record is None or not record.members:
        return _without_nodes(world, record, settings)
    assert world.gang is not None
    plan = _ended(world, world.gang) or _recovering(world, world.gang) or _leaving(world, world.gang)
    return plan or _assembling(world, world.gang, settings) or _training(world, world.gang, settings)


# Without nodes: checks, suspension, placement.


def _without_nodes(world: JobWorld, record: GangSpec | None, settings: WorkerSettings) -> Plan:
    stale = _leftovers(world)
    if record is None and any(not pod.terminal and pod.uid not in world.proved_dead for pod in world.pods.values()):
        now = status.pending(world, "WaitingForOldPods", "its record is gone; waiting until its old pods have ended")
        return Plan(stale, now, status.changes(world, now), TICK_SECONDS)
    if world.job.spec.suspend:
        now = status.suspended(world)
        return Plan(stale, now, status.changes(world, now))
    blocked = problem(world.job, world.fleet)
    if blocked:
        now = status.stalled(world, *blocked)
        return Plan(stale, now, status.changes(world, now))
    verdict = world.template_verdict
    if verdict is None or verdict.generation != world.job.metadata.generation:
        trial = worker_manifest(world.job, 0, Member(), settings)
        trial["metadata"]["name"] += "-trial"
        claims = tuple(claims_of(world.job)) if world.fleet.binds_directly else ()
        return Plan((CheckTemplate(trial, world.job.metadata.generation, claims),), wake_in_seconds=0.0)
    if verdict.kind is VerdictKind.REFUSED and verdict.reason in PASSING_REFUSALS:
        now = status.pending(world, verdict.reason, verdict.message)
        return Plan(stale, now, status.changes(world, now), wake_in_seconds=TEMPLATE_RETRY_SECONDS)
    if verdict.kind is VerdictKind.REFUSED:
        now = status.stalled(world, verdict.reason, verdict.message, template_refused=True)
        return Plan(stale, now, status.changes(world, now), wake_in_seconds=TEMPLATE_RETRY_SECONDS)
    if record and record.hold_until and world.now < record.hold_until:
        text = f"gave its nodes back because it could not be assembled on them; next try at {record.hold_until:%H:%M:%S} UTC"
        now = status.pending(world, record.reason, text)
        return Plan(stale, now, status.changes(world, now), (record.hold_until - world.now).total_seconds())
    return _queued(world, record, stale)


def _queued(world: JobWorld, record: GangSpec | None, stale: tuple[Action, ...]) -> Plan:
    """Nothing is in the job's way any more but its turn, and the nodes."""
    if world.turn is None:
        return Plan(stale)  # the queue rings when it has answered
    if isinstance(world.turn.answer, NotPlaced):
        now = status.queued(world, world.turn)
        # Exclusions end with time alone: no watch announces that.
        return Plan(stale, now, status.changes(world, now), PLACE_RETRY_SECONDS)
    if not attempt.to_be_had(world, world.turn.answer):
        return Plan(stale, wake_in_seconds=TICK_SECONDS, overtaken=True)
    spec = attempt.placed_anew(world, world.turn.answer, "Resumed" if record else "Started")
    return _placed(world, spec)


def _placed(world: JobWorld, spec: GangSpec) -> Plan:
    return _commit(world, spec, Announcement("Placed", f"attempt {spec.attempt}: {status.on_nodes(spec)}"))


# The end.


def _ended(world: JobWorld, gang: Gang) -> Plan | None:
    """Records the end of the job, before anything is cleaned."""
    completion = _success(world, gang) or _defeat(world, gang)
    if completion is None:
        return None
    now = status.completed(world, completion)
    warning = completion.result is CompletionResult.FAILED
    return Plan((), now, (Announcement(completion.reason, completion.message, warning),), wake_in_seconds=0.0)


def _success(world: JobWorld, gang: Gang) -> CompletionRecord | None:
    record = gang.spec
    if world.job.spec.launch.mode is LaunchMode.PLAIN:
        pods = [world.pod(index, member) for index, member in enumerate(record.members)]
        done = all(pod is not None and pod.phase == "Succeeded" for pod in pods)
    else:
        done = (
            record.go is not None
            and _all_heard(world, record)
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
    step = attempt.newest_step(world, record)
    message = f"every rank exited with code 0 in attempt {record.attempt}" + (
        f" after step {step}" if step is not None else ""
    )
    return _completion(world, record, CompletionResult.SUCCEEDED, "Completed", message)


def _defeat(world: JobWorld, gang: Gang) -> CompletionRecord | None:
    """Whether the job is lost: a budget is overdrawn and the blame is final, or it can never start."""
    record = gang.spec
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
    reason = _overdrawn(world, record)
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


def _overdrawn(world: JobWorld, record: GangSpec) -> str:
    """Which budget is overdrawn, in view of the newest checkpoint that anybody sees."""
    seen = record.model_copy(update={"checkpoint": attempt.newest_checkpoint(world, record)})
    return budgets.exhausted(seen, world.job.spec.recovery, world.now)


def _evidence_may_come(world: JobWorld, record: GangSpec) -> bool:
    """Whether a worker of the last start has not answered since: it may yet turn out that its node was lost first."""
    if world.job.spec.launch.mode is LaunchMode.PLAIN:
        return False
    pods = (world.pod(index, member) for index, member in enumerate(record.members) if member.pod_uid)
    views = (world.launchers.get(pod.uid) for pod in pods if pod is not None)
    return any(view is None or (view.state, view.attempt) != (IDLE, record.attempt) for view in views)


def _completion(
    world: JobWorld, record: GangSpec, result: CompletionResult, reason: str, message: str
) -> CompletionRecord:
    return CompletionRecord(
        result=result, reason=reason, message=message[:4096], time=world.now, attempt=record.attempt
    )


def _finished(world: JobWorld, completion: CompletionRecord) -> Plan:
    """Workers are told to exit by their directive; here is what is left to tidy, and the end of the end."""
    age = (world.now - completion.time).total_seconds()
    alive = [pod for pod in world.pods.values() if not pod.terminal]
    overdue = tuple(DeletePod(pod.name, pod.uid) for pod in alive if not pod.deleting and age >= EXIT_GRACE_SECONDS)
    if world.job.spec.launch.mode is LaunchMode.PLAIN:
        overdue = tuple(DeletePod(pod.name, pod.uid) for pod in alive if not pod.deleting)
    wakes = [EXIT_GRACE_SECONDS - age] if alive and age < EXIT_GRACE_SECONDS else []
    ttl = world.job.spec.completion.ttl_seconds_after_finished
    if ttl is not None and all(pod.deleting for pod in alive):  # one on a lost node may stay Terminating for ever
        if age >= ttl:
            return Plan((DeleteJob(),))
        wakes.append(ttl - age)
    return Plan(overdue, status.completed(world, completion), wake_in_seconds=min(wakes, default=None))


# Failures.


def _recovering(world: JobWorld, gang: Gang) -> Plan | None:
    """A new attempt, when the current one is broken."""
    found = failures.find(world)
    if not found:
        settled = attempt.settled(world, gang)
        return _commit(world, settled) if settled else None
    pause = blame.gathering_seconds(found)
    if pause > 0 and gang.spec.go is not None:
        return Plan(wake_in_seconds=pause)
    spec = attempt.recovered(world, gang.spec, found)
    cause = blame.culprit(found)
    follows = f"attempt {spec.attempt} follows ({spec.level.value}: {status.WHAT_LEVELS_DO[spec.level]})"
    if _overdrawn(world, spec):
        follows = "no restart is left"
    note = f"attempt {gang.spec.attempt}: {cause.message}; {follows}"
    return _commit(world, spec, Announcement(cause.kind, note, warning=True))


# Planned leaves.


def _leaving(world: JobWorld, gang: Gang) -> Plan | None:
    """Suspension, and members on cordoned nodes: wait for a new checkpoint, then go."""
    record = gang.spec
    why = {} if world.job.spec.suspend else _to_leave(world, record)
    nodes = sorted(why)
    reason = "Suspended" if world.job.spec.suspend else _strongest_reason(why)
    if not world.job.spec.suspend and not nodes:
        if record.leave is None:
            return None
        return _commit(
            world,
            record.model_copy(update={"leave": None}),
            Announcement("LeaveCancelled", "no node is to be left any more"),
        )
    if record.go is None:
        return _commit(world, attempt.released(world, record)) if world.job.spec.suspend else None
    if nodes and not attempt.replacement_exists(world, record, nodes):
        return None  # a leave that has begun goes on when a node becomes free
    leave = record.leave
    if leave is None and world.leader_age_seconds < FRESH_SECONDS and not _all_heard(world, record):
        return None  # what counts as a NEW checkpoint is known once everybody has told which ones there are
    if leave is None or (leave.reason, leave.nodes) != (reason, nodes):
        what = "the job is suspended" if world.job.spec.suspend else ", ".join(why.values())
        note = f"{what}: stopping at the next complete checkpoint, at the latest in {world.job.spec.checkpoint.save_timeout_seconds} s"
        return _commit(world, attempt.leaving(world, record, reason, nodes), Announcement("LeavePlanned", note))
    newest = attempt.newest_checkpoint(world, record)
    saved = newest is not None and newest.step > (-1 if leave.after_step is None else leave.after_step)
    saved = saved or not world.job.spec.checkpoint.directory
    if not saved and world.now < leave.deadline:
        return None
    if world.job.spec.suspend:
        spec = attempt.released(world, record)
        what = (
            f"after checkpoint {newest.step}"
            if saved and newest
            else "without a new checkpoint: the time to save was over"
        )
        return _commit(world, spec, Announcement("Suspended", f"stopped {what}; its nodes are free", warning=not saved))
    spec = attempt.left(world, record, leave)
    note = f"attempt {spec.attempt} leaves {', '.join(nodes)}: {status.on_nodes(spec)}"
    return _commit(world, spec, Announcement("NodeLeft", note, warning=not saved))


def _all_heard(world: JobWorld, record: GangSpec) -> bool:
    return len(world.views) == len(record.members)


def _to_leave(world: JobWorld, record: GangSpec) -> dict[str, str]:
    """Nodes that the gang should leave at its next checkpoint -> what is the matter with them, in words."""
    found = {}
    for member in record.members:
        node, exclusion = world.node(member), world.fleet.exclusion(member.node)
        if exclusion and exclusion.leave is Leave.AFTER_CHECKPOINT:
            found[member.node] = f"{member.node} is degraded ({exclusion.reason})"
        elif node is not None and node.unschedulable:
            found[member.node] = f"{member.node} is cordoned"
    return found


def _strongest_reason(why: Mapping[str, str]) -> str:
    return "NodeDegraded" if any("degraded" in words for words in why.values()) else "NodeCordoned"


# Getting the pods in line, and the ranks on their way.


def _assembling(world: JobWorld, gang: Gang, settings: WorkerSettings) -> Plan | None:
    """Until the go: pods, the barrier, the go itself."""
    record = gang.spec
    if record.go is not None:
        return None
    if not all(member.node for member in record.members):
        return _incomplete(world, gang)
    late = _overdue(world, gang)
    if late:
        return _give_back(world, gang, late)
    plain = world.job.spec.launch.mode is LaunchMode.PLAIN
    if plain and (held := _held_back(world, gang)):  # there a pod's creation is the start of its ranks
        return replace(held, actions=_leftovers(world))
    pods = _pods_in_line(world, record, settings)
    if pods:
        now = status.recovering(world, gang, *_start_trouble(world, gang, "creating pods"))
        wait = CREATE_RETRY_SECONDS if world.create_error else TICK_SECONDS
        return Plan(pods, now, status.changes(world, now), wait)
    unbound = _bindings(world, gang)
    if unbound:
        return unbound
    if plain:
        return _plain_started(world, gang)
    held = _held_back(world, gang)
    if held:
        return held
    started = attempt.started(world, record)
    if isinstance(started, attempt.Missing):
        waited = (world.now - record.time).total_seconds()
        reason = started.reason if waited > WORTH_TELLING_SECONDS else status.ASSEMBLING
        now = status.recovering(world, gang, *_start_trouble(world, gang, started.message, reason))
        return Plan((), now, status.changes(world, now), TICK_SECONDS)
    resume = started.go.resume if started.go else None
    where = f"from checkpoint {resume.step} ({resume.path})" if resume else "from scratch"
    if resume and record.checkpoint is None:
        where += ", found in spec.checkpoint.directory"
    lost = record.checkpoint is not None and resume is None
    text = f"attempt {record.attempt} starts {where}" + (
        f"; checkpoint {record.checkpoint.step} is no longer complete for every worker"
        if lost and record.checkpoint
        else ""
    )
    return _commit(world, started, Announcement("Started", text, warning=lost))


def _incomplete(world: JobWorld, gang: Gang) -> Plan:
    """Some members have no node."""
    record = gang.spec
    leftovers = _leftovers(world)
    spec = attempt.filled(world, record)
    if isinstance(spec, GangSpec):
        return _placed(world, spec)
    if spec is None:
        return Plan(leftovers, wake_in_seconds=TICK_SECONDS, overtaken=world.turn is not None)
    turn = world.turn
    if turn and turn.queued > 1 and _assembling_seconds(world, record) >= _assembly_timeout(world):
        return _give_back(world, gang, f"{spec.message}; and others wait for nodes")
    now = status.incomplete(world, gang, spec)
    return Plan(leftovers, now, status.changes(world, now), TICK_SECONDS)


def _overdue(world: JobWorld, gang: Gang) -> str:
    """Why the gang should give its nodes back: it cannot be assembled on them. "" while there is hope."""
    waited, timeout = _assembling_seconds(world, gang.spec), _assembly_timeout(world)
    if waited < timeout:
        return ""
    for index, member in enumerate(gang.spec.members):
        pod = world.pod(index, member)
        where = f"worker {index} on {member.node}"
        if pod is None or not pod.node:
            why = world.create_error.message if world.create_error else (pod and pod.unschedulable_message) or ""
            return f"{where}: its pod {'does not exist' if pod is None else 'is not bound'}" + (
                f": {why}" if why else ""
            )
        trouble = _pod_trouble(pod)
        if pod.phase == "Pending" and (trouble or waited >= max(timeout, POD_START_SECONDS)):
            return f"{where}: {trouble.message if trouble else 'its pod does not come to run'}"
    return ""


def _give_back(world: JobWorld, gang: Gang, why: str) -> Plan:
    spec = attempt.unassembled(world, gang.spec)
    pause = (spec.hold_until - world.now).total_seconds() if spec.hold_until else 0
    note = f"not assembled within {_assembly_timeout(world):.0f} s ({why.rstrip('.')}); its nodes are free, next try in {pause:.0f} s"
    return _commit(world, spec, Announcement(spec.reason, note, warning=True))


def _assembling_seconds(world: JobWorld, record: GangSpec) -> float:
    """For how long the gang could have been assembled."""
    begun = max(record.time, record.hold_until) if record.hold_until else record.time
    return (world.now - begun).total_seconds()


def _assembly_timeout(world: JobWorld) -> float:
    return float(world.fleet.policy.queueing.assembly_timeout_seconds)


def _bindings(world: JobWorld, gang: Gang) -> Plan | None:
    """Binds the pods that are Muster's to bind, all at once, when every pod exists and nobody holds one back."""
    members = enumerate(gang.spec.members)
    pods = [(pod, member) for index, member in members if (pod := world.pod(index, member)) is not None]
    unbound = [(pod, member) for pod, member in pods if pod.scheduler == SCHEDULER_NAME and not pod.node]
    if not unbound:
        return None
    gated = next((pod for pod, _ in pods if pod.gates), None)
    if gated:
        text = f"pod {gated.name} is held back by the scheduling gate {gated.gates[0]}, which whoever put it there must remove"
        now = status.recovering(world, gang, "SchedulingGated", text)
        return Plan((), now, status.changes(world, now), TICK_SECONDS)
    bindings = (BindPod(pod.name, pod.uid, member.node) for pod, member in unbound if not pod.deleting)
    return Plan(tuple(bindings), wake_in_seconds=TICK_SECONDS)


def _held_back(world: JobWorld, gang: Gang) -> Plan | None:
    """A start that may not be yet, because of what failed before."""
    record = gang.spec
    if _overdrawn(world, record):
        now = status.recovering(world, gang, "Settling", "the restart budget is used up; waiting for late evidence")
        return Plan((), now, status.changes(world, now), TICK_SECONDS)
    if record.hold_until and world.now < record.hold_until:
        pause = (record.hold_until - world.now).total_seconds()
        text = f"failed {budgets.CRASH_LOOP} times or more without a new checkpoint; next start at {record.hold_until:%H:%M:%S} UTC"
        now = status.recovering(world, gang, "CrashLoopBackOff", text)
        return Plan((), now, status.changes(world, now), pause)
    return None


def _plain_started(world: JobWorld, gang: Gang) -> Plan | None:
    """Plain mode has no barrier: once all pods run, the attempt has begun."""
    record = gang.spec
    pods = [world.pod(index, member) for index, member in enumerate(record.members)]
    if not all(pod is not None and pod.phase in ("Running", "Succeeded") for pod in pods):
        now = status.recovering(world, gang, *_start_trouble(world, gang, "waiting for the pods to run"))
        return Plan((), now, status.changes(world, now), TICK_SECONDS)
    return _commit(
        world, attempt.plain_started(world, record), Announcement("Started", f"attempt {record.attempt} runs")
    )


def _pods_in_line(world: JobWorld, record: GangSpec, settings: WorkerSettings) -> tuple[Action, ...]:
    """Deletions of pods that the record no longer names, creations of those that it names and that are missing."""
    actions: list[Action] = list(_leftovers(world))
    missing = [index for index, member in enumerate(record.members) if world.pod(index, member) is None]
    if missing:
        held = _held_nodes(world)
        missing = [index for index in missing if not _predecessor_alive(world, held, record.members[index])]
    if missing:
        actions += _support(world, settings)
        # The policy may have changed since the gang was placed there.
        ours_to_bind = not scheduler_for(world.job.spec.template.get("spec") or {})
        for index in missing:
            member = record.members[index]
            direct = ours_to_bind and _is_direct(world, member)
            actions.append(CreatePod(worker_manifest(world.job, index, member, settings, direct=direct)))
    return tuple(actions)


def _is_direct(world: JobWorld, member: Member) -> bool:
    """Whether the member is on a node to which Muster binds pods itself."""
    node = world.node(member)
    return node is not None and binding_of(node, world.fleet) is Binding.DIRECT


def _support(world: JobWorld, settings: WorkerSettings) -> list[ApplySupport]:
    """What the workers share; asked for again and again, because certificates change while a job runs."""
    return [ApplySupport(manifest) for manifest in support_manifests(world.job, settings)]


def _leftovers(world: JobWorld) -> tuple[DeletePod, ...]:
    """This job's pods that are no member's, not yet being deleted."""
    left = (pod for pods in world.others.values() for pod in pods if not pod.deleting)
    return tuple(DeletePod(pod.name, pod.uid) for pod in sorted(left, key=lambda pod: pod.name))


def _held_nodes(world: JobWorld) -> Mapping[str, int]:
    """Node -> lowest incarnation of this job's pods there that have not ended: they hold its accelerators."""
    held: dict[str, int] = {}
    for pod in world.pods.values():
        if not pod.terminal:
            held[pod.node] = min(pod.incarnation, held.get(pod.node, pod.incarnation))
    return held


def _predecessor_alive(world: JobWorld, held: Mapping[str, int], member: Member) -> bool:
    """Whether an older pod may still hold the node or, in Plain mode, still train: its successor has to wait."""
    if held.get(member.node, member.incarnation) < member.incarnation:
        return True
    if world.job.spec.launch.mode is not LaunchMode.PLAIN:
        return False
    nodes = ((world.fleet.nodes.get(name), incarnation) for name, incarnation in held.items())
    return any(node is not None and node.ready and lowest < member.incarnation for node, lowest in nodes)


def _start_trouble(world: JobWorld, gang: Gang, otherwise: str, reason: str = status.ASSEMBLING) -> tuple[str, str]:
    """The most telling reason why the gang is not yet complete, as (reason, message)."""
    if world.create_error:
        return world.create_error.reason, world.create_error.message
    for index, member in enumerate(gang.spec.members):
        pod = world.pod(index, member)
        trouble = _pod_trouble(pod) if pod else None
        if trouble:
            return trouble.reason, f"worker {index} on {member.node}: {trouble.message}"
    return reason, otherwise


_REMEDY = "If the image cannot be had, delete the job and create it again with one that can."


def _pod_trouble(pod: PodView) -> CreateError | None:
    for container in pod.containers:
        if container.waiting_reason and container.waiting_reason not in ("ContainerCreating", "PodInitializing"):
            what = f"container {container.name}: {container.waiting_message}"
            return CreateError(
                container.waiting_reason, f"{what}. {_REMEDY if 'Image' in container.waiting_reason else ''}".strip()
            )
    if pod.unschedulable_message:
        return CreateError("Unschedulable", pod.unschedulable_message)
    return None


def _training(world: JobWorld, gang: Gang, settings: WorkerSettings) -> Plan:
    """Nothing is wrong: tell how it goes."""
    now = status.training(world, gang)
    budget = ApplySupport(disruption_budget(world.job))
    actions: tuple[Action, ...] = (*_leftovers(world), *_support(world, settings), budget)
    return Plan(actions, now, status.changes(world, now), TICK_SECONDS)


def _commit(world: JobWorld, spec: GangSpec, *announcements: Announcement) -> Plan:
    """Commit the record; the status follows in the next step, when it is a fact."""
    version = world.gang.metadata.resource_version if world.gang else ""
    return Plan((CommitGang(spec, version),), None, announcements, wake_in_seconds=0.0)

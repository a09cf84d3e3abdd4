"""From nodes to the start of the ranks: pods, bindings, and the start barrier. Pure.

Tests: tests/unit/lifecycle/test_waiting_and_binding.py.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from muster.api.fleetpolicy import Binding
from muster.api.gang import Gang, GangSpec, Member
from muster.fencing.proofs import is_pod_given_up
from muster.fencing.survivors import awaited_proof_message, is_fenced
from muster.lifecycle import burnin, local, members, move_incomplete, record, resume, resuming
from muster.lifecycle.burnin_conclusion import patience_seconds
from muster.lifecycle.burnin_state import INCONCLUSIVE, BurnInState
from muster.lifecycle.burnin_view import tries
from muster.lifecycle.commit import commit, leftovers
from muster.lifecycle.ending import budget_exhausted
from muster.lifecycle.modes import mode_of
from muster.lifecycle.plan import (
    Action,
    Announcement,
    ApplySupport,
    BindPod,
    CreatePod,
    Plan,
    State,
    StatusReport,
)
from muster.lifecycle.resume import Missing
from muster.lifecycle.template import scheduler_for, shape_problem
from muster.lifecycle.words import on_nodes
from muster.lifecycle.worker_pod import WorkerSettings, support_manifests, worker_manifest
from muster.placement.eligibility import binding_of
from muster.protocol.checkpoint_names import above
from muster.protocol.resuming import is_own
from muster.queueing.charges import JOBS_THAT_PAY_ALONE
from muster.queueing.limits import NAMESPACE_LIMIT
from muster.queueing.phrases import nodes_text
from muster.recovery import budgets, holds, verification
from muster.recovery.stacks import is_printing
from muster.recovery.starts import POD_START_SECONDS
from muster.world.job import CreateError, JobWorld
from muster.world.views import SCHEDULER_NAME, PodView

ASSEMBLING = "Assembling"
NODE_CLOSED = "NodeNotUsable"
CREATE_RETRY_SECONDS = 10.0
# A start that takes longer names what it waits for.
WORTH_TELLING_SECONDS = 60.0
# A pod is bound within moments of its creation; after this long its node is checked again.
SHUT_OUT_SECONDS = 5.0
MAX_FAILS_IN_NOTE = 4
# While something is under way that no watch announces (ages, deadlines), look again this often.
TICK_SECONDS = 1.0


def plan(world: JobWorld, gang: Gang, settings: WorkerSettings) -> Plan:
    """Return the plan of a job that has a gang and whose start barrier is not yet open."""
    if world.beyond_limit:
        return _refused(world, gang)
    if not all(member.node for member in gang.spec.members):
        settling = budget_exhausted(world, gang.spec) and _plan_of_back_off(world, gang)
        return replace(settling, actions=leftovers(world)) if settling else _incomplete(world, gang)
    mode = mode_of(world.job)
    if mode.starts_with_pods and (held := _plan_of_back_off(world, gang) or _plan_awaiting_fences(world, gang)):
        return replace(held, actions=leftovers(world)) if not held.commits else held
    if not mode.starts_with_pods and _are_all_fenced(world, gang):
        return commit(world, record.after_all_fenced(world, gang.spec))
    late = _overdue(world, gang)
    if late:
        return _plan_after_late_workers(world, gang, late)
    moved = _plan_after_nodes_closed(world, gang)
    if moved is not None:
        return moved
    if mode.starts_with_pods and all(worker_view.pod is None for worker_view in world.worker_views):
        burning_in = _plan_of_burn_in(world, gang)
        if burning_in is not None:
            return burning_in
    # It was looked at before there was a record, but a backup may bring back another template with the same record.
    misshapen = shape_problem(world.job) if any(worker_view.pod is None for worker_view in world.worker_views) else None
    if misshapen:
        return Plan(leftovers(world), StatusReport(State.STALLED, *misshapen))
    actions, blocked = _pods_in_line(world, gang.spec, settings)
    if actions:
        wait = CREATE_RETRY_SECONDS if world.create_error else TICK_SECONDS
        return _waiting(world, Missing(ASSEMBLING, "creating pods"), actions=actions, wake=wait)
    if blocked is not None:
        return _waiting(world, Missing("OldRanksNotFenced", _why_wait_for(blocked)))
    unbound = _bindings(world)
    is_gated = unbound is not None and not unbound.actions
    if (
        mode.starts_with_pods
        and not is_gated
        and any(worker_view.pod and not worker_view.member.pod_uid for worker_view in world.worker_views)
    ):
        return commit(world, record.with_pod_uids(world, gang.spec))
    if unbound:
        return unbound
    if mode.starts_with_pods:
        return _running(world, gang)
    return _plan_of_burn_in(world, gang) or _plan_of_back_off(world, gang) or _started(world, gang)


def support(world: JobWorld, settings: WorkerSettings) -> list[ApplySupport]:
    """Return the actions that create or update the objects that all workers share.

    They are repeated, because certificates change while a job runs.
    """
    return [
        ApplySupport(manifest)
        for manifest in support_manifests(world.job, settings, world.gang.spec.first if world.gang else None)
    ]


# The start barrier, and the start.


def _started(world: JobWorld, gang: Gang) -> Plan:
    spec = gang.spec
    other = record.with_attempt_beyond_fence_file(world, spec) or resume.without_cleared_request(world.job, spec)
    if other is not None:
        return commit(world, other)
    started = record.with_barrier_open(world, spec)
    if isinstance(started, Missing):
        return _not_started(world, gang, started)
    begun, warning = started
    ordered = move_incomplete.with_move_ordered(world, spec, begun)
    if ordered is not None:
        return commit(world, ordered)
    waits = move_incomplete.awaited_move(world, spec)
    if waits is not None:
        return _not_started(world, gang, waits)
    resumed = begun.start.resume if begun.start else None
    where = f"from checkpoint {resumed.step} ({resumed.path})" if resumed else "without a checkpoint from Muster"
    where += local.local_start_text(resumed, world.job, begun)
    if resumed and spec.checkpoint is None and not local.is_local(world.job, resumed):
        own = is_own(resumed.path, world.job.spec.checkpoint.directory or "")
        where += f", found in {'spec.checkpoint.directory' if own else above(resumed.path)}"
    if begun.branch and begun.branch.resume_from not in ("", spec.branch.resume_from if spec.branch else ""):
        where += ", as spec.checkpoint.resumeFrom asks"
    how = resuming.resume_text(world.job, begun)
    passed_over = resume.passed_over_text(world, spec, resumed)
    text = f"attempt {spec.attempt} starts {where}" + "".join(
        f"; {part}" for part in (passed_over, how, warning) if part
    )
    return _plan_after_burn_in(world, begun, text, warning=bool(warning), more=move_incomplete.move_events(world, spec))


def _plan_after_burn_in(
    world: JobWorld, begun: GangSpec, text: str, *, warning: bool = False, more: Sequence[Announcement] = ()
) -> Plan:
    """Return the plan that opens the start barrier, with the results of the burn-in in the record and as Events.

    Args:
        world: the state of the job.
        begun: the record with the start barrier open.
        text: of the Event about the start.
        warning: whether that Event is a warning.
        more: other Events about the start.
    """
    tested = burnin.burn_in_state(world)
    told: list[Announcement] = [*more]
    if tested is not None and tested.missing is None:
        profile = str(burnin.profile_of(world))
        begun = record.after_burn_in_passed(world, begun, profile, tested.untested, tested.message, tested.measured)
        if tested.untested:
            nodes = f"{len(tested.untested)} of {len(begun.members)} nodes"
            note = f"the ranks start, though the tests of {nodes} have no result: {tested.message}"
            told.append(Announcement(INCONCLUSIVE, note, warning=True))
        elif tested.message:
            told.append(Announcement("BurnInWarning", tested.message, warning=True))
        if tested.measured and not tested.is_odd:
            text += f"; {tested.measured}"
    if world.gang is not None and world.gang.spec.open_corruption is not None:
        begun, shown = burnin.with_test_results(world, begun)
        told.append(shown)
    return commit(world, begun, Announcement("Started", text, warning=warning), *told)


def _plan_of_burn_in(world: JobWorld, gang: Gang) -> Plan | None:
    """Return the plan of a gang whose nodes are being tested before the start; None: no test is left."""
    tested = burnin.burn_in_state(world)
    if tested is None or tested.missing is None:
        return None
    if tested.fails:
        return _plan_after_burn_in_failed(world, gang, tested)
    if burnin.is_given_up(world, gang.spec, tested):
        return _plan_after_inconclusive(world, gang, tested)
    told, message = _start_trouble(world) or (tested.missing.reason, tested.missing.message)
    return Plan((), StatusReport(State.STARTING, told, message), wake_in_seconds=TICK_SECONDS)


def _plan_after_burn_in_failed(world: JobWorld, gang: Gang, tested: BurnInState) -> Plan:
    """Return the plan after nodes failed the burn-in: their members move to other nodes.

    After too many tries in a row, all nodes are given back.
    """
    spec, profile = gang.spec, str(burnin.profile_of(world))
    why = "; ".join(f"{fail.node}: {fail.message}" for fail in tested.fails[:MAX_FAILS_IN_NOTE])
    count, most = tries(spec) + 1, world.fleet.policy.preflight.max_replacements
    if count > most:
        other = record.after_burn_in_release(world, spec, tested.fails, profile)
        pause = holds.held_seconds(world, other)
        note = (
            f"nodes have failed the burn-in {count} times in a row ({why}). Muster frees all nodes of the job and "
            f"tries again in {pause:.0f} s"
        )
    else:
        other = record.after_burn_in_failed(world, spec, tested.fails, profile)
        note = f"failed the burn-in: {why}; attempt {other.attempt}: {on_nodes(other)}"
    return commit(world, other, Announcement(other.reason, note, warning=True))


def _plan_after_inconclusive(world: JobWorld, gang: Gang, tested: BurnInState) -> Plan:
    """Return the plan after the tests of some nodes have given no answer for too long: their members move to other
    nodes.

    Where no other nodes are free, or too many are concerned, all nodes are given back.
    """
    spec, profile = gang.spec, str(burnin.profile_of(world))
    count, nodes = tries(spec) + 1, tested.untested
    minutes = patience_seconds(burnin.profile_of(world)) / 60
    what = (
        f"the burn-in of {len(nodes)} of {len(spec.members)} nodes gave no result within {minutes:.0f} min "
        f"({tested.message})"
    )
    if _are_few(len(nodes), len(spec.members)) and count <= world.fleet.policy.preflight.max_replacements:
        other = record.after_inconclusive(world, spec, nodes, profile, INCONCLUSIVE)
        if all(member.node for member in other.members):
            note = f"{what}; attempt {other.attempt}: {on_nodes(other)}"
            return commit(world, other, Announcement(INCONCLUSIVE, note, warning=True))
    other = record.after_inconclusive_release(world, spec, nodes, what, INCONCLUSIVE)
    pause = (other.hold_until - world.now).total_seconds() if other.hold_until else 0.0
    note = f"{what}. Muster frees all nodes of the job and tries again in {pause:.0f} s"
    return commit(world, other, Announcement(INCONCLUSIVE, note, warning=True))


def _are_few(some: int, members: int) -> bool:
    """Whether the number is small enough to blame these members' nodes, so that the others keep theirs.

    Args:
        some: how many members are concerned.
        members: how many members the gang has.
    """
    return 2 * some < members or (some == 1 and members > 1)


def _not_started(world: JobWorld, gang: Gang, missing: Missing) -> Plan:
    """Return the plan of a start that is still waiting: other verifiers are asked where that may help.

    After ten minutes the job is reported as Stalled, with what a user can do.
    """
    others = verification.with_other_verifiers(world, gang.spec, missing.reason)
    if others is not None:
        note = f"attempt {gang.spec.attempt}: other workers verify the checkpoints now ({missing.message})"
        return commit(world, others, Announcement("VerifiersChanged", note, warning=True))
    overdue = verification.is_overdue(world, gang.spec, missing.reason)
    if missing.stalled or overdue:
        message = missing.message + (verification.REMEDIES[missing.reason] if overdue else "")
        return Plan((), StatusReport(State.STALLED, missing.reason, message), wake_in_seconds=TICK_SECONDS)
    return _waiting(world, missing)


def _running(world: JobWorld, gang: Gang) -> Plan:
    """Return the plan of a gang without a start barrier (mode Plain): the attempt has begun once all pods run."""
    late = next((worker_view for worker_view in world.worker_views if not worker_view.runs), None)
    if late is not None:
        return _waiting(world, record.not_running(world, late))
    return _plan_after_burn_in(world, record.with_plain_start(world, gang.spec), f"attempt {gang.spec.attempt} runs")


def _plan_awaiting_fences(world: JobWorld, gang: Gang) -> Plan | None:
    """Return the plan of a gang in mode Plain that has unfenced workers; None: there are none.

    No new pod is made before each of them is fenced, and the record says so first.
    """
    if not gang.spec.unfenced_workers:
        return None
    alive = next(
        (unfenced_worker for unfenced_worker in gang.spec.unfenced_workers if not is_fenced(world, unfenced_worker)),
        None,
    )
    if alive is None:
        return commit(world, record.after_all_fenced(world, gang.spec))
    missing = Missing("OldRanksNotFenced", awaited_proof_message(world, alive))
    return _waiting(world, missing)


def _are_all_fenced(world: JobWorld, gang: Gang) -> bool:
    """Whether all unfenced workers are fenced, so that launchers have to list the checkpoints again."""
    unfenced_workers = gang.spec.unfenced_workers
    lists = world.job.spec.checkpoint.directory is not None
    return (
        lists
        and bool(unfenced_workers)
        and all(is_fenced(world, unfenced_worker) for unfenced_worker in unfenced_workers)
        and not any(is_printing(world, member.pod_uid) for member in gang.spec.members)
    )


def _plan_of_back_off(world: JobWorld, gang: Gang) -> Plan | None:
    """Return the plan of a start that has to wait because of earlier failures; None: it need not wait."""
    spec = gang.spec
    if budget_exhausted(world, spec):
        message = (
            "the restart budget is used up: Muster waits a few seconds for evidence that the job did not cause its "
            "failures, and otherwise ends the job"
        )
        return Plan((), StatusReport(State.STARTING, "AwaitingEvidence", message), wake_in_seconds=TICK_SECONDS)
    until = holds.held_until(world, spec)
    if until:
        text = f"failed {budgets.CRASH_LOOP} times or more without a new checkpoint; next start at {until:%H:%M:%S} UTC"
        pause = (until - world.now).total_seconds()
        return Plan((), StatusReport(State.STARTING, "CrashLoopBackOff", text), wake_in_seconds=pause)
    return None


# Members without nodes, and members that do not come to run on theirs.


def _incomplete(world: JobWorld, gang: Gang) -> Plan:
    """Return the plan of a gang of which some members have no node: it takes free nodes, waits, or gives all back."""
    left = leftovers(world)
    spec = record.with_queued_nodes(world, gang.spec)
    if isinstance(spec, GangSpec):
        return commit(world, spec, Announcement("Placed", f"attempt {spec.attempt}: {on_nodes(spec)}"))
    if spec is None:
        return Plan(left, wake_in_seconds=TICK_SECONDS, overtaken=world.queue_decision is not None)
    if holds.free_seconds(world, gang.spec) >= _assembly_timeout(world):
        if world.queue_decision and world.queue_decision.queued > 1:
            return _give_nodes_back(world, gang, {}, f"{spec.message}; and other jobs wait for nodes", record.GAVE_WAY)
        if spec.reason == members.TOPOLOGY_UNSATISFIED and members.over_limit(world, (), len(gang.spec.members)):
            why = f"{spec.message}; and the limit of its namespace has no room for the gang elsewhere"
            return _give_nodes_back(world, gang, {}, why, record.GAVE_WAY)
    return Plan(left, StatusReport(State.STARTING, answer=spec), wake_in_seconds=TICK_SECONDS)


def _overdue(world: JobWorld, gang: Gang) -> dict[int, str]:
    """Return, by index of the worker, why each worker that should run by now does not; empty until the assembly
    timeout."""
    waited, timeout = holds.free_seconds(world, gang.spec), _assembly_timeout(world)
    if waited < timeout:
        return {}
    found = {}
    for worker_view in world.worker_views:
        pod = worker_view.pod
        if pod is None or not pod.node:
            if _predecessor(world, worker_view.member) is not None:
                continue  # it waits for proof, and the status says so
            why = world.create_error.message if world.create_error else (pod and pod.unschedulable_message) or ""
            state = "does not exist" if pod is None else "is not bound"
            found[worker_view.index] = f"{worker_view.where}: its pod {state}" + (f": {why}" if why else "")
            continue
        trouble = _pod_trouble(pod)
        if pod.phase == "Pending" and (trouble or waited >= max(timeout, POD_START_SECONDS)):
            found[worker_view.index] = (
                f"{worker_view.where}: {trouble.message if trouble else 'its pod does not start'}"
            )
    return found


def _plan_after_nodes_closed(world: JobWorld, gang: Gang) -> Plan | None:
    """Return the plan that moves workers whose nodes cannot run their pods any more; None: there are none, or no
    nodes."""
    if world.attempt_age_seconds < SHUT_OUT_SECONDS:
        return None
    why = members.closed_before_binding(world, gang.spec)
    if not why:
        return None
    other = record.with_members_moved(world, gang.spec, why.keys(), NODE_CLOSED)
    if not all(member.node for member in other.members):
        return None
    worker_views = ", ".join(f"{world.by_index[index].where} ({text})" for index, text in why.items())
    note = (
        f"The node of a worker can no longer run its pod: {worker_views}. Muster moves it: attempt {other.attempt} "
        f"{on_nodes(other)}"
    )
    return commit(world, other, Announcement(NODE_CLOSED, note, warning=True))


def _plan_after_late_workers(world: JobWorld, gang: Gang, late: Mapping[int, str]) -> Plan:
    """Return the plan after some workers did not come to run in time.

    Where they are few and other nodes are free, they move and the others keep their nodes. Else the gang gives its
    nodes back.

    Args:
        world: the state of the job.
        gang: its record.
        late: why each late worker does not run, by index.
    """
    spec, (why, *_) = gang.spec, late.values()
    few = _are_few(len(late), len(spec.members))
    if few and world.create_error is None:
        other = record.after_late_workers(world, spec, late.keys())
        if all(member.node for member in other.members):
            limit = _assembly_timeout(world)
            note = (
                f"The gang was not assembled within {limit:.0f} s: {why.rstrip('.')}. Muster moves its late workers: "
                f"attempt {other.attempt} {on_nodes(other)}"
            )
            return commit(world, other, Announcement(other.reason, note, warning=True))
    return _give_nodes_back(world, gang, late if few else {}, why)


def _give_nodes_back(
    world: JobWorld, gang: Gang, late: Mapping[int, str], why: str, reason: str = record.ASSEMBLY_TIMED_OUT
) -> Plan:
    spec = record.after_assembly_failed(world, gang.spec, late.keys(), reason)
    pause = (spec.hold_until - world.now).total_seconds() if spec.hold_until else 0
    lacked = "found no nodes for all of its workers" if reason == record.GAVE_WAY else "was not assembled"
    note = (
        f"The gang {lacked} within {_assembly_timeout(world):.0f} s: {why.rstrip('.')}. Muster has given its nodes "
        f"back and tries again in {pause:.0f} s. Until then, repair what is named or free other nodes"
    )
    if record.came_to_nothing(spec):
        namespace = world.job.metadata.namespace
        note += (
            ". For an hour or longer the job stands behind all other jobs in the queue. After "
            f"{JOBS_THAT_PAY_ALONE + 1} such jobs of namespace {namespace} in a day, all of its jobs stand behind "
            "those of other namespaces"
        )
    return commit(world, spec, Announcement(spec.reason, note, warning=True))


def _refused(world: JobWorld, gang: Gang) -> Plan:
    """Return the plan where the namespace's limit has no room for the gang: its nodes are given back, and the job
    queues."""
    count, namespace = len({member.node for member in gang.spec.members if member.node}), world.job.metadata.namespace
    limit = world.limit
    room = f": it may hold {limit.nodes}, and its other jobs have {limit.beside}" if limit else ""
    note = (
        f"the job's record names {nodes_text(count)}, more than the limit of namespace {namespace} has room for{room}. "
        "Muster makes no pods on them and puts the job back into the queue. End other jobs of the namespace, or ask "
        "the fleet's administrators for a higher limit (spec.queueing of FleetPolicy default)."
    )
    return commit(
        world,
        record.without_nodes(world, gang.spec, NAMESPACE_LIMIT),
        Announcement(NAMESPACE_LIMIT, note, warning=True),
    )


def _assembly_timeout(world: JobWorld) -> float:
    return float(world.fleet.policy.queueing.assembly_timeout_seconds)


# Pods.


def _bindings(world: JobWorld) -> Plan | None:
    """Return the plan that binds all pods that are Muster's to bind; None: none is unbound.

    None is bound while another system holds one of them with a scheduling gate.
    """
    unbound = [
        (pod, worker_view.member.node)
        for worker_view in world.worker_views
        if (pod := worker_view.pod) is not None and pod.scheduler == SCHEDULER_NAME and not pod.node
    ]
    if not unbound:
        return None
    gated = next(
        (
            worker_view.pod
            for worker_view in world.worker_views
            if worker_view.pod is not None and worker_view.pod.gates
        ),
        None,
    )
    if gated:
        text = (
            f"Pod {gated.name} has the scheduling gate {gated.gates[0]}. Muster binds the pods of the gang once the "
            "gate's owner has removed it."
        )
        return Plan((), StatusReport(State.STARTING, "SchedulingGated", text), wake_in_seconds=TICK_SECONDS)
    bindings = (BindPod(pod.name, pod.uid, node) for pod, node in unbound if not pod.deleting)
    return Plan(tuple(bindings), wake_in_seconds=TICK_SECONDS)


def _pods_in_line(
    world: JobWorld, spec: GangSpec, settings: WorkerSettings
) -> tuple[tuple[Action, ...], PodView | None]:
    """Return the actions that bring the pods into line with the record: deletions of old ones, creations of missing
    ones.

    Returns:
        The actions, and a pod for whose end a creation still waits; None: no creation waits.
    """
    actions: list[Action] = list(leftovers(world))
    missing = [worker_view.member for worker_view in world.worker_views if worker_view.pod is None]
    before = {member.index: _predecessor(world, member) for member in missing}
    wanted = [member for member in missing if before[member.index] is None]
    if wanted:
        actions += support(world, settings)
        # The policy may have changed since the gang was placed there.
        ours_to_bind = not scheduler_for(world.job.spec.pod)
        for member in wanted:
            direct = ours_to_bind and _is_direct(world, member)
            manifest = worker_manifest(world.job, member, settings, direct=direct, first=spec.first)
            actions.append(CreatePod(manifest, member.node))
    return tuple(actions), next((pod for pod in before.values() if pod is not None), None)


def _why_wait_for(old: PodView) -> str:
    return (
        f"Pod {old.name} on node {old.node} may still be running, and its successor waits for proof of its end. If "
        f"that node is gone for good, run: kubectl muster lost {old.node}"
    )


def _is_direct(world: JobWorld, member: Member) -> bool:
    """Whether the member is on a node to which Muster binds pods itself."""
    node = world.fleet.nodes.get(member.node)
    return node is not None and binding_of(node, world.fleet) is Binding.DIRECT


def _predecessor(world: JobWorld, member: Member) -> PodView | None:
    """Return an older pod for whose end the member's new pod has to wait; None: there is none.

    The older pod may hold the node. In mode Plain it may also still train on any other node.
    """
    here = world.holding.get(member.node)
    if here is not None and here.incarnation < member.incarnation:
        return here
    if not mode_of(world.job).starts_with_pods:
        return None
    older = (pod for pods in world.others.values() for pod in pods if pod.node and not pod.terminal)
    return next((pod for pod in older if not world.is_dead(pod.uid) and not is_pod_given_up(world, pod)), None)


def _waiting(world: JobWorld, missing: Missing, actions: tuple[Action, ...] = (), wake: float = TICK_SECONDS) -> Plan:
    """Return the plan of a gang that is not yet complete, with the most telling reason why.

    Args:
        world: the state of the job.
        gang: its record.
        missing: what the start waits for.
        actions: to be performed now.
        wake: after how many seconds to decide again.
    """
    waited = world.attempt_age_seconds
    reason = missing.reason if waited > WORTH_TELLING_SECONDS else ASSEMBLING
    told, message = _start_trouble(world) or (reason, missing.message)
    return Plan(actions, StatusReport(State.STARTING, told, message), wake_in_seconds=wake)


def _start_trouble(world: JobWorld) -> tuple[str, str] | None:
    if world.create_error:
        return world.create_error.reason, world.create_error.message
    for worker_view in world.worker_views:
        trouble = _pod_trouble(worker_view.pod) if worker_view.pod else None
        if trouble:
            return trouble.reason, f"{worker_view.where}: {trouble.message}"
    return None


# Kubernetes v1.33, pkg/kubelet/images/types.go.
_OF_THE_IMAGE = frozenset(
    {"ErrImageNeverPull", "ErrImagePull", "ImageInspectError", "ImagePullBackOff", "InvalidImageName"}
)
# A scheduler that finds no volume claim ends its message with the answer of its preemption, which is the same.
_REPEATED_NOT_FOUND = re.compile(r"not found\. not found\.?$")
_REMEDY = "If the image cannot be had, delete the job and create it again with one that can."


def _pod_trouble(pod: PodView) -> CreateError | None:
    for container in pod.containers:
        if container.waiting_reason and container.waiting_reason not in ("ContainerCreating", "PodInitializing"):
            what = f"container {container.name}: {container.waiting_message}"
            return CreateError(
                container.waiting_reason,
                f"{what}. {_REMEDY if container.waiting_reason in _OF_THE_IMAGE else ''}".strip(),
            )
    if pod.unschedulable_message:
        return CreateError("Unschedulable", _REPEATED_NOT_FOUND.sub("not found.", pod.unschedulable_message))
    return None

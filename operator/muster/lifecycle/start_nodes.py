"""The gates of a start that are about nodes: those that members lack, and those on which they do not come to run. Pure.

Tests: tests/unit/lifecycle/test_waiting_and_binding.py.
"""

from collections.abc import Mapping

from muster.api.gang import GangSpec
from muster.lifecycle import moves, placing, start_pods
from muster.lifecycle.commit import commit, leftovers
from muster.lifecycle.plan import Plan
from muster.lifecycle.start_context import StartContext
from muster.lifecycle.start_earlier_attempts import back_off
from muster.lifecycle.start_wait import TICK_SECONDS, find_pod_trouble
from muster.placement.reasons import TOPOLOGY_UNSATISFIED
from muster.queueing.charges import JOBS_THAT_PAY_ALONE
from muster.queueing.limits import NAMESPACE_LIMIT
from muster.record.attempts import (
    ASSEMBLY_TIMED_OUT,
    NODES_YIELDED,
    after_assembly_failed,
    budget_exhausted,
    was_never_assembled,
    without_nodes,
)
from muster.recovery import holds
from muster.recovery.modes import mode_of
from muster.recovery.starts import POD_START_SECONDS
from muster.recovery.words import on_nodes
from muster.status.report import Announcement, State, StatusReport
from muster.world.job import JobWorld, WorkerView
from muster.world.names import nodes_text

NODE_CLOSED = "NodeNotUsable"
# A pod is bound within moments of its creation; after this long its node is checked again.
SHUT_OUT_SECONDS = 5.0


def return_nodes_beyond_limit(start: StartContext) -> Plan | None:
    """Return the plan of a gang for which the namespace's limit has no room; None: it has room.

    The job gives its nodes back and queues.
    """
    world, spec = start.world, start.spec
    if not world.beyond_limit:
        return None
    count, namespace = len({member.node for member in spec.members if member.node}), world.job.metadata.namespace
    limit = world.limit
    room = f": it may hold {limit.nodes}, and its other jobs have {limit.beside}" if limit else ""
    note = (
        f"the job's record names {nodes_text(count)}, more than the limit of namespace {namespace} has room for{room}. "
        "Muster makes no pods on them and puts the job back into the queue. End other jobs of the namespace, or ask "
        "the fleet's administrators for a higher limit (spec.queueing of FleetPolicy default)."
    )
    released = without_nodes(world, spec, NAMESPACE_LIMIT)
    return commit(world, released, Announcement(NAMESPACE_LIMIT, note, warning=True))


def give_members_nodes(start: StartContext) -> Plan | None:
    """Return the plan of a gang of which some members have no node; None: all have one.

    It takes free nodes, or waits. After the assembly timeout it gives all nodes back, if other jobs wait for nodes.
    """
    world, spec = start.world, start.spec
    if all(member.node for member in spec.members):
        return None
    if budget_exhausted(world, spec):
        return back_off(start)
    old_pods, answer = leftovers(world), moves.with_queued_nodes(world, spec)
    if isinstance(answer, GangSpec):
        return commit(world, answer, Announcement("Placed", f"attempt {answer.attempt}: {on_nodes(answer)}"))
    if answer is None:
        return Plan(old_pods, wake_in_seconds=TICK_SECONDS, overtaken=world.queue_decision is not None)
    if holds.seconds_since_hold(world, spec) >= _assembly_timeout(world):
        if world.queue_decision and world.queue_decision.queued > 1:
            return _give_nodes_back(start, {}, f"{answer.message}; and other jobs wait for nodes", NODES_YIELDED)
        if answer.reason == TOPOLOGY_UNSATISFIED and placing.over_limit(world, (), len(spec.members)):
            why = f"{answer.message}; and the limit of its namespace has no room for the gang elsewhere"
            return _give_nodes_back(start, {}, why, NODES_YIELDED)
    return Plan(old_pods, StatusReport(State.STARTING, answer=answer), wake_in_seconds=TICK_SECONDS)


def move_off_nodes_outside(start: StartContext) -> Plan | None:
    """Return the plan that moves workers off nodes outside the FleetPolicy's scope; None: no pod would be made there.

    A worker that has its pod there stays. Where no other node is free, the worker has none and waits for one: whatever
    the record says, no new pod comes to such a node.
    """
    world, outside = start.world, start.world.fleet.outside
    workers = [view for view in world.worker_views if view.member.node in outside and not (view.pod and view.pod.node)]
    if not workers:
        return None
    moved = moves.with_members_moved(world, start.spec, {view.index for view in workers}, NODE_CLOSED)
    left_out = ", ".join(view.where for view in workers)
    note = (
        f"The FleetPolicy's spec.scope leaves out nodes that were chosen before: {left_out}. "
        f"Muster makes no pod there: attempt {moved.attempt} {on_nodes(moved)}"
    )
    return commit(world, moved, Announcement(NODE_CLOSED, note, warning=True))


def move_late_workers(start: StartContext) -> Plan | None:
    """Return the plan after some workers did not come to run in time; None: none is late.

    Where they are few and other nodes are free, they move and the others keep their nodes. Else the gang gives its
    nodes back.
    """
    world, spec, late = start.world, start.spec, _find_late_workers(start)
    if not late:
        return None
    why, few = next(iter(late.values())), are_few(len(late), len(spec.members))
    if few and world.create_error is None:
        moved = moves.after_late_workers(world, spec, late.keys())
        if all(member.node for member in moved.members):
            limit = _assembly_timeout(world)
            note = (
                f"The gang was not assembled within {limit:.0f} s: {why.rstrip('.')}. Muster moves its late workers: "
                f"attempt {moved.attempt} {on_nodes(moved)}"
            )
            return commit(world, moved, Announcement(moved.reason, note, warning=True))
    return _give_nodes_back(start, late if few else {}, why)


def move_off_closed_nodes(start: StartContext) -> Plan | None:
    """Return the plan that moves workers whose nodes cannot run their pods any more; None: there are none, or no
    nodes.

    A node that is gone from the API server is a failure, which is dealt with before any gate.
    """
    world = start.world
    if world.attempt_age_seconds < SHUT_OUT_SECONDS:
        return None
    why = placing.closed_before_binding(world, start.spec)
    if not why:
        return None
    moved = moves.with_members_moved(world, start.spec, why.keys(), NODE_CLOSED)
    if not all(member.node for member in moved.members):
        return None
    workers = ", ".join(f"{world.by_index[index].where} ({text})" for index, text in why.items())
    note = (
        f"The node of a worker can no longer run its pod: {workers}. Muster moves it: attempt {moved.attempt} "
        f"{on_nodes(moved)}"
    )
    return commit(world, moved, Announcement(NODE_CLOSED, note, warning=True))


def are_few(some: int, member_count: int) -> bool:
    """Whether `some` of a gang's members are few enough to blame their nodes, so that the others keep theirs."""
    return 2 * some < member_count or (some == 1 and member_count > 1)


def _find_late_workers(start: StartContext) -> dict[int, str]:
    """Return, by index of the worker, why each worker that should run by now does not; empty until the assembly
    timeout."""
    world = start.world
    waited, timeout = holds.seconds_since_hold(world, start.spec), _assembly_timeout(world)
    if waited < timeout:
        return {}
    is_overdue = waited >= max(timeout, POD_START_SECONDS)
    why = {view.index: _why_late(world, view, is_overdue=is_overdue) for view in world.worker_views}
    return {index: f"{world.by_index[index].where}: {text}" for index, text in why.items() if text}


def _why_late(world: JobWorld, worker_view: WorkerView, *, is_overdue: bool) -> str:
    """Return why a worker does not run after the assembly timeout; "": it runs, or something else is waited for."""
    pod = worker_view.pod
    if pod is None or not pod.node:
        if start_pods.find_predecessor(world, worker_view.member) is not None:
            return ""  # it waits for proof, and the status says so
        if pod is None and world.create_error is None and mode_of(world.job).starts_with_pods:
            return ""  # a gate further on does not let it be made yet, for example while nodes are tested
        why = world.create_error.message if world.create_error else (pod and pod.unschedulable_message) or ""
        state = "does not exist" if pod is None else "is not bound"
        return f"its pod {state}" + (f": {why}" if why else "")
    trouble = find_pod_trouble(pod)
    if pod.phase != "Pending" or not (trouble or is_overdue):
        return ""
    return trouble.message if trouble else "its pod does not start"


def _give_nodes_back(start: StartContext, late: Mapping[int, str], why: str, reason: str = ASSEMBLY_TIMED_OUT) -> Plan:
    world = start.world
    released = after_assembly_failed(world, start.spec, late.keys(), reason)
    pause = (released.hold_until - world.now).total_seconds() if released.hold_until else 0
    lacked = "found no nodes for all of its workers" if reason == NODES_YIELDED else "was not assembled"
    note = (
        f"The gang {lacked} within {_assembly_timeout(world):.0f} s: {why.rstrip('.')}. Muster has given its nodes "
        f"back and tries again in {pause:.0f} s. Until then, repair what is named or free other nodes"
    )
    if was_never_assembled(released):
        namespace = world.job.metadata.namespace
        note += (
            ". For an hour or longer the job stands behind all other jobs in the queue. After "
            f"{JOBS_THAT_PAY_ALONE + 1} such jobs of namespace {namespace} in a day, all of its jobs stand behind "
            "those of other namespaces"
        )
    return commit(world, released, Announcement(released.reason, note, warning=True))


def _assembly_timeout(world: JobWorld) -> float:
    return float(world.fleet.policy.queueing.assembly_timeout_seconds)

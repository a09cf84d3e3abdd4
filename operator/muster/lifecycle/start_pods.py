"""The gates of a start that are about pods: they are created in line with the record, and bound together. Pure.

Tests: tests/unit/lifecycle/test_waiting_and_binding.py, tests/unit/lifecycle/test_pods_as_they_come.py.
"""

from muster.api.fleetpolicy import Binding
from muster.api.gang import Member
from muster.checkpoints.location import saves_to
from muster.checkpoints.resume import Missing
from muster.fencing.proofs import is_pod_given_up
from muster.lifecycle.commit import commit, leftovers
from muster.lifecycle.plan import Action, ApplySupport, BindPod, CreatePod, Plan
from muster.lifecycle.start_context import StartContext
from muster.lifecycle.start_wait import TICK_SECONDS, plan_of_wait
from muster.placement.eligibility import binding_of
from muster.pods.requirements import scheduler_for
from muster.pods.worker_pod import WorkerSettings, support_manifests, worker_manifest
from muster.record.starts import with_pod_uids
from muster.recovery.modes import mode_of
from muster.status.report import ASSEMBLING, State, StatusReport
from muster.status.template import shape_problem
from muster.world.job import JobWorld
from muster.world.views import SCHEDULER_NAME, PodView

CREATE_RETRY_SECONDS = 10.0


def check_template_shape(start: StartContext) -> Plan | None:
    """Return the plan of a gang that lacks pods and whose template cannot be made into any; None: it can, or none is
    missing.

    The template was looked at before there was a record, but a backup may bring back another one with the same record.
    """
    world = start.world
    if all(worker_view.pod is not None for worker_view in world.worker_views):
        return None
    problem = shape_problem(world.job)
    return Plan(leftovers(world), StatusReport(State.STALLED, *problem)) if problem else None


def create_pods(start: StartContext) -> Plan | None:
    """Return the plan that brings the pods into line with the record, or waits until that can be done; None: they are.

    Old pods are deleted, and missing ones are created. A creation waits for the end of the pod before it.
    """
    world = start.world
    missing = [worker_view.member for worker_view in world.worker_views if worker_view.pod is None]
    predecessors = {member.index: find_predecessor(world, member) for member in missing}
    wanted = [member for member in missing if predecessors[member.index] is None]
    actions = (*leftovers(world), *(_creations(start, wanted) if wanted else ()))
    if actions:
        wait = CREATE_RETRY_SECONDS if world.create_error else TICK_SECONDS
        return plan_of_wait(world, Missing(ASSEMBLING, "creating pods"), actions, wait)
    old = next((pod for pod in predecessors.values() if pod is not None), None)
    if old is None:
        return None
    why = (
        f"Pod {old.name} on node {old.node} may still be running, and its successor waits for proof of its end. If "
        f"that node is gone for good, run: kubectl muster lost {old.node}"
    )
    return plan_of_wait(world, Missing("OldRanksNotFenced", why))


def await_bindable_pods(start: StartContext) -> Plan | None:
    """Return the plan that waits while another system holds a pod with a scheduling gate, or while all unbound pods are
    being deleted; None: all pods are bound, or can be."""
    world = start.world
    unbound = _unbound_pods(world)
    if not unbound:
        return None
    gated = next((view.pod for view in world.worker_views if view.pod is not None and view.pod.gates), None)
    if gated:
        text = (
            f"Pod {gated.name} has the scheduling gate {gated.gates[0]}. Muster binds the pods of the gang once the "
            "gate's owner has removed it."
        )
        return Plan((), StatusReport(State.STARTING, "SchedulingGated", text), wake_in_seconds=TICK_SECONDS)
    return Plan(wake_in_seconds=TICK_SECONDS) if all(pod.deleting for pod, _ in unbound) else None


def record_pod_uids(start: StartContext) -> Plan | None:
    """Return the plan that records which pods are the members', before any of them is bound; None: it is recorded."""
    world = start.world
    if all(worker_view.member.pod_uid or not worker_view.pod for worker_view in world.worker_views):
        return None
    return commit(world, with_pod_uids(world, start.spec))


def bind_pods(start: StartContext) -> Plan | None:
    """Return the plan that binds all pods that are Muster's to bind; None: none is unbound."""
    unbound = _unbound_pods(start.world)
    if not unbound:
        return None
    bindings = (BindPod(pod.name, pod.uid, node) for pod, node in unbound if not pod.deleting)
    return Plan(tuple(bindings), wake_in_seconds=TICK_SECONDS)


def support(world: JobWorld, settings: WorkerSettings) -> list[ApplySupport]:
    """Return the actions that create or update the objects that all workers share.

    They are repeated, because certificates change while a job runs.
    """
    return [
        ApplySupport(manifest)
        for manifest in support_manifests(world.job, settings, world.gang.spec.first if world.gang else None)
    ]


def find_predecessor(world: JobWorld, member: Member) -> PodView | None:
    """Return an older pod for whose end the member's new pod has to wait; None: there is none.

    The older pod may hold the node. In mode Plain it may also still train on any other node.
    """
    holding_pod = world.holding.get(member.node)
    if holding_pod is not None and holding_pod.incarnation < member.incarnation:
        return holding_pod
    if not mode_of(world.job).starts_with_pods:
        return None
    older = (pod for pods in world.others.values() for pod in pods if pod.node and not pod.terminal)
    return next((pod for pod in older if not world.is_dead(pod.uid) and not is_pod_given_up(world, pod)), None)


def _creations(start: StartContext, wanted: list[Member]) -> list[Action]:
    """Return the actions that create the pods of these members, and before them what all workers share."""
    world, settings = start.world, start.settings
    actions: list[Action] = [*support(world, settings)]
    # The policy may have changed since the gang was placed there.
    place, ours_to_bind = saves_to(world.job), not scheduler_for(world.job.spec.pod)
    for member in wanted:
        direct = ours_to_bind and _is_direct(world, member)
        manifest = worker_manifest(world.job, member, settings, direct=direct, first=start.spec.first, saves_to=place)
        actions.append(CreatePod(manifest, member.node))
    return actions


def _is_direct(world: JobWorld, member: Member) -> bool:
    """Whether the member is on a node to which Muster binds pods itself."""
    node = world.fleet.nodes.get(member.node)
    return node is not None and binding_of(node, world.fleet) is Binding.DIRECT


def _unbound_pods(world: JobWorld) -> list[tuple[PodView, str]]:
    """Return the pods that are Muster's to bind and are on no node yet, each with the node of its member."""
    return [
        (pod, worker_view.member.node)
        for worker_view in world.worker_views
        if (pod := worker_view.pod) is not None and pod.scheduler == SCHEDULER_NAME and not pod.node
    ]

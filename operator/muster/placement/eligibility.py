"""Which nodes may take a worker at all, and why the others may not.

The rules are the scheduler's (taints, selectors, required node affinity), because the pods go through it later: a node
that it would refuse must not be chosen. Source: Kubernetes documentation, "Assigning Pods to Nodes" and "Taints and
Tolerations".
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from muster.api.fleetpolicy import AcceleratorNodes, Binding
from muster.api.nodehealth import Evacuate
from muster.placement.constraints import SchedulingConstraints, read_constraints
from muster.world.fleet import STALE_HEARTBEAT_SECONDS, Exclusion, Fleet
from muster.world.queuedecision import Refusal, RefusalKind
from muster.world.resources import Amounts, is_granted
from muster.world.views import NodeView, Taint

# Muster decides about unreachable nodes itself, so its pods tolerate these; a node that has them takes no new worker.
UNREACHABLE_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
# What one soft taint, or a suspicion, weighs in accelerators that would lie idle: more than any node has.
_SOFT_TAINT = 1024
# More than all soft taints that a node may have.
_UNHEALTHY = _SOFT_TAINT * 1024


@dataclass(frozen=True)
class Requirements:
    """The needs of one worker of its node.

    Attributes:
        accelerators: whole count of `accelerator_resource` on a node to itself; 0 asks for none.
        template_spec: the pod spec whose selectors, affinity and tolerations count.
        avoid: why a node is not to be used, by its name.
        requests: what the scheduler would hold for the worker, in the units of `NodeView.allocatable`.
        scheduler_for: what of the pod only the cluster's scheduler can deal with, "" if nothing. Such a worker cannot
            go to
        a pool that Muster binds itself.
        is_there: whether the worker is on the node already, and only needs another pod. Then the node may be one that
            takes
        no new workers for its health, unless workers have to leave it at once.
        takes_last: whether to use the nodes that are the last choice for their health, because there are no others.
    """

    accelerators: int
    template_spec: Mapping[str, Any]
    avoid: Mapping[str, Refusal]
    requests: Amounts = field(default_factory=dict)
    scheduler_for: str = ""
    is_there: bool = False
    takes_last: bool = False

    @cached_property
    def constraints(self) -> SchedulingConstraints:
        """The selector, affinity and tolerations of the template."""
        return read_constraints(self.template_spec)

    @cached_property
    def profile(self) -> Hashable:
        """A key that is equal for requirements that the same nodes meet, apart from the nodes to `avoid`."""
        return (
            self.accelerators,
            tuple(sorted(self.requests.items())),
            self.scheduler_for,
            self.constraints,
            self.takes_last,
        )


def refusal(node: NodeView, needs: Requirements, fleet: Fleet, job_uid: str) -> Refusal | None:
    """Why the node cannot take a worker of this job now; None if it can."""
    if node.name in needs.avoid:
        return needs.avoid[node.name]
    if fleet.heartbeats.age_seconds(node.name) >= STALE_HEARTBEAT_SECONDS:
        return STALE
    why = unsuitable(node, needs, fleet)
    if why:
        return why
    if fleet.held_by_others(node.name, job_uid):
        return IN_USE
    return lacking(node, needs, fleet)


OUTSIDE_SCOPE = Refusal(RefusalKind.OUTSIDE_SCOPE, "outside spec.scope of FleetPolicy default")
STALE = Refusal(RefusalKind.SILENT, "without a heartbeat")
IN_USE = Refusal(RefusalKind.IN_USE, "in use")
UNSELECTED = Refusal(RefusalKind.UNSELECTED, "excluded by the template's node selector or affinity")
_KEPT = Refusal(RefusalKind.KEPT_FOR_ACCELERATORS, "kept for jobs with accelerators")
_NOT_READY = Refusal(RefusalKind.NOT_READY, "not ready")
_CORDONED = Refusal(RefusalKind.CORDONED, "cordoned")


def unsuitable(node: NodeView, needs: Requirements, fleet: Fleet) -> Refusal | None:
    """Why the node could not take such a worker even if nothing else ran there; None if it could."""
    return unusable(node, needs, fleet) or unfit(node, needs, fleet)


def unusable(node: NodeView, needs: Requirements, fleet: Fleet) -> Refusal | None:
    """Why the node takes no worker, whatever resources the worker asks for; None if it takes one."""
    why = closed(node, needs, fleet)
    return why or (None if needs.constraints.select(node) else UNSELECTED)


def closed(node: NodeView, needs: Requirements, fleet: Fleet) -> Refusal | None:
    """Return which state or taint of the node keeps the worker away, or that the node is not Muster's; None if nothing
    does. Labels that the template asks for are not checked.
    """
    if node.name in fleet.outside:
        return OUTSIDE_SCOPE
    if not node.ready:
        return _NOT_READY
    if node.unschedulable:
        return _CORDONED
    exclusion = fleet.exclusion(node.name)
    if exclusion and not _is_taken_all_the_same(exclusion, needs):
        return Refusal(RefusalKind.UNHEALTHY, unhealthy(exclusion))
    if needs.constraints.problem:
        return Refusal(RefusalKind.UNREADABLE, f"not considered: spec.template.spec.{needs.constraints.problem}")
    taint = _untolerated(node.taints, needs.constraints)
    return Refusal(RefusalKind.TAINTED, f"taint {taint.key}", taint.key) if taint else None


def _is_taken_all_the_same(exclusion: Exclusion, needs: Requirements) -> bool:
    return (needs.is_there and exclusion.evacuate is not Evacuate.NOW) or (needs.takes_last and exclusion.last_choice)


def is_out_of_service(name: str, fleet: Fleet) -> bool:
    """Whether a node takes no new worker of any job: gone, not ready, silent, cordoned, or excluded for its health.

    A node that is the last choice for its health is in service: a job that finds no other node takes it.
    """
    node, exclusion = fleet.nodes.get(name), fleet.exclusion(name)
    if node is None or not node.ready or node.unschedulable or (exclusion is not None and not exclusion.last_choice):
        return True
    return fleet.heartbeats.age_seconds(name) >= STALE_HEARTBEAT_SECONDS


def unfit(node: NodeView, needs: Requirements, fleet: Fleet) -> Refusal | None:
    """Which resource the node, in its pool, has too little of for the worker; None if none."""
    if needs.scheduler_for and binding_of(node, fleet) is Binding.DIRECT:
        message = f"bound directly, which does not work with {needs.scheduler_for}"
        return Refusal(RefusalKind.BOUND_DIRECTLY, message, needs.scheduler_for)
    resource = fleet.policy.accelerator_resource
    if not needs.accelerators and _is_kept(node, fleet):
        return _KEPT
    amount = node.allocatable.get(resource, 0)
    if needs.accelerators and amount < needs.accelerators:
        only = f"{amount}, " if amount > 0 else ""
        message = f"with {only}fewer than {needs.accelerators} {resource}"
        return Refusal(RefusalKind.TOO_FEW_ACCELERATORS, message, str(amount))
    missing = _short_of(needs, node.allocatable)
    return Refusal(RefusalKind.TOO_SMALL, f"with too little {missing} for a worker", missing) if missing else None


def _is_kept(node: NodeView, fleet: Fleet) -> bool:
    """Whether the node has accelerators, healthy or not, and the policy keeps it for jobs that ask for some."""
    if fleet.policy.placement.accelerator_nodes_for_other_jobs is not AcceleratorNodes.NEVER:
        return False
    resource = fleet.policy.accelerator_resource
    return max(node.allocatable.get(resource, 0), node.capacity.get(resource, 0)) > 0


def unhealthy(exclusion: Exclusion) -> str:
    """The refusal of a node that is excluded for its health."""
    return exclusion.waiting_text or f"unhealthy ({exclusion.reason})"


def reluctance(node: NodeView, needs: Requirements, fleet: Fleet) -> int:
    """The cost of taking this node, to be compared with other nodes' costs; 0 = the best.

    The node's health counts most, then soft taints and suspicion, then accelerators beyond those asked for.
    """
    soft = [taint for taint in node.taints if taint.effect == "PreferNoSchedule"]
    unwelcome = sum(not needs.constraints.tolerate(taint) for taint in soft)
    unwelcome += fleet.suspicion_of(node.name) is not None
    spare = node.allocatable.get(fleet.policy.accelerator_resource, 0) - needs.accelerators
    unhealthy = _UNHEALTHY if fleet.exclusion(node.name) is not None else 0
    return unhealthy + unwelcome * _SOFT_TAINT + min(max(spare, 0), _SOFT_TAINT - 1)


def binding_of(node: NodeView, fleet: Fleet) -> Binding:
    """Whether Muster or the scheduler binds pods to this node, by the first pool that the node is in."""
    pool = fleet.policy.pool_of(node.labels)
    return Binding.SCHEDULER if pool is None else pool.binding


def lacking(node: NodeView, needs: Requirements, fleet: Fleet) -> Refusal | None:
    """Which resource other pods on the node leave too little of for the worker; None if none."""
    used = fleet.used(node.name)
    if not used:
        return None
    left = {name: value - used.get(name, 0) for name, value in node.allocatable.items()}
    missing = _short_of(needs, left)
    return Refusal(RefusalKind.TOO_FULL, f"with too little {missing} left by other pods", missing) if missing else None


def _short_of(needs: Requirements, offered: Amounts) -> str:
    """The name of the first resource of which less is offered than needed; "" if there is none.

    A device or huge page that is absent from `offered` counts as 0. Other absent resources are not checked.
    """
    for name, wanted in needs.requests.items():
        if (name in offered or is_granted(name)) and offered.get(name, 0) < wanted:
            return name
    return ""


def _untolerated(taints: Sequence[Taint], constraints: SchedulingConstraints) -> Taint | None:
    for taint in taints:
        if taint.effect != "PreferNoSchedule" and not constraints.tolerate(taint):
            return taint
    return None

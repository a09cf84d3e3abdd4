"""Which nodes may take a worker at all, and why the others may not.

The rules are the scheduler's (taints, selectors, required node affinity), because the pods go through it later: a node
that it would refuse must not be chosen. Source: Kubernetes documentation, "Assigning Pods to Nodes" and "Taints and
Tolerations".
"""

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from muster.api.fleetpolicy import Binding
from muster.world.fleet import Exclusion, Fleet
from muster.world.resources import Amounts, is_extended
from muster.world.views import NodeView, Taint

# Muster decides about unreachable nodes itself, so its pods tolerate these; a node that has them takes no new worker.
UNREACHABLE_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
# A kubelet renews its lease every 10 s. The node controller calls a node unready after 40 s or more; whoever replaces a
# lost worker knows better by then, and a rack dies together.
STALE_HEARTBEAT_SECONDS = 20.0
# What one soft taint weighs in accelerators that would lie idle: more than any node has.
_SOFT_TAINT = 1024
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True)
class Requirements:
    """What one worker needs of its node.

    Attributes:
        accelerators: whole count of `accelerator_resource` on a node to itself; 0 asks for none.
        template_spec: the pod spec whose selectors, affinity and tolerations count.
        avoid: node names not to use -> why.
        requests: what the scheduler would hold for the worker, in the units of `NodeView.allocatable`.
        scheduler_for: what of the pod only the cluster's scheduler can deal with, "" if nothing: such a worker cannot go
            to a pool that Muster binds itself.
    """

    accelerators: int
    template_spec: Mapping[str, Any]
    avoid: Mapping[str, str]
    requests: Amounts = field(default_factory=dict)
    scheduler_for: str = ""

    @cached_property
    def profile(self) -> Hashable:
        """Equal for requirements that the same nodes meet, apart from those to `avoid`."""
        spec = self.template_spec
        affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED)
        chosen = [spec.get("nodeSelector"), affinity, spec.get("tolerations")]
        asked = self.accelerators, tuple(sorted(self.requests.items())), self.scheduler_for
        return *asked, json.dumps(chosen, sort_keys=True, default=str)


def refusal(node: NodeView, needs: Requirements, fleet: Fleet, job_uid: str) -> str:
    """Why the node cannot take a worker now, in a few words that group well; "" if it can."""
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


STALE = "without a heartbeat"
LEFT_BY_OTHERS = "left by other pods"
IN_USE = "in use"


def unsuitable(node: NodeView, needs: Requirements, fleet: Fleet) -> str:
    """Why the node could not take such a worker even if nothing else ran there; "" if it could."""
    if not node.ready:
        return "not ready"
    if node.unschedulable:
        return "cordoned"
    exclusion = fleet.exclusion(node.name)
    if exclusion:
        return unhealthy(exclusion)
    taint = _untolerated(node.taints, needs.template_spec.get("tolerations") or ())
    if taint:
        return f"taint {taint.key}"
    if not _selected(node, needs.template_spec):
        return "excluded by the template's node selector or affinity"
    if needs.scheduler_for and binding_of(node, fleet) is Binding.DIRECT:
        return f"bound directly, which does not do for {needs.scheduler_for}"
    resource = fleet.policy.accelerator_resource
    if needs.accelerators and node.allocatable.get(resource, 0) < needs.accelerators:
        return f"with fewer than {needs.accelerators} {resource}"
    return _short_of(needs, node.allocatable, "with too little {} for a worker")


def unhealthy(exclusion: Exclusion) -> str:
    """What is said of a node that its health excludes."""
    return f"unhealthy ({exclusion.reason})"


def reluctance(node: NodeView, needs: Requirements, fleet: Fleet) -> int:
    """How much rather another node should be taken: by soft taints first, then by accelerators beyond those asked for."""
    tolerations = needs.template_spec.get("tolerations") or ()
    soft = [taint for taint in node.taints if taint.effect == "PreferNoSchedule"]
    unwelcome = sum(not any(_tolerates(toleration, taint) for toleration in tolerations) for taint in soft)
    spare = node.allocatable.get(fleet.policy.accelerator_resource, 0) - needs.accelerators
    return unwelcome * _SOFT_TAINT + min(max(spare, 0), _SOFT_TAINT - 1)


def binding_of(node: NodeView, fleet: Fleet) -> Binding:
    """Who binds pods to this node: as the first pool says that the node is in."""
    for pool in fleet.policy.pools:
        if all(node.labels.get(key) == value for key, value in pool.node_selector.items()):
            return pool.binding
    return Binding.SCHEDULER


def lacking(node: NodeView, needs: Requirements, fleet: Fleet) -> str:
    """What the pods of others that run on the node leave too little of; "" if nothing."""
    used = fleet.used(node.name)
    if not used:
        return ""
    left = {name: value - used.get(name, 0) for name, value in node.allocatable.items()}
    return _short_of(needs, left, f"with too little {{}} {LEFT_BY_OTHERS}")


def _short_of(needs: Requirements, offered: Amounts, words: str) -> str:
    """The first resource of which less is offered than asked for; an extended one that is absent is not there."""
    for name, wanted in needs.requests.items():
        if (name in offered or is_extended(name)) and offered.get(name, 0) < wanted:
            return words.format(name)
    return ""


def _untolerated(taints: Sequence[Taint], tolerations: Sequence[Mapping[str, Any]]) -> Taint | None:
    for taint in taints:
        if taint.effect == "PreferNoSchedule":
            continue
        if not any(_tolerates(toleration, taint) for toleration in tolerations):
            return taint
    return None


def _tolerates(toleration: Mapping[str, Any], taint: Taint) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.effect:
        return False
    key, operator = toleration.get("key") or "", toleration.get("operator") or "Equal"
    if key and key != taint.key:
        return False
    if operator == "Exists":
        return True
    return operator == "Equal" and bool(key) and (toleration.get("value") or "") == taint.value


def _selected(node: NodeView, spec: Mapping[str, Any]) -> bool:
    selector = spec.get("nodeSelector") or {}
    if any(node.labels.get(key) != value for key, value in selector.items()):
        return False
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED)
    if not affinity:
        return True
    return any(_term_matches(node, term) for term in affinity.get("nodeSelectorTerms") or ())


def _term_matches(node: NodeView, term: Mapping[str, Any]) -> bool:
    labels, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not labels and not fields:
        return False  # an empty term matches nothing
    return all(_expression_matches(node.labels, expression) for expression in labels) and all(
        _expression_matches({"metadata.name": node.name}, expression) for expression in fields
    )


def _expression_matches(values: Mapping[str, str], expression: Mapping[str, Any]) -> bool:
    value, wanted = values.get(expression["key"]), expression.get("values") or []
    match = _OPERATORS.get(expression["operator"])
    return match is not None and match(value, wanted)


def _compare(value: str | None, wanted: Sequence[str], test: Callable[[int, int], bool]) -> bool:
    try:
        return value is not None and len(wanted) == 1 and test(int(value), int(wanted[0]))
    except ValueError:
        return False


_OPERATORS: Mapping[str, Callable[[str | None, Sequence[str]], bool]] = {
    "In": lambda value, wanted: value is not None and value in wanted,
    "NotIn": lambda value, wanted: value is None or value not in wanted,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": lambda value, wanted: _compare(value, wanted, int.__gt__),
    "Lt": lambda value, wanted: _compare(value, wanted, int.__lt__),
}

"""Read ResourceQuotas, and compute how a pod counts in them, by the rules of the API server.

Source: Kubernetes 1.36, pkg/quota/v1/evaluator/core/pods.go (PodUsageFunc, podComputeUsageHelper, podMatchesScopeFunc),
apiserver/pkg/quota/v1/generic/evaluator.go (Matches) and pkg/apis/core/v1/helper/qos/qos.go (ComputePodQOS).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from muster.world.resources import PODS, Amounts, amount, is_extended, total_requests

COUNT_PODS = "count/pods"
REQUESTS, LIMITS = "requests.", "limits."
_COMPUTE = frozenset({"cpu", "memory", "ephemeral-storage"})
_HUGE_PAGES = "hugepages-"
_QOS = ("cpu", "memory")


class Scope(NamedTuple):
    """One condition of a ResourceQuota, of its `scopes` (operator Exists) or of its `scopeSelector`."""

    name: str
    operator: str = "Exists"
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QuotaView:
    """A ResourceQuota as it is enforced: its status, and of that only what pods use.

    Attributes:
        hard: amounts by the quota's own names, e.g. `requests.cpu`, in the units of `muster.world.resources`.
        used: likewise.
        problem: why the namespace admits nothing, whatever the amounts say; "" for a readable quota.
    """

    namespace: str
    name: str
    uid: str
    resource_version: int
    hard: Amounts = field(default_factory=dict)
    used: Amounts = field(default_factory=dict)
    scopes: tuple[Scope, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class QuotaClaim:
    """How one pod counts in quotas.

    Attributes:
        usage: amounts by the names that quotas have for them.
        terminating: it has `activeDeadlineSeconds`.
        best_effort: its QoS class.
        priority_class: the name of its PriorityClass; "" for none.
        crosses_namespaces: an affinity between pods names other namespaces.
        is_answered: the API server has returned such a pod; else defaults of the cluster and the namespace may be
            missing.
    """

    usage: Amounts
    terminating: bool = False
    best_effort: bool = False
    priority_class: str = ""
    crosses_namespaces: bool = False
    is_answered: bool = True

    def may_fall_under(self, quota: QuotaView) -> bool:
        """Whether the quota counts this pod, whatever defaults are missing: of its PriorityClass, of its requests."""
        if self.is_answered:
            return self.falls_under(quota)
        unknown = {"PriorityClass"} if not self.priority_class else set()
        if self.best_effort:
            unknown |= {"BestEffort", "NotBestEffort"}
        return all(scope.name in unknown or self._is_in(scope) for scope in quota.scopes)

    def falls_under(self, quota: QuotaView) -> bool:
        """Whether the quota counts this pod: all of its scopes have to match."""
        return all(self._is_in(scope) for scope in quota.scopes)

    def _is_in(self, scope: Scope) -> bool:
        match scope.name:
            case "Terminating":
                return self.terminating
            case "NotTerminating":
                return not self.terminating
            case "BestEffort":
                return self.best_effort
            case "NotBestEffort":
                return not self.best_effort
            case "PriorityClass":
                return self._has_class(scope)
            case "CrossNamespacePodAffinity":
                return self.crosses_namespaces
        return False

    def _has_class(self, scope: Scope) -> bool:
        match scope.operator:
            case "Exists":
                return bool(self.priority_class)
            case "DoesNotExist":
                return not self.priority_class
            case "In":
                return self.priority_class in scope.values
            case "NotIn":
                return self.priority_class not in scope.values
        return False


def quota_amounts(quantities: Mapping[str, str] | None) -> dict[str, int]:
    """Return the amounts of a quota's `hard` or `used` that pods can use; objects of other kinds are left out.

    Raises:
        ValueError: one is not a quantity.
    """
    return {name: amount(base_of(name), quantity) for name, quantity in (quantities or {}).items() if _is_of_pods(name)}


def base_of(name: str) -> str:
    """Return the resource in a quota's name: `cpu` of `requests.cpu`."""
    return name.removeprefix(REQUESTS).removeprefix(LIMITS)


def _is_of_pods(name: str) -> bool:
    base = base_of(name)
    return (
        name in (PODS, COUNT_PODS)
        or base in _COMPUTE
        or base.startswith(_HUGE_PAGES)
        or (name.startswith(REQUESTS) and is_extended(base))
    )


def claim_of_pod(pod: Mapping[str, Any]) -> QuotaClaim:
    """Compute how a pod, as parsed from JSON, counts. The API server's answer to a dry run has all defaults in it.

    Malformed quantities count as absent: the API server refuses such a pod.
    """
    spec = _map(pod.get("spec"))
    asked, limits = _total(spec, ("limits", "requests")), _total(spec, ("limits",))
    kind = _map(pod.get("status")).get("qosClass")
    best_effort = kind == "BestEffort" if kind else not any(asked.get(name) or limits.get(name) for name in _QOS)
    overhead = _amounts(spec.get("overhead"))
    requests = {name: asked.get(name, 0) + overhead.get(name, 0) for name in asked.keys() | overhead.keys()}
    usage = {PODS: 1, COUNT_PODS: 1}
    for name, value in requests.items():
        if name in _COMPUTE or name.startswith(_HUGE_PAGES):
            usage[name] = usage[REQUESTS + name] = value
        elif is_extended(name):
            usage[REQUESTS + name] = value
    for name, value in limits.items():
        if name in _COMPUTE and value:
            usage[LIMITS + name] = value + overhead.get(name, 0)
    return QuotaClaim(
        usage={name: value for name, value in usage.items() if value > 0},
        terminating=spec.get("activeDeadlineSeconds") is not None,
        best_effort=best_effort,
        priority_class=str(spec.get("priorityClassName") or ""),
        crosses_namespaces=any(map(_crosses, _affinity_terms(_map(spec.get("affinity"))))),
    )


def _total(spec: Mapping[str, Any], parts: Iterable[str]) -> dict[str, int]:
    """Sum up these parts of the containers' resources, or of the pod as a whole; later parts override earlier ones."""

    def requests(asker: Any) -> dict[str, int]:
        resources, requested = _map(_map(asker).get("resources")), {}
        for part in parts:
            requested.update(_amounts(resources.get(part)))
        return requested

    whole = {name: value for name, value in requests(spec).items() if name in _QOS or name.startswith(_HUGE_PAGES)}
    inits = [
        (requests(container), _map(container).get("restartPolicy") == "Always")
        for container in _list(spec.get("initContainers"))
    ]
    total = total_requests(map(requests, _list(spec.get("containers"))), inits, pod_level=whole)
    del total[PODS]
    return total


def _amounts(quantities: Any) -> dict[str, int]:
    amounts = {}
    for name, quantity in _map(quantities).items():
        try:
            amounts[str(name)] = amount(str(name), str(quantity))
        except ValueError:
            continue
    return amounts


def _affinity_terms(affinity: Mapping[str, Any]) -> Iterable[Any]:
    for kind in ("podAffinity", "podAntiAffinity"):
        between = _map(affinity.get(kind))
        yield from _list(between.get("requiredDuringSchedulingIgnoredDuringExecution"))
        for weighted in _list(between.get("preferredDuringSchedulingIgnoredDuringExecution")):
            yield _map(weighted).get("podAffinityTerm")


def _crosses(term: Any) -> bool:
    fields = _map(term)
    return bool(fields.get("namespaces")) or fields.get("namespaceSelector") is not None


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []

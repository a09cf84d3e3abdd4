"""Convert amounts of resources to whole numbers: what nodes offer and what pods hold there.

CPU counts in thousandths of a core, everything else in its own unit (bytes, devices, pods), rounded up.
"""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any

Amounts = Mapping[str, int]

PODS = "pods"
# Stands for the amounts of a pod whose resources cannot be read: no other holder gets its node.
UNREADABLE = "muster.dev/unreadable"
# Placement accounts for these beside extended resources and huge pages. Ephemeral storage is left to the kubelet, which
# measures it.
COUNTED = frozenset({"cpu", "memory", PODS})
_HUGE_PAGES = "hugepages-"
ACCELERATORS = ("nvidia.com/gpu", "amd.com/gpu", "google.com/tpu", "habana.ai/gaudi", "aws.amazon.com/neuron")
"""Accelerators of all vendors, of which a fleet counts one."""

MOST = 2**63 - 1
_MAX_DIGITS = 18
_USUAL_LENGTH = 20  # of a quantity; longer ones are not kept

_SUFFIXES = {
    **{unit + "i": Decimal(1024) ** (i + 1) for i, unit in enumerate("KMGTPE")},
    **{unit: Decimal(1000) ** (i + 1) for i, unit in enumerate("kMGTPE")},
    "m": Decimal("0.001"),
    "u": Decimal("0.000001"),
    "n": Decimal("0.000000001"),
}


def amount(name: str, quantity: str) -> int:
    """Convert a Kubernetes quantity of a resource, e.g. 8, 8k, 1Ki, 500m; more than 64 bits count as the most, as
    there.

    Raises:
        ValueError: not a quantity.
    """
    milli = name == "cpu"
    return _usual(quantity, milli) if len(quantity) <= _USUAL_LENGTH else _amount(quantity, milli)


def _amount(quantity: str, milli: bool) -> int:
    factor = Decimal(1000) if milli else Decimal(1)
    if len(quantity) <= _MAX_DIGITS and quantity.isascii() and quantity.isdigit():
        return int(quantity) * int(factor)
    for suffix, scale in _SUFFIXES.items():
        if quantity.endswith(suffix):
            number, factor = quantity.removesuffix(suffix), factor * scale
            break
    else:
        number = quantity
    try:
        value = Decimal(number)
        if not value.is_finite():
            raise ValueError(f"{quantity!r} is not a quantity")
        if value.adjusted() > _MAX_DIGITS:  # never computed: it may have a billion digits
            return MOST if value > 0 else -MOST
        if value.adjusted() < -_MAX_DIGITS - 3:
            return int(value > 0)
        return max(min(int((value * factor).to_integral_value(rounding="ROUND_CEILING")), MOST), -MOST)
    except ArithmeticError as error:
        raise ValueError(f"{quantity!r} is not a quantity") from error


_usual = lru_cache(maxsize=4096)(_amount)  # thousands of nodes and pods have the same few quantities


def is_extended(name: str) -> bool:
    """Whether a resource is an extended one: its domain is not Kubernetes' own, and it is no huge page."""
    domain, slash, _ = name.partition("/")
    return bool(slash) and domain != "kubernetes.io" and not domain.endswith(".kubernetes.io")


def is_accelerator(name: str, accelerator: str) -> bool:
    """Whether a resource is the fleet's accelerator, a share of one (nvidia.com/gpu.shared) or a part
    (nvidia.com/mig-1g.5gb)."""
    domain = accelerator.partition("/")[0]
    return name == accelerator or name.startswith((f"{accelerator}.", f"{domain}/mig-"))


def is_granted(name: str) -> bool:
    """Whether a node that does not list it has none: an extended resource, or huge pages of a size."""
    return is_extended(name) or name.startswith(_HUGE_PAGES)


def amounts(quantities: Mapping[str, str] | None) -> dict[str, int]:
    """Convert the resources that placement accounts for.

    Raises:
        ValueError: one is not a quantity.
    """
    counted = {}
    for name, quantity in (quantities or {}).items():
        if name in COUNTED or is_granted(name):
            value = amount(name, quantity)
            if value or not name.startswith(_HUGE_PAGES):  # every node lists sizes of which it has none
                counted[name] = value
    return counted


def requests_of(requests: Mapping[str, str] | None, limits: Mapping[str, str] | None) -> dict[str, int]:
    """Return what one container holds: its requests, and where it has none its limits.

    Raises:
        ValueError: one is not a quantity.
    """
    if not requests and not limits:
        return {}
    return {**amounts(limits), **amounts(requests)}


def total_requests(
    containers: Iterable[Amounts],
    init_containers: Iterable[tuple[Amounts, bool]],
    extra: Iterable[Amounts] = (),
    pod_level: Amounts | None = None,
) -> dict[str, int]:
    """Compute what the scheduler reserves for a pod, one of `pods` included.

    Containers and sidecars add up; an init container needs its own on top of the sidecars that were started before it,
    for itself only. Source: Kubernetes documentation, "Sidecar Containers", section on resource sharing.

    Args:
        containers: what each requests.
        init_containers: in order, each with whether it is a sidecar (restartPolicy Always).
        extra: added to the whole pod (overhead of its runtime).
        pod_level: requests of the pod as a whole, which override those of its containers.
    """
    total: dict[str, int] = {}
    for needs in containers:
        _add(total, needs)
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for needs, sidecar in init_containers:
        if sidecar:
            _add(total, needs)
            _add(sidecars, needs)
            continue
        for name, value in needs.items():
            peak[name] = max(peak.get(name, 0), value + sidecars.get(name, 0))
    for name, value in peak.items():
        total[name] = max(total.get(name, 0), value)
    total.update(pod_level or {})
    for needs in extra:
        _add(total, needs)
    return {PODS: 1, **{name: value for name, value in total.items() if value}}


def template_requests(spec: Mapping[str, Any]) -> dict[str, int]:
    """Return the requests of a pod spec, as parsed from YAML or JSON; malformed quantities count as absent."""

    def requests(container: Any) -> dict[str, int]:
        resources = container.get("resources") if isinstance(container, dict) else None
        if not isinstance(resources, dict):
            return {}
        try:
            return requests_of(_texts(resources.get("requests")), _texts(resources.get("limits")))
        except ValueError:  # the API server reports it in the dry run
            return {}

    inits = [container for container in _list(spec.get("initContainers")) if isinstance(container, dict)]
    return total_requests(
        [requests(container) for container in _list(spec.get("containers"))],
        [(requests(container), container.get("restartPolicy") == "Always") for container in inits],
        [requests({"resources": {"requests": spec.get("overhead")}})],
        requests(spec),
    )


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _texts(quantities: Any) -> dict[str, str]:
    return {str(name): str(value) for name, value in quantities.items()} if isinstance(quantities, dict) else {}


def _add(total: dict[str, int], more: Amounts) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + value

"""The gang solver: all or nothing, as few domains as possible from the outside in, least fragmentation left behind.

A domain is addressed by its path of label values from the outermost level inwards, so that `rack 1` of two blocks are
two domains. A node that lacks a level's label stands in a domain of its own name-less kind ("") of that level.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from muster.placement.eligibility import Requirements, refusal
from muster.world.fleet import FleetView
from muster.world.views import NodeView

DomainPath = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Request:
    """What to place.

    Attributes:
        count: nodes wanted.
        needs: what each node must offer.
        required: level name inside one domain of which all must lie, or None.
        preferred: level name inside one domain of which all should lie, or None.
        anchors: nodes that the job keeps; a replacement prefers their domains, and `required` binds it to them.
    """

    count: int
    needs: Requirements
    job_uid: str
    required: str | None = None
    preferred: str | None = None
    anchors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Placed:
    """The chosen nodes, neighbours in the fabric beside each other."""

    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NotPlaced:
    """Why there is no place, in one sentence with numbers, and a stable reason."""

    reason: str
    message: str


def unknown_level(fleet: FleetView, *names: str | None) -> str | None:
    """The first of these level names that the fleet's policy does not have."""
    known = {level.name for level in fleet.policy.topology.levels}
    return next((name for name in names if name and name not in known), None)


def solve(fleet: FleetView, request: Request) -> Placed | NotPlaced:
    """Choose nodes for a request, deterministically."""
    unknown = unknown_level(fleet, request.required, request.preferred)
    if unknown:
        return NotPlaced("UnknownTopologyLevel", f"{unknown!r} is no longer a level of this fleet's FleetPolicy")
    free, refused = _partition(fleet, request)
    names = [level.name for level in fleet.policy.topology.levels]
    paths = {node.name: domain_path(node, fleet) for node in free}
    anchor_paths = [domain_path(fleet.nodes[name], fleet) for name in request.anchors if name in fleet.nodes]
    required = names.index(request.required) + 1 if request.required else 0
    candidates = _inside(paths, required, anchor_paths)
    best = max((len(nodes) for nodes in candidates.values()), default=0)
    if best < request.count:
        return _explain(request, len(free), best, candidates, refused)
    fitting = {path: nodes for path, nodes in candidates.items() if len(nodes) >= request.count}
    preferred = names.index(request.preferred) + 1 if request.preferred else 0
    if preferred > required:
        narrower = _inside({n: paths[n] for nodes in fitting.values() for n in nodes}, preferred, anchor_paths)
        fitting = {path: nodes for path, nodes in narrower.items() if len(nodes) >= request.count} or fitting
    path = min(fitting, key=lambda p: (_spread(fitting[p], p, paths, request.count), len(fitting[p]), p))
    near = {p[:depth] for p in anchor_paths for depth in range(len(names) + 1)}
    return Placed(tuple(_fill(fitting[path], len(path), paths, request.count, near)))


def domain_path(node: NodeView, fleet: FleetView) -> DomainPath:
    """The node's domains, outermost first."""
    return tuple(node.labels.get(level.label, "") for level in fleet.policy.topology.levels)


def _partition(fleet: FleetView, request: Request) -> tuple[list[NodeView], Counter[str]]:
    free, refused = [], Counter[str]()
    for name in sorted(fleet.nodes):
        why = "already used by this job" if name in request.anchors else ""
        why = why or refusal(fleet.nodes[name], request.needs, fleet, request.job_uid)
        if why:
            refused[why] += 1
        else:
            free.append(fleet.nodes[name])
    return free, refused


def _inside(
    paths: Mapping[str, DomainPath], depth: int, anchor_paths: Sequence[DomainPath]
) -> dict[DomainPath, list[str]]:
    """Free nodes by domain at `depth`; with anchors only their domain counts."""
    domains: dict[DomainPath, list[str]] = defaultdict(list)
    allowed = {path[:depth] for path in anchor_paths} if depth else set()
    for name, path in paths.items():
        domain = path[:depth]
        unlabelled = depth > 0 and not domain[-1]
        if not unlabelled and (not allowed or domain in allowed):
            domains[domain].append(name)
    return domains


def _spread(names: Iterable[str], inside: DomainPath, paths: Mapping[str, DomainPath], count: int) -> tuple[int, ...]:
    """How many domains the fill of `count` nodes touches at each level below `inside`."""
    levels = len(next(iter(paths.values())))
    chosen = _fill(list(names), len(inside), paths, count, set())
    return tuple(len({paths[name][: depth + 1] for name in chosen}) for depth in range(len(inside), levels))


def _fill(
    names: Sequence[str], depth: int, paths: Mapping[str, DomainPath], count: int, near: set[DomainPath]
) -> list[str]:
    """Take `count` of these nodes, which share their path down to `depth`, from as few sub-domains as possible.

    Sub-domains that the job already uses come first. Otherwise the smallest one that fits all of the rest is taken
    (least fragmentation), or the largest one while none fits.
    """
    if depth >= len(paths[names[0]]):
        return sorted(names)[:count]
    groups: dict[DomainPath, list[str]] = defaultdict(list)
    for name in names:
        groups[paths[name][: depth + 1]].append(name)
    chosen: list[str] = []
    while len(chosen) < count:
        rest = count - len(chosen)
        path = min(
            groups,
            key=lambda p: (
                p not in near,
                len(groups[p]) < rest,
                len(groups[p]) if len(groups[p]) >= rest else -len(groups[p]),
                p,
            ),
        )
        members = groups.pop(path)
        chosen += _fill(members, depth + 1, paths, min(rest, len(members)), near)
    return chosen


def _explain(
    request: Request, free: int, best: int, candidates: Mapping[DomainPath, Sequence[str]], refused: Counter[str]
) -> NotPlaced:
    what = f"{request.count} {'more ' * bool(request.anchors)}node{'s' * (request.count != 1)}"
    others = ", ".join(f"{count} {why}" for why, count in sorted(refused.items(), key=lambda item: (-item[1], item[0])))
    rest = f" ({others})" if others else ""
    if request.required and free >= request.count:
        domain = max(sorted(candidates), key=lambda path: len(candidates[path]), default=())
        where = f"best is {'/'.join(domain)} with {best}" if domain else "no free node has its label"
        return NotPlaced(
            "TopologyUnsatisfied",
            f"needs {what} in one {request.required}: {where}; {free} are free in all{rest}. "
            "To start now, delete the job and create it without spec.placement.required or with fewer nodes.",
        )
    fleet = free + refused.total()
    return NotPlaced("InsufficientNodes", f"needs {what}: {free} of the fleet's {fleet} are free and suitable{rest}")

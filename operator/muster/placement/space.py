"""The gang solver: all or nothing, as few domains as possible from the outside in, least fragmentation left behind.

A domain is addressed by its path of label values from the outermost level inwards, so that `rack 1` of two blocks are
two domains. A node that lacks a level's label stands in a domain of its own name-less kind ("") of that level.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from muster.placement.eligibility import refusal, unsuitable
from muster.placement.request import Request
from muster.world.fleet import Fleet
from muster.world.turn import NotPlaced, Placed
from muster.world.views import NodeView

DomainPath = tuple[str, ...]


def unknown_level(fleet: Fleet, *names: str | None) -> str | None:
    """The first of these level names that the fleet's policy does not have."""
    known = {level.name for level in fleet.policy.topology.levels}
    return next((name for name in names if name and name not in known), None)


class Space:
    """What is free, for one plan: the fleet, less what the plan has already given away."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._taken: dict[str, str] = {}

    def take(self, nodes: Iterable[str], why: str) -> None:
        """These nodes are not free any more: `why` in a few words that group well, e.g. `reserved for default/big`."""
        self._taken.update(dict.fromkeys(nodes, why))

    def reservation(self, request: Request) -> tuple[str, ...]:
        """The free nodes to hold back for a request that has no place: those it can use in its best domain.

        The best domain is the one of the required level (the fleet where none is) that could ever hold the request and
        has most nodes free for it. Empty when no domain could hold it even if nothing else ran.
        """
        free, _ = self._partition(request)
        depth = self._depth(request.required)
        wanted = request.count + request.spares
        could: dict[DomainPath, int] = Counter()
        for node in self._fleet.nodes.values():
            if not unsuitable(node, request.needs, self._fleet):
                could[domain_path(node, self._fleet)[:depth]] += 1
        now: dict[DomainPath, list[str]] = defaultdict(list)
        for node in free:
            now[domain_path(node, self._fleet)[:depth]].append(node.name)
        able = [path for path in now if could[path] >= wanted and all(path)]
        best = min(able, key=lambda path: (-len(now[path]), path), default=None)
        return tuple(sorted(now[best])) if best is not None else ()

    def _depth(self, level: str | None) -> int:
        names = [level.name for level in self._fleet.policy.topology.levels]
        return names.index(level) + 1 if level else 0

    def solve(self, request: Request) -> Placed | NotPlaced:
        """Choose nodes for a request, deterministically."""
        fleet = self._fleet
        unknown = unknown_level(fleet, request.required, request.preferred)
        if unknown:
            return NotPlaced("UnknownTopologyLevel", f"{unknown!r} is no longer a level of this fleet's FleetPolicy")
        free, refused = self._partition(request)
        names = [level.name for level in fleet.policy.topology.levels]
        paths = {node.name: domain_path(node, fleet) for node in free}
        anchor_paths = [domain_path(fleet.nodes[name], fleet) for name in request.kept if name in fleet.nodes]
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

    def _partition(self, request: Request) -> tuple[list[NodeView], Counter[str]]:
        free, refused = [], Counter[str]()
        for name in sorted(self._fleet.nodes):
            why = "already used by this job" if name in request.kept else self._taken.get(name, "")
            why = why or refusal(self._fleet.nodes[name], request.needs, self._fleet, request.job_uid)
            if why:
                refused[why] += 1
            else:
                free.append(self._fleet.nodes[name])
        return free, refused


def solve(fleet: Fleet, request: Request) -> Placed | NotPlaced:
    """Choose nodes for one request alone, deterministically."""
    return Space(fleet).solve(request)


def domain_path(node: NodeView, fleet: Fleet) -> DomainPath:
    """The node's domains, outermost first."""
    return tuple(node.labels.get(level.label, "") for level in fleet.policy.topology.levels)


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
    what = f"{request.count} {'more ' * bool(request.kept)}node{'s' * (request.count != 1)}"
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

"""Count the fleet's tree: pure, from the holders of nodes to the answer of `nodes`.

Tests: tests/unit/cli/test_tree.py.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from muster.answers.explanation import OUTPUT_VERSION
from muster.answers.health import HealthRow, excluded_for
from muster.api.base import ApiModel
from muster.placement.eligibility import OUTSIDE_SCOPE, STALE, Requirements, unusable
from muster.placement.natural import natural
from muster.placement.where import domain_path
from muster.world.fleet import STALE_HEARTBEAT_SECONDS, Fleet
from muster.world.views import NodeView

NO_LABEL = "-"
"""Stands for the domain of nodes that lack a level's label: no label value is a lone dash."""

FREE, USED, EXCLUDED = "Free", "Used", "Excluded"
Path = tuple[str, ...]
_NOTHING: Mapping[str, HealthRow] = {}


class NodeRow(ApiModel):
    """One node."""

    name: str
    domain: str = Field(description="Names from the outside in, joined by '/'; empty where it has no label.")
    state: Literal["Free", "Used", "Excluded"]
    reason: str = Field("", description="Why it is excluded.")
    used_by: list[str] = Field([], description="Its holder: namespace/name of a job, or pod namespace/name.")
    accelerators: int = 0
    health: HealthRow | None = Field(None, description="Left out: the node has no NodeHealth, or it may not be read.")

    @property
    def is_unhealthy(self) -> bool:
        """Whether a significant finding exists about the node."""
        return self.health is not None and self.health.is_unhealthy


class NodeCount(ApiModel):
    """How many nodes a holder has, or a reason excludes."""

    name: str
    nodes: int


class DomainRow(ApiModel):
    """One domain: nodes = free + used + excluded."""

    domain: str = Field(description="Names from the outside in, joined by '/'; '-': without a label; empty: the fleet.")
    level: str = Field("", description="Its level; empty: the fleet.")
    nodes: int
    free: int
    used: int = Field(description="In use, and free once that ends.")
    excluded: int = Field(description="They take no new worker now, whether they are in use or not.")
    not_healthy: int = Field(description="Suspect or worse, excluded or not.")
    accelerators: int
    free_accelerators: int
    used_by: list[NodeCount] = Field([], description="Most first. Of excluded nodes, too.")
    excluded_for: list[NodeCount] = Field([], description="Most first.")


class FleetTree(ApiModel):
    """The tree of the fleet, or a part of it."""

    api_version: str = OUTPUT_VERSION
    kind: Literal["FleetTree"] = "FleetTree"
    accelerator_resource: str
    levels: list[str] = Field(description="Outermost first.")
    domains: list[DomainRow] = Field(description="Each before the domains inside it; the first holds all others.")
    nodes: list[NodeRow] = Field(description="Every node of the first domain, by domain and name.")
    notes: list[str] = Field([], description="What limits this answer.")


class UnknownLevelError(ValueError):
    """The fleet has no such level."""


class UnknownDomainError(ValueError):
    """The fleet has no such domain; `paths` are those that it has."""

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__("no such domain")
        self.paths = paths


@dataclass(frozen=True, slots=True)
class TreeQuery:
    """The requested part of the tree.

    Attributes:
        domain: path of the domain to show; () is the fleet.
        level: innermost level of domains to list; None: all.
        free: only domains with free nodes, most free first, and free nodes.
        unhealthy: only nodes with significant findings, and their domains.
        tolerated: keys of taints that do not exclude a node, beside the one of the accelerators.
    """

    domain: Path = ()
    level: str | None = None
    free: bool = False
    unhealthy: bool = False
    tolerated: tuple[str, ...] = ()


def tree_of(
    fleet: Fleet, wanted: TreeQuery, notes: Sequence[str] = (), healths: Mapping[str, HealthRow] = _NOTHING
) -> FleetTree:
    """Return the domains and nodes of the fleet, or of one domain.

    Args:
        fleet: nodes and their holders.
        wanted: which part.
        notes: what limits the answer.
        healths: Muster's verdicts about nodes, by name.

    Raises:
        UnknownLevelError: `wanted.level` is no level of this fleet.
        UnknownDomainError: `wanted.domain` is no domain of this fleet.
    """
    levels = [level.name for level in fleet.policy.topology.levels]
    if wanted.level is not None and wanted.level not in levels:
        raise UnknownLevelError(wanted.level)
    depth = levels.index(wanted.level) + 1 if wanted.level else len(levels)
    paths = {node.name: domain_of(node, fleet) for node in fleet.nodes.values()}
    inside = {name: path for name, path in paths.items() if path[: len(wanted.domain)] == wanted.domain}
    if wanted.domain and not inside:
        every = {"/".join(path[:size]) for path in paths.values() for size in range(1, len(path) + 1)}
        raise UnknownDomainError(sorted(every))
    rows = {
        name: _node_row(fleet.nodes[name], path, fleet, wanted.tolerated, healths.get(name))
        for name, path in inside.items()
    }
    members: dict[Path, list[NodeRow]] = defaultdict(list)
    for name, path in inside.items():
        for size in range(len(wanted.domain), min(max(depth, len(wanted.domain)), len(path)) + 1):
            members[path[:size]].append(rows[name])
    domains = {path: _domain_row(path, nodes, levels) for path, nodes in members.items()}
    if not domains:  # a fleet without a node
        domains[()] = _domain_row((), [], levels)
    shown = [rows[name] for name in sorted(rows, key=lambda name: (_natural(inside[name]), _natural((name,))))]
    return FleetTree(
        accelerator_resource=fleet.policy.accelerator_resource,
        levels=levels,
        domains=_ordered(domains, wanted),
        nodes=[
            node
            for node in shown
            if (node.state == FREE or not wanted.free) and (node.is_unhealthy or not wanted.unhealthy)
        ],
        notes=list(notes),
    )


def domain_of(node: NodeView, fleet: Fleet) -> Path:
    """Return the node's domains from the outside in, down to the innermost one of which it has the label."""
    names = [name or NO_LABEL for name in domain_path(node, fleet.policy.topology.labels)]
    while names and names[-1] == NO_LABEL:
        names.pop()
    return tuple(names)


def _natural(path: Path) -> tuple[object, ...]:
    return tuple((natural(name), name) for name in path)


def _node_row(node: NodeView, path: Path, fleet: Fleet, tolerated: Sequence[str], health: HealthRow | None) -> NodeRow:
    """Return the node as placement sees it for a worker with these tolerations and no other constraints."""
    plain_reason = OUTSIDE_SCOPE if node.name in fleet.outside else excluded_for(health) if health else ""
    resource = fleet.policy.accelerator_resource
    # Nodes with accelerators commonly have a taint of this name, which pods that ask for accelerators tolerate.
    tolerations = [{"key": key, "operator": "Exists"} for key in (resource, *tolerated)]
    silent = fleet.heartbeats.age_seconds(node.name) >= STALE_HEARTBEAT_SECONDS
    needs = Requirements(0, {"tolerations": tolerations}, {})
    why = plain_reason or (STALE if silent else unusable(node, needs, fleet))
    holders = sorted(fleet.name_of(holder) for holder in fleet.holders(node.name))
    return NodeRow(
        name=node.name,
        domain="/".join(path),
        state=EXCLUDED if why else USED if holders else FREE,
        reason=str(why or ""),
        used_by=holders,
        accelerators=node.allocatable.get(resource, 0),
        health=health,
    )


def _domain_row(path: Path, nodes: Sequence[NodeRow], levels: Sequence[str]) -> DomainRow:
    states = Counter[str](node.state for node in nodes)
    return DomainRow(
        domain="/".join(path),
        level=levels[len(path) - 1] if path else "",
        nodes=len(nodes),
        free=states[FREE],
        used=states[USED],
        excluded=states[EXCLUDED],
        not_healthy=sum(node.is_unhealthy for node in nodes),
        accelerators=sum(node.accelerators for node in nodes),
        free_accelerators=sum(node.accelerators for node in nodes if node.state == FREE),
        used_by=_node_counts(Counter(holder for node in nodes for holder in node.used_by)),
        excluded_for=_node_counts(Counter(node.reason for node in nodes if node.reason)),
    )


def _node_counts(counts: Mapping[str, int]) -> list[NodeCount]:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [NodeCount(name=name, nodes=nodes) for name, nodes in ordered]


def _ordered(domains: Mapping[Path, DomainRow], wanted: TreeQuery) -> list[DomainRow]:
    """Order depth first from the requested domain; siblings by name, or those with most free nodes first."""

    def rank(path: Path) -> tuple[object, ...]:
        steps = [path[:size] for size in range(len(wanted.domain), len(path) + 1)]
        return tuple((-domains[step].free if wanted.free else 0, _natural(step[-1:])) for step in steps)

    root = wanted.domain
    kept = [
        path
        for path, row in domains.items()
        if path == root or ((row.free or not wanted.free) and (row.not_healthy or not wanted.unhealthy))
    ]
    return [domains[path] for path in sorted(kept, key=rank)]

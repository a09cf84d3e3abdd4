"""The nodes that a request could use if nothing else ran, by the domain in one of which all of its nodes must lie.

Tests: tests/unit/placement/test_space.py, tests/unit/queueing/test_starts.py.
"""

from collections.abc import Mapping, Sequence

from muster.placement.candidates import GivenNodes, candidate_nodes
from muster.placement.domain import Path
from muster.placement.explain import indivisible
from muster.placement.fleet_index import NodeEligibility
from muster.placement.parts import at_once
from muster.placement.request import Request
from muster.placement.space import unknown_level
from muster.placement.tree import Tree
from muster.world.fleet import Fleet


def usable_nodes(fleet: Fleet, request: Request) -> Mapping[Path, Sequence[NodeEligibility]]:
    """Return those nodes by the path of their domain of the required level; without one, all are in the fleet, ()."""
    if unknown_level(fleet, request.required) or indivisible(request):
        return {}
    if request.may_use_last_choices and fleet.has_last_choices:
        request = request.with_last()
    names = [level.name for level in fleet.policy.topology.levels]
    depth = names.index(request.required) + 1 if request.required else 0
    tree = Tree.up_to_date(fleet, request.needs)
    candidates = at_once(candidate_nodes(fleet, tree, tree.root, GivenNodes(), request, depth))
    usable: dict[Path, list[NodeEligibility]] = {start.path: [] for start in candidates.starts}
    for name, node in tree.eligibility.items():
        domain = usable.get(node.path[:depth]) if node.suitable and name not in candidates.barred else None
        if domain is not None:
            domain.append(node)
    return usable

"""The nodes that one request can choose from: the tree of free nodes less what is not for it, and where it may look.

Few nodes differ from one request to the next, so they are an overlay of the shared tree. They are those to avoid, those
without a heartbeat, and those the job itself holds.

Tests: tests/unit/placement/test_space.py.
"""

from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from muster.placement.domain import Change, Domain, Path
from muster.placement.eligibility import STALE, lacking
from muster.placement.fleet_index import PART, NodeEligibility
from muster.placement.natural import natural
from muster.placement.request import Request
from muster.placement.tree import Tree
from muster.world.fleet import STALE_HEARTBEAT_SECONDS, Fleet
from muster.world.queuedecision import Refusal, RefusalKind

OWN = Refusal(RefusalKind.OWN, "already used by this job")
# More than what the taints of a node usually weigh, less than its health: nodes that are free are chosen first.
GIVEN_BACK_RELUCTANCE = 1 << 19


@dataclass(slots=True)
class GivenNodes:
    """The nodes that a plan has given away, counted on as it gives away more.

    Attributes:
        reasons: why, by node.
        usable: how many of them this kind of worker could use if nothing else ran, by reason.
        refused: how many of these are not free now, by why that is so: who holds them gives way.
        held: how many of these each job or pod holds.
    """

    reasons: Mapping[str, Refusal] = field(default_factory=dict)
    usable: Counter[Refusal] = field(default_factory=Counter)
    refused: Counter[Refusal] = field(default_factory=Counter)
    held: Counter[str] = field(default_factory=Counter)

    def count(self, usable: Sequence[NodeEligibility]) -> None:
        """Count these nodes, too, which this kind of worker could use."""
        away = [node for node in usable if node.why]
        self.usable.update([self.reasons[node.entry.name] for node in usable])
        self.refused.update([node.why for node in away if node.why])
        self.held.update(chain.from_iterable(node.holders for node in away))

    def copied(self, reasons: Mapping[str, Refusal]) -> "GivenNodes":
        """The same counts, of nodes that have these reasons: others may then be counted on."""
        return GivenNodes(reasons, Counter(self.usable), Counter(self.refused), Counter(self.held))

    def has_held(self, node: NodeEligibility) -> bool:
        """Whether this node is one of those in `held`."""
        return node.suitable and bool(node.why) and node.entry.name in self.reasons


@dataclass(frozen=True, slots=True)
class CandidateNodes:
    """The nodes that one request can choose from.

    Attributes:
        root: the fleet, with the domains marked that the job keeps nodes in.
        starts: the domains of the required level, in one of which all nodes must lie; the fleet itself where no level
            is required.
        barred: nodes that are not for this request, whatever runs on them, with the reason.
        own: nodes that only this job holds, or jobs that would give them back for it, with what still keeps it from
            using them; None if nothing.
        eligibility: the state of each node for this kind of worker, by name, `barred` and `own` apart.
        given: the nodes that this plan has given away.
        levels: number of levels of the topology.
    """

    root: Domain
    starts: tuple[Domain, ...]
    barred: Mapping[str, Refusal]
    own: Mapping[str, Refusal | None]
    eligibility: Mapping[str, NodeEligibility]
    given: GivenNodes
    levels: int

    @property
    def emptied(self) -> "CandidateNodes":
        """A copy whose counts of suitable nodes leave out the barred ones, as its counts of free nodes do already."""
        away = [Change(s.path, suitable=-1) for s in self._barred() if s.suitable and not self._was_free(s)]
        if not away:
            return self
        root = self.root.changed(away)
        return replace(self, root=root, starts=tuple(root.at(s.path) or Domain(s.path, {}, (), 0) for s in self.starts))

    def _barred(self) -> Iterable[NodeEligibility]:
        return (self.eligibility[name] for name in self.barred if name in self.eligibility)

    def _was_free(self, state: NodeEligibility) -> bool:
        return not state.why and state.entry.name not in self.given.reasons

    def home(self, names: Iterable[str], depth: int) -> Path | None:
        """The path of the domain at this depth that most of these nodes are in, the first by name among equals.

        Returns None where none of the nodes is in a domain of that depth.
        """
        paths = [self.eligibility[name].path for name in names if name in self.eligibility]
        counts = Counter(path[:depth] for path in paths if len(path) >= depth)
        return min(counts, key=lambda path: (-counts[path], [natural(name) for name in path], path), default=None)


def candidate_nodes(
    fleet: Fleet, tree: Tree, root: Domain, given: GivenNodes, request: Request, depth: int
) -> Generator[None, None, CandidateNodes]:
    """Return the nodes that a request can choose from. It yields between its parts, and must not go on once the fleet
    has changed.

    Args:
        fleet: the fleet.
        tree: the fleet as nodes for this kind of worker.
        root: the tree's root, less the nodes taken.
        given: the nodes that this plan has given away.
        request: the request.
        depth: of the level inside one domain of which all nodes must lie; 0 for none.
    """
    barred = dict.fromkeys(set(fleet.heartbeats.older_than(STALE_HEARTBEAT_SECONDS)).difference(fleet.outside), STALE)
    barred.update(request.needs.avoid)
    barred.update(dict.fromkeys(request.kept, OWN))
    eligibility = tree.eligibility
    changes = [
        Change(state.path, gone=state.entry, suitable=-1)
        for name in barred
        if (state := eligibility.get(name)) is not None and not state.why and name not in given.reasons
    ]
    own = {}
    holders = {request.job_uid, *request.given_back}
    for number, name in enumerate(set().union(*map(fleet.nodes_of, holders)), start=1):
        if number % PART == 0:
            root = root.changed(changes)
            changes = []
            yield
        held = eligibility.get(name) if name not in barred and name not in given.reasons else None
        if held is not None and held.suitable and held.holders and held.holders <= holders:
            own[name] = lacking(fleet.nodes[name], request.needs, fleet)
            if not own[name]:
                reluctance = 0 if request.job_uid in held.holders else GIVEN_BACK_RELUCTANCE
                entry = held.entry._replace(reluctance=held.entry.reluctance + reluctance)
                changes.append(Change(held.path, come=entry))
    if changes:
        root = root.changed(changes)
    levels = len(fleet.policy.topology.levels)
    kept = [state for name in request.kept if (state := eligibility.get(name)) is not None]
    if kept:
        root = root.keeping({node_state.path for node_state in kept})
    candidates = CandidateNodes(root, (root,), barred, own, eligibility, given, levels)
    if not depth:
        return candidates
    if not kept:
        return replace(candidates, starts=tuple(root.level(depth)))
    home = candidates.home(request.kept, depth)
    start = root.at(home) if home is not None else None
    return replace(candidates, starts=(start,) if start is not None else ())

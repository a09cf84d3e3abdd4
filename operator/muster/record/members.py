"""The members of the next record. Pure.

Tests: tests/unit/lifecycle/test_waiting_and_binding.py.
"""

from collections.abc import Collection, Iterable, Sequence

from muster.api.base import LevelCount
from muster.api.gang import GangSpec, Member, Role
from muster.placement.where import domain_counts
from muster.world.job import JobWorld
from muster.world.queuedecision import Placed


def members_on(nodes: Sequence[str], incarnation: int) -> list[Member]:
    """Return the members of a gang on entirely new nodes.

    Args:
        nodes: in the order of ranks.
        incarnation: of every member.
    """
    return [
        Member(index=place, role=Role.WORKER, rank=place, node=node, incarnation=incarnation)
        for place, node in enumerate(nodes)
    ]


def with_open_places_filled(record: GangSpec, answer: Placed) -> list[Member] | None:
    """Return the members with the queue's nodes for those that have none; None where the answer does not fit them."""
    open_places = {member.index for member in record.members if not member.node}
    kept = {member.node for member in record.members if member.node}
    if len(answer.nodes) != len(open_places) or not kept.isdisjoint(answer.nodes):
        return None
    return with_answer(record.members, open_places, answer)


def indices_on(record: GangSpec, nodes: Collection[str]) -> set[int]:
    """Return the indices of the members on these nodes."""
    return {member.index for member in record.members if member.node in nodes}


def without_nodes(world: JobWorld, record: GangSpec, away: Collection[int]) -> list[Member]:
    """Return the members; those with the given indices have no node and their next incarnation."""
    return [
        _new_member(world, member, node="") if member.index in away and member.node else member
        for member in record.members
    ]


def with_new_pods(world: JobWorld, members: Iterable[Member], lost: Collection[int]) -> list[Member]:
    """Return the members; those with the given indices have their next incarnation on the same node."""
    return [_new_member(world, member, node=member.node) if member.index in lost else member for member in members]


def next_incarnation(world: JobWorld, member: Member) -> int:
    """Return a number beyond the incarnation of every pod that the member has, or had."""
    used = (pod.incarnation for pod in world.others.get(member.index, ()))
    return 1 + max([member.incarnation, *used])


def with_answer(members: Sequence[Member], moved: Collection[int], answer: Placed) -> list[Member]:
    """Return the members; those with the given indices are on the nodes of an answer to `replacement_request`."""
    in_order = (member.index for member in sorted(members, key=by_rank) if member.index in moved)
    nodes = dict(zip(in_order, answer.nodes, strict=True))
    return [m.model_copy(update={"node": nodes[m.index]}) if m.index in nodes else m for m in members]


def by_rank(member: Member) -> int:
    """Return the rank of a member: the order of the nodes in a request."""
    return member.rank


def topology(world: JobWorld, members: Iterable[Member]) -> list[LevelCount]:
    """Return how many domains of each topology level the members are in."""
    counts = domain_counts(world.fleet, [member.node for member in members])
    return [LevelCount(level=name, domains=count) for name, count in counts.items()]


def _new_member(world: JobWorld, member: Member, node: str) -> Member:
    return Member(
        index=member.index, role=member.role, rank=member.rank, node=node, incarnation=next_incarnation(world, member)
    )

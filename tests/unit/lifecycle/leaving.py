"""Gangs of which several nodes have to be left, and a search through all their subsets for those that can be."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from random import Random

from tests.unit.lifecycle.builders import SETTINGS, Scene, a_job, a_node, at, running

from muster.api.nodehealth import Evacuate, ExclusionCause
from muster.lifecycle import evacuation_step, placing
from muster.lifecycle.step import decide
from muster.record import evacuation, members
from muster.world.fleet import Exclusion, Removal
from muster.world.job import JobWorld

LATER = Evacuate.AFTER_CHECKPOINT
CORDON = "cordon"
MARKS = {
    "last call": Exclusion(
        "Spot", "", LATER, at(110), "going", removal=Removal("x", at(110), True), cause=ExclusionCause.REMOVAL
    ),
    "degraded": Exclusion("Xid63", "rows wait for a reset", LATER),
    "removal": Exclusion("Upgrade", "", LATER, None, "going", removal=Removal("x"), cause=ExclusionCause.REMOVAL),
    "maintenance": Exclusion("MaintenanceAhead", "", LATER, at(9000), "kept free", cause=ExclusionCause.MAINTENANCE),
}
URGENT_FIRST = (*MARKS, CORDON)
RACKS = ("r0", "r1", "r2")


@dataclass(frozen=True)
class Gang:
    """A gang and the nodes beside it.

    Attributes:
        racks: of its nodes, by rank.
        marks: why each of its nodes is to be left; "": it is not.
        free: how many suitable nodes are free in each rack.
        unsuitable: racks of free nodes that the job may not use.
        size: of a segment; 1: there are none.
        required: the level inside one domain of which the gang has to be; None: none.
        plain: whether all pods start anew.
    """

    racks: tuple[str, ...]
    marks: tuple[str, ...]
    free: Counter[str]
    unsuitable: tuple[str, ...] = ()
    size: int = 1
    required: str | None = None
    plain: bool = False


def a_gang(random: Random) -> Gang:
    """A gang of two to six workers that is placed as it asks."""
    size = random.choice((1, 1, 2, 3))
    count = size * random.randint(1 if size > 1 else 2, 6 // size)
    required = random.choice((None, None, "rack"))
    homes = [RACKS[0] if required else random.choice(RACKS) for _ in range(count // size)]
    most = random.choice((0, 1, 2, 3))
    return Gang(
        racks=tuple(home for home in homes for _ in range(size)),
        marks=tuple(random.choice(("", *URGENT_FIRST)) for _ in range(count)),
        free=Counter({rack: random.randint(0, most) for rack in RACKS}),
        unsuitable=tuple(random.choices(RACKS, k=random.randint(0, 2))),
        size=size,
        required=required,
        plain=random.random() < 0.15,
    )


def world_of(gang: Gang) -> JobWorld:
    placement = {"required": gang.required} | ({"segmentSize": gang.size} if gang.size > 1 else {})
    mode = {"launch": {"mode": "Plain"}, "checkpoint": {}} if gang.plain else {}
    job = a_job(nodes=len(gang.racks), placement={k: v for k, v in placement.items() if v}, **mode)
    job.spec.template["spec"]["nodeSelector"] = {"pool": "train"}
    scene = Scene(job)
    beside = [(rack, "train") for rack in gang.free.elements()] + [(rack, "other") for rack in gang.unsuitable]
    for number, (rack, pool) in enumerate([*((rack, "train") for rack in gang.racks), *beside]):
        node = a_node(f"n{number}", rack=rack)
        scene.nodes[node.name] = node
        scene.node(node.name, labels={**node.labels, "pool": pool})
    for number, mark in enumerate(gang.marks):
        scene.node(f"n{number}", unschedulable=mark == CORDON)
    world = scene.gang().pods().all(running(1, step=7)).world()
    for number, mark in enumerate(gang.marks):
        if mark in MARKS:
            world.fleet.exclude(f"n{number}", MARKS[mark])
    return world


def movable_subsets(gang: Gang) -> set[frozenset[int]]:
    """Every set of workers on nodes to leave that could move together, by trying all."""
    leaving = [index for index, mark in enumerate(gang.marks) if mark]
    subsets = (frozenset(s) for count in range(len(leaving) + 1) for s in combinations(leaving, count))
    return {subset for subset in subsets if _can_move(gang, subset)}


def _can_move(gang: Gang, moving: frozenset[int]) -> bool:
    """Whether these workers have other nodes while the rest stays, or the whole gang has once no marked node counts."""
    healthy = Counter(rack for rack, mark in zip(gang.racks, gang.marks, strict=True) if not mark)
    everybody = frozenset(range(len(gang.racks)))
    anew = len(moving) == sum(map(bool, gang.marks)) and _has_place(gang, everybody, gang.free + healthy)
    return not moving or anew or (not gang.plain and _has_place(gang, moving, gang.free))


def _has_place(gang: Gang, moving: frozenset[int], free: Counter[str]) -> bool:
    """Whether each segment has a rack for those of it that move: that of the rest, or any where none stays."""
    segments = [range(first, first + gang.size) for first in range(0, len(gang.racks), gang.size)]
    stays = [{gang.racks[index] for index in segment if index not in moving} for segment in segments]
    for homes in product(*(staying or RACKS for staying in stays)):
        taken = Counter(homes[index // gang.size] for index in moving)
        if taken <= free and (gang.required is None or len(set(homes)) == 1):
            return True
    return False


def check_choice(gang: Gang, chosen: frozenset[int]) -> None:
    """Those that are left can be left together, none more could, and no less urgent one takes another's place.

    A less urgent one may go along where its segment moves as a whole.
    """
    able = movable_subsets(gang)
    assert chosen in able
    assert not any(chosen < subset for subset in able), "more could move"
    assert gang.size > 1 or len(chosen) == max(map(len, able)), "others are more"
    for index in {index for index, mark in enumerate(gang.marks) if mark} - chosen:
        firm = {each for each in chosen if urgency(gang, each) < urgency(gang, index)}
        firm |= {each for each in chosen if gang.size > 1 and segment_of(gang, each) <= chosen}
        for more in ({index}, segment_of(gang, index)):
            assert frozenset(firm | more) not in able, f"worker {index} should move first"


def urgency(gang: Gang, index: int) -> tuple[int, int]:
    return URGENT_FIRST.index(gang.marks[index]), index


def segment_of(gang: Gang, index: int) -> frozenset[int]:
    first = index // gang.size * gang.size
    return frozenset(range(first, first + gang.size))


def those_move_that_can(gang: Gang) -> None:
    """The nodes that are left are a best choice; where none is left, the status and an Event name all of them."""
    world = world_of(gang)
    assert world.gang is not None
    record, marked = world.gang.spec, {index for index, mark in enumerate(gang.marks) if mark}
    last = {index for index in marked if gang.marks[index] == "last call"}
    plan, step = decide(world, SETTINGS), evacuation_step.next_step(world, record)
    if isinstance(step, evacuation_step.NothingDue):
        check_choice(gang, frozenset())
        events = [each.note for each in plan.announcements if each.reason == "NoNodeToMoveTo"]
        assert len(events) == bool(marked)
        assert all(f"n{index} (" in note for note in events for index in marked)
        assert plan.status is not None
        assert (plan.status.reason == "NoNodeToMoveTo") is bool(marked)
        return
    assert isinstance(step, evacuation_step.BeginEvacuation)
    leaves = frozenset(int(name.removeprefix("n")) for name in step.why)
    if step.reason in evacuation_step.STOPS:
        assert leaves == last
        assert not any(last <= subset for subset in movable_subsets(gang))
        return
    assert last <= leaves
    check_choice(gang, leaves)
    begun = evacuation.with_evacuation_begun(world, record, step.reason, sorted(step.why), at(400))
    assert begun.evacuation is not None
    moved = placing.move(world, begun, members.indices_on(begun, begun.evacuation.nodes))
    assert all(member.node and member.node not in step.why for member in moved.members)


def _of(racks: str, marks: Sequence[str], free: str = "", **changes: object) -> Gang:
    """A gang whose racks, and those of the free nodes, are digits."""
    beside = Counter(f"r{digit}" for digit in free)
    return replace(Gang(tuple(f"r{digit}" for digit in racks), tuple(marks), beside), **changes)  # type: ignore[arg-type]


A_FEW = {
    "one-of-two": _of("000", ["", CORDON, CORDON], "0"),
    "the-degraded-first": _of("000", [CORDON, "", "degraded"], "1"),
    "the-last-call-first": _of("0011", ["degraded", "maintenance", CORDON, "last call"], "02", unsuitable=("r0",)),
    "no-place": _of("0011", ["degraded", "maintenance", CORDON, "removal"], unsuitable=("r0", "r1")),
    "no-place-in-its-rack": _of("000", [CORDON, "", "degraded"], "11", required="rack"),
    "all-to-another-rack": _of("000", [CORDON, "", ""], "111", required="rack"),
    "a-last-call-without-place": _of("000", ["last call", "last call", CORDON], "0"),
    "plain-one-of-two": _of("000", ["", CORDON, CORDON], "0", plain=True),
    "plain-both": _of("000", ["", CORDON, CORDON], "01", plain=True),
    "beside-its-segment": _of("0011", [CORDON, "", CORDON, CORDON], "11", size=2),
    "a-whole-segment": _of("000000", [CORDON] * 6, "0111", size=3),
    "a-place-that-a-segment-leaves": _of("000022", ["degraded", CORDON, "degraded", "", "", CORDON], "011", size=2),
}

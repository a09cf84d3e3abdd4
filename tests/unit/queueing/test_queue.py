"""Whose turn it is, and which nodes that gives whom: one row each."""

from dataclasses import replace

import pytest
from tests.unit.lifecycle.builders import a_fleet, a_node, at, tainted
from tests.unit.queueing.builders import NEEDS, answers, queue, told, tree, wants
from tests.unit.queueing.planned import plan

from muster.placement import fleet_index
from muster.placement import tree as trees
from muster.placement.eligibility import Requirements
from muster.placement.fleet_index import NodeEvaluator
from muster.placement.space import Space
from muster.placement.tree import Tree
from muster.queueing.enabling import NotEnabled
from muster.queueing.limits import OverLimit
from muster.queueing.queue import order, plan_steps
from muster.queueing.waiting import WaitingJob
from muster.world.queuedecision import NotPlaced, QueueDecision
from muster.world.views import NodeView

TOLERANT = replace(NEEDS, template_spec={"tolerations": [{"key": "debug", "operator": "Exists"}]})
ONLY_DEBUG = replace(TOLERANT, template_spec=TOLERANT.template_spec | {"nodeSelector": {"pool": "debug"}})


def debug_node(name: str) -> NodeView:
    node = tainted(a_node(name, "b9", "r9"), "debug")
    return replace(node, labels={**node.labels, "pool": "debug"})


@pytest.mark.parametrize(
    ("waiting", "expected"),
    [
        pytest.param([wants("a", 1, seconds=2), wants("b", 1, seconds=1)], "b a", id="older first"),
        pytest.param([wants("b", 1), wants("a", 1)], "a b", id="of one age: by name"),
        pytest.param([wants("old", 1), wants("urgent", 1, seconds=9, priority=1)], "urgent old", id="priority first"),
        pytest.param([wants("low", 1, priority=-5), wants("new", 1, seconds=9)], "new low", id="negative priority"),
        pytest.param(
            [wants("urgent", 1, priority=9), wants("hurt", 1, seconds=9, replacement=True)],
            "hurt urgent",
            id="replacements before priority",
        ),
        pytest.param(
            [
                wants("young", 1, seconds=2, replacement=True),
                wants("old", 1, seconds=1, replacement=True),
                wants("vip", 1, seconds=3, priority=1, replacement=True),
            ],
            "vip old young",
            id="replacements among themselves",
        ),
    ],
)
def test_order(waiting: list[WaitingJob], expected: str) -> None:
    assert [job.name for job in order(waiting)] == [f"default/{name}" for name in expected.split()]


def test_the_name_that_decides_has_its_namespace() -> None:
    jobs = [wants("a", 1, namespace="z"), wants("b", 1, namespace="y")]
    assert [job.name for job in order(jobs)] == ["y/b", "z/a"]


def test_positions_count_the_whole_queue() -> None:
    turns = plan(tree("b1/r1:3"), queue(wants("a", 2), wants("b", 2), wants("c", 1)))
    assert [(turn.position, turn.queued) for turn in turns.values()] == [(1, 3), (2, 3), (3, 3)]


def test_no_one_waits() -> None:
    assert plan(tree("b1/r1:3"), []) == {}


def test_a_step_works_out_one_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    solve = Space.solve
    monkeypatch.setattr(Space, "solve", lambda space, request: asked.append(request) or solve(space, request))
    jobs = queue(wants("a", 1), wants("b", 1), wants("c", 1))
    steps = filter(None, plan_steps(tree("b1/r1:3"), jobs))
    assert asked == []
    for number, job in enumerate(jobs, start=1):
        uid, turn = next(steps)
        assert (uid, turn.position, len(asked)) == (job.job_uid, number, number)
    assert list(steps) == []


RESERVATION = [
    pytest.param("b1/r1:4", [wants("a", 2), wants("b", 2)], {"a": 2, "b": 2}, id="all fit"),
    pytest.param(
        "b1/r1:4+2",
        [wants("big", 6), wants("small", 2)],
        {"big": "InsufficientNodes", "small": "BehindInQueue"},
        id="free nodes are kept for the one that came first",
    ),
    pytest.param(
        "b1/r1:3+1 b2/r1:2+2",
        [wants("big", 4, required="block"), wants("small", 2), wants("tiny", 1)],
        {"big": "TopologyUnsatisfied", "small": 2, "tiny": "BehindInQueue"},
        id="only its best domain is kept for it",
    ),
    pytest.param(
        " ".join(f"b{number // 4}/r{number}:7+1" for number in range(16)),
        [wants("segments", 8, segment_size=8), wants("small", 1), wants("large", 100)],
        {"segments": "TopologyUnsatisfied", "small": 1, "large": 100},
        id="one segment keeps one rack",
    ),
    pytest.param(
        "b1/r1:3+1 b2/r1:2+2 b3/r1:0+4",
        [wants("big", 4, required="block"), wants("big2", 4, required="block"), wants("small", 1)],
        {"big": "TopologyUnsatisfied", "big2": "InsufficientNodes", "small": "BehindInQueue"},
        id="each one that waits has its own",
    ),
    pytest.param(
        "b1/r1:1 b2/r1:2+2",
        [wants("big", 4, required="block"), wants("small", 1)],
        {"big": "InsufficientNodes", "small": 1},
        id="a domain that could never hold it is not kept",
    ),
    pytest.param(
        "b1/r1:4",
        [wants("huge", 5), wants("small", 4)],
        {"small": 4},
        id="one that can never fit is in nobody's way",
    ),
    pytest.param(
        "b1/r1:4",
        [wants("lost", 1, required="hall"), wants("small", 4)],
        {"lost": "UnknownTopologyLevel", "small": 4},
        id="nor is one with a level that is gone",
    ),
    pytest.param(
        "b1/r1:2+1",
        [wants("big", 3), wants("vip", 2, priority=1)],
        {"big": "InsufficientNodes", "vip": 2},
        id="a higher priority goes before a reservation",
    ),
    pytest.param(
        "b1/r1:2+1",
        [wants("big", 3), wants("hurt", 1, replacement=True, kept=("b1-r1-2",))],
        {"hurt": 1, "big": "InsufficientNodes"},
        id="so does a replacement",
    ),
    pytest.param(
        "b1/r1:0+3",
        [wants("big", 3), wants("small", 1)],
        {"big": "InsufficientNodes", "small": "InsufficientNodes"},
        id="nothing is free: not the queue's fault",
    ),
    pytest.param(
        "b1/r1:3+1",
        [wants("first", 3), wants("big", 4), wants("small", 1)],
        {"first": 3, "big": "InsufficientNodes", "small": "InsufficientNodes"},
        id="what is promised is not reserved",
    ),
]


@pytest.mark.parametrize(("fleet", "waiting", "expected"), RESERVATION)
def test_reservation(fleet: str, waiting: list[WaitingJob], expected: dict[str, int | str]) -> None:
    found = told(answers(tree(fleet), queue(*waiting)))
    assert {name: found[name] for name in expected} == expected
    assert all(isinstance(found[name], str) for name in found.keys() - expected.keys())


def test_smaller_jobs_go_ahead_on_nodes_that_the_first_cannot_use() -> None:
    nodes = [*(a_node(f"n{number}") for number in range(4)), debug_node("d0"), debug_node("d1")]
    fleet = a_fleet(nodes, holders={"n3": {"busy"}})
    found = answers(fleet, queue(wants("big", 4), wants("debug", 2, needs=ONLY_DEBUG), wants("small", 1)))
    assert told(found) == {"big": "InsufficientNodes", "debug": 2, "small": "BehindInQueue"}


@pytest.mark.parametrize(
    ("fleet", "waiting", "message"),
    [
        pytest.param(
            "b1/r1:4+2",
            [wants("big", 6), wants("small", 2)],
            "needs 2 nodes: 4 are free for it, but all of them are reserved for default/big, which is before it in "
            "the queue",
            id="for one",
        ),
        pytest.param(
            "b1/r1:3+1 b2/r1:2+2",
            [wants("big", 4, required="block"), wants("other", 4, required="block"), wants("small", 5)],
            "needs 5 nodes: 5 are free for it, but all of them are reserved for default/big (3) and default/other "
            "(2), which are before it in the queue",
            id="for two",
        ),
        pytest.param(
            "b1/r1:1+5",
            [
                wants("hurt", 2, replacement=True, kept=("b1-r1-5",)),
                wants("torn", 1, replacement=True, kept=("b1-r1-4",)),
            ],
            "needs 1 more node: 1 is free for it, but it is reserved for default/hurt, which is before it in the queue",
            id="a replacement",
        ),
        pytest.param(
            "b1/r1:3+1 b2/r1:2+2",
            [wants("big", 4, required="block"), wants("small", 3)],
            "needs 3 nodes: 5 are free for it, but 3 of them are reserved for default/big, which is before it in the "
            "queue",
            id="a part",
        ),
        pytest.param(
            "b1/r1:3+1 b2/r1:2+2",
            [wants("big", 4, required="block"), wants("small", 3, required="rack")],
            "needs 3 nodes: 3 are free for it in one rack, but all of them are reserved for default/big, which is "
            "before it in the queue",
            id="in one domain",
        ),
    ],
)
def test_who_is_before_it_is_named(fleet: str, waiting: list[WaitingJob], message: str) -> None:
    last = list(answers(tree(fleet), queue(*waiting)).values())[-1]
    assert isinstance(last, NotPlaced)
    assert (last.reason, last.message) == ("BehindInQueue", message)


SEVEN = tuple(f"b1-r1-{number}" for number in range(7))
A, B = {"namespace": "team-a"}, {"namespace": "team-b"}


@pytest.mark.parametrize(
    ("waiting", "held", "expected"),
    [
        pytest.param([wants("a", 8, **A)], {}, {"a": 8}, id="just at the limit"),
        pytest.param([wants("a", 4, **A)], {"team-a": 4}, {"a": 4}, id="what is held counts, just at the limit"),
        pytest.param([wants("a", 5, **A)], {"team-a": 4}, {"a": "NamespaceLimit"}, id="what is held counts"),
        pytest.param([wants("a", 7, spares=2, **A)], {}, {"a": "NamespaceLimit"}, id="spares count"),
        pytest.param([wants("b", 12, **B)], {"team-a": 8}, {"b": 12}, id="others have no limit"),
        pytest.param(
            [wants("a", 5, **A), wants("b", 5, **A)], {}, {"a": 5, "b": "NamespaceLimit"}, id="what is promised counts"
        ),
        pytest.param(
            [wants("a", 7, **A), wants("b", 12, **B)],
            {"team-a": 4},
            {"a": "NamespaceLimit", "b": 12},
            id="one over its limit reserves no nodes",
        ),
        pytest.param(
            [wants("a", 7, **A), wants("b", 4, **A)],
            {"team-a": 4},
            {"a": "NamespaceLimit", "b": "BehindInQueue"},
            id="but its part of the limit",
        ),
        pytest.param(
            [wants("a", 2, **A), wants("b", 4, **A), wants("c", 1, **A)],
            {"team-a": 4},
            {"a": 2, "b": "NamespaceLimit", "c": "BehindInQueue"},
            id="behind one that starts and one that waits",
        ),
        pytest.param(
            [wants("a", 9, **A), wants("b", 8, **A)],
            {},
            {"a": "NamespaceLimit", "b": 8},
            id="one larger than the limit keeps nothing",
        ),
        pytest.param(
            [wants("a", 13, **A), wants("b", 8, **A)],
            {},
            {"b": 8},
            id="nor does one larger than the fleet",
        ),
        pytest.param(
            [wants("hurt", 1, replacement=True, kept=SEVEN, **A), wants("b", 1, **A)],
            {"team-a": 8},
            {"hurt": 1, "b": "NamespaceLimit"},
            id="a gang counts with its size, so that its repair asks for nothing",
        ),
        pytest.param(
            [wants("hurt", 3, replacement=True, kept=SEVEN, **A)],
            {"team-a": 30},
            {"hurt": 3},
            id="a gang is repaired beyond a limit that was lowered",
        ),
        pytest.param(
            [wants("hurt", 1, replacement=True, kept=SEVEN, held=8, **A)],
            {"team-a": 8},
            {"hurt": "NamespaceLimit"},
            id="a gang holds no more than its size beyond the limit",
        ),
        pytest.param(
            [wants("hurt", 1, replacement=True, kept=SEVEN[:5], held=6, **A), wants("b", 2, **A)],
            {"team-a": 6},
            {"hurt": 1, "b": "NamespaceLimit"},
            id="nodes that a gang has left count beside those that it gets",
        ),
    ],
)
def test_limits(waiting: list[WaitingJob], held: dict[str, int], expected: dict[str, int | str]) -> None:
    found = told(answers(tree("b1/r1:12"), queue(*waiting), {"team-a": 8}, held))
    assert {name: found[name] for name in expected} == expected
    assert all(isinstance(found[name], str) for name in found.keys() - expected.keys())


def test_a_job_that_waits_for_nodes_keeps_its_part_of_the_limit() -> None:
    jobs = queue(wants("big", 6, required="block", **A), wants("small", 4, **A), wants("other", 3, **B))
    found = answers(tree("b1/r1:5+1 b2/r1:4"), jobs, {"team-a": 8}, {})
    assert told(found) == {"big": "TopologyUnsatisfied", "small": "BehindInQueue", "other": 3}
    small = found["small"]
    assert isinstance(small, NotPlaced)
    assert small.message == (
        "needs 4 nodes: namespace team-a holds 0 of the 8 that its limit allows, and 6 more are kept for "
        "team-a/big, which is before it in the queue"
    )


@pytest.mark.parametrize(
    ("waiting", "held", "message"),
    [
        pytest.param(
            [wants("a", 6, **A)], 4, "needs 6 nodes: namespace team-a holds 4 of the 8 that its limit allows", id="held"
        ),
        pytest.param(
            [wants("first", 3, **A), wants("a", 2, spares=1, **A)],
            4,
            "needs 3 nodes: namespace team-a holds 7 of the 8 that its limit allows",
            id="promised, spares",
        ),
        pytest.param(
            [wants("a", 9, **A)],
            4,
            "needs 9 nodes: namespace team-a may hold 8 at most, so it never fits",
            id="never",
        ),
        pytest.param(
            [wants("a", 1, replacement=True, kept=("b1-r1-0", "b1-r1-1"), held=3, **A)],
            8,
            "needs 1 more node: namespace team-a holds 8 of the 8 that its limit allows, and pods of the job on nodes "
            "that it has left have not ended",
            id="a replacement",
        ),
    ],
)
def test_words_of_a_limit(waiting: list[WaitingJob], held: int, message: str) -> None:
    last = list(answers(tree("b1/r1:12"), queue(*waiting), {"team-a": 8}, {"team-a": held}).values())[-1]
    assert isinstance(last, NotPlaced)
    assert (last.reason, last.message) == ("NamespaceLimit", message)


@pytest.mark.parametrize(("count", "fits"), [(12, True), (13, False)])
def test_whether_the_limit_alone_is_in_the_way_is_known(count: int, fits: bool) -> None:
    jobs = queue(wants("a", count, **A))
    answer = answers(tree("b1/r1:12+8"), jobs, {"team-a": 16}, {"team-a": 8})["a"]
    assert isinstance(answer, OverLimit)
    assert answer.fits is fits


def test_a_turn_is_a_value() -> None:
    jobs = queue(wants("a", 9), wants("b", 1))
    assert plan(tree("b1/r1:4"), jobs) == plan(tree("b1/r1:4"), reversed(jobs))
    assert isinstance(plan(tree("b1/r1:4"), jobs)["uid-of-b"], QueueDecision)
    assert jobs[0].created == at(0)


@pytest.mark.parametrize("kind", ["tolerations", "requests", "selectors"])
def test_no_step_looks_at_more_than_a_part_of_the_fleet(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    looks: list[str] = []
    look = NodeEvaluator.evaluate
    monkeypatch.setattr(NodeEvaluator, "evaluate", lambda eye, spot: looks.append(spot.node.name) or look(eye, spot))
    for module in (fleet_index, trees):
        monkeypatch.setattr(module, "PART", 10)
    jobs = [
        replace(job, request=replace(job.request, needs=own(kind, job.job_uid)))
        for job in queue(wants("a", 90), wants("b", 3))
    ]
    steps = plan_steps(tree("b1/r1:40 b1/r2:40"), jobs)
    turns, counts = {}, []
    while True:
        looks.clear()
        step = next(steps, ("", None))
        counts.append(len(looks))
        if step is not None and step[1] is None:
            break
        turns |= dict([step] if step else [])
    assert max(counts) == 10
    assert turns == plan(tree("b1/r1:40 b1/r2:40"), jobs)


def own(kind: str, name: str) -> Requirements:
    if kind == "requests":
        return Requirements(8, {}, {}, {"cpu": len(name)})
    spec = {"tolerations": [{"key": name}]}
    return Requirements(8, spec | ({"nodeSelector": {}} if kind == "selectors" else {}), {})


def test_workers_of_different_kinds_share_what_they_see_alike() -> None:
    fleet = tree("b1/r1:4 b1/r2:4")
    one, other = (Tree.up_to_date(fleet, own("tolerations", name)) for name in ("one", "other"))
    assert one is not other
    assert one.root is other.root
    fleet.occupy("gang", "x", frozenset({next(iter(fleet.nodes))}))
    other.follow()
    assert (one.root.free, other.root.free) == (8, 7)
    one.follow()
    assert one.root.free == 7


CLOSED = {"team-a": NotEnabled("NotEnabled", "namespace team-a is not enabled for training", remedy="label it")}


def test_in_a_namespace_that_is_not_enabled_no_job_starts_and_gangs_are_repaired() -> None:
    jobs = queue(
        wants("hurt", 1, replacement=True, kept=("b1-r1-0", "b1-r1-1"), **A),
        wants("a", 3, **A),
        wants("huge", 30, **A),
        wants("b", 7, **B),
    )
    found = answers(tree("b1/r1:8"), jobs, {"team-a": 0}, {"team-a": 3}, CLOSED)
    assert told(found) == {"hurt": 1, "a": "NotEnabled", "huge": "NotEnabled", "b": 7}, "and nothing is kept for it"


def test_a_turn_has_the_number_of_nodes_that_are_reserved_for_it() -> None:
    fleet = tree("b1/r1:2+2 b1/r2:1+3")
    jobs = queue(wants("rack", 4, required="rack"), wants("free", 1), wants("all", 8), wants("never", 99))
    turns = plan(fleet, jobs)
    assert {job.name: turns[job.job_uid].reserved for job in jobs} == {
        "default/rack": 2,
        "default/free": 0,
        "default/all": 0,
        "default/never": 0,
    }

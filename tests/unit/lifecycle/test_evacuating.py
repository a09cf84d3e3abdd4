"""By which stable reason a job leaves nodes: by what is known of them, never by what their names or messages happen to
say."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.lifecycle.builders import SETTINGS, Scene, a_job, at, running
from tests.unit.lifecycle.leaving import A_FEW, CORDON, Gang, those_move_that_can, world_of

from muster.api.gang import Evacuation, GangSpec
from muster.api.nodehealth import Evacuate, ExclusionCause
from muster.lifecycle import placing
from muster.lifecycle.evacuation_step import BeginEvacuation, EndEvacuation, next_step
from muster.lifecycle.plan import CommitGang, Plan
from muster.lifecycle.step import decide, with_status
from muster.record import evacuation
from muster.status.report import Announcement, State, StatusReport
from muster.world.fleet import Exclusion, Removal
from muster.world.job import JobWorld
from muster.world.views import FRESH_SECONDS

MAINTENANCE = Exclusion(
    "MaintenanceAhead", "", Evacuate.AFTER_CHECKPOINT, waiting_text="kept free", cause=ExclusionCause.MAINTENANCE
)
REMOVAL = Exclusion(
    "NodeDeleted",
    "",
    Evacuate.AFTER_CHECKPOINT,
    waiting_text="going",
    removal=Removal("x"),
    cause=ExclusionCause.REMOVAL,
)
SPOT = replace(REMOVAL, removal=Removal("x", at(9000), final=True), gone_by=at(9000))
# The condition is another system's, which chooses its name.
DEGRADED = Exclusion("UnderMaintenance", "this fleet's maintenance found it", Evacuate.AFTER_CHECKPOINT)


def reason(avoided: Sequence[str] = (), **excluded: Exclusion | None) -> str:
    """The reason of the leave that begins when n0 to n2 are excluded so; None: the node is cordoned."""
    scene = Scene(a_job(placement={"avoidNodes": avoided})).fleet(6).gang().pods().all(running(1, step=7))
    for name, exclusion in excluded.items():
        if exclusion is None:
            scene.node(name, unschedulable=True)
    world = scene.world()
    for name, exclusion in excluded.items():
        if exclusion is not None:
            world.fleet.exclude(name, exclusion)
    assert world.gang is not None
    step = next_step(world, world.gang.spec)
    assert isinstance(step, BeginEvacuation)
    return step.reason


@pytest.mark.parametrize(
    ("excluded", "expected"),
    [
        ({"n1": MAINTENANCE}, "NodeMaintenance"),
        ({"n1": REMOVAL}, "NodeRemoval"),
        ({"n1": DEGRADED}, "NodeDegraded"),
        ({"n1": None}, "NodeCordoned"),
        ({"n0": None, "n1": MAINTENANCE}, "NodeMaintenance"),
        ({"n0": MAINTENANCE, "n1": REMOVAL}, "NodeRemoval"),
        ({"n0": MAINTENANCE, "n1": REMOVAL, "n2": DEGRADED}, "NodeDegraded"),
    ],
)
def test_the_reason_is_that_of_the_gravest_mark(excluded: dict[str, Exclusion | None], expected: str) -> None:
    assert reason(**excluded) == expected
    assert reason(["n2"], **excluded) == expected


def test_what_the_job_alone_avoids_is_left_last() -> None:
    assert reason(["n1"]) == "NodeAvoided"


@pytest.mark.parametrize("gang", A_FEW.values(), ids=A_FEW)
def test_of_several_nodes_those_are_left_that_can_be(gang: Gang) -> None:
    those_move_that_can(gang)


def left(cordoned: Sequence[str], nodes: int, **excluded: Exclusion) -> tuple[list[str], list[Announcement]]:
    """The nodes that a gang on n0 to n2 begins to leave, and its Events, in a fleet of so many nodes."""
    scene = Scene(a_job()).fleet(nodes).gang().pods().all(running(1, step=7))
    for name in cordoned:
        scene.node(name, unschedulable=True)
    world = scene.world()
    for name, exclusion in excluded.items():
        world.fleet.exclude(name, exclusion)
    assert world.gang is not None
    step = next_step(world, world.gang.spec)
    leaves = sorted(step.why) if isinstance(step, BeginEvacuation) else []
    return leaves, list(decide(world, SETTINGS).announcements)


def test_the_degraded_node_is_left_before_the_cordoned_one_and_what_stays_is_said() -> None:
    leaves, events = left(["n0"], 4, n2=DEGRADED)
    assert leaves == ["n2"]
    (event,) = events
    assert event.reason == "EvacuationPlanned"
    assert event.note.startswith("n2 is degraded (UnderMaintenance).")
    assert event.note.endswith(" It stays on n0 until other suitable nodes are free.")


@pytest.mark.parametrize(
    ("cordoned", "excluded", "named"),
    [
        (["n1"], {}, "n1 (NodeCordoned)"),
        ([], {"n1": DEGRADED}, "n1 (NodeDegraded)"),
        ([], {"n1": MAINTENANCE}, "n1 (NodeMaintenance)"),
        ([], {"n1": REMOVAL}, "n1 (NodeRemoval)"),
        ([], {"n1": SPOT}, "n1 (NodeRemoval)"),
        (["n0"], {"n2": DEGRADED}, "n0 (NodeCordoned), n2 (NodeDegraded)"),
    ],
)
def test_where_no_node_can_be_left_that_is_said_from_the_start(
    cordoned: list[str], excluded: dict[str, Exclusion], named: str
) -> None:
    leaves, events = left(cordoned, 3, **excluded)
    assert leaves == []
    assert [(each.reason, each.warning) for each in events] == [("NoNodeToMoveTo", True)]
    assert events[0].note.startswith(f"The job should leave {named}, but no other suitable node is free. ")
    assert "NoNodeToMoveTo" not in [each.reason for each in left(cordoned, 5, **excluded)[1]]


@pytest.mark.parametrize(
    ("spec", "because"),
    [
        ({"launch": {"mode": "Plain"}, "checkpoint": {}}, "launch.mode is Plain"),
        ({"checkpoint": {}}, "spec.checkpoint.directory is not set"),
    ],
)
@pytest.mark.parametrize("suspends", [False, True])
def test_where_no_checkpoint_is_seen_none_is_promised(spec: dict[str, Any], because: str, suspends: bool) -> None:
    scene = Scene(a_job(suspend=suspends, **spec)).fleet(6).node("n1", unschedulable=True).gang().pods()
    if "launch" not in spec:
        scene.all(running(1, step=7))
    (planned,) = decide(scene.world(), SETTINGS).announcements
    assert planned.reason == "EvacuationPlanned"
    assert planned.note.endswith(f". The job stops at once, without waiting for a checkpoint: {because}.")
    reason, nodes = ("Suspended", []) if suspends else ("NodeCordoned", ["n1"])
    begun = Evacuation(reason=reason, nodes=nodes, since=at(99), deadline=at(399))
    assert scene.record is not None
    scene.record = scene.record.model_copy(update={"evacuation": begun})
    shown = with_status(scene.world(), Plan(status_report=StatusReport(State.TRAINING))).status
    assert shown is not None
    (message,) = (condition.message for condition in shown.conditions if condition.type == "Running")
    left = ", ".join(nodes) or "all nodes"
    assert message == f"The job leaves {left} at once, without waiting for a checkpoint: {because}."
    (ended,) = decide(scene.world(), SETTINGS).announcements
    assert not ended.warning
    if suspends:
        assert ended.note == f"stopped without waiting for a checkpoint ({because}); its nodes are free"
    else:
        assert ended.reason == "NodeEvacuated"


@pytest.mark.parametrize("name", ["maintenance-1", "n1-is-degraded"])
def test_a_cordoned_node_is_cordoned_whatever_its_name(name: str) -> None:
    scene = Scene(a_job()).fleet(6).gang().node(name, unschedulable=True)
    assert scene.record is not None
    first, *others = scene.record.members
    scene.record = scene.record.model_copy(update={"members": [first.model_copy(update={"node": name}), *others]})
    world = scene.pods().all(running(1, step=7)).world()
    assert world.gang is not None
    step = next_step(world, world.gang.spec)
    assert isinstance(step, BeginEvacuation)
    assert (step.reason, step.why) == ("NodeCordoned", {name: f"{name} is cordoned"})


@pytest.mark.parametrize("has_begun", [True, False], ids=["pending", "stops-for-maintenance"])
def test_an_evacuation_without_a_place_is_solved_once_for_each_decision(
    monkeypatch: pytest.MonkeyPatch, has_begun: bool
) -> None:
    asked: list[frozenset[int]] = []
    are_replaceable = placing.are_replaceable

    def counted(world: JobWorld, record: GangSpec, indices: Collection[int]) -> bool:
        asked.append(frozenset(indices))
        return are_replaceable(world, record, indices)

    monkeypatch.setattr(placing, "are_replaceable", counted)
    begun = Evacuation(reason="NodeMaintenance", nodes=["n1"], since=at(0), deadline=at(300))
    scene = Scene(a_job(), seconds=200.0).fleet(3).gang(evacuation=begun if has_begun else None)
    world = scene.pods().all(running(1, step=7)).world()
    world.fleet.exclude("n1", MAINTENANCE if has_begun else replace(MAINTENANCE, gone_by=at(500)))
    plan = decide(world, SETTINGS)
    if has_begun:
        assert plan.status is not None
        assert plan.status.reason == "NoNodeToMoveTo"
    else:
        assert [each.reason for each in plan.announcements] == ["EvacuationPlanned"]
    assert asked == [{1}]


@pytest.mark.parametrize(
    ("seconds", "newest", "leader_age", "is_over"),
    [(200, 6, 60.0, False), (200, 7, 60.0, True), (300, 6, 60.0, True), (300, 7, 1.0, False)],
    ids=["waits", "saved", "out-of-time", "unheard"],
)
def test_an_evacuation_without_a_place_ends(seconds: float, newest: int, leader_age: float, is_over: bool) -> None:
    """Silently: the status says from the start that there is no place."""
    begun = Evacuation(reason="NodeMaintenance", nodes=["n1"], since=at(0), deadline=at(300), after_step=6)
    scene = Scene(a_job(), seconds=seconds).fleet(3).gang(evacuation=begun).pods().but(leader_age_seconds=leader_age)
    scene.all(running(1, step=7, checkpoints=[(newest, f"/checkpoints/{newest}")]))
    if leader_age < FRESH_SECONDS:
        scene.launchers.popitem()
    world = scene.world()
    world.fleet.exclude("n1", MAINTENANCE)
    plan = decide(world, SETTINGS)
    records = [action.spec.evacuation for action in plan.actions if isinstance(action, CommitGang)]
    assert (records, list(plan.announcements)) == ([None], []) if is_over else not records


@pytest.mark.parametrize(("gone_by", "seconds"), [(400, 340), (-10, 300)])
def test_a_save_is_awaited_until_a_minute_before_a_window(gone_by: float, seconds: float) -> None:
    """A job that learns of the window late has five minutes."""
    begun = Evacuation(reason="NodeMaintenance", nodes=["n1"], since=at(0), deadline=at(4000))
    job = a_job(checkpoint={"directory": "/checkpoints", "saveTimeoutSeconds": 4000})
    for now, is_over in ((seconds - 1, False), (seconds, True)):
        scene = Scene(job, seconds=now).fleet(6).gang(evacuation=begun)
        world = scene.pods().all(running(1, step=7)).world()
        world.fleet.exclude("n1", replace(MAINTENANCE, gone_by=at(gone_by)))
        assert world.gang is not None
        step = next_step(world, world.gang.spec)
        assert isinstance(step, EndEvacuation) is is_over


def test_a_gang_of_many_segments_that_all_have_to_leave_has_bounded_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 4 * placing.MOST_TRIES
    world = world_of(Gang(("r0",) * count, (CORDON,) * count, Counter(), size=2))
    assert world.gang is not None
    tries: list[Collection[int]] = []
    asked = placing.are_replaceable

    def counted(world: JobWorld, record: GangSpec, indices: Collection[int]) -> bool:
        tries.append(indices)
        return asked(world, record, indices)

    monkeypatch.setattr(placing, "are_replaceable", counted)
    assert placing.movable_indices(world, world.gang.spec, (), range(count)) == set()
    assert len(tries) <= 1 + 2 * placing.MOST_TRIES


def test_the_deadline_stays_while_places_come_and_go() -> None:
    """The degraded node's place is taken and free again by turns; the cordoned one has a place all the time."""
    deadlines, record = [], None
    for look in range(6):
        free = Counter({"r0": look % 2, "r1": 1})
        world = world_of(Gang(("r0", "r0", "r1", "r1"), ("degraded", "", CORDON, ""), free, size=2))
        assert world.gang is not None
        spec = world.gang.spec.model_copy(update={"evacuation": record})
        world = replace(world, now=world.now + timedelta(seconds=40 * look))
        step = next_step(world, spec)
        if isinstance(step, BeginEvacuation):
            begun = evacuation.with_evacuation_begun(world, spec, step.reason, sorted(step.why), step.saves_until)
            record = begun.evacuation
        assert record is not None
        deadlines.append(record.deadline)
    assert len(set(deadlines)) == 1

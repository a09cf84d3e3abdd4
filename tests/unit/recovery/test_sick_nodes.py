"""A crash on a node that is known to be sick costs the user nothing, whatever the breaker or another system makes of
the node."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.lifecycle.builders import SETTINGS, Scene, a_job, an_incident, at, failed, idle, running

from muster.api.gang import FaultClass, GangSpec, Level
from muster.api.nodehealth import Evacuate
from muster.lifecycle import placing
from muster.lifecycle.plan import BindPod, CommitGang, CreatePod, DeletePod
from muster.lifecycle.step import decide
from muster.record import incidents
from muster.recovery import blame, budgets
from muster.recovery.failure import Kind
from muster.recovery.failures import find
from muster.recovery.followed import failures_that_followed
from muster.world.fleet import Exclusion, Fleet, Suspicion
from muster.world.job import JobWorld

HARDWARE, APPLICATION, UNKNOWN = FaultClass.HARDWARE, FaultClass.APPLICATION, FaultClass.UNKNOWN
XID = "Xid79: the GPU has fallen off the bus"

HELD = Exclusion("Xid79", "held by the breaker", Evacuate.NO)
LAST = Exclusion("Xid79", "held by the breaker", Evacuate.NO, last_choice=True)
YIELDED = Exclusion("Maintenance", "left to nvsentinel", Evacuate.AFTER_CHECKPOINT)
DEGRADED = Exclusion("Xid94", "contained", Evacuate.AFTER_CHECKPOINT)
OBSERVED = None  # the policy only observes: nothing keeps workers away
RULINGS = [
    pytest.param(HELD, id="held"),
    pytest.param(LAST, id="held, and the last choice for others"),
    pytest.param(YIELDED, id="yielded"),
    pytest.param(DEGRADED, id="degraded"),
    pytest.param(OBSERVED, id="observed"),
]
PLAIN = {"launch": {"mode": "Plain"}, "checkpoint": {}}


def sick(world: JobWorld, *nodes: str, exclusion: Exclusion | None = HELD, node_fault: str = XID) -> JobWorld:
    for node in nodes:
        world.fleet.exclude(node, exclusion)
        world.fleet.set_node_fault(node, node_fault)
    return world


def training(nodes: int = 3, free: int = 0, **spec: Any) -> Scene:
    return Scene(a_job(nodes=nodes, **spec)).fleet(nodes + free).gang().pods().all(running(1, 7))


def committed(world: JobWorld) -> GangSpec:
    (action,) = decide(world, SETTINGS).actions
    assert isinstance(action, CommitGang)
    return action.spec


def places(record: GangSpec) -> list[str]:
    return [member.node for member in record.members]


def charged(record: GangSpec) -> tuple[int, int]:
    """To the application, to the hardware."""
    later = record.time
    return budgets.application_restarts(record, later), budgets.hardware_restarts(record, later)


@pytest.mark.parametrize("exclusion", RULINGS)
class TestACrashedRank:
    def test_moves_if_a_node_is_free(self, exclusion: Exclusion | None) -> None:
        record = committed(sick(training(free=1).launcher(1, failed(1)).world(), "n1", exclusion=exclusion))
        assert (record.level, places(record)) == (Level.REPLACE, ["n0", "n3", "n2"])
        assert charged(record) == (0, 1)

    def test_restarts_there_if_none_is(self, exclusion: Exclusion | None) -> None:
        record = committed(sick(training().launcher(1, failed(1)).world(), "n1", exclusion=exclusion))
        assert (record.level, places(record)) == (Level.IN_PLACE, ["n0", "n1", "n2"])
        assert [member.incarnation for member in record.members] == [1, 1, 1]
        assert "n1" not in record.excluded_nodes
        assert charged(record) == (0, 1)

    def test_restarts_there_if_the_others_are_sick_too(self, exclusion: Exclusion | None) -> None:
        everybody = ["n0", "n1", "n2", "n3", "n4"]
        world = sick(training(free=2).launcher(1, failed(1)).world(), *everybody, exclusion=exclusion)
        record = committed(world)
        assert record.level is (Level.REPLACE if exclusion is None else Level.IN_PLACE)
        assert charged(record) == (0, 1)

    def test_a_job_that_crashes_there_again_and_again_never_ends_by_it(self, exclusion: Exclusion | None) -> None:
        here = training(recovery={"applicationRestartsPerDay": 2})
        for attempt in range(1, 7):
            here.all(running(attempt, 7)).launcher(1, failed(attempt))
            assert here.record is not None
            here.record = committed(sick(here.world(), "n1", exclusion=exclusion))
            assert charged(here.record) == (0, attempt)
            assert here.record.hold_until is None, "no crash loop of the program's"
            go = training().record
            assert go is not None
            here.record = here.record.model_copy(update={"start": go.start})
            assert here.record.attempt == attempt + 1


@pytest.mark.parametrize("exclusion", RULINGS)
class TestAPodThatEnds:
    """With it goes what trained there: another pod, on another node if there is one."""

    def test_moves_if_a_node_is_free(self, exclusion: Exclusion | None) -> None:
        record = committed(sick(training(free=1).ended(1).world(), "n1", exclusion=exclusion))
        assert (record.level, places(record)) == (Level.REPLACE, ["n0", "n3", "n2"])
        assert charged(record) == (0, 1)

    def test_has_another_one_there_if_none_is(self, exclusion: Exclusion | None) -> None:
        record = committed(sick(training().ended(1).world(), "n1", exclusion=exclusion))
        assert (record.level, places(record)) == (Level.POD, ["n0", "n1", "n2"])
        assert [member.incarnation for member in record.members] == [1, 2, 1]
        assert charged(record) == (0, 1)

    def test_in_mode_plain_the_whole_gang_starts_anew_where_it_is(self, exclusion: Exclusion | None) -> None:
        record = committed(sick(training(**PLAIN).ended(1).world(), "n0", "n1", "n2", exclusion=exclusion))
        assert (record.level, places(record)) == (Level.REBUILD, ["n0", "n1", "n2"])
        assert [member.incarnation for member in record.members] == [2, 2, 2]
        assert charged(record) == (0, 1)

    def test_in_mode_plain_without_the_sick_node_if_it_can(self, exclusion: Exclusion | None) -> None:
        record = committed(sick(training(free=1, **PLAIN).ended(1).world(), "n1", exclusion=exclusion))
        assert sorted(places(record)) == ["n0", "n2", "n3"]


class TestAllNodesAreHeld:
    @pytest.mark.parametrize("free", [0, 2])
    def test_a_pod_that_used_up_its_memory_keeps_its_node(self, free: int) -> None:
        here = training(free=free).ended(1, "OOMKilled", 137)
        record = committed(sick(here.world(), *here.nodes))
        assert (record.level, places(record)) == (Level.POD, ["n0", "n1", "n2"])
        assert [member.incarnation for member in record.members] == [1, 2, 1]

    def test_that_is_the_programs_own_doing(self) -> None:
        here = training().ended(1, "OOMKilled", 137)
        assert charged(committed(sick(here.world(), *here.nodes))) == (1, 0)

    def test_its_next_pod_is_made_and_bound_there(self) -> None:
        here = training().ended(1, "OOMKilled", 137)
        here.record = committed(sick(here.world(), *here.nodes))
        plan = decide(sick(here.world(), *here.nodes), SETTINGS)
        (created,) = (action for action in plan.actions if isinstance(action, CreatePod))
        assert "n1" in str(created.manifest["spec"])
        assert not any(isinstance(action, BindPod) for action in plan.actions)

    def test_a_pod_that_waits_there_is_not_shut_out(self) -> None:
        here = training().ended(1, "OOMKilled", 137)
        here.record = committed(sick(here.world(), *here.nodes))
        here.seconds += 30.0
        here.all(idle(2)).pod(1, 2, phase="Pending", node="", containers=(), created=at(here.seconds - 10.0))
        here.record = committed(sick(here.world(), *here.nodes))  # the blame for the incident is final
        plan = decide(sick(here.world(), *here.nodes), SETTINGS)
        assert not any(isinstance(action, CommitGang) for action in plan.actions)
        assert places(here.record) == ["n0", "n1", "n2"]

    def test_nobody_leaves(self) -> None:
        here = training(free=2)
        actions = decide(sick(here.world(), *here.nodes), SETTINGS).actions
        assert not any(isinstance(action, CommitGang | DeletePod) for action in actions)

    def test_a_node_that_has_to_be_left_at_once_is_left_nevertheless(self) -> None:
        here = training().ended(1, "OOMKilled", 137)
        world = sick(here.world(), *here.nodes)
        world.fleet.exclude("n1", replace(HELD, evacuate=Evacuate.NOW))
        assert places(committed(world)) == ["n0", "", "n2"]

    def test_a_cordoned_one_takes_no_pod(self) -> None:
        here = training().node("n1", unschedulable=True).ended(1, "OOMKilled", 137)
        assert places(committed(sick(here.world(), *here.nodes))) == ["n0", "", "n2"]

    def test_in_mode_plain_nodes_are_given_back_where_one_takes_no_pod(self) -> None:
        here = training(**PLAIN).node("n1", ready=False).ended(0)
        assert places(committed(sick(here.world(), *here.nodes))) == ["", "", ""]


class TestWithFewerFreeNodesThanAreSick:
    @pytest.mark.parametrize("free", range(5))
    def test_as_many_move_as_can(self, free: int) -> None:
        here = training(nodes=4, free=free)
        for index in range(4):
            here.launcher(index, failed(1, rank=index, age=1.0 - 0.3 * index))
        record = committed(sick(here.world(), "n0", "n1", "n2", "n3"))
        stay = [node for node in places(record) if node in ("n0", "n1", "n2", "n3")]
        assert len(stay) == 4 - min(free, 4)
        assert all(places(record))
        assert not free or places(record)[0] not in stay, "the culprit goes first"


class TestOthers:
    def test_a_warning_makes_no_crash_hardware(self) -> None:
        """A node that is Suspect has no node fault: `muster.health.verdict.node_fault`."""
        record = committed(training().launcher(1, failed(1)).world())
        assert charged(record) == (1, 0)

    def test_another_nodes_fault_makes_none_either(self) -> None:
        record = committed(sick(training().launcher(1, failed(1)).world(), "n0"))
        assert charged(record) == (1, 0)

    @pytest.mark.parametrize("step", [None, 7], ids=["before the first step", "later"])
    def test_who_hangs_with_a_sick_node_does_not_pay(self, step: int | None) -> None:
        limits = {"stepTimeoutSeconds": 60, "startTimeoutSeconds": 60}
        ages = {"started_age_seconds": 900.0, "step_age_seconds": None if step is None else 900.0}
        here = training(free=1, progress=limits).all(running(1, step, **ages))
        healthy = find(here.world())
        assert {blame.fault_class(failure) for failure in healthy} == {UNKNOWN}
        record = committed(sick(here.world(), "n1"))
        assert places(record) == ["n0", "n3", "n2"]
        assert charged(record) == (0, 1)

    def test_a_hang_of_an_unknown_rank_names_no_node_and_no_worker(self) -> None:
        here = training(free=1, progress={"stepTimeoutSeconds": 60}).all(running(1, 7, step_age_seconds=900.0))
        world = here.world()
        world.fleet.set_suspicion("n1", Suspicion(at(0)))
        record = committed(world)
        (incident,) = record.incidents
        assert (incident.node, incident.index, incident.reason) == ("", None, Kind.HANG)
        assert places(record) == ["n0", "n1", "n2"]
        assert "n0" not in incident.message
        assert "jobs failed on this node" not in incident.message
        assert "more workers" not in incident.message
        settled = record.model_copy(update={"incidents": [incident.model_copy(update={"settled": True})]})
        here.record = settled
        gang = here.world().gang
        assert gang is not None
        assert failures_that_followed(gang) == ("", ())

    def test_a_rank_that_cannot_be_killed_there_does_not_pay(self) -> None:
        here = training().gang(2, go=False, time=at(-3600.0)).pods().all(running(1))
        (failure, *_) = find(sick(here.world(), "n0", "n1", "n2"))
        assert (failure.kind, blame.fault_class(failure)) == (Kind.RECLAIM_SLOW, HARDWARE)


class TestANodeThatFailuresOfJobsHaveFollowed:
    """Weak words: the worker goes elsewhere if it can, and its job pays as it would have."""

    def suspected(self, here: Scene, doubt: Suspicion = Suspicion(at(0))) -> GangSpec:  # noqa: B008 - it is frozen
        world = here.world()
        world.fleet.set_suspicion("n1", doubt)
        return committed(world)

    def test_a_crashed_rank_moves_if_a_node_is_free(self) -> None:
        record = self.suspected(training(free=1).launcher(1, failed(1)))
        assert (record.level, places(record), charged(record)) == (Level.REPLACE, ["n0", "n3", "n2"], (1, 0))
        assert "n1" in record.excluded_nodes
        words = "; jobs failed on this node before: the worker moves to another node if one is free; its last lines: "
        assert words in record.incidents[-1].message

    @pytest.mark.parametrize(
        ("code", "step", "moves"),
        [(127, None, False), (126, 9, False), (2, None, False), (2, 9, True), (1, None, True), (1, 9, True)],
    )
    def test_a_program_that_cannot_start_there_stays(self, code: int, step: int | None, moves: bool) -> None:
        record = self.suspected(training(free=1).launcher(1, failed(1, code=code, step=step)))
        assert (record.level is Level.REPLACE) is moves
        assert ("jobs failed on this node before" in record.incidents[-1].message) is moves

    def test_it_restarts_there_if_none_is(self) -> None:
        record = self.suspected(training().launcher(1, failed(1)))
        assert (record.level, places(record), charged(record)) == (Level.IN_PLACE, ["n0", "n1", "n2"], (1, 0))
        assert [member.incarnation for member in record.members] == [1, 1, 1]
        assert "n1" not in record.excluded_nodes

    def test_a_pod_that_has_ended_has_another_one_there_if_none_is(self) -> None:
        record = self.suspected(training().ended(1))
        assert (record.level, places(record)) == (Level.POD, ["n0", "n1", "n2"])
        assert [member.incarnation for member in record.members] == [1, 2, 1]

    def test_another_suspicion_moves_nobody(self) -> None:
        record = self.suspected(training(free=1).launcher(1, failed(1)), Suspicion())
        assert (record.level, places(record)) == (Level.IN_PLACE, ["n0", "n1", "n2"])

    def test_memory_that_is_used_up_is_not_its_doing(self) -> None:
        record = self.suspected(training(free=1).ended(1, "OOMKilled", 137))
        assert places(record) == ["n0", "n1", "n2"]

    def test_who_crashes_beside_it_stays(self) -> None:
        record = self.suspected(training(free=1).launcher(2, failed(1)))
        assert (record.level, places(record)) == (Level.IN_PLACE, ["n0", "n1", "n2"])


class TestANodeThatIsFoundSickAMomentLater:
    """The rank's exit is seen at once; the driver's word takes a second."""

    def settled(self, here: Scene, **changes: Any) -> GangSpec:
        incident = an_incident(1, node="n1", index=1, rank=0, exit_code=1, time=at(90.0), **changes)
        here.gang(2, incidents=[incident]).pods().all(running(2, 7))
        here.launcher(1, replace(running(2, 7), previous_attempt=1, previous_ranks=failed(1).ranks))
        world = sick(here.world(), "n1")
        assert world.gang is not None
        return incidents.with_incidents_settled(world, world.gang)

    @pytest.mark.parametrize("kind", [Kind.RANK_FAILED, Kind.POD_ENDED, Kind.HANG])
    def test_pays_for_the_crash(self, kind: Kind) -> None:
        record = self.settled(training(), reason=kind)
        assert charged(record) == (0, 1)
        assert "its node is unhealthy: Xid79" in record.incidents[-1].message

    def test_pays_for_a_hang_of_an_unknown_rank(self) -> None:
        here = training()
        incident = an_incident(1, node="", index=None, reason=Kind.HANG, time=at(90.0))
        here.gang(2, incidents=[incident]).pods().all(running(2, 7))
        world = sick(here.world(), "n1")
        assert world.gang is not None
        found = incidents.with_incidents_settled(world, world.gang).incidents[-1]
        assert (found.fault_class, found.node) == (HARDWARE, "n1")
        assert "(node n1 is unhealthy: Xid79" in found.message

    def test_but_not_for_memory_that_was_used_up(self) -> None:
        assert charged(self.settled(training(), reason=Kind.OUT_OF_MEMORY)) == (1, 0)

    def test_nor_for_what_happened_on_another(self) -> None:
        here = training()
        incident = an_incident(1, node="n0", index=0, rank=0, exit_code=1, time=at(90.0))
        here.gang(2, incidents=[incident]).pods().all(running(2, 7))
        world = sick(here.world(), "n1")
        assert world.gang is not None
        assert charged(incidents.with_incidents_settled(world, world.gang)) == (1, 0)


def test_a_large_gang_whose_nodes_are_all_sick_is_decided_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """How many of them fit elsewhere is found by halving, not one by one."""

    asked: list[int] = []
    solve = placing.solve

    def counted(fleet: Fleet, request: Any) -> Any:
        asked.append(request.count)
        return solve(fleet, request)

    monkeypatch.setattr(placing, "solve", counted)
    here = training(nodes=64, free=20)
    for index in range(64):
        here.launcher(index, failed(1, rank=index))
    record = committed(sick(here.world(), *(f"n{index}" for index in range(64))))
    assert sum(node >= "n64" and len(node) == 3 for node in places(record)) == 20
    assert len(asked) <= 20

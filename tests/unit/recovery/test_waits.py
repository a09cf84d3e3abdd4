"""No wait is endless: what keeps a gang waiting has a deadline and a next step. And what hides behind a pod that still runs."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.lifecycle.builders import SETTINGS, Scene, a_job, an_incident, at, failed, idle, running

from muster.api.gang import FaultClass, GangSpec, Level
from muster.lifecycle.plan import CommitGang, DeletePod
from muster.lifecycle.step import decide
from muster.recovery import blame
from muster.recovery.failures import Failure, Kind, find
from muster.world.views import ContainerView


def one(here: Scene) -> Failure:
    (failure,) = find(here.world())
    return failure


def waiting(**changes: Any) -> Scene:
    """Attempt 2 has waited for its start for an hour."""
    return Scene(a_job(), seconds=4000.0).fleet().gang(2, go=False, time=at(400.0), **changes).pods().all(idle(2))


class TestALauncherThatWasNeverHeard:
    def here(self, seconds: float) -> Scene:
        here = waiting()
        del here.launchers[here.uid(1)]
        begun = ContainerView("main", running=True, started=at(4000.0 - seconds))
        return here.pod(1, containers=(begun,))

    def test_costs_its_pod_two_minutes_after_its_container_began(self) -> None:
        assert find(self.here(119.0).world()) == []
        failure = one(self.here(120.0))
        assert (failure.kind, failure.level, failure.index) == (Kind.LAUNCHER_SILENT, Level.POD, 1)

    def test_and_then_its_node(self) -> None:
        here = self.here(120.0)
        assert here.record is not None
        before = an_incident(2, reason="LauncherSilent", node="n1")
        here.record = here.record.model_copy(update={"incidents": [before]})
        assert one(here).level is Level.REPLACE

    def test_but_nobody_is_blamed_while_no_other_is_heard(self) -> None:
        here = self.here(3600.0)
        here.launchers.clear()
        assert find(here.world()) == []


class TestASupervisorThatIsStuck:
    """Its other threads go on reporting."""

    @pytest.mark.parametrize(("seconds", "stuck"), [(44.0, False), (50.0, True)])
    def test_before_the_start(self, seconds: float, stuck: bool) -> None:
        here = waiting().launcher(1, idle(2, loop_age_seconds=seconds))
        assert [f.kind for f in find(here.world())] == ([Kind.LAUNCHER_STUCK] if stuck else [])

    def test_after_the_go(self) -> None:
        """It has its go, does not start, and others have."""
        here = Scene(a_job(), seconds=4000.0).fleet().gang().pods().all(running(1))
        assert here.record is not None
        assert here.record.go is not None
        here.launcher(1, idle(0))
        begun = here.record.go
        here.record = here.record.model_copy(update={"go": begun.model_copy(update={"time": at(4000.0 - 119.0)})})
        assert find(here.world()) == []
        here.record = here.record.model_copy(update={"go": begun.model_copy(update={"time": at(4000.0 - 121.0)})})
        assert (one(here).kind, one(here).index) == (Kind.LAUNCHER_STUCK, 1)


class TestAListingThatFails:
    def test_on_one_worker_costs_its_pod(self) -> None:
        here = waiting().launcher(1, idle(2, scanned=False, checkpoint_error="stalled for 60 s"))
        assert (one(here).kind, one(here).level) == (Kind.LISTING_STUCK, Level.POD)
        assert "stalled for 60 s" in one(here).message

    def test_everywhere_is_the_storage(self) -> None:
        here = waiting().all(idle(2, scanned=False, checkpoint_error="stalled for 60 s"))
        assert find(here.world()) == []


class TestASidecar:
    """The pod still runs: what counts is the container that trains."""

    SIDE = ContainerView("proxy", running=True)

    def after(self, code: int, **spec: Any) -> Scene:
        here = Scene(a_job(**spec)).fleet().gang().pods().all(running(1, 7))
        end = ContainerView("main", terminated=True, exit_code=code, terminated_reason="Error" if code else "Completed")
        return here.pod(1, containers=(end, self.SIDE))

    def test_does_not_hide_a_death(self) -> None:
        failure = one(self.after(137))
        assert (failure.kind, failure.index, failure.exit_code) == (Kind.POD_ENDED, 1, 137)

    def test_also_not_in_mode_plain(self) -> None:
        assert one(self.after(3, launch={"mode": "Plain"}, checkpoint={})).kind is Kind.POD_ENDED

    def test_does_not_hide_the_end(self) -> None:
        here = self.after(0, launch={"mode": "Plain"}, checkpoint={})
        end = here.pod_views[here.world().names[1]].containers
        here.pod_views = {name: replace(pod, containers=end) for name, pod in here.pod_views.items()}
        plan = decide(here.world(), SETTINGS)
        assert plan.status is not None
        assert plan.status.state == "Succeeded"
        here.job = here.job.model_copy(update={"status": plan.status})
        assert decide(here.world(), SETTINGS).actions == (), "their logs are kept while they end by themselves"
        here.seconds += 31.0
        ended = decide(here.world(), SETTINGS).actions
        assert [type(action) for action in ended] == [DeletePod] * 3

    def test_the_container_that_trains_may_be_named(self) -> None:
        spec = {"launch": {"workerContainer": "trainer"}}
        here = Scene(a_job(**spec)).fleet().gang().pods().all(running(1, 7))
        side = ContainerView("main", terminated=True, exit_code=1, terminated_reason="Error")
        here.pod(1, containers=(side, ContainerView("trainer", running=True)))
        assert find(here.world()) == []


class TestARankOnASickNode:
    """The node is held by the breaker, degraded, or left to others: its crash is not the program's."""

    def record(self, free: int = 1) -> GangSpec:
        here = Scene(a_job()).fleet(3 + free).gang().pods().all(running(1, 7)).launcher(1, failed(1))
        world = here.world()
        world.fleet.ail("n1", "XID 79 (held by the breaker)")
        (action,) = decide(world, SETTINGS).actions
        assert isinstance(action, CommitGang)
        return action.spec

    def test_is_hardware_and_moves(self) -> None:
        record = self.record()
        assert (record.level, record.members[1].node) == (Level.REPLACE, "n3")
        assert record.incidents[-1].fault_class is FaultClass.HARDWARE
        assert "on a sick node (XID 79" in record.incidents[-1].message

    def test_restarts_in_place_where_no_node_is_free(self) -> None:
        record = self.record(free=0)
        assert (record.level, [member.node for member in record.members]) == (Level.IN_PLACE, ["n0", "n1", "n2"])
        assert record.incidents[-1].fault_class is FaultClass.HARDWARE

    def test_on_a_healthy_one_it_is_the_programs(self) -> None:
        here = Scene(a_job()).fleet().gang().pods().all(running(1, 7)).launcher(1, failed(1))
        (failure,) = find(here.world())
        assert blame.fault_class(failure) is FaultClass.APPLICATION


class TestTheControlPlaneWasAway:
    """A node that fell silent because nobody could hear it."""

    def test_not_ready_for_want_of_a_heartbeat_is_no_second_witness(self) -> None:
        here = Scene(a_job(), seconds=4000.0).fleet().gang().pods().all(running(1, 7, step_age_seconds=30.0))
        here.launcher(1, running(1, 7, heard_age_seconds=30.0, step_age_seconds=30.0))
        here.node("n1", ready=False, ready_reason="NodeStatusUnknown").lease("n1", 5.0)
        assert find(here.world()) == []
        assert one(here.node("n1", ready_reason="KubeletNotReady")).kind is Kind.NODE_UNREACHABLE

    def test_many_dark_nodes_at_once_get_five_minutes(self) -> None:
        def here(silent: float) -> Scene:
            here = Scene(a_job(), seconds=4000.0).fleet().gang().pods().all(running(1, 7, step_age_seconds=silent))
            here.launcher(1, running(1, 7, heard_age_seconds=silent, step_age_seconds=silent))
            return here.node("n1", ready=False).lease("n1", silent)

        def dark(here: Scene) -> Scene:
            return here.but(dark=replace(here.world().dark, silent=90, total=100))

        assert one(here(60.0)).kind is Kind.NODE_UNREACHABLE
        assert find(dark(here(299.0)).world()) == []
        assert one(dark(here(300.0))).kind is Kind.NODE_UNREACHABLE

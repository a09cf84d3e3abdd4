"""Idle nodes are tested: which are free, what is passed on, and how often."""

import asyncio
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.unit.clock import Clock
from tests.unit.lifecycle.builders import GPU, a_fleet, a_node

from muster.api.base import ObjectMeta
from muster.api.fleetpolicy import FleetPolicySpec
from muster.api.gang import Gang, GangSpec, Member
from muster.api.nodehealth import CheckRequest, NodeHealth, NodeHealthSpec, NodeHealthStatus, Offences
from muster.api.preflight import Profile
from muster.controller import upkeep
from muster.controller.upkeep import UpkeepKeeper
from muster.coordinator.auth import Caller
from muster.coordinator.checkers import CheckerHub
from muster.preflight.upkeep import IdleTestResult
from muster.preflight.verdict import Outcome
from muster.protocol.checks import READY, CheckAnswer, CheckReport, PassReport, ProbeReport
from muster.world.fleet import Suspicion
from muster.world.views import OccupantView

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Store:
    """The NodeHealths, or objects of another kind."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, str], NodeHealth] = {}
        self.subscribers: list[Callable[[Any, Any], None]] = []
        self.store = self

    def subscribe(self, callback: Callable[[Any, Any], None]) -> None:
        self.subscribers.append(callback)

    def show(self, new: object) -> None:
        for callback in self.subscribers:
            callback(None, new)

    def get(self, key: tuple[str, str]) -> NodeHealth | None:
        return self.found.get(key)


class Everything:
    """What the keeper looks at, and what it tells."""

    def __init__(self) -> None:
        self.fleet = a_fleet([a_node(f"n{i}", capacity={GPU: 8}) for i in range(3)])
        self.store = self.healths = Store()
        self.gangs, self.pods, self.occupants = Store(), Store(), Store()
        self.idle_results: list[IdleTestResult] = []
        self.told: list[str] = []
        self.out: dict[str, datetime] = {}
        self.repaired: set[str] = set()
        self.hub = CheckerHub(lambda: 1000.0)
        self.keeper = UpkeepKeeper(
            self,  # type: ignore[arg-type]
            self.hub,
            self,  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
            lambda _reports, _policy: (),
            self.tell,
            lambda: NOW,
        )
        self.sequence = 0

    def policy(self) -> FleetPolicySpec:
        return FleetPolicySpec.model_validate({"preflight": {"profile": "Quick"}})

    def open_since(self, node: str) -> datetime | None:
        return self.out.get(node)

    def is_repaired(self, node: str) -> bool:
        return node in self.repaired

    def tested(self, idle_result: IdleTestResult) -> None:
        self.idle_results.append(idle_result)

    def tell(self, nodes: Iterable[str]) -> None:
        self.told += nodes

    def says(self, node: str, **said: Any) -> None:
        """The node's checker reports."""
        self.sequence += 1
        caller = Caller("muster-check", f"check-{node}", f"uid-{node}", node, f"uid-of-{node}", "muster-check")
        report = CheckReport(self.sequence, "boot-1", READY, identity="this", device="cpu", **said)
        self.hub.record(caller, report)

    def orders(self, node: str) -> list[str]:
        """What the node's checker is told to do."""
        return [order.id for order in self.hub.directive_for(node).orders]


@pytest.fixture
def it() -> Everything:
    return Everything()


def test_nodes_that_nobody_uses_are_tested_and_told_once(it: Everything) -> None:
    for node in ("n0", "n1", "n2"):
        it.says(node)
    it.fleet.occupy("a job", "uid-of-a-job", frozenset({"n1"}))
    it.keeper.assign_tests()
    (order,) = it.orders("n0")
    assert it.orders("n1") == []
    assert sorted(it.told) == ["n0", "n2"]
    assert [each.gpus for each in it.hub.directive_for("n0").orders] == [8]
    it.says("n2", passes=(PassReport("Quick", 1.0, "g", gpus=8),))
    bad = (ProbeReport("bit-exact", "Result", wrong=True, message="GPU 3"),)
    it.says("n0", answers=(CheckAnswer(order, "Node", "Result", probes=bad),))
    for _ in range(3):
        it.keeper.assign_tests()
    (idle_result,) = it.idle_results
    assert (idle_result.node, idle_result.outcome) == ("n0", Outcome.FAIL)


@pytest.mark.parametrize(("days_ago", "profile"), [(1, "Standard"), (60, None)])
def test_a_machine_with_an_incident_is_tested_sooner_and_more_deeply(
    it: Everything, days_ago: float, profile: str | None
) -> None:
    account = Offences(hardware="board:", score="1", as_of=NOW - timedelta(days=days_ago))
    health = NodeHealth(metadata=ObjectMeta(name="n0"), status=NodeHealthStatus(offences=account))
    it.store.found["", "n0"] = health
    for node in ("n0", "n1"):  # four days are long ago for such a machine only
        it.says(node, passes=(PassReport("Quick", 4 * 86400.0, "g", gpus=8),))
    it.keeper.assign_tests()
    assert [order.profile for order in it.hub.directive_for("n0").orders] == ([profile] if profile else [])
    assert it.orders("n1") == []


def test_a_node_that_a_gang_takes_is_let_go(it: Everything) -> None:
    it.says("n0")
    it.keeper.assign_tests()
    assert it.orders("n0")
    it.fleet.occupy("a job", "uid-of-a-job", frozenset({"n0"}))
    it.keeper.assign_tests()
    assert it.orders("n0") == []


@pytest.mark.parametrize("kind", ["gangs", "pods", "occupants"])
def test_a_test_gives_way_before_the_next_look(it: Everything, kind: str) -> None:
    for node in ("n0", "n1"):
        it.says(node)
    it.keeper.assign_tests()
    it.told.clear()
    gang = Gang.model_construct(spec=GangSpec.model_construct(members=[Member.model_construct(node="n0")]))
    pod = OccupantView("other", "p", "u", 1, "n0", {GPU: 1})
    shown = gang if kind == "gangs" else pod
    getattr(it, kind).show(shown)
    assert it.orders("n0"), "a pod that holds no accelerator is let run beside it"
    it.fleet.occupy("it", "its holder", frozenset({"n0"}))
    for _ in range(2):
        getattr(it, kind).show(shown)
    assert (it.orders("n0"), it.told) == ([], ["n0"])
    assert it.orders("n1")
    it.fleet.occupy("it", "its holder", frozenset())
    it.keeper.assign_tests()
    assert it.orders("n0")


def test_a_wish_is_passed_on_until_its_result_is_written(it: Everything) -> None:
    wish = CheckRequest(id="w1", profile=Profile.DEEP, time=NOW)
    health = NodeHealth(metadata=ObjectMeta(name="n0"), spec=NodeHealthSpec(check=wish))
    it.store.found["", "n0"] = health
    it.says("n0", passes=(PassReport("Deep", 1.0, "g", gpus=8),))
    it.keeper.assign_tests()
    assert it.orders("n0") == ["check/w1"]
    fine = (CheckAnswer("check/w1", "Node", "Result", probes=(ProbeReport("context", "Result", 0.4, "s"),)),)
    it.says("n0", answers=fine, passes=(PassReport("Deep", 0.0, "check/w1", gpus=8),))
    it.keeper.assign_tests()
    (idle_result,) = it.idle_results
    written = health.status.model_copy(update={"check": idle_result.result(wish, NOW)})
    it.store.found["", "n0"] = health.model_copy(update={"status": written})
    it.keeper.assign_tests()
    assert it.orders("n0") == []


def test_what_is_out_is_tested_again_though_it_has_passed_before(it: Everything) -> None:
    it.says("n0", passes=(PassReport("Quick", 60.0, "g", gpus=8),))
    it.keeper.assign_tests()
    assert it.orders("n0") == []
    it.out["n0"] = NOW - timedelta(seconds=30)
    it.keeper.assign_tests()
    assert len(it.orders("n0")) == 1


@pytest.mark.parametrize(
    ("doubt", "passed", "profiles"),
    [
        pytest.param(None, [], ["Quick"], id="nobody doubts"),
        pytest.param(Suspicion(), [("Quick", 50.0)], [], id="something else speaks against it"),
        pytest.param(Suspicion(NOW - timedelta(seconds=60)), [("Quick", 50.0)], [], id="one owner's jobs"),
        pytest.param(Suspicion(NOW - timedelta(seconds=60), True), [("Quick", 90.0)], ["Deep"], id="several owners'"),
        pytest.param(Suspicion(NOW - timedelta(seconds=60), True), [("Quick", 50.0)], ["Deep"], id="a look since"),
        pytest.param(Suspicion(NOW - timedelta(seconds=60), True), [("Deep", 90.0)], ["Deep"], id="tested before"),
        pytest.param(Suspicion(NOW - timedelta(seconds=60), True), [("Deep", 50.0)], [], id="tested since"),
        pytest.param(Suspicion(NOW - timedelta(seconds=60), True), [], ["Quick"], id="new, first of all"),
        pytest.param(
            Suspicion(NOW + timedelta(days=9), True), [("Quick", 50.0)], ["Deep"], id="by a clock that jumped"
        ),
    ],
)
def test_what_jobs_of_several_owners_have_failed_on_is_tested_in_depth(
    it: Everything, doubt: Suspicion | None, passed: list[tuple[str, float]], profiles: list[str]
) -> None:
    it.fleet.set_suspicion("n0", doubt)
    it.says("n0", passes=tuple(PassReport(profile, age, "g", gpus=8) for profile, age in passed))
    it.keeper.assign_tests()
    assert [order.profile for order in it.hub.directive_for("n0").orders] == profiles


def test_a_doubt_is_answered_by_its_test_and_asked_again_for_a_newer_one(it: Everything) -> None:
    it.fleet.set_suspicion("n0", Suspicion(NOW - timedelta(seconds=60), True))
    it.says("n0", passes=(PassReport("Quick", 500.0, "g", gpus=8),))
    it.keeper.assign_tests()
    (order,) = it.orders("n0")
    fine = (CheckAnswer(order, "Node", "Result", probes=(ProbeReport("context", "Result", 0.4, "s"),)),)
    it.says("n0", answers=fine, passes=(PassReport("Quick", 500.0, "g", gpus=8),))
    it.keeper.assign_tests()
    assert [grant.id for grant in it.hub.directive_for("n0").grants] == [order]
    it.says("n0", answers=fine, passes=(PassReport("Deep", 30.0, order, gpus=8),))
    it.keeper.assign_tests()
    assert it.orders("n0") == []
    it.fleet.set_suspicion("n0", Suspicion(NOW - timedelta(seconds=10), True))
    it.keeper.assign_tests()
    assert len(it.orders("n0")) == 1
    assert it.orders("n0") != [order]


def test_few_are_tested_at_once_for_what_jobs_say(it: Everything) -> None:
    for node in ("n0", "n1", "n2"):
        it.fleet.set_suspicion(node, Suspicion(NOW - timedelta(seconds=60), True))
        it.says(node, passes=(PassReport("Quick", 500.0, "g", gpus=8),))
    it.keeper.assign_tests()
    assert sum(bool(it.orders(node)) for node in ("n0", "n1", "n2")) == 1


def test_a_node_that_is_being_repaired_is_let_be(it: Everything) -> None:
    it.says("n0")
    it.keeper.assign_tests()
    assert it.orders("n0")
    it.repaired.add("n0")
    it.keeper.assign_tests()
    assert it.orders("n0") == []


async def test_news_all_the_time_take_a_bounded_share_of_the_loop(
    it: Everything, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One checker that changes its report all the time would have all idle nodes looked at again and again."""
    clock, looked, enough = Clock(), [], asyncio.Event()

    async def sleep(seconds: float) -> None:
        clock.advance(seconds)
        await pause(0)

    def look() -> None:
        looked.append(clock())
        clock.advance(0.5)
        it.keeper._stirred.set()
        if len(looked) == 20:
            enough.set()

    pause = asyncio.sleep
    monkeypatch.setattr(upkeep.asyncio, "sleep", sleep)
    monkeypatch.setattr(it.keeper, "assign_tests", look)
    it.keeper._clock = clock
    it.keeper._stirred.set()
    running = asyncio.create_task(it.keeper.run())
    await enough.wait()
    running.cancel()
    assert (looked[-1] - looked[0]) * upkeep.SHARE >= 0.5 * 19

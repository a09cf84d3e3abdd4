"""The queue's keeper: when it plans, whom it rings, and what a new leader waits for."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client import REGISTRY
from tests.unit.lifecycle.builders import EPOCH, a_node
from tests.unit.waiting import until

from localcluster.patience import PATIENCE_SECONDS
from muster.controller import slices
from muster.controller.queue import Queue
from muster.controller.undecidedjobs import CHECKS_SECONDS
from muster.placement.eligibility import Requirements
from muster.placement.request import Request
from muster.placement.space import Space
from muster.queueing.charges import FIRST_SECONDS, Charged
from muster.queueing.preemption import Borrower, Loan, Victim
from muster.queueing.waiting import WaitingJob
from muster.world.queuedecision import LendingTerms, NotPlaced, Placed, Preemptor, StartEstimate
from muster.world.quotas import QuotaClaim, QuotaView

Key = tuple[str, str]


def waiting(name: str, nodes: int = 1, minutes: int = 0, **changes: Any) -> WaitingJob:
    request = Request(nodes, Requirements(8, {}, {}), name)
    return WaitingJob(name, f"ns/{name}", "ns", 0, EPOCH + timedelta(minutes=minutes), request, **changes)


class Keeper:
    """A queue on three nodes, at work."""

    def __init__(self, scene: Any) -> None:
        self.scene = scene
        self.fleet = scene.cluster.fleet
        for number in range(3):
            self.fleet.put_node(a_node(f"n{number}"))
        self.rung: list[Key] = []
        scene.bus.job_changed.subscribe(self.rung.append)
        self.queue = Queue(scene.cluster, scene.bus)

    def put(self, name: str, nodes: int = 1, minutes: int = 0) -> None:
        self.queue.set_waiting(("ns", name), name, waiting(name, nodes, minutes))

    def answer(self, uid: str) -> Any:
        turn = self.queue.decision_of(uid)
        return turn and turn.answer


@pytest.fixture
async def keeper(scene: Any) -> AsyncIterator[Keeper]:
    made = Keeper(scene)
    running = asyncio.create_task(made.queue.run())
    yield made
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_who_is_put_gets_a_turn_and_is_rung(keeper: Keeper) -> None:
    assert keeper.queue.decision_of("a") is None
    keeper.put("a", 2)
    await until(lambda: keeper.rung)
    turn = keeper.queue.decision_of("a")
    assert turn is not None
    assert (keeper.rung, turn.answer) == ([("ns", "a")], Placed(("n0", "n1")))


async def test_what_was_promised_for_something_else_is_not_promised(keeper: Keeper) -> None:
    keeper.put("a", 2)
    await until(lambda: keeper.queue.decision_of("a"))
    keeper.put("a", 2, minutes=1)  # other nodes are kept, say
    assert keeper.queue.decision_of("a") is None
    await until(lambda: keeper.queue.decision_of("a"))
    keeper.queue.set_waiting(("ns", "a"), "a", None)
    keeper.put("a", 2)
    assert keeper.queue.decision_of("a") is None, "who comes back begins anew"


async def test_who_waits_in_vain_is_rung_again_when_the_answer_changes(keeper: Keeper) -> None:
    keeper.fleet.occupy("gang", "other", frozenset({"n0"}))
    keeper.put("a", 3)
    await until(lambda: keeper.queue.decision_of("a"))
    assert isinstance(keeper.queue.decision_of("a").answer, NotPlaced)  # type: ignore[union-attr]
    keeper.queue.replan()
    keeper.put("b", 1, minutes=1)
    await until(lambda: keeper.queue.decision_of("b"))
    rung = keeper.rung.count(("ns", "a"))
    keeper.fleet.occupy("gang", "other", frozenset())
    keeper.queue.replan()
    await until(lambda: isinstance(keeper.queue.decision_of("a").answer, Placed))  # type: ignore[union-attr]
    assert keeper.rung.count(("ns", "a")) == rung + 1


async def test_a_new_leader_plans_nothing_before_it_has_looked_at_every_job(keeper: Keeper) -> None:
    keeper.queue.undecided.expect([("ns", "a"), ("ns", "b"), ("ns", "gone")])
    keeper.put("b", 3, minutes=1)
    for _ in range(50):
        await asyncio.sleep(0)
    assert keeper.queue.decision_of("b") is None
    keeper.queue.forget(("ns", "gone"))
    keeper.put("a", 2)
    await until(lambda: keeper.queue.decision_of("b"))
    assert isinstance(keeper.queue.decision_of("a").answer, Placed)  # type: ignore[union-attr]
    assert isinstance(keeper.queue.decision_of("b").answer, NotPlaced)  # type: ignore[union-attr]


async def test_a_new_leader_waits_for_answers_about_templates_and_no_longer_than_it_may(scene: Any) -> None:
    times = [0.0]
    queue = Queue(scene.cluster, scene.bus, clock=lambda: times[0])
    keys = [("ns", "a"), ("ns", "b")]
    queue.undecided.expect(keys)
    for key in keys:
        queue.set_waiting(key, key[1], None)
        queue.undecided.await_check(key)
    assert queue.undecided.are_awaited
    queue.set_waiting(keys[0], "a", waiting("a"))
    assert queue.undecided.are_awaited
    times[0] = CHECKS_SECONDS
    assert not queue.undecided.are_awaited
    queue.undecided.await_check(keys[0])
    assert not queue.undecided.are_awaited


async def test_who_has_left_makes_room(keeper: Keeper) -> None:
    keeper.put("a", 3)
    keeper.put("b", 3, minutes=1)
    await until(lambda: keeper.queue.decision_of("b"))
    keeper.queue.set_waiting(("ns", "a"), "a", None)
    assert keeper.queue.decision_of("a") is None
    await until(lambda: isinstance(keeper.queue.decision_of("b").answer, Placed))  # type: ignore[union-attr]


async def test_a_preemptible_job_is_rung_when_it_gives_way_and_when_it_need_not(keeper: Keeper) -> None:
    keeper.fleet.occupy("spot", "spot", frozenset({"n0", "n1", "n2"}))
    assert keeper.queue.candidates.preempted_by("spot") is None, "no plan says it"
    keeper.queue.candidates.set(("ns", "spot"), "spot", Borrower("ns/spot", EPOCH))
    await until(lambda: keeper.queue.candidates.preempted_by("spot") == ())
    keeper.rung.clear()
    keeper.put("a", 2)
    await until(lambda: keeper.queue.candidates.preempted_by("spot") == (Preemptor("ns/a"),))
    assert keeper.rung.count(("ns", "spot")) == 1
    keeper.queue.replan()
    keeper.queue.set_waiting(("ns", "a"), "a", None)
    await until(lambda: keeper.queue.candidates.preempted_by("spot") == ())
    assert keeper.rung.count(("ns", "spot")) == 2
    keeper.queue.forget(("ns", "spot"))
    keeper.put("b", 2)
    await until(lambda: keeper.queue.decision_of("b"))
    assert keeper.answer("b").reason == "InsufficientNodes"


async def test_where_three_estimates_were_too_short_no_job_passes(keeper: Keeper) -> None:
    keeper.fleet.occupy("gang", "other", frozenset({"n0"}))
    now = datetime.now(UTC)
    keeper.queue.estimates.set({"big": StartEstimate(now + timedelta(hours=2), "")}, frozenset())
    keeper.queue.note_short_estimates("ns", "old", [now - timedelta(minutes=number) for number in range(3)])
    keeper.put("big", 3)
    keeper.queue.set_waiting(("ns", "small"), "small", waiting("small", 1, 1, expected_seconds=60.0))
    await until(lambda: keeper.queue.decision_of("small"))
    decision = keeper.queue.decision_of("small")
    assert decision is not None
    assert (decision.answer.reason, decision.no_backfill_until) == (  # type: ignore[union-attr]
        "BehindInQueue",
        now + timedelta(days=1, minutes=-2),
    )
    keeper.queue.set_waiting(("ns", "none"), "none", waiting("none", 1, 2))
    await until(lambda: keeper.queue.decision_of("none"))
    assert keeper.queue.decision_of("none").no_backfill_until is None  # type: ignore[union-attr]


@pytest.mark.parametrize(("known", "passes"), [(["lent"], True), ([], False), (["other"], False)])
@pytest.mark.parametrize("seconds", [-3600, 0, 3600])
async def test_what_was_lent_since_the_estimate_is_no_extra_node(
    keeper: Keeper, known: list[str], seconds: int, passes: bool
) -> None:
    """The clock of the records is ahead or behind."""
    now = datetime.now(UTC)
    keeper.fleet.occupy("lent", "lent", frozenset({"n0"}))
    since, over = now + timedelta(seconds=seconds), now + timedelta(hours=1)
    lent = Borrower("ns/lent", since, place=(0, now, "ns/lent"), lent_until=over)
    keeper.queue.candidates.set(("ns", "lent"), "lent", lent)
    begins = now + timedelta(hours=2)
    estimate = StartEstimate(begins, "", LendingTerms(begins, begins, extra_nodes=1))
    keeper.queue.estimates.set({"big": estimate}, frozenset(Loan(uid, since) for uid in known))
    keeper.put("big", 3)
    keeper.queue.set_waiting(("ns", "small"), "small", waiting("small", 1, 1, expected_seconds=4 * 3600.0))
    await until(lambda: keeper.queue.decision_of("small"))
    assert isinstance(keeper.answer("small"), Placed) == passes


@pytest.mark.parametrize(("hours", "passes"), [(4, False), (1, True)], ids=["leaves enough", "ends in time"])
async def test_what_was_lent_during_a_plan_counts_for_those_that_leave_enough(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch, hours: int, passes: bool
) -> None:
    now, queue, limits_of = datetime.now(UTC), keeper.queue, keeper.scene.cluster.limits_of
    plans: list[Any] = []

    def lend(namespaces: Any) -> Any:
        """During the first plan one job takes what it was lent by the plan before."""
        if not plans:
            keeper.fleet.occupy("lent", "lent", frozenset({"n0"}))
            queue.candidates.set(("ns", "lent"), "lent", Borrower("ns/lent", now, place=(0, now, "ns/lent")))
        return limits_of(namespaces)

    async def noted(*arguments: Any) -> Any:
        plans.append(decisions := await decide(*arguments))
        return decisions

    decide = queue._decide
    monkeypatch.setattr(queue, "_decide", noted)
    monkeypatch.setattr(keeper.scene.cluster, "limits_of", lend)
    begins = now + timedelta(hours=2)
    queue.estimates.set({"big": StartEstimate(begins, "", LendingTerms(begins, begins, 1))}, frozenset())
    keeper.put("big", 3)
    queue.set_waiting(("ns", "small"), "small", waiting("small", 1, 1, expected_seconds=hours * 3600.0))
    await until(lambda: len(plans) > 1)
    assert any(isinstance(plan["small"].answer, Placed) for plan in plans) == passes


@pytest.mark.parametrize("are_nodes", [True, False], ids=["nodes", "a place in the queue"])
async def test_no_job_passes_by_an_estimate_that_is_older_than_what_has_become_free(
    keeper: Keeper, are_nodes: bool
) -> None:
    keeper.fleet.occupy("gang", "other", frozenset({"n0"}))
    late = StartEstimate(datetime.now(UTC) + timedelta(hours=2), "")
    estimates = {"big": late, "older": late}
    keeper.put("older", 3)
    keeper.put("big", 3)
    keeper.queue.estimates.set(estimates, frozenset())
    await until(lambda: keeper.queue.decision_of("big"))
    if are_nodes:
        keeper.queue._bus.nodes_freed.publish()
    else:
        keeper.queue.set_waiting(("ns", "older"), "older", None)
    keeper.queue.set_waiting(("ns", "small"), "small", waiting("small", 1, 1, expected_seconds=60.0))
    await until(lambda: keeper.queue.decision_of("small"))
    assert keeper.answer("small").reason == "BehindInQueue"
    keeper.queue.estimates.set(estimates, frozenset())
    keeper.queue._bus.nodes_freed.publish()
    await until(lambda: isinstance(keeper.answer("small"), Placed))


async def test_jobs_pass_by_the_estimates_after_one_behind_these_has_left(keeper: Keeper) -> None:
    keeper.fleet.occupy("gang", "other", frozenset({"n0"}))
    for name in ("big", "behind"):
        keeper.put(name, 3)
    late = StartEstimate(datetime.now(UTC) + timedelta(hours=2), "")
    keeper.queue.estimates.set({"big": late}, frozenset(), {"behind"})
    await until(lambda: keeper.queue.decision_of("behind"))
    keeper.queue.set_waiting(("ns", "behind"), "behind", None)
    keeper.queue.set_waiting(("ns", "small"), "small", waiting("small", 1, 1, expected_seconds=60.0))
    await until(lambda: keeper.queue.decision_of("small"))
    assert isinstance(keeper.answer("small"), Placed)


@pytest.mark.parametrize("begins", [True, False])
async def test_who_preempts_and_goes_away_before_it_begins_pays(keeper: Keeper, begins: bool) -> None:
    key = ("ns", "urgent")
    keeper.fleet.occupy("low", "low", frozenset({"n0", "n1", "n2"}))
    victim = Victim("ns/low", -1, 3, placed=EPOCH, exempt_until=EPOCH)
    keeper.queue.candidates.set(("ns", "low"), "low", victim)
    keeper.queue.set_waiting(key, "urgent", waiting("urgent", 3, preempts_by="gold"))
    await until(lambda: keeper.queue.candidates.preempted_by("low") == (Preemptor("ns/urgent", "gold"),))
    assert not keeper.queue.candidates.for_plan(Charged()).borrowers, "its nodes are its own"
    assert key not in keeper.queue.preemptors
    keeper.queue.note_giving_way(["low"])
    assert key in keeper.queue.preemptors
    if begins:
        keeper.queue.preemptors.check(key, "urgent", holds_nodes=True, has_begun=True)
    keeper.queue.forget(key)
    assert keeper.queue.charges.charged().jobs == (set() if begins else {"urgent"})


async def test_a_new_leader_awaits_the_job_for_which_others_leave_already(keeper: Keeper) -> None:
    key = ("ns", "urgent")
    keeper.fleet.occupy("low", "low", frozenset({"n0", "n1", "n2"}))
    asked = Victim("ns/low", -1, 3, placed=EPOCH, exempt_until=EPOCH, leaves=True)
    keeper.queue.candidates.set(("ns", "low"), "low", asked)
    keeper.queue.set_waiting(key, "urgent", waiting("urgent", 3, preempts_by="gold"))
    await until(lambda: keeper.queue.candidates.preempted_by("low"))
    assert key in keeper.queue.preemptors
    keeper.queue.forget(key)
    assert keeper.queue.charges.charged().jobs == {"urgent"}


async def test_a_preemptor_that_is_not_assembled_pays_once(scene: Any) -> None:
    times, key = [0.0], ("ns", "urgent")
    queue = Queue(scene.cluster, scene.bus, clock=lambda: times[0])
    queue.preemptors.expect(key, "urgent")
    for _ in range(2):
        queue.note_returned_nodes(key, "urgent", 2, 0.0)
    assert queue.charges.charged().jobs == {"urgent"}
    times[0] += FIRST_SECONDS
    queue.forget(key)
    assert not queue.charges.charged().jobs


async def test_a_job_that_is_gone_is_forgotten_by_its_key(keeper: Keeper) -> None:
    keeper.put("a", 1)
    await until(lambda: keeper.queue.decision_of("a"))
    keeper.queue.forget(("ns", "a"))
    assert keeper.queue.decision_of("a") is None


async def test_a_job_of_the_same_name_waits_in_place_of_the_one_before(keeper: Keeper) -> None:
    """Found by a life: while the watch lagged one was replaced by another, and its promise kept nodes from it."""
    key = ("ns", "a")
    keeper.queue.set_waiting(key, "old", waiting("old", 2))
    await until(lambda: keeper.queue.decision_of("old"))
    keeper.queue.set_waiting(key, "new", waiting("new", 2))
    await until(lambda: keeper.queue.decision_of("new"))
    assert keeper.answer("new") == Placed(("n0", "n1"))
    assert keeper.queue.decision_of("old") is None
    keeper.queue.forget(key)
    keeper.put("b", 3)
    await until(lambda: keeper.answer("b"))
    assert keeper.answer("b") == Placed(("n0", "n1", "n2"))


async def test_a_keeper_that_is_told_to_stop_stops_whatever_happens_just_then(scene: Any) -> None:
    made = Keeper(scene)
    for _ in range(50):
        running = asyncio.create_task(made.queue.run())
        await asyncio.sleep(0)
        made.queue.replan()
        running.cancel()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await asyncio.gather(running, return_exceptions=True)
        assert running.cancelled()


async def test_a_long_plan_lets_everything_else_have_its_turn(keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_SECONDS", 0.0)
    answered: list[int] = []
    solve = Space.solve
    monkeypatch.setattr(Space, "solve", lambda space, request: answered.append(1) or solve(space, request))
    seen: list[int] = []

    async def others() -> None:
        while True:
            seen.append(len(answered))
            await asyncio.sleep(0)

    beside = asyncio.create_task(others())
    for number in range(100):
        keeper.put(f"j{number}", 1, minutes=number)
    await until(lambda: keeper.queue.decision_of("j99"))
    beside.cancel()
    assert max(after - before for before, after in itertools.pairwise(seen)) == 1


async def test_who_leaves_while_a_plan_is_made_is_not_told_of_it(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "SLICE_SECONDS", 0.0)
    solve = Space.solve

    def leaves(space: Space, request: Request) -> Any:
        keeper.queue.set_waiting(("ns", "b"), "b", None)
        return solve(space, request)

    monkeypatch.setattr(Space, "solve", leaves)
    keeper.put("a", 1)
    keeper.put("b", 1, minutes=1)
    await until(lambda: keeper.queue.decision_of("a"))
    assert keeper.queue.decision_of("b") is None
    assert ("ns", "b") not in keeper.rung


async def test_who_changes_while_a_plan_is_made_still_has_others_give_way(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper.fleet.occupy("spot", "spot", frozenset({"n0", "n1", "n2"}))
    keeper.queue.candidates.set(("ns", "spot"), "spot", Borrower("ns/spot", EPOCH))
    keeper.put("a", 2)
    await until(lambda: keeper.queue.candidates.preempted_by("spot") == (Preemptor("ns/a"),))
    monkeypatch.setattr(slices, "SLICE_SECONDS", 0.0)
    solve, said = Space.solve, list[float]()

    def changes(space: Space, request: Request) -> Any:
        if len(said) < 20:
            said.append(len(said) + 1.0)
            keeper.queue.set_waiting(("ns", "a"), "a", waiting("a", 2, expected_seconds=said[-1]))
        return solve(space, request)

    monkeypatch.setattr(Space, "solve", changes)
    keeper.rung.clear()
    keeper.queue.replan()
    await until(lambda: len(said) == 20 and keeper.answer("a") is not None)
    assert ("ns", "spot") not in keeper.rung
    assert keeper.queue.candidates.preempted_by("spot") == (Preemptor("ns/a"),)


async def test_a_level_that_the_policy_no_longer_names_is_not_told(scene: Any) -> None:
    fleet = scene.cluster.fleet
    fleet.put_node(a_node("n0"))
    queue = Queue(scene.cluster, scene.bus)

    def levels() -> set[str]:
        (family,) = (each for each in REGISTRY.collect() if each.name == "muster_free_nodes_fragmentation")
        return {sample.labels["level"] for sample in family.samples}

    await queue._measure()
    assert levels() == {level.name for level in fleet.policy.topology.levels} != set()
    topology = fleet.policy.topology.model_copy(update={"levels": []})
    fleet.policy = fleet.policy.model_copy(update={"topology": topology})
    await queue._measure()
    assert levels() == set()


async def test_a_job_without_room_in_a_quota_is_rung_once_there_is_room(scene: Any) -> None:
    made = Keeper(scene)
    quotas = scene.cluster.quotas.store
    quotas.assume(QuotaView("ns", "few", "q", 5, {"pods": 2}, {"pods": 1}))
    running = asyncio.create_task(made.queue.run())
    try:
        made.queue.set_waiting(("ns", "a"), "a", waiting("a", 2, claim=QuotaClaim({"pods": 1})))
        await until(lambda: made.answer("a"))
        assert made.answer("a").reason == "QuotaExceeded"
        assert made.queue.reserved == frozenset()
        rung = len(made.rung)
        quotas.apply("MODIFIED", QuotaView("other", "few", "q2", 6, {"pods": 2}))
        assert not made.queue._stale.is_set(), "a quota in whose namespace nobody waits for room"
        quotas.apply("MODIFIED", QuotaView("ns", "few", "q", 7, {"pods": 2}, {"pods": 0}))
        await until(lambda: isinstance(made.answer("a"), Placed))
        assert len(made.rung) > rung
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_the_default_limit_holds_a_namespace_that_is_not_listed(scene: Any, keeper: Keeper) -> None:
    scene.apply_policy({"queueing": {"defaultLimit": 1}}, version=2)
    keeper.put("a", 1)
    keeper.put("b", 1, minutes=1)
    await until(lambda: keeper.answer("b"))
    assert isinstance(keeper.answer("a"), Placed)
    assert keeper.answer("b").reason == "NamespaceLimit"


def sample(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


@pytest.mark.parametrize(("seconds", "direction"), [(300, "later"), (-300, "earlier")])
async def test_a_start_is_compared_with_its_first_estimate(keeper: Keeper, seconds: float, direction: str) -> None:
    count, total = (f"muster_queue_estimate_error_seconds_{part}" for part in ("count", "sum"))
    before = sample(count, direction=direction), sample(total, direction=direction)
    keeper.queue = Queue(keeper.scene.cluster, keeper.scene.bus, wall_clock=lambda: EPOCH.timestamp())
    keeper.put("a", 1)
    keeper.queue.placed("a", {}, EPOCH - timedelta(seconds=seconds))
    keeper.queue.placed("a", {})
    keeper.queue.placed("no such job", {}, EPOCH)
    keeper.queue.set_waiting(("ns", "b"), "b", waiting("b", replacement=True))
    keeper.queue.placed("b", {}, EPOCH)
    now = sample(count, direction=direction), sample(total, direction=direction)
    assert (now[0] - before[0], now[1] - before[1]) == (1, pytest.approx(300))


async def test_what_is_reserved_is_counted_as_long_as_it_is(scene: Any) -> None:
    """Two of three nodes are free, and one job waits for three: ten seconds of that are 20 node-seconds."""
    keeper = Keeper(scene)
    keeper.queue = Queue(scene.cluster, scene.bus, scene.clock)
    keeper.fleet.occupy("gang", "other", frozenset({"n0"}))
    running = asyncio.create_task(keeper.queue.run())
    keeper.put("a", 3)
    await until(lambda: keeper.queue.reserved == {"n1", "n2"})
    before = sample("muster_reserved_node_seconds_total")
    scene.clock.advance(10)
    keeper.queue.replan()
    await until(lambda: sample("muster_reserved_node_seconds_total") != before)
    assert sample("muster_reserved_node_seconds_total") - before == 20
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

"""The loop: whatever one job does to it, the others and the process go on."""

import asyncio
import contextlib
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.controller.conftest import NOW
from tests.unit.lifecycle.builders import a_node

from localcluster.patience import PATIENCE_SECONDS
from muster.controller import reconciler, slices
from muster.controller.dirty import DirtyKeys
from muster.controller.keptjobs import KeptJobs
from muster.controller.perform import Performer
from muster.controller.pool import PASSES, SHARE, Pool
from muster.controller.queue import Queue
from muster.controller.reconciler import Reconciler
from muster.controller.starttimes import StartTimes
from muster.controller.undecidedjobs import UndecidedJobs
from muster.kube.decode import Undecodable
from muster.kube.errors import Conflict, LeadershipLost, ServerError
from muster.lifecycle.plan import CommitGang, CreatePod, Plan
from muster.lifecycle.queue_needs import queue_needs
from muster.placement.eligibility import Requirements
from muster.placement.fleet_index import PART, FleetIndex
from muster.placement.request import Request
from muster.placement.space import solve
from muster.placement.tree import UnpreparedError
from muster.protocol.checks import NODE, CheckOrder
from muster.queueing.charges import Charged
from muster.world.checks import NodeChecks
from muster.world.job import JobWorld, TemplateVerdict, VerdictKind
from muster.world.queuedecision import Placed

Decide = Callable[[JobWorld, Any], Plan]


class Told:
    """Takes the place of the recorder of Events."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []

    def record(self, regarding: Any, _: str, reason: str, note: str) -> None:
        self.events.append((regarding.name, reason, note))


class Loop:
    """A reconciler whose decisions are the test's."""

    def __init__(self, scene: Any, monkeypatch: pytest.MonkeyPatch, pool: Pool | None = None) -> None:
        self.scene = scene
        self.decided: Counter[str] = Counter()
        self.told = Told()
        self.dirty = DirtyKeys()
        self.plans: dict[str, Decide] = {}
        performer = Performer(scene.api, scene.cluster)
        scene.bus.job_changed.subscribe(self.dirty.add)
        self.queue = Queue(scene.cluster, scene.bus)
        self.kept = KeptJobs()
        self.wanted: list[tuple[str, Any]] = []  # of checkers
        self.reconciler = Reconciler(
            scene.cluster,
            performer,
            self.dirty,
            self.told,  # type: ignore[arg-type]
            self.queue,
            lambda: None,  # type: ignore[arg-type, return-value]
            lambda _: None,
            pool=pool,
            kept=self.kept,
            checks_wanted=lambda uid, checks: self.wanted.append((uid, checks)),
        )
        monkeypatch.setattr(reconciler, "decide", self._decide)
        monkeypatch.setattr(reconciler, "SPACING_SECONDS", 0.0)

    def add(self, job: Any, decide: Decide = lambda _world, _settings: Plan()) -> None:
        self.scene.cluster.jobs.store.assume(job)
        self.plans[job.metadata.name] = decide
        self.dirty.add((job.metadata.namespace, job.metadata.name))

    def _decide(self, world: JobWorld, settings: Any) -> Plan:
        name = world.job.metadata.name
        self.decided[name] += 1
        return self.plans[name](world, settings)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not condition():  # noqa: ASYNC110 - what is waited for happens in many places
                await asyncio.sleep(0.005)


@pytest.fixture
async def loop(scene: Any, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Loop]:
    made = Loop(scene, monkeypatch)
    running = asyncio.create_task(made.reconciler.run())
    yield made
    assert not running.done(), "the loop has ended"
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


def poison(_world: JobWorld, _settings: Any) -> Plan:
    raise KeyError("a defect")


def failures(reason: str) -> float:
    return reconciler._failures.labels(reason)._value.get()


async def test_a_job_that_breaks_the_decision_harms_no_other(loop: Loop, make: Any) -> None:
    before = failures("KeyError")
    loop.add(make.job("bad"), poison)
    loop.add(make.job("good"))
    await loop.until(lambda: loop.decided["bad"] >= 2)
    loop.dirty.add(("ns", "good"))
    await loop.until(lambda: loop.decided["good"] == 2)
    assert failures("KeyError") >= before + 2
    name, reason, note = loop.told.events[0]
    assert (name, reason) == ("bad", "InternalError")
    assert "KeyError: 'a defect'" in note
    loop.plans["bad"] = lambda world, _: Plan(status=world.job.status.model_copy(update={"state": "Running"}))
    await loop.until(lambda: not loop.reconciler._failures)


async def test_the_queue_does_not_wait_for_a_job_whose_needs_break(
    loop: Loop, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "queue_needs", lambda world: poison(world, None))
    loop.queue.undecided.expect([("ns", "bad")])
    assert loop.queue.undecided.are_awaited
    loop.add(make.job("bad"))
    await loop.until(lambda: bool(loop.told.events))
    assert not loop.queue.undecided.are_awaited


async def test_prometheus_has_the_published_figures_of_a_job_and_none_ahead_of_them(loop: Loop, make: Any) -> None:
    """Each decision makes a status; one that has only gone on is written each half minute."""
    job = make.job("job")
    job = job.model_copy(update={"status": job.status.model_copy(update={"state": "Running", "step": 10})})
    loop.scene.cluster.memory(job.metadata.uid).progress_written_at = loop.reconciler._clock()
    loop.add(job, lambda world, _: Plan(status=world.job.status.model_copy(update={"step": 50})))
    await loop.until(lambda: loop.decided["job"] == 1 and loop.reconciler._figures._rows != {})
    steps = [
        sample.value
        for metric in loop.reconciler._figures.collected()
        for sample in metric.samples
        if metric.name == "muster_job_step"
    ]
    assert steps == [10]


async def test_a_job_that_breaks_the_decision_is_left_alone_for_longer_and_longer(
    loop: Loop, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "RETRY_FIRST_SECONDS", 1000.0)
    monkeypatch.setattr(reconciler, "RETRY_LIMIT_SECONDS", 9000.0)
    loop.add(make.job("bad"), poison)
    await loop.until(lambda: loop.decided["bad"] == 1)
    for _ in range(20):  # whatever happens to it meanwhile
        loop.dirty.add(("ns", "bad"))
        await asyncio.sleep(0.001)
    assert loop.decided["bad"] == 1
    assert [loop.reconciler._failed(("ns", "x"), "Test") for _ in range(5)] == [1000.0, 2000.0, 4000.0, 8000.0, 9000.0]


async def test_while_the_watch_lags_a_conflict_is_tried_again_less_and_less(
    loop: Loop, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "RETRY_FIRST_SECONDS", 0.001)
    monkeypatch.setattr(reconciler, "CONFLICT_LIMIT_SECONDS", 0.006)
    pauses: list[float] = []
    again_in = loop.reconciler._again_in

    def noted(*arguments: Any) -> float:
        pauses.append(again_in(*arguments))
        return pauses[-1]

    monkeypatch.setattr(loop.reconciler, "_again_in", noted)
    loop.scene.api.refuse["PATCH"] = Conflict(409, "Conflict", "the object has been modified")
    loop.add(make.job(), lambda world, _: Plan(status=world.job.status.model_copy(update={"state": "Running"})))
    await loop.until(lambda: len(pauses) >= 5)
    assert pauses[:5] == [0.001, 0.002, 0.004, 0.006, 0.006]


async def test_a_conflict_that_comes_again_is_not_hurried_by_what_waits_in_between(
    loop: Loop, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by a life: a job that was gone took its turn, lost it to the conflict, and was promised it again, 45 times
    a second."""
    monkeypatch.setattr(reconciler, "RETRY_FIRST_SECONDS", 0.01)
    monkeypatch.setattr(reconciler, "CONFLICT_LIMIT_SECONDS", 1000.0)
    tries = []
    rests: list[float] = []
    done = loop.dirty.done

    def noted(key: Any, rest_seconds: float = 0.0) -> None:
        rests.append(rest_seconds)
        done(key, rest_seconds)

    monkeypatch.setattr(loop.dirty, "done", noted)

    def in_turns(world: JobWorld, _: Any) -> Plan:
        loop.dirty.add(("ns", "j"))  # as the queue's ring
        tries.append(world)
        return Plan(status=world.job.status.model_copy(update={"state": "Running"})) if len(tries) % 2 else Plan()

    loop.scene.api.refuse["PATCH"] = Conflict(409, "Conflict", "trainingjobs 'j' has been deleted")
    loop.add(make.job(), in_turns)
    await loop.until(lambda: len(rests) >= 9)
    assert rests[2::2][:4] == [0.02, 0.04, 0.08, 0.16]


async def test_what_is_committed_has_its_account_and_is_kept_with_it(loop: Loop, make: Any) -> None:
    def commit(world: JobWorld, _: Any) -> Plan:
        return Plan() if world.gang else Plan((CommitGang(make.gang(world.job, "p0").spec, ""),))

    loop.add(make.job("j"), commit)
    await loop.until(lambda: loop.scene.api.count("POST") == 1)
    account = loop.scene.api.bodies[0]["spec"]["account"]
    first = loop.kept.decisions_of(("ns", "j"))[0].plan
    assert first is not None
    (action,) = first.actions
    assert isinstance(action, CommitGang)
    assert action.spec.account is not None
    assert action.spec.account.to_json() == account


async def test_what_was_decided_is_kept_with_what_was_seen(loop: Loop, make: Any) -> None:
    plan = Plan(wake_in_seconds=50.0)
    loop.add(make.job("j"), lambda _world, _settings: plan)
    loop.add(make.job("bad"), poison)
    await loop.until(lambda: bool(loop.kept.decisions_of(("ns", "j")) and loop.kept.decisions_of(("ns", "bad"))))
    (kept,), (failed,) = loop.kept.decisions_of(("ns", "j")), loop.kept.decisions_of(("ns", "bad"))
    assert (kept.plan, kept.world.job.metadata.name) == (plan, "j")
    assert kept.world.queue_decision == loop.queue.decision_of("uid-j")
    assert (failed.plan, failed.error) == (None, "KeyError: 'a defect'")


@pytest.mark.parametrize("error", [ServerError(503, "ServiceUnavailable", "starting"), Conflict(409, "Conflict", "x")])
async def test_an_error_of_the_api_server_is_tried_again_without_an_event(
    loop: Loop, make: Any, error: Exception
) -> None:
    loop.scene.api.refuse["PATCH"] = error

    def write(world: JobWorld, _: Any) -> Plan:
        return Plan(status=world.job.status.model_copy(update={"state": "Running"}))

    loop.add(make.job(), write)
    await loop.until(lambda: loop.scene.api.count("PATCH") >= 2)
    assert loop.told.events == []
    loop.scene.api.refuse.clear()
    await loop.until(lambda: loop.scene.cluster.job(("ns", "j")).status.state == "Running")


async def test_a_lost_lease_ends_the_loop(scene: Any, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Loop(scene, monkeypatch)
    scene.api.refuse["PUT"] = LeadershipLost("over")
    gang = make.gang(make.job(), "p0", "p1")
    made.add(make.job(), lambda _world, _settings: Plan((CommitGang(gang.spec, "1"),)))
    with pytest.raises(LeadershipLost, match="over"):
        await asyncio.wait_for(made.reconciler.run(), PATIENCE_SECONDS)


async def test_the_loop_of_the_process_stays_free_with_many_keys_due(loop: Loop, make: Any) -> None:
    """Between any two passes everything else gets its turn, though no pass has anything to wait for."""
    turns: list[int] = []

    async def others() -> None:
        while True:
            turns.append(loop.decided.total())
            await asyncio.sleep(0)

    def slow(_world: JobWorld, _settings: Any) -> Plan:
        time.sleep(0.0005)
        return Plan(wake_in_seconds=3600.0)

    beside = asyncio.create_task(others())
    for number in range(500):
        loop.add(make.job(f"j{number}"), slow)
    await loop.until(lambda: loop.decided.total() >= 500)
    beside.cancel()
    assert max(after - before for before, after in itertools.pairwise(turns)) <= 1


async def test_nodes_on_a_large_fleet_are_looked_through_in_parts_before_the_decision(
    loop: Loop, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A decision that needs a tree which nobody has made yet, as the first replacement on a large fleet does."""
    monkeypatch.setattr(slices, "SLICE_SECONDS", 0.0)
    cluster = loop.scene.cluster
    for number in range(4 * PART):
        cluster.fleet.put_node(a_node(f"gpu-{number}"))
    answers: list[Any] = []
    looks: list[int] = []
    turns: list[int] = []
    look = FleetIndex._evaluate
    monkeypatch.setattr(FleetIndex, "_evaluate", lambda index, names: looks.append(1) or look(index, names))

    async def others() -> None:
        while True:
            turns.append(len(looks))
            await asyncio.sleep(0)

    def replace_one(world: JobWorld, _: Any) -> Plan:
        try:
            answers.append(solve(world.fleet, Request(2, Requirements(8, {}, {}), "uid-j")))
        except UnpreparedError as missing:
            return Plan(unprepared=missing.needs)
        return Plan()

    beside = asyncio.create_task(others())
    loop.add(make.job("j"), replace_one)
    await loop.until(lambda: bool(answers))
    beside.cancel()
    assert isinstance(answers[0], Placed)
    assert loop.decided["j"] == 2, "once to find out what it needs"
    assert max(after - before for before, after in itertools.pairwise(turns)) == 1
    assert [kept.error for kept in loop.kept.decisions_of(("ns", "j"))] == [""]


async def test_a_job_without_a_prepared_solver_is_decided_again_at_once(loop: Loop, make: Any) -> None:
    loop.add(make.job("j"), lambda *_: Plan(unprepared=Requirements(8, {}, {})))
    loop.reconciler._decide(loop.scene.cluster.job(("ns", "j")))
    assert ("ns", "j") not in loop.reconciler._pauses


def unreadable(gang: Any) -> Undecodable:
    return Undecodable("ns", gang.metadata.name, "g", 50, 1, "spec.level: bad", gang.spec.job_uid)


async def test_nothing_is_done_to_a_job_whose_record_cannot_be_read(loop: Loop, make: Any) -> None:
    job = make.job(state="Running", nodes=["n0", "n1"], nodesReady="2/2", attempt=3)
    loop.scene.cluster.pods.store.assume(make.pod(job, 7, "p7"))
    loop.scene.cluster.gangs.store.assume(unreadable(make.gang(job, "p0", "p1")))
    loop.add(job)
    await loop.until(lambda: bool(loop.told.events))
    assert not loop.decided
    assert {path.rsplit("/", 1)[1] for _, path in loop.scene.api.calls} == {"status"}
    status = loop.scene.cluster.job(("ns", "j")).status
    assert (status.state, status.reason) == ("Stalled", "RecordUnreadable")
    assert (status.nodes, status.nodes_ready, status.attempt) == (["n0", "n1"], "2/2", 3)
    name, reason, note = loop.told.events[0]
    assert (name, reason) == ("j", "RecordUnreadable")
    assert "spec.level: bad" in note
    loop.scene.cluster.gangs.store.assume(make.gang(job, "p0", "p1", version=60))
    loop.dirty.add(("ns", "j"))
    await loop.until(lambda: loop.decided["j"] > 0)


async def test_a_job_that_has_ended_needs_no_record(loop: Loop, make: Any) -> None:
    ended = {"result": "Failed", "reason": "X", "message": "", "time": "2026-01-31T12:00:00Z", "attempt": 1}
    job = make.job(completion=ended)
    loop.scene.cluster.gangs.store.assume(unreadable(make.gang(job, "p0", "p1")))
    loop.add(job)
    await loop.until(lambda: loop.decided["j"] == 1)


async def test_a_job_that_cannot_be_read_is_told(loop: Loop) -> None:
    loop.scene.cluster.jobs.store.assume(Undecodable("ns", "j", "u", 5, 1, "spec.nodes: bad"))
    loop.dirty.add(("ns", "j"))
    await loop.until(lambda: bool(loop.told.events))
    name, reason, note = loop.told.events[0]
    assert (name, reason) == ("j", "InvalidSpec")
    assert note == f"spec.nodes: bad. {reconciler.REMEDY_OF_INVALID}"
    assert loop.scene.api.calls == []


async def test_the_nodes_that_a_plan_takes_are_taken_before_it_is_performed(loop: Loop, make: Any) -> None:
    scene = loop.scene
    seen: dict[str, frozenset[str]] = {}

    def commit(world: JobWorld, _: Any) -> Plan:
        name = world.job.metadata.name
        seen[name] = world.fleet.held_by_others("n5", world.uid)
        if world.gang is not None or seen[name]:
            return Plan()
        spec = make.gang(world.job, "p0").spec
        taken = [spec.members[0].model_copy(update={"node": "n5"})]
        return Plan((CommitGang(spec.model_copy(update={"members": taken}), ""),))

    scene.api.gate = asyncio.Event()
    loop.add(make.job("first"), commit)
    await loop.until(lambda: scene.api.count("POST") == 1)
    loop.add(make.job("second"), commit)
    await loop.until(lambda: "second" in seen)
    assert seen["second"] == {"uid-first"}
    scene.api.gate.set()
    await loop.until(lambda: scene.cluster.gang_of("uid-first") is not None)
    await loop.until(lambda: not any(source[0] == "assumed" for source in scene.cluster.fleet._by_source))
    assert scene.cluster.fleet.holders("n5") == {"uid-first"}
    assert scene.api.count("POST") == 1


async def test_the_node_of_a_pod_that_is_being_created_is_the_jobs_though_its_record_goes(
    loop: Loop, make: Any
) -> None:
    scene, job = loop.scene, make.job("first")
    pod = {"kind": "Pod", "metadata": {"name": "p0", "namespace": "ns"}, "spec": {"containers": []}}
    gang = make.gang(job, "p0")
    scene.cluster.gangs.store.assume(gang)
    scene.api.gate = asyncio.Event()
    loop.add(job, lambda _world, _settings: Plan((CreatePod(pod, "n0"),)))
    await loop.until(lambda: scene.api.count("POST") == 1)
    scene.cluster.gangs.store.replace([], 100_000)
    assert scene.cluster.fleet.holders("n0") == {"uid-first"}
    loop.plans["first"] = lambda _world, _settings: Plan()
    scene.api.gate.set()
    await loop.until(lambda: not any(source[0] == "assumed" for source in scene.cluster.fleet._by_source))


async def test_nodes_of_a_commit_that_failed_are_free_again(loop: Loop, make: Any) -> None:
    scene = loop.scene
    scene.api.refuse["POST"] = Conflict(409, "Conflict", "changed")

    def commit(world: JobWorld, _: Any) -> Plan:
        return Plan((CommitGang(make.gang(world.job, "p0").spec, ""),))

    loop.add(make.job("first"), commit)
    await loop.until(lambda: scene.api.count("POST") >= 1)
    loop.plans["first"] = lambda _world, _settings: Plan()
    await loop.until(lambda: not scene.cluster.fleet.holders("n0"))


CHECKS = {"n0": NodeChecks((CheckOrder("o1", NODE),))}


async def test_checks_are_sent_once_decided_and_withdrawn_once_not_wanted(loop: Loop, make: Any) -> None:
    loop.add(make.job("other"))
    loop.add(make.job(), lambda _world, _settings: Plan(checks=CHECKS))
    await loop.until(lambda: loop.decided.keys() == {"j", "other"})
    assert loop.wanted == [("uid-j", CHECKS)]
    loop.plans["j"] = lambda _world, _settings: Plan()
    for times in (2, 3):
        loop.dirty.add(("ns", "j"))
        await loop.until(lambda times=times: loop.decided["j"] == times)
    assert loop.wanted == [("uid-j", CHECKS), ("uid-j", None)]


async def test_what_a_commit_wants_of_checkers_waits_for_it(loop: Loop, make: Any) -> None:
    scene = loop.scene
    scene.api.refuse["POST"] = Conflict(409, "Conflict", "changed")

    def commit(world: JobWorld, _: Any) -> Plan:
        if world.gang is not None:
            return Plan(checks=CHECKS)
        return Plan((CommitGang(make.gang(world.job, "p0").spec, ""),), checks=CHECKS)

    loop.add(make.job(), commit)
    await loop.until(lambda: scene.api.count("POST") >= 2)
    assert loop.wanted == []
    scene.api.refuse.clear()
    await loop.until(lambda: bool(loop.wanted))
    assert loop.wanted[0] == ("uid-j", CHECKS)
    assert scene.cluster.gang_of("uid-j") is not None


async def test_a_job_that_is_gone_wants_nothing_of_checkers(loop: Loop, make: Any) -> None:
    loop.add(make.job(), lambda _world, _settings: Plan(checks=CHECKS))
    await loop.until(lambda: bool(loop.wanted))
    loop.scene.cluster.jobs.store.assume_deleted(("ns", "j"), "uid-j")
    loop.dirty.add(("ns", "j"))
    await loop.until(lambda: loop.wanted[1:] == [("uid-j", None)])
    loop.dirty.add(("ns", "j"))
    loop.add(make.job("last"))
    await loop.until(lambda: bool(loop.decided["last"]) and not len(loop.dirty))
    assert len(loop.wanted) == 2
    assert not loop.reconciler._tested


async def test_a_job_of_the_same_name_does_not_keep_what_the_one_before_wanted(loop: Loop, make: Any) -> None:
    loop.add(make.job(), lambda _world, _settings: Plan(checks=CHECKS))
    await loop.until(lambda: bool(loop.wanted))
    again = make.job(version=70)
    again.metadata.__dict__["uid"] = "uid-again"
    loop.scene.cluster.jobs.store.assume_deleted(("ns", "j"), "uid-j")
    loop.add(again, lambda _world, _settings: Plan(checks=CHECKS))
    await loop.until(lambda: len(loop.wanted) >= 3)
    assert loop.wanted[1:3] == [("uid-j", None), ("uid-again", CHECKS)]


async def test_a_decision_that_fails_leaves_the_checkers_their_orders(loop: Loop, make: Any) -> None:
    loop.add(make.job(), lambda _world, _settings: Plan(checks=CHECKS))
    await loop.until(lambda: bool(loop.wanted))
    loop.plans["j"] = poison
    loop.dirty.add(("ns", "j"))
    await loop.until(lambda: bool(loop.told.events))
    assert loop.wanted == [("uid-j", CHECKS)]


async def test_it_is_told_once_everything_was_decided(loop: Loop, make: Any) -> None:
    told: list[int] = []
    undecided = loop.reconciler.undecided = UndecidedJobs(loop.scene.clock, lambda: told.append(len(told)))
    undecided.expect([])
    assert told == [0]
    undecided.expect([("ns", "good"), ("ns", "bad"), ("ns", "gone")])
    loop.add(make.job("good"))
    loop.add(make.job("bad"), poison)
    await loop.until(lambda: undecided._unseen == {("ns", "gone")})
    assert told == [0]
    loop.dirty.add(("ns", "gone"))
    await loop.until(lambda: told == [0, 1])


def posting(make: Any) -> Decide:
    """Creates one pod, and says so in the status."""

    def decide(world: JobWorld, _: Any) -> Plan:
        if world.job.status.state == "Running":
            return Plan()
        pod = {"metadata": {"name": f"{world.job.metadata.name}-0", "namespace": world.job.metadata.namespace}}
        return Plan((CreatePod({**pod, "spec": {}}),), status=world.job.status.model_copy(update={"state": "Running"}))

    return decide


async def test_what_hangs_in_one_namespace_keeps_no_other_from_being_decided_and_performed(
    loop: Loop, make: Any
) -> None:
    """A slow admission webhook: more jobs of its namespace than there are passes."""
    api, jobs = loop.scene.api, {}
    api.hangs = lambda verb, path: verb == "POST" and "/namespaces/hangs/" in path
    api.job = lambda name: jobs[name]
    for number in range(PASSES + 10):
        job = jobs[f"h{number}"] = make.job(f"h{number}", namespace="hangs")
        loop.add(job, posting(make))
    await loop.until(lambda: sum(loop.decided[name] > 0 for name in jobs) == PASSES + 10)
    starts = SHARE * 3 // 4  # the rest is for recoveries
    assert api.count("POST", "/namespaces/hangs/") == starts
    for number in range(SHARE + 5):
        job = jobs[f"j{number}"] = make.job(f"j{number}", namespace="goes")
        loop.add(job, posting(make))
    await loop.until(lambda: api.count("POST", "/namespaces/goes/") == SHARE + 5)
    assert loop.reconciler._pool.waiting == PASSES + 10 - starts


async def test_a_job_that_waited_for_room_is_performed_as_it_then_is(
    scene: Any, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Loop(scene, monkeypatch, Pool(passes=1, share=1))
    gone = asyncio.Event()
    scene.api.gate = gone
    running = asyncio.create_task(made.reconciler.run())
    made.add(make.job("first"), posting(make))
    await made.until(lambda: scene.api.count("POST") == 1)
    made.add(make.job("second"), posting(make))
    await made.until(lambda: made.reconciler._pool.waiting == 1)
    made.plans["second"] = lambda _world, _settings: Plan()
    gone.set()
    await made.until(lambda: made.decided["second"] >= 2 and not made.reconciler._pool.waiting)
    assert scene.api.count("POST") == 1
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


async def test_what_was_not_written_yet_is_written_later(
    loop: Loop, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muster.controller.perform.COUNTS_WRITE_SECONDS", 0.05)
    ready = ["1/2"]

    def count(world: JobWorld, _: Any) -> Plan:
        return Plan(status=world.job.status.model_copy(update={"nodes_ready": ready[0]}))

    loop.add(make.job(), count)
    await loop.until(lambda: loop.scene.api.count("PATCH") == 1)
    ready[0] = "2/2"
    loop.dirty.add(("ns", "j"))
    await loop.until(lambda: loop.scene.cluster.job(("ns", "j")).status.nodes_ready == "2/2")


async def test_a_gang_that_could_not_be_assembled_costs_its_job_the_place_once(
    scene: Any, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = Loop(scene, monkeypatch)
    job = make.job()
    loop.add(job)
    loop.reconciler._decide(job)
    assert loop.queue.charges.charged() == Charged()
    gang = make.gang(job, members=[], reason="AssemblyTimedOut", releases=1, start=None, attempt=2)
    scene.cluster.gangs.store.assume(gang)
    charged: list[tuple[str, str, float]] = []
    monkeypatch.setattr(loop.queue.charges, "charge", lambda *told: charged.append(told))
    for _ in range(2):
        loop.reconciler._decide(job)
    assert [told[:2] for told in charged] == [("ns", "uid-j")]
    world = scene.cluster.world(job)
    assert queue_needs(world).queued_since == gang.spec.time, "its age counts from then"
    trained = gang.model_copy(update={"spec": gang.spec.model_copy(update={"reason": "NodesYielded"})})
    world = replace(world, gang=trained)
    assert queue_needs(world).queued_since == (job.metadata.creation_timestamp or world.now)


@pytest.mark.parametrize("begun", ["before", "after"])
async def test_an_estimate_knows_at_once_that_nodes_are_lent(loop: Loop, make: Any, begun: str) -> None:
    """Found by reading: until the record was seen, the first in the queue seemed to start when the job on them ends."""
    cluster, queue, api = loop.scene.cluster, loop.queue, loop.scene.api
    for name in ("n0", "n1"):
        cluster.fleet.put_node(a_node(name))
    cluster.fleet.occupy("pods", "uid-gone", frozenset({"n1"}))
    big, small = make.job("big"), make.job("small", 1)
    big.metadata.__dict__["creation_timestamp"] = NOW - timedelta(days=8)
    expected = small.spec.queueing.model_copy(update={"expected_duration_seconds": 36000})
    small = small.model_copy(update={"spec": small.spec.model_copy(update={"queueing": expected})})
    cluster.memory("uid-big").template_verdict = TemplateVerdict(VerdictKind.ACCEPTED, 1)
    loop.add(big)
    await loop.until(lambda: bool(queue._entries) and not len(loop.dirty))
    await queue._plan()
    lent_until = NOW + timedelta(hours=1)
    record = make.gang(small, "", backfilled=True, lentUntil=lent_until.isoformat(), start=None).spec
    api.gate = asyncio.Event()  # the record is not written yet
    starts = StartTimes(cluster, queue, loop.scene.bus, wall_clock=lambda: NOW)
    if begun == "before":
        then = queue.candidates.for_plan(Charged())
        queue.candidates.for_plan = lambda _: then  # type: ignore[method-assign]
    loop.add(small, lambda world, _: Plan() if world.gang else Plan((CommitGang(record, ""),)))
    await loop.until(lambda: bool(cluster.fleet.nodes_of("uid-small")))
    await starts._estimate()
    assert cluster.gang_of("uid-small") is None
    estimated = queue.estimates.by_uid["uid-big"].time
    assert estimated is not None
    assert estimated <= lent_until


async def test_a_job_leaves_its_nodes_once_that_is_on_record(loop: Loop, make: Any) -> None:
    """While the write is refused again and again, a plan still needs the job to leave."""
    cluster, job = loop.scene.cluster, make.job("small", 1)
    cluster.fleet.put_node(a_node("n0"))
    gang = make.gang(job, "", backfilled=True)
    cluster.gangs.store.assume(gang)
    left = gang.spec.model_copy(update={"members": [], "reason": "Preempted"})
    loop.scene.api.gate = asyncio.Event()
    loop.add(job, lambda world, _: Plan((CommitGang(left, "10"),)))
    await loop.until(lambda: loop.scene.api.running == 1)
    assert not loop.queue.candidates.for_plan(Charged()).borrowers["uid-small"].leaves

"""The loop that estimates start times: which jobs it rings, what it looks at, and that nothing stops it."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.controller.conftest import NOW
from tests.unit.lifecycle.builders import a_node
from tests.unit.waiting import until

from muster.controller import starttimes
from muster.controller.queue import Queue
from muster.controller.starttimes import StartTimes
from muster.placement.eligibility import Requirements
from muster.placement.request import Request
from muster.queueing.starts import MAX_ESTIMATED, NOT_ESTIMATED
from muster.queueing.waiting import WaitingJob

HOUR = 3600


class Keeper:
    """A queue on three nodes that a job holds, with the loop at work beside it."""

    def __init__(self, scene: Any, make: Any) -> None:
        self.scene, self.make = scene, make
        for number in range(3):
            scene.cluster.fleet.put_node(a_node(f"n{number}"))
        self.queue = Queue(scene.cluster, scene.bus, scene.clock)
        self.starts = StartTimes(scene.cluster, self.queue, scene.bus, scene.clock, lambda: NOW)
        self.version = 100

    def put(self, name: str, **spec: Any) -> Any:
        """A job of three nodes, with this in its spec."""
        job = self.make.job(name)
        self.version += 1
        changes = {"metadata": {**job.metadata.to_json(), "resourceVersion": str(self.version)}}
        job = type(job).model_validate({**job.to_json(), **changes, "spec": {**job.spec.to_json(), **spec}})
        self.scene.cluster.jobs.store.assume(job)
        return job

    def hold(self, name: str, **spec: Any) -> None:
        job = self.put(name, **spec)
        self.scene.cluster.fleet.occupy(name, job.metadata.uid, frozenset({"n0", "n1", "n2"}))

    def wait(self, name: str, nodes: int = 3) -> str:
        uid: str = self.put(name).metadata.uid
        request = Request(nodes, Requirements(8, {}, {}), uid)
        self.queue.set_waiting(("ns", name), uid, WaitingJob(uid, f"ns/{name}", "ns", 0, NOW, request))
        return uid

    def said(self, uid: str) -> tuple[float | None, str] | None:
        found = self.queue.estimates.estimate_of(uid)
        if found is None:
            return None
        return None if found.time is None else (found.time - NOW).total_seconds(), found.reason


@pytest.fixture
async def keeper(scene: Any, make: Any, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Keeper]:
    monkeypatch.setattr(starttimes, "ESTIMATE_SECONDS", 0.01)
    monkeypatch.setattr(starttimes, "HISTORY_SECONDS", 0.0)
    made = Keeper(scene, make)
    running = [asyncio.create_task(loop()) for loop in (made.queue.run, made.starts.run)]
    yield made
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


EXPECTED = {"queueing": {"expectedDurationSeconds": HOUR}}


async def test_a_job_that_waits_gets_one_and_is_rung(keeper: Keeper) -> None:
    keeper.hold("a", **EXPECTED)
    uid = keeper.wait("b")
    await until(lambda: keeper.said(uid))
    assert keeper.said(uid) == (HOUR, "ns/a ends by its expectedDurationSeconds")
    await until(lambda: keeper.scene.rung.count(("ns", "b")) > 1)


async def test_only_the_first_have_one(keeper: Keeper) -> None:
    keeper.hold("a", **EXPECTED)
    uids = [keeper.wait(f"b-{number}") for number in range(MAX_ESTIMATED + 3)]
    await until(lambda: all(map(keeper.queue.decision_of, uids)))
    keeper.queue.estimates.by_uid = {}
    await until(lambda: keeper.queue.estimates.by_uid)
    assert len(keeper.queue.estimates.by_uid) == MAX_ESTIMATED


async def test_one_that_is_no_longer_among_the_first_has_none_any_more(keeper: Keeper) -> None:
    keeper.hold("a", **EXPECTED)
    for number in range(MAX_ESTIMATED):
        keeper.wait(f"b-{number}")
    for name, time in (("c", (NOW + timedelta(seconds=HOUR)).isoformat()), ("d", None)):
        keeper.wait(name)
        status = {"time": time, "reason": "ns/a ends", "generation": 1}
        keeper.scene.cluster.jobs.store.assume(keeper.make.job(name, version=999, startEstimate=status))
    await until(lambda: keeper.said("uid-c") == (None, NOT_ESTIMATED))
    await until(lambda: ("ns", "c") in keeper.scene.rung)
    assert keeper.said("uid-d") is None


async def test_those_that_never_fit_take_no_estimate_from_those_behind(keeper: Keeper) -> None:
    keeper.hold("a", **EXPECTED)
    for number in range(MAX_ESTIMATED):
        keeper.wait(f"b-{number}", nodes=9)
    uid = keeper.wait("c")
    await until(lambda: keeper.said(uid) == (HOUR, "ns/a ends by its expectedDurationSeconds"))


async def test_what_its_status_shows_already_is_no_news(keeper: Keeper) -> None:
    keeper.hold("a", **EXPECTED)
    uid = keeper.wait("b")
    estimate = {
        "time": (NOW + timedelta(seconds=HOUR - 60)).isoformat(),
        "reason": "ns/a ends by its expectedDurationSeconds",
        "generation": 1,
    }
    shown = keeper.make.job("b", version=999, startEstimate=estimate)
    keeper.scene.cluster.jobs.store.assume(shown)
    await until(lambda: keeper.said(uid))
    rung = keeper.scene.rung.count(("ns", "b"))
    for _ in range(3):
        keeper.scene.clock.advance(1)
        await until(lambda: keeper.starts._read_at == keeper.scene.clock())
    assert keeper.scene.rung.count(("ns", "b")) == rung


async def test_a_job_that_is_gone_ends_now_and_a_pod_never(keeper: Keeper) -> None:
    fleet = keeper.scene.cluster.fleet
    fleet.occupy("gone", "uid-gone", frozenset({"n0", "n1", "n2"}))
    uid = keeper.wait("b")
    await until(lambda: keeper.said(uid))
    assert keeper.said(uid) == (0, "uid-gone ends")
    fleet.occupy("gone", "pod/ns/notebook", frozenset({"n0", "n1", "n2"}))
    await until(lambda: keeper.said(uid) == (None, "when pod ns/notebook ends is not known"))


async def test_the_history_of_the_namespace_counts(keeper: Keeper) -> None:
    for number in range(3):
        completion = {"result": "Succeeded", "reason": "Done", "message": "", "attempt": 1, "time": NOW.isoformat()}
        goodput = {
            "creationTime": NOW.isoformat(),
            "countedUntil": NOW.isoformat(),
            "seconds": {"compute": HOUR * (number + 1)},
        }
        keeper.scene.cluster.jobs.store.assume(keeper.make.job(f"old-{number}", completion=completion, goodput=goodput))
    keeper.hold("a")
    uid = keeper.wait("b")
    await until(lambda: keeper.said(uid))
    assert keeper.said(uid) == (2 * HOUR, "ns/a ends by the earlier jobs of its namespace")


async def test_it_survives_what_it_does_not_expect(keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = asyncio.Event()

    def fails(*_: Any) -> Any:
        failed.set()
        raise RuntimeError("no")

    working = starttimes.start_times
    monkeypatch.setattr(starttimes, "start_times", fails)
    keeper.hold("a", **EXPECTED)
    uid = keeper.wait("b")
    await failed.wait()
    monkeypatch.setattr(starttimes, "start_times", working)
    await until(lambda: keeper.said(uid))


async def test_without_waiting_jobs_nothing_is_kept(keeper: Keeper) -> None:
    keeper.hold("a", **EXPECTED)
    uid = keeper.wait("b")
    await until(lambda: keeper.said(uid))
    keeper.queue.forget(("ns", "b"))
    await until(lambda: not keeper.queue.estimates.by_uid)

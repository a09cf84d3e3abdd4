"""A record whose write is not answered: whether it stands is found out before its nodes are anybody else's."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from localcluster.patience import PATIENCE_SECONDS
from muster.controller import reconciler, records
from muster.controller.dirty import DirtyKeys
from muster.controller.perform import Performer
from muster.controller.queue import Queue
from muster.controller.reconciler import Reconciler
from muster.controller.records import RecordWriter
from muster.kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    LeadershipLost,
    NotFound,
    ServerError,
    Unreachable,
)
from muster.lifecycle.plan import CommitGang, Plan
from muster.world.job import JobWorld

RESET = Unreachable(0, "Unreachable", "connection reset")
TIMED_OUT = ServerError(504, "Timeout", "request did not complete")
FAILED = ServerError(500, "InternalError", "failed calling webhook")
CONFLICT = Conflict(409, "Conflict", "the object has been modified")
EXISTS = AlreadyExists(409, "AlreadyExists", "it exists")
REFUSED = ApiError(403, "Forbidden", "no")


class Store:
    """One Gang behind a network that loses answers.

    `fates` says for each write what becomes of it: an error that it meets, and whether it was applied all the same; a
    write without one is applied and answered. `reads` are errors that reads meet before they are answered.
    """

    def __init__(self, standing: dict[str, Any] | None = None) -> None:
        self.standing = standing
        self.fates: list[tuple[ApiError, bool]] = []
        self.reads: list[ApiError] = []
        self.late: dict[str, Any] | None = None  # applied before the next write: it was on its way
        self.writes = 0
        self.before_write: Callable[[], float | None] | None = None
        self.version = 100

    async def get(self, path: str, query: Any = None) -> bytes:
        await asyncio.sleep(0)
        if self.reads:
            raise self.reads.pop(0)
        if self.standing is None:
            raise NotFound(404, "NotFound", path)
        return json.dumps(self.standing).encode()

    async def post(self, path: str, body: Any, query: Any = None) -> bytes:
        return await self._write(body, lambda: EXISTS if self.standing is not None else None)

    async def put(self, path: str, body: Any) -> bytes:
        def refusal() -> ApiError | None:
            assert self.standing is not None
            same = body["metadata"]["resourceVersion"] == self.standing["metadata"]["resourceVersion"]
            return None if same else CONFLICT

        return await self._write(body, refusal)

    async def _write(self, body: Any, refusal: Callable[[], ApiError | None]) -> bytes:
        await asyncio.sleep(0)
        self.writes += 1
        if self.late is not None:
            self._apply(self.late)
            self.late = None
        error, applied = self.fates.pop(0) if self.fates else (None, True)
        refused = refusal()
        if refused is not None and applied:
            raise refused
        if applied:
            self._apply(body)
        if error is not None:
            raise error
        return json.dumps(self.standing).encode()

    def _apply(self, body: dict[str, Any]) -> None:
        self.version += 1
        self.standing = {**body, "metadata": {**body["metadata"], "uid": "g", "resourceVersion": str(self.version)}}


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "LOOK_AGAIN_SECONDS", 0.0)


def a_body(make: Any, version: str = "", node: str = "n0") -> dict[str, Any]:
    job = make.job(workers=1)
    gang = make.gang(job, "p0", members=[{"node": node, "incarnation": 1, "podUid": "p0"}])
    metadata: dict[str, Any] = {"name": gang.metadata.name, "namespace": "ns"}
    if version:
        metadata["resourceVersion"] = version
    return {"apiVersion": "muster.dev/v1alpha1", "kind": "Gang", "metadata": metadata, "spec": gang.spec.to_json()}


@pytest.mark.parametrize("error", [RESET, TIMED_OUT, FAILED], ids=["reset", "timed out", "failed"])
@pytest.mark.parametrize("version", ["", "100"], ids=["created", "replaced"])
async def test_what_was_applied_stands_whatever_was_answered(make: Any, error: ApiError, version: str) -> None:
    store = Store(a_body(make, "100", node="n9") if version else None)
    store.fates = [(error, True)]
    store.reads = [RESET, FAILED]
    answer = json.loads(await RecordWriter(store).write(a_body(make, version)))  # type: ignore[arg-type]
    assert answer == store.standing
    assert answer["metadata"]["resourceVersion"] == "101"
    assert store.writes == 1


@pytest.mark.parametrize("error", [RESET, TIMED_OUT], ids=["reset", "timed out"])
async def test_what_never_arrived_is_written_again(make: Any, error: ApiError) -> None:
    store = Store()
    store.fates = [(error, False)]
    await RecordWriter(store).write(a_body(make))  # type: ignore[arg-type]
    assert store.writes == 2
    assert store.standing is not None


@pytest.mark.parametrize("version", ["", "100"], ids=["created", "replaced"])
async def test_what_arrives_late_is_done_once(make: Any, version: str) -> None:
    store = Store(a_body(make, "100", node="n9") if version else None)
    store.fates = [(RESET, False)]
    body = store.late = a_body(make, version)
    store.late, late = None, store.late

    async def on_its_way(path: str, query: Any = None) -> bytes:
        store.late, store.get = late, get  # type: ignore[method-assign]
        return await get(path)

    get, store.get = store.get, on_its_way  # type: ignore[method-assign]
    answer = json.loads(await RecordWriter(store).write(body))  # type: ignore[arg-type]
    assert (store.writes, answer["metadata"]["resourceVersion"]) == (2, "101")


@pytest.mark.parametrize(
    ("fate", "version"),
    [
        pytest.param(FAILED, "", id="a webhook that fails"),
        pytest.param(REFUSED, "", id="forbidden"),
    ],
)
async def test_what_is_refused_is_given_up_at_once(make: Any, fate: ApiError, version: str) -> None:
    store = Store()
    store.fates = [(fate, False)]
    with pytest.raises(type(fate)):
        await RecordWriter(store).write(a_body(make, version))  # type: ignore[arg-type]
    assert (store.writes, store.standing) == (1, None)


async def test_a_record_that_somebody_else_changed_is_a_conflict(make: Any) -> None:
    store = Store(a_body(make, "101", node="n9"))
    store.fates = [(RESET, False)]
    with pytest.raises(Conflict):
        await RecordWriter(store).write(a_body(make, "100"))  # type: ignore[arg-type]


async def test_a_read_that_is_refused_does_not_tell_that_it_does_not_stand(make: Any) -> None:
    """An API server that has just started may refuse anybody: it has not read the roles yet."""
    store = Store()
    store.fates, store.reads = [(RESET, True)], [Forbidden(403, "Forbidden", "no")]
    assert json.loads(await RecordWriter(store).write(a_body(make))) == store.standing  # type: ignore[arg-type]
    assert store.writes == 1


async def test_who_may_not_write_any_more_stops_waiting(make: Any) -> None:
    store = Store()
    store.fates = [(RESET, True)]
    store.reads = [RESET] * 1000

    def lost() -> float:
        raise LeadershipLost("over")

    store.before_write = lost
    with pytest.raises(LeadershipLost):
        await RecordWriter(store).write(a_body(make))  # type: ignore[arg-type]


class Told:
    """Takes the place of the recorder of Events."""

    def record(self, *_: Any) -> None:
        """Nobody asks."""


async def test_two_jobs_never_take_the_same_node_though_an_answer_is_lost(
    scene: Any, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = {"a": Store(), "b": Store()}
    stores["a"].fates = [(RESET, True)]
    away = asyncio.Event()

    def store_of(path: str) -> Store:
        return stores["a" if "/a-" in path else "b"]

    whether_it_stands = scene.api.get

    async def get(path: str, query: Any = None) -> bytes:
        if "/trainingjobs/" in path:
            return bytes(await whether_it_stands(path))
        await away.wait()
        return await store_of(path).get(path)

    async def post(path: str, body: Any, query: Any = None, **_: Any) -> bytes:
        return await stores[body["metadata"]["name"][0]].post(path, body)

    monkeypatch.setattr(scene.api, "get", get)
    monkeypatch.setattr(scene.api, "post", post)

    def decide(world: JobWorld, _: Any) -> Plan:
        if world.gang is not None or world.fleet.held_by_others("n0", world.uid):
            return Plan()
        return Plan((CommitGang(make.gang(world.job, "p0").spec, ""),))

    monkeypatch.setattr(reconciler, "decide", decide)
    dirty = DirtyKeys()
    scene.bus.job_changed.subscribe(dirty.add)
    queue = Queue(scene.cluster, scene.bus)
    performer = Performer(scene.api, scene.cluster)
    loop = Reconciler(
        scene.cluster,
        performer,
        dirty,
        Told(),  # type: ignore[arg-type]
        queue,
        lambda: None,  # type: ignore[arg-type, return-value]
        lambda _: None,
    )
    for name in ("a", "b"):
        scene.cluster.jobs.store.assume(make.job(name, workers=1))
    dirty.add(("ns", "a"))
    running = asyncio.create_task(loop.run())
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while stores["a"].standing is None:  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.001)
            dirty.add(("ns", "b"))
            for _ in range(20):  # passes of b, were it not kept from deciding
                await asyncio.sleep(0.005)
            away.set()
            while scene.cluster.gang_of("uid-a") is None:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.001)
            for _ in range(20):
                await asyncio.sleep(0.005)
    finally:
        running.cancel()
    assert (stores["a"].writes, stores["b"].writes) == (1, 0)

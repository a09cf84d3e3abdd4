"""The history of ended jobs: written once, whatever line the operator dies on, and never at the cost of another job."""

import asyncio
import base64
import contextlib
import json
import zlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client import REGISTRY
from tests.unit.clock import Clock
from tests.unit.controller.notes import the_note_fits
from tests.unit.lifecycle.builders import an_incident

from muster.api.endedjob import EndedJobSpec, Ending
from muster.api.fleetpolicy import FleetPolicySpec
from muster.api.gang import FaultClass, Gang
from muster.api.goodput import Bucket, OpenPhase
from muster.api.trainingjob import TrainingJob
from muster.controller import history
from muster.controller.history import HistoryKeeper, packed, unpacked
from muster.kube.decode import Undecodable
from muster.kube.errors import AlreadyExists, ApiError, Forbidden, Invalid, LeadershipLost, NotFound, Unreachable

SYSTEM = "muster-system"
RECORDS = f"/apis/muster.dev/v1alpha1/namespaces/{SYSTEM}/endedjobs"
NOTE = f"/api/v1/namespaces/{SYSTEM}/configmaps/{history.NOTE}"
UIDS = [f"00000000-0000-0000-0000-{number:012d}" for number in range(3000)]
GOODPUT = {
    "creationTime": "2026-01-31T10:00:00Z",
    "countedUntil": "2026-01-31T11:00:00Z",
    "seconds": {"compute": 3000, "queued": 600},
    "gpuSeconds": {"compute": 48_000},
    "failures": 1,
}
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


class Died(BaseException):
    """The process ends here."""


class Server:
    """What outlives an operator: the history and the note; counts calls and refuses what it is told to."""

    def __init__(self) -> None:
        self.records: dict[str, Any] = {}
        self.posts: list[str] = []
        self.note: Any = None
        self.calls = 0
        self.dies_at = -1  # before this call if it is even, else after the one before
        self.refuses: Callable[[str, str], ApiError | None] = lambda _verb, _path: None
        self.page = 2

    async def _called(self, verb: str, path: str, act: Callable[[], Any]) -> Any:
        self.calls += 1
        if self.dies_at == 2 * self.calls:
            raise Died
        refused = self.refuses(verb, path)
        if refused is not None:
            raise refused
        answer = act()
        if self.dies_at == 2 * self.calls + 1:
            raise Died
        await asyncio.sleep(0)
        return json.dumps(answer).encode()

    async def get(self, path: str, query: Any = None, *, most_bytes: int | None = None) -> bytes:
        def read() -> Any:
            if path == NOTE:
                if self.note is None:
                    raise NotFound(404, "NotFound", "none")
                return self.note
            assert path == RECORDS
            names = sorted(self.records)
            begin = int(query.get("continue", 0))
            page = [self.records[name] for name in names[begin : begin + self.page]]
            more = str(begin + self.page) if begin + self.page < len(names) else None
            return {"metadata": {"resourceVersion": "1", "continue": more}, "items": page}

        return await self._called("GET", path, read)  # type: ignore[no-any-return]

    async def post(self, path: str, body: Any) -> bytes:
        def create() -> Any:
            assert path == RECORDS
            name = body["metadata"]["name"]
            if name in self.records:
                raise AlreadyExists(409, "AlreadyExists", name)
            self.posts.append(name)
            self.records[name] = body
            return body

        return await self._called("POST", f"{path}/{body['metadata']['name']}", create)  # type: ignore[no-any-return]

    async def patch(self, path: str, body: Any, *_: Any) -> bytes:
        assert path == NOTE

        def write() -> Any:
            self.note = body
            return body

        return await self._called("PATCH", path, write)  # type: ignore[no-any-return]

    async def delete(self, path: str) -> bytes:
        name = path.rpartition("/")[2]
        return await self._called("DELETE", path, lambda: self.records.pop(name, {}))  # type: ignore[no-any-return]

    def spec(self, uid: str) -> EndedJobSpec:
        return EndedJobSpec.model_validate(self.records[uid]["spec"])


class Process:
    """One operator: its keeper, with the cluster's stores as it sees them."""

    def __init__(self, scene: Any, server: Server, policy: dict[str, Any] | None = None) -> None:
        self.scene, self.cluster = scene, scene.cluster
        for source in self.cluster.informers:
            source.synced.set()
        self.told: list[str] = []
        self.messages: list[str] = []
        self.cluster._policy = FleetPolicySpec.model_validate({"history": policy or {}})
        self.keeper = HistoryKeeper(
            server,  # type: ignore[arg-type]
            self.cluster,
            scene.bus,
            SYSTEM,
            self.report,
            scene.clock,
            lambda: NOW,
        )

    def report(self, reason: str, message: str) -> None:
        self.told.append(reason)
        self.messages.append(message)

    def sees(self, *jobs: TrainingJob) -> None:
        for job in jobs:
            self.cluster.jobs.store.assume(job)

    def sees_go(self, job: TrainingJob) -> None:
        self.cluster.jobs.store.assume_deleted(("ns", job.metadata.name), job.metadata.uid)

    async def turns(self, count: int = 3) -> None:
        """Run until so many turns are over; dies where the server says."""
        done = asyncio.Event()
        original, left = self.keeper._work_once, count

        async def turn() -> None:
            nonlocal left
            await original()
            self.scene.clock.advance(history.TURN_SECONDS)
            left -= 1
            if left <= 0:
                done.set()
                await asyncio.Event().wait()

        self.keeper._work_once = turn  # type: ignore[method-assign]
        running = asyncio.ensure_future(self.keeper.run())
        waiting = asyncio.ensure_future(done.wait())
        await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if running.done():
            running.result()
        running.cancel()
        self.keeper._work_once = original  # type: ignore[method-assign]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns follow each other at once; the clock is the test's."""

    async def sleep(_seconds: float, real: Any = asyncio.sleep) -> None:
        await real(0)

    class Timeout:
        async def __aenter__(self) -> None:
            raise TimeoutError

        async def __aexit__(self, *_: object) -> None:
            pass

    class Quick:
        def __getattr__(self, name: str) -> Any:
            return {"sleep": sleep, "timeout": lambda _: Timeout()}.get(name) or getattr(asyncio, name)

    monkeypatch.setattr(history, "asyncio", Quick())


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def new(make: Any) -> Callable[..., Process]:
    """`new(server)`: an operator that has just begun."""
    from tests.unit.controller.conftest import Scene

    clock = Clock()

    def started(server: Server, **policy: Any) -> Process:
        return Process(Scene(clock), server, policy)

    return started


@pytest.fixture
def job(make: Any) -> Callable[..., TrainingJob]:
    """`job(number, ended=True)`."""

    def made(number: int = 0, *, ended: bool = True, at: str = "2026-01-31T11:00:00Z", **status: Any) -> TrainingJob:
        if ended:
            end = {"result": "Succeeded", "reason": "Completed", "message": "done", "time": at, "attempt": 1}
            status["completion"] = end
        goodput = GOODPUT | {"countedUntil": at}
        found: TrainingJob = make.job(f"j{number}", goodput=goodput, state="Running", **status)
        metadata = found.metadata.model_copy(update={"uid": UIDS[number]})
        return found.model_copy(update={"metadata": metadata})

    return made


def gang_of(make: Any, job: TrainingJob) -> Gang:
    account = {"creationTime": GOODPUT["creationTime"], "countedUntil": GOODPUT["creationTime"]}
    found: Gang = make.gang(job, "p0", account=account, time=GOODPUT["creationTime"])
    return found


async def test_a_job_that_has_ended_is_kept_once(new: Any, server: Server, job: Any) -> None:
    for _ in range(3):
        process = new(server)
        process.sees(job())
        await process.turns()
    assert server.posts == [UIDS[0]]
    spec = server.spec(UIDS[0])
    assert (spec.state, spec.reason, spec.name, spec.namespace) == (Ending.SUCCEEDED, "Completed", "j0", "ns")
    assert sum(spec.seconds.values()) == 3600 == (spec.end_time - spec.creation_time).total_seconds()


async def test_one_that_ends_while_the_operator_leads_is_kept_soon(new: Any, server: Server, job: Any) -> None:
    process = new(server)
    process.sees(job(ended=False))
    await process.turns(1)
    assert not server.records
    process.sees(job().model_copy(update={"metadata": job().metadata.model_copy(update={"resource_version": "6"})}))
    assert process.keeper._stirred.is_set()
    await process.turns(1)
    assert list(server.records) == [UIDS[0]]


async def test_a_running_job_that_is_deleted_is_kept_to_its_last_second(
    new: Any, server: Server, job: Any, make: Any
) -> None:
    process = new(server)
    running = job(ended=False)
    process.sees(running)
    process.cluster.gangs.store.assume(gang_of(make, running))
    process.sees_go(running)
    await process.turns(1)
    spec = server.spec(UIDS[0])
    assert spec.state is Ending.DELETED
    assert spec.end_time == NOW
    assert sum(spec.seconds.values()) == (spec.end_time - spec.creation_time).total_seconds() == 7200
    assert UIDS[0] not in process.cluster.memories, "nothing of it is remembered"


async def test_a_process_whose_clock_is_behind_keeps_the_time_that_the_status_had_already(
    new: Any, server: Server, job: Any, make: Any
) -> None:
    """It is 12:00 here; the leader had counted until 13:00, three hours from the creation on."""
    process = new(server)
    running = job(ended=False, at="2026-01-31T13:00:00Z")
    process.sees(running)
    process.cluster.gangs.store.assume(gang_of(make, running))
    process.sees_go(running)
    await process.turns(1)
    assert sum(server.spec(UIDS[0]).seconds.values()) == 3 * 3600


async def test_a_running_job_that_is_deleted_is_kept_with_its_failures_by_class(
    new: Any, server: Server, job: Any, make: Any
) -> None:
    process = new(server)
    running = job(ended=False)
    process.sees(running)
    gang = gang_of(make, running)
    incident = an_incident(1, FaultClass.HARDWARE, trained=True)
    gang = gang.model_copy(update={"spec": gang.spec.model_copy(update={"incidents": [incident]})})
    process.cluster.gangs.store.assume(gang)
    process.sees_go(running)
    await process.turns(1)
    assert server.spec(UIDS[0]).failures_by_class == {"Hardware": 1}


async def test_of_a_job_whose_record_has_no_account_what_was_not_saved_is_lost_as_well(
    new: Any, server: Server, job: Any, make: Any
) -> None:
    """Of 3,000 s in steps 1,000 s are not saved, and of 600 steps 200."""
    process = new(server)
    running = job(ended=False)
    unsaved = {"unsaved_seconds": 1000, "steps": 600, "lost_steps": 5}
    goodput = running.status.goodput.model_copy(update=unsaved)
    running = running.model_copy(update={"status": running.status.model_copy(update={"goodput": goodput})})
    process.sees(running)
    process.cluster.gangs.store.assume(make.gang(running, "p0"))
    process.sees_go(running)
    await process.turns(1)
    spec = server.spec(UIDS[0])
    assert spec.seconds == {"compute": 2000, "lostWork": 1000, "queued": 600}
    assert (spec.steps, spec.lost_steps) == (400, 205)


@pytest.mark.parametrize(
    "breaks", [("goodput_of_status", "last_known"), ("ended_job_record",)], ids=["figures", "record"]
)
async def test_a_defect_here_keeps_no_node_from_being_freed(
    new: Any, server: Server, job: Any, make: Any, monkeypatch: pytest.MonkeyPatch, breaks: tuple[str, ...]
) -> None:
    def broken(*_: Any) -> Any:
        raise ZeroDivisionError

    process = new(server)
    running, ended = job(ended=False), job(1)
    process.sees(running, ended)
    for each in (running, ended):
        process.cluster.gangs.store.assume(gang_of(make, each))
    assert process.cluster.fleet.nodes_of(UIDS[0])
    for name in breaks:
        monkeypatch.setattr(history, name, broken)
    for each in (running, ended):
        process.cluster.memory(each.metadata.uid)
        process.sees_go(each)
    assert not process.cluster.fleet.nodes_of(UIDS[0])
    assert not process.cluster.memories


async def test_one_that_never_had_nodes_leaves_nothing(new: Any, server: Server, make: Any) -> None:
    process = new(server)
    waiting = make.job("w")
    process.sees(waiting)
    process.cluster.jobs.store.assume_deleted(("ns", "w"), waiting.metadata.uid)
    await process.turns(1)
    assert not server.records


async def test_a_standby_writes_nothing_and_knows_what_it_saw_go(new: Any, server: Server, job: Any, make: Any) -> None:
    leader, standby = new(server), new(server)
    running = job(ended=False)
    for process in (leader, standby):
        process.sees(running)
        process.cluster.gangs.store.assume(gang_of(make, running))
        process.sees_go(running)
    assert not server.calls
    await standby.turns(1)  # the leader has died before it wrote
    assert server.spec(UIDS[0]).state is Ending.DELETED
    await leader.turns(1)
    assert server.posts == [UIDS[0]]


def lives(new: Any, server: Server, job: Any, make: Any) -> list[Process]:
    """An operator that sees one job end, one be deleted and one go on; the next sees what is left of that."""
    first, *others = new(server), new(server), new(server)
    jobs = [job(0), job(1, ended=False), job(2, ended=False)]
    first.sees(*jobs)
    for each in jobs:
        first.cluster.gangs.store.assume(gang_of(make, each))
    for process in others:
        process.sees(jobs[0], jobs[2])
    return [first, *others]


async def whole_story(processes: list[Process], server: Server, job: Any) -> bool:
    """The note is written, then one job is deleted; an operator that dies is followed by a new one.

    Returns:
        whether the note had been written when the first one ended.
    """
    first, *others = processes
    with contextlib.suppress(Died):
        await first.turns(8)
        first.sees_go(job(1, ended=False))
        await first.turns(2)
    noted = server.note is not None
    for process in others:
        with contextlib.suppress(Died):
            await process.turns(8)
    return noted


def deaths() -> list[int]:
    """Before and after each call of the story; its test says that there are no more."""
    return list(range(2, 2 * 12))


@pytest.mark.parametrize("point", deaths())
async def test_whatever_line_the_operator_dies_on_each_end_is_kept_once(
    new: Any, server: Server, job: Any, make: Any, point: int
) -> None:
    processes = lives(new, server, job, make)
    server.dies_at = point
    noted = await whole_story(processes, server, job)
    assert len(server.posts) == len(set(server.posts))
    assert UIDS[0] in server.records
    assert UIDS[2] not in server.records, "it goes on"
    assert server.spec(UIDS[0]).state is Ending.SUCCEEDED
    if UIDS[1] in server.records:
        spec = server.spec(UIDS[1])
        assert spec.state in (Ending.DELETED, Ending.UNKNOWN)
        assert sum(spec.seconds.values()) == (spec.end_time - spec.creation_time).total_seconds()
    # Before the first note a job that goes while nobody looks leaves nothing, which the docs say.
    assert UIDS[1] in server.records or not noted


async def test_the_deaths_are_all_there_are(new: Any, server: Server, job: Any, make: Any) -> None:
    processes = lives(new, server, job, make)
    await whole_story(processes, server, job)
    assert 2 * server.calls + 1 == max(deaths())
    assert server.spec(UIDS[1]).state is Ending.DELETED


async def test_who_was_noted_and_is_nowhere_went_unseen(new: Any, server: Server, job: Any, make: Any) -> None:
    first = new(server)
    running = job(ended=False)
    first.sees(running)
    await first.turns(8)
    assert server.note is not None
    await new(server).turns(1)
    spec = server.spec(UIDS[0])
    assert (spec.state, sum(spec.seconds.values())) == (Ending.UNKNOWN, 3600)


async def test_a_job_that_is_down_is_noted_with_the_time_since_its_last_write(
    new: Any, server: Server, job: Any, make: Any
) -> None:
    """Its last write is of 11:00. Until 12:00 it has waited for a node and has held the three others, of 8 GPUs."""
    process = new(server)
    down = job(ended=False)
    phase = OpenPhase(bucket=Bucket.REQUEUED, since=down.status.goodput.counted_until, gpus=24)
    goodput = down.status.goodput.model_copy(update={"open_phase": phase})
    process.sees(down.model_copy(update={"status": down.status.model_copy(update={"goodput": goodput})}))
    process.cluster.gangs.store.assume(gang_of(make, down))
    await process.turns(8)
    await new(server).turns(1)
    spec = server.spec(UIDS[0])
    assert (spec.state, spec.end_time) == (Ending.UNKNOWN, NOW)
    assert spec.seconds == {"compute": 3000, "queued": 600, "requeued": 3600}
    assert spec.gpu_seconds == {"compute": 48_000, "requeued": 24 * 3600}


async def begins_and_goes(new: Any, server: Server, job: Any, *, dies_at: int = -1) -> bool:
    """Two jobs begin while an operator leads, and one of them ends; the other one goes while no operator runs.

    Args:
        dies_at: as in `Server`, of the calls from the begin of the jobs on.

    Returns:
        whether the two had been noted when the first operator ended.
    """
    first = new(server)
    await first.turns(7)  # without any job, so that its note has none
    before = server.note
    server.dies_at = dies_at + 2 * server.calls if dies_at >= 0 else -1
    waiting = [job(number, ended=False) for number in (0, 1)]
    without = waiting[0].status.model_copy(update={"goodput": None})
    first.sees(*(each.model_copy(update={"status": without}) for each in waiting))
    version = {"resource_version": "6"}
    first.sees(*(each.model_copy(update={"metadata": each.metadata.model_copy(update=version)}) for each in waiting))
    with contextlib.suppress(Died):
        await first.turns(5)
        first.sees(job(0).model_copy(update={"metadata": job(0).metadata.model_copy(update={"resource_version": "7"})}))
        await first.turns(1)
    noted = server.note is not before
    server.dies_at = -1
    for _ in range(2):
        later = new(server)
        later.sees(job(0))
        await later.turns(1)
    return noted


@pytest.mark.parametrize("point", [-1, *range(2, 12)])
async def test_a_job_leaves_an_account_wherever_the_operator_dies(
    new: Any, server: Server, job: Any, point: int
) -> None:
    """It is noted soon after its start."""
    noted = await begins_and_goes(new, server, job, dies_at=point)
    assert len(server.posts) == len(set(server.posts))
    assert server.spec(UIDS[0]).state is Ending.SUCCEEDED
    assert noted == (UIDS[1] in server.records)
    assert noted or point in (2, 4, 6), "the calls before the note is there: two lists, and the note itself"
    if noted:
        spec = server.spec(UIDS[1])
        assert (spec.state, spec.reason) == (Ending.UNKNOWN, "")
        assert (spec.creation_time, spec.end_time) == (NOW - timedelta(hours=2), NOW - timedelta(hours=1))


async def test_jobs_that_begin_together_are_one_note(new: Any, server: Server, job: Any) -> None:
    process = new(server)
    await process.turns(7)
    before = server.calls
    for number in range(20):
        process.sees(job(number, ended=False))
        if number % 5 == 0:
            process.scene.clock.advance(5)
    await process.turns(8)
    assert server.calls - before <= 2 * (1 + 1) + 1, "the lists of the two begins, and one note"
    assert len(unpacked(json.dumps(server.note).encode())[0]) == 20


async def test_a_write_that_fails_holds_no_other_and_is_given_up_in_the_end(
    new: Any, server: Server, job: Any, caplog: pytest.LogCaptureFixture
) -> None:
    process = new(server)
    process.sees(job(0), job(1), job(2))
    server.refuses = lambda _, path: Forbidden(403, "Forbidden", "a webhook") if path.endswith(UIDS[0]) else None
    await process.turns(2)
    assert sorted(server.records) == UIDS[1:3]
    server.records.clear()
    process = new(server)
    process.sees(job(0))
    server.refuses = lambda verb, _path: Forbidden(403, "Forbidden", "quota") if verb == "POST" else None
    await process.turns(120)
    assert process.told == ["HistoryNotWritten"], "while the job is there it is tried again"
    assert process.keeper._waiting
    process.sees_go(job(0))
    process.scene.clock.advance(history.GIVE_UP_SECONDS)
    await process.turns(2)
    assert process.told == ["HistoryNotWritten", "HistoryLost"]
    assert not process.keeper._waiting


async def test_a_namespace_that_ends_thousands_of_jobs_costs_only_its_own_accounts(
    new: Any, server: Server, job: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "MAX_WAITING", 100)
    process = new(server)
    await process.turns(1)
    numbers = iter(range(len(UIDS)))

    def wants(namespace: str, gpus: int = 1) -> str:
        uid = UIDS[next(numbers)]
        times = {"creationTime": "2026-01-31T10:00:00Z", "endTime": "2026-01-31T11:00:00Z"}
        spec = {"namespace": namespace, "name": uid, "jobUid": uid, "state": "Deleted", "gpus": gpus, **times}
        process.keeper._wait_for(EndedJobSpec.model_validate(spec))
        return uid

    wanted = [wants("lab"), wants("many", gpus=4096)]
    for number in range(300):
        wants("many")
        if number % 30 == 0:
            wanted.append(wants("prod"))
    assert len(process.keeper._waiting) == 100
    await process.turns(2)
    assert set(wanted[:1] + wanted[2:]) <= set(server.records), "it is served in turn"
    await process.turns(8)
    assert set(wanted) <= set(server.records), "and of its own the large ones are kept"


async def test_people_are_told_once_though_every_account_is_refused(new: Any, server: Server, job: Any) -> None:
    process = new(server)
    process.sees(*(job(number) for number in range(10)))
    server.refuses = lambda verb, _path: Forbidden(403, "Forbidden", "quota") if verb == "POST" else None
    await process.turns(20)
    assert process.told == ["HistoryNotWritten"]


async def test_what_can_never_be_written_is_given_up_at_once(new: Any, server: Server, job: Any) -> None:
    process = new(server)
    process.sees(job())
    server.refuses = lambda verb, _: Invalid(422, "Invalid", "spec.x") if verb == "POST" else None
    await process.turns(3)
    assert process.told == ["HistoryLost"]


async def test_an_ended_job_is_deleted_once_it_is_kept_and_not_held_for_ever(
    new: Any, server: Server, job: Any
) -> None:
    process = new(server)
    process.sees(job())
    server.refuses = lambda verb, _: Unreachable(0, "", "away") if verb == "POST" else None
    with pytest.raises(Unreachable):
        await process.keeper.keep_before_deletion(job())
    process.scene.clock.advance(history.HOLD_SECONDS + 1)
    await process.keeper.keep_before_deletion(job())
    assert not server.records
    server.refuses = lambda _verb, _path: None
    await process.keeper.keep_before_deletion(job())
    await process.keeper.keep_before_deletion(job())
    assert server.posts == [UIDS[0]]


async def test_an_installation_without_the_kind_holds_no_job(new: Any, server: Server, job: Any) -> None:
    process = new(server)
    process.sees(job())
    server.refuses = lambda verb, _: NotFound(404, "NotFound", "no such kind") if verb == "POST" else None
    await process.keeper.keep_before_deletion(job())
    assert not server.records


async def test_nothing_is_written_by_who_may_not_lead(new: Any, server: Server, job: Any) -> None:
    process = new(server)
    process.sees(job())

    def lost(verb: str, _path: str) -> ApiError | None:
        if verb == "POST":
            raise LeadershipLost("lease lost")
        return None

    server.refuses = lost
    with pytest.raises(LeadershipLost):
        await process.turns(3)
    with pytest.raises(LeadershipLost):
        await process.keeper.keep_before_deletion(job())


async def test_the_history_is_bounded_by_number_and_at_so_many_calls(new: Any, server: Server, job: Any) -> None:
    server.page = 500
    for number in range(100):
        made = job(number, at=f"2026-01-{1 + number // 10:02d}T12:00:00Z")
        process = new(server)
        process.sees(made)
        await process.keeper.keep_before_deletion(made)
    process = new(server, maxJobs=30)
    process.sees(*(job(number, at=f"2026-01-{1 + number // 10:02d}T12:00:00Z") for number in range(100)))
    before = server.calls
    await process.turns(1)
    assert len(server.records) >= 100 - history.CALLS
    assert server.calls - before <= history.CALLS + 2, "and the list, and the note"
    await process.turns(10)
    assert sorted(server.records) == UIDS[70:100], "the newest are kept"
    posts = len(server.posts)
    process = new(server, maxJobs=30)
    process.sees(*(job(number, at=f"2026-01-{1 + number // 10:02d}T12:00:00Z") for number in range(100)))
    await process.turns(20)
    assert len(server.posts) == posts, "those that were forgotten are not written anew by the next leader"


async def test_a_clock_that_jumps_deletes_nothing(new: Any, server: Server, job: Any) -> None:
    process = new(server, max_age_days=1)
    process.sees(job())
    await process.turns(1)
    assert server.records
    process.keeper._wall_clock = lambda: NOW + timedelta(days=9999)
    await process.turns(3)
    process.keeper._wall_clock = lambda: NOW
    process.scene.clock.advance(2 * history.SURE_SECONDS)
    await process.turns(2)
    assert server.records, "the clock was right again before it was believed"
    process.keeper._wall_clock = lambda: NOW + timedelta(days=2)
    await process.turns(1)
    process.scene.clock.advance(history.SURE_SECONDS + 1)
    await process.turns(1)
    assert not server.records


async def test_switched_off_it_writes_nothing(new: Any, server: Server, job: Any) -> None:
    process = new(server, maxJobs=0)
    process.sees(job())
    await process.turns(8)
    await process.keeper.keep_before_deletion(job())
    process.sees_go(job())
    await process.turns(2)
    assert not server.records
    assert server.note is None


async def test_a_history_that_cannot_be_read_is_read_later(new: Any, server: Server, job: Any) -> None:
    process = new(server)
    process.sees(job())
    failures = iter([Unreachable(0, "", "away")] * 3)
    server.refuses = lambda verb, _: next(failures, None) if verb == "GET" else None
    await process.turns(2)
    assert list(server.records) == [UIDS[0]]


async def test_nonsense_in_the_history_and_in_the_note_harms_nobody(new: Any, server: Server, job: Any) -> None:
    server.records = {
        "nonsense": {"metadata": {"name": "nonsense"}, "spec": {"end": "yesterday"}},
        "empty": {"metadata": {"name": "empty"}},
    }
    for data in ("", ("AAAA"), packed([{"jobUid": 5}, {}, {"jobUid": "../../x", "namespace": "a"}])):  # type: ignore[list-item]
        server.note = {"binaryData": {"jobs": data}}
        process = new(server)
        process.sees(job())
        await process.turns(1)
        assert UIDS[0] in server.records


def unreadable(name: str) -> float | None:
    return REGISTRY.get_sample_value("muster_history_unreadable", {"configmap": name})


LATER_NOTES = {
    "no such key": {"data": {"jobs": "[]"}},
    "no base64": {"binaryData": {"jobs": "\u00e4"}},
    "not compressed": {"binaryData": {"jobs": "AAAA"}},
    "no list": {"binaryData": {"jobs": base64.b64encode(zlib.compress(b'{"form": 2}')).decode()}},
}


@pytest.mark.parametrize("note", LATER_NOTES.values(), ids=LATER_NOTES.keys())
async def test_a_note_of_another_form_is_reported_and_not_written_over(
    new: Any, server: Server, job: Any, note: Any
) -> None:
    server.note = note
    process = new(server)
    process.sees(job(0), job(1, ended=False))
    await process.turns(20)
    assert server.note == note
    assert UIDS[0] in server.records, "accounts are kept all the same"
    assert process.told == ["HistoryUnreadable"]
    assert f"ConfigMap muster-system/{history.NOTE} cannot be read (binaryData.jobs: " in process.messages[0]
    assert unreadable(history.NOTE) == 1
    await process.turns(80)
    assert process.told == ["HistoryUnreadable"] * 2, "every ten minutes"
    server.note = None  # deleted
    await process.turns(40)
    assert (unreadable(history.NOTE), len(process.told)) == (0, 2)
    assert [spec.job_uid for spec in unpacked(json.dumps(server.note).encode())[0]] == [UIDS[1]]


async def test_entries_of_the_note_that_only_a_later_version_reads_stay_in_it(
    new: Any, server: Server, job: Any
) -> None:
    first = new(server)
    first.sees(job(1, ended=False), job(2, ended=False))
    await first.turns(8)
    (known, other), _ = unpacked(json.dumps(server.note).encode())
    later = {**known.to_json(), "jobUid": UIDS[3], "state": "Preempted", "gpus": "many"}
    server.note = {"binaryData": {"jobs": packed([later, {**other.to_json(), "queue": {"name": "a"}}])}}
    second = new(server)
    second.sees(job(1, ended=False))
    await second.turns(20)
    specs, unread = unpacked(json.dumps(server.note).encode())
    assert ([spec.job_uid for spec in specs], unread) == ([UIDS[1]], {UIDS[3]: later})
    assert server.records[other.job_uid]["spec"]["queue"] == {"name": "a"}, "of the job that went unseen"


async def test_a_job_that_becomes_unreadable_stays_noted(new: Any, server: Server, job: Any) -> None:
    first = new(server)
    first.sees(job(1, ended=False))
    await first.turns(8)
    second = new(server)
    second.cluster.jobs.store.assume(Undecodable("ns", "j1", UIDS[1], 9, 1, "status.conditions.0.status: bad"))
    await second.turns(20)
    assert [spec.job_uid for spec in unpacked(json.dumps(server.note).encode())[0]] == [UIDS[1]]
    await new(server).turns(1)
    assert server.spec(UIDS[1]).state is Ending.UNKNOWN


def test_the_note_of_very_many_jobs_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the bound that is shipped: tests/unit/nightly/controller/test_history.py."""
    monkeypatch.setattr(history, "MAX_NOTE_BYTES", history.MAX_NOTE_BYTES // 50)
    the_note_fits(1_000, 1_000_000 // 50)


async def test_five_hundred_jobs_deleted_at_once_are_kept_at_the_pace_of_turns(
    new: Any, server: Server, job: Any
) -> None:
    process = new(server)
    jobs = [job(number, ended=False) for number in range(500)]
    process.sees(*jobs)
    for each in jobs:
        process.sees_go(each)
    await process.turns(1)
    assert len(server.posts) == history.CALLS
    await process.turns(24)
    assert len(server.posts) == 500

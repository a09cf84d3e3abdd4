"""Acting: how much at once, what is left out because it stands already, how soon after a refusal, how often a
status."""

import asyncio
import contextlib
import functools
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
import structlog
from tests.unit.controller.conftest import naming
from tests.unit.controller.refusals import FOR_GOOD, QUOTA, carry_out, jobs_ask_less_and_less
from tests.unit.waiting import until

from muster.api.trainingjob import CheckpointConcern, CheckpointStatus, CheckpointTrouble, JobWarning, TrainingJobStatus
from muster.controller.cluster import CLASS_AWAY_SECONDS
from muster.controller.perform import (
    COUNTS_WRITE_SECONDS,
    MAX_CLAIMS,
    MAX_CREATE_BACK_OFF_SECONDS,
    NAMESPACE_WRITES,
    PROGRESS_WRITE_SECONDS,
    WRITES_AT_ONCE,
    Performer,
)
from muster.kube.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound, Unreachable, from_status
from muster.kube.pipes import MAX_CONNECTIONS
from muster.lifecycle.pending import TEMPLATE_RETRY_SECONDS
from muster.lifecycle.plan import ApplySupport, CheckTemplate, CommitGang, CreatePod, DeletePod, Plan
from muster.world.job import TemplateVerdict, VerdictKind
from muster.world.names import pod_name
from muster.world.quotas import QuotaView
from muster.world.views import JOB_UID_LABEL, NodeView, PodView


@pytest.fixture
def performer(scene: Any, clock: Any) -> Performer:
    return Performer(scene.api, scene.cluster, clock)


@pytest.fixture
def logged() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as lines:
        yield lines


def creation(name: str = "p") -> CreatePod:
    return CreatePod({"kind": "Pod", "metadata": {"name": name, "namespace": "ns"}, "spec": {"containers": []}})


def support(text: str = "one", kind: str = "ConfigMap") -> ApplySupport:
    return ApplySupport({"kind": kind, "metadata": {"name": "shared", "namespace": "ns"}, "data": {"ca": text}})


async def test_pods_are_created_and_deleted_side_by_side_within_bounds(
    performer: Performer, scene: Any, make: Any
) -> None:
    job = make.job()
    await carry_out(performer, job, Plan(tuple(DeletePod(f"p{i}", f"u{i}") for i in range(300))))
    assert scene.api.count("DELETE") == 300
    assert scene.api.most_at_once == WRITES_AT_ONCE
    scene.api.most_at_once = 0
    await carry_out(performer, job, Plan(tuple(creation(f"p{i}") for i in range(300))))
    assert scene.api.count("POST") == len(scene.cluster.pods.store) == 300
    assert scene.api.most_at_once == NAMESPACE_WRITES


async def test_no_pod_comes_to_a_node_that_has_just_left_the_scope(performer: Performer, scene: Any, make: Any) -> None:
    scene.apply_policy({"scope": {"nodeSelector": {"matchLabels": {"cell": "a"}}}}, version=2)
    for name, cell in (("n0", "a"), ("n1", "b")):
        scene.cluster.nodes.store.assume(NodeView(name, name, 1, {"cell": cell}, ready=True))
    creations = (replace(creation(f"p{index}"), node=f"n{index}") for index in range(2))
    await carry_out(performer, make.job(), Plan(tuple(creations)))
    assert [pod.name for pod in scene.cluster.pods.store.values()] == ["p0"]


async def test_nothing_is_left_of_a_namespace_in_which_no_pod_is_made(
    performer: Performer, scene: Any, make: Any
) -> None:
    await carry_out(performer, make.job(), Plan((creation(),)))
    assert scene.api.count("POST") == 1
    assert dict(performer._shares) == {}


async def test_creations_that_hang_in_one_namespace_leave_the_others_connections(
    performer: Performer, scene: Any, make: Any
) -> None:
    scene.api.hangs = lambda _verb, path: "/namespaces/hangs/" in path
    several = [make.job(f"h{number}", namespace="hangs") for number in range(3)]
    plan = Plan(tuple(creation(f"p{i}") for i in range(100)))
    hanging = [asyncio.create_task(carry_out(performer, job, plan)) for job in several]
    await until(lambda: scene.api.running == NAMESPACE_WRITES)
    for _ in range(10):
        await asyncio.sleep(0)
    assert scene.api.running == NAMESPACE_WRITES < MAX_CONNECTIONS
    for task in hanging:
        task.cancel()
    await asyncio.gather(*hanging, return_exceptions=True)


async def test_deletions_come_first_and_creations_last(performer: Performer, scene: Any, make: Any) -> None:
    await carry_out(performer, make.job(), Plan((creation(), support(), DeletePod("old", "u"))))
    assert [verb for verb, _ in scene.api.calls] == ["DELETE", "PATCH", "POST"]
    assert scene.api.bodies[0]["preconditions"] == {"uid": "u"}


async def test_a_deleted_pod_leaves_the_store_at_once(performer: Performer, scene: Any, make: Any) -> None:
    job = make.job()
    for index in range(2):
        scene.cluster.pods.store.assume(make.pod(job, index, f"p{index}"))
    names = {pod.uid: pod.name for pod in scene.cluster.pods.store.values()}
    await carry_out(performer, job, Plan((DeletePod(names["p0"], "p0"),)))
    scene.api.refuse["DELETE"] = NotFound(404, "NotFound", "gone")
    await carry_out(performer, job, Plan((DeletePod(names["p1"], "p1"),)))
    assert scene.cluster.pods.store.values() == []


async def test_the_status_is_written_although_a_pod_is_refused_and_the_refusal_is_told(
    performer: Performer, scene: Any, make: Any
) -> None:
    job = make.job()
    scene.cluster.jobs.store.assume(job)
    scene.api.refuse["POST"] = QUOTA
    with pytest.raises(Forbidden):
        await carry_out(performer, job, Plan((creation(),), status=job.status.model_copy(update={"attempt": 7})))
    assert scene.cluster.job(("ns", "j")).status.attempt == 7


@pytest.mark.parametrize(
    ("code", "message", "reason"),
    [
        (400, 'admission webhook "w" denied the request: no', "CreationForbidden"),
        (400, 'admission webhook "w" does not support dry run', "DryRunUnsupported"),
        (422, 'Pod "job-0" is invalid: spec.containers[0].name: Required value', "TemplateInvalid"),
    ],
)
async def test_a_refusal_is_named_by_what_the_server_says(
    performer: Performer, scene: Any, make: Any, code: int, message: str, reason: str
) -> None:
    job = make.job()
    body = {"kind": "Status", "reason": "BadRequest", "message": message, "code": code}
    scene.api.refuse["POST"] = from_status(code, json.dumps(body).encode())
    await carry_out(performer, job, Plan((CheckTemplate({"metadata": {}}, 1),)))
    verdict = scene.cluster.world(job).template_verdict
    assert (verdict.kind, verdict.reason) == (VerdictKind.REFUSED, reason)
    assert message in verdict.message
    with pytest.raises(ApiError):
        await carry_out(performer, job, Plan((creation(),)))
    assert scene.cluster.memory(job.metadata.uid).create_error.reason == reason


async def test_one_failing_deletion_does_not_hold_up_the_others(performer: Performer, scene: Any, make: Any) -> None:
    scene.api.refuse["DELETE"] = Forbidden(403, "Forbidden", "no")
    with pytest.raises(Forbidden):
        await carry_out(performer, make.job(), Plan((DeletePod("a", "1"), DeletePod("b", "2"), creation())))
    assert scene.api.count("DELETE") == 2
    assert scene.api.count("POST") == 0


async def test_what_workers_share_is_applied_when_it_changes_and_whenever_pods_are_created(
    performer: Performer, scene: Any, make: Any
) -> None:
    job = make.job()

    async def applied(*actions: Any) -> int:
        before = scene.api.count("PATCH")
        await carry_out(performer, job, Plan(actions))
        return int(scene.api.count("PATCH")) - before

    assert await applied(support(), support(kind="PodDisruptionBudget")) == 2
    assert await applied(support(), support(kind="PodDisruptionBudget")) == 0
    assert await applied(support("two")) == 1
    assert await applied(support("one")) == 1, "it was there before, but it is not now"
    assert await applied(support("one"), creation()) == 1, "somebody may have deleted it"


async def test_creations_back_off_after_a_refusal_and_go_on_when_it_is_over(
    performer: Performer, scene: Any, make: Any, clock: Any, logged: list[Any]
) -> None:
    job = make.job()
    memory = scene.cluster.memory(job.metadata.uid)
    memory.template_verdict = TemplateVerdict(VerdictKind.ACCEPTED, 1)
    scene.api.refuse["POST"] = QUOTA
    plan = Plan((support(), creation()))
    pauses = []
    for _ in range(7):
        with pytest.raises(Forbidden):
            await carry_out(performer, job, plan)
        assert memory.create_error.reason == "QuotaExceeded"
        pauses.append(memory.create_not_before - clock.now)
        tried = len(scene.api.calls)
        clock.advance(pauses[-1] - 0.1)
        await carry_out(performer, job, plan)
        assert len(scene.api.calls) == tried, "nobody storms the API server"
        clock.advance(0.2)
    assert pauses == pytest.approx([2.0, 4.0, 8.0, 16.0, 32.0, *[MAX_CREATE_BACK_OFF_SECONDS] * 2])
    assert [line["event"] for line in logged] == ["creation refused"], "one line while nothing changes"
    assert memory.template_verdict.generation == 0, "it takes no nodes for such pods before they are tried"
    scene.api.refuse.clear()
    await carry_out(performer, job, plan)
    assert memory.create_error is None
    scene.api.refuse["POST"] = QUOTA
    with pytest.raises(Forbidden):
        await carry_out(performer, job, plan)
    assert memory.create_not_before - clock.now == pytest.approx(2.0)
    assert len(logged) == 2


async def test_a_refused_template_is_logged_once_and_tried_again(
    performer: Performer, scene: Any, make: Any, clock: Any, logged: list[Any]
) -> None:
    job = make.job()
    scene.api.refuse["POST"] = FOR_GOOD
    pauses = []
    for _ in range(3):
        await carry_out(performer, job, Plan((CheckTemplate({"metadata": {}}, 1),)))
        verdict = scene.cluster.world(job).template_verdict
        assert verdict.reason == "PodSecurityViolation"
        pauses.append(verdict.retry_seconds)
        clock.advance(verdict.retry_seconds - 0.1)
        assert scene.cluster.world(job).template_verdict.generation == 1
        clock.advance(0.2)
        assert scene.cluster.world(job).template_verdict.generation == 0, "it is tried again"
    assert len(logged) == 1
    for pause, longest in zip(pauses, (30.0, 60.0, 120.0), strict=True):
        assert 0.75 * longest <= pause <= longest
    await carry_out(performer, job, Plan((CheckTemplate({"metadata": {}}, 2),)))
    assert scene.cluster.world(job).template_verdict.retry_seconds <= TEMPLATE_RETRY_SECONDS, "another template"


async def test_what_is_accepted_without_its_class_is_tried_again_after_a_minute(
    performer: Performer, scene: Any, make: Any, clock: Any
) -> None:
    """The API server has not yet seen that the class is gone, or Muster that it has come."""
    job = naming(make.job(), "top")
    await carry_out(performer, job, Plan((CheckTemplate({"spec": {"containers": []}}, 1),)))
    world = scene.cluster.world(job)
    assert (world.template_verdict.kind, world.template_verdict.generation) == (VerdictKind.ACCEPTED, 1)
    assert world.lacks_class
    clock.advance(CLASS_AWAY_SECONDS)
    assert scene.cluster.world(job).template_verdict.generation == 0


async def test_an_api_server_that_has_not_seen_a_class_is_asked_again_soon(
    performer: Performer, scene: Any, make: Any
) -> None:
    scene.api.refuse["POST"] = Forbidden(
        403, "Forbidden", 'pods "x" is forbidden: no PriorityClass with name a was found'
    )
    await carry_out(performer, make.job(), Plan((CheckTemplate({"metadata": {}}, 1),)))
    assert scene.cluster.world(make.job()).template_verdict.retry_seconds <= 1.0


@pytest.mark.parametrize(("refused", "count"), [(FOR_GOOD, 200), (QUOTA, 40)], ids=["for good", "for a while"])
async def test_refused_jobs_ask_the_api_server_less_and_less(scene: Any, refused: ApiError, count: int) -> None:
    """Twice as many, and more: tests/unit/nightly/controller/test_perform.py."""
    await jobs_ask_less_and_less(scene, refused, count)


async def test_refusals_without_end_are_no_defect(performer: Performer, scene: Any, make: Any, clock: Any) -> None:
    job = make.job()
    scene.cluster.memory(job.metadata.uid).create_failures = 2000
    scene.api.refuse["POST"] = QUOTA
    with pytest.raises(Forbidden):
        await carry_out(performer, job, Plan((creation(),)))


class Statuses:
    """Writes statuses as passes do: always on the job as it is in the store."""

    def __init__(self, performer: Performer, scene: Any, job: Any) -> None:
        self._performer, self._scene = performer, scene
        scene.cluster.jobs.store.assume(job)

    async def write(self, **changes: Any) -> float | None:
        job = self._scene.cluster.job(("ns", "j"))
        return await self._performer.conclude(job, Plan(status=job.status.model_copy(update=changes)))

    def conditions(self, reason: str, message: str) -> list[Any]:
        condition = {
            "type": "Running",
            "status": "False",
            "reason": reason,
            "message": message,
            "observedGeneration": 1,
            "lastTransitionTime": "2026-01-31T12:00:00Z",
        }
        status = self._scene.cluster.job(("ns", "j")).status
        return list(type(status).model_validate({"conditions": [condition]}).conditions)


@pytest.fixture
def statuses(performer: Performer, scene: Any, make: Any) -> Statuses:
    return Statuses(performer, scene, make.job(state="Starting", nodesReady="0/64"))


async def test_counts_are_written_at_most_every_two_seconds(statuses: Statuses, scene: Any, clock: Any) -> None:
    assert await statuses.write(nodes_ready="1/64") is None
    for ready in range(2, 40):
        clock.advance(0.05)
        left = await statuses.write(nodes_ready=f"{ready}/64")
        assert left == pytest.approx(COUNTS_WRITE_SECONDS - 0.05 * (ready - 1))
    assert scene.api.count("PATCH") == 1
    clock.advance(COUNTS_WRITE_SECONDS)
    assert await statuses.write(nodes_ready="64/64") is None
    assert scene.cluster.job(("ns", "j")).status.nodes_ready == "64/64"


async def test_steps_are_written_at_most_every_thirty_seconds(statuses: Statuses, scene: Any, clock: Any) -> None:
    assert await statuses.write(step=1) is None
    clock.advance(1.0)
    assert await statuses.write(step=2) == PROGRESS_WRITE_SECONDS - 1.0
    clock.advance(PROGRESS_WRITE_SECONDS)
    assert await statuses.write(step=3) is None
    assert scene.api.count("PATCH") == 2


async def test_anything_else_is_written_at_once(statuses: Statuses, scene: Any) -> None:
    await statuses.write(nodes_ready="1/64")
    assert await statuses.write(nodes_ready="2/64", state="Running") is None
    assert await statuses.write(conditions=statuses.conditions("Assembling", "waiting for worker 0")) is None
    assert await statuses.write(conditions=statuses.conditions("QuotaExceeded", "no")) is None
    assert scene.api.count("PATCH") == 4
    waiting = await statuses.write(conditions=statuses.conditions("QuotaExceeded", "no, still not"))
    assert waiting == COUNTS_WRITE_SECONDS, "only its words have changed"
    assert scene.api.count("PATCH") == 4


async def test_the_words_of_a_warning_are_written_no_more_often_than_counts(statuses: Statuses, scene: Any) -> None:
    since = datetime(2026, 1, 31, 12, tzinfo=UTC)

    async def warned(*messages: str) -> float | None:
        return await statuses.write(warnings=[JobWarning(reason="A", message=one, since=since) for one in messages])

    assert await warned("at 1") is None
    assert await warned("at 2") == COUNTS_WRITE_SECONDS
    assert scene.api.count("PATCH") == 1
    assert await warned("at 2", "and more") is None


async def test_a_status_is_written_over_none_but_the_one_that_was_read(statuses: Statuses, scene: Any) -> None:
    read = scene.cluster.job(("ns", "j")).metadata.resource_version
    await statuses.write(state="Running")
    assert scene.api.bodies[0]["metadata"]["resourceVersion"] == read


async def test_what_has_vanished_from_a_map_within_the_status_vanishes_from_the_object(
    statuses: Statuses, scene: Any
) -> None:
    """A merge patch leaves what it does not name: a step that the training once resumed from would stand there for
    ever."""
    found = {"attempt": 1, "time": "2026-01-31T12:00:00Z", "reason": "ReplayMismatch", "foundAt": 9}
    times = {"creationTime": "2026-01-31T12:00:00Z", "countedUntil": "2026-01-31T12:00:10Z"}

    def status_with(corruption: dict[str, Any], goodput: dict[str, Any]) -> dict[str, Any]:
        told = TrainingJobStatus.model_validate({"corruption": corruption, "goodput": goodput})
        return {"corruption": told.corruption, "goodput": told.goodput}

    await statuses.write(**status_with(found | {"resumedStep": 4}, times | {"seconds": {"queued": 10}, "failures": 1}))
    wanted = status_with(found | {"attempt": 2}, times | {"seconds": {"unknown": 10}})
    await statuses.write(state="Running", **wanted)
    status = scene.cluster.job(("ns", "j")).status
    assert status.corruption == wanted["corruption"]
    assert status.goodput == wanted["goodput"]


async def test_a_concern_is_written_at_once_since_it_is_announced_once(statuses: Statuses, scene: Any) -> None:
    time = datetime(2026, 1, 31, 12, tzinfo=UTC)
    saved = CheckpointStatus(step=1, path="/c/1", time=time)
    assert await statuses.write(checkpoint=saved) is None
    concern = CheckpointConcern(reason=CheckpointTrouble.SPACE_LOW, message="full soon", since=time)
    assert await statuses.write(checkpoint=saved.model_copy(update={"concerns": [concern]})) is None
    assert scene.api.count("PATCH") == 2
    assert await statuses.write(checkpoint=saved), "that it is over can wait"
    assert scene.api.count("PATCH") == 2


async def test_a_pod_of_that_name_that_cannot_be_read_is_not_adopted_unless_it_is_the_jobs(
    performer: Performer, scene: Any, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, owner = make.job(), {"uid": "somebody", "controller": True}
    scene.api.refuse["POST"] = AlreadyExists(409, "AlreadyExists", "it is there")

    async def get(_path: str, _query: Any = None) -> bytes:
        metadata: dict[str, Any] = {
            "name": "p",
            "namespace": "ns",
            "uid": "u",
            "resourceVersion": "2000",
            "ownerReferences": [owner],
        }
        metadata["labels"] = {"muster.dev/job-uid": job.metadata.uid}
        spec = {"containers": [{"name": "main", "resources": {"limits": {"cpu": "NaN"}}}]}
        return msgspec.json.encode({"metadata": metadata, "spec": spec})

    monkeypatch.setattr(scene.api, "get", get)
    with pytest.raises(Conflict, match="is not this job's"):
        await carry_out(performer, job, Plan((creation(),)))
    owner["uid"] = job.metadata.uid
    performer = Performer(scene.api, scene.cluster, lambda: 1e6)
    await carry_out(performer, job, Plan((creation(),)))
    assert [pod.name for pod in scene.cluster.pods_of("ns", job.metadata.uid)] == ["p"]


def worker_creation(job: Any) -> CreatePod:
    """Creates the first worker of a job, on node n0."""
    uid = job.metadata.uid
    metadata = {
        "name": pod_name(job.metadata.name, uid, 0, 1),
        "namespace": "ns",
        "labels": {JOB_UID_LABEL: uid},
        "ownerReferences": [{"uid": uid, "controller": True}],
    }
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0"]}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    return CreatePod({"metadata": metadata, "spec": {"containers": [container], "affinity": affinity}}, "n0")


LOST = Unreachable(0, "Unreachable", "no answer in time")


async def create_while_job_goes(
    performer: Performer, scene: Any, make: Any, error: ApiError | None, meanwhile: Callable[[], Any] = lambda: None
) -> None:
    """A pod is created on n0 for a job that goes, with its record, before the API server answers."""
    job = make.job(workers=1)
    scene.cluster.jobs.store.assume(job)
    scene.cluster.gangs.store.assume(make.gang(job, "", start=None))
    scene.api.gate = asyncio.Event()
    if error is not None:
        scene.api.refuse["POST"] = error
    creating = asyncio.create_task(carry_out(performer, job, Plan((worker_creation(job),))))
    await until(lambda: scene.api.running == 1)
    scene.cluster.jobs.store.assume_deleted(("ns", "j"), job.metadata.uid)
    scene.cluster.gangs.store.assume_deleted(("ns", make.gang(job).metadata.name), f"gang-{job.metadata.uid}")
    meanwhile()
    scene.api.gate.set()
    with pytest.raises(type(error)) if error is not None else contextlib.nullcontext():
        await creating


def holders(scene: Any, later_seconds: float = 0.0) -> frozenset[str]:
    """Who holds n0 after so many seconds more."""
    scene.clock.advance(later_seconds)
    scene.cluster.free_unbound_pods()
    return frozenset(scene.cluster.fleet.holders("n0"))


def see(scene: Any, make: Any, **changes: Any) -> PodView:
    """The watch shows the pod that was created."""
    pods = scene.cluster.pods.store
    uid = pods.values()[0].uid if len(pods) else "p0"
    pod: PodView = make.pod(make.job(), 0, uid, version=2000, requests={"nvidia.com/gpu": 8}, **changes)
    pods.assume(pod)
    return pod


@pytest.mark.parametrize("error", [None, LOST], ids=["answered", "unanswered"])
async def test_a_pod_whose_job_goes_while_it_is_created_takes_its_node_for_a_minute(
    performer: Performer, scene: Any, make: Any, error: ApiError | None
) -> None:
    await create_while_job_goes(performer, scene, make, error)
    assert holders(scene, 59.0), "it may be bound, and the watch silent"
    scene.freed = 0
    assert not holders(scene, 1.0), "it may never be bound"
    assert scene.freed == 1


@pytest.mark.parametrize("error", [None, LOST], ids=["answered", "unanswered"])
async def test_such_a_pod_takes_its_node_for_as_long_as_it_is_seen_there(
    performer: Performer, scene: Any, make: Any, error: ApiError | None
) -> None:
    await create_while_job_goes(performer, scene, make, error)
    pod = see(scene, make)
    assert holders(scene, 100.0)
    scene.cluster.pods.store.assume_deleted(("ns", pod.name), pod.uid)
    assert not holders(scene)


async def test_an_unanswered_pod_takes_its_node_when_it_is_seen_before_it_is_bound(
    performer: Performer, scene: Any, make: Any
) -> None:
    await create_while_job_goes(performer, scene, make, LOST)
    scene.clock.advance(50.0)
    see(scene, make, node="", pinned="n0")
    assert holders(scene, 59.0)
    assert not holders(scene, 1.0)


async def test_an_unanswered_pod_that_was_seen_lets_go_of_its_node_with_its_end(
    performer: Performer, scene: Any, make: Any
) -> None:
    await create_while_job_goes(performer, scene, make, LOST, functools.partial(see, scene, make, node="", pinned="n0"))
    assert holders(scene)
    (pod,) = scene.cluster.pods.store.values()
    scene.cluster.pods.store.assume_deleted(("ns", pod.name), pod.uid)
    assert not holders(scene)


async def test_a_refused_pod_takes_no_node(performer: Performer, scene: Any, make: Any) -> None:
    await create_while_job_goes(performer, scene, make, QUOTA)
    assert not holders(scene)


@pytest.mark.parametrize("now", ["another", None])
async def test_a_job_that_has_gone_meanwhile_gets_no_new_record(
    performer: Performer, scene: Any, make: Any, now: str | None
) -> None:
    """Its watch is behind: the record went with the job, and another one of its name wants the nodes."""
    job = make.job("a")
    scene.api.job = lambda _: (
        now and make.job("a").model_copy(update={"metadata": job.metadata.model_copy(update={"uid": now})})
    )
    with pytest.raises(Conflict, match="'a' has been deleted"):
        await carry_out(performer, job, Plan((CommitGang(make.gang(job, "p0").spec, ""),)))
    assert scene.api.calls == []


async def test_a_record_that_stands_is_written_without_asking_for_its_job(
    performer: Performer, scene: Any, make: Any
) -> None:
    job = make.job("a")
    scene.api.job = lambda _: None
    await carry_out(performer, job, Plan((CommitGang(make.gang(job, "p0").spec, "7"),)))
    assert scene.api.count("PUT", "/gangs/") == 1


async def test_what_a_pod_counts_for_in_quotas_is_what_the_api_server_answers(
    performer: Performer, scene: Any, make: Any
) -> None:
    job = make.job()
    pod = {
        "metadata": {"generateName": "j-trial-"},
        "spec": {"priorityClassName": "usual", "containers": [{"resources": {"requests": {"cpu": "2"}}}]},
    }
    await carry_out(performer, job, Plan((CheckTemplate(pod, 1),)))
    claim = scene.cluster.claim_of(job)
    assert (claim.priority_class, claim.usage["requests.cpu"], claim.best_effort) == ("usual", 2000, False)


async def test_of_a_template_with_many_volume_claims_none_is_looked_up(
    performer: Performer, scene: Any, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand waiting jobs that mount five hundred claims each would keep the leader busy with requests."""
    asked = []

    async def get(path: str) -> bytes:
        asked.append(path)
        bound = {"spec": {"volumeName": "v"}, "status": {"phase": "Bound"}}
        return json.dumps(bound if "/persistentvolumeclaims/" in path else {"spec": {}}).encode()

    monkeypatch.setattr(scene.api, "get", get)
    job, claims = make.job(), tuple(f"c{number}" for number in range(MAX_CLAIMS + 1))
    await carry_out(performer, job, Plan((CheckTemplate({"spec": {"containers": []}}, 1, claims),)))
    verdict = scene.cluster.memory(job.metadata.uid).template_verdict
    assert (verdict.kind, verdict.scheduler_for, asked) == (VerdictKind.ACCEPTED, "more than 16 volume claims", [])
    await carry_out(performer, job, Plan((CheckTemplate({"spec": {"containers": []}}, 2, claims[1:]),)))
    assert scene.cluster.memory(job.metadata.uid).template_verdict.scheduler_for == ""
    assert len(asked) == 2 * MAX_CLAIMS


async def test_a_new_leader_asks_what_pods_of_jobs_that_run_count_for(
    performer: Performer, scene: Any, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their templates show neither the cluster's default PriorityClass nor what a LimitRange has added. A tenant may
    make its pods nest deeper than Python's parser reads."""
    jobs = {name: make.job(name, workers=1) for name in ("a", "b")}
    stored: dict[str, Any] = {}
    for number, (name, job) in enumerate(jobs.items()):
        scene.cluster.jobs.store.assume(job)
        scene.cluster.fleet.put_node(NodeView(f"n{number}", f"u{number}", 1))
        member = {"node": f"n{number}", "incarnation": 1, "podUid": name}
        scene.cluster.gangs.store.assume(make.gang(job, members=[member]))
        pod = make.pod(job, 0, name, node=f"n{number}")
        scene.cluster.pods.store.assume(pod)
        container = {"name": "trainer", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "4"}}}
        spec = {"priorityClassName": "usual", "containers": [container]}
        stored[pod.name] = {"spec": spec, "status": {"qosClass": "Burstable"}}
    (lost,) = (pod.name for pod in scene.cluster.pods_of("ns", "uid-b"))
    asked = []

    async def get(path: str) -> bytes:
        asked.append(path.rpartition("/")[2])
        if asked[-1] == lost:
            raise NotFound(404, "NotFound", "it has just gone")
        deep = b'{"metadata":{"managedFields":[%s]},' % (b'{"f:a":' * 3000 + b"{}" + b"}" * 3000)
        return json.dumps(stored[asked[-1]]).encode().replace(b"{", deep, 1)

    monkeypatch.setattr(scene.api, "get", get)
    await performer.learn_claims()
    assert asked == [], "without quotas nobody asks"
    scene.cluster.quotas.store.assume(QuotaView("ns", "q", "q", 4, {"requests.cpu": 8000}))
    await performer.learn_claims()
    assert sorted(asked) == sorted(stored)
    found = scene.cluster.claim_of(jobs["a"])
    assert (found.priority_class, found.is_answered) == ("usual", True)
    assert (found.usage["requests.cpu"], found.usage["limits.cpu"]) == (2000, 4000)
    assert not scene.cluster.claim_of(jobs["b"]).is_answered

"""Objects that the API server accepts and nobody should write: each is told what is wrong with it, and harms no
other."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.unit.lifecycle.builders import GPU, SETTINGS, a_node
from tests.unit.waiting import until

from muster.api.fleetpolicy import FleetPolicy
from muster.api.trainingjob import TrainingJob
from muster.controller import reconciler
from muster.controller.dirty import DirtyKeys
from muster.controller.perform import Performer
from muster.controller.queue import Queue
from muster.controller.reconciler import Reconciler
from muster.kube import decode
from muster.kube.decode import PriorityClass
from muster.placement.request import Request
from muster.placement.space import Space

TRAINER: dict[str, Any] = {"name": "trainer", "image": "i", "command": ["train"]}
HUGE = "9e999999999"


def affinity(terms: Any) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"affinity": {"nodeAffinity": required}}


def expression(**changes: Any) -> dict[str, Any]:
    return affinity([{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"], **changes}]}])


def trainer(**changes: Any) -> dict[str, Any]:
    return {"containers": [{**TRAINER, **changes}]}


# Pod specs, and the field that people are told of; "" where the pod is none of Muster's business to judge.
SPECS: dict[str, tuple[dict[str, Any], str]] = {
    "values is a number": (expression(values=5), "nodeSelectorTerms[0].matchExpressions[0].values"),
    "values hold a number": (expression(values=[5]), "nodeSelectorTerms[0].matchExpressions[0].values"),
    "no key": (expression(key=None), "nodeSelectorTerms[0].matchExpressions[0].key"),
    "operator is a number": (expression(operator=5), "nodeSelectorTerms[0].matchExpressions[0].operator"),
    "a number of many digits": (expression(operator="Gt", values=["9" * 5000]), ""),
    "terms is a number": (affinity(5), "nodeSelectorTerms"),
    "terms hold a number": (affinity([5]), "nodeSelectorTerms[0]"),
    "expressions is an object": (affinity([{"matchExpressions": {}}]), "matchExpressions"),
    "affinity is a list": ({"affinity": []}, "spec.affinity"),
    "tolerations is a number": ({"tolerations": 5}, "spec.tolerations"),
    "tolerations hold text": ({"tolerations": ["x"]}, "spec.tolerations[0]"),
    "toleration of a number": ({"tolerations": [{"key": 5}]}, "spec.tolerations[0].key"),
    "selector is a number": ({"nodeSelector": 5}, "spec.nodeSelector"),
    "selector of a number": ({"nodeSelector": {"a": 5}}, "spec.nodeSelector.a"),
    "volumes is a number": ({"volumes": 5}, "spec.volumes"),
    "a claim is a number": ({"volumes": [{"persistentVolumeClaim": 5}]}, ""),
    "spread is a number": ({"topologySpreadConstraints": 5}, ""),
    "sidecars is a number": ({"initContainers": 5}, "spec.initContainers"),
    "overhead is a number": ({"overhead": 5}, ""),
    "overhead is huge": ({"overhead": {"memory": HUGE}}, ""),
    "a class is an object": ({"priorityClassName": {"a": 1}}, ""),
    "a security context is a number": ({"securityContext": 5}, "spec.securityContext"),
    "resources is a number": (trainer(resources=5), "spec.containers[0].resources"),
    "limits is a number": (trainer(resources={"limits": 5}), "spec.containers[0].resources.limits"),
    "a huge quantity": (trainer(resources={"requests": {"memory": HUGE}}), ""),
    "a huge number": (trainer(resources={"requests": {"cpu": 10**400}}), ""),
    "a negative quantity": (trainer(resources={"requests": {"memory": "-5Gi"}}), ""),
    "no number": (trainer(resources={"requests": {"memory": "NaN"}}), ""),
    "digits of another script": (trainer(resources={"requests": {GPU: "²"}}), ""),
    "env is a number": (trainer(env=5), "spec.containers[0].env"),
}
PATTERNS = ["(a){99999999999999999999}", "(" * 120 + ")" * 120, "(", "(a)(b)"]


class Loops:
    """Reconciler and queue at work on four nodes. The API server accepts every pod."""

    def __init__(self, scene: Any) -> None:
        self.scene = scene
        for number in range(4):
            scene.cluster.nodes.store.assume(a_node(f"n{number}"))
        self.events: list[tuple[str, str, str]] = []
        self.dirty = DirtyKeys()
        scene.bus.job_changed.subscribe(self.dirty.add)
        self.queue = Queue(scene.cluster, scene.bus)
        performer = Performer(scene.api, scene.cluster)
        self.reconciler = Reconciler(
            scene.cluster,
            performer,
            self.dirty,
            self,  # type: ignore[arg-type]
            self.queue,
            lambda: SETTINGS,
            lambda _: None,
        )

    def record(self, regarding: Any, _: str, reason: str, note: str) -> None:
        self.events.append((regarding.name, reason, note))

    def add(self, name: str, spec: dict[str, Any], **more: Any) -> None:
        meta = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": "5", "generation": 1}
        body = {"nodes": 1, "gpusPerNode": 8, "template": {"spec": {"containers": [TRAINER], **spec}}, **more}
        data = json.dumps({"metadata": meta, "spec": body}).encode()
        self.scene.cluster.jobs.store.assume(decode.custom(TrainingJob)(data))
        self.dirty.add(("ns", name))

    def placed(self, name: str) -> bool:
        return self.scene.cluster.gang_of(f"uid-{name}") is not None

    def told(self, name: str) -> str:
        job = self.scene.cluster.job(("ns", name))
        conditions = [] if isinstance(job, decode.Undecodable) else [c.message for c in job.status.conditions]
        return " ".join([*conditions, *(note for who, _, note in self.events if who == name)])


@pytest.fixture
async def loops(scene: Any, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Loops]:
    monkeypatch.setattr(reconciler, "SPACING_SECONDS", 0.0)
    made = Loops(scene)
    running = [asyncio.create_task(made.reconciler.run()), asyncio.create_task(made.queue.run())]
    yield made
    ended = [task for task in running if task.done()]
    for task in running:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    assert not ended, "a loop has ended"


@pytest.mark.parametrize("what", SPECS)
async def test_an_absurd_template_is_named_and_its_neighbour_is_placed(loops: Loops, what: str) -> None:
    spec, field = SPECS[what]
    loops.add("bad", spec)
    loops.add("good", {})
    await until(lambda: loops.placed("good"))
    if field:
        await until(lambda: field in loops.told("bad"))
        assert not loops.placed("bad")
        assert loops.queue.decision_of("uid-bad") is None
        assert not [note for _, reason, note in loops.events if reason == "InternalError"]


@pytest.mark.parametrize("pattern", PATTERNS)
async def test_an_absurd_step_pattern_is_named(loops: Loops, pattern: str) -> None:
    loops.add("bad", {}, progress={"stepPattern": pattern})
    loops.add("good", {})
    await until(lambda: loops.placed("good"))
    await until(lambda: "spec.progress.stepPattern" in loops.told("bad"))


async def test_a_template_that_was_changed_past_its_check_harms_nobody(loops: Loops, make: Any) -> None:
    """The API server lets one key of a template be swapped for another of the same value."""
    loops.add("bad", {"terminationGracePeriodSeconds": 5})
    await until(lambda: loops.placed("bad"))
    cluster = loops.scene.cluster
    gang = cluster.gang_of("uid-bad")
    lost = gang.spec.model_copy(update={"members": [m.model_copy(update={"node": ""}) for m in gang.spec.members]})
    version = gang.metadata.model_copy(update={"resource_version": "2000"})
    job = cluster.job(("ns", "bad"))
    swapped = {"spec": {**job.spec.template["spec"], "tolerations": 5}}
    meta = job.metadata.model_copy(update={"resource_version": "2001", "generation": 2})
    spec = job.spec.model_copy(update={"template": swapped})
    cluster.jobs.store.assume(job.model_copy(update={"metadata": meta, "spec": spec}))
    cluster.gangs.store.assume(gang.model_copy(update={"metadata": version, "spec": lost}))
    loops.add("good", {})
    await until(lambda: loops.placed("good"))


async def test_a_defect_in_planning_for_one_job_is_told_as_that_jobs(
    loops: Loops, monkeypatch: pytest.MonkeyPatch
) -> None:
    solve = Space.solve

    def fails(space: Space, request: Request) -> Any:
        if request.job_uid == "uid-bad":
            raise KeyError("a defect")
        return solve(space, request)

    monkeypatch.setattr(Space, "solve", fails)
    loops.add("bad", {})
    loops.add("good", {})
    await until(lambda: loops.placed("good"))
    await until(lambda: "KeyError: 'a defect'" in loops.told("bad"))


async def test_a_queue_that_cannot_be_planned_is_planned_again(loops: Loops, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = []
    held = loops.scene.cluster.held_by_namespace

    def fails() -> Any:
        if not failed:
            failed.append(1)
            raise KeyError("a defect")
        return held()

    limits = {"queueing": {"limits": [{"namespace": "ns", "nodes": 4}]}}
    meta = {"name": "default", "uid": "p", "resourceVersion": "9"}
    policy = FleetPolicy.model_validate({"metadata": meta, "spec": limits})
    loops.scene.cluster.policies.store.assume(policy)
    monkeypatch.setattr(loops.scene.cluster, "held_by_namespace", fails)
    loops.add("good", {})
    await until(lambda: bool(failed))
    loops.queue.replan()
    await until(lambda: loops.placed("good"))


async def test_a_class_that_does_not_count_is_told_once(loops: Loops) -> None:
    """Also where the job has nodes meanwhile, and waits again."""
    critical = PriorityClass("system-node-critical", 2_000_001_000, False, 1)
    loops.scene.cluster.priorities.store.apply("ADDED", critical)
    loops.add("first", {"priorityClassName": "system-node-critical"})
    await until(lambda: loops.placed("first"))
    loops.dirty.add(("ns", "first"))
    loops.add("second", {})
    await until(lambda: loops.placed("second"))
    nodes = loops.scene.cluster.nodes.store
    nodes.assume_deleted(("", "n0"), nodes.get(("", "n0")).uid)
    loops.dirty.add(("ns", "first"))
    loops.add("third", {})
    await until(lambda: loops.placed("third"))
    assert [(who, reason) for who, reason, _ in loops.events if reason == "PriorityIgnored"] == [
        ("first", "PriorityIgnored")
    ]


async def test_each_time_that_a_class_is_deleted_is_told_once(loops: Loops) -> None:
    def change(event_type: str, version: int) -> None:
        loops.scene.cluster.priorities.store.apply(event_type, PriorityClass("top", 9, False, version))
        loops.dirty.add(("ns", "first"))

    def reported() -> str:
        return str(loops.scene.cluster.memory("uid-first").reported.get("PriorityClassMissing", ""))

    change("ADDED", 1)
    loops.add("first", {"priorityClassName": "top"})
    await until(lambda: loops.placed("first"))
    for version in (2, 4):
        change("DELETED", version)
        await until(lambda: bool(reported()))
        change("ADDED", version + 1)
        await until(lambda: not reported())
    missing = "PriorityClass top does not exist: no other job preempts this one"
    assert loops.told("first").count(missing) == 2


@pytest.mark.parametrize("shows", [False, True])
async def test_a_waiting_job_names_those_of_other_namespaces_only_where_it_may(loops: Loops, shows: bool) -> None:
    cluster = loops.scene.cluster
    meta = {"name": "default", "uid": "p", "resourceVersion": "9"}
    queueing = {"queueing": {"showJobsOfOtherNamespaces": shows}}
    cluster.policies.store.assume(FleetPolicy.model_validate({"metadata": meta, "spec": queueing}))
    for number, holder in enumerate(["stranger", "friend", "pod/secret/web"]):
        cluster.fleet.occupy(holder, holder, frozenset({f"n{number}"}))
    cluster.fleet.names |= {"stranger": "secret/llama", "friend": "ns/mine"}
    loops.add("waits", {}, nodes=4)
    await until(lambda: "InsufficientNodes" in str(cluster.job(("ns", "waits")).status))
    status = cluster.job(("ns", "waits")).status.model_dump_json() + str(loops.events)
    assert "ns/mine" in status
    assert ("secret" in status) is shows
    assert ("jobs of other namespaces" in status) is not shows
    assert ("pods of other namespaces" in status) is not shows


@pytest.mark.parametrize("depth", [150, 900, 5000])
def test_an_object_of_any_depth_is_read_or_named(depth: int) -> None:
    deep = b'{"a":' * depth + b"1" + b"}" * depth
    meta = b'{"name": "deep", "namespace": "ns", "uid": "u", "resourceVersion": "7"}'
    job = b'{"metadata": ' + meta + b', "spec": {"nodes": 1, "template": {"spec": ' + deep + b"}}}"
    line = b'{"type": "ADDED", "object": ' + job + b"}"
    event = decode.watch_event(line)
    found = decode.custom(TrainingJob)(event.object)
    assert decode.custom_meta(found).key == ("ns", "deep")
    page = decode.list_page(b'{"metadata": {}, "items": [%s]}' % bytes(event.object))
    assert len(page.items or ()) == 1

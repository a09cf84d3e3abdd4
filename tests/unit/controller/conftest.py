"""A cluster whose stores tests fill by hand, and an API server that is a list of what it was asked."""

import asyncio
import copy
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from tests.unit.clock import Clock

from muster.api.fleetpolicy import FleetPolicy
from muster.api.gang import Gang
from muster.api.trainingjob import TrainingJob
from muster.controller.bus import Bus
from muster.controller.cluster import Cluster
from muster.coordinator.hub import Hub
from muster.kube.client import Answers
from muster.kube.errors import NotFound
from muster.world.names import gang_name, pod_name
from muster.world.views import PodView

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


class Api:
    """Answers every write with what was sent, a patch of a status with what has become of the status; `refuse` maps a
    verb to the error that it meets instead.
    """

    def __init__(self, clock: Clock) -> None:
        self.answers = Answers(clock)
        self.calls: list[tuple[str, str]] = []
        self.bodies: list[Any] = []
        self.refuse: dict[str, Exception] = {}
        self.job: Callable[[str], TrainingJob]
        self.gate: asyncio.Event | None = None
        self.hangs: Callable[[str, str], bool] = lambda _verb, _path: False
        self.running = self.most_at_once = 0
        self.before_write: Callable[[], float | None] | None = None
        self._version = 1000
        self._statuses: dict[str, Any] = {}

    async def get(self, path: str, query: Any = None) -> bytes:
        if "/trainingjobs/" not in path:
            raise AssertionError(f"nobody should read {path}")
        job = self.job(path.rpartition("/")[2])
        if job is None:
            raise NotFound(404, "NotFound", "no such job")
        return msgspec.json.encode({"metadata": {"uid": job.metadata.uid}})

    async def post(self, path: str, body: Any, query: Any = None, *, one_of_many: bool = False) -> bytes:
        return await self._write("POST", path, body)

    async def put(self, path: str, body: Any) -> bytes:
        return await self._write("PUT", path, body)

    async def patch(self, path: str, body: Any, content_type: str = "", query: Any = None) -> bytes:
        return await self._write("PATCH", path, body)

    async def delete(self, path: str, body: Any) -> bytes:
        await self._write("DELETE", path, body)
        return b'{"kind": "Status"}'

    def count(self, verb: str, part: str = "") -> int:
        return sum(called == verb and part in path for called, path in self.calls)

    async def _write(self, verb: str, path: str, body: Any) -> bytes:
        self.calls.append((verb, path))
        self.bodies.append(body)
        self.running += 1
        self.most_at_once = max(self.most_at_once, self.running)
        try:
            await asyncio.sleep(0)
            if self.hangs(verb, path):
                await asyncio.Event().wait()
            if self.gate is not None:
                await self.gate.wait()
        finally:
            self.running -= 1
        if verb in self.refuse:
            raise self.refuse[verb]
        self._version += 1
        answer = copy.deepcopy(body)
        if path.endswith("/status"):
            job = self.job(path.split("/")[-2])
            answer["spec"], meta = job.spec.to_json(), {"name": job.metadata.name, "uid": job.metadata.uid}
            answer["metadata"] = {"namespace": "ns", "generation": 1, **meta}
            answer["status"] = self._statuses[path] = merged(self._statuses.get(path), body["status"])
        else:
            answer.setdefault("metadata", {})["uid"] = f"new-{self._version}"
        answer["metadata"]["resourceVersion"] = str(self._version)
        return json.dumps(answer).encode()


def merged(into: Any, patch: Any) -> Any:
    """What a merge patch makes of a value: RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    made = dict(into) if isinstance(into, dict) else {}
    for name, value in patch.items():
        made[name] = merged(made.get(name), value)
    return {name: value for name, value in made.items() if value is not None}


def a_job(name: str = "j", workers: int = 2, version: int = 5, namespace: str = "ns", **status: Any) -> TrainingJob:
    container = {"name": "trainer", "image": "i", "command": ["train"]}
    return TrainingJob.model_validate(
        {
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": f"uid-{name}",
                "resourceVersion": str(version),
                "generation": 1,
            },
            "spec": {"nodes": workers, "template": {"spec": {"containers": [container]}}},
            "status": status,
        }
    )


def naming(job: TrainingJob, priority_class: str) -> TrainingJob:
    """The same job, whose template names this PriorityClass."""
    template = {"spec": {**job.spec.template["spec"], "priorityClassName": priority_class}}
    return job.model_copy(update={"spec": job.spec.model_copy(update={"template": template})})


def a_gang(job: TrainingJob, *uids: str, version: int = 10, **spec: Any) -> Gang:
    """The record of a job that trains on nodes n0, n1, ... in pods with these uids."""
    uid = job.metadata.uid
    return Gang.model_validate(
        {
            "metadata": {
                "name": gang_name(job.metadata.name, uid),
                "namespace": job.metadata.namespace,
                "uid": f"gang-{uid}",
                "resourceVersion": str(version),
                "ownerReferences": [{"kind": "TrainingJob", "name": job.metadata.name, "uid": uid, "controller": True}],
            },
            "spec": {
                "jobUid": uid,
                "attempt": 1,
                "time": NOW.isoformat(),
                "level": "Start",
                "reason": "Started",
                "members": [{"node": f"n{i}", "incarnation": 1, "podUid": pod} for i, pod in enumerate(uids)],
                "start": {"time": NOW.isoformat(), "masterAddress": "10.0.0.1", "masterPort": 20001},
                **spec,
            },
        }
    )


def a_pod(job: TrainingJob, index: int, uid: str, version: int = 20, **changes: Any) -> PodView:
    owner = job.metadata.uid
    values: dict[str, Any] = {
        "namespace": "ns",
        "name": pod_name(job.metadata.name, owner, index, 1),
        "uid": uid,
        "resource_version": version,
        "owner_uid": owner,
        "job_uid": owner,
        "index": index,
        "incarnation": 1,
        "node": f"n{index}",
        "phase": "Running",
    }
    return PodView(**{**values, **changes})


class Scene:
    """A cluster, what it rings, and how often it says that a node is free."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.api = Api(clock)
        self.hub = Hub(clock)
        self.rung: list[tuple[str, str]] = []
        self.freed = 0
        self.bus = Bus()
        self.bus.job_changed.subscribe(self.ring)
        self.bus.nodes_freed.subscribe(self.free)
        self.cluster = Cluster(self.api, self.hub, self.bus, clock, lambda: NOW)  # type: ignore[arg-type]
        self.api.job = lambda name: self.cluster.job(("ns", name))  # type: ignore[assignment, return-value]
        self.apply_policy({}, version=1)
        self.rung, self.freed = [], 0

    def apply_policy(self, spec: dict[str, Any], version: int, uid: str = "policy") -> None:
        meta = {"name": "default", "uid": uid, "resourceVersion": str(version)}
        self.cluster.policies.store.assume(FleetPolicy.model_validate({"metadata": meta, "spec": spec}))

    def ring(self, key: tuple[str, str]) -> None:
        self.rung.append(key)

    def free(self) -> None:
        self.freed += 1

    def holders(self, job: TrainingJob) -> dict[str, frozenset[str]]:
        fleet = self.cluster.world(job).fleet
        return {node: fleet.holders(node) for node in fleet._holders}


@pytest.fixture
def scene(clock: Clock) -> Scene:
    return Scene(clock)


@pytest.fixture
def make() -> Any:
    """Builders: `make.job()`, `make.gang()`, `make.pod()`."""

    class Make:
        job: Callable[..., TrainingJob] = staticmethod(a_job)
        gang: Callable[..., Gang] = staticmethod(a_gang)
        pod: Callable[..., PodView] = staticmethod(a_pod)

    return Make

"""The page in this process: a fleet written straight into its copies, and an API server that knows tokens and
rights."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import pytest
from tests.unit.clock import Clock

from muster.answers.fleetreported import AccountedJob
from muster.api.fleethours import FleetHours
from muster.api.fleetpolicy import FleetPolicy
from muster.api.nodehealth import NodeHealth
from muster.api.trainingjob import TrainingJob
from muster.kube.access import Access
from muster.kube.errors import ApiError
from muster.page.main import serving_page
from muster.page.seen import Seen
from muster.page.server import Page
from muster.world.views import NodeView

NOW = datetime(2026, 1, 5, 4, tzinfo=UTC)
HOUR = 3600


def before(seconds: float) -> str:
    """A moment that is past."""
    return (NOW - timedelta(seconds=seconds)).isoformat()


class Reviews:
    """The API server's part: who is who, and who may what."""

    def __init__(self) -> None:
        self.users = {"admin-token": "admin"}
        self.allowed: dict[str, set[tuple[str, str, str]]] = {"admin": {("*", "*", "")}}  # verb, resource, namespace
        self.error: ApiError | None = None
        self.asked: list[str] = []
        self.wait: asyncio.Event | None = None

    def tenant(self, name: str, *namespaces: str) -> str:
        """A token of somebody who sees the jobs of these namespaces."""
        self.users[f"{name}-token"] = name
        self.allowed[name] = {(verb, "trainingjobs", namespace) for namespace in namespaces for verb in ("get", "list")}
        return f"{name}-token"

    async def post(self, path: str, body: Any, **_: Any) -> bytes:
        self.asked.append(path.rpartition("/")[2])
        if self.wait is not None:
            await self.wait.wait()
        if self.error is not None:
            raise self.error
        if path == "/apis/authentication.k8s.io/v1/tokenreviews":
            name = self.users.get(body["spec"]["token"])
            user = {"username": name, "groups": ["system:authenticated"], "extra": {"a": ["b"]}}
            return json.dumps({"status": {"authenticated": bool(name), **({"user": user} if name else {})}}).encode()
        assert path == "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        spec = body["spec"]
        assert spec["groups"] == ["system:authenticated"]
        assert spec["extra"] == {"a": ["b"]}
        it = spec["resourceAttributes"]
        has = self.allowed.get(spec["user"], set())
        wanted = (it["verb"], it["resource"], it.get("namespace", ""))
        return json.dumps({"status": {"allowed": bool({("*", "*", ""), wanted} & has)}}).encode()


def a_node(name: str, block: str = "b1", rack: str = "r1", **fields: Any) -> NodeView:
    labels = {"topology.muster.dev/block": block, "topology.muster.dev/rack": rack}
    return NodeView(**({"name": name, "uid": name, "resource_version": 1, "labels": labels, "ready": True} | fields))


def a_health(name: str, state: str, reason: str = "Xid79", message: str = "gone") -> NodeHealth:
    status = {"state": state, "reason": reason, "message": message, "since": before(600)}
    return NodeHealth.model_validate({"metadata": {"name": name, "resourceVersion": "1"}, "spec": {}, "status": status})


def a_policy(**spec: Any) -> FleetPolicy:
    return FleetPolicy.model_validate({"metadata": {"name": "default", "resourceVersion": "1"}, "spec": spec})


def a_job(name: str, namespace: str = "team-a", workers: int = 2, **status: Any) -> TrainingJob:
    template = {"spec": {"containers": [{"name": "main", "image": "trainer:1"}]}}
    metadata = {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}", "resourceVersion": "1"}
    return TrainingJob.model_validate(
        {
            "metadata": {**metadata, "creationTimestamp": before(100 * HOUR)},
            "spec": {"nodes": workers, "template": template, "checkpoint": {"directory": "/checkpoints"}},
            "status": status,
        }
    )


def a_life(*nodes: str, **more: Any) -> dict[str, Any]:
    """The status of a job that has lost a node and trains again."""
    seconds = {
        "compute": 88 * HOUR,
        "checkpointStall": 2 * HOUR,
        "lostWork": 4 * HOUR,
        "queued": HOUR,
        "starting": HOUR,
        "restarting": 3 * HOUR,
        "undetected": HOUR,
    }
    times = {"attempt": 1, "time": before(49 * HOUR), "faultTime": before(50 * HOUR), "resumedTime": before(46 * HOUR)}
    incident = {**times, "level": "R2", "faultClass": "Hardware", "reason": "NodeLost", "message": "node gpu-7 is gone"}
    planned = {"attempt": 2, "time": before(20 * HOUR), "resumedTime": before(19.5 * HOUR), "level": "R2"}
    return {
        "state": "Running",
        "reason": "RanksStarted",
        "nodes": list(nodes),
        "step": 184_220,
        "attempt": 3,
        "restarts": 2,
        "checkpoint": {
            "step": 184_000,
            "path": "/checkpoints/184000",
            "time": before(0.4 * HOUR),
            "saves": [
                {"step": 1000 * index, "time": before((184 - index) * 0.5 * HOUR + 60)} for index in range(176, 184)
            ],
        },
        "incidents": [
            {**incident, "node": "gpu-7", "lostSteps": 400, "lostSeconds": 4 * HOUR},
            {**planned, "faultClass": "Planned", "reason": "Maintenance", "node": "gpu-9", "lostSeconds": 0},
        ],
        "goodput": {
            "creationTime": before(100 * HOUR),
            "countedUntil": before(0),
            "seconds": seconds,
            "gpuSeconds": {name: 8 * len(nodes) * each for name, each in seconds.items() if name != "queued"},
            "ettrPermille": 880,
            "failures": 1,
            "lostSteps": 400,
            "stepMilliseconds": 1800,
            "firstCheckpointSeconds": 2 * HOUR,
            "checkpointSteps": 1000,
            "checkpointStallMilliseconds": 30_000,
        },
        **more,
    }


class Fleet:
    """What the page has seen of a cluster, and what the API server says of users."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.sleeps: list[float] = []
        self.reviews = Reviews()
        nobody: Any = None
        self.seen = Seen(nobody, self.clock)
        reviews: Any = self.reviews
        self.lives: list[AccountedJob] = []
        self.reads: list[datetime | None] = []
        self.hours: FleetHours | None = None
        self.history_error: ApiError | None = None
        self.page = Page(self.seen, Access(reviews, self.clock), self._read, self._hours, self.clock, lambda: NOW)
        for each in self.seen._all:
            each.synced.set()

    async def sleep(self, seconds: float) -> None:
        """Note that a request waits, and let the time pass."""
        self.sleeps.append(seconds)
        self.clock.advance(seconds)

    async def _read(self, _now: datetime, since: datetime | None) -> tuple[list[AccountedJob], list[str]]:
        self.reads.append(since)
        if self.history_error is not None:
            raise self.history_error
        return self.lives, ["a note"]

    async def _hours(self) -> tuple[FleetHours | None, list[str]]:
        return self.hours, []

    def has(self, *things: NodeView | NodeHealth | TrainingJob | FleetPolicy) -> None:
        """This and nothing else is there."""
        self.clock.advance(5)
        for informer, kind in (
            (self.seen._nodes, NodeView),
            (self.seen._healths, NodeHealth),
            (self.seen._jobs, TrainingJob),
            (self.seen._policies, FleetPolicy),
        ):
            held: Any = informer.store
            # An older position than the one it has: all of it is taken as it comes.
            held.replace([each for each in things if isinstance(each, kind)], held._position - 1)

    @contextlib.asynccontextmanager
    async def served(self) -> AsyncIterator[str]:
        """The page at an address."""
        async with serving_page(self.page, "127.0.0.1", 0, None) as port:
            yield f"http://127.0.0.1:{port}"


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


Ask = Callable[..., Any]


@pytest.fixture
async def ask(fleet: Fleet) -> AsyncIterator[Ask]:
    """`await ask(path, token)`: status, body, headers."""
    async with fleet.served() as address, aiohttp.ClientSession() as session:

        async def asked(path: str, token: str | None = "admin-token", method: str = "GET") -> Any:
            headers = {} if token is None else {"Authorization": f"Bearer {token}"}
            async with session.request(method, address + path, headers=headers) as answer:
                text = await answer.text()
                body = json.loads(text) if answer.content_type == "application/json" else text
                return answer.status, body, answer.headers

        yield asked

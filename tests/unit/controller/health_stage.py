"""The loop over nodes over an API server that is played, with the time in the test's hand."""

import asyncio
import copy
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

import pytest
from tests.unit.health.builders import budgets

from muster.api.fleetpolicy import FleetPolicy
from muster.api.installation import InstallationProfile
from muster.api.nodehealth import NodeHealth
from muster.controller import nodeperform
from muster.controller import nodereconciler as module
from muster.controller.bus import Bus
from muster.controller.cluster import Cluster
from muster.controller.nodefitness import NodeFitness
from muster.controller.nodeperform import TAINT_KEY
from muster.controller.nodes import Nodes
from muster.controller.pace import MAX_WRITES_PER_HOUR, Pace
from muster.coordinator.hub import Hub
from muster.kube import decode
from muster.kube.client import Answers
from muster.kube.errors import (
    AlreadyExists,
    Conflict,
    Invalid,
    LeadershipLost,
    NotFound,
)

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
EVERYTHING = budgets()
OTHER = {"key": "example.org/reserved", "effect": "NoSchedule"}


class ApiServer:
    """Nodes and NodeHealths; every write is shown to the watcher, as a watch would. `holds` and `fails` are asked
    first."""

    def __init__(self) -> None:
        self.answers = Answers(lambda: 0.0)
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.calls: list[tuple[str, str, str]] = []
        self.shown: Callable[[str, bytes], None] = lambda _kind, _data: None
        self.gates: dict[str, asyncio.Event] = {}
        self.fails: dict[str, list[Exception]] = {}
        self.refuses: dict[tuple[str, str], Exception] = {}
        self.version = 100

    def count(self, verb: str, kind: str) -> int:
        return sum((called, of) == (verb, kind) for called, of, _ in self.calls)

    def put(self, kind: str, value: dict[str, Any], *, show: bool = True) -> bytes:
        self.version += 1
        value["metadata"]["resourceVersion"] = str(self.version)
        self.objects[kind, value["metadata"]["name"]] = value
        data = json.dumps(value).encode()
        if show:
            self.shown(kind, data)
        return data

    async def get(self, path: str, query: Any = None, *, most_bytes: int | None = None) -> bytes:
        kind, name = path.split("/")[-2:]
        await self._called("GET", kind, name)
        if (kind, name) not in self.objects:
            raise NotFound(404, "NotFound", "there is none")
        return json.dumps(self.objects[kind, name]).encode()

    async def post(self, path: str, body: Any, query: Any = None, *, one_of_many: bool = False) -> bytes:
        name = body["metadata"]["name"]
        await self._called("POST", "nodehealths", name)
        if ("nodehealths", name) in self.objects:
            raise AlreadyExists(409, "AlreadyExists", "it is there")
        return self.put("nodehealths", {**body, "metadata": {"name": name, "uid": f"health-{name}"}})

    async def patch(
        self, path: str, body: Any, content_type: str = "", query: Any = None, *, one_of_many: bool = False
    ) -> bytes:
        if path.endswith("/status"):
            return await self._apply(path.split("/")[-2], body)
        name = path.split("/")[-1]
        await self._called("PATCH", "nodes", name)
        node = copy.deepcopy(self.objects["nodes", name])
        for step in body:
            _carry_out(step, node)
        return self.put("nodes", node)

    async def delete(self, path: str, body: Any) -> bytes:
        name = path.split("/")[-1]
        await self._called("DELETE", "nodehealths", name)
        metadata = self.objects["nodehealths", name]["metadata"]
        if {key: metadata[key] for key in ("uid", "resourceVersion")} != body["preconditions"]:
            raise Conflict(409, "Conflict", "it has changed")
        del self.objects["nodehealths", name]
        return b"{}"

    async def _apply(self, name: str, body: Any) -> bytes:
        await self._called("PATCH", "nodehealths", name)
        before = self.objects.get(("nodehealths", name))
        if before is None:
            raise NotFound(404, "NotFound", "there is none")
        agents = {key: value for key, value in before.get("status", {}).items() if key in ("evidence", "agent")}
        return self.put("nodehealths", {**before, "status": {**agents, **body["status"]}})

    async def _called(self, verb: str, kind: str, name: str) -> None:
        self.calls.append((verb, kind, name))
        await asyncio.sleep(0)
        if name in self.gates:
            await self.gates[name].wait()
        if self.fails.get(name):
            raise self.fails[name].pop(0)
        if (verb, kind) in self.refuses:
            raise self.refuses[verb, kind]


def _carry_out(step: dict[str, Any], node: dict[str, Any]) -> None:
    """One step of a JSON patch, as the API server does it."""
    taints, path = node["spec"].get("taints"), step["path"]
    if step["op"] == "test":
        found = node["metadata"]["resourceVersion"] if path == "/metadata/resourceVersion" else taints
        if found != step["value"]:
            raise Invalid(422, "Invalid", "the test failed")
    elif path == "/spec/taints/-":
        if taints is None or any(taint["key"] == step["value"]["key"] for taint in taints):
            raise Invalid(422, "Invalid", "nowhere to add it, or a duplicate")
        taints.append(step["value"])
    else:
        assert path == "/spec/taints"
        node["spec"]["taints"] = step["value"]


class Told:
    """Events, as they were recorded."""

    def __init__(self) -> None:
        self.reasons: list[tuple[str, str]] = []
        self.policies: list[str] = []
        self.texts: list[tuple[str, str]] = []

    def record(self, about: Any, _kind: str, reason: str, note: str) -> None:
        if about.kind == "FleetPolicy":
            self.policies.append(reason)
        if about.kind == "Node":
            self.reasons.append((about.name, reason))
            self.texts.append((about.name, note))


class Stage:
    """The loop over a fleet's nodes, with the time in the test's hand."""

    def __init__(self, api: ApiServer | None = None, profile: InstallationProfile = InstallationProfile.JOBS) -> None:
        self.api, self.told, self.now, self.later_seconds = api or ApiServer(), Told(), NOW, 0.0
        self.bus = Bus()
        self.cluster = Cluster(self.api, Hub(lambda: 0.0), self.bus, profile=profile)  # type: ignore[arg-type]
        self.nodes = Nodes(
            self.api,  # type: ignore[arg-type]
            self.cluster,
            self.told,  # type: ignore[arg-type]
            NodeFitness(self.cluster, self.bus),
            clock=lambda: time.monotonic() + self.later_seconds,
            wall_clock=lambda: self.now,
        )
        self.api.shown = self._show

    def _show(self, kind: str, data: bytes) -> None:
        if kind == "nodes":
            self.cluster.nodes.store.assume(decode.node(data))
        else:
            self.cluster.healths.store.assume(NodeHealth.model_validate_json(data))

    def policy(self, **health: Any) -> None:
        self.policy_of(health=health)

    def policy_of(self, *, health: Mapping[str, Any] = MappingProxyType({}), **spec: Any) -> None:
        """A FleetPolicy with these parts; nodes are tainted where `health` says nothing else."""
        self.api.version += 1
        spec["health"] = {"enforcement": "Nodes", "budgets": EVERYTHING, **health}
        meta = {"name": "default", "uid": "policy", "resourceVersion": str(self.api.version)}
        self.cluster.policies.store.assume(FleetPolicy.model_validate({"metadata": meta, "spec": spec}))

    def add(self, *names: str, taints: Iterable[dict[str, str]] = (OTHER,), rack: str = "r0", uid: str = "") -> None:
        for name in names:
            labels = {"topology.muster.dev/block": "b0", "topology.muster.dev/rack": rack}
            spec = {"taints": list(taints)} if taints else {}
            self.api.put("nodes", {"metadata": {"name": name, "uid": uid or name, "labels": labels}, "spec": spec})

    def say(self, name: str, *codes: int, boot: str = "boot-1", board: str = "", **status: Any) -> None:
        """What the agent sees now."""
        seen = (self.now - timedelta(seconds=1)).isoformat()
        evidence = [
            {"kind": "Xid", "code": code, "firstSeen": seen, "lastSeen": seen, "bootId": boot} for code in codes
        ]
        known = self.api.objects.get(("nodehealths", name)) or {"metadata": {"name": name, "uid": f"health-{name}"}}
        agents = {"evidence": evidence, "agent": {"bootId": boot, "systemUuid": board or f"board of {name}"}}
        self.api.put("nodehealths", {**known, "status": {**known.get("status", {}), **status, **agents}})

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.api.objects["nodehealths", name].get("status", {})
        return found

    def tainted(self) -> set[str]:
        nodes = [value for (kind, _), value in self.api.objects.items() if kind == "nodes"]
        return {
            node["metadata"]["name"]
            for node in nodes
            if any(taint["key"] == TAINT_KEY for taint in node["spec"].get("taints") or ())
        }

    def successor(self, profile: InstallationProfile = InstallationProfile.JOBS) -> "Stage":
        """The next leader, which knows what the API server has; this one is not run any more."""
        new = Stage(self.api, profile)
        new.policy()
        new.now = self.now
        for (kind, _), value in sorted(self.api.objects.items()):
            new._show(kind, json.dumps(value).encode())
        new.nodes.reconciler.mark_all_nodes()
        return new

    def remove_node(self, name: str) -> None:
        """Delete the Node; its record stays."""
        gone = self.api.objects.pop(("nodes", name))
        self.api.version += 1
        gone["metadata"]["resourceVersion"] = str(self.api.version)
        self.cluster.nodes.store.apply("DELETED", decode.node(json.dumps(gone).encode()))

    def rested(self, name: str) -> None:
        """The pause after what has failed about a node is over."""
        self.nodes.performer._rests_until.pop(name, None)
        self.nodes.queue.hurry(("", name))

    async def look(self) -> None:
        """Look until nothing changes any more."""
        for _ in range(4):
            await self.nodes.reconciler.reconcile()
            await self.nodes.reconciler.settled()


def stage_with_a_policy() -> Stage:
    made = Stage()
    made.policy()
    return made


def clocked_stage() -> Stage:
    """The monotonic clock goes with the other one."""
    made = stage_with_a_policy()
    made.nodes.performer._pace = Pace(lambda: (made.now - NOW).total_seconds())
    return made


@asynccontextmanager
async def running(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[asyncio.Task[None]]:
    monkeypatch.setattr(module, "GATHER_SECONDS", 0.001)
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.001)
    monkeypatch.setattr(nodeperform, "REST_SECONDS", 0.001)
    task = asyncio.create_task(stage.nodes.reconciler.run())
    yield task
    task.cancel()
    with suppress(asyncio.CancelledError, LeadershipLost):
        await task


MARK = "autopilot.ibm.com/gpuhealth"


def mark(stage: Stage, name: str, value: str) -> None:
    """Another system's label on a node; "" for none."""
    node = stage.api.objects["nodes", name]
    labels = {key: each for key, each in node["metadata"]["labels"].items() if key != MARK}
    stage.api.put(
        "nodes", {**node, "metadata": {**node["metadata"], "labels": labels | ({MARK: value} if value else {})}}
    )


async def comes_and_goes_ten_times_an_hour(stage: Stage, of: str) -> None:
    """What changes nothing, for two hours."""
    stage.add("a")
    stage.say("a")
    await stage.look()
    stage.api.calls.clear()
    for turn in range(240):
        stage.now += timedelta(seconds=30)
        if of == "the agent":
            stage.say("a", *([13] if turn % 2 else []))
        else:
            mark(stage, "a", "WARN" if turn % 2 else "")
        await stage.look()
    assert stage.api.count("PATCH", "nodehealths") <= 2 * MAX_WRITES_PER_HOUR
    assert len(stage.told.reasons) <= 2 * MAX_WRITES_PER_HOUR


async def what_another_system_says_is_few_writes(stage: Stage, *, held: bool, minutes: int) -> None:
    """What it says and takes back for an hour, or for less."""
    stage.policy(budgets=budgets(window=0, out=0, domain=0) if held else EVERYTHING)
    stage.add("a", "b", "c")
    if held:
        stage.say("c", 48)
        await stage.look()
    stage.api.calls = []
    for seconds in range(0, 60 * minutes, 20):
        stage.now = NOW + timedelta(seconds=seconds)
        status = "False" if seconds % 40 == 0 else "True"
        ready = {"type": "StorageReady", "status": status, "reason": "DiskSlow"}
        ready["lastTransitionTime"] = (stage.now - timedelta(minutes=2)).isoformat()
        node = stage.api.objects["nodes", "a"]
        stage.api.put("nodes", {**node, "status": {"conditions": [ready]}})
        await stage.look()
    assert stage.status("a")["state"] == "Degraded"
    assert len([call for call in stage.api.calls if call[0] == "PATCH" and call[2] == "a"]) <= 10
    assert [name for name, _ in stage.told.reasons].count("a") <= 6

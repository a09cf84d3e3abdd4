"""Fluent builders for what decisions look at, so that a test spells only what it is about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.unit.queueing.planned import plan

from muster.api.base import ObjectMeta
from muster.api.fleetpolicy import FleetPolicySpec
from muster.api.gang import (
    AttemptStart,
    FaultClass,
    Gang,
    GangIncident,
    GangSpec,
    Level,
    Member,
    Proof,
    Resume,
    UnfencedWorker,
)
from muster.api.trainingjob import TrainingJob
from muster.checkpoints.resume import Missing
from muster.lifecycle import start_missing
from muster.lifecycle.queue_needs import request_of
from muster.pods.worker_pod import WorkerSettings
from muster.protocol.messages import EXITED, IDLE, RUNNING, CheckpointReport, PeerReport, RankReport
from muster.queueing.waiting import WaitingJob
from muster.record import starts
from muster.world.fleet import Fleet, SilentShare
from muster.world.job import JobWorld, PodAges, TemplateVerdict, VerdictKind
from muster.world.names import gang_name, pod_name
from muster.world.views import ContainerView, LauncherView, NodeView, PodView, Taint

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
BLOCK, RACK = "topology.muster.dev/block", "topology.muster.dev/rack"
GPU = "nvidia.com/gpu"
FENCE_FILE = "one-and-the-same"
SETTINGS = WorkerSettings("launcher:1", "https://coordinator:8443", "coordinator", "PEM", GPU)


def at(seconds: float) -> datetime:
    """The moment so many seconds into the test."""
    return EPOCH + timedelta(seconds=seconds)


CHECKPOINTS_MOUNT = {"name": "checkpoints", "mountPath": "/checkpoints"}
CHECKPOINTS_VOLUME = {"name": "checkpoints", "hostPath": {"path": "/mnt/shared"}}


def a_job(name: str = "job", uid: str = "", nodes: int = 3, **spec: Any) -> TrainingJob:
    """A job; keyword arguments are fields of its spec, in camelCase."""
    container = {"name": "main", "image": "trainer:1", "command": ["train"], "volumeMounts": [CHECKPOINTS_MOUNT]}
    template = {"spec": {"containers": [container], "volumes": [CHECKPOINTS_VOLUME]}}
    body = {"nodes": nodes, "template": template, "checkpoint": {"directory": "/checkpoints"}} | spec
    metadata = {"name": name, "namespace": "default", "uid": uid or f"uid-of-{name}", "generation": 1}
    return TrainingJob.model_validate({"metadata": metadata, "spec": body})


def a_node(name: str, block: str = "b1", rack: str = "r1", **changes: Any) -> NodeView:
    """A ready node with eight accelerators."""
    view = NodeView(
        name, f"uid-of-{name}", 1, {BLOCK: block, RACK: rack}, ready=True, boot_id="boot-1", allocatable={GPU: 8}
    )
    return replace(view, **changes)


def tainted(node: NodeView, key: str, value: str = "", effect: str = "NoSchedule") -> NodeView:
    """The node with one more taint."""
    return replace(node, taints=(*node.taints, Taint(key, value, effect)))


def a_fleet(nodes: Iterable[NodeView], levels: list[tuple[str, str]] | None = None, **changes: Any) -> Fleet:
    """A fleet of these nodes; `levels` replaces block and rack."""
    policy = FleetPolicySpec()
    if levels is not None:
        policy = FleetPolicySpec.model_validate(
            {"topology": {"levels": [{"name": name, "label": label} for name, label in levels]}}
        )
    return Fleet.from_parts(nodes={node.name: node for node in nodes}, policy=policy, **changes)


def running(attempt: int, step: int | None = None, rank: int = 0, **changes: Any) -> LauncherView:
    """A launcher whose rank runs."""
    view = LauncherView(
        heard_age_seconds=0.5,
        attempt=attempt,
        state=RUNNING,
        ranks=(RankReport(rank, 0, alive=True),),
        step=step,
        step_age_seconds=0.5 if step is not None else None,
        started_age_seconds=60.0,
        address=f"10.0.0.{rank + 1}",
        peer_port=9000,
        talking_age_seconds=3600.0,
        fence_file_id=FENCE_FILE,
    )
    return _with_changes(view, changes)


def _with_changes(view: LauncherView, changes: dict[str, Any]) -> LauncherView:
    """The view with changes, of which a test may give checkpoints as (step, path), and peers as {index: seconds}."""
    checkpoints = (
        c if isinstance(c, CheckpointReport) else CheckpointReport(*c) for c in changes.pop("checkpoints", ())
    )
    peers = tuple(PeerReport(index, seconds) for index, seconds in changes.pop("silent_peers", {}).items())
    return replace(view, checkpoints=tuple(checkpoints), peers=peers, **changes)


def idle(attempt: int, rank: int = 0, scanned: bool = True, **changes: Any) -> LauncherView:
    """A launcher without ranks that has converged to the Wait of this attempt."""
    view = LauncherView(
        heard_age_seconds=0.5,
        attempt=attempt,
        state=IDLE,
        checkpoints_scanned_for_attempt=attempt if scanned else 0,
        scanned_age_seconds=1.0,
        address=f"10.0.0.{rank + 1}",
        peer_port=9000,
        talking_age_seconds=3600.0,
        fence_file_id=FENCE_FILE,
    )
    return _with_changes(view, changes)


def failed(
    attempt: int,
    rank: int = 0,
    code: int | None = 1,
    signal: int | None = None,
    tail: str = "ValueError: no",
    age: float = 0.2,
    **changes: Any,
) -> LauncherView:
    """A launcher whose rank has ended badly by itself."""
    dead = RankReport(rank, 0, alive=False, exit_code=code, signal=signal, exited_age_seconds=age, tail=tail)
    return running(attempt, rank=rank, state=EXITED, ranks=(dead,), **changes)


def succeeded(attempt: int, rank: int = 0, step: int | None = None, tail: str = "") -> LauncherView:
    """A launcher whose rank has ended well."""
    dead = RankReport(rank, 0, alive=False, exit_code=0, exited_age_seconds=0.5, tail=tail)
    return running(attempt, step, rank, state=EXITED, ranks=(dead,))


def an_incident(attempt: int = 1, fault_class: FaultClass = FaultClass.APPLICATION, **changes: Any) -> GangIncident:
    """A failure of rank 0."""
    values: dict[str, Any] = {
        "time": EPOCH,
        "level": Level.IN_PLACE,
        "reason": "RankFailed",
        "node": "n0",
        "index": 0,
        "message": "rank 0 exited with code 1",
    }
    return GangIncident(attempt=attempt, fault_class=fault_class, **(values | changes))


@dataclass
class Scene:
    """One job's world under construction: `Scene(a_job()).gang(...).pods().launcher(0, ...).world()`."""

    job: TrainingJob
    seconds: float = 100.0
    nodes: dict[str, NodeView] = field(default_factory=dict)
    record: GangSpec | None = None
    pod_views: dict[str, PodView] = field(default_factory=dict)
    launchers: dict[str, LauncherView] = field(default_factory=dict)
    ages: dict[str, PodAges] = field(default_factory=dict)
    changes: dict[str, Any] = field(default_factory=dict)
    fleet_changes: dict[str, Any] = field(default_factory=dict)

    def fleet(self, count: int = 4, **labels: Mapping[str, str]) -> Scene:
        """Nodes n0, n1, ...; two to a rack."""
        for number in range(count):
            self.nodes[f"n{number}"] = a_node(f"n{number}", rack=f"r{number // 2}")
        return self

    def node(self, name: str, **changes: Any) -> Scene:
        self.nodes[name] = replace(self.nodes.get(name) or a_node(name), **changes)
        return self

    def gang(self, attempt: int = 1, go: bool = True, resume: int | None = None, **changes: Any) -> Scene:
        """A gang on n0, n1, ... that has its go; committed 60 seconds ago."""
        members = [
            Member(index=i, rank=i, node=f"n{i}", incarnation=1, pod_uid=self.uid(i) if go else "")
            for i in range(self.job.spec.nodes)
        ]
        point = Resume(step=resume, path=f"/checkpoints/{resume}") if resume is not None else None
        values: dict[str, Any] = {
            "job_uid": self.job.metadata.uid,
            "attempt": attempt,
            "time": at(self.seconds - 60),
            "level": Level.START,
            "reason": "Started",
            "members": members,
            "start": AttemptStart(
                time=at(self.seconds - 50), master_address="10.0.0.1", master_port=20001, resume=point
            )
            if go
            else None,
            "checkpoint": point,
        }
        self.record = GangSpec(**(values | changes))
        return self

    def uid(self, index: int, incarnation: int = 1) -> str:
        """The uid that this scene gives a worker's pod."""
        return f"pod-{index}-{incarnation}"

    def pod(self, index: int, incarnation: int = 1, **changes: Any) -> Scene:
        """A worker's pod, running unless changed; of one that is Pending no container has begun."""
        if changes.get("phase") == "Pending":
            changes = {"containers": (ContainerView("main"),), **changes}
        name = pod_name(self.job.metadata.name, self.job.metadata.uid, index, incarnation)
        uid = self.job.metadata.uid
        view = PodView(
            "default",
            name,
            self.uid(index, incarnation),
            1,
            owner_uid=uid,
            job_uid=uid,
            index=index,
            incarnation=incarnation,
            node=f"n{index}",
            phase="Running",
            pod_ip=f"10.0.0.{index + 1}",
            created=EPOCH,
            containers=(ContainerView("main", running=True),),
        )
        self.pod_views[name] = replace(self.pod_views.get(name, view), **changes)
        return self

    def pods(self) -> Scene:
        """A running pod for each member of the gang that has a node."""
        for index, member in enumerate(self.record.members if self.record else []):
            if member.node:
                self.pod(index, member.incarnation, node=member.node)
        return self

    def ended(self, index: int, reason: str = "Error", code: int = 1, message: str = "", **changes: Any) -> Scene:
        """A worker's pod has failed."""
        dead = ContainerView(
            "main", terminated=True, exit_code=code, terminated_reason=reason, terminated_message=message
        )
        return self.pod(index, phase="Failed", containers=(dead,), **changes)

    def launcher(self, index: int, view: LauncherView, incarnation: int = 1) -> Scene:
        self.launchers[self.uid(index, incarnation)] = view
        return self

    def all(self, view: LauncherView) -> Scene:
        """All launchers say the same."""
        for index in range(self.job.spec.nodes):
            self.launcher(index, view)
        return self

    def aged(self, index: int, ages: PodAges) -> Scene:
        """For how long this leader has seen a worker's first pod as it is; else it is since the pod was made."""
        self.ages[self.uid(index)] = ages
        return self

    def lease(self, node: str, age: float) -> Scene:
        """The node's heartbeat is so old."""
        self.fleet_changes.setdefault("lease_age_seconds", {})[node] = age
        return self

    def silence(self, silent: int, total: int) -> Scene:
        """How many launchers of the whole fleet are silent."""
        self.changes["silence"] = SilentShare(silent, total)
        return self

    def but(self, **changes: Any) -> Scene:
        """Change fields of the JobWorld."""
        self.changes |= changes
        return self

    def _unfenced_ages(self) -> dict[str, float]:
        """As if this leader had written them itself."""
        record = self.record
        if record is None:
            return {}
        made = {
            g.pod_uid: g.fenced_time - timedelta(seconds=max(0, g.remaining_seconds)) for g in record.unfenced_workers
        }
        fenced = {
            unfenced_worker.pod_uid
            for unfenced_worker in record.unfenced_workers
            if unfenced_worker.proof is Proof.FENCE
        }
        return {uid: self._since(moment if uid in fenced else record.time) for uid, moment in made.items()}

    def _ages(self, pod: PodView) -> PodAges:
        """As if this leader had seen all of it, and all clocks were one."""
        there = self._since(pod.created) if pod.created else 0.0
        return self.ages.get(pod.uid) or PodAges(there, there if pod.phase != "Pending" else 0.0)

    def _since(self, moment: datetime) -> float:
        return max(0.0, (at(self.seconds) - moment).total_seconds())

    def world(self) -> JobWorld:
        name = gang_name(self.job.metadata.name, self.job.metadata.uid)
        gang = Gang(metadata=ObjectMeta(name=name, resource_version="7"), spec=self.record) if self.record else None
        values: dict[str, Any] = {
            "now": at(self.seconds),
            "job": self.job,
            "gang": gang,
            "pods": dict(self.pod_views),
            "launchers": dict(self.launchers),
            "fleet": Fleet.from_parts(nodes=dict(self.nodes), **self.fleet_changes),
            "leader_age_seconds": 1000.0,
            "attempt_age_seconds": self._since(self.record.time) if self.record else 0.0,
            "pod_ages": {pod.uid: self._ages(pod) for pod in self.pod_views.values()},
            "start_age_seconds": self._since(self.record.start.time) if self.record and self.record.start else 0.0,
            "unfenced_ages": self._unfenced_ages(),
            "template_verdict": TemplateVerdict(VerdictKind.ACCEPTED, self.job.metadata.generation),
        }
        world = JobWorld(**(values | self.changes))
        return world if "queue_decision" in self.changes else in_queue(world)[0]


def in_queue(*worlds: JobWorld) -> list[JobWorld]:
    """The worlds of jobs, each with its turn in one queue of them all."""
    waiting = [
        WaitingJob(
            world.uid,
            f"default/{world.job.metadata.name}",
            "default",
            0,
            world.job.metadata.creation_timestamp or EPOCH,
            request,
            replacement=world.gang is not None and bool(world.gang.spec.members),
        )
        for world in worlds
        if (request := request_of(world)) is not None
    ]
    turns = plan(worlds[0].fleet, waiting) if waiting else {}
    return [replace(world, queue_decision=turns.get(world.uid)) for world in worlds]


def an_unfenced_worker(uid: str, fenced_in_seconds: float, now: float = 100.0) -> UnfencedWorker:
    """A pod of before whose ranks may be alive until then."""
    return UnfencedWorker(
        pod="job-old", pod_uid=uid, node="n0", fenced_time=at(now + fenced_in_seconds), remaining_seconds=30
    )


def opened(world: JobWorld) -> GangSpec | Missing:
    """The record with the start barrier open, or what the start waits for."""
    assert world.gang is not None
    point = start_missing.resume_point(world, world.gang.spec)
    return point if isinstance(point, Missing) else starts.with_barrier_open(world, world.gang.spec, *point)

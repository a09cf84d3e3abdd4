"""Define everything that one decision about one job may read: a value, so that the same world gives the same plan.

Tests: tests/unit/fencing/test_survivors.py.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from muster.api.gang import Gang, Member
from muster.api.trainingjob import TrainingJob
from muster.world.checks import CheckerView, ProbeThreshold
from muster.world.fleet import Fleet, SilentShare
from muster.world.names import gang_name, pod_name_in
from muster.world.queuedecision import Preemptors, QueueDecision, StartEstimate
from muster.world.views import ContainerView, LauncherView, NodeView, PodView

T = TypeVar("T")


class VerdictKind(StrEnum):
    """Answer of the API server to a dry run of worker 0."""

    ACCEPTED = "Accepted"
    REFUSED = "Refused"


@dataclass(frozen=True, slots=True)
class TemplateVerdict:
    """Answer of a server-side dry run of worker 0 for one generation of the job.

    Attributes:
        requests: what the scheduler would reserve for the worker, with what the namespace's defaults have added.
        scheduler_for: the volume that only the cluster's scheduler can handle, for people; "" if there is none.
        generation: of the job that was tried; 0: what is refused may have changed since, so it is to be tried again.
        retry_seconds: longest validity before the API server is asked again; 0: for good.
    """

    kind: VerdictKind
    generation: int
    reason: str = ""
    message: str = ""
    requests: Mapping[str, int] = field(default_factory=dict)
    scheduler_for: str = ""
    retry_seconds: float = 0.0

    def outdated(self) -> "TemplateVerdict":
        """The same, to be asked again before the job gets nodes."""
        return replace(self, generation=0)


@dataclass(frozen=True, slots=True)
class CreateError:
    """A refusal of the API server to create an object of this job (quota, admission); retried with back-off."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class WorkerView:
    """One member of the gang with everything that is seen of it.

    Attributes:
        pod: its pod, if that exists, is the job's and is the one that the record names.
        launcher: last report of the launcher in it.
        node: its node; None for one that is gone.
        container: state of the container that trains, where the kubelet has reported it.
    """

    index: int
    member: Member
    name: str
    pod: PodView | None = None
    launcher: LauncherView | None = None
    node: NodeView | None = None
    container: ContainerView | None = None

    @property
    def where(self) -> str:
        """Return its pod and node for people."""
        return f"worker {self.index} on {self.member.node}"

    @property
    def over(self) -> bool:
        """Whether the container that trains has ended: a sidecar may keep its pod running."""
        return self.pod is not None and (
            self.pod.terminal or (self.container is not None and self.container.terminated)
        )

    @property
    def succeeded(self) -> bool:
        """Whether the container that trains has succeeded."""
        if self.pod is None:
            return False
        if self.container is not None and self.container.terminated:
            return self.container.exit_code == 0
        return self.pod.phase == "Succeeded"

    @property
    def runs(self) -> bool:
        """Whether the container that trains has certainly begun: a waiting sidecar keeps its pod Pending."""
        if self.pod is None:
            return False
        return self.pod.phase != "Pending" or (self.container is not None and self.container.running)


class PodAges(NamedTuple):
    """For how many seconds this process has seen a pod.

    Attributes:
        there: since it was first seen.
        running: since it has begun, 0 where it has not.
        deleting: since its deletion began, 0 where it has not.
    """

    there: float = 0.0
    running: float = 0.0
    deleting: float = 0.0


_UNSEEN = PodAges()


@dataclass(frozen=True, slots=True)
class NodeLimit:
    """The limit of a job's namespace.

    Attributes:
        nodes: that its jobs may hold together.
        beside: that the other jobs of the namespace hold.
    """

    nodes: int
    beside: int = 0


@dataclass(frozen=True, slots=True)
class OtherJob:
    """A job of the same namespace from whose checkpoint this one resumes.

    Attributes:
        exists: False: there is none of this name.
        directory: its spec.checkpoint.directory; "" where it has none.
    """

    name: str
    exists: bool = False
    directory: str = ""


@dataclass(frozen=True)
class JobWorld:
    """One job and its surroundings at one moment. Frequently read values are computed once.

    Attributes:
        now: wall clock, aware; for records and deadlines that must outlive this process.
        pods: this job's pods by name, of every incarnation.
        launchers: last reports of launchers, by pod uid.
        proved_dead: uids of pods of which no process is alive, for certain.
        lost: uids of pods whose node a person has declared lost: no process of theirs is alive either.
        silence: of all launchers.
        dark: of all nodes, by their heartbeats.
        queue_decision: place in the queue of a job that waits for nodes; None before it is queued.
        start_estimate: when a job that waits for nodes starts; None where that is not estimated.
        preempted_by: the jobs that the job has to give its nodes to; None: no plan says it yet.
        leader_age_seconds: for how long this process has been the leader.
        ahead_seconds: by how much the wall clock of this process is ahead of the API server's; None: not known.
        attempt_age_seconds: for how long this process has seen the record with this attempt and this time.
        listing_age_seconds: for how long this process has seen the launchers asked to list the checkpoints as they are
            now, in this attempt; infinite where that is not known.
        start_age_seconds: for how long this process has seen the start of the current attempt; 0 before it.
        pod_ages: by uid, of pods that have not begun, or are on their way out; before the start of all.
        unfenced_ages: by uid, for how many seconds this process has seen each unfenced worker of the record with its
            present proof.
        removed_seconds: by uid of an unfenced worker, for how many seconds its pod was gone or ended in the API server
            while its node's kubelet was ready, without a gap in its heartbeats: the kubelet ends its processes.
        checkers: last reports of the checkers of the members' nodes, by node; before the start.
        thresholds: what figures have to reach, for the kinds of these checkers' nodes.
        other: the job that spec.checkpoint.resumeFrom names, None where it names none.
        sharing: other jobs that want nodes and save to the same directory.
        sharing_first: those of them that this job, while it has no nodes, lets go first: they hold nodes, or are older
            and neither suspended nor stalled.
        limit: of nodes; None where the namespace has none.
        lowered: the job's fields that the FleetPolicy lowers, for people; "": none.
        beyond_limit: whether the record holds no nodes, because the limit of its namespace has no room for them.
    """

    now: datetime
    job: TrainingJob
    gang: Gang | None = None
    pods: Mapping[str, PodView] = field(default_factory=dict)
    launchers: Mapping[str, LauncherView] = field(default_factory=dict)
    proved_dead: frozenset[str] = frozenset()
    lost: frozenset[str] = frozenset()
    fleet: Fleet = field(default_factory=Fleet)
    silence: SilentShare = SilentShare()
    dark: SilentShare = SilentShare()
    queue_decision: QueueDecision | None = None
    start_estimate: StartEstimate | None = None
    preempted_by: Preemptors | None = ()
    leader_age_seconds: float = 0.0
    ahead_seconds: float | None = None
    attempt_age_seconds: float = 0.0
    listing_age_seconds: float = math.inf
    start_age_seconds: float = 0.0
    pod_ages: Mapping[str, PodAges] = field(default_factory=dict)
    unfenced_ages: Mapping[str, float] = field(default_factory=dict)
    removed_seconds: Mapping[str, float] = field(default_factory=dict)
    template_verdict: TemplateVerdict | None = None
    lacks_class: bool = False  # whether the PriorityClass that the job names does not exist
    create_error: CreateError | None = None
    checkers: Mapping[str, CheckerView] = field(default_factory=dict)
    thresholds: tuple[ProbeThreshold, ...] = ()
    other: OtherJob | None = None
    sharing: tuple[str, ...] = ()
    sharing_first: tuple[str, ...] = ()
    limit: NodeLimit | None = None
    lowered: str = ""
    beyond_limit: bool = False

    @property
    def uid(self) -> str:
        """Return the uid of the job."""
        return self.job.metadata.uid

    @property
    def server_now(self) -> datetime:
        """Return the time by the API server's clock, as far as that is known."""
        return self.by_server(self.now)

    def by_server(self, time: datetime) -> datetime:
        """Return a time of this process's clock by the API server's, as far as that is known."""
        return time - timedelta(seconds=self.ahead_seconds or 0.0)

    @cached_property
    def gang_name(self) -> str:
        """Return the name of the job's Gang."""
        return gang_name(self.job.metadata.name, self.uid)

    @cached_property
    def names(self) -> list[str]:
        """Return the names of the members' pods, by worker index."""
        members = self.gang.spec.members if self.gang else ()
        return [pod_name_in(self.gang_name, member.index, member.incarnation) for member in members]

    @cached_property
    def worker_views(self) -> list[WorkerView]:
        """Return the members of the record, each with what is seen of it."""
        members = self.gang.spec.members if self.gang else ()
        return [self._worker_view(member, name) for name, member in zip(self.names, members, strict=True)]

    def _worker_view(self, member: Member, name: str) -> WorkerView:
        pod = self._pod(name, member)
        return WorkerView(
            member.index,
            member,
            name,
            pod,
            self.launchers.get(pod.uid) if pod else None,
            self.fleet.nodes.get(member.node),
            self.container_of(pod) if pod else None,
        )

    def container_of(self, pod: PodView) -> ContainerView | None:
        """Return the state of a pod's container that trains."""
        for container in pod.containers:
            if not container.init and container.name == self._worker_container:
                return container
        return None

    @cached_property
    def _worker_container(self) -> str | None:
        named = self.job.spec.launch.worker_container
        return named or next((container.get("name") for container in self.job.spec.containers), None)

    @cached_property
    def by_index(self) -> Mapping[int, WorkerView]:
        """Return the members by their indices."""
        return {worker_view.index: worker_view for worker_view in self.worker_views}

    @cached_property
    def first(self) -> WorkerView:
        """Return the worker of rank 0, to which the others connect; there has to be one."""
        first = self.gang.spec.first if self.gang else None
        assert first is not None
        return self.by_index[first.index]

    @cached_property
    def others(self) -> Mapping[int, list[PodView]]:
        """Return this job's pods that are no member's (of other incarnations, mostly), by worker index."""
        by_index: dict[int, list[PodView]] = {}
        named = frozenset(self.names)
        for name, pod in self.pods.items():
            if name not in named:
                by_index.setdefault(pod.index, []).append(pod)
        return by_index

    @cached_property
    def holding(self) -> Mapping[str, PodView]:
        """Return, by node, this job's pod that holds the accelerators: the lowest incarnation that has not ended."""
        held: dict[str, PodView] = {}
        for pod in self.pods.values():
            if not pod.terminal and (pod.node not in held or pod.incarnation < held[pod.node].incarnation):
                held[pod.node] = pod
        return held

    @cached_property
    def views(self) -> Mapping[int, LauncherView]:
        """Return the last reports of the members' launchers, by worker index."""
        return {
            worker_view.index: worker_view.launcher
            for worker_view in self.worker_views
            if worker_view.launcher is not None
        }

    @cached_property
    def listed(self) -> frozenset[int]:
        """Return the workers that have listed the checkpoints for this attempt; verifiers also which are complete.

        A list from before the last unfenced worker was proved dead does not count.
        """
        attempt, listing = (self.gang.spec.attempt, self.gang.spec.listing_round) if self.gang else (0, 0)
        return frozenset(
            index
            for index, view in self.views.items()
            if view.checkpoints_scanned_for_attempt == attempt and view.listing_round >= listing
        )

    @cached_property
    def newest_step_age_seconds(self) -> float:
        """Return the age of the newest step of this attempt: a step proves that every rank was alive when it was
        finished."""
        if self.gang is None or self.gang.spec.start is None:
            return float("inf")
        attempt = self.gang.spec.attempt
        views = (view for view in self.views.values() if view.attempt == attempt)
        return min((v.step_age_seconds for v in views if v.step_age_seconds is not None), default=float("inf"))

    @cached_property
    def silent_seconds(self) -> float:
        """Return for how long no launcher of the gang has reported; infinite where none ever has."""
        return min((view.heard_age_seconds for view in self.views.values()), default=float("inf"))

    @cached_property
    def complaints(self) -> Mapping[int, list[tuple[LauncherView, float]]]:
        """Return, by worker index, the neighbours that get no answer from it, and for how many seconds."""
        by_index: dict[int, list[tuple[LauncherView, float]]] = {}
        for view in self.views.values():
            # A neighbour that a launcher names twice counts once.
            for index, seconds in {peer.index: peer.silent_seconds for peer in view.peers}.items():
                by_index.setdefault(index, []).append((view, seconds))
        return by_index

    def derived(self, make: Callable[["JobWorld"], T]) -> T:
        """Return what `make` computes from the world, computed once."""
        if make not in self._derived:
            self._derived[make] = make(self)
        value: T = self._derived[make]
        return value

    @cached_property
    def _derived(self) -> dict[Callable[["JobWorld"], Any], Any]:
        return {}

    def _pod(self, name: str, member: Member) -> PodView | None:
        pod = self.pods.get(name)
        if pod is None or pod.owner_uid != self.uid or (member.pod_uid and member.pod_uid != pod.uid):
            return None
        return pod

    def ages_of(self, pod: PodView) -> PodAges:
        """Return for how long this process has seen a pod; the pod's own times are by other clocks."""
        return self.pod_ages.get(pod.uid, _UNSEEN)

    def is_dead(self, pod_uid: str) -> bool:
        """Whether certainly no rank of this pod is alive: all of it has ended, or the container that trains."""
        return pod_uid in self._dead

    @cached_property
    def _dead(self) -> frozenset[str]:
        ended = (
            pod.uid
            for pod in self.pods.values()
            if ((container := self.container_of(pod)) is not None and container.terminated)
            # Only the kubelet gives a reason, and it refuses a pod before anything of it runs.
            or (pod.never_began and pod.reason)
        )
        return self.proved_dead.union(self.lost, ended)

    def heartbeat_age_seconds(self, node: str) -> float:
        """Return the seconds since the node's kubelet renewed its lease; 0 without a lease."""
        return self.fleet.heartbeats.age_seconds(node)

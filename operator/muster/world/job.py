"""Everything one decision about one job may look at."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import cached_property

from muster.api.gang import Gang, Member
from muster.api.trainingjob import TrainingJob
from muster.world.fleet import Fleet, Silence
from muster.world.names import gang_name, pod_name_in
from muster.world.turn import Turn
from muster.world.views import LauncherView, NodeView, PodView


class VerdictKind(StrEnum):
    """What the API server said of worker 0 in a dry run."""

    ACCEPTED = "Accepted"
    REFUSED = "Refused"


@dataclass(frozen=True, slots=True)
class TemplateVerdict:
    """Answer of a server-side dry run of worker 0 for one generation of the job.

    Attributes:
        requests: what the scheduler would hold for the worker, with what the namespace's defaults have added.
        scheduler_for: the volume that only the cluster's scheduler can deal with, in words; "" if there is none.
    """

    kind: VerdictKind
    generation: int
    reason: str = ""
    message: str = ""
    requests: Mapping[str, int] = field(default_factory=dict)
    scheduler_for: str = ""


@dataclass(frozen=True, slots=True)
class CreateError:
    """The API server refused to create something for this job (quota, admission); retried with back-off."""

    reason: str
    message: str


@dataclass(frozen=True)
class JobWorld:
    """One job and its surroundings at one moment. What a decision asks for again and again is worked out once.

    Attributes:
        now: wall clock, aware; for records and deadlines that must outlive this process.
        pods: this job's pods by name, of every incarnation.
        launchers: what launchers last said, by pod uid.
        proved_dead: uids of pods of which no process is alive, for certain.
        turn: of a job that waits for nodes; None before the queue has heard of it.
        leader_age_seconds: for how long this process has been the leader.
    """

    now: datetime
    job: TrainingJob
    gang: Gang | None = None
    pods: Mapping[str, PodView] = field(default_factory=dict)
    launchers: Mapping[str, LauncherView] = field(default_factory=dict)
    proved_dead: frozenset[str] = frozenset()
    fleet: Fleet = field(default_factory=Fleet)
    silence: Silence = Silence()
    turn: Turn | None = None
    leader_age_seconds: float = 0.0
    template_verdict: TemplateVerdict | None = None
    create_error: CreateError | None = None

    @property
    def uid(self) -> str:
        """Uid of the job."""
        return self.job.metadata.uid

    @cached_property
    def gang_name(self) -> str:
        """Name of the job's Gang."""
        return gang_name(self.job.metadata.name, self.uid)

    @cached_property
    def names(self) -> list[str]:
        """The names of the members' pods, by worker index."""
        members = self.gang.spec.members if self.gang else ()
        return [pod_name_in(self.gang_name, index, member.incarnation) for index, member in enumerate(members)]

    @cached_property
    def others(self) -> Mapping[int, list[PodView]]:
        """This job's pods that are no member's (of other incarnations, mostly), by worker index."""
        found: dict[int, list[PodView]] = {}
        named = frozenset(self.names)
        for name, pod in self.pods.items():
            if name not in named:
                found.setdefault(pod.index, []).append(pod)
        return found

    @cached_property
    def views(self) -> Mapping[int, LauncherView]:
        """What the launchers of the gang's members last said, by worker index."""
        found = (
            (index, self.launchers.get(pod.uid)) for index, (_, pod) in enumerate(self._members) if pod is not None
        )
        return {index: view for index, view in found if view is not None}

    @cached_property
    def newest_step_age_seconds(self) -> float:
        """Since the newest step of this attempt: a step proves that every rank was alive when it was finished."""
        if self.gang is None or self.gang.spec.go is None:
            return float("inf")
        attempt = self.gang.spec.attempt
        views = (view for view in self.views.values() if view.attempt == attempt)
        return min((v.step_age_seconds for v in views if v.step_age_seconds is not None), default=float("inf"))

    @cached_property
    def complaints(self) -> Mapping[int, list[tuple[LauncherView, float]]]:
        """By worker index: which neighbours get no answer from it, and for how many seconds."""
        found: dict[int, list[tuple[LauncherView, float]]] = {}
        for view in self.views.values():
            for index, seconds in view.silent_peers.items():
                found.setdefault(index, []).append((view, seconds))
        return found

    @cached_property
    def _members(self) -> list[tuple[Member, PodView | None]]:
        """The members of the record, each with its pod."""
        members = self.gang.spec.members if self.gang else ()
        return [(member, self._pod(name, member)) for name, member in zip(self.names, members, strict=True)]

    def _pod(self, name: str, member: Member) -> PodView | None:
        pod = self.pods.get(name)
        if pod is None or pod.owner_uid != self.uid or (member.pod_uid and member.pod_uid != pod.uid):
            return None
        return pod

    def pod_name(self, index: int, member: Member) -> str:
        """Name of a member's pod."""
        return pod_name_in(self.gang_name, index, member.incarnation)

    def pod(self, index: int, member: Member) -> PodView | None:
        """The member's pod, if it exists, is ours and is the one that the record names."""
        if index < len(self._members) and self._members[index][0] is member:
            return self._members[index][1]
        return self._pod(self.pod_name(index, member), member)

    def launcher(self, index: int, member: Member) -> LauncherView | None:
        """What the member's launcher last said."""
        pod = self.pod(index, member)
        return self.launchers.get(pod.uid) if pod else None

    def node(self, member: Member) -> NodeView | None:
        """The member's node."""
        return self.fleet.nodes.get(member.node)

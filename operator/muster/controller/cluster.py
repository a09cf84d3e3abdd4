"""Everything that is observed, and the immutable view of it that one decision gets."""

import asyncio
import contextlib
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

import structlog
from prometheus_client import Gauge

from muster.api.base import ObjectMeta
from muster.api.fleetpolicy import FleetPolicy, FleetPolicySpec, Scope
from muster.api.gang import Gang, Member
from muster.api.installation import InstallationProfile
from muster.api.labels import LabelOperator, LabelRequirement, LabelSelector
from muster.api.nodehealth import LostNode, NodeHealth
from muster.api.preflight import PreflightPolicy
from muster.api.trainingjob import LaunchMode, TrainingJob
from muster.checkpoints.location import ELSEWHERE, ENDING, place_of, saves_to, without_job_text
from muster.checkpoints.resume import fork_point_of
from muster.controller.bus import Bus, Key
from muster.controller.heartbeats import LeaseAges
from muster.controller.nodecounts import NodeCounts
from muster.controller.sightings import Sightings
from muster.coordinator.auth import Caller
from muster.coordinator.checkers import CheckerHub
from muster.coordinator.hub import Hub, Membership
from muster.fencing.ages import UnfencedAges
from muster.fencing.lost_nodes import Heartbeat, counts_now, pods_proved_dead, sign_of_life
from muster.kube import informer
from muster.kube.client import Client
from muster.kube.decode import NamespaceView, PriorityClass, Undecodable, job_identity, object_key
from muster.kube.informer import Informer
from muster.kube.nodeleases import NodeLeases
from muster.placement.reasons import NEVER_FITS
from muster.pods.requirements import quota_claim
from muster.protocol.checks import CheckReport
from muster.queueing import enabling
from muster.queueing.enabling import NotEnabled
from muster.queueing.priority_classes import named_class
from muster.queueing.quotas import Held, NamespaceQuotas
from muster.record.attempts import SUSPENDED
from muster.world.checks import CheckerView, ProbeThreshold
from muster.world.fleet import STALE_HEARTBEAT_SECONDS, Fleet, SilentShare, claim_of
from muster.world.job import CreateError, JobWorld, NodeLimit, OtherJob, TemplateVerdict, VerdictKind
from muster.world.joblimits import lowered_fields, within_limits
from muster.world.names import job_name, pod_name_in
from muster.world.quotas import QuotaClaim, QuotaView
from muster.world.record import is_record, record_flaw, record_key
from muster.world.resources import PODS
from muster.world.views import FRESH_SECONDS, LauncherView, NodeView, OccupantView, PodView

MAX_REMEMBERED_DEAD = 65536
AGENT_NAMESPACE = "muster-agent"

log = structlog.get_logger()
_ahead = Gauge(
    "muster_clock_ahead_seconds",
    "By how much the clock of this replica is ahead of the API server's, to a second or two.",
)


# Kubelets renew their leases every ten seconds. Where the first node of many that fall silent together is judged, the
# others are nearly as late.
DARK_SECONDS = 12.0
# Nodes that are held for longer without a start, and then let go of, count as a reservation that came to nothing.
UNUSED_SECONDS = 60.0
# Shorter ones add up in a namespace: so much together counts as one, as much as a gang is given to assemble. A day
# without any of them forgets their sum.
UNUSED_TOGETHER_SECONDS = 300.0
UNUSED_FORGOTTEN_SECONDS = 86400.0
# A tenant may make thousands of ResourceQuotas. Beyond these its own jobs get no nodes, so that it hides none among
# them.
MAX_QUOTAS, MAX_QUOTA_NAMES = 64, 1024
# A new leader waits so long at most for the labels of namespaces: it may lack the right to read them.
NAMESPACES_SECONDS = 10.0
# An unbound pod that no record names any more may be bound already: a watch shows that late, but not so late.
UNBOUND_SECONDS = 60.0
# The scope while that of the FleetPolicy is not known: it selects no node.
_UNKNOWN_SCOPE = Scope(
    node_selector=LabelSelector(
        match_expressions=[
            LabelRequirement(key="muster.dev/unknown-scope", operator=operator)
            for operator in (LabelOperator.EXISTS, LabelOperator.DOES_NOT_EXIST)
        ]
    )
)


CLASS_AWAY_SECONDS = 60.0
"""For so long jobs wait on at their places after their PriorityClass has gone: people delete it to change its value."""


@dataclass(slots=True)
class JobMemory:
    """The facts about one job that this leader remembers between decisions; all of them can be lost and found again."""

    template_verdict: TemplateVerdict | None = None
    template_recheck_at: float = float("inf")
    template_checks: tuple[int, int] = (0, 0)  # the generation last checked, and how often it was to be checked again
    # What each of its pods counts for in ResourceQuotas; by the template until answered.
    claim: QuotaClaim | None = None
    create_error: CreateError | None = None
    create_failures: int = 0
    create_not_before: float = 0.0
    bound: set[str] = field(default_factory=set)  # uids of pods that were bound and not yet seen so
    support_applied: dict[tuple[str, str], str] = field(default_factory=dict)  # kind, name -> digest
    progress_written_at: float = float("-inf")
    counts_written_at: float = float("-inf")
    refusal_logged: str = ""
    unfenced_ages: UnfencedAges = field(default_factory=UnfencedAges)
    unused_seconds: float = 0.0  # for how long it has held nodes without a start, in several times
    reported: dict[str, str] = field(default_factory=dict)  # what is wrong with its PriorityClass, by reason

    def outdate_template(self) -> None:
        """Have the template checked before the job gets nodes, since what the API server refuses may have changed."""
        self.template_checks = 0, 0
        if self.template_verdict is not None:
            self.template_verdict = self.template_verdict.outdated()


@dataclass(frozen=True, slots=True)
class _DeletedJob:
    """A job that is gone or being deleted, and where it saves: no more of it, as it may be large."""

    namespace: str
    name: str
    uid: str
    place: str


@dataclass(slots=True)
class _Reservation:
    """The nodes that a record holds.

    Attributes:
        since: when this process saw the reservation first.
        is_used: whether its gang has begun there.
    """

    since: float
    nodes: frozenset[str] = frozenset()
    is_used: bool = False


# What nodes with these reports are judged by, where the policy says this.
ThresholdsOf = Callable[[Iterable[CheckReport], PreflightPolicy], tuple[ProbeThreshold, ...]]


class Cluster:
    """The observed state of the cluster.

    Args:
        client: lists and watches.
        hub: has the launchers' reports.
        bus: where what follows from changes is published.
        clock: monotonic seconds.
        wall_clock: aware times.
        checkers: the hub of the checkers' reports; None where there are none.
        thresholds: see `ThresholdsOf`.
        agent_namespace: where the nodes' agents run. Empty: there are none, and no Pod is taken for one.
        heartbeats: the ages of nodes' heartbeats; None = those that this process has seen through `client`.
        profile: of the installation. Without jobs the stores that are about them stay empty.
    """

    def __init__(
        self,
        client: Client,
        hub: Hub,
        bus: Bus,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        checkers: CheckerHub | None = None,
        thresholds: ThresholdsOf = lambda _reports, _policy: (),
        agent_namespace: str = AGENT_NAMESPACE,
        heartbeats: LeaseAges | None = None,
        profile: InstallationProfile = InstallationProfile.JOBS,
    ) -> None:
        self.hub = hub
        self.profile = profile
        self.checkers = checkers or CheckerHub(clock)
        self._thresholds = thresholds
        self._answers = client.answers
        self.jobs = informer.training_jobs(client, clock)
        self.gangs = informer.gangs(client, clock)
        self.policies = informer.fleet_policies(client, clock)
        self._offered: set[str] = set()  # names of the resources that nodes have
        self.nodes = informer.nodes(client, clock)
        self.pods = informer.worker_pods(client, clock, self._offered, self.nodes)
        self.occupants = informer.occupant_pods(
            client, clock, self._offered, self.nodes, with_workers=not profile.has_jobs
        )
        self.healths = informer.node_healths(client, clock)
        self.priorities = informer.priority_classes(client, clock)
        self.quotas = informer.resource_quotas(client, clock)
        self.namespaces = informer.namespaces(client, clock)
        self.agents = informer.agent_pods(client, agent_namespace, clock)
        of_jobs = (self.jobs, self.gangs, self.pods, self.priorities, self.quotas, self.namespaces)
        self._absent: frozenset[Informer[Any]] = frozenset(
            (*(() if profile.has_jobs else of_jobs), *(() if agent_namespace else [self.agents]))
        )
        self.memories: dict[str, JobMemory] = {}
        self._bus = bus
        self._clock = clock
        self._wall_clock = wall_clock
        self.heartbeats = heartbeats or LeaseAges(self._answers.attended_seconds)
        self.leases = NodeLeases(client, self.heartbeats.note_leases, clock)
        self._sightings = Sightings(clock)
        self._policy = profile.bounded(FleetPolicySpec())
        self.fleet = Fleet(self._policy, self.heartbeats)
        self._policy_read = False
        # The Gangs that are records of jobs, by key; of one that has become unreadable, what it was before.
        self._records: dict[Key, Gang] = {}
        self._taken: dict[str, dict[str, int]] = {}  # namespace -> name of a record -> the size of its gang
        self._meets_records = False  # at its start, when whatever is there was committed by another process
        self._refused: dict[str, set[str]] = {}  # namespace -> names of records that hold nothing for its limit
        self._met: set[Key] = set()  # those of them that were there at the start
        self._reservations: dict[Key, _Reservation] = {}
        # namespace -> its short ones in seconds, and when the last was
        self._unused: dict[str, tuple[float, float]] = {}
        # Nodes that a user has declared dead -> the declaration, and when it came here.
        self._lost: dict[str, tuple[LostNode, float]] = {}
        self._uids: dict[str, set[str]] = {}  # namespace -> uids of its jobs
        self._jobs_on: dict[str, set[str]] = {}  # node -> job uids with a member there
        self._sizes: dict[str, int] = {}  # how many members the records of jobs have that want nodes, by uid
        self._counts = NodeCounts(self.fleet, self._jobs_on, self._sizes)
        self._places: dict[str, set[Key]] = {}  # where jobs save that want nodes
        # Jobs that are gone or being deleted, by uid: while their pods have not ended, their ranks may still save.
        self._deleted: dict[str, _DeletedJob] = {}
        self._deleted_at: dict[tuple[str, str], dict[str, _DeletedJob]] = {}  # those jobs by namespace and place
        # Namespace and place -> pods that may save there, by the uid of their owner and their own.
        self._saving: dict[tuple[str, str], dict[str, dict[str, PodView]]] = {}
        self._saving_as: dict[str, PodView] = {}  # those pods as they were noted, by uid
        self._given: dict[tuple[str, str], frozenset[str]] = {}  # namespace, job uid -> the nodes that its record names
        self._standing: dict[str, dict[str, PodView | OccupantView]] = {}  # node -> the pods there by uid
        self._places_of_pods: dict[str, str] = {}  # uid of a pod -> the node under which it stands there
        # Unbound pods that take a node by uid, and until when: without an end while their job's record names the node.
        self._unbound: dict[str, tuple[PodView, float]] = {}
        # Pods whose creation was not answered, by key: the node that each takes if it is there, and until when.
        self._unanswered: dict[Key, tuple[str, float]] = {}
        self._dead: OrderedDict[str, None] = OrderedDict()
        self._deleted_classes: dict[str, PriorityClass] = {}  # as they were last, by name
        self.jobs.store.subscribe(self._job_changed)
        self.gangs.store.subscribe(self._gang_changed)
        self.policies.store.subscribe(self._policy_changed)
        self.namespaces.store.subscribe(self._namespace_changed)
        self.priorities.store.subscribe(self._priority_class_changed)
        self.pods.store.subscribe(self._pod_changed)
        self.occupants.store.subscribe(self._occupant_changed)
        self.nodes.store.subscribe(self._node_changed)
        self.healths.store.subscribe(self._health_changed)

    @property
    def informers(self) -> tuple[Informer[Any] | NodeLeases, ...]:
        """All informers and the reader of heartbeats, to be run as tasks."""
        return (*self._required, *({self.namespaces} - self._absent))

    @cached_property
    def _required(self) -> tuple[Informer[Any] | NodeLeases, ...]:
        """The informers without which nothing is decided. Without the labels of namespaces no job starts, if the policy
        selects by them, and gangs go on. It is cached: each report of a launcher asks three times."""
        every = (
            self.policies,
            self.priorities,
            self.quotas,
            self.nodes,
            self.leases,
            self.healths,
            self.jobs,
            self.gangs,
            self.pods,
            self.occupants,
            self.agents,
        )
        return tuple(source for source in every if source not in self._absent)

    @property
    def synced(self) -> bool:
        """Whether every informer has listed once, that of Namespaces apart. Before that nothing is decided, and no
        launcher is answered."""
        return all(source.synced.is_set() for source in self._required)

    async def wait_synced(self) -> None:
        """Return once `synced`, with every record held to its namespace's limit."""
        await asyncio.gather(*(source.synced.wait() for source in self._required))
        if self._policy.queueing.namespace_selector is not None and self.namespaces not in self._absent:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(NAMESPACES_SECONDS):
                    await self.namespaces.synced.wait()
        self._taken.clear()  # the records may have been seen before the policy that has the limits
        self._meets_records = True
        for key, record in list(self._records.items()):
            self._note_record(key, record)
        self._meets_records = False

    async def refresh(self) -> None:
        """List everything anew that a new leader must not be behind with.

        Raises:
            ApiError: an object could not be listed.
            ValueError: something listed cannot be read.
        """
        needed = (self.jobs, self.gangs, self.pods, self.healths)
        await asyncio.gather(*(source.refresh() for source in needed if source not in self._absent))

    def stalest_seconds(self) -> tuple[str, float]:
        """The name of the informer that has heard nothing for longest while the API server was answering, and for how
        long."""
        ages = [(source.name, self._answers.since_seconds(source.last_contact)) for source in self._required]
        return max(ages, key=lambda item: item[1])

    def job_keys(self) -> list[Key]:
        """The keys of all jobs."""
        return [object_key(job) for job in self.jobs.store.values()]

    def job(self, key: Key) -> TrainingJob | Undecodable | None:
        """The job of this key; Undecodable where it cannot be read, None where there is none."""
        return self.jobs.store.get(key)

    def job_of(self, pod: PodView) -> TrainingJob | Undecodable | None:
        """The job that a worker's pod belongs to; Undecodable where it cannot be read, None where there is none."""
        jobs = self.jobs.store.by_index(pod.job_uid)
        return next((job for job in jobs if object_key(job)[0] == pod.namespace), None)

    def pods_of(self, namespace: str, job_uid: str) -> list[PodView]:
        """The pods of a job, by their controlling owner: any tenant can put the job's labels on another pod."""
        return self.pods.store.by_index((namespace, job_uid))

    def gang_of(self, job_uid: str) -> Gang | Undecodable | None:
        """The job's record; None where there is none.

        Undecodable, which is not the same as None, where the record cannot be read or was not committed.
        """
        job = self.job_by_uid(job_uid)
        if job is None:
            records = [gang for gang in self.gangs.store.by_index(job_uid) if object_key(gang) in self._records]
            return next((gang for gang in records if isinstance(gang, Gang)), records[0] if records else None)
        gang = self.gangs.store.get(_record_key(job))
        flaw = record_flaw(gang, job_identity(job)) if isinstance(gang, Gang) else ""
        if not flaw or gang is None or isinstance(gang, Undecodable):
            return gang
        meta = gang.metadata
        version = int(meta.resource_version or 0)
        return Undecodable(meta.namespace, meta.name, meta.uid, version, meta.generation, flaw, job_uid)

    def job_by_uid(self, uid: str) -> TrainingJob | Undecodable | None:
        """The job of this uid; Undecodable where it cannot be read, None where there is none."""
        return next(iter(self.jobs.store.by_index(uid)), None)

    def uid_of(self, gang: Gang, member: Member) -> str:
        """The uid of a member's pod; "" where there is none. Before the start barrier opens, the record does not name
        it."""
        if member.pod_uid:
            return member.pod_uid
        name = pod_name_in(gang.metadata.name, member.index, member.incarnation)
        pod = self.pods.store.get((gang.metadata.namespace, name))
        return pod.uid if pod is not None and pod.job_uid == gang.spec.job_uid else ""

    def unreadable_record_of(self, job: TrainingJob) -> Undecodable | None:
        """The unreadable record that prevents every decision about this job; None where there is none, or the job has
        ended."""
        if job.status.completion is not None or job.metadata.deletion_timestamp is not None:
            return None
        gang = self.gang_of(job.metadata.uid)
        return gang if isinstance(gang, Undecodable) else None

    def jobs_on(self, node: str) -> Collection[str]:
        """The uids of the jobs that have a member on this node."""
        return tuple(self._jobs_on.get(node, ()))

    def is_empty(self, node: str) -> bool:
        """Whether no job has the node, no worker's pod is on it, and no pod that uses accelerators."""
        resource = self.policy().accelerator_resource
        if self.fleet.holders(node) or self.fleet.used(node).get(resource):
            return False
        pods = self._standing.get(node, {}).values()
        return not any(isinstance(pod, PodView) and not pod.terminal for pod in pods)

    def memory(self, job_uid: str) -> JobMemory:
        """What this leader remembers of a job."""
        return self.memories.setdefault(job_uid, JobMemory())

    def policy(self) -> FleetPolicySpec:
        """The FleetPolicy in force, as far as the profile carries it out. Of one that cannot be read, the last readable
        version; else the defaults. Of one that was deleted, the scope; of one that was never read, a scope that selects
        no node."""
        return self._policy

    @property
    def policy_unmet(self) -> str:
        """What the FleetPolicy asks for and the profile does not do, as text for users; "" if nothing."""
        policy = self.policies.store.get(("", "default"))
        return self.profile.unmet(policy.spec) if isinstance(policy, FleetPolicy) else ""

    @property
    def policy_problem(self) -> str:
        """Why the FleetPolicy cannot be read; "" if it can, or if there is none."""
        policy = self.policies.store.get(("", "default"))
        return policy.error if isinstance(policy, Undecodable) else ""

    @property
    def policy_unknown(self) -> bool:
        """Whether there is a FleetPolicy of which this process has never read a version, so that the defaults are a
        guess."""
        return bool(self.policy_problem) and not self._policy_read

    @property
    def scope_unknown(self) -> bool:
        """Whether all nodes are outside only because the scope of a FleetPolicy could not be read."""
        return self._policy.scope == _UNKNOWN_SCOPE

    def priority_of(self, job: TrainingJob) -> int:
        """The value of the PriorityClass that the template names, if that counts in the queue, also of one that was
        deleted: to change its value, people delete it. Else that of the default class; of several the smallest, as for
        pods."""
        name = named_class(job)
        if name and self.policy().queueing.counts(name):
            named = self.priorities.store.get(("", name)) or self._deleted_classes.get(name)
            return named.value if named else 0
        return min((priority.value for priority in self.priorities.store.values() if priority.is_default), default=0)

    def lacks_class(self, job: TrainingJob) -> bool:
        """Whether the PriorityClass that the job names does not exist."""
        name = named_class(job)
        return bool(name) and self.priorities.store.get(("", name)) is None

    def preempts_by(self, job: TrainingJob) -> str:
        """The PriorityClass by which the job may take the nodes of jobs of lower priority; "" for none."""
        name = named_class(job)
        named = self.priorities.store.get(("", name))
        is_allowed = self.policy().queueing.may_preempt(name, job.metadata.namespace)
        return name if is_allowed and named is not None and named.preempts else ""

    def held_by_namespace(self) -> Mapping[str, int]:
        """The number of nodes that the jobs of each namespace hold."""
        return {namespace: self._count_held(namespace) for namespace in self._uids}

    def _count_held(self, namespace: str, besides: TrainingJob | None = None) -> int:
        """The number of nodes that count for the jobs of a namespace, except for the job `besides`.

        Refused records count, too: they leave no room for more.
        """
        return self._counts.held(namespace, besides.metadata.uid if besides is not None else "")

    def closed(self, namespace: str) -> NotEnabled | None:
        """Why no job of a namespace starts; None if jobs may start."""
        if not self._policy_read:
            if self.policy_problem:
                return enabling.unreadable_policy(self.policy_problem)
            return enabling.NO_POLICY if self.policies.synced.is_set() else enabling.POLICY_NOT_READ
        view = self.namespaces.store.get(("", namespace))
        return enabling.refusal(self._policy, namespace, view.labels if view is not None else None)

    def limits_of(self, namespaces: Iterable[str]) -> dict[str, int]:
        """The limits in nodes of those of these namespaces that have one; 0 where no job may start."""
        limits = {namespace: self._nodes_allowed(namespace) for namespace in set(namespaces)}
        return {namespace: limit for namespace, limit in limits.items() if limit is not None}

    def _limit_of(self, job: TrainingJob) -> NodeLimit | None:
        namespace = job.metadata.namespace
        limit = self._nodes_allowed(namespace)
        return None if limit is None else NodeLimit(limit, self._count_held(namespace, job))

    def claim_of(self, job: TrainingJob) -> QuotaClaim:
        """What each pod of a job counts for in ResourceQuotas: as the API server has answered, else by the template."""
        memory = self.memory(job.metadata.uid)
        if memory.claim is None:
            memory.claim = quota_claim(job, self.policy().accelerator_resource)
        return memory.claim

    def pods_with_unknown_claims(self) -> list[tuple[str, PodView]]:
        """A pod, with the job's uid, of each job that holds nodes under a quota and whose claim this process does not
        know.

        The trial of the template gave the claim to an earlier leader, not to a new one.
        """
        job_pods = []
        for namespace, uids in self._uids.items():
            if not any(quota.hard for quota in self.quotas.store.by_index(namespace)):
                continue
            for uid in uids:
                claim = self.memory(uid).claim
                if (claim is None or not claim.is_answered) and self.fleet.nodes_of(uid):
                    pods = (pod for pod in self.pods_of(namespace, uid) if not pod.terminal)
                    pod = min(pods, key=lambda pod: pod.name, default=None)
                    job_pods += [(uid, pod)] if pod is not None else []
        return job_pods

    def quotas_of(self, namespace: str) -> NamespaceQuotas:
        """The ResourceQuotas of a namespace, and what its jobs that have nodes use of them.

        What a job uses is worked out when it is asked for: there may be thousands.
        """
        quotas = [quota for quota in self.quotas.store.by_index(namespace) if quota.hard]
        if len(quotas) > MAX_QUOTAS or sum(len(quota.hard) for quota in quotas) > MAX_QUOTA_NAMES:
            problem = (
                f"namespace {namespace} has {len(quotas)} ResourceQuotas: Muster reads at most {MAX_QUOTAS} of a "
                f"namespace, with at most {MAX_QUOTA_NAMES:,} names of resources, so none of its jobs gets nodes. "
                "Delete or merge some"
            )
            return NamespaceQuotas([QuotaView(namespace, "", "", 0, hard={PODS: 0}, problem=problem)])
        uids = list(self._uids.get(namespace, ())) if quotas else []
        return NamespaceQuotas(quotas, (held for uid in uids for held in self._held_by(namespace, uid)))

    def _held_by(self, namespace: str, uid: str) -> Iterable[Held]:
        nodes = self.fleet.nodes_of(uid)
        jobs, gang = (self.jobs.store.by_index(uid), self.gang_of(uid)) if nodes else ((), None)
        resource = self.policy().accelerator_resource
        for job in jobs:
            if isinstance(job, TrainingJob):
                pods = [pod for pod in self.pods_of(namespace, uid) if not pod.terminal and _names(gang, pod)]
                node_views = (self.fleet.nodes.get(name) for name in nodes)
                whole = sum(node.allocatable.get(resource, 0) for node in node_views if node is not None)
                asked = sum(pod.requests.get(resource, 0) for pod in pods)
                podless = len(set(nodes) - {pod.place for pod in pods})
                yield Held(self.claim_of(job), podless, max(whole - asked, 0))

    def world(self, job: TrainingJob) -> JobWorld:
        """The immutable view of one job and its surroundings as of now."""
        uid = job.metadata.uid
        record, memory = self.gang_of(uid), self.memory(uid)
        gang = record if isinstance(record, Gang) else None
        if memory.template_verdict is not None and self._clock() >= memory.template_recheck_at:
            memory.template_verdict, memory.template_recheck_at = memory.template_verdict.outdated(), float("inf")
        pods = {pod.name: pod for pod in self.pods_of(job.metadata.namespace, uid)}
        uids = {pod.uid for pod in pods.values()}
        if gang is not None:
            uids.update(member.pod_uid for member in gang.spec.members)
            uids.update(unfenced_worker.pod_uid for unfenced_worker in gang.spec.unfenced_workers)
        dead = {pod.uid for pod in pods.values() if pod.terminal and pod.containers_dead}
        dead.update(uid for uid in uids if uid in self._dead or self.hub.proved_dead(uid))
        launchers, now = self.hub.views_of(uids), self._wall_clock()
        lost = self._dead_on_lost_nodes(gang, pods, launchers, now)
        timeout = float(job.spec.recovery.unreachable_timeout_seconds)
        ages = self.heartbeats.known(min(timeout, DARK_SECONDS))
        if self._depends_on_heartbeats(job, gang, launchers):
            self.leases.ask()
        fleet = self.fleet.snapshot(ages)
        seen = memory.unfenced_ages
        present_uids = self._still_there(gang)
        seen.update(
            gang, present_uids, fleet.nodes, self.heartbeats.beats, self._clock(), self._answers.attended_seconds()
        )
        dark = sum(name in fleet.nodes for name in ages.older_than(DARK_SECONDS))
        checkers = self._checkers_of(gang)
        place = place_of(job)
        with_pods = [*self._ending_beside(job, place), *self._ejected_beside(job)]
        return JobWorld(
            now=now,
            job=within_limits(job, self._policy.job_limits),
            lowered=lowered_fields(job, self._policy.job_limits),
            gang=gang,
            pods=pods,
            launchers=launchers,
            proved_dead=frozenset(dead),
            lost=frozenset(lost),
            fleet=fleet,
            dark=SilentShare(dark, len(fleet.nodes)),
            silence=self.hub.silence(timeout, job.metadata.namespace),
            leader_age_seconds=self.hub.serving_age_seconds(),
            ahead_seconds=self.ahead_seconds(now),
            attempt_age_seconds=seen.attempt_age_seconds,
            listing_age_seconds=seen.listing_age_seconds,
            start_age_seconds=seen.start_age_seconds,
            pod_ages=self._sightings.ages(_of_interest(gang, pods.values())),
            unfenced_ages=seen.ages,
            removed_seconds=seen.removed_seconds,
            template_verdict=memory.template_verdict,
            lacks_class=self.lacks_class(job),
            create_error=memory.create_error,
            checkers=checkers,
            other=self.other_job(job),
            sharing=self._sharing(job, place, with_pods),
            sharing_first=() if gang is not None and gang.spec.members else self._sharing_first(job, place, with_pods),
            limit=self._limit_of(job),
            beyond_limit=gang is not None and gang.metadata.name in self._refused.get(gang.metadata.namespace, ()),
            thresholds=self._thresholds([checker.report for checker in checkers.values()], self._policy.preflight)
            if checkers
            else (),
        )

    def ahead_seconds(self, now: datetime) -> float | None:
        """The seconds by which this clock is ahead of the API server's; None where that is not known."""
        theirs = self._answers.server_time()
        seconds = None if theirs is None else (now - theirs).total_seconds()
        _ahead.set(seconds or 0.0)
        return seconds

    def server_now(self, now: datetime) -> datetime:
        """The time by the API server's clock, as far as it is known, at this moment of the own clock."""
        return now - timedelta(seconds=self.ahead_seconds(now) or 0.0)

    def _depends_on_heartbeats(
        self, job: TrainingJob, gang: Gang | None, launchers: Mapping[str, LauncherView]
    ) -> bool:
        """Whether the ages of the heartbeats of the job's nodes matter now, because a member is not as it should be."""
        if gang is None:
            return False
        if gang.spec.unfenced_workers:
            return True
        is_plain = job.spec.launch.mode is LaunchMode.PLAIN
        silence_limit = min(FRESH_SECONDS, job.spec.recovery.unreachable_timeout_seconds)
        for member in gang.spec.members:
            node = self.fleet.nodes.get(member.node)
            if member.node and (node is None or not node.ready):
                return True
            if is_plain or not member.pod_uid:
                continue
            launcher = launchers.get(member.pod_uid)
            if launcher is None or launcher.heard_age_seconds >= silence_limit:
                return True
        return False

    def other_job(self, job: TrainingJob) -> OtherJob | None:
        """The job from whose checkpoint this one shall begin; None where the manifest names none."""
        fork = fork_point_of(job.spec.checkpoint.resume_from)
        if fork is None:
            return None
        source_job = self.jobs.store.get((job.metadata.namespace, fork.job))
        if not isinstance(source_job, TrainingJob):
            return OtherJob(fork.job)
        return OtherJob(fork.job, exists=True, directory=source_job.spec.checkpoint.directory or "")

    def _sharing(self, job: TrainingJob, place: str, with_pods: list[str]) -> tuple[str, ...]:
        """The names of other jobs that want nodes, or whose pods have not ended, and save to the same directory. Jobs
        of other namespaces are not named."""
        job_keys = self._places.get(place, set()) - {object_key(job)}
        own = [name for namespace, name in job_keys if namespace == job.metadata.namespace]
        others = {ELSEWHERE for namespace, _ in job_keys if namespace != job.metadata.namespace}
        return (*sorted([*own, *with_pods]), *others)

    def _sharing_first(self, job: TrainingJob, place: str, with_pods: list[str]) -> tuple[str, ...]:
        """The names of jobs of the same namespace and directory that a job without nodes lets go first.

        They hold nodes, or are older and wait for some, or are deleted and have pods. A job of another namespace, or
        one that waits for a person, keeps none from its nodes.
        """
        job_keys = self._places.get(place, set()) - {object_key(job)}
        same = (self.jobs.store.get(key) for key in job_keys if key[0] == job.metadata.namespace)
        first = [other.metadata.name for other in same if isinstance(other, TrainingJob) and self._is_first(other, job)]
        return tuple(sorted([*first, *with_pods]))

    def _ending_beside(self, job: TrainingJob, place: str) -> list[str]:
        """The names of deleted jobs of the same namespace and directory whose pods have not ended."""
        ending = self._deleted_at.get((job.metadata.namespace, place), {})
        return [
            ENDING.format(deleted.name)
            for uid, deleted in ending.items()
            if uid != job.metadata.uid and self._not_on_lost_nodes(self._running_pods(deleted.namespace, uid))
        ]

    def _ejected_beside(self, job: TrainingJob) -> list[str]:
        """The gangs without a job whose pods may save to the job's directory, as they are named to it: ejected ones,
        whatever owns their pods now, and ones whose job was deleted before this process saw it."""
        by_job: dict[str, list[PodView]] = {}
        for owner, pods in self._saving.get((job.metadata.namespace, saves_to(job)), {}).items():
            if owner not in self._deleted and self.job_by_uid(owner) is None:
                for pod in self._not_on_lost_nodes(pods.values()):
                    by_job.setdefault(pod.job_uid, []).append(pod)
        return [without_job_text(several) for several in by_job.values()]

    def _note_saving(self, old: PodView | None, new: PodView | None) -> None:
        """Note where a pod may save. If no job owns it, have those decided about again that save there.

        Any tenant can make such a pod: it keeps only jobs of its own namespace from that directory. It saves until its
        kubelet has reported its end: others declare a pod ended whose node they have lost.
        """
        pod = new or old
        assert pod is not None
        was = self._saving_as.pop(pod.uid, None)
        now = new if new is not None and new.saves_to and new.node and not self._is_reported_dead(new) else None
        if now is not None:
            self._saving_as[pod.uid] = now
        if was is not None and now is not None and (was.saves_to, was.owner_uid) == (now.saves_to, now.owner_uid):
            return
        if was is not None:
            owners = self._saving[was.namespace, was.saves_to]
            del owners[was.owner_uid][was.uid]
            if not owners[was.owner_uid]:
                del owners[was.owner_uid]
            if not owners:
                del self._saving[was.namespace, was.saves_to]
        if now is not None:
            owners = self._saving.setdefault((now.namespace, now.saves_to), {})
            owners.setdefault(now.owner_uid, {})[now.uid] = now
        for view in (was, now):
            if view is not None and self.job_by_uid(view.owner_uid) is None:
                same_name = job_name(view.name.rsplit("-", 2)[0], view.job_uid)
                others = {key for key in self._places.get(view.saves_to, ()) if key[0] == view.namespace}
                for other in others | {(view.namespace, same_name)}:
                    self._bus.job_changed.publish(other)

    def _running_pods(self, namespace: str, job_uid: str) -> Iterator[PodView]:
        """The pods of a job that are on nodes and have not ended."""
        return (pod for pod in self.pods_of(namespace, job_uid) if pod.node and not pod.terminal)

    def _not_on_lost_nodes(self, pods: Iterable[PodView]) -> list[PodView]:
        """Those of the pods that no declaration of a lost node proves to be dead: nothing reports the end of the others
        while their Node object is there."""
        if not self._lost:
            return list(pods)
        by_uid = {pod.uid: pod for pod in pods}
        dead = self._dead_on_lost_nodes(None, by_uid, self.hub.views_of(by_uid), self._wall_clock())
        return [pod for uid, pod in by_uid.items() if uid not in dead]

    def _note_deleted(self, job: _DeletedJob) -> None:
        """Note a job that is gone or being deleted, for as long as it has pods. Where that changes what is noted, have
        those jobs decided about again that see it.

        Any tenant may keep thousands of such jobs: no decision about another job looks at each of them.
        """
        was = self._deleted.pop(job.uid, None)
        now = job if job.place and any(self._running_pods(job.namespace, job.uid)) else None
        if now is not None:
            self._deleted[job.uid] = now
        if was == now:
            return
        if was is not None:
            deleted = self._deleted_at[was.namespace, was.place]
            del deleted[was.uid]
            if not deleted:
                del self._deleted_at[was.namespace, was.place]
        if now is not None:
            self._deleted_at.setdefault((now.namespace, now.place), {})[now.uid] = now
        for place in {view.place for view in (was, now) if view is not None}:
            for other in self._places.get(place, ()):
                if other[0] == job.namespace:
                    self._bus.job_changed.publish(other)

    def _is_first(self, job: TrainingJob, other: TrainingJob) -> bool:
        """Whether the one job holds nodes, or would come first if both waited for some."""
        record = self._records.get(_record_key(job))
        if record is not None and record.spec.members:
            return True
        waits_for_a_person = job.spec.suspend or job.status.state == "Stalled" or job.status.reason == NEVER_FITS
        return not waits_for_a_person and _age_key(job) < _age_key(other)

    def _saves_at(self, key: Key, old_directory: str, new_directory: str) -> None:
        """Note where a job saves, and have the jobs that share its old or new directory decided about again. "" is no
        directory.
        """
        if old_directory == new_directory:
            return
        if old_directory:
            self._places[old_directory].discard(key)
            if not self._places[old_directory]:
                del self._places[old_directory]
        if new_directory:
            self._places.setdefault(new_directory, set()).add(key)
        for other in {*self._places.get(old_directory, ()), *self._places.get(new_directory, ())} - {key}:
            self._bus.job_changed.publish(other)

    def _checkers_of(self, gang: Gang | None) -> Mapping[str, CheckerView]:
        """The checkers' views for the nodes of a gang that has not begun, by node name; empty for others, which are not
        tested."""
        if gang is None or gang.spec.start is not None:
            return {}
        return self.checkers.views_of(member.node for member in gang.spec.members if member.node)

    def tested_on(self, node: str) -> list[str]:
        """The uids of the jobs that have a member on this node and have not begun: news of its checker concerns
        them."""
        gangs = ((uid, self.gang_of(uid)) for uid in self.jobs_on(node))
        return [uid for uid, gang in gangs if isinstance(gang, Gang) and gang.spec.start is None]

    def _still_there(self, gang: Gang | None) -> set[str]:
        """The uids of the unfenced workers' pods that have not ended, whatever their labels and owners are now.

        Any tenant may take labels and owners away, and a pod without them runs on.
        """
        uids: set[str] = set()
        if gang is None:
            return uids
        for unfenced_worker in gang.spec.unfenced_workers:
            key = (gang.metadata.namespace, unfenced_worker.pod)
            worker, stray = self.pods.store.get(key), self.occupants.store.get(key)
            if worker is not None and not worker.terminal:
                uids.add(worker.uid)
            if stray is not None:
                uids.add(stray.uid)
        return uids

    def _dead_on_lost_nodes(
        self, gang: Gang | None, pods: Mapping[str, PodView], launchers: Mapping[str, LauncherView], now: datetime
    ) -> set[str]:
        """The uids of the job's pods that are dead because an administrator has declared their node lost."""
        if not self._lost:
            return set()
        where = {pod.uid: pod.node for pod in pods.values()}
        if gang is not None:
            where |= {member.pod_uid: member.node for member in gang.spec.members if member.pod_uid}
            where |= {
                unfenced_worker.pod_uid: unfenced_worker.node
                for unfenced_worker in gang.spec.unfenced_workers
                if unfenced_worker.pod_uid
            }
        by_uid = {pod.uid: pod for pod in pods.values()}
        dead: set[str] = set()
        for node in self._lost.keys() & where.values():
            self.leases.ask()  # a renewal refutes the word
            word, since = self._lost[node]
            if counts_now(word, self.fleet.nodes.get(node), self._heartbeat(node)):
                uids_on_node = [uid for uid, at in where.items() if at == node]
                dead |= pods_proved_dead(word, uids_on_node, by_uid, launchers, self._clock() - since, now)
        return dead

    def sign_of_life(self, node: str) -> str:
        """The sign of life that a node has given since an administrator declared it lost; "" if there is none."""
        if node not in self._lost:
            return ""
        word, _ = self._lost[node]
        return sign_of_life(word, self.fleet.nodes.get(node), self._heartbeat(node))

    def _heartbeat(self, node: str) -> Heartbeat | None:
        lease = self.heartbeats.lease(node)
        if lease is None:
            return None
        age = self.heartbeats.age_seconds(node)
        renewed = lease.moment
        if self.heartbeats.has_renewed(node):
            # Counted back from now: a clock that was wrong then and is right now must not count against any node.
            seen = self._wall_clock() - timedelta(seconds=age)
            renewed = max(renewed, seen) if renewed else seen
        return Heartbeat(age, lease.renew_time, renewed)

    def _health_changed(self, old: NodeHealth | Undecodable | None, new: NodeHealth | Undecodable | None) -> None:
        value = new or old
        assert value is not None
        if isinstance(new, Undecodable):  # a word that cannot be read is not one that was taken back
            return
        name = object_key(value)[1]
        word = new.spec.lost if new else None
        old_word, _ = self._lost.get(name, (None, 0.0))
        if word == old_word:
            return
        if word is None:
            del self._lost[name]
        else:
            self._lost[name] = word, self._clock()
        for key in self.job_keys():  # jobs that have had a pod there, or wait for its death
            self._bus.job_changed.publish(key)

    def mark_job(self, job_uid: str) -> None:
        """Have the job of this uid decided about again."""
        for key in self.keys_of(job_uid):
            self._bus.job_changed.publish(key)

    def mark_all_jobs(self) -> None:
        """Have every job decided about again."""
        for key in self.job_keys():
            self._bus.job_changed.publish(key)

    def keys_of(self, job_uid: str) -> list[Key]:
        """The key of the job of this uid in a list; empty if there is no such job."""
        return [object_key(job) for job in self.jobs.store.by_index(job_uid)]

    def _policy_changed(self, old: FleetPolicy | Undecodable | None, new: FleetPolicy | Undecodable | None) -> None:
        value = new or old
        assert value is not None
        if object_key(value)[1] != "default":
            return
        if not isinstance(new, Undecodable):  # what holds goes on to hold
            spec = new.spec if new is not None else FleetPolicySpec(scope=self._policy.scope)
            self._policy = self.profile.bounded(spec)
            self._policy_read = new is not None
        elif not self._policy_read:
            self._policy = self._policy.model_copy(update={"scope": _UNKNOWN_SCOPE})
        old_resource = self.fleet.policy.accelerator_resource
        self.fleet.set_policy(self._policy)
        if old_resource != self._policy.accelerator_resource:  # other pods hold their nodes whole
            for pod in [pod for pods_of_node in self._standing.values() for pod in pods_of_node.values()]:
                self._occupies(pod, is_present=True)
        for namespace in list(self._refused):
            self._reconsider(namespace)
        self.mark_all_jobs()
        self._bus.nodes_freed.publish()  # the queue's plan depends on the policy

    def _priority_class_changed(self, old: PriorityClass | None, new: PriorityClass | None) -> None:
        """Have every job decided about again, and the templates that name a class checked when it comes, or some time
        after it has gone."""
        view = new or old
        assert view is not None
        if new is None:
            self._deleted_classes[view.name] = view
        for job in self.jobs.store.values() if old is None or new is None else ():
            memory = self.memories.get(job_identity(job).uid)
            if memory is None or not isinstance(job, TrainingJob) or named_class(job) != view.name:
                continue
            verdict = memory.template_verdict
            if new is None:
                memory.template_recheck_at = min(memory.template_recheck_at, self._clock() + CLASS_AWAY_SECONDS)
            elif verdict is not None and verdict.kind is VerdictKind.REFUSED:
                memory.outdate_template()
            memory.create_not_before = float("-inf")
        self.mark_all_jobs()

    def _namespace_changed(self, old: NamespaceView | None, new: NamespaceView | None) -> None:
        view = new or old
        assert view is not None
        if (old.labels if old else None) == (new.labels if new else None):
            return
        self._reconsider(view.name)
        for uid in self._uids.get(view.name, ()):
            self.mark_job(uid)
        self._bus.nodes_freed.publish()

    def _job_changed(self, old: TrainingJob | Undecodable | None, new: TrainingJob | Undecodable | None) -> None:
        if old is not None and new is not None and job_identity(old).uid != job_identity(new).uid:
            self._job_changed(old, None)  # another job has its name now, and its end was never seen
            self._job_changed(None, new)
            return
        job = new or old
        assert job is not None
        uid = job_identity(job).uid
        going = old if new is None else new
        if isinstance(going, TrainingJob) and (new is None or going.metadata.deletion_timestamp is not None):
            self._bus.job_gone.publish(going)
            self._note_deleted(_DeletedJob(*object_key(going), uid, place_of(going)))
        self.fleet.set_name(uid, "/".join(object_key(job)) if new is not None else "")
        self._note_uid(object_key(job)[0], uid, is_there=new is not None)
        key = _record_key(job)
        gang = self.gangs.store.get(key)
        if gang is not None:
            self._note_record(key, self._records.get(key) if isinstance(gang, Undecodable) else gang)
        self._saves_at(object_key(job), _saves(old), _saves(new))
        if old is None or new is None or _wants_nodes(old) != _wants_nodes(new):
            self._count_pods(object_key(job)[0], uid)
        if new is None:
            self.memories.pop(uid, None)
        self._bus.job_changed.publish(object_key(job))

    def _note_uid(self, namespace: str, uid: str, *, is_there: bool) -> None:
        """Add a job's uid to those of its namespace, or remove it."""
        uids = self._uids.setdefault(namespace, set())
        if is_there:
            uids.add(uid)
            self._counts.add(namespace, uid)
            return
        uids.discard(uid)
        self._counts.drop(uid)
        if not uids:
            del self._uids[namespace]

    def _gang_changed(self, old: Gang | Undecodable | None, new: Gang | Undecodable | None) -> None:
        value = new or old
        assert value is not None
        key = object_key(value)
        if isinstance(new, Undecodable):  # it holds what it held
            self._count_pods(key[0], new.owner_uid)
            self.mark_job(new.owner_uid)
            return
        self._note_record(key, new)
        gang = new or old
        if isinstance(gang, Gang):
            self.mark_job(gang.spec.job_uid)

    def _note_record(self, key: Key, gang: Gang | None) -> None:
        """Account for a Gang that has changed, or is gone (None), if it is the record of a job."""
        old_record = self._records.pop(key, None)
        record = gang if gang is not None and self._is_record(gang, old_record) else None
        if record is not None:
            self._records[key] = record
        self._account_record(key, old_record, record)
        self._forget_dropped(old_record, record)
        if old_record is not None and (record is None or old_record.spec.job_uid != record.spec.job_uid):
            self._note_record_nodes((key[0], old_record.spec.job_uid), None)
        if record is not None:
            self._note_record_nodes((key[0], record.spec.job_uid), self._nodes_given(key, record))

    def _is_record(self, gang: Gang, old_record: Gang | None) -> bool:
        """Whether a Gang is the record of an existing job, or was it when the job was last seen."""
        job = self.job_by_uid(gang.spec.job_uid)
        if job is None:
            return old_record is not None and old_record.spec.job_uid == gang.spec.job_uid
        return is_record(gang, job_identity(job))

    def _nodes_given(self, key: Key, record: Gang) -> frozenset[str]:
        """The nodes that a record names, where its job's pods hold them whole.

        Nodes of unfenced workers are among them, unless they are more than the job could have left behind at once.
        """
        if key[1] in self._refused.get(key[0], ()):
            return frozenset()
        job = self.job_by_uid(record.spec.job_uid)
        unfenced_workers = frozenset(unfenced_worker.node for unfenced_worker in record.spec.unfenced_workers)
        most = job_identity(job).nodes if job is not None else len(unfenced_workers)
        return frozenset(m.node for m in record.spec.members if m.node) | (
            unfenced_workers if len(unfenced_workers) <= most else frozenset()
        )

    def _note_record_nodes(self, record_owner: tuple[str, str], given: frozenset[str] | None) -> None:
        """Note the nodes that a job's record names, and account for the job's pods anew.

        Args:
            record_owner: namespace and uid of the job.
            given: the nodes; None = the job has no record any more.
        """
        if given == self._given.get(record_owner):
            return
        if given is None:
            del self._given[record_owner]
        else:
            self._given[record_owner] = given
        self._count_pods(*record_owner)

    def _count_pods(self, namespace: str, job_uid: str) -> None:
        """Account anew for the nodes that the pods of a job take."""
        freed = [self._occupies(pod, is_present=not pod.terminal) for pod in self.pods_of(namespace, job_uid)]
        if any(freed):
            self._bus.nodes_freed.publish()

    def _account_record(self, key: Key, old: Gang | None, new: Gang | None) -> None:
        """Account for the nodes of a record that has changed; None is no record. Those of a job that has ended, is
        ejected or is being deleted are free.

        Such a job's pods still hold the nodes that they are on. A Gang may outlive its job (--cascade=orphan), a
        finalizer may keep a job that is being deleted for ever, and nothing records the end of an ejected gang. Without
        this rule they would keep the nodes for ever.
        """
        gang = new or old
        if gang is None:
            return
        uid = gang.spec.job_uid
        ended = not any(_wants_nodes(job) for job in self.jobs.store.by_index(uid))
        if old is not None:
            kept = {m.pod_uid for m in new.spec.members} if new and not ended else set()
            for member in old.spec.members:
                if member.pod_uid and member.pod_uid not in kept:
                    self.hub.retire(member.pod_uid)
        names = frozenset(m.node for m in new.spec.members if m.node) if new and not ended else frozenset()
        for node in frozenset(m.node for m in old.spec.members) if old else ():
            job_uids = self._jobs_on.get(node, set())
            job_uids.discard(uid)
            if not job_uids:
                self._jobs_on.pop(node, None)
        for node in names:
            self._jobs_on.setdefault(node, set()).add(uid)
        holder = new if new is not None and not ended and not new.spec.ejected else None
        self._note_size(uid, holder)
        held = names if self._has_room(key, uid, names) and holder is not None else frozenset()
        self._note_reservation(key, old, new, held)
        if self.fleet.occupy(("gang", *key), uid, held):
            self._bus.nodes_freed.publish()

    def _note_size(self, uid: str, record: Gang | None) -> None:
        """Note how many nodes count for a job, because its record has so many members; None: it has none."""
        if record is not None and record.spec.members:
            self._sizes[uid] = len(record.spec.members)
        else:
            self._sizes.pop(uid, None)
        self._counts.note(uid)

    def _has_room(self, key: Key, uid: str, nodes: frozenset[str]) -> bool:
        """Whether the limit of its namespace leaves a record these nodes.

        It counts with all of its members, so that those without a node are replaced whatever the limit is then. A limit
        that is lowered takes nodes from no job: a record keeps what it holds. A record that a process meets at its
        start holds its nodes where the job's pods are on at least half as many.
        """
        namespace, name = key
        size = self._sizes.get(uid, 0)
        taken_counts, refused = self._taken.setdefault(namespace, {}), self._refused.get(namespace, set())
        has, room = taken_counts.pop(name, 0), self._room(namespace)
        is_met = self._meets_records or key in self._met
        is_refused = room < size > has and not (is_met and self._has_pods_on_half(namespace, uid, nodes, size))
        if is_refused and name not in refused:
            limit = self._nodes_allowed(namespace)
            log.warning(
                "record beyond its namespace's limit holds no nodes", gang="/".join(key), nodes=size, limit=limit
            )
        if is_refused:
            self._refused.setdefault(namespace, set()).add(name)
            if self._meets_records:
                self._met.add(key)
        else:
            self._met.discard(key)
            refused.discard(name)
            if not refused:
                self._refused.pop(namespace, None)
            if size:
                taken_counts[name] = size
        if taken_counts.get(name, 0) < has:
            self._reconsider(namespace)
        return not is_refused

    def _room(self, namespace: str) -> float:
        """The number of nodes that the records of a namespace may still take."""
        limit = self._nodes_allowed(namespace)
        return math.inf if limit is None else limit - sum(self._taken.get(namespace, {}).values())

    def _has_pods_on_half(self, namespace: str, uid: str, nodes: frozenset[str], size: int) -> bool:
        bound = {pod.node for pod in self.pods_of(namespace, uid) if not pod.terminal}
        return 2 * len(bound & nodes) >= size

    def _reconsider(self, namespace: str) -> None:
        """Check the records again that their namespace's limit refused: there may be room now."""
        room = self._room(namespace)
        for name in list(self._refused.get(namespace, ())):
            if self._sizes.get(self._records[namespace, name].spec.job_uid, 0) <= room:
                self._note_record((namespace, name), self._records[namespace, name])
                room = self._room(namespace)

    def _note_reservation(self, key: Key, old: Gang | None, new: Gang | None, held: frozenset[str]) -> None:
        """Report a gang that lets go of nodes after holding them for long without a start, while its pods did not all
        run. `held` are the nodes that it holds now; None is no record.

        A user may delete or suspend such a job shortly before `assemblyTimeoutSeconds`: the nodes were kept from other
        jobs all the same. For a job that is suspended again and again, all of its times together count.
        """
        reservation, now = self._reservations.get(key), self._clock()
        if new is not None and held:
            met_late = old is None and bool(new.spec.incidents)  # it may have begun before this process was there
            if reservation is None:
                reservation = self._reservations[key] = _Reservation(now)
            reservation.nodes, reservation.is_used = held, reservation.is_used or met_late or new.spec.start is not None
            return
        if reservation is None:
            return
        del self._reservations[key]
        uid = (old or new).spec.job_uid  # type: ignore[union-attr]
        job = self.job_by_uid(uid)
        memory = self.memory(uid) if job is not None else self.memories.get(uid, JobMemory())
        has_ended = isinstance(job, TrainingJob) and job.status.completion is not None
        is_given_back = _wants_nodes(job) and new is not None and new.spec.reason != SUSPENDED
        runs = {pod.node for pod in self.pods_of(key[0], uid) if pod.phase == "Running" and _names(old, pod)}
        if reservation.is_used or has_ended or is_given_back or reservation.nodes <= runs:
            memory.unused_seconds = 0.0
            return
        memory.unused_seconds += now - reservation.since
        if memory.unused_seconds > UNUSED_SECONDS or self._adds_up(key[0], now - reservation.since):
            memory.unused_seconds = 0.0
            self._bus.reservation_unused.publish(key[0], uid)

    def _adds_up(self, namespace: str, seconds: float) -> bool:
        """Whether the short reservations of a namespace that came to nothing together count as one, with these seconds
        added."""
        now = self._clock()
        for name, (_, last) in list(self._unused.items()):
            if now - last >= UNUSED_FORGOTTEN_SECONDS:
                del self._unused[name]
        total = self._unused.pop(namespace, (0.0, now))[0] + seconds
        if total >= UNUSED_TOGETHER_SECONDS:
            return True
        self._unused[namespace] = total, now
        return False

    def _reconsider_met(self, pod: PodView) -> None:
        """Accept a record that was refused at this process's start once the job's pods are on half of its nodes."""
        job = self.job_of(pod)
        key = _record_key(job) if job is not None else None
        if key is not None and key in self._met and key in self._records:
            self._note_record(key, self._records[key])

    def _nodes_allowed(self, namespace: str) -> int | None:
        closed = self.closed(namespace)
        if closed is not None and closed.is_known:
            return 0
        return self._policy.queueing.limits_of([namespace]).get(namespace)

    def _pod_changed(self, old: PodView | None, new: PodView | None) -> None:
        pod = new or old
        assert pod is not None
        if old is not None and new is not None and replace(old, resource_version=new.resource_version) == new:
            return  # a part of it that Muster does not read
        self._sightings.note(old, new)
        if any(view is not None and self._is_reported_dead(view) for view in (old, new)):
            self._remember_dead(pod.uid)
        if new is None or new.terminal or new.owner_uid != new.job_uid:
            self.hub.retire(pod.uid)
        self._note_saving(old, new)
        if new is None and not self._is_named(pod):
            self._forget(pod.uid)
        freed = self._occupies(pod, is_present=new is not None and not new.terminal)
        if self._forget_unanswered((pod.namespace, pod.name)) or freed:
            self._bus.nodes_freed.publish()
        if self._met:
            self._reconsider_met(pod)
        if any(view is not None and view.owner_uid == view.job_uid for view in (old, new)):
            job = self.job_of(pod)
            if job is not None:
                self._bus.job_changed.publish(object_key(job))
            for uid in {view.job_uid for view in (old, new) if view is not None} & self._deleted.keys():
                self._note_deleted(self._deleted[uid])

    def _is_reported_dead(self, pod: PodView) -> bool:
        """Whether the pod's kubelet has reported that nothing of the pod is alive.

        A pod whose containers have not begun may be declared ended by others, but not while its node is there.
        """
        node = self.fleet.nodes.get(pod.node)
        declared = (pod.never_began or pod.failed_before) and node is not None and node.ready
        return pod.containers_dead or (declared and self.heartbeats.age_seconds(pod.node) < STALE_HEARTBEAT_SECONDS)

    def _occupant_changed(self, old: OccupantView | None, new: OccupantView | None) -> None:
        pod = new or old
        assert pod is not None
        if self._occupies(pod, is_present=new is not None):
            self._bus.nodes_freed.publish()

    def _occupies(self, pod: PodView | OccupantView, *, is_present: bool) -> bool:
        """Account for the node that a pod takes; returns whether that made room for another job. `is_present`: the pod
        is there and has not ended.
        """
        given = self._given_to(pod) if isinstance(pod, PodView) else None
        place = self._node_taken_by(pod, given, is_present=is_present)
        nodes = frozenset({place}) if place else frozenset()
        self._note_pod_place(pod, place)
        resource = self._policy.accelerator_resource
        holder, uses = claim_of(pod, self.fleet.nodes.get(pod.place), resource, given)
        freed = self.fleet.occupy(("pod", pod.uid), holder, nodes, uses)
        return freed or (bool(uses) and not nodes)

    def _node_taken_by(self, pod: PodView | OccupantView, given: frozenset[str] | None, *, is_present: bool) -> str:
        """The node that a pod takes; "" for none.

        Any tenant can make an unbound pod that no scheduler ever binds. So it takes the node that it is pinned to only
        while its job wants nodes and the job's record names that node. For UNBOUND_SECONDS afterwards it keeps the
        node.
        """
        if not is_present or pod.node or not isinstance(pod, PodView) or not pod.pinned:
            self._unbound.pop(pod.uid, None)
            return pod.node if is_present else ""
        if given is not None and pod.pinned in given and _wants_nodes(self.job_of(pod)):
            self._unbound[pod.uid] = pod, math.inf
            return pod.pinned
        if pod.uid not in self._unbound:
            return ""
        until = min(self._unbound[pod.uid][1], self._clock() + UNBOUND_SECONDS)
        if self._clock() >= until:
            del self._unbound[pod.uid]
            return ""
        self._unbound[pod.uid] = pod, until
        return pod.pinned

    def note_created(self, answer: bytes, node: str) -> None:
        """Take in a pod that Muster has created for a node. It takes the node although its job or record may have gone
        before the API server answered: the watch may not show for long where it is bound.

        Raises:
            ValueError: the answer cannot be read.
        """
        created = self.pods.assume(answer)
        self._keep_node((created.namespace, created.name), node)

    def note_unanswered(self, job_uid: str, pod: Key, node: str) -> None:
        """Note that a pod may have been created for a node, since the API server did not answer. Its job takes the node
        until the pod is seen, and for UNBOUND_SECONDS at most. No node ("") is none to take."""
        if node and not self._keep_node(pod, node):
            self._unanswered[pod] = node, self._clock() + UNBOUND_SECONDS
            self.fleet.occupy(("unanswered", *pod), job_uid, frozenset({node}))

    def _keep_node(self, key: Key, node: str) -> bool:
        """Have a pod that was created for a node take it; returns whether the pod is known."""
        pod = self.pods.store.get(key)
        if pod is not None and node and pod.pinned == node:
            self._unbound.setdefault(pod.uid, (pod, self._clock() + UNBOUND_SECONDS))
            self._occupies(pod, is_present=not pod.terminal)
        return pod is not None

    def _forget_unanswered(self, pod: Key) -> bool:
        """End what `note_unanswered` has noted; returns whether that made room for another job."""
        node, _ = self._unanswered.pop(pod, ("", 0.0))
        self._keep_node(pod, node)
        return bool(node) and self.fleet.occupy(("unanswered", *pod), "", frozenset())

    def free_unbound_pods(self) -> None:
        """Free the nodes of unbound pods that no record has named for UNBOUND_SECONDS, and of unanswered creations."""
        now = self._clock()
        late = [pod for pod, until in self._unbound.values() if now >= until]
        freed = [self._occupies(pod, is_present=True) for pod in late]
        unseen = [pod for pod, (_, until) in self._unanswered.items() if now >= until]
        freed += [self._forget_unanswered(pod) for pod in unseen]
        if any(freed):
            self._bus.nodes_freed.publish()

    def _note_pod_place(self, pod: PodView | OccupantView, place: str) -> None:
        old_place = self._places_of_pods.pop(pod.uid, "")
        if old_place:
            self._standing[old_place].pop(pod.uid)
            if not self._standing[old_place]:
                del self._standing[old_place]
        if place:
            self._places_of_pods[pod.uid] = place
            self._standing.setdefault(place, {})[pod.uid] = pod

    def _given_to(self, pod: PodView) -> frozenset[str] | None:
        """The nodes that the pod's job was given; None for a pod that belongs to no existing job."""
        if pod.owner_uid != pod.job_uid:
            return None
        given, job = self._given.get((pod.namespace, pod.job_uid)), self.job_of(pod)
        if given is not None and not _wants_nodes(job) and not self._is_named(pod):
            return frozenset()  # what is made after the end, on nodes that were the job's, is no worker
        if given is not None or job is None:
            return given
        unreadable = isinstance(self.gangs.store.get(_record_key(job)), Undecodable)  # it may name any node
        return frozenset({pod.place}) if unreadable and self._nodes_allowed(pod.namespace) is None else frozenset()

    def node_record(self, name: str) -> NodeHealth | None:
        """The NodeHealth of a node, an empty one where there is none; None for one that cannot be read."""
        record = self.healths.store.get(("", name))
        if isinstance(record, Undecodable):
            return None
        return record or NodeHealth(metadata=ObjectMeta(name=name))

    def has_node(self, name: str) -> bool:
        """Whether there is a node of this name."""
        return name in self.fleet.nodes

    def membership(self, caller: Caller) -> Membership:
        """What the pod of a caller is to the job that it claims to belong to."""
        pod = self.pods.store.get((caller.namespace, caller.pod_name))
        if pod is None or pod.uid != caller.pod_uid or self._given_to(pod) is None:
            return Membership.NONE
        if not self._is_named(pod):
            return Membership.STRAY
        return Membership.MEMBER if not pod.terminal and self._is_member(pod) else Membership.FORMER

    def _node_changed(self, old: NodeView | None, new: NodeView | None) -> None:
        node = new or old
        assert node is not None
        if new is None:
            self.fleet.drop_node(node.name)
            self.checkers.forget(node.name)
        else:
            self._offered |= _kinds(new)
        changed = self.fleet.put_node(new) if new is not None else True
        if old is None or new is None or _kinds(old) != _kinds(new):
            for pod in list(self._standing.get(node.name, {}).values()):
                self._occupies(pod, is_present=True)
        if not changed:
            return
        for uid in self._jobs_on.get(node.name, ()):
            self.mark_job(uid)
        self._bus.nodes_freed.publish()

    def _is_named(self, pod: PodView) -> bool:
        """Whether the job's record names this pod: Muster may have to wait for the fence of its ranks."""
        gang = self.gang_of(pod.job_uid)
        if not isinstance(gang, Gang):
            return gang is not None
        return self._is_member(pod) or any(
            unfenced_worker.pod_uid == pod.uid for unfenced_worker in gang.spec.unfenced_workers
        )

    def _is_member(self, pod: PodView) -> bool:
        return _names(self.gang_of(pod.job_uid), pod)

    def _forget_dropped(self, old: Gang | None, new: Gang | None) -> None:
        """Forget the launchers that the record no longer names and whose pods are gone."""
        dropped = _named_by(old) - _named_by(new)
        if old is None or not dropped:
            return
        for uid in dropped - {pod.uid for pod in self.pods_of(old.metadata.namespace, old.spec.job_uid)}:
            self._forget(uid)

    def _forget(self, pod_uid: str) -> None:
        if self.hub.proved_dead(pod_uid):
            self._remember_dead(pod_uid)
        self.hub.forget(pod_uid)

    def _remember_dead(self, pod_uid: str) -> None:
        self._dead[pod_uid] = None
        while len(self._dead) > MAX_REMEMBERED_DEAD:
            self._dead.popitem(last=False)


def _of_interest(gang: Gang | None, pods: Iterable[PodView]) -> list[str]:
    """The uids of the pods for which a decision may need to know since when they are as they are."""
    starts = gang is None or gang.spec.start is None
    return [pod.uid for pod in pods if starts or pod.deleting or pod.phase == "Pending"]


def _kinds(node: NodeView) -> set[str]:
    """The names of the resources that a node has, in whatever amount."""
    return node.allocatable.keys() | node.capacity.keys()


def _record_key(job: TrainingJob | Undecodable) -> Key:
    """The key of the only Gang that can be the job's record."""
    return record_key(job_identity(job))


def _age_key(job: TrainingJob) -> tuple[datetime, str]:
    """Orders jobs from the oldest on; those without a time of creation come last."""
    return job.metadata.creation_timestamp or datetime.max.replace(tzinfo=UTC), job.metadata.uid


def _wants_nodes(job: TrainingJob | Undecodable | None) -> bool:
    """Whether a job holds the nodes of its record; a job that cannot be read counts as if it did."""
    return job.wants_nodes if isinstance(job, TrainingJob) else job is not None


def _saves(job: TrainingJob | Undecodable | None) -> str:
    """The place where a job saves that wants nodes; "" = none, or it is not known."""
    return place_of(job) if isinstance(job, TrainingJob) and job.wants_nodes else ""


def _names(gang: Gang | Undecodable | None, pod: PodView) -> bool:
    """Whether a record has this pod as a member. Any tenant of the namespace can make the job a pod's owner."""
    if not isinstance(gang, Gang):
        return False
    place = gang.spec.place_of(pod.index)
    if place is None:
        return False
    member = gang.spec.members[place]
    name = pod_name_in(gang.metadata.name, member.index, member.incarnation)
    return (pod.namespace, pod.name) == (gang.metadata.namespace, name) and member.pod_uid in ("", pod.uid)


def _named_by(gang: Gang | None) -> set[str]:
    if gang is None:
        return set()
    members, unfenced_workers = gang.spec.members, gang.spec.unfenced_workers
    return {member.pod_uid for member in members if member.pod_uid} | {
        unfenced_worker.pod_uid for unfenced_worker in unfenced_workers
    }

"""Read the fleet as the operator sees it, from lists made once.

It reads what the operator's informers read, with the same selectors and decoders, and derives the holders of nodes by
the same rules (`muster.controller.cluster`); a test compares the two.

Tests: tests/unit/cli/test_account.py, tests/unit/cli/test_commands.py.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from muster.answers.health import HealthRow, health_row
from muster.api.fleetpolicy import FleetPolicy, FleetPolicySpec
from muster.api.gang import Gang
from muster.api.nodehealth import NodeHealth
from muster.api.trainingjob import TrainingJob
from muster.kube import decode, informer, paths
from muster.kube.client import Client
from muster.kube.decode import NodeLease, Undecodable, custom
from muster.kube.errors import Forbidden, NotFound
from muster.world.fleet import Fleet, KnownAges, claim_of
from muster.world.record import JobIdentity, is_record
from muster.world.views import NodeView, OccupantView, PodView

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FleetObservation:
    """The API server's lists.

    Attributes:
        notes: what could not be read, for the user.
    """

    policy: FleetPolicySpec
    nodes: Iterable[NodeView]
    jobs: Iterable[TrainingJob | Undecodable]
    gangs: Iterable[Gang | Undecodable]
    workers: Iterable[PodView]
    occupants: Iterable[OccupantView]
    leases: Iterable[NodeLease]
    notes: tuple[str, ...] = ()
    healths: Iterable[NodeHealth | Undecodable] = ()


async def observe_fleet(client: Client) -> FleetObservation:
    """Read every list that the fleet is derived from, each kind once.

    Raises:
        ApiError: something but leases and health could not be read.
    """
    policy, notes = await policy_of(client)
    nodes, jobs, gangs, workers, occupants, leases_and_healths = await asyncio.gather(
        all_nodes(client),
        _all_if_installed(informer.training_jobs(client)),
        _all_if_installed(informer.gangs(client)),
        _all(informer.worker_pods(client)),
        _all(informer.occupant_pods(client)),
        asyncio.gather(_leases(client), _healths(client)),
    )
    (leases, lease_notes), (healths, health_notes) = leases_and_healths
    notes += [*lease_notes, *health_notes]
    unreadable = sum(isinstance(gang, Undecodable) for gang in gangs)
    if unreadable:
        notes.append(
            f"{unreadable} Gang(s) cannot be read by this version: nodes that they hold without a pod are shown as free"
        )
    return FleetObservation(
        policy=policy,
        nodes=nodes,
        jobs=jobs,
        gangs=gangs,
        workers=workers,
        occupants=occupants,
        leases=leases,
        notes=tuple(notes),
        healths=healths,
    )


async def all_nodes(client: Client) -> list[NodeView]:
    """List every node of the cluster.

    Raises:
        ApiError: they could not be listed.
    """
    return await _all(informer.nodes(client))


async def naming(client: Client) -> dict[str, list[str]]:
    """Return, by node, the jobs whose record or pods name it: records of jobs that have not ended, unfenced workers
    included.

    The node need not exist: jobs wait for proof about the ranks on a node that is gone.

    Raises:
        ApiError: something could not be read.
    """
    jobs, gangs, workers = await asyncio.gather(
        _all_if_installed(informer.training_jobs(client)),
        _all_if_installed(informer.gangs(client)),
        _all(informer.worker_pods(client)),
    )
    going = [job for job in jobs if isinstance(job, TrainingJob) and job.status.completion is None]
    called = {job.metadata.uid: f"{job.metadata.namespace}/{job.metadata.name}" for job in going}
    jobs_by_node: dict[str, set[str]] = {}
    for gang in gangs:
        if isinstance(gang, Gang) and gang.spec.job_uid in called:
            for node in gang.spec.nodes:
                jobs_by_node.setdefault(node, set()).add(called[gang.spec.job_uid])
    for pod in workers:
        if pod.node and not pod.terminal and pod.owner_uid in called:
            jobs_by_node.setdefault(pod.node, set()).add(called[pod.owner_uid])
    return {node: sorted(names) for node, names in jobs_by_node.items()}


async def records(client: Client) -> tuple[list[TrainingJob], list[Gang]]:
    """Return all jobs, and the records of their attempts; what cannot be read is left out.

    Raises:
        ApiError: they could not be listed.
    """
    jobs, gangs = await asyncio.gather(
        _all_if_installed(informer.training_jobs(client)), _all_if_installed(informer.gangs(client))
    )
    return [job for job in jobs if isinstance(job, TrainingJob)], [gang for gang in gangs if isinstance(gang, Gang)]


async def policy_of(client: Client) -> tuple[FleetPolicySpec, list[str]]:
    """Return the policy in force, and notes about it.

    Raises:
        ApiError: it could not be read, or the cluster does not know the kind.
    """
    try:
        policy = custom(FleetPolicy)(await client.get(paths.muster("fleetpolicies", name="default")))
    except NotFound as error:
        if error.details.get("name") == "default":
            return FleetPolicySpec(), []
        raise
    if isinstance(policy, Undecodable):
        return FleetPolicySpec(), [
            f"FleetPolicy default does not fit its definition ({policy.error}): default levels are shown"
        ]
    return policy.spec, []


async def _all(source: informer.Informer[T]) -> list[T]:
    """Read one list, in pages."""
    await source.refresh()
    return source.store.values()


async def _all_if_installed(source: informer.Informer[T]) -> list[T]:
    """Read one list; a kind that is not installed has no objects."""
    try:
        return await _all(source)
    except NotFound:
        return []


async def _leases(client: Client) -> tuple[list[NodeLease], list[str]]:
    try:
        return await _all(informer.node_leases(client)), []
    except Forbidden:
        return [], ["heartbeats may not be read (leases in kube-node-lease): a node that fell silent shows late"]


async def _healths(client: Client) -> tuple[list[NodeHealth | Undecodable], list[str]]:
    kind = informer.Kind("nodehealths", paths.muster("nodehealths"), decode.custom(NodeHealth), decode.custom_meta)
    try:
        healths = await _all(informer.Informer(client, kind))
    except NotFound:
        return [], ["the health of nodes is not known: this cluster's Muster is too old to keep NodeHealth"]
    except Forbidden:
        return [], [
            "the health of nodes may not be read (nodehealths): a node that is excluded for it may show as free"
        ]
    unreadable = sum(isinstance(health, Undecodable) for health in healths)
    if not unreadable:
        return healths, []
    return healths, [
        f"{unreadable} NodeHealth(s) cannot be read by this version: the health of these nodes is not shown"
    ]


def healths_of(seen: FleetObservation) -> dict[str, HealthRow]:
    """Return what Muster knows of nodes' health, by name; without objects that cannot be read."""
    return {health.metadata.name: health_row(health) for health in seen.healths if isinstance(health, NodeHealth)}


def fleet_of(seen: FleetObservation) -> Fleet:
    """Build the fleet: nodes and their holders."""
    fleet = Fleet(seen.policy, KnownAges(heartbeat_ages(seen.leases)))
    for node in seen.nodes:
        fleet.put_node(node)
    wanting = set()  # uids of jobs that hold the nodes of their records
    given: dict[tuple[str, str], frozenset[str]] = {}  # namespace, job uid -> the nodes that its record names
    jobs: dict[str, JobIdentity] = {}
    for seen_job in seen.jobs:
        job = decode.job_identity(seen_job)
        jobs[job.uid] = job
        given[job.namespace, job.uid] = frozenset()
        fleet.names[job.uid] = f"{job.namespace}/{job.name}"
        if isinstance(seen_job, Undecodable) or seen_job.wants_nodes:
            wanting.add(job.uid)
    unreadable = set()
    named: set[str] = set()  # uids of pods of jobs that hold nothing any more
    for gang in seen.gangs:
        if isinstance(gang, Undecodable):
            unreadable.add((gang.namespace, gang.owner_uid))
            continue
        owner = jobs.get(gang.spec.job_uid)
        if owner is None or not is_record(gang, owner):
            continue
        given[gang.metadata.namespace, gang.spec.job_uid] = gang.spec.nodes
        if gang.spec.job_uid not in wanting:
            named.update(member.pod_uid for member in gang.spec.members)
            named.update(unfenced_worker.pod_uid for unfenced_worker in gang.spec.unfenced_workers)
            continue
        names = frozenset(member.node for member in gang.spec.members if member.node)
        fleet.occupy(("gang", gang.metadata.namespace, gang.metadata.name), gang.spec.job_uid, names)
    for pod in seen.workers:
        if pod.node and not pod.terminal:
            record_key = (pod.namespace, pod.job_uid)
            record_nodes = frozenset({pod.node}) if record_key in unreadable else given.get(record_key)
            if record_nodes is not None and pod.job_uid not in wanting and pod.uid not in named:
                record_nodes = frozenset()  # a pod that is created after the end is no worker
            _occupy(fleet, pod, record_nodes if pod.owner_uid == pod.job_uid else None)
    for occupant in seen.occupants:
        _occupy(fleet, occupant)
    return fleet


def heartbeat_ages(leases: Iterable[NodeLease]) -> dict[str, float]:
    """Return the seconds by which each node's heartbeat is older than the newest one, independent of this machine's
    clock.

    The operator measures with its own clock when a heartbeat changes; one list has only the kubelets' clocks.
    """
    times = {lease.node: moment for lease in leases if (moment := lease.moment) is not None}
    newest = max(times.values(), default=None)
    return {node: (newest - time).total_seconds() for node, time in times.items()} if newest else {}


def _occupy(fleet: Fleet, pod: PodView | OccupantView, given: frozenset[str] | None = None) -> None:
    holder, uses = claim_of(pod, fleet.nodes.get(pod.node), fleet.policy.accelerator_resource, given)
    fleet.occupy(("pod", pod.uid), holder, frozenset({pod.node}), uses)

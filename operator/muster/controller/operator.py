"""One operator process: standby until it holds the lease, then leader until it stops or loses it.

A standby watches everything, so that it can lead within a moment; it decides nothing and writes nothing, and tells a
launcher that asks it who leads. A process that loses the lease exits: nothing it has in flight may outlive its right to
write.
"""

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import structlog

from muster.controller.admission import AdmissionCheck
from muster.controller.bus import Bus
from muster.controller.checks import Checks
from muster.controller.cluster import Cluster
from muster.controller.definitionscheck import DefinitionsCheck
from muster.controller.dependencies import SHIPPED, Dependencies
from muster.controller.dirty import DirtyKeys
from muster.controller.fleethours import FleetHoursKeeper
from muster.controller.heartbeats import LeaseAges
from muster.controller.history import HistoryKeeper
from muster.controller.holdingjobs import HoldingJobs
from muster.controller.keptjobs import KeptJobs
from muster.controller.loops import Loop, Loops
from muster.controller.nodefitness import NodeFitness
from muster.controller.nodes import Nodes
from muster.controller.perform import Performer
from muster.controller.policyevents import record_policy_event
from muster.controller.preemptionreports import PreemptionReports
from muster.controller.probe_thresholds import LimitsKeeper, ProbeThresholds
from muster.controller.queue import Queue
from muster.controller.readiness import Readiness
from muster.controller.reconciler import Reconciler
from muster.controller.repairs import RepairKeeper
from muster.controller.settings import Settings
from muster.controller.starttimes import StartTimes
from muster.controller.upkeep import UpkeepKeeper
from muster.controller.windows import WindowKeeper
from muster.controller.workers import Workers, notify_launchers
from muster.coordinator import endpoints
from muster.coordinator.auth import TokenVerifier
from muster.coordinator.checkers import CheckerHub
from muster.coordinator.hub import Hub
from muster.coordinator.server import CoordinatorServer
from muster.kube.client import Client
from muster.kube.errors import ApiError, LeadershipLost
from muster.kube.events import WARNING, EventRecorder
from muster.kube.lease import LeaderLease
from muster.pods.worker_pod import WorkerSettings
from muster.recovery.exits import reported_cause

LEASE_NAME = "muster-leader"
START_RETRY_SECONDS = 2.0

T = TypeVar("T")

log = structlog.get_logger()


class Operator:
    """The parts of one operator process. `start()` returns at once; `stop()` ends the process gracefully. The client
    `unguarded` has not asked yet whether this process may write.
    """

    def __init__(self, unguarded: Client, settings: Settings, dependencies: Dependencies = SHIPPED) -> None:
        clock, wall_clock = dependencies.clock, dependencies.wall_clock
        self.settings = settings
        self._loops = Loops(settings.identity, dependencies.end)
        heartbeats = LeaseAges(unguarded.answers.attended_seconds)
        # Hundreds of pods may be waiting for a connection to be created on; a renewal cannot wait with them.
        self._lease_client = unguarded.sibling()
        self.lease = LeaderLease(
            self._lease_client,
            settings.namespace,
            LEASE_NAME,
            settings.identity,
            on_lost=functools.partial(self._loops.give_up, "lease lost"),
            seen=heartbeats.versions.seen,
            clock=clock,
            wall_clock=wall_clock,
        )
        self.client = client = unguarded.guarded(self.lease.check)
        self._read_server_version = functools.partial(dependencies.server_version, client)
        self.bus = Bus()
        self.hub = Hub(clock, cause_of=reported_cause)
        self.checkers = CheckerHub(clock)
        self.thresholds = ProbeThresholds(self.checkers, clock, wall_clock)
        self.dirty = DirtyKeys(clock)
        self.cluster = Cluster(
            client=client,
            hub=self.hub,
            bus=self.bus,
            clock=clock,
            wall_clock=wall_clock,
            checkers=self.checkers,
            thresholds=self.thresholds.thresholds_for,
            agent_namespace=settings.agent_namespace,
            heartbeats=heartbeats,
            profile=settings.profile,
        )
        self.queue = Queue(self.cluster, self.bus, clock, lambda: wall_clock().timestamp())
        self.start_times = StartTimes(self.cluster, self.queue, self.bus, clock, wall_clock)
        self.events = EventRecorder(
            client, "muster.dev/operator", settings.pod_name or settings.identity, clock=clock, wall_clock=wall_clock
        )
        report_policy = functools.partial(record_policy_event, self.cluster, self.events, WARNING)
        self.limits = LimitsKeeper(self.thresholds, self.cluster, report_policy)
        self.preemption_reports = PreemptionReports(self.cluster, report_policy)
        self.nodes = Nodes(
            client=client,
            cluster=self.cluster,
            events=self.events,
            fitness=NodeFitness(self.cluster, self.bus),
            clock=clock,
            wall_clock=wall_clock,
            agent_namespace=settings.agent_namespace,
            agent_silence_seconds=settings.agent_silence_seconds,
        )
        self._dry_client = client.sibling()
        self.admission = (
            AdmissionCheck(self._dry_client, settings.namespace, settings.profile)
            if dependencies.checks_installation
            else None
        )
        self.definitions = (
            DefinitionsCheck(client, settings.profile, self.lease, self._loops.give_up)
            if dependencies.checks_installation
            else None
        )
        self._holding_jobs = None if settings.profile.has_jobs else HoldingJobs(client, settings.profile)
        self.readiness = Readiness(self.cluster, self.lease, self._loops, (self.definitions, self._holding_jobs))
        self.workers = Workers(self.cluster, self.hub, self.bus, dependencies.least_launchers)
        self.server = CoordinatorServer(
            hub=self.hub,
            verifier=TokenVerifier(client.get),
            directive_for=self.workers.directive_for,
            is_worker=self.workers.is_worker,
            not_ready=self.readiness.not_serving,
            leader=self.readiness.leader_elsewhere,
            cpu_clock=dependencies.cpu_clock,
            checkers=endpoints.checker_endpoint(self.checkers, settings.checker_namespace, self.cluster.has_node),
            addresses_of=self.workers.addresses_of,
            membership_of=self.cluster.membership,
        )
        self.ports = dependencies.make_ports(client, settings, self.server, self.lease)
        self.checks = Checks(self.cluster, self.checkers, self.dirty, self.nodes.reconciler, self.server)
        self.upkeep = UpkeepKeeper(
            cluster=self.cluster,
            checkers=self.checkers,
            nodes=self.nodes.reconciler,
            reports=self.nodes.failures,
            thresholds_of=self.thresholds.thresholds_for,
            notify=self.checks.orders_changed,
            wall_clock=wall_clock,
            clock=clock,
        )
        self.history = (
            HistoryKeeper(client, self.cluster, self.bus, settings.namespace, report_policy, clock, wall_clock)
            if dependencies.keeps_history and settings.profile.has_jobs
            else None
        )
        self.hours = (
            FleetHoursKeeper(
                client,
                self.cluster,
                lambda: self.queue.reserved,
                settings.namespace,
                report_policy,
                clock,
                wall_clock,
            )
            if dependencies.keeps_history
            else None
        )
        self.repairs = RepairKeeper(client, self.cluster, self.nodes.reconciler, self.nodes.worlds, self.events, clock)
        self.windows = WindowKeeper(self.cluster, self.events, self.nodes.reconciler.verdicts, clock, wall_clock)
        self.kept = KeptJobs()
        self.performer = Performer(
            client,
            self.cluster,
            clock,
            self.history.keep_before_deletion if self.history else None,
            dependencies.make_step_patterns(),
        )
        self.worker_settings: Callable[[], WorkerSettings] = lambda: settings.for_workers(
            self.ports.bundle, self.cluster.policy().accelerator_resource
        )
        self.reconciler = Reconciler(
            cluster=self.cluster,
            performer=self.performer,
            dirty=self.dirty,
            events=self.events,
            queue=self.queue,
            settings=self.worker_settings,
            directives_changed=functools.partial(notify_launchers, self.cluster, self.server),
            clock=clock,
            kept=self.kept,
            checks_wanted=self.checks.set_orders,
            all_decided=self.checkers.note_all_decided,
            wall_clock=wall_clock,
        )

    async def start(self) -> None:
        """Start probes, watches and the candidacy for the lease.

        Raises:
            UnsupportedServerError: the API server is too old.
        """
        await self.ports.open(
            self.readiness.not_healthy,
            self.readiness.not_ready,
            self.kept.decisions_of,
            self.nodes.reconciler.kept.decisions_of,
        )
        version = await _retried(self._read_server_version, "waiting for the API server")
        log.info("starting", identity=self.settings.identity, server=version)
        for source in self.cluster.informers:
            self._loops.start(f"informer {source.name}", source.run)
        if self.definitions is not None:
            self._loops.start("definitions", self.definitions.run)
        self._loops.start("coordinator", self.ports.stand_by)
        self._loops.start("leader", self._lead)

    async def stop(self) -> None:
        """End gracefully: begin no new pass, answer launchers, hand over the lease."""
        await self._loops.stop()
        await self.server.stop()
        if self.readiness.is_leading:
            with contextlib.suppress(ApiError, LeadershipLost, TimeoutError):
                async with asyncio.timeout(2):
                    await self.events.flush()
        self.readiness.is_leading = False
        await self.lease.release()
        await self.ports.close()  # who reads slowly there must not hold up the next leader
        for client in (self._lease_client, self._dry_client, self.client):
            await client.close()
        log.info("stopped", identity=self.settings.identity)

    async def _lead(self) -> None:
        await self.cluster.wait_synced()
        await self._acquire()
        self._loops.start("lease", self.lease.hold)
        # At least what the last leader wrote: the watches may be behind, and a missing Gang reads as none.
        await _retried(self.cluster.refresh, "cannot list the state of the cluster", (ApiError, ValueError))
        await self.performer.learn_claims()
        await self.ports.lead()
        self.readiness.is_leading = True
        self.hub.start_serving()  # only now launchers are answered
        self.checkers.start_serving()
        for name, loop in self._serving_loops():
            self._loops.start(name, loop)
        await self.nodes.reconciler.begin()
        self.bus.job_changed.subscribe(self.dirty.add)  # a standby would keep the names of all jobs that have gone
        self.queue.undecided.expect(self.cluster.job_keys())
        self.reconciler.undecided.expect(self.cluster.job_keys())
        self.cluster.mark_all_jobs()
        for name, loop in self._deciding_loops():
            self._loops.start(name, loop)
        await self.reconciler.run()  # without jobs it is never given one

    async def _acquire(self) -> None:
        """Take the lease, unless the definitions lack fields of this version."""
        while True:
            if self.definitions is not None:
                await self.definitions.wait()
            await (self._holding_jobs.acquire(self.lease) if self._holding_jobs is not None else self.lease.acquire())
            if self.definitions is None or not self.definitions.problem:
                return
            await self.lease.release()

    def _serving_loops(self) -> Iterator[tuple[str, Loop]]:
        """What runs as soon as this process leads, in this order."""
        yield "events", self.events.run
        yield "certificates", functools.partial(self.ports.renew, self.cluster.mark_all_jobs)
        if self.settings.checker_namespace:
            yield "checkers' authority", self.ports.publish
        if self.settings.profile.has_tests:
            yield "thresholds", self.thresholds.run

    def _deciding_loops(self) -> Iterator[tuple[str, Loop]]:
        """What runs once all nodes have been judged, in this order."""
        if self.settings.profile.has_jobs:
            yield "queue", self.queue.run
            yield "start times", self.start_times.run
            yield "reports of preemption", self.preemption_reports.run
        yield "nodes", self.nodes.reconciler.run
        yield "conditions of nodes", self.nodes.marks.run
        yield "forgetting machines that are gone", self.nodes.forget
        if self.settings.profile.has_tests:
            yield "upkeep", self.upkeep.run
        if self.history is not None:
            yield "history", self.history.run
        if self.hours is not None:
            yield "hours of the fleet", self.hours.run
        yield "repairs", self.repairs.run
        yield "maintenance windows", self.windows.run
        if self.admission is not None:
            yield "admission policies", self.admission.run


async def _retried(
    request: Callable[[], Awaitable[T]], problem: str, passing: tuple[type[Exception], ...] = (ApiError,)
) -> T:
    """Request something until there is an answer, as long as it takes: the API server may be away.

    Args:
        request: returns the answer.
        problem: for the log.
        passing: errors after which it is requested again.
    """
    while True:
        try:
            return await request()
        except passing as error:
            log.warning(problem, error=str(error))
            await asyncio.sleep(START_RETRY_SECONDS)

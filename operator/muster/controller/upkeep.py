"""Has nodes tested that no gang has: on request, when they are new or changed, and now and then."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

import structlog
from prometheus_client import Counter, Histogram

from muster.api.gang import Gang
from muster.api.nodehealth import CheckRequest, NodeHealth
from muster.controller.cluster import Cluster, ThresholdsOf
from muster.controller.failurereports import FailureReports
from muster.controller.nodereconciler import NodeReconciler
from muster.coordinator.checkers import CheckerHub
from muster.health.memory import score
from muster.kube.decode import Undecodable
from muster.preflight.upkeep import IdleNode, plan_upkeep

OWNER = "upkeep"
GATHER_SECONDS = 0.2
LOOK_SECONDS = 5.0
RETRY_SECONDS = 30.0
# Of the loop's time that looking at all idle nodes may take, however often one node's agent or checker has news.
SHARE = 0.1

log = structlog.get_logger()
_tests = Counter("muster_node_tests", "Tests of nodes that no gang holds, by outcome.", ["outcome"])
_test_seconds = Histogram(
    "muster_node_test_seconds",
    "Time that the probes of one node took.",
    ["profile"],
    buckets=(1, 2, 5, 10, 20, 30, 60, 120, 180, 300, 600, 900),
)


class UpkeepKeeper:
    """Gives the checkers of idle nodes the tests that are due; to be run by the leader. `notify` is called with the
    nodes whose directive has changed.
    """

    def __init__(
        self,
        cluster: Cluster,
        checkers: CheckerHub,
        nodes: NodeReconciler,
        reports: FailureReports,
        thresholds_of: ThresholdsOf,
        notify: Callable[[Iterable[str]], None],
        wall_clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._checkers = checkers
        self._nodes = nodes
        self._reports = reports
        self._thresholds_of = thresholds_of
        self._notify = notify
        self._wall_clock = wall_clock
        self._clock = clock
        self._stirred = asyncio.Event()
        self._known: set[tuple[str, str, str]] = set()  # node, order and outcome of results that were passed on
        checkers.subscribe(self._heard)
        cluster.healths.store.subscribe(lambda _old, _new: self._stirred.set())
        cluster.gangs.store.subscribe(self._gang_changed)
        cluster.pods.store.subscribe(lambda _old, new: self._give_way(new.place) if new is not None else None)
        cluster.occupants.store.subscribe(lambda _old, new: self._give_way(new.place) if new is not None else None)

    def _gang_changed(self, _old: Gang | Undecodable | None, new: Gang | Undecodable | None) -> None:
        if isinstance(new, Gang):
            for node in new.spec.nodes:
                self._give_way(node)
        self._stirred.set()

    def _give_way(self, node: str) -> None:
        """Withdraw the test of a node that a gang or another pod holds now, whenever the next look is."""
        if self._cluster.fleet.holders(node) and self._checkers.withdraw_orders(OWNER, node):
            self._notify([node])

    def _heard(self, node: str) -> None:
        if not self._cluster.fleet.holders(node):
            self._stirred.set()

    async def run(self) -> None:
        """Look at idle nodes again and again until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._stirred.wait()
            await asyncio.sleep(GATHER_SECONDS)
            self._stirred.clear()
            began_at = self._clock()
            try:
                self.assign_tests()
            except Exception:
                log.exception("idle nodes not looked after")
                await asyncio.sleep(RETRY_SECONDS)
                continue
            took = self._clock() - began_at
            if took > 0:
                await asyncio.sleep(took * (1 - SHARE) / SHARE)

    def assign_tests(self) -> None:
        """Give and take back the orders of all nodes that no job uses, once."""
        views = self._checkers.views_of(node for node in self._checkers.nodes if self._is_free(node))
        policy = self._cluster.policy()
        sites = [
            IdleNode(
                node,
                view,
                self._accelerators(node, policy.accelerator_resource),
                self._check_request(node),
                self._out_of_use(node),
                self._offences(node, policy.health.quarantine.half_life_seconds),
                self._suspicion(node),
            )
            for node, view in sorted(views.items())
        ]
        thresholds = self._thresholds_of([view.report for view in views.values()], policy.preflight)
        plan = plan_upkeep(sites, policy.preflight, thresholds)
        self._notify(self._checkers.set_orders(OWNER, plan.checks, job=False))
        standing = set()
        for idle_result in plan.idle_results:
            key = (idle_result.node, idle_result.order, str(idle_result.outcome))
            standing.add(key)
            if key not in self._known:
                _tests.labels(str(idle_result.outcome)).inc()
                _test_seconds.labels(str(idle_result.profile)).observe(idle_result.seconds)
                log.info(
                    "node tested",
                    node=idle_result.node,
                    outcome=str(idle_result.outcome),
                    why=idle_result.message[:300],
                )
                self._reports.tested(idle_result)
        self._known = standing

    def _is_free(self, node: str) -> bool:
        fleet, resource = self._cluster.fleet, self._cluster.policy().accelerator_resource
        if self._nodes.is_repaired(node) or fleet.node_in_scope(node) is None:
            return False
        return not fleet.holders(node) and not fleet.used(node).get(resource)

    def _accelerators(self, node: str, resource: str) -> int | None:
        return self._cluster.fleet.nodes[node].capacity.get(resource) or None

    def _out_of_use(self, node: str) -> tuple[str, float] | None:
        since = self._nodes.open_since(node)
        if since is None:
            return None
        return f"{since:%Y%m%dT%H%M%S}", max(0.0, (self._wall_clock() - since).total_seconds())

    def _check_request(self, node: str) -> CheckRequest | None:
        health = self._known_health(node)
        return open_check_request(health) if health is not None else None

    def _offences(self, node: str, half_life_seconds: int) -> float:
        health = self._known_health(node)
        if health is None:
            return 0.0
        return float(score(health.status.offences, self._wall_clock(), half_life_seconds))

    def _suspicion(self, node: str) -> tuple[str, float] | None:
        suspicion = self._cluster.fleet.suspicion_of(node)
        if suspicion is None or not suspicion.wants_check or suspicion.followed is None:
            return None
        age_seconds = max(0.0, (self._wall_clock() - suspicion.followed).total_seconds())
        return f"{suspicion.followed:%Y%m%dT%H%M%S}", age_seconds

    def _known_health(self, node: str) -> NodeHealth | None:
        health = self._cluster.healths.store.get(("", node))
        return None if isinstance(health, Undecodable) else health


def open_check_request(health: NodeHealth) -> CheckRequest | None:
    """The requested check in a node's record that is not answered yet; None where there is none."""
    request, result = health.spec.check, health.status.check
    return request if request is not None and (result is None or result.id != request.id) else None

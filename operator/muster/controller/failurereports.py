"""What jobs and tests report about nodes: failed burn-ins and tests, and jobs' failures that have followed a node."""

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

from muster.api.gang import Gang
from muster.api.nodehealth import CheckResult, NodeHealth
from muster.burnin.view import NEW_LEADER_SECONDS
from muster.controller.cluster import Cluster
from muster.health.job_failures import LASTS, JobFailureReports, JobRecord
from muster.health.memory import identity, same_machine
from muster.health.node_world import FailedBurnIn
from muster.kube.decode import Undecodable
from muster.preflight.upkeep import IdleTestResult
from muster.recovery.followed import comparable_facts, failures_that_followed, qualified_job_name
from muster.world.jobfailures import JobFailureReport
from muster.world.views import NodeView

TESTS = "tests"  # of idle nodes, among the uids of jobs


class FailureReports:
    """The reports about all nodes, as far as they still count. `mark_node` has a node judged again, because something
    else is reported about it. `deep_pass_age_seconds` returns the seconds since a node last passed a burn-in of the
    deepest profile; None where no such pass holds.
    """

    def __init__(
        self,
        cluster: Cluster,
        mark_node: Callable[[str], None],
        deep_pass_age_seconds: Callable[[str], float | None] = lambda _node: None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._cluster = cluster
        self._mark_node = mark_node
        self._deep_pass_age_seconds = deep_pass_age_seconds
        self._clock = clock
        self._wall_clock = wall_clock
        self._burn_ins: dict[str, dict[str, list[FailedBurnIn]]] = {}  # node -> uid of a job, or TESTS -> what failed
        self._job_failures = JobFailureReports()
        self._results: dict[str, CheckResult] = {}  # of requested tests, until they are on record
        self._other_since: dict[str, datetime] = {}  # nodes that another machine has become, or that were gone -> when
        self._leads_since: float | None = None
        cluster.nodes.store.subscribe(self._node_changed)
        cluster.healths.store.subscribe(self._record_changed)
        cluster.gangs.store.subscribe(self._note_burn_ins)
        cluster.gangs.store.subscribe(self._note_job_failures)

    def lead(self) -> None:
        """Take in that this process leads from now on: checkers report to it within a while."""
        self._leads_since = self._clock()

    def burn_ins(self, node: str) -> Sequence[FailedBurnIn]:
        """The tests that a node has failed."""
        return [failure for failures in self._burn_ins.get(node, {}).values() for failure in failures]

    def job_failures(self, node: str, now: datetime) -> list[JobFailureReport]:
        """The failures of jobs that have followed a node."""
        fleet = self._cluster.fleet
        return self._job_failures.failures_on(node, len(fleet.nodes) - len(fleet.outside), now)

    def unheard_seconds(self) -> float:
        """For how long a new leader may not have heard yet which tests nodes have passed; 0 once it has."""
        if self._leads_since is None:
            return 0.0
        return max(0.0, NEW_LEADER_SECONDS - (self._clock() - self._leads_since))

    def outdated_until(self, node: str, now: datetime) -> datetime | None:
        """The time up to which jobs' reports about a node do not count any more; None = all of them count.

        It is when the node last passed a thorough test, or when another machine took its name.
        """
        age = self._deep_pass_age_seconds(node)
        moments = (None if age is None else now - timedelta(seconds=age), self._other_since.get(node))
        return max((moment for moment in moments if moment is not None), default=None)

    def new_result(self, health: NodeHealth) -> CheckResult | None:
        """The result of a requested test of a node that its NodeHealth does not have yet; None: there is none."""
        name, recorded = health.metadata.name, health.status.check
        result = self._results.get(name)
        if result is not None and recorded is not None and recorded.id == result.id:
            result = None
            del self._results[name]
        return result

    def tested(self, idle_result: IdleTestResult) -> None:
        """Take in the result of a test on a node that no gang has."""
        now, name = self._wall_clock(), idle_result.node
        health, node = self._cluster.node_record(name), self._cluster.fleet.nodes.get(name)
        boot = health.status.agent.boot_id if health and health.status.agent else ""
        boot = boot or (node.boot_id if node else "")
        failures = [
            FailedBurnIn(boot, fail.probe, f"test of the node: {fail.message}", now) for fail in idle_result.fails
        ]
        self._set_burn_ins(name, TESTS, failures)
        if idle_result.check_request is not None:
            self._results[name] = idle_result.result(idle_result.check_request, now)
        self._mark_node(name)

    def forget(self, now: datetime) -> None:
        """Forget what is too old to count."""
        self._job_failures.forget(now)
        for name in [name for name, moment in self._other_since.items() if now - moment >= LASTS]:
            del self._other_since[name]

    def _set_burn_ins(self, node: str, owner: str, failures: list[FailedBurnIn]) -> None:
        of_node = self._burn_ins.setdefault(node, {})
        of_node.pop(owner, None)
        if failures:
            of_node[owner] = failures
        if not of_node:
            del self._burn_ins[node]

    def _node_changed(self, old: NodeView | None, new: NodeView | None) -> None:
        if old is not None and (new is None or old.uid != new.uid):
            self._other_since[old.name] = self._wall_clock()

    def _record_changed(self, old: NodeHealth | Undecodable | None, new: NodeHealth | Undecodable | None) -> None:
        if isinstance(old, NodeHealth) and isinstance(new, NodeHealth) and _is_another(old, new):
            self._other_since[new.metadata.name] = self._wall_clock()

    def _note_burn_ins(self, old: Gang | Undecodable | None, new: Gang | Undecodable | None) -> None:
        """Take in which nodes have failed a gang's burn-in."""
        if isinstance(new, Undecodable):
            return
        old_failures, new_failures = _failures_in(old), _failures_in(new)
        if old_failures == new_failures:
            return
        uid = (new or old).spec.job_uid  # type: ignore[union-attr] # one of them has failures, so it is a Gang
        for node in old_failures.keys() | new_failures.keys():
            self._set_burn_ins(node, uid, new_failures.get(node, []))
        for node in new_failures:
            self._mark_node(node)

    def _note_job_failures(self, old: Gang | Undecodable | None, new: Gang | Undecodable | None) -> None:
        """Take in what a gang's record reports of the node on which the job's failures recurred.

        Once the record is gone, the report counts until it has faded.
        """
        if not isinstance(new, Gang) or (isinstance(old, Gang) and comparable_facts(old) == comparable_facts(new)):
            return
        node, reports = failures_that_followed(new)
        record = JobRecord(new.metadata.namespace, qualified_job_name(new), new.spec.job_uid, node, reports)
        for blamed in self._job_failures.replace_record(record):
            self._mark_node(blamed)


def _failures_in(gang: Gang | Undecodable | None) -> dict[str, list[FailedBurnIn]]:
    """The reports of failed burn-ins in a gang's record, by node."""
    failures: dict[str, list[FailedBurnIn]] = {}
    if not isinstance(gang, Gang) or gang.spec.burn_in is None:
        return failures
    job = f"{gang.metadata.namespace}/{gang.metadata.name}"
    for failure in gang.spec.burn_in.failures:
        report = FailedBurnIn(failure.boot, failure.probe, f"burn-in: {failure.message}", failure.time, job)
        failures.setdefault(failure.node, []).append(report)
    return failures


def _is_another(old: NodeHealth, new: NodeHealth) -> bool:
    """Whether another machine has the node's name now; False where a machine's identity is not known."""
    if old.status.agent == new.status.agent:
        return False
    old_identity, new_identity = identity(old.status.agent), identity(new.status.agent)
    return bool(old_identity and new_identity) and not same_machine(old_identity, new_identity)

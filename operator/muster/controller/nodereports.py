"""Reports, once each, what keeps Muster from evaluating nodes: policy, records, refuted declarations, its own
defects.

Tests: tests/unit/controller/test_nodereconciler.py.
"""

from collections.abc import Collection, Mapping, Sequence

import structlog
from prometheus_client import Gauge

from muster.controller.cluster import Cluster
from muster.controller.policyevents import record_policy_event
from muster.health.figures import Breaker
from muster.health.pools import entry_of
from muster.health.verdict_index import NodeIndex
from muster.kube.decode import Undecodable
from muster.kube.events import NORMAL, WARNING, EventRecorder, Regarding
from muster.world.names import shortened

_YIELDS = ""  # no cause: what others claim

log = structlog.get_logger()
_contradictions = Gauge(
    "muster_health_policy_problems", "Contradictions in the FleetPolicy's health; the log names them."
)
_unread_policy = Gauge(
    "muster_fleet_policy_unreadable",
    "1 while the FleetPolicy cannot be read, and an older one or the defaults apply.",
)


class NodeReports:
    """Remembers which problems were reported, so that none is reported twice."""

    def __init__(self, cluster: Cluster, events: EventRecorder) -> None:
        self._cluster = cluster
        self._events = events
        self._policy_problem = ""
        self._policy_unmet = ""
        self._is_scope_empty = False
        self._empty_pools: set[str] = set()  # those of spec.pools with health
        self._jobs_outside: set[str] = set()  # uids of the jobs with workers there
        self._refuted: set[str] = set()
        self._held: frozenset[tuple[str, str]] = frozenset()  # pools with causes and kinds of budgets
        self._silent: frozenset[str] = frozenset()  # pools
        self._unreadable: dict[str, str] = {}  # nodes whose record cannot be read -> why

    @property
    def unreadable(self) -> Collection[str]:
        """The names of the nodes whose record cannot be read."""
        return self._unreadable.keys()

    def defect(self, name: str, error: Exception) -> None:
        """Report that a defect of Muster prevents it from handling a node."""
        defect_text = f"an unexpected error keeps Muster from evaluating this node ({type(error).__name__}: {error})"
        text = f"{defect_text}. The last verdict stays in effect. This is a defect: report it with the operator's log."
        self._events.record(Regarding("v1", "Node", name, name), WARNING, "InternalError", text)

    def readable(self, name: str) -> None:
        """Note that the node's record can be read, so that a later problem with it is reported again."""
        self._unreadable.pop(name, None)

    def record(self, name: str) -> None:
        """Report that the node's record cannot be read."""
        record = self._cluster.healths.store.get(("", name))
        if not isinstance(record, Undecodable) or self._unreadable.get(name) == record.error:
            return
        self._unreadable[name] = record.error
        text = (
            f"NodeHealth {name} does not fit its schema ({record.error}). Until it does, new workers are placed on the "
            "node only where no other node is left, and no worker leaves it. Correct that field, run the version of "
            "Muster that wrote it, or delete the NodeHealth; that also deletes the node's incidents and offence score."
        )
        log.warning("health record unreadable", node=name, error=record.error)
        self._events.record(Regarding("v1", "Node", name, name), WARNING, "RecordUnreadable", text)

    def refuted(self, name: str) -> None:
        """Report that a node that was declared lost gives signs of life."""
        why = self._cluster.sign_of_life(name)
        if why and name not in self._refuted:
            text = (
                f"A user declared this machine lost, but {why}. Muster does not assume that its processes have ended. "
            )
            text += f"To withdraw the declaration: kubectl muster lost {name} --undo"
            log.warning("not lost", node=name, why=why)
            self._events.record(Regarding("v1", "Node", name, name), WARNING, "NotLost", text)
        (self._refuted.add if why else self._refuted.discard)(name)

    def held(self, breaker: Breaker) -> None:
        """Report that nodes are held back by a breaker: when it begins, when another pool, cause or kind of budget
        joins, and when it is over."""
        now = frozenset(
            (pool.pool, message)
            for pool in breaker.pools
            for message in (
                *(cause for cause, _ in pool.by_cause),
                *(budget.kind for budget, _ in pool.by_budget),
                *([_YIELDS] if pool.held_yields else []),
            )
        )
        news, over, self._held = now - self._held, bool(self._held) and not now, now
        if not news and not over:
            return
        text = breaker.message or "The budgets suffice again: they keep no unhealthy node in use."
        (log.warning if now else log.info)("nodes held back", nodes=breaker.held, message=text)
        event_type, reason = (WARNING, "BudgetExhausted") if now else (NORMAL, "BudgetAvailable")
        record_policy_event(self._cluster, self._events, event_type, reason, text)

    def silent(self, silent_pools: Mapping[str, int]) -> None:
        """Report pools in which too many agents are silent at once for it to be their nodes' fault, and when that is
        over."""
        now = frozenset(silent_pools)
        news, over, self._silent = now - self._silent, bool(self._silent) and not now, now
        if not news and not over:
            return
        pools = shortened([f"{silent_pools[pool]} of {pool or 'the fleet'}" for pool in sorted(silent_pools)])
        text = (
            f"The agents of many nodes are silent at once ({pools}), which is no fault of the nodes. Muster excludes "
            "no further node for that, and sees no faults there until the agents are Ready. Check the DaemonSet "
            "muster-agent."
            if now
            else "Enough agents are Ready again: Muster sees faults on their nodes."
        )
        (log.warning if now else log.info)("agents silent", pools=dict(silent_pools), message=text)
        event_type, reason = (WARNING, "AgentsSilent") if now else (NORMAL, "AgentsRecovered")
        record_policy_event(self._cluster, self._events, event_type, reason, text)

    def contradictions(self, problems: Sequence[str]) -> None:
        """Report the contradictions of a FleetPolicy that has changed."""
        _contradictions.set(len(problems))
        for problem in problems:
            log.warning("the FleetPolicy contradicts itself", problem=problem)

    def scope(self) -> None:
        """Report a scope that selects no node."""
        fleet, was_empty = self._cluster.fleet, self._is_scope_empty
        self._is_scope_empty = 0 < len(fleet.outside) == len(fleet.nodes) and not self._cluster.scope_unknown
        if self._is_scope_empty and not was_empty:
            count = len(fleet.nodes)
            text = (
                f"FleetPolicy default: spec.scope.nodeSelector selects none of the cluster's nodes ({count}), so no "
                "job starts. Correct the selector."
            )
            log.warning("scope empty", message=text)
            record_policy_event(self._cluster, self._events, WARNING, "ScopeEmpty", text)

    def pools(self, entries: Collection[str], index: NodeIndex) -> None:
        """Report the pools with health that have no node.

        Args:
            entries: the names of the pools of `spec.pools` that have health.
            index: the nodes with their pools.
        """
        filled = {entry_of(pool) for pool, size in index.pool_sizes.items() if size > 0}
        old, self._empty_pools = self._empty_pools, set(entries) - filled if filled else set()
        for name in sorted(self._empty_pools - old):
            text = (
                f"FleetPolicy default: spec.pools[{name}] has no node, so its health applies to none: no node has the "
                "labels of its nodeSelector, an earlier pool has those that do, or they are outside spec.scope. "
                "Correct the selector or the scope, or move the pool up in the list."
            )
            log.warning("pool empty", pool=name, message=text)
            record_policy_event(self._cluster, self._events, WARNING, "PoolEmpty", text)

    def jobs_outside(self, changed: Collection[str]) -> None:
        """Report the jobs of which the scope or a changed node's labels have left workers outside, each once."""
        fleet = self._cluster.fleet
        if self._cluster.scope_unknown or not (self._jobs_outside or any(name in fleet.outside for name in changed)):
            return
        holders = {node: fleet.holders(node) for node in fleet.outside}
        old = self._jobs_outside
        self._jobs_outside = {it for held_by in holders.values() for it in held_by if not it.startswith("pod/")}
        jobs = self._jobs_outside - old
        if jobs:
            nodes = sorted(node for node, held_by in holders.items() if not jobs.isdisjoint(held_by))
            text = (
                f"FleetPolicy default: spec.scope.nodeSelector leaves out nodes of {len(jobs)} "
                f"job{'s' if len(jobs) > 1 else ''} ({shortened(nodes)}). Workers go on there, and new ones come "
                "to other nodes. The operator's log names the jobs."
            )
            names = sorted(map(fleet.name_of, jobs))
            log.warning("jobs outside the scope", jobs=shortened(names), message=text)
            record_policy_event(self._cluster, self._events, WARNING, "JobsOutsideScope", text)

    def policy(self) -> None:
        """Report that the FleetPolicy asks for what this installation does not do, or that it cannot be read, and what
        holds meanwhile."""
        self._unmet(self._cluster.policy_unmet)
        problem = self._cluster.policy_problem
        _unread_policy.set(bool(problem))
        if problem == self._policy_problem:
            return
        self._policy_problem = problem
        if not problem:
            log.info("FleetPolicy readable again")
            return
        holds = (
            "Muster leaves all nodes as they are and creates no pod, because no earlier version of it is known"
            if self._cluster.policy_unknown
            else "its last readable version applies"
        )
        text = (
            f"The FleetPolicy does not fit its schema ({problem}): {holds}. Correct that field, or run the version of "
            "Muster that it was written for."
        )
        log.error("FleetPolicy unreadable", error=problem, holds=holds)
        record_policy_event(self._cluster, self._events, WARNING, "PolicyUnreadable", text)

    def _unmet(self, text: str) -> None:
        if text and text != self._policy_unmet:
            log.warning("the FleetPolicy asks for a part that is not installed", message=text)
            record_policy_event(self._cluster, self._events, WARNING, "PartNotInstalled", text)
        self._policy_unmet = text

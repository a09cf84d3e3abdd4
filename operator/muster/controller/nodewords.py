"""Tells people, once each, what keeps Muster from judging nodes: policy, records, words that are refuted, its own defects."""

import structlog
from prometheus_client import Gauge

from muster.api.base import API_VERSION
from muster.controller.cluster import Cluster
from muster.kube.decode import Undecodable
from muster.kube.events import WARNING, EventRecorder, Regarding

log = structlog.get_logger()
_unread_policy = Gauge(
    "muster_fleet_policy_unreadable",
    "Whether the FleetPolicy cannot be read, and an older one or the defaults hold (1).",
)


class NodeWords:
    """What has been told, and is not told again."""

    def __init__(self, cluster: Cluster, events: EventRecorder) -> None:
        self._cluster = cluster
        self._events = events
        self._policy_problem = ""
        self._refuted: set[str] = set()
        self._unreadable: dict[str, str] = {}  # nodes whose record cannot be read -> why

    def defect(self, name: str, error: Exception) -> None:
        """That Muster itself fails at a node."""
        what = f"an unexpected error keeps Muster from judging this node ({type(error).__name__}: {error})"
        text = f"{what}. It stays as it was last judged. This is a defect: report it with the operator's log."
        self._events.record(Regarding("v1", "Node", name, name), WARNING, "InternalError", text)

    def readable(self, name: str) -> None:
        """The node's record can be read."""
        self._unreadable.pop(name, None)

    def record(self, name: str) -> None:
        """That the node's record cannot be read."""
        record = self._cluster.healths.store.get(("", name))
        if not isinstance(record, Undecodable) or self._unreadable.get(name) == record.error:
            return
        self._unreadable[name] = record.error
        text = (
            f"NodeHealth {name} does not fit its schema ({record.error}): the node stays as it was last judged. Mend that "
            "field, or delete the NodeHealth: what Muster remembers of the node goes with it."
        )
        log.warning("health record unreadable", node=name, error=record.error)
        self._events.record(Regarding("v1", "Node", name, name), WARNING, "RecordUnreadable", text)

    def refuted(self, name: str) -> None:
        """That a node of which somebody has said that it is dead gives signs of life."""
        why = self._cluster.refuted(name)
        if why and name not in self._refuted:
            text = f"somebody has said that this machine is lost, but {why}: nothing on it is taken for dead"
            text += f". To take the word back: kubectl muster lost {name} --undo"
            log.warning("not lost", node=name, why=why)
            self._events.record(Regarding("v1", "Node", name, name), WARNING, "NotLost", text)
        (self._refuted.add if why else self._refuted.discard)(name)

    def policy(self) -> None:
        """That the FleetPolicy cannot be read, and what holds meanwhile."""
        problem = self._cluster.policy_problem
        _unread_policy.set(bool(problem))
        if problem == self._policy_problem:
            return
        self._policy_problem = problem
        policy = self._cluster.policies.store.get(("", "default"))
        if not isinstance(policy, Undecodable):
            log.info("FleetPolicy readable again")
            return
        holds = (
            "the defaults hold, and no node is newly taken out, because what it said before is not known"
            if self._cluster.policy_unknown
            else "what it said before holds"
        )
        text = f"it does not fit its schema ({problem}): {holds}. Mend that field, or run the version that it was written for."
        log.error("FleetPolicy unreadable", error=problem, holds=holds)
        self._events.record(
            Regarding(API_VERSION, "FleetPolicy", policy.name, policy.uid), WARNING, "PolicyUnreadable", text
        )

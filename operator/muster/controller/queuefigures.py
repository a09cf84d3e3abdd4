"""Prometheus figures of the queue: how long jobs wait, what they wait for, and what is reserved for them.

Tests: tests/unit/controller/test_queue.py.
"""

from collections import Counter as Counted
from collections.abc import Iterable, Mapping

from prometheus_client import Counter, Gauge, Histogram

from muster.world.queuedecision import NotPlaced, QueueDecision

_placement = Histogram(
    "muster_placement_seconds",
    "Time to find nodes for one waiting job, or to find that there are none.",
    buckets=(0.0001, 0.0005, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1),
)
_waited = Histogram(
    "muster_queue_wait_seconds",
    "Time from a job's creation (or its return to the queue) to its nodes.",
    buckets=(0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 14400, 43200, 86400, 604800),
)
_estimate_error = Histogram(
    "muster_queue_estimate_error_seconds",
    "By how much a job got its nodes earlier or later than was first estimated.",
    ["direction"],
    buckets=(60, 120, 300, 600, 1800, 3600, 7200, 14400, 43200, 86400, 604800),
)
_pending = Gauge("muster_jobs_pending", "Jobs that wait for nodes, by reason.", ["reason"])
_reserved_seconds = Counter(
    "muster_reserved_node_seconds_total",
    "Node-seconds that free nodes were reserved for jobs that do not have all of their nodes yet.",
)
_domains = Histogram(
    "muster_gang_domains",
    "Domains of a level that a gang was placed in.",
    ["level"],
    buckets=(1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256),
)
_fragmentation = Gauge(
    "muster_free_nodes_fragmentation",
    "Share of the free nodes that are in domains of which a part is in use.",
    ["level"],
)


def observe_placement(seconds: float) -> None:
    """Count that it took so long to find nodes for a job, or to find that there are none."""
    _placement.observe(seconds)


def count_reserved(node_seconds: float) -> None:
    """Count node-seconds that nodes were reserved."""
    _reserved_seconds.inc(node_seconds)


def observe_wait(seconds: float) -> None:
    """Count that a job has waited so long for its nodes."""
    _waited.observe(max(seconds, 0.0))


def observe_estimate(late_seconds: float) -> None:
    """Count by how much later than was first estimated a job got its nodes; less than 0: earlier."""
    _estimate_error.labels("later" if late_seconds > 0 else "earlier").observe(abs(late_seconds))


def observe_domains(domains: Mapping[str, int]) -> None:
    """Count in how many domains a gang is, by level."""
    for level, count in domains.items():
        _domains.labels(level).observe(count)


def set_pending(decisions: Iterable[QueueDecision]) -> None:
    """Set how many jobs wait, by reason."""
    answers = (decision.answer for decision in decisions)
    _pending.clear()
    for reason, count in Counted(answer.reason for answer in answers if isinstance(answer, NotPlaced)).items():
        _pending.labels(reason).set(count)


def set_fragmentation(shares: Mapping[str, float]) -> None:
    """Set the share of the free nodes that are in partly used domains, by level."""
    _fragmentation.clear()  # the policy may have other levels now
    for level, share in shares.items():
        _fragmentation.labels(level).set(share)

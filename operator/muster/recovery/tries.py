"""What was tried since the last start of the ranks, and what to try next. Pure.

Tests: tests/unit/recovery/test_waits.py.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import takewhile

from muster.api.gang import Gang, GangIncident, Level
from muster.recovery.failure import Failure, Kind, failure_of, kinds_with
from muster.world.job import WorkerView

# A gang of one has no other worker to compare with: a failure that lasts this long may be its node's fault. Where it is
# not (storage that is down, a network policy) another node does no better, so there are not many tries.
LONE_SECONDS = 300.0
LONE_TRIES = 4
_OF_ONE_CAUSE = kinds_with(lambda traits: traits.of_one_cause)


def lone_failure(gang: Gang, worker_view: WorkerView, kind: Kind, message: str) -> Failure | None:
    """Return the failure of a gang's only worker: first a new pod repairs it, then another node.

    None after four failures of this kind since the last start: no other worker shows whether the node or the job is at
    fault.

    Args:
        gang: the record.
        worker_view: the worker.
        kind: of the failure.
        message: for people.
    """
    tries = sum(incident.reason == kind for incident in _since_the_start(gang))
    if tries >= LONE_TRIES:
        return None
    level = next_level(gang, worker_view, kind)
    return replace(failure_of(worker_view, kind, level, message), if_free=level is Level.REPLACE)


def next_level(gang: Gang, worker_view: WorkerView, kind: Kind) -> Level:
    """Return the level that repairs a worker: a new pod, or another node once a new pod was tried since the last start.

    A node that is much too slow fails in several ways, one after the other: one new pod counts for all of them.
    """
    kinds = _OF_ONE_CAUSE if kind in _OF_ONE_CAUSE else {kind}
    tried = {incident.node for incident in _since_the_start(gang) if incident.reason in kinds}
    return Level.REPLACE if worker_view.member.node in tried else Level.POD


def _since_the_start(gang: Gang) -> Iterator[GangIncident]:
    """Yield the incidents since the last start of the ranks, the newest first."""
    return takewhile(lambda incident: incident.resumed_step is None, reversed(gang.spec.incidents))

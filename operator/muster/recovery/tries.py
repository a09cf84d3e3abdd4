"""What has been tried since the last start, and what comes next. Pure."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import takewhile

from muster.api.gang import Gang, GangIncident, Level
from muster.recovery.failure import Failure, Kind, failure_of
from muster.world.job import WorkerView

# A gang of one has nobody to compare its worker with: what lasts for so long may be its node's doing. Where it is not
# (storage that is down, a network policy) another node does no better, so there are not many tries.
LONE_SECONDS = 300.0
LONE_TRIES = 4
_OF_ONE_CAUSE = frozenset({Kind.LAUNCHER_SILENT, Kind.LAUNCHER_STUCK, Kind.LISTING_STUCK})


def lone_failure(gang: Gang, worker_view: WorkerView, kind: Kind, message: str) -> Failure | None:
    """The failure of a worker whose gang has no other: a new pod answers the first one, another node the next.

    None once LONE_TRIES failures of this kind have happened since the last start: there is no other worker that shows
    whether the node or the job is at fault.
    """
    tries = sum(incident.reason == kind for incident in _since_the_start(gang))
    if tries >= LONE_TRIES:
        return None
    level = next_level(gang, worker_view, kind)
    return replace(failure_of(worker_view, kind, level, message), if_free=level is Level.REPLACE)


def next_level(gang: Gang, worker_view: WorkerView, kind: Kind) -> Level:
    """A new pod on the same node; another node when that has been tried since the last start.

    A node that is much too slow shows it in one way after the other: one new pod has to do for all of them.
    """
    kinds = _OF_ONE_CAUSE if kind in _OF_ONE_CAUSE else {kind}
    tried = {incident.node for incident in _since_the_start(gang) if incident.reason in kinds}
    return Level.REPLACE if worker_view.member.node in tried else Level.POD


def _since_the_start(gang: Gang) -> Iterator[GangIncident]:
    """The incidents that no start of the ranks has followed yet, the last one first."""
    return takewhile(lambda incident: incident.resumed_step is None, reversed(gang.spec.incidents))

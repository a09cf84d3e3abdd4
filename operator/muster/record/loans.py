"""What the record says of nodes that are only lent to the gang, because they are reserved for other jobs. Pure.

`backfilled` outlasts the times of the loan: the gang keeps it while it waits for nodes after a leave, and gets it again
without a time where it returns to nodes that its pods have not left yet.
"""

from datetime import timedelta
from typing import Any

from muster.api.gang import GangSpec
from muster.api.trainingjob import TrainingJob
from muster.world.job import JobWorld
from muster.world.queuedecision import Placed

NO_TIMES = {"backfill_until": None, "lent_until": None}


def loan(world: JobWorld, placed: Placed) -> dict[str, Any]:
    """Return what the record says of nodes that are only lent to the gang."""
    if placed.backfill is None:
        return {"backfilled": _comes_back(world, placed), **NO_TIMES}
    return {
        "backfilled": True,
        "backfill_until": world.now + timedelta(seconds=placed.backfill.expected_seconds),
        "lent_until": placed.backfill.lent_until,
    }


def _comes_back(world: JobWorld, placed: Placed) -> bool:
    """Whether a job gets nodes back that were lent to it. Until its pods there have ended they are free to it alone,
    reserved for none."""
    was_lent = world.gang is not None and world.gang.spec.backfilled
    return was_lent and not {*placed.nodes, *placed.spares}.isdisjoint(world.fleet.nodes_of(world.uid))


def holds_lent_nodes(job: TrainingJob, record: GangSpec) -> bool:
    """Whether the nodes of a gang are only lent to it, so that it gives way whatever its priority."""
    return job.spec.queueing.preemptible or record.backfilled

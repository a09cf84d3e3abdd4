"""One whole plan of a queue, for tests that do not care for its steps."""

from collections.abc import Iterable, Mapping
from typing import Any

from muster.queueing.queue import plan_steps
from muster.queueing.waiting import WaitingJob
from muster.world.fleet import Fleet
from muster.world.queuedecision import QueueDecision


def plan(
    fleet: Fleet, waiting: Iterable[WaitingJob], limits: Mapping[str, int], held: Mapping[str, int], **more: Any
) -> dict[str, QueueDecision]:
    """The answers for all waiting jobs, by job uid; keyword arguments are of `plan_steps`."""
    return dict(filter(None, plan_steps(fleet, waiting, limits, held, **more)))

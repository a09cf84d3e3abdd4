"""One whole plan of a queue, for tests that do not care for its steps."""

from collections.abc import Iterable
from typing import Any

from muster.queueing.queue import NamespaceRules, plan_steps
from muster.queueing.waiting import WaitingJob
from muster.world.fleet import Fleet
from muster.world.queuedecision import QueueDecision

_NO_RULES = NamespaceRules()


def plan(
    fleet: Fleet, waiting: Iterable[WaitingJob], rules: NamespaceRules = _NO_RULES, **more: Any
) -> dict[str, QueueDecision]:
    """The answers for all waiting jobs, by job uid; keyword arguments are of `plan_steps`."""
    return dict(filter(None, plan_steps(fleet, waiting, rules, **more)))

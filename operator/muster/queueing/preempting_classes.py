"""Finds PriorityClasses that the FleetPolicy lists for preemption, and by which no job preempts nevertheless."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from muster.api.fleetpolicy import PriorityPreemption

WITH_ANOTHER_CLASS = "delete the job and create it again with another class"
"""What the owner of a job can do, whose template never changes."""
_TAKE_OUT = "take it out of the list (kubectl edit fleetpolicy default)"


class ClassWithoutEffect(NamedTuple):
    """Why no job preempts by a listed class, and what to do."""

    finding: str
    remedy: str


def classes_without_effect(
    preemption: PriorityPreemption, may_preempt: Mapping[str, bool]
) -> Iterator[ClassWithoutEffect]:
    """Yield the listed classes by which no job preempts.

    Args:
        preemption: of the FleetPolicy.
        may_preempt: the PriorityClasses of the cluster, and whether each may preempt by its preemptionPolicy.
    """
    where = "spec.queueing.preemption.priorityClasses of FleetPolicy default lists PriorityClass"
    for name in (listed.name for listed in preemption.priority_classes):
        if name not in may_preempt:
            yield ClassWithoutEffect(
                f"{where} {name}, which does not exist: no job preempts by it",
                f"create it (kubectl create priorityclass {name} --value=VALUE), or {_TAKE_OUT}",
            )
        elif not may_preempt[name]:
            yield ClassWithoutEffect(
                f"{where} {name}, which has preemptionPolicy Never: no job preempts by it",
                "delete the class and create it again without preemptionPolicy, which cannot be changed, or "
                f"{_TAKE_OUT}",
            )

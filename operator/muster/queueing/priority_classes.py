"""PriorityClasses that do not exist, and those by which no job preempts although the FleetPolicy lists them."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from muster.api.fleetpolicy import PriorityPreemption
from muster.api.trainingjob import TrainingJob

PRIORITY_CLASS_MISSING = "PriorityClassMissing"
"""The reason of a job whose pods the API server refuses, because their PriorityClass does not exist."""
WITH_ANOTHER_CLASS = "delete the job and create it again with another class"
"""What the owner of a job can do, whose template never changes."""
_TAKE_OUT = "take it out of the list (kubectl edit fleetpolicy default)"


def named_class(job: TrainingJob) -> str:
    """Return the PriorityClass that the job's template names; "" for none."""
    return str(job.spec.pod.get("priorityClassName") or "")


def missing_class_remedy(name: str) -> str:
    """Return what can be done where the PriorityClass that a job names does not exist, as an imperative."""
    return f"{_creating(name)}, or {WITH_ANOTHER_CLASS}"


def _creating(name: str) -> str:
    return f"create it (kubectl create priorityclass {name} --value=VALUE)"


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
                f"{_creating(name)}, or {_TAKE_OUT}",
            )
        elif not may_preempt[name]:
            yield ClassWithoutEffect(
                f"{where} {name}, which has preemptionPolicy Never: no job preempts by it",
                "delete the class and create it again without preemptionPolicy, which cannot be changed, or "
                f"{_TAKE_OUT}",
            )

"""The plan of a start that waits, with the most telling reason why. Pure.

Tests: tests/unit/lifecycle/test_waiting_and_binding.py.
"""

import re

from muster.checkpoints.resume import Missing
from muster.lifecycle.plan import Action, Plan
from muster.status.report import ASSEMBLING, State, StatusReport
from muster.world.job import CreateError, JobWorld
from muster.world.views import PodView

# A start that takes longer names what it waits for.
WORTH_TELLING_SECONDS = 60.0
# While something is under way that no watch announces (ages, deadlines), look again this often.
TICK_SECONDS = 1.0

# Kubernetes v1.33, pkg/kubelet/images/types.go.
_OF_THE_IMAGE = frozenset(
    {"ErrImageNeverPull", "ErrImagePull", "ImageInspectError", "ImagePullBackOff", "InvalidImageName"}
)
# A scheduler that finds no volume claim ends its message with the answer of its preemption, which is the same.
_REPEATED_NOT_FOUND = re.compile(r"not found\. not found\.?$")
_REMEDY = "If the image cannot be had, delete the job and create it again with one that can."


def plan_of_wait(
    world: JobWorld, missing: Missing, actions: tuple[Action, ...] = (), wake: float = TICK_SECONDS
) -> Plan:
    """Return the plan of a gang that is not yet complete, with the most telling reason why.

    Args:
        world: the state of the job.
        missing: what the start waits for.
        actions: to be performed now.
        wake: after how many seconds to decide again.
    """
    usual = missing.reason if world.attempt_age_seconds > WORTH_TELLING_SECONDS else ASSEMBLING
    reason, message = find_start_trouble(world) or (usual, missing.message)
    return Plan(actions, StatusReport(State.STARTING, reason, message), wake_in_seconds=wake)


def find_start_trouble(world: JobWorld) -> tuple[str, str] | None:
    """Return reason and message of what keeps pods from running; None: nothing that is seen."""
    if world.create_error:
        return world.create_error.reason, world.create_error.message
    for worker_view in world.worker_views:
        trouble = find_pod_trouble(worker_view.pod) if worker_view.pod else None
        if trouble:
            return trouble.reason, f"{worker_view.where}: {trouble.message}"
    return None


def find_pod_trouble(pod: PodView) -> CreateError | None:
    """Return what keeps a pod from running, as its kubelet or its scheduler reports it; None: nothing."""
    for container in pod.containers:
        if container.waiting_reason and container.waiting_reason not in ("ContainerCreating", "PodInitializing"):
            problem_text = f"container {container.name}: {container.waiting_message}"
            return CreateError(
                container.waiting_reason,
                f"{problem_text}. {_REMEDY if container.waiting_reason in _OF_THE_IMAGE else ''}".strip(),
            )
    if pod.unschedulable_message:
        return CreateError("Unschedulable", _REPEATED_NOT_FOUND.sub("not found.", pod.unschedulable_message))
    return None

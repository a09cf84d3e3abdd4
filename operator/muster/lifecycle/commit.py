"""What several phases do: commit the record, and delete pods that are left over. Pure.

Tests: tests/unit/lifecycle/test_scenarios.py.
"""

from muster.api.gang import GangSpec
from muster.lifecycle.plan import CommitGang, DeletePod, Plan
from muster.recovery.stacks import is_printing
from muster.status.report import Announcement
from muster.world.job import JobWorld


def commit(world: JobWorld, spec: GangSpec, *announcements: Announcement) -> Plan:
    """Return the plan that commits the record; the status follows in the next step."""
    version = world.gang.metadata.resource_version if world.gang else ""
    return Plan((CommitGang(spec, version),), None, announcements, wake_in_seconds=0.0)


def leftovers(world: JobWorld) -> tuple[DeletePod, ...]:
    """Return the deletions of the job's pods that belong to no member and are not yet being deleted.

    After a hang a pod stays until its ranks have printed their stacks.
    """
    holds_nodes = world.gang is not None and bool(world.gang.spec.members)
    left = (
        pod
        for pods in world.others.values()
        for pod in pods
        if not pod.deleting and not (holds_nodes and is_printing(world, pod.uid))
    )
    return tuple(DeletePod(pod.name, pod.uid) for pod in sorted(left, key=lambda pod: pod.name))

"""What several phases do: commit the record, delete what is left over. Pure."""

from muster.api.gang import GangSpec
from muster.lifecycle.plan import Announcement, CommitGang, DeletePod, Plan
from muster.world.job import JobWorld


def commit(world: JobWorld, spec: GangSpec, *announcements: Announcement) -> Plan:
    """Commit the record; the status follows in the next step, when it is a fact."""
    version = world.gang.metadata.resource_version if world.gang else ""
    return Plan((CommitGang(spec, version),), None, announcements, wake_in_seconds=0.0)


def leftovers(world: JobWorld) -> tuple[DeletePod, ...]:
    """This job's pods that are no member's, not yet being deleted."""
    left = (pod for pods in world.others.values() for pod in pods if not pod.deleting)
    return tuple(DeletePod(pod.name, pod.uid) for pod in sorted(left, key=lambda pod: pod.name))

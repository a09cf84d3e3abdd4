"""What several phases do: commit the record, and delete pods that are left over. Pure."""

import json

from muster.api.gang import GangSpec
from muster.lifecycle.plan import CommitGang, DeletePod, Plan
from muster.recovery.stacks import is_printing
from muster.status.report import Announcement
from muster.world.job import JobWorld

# etcd takes 1.5 MiB in one request, of which some is the API server's own bookkeeping.
MAX_BYTES = 1_400_000
# Fewer cannot be too large: names have at most 253 characters.
SURELY_SMALL = 512
MAX_EXCLUDED = 512
FEW_INCIDENTS = 32


def commit(world: JobWorld, spec: GangSpec, *announcements: Announcement) -> Plan:
    """Return the plan that commits the record; the status follows in the next step."""
    version = world.gang.metadata.resource_version if world.gang else ""
    return Plan((CommitGang(spec, version),), None, announcements, wake_in_seconds=0.0)


def within_etcd_limit(spec: GangSpec) -> GangSpec:
    """Return the record small enough for etcd: where necessary, the oldest incidents and excluded nodes are dropped."""
    if len(spec.excluded_nodes) > MAX_EXCLUDED:
        latest = sorted(spec.excluded_nodes.items(), key=lambda item: item[1])[-MAX_EXCLUDED:]
        spec = spec.model_copy(update={"excluded_nodes": dict(latest)})
    if len(spec.members) + len(spec.unfenced_workers) <= SURELY_SMALL or _bytes(spec) <= MAX_BYTES:
        return spec
    return spec.model_copy(update={"incidents": spec.incidents[-FEW_INCIDENTS:], "excluded_nodes": {}})


def _bytes(spec: GangSpec) -> int:
    return len(json.dumps(spec.to_json(), separators=(",", ":")))


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

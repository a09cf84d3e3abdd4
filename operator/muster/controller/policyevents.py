"""Records Events about the FleetPolicy: what concerns the whole fleet, and no one object in it."""

from muster.api.base import API_VERSION
from muster.controller.cluster import Cluster
from muster.kube.decode import Undecodable
from muster.kube.events import EventRecorder, Regarding


def record_policy_event(cluster: Cluster, events: EventRecorder, event_type: str, reason: str, note: str) -> bool:
    """Record an Event about the FleetPolicy, also about one that cannot be read.

    Returns:
        Whether there is a FleetPolicy. Without one there is no Event.
    """
    policy = cluster.policies.store.get(("", "default"))
    if policy is None:
        return False
    uid = policy.uid if isinstance(policy, Undecodable) else policy.metadata.uid
    events.record(Regarding(API_VERSION, "FleetPolicy", "default", uid), event_type, reason, note)
    return True

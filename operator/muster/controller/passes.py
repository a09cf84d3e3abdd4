"""How long ago nodes passed their burn-in, as the checkers report it to this leader."""

from muster.api.preflight import Profile
from muster.controller.cluster import Cluster
from muster.preflight.upkeep import newest_pass


def pass_age_seconds(cluster: Cluster, node: str, least: Profile | None = None) -> float | None:
    """The seconds since a node last passed a burn-in with all its accelerators, and with the profile `least` or a
    deeper one. None where no such pass holds. Without `least` it is the profile that the FleetPolicy asks for now.
    """
    view = cluster.checkers.views_of([node]).get(node)
    if view is None:
        return None
    policy, node_view = cluster.policy(), cluster.fleet.nodes.get(node)
    gpus = node_view.capacity.get(policy.accelerator_resource, 0) if node_view is not None else 0
    newest = newest_pass(view, least or policy.preflight.profile, gpus)
    return newest.age_seconds if newest is not None else None

"""Two replicas of the operator, and the lease that they share."""

from collections.abc import Callable
from typing import Any


def pair(installation: Any, wait_until: Callable[..., Any]) -> tuple[Any, Any]:
    leader = installation.start_leader()
    standby = installation.start(installation.operator_pods()[1])
    wait_until(standby.ready, "the standby is ready")
    wait_until(
        lambda: leaders_address(installation) == leader.coordinator_address, "the leader's address stands in the lease"
    )
    wait_until(lambda: standby.samples("muster_is_leader"), "the standby has the certificates")
    return leader, standby


def leaders_address(installation: Any) -> str:
    lease = installation.get("lease", "muster-leader", f"--namespace={installation.namespace}")
    address: str = lease["metadata"]["annotations"]["muster.dev/coordinator-address"]
    return address


def lease(installation: Any) -> Any:
    return installation.get("lease", "muster-leader", f"--namespace={installation.namespace}")["spec"]

"""Another replica takes over. tests/integration/nightly/install has the rarer ends of a leader."""

from collections.abc import Callable
from typing import Any

from tests.integration.install.replicas import pair

UNKNOWN_CALLER = 401  # the answer of a replica that leads to a caller without a token


def test_another_replica_takes_over_from_a_killed_leader(installation: Any, wait_until: Callable[..., Any]) -> None:
    leader, standby = pair(installation, wait_until)
    leader.kill()
    wait_until(standby.leads, "the standby leads")
    wait_until(lambda: standby.answers() == (UNKNOWN_CALLER, ""), "it answers")

"""The metrics of a replica that does not lead are guarded as the leader's are."""

from collections.abc import Callable
from typing import Any

from tests.integration.install.scraping import read


def test_a_standby_guards_its_metrics_alike(
    installation: Any, scraper: Callable[..., str], wait_until: Callable[..., Any]
) -> None:
    installation.start_leader()
    standby = installation.start(installation.operator_pods()[1])
    wait_until(lambda: standby.samples("muster_is_leader"), "it has the certificates")
    assert read(installation, standby.metrics_port, "")[0] == 401
    assert read(installation, standby.metrics_port, scraper("tenant", may_read=False))[0] == 403

"""Another replica is ready, writes nothing, and takes over. nightly/install has the rarer ends of a leader."""

from collections.abc import Callable
from typing import Any

from tests.integration.install.replicas import pair
from tests.integration.install.scraping import read

QUESTIONS = ("tokenreviews", "subjectaccessreviews")  # about who reads its metrics: nothing is written
UNKNOWN_CALLER = 401  # the answer of a replica that leads to a caller without a token


def test_a_standby_is_ready_and_writes_nothing_and_takes_over_from_a_killed_leader(
    installation: Any, scraper: Callable[..., str], wait_until: Callable[..., Any]
) -> None:
    leader, standby = pair(installation, wait_until)
    assert standby.get("/readyz") == (200, "ok")
    assert standby.samples("muster_is_leader") == {(): 0.0}
    assert read(installation, standby.metrics_port, "")[0] == 401
    assert read(installation, standby.metrics_port, scraper("tenant", may_read=False))[0] == 403
    requests = [dict(labels) for labels in standby.samples("muster_api_requests_total")]
    verbs = {each["verb"] for each in requests if each["resource"] not in QUESTIONS}
    assert verbs == {"GET", "WATCH"}
    assert leader.leads()
    leader.kill()
    wait_until(standby.leads, "the standby leads")
    wait_until(lambda: standby.answers() == (UNKNOWN_CALLER, ""), "it answers")

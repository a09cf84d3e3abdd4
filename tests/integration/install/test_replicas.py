"""One replica leads, the other is ready and takes over. tests/integration/nightly/install has the rarer ends of a
leader."""

from collections.abc import Callable
from typing import Any

from tests.integration.install.replicas import pair

QUESTIONS = ("tokenreviews", "subjectaccessreviews")  # about who reads its metrics: nothing is written
UNKNOWN_CALLER = 401  # the answer of a replica that leads to a caller without a token


def test_standby_is_ready_and_writes_nothing(installation: Any, wait_until: Callable[..., Any]) -> None:
    leader, standby = pair(installation, wait_until)
    assert standby.get("/readyz") == (200, "ok")
    assert standby.samples("muster_is_leader") == {(): 0.0}
    requests = [dict(labels) for labels in standby.samples("muster_api_requests_total")]
    verbs = {each["verb"] for each in requests if each["resource"] not in QUESTIONS}
    assert verbs == {"GET", "WATCH"}
    assert leader.leads()


def test_another_replica_takes_over_from_a_killed_leader(installation: Any, wait_until: Callable[..., Any]) -> None:
    leader, standby = pair(installation, wait_until)
    leader.kill()
    wait_until(standby.leads, "the standby leads")
    wait_until(lambda: standby.answers() == (UNKNOWN_CALLER, ""), "it answers")

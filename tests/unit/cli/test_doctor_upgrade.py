"""Checks before an upgrade."""

from typing import Any

import pytest
from tests.unit.cli.installing import (
    DEPLOYMENT,
    GANGS,
    HEALTHS,
    JOBS,
    NOW,
    POLICIES,
    a_health,
    a_job,
    install,
    only_wrong,
    rows_of,
    set_variable,
    unread,
)

from muster.api.base import rfc3339
from muster.cli.doctor_cluster import definition_path
from muster.cli.doctor_rows import DoctorState
from muster.cli.doctor_upgrade import (
    check_decisions,
    check_records,
    check_replicas,
    check_starts,
    check_stored_versions,
)


@pytest.fixture
def installed(api: Any) -> Any:
    install(api)
    return api


def a_gang(**spec: Any) -> dict[str, Any]:
    metadata = {"name": "llama-1", "namespace": "team-a", "uid": "gang", "resourceVersion": "1"}
    basic = {"jobUid": "uid-llama", "attempt": 1, "time": rfc3339(NOW), "level": "Start", "reason": "Created"}
    return {"metadata": metadata, "spec": {**basic, **spec}}


@pytest.mark.parametrize(
    ("state", "reason"), [("Starting", "BurnIn"), ("Recovering", "NodeLost"), ("Pending", "Assembling")]
)
def test_a_job_that_starts_or_recovers_is_no_good_moment(installed: Any, state: str, reason: str) -> None:
    installed.lists(JOBS, a_job("llama"), a_job("bert", state, reason), a_job("queued", "Pending", "InsufficientNodes"))
    finding, remedy = only_wrong(installed, check_starts)
    assert finding.endswith("an upgrade makes them slower: team-a/bert")
    assert "kubectl muster top" in remedy


@pytest.mark.parametrize("check", [check_starts, check_decisions, check_records])
def test_a_profile_without_jobs_may_lack_their_definitions(installed: Any, check: Any) -> None:
    set_variable(installed, "MUSTER_PROFILE", "observe")
    del installed.bodies[JOBS], installed.bodies[GANGS]
    ((state, _, _),) = rows_of(installed, check)
    assert state is DoctorState.OK


EVACUATION = {"reason": "Drain", "since": rfc3339(NOW), "deadline": rfc3339(NOW)}
UNFENCED = {"pod": "llama-0", "podUid": "uid", "node": "gpu-1", "fencedTime": rfc3339(NOW)}


@pytest.mark.parametrize(
    ("gang", "text"),
    [
        ({"evacuation": EVACUATION}, "workers are being moved off nodes, by Gangs: team-a/llama-1"),
        ({"unfencedWorkers": [UNFENCED]}, "ranks are not proved to have ended, by Gangs: team-a/llama-1"),
    ],
)
def test_a_decision_in_flight_is_no_good_moment(installed: Any, gang: dict[str, Any], text: str) -> None:
    installed.lists(GANGS, a_gang(**gang))
    assert only_wrong(installed, check_decisions)[0] == text


def test_a_test_that_was_requested_and_not_done_is_no_good_moment(installed: Any) -> None:
    asked = {"id": "2", "time": rfc3339(NOW)}
    healths = [a_health(f"gpu-{n}", check=asked) for n in (1, 2)]
    result = {"id": "2", "profile": "Quick", "outcome": "Pass", "time": rfc3339(NOW)}
    healths[0]["status"]["check"] = result
    healths[1]["status"]["check"] = {**result, "id": "1"}
    installed.lists(HEALTHS, *healths)
    assert only_wrong(installed, check_decisions)[0] == "a test was requested of nodes: gpu-2"


@pytest.mark.parametrize(("wanted", "command"), [(1, "scale deployment muster"), (2, "rollout status")])
def test_a_single_replica_has_no_successor(installed: Any, wanted: int, command: str) -> None:
    installed.bodies[DEPLOYMENT]["spec"]["replicas"] = wanted
    installed.bodies[DEPLOYMENT]["status"] = {"availableReplicas": 1}
    finding, remedy = only_wrong(installed, check_replicas)
    assert "no other one would take the lease" in finding
    assert command in remedy


def test_objects_that_may_be_stored_in_another_version_are_wrong(installed: Any) -> None:
    installed.bodies[definition_path("gangs")]["status"] = {"storedVersions": ["v1alpha0", "v1alpha1"]}
    finding, remedy = only_wrong(installed, check_stored_versions)
    assert "gangs.muster.dev may be stored as v1alpha0" in finding
    assert "kubectl edit crd gangs.muster.dev --subresource=status" in remedy


@pytest.mark.parametrize(
    ("path", "thing", "text"),
    [
        (JOBS, a_job("bert", nodes="many"), "trainingjobs cannot be read by this version (1): team-a/bert: "),
        (GANGS, a_gang(level="New"), "gangs cannot be read by this version (1): team-a/llama-1: "),
        (HEALTHS, a_health("gpu-1", override=3), "nodehealths cannot be read by this version (1): gpu-1: "),
        (
            POLICIES,
            {"metadata": {"name": "default", "resourceVersion": "1"}, "spec": {"queueing": 3}},
            "fleetpolicies cannot be read by this version (1): default: ",
        ),
    ],
)
def test_records_that_this_version_cannot_read_are_wrong(
    installed: Any, path: str, thing: dict[str, Any], text: str
) -> None:
    installed.lists(path, thing)
    finding, remedy = only_wrong(installed, check_records)
    assert finding.startswith(text)
    assert "kubectl" in remedy


def test_how_many_records_were_read(installed: Any) -> None:
    assert [row[1] for row in rows_of(installed, check_records)] == ["this version can read all 4"]


def test_what_cannot_even_be_parsed_is_never_ok(installed: Any) -> None:
    installed.lists(GANGS, a_gang(), {"metadata": 3})
    assert unread(installed, check_records)[0] == "1 of the gangs cannot be parsed"

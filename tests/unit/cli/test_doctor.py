"""`doctor`: which rows it prints, in which order, and how it ends."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.cli.installing import DEPLOYMENT, NETWORK, PODS, POLICIES, REVIEWS, install, refuse
from typer.testing import Result

from muster.cli import doctor_cluster, doctor_parts, doctor_upgrade
from muster.kube.errors import Unreachable

Run = Callable[..., Result]


@pytest.fixture
def installed(api: Any) -> Any:
    install(api)
    return api


def rows(result: Result) -> list[dict[str, str]]:
    listed: list[dict[str, str]] = json.loads(result.stdout)["rows"]
    return listed


def test_in_a_healthy_installation_all_is_ok(installed: Any, command: Run) -> None:
    result = command("doctor", "--before-upgrade", "-o", "json")
    assert [row for row in rows(result) if row["state"] != "Ok"] == []
    assert result.exit_code == 0
    checks = {**doctor_cluster.CHECKS, **doctor_parts.CHECKS, **doctor_upgrade.CHECKS}
    assert {row["check"] for row in rows(result)} == set(checks)
    assert all(set(row) == {"check", "state", "finding", "remedy"} for row in rows(result))


def test_the_rows_about_an_upgrade_come_only_when_asked_for(installed: Any, command: Run) -> None:
    checks = {row["check"] for row in rows(command("doctor", "-o", "json"))}
    assert checks == {*doctor_cluster.CHECKS, *doctor_parts.CHECKS}


def test_it_writes_nothing_but_questions_about_rights(installed: Any, command: Run) -> None:
    assert command("doctor", "--before-upgrade").exit_code == 0
    assert {(verb, path) for verb, path, _ in installed.written} == {("POST", REVIEWS)}


def test_what_is_wrong_comes_first_and_ends_with_1(installed: Any, command: Run) -> None:
    installed.lists(POLICIES)
    refuse(installed, NETWORK.format("muster-agent"))
    result = command("doctor")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert [line.split()[:2] for line in lines[:4]] == [
        ["STATE", "CHECK"],
        ["Wrong", "policy"],
        ["Unknown", "network"],
        ["Ok", "server"],
    ]
    assert lines[lines.index("WHAT YOU CAN DO") + 1].startswith("-  policy: create it from a copy that was kept; ")


def test_what_may_not_be_read_is_never_ok_and_names_the_right(installed: Any, command: Run) -> None:
    for path in [path for path in installed.bodies if path != "/version"]:
        refuse(installed, path)
        installed.refuses[path] = installed.errors[path]
    result = command("doctor", "--before-upgrade", "-o", "json")
    assert result.exit_code == 0
    states = {row["check"]: row["state"] for row in rows(result)}
    assert states.pop("server") == "Ok"
    assert set(states.values()) == {"Unknown"}
    findings = {row["check"]: row["finding"] for row in rows(result)}
    assert findings["operator"] == "you may not get deployments.apps in namespace muster-system"
    del installed.errors[DEPLOYMENT]
    findings = {row["check"]: row["finding"] for row in rows(command("doctor", "-o", "json"))}
    assert findings["policy"] == findings["operator rights"] == "you may not list fleetpolicies.muster.dev"
    del installed.errors[POLICIES]
    findings = {row["check"]: row["finding"] for row in rows(command("doctor", "-o", "json"))}
    assert findings["operator rights"] == "you may not create subjectaccessreviews.authorization.k8s.io"
    refuse(installed, "/version")
    assert "you may not get /version" in command("doctor").stdout


def test_one_namespace_that_may_not_be_read_hides_no_other(installed: Any, command: Run) -> None:
    refuse(installed, PODS.format("muster-agent"))
    pods = [row for row in rows(command("doctor", "-o", "json")) if row["check"] == "pods"]
    assert [(row["state"], row["finding"]) for row in pods] == [
        ("Unknown", "you may not list pods in namespace muster-agent")
    ]


def test_without_an_installation_it_says_so(installed: Any, command: Run) -> None:
    for path in [path for path in installed.bodies if path != "/version"]:
        del installed.bodies[path]
    installed.put(REVIEWS, {"status": {"allowed": False}})
    result = command("doctor", "-o", "json")
    assert result.exit_code == 1
    operator = next(row for row in rows(result) if row["check"] == "operator")
    assert (operator["state"], operator["finding"]) == (
        "Wrong",
        "there is no Deployment muster in namespace muster-system",
    )
    assert "kubectl apply -k manifests/overlays/default" in operator["remedy"]
    assert {row["check"] for row in rows(result) if row["state"] == "Ok"} == {"server"}


def test_without_an_answer_it_ends_as_any_command(installed: Any, command: Run) -> None:
    installed.errors[DEPLOYMENT] = Unreachable(0, "Unreachable", "no answer")
    result = command("doctor")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: no answer from the API server of context prod")

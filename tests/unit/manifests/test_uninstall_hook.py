"""What the chart runs after `helm uninstall`: it has few rights, for a minute, and keeps nothing waiting."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from muster.answers.markednodes import REMOVING_COMMANDS
from muster.controller.unmark import LIMIT_SECONDS, OPERATOR_SECONDS
from muster.health.sources import UNHEALTHY_TAINT

ONLY_THEN = {
    "helm.sh/hook": "post-delete",
    "helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded,hook-failed",
}


@pytest.fixture(scope="module")
def hook(root: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((root / "manifests/chart/uninstall.yaml").read_text()))


def rules(hook: list[dict[str, Any]], kind: str) -> set[tuple[str, str, str]]:
    (role,) = (each for each in hook if each["kind"] == kind)
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_the_page_has_the_commands_for_where_no_hook_runs(root: Path) -> None:
    page = (root / "docs" / "install.md").read_text().partition("### Removing the operator alone")[2]
    commands = " ".join(page.partition("\n### ")[0].replace("\\\n", "").split())
    assert [command for command in REMOVING_COMMANDS if command not in commands] == []


def job(hook: list[dict[str, Any]]) -> Any:
    return next(each["spec"] for each in hook if each["kind"] == "Job")


def test_its_rights_are_to_find_marks_on_nodes_and_to_remove_them(hook: list[dict[str, Any]]) -> None:
    assert rules(hook, "ClusterRole") == {("", "nodes", "list"), ("", "nodes", "patch"), ("", "nodes/status", "patch")}
    assert rules(hook, "Role") == {("", "pods", "list")}
    assert {each["metadata"].get("namespace", "muster-system") for each in hook} == {"muster-system"}


def test_all_of_it_is_there_for_as_long_as_the_hook_runs(hook: list[dict[str, Any]]) -> None:
    assert len(hook) == 6
    for each in hook:
        assert ONLY_THEN.items() <= each["metadata"]["annotations"].items()


def test_the_account_and_its_roles_are_there_before_the_job(hook: list[dict[str, Any]]) -> None:
    weights = {each["kind"]: int(each["metadata"]["annotations"]["helm.sh/hook-weight"]) for each in hook}
    assert weights.pop("Job") > max(weights.values())


def test_it_is_over_within_a_minute_and_not_tried_again(hook: list[dict[str, Any]], deployment: Any) -> None:
    assert (job(hook)["activeDeadlineSeconds"], job(hook)["backoffLimit"]) == (60, 0)
    grace_seconds = deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace_seconds < OPERATOR_SECONDS < LIMIT_SECONDS < 60


def test_its_pod_is_as_restricted_as_the_operators(hook: list[dict[str, Any]], deployment: Any) -> None:
    pod, operator = job(hook)["template"]["spec"], deployment["spec"]["template"]["spec"]
    assert pod["securityContext"] == operator["securityContext"]
    assert pod["containers"][0]["securityContext"] == operator["containers"][0]["securityContext"]
    assert pod["serviceAccountName"] == "muster-uninstall"


def test_it_is_placed_as_the_operator_and_may_run_on_marked_nodes(hook: list[dict[str, Any]], deployment: Any) -> None:
    pod, operator = job(hook)["template"]["spec"], deployment["spec"]["template"]["spec"]
    for name in ("affinity", "priorityClassName"):
        assert pod[name] == operator[name]
    marked = {"key": UNHEALTHY_TAINT, "operator": "Exists"}
    assert pod["tolerations"] == [marked, *operator["tolerations"]]
    # A dead node has this taint twice: one evicts, the other keeps new pods away and must not be tolerated.
    dead = "node.kubernetes.io/unreachable"
    assert [it for it in pod["tolerations"] if it.get("key", dead) == dead and it.get("effect") != "NoExecute"] == []

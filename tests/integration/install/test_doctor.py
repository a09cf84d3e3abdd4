"""`kubectl muster doctor` on a real API server: what it asks about is there, and read as the API server has it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from localcluster.patience import PATIENCE_SECONDS

OPERATOR = Path(__file__).resolve().parents[3] / "operator"


def examine(kubeconfig: Path) -> dict[str, tuple[str, str]]:
    """State and finding of the first row of each check."""
    result = subprocess.run(
        [sys.executable, "-m", "muster.cli", "doctor", "--before-upgrade", "-o", "json"],
        env={**os.environ, "KUBECONFIG": str(kubeconfig), "PYTHONPATH": str(OPERATOR)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert result.stderr == ""
    rows = json.loads(result.stdout)["rows"]
    assert result.returncode == int(any(row["state"] == "Wrong" for row in rows))
    return {row["check"]: (row["state"], row["finding"]) for row in reversed(rows)}


def test_what_was_just_installed_is_as_it_has_to_be_but_for_what_has_no_kubelet(installation: Any) -> None:
    installation.start_leader()
    found = examine(installation.control_plane.kubeconfig)
    others = {check: finding for check, (state, finding) in found.items() if state != "Ok"}
    # No kubelet runs pods here, the overlay names no registry, and an API server on loopback has no EndpointSlice.
    assert others.keys() == {"network", "operator", "images", "replicas"}, found
    assert {check for check, (state, _) in found.items() if state == "Unknown"} == {"network"}
    assert others["images"] == "no registry is set for the image of: operator, launcher, agent"


def test_it_finds_the_binding_that_was_taken_away(installation: Any, wait_until: Callable[..., Any]) -> None:
    path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/muster-operator"
    binding = installation.api.get(path)
    installation.api.delete(path)

    def without_rights() -> dict[str, tuple[str, str]] | None:
        found = examine(installation.control_plane.kubeconfig)
        return found if found["operator rights"][0] == "Wrong" else None

    try:  # what a binding gave is gone a moment after it
        found = wait_until(without_rights, "the rights are gone")
    finally:
        metadata = {"name": "muster-operator", "labels": binding["metadata"]["labels"]}
        installation.apply({**binding, "metadata": metadata})
        wait_until(lambda: not without_rights(), "the rights are back")
    assert found["roles"] == ("Wrong", "ClusterRoleBinding muster-operator is missing")
    assert "see nodes (list nodes)" in found["operator rights"][1]


def test_as_the_operator_itself_it_names_the_rights_that_are_missing(installation: Any) -> None:
    found = examine(installation.kubeconfig())
    assert found["definitions"] == (
        "Unknown",
        "you may not get customresourcedefinitions.apiextensions.k8s.io",
    )
    unread = "Unknown", "you may not get deployments.apps in namespace muster-system"
    assert (found["operator rights"], found["policy"][0], found["jobs"]) == (unread, "Ok", unread)

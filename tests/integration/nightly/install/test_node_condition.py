"""The condition MusterHealthy: refused and told without its component, written with no other right than that brings."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[4]
RIGHTS = ROOT / "manifests" / "components" / "node-condition" / "rights.yaml"
TYPE = "MusterHealthy"


def test_the_right_of_the_component_is_what_it_takes(installation: Any, wait_until: Callable[..., Any]) -> None:
    record = {"apiVersion": "muster.dev/v1alpha1", "kind": "NodeHealth", "metadata": {"name": "node-a"}}
    human = {"decision": "Cordon", "reason": "a test", "user": "ann", "time": "2026-11-20T09:00:00Z"}

    def mine() -> list[Any]:
        conditions = installation.get("node", "node-a")["status"].get("conditions", [])
        return [each for each in conditions if each["type"] == TYPE]

    def refused() -> list[Any]:
        events = installation.get("events", "--all-namespaces")["items"]
        return [each for each in events if each["reason"] == "NodeConditionRefused"]

    installation.start_leader()
    installation.apply_policy({"health": {"nodeCondition": True}})
    installation.apply({**record, "spec": {"override": human}})
    try:
        [told] = wait_until(refused, "it is told that the right is missing")
        assert "components/node-condition" in told.get("note", told.get("message", ""))
        assert mine() == []
        installation.stop_all()
        installation.kubectl("apply", f"--filename={RIGHTS}")
        installation.start_leader()
        [condition] = wait_until(mine, "the condition")
        assert (condition["status"], condition["reason"]) == ("False", "Cordoned")
        installation.open_fleet()
        wait_until(lambda: not mine(), "it is taken away")
    finally:
        installation.kubectl("delete", f"--filename={RIGHTS}", "--ignore-not-found")
        installation.open_fleet()
        installation.kubectl("delete", "nodehealth", "node-a", "--ignore-not-found")

"""Uninstalling leaves nothing behind and never hangs, with a job in the cluster and no operator; it can be undone."""

from collections.abc import Callable
from pathlib import Path
from typing import Any


def test_uninstalling_takes_everything_and_waits_for_nobody(
    installation: Any, namespace: str, overlay: Path, wait_until: Callable[..., Any]
) -> None:
    replica = installation.start_leader()
    installation.apply(
        {
            "apiVersion": "muster.dev/v1alpha1",
            "kind": "TrainingJob",
            "metadata": {"name": "left-over", "namespace": namespace},
            "spec": {
                "nodes": 1,
                "template": {
                    "spec": {"containers": [{"name": "trainer", "image": "example.org/t:1", "command": ["python3"]}]}
                },
            },
        }
    )
    wait_until(lambda: installation.get("pods", f"--namespace={namespace}")["items"], "a worker")
    replica.kill()
    try:
        everywhere = ("--all", "--all-namespaces")
        installation.kubectl("delete", "trainingjobs", *everywhere, "--cascade=foreground", "--timeout=50s")
        assert installation.get("pods,gangs", f"--namespace={namespace}")["items"] == []
        installation.kubectl("delete", "-k", str(overlay), "--timeout=50s")
        left = installation.get("crds,clusterroles,clusterrolebindings")["items"]
        assert [item["metadata"]["name"] for item in left if "muster" in item["metadata"]["name"]] == []
    finally:
        installation.install()

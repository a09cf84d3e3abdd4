"""Uninstalling leaves nothing behind and never hangs, with a job in the cluster and no operator; it can be undone."""

from collections.abc import Callable
from pathlib import Path
from typing import Any


def test_uninstalling_takes_everything_and_waits_for_nobody(
    installation: Any, namespace: str, overlay: Path, wait_until: Callable[..., Any]
) -> None:
    replica = installation.start_leader()

    def workers(job: str) -> list[Any]:
        found: list[Any] = installation.get("pods", f"--namespace={namespace}", f"--selector=muster.dev/job={job}")[
            "items"
        ]
        return found

    installation.apply(_job("left-over", namespace))
    wait_until(lambda: workers("left-over"), "a worker")
    # The garbage collector takes a job's pods once it has seen them. When it has taken this one, it has seen the other.
    installation.apply(_job("earlier", namespace))
    wait_until(lambda: workers("earlier"), "another worker")
    installation.kubectl("delete", "trainingjob", "earlier", f"--namespace={namespace}")
    wait_until(lambda: not workers("earlier"), "the garbage collector has seen the pods")
    replica.kill()
    try:
        everywhere = ("--all", "--all-namespaces")
        installation.kubectl("delete", "trainingjobs", *everywhere, "--cascade=foreground", "--timeout=120s")
        assert installation.get("pods,gangs", f"--namespace={namespace}")["items"] == []
        # As docs/install.md has it: a namespace takes its objects along, some before kubectl comes to them.
        installation.kubectl("delete", "-k", str(overlay), "--ignore-not-found", "--timeout=120s")
        left = installation.get("crds,clusterroles,clusterrolebindings")["items"]
        assert [item["metadata"]["name"] for item in left if "muster" in item["metadata"]["name"]] == []
    finally:
        installation.install()


def _job(name: str, namespace: str) -> dict[str, Any]:
    container = {"name": "trainer", "image": "example.org/t:1", "command": ["python3"]}
    return {
        "apiVersion": "muster.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"nodes": 1, "template": {"spec": {"containers": [container]}}},
    }

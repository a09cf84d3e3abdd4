"""Uninstalling leaves nothing behind and never hangs, with a job in the cluster and no operator; it can be undone.

An installation takes over what it finds: definitions that were part of an overlay once, and namespaces of others.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.integration.install.manifests import a_job

CRDS = Path(__file__).resolve().parents[3] / "crds"
ENFORCE = "pod-security.kubernetes.io/enforce"
LEVELS = {"muster-system": "baseline", "muster-agent": "restricted"}  # that somebody has set before


def test_uninstalling_takes_everything_and_what_is_there_later_is_taken_over(
    installation: Any, namespace: str, overlay: Path, definitions: Path, wait_until: Callable[..., Any]
) -> None:
    replica = installation.start_leader()

    def workers(job: str) -> list[Any]:
        found: list[Any] = installation.get("pods", f"--namespace={namespace}", f"--selector=muster.dev/job={job}")[
            "items"
        ]
        return found

    installation.apply(a_job("left-over", namespace, nodes=1))
    wait_until(lambda: workers("left-over"), "a worker")
    # The garbage collector takes a job's pods once it has seen them. When it has taken this one, it has seen the other.
    installation.apply(a_job("earlier", namespace, nodes=1))
    wait_until(lambda: workers("earlier"), "another worker")
    installation.kubectl("delete", "trainingjob", "earlier", f"--namespace={namespace}")
    wait_until(lambda: not workers("earlier"), "the garbage collector has seen the pods")
    replica.kill()
    try:
        everywhere = ("--all", "--all-namespaces")
        installation.kubectl("delete", "trainingjobs", *everywhere, "--cascade=foreground", "--timeout=120s")
        assert installation.get("pods,gangs", f"--namespace={namespace}")["items"] == []
        # As docs/install.md has it: a namespace takes its objects along, some before kubectl comes to them.
        for part in (overlay, definitions):
            installation.kubectl("delete", "-k", str(part), "--ignore-not-found", "--timeout=120s")
        left = installation.get("crds,clusterroles,clusterrolebindings")["items"]
        assert [item["metadata"]["name"] for item in left if "muster" in item["metadata"]["name"]] == []
        wait_until(lambda: LEVELS.keys().isdisjoint(_namespaces(installation)), "the namespaces are gone")
        things = _make_as_before(installation, namespace)
        uids = [installation.get(*each)["metadata"]["uid"] for each in things]
    finally:
        installation.install()
    assert [installation.get(*each)["metadata"]["uid"] for each in things] == uids
    levels = {name: installation.get("namespace", name)["metadata"]["labels"][ENFORCE] for name in LEVELS}
    assert levels == {"muster-system": "restricted", "muster-agent": "privileged"}
    definition = installation.get("crd", "trainingjobs.muster.dev")
    assert definition["metadata"]["annotations"]["kustomize.toolkit.fluxcd.io/prune"] == "disabled"
    for kind, *name in things:
        installation.kubectl("delete", kind, *name)


def _make_as_before(installation: Any, namespace: str) -> tuple[tuple[str, ...], ...]:
    """Have definitions as an overlay of before has made them, with a job, and namespaces that somebody has made."""
    installation.kubectl("apply", "-k", str(CRDS))
    installation.kubectl("wait", "--for=condition=Established", "-f", str(CRDS))
    for name, level in LEVELS.items():
        labels = {ENFORCE: level}
        installation.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    installation.kubectl("create", "secret", "generic", "pull", "--namespace=muster-system")
    installation.apply(a_job("before", namespace))
    return ("trainingjob", "before", f"--namespace={namespace}"), ("secret", "pull", "--namespace=muster-system")


def _namespaces(installation: Any) -> set[str]:
    return {each["metadata"]["name"] for each in installation.get("namespaces")["items"]}

"""Deleting the overlay takes the operator and leaves all that it has recorded; the next operator goes on with it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from tests.integration.install.manifests import a_job

ROOT = Path(__file__).resolve().parents[3]
NODES_HEALTH = {"apiVersion": "muster.dev/v1alpha1", "kind": "NodeHealth", "metadata": {"name": "node-a"}, "spec": {}}
REQUEST = {
    "apiVersion": "muster.dev/v1alpha1",
    "kind": "RepairRequest",
    "metadata": {"name": "node-a"},
    "spec": {"node": "node-a", "action": "Reboot", "reason": "Xid79", "incidentTime": "2026-11-20T09:00:00Z"},
}


def test_what_is_recorded_outlives_the_overlay_and_the_next_operator_takes_it_up(
    installation: Any, namespace: str, overlay: Path, wait_until: Callable[..., Any]
) -> None:
    here, system = f"--namespace={namespace}", f"--namespace={installation.namespace}"

    def workers(job: str = "stays") -> dict[str, str]:
        return _uids(installation.get("pods", here, f"--selector=muster.dev/job={job}"))

    def gang() -> Any:
        (found,) = installation.get("gangs", here)["items"]
        return found

    replica = installation.start_leader()
    _end_a_job(installation, here, wait_until)
    installation.apply(a_job("stays", namespace))
    wait_until(lambda: len(workers()) == 2, "two workers")
    assert replica.terminate() == 0
    for manifest in (NODES_HEALTH, REQUEST):  # an operator that leads would have no reason for the latter
        installation.apply(manifest)
    before, trained, record = _kept(installation, system), workers(), gang()
    installation.kubectl("delete", "-k", str(overlay), "--ignore-not-found")
    wait_until(lambda: not installation.operator_pods(), "the operator's pods are gone")
    assert installation.get("deployments,services,roles", system)["items"] == []
    assert _kept(installation, system) == before
    assert workers() == trained
    installation.install_operator()
    installation.start_leader()
    installation.kubectl("patch", "trainingjob", "stays", here, "--type=merge", '--patch={"spec":{"suspend":true}}')
    wait_until(lambda: not workers(), "the next operator suspends the gang that it has found")
    assert gang()["metadata"]["uid"] == record["metadata"]["uid"]
    assert gang()["spec"]["attempt"] == record["spec"]["attempt"] + 1, "it goes on counting"
    installation.kubectl("delete", "trainingjobs", "--all", here)
    installation.kubectl("delete", "nodehealths,repairrequests", "--all")


def _end_a_job(installation: Any, here: str, wait_until: Callable[..., Any]) -> None:
    """Have a Plain job that ends and is deleted: its account stays."""
    plain = a_job("ends", here.partition("=")[2], nodes=1, launch={"mode": "Plain"})
    installation.apply({**plain, "spec": {**plain["spec"], "completion": {"ttlSecondsAfterFinished": 0}}})
    pods = lambda: installation.get("pods", here, "--selector=muster.dev/job=ends")["items"]  # noqa: E731
    [pod] = wait_until(pods, "a Plain worker")
    for phase in ("Running", "Succeeded"):
        patch = f'--patch={{"status":{{"phase":"{phase}"}}}}'
        installation.kubectl(
            "patch", "pod", pod["metadata"]["name"], here, "--subresource=status", "--type=merge", patch
        )
    kinds = ("trainingjobs", "gangs", "pods")
    wait_until(lambda: not any(installation.get(kind, here)["items"] for kind in kinds), "it is deleted")


def _kept(installation: Any, system: str) -> dict[str, dict[str, str]]:
    """The uids of every custom object by kind, and of what is in Muster's namespace."""
    kinds = [yaml.safe_load(path.read_text())["spec"]["names"]["plural"] for path in (ROOT / "crds").glob("*.yaml")]
    found = {kind: _uids(installation.get(f"{kind}.muster.dev", "--all-namespaces")) for kind in kinds}
    assert len(kinds) == 6
    assert all(found.values()), f"there is no object of some kind: {found}"
    secrets = _uids(installation.get("secrets", system))
    assert {"muster-coordinator-ca", "muster-coordinator-tls"} <= secrets.keys()
    uid = installation.get("namespace", installation.namespace)["metadata"]["uid"]
    maps = _uids(installation.get("configmaps", system))
    return {**found, "secrets": secrets, "configmaps": maps, "namespace": {installation.namespace: uid}}


def _uids(listed: Any) -> dict[str, str]:
    return {item["metadata"]["name"]: item["metadata"]["uid"] for item in listed["items"]}

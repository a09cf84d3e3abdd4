"""What `kubectl muster uninstall --dry-run` lists is what the documented removal takes and leaves.

An installation with every component, and an operator that has made each kind of thing. What has a name, a label or a
mark of Muster's is looked for in every kind that the API server has, before and after. A kind that the command does not
know is found there, and in no row.
"""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.integration.install.conftest import add_node
from tests.integration.install.manifests import a_job
from tests.integration.kubectl import kubectl_of

from localcluster.patience import PATIENCE_SECONDS
from muster.cli.leftovers import OWN_NAMESPACES

ROOT = Path(__file__).resolve().parents[4]
COMPONENTS = ("node-taint", "node-condition", "checkers", "page")
SICK = "node-sick"
Thing = tuple[str, str, str]  # kind, NAMESPACE/NAME, and what of it is Muster's where the object itself is not
# What Kubernetes makes of a listed object, and takes away with it.
DERIVED = {"APIService", "Endpoints", "EndpointSlice"}


@pytest.fixture
def everything(installation: Any, tmp_path: Path, wait_until: Callable[..., Any]) -> Iterator[Path]:
    """The overlay of an installation with each component that has objects of its own; afterwards the usual one."""
    path = lambda part: os.path.relpath(ROOT / "manifests" / part, tmp_path.resolve())  # noqa: E731
    components = [path(f"components/{each}") for each in COMPONENTS]
    kustomization = {"resources": [path("overlays/default")], "components": components}
    (tmp_path / "kustomization.yaml").write_text(json.dumps(kustomization))
    installation.kubectl("apply", "-k", str(tmp_path))
    add_node(installation, SICK)
    yield tmp_path
    installation.stop_all()
    installation.kubectl("delete", "node", SICK)
    # After a failure it is there still, and two pods more, which no kubelet makes ready.
    installation.kubectl("delete", "-k", str(tmp_path), "--ignore-not-found")
    wait_until(lambda: not installation.operator_pods(), "the operator's pods are gone")
    installation.install()


def test_what_is_listed_is_what_the_removal_takes_and_leaves(
    installation: Any, namespace: str, everything: Path, wait_until: Callable[..., Any]
) -> None:
    replica = installation.start_leader(MUSTER_CHECKER_NAMESPACE="muster-check")
    _make_each_kind_of_thing(installation, namespace, wait_until)
    replica.kill()
    plan = _plan(installation)
    taken = {thing for step in plan["steps"] for thing in _listed(step["rows"])}
    stays = _listed(plan["stays"])
    assert {kind for kind, _, _ in taken} >= {
        *("TrainingJob", "Gang", "Pod", "Service", "ConfigMap", "PodDisruptionBudget", "EndedJob", "Secret", "Lease"),
        *("Node", "ClusterRole", "RoleBinding", "ValidatingAdmissionPolicy", "CustomResourceDefinition", "Namespace"),
    }
    assert _unlisted(installation, taken | stays) == set()
    _remove_as_documented(installation, everything)
    wait_until(lambda: OWN_NAMESPACES.keys().isdisjoint(_namespaces(installation)), "the namespaces are gone")
    wait_until(lambda: _derived(installation) == set(), "what Kubernetes has made of them is gone")
    assert _found(installation) == stays
    assert stays == {
        ("Node", SICK, "condition MusterHealthy"),
        ("Node", "node-a", "label topology.muster.dev/rack"),
        ("Namespace", namespace, "label muster.dev/training"),
        ("ClusterRoleBinding", "auditors", ""),
        ("RoleBinding", f"{namespace}/readers", ""),
    }
    installation.kubectl("label", "node", "node-a", "topology.muster.dev/rack-")
    installation.kubectl("delete", "clusterrolebinding", "auditors")


def _make_each_kind_of_thing(installation: Any, namespace: str, wait_until: Callable[..., Any]) -> None:
    """Have an administrator and the operator make all that Muster can have on an API server."""
    here = f"--namespace={namespace}"
    installation.kubectl("label", "node", "node-a", "topology.muster.dev/rack=r1")
    installation.kubectl("label", "namespace", namespace, "muster.dev/training=enabled")
    installation.kubectl("create", "clusterrolebinding", "auditors", "--clusterrole=muster-fleet-view", "--user=ann")
    installation.kubectl("create", "rolebinding", "readers", "--clusterrole=muster-view", "--user=ann", here)
    health = {"enforcement": "Nodes", "nodeCondition": True, "repair": {"actions": ["Reboot"]}}
    installation.apply_policy({"health": health})

    def pods(job: str) -> list[str]:
        found = installation.get("pods", here, f"--selector=muster.dev/job={job}")["items"]
        return [pod["metadata"]["name"] for pod in found]

    def becomes(pod: str, phase: str) -> None:
        status = f'--patch={{"status":{{"phase":"{phase}"}}}}'
        installation.kubectl("patch", "pod", pod, here, "--subresource=status", "--type=merge", status)

    plain = {"launch": {"mode": "Plain"}}
    installation.apply(a_job("ends", namespace, nodes=1, **plain, completion={"ttlSecondsAfterFinished": 0}))
    [pod] = wait_until(lambda: pods("ends"), "a Plain worker")
    becomes(pod, "Running")
    becomes(pod, "Succeeded")
    wait_until(lambda: not installation.get("trainingjobs", here)["items"], "a job has ended, and its account is kept")
    installation.apply(a_job("plain", namespace, nodes=1, **plain))
    installation.apply(a_job("managed", namespace, nodes=1, checkpoint={"directory": "/ckpt"}))
    [pod] = wait_until(lambda: pods("plain"), "a Plain worker")
    wait_until(lambda: pods("managed"), "a Managed worker")
    becomes(pod, "Running")
    kinds = "services,configmaps,poddisruptionbudgets"
    made = lambda: {each["kind"] for each in installation.get(kinds, here, "--selector=muster.dev/job-uid")["items"]}  # noqa: E731
    wait_until(lambda: len(made()) == 3, "what workers share")
    _make_a_node_sick(installation, wait_until)


def _make_a_node_sick(installation: Any, wait_until: Callable[..., Any]) -> None:
    """Have the operator taint it, tell its condition, and ask for its repair."""
    now = datetime.now(UTC).isoformat()
    evidence = {"kind": "Xid", "code": 79, "subject": "GPU-1", "firstSeen": now, "lastSeen": now, "bootId": "1"}
    record = {"apiVersion": "muster.dev/v1alpha1", "kind": "NodeHealth", "metadata": {"name": SICK}, "spec": {}}
    installation.apply(record)
    status = json.dumps({"status": {"evidence": [evidence], "agent": {"version": "test", "bootId": "1"}}})
    installation.kubectl("patch", "nodehealth", SICK, "--subresource=status", "--type=merge", f"--patch={status}")
    marks = {("Node", SICK, "taint muster.dev/unhealthy"), ("Node", SICK, "condition MusterHealthy")}
    wait_until(lambda: marks <= _things([installation.get("node", SICK)]), "the taint and the condition")
    wait_until(lambda: installation.get("repairrequests")["items"], "a reboot is asked for")


def _plan(installation: Any) -> Any:
    command = [sys.executable, "-m", "muster.cli", "uninstall", "--dry-run", "--output=json"]
    kubeconfig = f"--kubeconfig={installation.control_plane.kubeconfig}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "operator")}
    done = subprocess.run(
        [*command, kubeconfig], env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _listed(rows: list[Any]) -> set[Thing]:
    """What is on the API server of what the command has listed; it may read everything."""
    assert [row for row in rows if row.get("unread")] == []
    there = [row for row in rows if row["place"] != "Directories"]
    return {(row["kind"], each["name"], row.get("mark", "")) for row in there for each in row["objects"]}


def _remove_as_documented(installation: Any, overlay: Path) -> None:
    """Run the commands of the page, with the overlay that is applied here."""
    page = (ROOT / "docs" / "install.md").read_text().partition("\n### Removing everything\n")[2].partition("\n#")[0]
    lines = [line.partition("  #")[0] for line in page.splitlines() if line.startswith("    kubectl ")]
    assert len(lines) == 7
    places = {"manifests/overlays/default": str(overlay)}
    for line in lines:
        words = shlex.split(line.partition(" > ")[0])[1:]
        words = [places.get(word, str(ROOT / word) if word.startswith("manifests/") else word) for word in words]
        done = kubectl_of(installation.control_plane)(*words)
        # The taint is "not found" on nodes without it.
        assert done.returncode == 0 or words[0] == "taint", f"{line}: {done.stderr}"


def _found(installation: Any) -> set[Thing]:
    """Everything on the API server with a name, a label or a mark of Muster's; its Events expire by themselves."""
    kinds = installation.kubectl("api-resources", "--verbs=list", "--output=name").split()
    kinds = [kind for kind in kinds if kind not in ("events", "events.events.k8s.io")]
    return _things(installation.get(",".join(kinds), "--all-namespaces")["items"])


def _unlisted(installation: Any, listed: set[Thing]) -> set[Thing]:
    """What is found and not listed, but for what is in namespaces of Muster's, and what Kubernetes has derived."""
    found = {thing for thing in _found(installation) if thing[1].partition("/")[0] not in OWN_NAMESPACES}
    own = {(kind, name, mark) for kind, name, mark in listed if kind == "Namespace" and name in OWN_NAMESPACES}
    assert {name for _, name, _ in own} == OWN_NAMESPACES.keys()
    of_kinds = {(kind, name) for kind, name, _ in listed if kind == "CustomResourceDefinition"}
    assert len(of_kinds) == 6
    counted = {"FleetPolicy", "NodeHealth", "RepairRequest"}  # cluster-wide: the rows of their definitions count them
    return {thing for thing in found - listed if thing[0] not in DERIVED | counted}


def _derived(installation: Any) -> set[Thing]:
    return {thing for thing in _found(installation) if thing[0] in DERIVED}


def _namespaces(installation: Any) -> set[str]:
    return {each["metadata"]["name"] for each in installation.get("namespaces")["items"]}


def _things(objects: list[Any]) -> set[Thing]:
    return {(each["kind"], _place(each["metadata"]), mark) for each in objects for mark in _marks(each)}


def _place(metadata: Any) -> str:
    return "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))


def _marks(each: Any) -> Iterator[str]:
    """What of an object is Muster's; "" where it is the object as a whole."""
    metadata = each["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    if each["kind"] not in ("Node", "Namespace") or metadata["name"] in OWN_NAMESPACES:
        annotations = {key: value for key, value in annotations.items() if "last-applied" not in key}
        owners = metadata.get("ownerReferences")
        named = [each["apiVersion"], _place(metadata), labels, annotations, owners, each.get("roleRef")]
        yield from [""] * ("muster" in json.dumps(named))
        return
    yield from (f"label {key}" for key in labels if "muster" in key)
    yield from (f"annotation {key}" for key in annotations if "muster" in key)
    yield from (f"taint {it['key']}" for it in (each["spec"].get("taints") or ()) if "muster" in it["key"])
    conditions = each.get("status", {}).get("conditions") or ()
    yield from (f"condition {it['type']}" for it in conditions if "muster" in it["type"].lower())

"""A healthy installation behind the API double: what the manifests hold, with the status that a cluster gives it."""

import asyncio
import copy
import functools
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from tests.unit.manifests.builders import objects_of

from muster import __version__
from muster.api.base import rfc3339
from muster.cli.doctor_rows import ClusterReader, DoctorRow, UnreadableError
from muster.kube import paths
from muster.kube.errors import Forbidden

ROOT = Path(__file__).resolve().parents[3]
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
SYSTEM = "muster-system"
DEPLOYMENT = "/apis/apps/v1/namespaces/muster-system/deployments/muster"
DAEMON = "/apis/apps/v1/namespaces/muster-agent/daemonsets/muster-agent"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/muster-system/leases/muster-leader"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
POLICIES = "/apis/muster.dev/v1alpha1/fleetpolicies"
HEALTHS = "/apis/muster.dev/v1alpha1/nodehealths"
JOBS = "/apis/muster.dev/v1alpha1/trainingjobs"
KINDS = "/apis/muster.dev/v1alpha1"
GANGS = "/apis/muster.dev/v1alpha1/gangs"
PODS = "/api/v1/namespaces/{}/pods"
ALL_PODS = "/api/v1/pods"
NETWORK = "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
_PLURALS = {
    "FleetPolicy": "fleetpolicies",
    "NetworkPolicy": "networkpolicies",
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
}


def documents(*patterns: str) -> list[dict[str, Any]]:
    """The objects of manifests, by patterns of their files; each call returns objects of its own."""
    parts: list[dict[str, Any]] = json.loads(_documents(patterns))
    return parts


@functools.cache
def _documents(patterns: tuple[str, ...]) -> str:
    files = sorted(path for pattern in patterns for path in ROOT.glob(pattern))
    parts = [part for path in files for part in yaml.load_all(path.read_text(), Loader=yaml.CSafeLoader)]
    return json.dumps([part for part in parts if part and part["kind"] != "Kustomization"])


def installed_objects(overlay: str) -> list[dict[str, Any]]:
    """The objects of an overlay; each call returns objects of its own."""
    parts: list[dict[str, Any]] = json.loads(_installed_objects(overlay))
    return parts


@functools.cache
def _installed_objects(overlay: str) -> str:
    return json.dumps(objects_of(ROOT / "manifests" / "overlays" / overlay))


def path_of(manifest: dict[str, Any]) -> str:
    """The path of an object of a manifest."""
    plural = _PLURALS.get(manifest["kind"], manifest["kind"].lower() + "s")
    metadata = manifest["metadata"]
    version, namespace, name = manifest["apiVersion"], metadata.get("namespace", ""), metadata["name"]
    if "/" in version:
        return paths.group(version, plural, namespace=namespace, name=name)
    return paths.core(plural, namespace=namespace, name=name)


def install(api: Any) -> None:
    """Make the API double answer as a cluster with two nodes, on which all is well."""
    manifests = documents("crds/*.yaml", "manifests/fleetpolicy.yaml")
    for manifest in [*manifests, *installed_objects("default")]:
        api.put(path_of(manifest), manifest)
    api.is_at(NOW)
    api.put("/version", {"gitVersion": "v1.36.3", "major": "1", "minor": "36"})
    api.put(REVIEWS, {"status": {"allowed": True}})
    with_images(api, __version__, __version__)
    api.bodies[DEPLOYMENT]["status"] = {"availableReplicas": 2}
    api.bodies[DAEMON]["status"] = {"numberReady": 2, "desiredNumberScheduled": 2}
    renewed_at(api, NOW - timedelta(seconds=1), NOW - timedelta(seconds=1))
    for namespace, name in ((SYSTEM, "muster"), ("muster-agent", "muster-agent")):
        api.lists(PODS.format(namespace), a_pod(f"{name}-1"), a_pod(f"{name}-2"))
        api.lists(NETWORK.format(namespace), api.bodies[f"{NETWORK.format(namespace)}/{name}"])
    api.lists(SLICES, {"endpoints": [{"addresses": ["10.0.0.2"]}], "ports": [{"port": 6443}]})
    api.lists("/api/v1/nodes", *(a_node(name) for name in ("gpu-1", "gpu-2")))
    api.lists(HEALTHS, *(a_health(name) for name in ("gpu-1", "gpu-2")))
    api.lists("/api/v1/namespaces", a_namespace("default"), a_namespace("team-a", {"muster.dev/training": "enabled"}))
    policy = copy.deepcopy(api.bodies[f"{POLICIES}/default"])
    policy["metadata"]["resourceVersion"] = "1"
    policy["spec"]["queueing"]["limits"] = [{"namespace": "team-a", "nodes": 8}]
    api.lists(POLICIES, policy)
    api.lists(JOBS, a_job("llama"))
    api.lists(GANGS)
    api.lists(ALL_PODS)
    api.put(
        KINDS, {"resources": [{"name": kind} for kind in ("fleetpolicies", "nodehealths", "trainingjobs", "gangs")]}
    )


def with_images(api: Any, operator: str, agent: str, registry: str = "registry.example.org") -> None:
    """Set the tags of the images, and where they are."""
    container = api.bodies[DEPLOYMENT]["spec"]["template"]["spec"]["containers"][0]
    container["image"] = f"{registry}/operator:{operator}"
    next(it for it in container["env"] if it["name"] == "MUSTER_LAUNCHER_IMAGE")["value"] = (
        f"{registry}/launcher:{operator}"
    )
    api.bodies[DAEMON]["spec"]["template"]["spec"]["containers"][0]["image"] = f"{registry}/agent:{agent}"


def renewed_at(api: Any, by_leader: datetime, by_server: datetime | None) -> None:
    """Set when the lease was renewed, by the clocks of the leader and of the API server."""
    fields = [] if by_server is None else [{"manager": "python", "time": by_server.strftime("%Y-%m-%dT%H:%M:%SZ")}]
    spec = {"holderIdentity": "muster-1_0a1b", "leaseDurationSeconds": 15, "renewTime": rfc3339(by_leader)}
    api.put(LEASE, {"metadata": {"name": "muster-leader", "managedFields": fields}, "spec": spec})


def set_variable(api: Any, name: str, value: str) -> None:
    """Set an environment variable of the operator; "" removes it."""
    container = api.bodies[DEPLOYMENT]["spec"]["template"]["spec"]["containers"][0]
    container["env"] = [it for it in container["env"] if it["name"] != name]
    if value:
        container["env"].append({"name": name, "value": value})


def a_pod(name: str, node: str = "gpu-1", **status: Any) -> dict[str, Any]:
    running = {"containerStatuses": [{"state": {"running": {}}, "restartCount": 0}]}
    return {"metadata": {"name": name}, "spec": {"nodeName": node}, "status": status or running}


def a_worker_pod(job: str, node: str = "gpu-1") -> dict[str, Any]:
    """A pod of a job, as the API server has it."""
    labels, owners = {"muster.dev/job-uid": f"uid-{job}"}, [{"controller": True, "uid": f"uid-{job}"}]
    metadata = {"name": f"{job}-0", "namespace": "team-a", "uid": f"pod-{job}", "resourceVersion": "1"}
    return {"metadata": {**metadata, "labels": labels, "ownerReferences": owners}, "spec": {"nodeName": node}}


def a_node(name: str, labels: dict[str, str] | None = None) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": "1", "labels": labels or {"kubernetes.io/os": "linux"}}}


def a_namespace(name: str, labels: dict[str, str] | None = None) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": name, "resourceVersion": "1", "labels": labels or {}}}


def a_health(name: str, problem: str = "", *findings: dict[str, Any], **spec: Any) -> dict[str, Any]:
    status = {"agent": {"version": "0.1.0", "problem": problem}, "findings": list(findings)}
    return {"metadata": {"name": name, "resourceVersion": "1"}, "spec": spec, "status": status}


def a_job(name: str, state: str = "Running", reason: str = "Training", **spec: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "main", "image": "trainer:1"}]}}
    metadata = {"name": name, "namespace": "team-a", "uid": f"uid-{name}", "resourceVersion": "1"}
    return {
        "metadata": metadata,
        "spec": {"nodes": 2, "template": template, **spec},
        "status": {"state": state, "reason": reason},
    }


def a_gang(name: str, *nodes: str, ejected: bool = False) -> dict[str, Any]:
    """The record of job `name`, with a member on each of these nodes."""
    members = [{"node": node} for node in nodes]
    spec = {"jobUid": f"uid-{name}", "attempt": 1, "time": rfc3339(NOW), "level": "R2", "reason": "NodeLost"}
    return {
        "metadata": {"name": name, "namespace": "team-a", "uid": f"gang-{name}", "resourceVersion": "1"},
        "spec": {**spec, "members": members, "ejected": ejected},
    }


def refuse(api: Any, path: str) -> None:
    api.errors[path] = Forbidden(403, "Forbidden", "no")


def rows_of(api: Any, check: Callable[[ClusterReader], Awaitable[list[DoctorRow]]]) -> list[tuple[str, str, str]]:
    """State, finding and remedy of each row of a check."""

    async def run() -> list[DoctorRow]:
        return await check(ClusterReader(api))

    return [(row.state, row.finding, row.remedy) for row in asyncio.run(run())]


def only_wrong(api: Any, check: Callable[[ClusterReader], Awaitable[list[DoctorRow]]]) -> tuple[str, str]:
    """Finding and remedy of the one thing that a check finds wrong."""
    ((state, finding, remedy),) = rows_of(api, check)
    assert state == "Wrong"
    assert remedy
    return finding, remedy


def unread(api: Any, check: Callable[[ClusterReader], Awaitable[list[DoctorRow]]]) -> tuple[str, str]:
    """Finding and remedy of a check that cannot read what it needs."""
    try:
        rows = rows_of(api, check)
    except UnreadableError as error:
        return error.finding, error.remedy
    raise AssertionError(rows)

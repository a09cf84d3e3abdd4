"""Manifests to start from, ways to change them, and kubectl the way a careful user calls it."""

import copy
import json
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from apidocs import render
from localcluster.api import ApiError, wait_for
from localcluster.controlplane import ControlPlane
from localcluster.patience import PATIENCE_SECONDS

Manifest = dict[str, Any]

ROOT = Path(__file__).parents[3]
POLICIES = "/apis/muster.dev/v1alpha1/fleetpolicies"

RESOURCES = {resource.kind: resource for resource in render.RESOURCES}
WITHOUT = object()
"""As a new value: take the field away."""

TIME = "2026-01-31T12:00:00.000000Z"

SMALLEST: Mapping[str, Manifest] = {
    "TrainingJob": {
        "apiVersion": "muster.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": "small"},
        "spec": {
            "nodes": 2,
            "template": {
                "spec": {
                    "containers": [
                        {"name": "trainer", "image": "example.org/trainer:1", "command": ["python3", "t.py"]}
                    ]
                }
            },
        },
    },
    "Gang": {
        "apiVersion": "muster.dev/v1alpha1",
        "kind": "Gang",
        "metadata": {"name": "small"},
        "spec": {"jobUid": "7f3b", "attempt": 2, "time": TIME, "level": "R0", "reason": "ProcessExited"},
    },
    "EndedJob": {
        "apiVersion": "muster.dev/v1alpha1",
        "kind": "EndedJob",
        "metadata": {"name": "7f3b"},
        "spec": {
            "jobUid": "7f3b",
            "namespace": "team-a",
            "name": "small",
            "creationTime": TIME,
            "endTime": TIME,
            "state": "Succeeded",
        },
    },
    "FleetPolicy": {"apiVersion": "muster.dev/v1alpha1", "kind": "FleetPolicy", "metadata": {"name": "default"}},
    "NodeHealth": {"apiVersion": "muster.dev/v1alpha1", "kind": "NodeHealth", "metadata": {"name": "node-1.example"}},
    "RepairRequest": {
        "apiVersion": "muster.dev/v1alpha1",
        "kind": "RepairRequest",
        "metadata": {"name": "node-1.example"},
        "spec": {"node": "node-1.example", "action": "Reboot", "incidentTime": TIME},
    },
}


def changed(manifest: Manifest, changes: Mapping[str, Any]) -> Manifest:
    """A copy with the values at some paths (`spec.levels[0].name`) replaced, or taken away by `WITHOUT`."""
    result = copy.deepcopy(manifest)
    for path, value in changes.items():
        *parents, last = [int(step) if step.isdigit() else step for step in re.findall(r"[^.\[\]]+", path)]
        place: Any = result
        for step in parents:
            place = place.setdefault(step, {}) if isinstance(place, dict) else place[step]
        if value is WITHOUT:
            del place[last]
        else:
            place[last] = value
    return result


@pytest.fixture(scope="session")
def without() -> object:
    return WITHOUT


@pytest.fixture(scope="session")
def manifest() -> Callable[..., Manifest]:
    """`manifest(kind, changes)`: the smallest valid manifest of a kind, changed."""

    def make(kind: str, changes: Mapping[str, Any] | None = None) -> Manifest:
        return changed(SMALLEST[kind], changes or {})

    return make


@pytest.fixture(scope="session")
def change() -> Callable[[Manifest, Mapping[str, Any]], Manifest]:
    return changed


@pytest.fixture(scope="session")
def apply(kubectl: Callable[..., Any]) -> Callable[..., Any]:
    """`kubectl apply` as a user does it: from the client's side, unknown fields refused."""

    def run(manifest: Manifest, *arguments: str) -> Any:
        return kubectl("apply", "--validate=strict", "-f", "-", *arguments, stdin=yaml.safe_dump(manifest))

    return run


@pytest.fixture(scope="session")
def tried(api_server: ControlPlane) -> Callable[..., tuple[Manifest, str]]:
    """`tried(manifest)`: what the API server would store, and "" or what it says against that.

    `tried(manifest, changes)` is about the object of this manifest, which exists, with the values at some paths
    replaced; None takes a field away. Without changes, `tried(manifest, status=...)` writes its status. The requests
    are those that `kubectl apply --dry-run=server --validate=strict` makes; a process of kubectl for each of some 1,400
    manifests would take minutes.
    """

    def ask(
        manifest: Manifest, changes: Mapping[str, Any] | None = None, *, status: Manifest | None = None
    ) -> tuple[Manifest, str]:
        resource = RESOURCES[manifest["kind"]]
        place = f"namespaces/default/{resource.plural}" if resource.scope == "Namespaced" else resource.plural
        path, query = f"/apis/{manifest['apiVersion']}/{place}", "?dryRun=All&fieldValidation=Strict"
        one = f"{path}/{manifest['metadata']['name']}"
        api = api_server.api
        try:
            if status is not None:
                return api.merge(f"{one}/status{query}", {"status": status}), ""
            if changes is None:
                return api.create(path + query, manifest), ""
            return api.merge(one + query, {"spec": changed(manifest, changes)["spec"]}), ""
        except ApiError as error:
            if error.code not in (400, 422):  # no answer, or no right: that is no refusal of the object
                raise
            message: str = json.loads(str(error).partition(f": {error.code} ")[2])["message"]
            return {}, message

    return ask


@pytest.fixture(scope="session")
def refusal(tried: Callable[..., tuple[Manifest, str]]) -> Callable[[Manifest], str]:
    """`refusal(manifest)`: what the API server says against creating it, "" if it accepts."""
    return lambda manifest: tried(manifest)[1]


@pytest.fixture(scope="module")
def admission(kubectl: Callable[..., Any], api_server: ControlPlane, manifest: Callable[..., Any]) -> Iterator[None]:
    """The policy is in force meanwhile, and no longer: the API server obeys a deleted one for a moment."""
    path = str(ROOT / "manifests" / "components" / "jobs" / "training-admission.yaml")
    made = kubectl("apply", "--validate=strict", "-f", path)
    assert made.returncode == 0, made.stderr
    yield
    kubectl("delete", "-f", path)
    namespace = f"test-{uuid.uuid4().hex[:8]}"
    api_server.api.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    path, job = f"/apis/muster.dev/v1alpha1/namespaces/{namespace}/trainingjobs", manifest("TrainingJob")
    wait_for(lambda: api_server.api.would_create(path, job), "jobs to be created as before", PATIENCE_SECONDS)


@pytest.fixture
def fleet_policy(api_server: ControlPlane) -> Iterator[Callable[[dict[str, Any]], None]]:
    """`fleet_policy(spec)`: the fleet has this policy meanwhile."""
    api = api_server.api

    def create(spec: dict[str, Any]) -> None:
        api.create(POLICIES, {**SMALLEST["FleetPolicy"], "spec": spec})

    yield create
    api.delete(f"{POLICIES}/default")

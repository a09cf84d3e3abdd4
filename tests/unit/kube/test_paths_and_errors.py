"""Paths, resource names for metrics, and errors by type."""

import json

import pytest

from muster.kube import errors, paths
from muster.kube.version import UnsupportedServerError, require


@pytest.mark.parametrize(
    ("path", "want", "resource"),
    [
        (paths.core("nodes"), "/api/v1/nodes", "nodes"),
        (paths.core("pods", namespace="x"), "/api/v1/namespaces/x/pods", "pods"),
        (
            paths.core("pods", namespace="x", name="y", subresource="status"),
            "/api/v1/namespaces/x/pods/y/status",
            "pods/status",
        ),
        (paths.core("namespaces", name="x"), "/api/v1/namespaces/x", "namespaces"),
        (
            paths.muster("gangs", namespace="x", name="y"),
            "/apis/muster.dev/v1alpha1/namespaces/x/gangs/y",
            "gangs",
        ),
        (
            paths.leases("x", "y"),
            "/apis/coordination.k8s.io/v1/namespaces/x/leases/y",
            "leases",
        ),
        ("/version", "/version", "/version"),
    ],
)
def test_paths(path: str, want: str, resource: str) -> None:
    assert path == want
    assert paths.resource_of(path) == resource


def test_subresource_needs_a_name() -> None:
    with pytest.raises(ValueError, match="needs a name"):
        paths.core("pods", namespace="x", subresource="status")


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (404, "NotFound", errors.NotFound),
        (409, "AlreadyExists", errors.AlreadyExists),
        (409, "Conflict", errors.Conflict),
        (403, "Forbidden", errors.Forbidden),
        (422, "Invalid", errors.Invalid),
        (410, "Expired", errors.Gone),
        (0, "Expired", errors.Gone),  # inside a watch stream: the code is in the body
        (429, "TooManyRequests", errors.TooManyRequests),
        (503, "ServiceUnavailable", errors.ServerError),
        (401, "Unauthorized", errors.Unauthorized),
    ],
)
def test_error_types(status: int, reason: str, kind: type[errors.ApiError]) -> None:
    details = {"causes": [{"field": "spec.nodes"}]}
    body = {"kind": "Status", "reason": reason, "message": "why", "details": details, "code": status or 410}
    error = errors.from_status(status, json.dumps(body).encode())
    assert type(error) is kind
    assert (error.reason, error.message, error.details["causes"]) == (reason, "why", [{"field": "spec.nodes"}])


@pytest.mark.parametrize(("major", "minor"), [("1", "33"), ("1", "36+"), ("2", "0")])
def test_new_enough_server(major: str, minor: str) -> None:
    assert require("v1", major, minor) == "v1"


@pytest.mark.parametrize(("major", "minor"), [("1", "32"), ("1", "9+"), ("", "")])
def test_server_that_is_too_old(major: str, minor: str) -> None:
    with pytest.raises(
        UnsupportedServerError, match=r"needs Kubernetes 1\.33 or later, this API server is v1\.x: upgrade"
    ):
        require("v1.x", major, minor)

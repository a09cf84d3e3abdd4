"""Paths, resource names for metrics, and errors by type."""

import json
from typing import Any

import pytest

from muster.kube import errors, paths
from muster.kube.version import UnsupportedServerError, check_server_version, require


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


@pytest.mark.parametrize(
    ("message", "refusal"),
    [
        ('pods "x" is forbidden: exceeded quota: few, requested: pods=1', errors.Refusal.QUOTA_EXCEEDED),
        ('pods "x" is forbidden: status unknown for quota: few', errors.Refusal.QUOTA_UNKNOWN),
        ('pods "x" is forbidden: violates PodSecurity "restricted:latest"', errors.Refusal.POD_SECURITY),
        (
            'pods "x" is forbidden: unable to create new content in namespace n because it is being terminated',
            errors.Refusal.NAMESPACE_TERMINATING,
        ),
        ('pods is forbidden: User "bob" cannot create resource "pods" in API group ""', None),
    ],
)
def test_the_check_that_refused_is_a_value(message: str, refusal: errors.Refusal | None) -> None:
    assert errors.ApiError(403, "Forbidden", message).refusal is refusal


@pytest.mark.parametrize(
    ("message", "policy", "refused_by"),
    [
        ("ValidatingAdmissionPolicy 'a' with binding 'b' denied request: no", "a", "ValidatingAdmissionPolicy a"),
        (
            "gangs.muster.dev \"x\" is forbidden: ValidatingAdmissionPolicy 'a' denied request: no",
            "a",
            "ValidatingAdmissionPolicy a",
        ),
        ('admission webhook "a" denied the request: no', "", "admission webhook a"),
        ("no right, as ValidatingAdmissionPolicy 'a' denied request: says", "", "the API server (403 Forbidden)"),
        ('User "u" cannot patch resource "nodes" in API group "" at the cluster scope', "", "RBAC"),
    ],
)
def test_what_refused_has_a_name(message: str, policy: str, refused_by: str) -> None:
    error = errors.Forbidden(403, "Forbidden", message)
    assert (error.policy, error.refused_by) == (policy, refused_by)


@pytest.mark.parametrize(("where", "is_wide"), [("at the cluster scope", True), ('in the namespace "a"', False)])
def test_a_right_for_all_namespaces_is_told_apart(where: str, is_wide: bool) -> None:
    message = f'gangs is forbidden: User "bob" cannot list resource "gangs" in API group "muster.dev" {where}'
    assert errors.Forbidden(403, "Forbidden", message).is_cluster_wide is is_wide


@pytest.mark.parametrize(("major", "minor"), [("1", "33"), ("1", "36+"), ("2", "0")])
def test_new_enough_server(major: str, minor: str) -> None:
    assert require("v1", major, minor) == "v1"


@pytest.mark.parametrize(("major", "minor"), [("1", "32"), ("1", "9+"), ("", "")])
def test_server_that_is_too_old(major: str, minor: str) -> None:
    with pytest.raises(
        UnsupportedServerError, match=r"needs Kubernetes 1\.33 or later, this API server is v1\.x: upgrade"
    ):
        require("v1.x", major, minor)


@pytest.mark.parametrize(
    ("answer", "version"),
    [(b'{"gitVersion": "v1.36.3", "major": "1", "minor": "36"}', "v1.36.3"), (b"[]", ""), (b'{"minor": 36}', "")],
)
async def test_the_version_is_read_or_unreadable(answer: bytes, version: str) -> None:
    class Server:
        async def get(self, path: str) -> bytes:
            assert path == "/version"
            return answer

    server: Any = Server()
    if version:
        assert await check_server_version(server) == version
    else:
        with pytest.raises(errors.ApiError, match="the answer to /version is no version: "):
            await check_server_version(server)


def test_what_a_message_quotes_of_a_template_steers_no_terminal() -> None:
    body = {"kind": "Status", "code": 422, "reason": "Invalid", "message": "metadata.labels[\x1b[2J\u202e]: no"}
    error = errors.from_status(422, json.dumps(body).encode())
    assert error.message == "metadata.labels[\ufffd[2J\ufffd]: no"
    assert str(error) == f"{error.message} (HTTP 422 Invalid)"

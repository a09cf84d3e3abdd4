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


# As kubernetes/apiserver words them: webhook/errors/statuserror.go, policy/validating/dispatcher.go, resourcequota/controller.go.
WEBHOOK = 'admission webhook "policy.example.org" denied the request'
POLICY = "ValidatingAdmissionPolicy 'p.example.org' with binding 'b' denied request: no"
INTERNAL = 'Internal error occurred: failed calling webhook "policy.example.org"'


@pytest.mark.parametrize("code", [400, 401, 403, 404, 409, 410, 418, 422, 429, 500, 503])
@pytest.mark.parametrize(
    "message",
    [
        f"{WEBHOOK}: exceeded quota",
        f"{WEBHOOK}: the object has been modified",
        f"{WEBHOOK} without explanation",
        POLICY,
        f'pods "job-0" is forbidden: {POLICY}',
        "ValidatingAdmissionPolicy 'p.example.org' denied request: no",
    ],
)
def test_what_admission_denies_is_denied_with_any_code(code: int, message: str) -> None:
    error = errors.from_status(
        code, json.dumps({"kind": "Status", "reason": "Expired", "message": message, "code": code}).encode()
    )
    assert type(error) is errors.Denied
    assert (error.status, error.message) == (code, message)


@pytest.mark.parametrize(
    ("code", "message", "kind"),
    [
        (403, f'pods "x" is forbidden: exceeded quota: "{WEBHOOK}: no"', errors.Forbidden),
        (422, f"Pod \"x\" is invalid: spec.hostname: Invalid value: '{WEBHOOK}: no'", errors.Invalid),
        (403, 'pods is forbidden: User "u" cannot create resource "pods" in API group ""', errors.Forbidden),
        (
            400,
            'Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field "a"',
            errors.Invalid,
        ),
        (413, "Request entity too large: limit is 3145728", errors.Invalid),
        (
            500,
            f"{INTERNAL}: failed to call webhook: the server could not find the requested resource",
            errors.WebhookFailed,
        ),
        (500, f"etcdserver: {INTERNAL}", errors.ServerError),
    ],
)
def test_words_within_other_words_say_nothing(code: int, message: str, kind: type[errors.ApiError]) -> None:
    error = errors.from_status(code, json.dumps({"kind": "Status", "message": message, "code": code}).encode())
    assert type(error) is kind


@pytest.mark.parametrize(
    ("code", "body", "kind"),
    [
        (502, b"<html>bad gateway</html>", errors.ServerError),
        (403, b"<html>forbidden by the proxy</html>", errors.Unreachable),
        (400, b"Client sent an HTTP request to an HTTPS server.", errors.Unreachable),
        (409, b"", errors.Unreachable),
        (404, b"<html>no such host here</html>", errors.Unreachable),
        (404, b'{"message":"no Route matched with those values"}', errors.Unreachable),
        (403, b'{"message":"Forbidden"}', errors.Unreachable),
        (401, b"<html>sign in</html>", errors.Unauthorized),
        (404, b"404 page not found", errors.NotFound),
        (429, b"Too many requests, please try again later.", errors.TooManyRequests),
    ],
)
def test_answers_that_are_no_status(code: int, body: bytes, kind: type[errors.ApiError]) -> None:
    error = errors.from_status(code, body)
    assert type(error) is kind
    assert body.decode() in str(error)


@pytest.mark.parametrize(("major", "minor"), [("1", "33"), ("1", "36+"), ("2", "0")])
def test_new_enough_server(major: str, minor: str) -> None:
    assert require("v1", major, minor) == "v1"


@pytest.mark.parametrize(("major", "minor"), [("1", "32"), ("1", "9+"), ("", "")])
def test_server_that_is_too_old(major: str, minor: str) -> None:
    with pytest.raises(
        UnsupportedServerError, match=r"needs Kubernetes 1\.33 or later, this API server is v1\.x: upgrade"
    ):
        require("v1.x", major, minor)

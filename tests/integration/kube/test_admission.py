"""What a real API server answers where admission says no, or cannot be asked: told apart by its words, whatever the
code."""

import base64
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from localcluster.patience import PATIENCE_SECONDS
from muster.kube import paths
from muster.kube.certificates import new_authority, new_serving
from muster.kube.client import Client
from muster.kube.errors import ApiError, Denied, Forbidden, WebhookFailed

GROUP = "admissionregistration.k8s.io/v1"
CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}


@asynccontextmanager
async def a_webhook(folder: Path, status: dict[str, Any] | None) -> AsyncIterator[dict[str, Any]]:
    """A webhook that denies all, with this status; yields what the API server calls it by."""
    now = datetime.now(UTC)
    authority = new_authority(now)
    serving = new_serving(authority, ("localhost",), now)
    pem = folder / "serving.pem"
    pem.write_bytes(serving.key + serving.certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)

    async def answer(request: web.Request) -> web.Response:
        review = await request.json()
        response = {"uid": review["request"]["uid"], "allowed": False, **({"status": status} if status else {})}
        return web.json_response({"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response})

    application = web.Application()
    application.router.add_post("/", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "localhost", 0, ssl_context=context)
        await site.start()
        port = runner.addresses[0][1]
        yield {"url": f"https://localhost:{port}/", "caBundle": base64.b64encode(authority.certificate).decode()}
    finally:
        await runner.cleanup()


@asynccontextmanager
async def registered(client: Client, namespace: str, called_by: dict[str, Any]) -> AsyncIterator[None]:
    """The webhook is asked about ConfigMaps of the namespace."""
    hook = {
        "name": "policy.example.org",
        "clientConfig": called_by,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 5,
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}],
    }
    kind = "ValidatingWebhookConfiguration"
    body = {"apiVersion": GROUP, "kind": kind, "metadata": {"name": namespace}, "webhooks": [hook]}
    path = paths.group(GROUP, "validatingwebhookconfigurations")
    await client.post(path, body)
    try:
        yield
    finally:
        await client.delete(f"{path}/{namespace}", {})


async def refused(client: Client, namespace: str) -> ApiError:
    """The answer once admission is heard: the API server learns of a rule a moment after it is written."""
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until:
        try:
            await client.post(paths.core("configmaps", namespace=namespace), CONFIG_MAP, {"dryRun": "All"})
        except ApiError as error:
            return error
    raise AssertionError("nothing was refused")


@pytest.mark.parametrize(
    ("status", "code", "says"),
    [
        (None, 400, "denied the request without explanation"),
        ({"message": "exceeded quota of the team"}, 400, "denied the request: exceeded quota of the team"),
        ({"code": 401, "reason": "Unauthorized", "message": "who"}, 401, "denied the request: who"),
        ({"code": 404, "reason": "NotFound", "message": "no"}, 404, "denied the request: no"),
        ({"code": 409, "reason": "AlreadyExists", "message": "no"}, 409, "denied the request: no"),
        ({"code": 410, "reason": "Expired", "message": "no"}, 410, "denied the request: no"),
        ({"code": 500, "message": "no"}, 500, "denied the request: no"),
    ],
)
async def test_what_a_webhook_denies(
    client: Client, namespace: str, tmp_path: Path, status: dict[str, Any] | None, code: int, says: str
) -> None:
    async with a_webhook(tmp_path, status) as called_by, registered(client, namespace, called_by):
        error = await refused(client, namespace)
    assert (type(error), error.status) == (Denied, code)
    assert error.message == f'admission webhook "policy.example.org" {says}'


async def test_a_webhook_that_does_not_answer(client: Client, namespace: str) -> None:
    async with registered(client, namespace, {"url": "https://localhost:1/"}):
        error = await refused(client, namespace)
    assert type(error) is WebhookFailed
    assert 'failed calling webhook "policy.example.org"' in error.message


@pytest.mark.parametrize(("reason", "code"), [(None, 422), ("Forbidden", 403), ("RequestEntityTooLarge", 413)])
async def test_what_a_policy_denies(client: Client, namespace: str, reason: str | None, code: int) -> None:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}
    validation = {"expression": "false", "message": "not here", **({"reason": reason} if reason else {})}
    spec: dict[str, Any] = {"matchConstraints": {"resourceRules": [rule]}, "validations": [validation]}
    chosen = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    bound = {"policyName": namespace, "validationActions": ["Deny"], "matchResources": chosen}
    kinds = [("ValidatingAdmissionPolicy", "validatingadmissionpolicies", spec)]
    kinds.append(("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", bound))
    for kind, plural, body in kinds:
        made = {"apiVersion": GROUP, "kind": kind, "metadata": {"name": namespace}, "spec": body}
        await client.post(paths.group(GROUP, plural), made)
    try:
        error = await refused(client, namespace)
    finally:
        for _, plural, _ in kinds:
            await client.delete(f"{paths.group(GROUP, plural)}/{namespace}", {})
    assert (type(error), error.status) == (Denied, code)
    assert "not here" in error.message


async def test_what_the_server_itself_refuses_is_not_denied(client: Client, namespace: str) -> None:
    few: dict[str, Any] = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}}
    hard = {"configmaps": "0"}
    await client.post(paths.core("resourcequotas", namespace=namespace), {**few, "spec": {"hard": hard}})
    status = paths.core("resourcequotas", namespace=namespace, name="few", subresource="status")
    await client.patch(status, {"status": {"hard": hard, "used": hard}})  # no controller counts here
    error = await refused(client, namespace)
    assert type(error) is Forbidden
    assert "is forbidden: exceeded quota: few" in error.message

"""Tokens that a real API server issues, checked offline, and a launcher that comes with one."""

import json
import ssl
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from localcluster.controlplane import SERVICE_ACCOUNT_ISSUER
from muster.coordinator import endpoints
from muster.coordinator.auth import AuthError, Caller, TokenVerifier
from muster.coordinator.checkers import CheckerHub
from muster.coordinator.hub import Hub
from muster.coordinator.server import CoordinatorServer
from muster.kube import paths
from muster.kube.certificates import CertificateKeeper
from muster.kube.client import Client
from muster.protocol import checks, messages
from muster.protocol.checks import CHECK_PATH, CheckOrder, CheckReport
from muster.protocol.messages import REPORT_PATH, Directive, Report
from muster.world.checks import NodeChecks
from muster.world.fleet import SilentShare

AUDIENCE = "muster.dev/coordinator"
Request = Callable[..., Awaitable[str]]


@pytest.fixture
def worker(client: Client, namespace: str) -> Callable[..., Awaitable[dict[str, Any]]]:
    """Creates a pod, on a node of its own unless told otherwise."""

    async def create(name: str, *, scheduled: bool = True, account: str = "default") -> dict[str, Any]:
        spec: dict[str, Any] = {"containers": [{"name": "c", "image": "i"}], "serviceAccountName": account}
        if scheduled:
            spec["nodeName"] = f"node-{uuid.uuid4().hex[:8]}"
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": spec["nodeName"]}}
            await client.post(paths.core("nodes"), node)
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        made: dict[str, Any] = json.loads(await client.post(paths.core("pods", namespace=namespace), body))
        return made

    return create


@pytest.fixture
def token(client: Client, namespace: str) -> Request:
    """Asks for a token as the kubelet does for a projected volume."""

    async def request(pod: dict[str, Any] | None, audience: str = AUDIENCE, account: str = "default") -> str:
        spec: dict[str, Any] = {"audiences": [audience], "expirationSeconds": 600}
        if pod is not None:
            name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
            spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        path = paths.core("serviceaccounts", namespace=namespace, name=account, subresource="token")
        return "Bearer " + str(json.loads(await client.post(path, body))["status"]["token"])

    return request


async def test_token_tells_pod_and_node(client: Client, namespace: str, worker: Any, token: Request) -> None:
    pod = await worker("w0")
    node = json.loads(await client.get(paths.core("nodes", name=pod["spec"]["nodeName"])))
    where = node["metadata"]
    want = Caller(namespace, "w0", pod["metadata"]["uid"], where["name"], where["uid"], "default")
    assert await TokenVerifier(client.get).verify(await token(pod)) == want


async def test_wrong_tokens(client: Client, worker: Any, token: Request) -> None:
    verifier = TokenVerifier(client.get)
    pod = await worker("w0")
    for wrong, says in (
        (await token(pod, "https://kubernetes.default.svc"), "project one with audience muster.dev/coordinator"),
        (await token(None), "not bound to a pod"),
        (await token(await worker("w1", scheduled=False)), "names no node"),
        ((await token(pod))[:-8] + "AAAAAAAA", "not valid"),
    ):
        with pytest.raises(AuthError, match=says):
            await verifier.verify(wrong)
    later = TokenVerifier(client.get, wall_clock=lambda: time.time() + 700)
    with pytest.raises(AuthError, match="expired"):
        await later.verify(await token(pod))


async def test_a_launchers_token_is_worth_nothing_at_the_api_server(
    client: Client, namespace: str, worker: Any, token: Request
) -> None:
    """Neither its own job's record nor another's can be read by it, nor anything that every account may read."""
    pod = await worker("w0")
    trust = ssl.create_default_context(cafile=client._configuration.ssl_ca_cert)
    launchers, other = await token(pod), await token(pod, SERVICE_ACCOUNT_ISSUER)
    api = f"/apis/muster.dev/v1alpha1/namespaces/{namespace}"
    async with aiohttp.ClientSession() as session:

        async def status(shown: str, path: str, method: str = "GET") -> int:
            url = f"{client._host}{path}"
            async with session.request(method, url, headers={"Authorization": shown}, ssl=trust) as answer:
                return answer.status

        for path in (f"{api}/gangs", f"{api}/trainingjobs", f"/api/v1/namespaces/{namespace}/pods/w0", "/apis"):
            assert await status(launchers, path) == 401, path
        assert await status(launchers, f"{api}/gangs/any", "DELETE") == 401
        assert await status(other, "/apis") == 200, "that is a matter of the audience alone"


async def test_launcher_is_told_what_its_own_pod_shall_do(
    client: Client, namespace: str, worker: Any, token: Request
) -> None:
    """Whatever a launcher says in its report: its token decides whose directive it gets."""
    pods = [await worker("w0"), await worker("w1")]
    directives = {
        pod["metadata"]["uid"]: Directive(kind=messages.WAIT, attempt=1, node_rank=rank)
        for rank, pod in enumerate(pods)
    }
    hub = Hub()
    server = CoordinatorServer(
        hub,
        TokenVerifier(client.get),
        lambda caller: directives.get(caller.pod_uid),
        lambda caller: caller.pod_uid in directives,
        lambda: "",
        cpu_clock=lambda: 0.0,
    )
    certificates = await CertificateKeeper(client, namespace).ensure()
    port = await server.start("127.0.0.1", 0, certificates.serving.certificate, certificates.serving.key)
    trust = ssl.create_default_context(cadata=certificates.bundle.decode())
    try:
        async with aiohttp.ClientSession() as session:
            for rank, pod in enumerate(pods):
                async with session.post(
                    f"https://127.0.0.1:{port}{REPORT_PATH}",
                    data=messages.encode(Report(sequence=1, state=messages.IDLE)),
                    headers={"Authorization": await token(pod)},
                    ssl=trust,
                    server_hostname=f"muster-coordinator.{namespace}.svc",
                ) as response:
                    assert response.status == 200
                    assert messages.decode_directive(await response.read()).node_rank == rank
            stranger = await token(await worker("w2"))
            async with session.post(
                f"https://127.0.0.1:{port}{REPORT_PATH}",
                data=messages.encode(Report(sequence=1, state=messages.IDLE)),
                headers={"Authorization": stranger},
                ssl=trust,
                server_hostname="muster-coordinator",
            ) as response:
                assert response.status == 403
        assert set(hub.views_of(directives)) == set(directives)
        assert hub.silence(60.0, namespace) == SilentShare(0, 2)
    finally:
        await server.stop()


async def test_a_checker_is_told_by_its_service_account_and_its_node_by_its_token(
    client: Client, namespace: str, worker: Any, token: Request
) -> None:
    """Whatever it says in its report; and nobody else is believed."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "muster-check"}}
    await client.post(paths.core("serviceaccounts", namespace=namespace), account)
    checker, stranger = await worker("checker", account="muster-check"), await worker("stranger")
    node, order = checker["spec"]["nodeName"], CheckOrder("o1", checks.NODE)
    hub = CheckerHub()
    hub.set_orders("job", {node: NodeChecks((order,))})
    server = CoordinatorServer(
        Hub(),
        TokenVerifier(client.get),
        lambda _: None,
        lambda _: False,
        lambda: "",
        cpu_clock=lambda: 0.0,
        checkers=endpoints.checker_endpoint(hub, namespace, lambda _: True),
    )
    certificates = await CertificateKeeper(client, namespace).ensure()
    port = await server.start("127.0.0.1", 0, certificates.serving.certificate, certificates.serving.key)
    trust = ssl.create_default_context(cadata=certificates.bundle.decode())
    answers: list[tuple[int, bytes]] = []
    try:
        async with aiohttp.ClientSession() as session:
            for shown in (await token(checker, account="muster-check"), await token(stranger)):
                async with session.post(
                    f"https://127.0.0.1:{port}{CHECK_PATH}",
                    data=messages.encode(CheckReport(1, state=checks.READY, address="elsewhere")),
                    headers={"Authorization": shown},
                    ssl=trust,
                    server_hostname=f"muster-coordinator.{namespace}.svc",
                ) as response:
                    answers.append((response.status, await response.read()))
    finally:
        await server.stop()
    assert [status for status, _ in answers] == [200, 403]
    assert checks.decode_check_directive(answers[0][1]).orders == (order,)
    assert "it runs as service account default" in json.loads(answers[1][1])["error"]
    assert hub.nodes == [node]

"""The leader's decisions through a real API server, with the rights that it demands; only the kubelet is played."""

import asyncio
import json
import os
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.unit.kube.port_forwards import Kubelet

from localcluster.controlplane import ControlPlane
from localcluster.patience import PATIENCE_SECONDS
from muster.cli.recorded_decisions import read
from muster.cli.session import Session
from muster.coordinator.worlds import serve_worlds
from muster.kube import paths
from muster.kube.client import Client
from muster.kube.errors import Forbidden, NotFound
from muster.kube.pipes import Answer
from muster.kube.portforward import forwarded_port

LINES = {("default", "job"): ['{"plan":1}', '{"plan":2}']}


@pytest.fixture
async def kubelet(api_server: ControlPlane, namespace: str, client: Client) -> AsyncIterator[Kubelet]:
    """A node whose kubelet forwards ports, and on it the pod `operator`, which serves decisions."""
    served = await serve_worlds(0, lambda key: [lambda line=line: line for line in LINES.get(key, [])], lambda _: [])
    made = Kubelet(served.addresses[0][1])
    app = web.Application()
    app.add_routes([web.route("*", "/portForward/{namespace}/{pod}", made.forward)])
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(api_server.pki.serving, api_server.pki.serving_key)
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    node = paths.core("nodes")
    await client.post(node, {"metadata": {"name": namespace}})
    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": runner.addresses[0][1]}},
    }
    await client.patch(paths.core("nodes", name=namespace, subresource="status"), {"status": status})
    container = {"name": "operator", "image": "operator:1"}
    pod = {"metadata": {"name": "operator"}, "spec": {"nodeName": namespace, "containers": [container]}}
    await client.post(paths.core("pods", namespace=namespace), pod)
    yield made
    await client.delete(paths.core("nodes", name=namespace))
    await runner.cleanup()
    await served.cleanup()


@pytest.fixture
async def user(
    api_server: ControlPlane, namespace: str, client: Client, tmp_path: Path
) -> AsyncIterator[Callable[..., Any]]:
    """`await user(*verbs)`: a client of a service account that has these on pods/portforward, and no other right."""
    made: list[Client] = []

    async def connect(*verbs: str) -> Client:
        rbac, name = "rbac.authorization.k8s.io", {"metadata": {"name": "user"}}
        account = paths.core("serviceaccounts", namespace=namespace)
        await client.post(account, name)
        rules = [{"apiGroups": [""], "resources": ["pods/portforward"], "verbs": list(verbs)}]
        await client.post(paths.group(f"{rbac}/v1", "roles", namespace=namespace), {**name, "rules": rules})
        role = {"apiGroup": rbac, "kind": "Role", "name": "user"}
        subjects = [{"kind": "ServiceAccount", "name": "user", "namespace": namespace}]
        binding = {**name, "roleRef": role, "subjects": subjects}
        await client.post(paths.group(f"{rbac}/v1", "rolebindings", namespace=namespace), binding)
        token = json.loads(await client.post(f"{account}/user/token", {"spec": {}}))["status"]["token"]
        config = json.loads(api_server.kubeconfig.read_text())
        config["users"][0]["user"] = {"token": token}
        file = tmp_path / "user.kubeconfig"
        file.write_text(json.dumps(config))
        made.append(await Client.connect(str(file)))
        return made[-1]

    yield connect
    for each in made:
        await each.close()


async def ask(client: Client, namespace: str, *names: str) -> list[Answer]:
    async with forwarded_port(client, namespace, "operator", 8081) as port:
        return [await port.get(f"/worlds/default/{name}", 1000) for name in names]


async def test_with_get_and_create_of_portforward_decisions_are_read(
    kubelet: Kubelet, namespace: str, user: Callable[..., Any]
) -> None:
    made = await user("get", "create")
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:  # a right is in effect a moment after its binding
            try:
                job, other = await ask(made, namespace, "job", "other")
                break
            except Forbidden:
                await asyncio.sleep(0.1)
    assert (job.status, job.body) == (200, b'{"plan":1}\n{"plan":2}\n')
    assert other.status == 404
    lease = {"metadata": {"name": "muster-leader"}, "spec": {"holderIdentity": "operator_0a1b2c3d"}}
    collected = {"operator/leases.json": [lease], "job/pods.json": [{"spec": {"nodeName": "gpu-0"}}]}
    recorded = await read(Session(made, "default"), "job", namespace, collected, 1000)
    assert [each["plan"] for each in recorded.files["decisions/job.jsonl"]] == [1, 2]
    assert recorded.missing == [], "of the node there are none"
    assert kubelet.asked == [8081, 8081]


async def test_without_get_it_is_refused(kubelet: Kubelet, namespace: str, user: Callable[..., Any]) -> None:
    with pytest.raises(Forbidden, match='cannot get resource "pods/portforward"'):
        await ask(await user("create"), namespace, "job")
    assert kubelet.asked == []


@pytest.mark.skipif(
    os.environ.get("API_SERVER") == "1.34", reason="before 1.35 the API server asks for the right to `get` alone"
)
async def test_without_create_it_is_refused(kubelet: Kubelet, namespace: str, user: Callable[..., Any]) -> None:
    made, refusal = await user("get"), "cannot get"
    async with asyncio.timeout(PATIENCE_SECONDS):
        while "cannot get" in refusal:  # the right to `get` is in effect a moment after its binding
            await asyncio.sleep(0.1)
            with pytest.raises(Forbidden) as raised:
                await ask(made, namespace, "job")
            refusal = raised.value.message
    assert refusal.startswith('pods "operator" is forbidden'), "the API server does not name this verb"
    assert kubelet.asked == []


async def test_a_pod_that_is_gone_is_not_found(namespace: str, client: Client) -> None:
    with pytest.raises(NotFound, match='pods "operator" not found'):
        await ask(client, namespace, "job")

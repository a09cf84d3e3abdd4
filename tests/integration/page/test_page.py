"""The page against a real API server: with the rights that the manifests give it, and real tokens of two tenants."""

import asyncio
import base64
import json
import os
import ssl
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from tests.integration.kubectl import Kubectl
from yarl import URL

from localcluster.api import Api
from localcluster.controlplane import ControlPlane
from localcluster.patience import PATIENCE_SECONDS
from muster.kube.client import Client
from muster.page.main import serving
from muster.page.settings import Settings

ROOT = Path(__file__).resolve().parents[3]
MANIFESTS = ROOT / "manifests" / "components" / "page" / "page.yaml"
ROLES = [f"--filename={ROOT}/manifests/{folder}/user-roles.yaml" for folder in ("base", "components/jobs")]
JOBS = "/apis/muster.dev/v1alpha1/namespaces/{}/trainingjobs"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings"


@dataclass
class Tenant:
    """A namespace with a job in it, and somebody who may look at it."""

    namespace: str
    token: str


def tenant(api: Api, name: str) -> Tenant:
    """Made by requests: a process of kubectl for each object would take longer than the test."""
    namespace = f"{name}-{uuid.uuid4().hex[:8]}"
    account = {"kind": "ServiceAccount", "name": "somebody", "namespace": namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "muster-view"}
    template = {"spec": {"containers": [{"name": "main", "image": "trainer:1", "command": ["train"]}]}}
    job = {"apiVersion": "muster.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name}}
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    api.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    api.create(accounts, {"metadata": {"name": "somebody"}})
    api.create(BINDINGS.format(namespace), {"metadata": {"name": "somebody"}, "roleRef": role, "subjects": [account]})
    api.create(JOBS.format(namespace), {**job, "spec": {"nodes": 2, "template": template}})
    return Tenant(namespace, api.create(f"{accounts}/somebody/token", {"spec": {}})["status"]["token"])


@pytest.fixture
def does(kubectl: Kubectl) -> Callable[..., str]:
    """kubectl, which has to succeed."""

    def run(*arguments: str, stdin: str | None = None) -> str:
        result = kubectl(*arguments, stdin=stdin)
        assert result.returncode == 0, result.stderr
        return str(result.stdout)

    return run


@pytest.fixture
def tenants(api_server: ControlPlane, does: Callable[..., str]) -> Iterator[tuple[Tenant, Tenant]]:
    does("apply", *ROLES)
    red, blue = (tenant(api_server.api, name) for name in ("red", "blue"))
    yield red, blue
    for each in (red, blue):
        for kind in (JOBS, BINDINGS):
            api_server.api.delete(kind.format(each.namespace))


@pytest.fixture
def credentials(api_server: ControlPlane, does: Callable[..., str], namespace: str, tmp_path: Path) -> Iterator[Path]:
    """A kubeconfig with exactly the page's rights."""
    text = MANIFESTS.read_text().replace("namespace: muster-page", f"namespace: {namespace}")
    wanted = [each for each in yaml.safe_load_all(text) if each["kind"] in RIGHTS]
    does("apply", "-f", "-", stdin=yaml.safe_dump_all(wanted))
    token = does("create", "token", "muster-page", "-n", namespace).strip()
    config = yaml.safe_load(api_server.kubeconfig.read_text())
    config["users"] = [{"name": entry["name"], "user": {"token": token}} for entry in config["users"]]
    path = tmp_path / "page.kubeconfig"
    path.write_text(yaml.safe_dump(config))
    yield path
    does("delete", "clusterrolebinding,clusterrole", "muster-page")


@pytest.fixture
async def own(credentials: Path) -> AsyncIterator[Client]:
    client = await Client.connect(str(credentials))
    yield client
    await client.close()


RIGHTS = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding")
Ask = Callable[..., Any]


@pytest.fixture
async def ask(own: Client) -> AsyncIterator[Ask]:
    """`await ask(path, token)`: status and body, once the cluster has been read."""
    async with serving(own, own, Settings(port=0, probe_port=0)) as (port, probes), aiohttp.ClientSession() as session:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                async with session.get(f"http://127.0.0.1:{probes}/readyz") as ready:
                    if ready.status == 200:
                        break
                await asyncio.sleep(0.1)

        async def asked(path: str, token: str = "", **more: str) -> tuple[int, Any]:
            headers = {**({"Authorization": f"Bearer {token}"} if token else {}), **more}
            url = URL(f"http://127.0.0.1:{port}{path}", encoded=True)  # as it stands, dots included
            async with session.get(url, headers=headers) as answer:
                assert answer.headers["Cache-Control"] == "no-store"
                assert "ETag" not in answer.headers
                return answer.status, await answer.json()

        yield asked


async def test_each_tenant_sees_his_own_job_and_not_the_others(ask: Ask, tenants: tuple[Tenant, Tenant]) -> None:
    red, blue = tenants
    for mine, other, name in ((red, blue, "red"), (blue, red, "blue")):
        status, body = await ask("/api/jobs", mine.token)
        assert status == 200
        assert [(job["namespace"], job["name"]) for job in body["jobs"]] == [(mine.namespace, name)]
        assert other.namespace not in json.dumps(body)
        assert (await ask(f"/api/jobs/{mine.namespace}/{name}", mine.token))[0] == 200
        assert (await ask(f"/api/jobs/{other.namespace}/{'blue' if name == 'red' else 'red'}", mine.token))[0] == 403
        assert (await ask("/api/fleet", mine.token))[0] == 403
        assert (await ask("/api/report", mine.token))[0] == 403


async def test_no_path_parameter_or_header_shows_a_tenant_what_is_anothers(
    ask: Ask, tenants: tuple[Tenant, Tenant]
) -> None:
    """The other tenant has asked for the same just before, so that all of it was made a moment ago."""
    mine, other = tenants
    theirs = f"{other.namespace}/blue"
    of_a_job = [
        f"/api/jobs/{theirs}",
        f"/api/jobs/{theirs}?namespace={mine.namespace}",
        f"/api/jobs/{mine.namespace}/blue",
        f"/api/jobs/{mine.namespace}/../{theirs}",
        f"/api/jobs/{mine.namespace}/red/../../{theirs}",
        f"/api/jobs/{mine.namespace}%2F..%2F{other.namespace}/blue",
        f"/api/jobs/{mine.namespace}/..%2F{other.namespace}%2Fblue",
        f"/api/jobs/{mine.namespace},{other.namespace}/blue",
        f"/api/jobs/%20{other.namespace}/blue",
        f"/api/jobs/{other.namespace.upper()}/blue",
        f"/api/jobs/{other.namespace}/%2A",
        "/api/jobs/%2A/blue",
        f"/api/jobs//{theirs}",
        f"//api/jobs/{theirs}",
        f"/api/jobs/{theirs}/",
    ]
    of_all = [
        "/api/jobs",
        "/api/jobs?ended=1",
        f"/api/jobs?namespace={other.namespace}&namespaces={other.namespace}&all=1",
        f"/api/jobs?ended=1&job={theirs}&user=system:admin",
    ]
    of_the_fleet = [
        "/api/fleet",
        f"/api/fleet?namespace={mine.namespace}",
        "/api/report",
        "/api/report?days=0",
        f"/api/report?days=30&namespace={mine.namespace}",
    ]
    pretended: tuple[dict[str, str], ...] = (
        {},
        {"Impersonate-User": "system:admin", "Impersonate-Group": "system:masters"},
        {"X-Remote-User": "system:admin", "X-Remote-Group": "system:masters", "X-Forwarded-For": "127.0.0.1"},
        {"If-None-Match": "*", "Cookie": f"token={other.token}"},
    )
    assert (await ask(f"/api/jobs/{theirs}", other.token))[0] == 200
    for more in pretended:
        for path in (*of_a_job, *of_the_fleet):
            await ask(path, other.token)
            status, body = await ask(path, mine.token, **more)
            assert status in (400, 403, 404), path
            assert set(body) == {"error"}, path
        for path in of_all:
            await ask(path, other.token)
            status, body = await ask(path, mine.token, **more)
            assert (status, body["user"]) == (200, f"system:serviceaccount:{mine.namespace}:somebody")
            assert [(job["namespace"], job["name"]) for job in body["jobs"]] == [(mine.namespace, "red")], path
            assert other.namespace not in json.dumps(body), path


async def test_who_may_see_the_fleet_sees_all_of_it(
    ask: Ask, tenants: tuple[Tenant, Tenant], does: Callable[..., str]
) -> None:
    red, blue = tenants
    does("create", "serviceaccount", "chief", "-n", red.namespace)
    binding = f"chief-{red.namespace}"
    does(
        "create", "clusterrolebinding", binding, "--clusterrole=muster-fleet-view",
        f"--serviceaccount={red.namespace}:chief",
    )  # fmt: skip
    token = does("create", "token", "chief", "-n", red.namespace).strip()
    assert (await ask("/api/fleet", token))[0] == 200
    status, body = await ask("/api/report", token)
    assert status == 200, body
    limits = [each for each in body["remarks"] if each.startswith("note: ")]
    assert not limits, "the page's own rights suffice for all of it"
    _, body = await ask("/api/jobs", token)
    assert {red.namespace, blue.namespace} <= {job["namespace"] for job in body["jobs"]}
    does("delete", "clusterrolebinding", binding)


async def test_a_token_that_is_none_or_not_for_the_cluster_is_refused(
    ask: Ask, tenants: tuple[Tenant, Tenant], does: Callable[..., str]
) -> None:
    red, _ = tenants
    head, claims, signature = red.token.split(".")
    told = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    told["exp"] += 10**6
    forged = base64.urlsafe_b64encode(json.dumps(told).encode()).decode().rstrip("=")
    elsewhere = does("create", "token", "somebody", "-n", red.namespace, "--audience=elsewhere").strip()
    for token in ("", "none", f"{head}.{forged}.{signature}", elsewhere):
        status, body = await ask("/api/jobs", token)
        assert (status, set(body)) == (401, {"error"})
    gone = does("create", "token", "somebody", "-n", red.namespace).strip()
    does("delete", "serviceaccount", "somebody", "-n", red.namespace)
    assert (await ask("/api/jobs", gone))[0] == 401, "a token whose account is gone is worth nothing"


async def test_while_the_api_server_is_away_nobody_gets_anything(
    ask: Ask, own: Client, tenants: tuple[Tenant, Tenant]
) -> None:
    red, blue = tenants
    assert (await ask("/api/jobs", red.token))[0] == 200
    own._host = "https://127.0.0.1:1"
    status, body = await ask("/api/jobs", blue.token)
    assert status == 503
    assert red.namespace not in json.dumps(body)


@pytest.fixture
def certified(tmp_path: Path) -> Path:
    """A folder with a certificate for localhost."""
    files = ["-keyout", tmp_path / "tls.key", "-out", tmp_path / "tls.crt"]
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *files, *subject]
    subprocess.run(made, check=True, capture_output=True)
    return tmp_path


async def test_the_process_speaks_https_where_it_has_a_certificate_and_ends_when_told(
    credentials: Path, tenants: tuple[Tenant, Tenant], certified: Path
) -> None:
    given = {"KUBECONFIG": str(credentials), "MUSTER_PAGE_TLS": str(certified), "PYTHONPATH": str(ROOT / "operator")}
    ports = {"MUSTER_PAGE_PORT": "0", "MUSTER_PROBE_PORT": "0"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "muster.page", env={**os.environ, **given, **ports}, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        said = json.loads(await asyncio.wait_for(process.stdout.readline(), PATIENCE_SECONDS))
        trusted = ssl.create_default_context(cafile=str(certified / "tls.crt"))
        address, red = f"https://localhost:{said['port']}", tenants[0]
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusted)) as session:
            async with session.get(f"{address}/") as answer:
                assert "page.js" in await answer.text()
            async with asyncio.timeout(PATIENCE_SECONDS):
                while True:
                    headers = {"Authorization": f"Bearer {red.token}"}
                    async with session.get(f"{address}/api/jobs", headers=headers) as answer:
                        if answer.status != 503:  # the cluster is being read
                            break
                    await asyncio.sleep(0.1)
            assert answer.status == 200
        process.terminate()
        assert await asyncio.wait_for(process.wait(), PATIENCE_SECONDS) == 0
        rest = await process.stdout.read()
        assert red.token not in rest.decode()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()

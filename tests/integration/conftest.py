"""A real API server for the integration tests: etcd and kube-apiserver with Muster's CRDs, started once per session.

There is no controller manager: what its controllers would do (garbage collection, namespaces that vanish, the default
service account) does not happen unless a test does it.
"""

import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.kubectl import Kubectl, kubectl_of
from tests.integration.spread import ByControlPlane

from localcluster.controlplane import ControlPlane
from muster.kube.client import Client

CRDS = Path(__file__).resolve().parents[2] / "crds"


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByControlPlane | None:
    """Files go to processes by the control planes that their tests use, where they go by file at all."""
    return ByControlPlane(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture(scope="session")
def api_server() -> Iterator[ControlPlane]:
    """The control plane: `.server`, `.kubeconfig`, `.restart_apiserver()`."""
    with tempfile.TemporaryDirectory(prefix="muster-integration-") as folder, ControlPlane(folder) as control_plane:
        install = kubectl_of(control_plane)
        # Client-side apply, the way a user does it: it refuses definitions that are too large for its annotation.
        for arguments in (("apply", "-f", str(CRDS)), ("wait", "--for=condition=Established", "crd", "--all")):
            result = install(*arguments)
            assert result.returncode == 0, result.stderr
        yield control_plane


@pytest.fixture(scope="session")
def kubectl(api_server: ControlPlane) -> Kubectl:
    """`kubectl(*arguments, stdin=None)` as the administrator; the caller judges the result."""
    return kubectl_of(api_server)


@pytest.fixture
def namespace(api_server: ControlPlane) -> str:
    """A namespace of the test's own, with the service account that pods need."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    api_server.api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    api_server.api.create(f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": "default"}})
    return name


@pytest.fixture
async def client(api_server: ControlPlane) -> AsyncIterator[Client]:
    """The operator's client, as the administrator."""
    made = await Client.connect(str(api_server.kubeconfig))
    yield made
    await made.close()

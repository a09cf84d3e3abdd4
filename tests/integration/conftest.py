"""A real API server for the integration tests: etcd and kube-apiserver with Muster's CRDs, started once per session.

There is no controller manager: what its controllers would do (garbage collection, namespaces that vanish, the default
service account) does not happen unless a test does it.
"""

import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from localcluster.controlplane import ControlPlane

CRDS = Path(__file__).resolve().parents[2] / "crds"
Kubectl = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def api_server() -> Iterator[ControlPlane]:
    """The control plane: `.server`, `.kubeconfig`, `.restart_apiserver()`."""
    with tempfile.TemporaryDirectory(prefix="muster-integration-") as folder, ControlPlane(folder) as control_plane:
        install = _kubectl_of(control_plane)
        # Client-side apply, the way a user does it: it refuses definitions that are too large for its annotation.
        for arguments in (("apply", "-f", str(CRDS)), ("wait", "--for=condition=Established", "crd", "--all")):
            result = install(*arguments)
            assert result.returncode == 0, result.stderr
        yield control_plane


@pytest.fixture(scope="session")
def kubectl(api_server: ControlPlane) -> Kubectl:
    """`kubectl(*arguments, stdin=None)` as the administrator; the caller judges the result."""
    return _kubectl_of(api_server)


@pytest.fixture
def namespace(kubectl: Kubectl) -> str:
    """A namespace of the test's own, with the service account that pods need."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    for arguments in (("create", "namespace", name), ("create", "serviceaccount", "default", "--namespace", name)):
        result = kubectl(*arguments)
        assert result.returncode == 0, result.stderr
    return name


def _kubectl_of(control_plane: ControlPlane) -> Kubectl:
    def kubectl(*arguments: str, stdin: str | None = None) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [
                str(control_plane.kubectl),
                f"--kubeconfig={control_plane.kubeconfig}",
                # What it has learnt about a server is keyed by the address, which another session may have used.
                f"--cache-dir={control_plane.directory / 'kubectl-cache'}",
                *arguments,
            ],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return kubectl

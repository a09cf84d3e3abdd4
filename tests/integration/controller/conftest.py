"""The operator as a process of its own against a real API server; nodes, kubelets and launchers are played.

The control plane has the controllers that matter here: garbage collection, namespaces, quotas, service accounts.
"""

import asyncio
import functools
import subprocess
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from localcluster.api import Api, wait_for
from localcluster.controlplane import ControlPlane
from muster.api.base import API_VERSION
from muster.kube import paths
from muster.kube.client import Client
from muster.kube.errors import NotFound

sys.path.insert(0, str(Path(__file__).parent))

from localcluster.patience import PATIENCE_SECONDS
from stage.hand import Hand, patiently
from stage.operators import ForkServer, Operators
from stage.scene import Scene

CRDS = Path(__file__).resolve().parents[3] / "crds"
CONTROLLERS = "garbage-collector-controller,namespace-controller,resourcequota-controller,serviceaccount-controller"


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """A control plane with controllers and Muster's CRDs."""
    with (
        tempfile.TemporaryDirectory(prefix="muster-controller-") as folder,
        ControlPlane(folder, controllers=CONTROLLERS) as made,
    ):
        for arguments in (("apply", "-f", str(CRDS)), ("wait", "--for=condition=Established", "crd", "--all")):
            subprocess.run(
                [str(made.kubectl), f"--kubeconfig={made.kubeconfig}", f"--cache-dir={folder}/kubectl", *arguments],
                check=True,
                capture_output=True,
                timeout=PATIENCE_SECONDS,
            )
        # The garbage collector looks for new kinds only now and then: they are there before it starts.
        wait_for(lambda: _serves_every_kind(made.api), "every kind is served", PATIENCE_SECONDS)
        made.start_controller_manager()
        policy = {"apiVersion": API_VERSION, "kind": "FleetPolicy", "metadata": {"name": "default"}, "spec": {}}
        made.api.create(f"/apis/{API_VERSION}/fleetpolicies", policy)
        yield made


def _serves_every_kind(api: Api) -> bool:
    """Whether discovery shows every kind that is defined."""
    definitions = api.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")["items"]
    shown = {resource["name"] for resource in api.get(f"/apis/{API_VERSION}")["resources"]}
    return shown >= {definition["spec"]["names"]["plural"] for definition in definitions}


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    """Starts operator processes."""
    server = ForkServer()
    yield server
    server.close()


@pytest.fixture
async def scene(control_plane: ControlPlane, fork_server: ForkServer, tmp_path: Path) -> AsyncIterator[Scene]:
    """An empty world; what must never happen is checked when the test has ended."""
    api = await Client.connect(str(control_plane.kubeconfig))
    namespace = f"jobs-{uuid.uuid4().hex[:8]}"
    installation = f"muster-{uuid.uuid4().hex[:8]}"
    for name in (namespace, installation):
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await patiently(functools.partial(api.post, paths.core("namespaces"), body))
    await _service_account(api, namespace)
    operators = Operators(fork_server, control_plane.kubeconfig, installation, tmp_path)
    async with Hand(api, namespace).at_work() as hand:
        scene = Scene(api, hand, operators)
        try:
            yield scene
            assert not scene.ledger.violations, f"{scene.ledger.violations}\n{await scene.describe()}"
        finally:
            await operators.close()
            await _empty(api, namespace)
    await api.close()


async def _service_account(api: Client, namespace: str) -> None:
    while True:
        try:
            await api.get(paths.core("serviceaccounts", namespace=namespace, name="default"))
            return
        except NotFound:
            await asyncio.sleep(0.02)


async def _empty(api: Client, namespace: str) -> None:
    """Take everything away that another test's operator would see."""
    for kind in (paths.muster("trainingjobs", namespace=namespace), paths.muster("gangs", namespace=namespace)):
        await patiently(functools.partial(api.delete, kind))
    for fleetwide in ("repairrequests", "nodehealths"):
        await patiently(functools.partial(api.delete, paths.muster(fleetwide)))
    pods = paths.core("pods", namespace=namespace)
    await patiently(functools.partial(api.delete, pods, {"gracePeriodSeconds": 0}))

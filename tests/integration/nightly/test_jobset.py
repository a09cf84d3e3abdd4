"""JobSet's own controller runs what `convert --to jobset` makes of the examples.

Pods run on fake nodes: that a program starts in them, this does not see.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from bench.bed import NAMESPACE, PODS, Bed
from bench.peers.jobset import JobSet

from localcluster.api import wait_for
from localcluster.kwok import TOLERATION, KwokControlPlane
from muster.api.trainingjob import LaunchMode, parsed
from muster.convert.fields import Notes, RefusedError
from muster.convert.to_jobset import jobset

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
NODES = 16
WAIT_SECONDS = 60.0
CHECKPOINT = {"path": "/shared/step_70", "step": 70, "format": "Torch", "time": "2026-01-31T12:00:00.000000Z"}

Object = dict[str, Any]


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    """With JobSet's controller and its webhooks."""
    with KwokControlPlane.temporary_with(NODES) as cluster:
        bed = Bed(cluster, NODES)
        peer = JobSet(bed)
        peer.begin()
        yield bed
        peer.end()


def manifests() -> dict[str, Object]:
    """The TrainingJobs of all examples, by example and name; those of examples/reference ask for nodes of a model."""
    files = sorted(EXAMPLES.glob("*/trainingjob.yaml"))
    found = [(file.parent.name, each) for file in files for each in yaml.safe_load_all(file.read_text())]
    return {f"{folder}-{each['metadata']['name']}": each for folder, each in found if each["kind"] == "TrainingJob"}


@pytest.mark.parametrize("name", manifests())
def test_an_example(bed: Bed, name: str) -> None:
    manifest = manifests()[name]
    size = min(manifest["spec"]["nodes"], NODES)
    manifest["spec"]["nodes"] = size
    job = parsed({**manifest, "status": {"checkpoint": CHECKPOINT}})
    template = manifest["spec"]["template"]
    template["spec"].setdefault("tolerations", []).append(TOLERATION)
    template["spec"]["volumes"] = [  # no claims are there
        {"name": volume["name"], "emptyDir": {}} for volume in template["spec"].get("volumes") or ()
    ]
    try:
        made = jobset(job, template, "nvidia.com/gpu", Notes())
    except RefusedError as refused:
        pytest.skip(str(refused))
    made["metadata"] = {"name": job.metadata.name, "namespace": NAMESPACE}
    bed.apply([made])
    try:
        wait_for(lambda: len(running(bed)) == size, f"{size} pods run", WAIT_SECONDS)
        pods = running(bed)
        first = pods[0]["spec"]
        assert [rank(pod) for pod in pods] == [str(index) for index in range(size)]
        (address,) = {variables(pod, job.spec.launch.worker_container)["MASTER_ADDR"] for pod in pods}
        assert address == f"{first['hostname']}.{first['subdomain']}"
        service = bed.connection.get(f"/api/v1/namespaces/{NAMESPACE}/services/{first['subdomain']}")
        assert service["spec"]["clusterIP"] == "None"
        selector = service["spec"]["selector"]
        assert all(selector.items() <= pod["metadata"]["labels"].items() for pod in pods)
        if job.spec.launch.mode is LaunchMode.MANAGED and job.spec.checkpoint.directory:
            assert variables(pods[0], job.spec.launch.worker_container)["MUSTER_RESUME_PATH"] == CHECKPOINT["path"]
    finally:
        bed.kubectl("delete", "jobset", job.metadata.name, f"--namespace={NAMESPACE}")
        wait_for(lambda: not bed.connection.get(PODS)["items"], "the pods are gone", WAIT_SECONDS)


def running(bed: Bed) -> list[Object]:
    """The pods that run, in the order of their ranks."""
    pods = [pod for pod in bed.connection.get(PODS)["items"] if pod["status"]["phase"] == "Running"]
    return sorted(pods, key=lambda pod: int(rank(pod)))


def rank(pod: Object) -> str:
    found: str = pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"]
    return found


def variables(pod: Object, worker: str | None) -> dict[str, str]:
    """Those of the container that trains."""
    containers = pod["spec"]["containers"]
    container = next((each for each in containers if each["name"] == worker), containers[0])
    return {each["name"]: each.get("value", "") for each in container["env"]}

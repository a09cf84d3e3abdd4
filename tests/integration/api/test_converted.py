"""What `kubectl muster convert` makes is what an API server takes, the rules in CEL included."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from tests.unit.convert.builders import a_pytorch_job
from tests.unit.lifecycle.builders import SETTINGS
from tests.unit.reports.corpus import Case, cases

from muster.api.gang import Member
from muster.api.trainingjob import TrainingJob
from muster.cli.convert import as_document
from muster.convert import pod
from muster.convert.documents import convert_objects
from muster.convert.requested import JobRequest
from muster.convert.slurm_script import convert_script
from muster.pods.worker_pod import worker_manifest

MANIFESTS = cases("manifests")
JOBS = [
    pytest.param(result.job, id=str(case))
    for case in MANIFESTS
    for result in convert_objects(list(yaml.safe_load_all(case.given)))
    if result and result.job
]
SCRIPTS = [
    pytest.param(result.job, id=str(case))
    for case in cases("scripts")
    for result in [convert_script(case.given, "sample.sh", JobRequest(case.besides.get("image", "i")))]
    if result.job
]
OWN = [case for case in MANIFESTS if "kind: TrainingJob\n" in case.given]


@pytest.mark.parametrize("job", [*JOBS, *SCRIPTS])
def test_a_converted_job_is_accepted(job: dict[str, Any], refusal: Callable[..., str]) -> None:
    metadata = {name: value for name, value in job["metadata"].items() if name != "namespace"}
    assert refusal(yaml.safe_load(as_document({**job, "metadata": metadata}))) == ""


@pytest.mark.parametrize("case", OWN, ids=str)
def test_a_job_as_people_write_it_is_accepted_or_refused(case: Case, kubectl: Callable[..., Any]) -> None:
    found = kubectl("apply", "--validate=strict", "--dry-run=server", "-f", "-", stdin=case.given)
    assert (found.returncode == 0) is (case.right == "accepted"), found.stderr
    assert case.right == "accepted" or case.right["refused"] in found.stderr


@pytest.mark.parametrize(
    ("kind", "known"),
    [
        ("PodSpec", {*pod.POD_KEPT, *pod.POD_LEFT_OUT, *pod.POD_TOLD}),
        ("Container", {*pod.CONTAINER_KEPT, *pod.CONTAINER_LEFT_OUT, *pod.CONTAINER_TOLD}),
    ],
)
def test_each_field_that_an_api_server_knows_has_a_meaning(
    kind: str, known: set[str], kubectl: Callable[..., Any]
) -> None:
    published = kubectl("get", "--raw", "/openapi/v3/api/v1")
    assert published.returncode == 0, published.stderr
    fields = json.loads(published.stdout)["components"]["schemas"][f"io.k8s.api.core.v1.{kind}"]["properties"]
    assert {*fields} - known == set()


# Valid in a pod that is restarted where it is, and not in one that never is, or only from a client of another kind.
REFUSED_IN_A_WORKER = {
    "ephemeralContainers": [{"name": "debug", "image": "i"}],
    "priority": 7,
    "preemptionPolicy": "Never",
    "schedulingGates": [{"name": "example.org/queue"}],
    "hostname": "trainer",
    "subdomain": "trainers",
    "terminationGracePeriodSeconds": 0,
}


def test_the_pod_of_a_worker_has_nothing_that_the_api_server_refuses_there(
    namespace: str, kubectl: Callable[..., Any]
) -> None:
    restarted = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    index = {"fieldRef": {"fieldPath": "metadata.labels['training.kubeflow.org/replica-index']"}}
    source = a_pytorch_job(
        ["torchrun", "train.py"],
        resizePolicy=restarted,
        env=[{"name": "PLACE", "valueFrom": index}],
        volumeMounts=[{"name": "data", "mountPath": "/data", "subPathExpr": "$(PLACE)"}],
    )
    spec = source["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    spec |= {**REFUSED_IN_A_WORKER, "volumes": [{"name": "data", "emptyDir": {}}]}
    spec["containers"].append({"name": "logs", "image": "i", "resizePolicy": restarted})
    (found,) = convert_objects([source])
    assert found is not None
    assert found.job is not None
    job = TrainingJob.model_validate({**found.job, "metadata": {"name": "a", "namespace": namespace, "uid": "u"}})
    pod_made = worker_manifest(job, Member(index=0, node="n"), SETTINGS)
    created = kubectl("create", "--validate=strict", "--dry-run=server", "-f", "-", stdin=json.dumps(pod_made))
    assert created.returncode == 0, created.stderr

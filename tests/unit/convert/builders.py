"""Manifests of other systems, and what is said of them."""

import copy
import functools
from typing import Any

import yaml
from tests.unit.reports.corpus import Case, cases

from muster.convert.documents import Result, convert_objects

MANIFESTS = {case.report: case for case in cases("manifests") if case.number == 1 and case.report != "trainingjobs"}
"""The first case of each report."""


@functools.cache
def _parsed(text: str) -> list[Any]:
    return list(yaml.safe_load_all(text))


def objects(name: str) -> list[Any]:
    return copy.deepcopy(_parsed(MANIFESTS[name].given))


def result_of(case: Case) -> Result:
    (found,) = [each for each in convert_objects(copy.deepcopy(_parsed(case.given))) if each is not None]
    return found


def result(name: str) -> Result:
    return result_of(MANIFESTS[name])


def job_of(found: Result) -> dict[str, Any]:
    assert found.job is not None, found.refused
    return found.job


def trainer(made: dict[str, Any]) -> dict[str, Any]:
    containers = made["spec"]["template"]["spec"]["containers"]
    wanted = made["spec"].get("launch", {}).get("workerContainer", containers[0]["name"])
    (found,) = [each for each in containers if each["name"] == wanted]
    return dict(found)


def said(found: Result) -> str:
    return "\n".join([*found.notes.became, *found.notes.left_out, *found.notes.check])


def a_pytorch_job(command: list[str], **container: Any) -> dict[str, Any]:
    """A job of two nodes with eight GPUs each."""
    resources = {"limits": {"nvidia.com/gpu": 8}}
    trainer = {"name": "pytorch", "image": "i", "command": command, "resources": resources, **container}
    worker = {"replicas": 2, "template": {"spec": {"containers": [trainer]}}}
    spec = {"pytorchReplicaSpecs": {"Worker": worker}}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "a"}, "spec": spec}


def a_job_set(command: list[str], **container: Any) -> dict[str, Any]:
    """A JobSet of four pods with eight GPUs each."""
    trainer = {"name": "t", "image": "i", "command": command, "resources": {"limits": {"nvidia.com/gpu": 8}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [{**trainer, **container}]}}
    batch = {"parallelism": 4, "completions": 4, "backoffLimit": 0, "template": template}
    spec = {"replicatedJobs": [{"name": "workload", "template": {"spec": batch}}]}
    metadata = {"name": "ds", "namespace": "lab"}
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata, "spec": spec}


def only(source: dict[str, Any]) -> Result:
    """What becomes of one job by itself."""
    (found,) = convert_objects([source])
    assert found is not None
    return found

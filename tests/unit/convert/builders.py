"""Manifests of other systems, and what is said of them."""

from pathlib import Path
from typing import Any

import yaml

from muster.convert.documents import Result, converted

MANIFESTS = Path(__file__).parent / "manifests"


def objects(name: str) -> list[Any]:
    return list(yaml.safe_load_all((MANIFESTS / f"{name}.yaml").read_text()))


def result(name: str) -> Result:
    (found,) = [each for each in converted(objects(name)) if each is not None]
    return found


def said(found: Result) -> str:
    return "\n".join([*found.notes.became, *found.notes.left_out, *found.notes.check])


def a_pytorch_job(command: list[str], **container: Any) -> dict[str, Any]:
    """A job of two nodes with eight GPUs each."""
    resources = {"limits": {"nvidia.com/gpu": 8}}
    trainer = {"name": "pytorch", "image": "i", "command": command, "resources": resources, **container}
    worker = {"replicas": 2, "template": {"spec": {"containers": [trainer]}}}
    spec = {"pytorchReplicaSpecs": {"Worker": worker}}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "a"}, "spec": spec}

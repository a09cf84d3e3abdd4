"""Converts the objects of one input: jobs, with the runtimes and the FleetPolicy beside them."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from muster.api.fleetpolicy import FleetPolicySpec
from muster.convert import indexedjob, jobset, pytorchjob, trainjob
from muster.convert.fields import Notes, RefusedError
from muster.convert.job import training_job
from muster.convert.worker import asked

VERSIONS = {
    "PyTorchJob": "kubeflow.org/v1",
    "TrainJob": "trainer.kubeflow.org/v1alpha1",
    "JobSet": "jobset.x-k8s.io/v1alpha2",
}
# Gangs that cannot be converted, by the group of their API: printed as they are, they would start in another system.
_OTHERS = {
    "batch.volcano.sh": {"Job"},
    "elastic.iml.github.io": {"ElasticJob"},
    "flux-framework.org": {"MiniCluster"},
    "grove.io": {"PodCliqueSet"},
    "kubeflow.org": {"MPIJob", "JAXJob", "TFJob", "PaddleJob", "XGBoostJob"},
    "leaderworkerset.x-k8s.io": {"LeaderWorkerSet"},
    "ray.io": {"RayCluster", "RayJob"},
    "sagemaker.amazonaws.com": {"HyperPodPyTorchJob"},
    "training.kubedl.io": {"MPIJob", "TFJob", "XGBoostJob", "ElasticDLJob"},
    "workload.codeflare.dev": {"AppWrapper"},
}
_CLUSTER_RUNTIME, _RUNTIME = "ClusterTrainingRuntime", "TrainingRuntime"


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one job.

    Attributes:
        job: the TrainingJob; None: the job cannot be converted.
        refused: why not, and what to do; a script may have several lines.
        notes: the fields that changed, were left out, or need a check.
    """

    job: dict[str, Any] | None = None
    refused: str = ""
    notes: Notes = field(default_factory=Notes)


def convert_objects(objects: Sequence[Any]) -> list[Result | None]:
    """Return what becomes of each object; None: the object stays as it is."""
    policy = FleetPolicySpec()
    for it in objects:
        if kind_of(it) == "FleetPolicy":
            with suppress(ValidationError):  # the API server reports it
                policy = FleetPolicySpec.model_validate(it.get("spec") or {})
    runtime_objects = [
        it for it in objects if kind_of(it) in (_CLUSTER_RUNTIME, _RUNTIME) and isinstance(it.get("metadata"), dict)
    ]
    runtimes = {_place(it, kind_of(it), it): it for it in runtime_objects}
    return [_result(it, objects, runtimes, policy) if is_gang(it) else None for it in objects]


def is_gang(it: Any) -> bool:
    """Return whether an object is a gang of another system: it is converted or refused, and never stays as it is."""
    return kind_of(it) in VERSIONS or indexedjob.is_gang(it) or _is_refused(it)


def _is_refused(it: Any) -> bool:
    """Return whether an object is a gang of a kind that cannot be converted."""
    api = str(it.get("apiVersion")) if isinstance(it, dict) else ""
    return kind_of(it) in _OTHERS.get(api.partition("/")[0], ())


def why_outside(it: Any) -> str:
    """Return what a user should know of a Job with accelerators that is no gang, and stays; "" for other objects."""
    if kind_of(it) != "Job" or is_gang(it):
        return ""
    with suppress(AttributeError, KeyError, TypeError):  # the API server reports the shape
        containers = it["spec"]["template"]["spec"]["containers"]
        wanted = ", ".join(f"{name}: {number}" for container in containers for name, number in asked(container).items())
        if wanted:
            return (
                f"its pods ask for {wanted}, but it is no Indexed Job of several pods that run at once: it starts "
                "outside of Muster, which keeps off the nodes that it holds. For one pod on a healthy node write a "
                "TrainingJob with spec.nodes: 1"
            )
    return ""


def kind_of(it: Any) -> str:
    """Return the kind of an object."""
    return str(it.get("kind")) if isinstance(it, dict) else "something that is no object"


def title(it: Any) -> str:
    """Return kind and name of an object, for people."""
    metadata = it.get("metadata") if isinstance(it, dict) else None
    named = metadata if isinstance(metadata, dict) else {}
    return f"{kind_of(it)} {'/'.join(str(named[part]) for part in ('namespace', 'name') if named.get(part))}".rstrip()


def _place(runtime: Mapping[str, Any], kind: str, beside: Mapping[str, Any]) -> tuple[str, str]:
    """Return the key of a runtime: its kind and name, and the namespace of one of its users."""
    metadata = runtime.get("metadata") or runtime
    namespace = (beside.get("metadata") or {}).get("namespace") or ""
    return kind, f"{namespace if kind == _RUNTIME else ''}/{metadata.get('name')}"


def _present(value: Any) -> Any:
    """Return a copy without nulls, which mean that a field is not set."""
    if isinstance(value, dict):
        return {name: _present(item) for name, item in value.items() if item is not None}
    return [_present(item) for item in value] if isinstance(value, list) else value


def _result(
    it: Mapping[str, Any], objects: Sequence[Any], runtimes: Mapping[tuple[str, str], Any], policy: FleetPolicySpec
) -> Result:
    source, notes, kind = _present(it), Notes(), kind_of(it)
    if _is_refused(it):
        return Result(
            refused=f"{kind} of {it.get('apiVersion')} cannot be converted: {', '.join(VERSIONS)} can, and an Indexed "
            "Job. Write a TrainingJob whose command is what runs on each node (torchrun train.py, or python3 train.py "
            "and spec.launch.processesPerNode), docs/trainer-contract.md"
        )
    try:
        if not source["metadata"].get("name"):
            raise RefusedError(
                "metadata.name: there is none: write one, also where generateName has made one up until now"
            )
        if kind in VERSIONS and it.get("apiVersion") != VERSIONS[kind]:
            raise RefusedError(
                f"apiVersion: {it.get('apiVersion')}: {VERSIONS[kind]} is what can be read: kubectl get "
                f"{kind.lower()}s NAME -o yaml writes it, where the cluster knows that version"
            )
        if kind == "TrainJob":
            reference = source["spec"].get("runtimeRef") or {}
            runtime = runtimes.get(_place(reference, reference.get("kind") or _CLUSTER_RUNTIME, source))
            gang = trainjob.gang(source, _present(runtime), notes)
        elif kind == "Job":
            gang = indexedjob.gang(source, objects, notes)
        else:
            gang = (pytorchjob if kind == "PyTorchJob" else jobset).gang(source, notes)
        return Result(training_job(gang, policy, notes), notes=notes)
    except RefusedError as error:
        return Result(refused=str(error), notes=notes)
    except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
        why = f"it has not the shape of a {kind} ({type(error).__name__}: {error})"
        return Result(refused=f"{why}: kubectl apply --dry-run=server -f FILE says where", notes=notes)

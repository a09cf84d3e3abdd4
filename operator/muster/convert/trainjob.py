"""Converts a TrainJob of Kubeflow Trainer, version 2 (trainer.kubeflow.org/v1alpha1), with its runtime or without.

Trainer turns a TrainJob into a JobSet, and so does this module. Source: kubeflow/trainer 2.3, pkg/apis/trainer/v1alpha1
and pkg/runtime/framework/plugins/torch; podTemplateOverrides: 2.1.

Tests: tests/unit/convert/test_documents.py.
"""

from collections.abc import Mapping
from typing import Any

from muster.convert import jobset
from muster.convert.fields import Fields, Notes, RefusedError
from muster.convert.job import Gang
from muster.convert.worker import asked
from muster.world.resources import amount

_NODE = "node"
_STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
_BY_NAME = ("containers", "initContainers", "volumes", "env", "imagePullSecrets", "replicatedJobs")
_KEYS = {"volumeMounts": "mountPath", **dict.fromkeys(_BY_NAME, "name")}


def gang(source: Mapping[str, Any], runtime: Mapping[str, Any] | None, notes: Notes) -> Gang:
    """Read the gang from a TrainJob, and from its runtime where that is known.

    Raises:
        RefusedError: the job is not a gang of one template, or too little is known of it.
    """
    spec, its = Fields(source.get("spec"), "spec", notes), Fields((runtime or {}).get("spec"), "runtime.spec", notes)
    if spec.pop_field("initializer"):
        raise RefusedError(
            "spec.initializer: no step comes before a gang: make it an init container, or a Job that ends before"
        )
    reference, trainer, policy = spec.inner("runtimeRef"), spec.inner("trainer"), its.inner("mlPolicy")
    wanted = f"{reference.pop_field('kind') or 'ClusterTrainingRuntime'} {reference.pop_field('name')}"
    reference.pop_field("apiGroup")
    if runtime is None:
        if "image" not in trainer:
            raise RefusedError(
                f"spec.runtimeRef: {wanted} is not in the input, and nothing else names an image: give that, too: "
                f"kubectl get {wanted.lower()} -o yaml > runtime.yaml"
            )
        notes.check.append(f"{wanted} is not in the input: what it adds (volumes, variables, a command) is missing")
    for other in ("mpi", "flux", "xgboost"):
        if policy.pop_field(other) is not None:
            raise RefusedError(
                f"{policy.at(other)}: Muster starts ranks as torchrun does: take a runtime with torch or jax"
            )
    layout = its.pop_field("template", dict) or {"spec": {"replicatedJobs": [{"name": _NODE}]}}
    for patch in _patches(spec):
        layout = merged(layout, patch)
    jobs = layout["spec"]["replicatedJobs"]
    job = next((candidate for candidate in jobs if _trains(candidate)), jobs[-1])
    batch = job.setdefault("template", {}).setdefault("spec", {})
    usual = policy.pop_field("numNodes", int) or 1
    nodes = trainer.pop_field("numNodes", int) or usual
    batch |= {"parallelism": nodes, "completions": nodes}
    containers = batch.setdefault("template", {}).setdefault("spec", {}).setdefault("containers", [{"name": _NODE}])
    container = next((candidate for candidate in containers if candidate.get("name") == _NODE), containers[0])
    trainer_fields = {part: trainer.pop_field(part) for part in ("image", "command", "args", "env") if part in trainer}
    container |= merged(container, trainer_fields)
    if "resourcesPerNode" in trainer:
        container["resources"] = trainer.pop_field("resourcesPerNode", dict)
    processes = (
        trainer.pop_field("numProcPerNode") or policy.inner("torch").pop_field("numProcPerNode") or _auto(container)
    )
    marks = {part: spec.pop_field(part, dict) for part in ("labels", "annotations") if part in spec}
    notes.became += [f"spec.{part} -> metadata.{part}: {', '.join(marks[part])}" for part in marks]
    metadata = merged(merged(layout.get("metadata") or {}, marks), source["metadata"])
    jobset_of = {"metadata": metadata, "spec": layout["spec"]}
    made = jobset.gang(jobset_of, notes, "runtime.spec.template.spec")
    made.ends(spec, notes)
    made.lasts(spec)
    made.processes = str(processes)
    spec.report_rest()
    its.report_rest()
    return made


def _trains(job: Mapping[str, Any]) -> bool:
    labels = ((job.get("template") or {}).get("metadata") or {}).get("labels") or {}
    return bool(labels.pop(_STEP, "") == "trainer")


def _patches(spec: Fields) -> list[dict[str, Any]]:
    """Return the changes to the runtime's template, all in its shape."""
    patches = []
    for patch in spec.several("runtimePatches"):
        patch.pop_field("manager")
        patch.pop_field("time")
        patches.append(patch.inner("trainingRuntimeSpec").pop_field("template") or {})
    for override in spec.several("podTemplateOverrides"):
        targets = [target.pop_field("name", str) for target in override.several("targetJobs")]
        pod = {part: override.pop_field(part) for part in ("metadata", "spec") if part in override}
        patches.append(
            {"spec": {"replicatedJobs": [{"name": name, "template": {"spec": {"template": pod}}} for name in targets]}}
        )
    return patches


def _auto(container: Mapping[str, Any]) -> str:
    """Return the number of processes for `auto`, as Trainer does: one for each GPU, else one for each CPU.

    To Trainer each resource is a GPU that has the word in its name, e.g. a share of one.
    """
    resources = container.get("resources") or {}
    has_gpus = any("gpu" in name.lower() for part in ("requests", "limits") for name in resources.get(part) or ())
    cpus = (resources.get("requests") or {}).get("cpu") or (resources.get("limits") or {}).get("cpu")
    return "auto" if has_gpus or asked(container) else str(max(1, -(-amount("cpu", str(cpus or 0)) // 1000)))


def merged(base: Any, other: Any, name: str = "") -> Any:
    """Apply a strategic merge patch for pods: objects are merged, and so are lists whose entries have names."""
    if isinstance(base, dict) and isinstance(other, dict):
        return {**base, **{key: merged(base.get(key), value, key) for key, value in other.items()}}
    if isinstance(base, list) and isinstance(other, list) and name in _KEYS:
        key = _KEYS[name]
        ours, theirs = ({entry[key]: entry for entry in listed} for listed in (base, other))
        whole = name == "volumes"  # a volume has one source: a claim replaces a directory
        return [
            *(ours | {at: entry if whole else merged(ours.get(at), entry) for at, entry in theirs.items()}).values()
        ]
    return other

"""Make the manifest of a job from the few fields that most jobs have, and check a manifest before it is sent.

The models of the API check types and limits. They ignore unknown fields, as older operators read newer objects; here a
misspelt field is an error. The API server checks the rest: rules between fields, and the pod.
"""

import difflib
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from muster.api.base import API_VERSION, ApiModel
from muster.api.trainingjob import NAME_RULES, TrainingJobSpec, is_job_name
from muster.cli.convert import read_documents
from muster.client.errors import FieldProblem, InvalidJobError

KIND = "TrainingJob"
_FIELDS = ("apiVersion", "kind", "metadata", "spec", "status")


def training_job(
    name: str,
    *,
    image: str,
    command: Sequence[str],
    nodes: int,
    gpus_per_node: int = 8,
    processes_per_node: int = 1,
    checkpoint_directory: str | None = None,
    volumes: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the manifest of a job. It is a dict, for any other field: `job["spec"]["placement"] = {...}`.

    Args:
        name: of the job: at most 40 lower-case letters, digits and '-'.
        image: of the container that trains.
        command: the program and its arguments, e.g. `["torchrun", "train.py"]`.
        nodes: how many; each has one worker.
        gpus_per_node: accelerators that each worker asks for; 0: none.
        processes_per_node: that Muster starts; 1 where the command itself starts one for each accelerator, as torchrun.
        checkpoint_directory: where the program saves: a path that every worker mounts, or a URL.
        volumes: a PersistentVolumeClaim for each path, e.g. `{"/shared": "my-claim"}`.
        env: variables of the container.

    Raises:
        InvalidJobError: command is one text.
    """
    if isinstance(command, str):
        raise InvalidJobError([FieldProblem("command", 'write a list, e.g. ["torchrun", "train.py"]')])
    mounts = [(f"volume-{number}", path, claim) for number, (path, claim) in enumerate((volumes or {}).items())]
    container = {
        "name": "trainer",
        "image": image,
        "command": list(command),
        "env": [{"name": key, "value": value} for key, value in (env or {}).items()],
        "volumeMounts": [{"name": volume, "mountPath": path} for volume, path, _ in mounts],
    }
    claims = [{"name": volume, "persistentVolumeClaim": {"claimName": claim}} for volume, _, claim in mounts]
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name},
        "spec": {
            "nodes": nodes,
            "gpusPerNode": gpus_per_node,
            "launch": {"processesPerNode": processes_per_node},
            "checkpoint": {"directory": checkpoint_directory} if checkpoint_directory is not None else {},
            "template": {"spec": {"containers": [container], "volumes": claims}},
        },
    }


def read_manifest(path: str | PathLike[str]) -> Mapping[str, Any]:
    """Read the one TrainingJob of a YAML or JSON file.

    Raises:
        InvalidJobError: it cannot be read, or does not hold one object.
    """
    file = str(Path(path).absolute())  # "-" is a name here
    try:
        values = [document.value for document in read_documents(file)]
    except OSError as error:
        raise InvalidJobError([FieldProblem(file, f"{error.strerror}: give the path of a manifest")]) from error
    except ValueError as error:
        raise InvalidJobError([FieldProblem(file, f"{' '.join(str(error).split())}: give YAML or JSON")]) from error
    if len(values) != 1 or not isinstance(values[0], Mapping):
        problem = f"it has {len(values)} documents: submit one TrainingJob, and kubectl apply what it needs before"
        raise InvalidJobError([FieldProblem(file, problem)])
    return values[0]


def checked(manifest: Mapping[str, Any], name: str | None = None) -> dict[str, Any]:
    """Return a manifest as it is sent to the API server.

    Args:
        manifest: of a TrainingJob; apiVersion and kind may be left out.
        name: of the job, in place of that of the manifest.

    Raises:
        InvalidJobError: it is no valid TrainingJob; names each wrong field.
    """
    metadata = manifest.get("metadata") or {}
    if not isinstance(metadata, Mapping):
        raise InvalidJobError([FieldProblem("metadata", "write an object, e.g. {name: llama}")])
    job = {"apiVersion": API_VERSION, "kind": KIND, **manifest, "metadata": {**metadata}}
    job.pop("status", None)
    if name is not None:
        job["metadata"]["name"] = name
    problems = list(_problems(job))
    if problems:
        raise InvalidJobError(problems)
    return job


def _problems(job: Mapping[str, Any]) -> Iterator[FieldProblem]:
    if job["kind"] != KIND or job["apiVersion"] != API_VERSION:
        yield FieldProblem(
            "kind", f"{job['apiVersion']} {job['kind']} is no {API_VERSION} {KIND}: kubectl muster convert makes one"
        )
        return
    yield from (_unknown("", key, _FIELDS) for key in job if key not in _FIELDS)
    name = job["metadata"].get("name")
    if not isinstance(name, str) or not is_job_name(name):
        yield FieldProblem("metadata.name", f"{name!r} becomes part of host names: choose {NAME_RULES}")
    spec = job.get("spec")
    if not isinstance(spec, Mapping):
        yield FieldProblem("spec", "missing: write what the job is to be, e.g. by training_job()")
        return
    yield from _unknown_fields(TrainingJobSpec, spec, "spec")
    try:
        TrainingJobSpec.model_validate(spec)
    except ValidationError as error:
        for wrong in error.errors():
            given = "" if wrong["type"] == "missing" else f", not {wrong['input']!r}"
            yield FieldProblem(".".join(map(str, ("spec", *wrong["loc"]))), f"{wrong['msg']}{given}")


def _unknown_fields(model: type[ApiModel], value: Mapping[str, Any], path: str) -> Iterator[FieldProblem]:
    """Find the fields that a model and the models in it do not have."""
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    for key, inner in value.items():
        if key not in fields:
            yield _unknown(path, key, list(fields))
            continue
        part = _model_of(fields[key].annotation)
        if part is not None and isinstance(inner, Mapping):
            yield from _unknown_fields(part, inner, f"{path}.{key}")


def _model_of(annotation: Any) -> type[ApiModel] | None:
    """Return the model in the type of a field; None: it has none."""
    parts = typing.get_args(annotation) if isinstance(annotation, types.UnionType) else (annotation,)
    return next((part for part in parts if isinstance(part, type) and issubclass(part, ApiModel)), None)


def _unknown(path: str, key: object, fields: Sequence[str]) -> FieldProblem:
    name = str(key)
    by_letters = {field.lower(): field for field in fields}
    near = difflib.get_close_matches(name.replace("_", "").lower(), by_letters, n=1)
    remedy = f"did you mean {by_letters[near[0]]}?" if near else f"there are {', '.join(fields)}"
    return FieldProblem(f"{path}.{name}" if path else name, f"there is no such field: {remedy}")

"""Makes a JobSet (jobset.x-k8s.io/v1alpha2) of a TrainingJob, which starts from the job's newest checkpoint. Pure.

Sources: kubernetes-sigs/jobset, api/jobset/v1alpha2/jobset_types.go; host names: its documentation, Concepts; the index
of a pod: Kubernetes documentation, "Indexed Job for Parallel Processing with Static Work Assignment".

Tests: tests/unit/convert/test_to_jobset.py.
"""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from muster.api.trainingjob import CheckpointStatus, LaunchMode, ResumePreset, TrainingJob
from muster.convert.fields import Notes, RefusedError, short
from muster.pods.launching import command_of, is_shell_line
from muster.pods.worker_pod import PLAIN_MASTER_PORT, asking, worker_container
from muster.protocol import resuming
from muster.protocol.checkpoint_names import above
from muster.protocol.contract import IDENTITY, PLAIN_IDENTITY

API_VERSION = "jobset.x-k8s.io/v1alpha2"
GROUP = "workers"
_INDEX = {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}
_CARRIED = frozenset(
    {"nodes", "gpusPerNode", "template", "suspend", "launch.mode", "launch.workerContainer", "checkpoint.directory"}
    | {"checkpoint.resumePreset", "checkpoint.resumeArgument", "completion.ttlSecondsAfterFinished"}
)
_LACKS = {
    "acceptedWarnings": "nothing warns",
    "checkpoint": "nothing looks for checkpoints",
    "eject": "nothing is there to leave",
    "placement": "pods are placed one by one: Kueue places gangs by topology",
    "preflight": "no node is tested before the start",
    "progress": "no step is seen, and no hang ends the job",
    "recovery": "a failure ends the JobSet, whatever its cause",
    "throughput": "nothing is accounted for",
}


def jobset(job: TrainingJob, template: Mapping[str, Any], resource: str, notes: Notes) -> dict[str, Any]:
    """Return the JobSet of a job.

    Args:
        job: the job, with its status where that is known.
        template: spec.template as it was written.
        resource: the extended resource that gpusPerNode counts.
        notes: takes what the user should know.

    Raises:
        RefusedError: nothing in a JobSet does what the job asks for.
    """
    spec = job.spec
    if spec.launch.processes_per_node > 1:
        raise RefusedError(
            f"spec.launch.processesPerNode: {spec.launch.processes_per_node}: nothing in a JobSet starts several "
            "processes of one command: start them with torchrun, and leave the field out"
        )
    pods = _pods(job, template, resource, notes)
    notes.left_out += [f"spec.{path}: {short(value)}: {why}" for path, value, why in _lacking_fields(job)]
    notes.check.append(
        "its pods are placed one by one, and hold their nodes while others wait: give it to Kueue, or keep room for all"
    )
    if not spec.gpus_per_node:
        notes.check.append("its pods ask for no accelerators, so that several may share a node")
    batch = {
        "parallelism": spec.nodes,
        "completions": spec.nodes,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": pods,
    }
    ttl = spec.completion.ttl_seconds_after_finished
    return {
        "apiVersion": API_VERSION,
        "kind": "JobSet",
        "metadata": {"name": job.metadata.name, "namespace": job.metadata.namespace},
        "spec": {
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            **({"suspend": True} if spec.suspend else {}),
            **({"ttlSecondsAfterFinished": ttl} if ttl is not None else {}),
            "replicatedJobs": [{"name": GROUP, "replicas": 1, "template": {"spec": batch}}],
        },
    }


def _pods(job: TrainingJob, template: Mapping[str, Any], resource: str, notes: Notes) -> dict[str, Any]:
    """Return the template of the pods, with the container that trains made for a JobSet.

    Raises:
        RefusedError: no container of the template trains.
    """
    worker = worker_container(job)
    if worker is None:
        raise RefusedError(
            "spec.template: it has no container that trains: write it, or correct launch.workerContainer"
        )
    pods = copy.deepcopy(dict(template))
    pods["spec"] = pod = {**pods["spec"], "restartPolicy": "Never"}
    trainer = _trainer(job, asking(worker, resource, job.spec.gpus_per_node), notes)
    pod["containers"] = [
        trainer if container.get("name") == trainer.get("name") else container for container in pod["containers"]
    ]
    return pods


def _lacking_fields(job: TrainingJob) -> Iterator[tuple[str, Any, str]]:
    """Yield path, value and reason of each field that is set and that a JobSet has nothing for."""
    written = job.spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    for section, value in written.items():
        fields = value if isinstance(value, dict) and section != "template" else {"": value}
        for name, setting in fields.items():
            path = f"{section}.{name}" if name else section
            if path not in _CARRIED:
                yield path, setting, _LACKS.get(section, "a JobSet has nothing like it")


def _trainer(job: TrainingJob, container: Mapping[str, Any], notes: Notes) -> dict[str, Any]:
    """Return the container that trains, with the variables that Muster would set, and what it resumes from."""
    is_plain = job.spec.launch.mode is LaunchMode.PLAIN
    ours = PLAIN_IDENTITY if is_plain else IDENTITY
    own = [variable for variable in container.get("env") or () if str(variable.get("name")) not in ours]
    own_names = {str(variable.get("name")) for variable in own}
    trainer = {**container}
    variables = _plain_variables(job) if is_plain else _variables(job)
    if not is_plain:
        resumed, words = _resume(job, container, notes)
        variables += resumed
        part = "args" if container.get("args") else "command"
        if words:
            trainer[part] = [*(container.get(part) or ()), *words]
            notes.became.append(f"what resumes: {' '.join(words)} -> {part}")
    trainer["env"] = [*(variable for variable in variables if variable["name"] not in own_names), *own]
    return trainer


def _variable(name: str, value: object) -> dict[str, Any]:
    return {"name": name, "value": str(value)}


def _plain_variables(job: TrainingJob) -> list[dict[str, Any]]:
    name = job.metadata.name
    return [
        {"name": "NODE_RANK", "valueFrom": _INDEX},
        _variable("NNODES", job.spec.nodes),
        _variable("MASTER_ADDR", f"{name}-{GROUP}-0-0.{name}"),
        _variable("MASTER_PORT", PLAIN_MASTER_PORT),
    ]


def _variables(job: TrainingJob) -> list[dict[str, Any]]:
    """Return what Muster's launcher sets for the process of a node (muster.node.launcher.environment)."""
    plain, nodes = _plain_variables(job), job.spec.nodes
    address, port = plain[2]["value"], plain[3]["value"]
    indexes = ("RANK", "GROUP_RANK", "PET_NODE_RANK", "JAX_PROCESS_ID", "MUSTER_WORKER_INDEX")
    values = {
        "LOCAL_RANK": 0,
        "WORLD_SIZE": nodes,
        "LOCAL_WORLD_SIZE": 1,
        "PET_NNODES": nodes,
        "PET_MASTER_ADDR": address,
        "PET_MASTER_PORT": port,
        "PET_NPROC_PER_NODE": job.spec.gpus_per_node or 1,
        "JAX_COORDINATOR_ADDRESS": f"{address}:{port}",
        "JAX_COORDINATOR_IP": address,
        "JAX_COORDINATOR_PORT": port,
        "JAX_NUM_PROCESSES": nodes,
        "MUSTER_ATTEMPT": 1,
        "MUSTER_PROGRESS": "/dev/null",  # programs write there without asking whether it is set
        "MUSTER_CHECKPOINT_DIRECTORY": job.spec.checkpoint.directory or "",
    }
    return [
        *plain,
        *({"name": name, "valueFrom": _INDEX} for name in indexes),
        *(_variable(name, value) for name, value in values.items() if value != ""),
    ]


def _resume(job: TrainingJob, container: Mapping[str, Any], notes: Notes) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the variables with the checkpoint to start from, and the words that end the command for it."""
    directory, saved = job.spec.checkpoint.directory, job.status.checkpoint
    if directory is None:
        return [], []
    if saved is None:
        notes.check.append(
            f"MUSTER_RESUME_PATH: no checkpoint is known: name the newest complete one in {directory} there, or the "
            "program begins from scratch"
        )
        return [], []
    notes.check += [
        f"MUSTER_RESUME_PATH: {saved.path} is the newest complete checkpoint that Muster has seen: look for one that "
        f"an ejected gang has saved since in {directory}, and name that",
        "failurePolicy: a restart would begin at this checkpoint again, and write over what was saved since: set "
        "maxRestarts only where the program finds its newest checkpoint by itself",
    ]
    variables = [
        _variable("MUSTER_RESUME_PATH", saved.path),
        _variable("MUSTER_RESUME_DIRECTORY", above(saved.path)),
        _variable("MUSTER_RESUME_STEP", saved.step),
    ]
    return variables, _resume_arguments(job, container, saved, notes)


def _resume_arguments(
    job: TrainingJob, container: Mapping[str, Any], saved: CheckpointStatus, notes: Notes
) -> list[str]:
    """Return what each start under Muster adds to the command to resume from this checkpoint."""
    command, checkpoint = command_of(container), job.spec.checkpoint
    if checkpoint.resume_argument:
        return list(checkpoint.resume_argument)
    named, directory = checkpoint.resume_preset or ResumePreset.AUTO, checkpoint.directory or ""
    if named is ResumePreset.AUTO and is_shell_line(command):
        return []
    preset = resuming.chosen(named.value, saved.format or "", command, saved.path, directory)
    pointer, content = resuming.pointer(preset, saved.path, directory)
    if pointer:
        notes.check.append(f"{pointer}: {preset} goes by this file: it has to name {content}")
    return list(resuming.added(preset, command, saved.path, directory).words)

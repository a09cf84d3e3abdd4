"""Makes a TrainingJob of what a command line asks for: a container, its command, and where it runs. Pure.

Tests: tests/unit/convert/test_slurm_script.py, tests/unit/cli/test_run.py.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from muster.api.base import API_VERSION
from muster.api.fleetpolicy import FleetPolicySpec
from muster.api.trainingjob import MAX_NAME_LENGTH
from muster.convert import saving
from muster.convert.documents import Result
from muster.convert.fields import Notes, RefusedError
from muster.convert.job import check_job

GPUS_OF_A_NODE = 8
_TRAINER = "trainer"
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - a mount of the pod


@dataclass(frozen=True, slots=True)
class JobRequest:
    """What the command line says of a job.

    Attributes:
        image: of the container that trains; "": the script's.
        name: of the job; "": the script's.
        namespace: of the job; "": none is written.
        nodes: how many, in place of the script's; None: the script's.
        gpus_per_node: accelerators of each node, likewise.
        volumes: a PersistentVolumeClaim for each path.
        checkpoint_directory: where the program saves; "": not said.
        arguments: of the script.
    """

    image: str = ""
    name: str = ""
    namespace: str = ""
    nodes: int | None = None
    gpus_per_node: int | None = None
    volumes: Mapping[str, str] = field(default_factory=dict)
    checkpoint_directory: str = ""
    arguments: tuple[str, ...] = ()


def convert_command(command: Sequence[str], request: JobRequest, processes: int) -> Result:
    """Return the TrainingJob whose workers run a command, or why there is none.

    Args:
        command: `$(NAME)` in it is resolved as in a manifest.
        request: the rest of the command line.
        processes: that Muster starts on each node.
    """
    notes = Notes()
    gpus = GPUS_OF_A_NODE if request.gpus_per_node is None else request.gpus_per_node
    job = job_manifest(request, {"command": [*command]}, request.nodes or 1, gpus, processes)
    try:
        check_request(job, request, notes)
    except RefusedError as error:
        return Result(refused=str(error), notes=notes)
    return Result(job, notes=notes)


def job_manifest(
    request: JobRequest, container: Mapping[str, Any], nodes: int, gpus: int, processes: int = 1
) -> dict[str, Any]:
    """Return the manifest of a job with one container, which has the shared memory of a machine.

    Args:
        request: what the command line says.
        container: command and variables of the container that trains.
        nodes: how many.
        gpus: accelerators of each node.
        processes: that Muster starts on each node.
    """
    mounts = [("shm", _SHARED_MEMORY), *((f"volume-{at}", path) for at, path in enumerate(request.volumes))]
    claims = [
        {"name": f"volume-{at}", "persistentVolumeClaim": {"claimName": claim}}
        for at, claim in enumerate(request.volumes.values())
    ]
    trainer = {
        "name": _TRAINER,
        "image": request.image,
        **container,
        "volumeMounts": [{"name": name, "mountPath": path} for name, path in mounts],
    }
    namespace = {"namespace": request.namespace} if request.namespace else {}
    spec: dict[str, Any] = {"nodes": nodes, "gpusPerNode": gpus}
    if processes > 1:
        spec["launch"] = {"processesPerNode": processes}
    if request.checkpoint_directory:
        spec["checkpoint"] = {"directory": request.checkpoint_directory}
    volumes = [{"name": "shm", "emptyDir": {"medium": "Memory"}}, *claims]
    spec["template"] = {"spec": {"containers": [trainer], "volumes": volumes}}
    metadata = {"name": request.name, **namespace}
    return {"apiVersion": API_VERSION, "kind": "TrainingJob", "metadata": metadata, "spec": spec}


def check_request(job: Mapping[str, Any], request: JobRequest, notes: Notes) -> None:
    """Check a job as the API and the operator would, and ask for what nothing says.

    Raises:
        RefusedError: the API would refuse it.
    """
    check_job(job, FleetPolicySpec(), notes)
    template = job["spec"]["template"]["spec"]
    of_directory, *others = saving.questions(template["containers"][0], template["volumes"])
    notes.check += others if request.checkpoint_directory else [of_directory, *others]


def job_name(written: str) -> str:
    """Return a name for a job that is as near to a written one as it can be; "" where nothing is left."""
    words = re.sub(r"[^a-z0-9]+", "-", written.lower())
    return re.sub(r"^[^a-z]+", "", words)[:MAX_NAME_LENGTH].strip("-")

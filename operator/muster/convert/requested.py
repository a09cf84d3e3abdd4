"""Makes a TrainingJob of what a command line asks for: a container, its command, and where it runs. Pure.

Tests: tests/unit/convert/test_slurm_script.py, tests/unit/cli/test_run.py.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from muster.api.base import API_VERSION
from muster.api.fleetpolicy import FleetPolicySpec
from muster.api.trainingjob import MAX_DURATION_SECONDS, MAX_NAME_LENGTH
from muster.convert import saving
from muster.convert.documents import Result
from muster.convert.fields import Notes, RefusedError, short
from muster.convert.job import check_job

GPUS_OF_A_NODE = 8
_TRAINER = "trainer"
_DAY_SECONDS = 86400
_UNITS = (3600, 60, 1)
_TIME = r"(\d{1,6}-)?\d{1,9}(:\d{1,9}){0,2}"
_NO_TIME = ("INFINITE", "UNLIMITED")
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
        time: that the job is expected to train, as Slurm writes it; "": the script's.
        hold_seconds: for which a failure is held for people; None: it is not.
        arguments: of the script.
    """

    image: str = ""
    name: str = ""
    namespace: str = ""
    nodes: int | None = None
    gpus_per_node: int | None = None
    volumes: Mapping[str, str] = field(default_factory=dict)
    checkpoint_directory: str = ""
    time: str = ""
    hold_seconds: int | None = None
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
        if seconds := expected_seconds(request.time, "--time"):
            job["spec"]["queueing"] = {"expectedDurationSeconds": seconds}
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
    if request.hold_seconds is not None:
        spec["recovery"] = {"onFailure": "Hold", "holdSeconds": request.hold_seconds}
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


def expected_seconds(written: str, where: str) -> int | None:
    """Return the seconds of a time of Slurm's; None: it sets none, or more than can be said.

    Args:
        written: `minutes[:seconds]`, `hours:minutes:seconds` or `days-hours[:minutes[:seconds]]`.
        where: it stands, for people.

    Raises:
        RefusedError: it is no time.
    """
    if not written or written.upper() in _NO_TIME:
        return None
    days, has_days, clock = written.rpartition("-")
    fields = clock.split(":")
    if not re.fullmatch(_TIME, written, re.ASCII):
        raise RefusedError(f"{where}: {short(written)}: write minutes, hours:minutes:seconds or days-hours")
    if not has_days and len(fields) < len(_UNITS):
        fields = ["0", *fields]  # without days and hours it begins with minutes
    seconds = sum(int(number) * unit for number, unit in zip(fields, _UNITS, strict=False))
    seconds += int(days or 0) * _DAY_SECONDS
    return seconds if 0 < seconds <= MAX_DURATION_SECONDS else None


def job_name(written: str) -> str:
    """Return a name for a job that is as near to a written one as it can be; "" where nothing is left."""
    words = re.sub(r"[^a-z0-9]+", "-", written.lower())
    return re.sub(r"^[^a-z]+", "", words)[:MAX_NAME_LENGTH].strip("-")

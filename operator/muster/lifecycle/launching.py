"""What Muster makes of how a job's program is started: what of the template it sets itself, and who starts processes. Pure."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from muster.api.trainingjob import LaunchMode, TrainingJob
from muster.lifecycle.worker_pod import (
    CLUSTER_DNS,
    CLUSTER_DNS_ON_HOST,
    UNUSED_PROBES,
    misses_cluster_dns,
    worker_container,
)
from muster.protocol.contract import IDENTITY, PLAIN_IDENTITY
from muster.protocol.resuming import BY_NAME
from muster.protocol.starters import ACCELERATE, DEEPSPEED, TORCHRUN, option, starter_of

_ONE_PROCESS = frozenset(BY_NAME["MaxText"].programs)
_SHELLS = frozenset(("sh", "bash", "dash", "ash", "zsh"))


def words(job: TrainingJob) -> str:
    """What a reader of the job's status should know of it; "" where all is as the template says."""
    container = worker_container(job) or {}
    parts = [_overridden(job, container), *_unused(job, container)]
    if job.spec.launch.mode is LaunchMode.MANAGED:
        command = command_of(container)
        parts += [_alone(job, command), _processes(job, command, container)]
    return "; ".join(part for part in parts if part)


def _variables(container: Mapping[str, Any]) -> set[str]:
    listed = container.get("env")
    return {str(each.get("name")) for each in listed if isinstance(each, dict)} if isinstance(listed, list) else set()


def _overridden(job: TrainingJob, container: Mapping[str, Any]) -> str:
    managed = job.spec.launch.mode is LaunchMode.MANAGED
    theirs = sorted(_variables(container) & (IDENTITY if managed else PLAIN_IDENTITY))
    if not theirs:
        return ""
    when = "at each start" if managed else "in each pod"
    return f"Muster sets {', '.join(theirs)} {when}: what the template's env says of them is not used"


def _unused(job: TrainingJob, container: Mapping[str, Any]) -> list[str]:
    """What of the template a worker's pod has otherwise."""
    spec, told = job.spec.pod, []
    if misses_cluster_dns(spec):
        told.append(
            f"dnsPolicy is {CLUSTER_DNS_ON_HOST}: with hostNetwork, {CLUSTER_DNS} would not find names of the cluster"
        )
    probes = [probe for probe in UNUSED_PROBES if container.get(probe)]
    if probes and job.spec.launch.mode is LaunchMode.MANAGED:
        told.append(
            f"{' and '.join(probes)} of container {container.get('name')} are not used, since the program does not run while the gang "
            "waits: spec.progress.stepTimeoutSeconds finds what hangs"
        )
    return told


def command_of(container: Mapping[str, Any]) -> list[str]:
    """The program and all that it is given; what is no list says nothing, and is refused elsewhere."""
    parts = (container.get("command"), container.get("args"))
    return [str(word) for part in parts if isinstance(part, list) for word in part]


def is_shell_line(command: Sequence[str]) -> bool:
    """Whether a shell runs a line of its own, which is not passed the words that follow."""
    if not command or command[0].rsplit("/", 1)[-1] not in _SHELLS:
        return False
    options = itertools.takewhile(lambda word: word.startswith("-"), command[1:])
    return any(not word.startswith("--") and "c" in word for word in options)


def _alone(job: TrainingJob, command: list[str]) -> str:
    """Programs that read none of the variables: without options each node would train by itself."""
    starter = starter_of(command) if job.spec.nodes > 1 else ""
    if starter == ACCELERATE and option(command, "--machine-rank") is None:
        total = job.spec.nodes * max(job.spec.gpus_per_node, 1)
        return (
            "accelerate launch reads no variables, so each node would train alone: add --num_machines=$(NNODES) "
            "--machine_rank=$(NODE_RANK) --main_process_ip=$(MASTER_ADDR) --main_process_port=$(MASTER_PORT) "
            f"--num_processes={total}, or start the program with torchrun"
        )
    if starter == DEEPSPEED and option(command, "--hostfile", "-H") is None:
        return (
            "deepspeed without a hostfile knows one node, so each node would train alone: start the program with torchrun "
            "in its place"
        )
    return ""


def _processes(job: TrainingJob, command: list[str], container: Mapping[str, Any]) -> str:
    gpus, starter = job.spec.gpus_per_node, starter_of(command)
    if gpus < 2 or job.spec.launch.processes_per_node != 1:
        return ""
    if starter == TORCHRUN:
        chosen = "PET_NPROC_PER_NODE" in _variables(container) or option(command, "--nproc-per-node") is not None
        return "" if chosen else f"torchrun starts {gpus} processes on each node, one for each GPU (PET_NPROC_PER_NODE)"
    if any(word in _ONE_PROCESS for word in command):
        return ""  # JAX gives one process all GPUs of its node
    if starter or not command or command[0].rsplit("/", 1)[-1] in _SHELLS or command[0].endswith(".sh"):
        return ""  # it starts one for each GPU by itself; and what a shell does is not looked into
    return (
        f"one process on each node has its {gpus} GPUs: where each process uses one, set launch.processesPerNode to {gpus}, "
        "or start the program with torchrun"
    )

"""What the pod's environment configures for the launcher, and the environment of the ranks: pure functions.

Tests: tests/unit/launcher/test_pure.py.
"""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Dict, Mapping, Sequence, Tuple

from muster.protocol.channel import Endpoint, host_and_port
from muster.protocol.checkpoint_names import above
from muster.protocol.messages import Directive
from muster.protocol.starters import COMPOSER, commands_of, option, starter_of

_GPUS = "MUSTER_GPUS_PER_NODE"
CHECKPOINT_DIRECTORY = "MUSTER_CHECKPOINT_DIRECTORY"
LOCAL_DIRECTORY = "MUSTER_LOCAL_CHECKPOINT_DIRECTORY"
REQUESTS = "requests.json"  # in the directory of an attempt, while its ranks are asked for something
OWN_SHARED_MEMORY = "MUSTER_OWN_SHARED_MEMORY"  # set where no other container sees the container's /dev/shm


class SettingsError(ValueError):
    """A variable is missing from the launcher's environment or malformed; the message says which one, and who sets
    it."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """The launcher's own configuration, set by the operator in the pod."""

    host: str
    port: int
    server_name: str  # the name in the coordinator's certificate
    token_file: str
    ca_file: str
    pod_ip: str
    worker_index: int
    directory: str  # writable, for files of the launcher and its ranks
    gang: str = ""  # name of the gang's record
    checkpoint_directory: str = ""
    local_directory: str = ""  # on this node's own disk
    resume_argument: Tuple[str, ...] = ()  # ends the command of an attempt that goes on from a checkpoint
    step_pattern: str = ""
    progress_preset: str = ""  # "" = output is not looked through, unless by the pattern
    scan_seconds: float = 2.0
    scan_deadline_seconds: float = 10.0
    fence_seconds: float = 15.0

    @property
    def endpoint(self) -> Endpoint:
        """The address of the coordinator, with what is needed to connect to it."""
        return Endpoint(self.host, self.port, self.server_name, self.token_file, self.ca_file)


def settings_from(environment: Mapping[str, str], default_directory: str) -> Settings:
    """Read the launcher's settings from its environment.

    Args:
        environment: the container's variables.
        default_directory: the directory for the launcher's own files, where the environment names none.

    Raises:
        SettingsError: a variable is missing or malformed.
    """
    host, port = _endpoint(_required(environment, "MUSTER_COORDINATOR"))
    return Settings(
        host=host,
        port=port,
        server_name=environment.get("MUSTER_COORDINATOR_NAME") or host,
        token_file=_required(environment, "MUSTER_TOKEN_FILE"),
        ca_file=_required(environment, "MUSTER_CA_FILE"),
        pod_ip=environment.get("MUSTER_POD_IP", ""),
        worker_index=int(_number(environment, "MUSTER_WORKER_INDEX", 0)),
        directory=environment.get("MUSTER_DIRECTORY") or default_directory,
        gang=environment.get("MUSTER_GANG", ""),
        checkpoint_directory=environment.get(CHECKPOINT_DIRECTORY, ""),
        local_directory=environment.get(LOCAL_DIRECTORY, ""),
        resume_argument=_words(environment, "MUSTER_RESUME_ARGUMENT"),
        step_pattern=environment.get("MUSTER_STEP_PATTERN", ""),
        progress_preset=environment.get("MUSTER_PROGRESS_PRESET", ""),
        scan_seconds=_number(environment, "MUSTER_SCAN_SECONDS", Settings.scan_seconds),
        scan_deadline_seconds=_number(environment, "MUSTER_SCAN_DEADLINE_SECONDS", Settings.scan_deadline_seconds),
        fence_seconds=_number(environment, "MUSTER_FENCE_SECONDS", Settings.fence_seconds),
    )


def _endpoint(text: str) -> Tuple[str, int]:
    try:
        return host_and_port(text)
    except ValueError:
        raise SettingsError("MUSTER_COORDINATOR must look like https://host:port, not %r" % text) from None


def _required(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name, "")
    if not value:
        raise SettingsError("%s is not set: the operator sets it in the pods of a TrainingJob" % name)
    return value


def _words(environment: Mapping[str, str], name: str) -> Tuple[str, ...]:
    text = environment.get(name, "")
    try:
        words = json.loads(text) if text else []
    except ValueError:
        words = None
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise SettingsError("%s: a JSON list of words is expected, not %r" % (name, text))
    return tuple(words)


def _number(environment: Mapping[str, str], name: str, default: float) -> float:
    text = environment.get(name, "")
    if not text:
        return default
    try:
        return float(text)
    except ValueError:
        raise SettingsError("%s: a number is expected, not %r" % (name, text)) from None


@dataclasses.dataclass(frozen=True)
class RankFiles:
    """The paths of the files of one rank in one attempt."""

    progress: str
    requests: str
    error: str
    flight_recorder_prefix: str

    @classmethod
    def within(cls, attempt_directory: str, local_rank: int) -> "RankFiles":
        """The paths of a rank's files below the directory of an attempt."""
        return cls(
            progress=os.path.join(attempt_directory, "progress-%d.jsonl" % local_rank),
            requests=os.path.join(attempt_directory, REQUESTS),
            error=os.path.join(attempt_directory, "error-%d.json" % local_rank),
            flight_recorder_prefix=os.path.join(attempt_directory, "nccl-trace-rank-"),
        )


def rank_environment(
    inherited: Mapping[str, str], directive: Directive, local_rank: int, files: RankFiles, command: Sequence[str] = ()
) -> Dict[str, str]:
    """The environment of one rank: the container's variables, those of torchrun and JAX, and Muster's trainer contract.

    Muster sets the rank, the nodes, the master and the contract (muster.protocol.contract). Its other variables give
    way to the container's own. The most important one is PET_NPROC_PER_NODE: it tells a torchrun how many processes to
    start.

    Args:
        inherited: the container's variables.
        directive: of the attempt that starts.
        local_rank: the number of the rank on this worker, from 0.
        files: of the rank.
        command: the command of the ranks, by which their launcher is known.
    """
    per_node = directive.processes_per_node
    rank = directive.node_rank * per_node + local_rank
    world_size = directive.node_count * per_node
    address, port = directive.master_address, str(directive.master_port)
    bracketed = "[%s]" % address if ":" in address else address
    environment = dict(inherited)
    environment.update(
        RANK=str(rank),
        LOCAL_RANK=str(local_rank),
        WORLD_SIZE=str(world_size),
        LOCAL_WORLD_SIZE=str(per_node),
        GROUP_RANK=str(directive.node_rank),
        NODE_RANK=str(directive.node_rank),
        NNODES=str(directive.node_count),
        MASTER_ADDR=address,
        MASTER_PORT=port,
        PET_NNODES=str(directive.node_count),
        PET_NODE_RANK=str(directive.node_rank),
        PET_MASTER_ADDR=address,
        PET_MASTER_PORT=port,
        JAX_COORDINATOR_ADDRESS="%s:%s" % (bracketed, port),
        JAX_COORDINATOR_IP=bracketed,  # MaxText puts a colon and the port behind it, as they are
        JAX_COORDINATOR_PORT=port,
        JAX_PROCESS_ID=str(rank),
        JAX_NUM_PROCESSES=str(world_size),
        MUSTER_ATTEMPT=str(directive.attempt),
        MUSTER_PROGRESS=files.progress,
        MUSTER_REQUESTS=files.requests,
    )
    for name, value in _unless_set(per_node, inherited.get(_GPUS, ""), files).items():
        environment.setdefault(name, value)
    for inner_command in commands_of(command) if per_node == 1 else ():
        if starter_of(inner_command) == COMPOSER:
            environment.update(_of_composer(inner_command, inherited, directive.node_count))
    for name in ("MUSTER_RESUME_DIRECTORY", "MUSTER_RESUME_PATH", "MUSTER_RESUME_STEP"):
        environment.pop(name, None)
    if directive.resume_path:
        environment["MUSTER_RESUME_PATH"] = directive.resume_path
        environment["MUSTER_RESUME_DIRECTORY"] = above(directive.resume_path)
        if directive.resume_step is not None:
            environment["MUSTER_RESUME_STEP"] = str(directive.resume_step)
    return environment


def _of_composer(command: Sequence[str], inherited: Mapping[str, str], node_count: int) -> Dict[str, str]:
    """The variables that Composer's launcher reads for the processes that it starts; torchrun only writes them."""
    chosen = option(command, "-n", "--nproc") or inherited.get(_GPUS) or "1"
    if not chosen.isdecimal():
        return {}
    return {"LOCAL_WORLD_SIZE": chosen, "WORLD_SIZE": str(node_count * int(chosen))}


def _unless_set(per_node: int, gpus: str, files: RankFiles) -> Dict[str, str]:
    """The variables that hold only where the container does not set them. Muster starts `per_node` ranks on the node.
    `gpus` is the number of GPUs of the node, where Muster asked for them, "" otherwise: one process that starts others
    starts one for each GPU.
    """
    defaults = {
        "PET_NPROC_PER_NODE": gpus if per_node == 1 and gpus else str(per_node),
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",
        "TORCHELASTIC_ERROR_FILE": files.error,
        "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": files.flight_recorder_prefix,
    }
    if per_node > 1:
        defaults["OMP_NUM_THREADS"] = "1"
    return defaults

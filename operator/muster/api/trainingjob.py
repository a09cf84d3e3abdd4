"""TrainingJob: what a user asks for, and what they are told about it."""

from enum import StrEnum
from typing import Any

from pydantic import Field

from muster.api.base import ApiModel, ObjectMeta, Time


class LaunchMode(StrEnum):
    """Who starts the ranks."""

    MANAGED = "Managed"
    PLAIN = "Plain"


class Launch(ApiModel):
    """How the ranks are started."""

    mode: LaunchMode = Field(
        LaunchMode.MANAGED,
        description="Managed: Muster's launcher wraps the command, restarts ranks in place and resumes from checkpoints. "
        "Plain: the container runs as it is with NODE_RANK, NNODES and MASTER_ADDR set; any failure rebuilds the gang.",
    )
    processes_per_node: int = Field(
        1, ge=1, le=64, description="Ranks that the launcher starts on each node (Managed only). Leave 1 when the command is torchrun."
    )
    worker_container: str | None = Field(
        None, min_length=1, max_length=63, description="The container that trains. Default: the first one in the template."
    )


class Placement(ApiModel):
    """Where the gang may run. Levels are the names in FleetPolicy, by default `block` and `rack`."""

    required: str | None = Field(None, min_length=1, max_length=63, description="All workers inside one domain of this level, or wait.")
    preferred: str | None = Field(
        None, min_length=1, max_length=63, description="All workers inside one domain of this level where possible."
    )
    avoid_nodes: list[str] = Field([], max_length=256, description="Names of nodes that this job must not use.")


class Checkpoint(ApiModel):
    """Where the trainer's checkpoints are."""

    directory: str | None = Field(
        None,
        min_length=1,
        max_length=1024,
        description="Absolute path in the worker container, visible to every worker, that holds the checkpoints. "
        "Without it a restart begins from scratch.",
    )
    save_timeout_seconds: int = Field(
        300, ge=0, le=86400, description="How long a planned leave waits for a new complete checkpoint before it stops the ranks."
    )


class Progress(ApiModel):
    """How Muster learns that training advances."""

    step_pattern: str | None = Field(
        None,
        min_length=1,
        max_length=256,
        description="Python regular expression with one group that finds the step number in a line of output. "
        "Not needed when the trainer writes to the file in MUSTER_PROGRESS.",
    )
    step_timeout_seconds: int | None = Field(
        None, ge=1, le=86400, description="No finished step for this long, after the first one, is a hang: the ranks are restarted."
    )
    start_timeout_seconds: int | None = Field(
        None, ge=1, le=86400, description="No first step this long after the ranks were started is a hang: the ranks are restarted."
    )


class Recovery(ApiModel):
    """Budgets and limits of automatic recovery."""

    application_restarts_per_day: int = Field(
        3,
        ge=0,
        le=1000,
        description="Restarts within 24 hours after failures of the job's own making. A complete checkpoint beyond the failing step refills it.",
    )
    hardware_restarts_per_day: int = Field(
        50, ge=0, le=10000, description="Restarts within 24 hours after failures of nodes and infrastructure."
    )
    unreachable_timeout_seconds: int = Field(
        20, ge=5, le=3600, description="A worker that two witnesses agree is silent for this long has lost its node."
    )


class Completion(ApiModel):
    """What happens at the end."""

    ttl_seconds_after_finished: int | None = Field(
        None, ge=0, le=31536000, description="Delete the finished job, with its pods, after this long. Default: keep it."
    )


class TrainingJobSpec(ApiModel):
    """What a user asks for."""

    nodes: int = Field(ge=1, le=4096, description="Size of the gang: one worker pod on each node.")
    gpus_per_node: int = Field(
        8, ge=0, le=64, description="Accelerators that a worker asks for. A worker has its node to itself. 0: a job without accelerators."
    )
    template: dict[str, Any] = Field(description="PodTemplateSpec of a worker.")
    launch: Launch = Launch()
    placement: Placement = Placement()
    checkpoint: Checkpoint = Checkpoint()
    progress: Progress = Progress()
    recovery: Recovery = Recovery()
    completion: Completion = Completion()
    suspend: bool = Field(False, description="Wait for a new complete checkpoint, stop, and release the nodes.")


class ConditionStatus(StrEnum):
    """The three values of a condition."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(ApiModel):
    """metav1.Condition."""

    type: str
    status: ConditionStatus
    reason: str
    message: str = Field("", max_length=1024)
    observed_generation: int = 0
    last_transition_time: Time


class CompletionResult(StrEnum):
    """How a job ended."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class CompletionRecord(ApiModel):
    """The end of a job. Absorbing: once written it never changes."""

    result: CompletionResult
    reason: str = Field(max_length=64)
    message: str = Field("", max_length=4096)
    time: Time
    attempt: int


class CheckpointStatus(ApiModel):
    """The newest complete checkpoint."""

    step: int
    path: str = Field(max_length=1024)
    time: Time


class Incident(ApiModel):
    """One failure or planned leave, for people."""

    attempt: int
    time: Time
    level: str
    fault_class: str
    reason: str
    node: str = ""
    message: str = Field("", max_length=1024)
    lost_steps: int | None = None


class TrainingJobStatus(ApiModel):
    """A projection of the Gang for people and for GitOps tools; never an input to decisions, except `completion`."""

    observed_generation: int = 0
    state: str = Field("", max_length=64, description="One word for `kubectl get`.")
    reason: str = Field("", max_length=64, description="Why it is in that state.")
    attempt: int = 0
    nodes_ready: str = Field("", max_length=32, description="Workers ready of workers wanted, e.g. 3/3.")
    nodes: list[str] = Field([], max_length=4096, description="Node of each worker, by index.")
    step: int | None = None
    checkpoint: CheckpointStatus | None = None
    restarts: int = 0
    incidents: list[Incident] = Field([], max_length=16)
    conditions: list[Condition] = Field([], max_length=16)
    completion: CompletionRecord | None = None


class TrainingJob(ApiModel):
    """A training job."""

    metadata: ObjectMeta
    spec: TrainingJobSpec
    status: TrainingJobStatus = TrainingJobStatus()

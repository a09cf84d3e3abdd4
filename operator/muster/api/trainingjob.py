"""TrainingJob: what a user asks for, and what they are told about it."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.config import JsonDict

from muster.api.base import ApiModel, LevelCount, NodeName, ObjectMeta, Time, checks, rule, shortened_to
from muster.api.gang import CorruptionStatus
from muster.api.goodput import LONGEST_MILLISECONDS, Goodput
from muster.api.preflight import Preflight
from muster.api.throughput import Throughput
from muster.protocol.messages import MAX_NUMBER

MAX_NAME_LENGTH = 40
"""Longest name of a job: its pods are called `<job>-<hash>-<index>-<incarnation>`, and that has to be a host name."""
NAME_RULES = f"at most {MAX_NAME_LENGTH} lower-case letters, digits and '-', beginning with a letter"
"""What a job may be called, in words."""
_NAME = "[a-z][-a-z0-9]*"

MAX_SAVE_SECONDS = 86400 * 365
"""Longest time of a save that is told."""

_RECREATE = "cannot change while the job exists: delete and re-create the job"
_IMMUTABLE = rule("self == oldSelf", _RECREATE)
_NODE_NAME = rule(
    "!format.dns1123Subdomain().validate(self).hasValue()", "write the name of a node as `kubectl get nodes` shows it"
)
_LEVEL_NAME = rule(
    "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
    "write the short name of a topology level, by default block or rack",
)


def _keeps(field: str) -> JsonDict:
    """An optional field that is immutable in an object of which other fields may change."""
    kept = f"has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field})"
    return rule(kept, _RECREATE, at=f".{field}")


def _managed_only(parent: str, field: str) -> JsonDict:
    """An optional field that needs Muster's launcher in the worker."""
    return rule(
        f"self.launch.mode == 'Managed' || !has(self.{parent}.{field})",
        f"{field} needs Muster's launcher, which mode Plain does not use: leave it out, or set launch.mode to Managed",
        at=f".{parent}.{field}",
    )


_TEXT_LIST: JsonDict = {"type": "array", "maxItems": 4096, "items": {"type": "string", "maxLength": 131072}}

_TEMPLATE: JsonDict = {
    # Only what Muster itself reads is spelled out: the rest is the pod's own business and is checked by the API
    # server when Muster tries out the pod.
    "type": "object",
    "x-kubernetes-preserve-unknown-fields": True,
    "required": ["spec"],
    "properties": {
        "metadata": {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "description": "Labels and annotations of the workers.",
        },
        "spec": {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "required": ["containers"],
            "description": "PodSpec of a worker.",
            "properties": {
                "restartPolicy": {
                    "type": "string",
                    "enum": ["Never"],
                    "description": "Muster restarts workers itself: leave it out.",
                },
                "containers": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": 32,
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "description": "Containers of a worker.",
                    "items": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                        "required": ["name", "image"],
                        "properties": {
                            "name": {
                                "type": "string",
                                "minLength": 1,
                                "maxLength": 63,
                                "description": "Name of the container.",
                            },
                            "image": {
                                "type": "string",
                                "minLength": 1,
                                "maxLength": 4096,
                                "description": "Image of the container.",
                            },
                            "command": {**_TEXT_LIST, "description": "Program and its arguments."},
                            "args": {**_TEXT_LIST, "description": "More arguments."},
                        },
                    },
                },
            },
        },
    },
    # The API server's == knows a key that is not spelled out only by its value: an update that swaps one such key for
    # another one of the same object passes. Harmless: pods that exist are never compared with the template.
    **checks(_IMMUTABLE),
}


class LaunchMode(StrEnum):
    """Who starts the ranks."""

    MANAGED = "Managed"
    PLAIN = "Plain"


class Launch(ApiModel):
    """How the ranks are started."""

    model_config = ConfigDict(
        json_schema_extra=checks(
            rule(
                "self.mode == 'Managed' || self.processesPerNode == 1",
                "mode Plain starts the command once on each node: leave processesPerNode out, or set mode to Managed",
                at=".processesPerNode",
            )
        )
    )

    mode: LaunchMode = Field(
        LaunchMode.MANAGED,
        description="Managed: Muster's launcher wraps the command, restarts ranks in place and resumes from "
        "checkpoints. Plain: the container runs as it is with NODE_RANK, NNODES and MASTER_ADDR set; any failure "
        "rebuilds the gang.",
    )
    processes_per_node: int = Field(
        1,
        ge=1,
        le=64,
        description=(
            "Processes that Muster starts on each node (Managed only). Leave 1 where the command is torchrun or "
            "another program that starts them: it starts one for each GPU."
        ),
    )
    worker_container: str | None = Field(
        None,
        min_length=1,
        max_length=63,
        description="The container that trains. Default: the first one in the template.",
    )


class Placement(ApiModel):
    """Where the gang may run. Levels are the names in FleetPolicy, by default `block` and `rack`."""

    model_config = ConfigDict(json_schema_extra=checks(_keeps("required"), _keeps("preferred"), _keeps("segmentSize")))

    required: str | None = Field(
        None,
        min_length=1,
        max_length=63,
        description="All workers inside one domain of this level, or wait.",
        json_schema_extra=checks(_LEVEL_NAME),
    )
    preferred: str | None = Field(
        None,
        min_length=1,
        max_length=63,
        description="All workers inside one domain of this level where possible. Muster uses as few domains as it "
        "can at every level in any case; a preference that could not be met is told.",
        json_schema_extra=checks(_LEVEL_NAME),
    )
    segment_size: int | None = Field(
        None,
        ge=1,
        le=4096,
        description="Workers come in segments of so many neighbours by index (ranks of one tensor-parallel or NVLink "
        "group), and each segment is inside one domain of the innermost level. Must divide spec.nodes.",
    )
    avoid_nodes: list[Annotated[NodeName, Field(json_schema_extra=checks(_NODE_NAME))]] = Field(
        [],
        max_length=256,
        description="Names of nodes that this job must not use. May change while the job exists.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )


_IS_URL = "self.matches('^[a-z][a-z0-9+.-]*://.')"


class ResumePreset(StrEnum):
    """How the program is told where to go on: the names of muster.protocol.resuming."""

    AUTO = "Auto"
    OFF = "Off"
    HUGGING_FACE_TRAINER = "HuggingFaceTrainer"
    ACCELERATE = "Accelerate"
    LIGHTNING = "Lightning"
    MEGATRON = "Megatron"
    TORCH_TITAN = "TorchTitan"
    TORCHTUNE = "Torchtune"
    COMPOSER = "Composer"
    MAX_TEXT = "MaxText"
    NEMO = "NeMo"
    DEEP_SPEED = "DeepSpeed"
    DLROVER = "DLRover"


class Checkpoint(ApiModel):
    """Where the trainer's checkpoints are."""

    model_config = ConfigDict(
        json_schema_extra=checks(
            _keeps("directory"),
            _keeps("localDirectory"),
            _keeps("pattern"),
            _keeps("resumeArgument"),
            _keeps("saveTimeoutSeconds"),
            _keeps("moveIncomplete"),
            rule(
                "!has(self.moveIncomplete) || !self.moveIncomplete || "
                f"(has(self.directory) && !{_IS_URL.replace('self.', 'self.directory.')})",
                "only in a directory of a file system something can be moved: set checkpoint.directory to a path",
                at=".moveIncomplete",
            ),
            rule(
                "!has(self.localDirectory) || !has(self.directory) || !(self.localDirectory + "
                "'/').startsWith(self.directory.endsWith('/') ? self.directory : self.directory + '/')",
                "what is on each node's own disk cannot lie in the shared directory: name another path, e.g. "
                "/local/checkpoints",
                at=".localDirectory",
            ),
            rule(
                "!has(self.pattern) || has(self.directory)",
                "the pattern says what is called so below checkpoint.directory: set that, too",
                at=".pattern",
            ),
            rule(
                "!has(self.resumeArgument) || has(self.directory)",
                "a start only goes on from what is below checkpoint.directory: set that, too",
                at=".resumeArgument",
            ),
            rule(
                "!has(self.resumePreset) || self.resumePreset == 'Off' || has(self.directory)",
                "a start only goes on from what is below checkpoint.directory: set that, too",
                at=".resumePreset",
            ),
            rule(
                "!has(self.resumePreset) || self.resumePreset == 'Off' || !has(self.resumeArgument)",
                "a preset and a resumeArgument both end the command: leave one of them out",
                at=".resumePreset",
            ),
        )
    )

    directory: str | None = Field(
        None,
        min_length=1,
        max_length=1024,
        description="What holds the checkpoints: an absolute path in the worker container, visible to every worker, "
        "or a URL that the fsspec of its image can open (s3://bucket/run-7, gs://, az://). Without it a restart "
        "begins from scratch.",
        json_schema_extra=checks(
            rule(
                f"self.startsWith('/') || {_IS_URL}",
                "write an absolute path, e.g. /checkpoints, or a URL, e.g. s3://bucket/run-7",
            )
        ),
    )
    local_directory: str | None = Field(
        None,
        min_length=1,
        max_length=1024,
        description="Absolute path in the worker container, on each node's own disk, where the trainer saves more "
        "often than to directory, or keeps copies. What is newer there is gone on from only where every worker of "
        "the next start is on its node and holds its whole share of that save; it is lost with any of them. The "
        "trainer finds it in MUSTER_LOCAL_CHECKPOINT_DIRECTORY.",
        json_schema_extra=checks(rule("self.startsWith('/')", "write an absolute path, e.g. /local/checkpoints")),
    )
    pattern: str | None = Field(
        None,
        min_length=1,
        max_length=256,
        description="What a checkpoint is called, for programs whose saves are of none of the formats in "
        "docs/reference/checkpoints.md: state-{step}.npz where each is a file, run_{step}/DONE where each is a "
        "directory into which DONE is written last. Nothing else in directory and localDirectory counts then.",
        json_schema_extra=checks(
            rule(
                "self.matches('^[^/{}[:cntrl:]]*[{]step[}][^/{}[:cntrl:]]*(/[^/{}[:cntrl:]]+)?$') && "
                "!self.matches('/[.][.]?$')",
                "write {step} where the number stands, after a slash what is written last into a directory, and no "
                "line end: state-{step}.npz, run_{step}/DONE",
            ),
            rule(
                "!self.matches('^([.]|([^/]*[._-])?(?i:tmp|temp|unfinished)([._/-]|[{]step[}](/|$)|$))')",
                "what begins with a dot or has tmp, temp or unfinished in its name is taken for a save under way: "
                "call checkpoints otherwise",
            ),
        ),
    )
    resume_argument: list[Annotated[str, Field(max_length=1024)]] | None = Field(
        None,
        min_length=1,
        max_length=32,
        description="Words that end the command whenever a start goes on from a checkpoint, for programs that do not "
        "read MUSTER_RESUME_PATH: [--resume_from_checkpoint, $(MUSTER_RESUME_PATH)]. References are resolved as in "
        "the command. A start from scratch goes without them.",
    )
    resume_preset: ResumePreset | None = Field(
        None,
        description="How the program is told to go on from exactly the checkpoint that Muster has chosen; "
        "docs/reference/resuming.md says what each adds to the command. Left out: Auto, which adds something only "
        "where the checkpoint and the command both are certainly of one framework; with a resumeArgument nothing. "
        "May change while the job exists, and counts from the next start on.",
    )
    resume_from: int | str | None = Field(
        None,
        description="Go on from here and not from the newest complete checkpoint, once: a step, the absolute path or "
        "the URL of a checkpoint, Scratch, or another job of the namespace: job/base (its newest complete one) or "
        "job/base@5000, whose directory this job's workers have to see, too: mounted at the same path, or by its "
        "URL. Checkpoints beyond it that are there already do not count any more. May be set or changed while the "
        "job is stalled or suspended.",
        json_schema_extra={
            "x-kubernetes-int-or-string": True,
            "maxLength": 1024,
            **checks(
                rule(
                    "type(self) == int ? self >= 0 : "
                    f"(self == 'Scratch' || self.matches('^[0-9]{{1,18}}$') || self.startsWith('/') || {_IS_URL} || "
                    "self.matches('^job/[a-z][-a-z0-9]{0,39}(@[0-9]{1,18})?$'))",
                    "write a step, e.g. 5000, the absolute path or the URL of a checkpoint, another job, e.g. "
                    "job/base@5000, or Scratch",
                )
            ),
        },
    )
    move_incomplete: bool = Field(
        False,
        description="Before each start that goes on from a checkpoint in the directory, what lies beside it with a "
        "higher step and is no complete checkpoint of this training is moved into .muster-incomplete there, while no "
        "rank is alive: for trainers that look for their newest checkpoint themselves. Nothing is ever deleted.",
    )
    save_timeout_seconds: int = Field(
        300,
        ge=0,
        le=86400,
        description="How long a planned evacuation waits for a new complete checkpoint before it stops the ranks.",
    )


class ProgressPreset(StrEnum):
    """Whose lines of output tell steps: the names of muster.protocol.presets."""

    AUTO = "Auto"
    OFF = "Off"
    HUGGING_FACE_TRAINER = "HuggingFaceTrainer"
    LIGHTNING = "Lightning"
    DIFFUSERS = "Diffusers"
    TORCHTUNE = "Torchtune"
    MEGATRON = "Megatron"
    TORCH_TITAN = "TorchTitan"
    DEEP_SPEED = "DeepSpeed"
    COMPOSER = "Composer"
    MAX_TEXT = "MaxText"
    NEMO = "NeMo"


class Progress(ApiModel):
    """How Muster learns that training advances."""

    model_config = ConfigDict(
        json_schema_extra=checks(
            rule(
                "!has(self.preset) || !has(self.stepPattern)",
                "a preset and a stepPattern both say which lines tell steps: leave one of them out",
                at=".preset",
            )
        )
    )

    preset: ProgressPreset | None = Field(
        None,
        description="Whose lines of output tell steps, where the trainer does not write to the file in "
        "MUSTER_PROGRESS; docs/reference/progress.md has them. Left out: Auto, any whose lines nobody else prints; "
        "with a stepPattern none.",
    )
    step_pattern: str | None = Field(
        None,
        min_length=1,
        max_length=256,
        description="Python regular expression with one group that finds the step number in a line of output. "
        "Not needed when the trainer writes to the file in MUSTER_PROGRESS.",
        json_schema_extra=checks(
            rule("self.contains('(')", "put the step number into a group, e.g. step=([0-9]+)"),
        ),
    )
    step_timeout_seconds: int | None = Field(
        None,
        ge=1,
        le=86400,
        description="No finished step for this long, after the first one, is a hang: the ranks are restarted. Longer "
        "than evaluations and saves take, and than printed steps lie apart.",
    )
    start_timeout_seconds: int | None = Field(
        None,
        ge=1,
        le=86400,
        description="No first step this long after the ranks were started is a hang: the ranks are restarted. Longer "
        "than it takes until the first one is printed, where steps are printed.",
    )


class Recovery(ApiModel):
    """Budgets and limits of automatic recovery."""

    application_restarts_per_day: int = Field(
        3,
        ge=0,
        le=100,
        description="Restarts within 24 hours after failures of the job's own making. A complete checkpoint beyond the "
        "failing step refills it. May change while the job exists.",
    )
    hardware_restarts_per_day: int = Field(
        50,
        ge=0,
        le=100,
        description="Restarts within 24 hours after failures of nodes and infrastructure; a new complete checkpoint "
        "beyond the failing step refills it. May change while the job exists.",
    )
    unreachable_timeout_seconds: int = Field(
        20,
        ge=5,
        le=3600,
        description="A worker that two witnesses agree is silent for this long has lost its node.",
        json_schema_extra=checks(_IMMUTABLE),
    )
    unfenced_timeout_seconds: int | None = Field(
        None,
        ge=60,
        le=604800,
        description="A lost worker of which nothing proves that its ranks have ended, and which nothing shared can "
        "tell to end them (no checkpoint.directory, one in a store, or mode Plain), is replaced after this long all "
        "the same. Default: 300 in mode Managed; in mode Plain Muster waits for proof, or for `kubectl muster lost "
        "NODE`. May change while the job exists.",
    )


class Completion(ApiModel):
    """What happens at the end."""

    ttl_seconds_after_finished: int | None = Field(
        None,
        ge=0,
        le=31536000,
        description="Delete the finished job, with its pods, after this long. Default: keep it. May change while the "
        "job exists.",
    )


class TrainingJobSpec(ApiModel):
    """What a user asks for."""

    model_config = ConfigDict(
        json_schema_extra=checks(
            rule(
                "!has(self.launch.workerContainer) || "
                "self.template.spec.containers.exists(c, c.name == self.launch.workerContainer)",
                "no container of the template has this name: write the name of one of spec.template.spec.containers, "
                "or leave workerContainer out and the first one trains",
                at=".launch.workerContainer",
            ),
            rule(
                "!has(self.placement) || !has(self.placement.segmentSize) || self.nodes % self.placement.segmentSize "
                "== 0",
                "does not divide spec.nodes: choose a size of which nodes is a multiple",
                at=".placement.segmentSize",
            ),
            _managed_only("checkpoint", "directory"),
            _managed_only("checkpoint", "resumeArgument"),
            _managed_only("checkpoint", "resumeFrom"),
            _managed_only("checkpoint", "resumePreset"),
            _managed_only("progress", "preset"),
            _managed_only("progress", "stepPattern"),
            _managed_only("progress", "stepTimeoutSeconds"),
            _managed_only("progress", "startTimeoutSeconds"),
        )
    )

    nodes: int = Field(
        ge=1,
        le=4096,
        description="Size of the gang: one worker pod on each node.",
        json_schema_extra=checks(_IMMUTABLE),
    )
    gpus_per_node: int = Field(
        8,
        ge=0,
        le=64,
        description="Accelerators that a worker asks for. A worker has its node to itself. 0: a job without "
        "accelerators.",
        json_schema_extra=checks(_IMMUTABLE),
    )
    template: dict[str, Any] = Field(
        description="PodTemplateSpec of a worker: any field of a pod, volumes and tolerations included.",
        json_schema_extra=_TEMPLATE,
    )
    launch: Launch = Field(Launch(), json_schema_extra=checks(_IMMUTABLE))
    placement: Placement = Placement()
    preflight: Preflight = Preflight()
    checkpoint: Checkpoint = Checkpoint()
    progress: Progress = Field(Progress(), json_schema_extra=checks(_IMMUTABLE))
    recovery: Recovery = Recovery()
    throughput: Throughput = Throughput()
    completion: Completion = Completion()
    suspend: bool = Field(
        False,
        description="Wait for a new complete checkpoint, stop, and release the nodes. May change while the job exists.",
    )

    @property
    def pod(self) -> dict[str, Any]:
        """The template's PodSpec; empty where it is none: no model checks what a backup has brought back."""
        found = self.template.get("spec")
        return found if isinstance(found, dict) else {}

    @property
    def containers(self) -> list[dict[str, Any]]:
        """The template's containers, those that are objects."""
        found = self.pod.get("containers")
        return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


class ConditionStatus(StrEnum):
    """The three values of a condition."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(ApiModel):
    """metav1.Condition."""

    type: str = Field(min_length=1, max_length=64)
    status: ConditionStatus
    reason: str = Field(min_length=1, max_length=64)
    message: Annotated[str, shortened_to(1024)] = Field("", max_length=1024)
    observed_generation: int = Field(0, ge=0)
    last_transition_time: Time


class CompletionResult(StrEnum):
    """How a job ended."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class CompletionRecord(ApiModel):
    """The end of a job. Absorbing: once written it never changes."""

    result: CompletionResult
    reason: str = Field(max_length=64)
    message: Annotated[str, shortened_to(4096)] = Field("", max_length=4096)
    time: Time
    attempt: int = Field(ge=0)


MAX_SAVES = 12
"""Of which a job's status tells."""


class CheckpointSave(ApiModel):
    """One save, as far as it is known. Seconds are whole ones."""

    step: int = Field(ge=0, le=MAX_NUMBER)
    time: Time | None = Field(None, description="When its last file was written, by the clock of its file system.")
    bytes: int | None = Field(None, ge=0, le=MAX_NUMBER, description="Size of all its files.")
    save_seconds: int | None = Field(
        None, ge=0, le=MAX_SAVE_SECONDS, description="From the end of its first file to the end of its last one."
    )
    stall_seconds: int | None = Field(
        None,
        ge=0,
        le=MAX_SAVE_SECONDS,
        description="By how much the steps around it took longer than usual; whatever else was done then is in it.",
    )
    durable_seconds: int | None = Field(
        None,
        ge=0,
        le=MAX_SAVE_SECONDS,
        description="From the end of its step until a launcher saw it whole: from then on a fault goes on from it.",
    )
    free_bytes: int | None = Field(
        None, ge=0, le=MAX_NUMBER, description="What could still be written to its file system when it was the newest."
    )


class CheckpointTrouble(StrEnum):
    """What threatens the next save, or the time that saving takes."""

    NO_NEW_CHECKPOINT = "NoNewCheckpoint"
    SPACE_LOW = "CheckpointSpaceLow"
    SAVES_TAKE_LONGER = "SavesTakeLonger"


class CheckpointConcern(ApiModel):
    """One of these, for people."""

    reason: CheckpointTrouble
    message: Annotated[str, shortened_to(512)] = Field(max_length=512)
    since: Time


def _newest_of(saves: object) -> object:
    """A version that keeps more of them may have written the status: too many are cut, never an error."""
    return saves[-MAX_SAVES:] if isinstance(saves, list) else saves


def _known_of(concerns: object) -> object:
    """A version that knows more of them may have written the status: people are told of others by it, not by this
    one."""
    if not isinstance(concerns, list):
        return concerns
    known = set(CheckpointTrouble)
    return [one for one in concerns if not isinstance(one, dict) or one.get("reason") in known]


class CheckpointStatus(ApiModel):
    """The newest complete checkpoint, and how saving goes."""

    step: int = Field(ge=0)
    path: str = Field(max_length=1024)
    format: str = Field("", max_length=64, description="How it is written; docs/reference/checkpoints.md lists all.")
    time: Time
    saves: Annotated[list[CheckpointSave], BeforeValidator(_newest_of)] = Field(
        [], max_length=MAX_SAVES, description="By step: the first four that are known, and the newest eight."
    )
    concerns: Annotated[list[CheckpointConcern], BeforeValidator(_known_of)] = Field(
        [],
        max_length=4,
        description="What somebody should look at before a fault or a full disk makes it dear.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["reason"]},
    )


class Incident(ApiModel):
    """One failure or planned evacuation, for people."""

    attempt: int = Field(ge=0)
    time: Time
    level: str = Field(
        max_length=16, description="How it was repaired: R0 in place, R0b new pod, R2 new node, R4 new gang."
    )
    fault_class: str = Field(max_length=32, description="What kind of failure it was; decides which budget pays.")
    reason: str = Field(max_length=64)
    node: NodeName = ""
    message: Annotated[str, shortened_to(1024)] = Field("", max_length=1024)
    lost_steps: int | None = None
    fault_time: Time | None = Field(
        None, description="When it happened, as far as is known; `time` is when it was seen."
    )
    resumed_time: Time | None = Field(None, description="When the first step after it was finished.")
    lost_seconds: int | None = Field(
        None, ge=0, le=LONGEST_MILLISECONDS, description="Work that it took back, or broke off."
    )


class WaitingDomain(ApiModel):
    """One domain as a waiting job sees it, in nodes."""

    domain: str = Field(max_length=1024, description="Names from the outside in, joined by '/'; empty: the fleet.")
    free: int = Field(ge=0, description="Nodes that this job could use there now.")
    suitable: int = Field(ge=0, description="Nodes that it could use there if nothing else ran.")


class WaitingBlocker(ApiModel):
    """What keeps a waiting job from some nodes."""

    reason: Annotated[str, shortened_to(256)] = Field(max_length=256)
    nodes: int = Field(ge=0)


class Waiting(ApiModel):
    """Why a job waits for nodes, in numbers. `kubectl muster status` shows it."""

    needs: int = Field(ge=0, description="Nodes wanted, all at once.")
    level: str | None = Field(None, max_length=63, description="Level inside one domain of which they must lie.")
    segment_size: int | None = Field(None, ge=1)
    position: int = Field(0, ge=0, description="Place in the queue; 1 is the next.")
    queued: int = Field(0, ge=0, description="Jobs in the queue.")
    fleet: int = Field(0, ge=0, description="Nodes there are.")
    suitable: int = Field(0, ge=0, description="Nodes that this job could use if nothing else ran.")
    free: int = Field(0, ge=0, description="Nodes that it could use now.")
    domains: list[WaitingDomain] = Field([], max_length=16, description="The best domains, most free first.")
    blockers: list[WaitingBlocker] = Field([], max_length=32, description="What keeps it from the other nodes.")
    remedies: list[Annotated[str, Field(max_length=512), shortened_to(512)]] = Field(
        [], max_length=8, description="What would let it start."
    )
    since: Time | None = None

    @property
    def counts_nodes(self) -> bool:
        """Whether `fleet`, `suitable` and `free` were counted: not for a job that only a limit or a quota keeps
        waiting."""
        return self.fleet > 0


class TrainingJobStatus(ApiModel):
    """A projection of the Gang for people and for GitOps tools; never an input to decisions, except `completion`."""

    model_config = ConfigDict(
        json_schema_extra=checks(
            rule(
                "!has(oldSelf.completion) || (has(self.completion) && self.completion == oldSelf.completion)",
                "the end of a job is written once and stays: create a new job instead",
                at=".completion",
            )
        )
    )

    observed_generation: int = Field(0, ge=0, description="The generation of the job that this status speaks of.")
    state: str = Field("", max_length=64, description="One word for `kubectl get`.")
    reason: str = Field("", max_length=64, description="Why it is in that state.")
    attempt: int = Field(0, ge=0, description="Starts of the gang so far.")
    nodes_ready: str = Field("", max_length=32, description="Workers ready of workers wanted, e.g. 3/3.")
    nodes: list[NodeName] = Field([], max_length=4096, description="Node of each worker, by index.")
    topology: list[LevelCount] = Field(
        [], max_length=16, description="How many domains of each level the workers are in, outermost first."
    )
    waiting: Waiting | None = Field(None, description="Only while the job waits for nodes.")
    step: int | None = Field(None, ge=0, description="Newest finished step.")
    checkpoint: CheckpointStatus | None = None
    restarts: int = Field(0, ge=0, description="Recoveries so far.")
    corruption: CorruptionStatus | None = Field(None, description="Absent: the trainer has found nothing wrong.")
    incidents: list[Incident] = Field([], max_length=16, description="The newest failures and planned evacuations.")
    conditions: list[Condition] = Field(
        [],
        max_length=16,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    goodput: Goodput | None = Field(
        None, description="Where the time went, in figures; `kubectl muster report` shows it."
    )
    completion: CompletionRecord | None = None


class TrainingJob(ApiModel):
    """A training job."""

    model_config = ConfigDict(
        json_schema_extra=checks(
            rule(
                f"size(self.metadata.name) <= {MAX_NAME_LENGTH}",
                f"longer than {MAX_NAME_LENGTH} characters, and the names of the pods would not be valid: choose a "
                "shorter one",
                at=".metadata.name",
            ),
            rule(
                f"self.metadata.name.matches('^{_NAME}$')",
                "becomes part of host names: use lower-case letters, digits and '-', and begin with a letter",
                at=".metadata.name",
            ),
            rule(
                "!has(self.spec.checkpoint) || !has(self.spec.checkpoint.resumeFrom) || self.spec.suspend || "
                "(has(oldSelf.spec.checkpoint) && has(oldSelf.spec.checkpoint.resumeFrom) && "
                "oldSelf.spec.checkpoint.resumeFrom == self.spec.checkpoint.resumeFrom) || "
                "!has(self.status) || !has(self.status.state) || self.status.state == 'Stalled' || "
                "self.status.state == 'Suspended'",
                "may be set or changed only while the job is stalled or suspended: set spec.suspend to true first",
                at=".spec.checkpoint.resumeFrom",
            ),
        )
    )

    metadata: ObjectMeta
    spec: TrainingJobSpec
    status: TrainingJobStatus = TrainingJobStatus()

    @property
    def wants_nodes(self) -> bool:
        """Whether it has neither ended nor is being deleted: until then the nodes of its record are its own."""
        return self.status.completion is None and self.metadata.deletion_timestamp is None


def is_job_name(name: str) -> bool:
    """Whether a job may be called so: NAME_RULES."""
    return len(name) <= MAX_NAME_LENGTH and re.fullmatch(_NAME, name) is not None


def parsed(manifest: Mapping[str, Any]) -> TrainingJob:
    """The job that a manifest is of.

    Raises:
        ValueError: it is of none; one line that begins with the field.
    """
    try:
        return TrainingJob.model_validate(manifest)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"{where}: a TrainingJob cannot have {first['input']!r} there: {first['msg']}") from error

"""TrainingJob: what a user asks for, and the status that Muster shows of it.

Tests: tests/integration/api/test_refused.py, tests/unit/convert/test_pod.py.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.config import JsonDict

from muster.api.base import ApiModel, LevelCount, NodeName, ObjectMeta, Time, checks, rule, shortened_to
from muster.api.gang import CorruptionStatus
from muster.api.goodput import LONGEST_MILLISECONDS, MAX_STEP, Goodput
from muster.api.preflight import Preflight
from muster.api.throughput import Throughput
from muster.protocol.messages import MAX_NUMBER

MAX_NAME_LENGTH = 40
SUSPENDED = "Suspended"
RESUMED = "Resumed"
"""Reason of the condition Suspended once a suspension is over: until its transition the job was suspended."""
"""Longest name of a job: its pods are called `<job>-<hash>-<index>-<incarnation>`, and that has to be a host name."""
NAME_RULES = f"at most {MAX_NAME_LENGTH} lower-case letters, digits and '-', beginning with a letter"
"""The rules for a job's name, as a phrase for messages."""
_NAME = "[a-z][-a-z0-9]*"

MAX_SAVE_SECONDS = 86400 * 365
"""The longest time of a save that the status shows, in seconds: one year."""

MAX_DURATION_SECONDS = 86400 * 365
"""The longest time for which a job is said to train, in seconds: one year."""

_RECREATE = (
    "this field cannot change while the job exists: delete the job and create it again, or begin another one from its "
    "checkpoint (kubectl muster fork)"
)
_IMMUTABLE = rule("self == oldSelf", _RECREATE)
_NODE_NAME = rule(
    "!format.dns1123Subdomain().validate(self).hasValue()", "write the name of a node as `kubectl get nodes` shows it"
)
_REASON = rule("self.matches('^[A-Z][A-Za-z0-9]*$')", "write a reason as status.warnings has it, e.g. DirectoryInUse")
_LEVEL_NAME = rule(
    "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
    "write the short name of a topology level, by default block or rack",
)


def _keeps(field: str) -> JsonDict:
    """The rule for an optional field that cannot change, in an object of which other fields may."""
    kept = f"has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field})"
    return rule(kept, _RECREATE, at=f".{field}")


def _changes_while_suspended(parent: str, field: str) -> JsonDict:
    """The rule for an optional field of a job that its pods get at their creation: it changes while there are none."""
    path = f"{parent}.{field}"
    has = f"has(%s.{parent}) && has(%s.{path})" if parent != "spec" else f"has(%s.{path})"
    new, old = (has.replace("%s", name) for name in ("self", "oldSelf"))
    kept = f"({new}) == ({old}) && (!({new}) || self.{path} == oldSelf.{path})"
    rests = "oldSelf.spec.suspend && has(self.status) && has(self.status.state) && self.status.state == 'Suspended'"
    return rule(
        f"({kept}) || ({rests})",
        "this field changes only while the job is suspended: set spec.suspend to true first, and wait for the state "
        "Suspended (delete a job that has ended, and create it again)",
        at=f".{path}",
    )


def _managed_only(parent: str, field: str) -> JsonDict:
    """The rule for an optional field that needs Muster's launcher in the worker."""
    return rule(
        f"self.launch.mode == 'Managed' || !has(self.{parent}.{field})",
        f"{field} needs Muster's launcher, which mode Plain does not use: leave it out, or set launch.mode to Managed",
        at=f".{parent}.{field}",
    )


_AFTER_THE_END = (
    "the job has ended, so that this has no effect any more: kubectl muster requeue creates the job again, and it goes "
    "on from its newest checkpoint; kubectl muster fork begins a new job from any checkpoint"
)


def _asks_no_more_after_the_end(holds: str, at: str) -> JsonDict:
    """The rule that a job which has ended is asked for nothing more.

    Only what asks for more is refused. So a user that applies the old manifest again, and takes back what was patched
    since, is not refused.

    Args:
        holds: the condition that holds where nothing more is asked for, in CEL.
        at: path of the field.
    """
    return rule(f"!has(self.status) || !has(self.status.completion) || {holds}", _AFTER_THE_END, at=at)


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
            "description": "metadata holds the labels and annotations of every worker pod.",
        },
        "spec": {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "required": ["containers"],
            "description": "spec is the PodSpec of every worker pod.",
            "properties": {
                "restartPolicy": {
                    "type": "string",
                    "enum": ["Never"],
                    "description": "restartPolicy is always Never, because Muster restarts workers. Leave it out.",
                },
                "containers": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": 32,
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "description": "containers lists the containers of every worker pod. The first one trains, unless "
                    "spec.launch.workerContainer names another one.",
                    "items": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                        "required": ["name", "image"],
                        "properties": {
                            "name": {
                                "type": "string",
                                "minLength": 1,
                                "maxLength": 63,
                                "description": "name is the name of the container, unique within the pod.",
                            },
                            "image": {
                                "type": "string",
                                "minLength": 1,
                                "maxLength": 4096,
                                "description": "image is the container image.",
                            },
                            "command": {
                                **_TEXT_LIST,
                                "description": "command is the program and its arguments. The container that trains "
                                "needs it in mode Managed, where Muster's launcher starts the program.",
                            },
                            "args": {**_TEXT_LIST, "description": "args lists arguments that follow those in command."},
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
    """LaunchMode says what starts the ranks: Muster's launcher (Managed), or the container itself (Plain)."""

    MANAGED = "Managed"
    PLAIN = "Plain"


class Launch(ApiModel):
    """Launch sets how the training processes (ranks) are started in each worker pod."""

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
        description="mode says what starts the ranks. Managed: Muster's launcher runs the command, restarts ranks in "
        "place and resumes from checkpoints. Plain: the container runs as it is, with NODE_RANK, NNODES, MASTER_ADDR "
        "and MASTER_PORT set, and any failure rebuilds the gang.",
    )
    processes_per_node: int = Field(
        1,
        ge=1,
        le=64,
        description="processesPerNode is how many processes Muster starts on each node, in mode Managed only. Leave "
        "it at 1 where the command is torchrun or a similar program, which itself starts one process for each GPU.",
    )
    worker_container: str | None = Field(
        None,
        min_length=1,
        max_length=63,
        description="workerContainer is the name of the container that trains. Absent: the first container of the "
        "template trains.",
    )


class Placement(ApiModel):
    """Placement sets where in the topology the gang may run.

    Levels are the names in FleetPolicy spec.topology, by default block and rack.
    """

    model_config = ConfigDict(json_schema_extra=checks(_keeps("required"), _keeps("preferred"), _keeps("segmentSize")))

    required: str | None = Field(
        None,
        min_length=1,
        max_length=63,
        description="required is a topology level, e.g. rack; all workers have to be inside one domain of this level. "
        "While no domain has enough free nodes, the job waits. Absent: workers may be in any domain.",
        json_schema_extra=checks(_LEVEL_NAME),
    )
    preferred: str | None = Field(
        None,
        min_length=1,
        max_length=63,
        description="preferred is a topology level inside one domain of which all workers should be, where possible. "
        "Muster uses as few domains as it can at every level anyway; status.topology shows the result.",
        json_schema_extra=checks(_LEVEL_NAME),
    )
    segment_size: int | None = Field(
        None,
        ge=1,
        le=4096,
        description="segmentSize splits the workers into segments of this many neighbours by index, e.g. the ranks of "
        "one tensor-parallel or NVLink group. Each segment is inside one domain of the innermost level. The size has "
        "to divide spec.nodes; absent: no segments.",
    )
    avoid_nodes: list[Annotated[NodeName, Field(json_schema_extra=checks(_NODE_NAME))]] = Field(
        [],
        max_length=256,
        description="avoidNodes lists names of nodes that this job must not be placed on. A worker that runs there "
        "leaves after its next save, once another node is free. The field may change while the job exists.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )


_IS_URL = "self.matches('^[a-z][a-z0-9+.-]*://.')"


class ResumePreset(StrEnum):
    """ResumePreset is the framework by whose rules a command is handed the checkpoint to resume from.

    The values are the names in muster.protocol.resuming, and Auto and Off.
    """

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
    """Checkpoint sets where the trainer saves checkpoints, and how a start resumes from them."""

    model_config = ConfigDict(
        json_schema_extra=checks(
            _keeps("directory"),
            _keeps("localDirectory"),
            _keeps("resumeArgument"),
            _keeps("saveTimeoutSeconds"),
            _keeps("moveIncomplete"),
            rule(
                "!has(self.moveIncomplete) || !self.moveIncomplete || "
                f"(has(self.directory) && !{_IS_URL.replace('self.', 'self.directory.')})",
                "moveIncomplete moves checkpoints in a file system only: set checkpoint.directory to an absolute "
                "path, or leave moveIncomplete out",
                at=".moveIncomplete",
            ),
            rule(
                "!has(self.localDirectory) || !has(self.directory) || !(self.localDirectory + "
                "'/').startsWith(self.directory.endsWith('/') ? self.directory : self.directory + '/')",
                "localDirectory is on each node's own disk and cannot be inside checkpoint.directory: write another "
                "path, e.g. "
                "/local/checkpoints",
                at=".localDirectory",
            ),
            rule(
                "!has(self.pattern) || has(self.directory)",
                "pattern names checkpoints in checkpoint.directory, which is not set: set directory, or leave "
                "pattern out",
                at=".pattern",
            ),
            rule(
                "!has(self.resumeArgument) || has(self.directory)",
                "a start resumes only from checkpoint.directory, which is not set: set directory, or leave "
                "resumeArgument out",
                at=".resumeArgument",
            ),
            rule(
                "!has(self.saveRequest) || has(self.directory)",
                "Muster sees checkpoints only in checkpoint.directory, which is not set: set directory, or leave "
                "saveRequest out",
                at=".saveRequest",
            ),
            rule(
                "!has(self.resumePreset) || self.resumePreset == 'Off' || has(self.directory)",
                "a start resumes only from checkpoint.directory, which is not set: set directory, or leave "
                "resumePreset out",
                at=".resumePreset",
            ),
            rule(
                "!has(self.resumePreset) || self.resumePreset == 'Off' || !has(self.resumeArgument)",
                "resumePreset and resumeArgument both say how the command resumes: leave one of them out",
                at=".resumePreset",
            ),
        )
    )

    directory: str | None = Field(
        None,
        min_length=1,
        max_length=1024,
        description="directory holds the checkpoints: an absolute path that every worker mounts, or a URL that fsspec "
        "can open in the image, e.g. s3://bucket/run-7. Absent: Muster sees no checkpoints and gives restarts "
        "none, so that they begin anew, or resume by themselves.",
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
        description="localDirectory is an absolute path on each node's own disk, to which the trainer saves more "
        "often than to directory. A start resumes from a newer save there only if every worker still has its whole "
        "part of that save. The trainer reads the path from MUSTER_LOCAL_CHECKPOINT_DIRECTORY. Absent: only directory "
        "counts.",
        json_schema_extra=checks(rule("self.startsWith('/')", "write an absolute path, e.g. /local/checkpoints")),
    )
    pattern: str | None = Field(
        None,
        min_length=1,
        max_length=256,
        description="pattern is the name of a checkpoint, for programs that save in none of the formats in "
        "docs/reference/checkpoints.md. Write state-{step}.npz for single files, or run_{step}/DONE for directories "
        "into which DONE is written last. Nothing else in directory and localDirectory counts then; absent: the known "
        "formats count. It may change while the job is suspended.",
        json_schema_extra=checks(
            rule(
                "self.matches('^[^/{}[:cntrl:]]*[{]step[}][^/{}[:cntrl:]]*(/[^/{}[:cntrl:]]+)?$') && "
                "!self.matches('/[.][.]?$')",
                "write {step} once where the number stands, without control characters. For a directory, add a slash "
                "and the file that is written last into it: state-{step}.npz, run_{step}/DONE",
            ),
            rule(
                "!self.matches('^([.]|([^/]*[._-])?(?i:tmp|temp|unfinished)([._/-]|[{]step[}](/|$)|$))')",
                "a name that begins with a dot, or has the word tmp, temp or unfinished, is taken for a save under "
                "way. Give checkpoints another name",
            ),
        ),
    )
    resume_argument: list[Annotated[str, Field(max_length=1024)]] | None = Field(
        None,
        min_length=1,
        max_length=32,
        description="resumeArgument lists arguments that are added to the command when a start resumes from a "
        "checkpoint, e.g. [--resume_from_checkpoint, $(MUSTER_RESUME_PATH)]. Use it for programs that do not read "
        "MUSTER_RESUME_PATH. A start without a checkpoint gets none of them.",
    )
    resume_preset: ResumePreset | None = Field(
        None,
        description="resumePreset is the framework by whose rules the command is handed the checkpoint to resume "
        "from; docs/reference/resuming.md says what each adds. Absent: Auto, which adds something only where "
        "checkpoint and command certainly belong to one framework, and nothing beside a resumeArgument. A change of "
        "the field counts from the next start on.",
    )
    resume_from: int | str | None = Field(
        None,
        description="resumeFrom makes the job resume once from a step, a checkpoint's path or URL, another job of the "
        "namespace (job/base, job/base@5000), or Scratch. The workers have to see the chosen checkpoint, and this "
        "job's checkpoints beyond it stop counting. The field may be set or changed only while the job is stalled or "
        "suspended; absent: starts resume from the newest complete checkpoint.",
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
    save_request: str | None = Field(
        None,
        min_length=1,
        max_length=63,
        description="saveRequest asks the program once to save and go on. It names the request: each other value is "
        "another request. docs/trainer-contract.md says how a program sees it. It may change while the job exists.",
        json_schema_extra=checks(
            rule(
                "self.matches('^[A-Za-z0-9]([-A-Za-z0-9._:+]*[A-Za-z0-9])?$')",
                "write letters, digits, '-', '.', '_', ':' and '+', e.g. a time: 2026-05-01T12:00:00Z",
            )
        ),
    )
    move_incomplete: bool = Field(
        False,
        description="moveIncomplete moves checkpoints of later steps that are incomplete, or do not count any more, "
        "into directory/.muster-incomplete before each start that resumes. It is for trainers that look for their "
        "newest checkpoint themselves, and needs a directory that is a path. Nothing is ever deleted.",
    )
    save_timeout_seconds: int = Field(
        300,
        ge=0,
        le=86400,
        description="saveTimeoutSeconds is how long a suspension, or a planned move off a node, waits for a new "
        "complete checkpoint before Muster stops the ranks anyway. With 0 Muster stops them at once. A saveRequest is "
        "over after that time, too. The FleetPolicy's spec.jobLimits may lower it.",
    )


class ProgressPreset(StrEnum):
    """ProgressPreset is the framework whose printed lines report finished steps.

    The values are the names in muster.protocol.presets, and Auto and Off.
    """

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
    PADDLE_NLP = "PaddleNLP"
    VERL = "Verl"
    NEMO_RL = "NeMoRL"
    NANOTRON = "Nanotron"
    OLMO_CORE = "OLMoCore"
    LIT_GPT = "LitGPT"
    XTUNER = "XTuner"


class Progress(ApiModel):
    """Progress sets how Muster learns of finished steps, and after what time without a step the ranks hang.

    It may change while the job is suspended.
    """

    model_config = ConfigDict(
        json_schema_extra=checks(
            rule(
                "!has(self.preset) || !has(self.stepPattern)",
                "preset and stepPattern both say which lines of output report steps: leave one of them out",
                at=".preset",
            )
        )
    )

    preset: ProgressPreset | None = Field(
        None,
        description="preset is the framework whose printed lines report finished steps; docs/reference/progress.md "
        "lists the lines. Absent: Auto, which reads lines that no other program prints; with a stepPattern none. "
        "Steps in the file named by MUSTER_PROGRESS count before printed ones.",
    )
    step_pattern: str | None = Field(
        None,
        min_length=1,
        max_length=256,
        description="stepPattern is a Python regular expression that finds a finished step in a line of output; its "
        "first group is the number, e.g. step=([0-9]+). It is not needed when the trainer writes steps to the file "
        "named by MUSTER_PROGRESS.",
        json_schema_extra=checks(
            rule("self.contains('(')", "put the step number into a group, e.g. step=([0-9]+)"),
        ),
    )
    step_timeout_seconds: int | None = Field(
        None,
        ge=1,
        le=86400,
        description="stepTimeoutSeconds is how long the ranks may go without a finished step, after the first one, "
        "before they are restarted as hanging. It has to be longer than an evaluation or a save takes, and than the "
        "time between printed steps. Absent: there is no limit.",
    )
    start_timeout_seconds: int | None = Field(
        None,
        ge=1,
        le=86400,
        description="startTimeoutSeconds is how long the ranks may take from their start to the first finished step "
        "before they are restarted as hanging. Where steps are printed, it has to be longer than the time to the "
        "first printed step. Absent: there is no limit.",
    )
    total_steps: int | None = Field(
        None,
        ge=1,
        le=MAX_STEP,
        description="totalSteps is the number of the step after which the training ends, counted as the reported steps "
        "are. With the time of a step it says when the job ends, for jobs that wait. It ends nothing. Absent: unknown.",
    )


class JobQueueing(ApiModel):
    """JobQueueing is what the queue may know of the job. It may change while the job exists."""

    preemptible: bool = Field(
        False,
        description="preemptible is whether the job also starts on free nodes that are reserved for other jobs. It "
        "stands behind all jobs that are not preemptible, and gives way to them. As soon as one would start with its "
        "nodes, it is asked to save, leaves within checkpoint.saveTimeoutSeconds, and waits again. It may be set to "
        "true at any time, and never back to false.",
    )
    expected_duration_seconds: int | None = Field(
        None,
        description="expectedDurationSeconds is how long the job trains in all, in the user's estimate: the time that "
        "it holds nodes, of all attempts together. It shows other jobs when these nodes may be free, and ends nothing. "
        "A job that is expected to end in time may pass reservations. Absent: unknown, unless the steps say it.",
        json_schema_extra=checks(
            rule(
                f"self >= 1 && self <= {MAX_DURATION_SECONDS}",
                f"write the seconds that the job trains in all, from 1 to {MAX_DURATION_SECONDS} (a year), or leave "
                "expectedDurationSeconds out",
            )
        ),
    )


class OnFailure(StrEnum):
    """OnFailure says whether a failure of ranks is repaired at once (Recover), or first held for people (Hold)."""

    RECOVER = "Recover"
    HOLD = "Hold"


class Recovery(ApiModel):
    """Recovery sets how many restarts a job may have, and when a worker counts as lost."""

    application_restarts_per_day: int = Field(
        3,
        ge=0,
        le=100,
        description="applicationRestartsPerDay is how many failures of the program itself, or of unknown cause, a job "
        "survives within 24 hours; one more fails the job. A complete checkpoint beyond the failing step refills the "
        "budget. The field may change while the job exists.",
    )
    hardware_restarts_per_day: int = Field(
        50,
        ge=0,
        le=100,
        description="hardwareRestartsPerDay is how many failures of nodes and infrastructure a job survives within 24 "
        "hours; one more fails the job. A complete checkpoint beyond the failing step refills the budget. The field "
        "may change while the job exists.",
    )
    unreachable_timeout_seconds: int = Field(
        20,
        ge=5,
        le=3600,
        description="unreachableTimeoutSeconds is how long a worker has to be silent, without a finished step of the "
        "job, until Muster replaces it. A second sign is needed: a node without a heartbeat or not Ready, or other "
        "workers that get no answer from the worker.",
        json_schema_extra=checks(_IMMUTABLE),
    )
    unfenced_timeout_seconds: int | None = Field(
        None,
        ge=60,
        le=604800,
        description="unfencedTimeoutSeconds is how long Muster waits to replace a lost worker if nothing proves that "
        "its ranks have ended and no fence file stops them. After that Muster takes the ranks for dead, although they "
        "may still run. Absent: 300 in mode Managed; in mode Plain Muster waits for proof, or for kubectl muster lost "
        "NODE. The field may change while the job exists.",
    )
    fall_back_from_unloadable: bool = Field(
        True,
        description="fallBackFromUnloadable is true if the job may resume from the next older complete checkpoint when "
        "the newest one seems to load nowhere. That is after two attempts in a row from it that failed before their "
        "first step, by no known fault of a node. An Event names both checkpoints. If the start from the older one "
        "fails so, too, the newest one counts again, unless moveIncomplete moved it away. False: the job always "
        "resumes from the newest one. The field may change while the job exists.",
    )
    on_failure: OnFailure = Field(
        OnFailure.RECOVER,
        description="onFailure is what Muster does when a rank exits with an error or hangs. Recover: it restarts the "
        "ranks. Hold: it first leaves all pods and remaining ranks as they are, for holdSeconds at most. People can "
        "look into them with kubectl muster shell, and the job keeps its nodes. Each attempt is held once at most. "
        "Failures of nodes and pods are repaired at once. So is any failure of a job that is suspended or has to leave "
        "a node. The field may change while the job exists; Recover ends a hold.",
    )
    hold_seconds: int = Field(
        3600,
        ge=0,
        le=86400,
        description="holdSeconds is how long a failure is held with onFailure Hold. Then Muster recovers the job, or "
        "fails it if no restart is left. 0: no failure is held. The field may change while the job exists, also during "
        "a hold.",
    )


class Completion(ApiModel):
    """Completion sets what happens to the job after it has ended."""

    ttl_seconds_after_finished: int | None = Field(
        None,
        ge=0,
        le=31536000,
        description="ttlSecondsAfterFinished is how many seconds after its end the job is deleted, together with its "
        "pods. 0: at once. Absent: the job is kept. The field may change while the job exists.",
    )


class TrainingJobSpec(ApiModel):
    """TrainingJobSpec is what the user asks for: nodes, a pod template, and how the job saves and recovers."""

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
                "segmentSize does not divide spec.nodes: choose a size of which spec.nodes is a multiple",
                at=".placement.segmentSize",
            ),
            _managed_only("checkpoint", "directory"),
            _managed_only("checkpoint", "resumeArgument"),
            _managed_only("checkpoint", "resumeFrom"),
            _managed_only("checkpoint", "resumePreset"),
            _managed_only("checkpoint", "saveRequest"),
            _managed_only("progress", "preset"),
            _managed_only("progress", "stepPattern"),
            _managed_only("progress", "stepTimeoutSeconds"),
            _managed_only("progress", "startTimeoutSeconds"),
            _managed_only("progress", "totalSteps"),
            rule(
                "self.queueing.preemptible || !oldSelf.queueing.preemptible",
                "a preemptible job may hold nodes that are reserved for others, and stays preemptible: delete the job "
                "and create it again, or begin another one from its checkpoint (kubectl muster fork)",
                at=".queueing.preemptible",
            ),
            rule(
                "self.launch.mode == 'Managed' || self.recovery.onFailure != 'Hold'",
                "Hold needs Muster's launcher, which mode Plain does not use: there a container ends with its program. "
                "Leave onFailure out, or set launch.mode to Managed",
                at=".recovery.onFailure",
            ),
        )
    )

    nodes: int = Field(
        ge=1,
        le=4096,
        description="nodes is the size of the gang: one worker pod runs on each of this many nodes. All workers are "
        "placed together or not at all.",
        json_schema_extra=checks(_IMMUTABLE),
    )
    gpus_per_node: int = Field(
        8,
        ge=0,
        le=64,
        description="gpusPerNode is how many accelerators each worker requests, of the resource in FleetPolicy "
        "spec.acceleratorResource. A worker always has its node to itself. 0: the job has no accelerators.",
        json_schema_extra=checks(_IMMUTABLE),
    )
    template: dict[str, Any] = Field(
        description="template is the PodTemplateSpec of a worker pod, with any field of a pod, including volumes and "
        "tolerations. Muster itself chooses the node and the restart policy.",
        json_schema_extra=_TEMPLATE,
    )
    launch: Launch = Field(Launch(), json_schema_extra=checks(_IMMUTABLE))
    placement: Placement = Placement()
    preflight: Preflight = Preflight()
    checkpoint: Checkpoint = Checkpoint()
    progress: Progress = Progress()
    queueing: JobQueueing = JobQueueing()
    recovery: Recovery = Recovery()
    throughput: Throughput = Throughput()
    completion: Completion = Completion()
    suspend: bool = Field(
        False,
        description="suspend stops the job and releases its nodes, after a new complete checkpoint or "
        "checkpoint.saveTimeoutSeconds. When it is false again, the job waits for nodes and resumes from its newest "
        "complete checkpoint. The field may change while the job exists.",
    )
    eject: bool = Field(
        False,
        description="eject takes the job out of Muster while its ranks train. They train on to their end, and nothing "
        "restarts or moves them any more. It waits until all ranks run, and cannot be taken back once the condition "
        "Ejected is there. Then delete the job and orphan its dependents, as kubectl muster eject does.",
    )

    accepted_warnings: list[Annotated[str, Field(max_length=64, json_schema_extra=checks(_REASON))]] = Field(
        [],
        max_length=32,
        description="acceptedWarnings lists reasons of status.warnings that a person has read and accepts. Such a "
        "warning is not shown, and keeps the job from no start. The field may change while the job exists.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )

    @property
    def pod(self) -> dict[str, Any]:
        """The template's PodSpec; empty if that is no object, since no model checks what a backup has restored."""
        spec = self.template.get("spec")
        return spec if isinstance(spec, dict) else {}

    @property
    def containers(self) -> list[dict[str, Any]]:
        """Those of the template's containers that are objects."""
        listed = self.pod.get("containers")
        return [container for container in listed if isinstance(container, dict)] if isinstance(listed, list) else []


class ConditionStatus(StrEnum):
    """ConditionStatus says whether a condition holds: True, False, or Unknown."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(ApiModel):
    """Condition is one aspect of the job's current state, in the form of metav1.Condition."""

    type: str = Field(
        min_length=1,
        max_length=64,
        description="type is the aspect of the job: Ejected, Placed, Reconciling, Running, Stalled, Succeeded, "
        "Suspended or TemplateAccepted.",
    )
    status: ConditionStatus = Field(description="status says whether the condition holds: True, False, or Unknown.")
    reason: str = Field(
        min_length=1,
        max_length=64,
        description="reason is why the condition has this status, as one CamelCase word. docs/troubleshooting.md says "
        "what to do for each.",
    )
    message: Annotated[str, shortened_to(1024)] = Field(
        "",
        max_length=1024,
        description="message says in a sentence why the condition has this status, and what would help.",
    )
    observed_generation: int = Field(
        0,
        ge=0,
        description="observedGeneration is the metadata.generation of the job that the condition was derived from.",
    )
    last_transition_time: Time = Field(
        description="lastTransitionTime is when the status of the condition last changed."
    )


class CompletionResult(StrEnum):
    """CompletionResult says how a job ended: Succeeded or Failed."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class CompletionRecord(ApiModel):
    """CompletionRecord says how the job ended. It is written once and never changes."""

    result: CompletionResult = Field(description="result is Succeeded if every rank exited with code 0, else Failed.")
    reason: str = Field(
        min_length=1,
        max_length=64,
        description="reason is why the job ended, as one CamelCase word, e.g. Completed or "
        "ApplicationRestartsExhausted.",
    )
    message: Annotated[str, shortened_to(4096)] = Field(
        "", max_length=4096, description="message says in a sentence why the job ended."
    )
    time: Time = Field(description="time is when the job ended.")
    attempt: int = Field(ge=0, description="attempt is the number of the attempt with which the job ended.")


MAX_SAVES = 12
"""How many saves a job's status shows at most."""


class CheckpointSave(ApiModel):
    """CheckpointSave is what is known of one complete save.

    Times in seconds are rounded; a field that is absent is not known.
    """

    step: int = Field(ge=0, le=MAX_STEP, description="step is the training step that the checkpoint holds.")
    time: Time | None = Field(
        None, description="time is when the last file of the checkpoint was written, by the clock of its file system."
    )
    bytes: int | None = Field(
        None, ge=0, le=MAX_NUMBER, description="bytes is the size of all files of the checkpoint together."
    )
    save_seconds: int | None = Field(
        None,
        ge=0,
        le=MAX_SAVE_SECONDS,
        description="saveSeconds is the time from the end of the checkpoint's first file to the end of its last file. "
        "It is 0 for a single file.",
    )
    stall_seconds: int | None = Field(
        None,
        ge=0,
        le=MAX_SAVE_SECONDS,
        description="stallSeconds is by how much the steps around the save took longer than usual. Other work at that "
        "time, e.g. an evaluation, is included.",
    )
    durable_seconds: int | None = Field(
        None,
        ge=0,
        le=MAX_SAVE_SECONDS,
        description="durableSeconds is the time from the end of the saved step until a launcher saw the complete "
        "checkpoint. From then on a failure resumes from this checkpoint.",
    )
    free_bytes: int | None = Field(
        None,
        ge=0,
        le=MAX_NUMBER,
        description="freeBytes is how much could still be written to the checkpoint's file system when the checkpoint "
        "was the newest one. It is absent for object stores.",
    )


class CheckpointTrouble(StrEnum):
    """CheckpointTrouble is a problem that threatens the next save, or makes saves slow."""

    NO_NEW_CHECKPOINT = "NoNewCheckpoint"
    SPACE_LOW = "CheckpointSpaceLow"
    SAVES_TAKE_LONGER = "SavesTakeLonger"


class CheckpointConcern(ApiModel):
    """CheckpointConcern is one problem with saving that a person should look at. Muster decides nothing by it."""

    reason: CheckpointTrouble = Field(
        description="reason is the problem. NoNewCheckpoint: three expected checkpoints are missing. "
        "CheckpointSpaceLow: the file system has room for few more checkpoints. SavesTakeLonger: saves take much "
        "longer than the first ones did."
    )
    message: Annotated[str, shortened_to(512)] = Field(
        max_length=512, description="message says in a sentence what was seen, and what to do about it."
    )
    since: Time = Field(description="since is when the problem was first seen.")


def _newest_of(saves: object) -> object:
    """The newest saves that the status has room for: another version that keeps more may have written them."""
    return saves[-MAX_SAVES:] if isinstance(saves, list) else saves


def _known_of(concerns: object) -> object:
    """The concerns whose reasons this version knows: another version that knows more may have written them."""
    if not isinstance(concerns, list):
        return concerns
    reasons = set(CheckpointTrouble)
    return [concern for concern in concerns if not isinstance(concern, dict) or concern.get("reason") in reasons]


class CheckpointStatus(ApiModel):
    """CheckpointStatus is the newest complete checkpoint that Muster has seen, and how saving goes."""

    step: int = Field(
        ge=0, le=MAX_STEP, description="step is the training step that the newest complete checkpoint holds."
    )
    path: str = Field(
        max_length=1024, description="path is where the checkpoint is: a path in the worker container, or a URL."
    )
    format: str = Field(
        "",
        max_length=64,
        description="format is the format of the checkpoint, by its name in docs/reference/checkpoints.md. Empty: the "
        "format is not known.",
    )
    time: Time = Field(description="time is when Muster first saw this checkpoint as the newest complete one.")
    saves: Annotated[list[CheckpointSave], BeforeValidator(_newest_of)] = Field(
        [],
        max_length=MAX_SAVES,
        description="saves lists the known saves in order of their steps: the first four and the newest eight.",
    )
    concerns: Annotated[list[CheckpointConcern], BeforeValidator(_known_of)] = Field(
        [],
        max_length=4,
        description="concerns lists problems with saving that should be solved before a failure loses much work, or "
        "before a disk is full. Empty: no such problem is known.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["reason"]},
    )


class Incident(ApiModel):
    """Incident is one failure or planned evacuation of the job, with how the job recovered and what was lost."""

    attempt: int = Field(ge=0, description="attempt is the number of the attempt that ended by the incident.")
    time: Time = Field(description="time is when Muster noticed the incident.")
    level: str = Field(
        max_length=16,
        description="level is how the job recovered: R0 restarts ranks in place, R0b in a new pod, R2 on another "
        "node, and R4 rebuilds the gang.",
    )
    fault_class: str = Field(
        max_length=32,
        description="faultClass is Application, Hardware, Infrastructure, Planned or Unknown. Application and Unknown "
        "use up spec.recovery.applicationRestartsPerDay, Hardware and Infrastructure use up hardwareRestartsPerDay, "
        "and Planned uses up neither.",
    )
    reason: str = Field(
        max_length=64,
        description="reason is what happened, as one CamelCase word, e.g. RankFailed or NodeUnreachable. "
        "docs/troubleshooting.md lists the reasons.",
    )
    node: NodeName = Field(
        "", description="node is the name of the node to which the incident is attributed. Empty: no single node."
    )
    message: Annotated[str, shortened_to(1024)] = Field(
        "", max_length=1024, description="message says in a sentence what happened."
    )
    lost_steps: int | None = Field(
        None,
        ge=0,
        le=MAX_STEP,
        description="lostSteps is how many finished steps had to be made again after the incident. If the job failed "
        "by it, they are those that no complete checkpoint holds. Absent: not known, "
        "or not yet.",
    )
    fault_time: Time | None = Field(
        None,
        description="faultTime is when the failure itself happened, as far as that is known. The field time says when "
        "Muster noticed it.",
    )
    held_seconds: int | None = Field(
        None,
        ge=0,
        le=LONGEST_MILLISECONDS,
        description="heldSeconds is for how many of the seconds between faultTime and time the failure was held "
        "(spec.recovery.onFailure). Absent: it was not held.",
    )
    asked_time: Time | None = Field(
        None,
        description="askedTime is when the planned evacuation began, and the program was asked to save. The job waited "
        "from then until the field time. Absent: it is a failure.",
    )
    resumed_time: Time | None = Field(
        None,
        description="resumedTime is when the first step after the incident was finished. Absent: no step has been "
        "finished since.",
    )
    lost_seconds: int | None = Field(
        None,
        ge=0,
        le=LONGEST_MILLISECONDS,
        description="lostSeconds is how many seconds of training work the incident lost. These are finished steps "
        "that had to be made again or were never saved, and work that was interrupted. Absent: not known.",
    )


class WaitingDomain(ApiModel):
    """WaitingDomain says how many nodes of one topology domain a waiting job could use."""

    domain: str = Field(
        max_length=1024,
        description="domain is the path of the domain: names from the outermost level inwards, joined by '/'. Empty: "
        "the whole fleet.",
    )
    free: int = Field(ge=0, description="free is how many nodes of the domain the job could use now.")
    suitable: int = Field(
        ge=0, description="suitable is how many nodes of the domain the job could use if nothing else ran."
    )


class WaitingBlocker(ApiModel):
    """WaitingBlocker is one thing that keeps a waiting job from some nodes."""

    reason: Annotated[str, shortened_to(256)] = Field(
        max_length=256,
        description="reason says what keeps the job from the nodes, e.g. another job, a cordon, a taint, or a quota.",
    )
    nodes: int = Field(ge=0, description="nodes is how many nodes the job cannot use for this reason.")


class Waiting(ApiModel):
    """Waiting says in numbers why the job waits for nodes. kubectl muster status shows the same."""

    needs: int = Field(ge=0, description="needs is how many nodes the job needs, all at the same time.")
    level: str | None = Field(
        None,
        max_length=63,
        description="level is the topology level inside one domain of which the nodes have to be. Absent: the nodes "
        "may be in any domain.",
    )
    segment_size: int | None = Field(
        None,
        ge=1,
        description="segmentSize is how many neighbouring workers have to be inside one domain of the innermost "
        "level. Absent: there are no segments.",
    )
    position: int = Field(0, ge=0, description="position is the job's place in the queue; 1 is the next job.")
    queued: int = Field(0, ge=0, description="queued is how many jobs are in the queue.")
    fleet: int = Field(
        0,
        ge=0,
        description="fleet is how many nodes the cluster has. 0: nodes were not counted, because only a limit or a "
        "quota keeps the job waiting.",
    )
    suitable: int = Field(
        0, ge=0, description="suitable is how many nodes of the cluster the job could use if nothing else ran."
    )
    free: int = Field(
        0,
        ge=0,
        description="free is how many nodes of the cluster the job could use now, with those of jobs that give way to "
        "it.",
    )
    reserved: int = Field(
        0,
        ge=0,
        description="reserved is how many of the free nodes are reserved for the job until it has all that it needs.",
    )
    domains: list[WaitingDomain] = Field(
        [],
        max_length=16,
        description="domains lists the best topology domains for the job, the one with most free nodes first.",
    )
    blockers: list[WaitingBlocker] = Field(
        [],
        max_length=32,
        description="blockers lists what keeps the job from the other nodes, the reason for most nodes first.",
    )
    remedies: list[Annotated[str, Field(max_length=512), shortened_to(512)]] = Field(
        [],
        max_length=8,
        description="remedies lists changes that would let the job start, the most promising one first.",
    )
    since: Time | None = Field(None, description="since is when the job began to wait.")

    @property
    def counts_nodes(self) -> bool:
        """Whether `fleet`, `suitable` and `free` were counted. They are not if only a limit or a quota keeps the job
        waiting."""
        return self.fleet > 0


class StartEstimateStatus(ApiModel):
    """StartEstimateStatus says when a waiting job starts, by Muster's estimate, and then how good that was."""

    time: Time | None = Field(
        None,
        description="time is when the job starts, as last estimated. It is written again only when it has moved by "
        "more than two minutes and a tenth of the wait that is left. Absent: not known.",
    )
    reason: Annotated[str, shortened_to(512)] = Field(
        max_length=512,
        description="reason says what has to happen before the job starts, or why its start is not known, and what "
        "would make it known.",
    )
    generation: int = Field(
        0, ge=0, description="generation is the metadata.generation of the job that was estimated first."
    )
    first_time: Time | None = Field(
        None,
        description="firstTime is when the job would start by the first estimate that had a time. Absent: there was "
        "none yet.",
    )
    first_estimated_time: Time | None = Field(
        None, description="firstEstimatedTime is when that first estimate was made. Absent: there was none yet."
    )
    started_time: Time | None = Field(
        None,
        description="startedTime is when the job got its nodes, to be compared with firstTime. Absent: it waits.",
    )

    @property
    def late_seconds(self) -> float | None:
        """By how much the job got its nodes later than was first estimated; below 0: earlier. None: not known."""
        if self.first_time is None or self.started_time is None:
            return None
        return (self.started_time - self.first_time).total_seconds()


MAX_WARNINGS = 16
"""How many warnings a job's status shows at most."""


class JobWarning(ApiModel):
    """JobWarning is something about the job that a person should know, although the job may run."""

    reason: str = Field(
        max_length=64,
        description="reason is the warning as one CamelCase word; docs/reference/messages.md explains each. "
        "spec.acceptedWarnings takes it.",
    )
    message: Annotated[str, shortened_to(1024)] = Field(
        max_length=1024, description="message says in a sentence what was seen, and what to do about it."
    )
    since: Time = Field(description="since is when the warning was first seen, without a gap.")


class TrainingJobStatus(ApiModel):
    """TrainingJobStatus is the observed state of the job, for users and GitOps tools.

    Muster derives it from the job's Gang object and from what it observes.
    """

    model_config = ConfigDict(
        json_schema_extra=checks(
            rule(
                "!has(oldSelf.completion) || (has(self.completion) && self.completion == oldSelf.completion)",
                "the end of a job is written once and cannot change: create a new job instead",
                at=".completion",
            )
        )
    )

    observed_generation: int = Field(
        0,
        ge=0,
        description="observedGeneration is the metadata.generation of the job that this status was derived from.",
    )
    state: str = Field(
        "",
        max_length=64,
        description="state sums up the job in one word: Pending, Starting, Running, Saving, Held, Recovering, "
        "Suspended, Stalled, Succeeded or Failed. A Stalled job cannot go on until a person changes something.",
    )
    reason: str = Field(
        "",
        max_length=64,
        description="reason is why the job is in this state, as one CamelCase word. docs/troubleshooting.md says what "
        "to do for each.",
    )
    attempt: int = Field(
        0,
        ge=0,
        description="attempt is the number of the gang's newest start; it grows with each restart. 0: the job has had "
        "no nodes yet.",
    )
    nodes_ready: str = Field(
        "", max_length=32, description="nodesReady is how many worker pods run, of how many the job has, e.g. 3/4."
    )
    nodes: list[NodeName] = Field(
        [],
        max_length=4096,
        description="nodes lists the node of each worker, in order of the workers' indexes. Empty: the job holds no "
        "nodes.",
    )
    topology: list[LevelCount] = Field(
        [],
        max_length=16,
        description="topology lists in how many domains of each level the workers are, the outermost level first.",
    )
    backfilled: bool = Field(
        False,
        description="backfilled is whether the job has nodes that were reserved for other jobs: it is expected to end "
        "before these start, or leaves them enough. From lentUntil on it gives way, after a save, to the jobs before "
        "it in the queue.",
    )
    lent_until: Time | None = Field(
        None,
        description="lentUntil is until when the job keeps nodes that were reserved for others. Absent: it has none, "
        "or may have to leave them at any time.",
    )
    waiting: Waiting | None = Field(
        None,
        description="waiting says in numbers why the job waits for nodes. Absent: the job does not wait for nodes.",
    )
    start_estimate: StartEstimateStatus | None = Field(
        None,
        description="startEstimate says when the job starts, while it is one of the first in the queue. After its "
        "start it says how good the first estimate was. Absent: nothing was estimated.",
    )
    step: int | None = Field(
        None,
        ge=0,
        le=MAX_STEP,
        description="step is the newest finished training step. Before the first step of an attempt, it is the step "
        "that the attempt resumed from. Absent: no step is known.",
    )
    checkpoint: CheckpointStatus | None = None
    restarts: int = Field(
        0, ge=0, description="restarts is how many times the ranks were started again after a failure or an evacuation."
    )
    corruption: CorruptionStatus | None = Field(
        None,
        description="corruption says what followed when the trainer last reported that its own results are wrong. "
        "Absent: the trainer has reported nothing wrong.",
    )
    incidents: list[Incident] = Field(
        [],
        max_length=16,
        description="incidents lists the newest failures and planned evacuations of the job, the oldest of them first.",
    )
    conditions: list[Condition] = Field(
        [],
        max_length=16,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        description="conditions lists the aspects of the job's current state, one for each type.",
    )
    warnings: list[JobWarning] = Field(
        [],
        max_length=MAX_WARNINGS,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["reason"]},
        description="warnings lists what a person should know about the job, the most serious first. Those in "
        "spec.acceptedWarnings are left out.",
    )
    goodput: Goodput | None = Field(
        None,
        description="goodput says where the job's time and accelerator-hours went; kubectl muster report explains the "
        "figures. Absent: nothing is counted yet.",
    )
    completion: CompletionRecord | None = Field(
        None, description="completion says how and when the job ended. Absent: the job has not ended."
    )

    @property
    def is_ejected(self) -> bool:
        """Whether the job's gang was ejected (spec.eject): nothing is decided about it any more."""
        return any(condition.type == "Ejected" for condition in self.conditions)


_SAME_RESUME = (
    "!has(self.spec.checkpoint) || !has(self.spec.checkpoint.resumeFrom) || (has(oldSelf.spec.checkpoint) && "
    "has(oldSelf.spec.checkpoint.resumeFrom) && oldSelf.spec.checkpoint.resumeFrom == self.spec.checkpoint.resumeFrom)"
)


class TrainingJob(ApiModel):
    """TrainingJob is a distributed training program that runs on a gang of whole nodes.

    Muster places the gang, restarts it after failures, and resumes it from its newest complete checkpoint.
    """

    model_config = ConfigDict(
        json_schema_extra=checks(
            rule(
                f"size(self.metadata.name) <= {MAX_NAME_LENGTH}",
                f"the name is longer than {MAX_NAME_LENGTH} characters, and the names of the pods would not be valid: "
                "choose a shorter one",
                at=".metadata.name",
            ),
            rule(
                f"self.metadata.name.matches('^{_NAME}$')",
                "the name becomes part of host names: use lower-case letters, digits and '-', and begin with a letter",
                at=".metadata.name",
            ),
            _asks_no_more_after_the_end("!self.spec.suspend || oldSelf.spec.suspend", ".spec.suspend"),
            _asks_no_more_after_the_end("!self.spec.eject || oldSelf.spec.eject", ".spec.eject"),
            _asks_no_more_after_the_end(_SAME_RESUME, ".spec.checkpoint.resumeFrom"),
            *(
                _asks_no_more_after_the_end(
                    f"self.spec.recovery.{budget} <= oldSelf.spec.recovery.{budget}", f".spec.recovery.{budget}"
                )
                for budget in ("applicationRestartsPerDay", "hardwareRestartsPerDay")
            ),
            rule(
                f"{_SAME_RESUME} || self.spec.suspend || "
                "!has(self.status) || !has(self.status.state) || has(self.status.completion) || "
                "self.status.state == 'Stalled' || self.status.state == 'Suspended'",
                "resumeFrom may be set or changed only while the job is stalled or suspended: set spec.suspend to "
                "true first",
                at=".spec.checkpoint.resumeFrom",
            ),
            _changes_while_suspended("spec", "progress"),
            _changes_while_suspended("spec.checkpoint", "pattern"),
        )
    )

    metadata: ObjectMeta
    spec: TrainingJobSpec
    status: TrainingJobStatus = TrainingJobStatus()

    @property
    def wants_nodes(self) -> bool:
        """Whether the job has neither ended nor is being deleted. Until then it holds the nodes of its record."""
        return self.status.completion is None and self.metadata.deletion_timestamp is None


def is_job_name(name: str) -> bool:
    """Whether a name keeps NAME_RULES."""
    return len(name) <= MAX_NAME_LENGTH and re.fullmatch(_NAME, name) is not None


def parsed(manifest: Mapping[str, Any]) -> TrainingJob:
    """The TrainingJob of a manifest.

    Raises:
        ValueError: the manifest is no TrainingJob; the text is one line that begins with the wrong field.
    """
    try:
        return TrainingJob.model_validate(manifest)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"{where}: a TrainingJob cannot have {first['input']!r} there: {first['msg']}") from error

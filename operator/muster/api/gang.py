"""Gang: the record of a job's attempt. The operator alone writes it, one guarded update at a time.

An attempt is one start of the gang. Its number, its members and its cause change together, in ONE update; only after
that update has succeeded are directives served or pods touched. A second guarded update adds `start` once every
member is idle. It fixes what the ranks are started with (addresses, resume checkpoint), so that a new leader serves
the same answer. The reasons are in docs/decisions/0002.

Tests: tests/unit/api/test_models.py.
"""

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic.alias_generators import to_camel

from muster.api.base import (
    NAME_LENGTH,
    UID_LENGTH,
    ApiModel,
    CompactModel,
    LevelCount,
    NodeName,
    ObjectMeta,
    RecordedModel,
    Time,
    checks,
    rule,
    shortened_to,
)
from muster.api.goodput import LONGEST_MILLISECONDS, MAX_NODE_GPUS, MAX_STEP, Account
from muster.api.preflight import Profile
from muster.protocol.messages import LONGEST_FENCE_SECONDS, MAX_FENCE_FILE_CHARS


class Level(StrEnum):
    """Level is how an attempt began: the level of recovery that it took, or Start if it repairs no failure.

    R0 restarts the ranks in their pods, and R0b makes new pods on the same nodes. R2 moves workers to other nodes, and
    R4 places the whole gang again.
    """

    START = "Start"
    IN_PLACE = "R0"
    POD = "R0b"
    REPLACE = "R2"
    REBUILD = "R4"


class FaultClass(StrEnum):
    """FaultClass is the kind of failure, and decides which restart budget pays.

    Application and Unknown count against the job's application restarts, Hardware and Infrastructure against its
    hardware restarts. Planned is a move that Muster planned, and counts against neither. Hardware means that a finding
    of the node explains the failure; Infrastructure that neither the program nor such a finding does.
    """

    APPLICATION = "Application"
    HARDWARE = "Hardware"
    INFRASTRUCTURE = "Infrastructure"
    PLANNED = "Planned"
    UNKNOWN = "Unknown"


class Role(StrEnum):
    """Role is Worker for a member that trains. Spare is a member that holds a node and trains only after a
    replacement; Muster makes none today.
    """

    WORKER = "Worker"
    SPARE = "Spare"


class Proof(StrEnum):
    """Proof is what has to show that the ranks of an unfenced worker have ended: Fence, FenceFile or Death."""

    FENCE = "Fence"
    FENCE_FILE = "FenceFile"
    DEATH = "Death"


# The fence by which a launcher counts before the coordinator sends it another one.
FENCE_SECONDS = 15
MAX_FENCE_SECONDS = int(LONGEST_FENCE_SECONDS)


class Member(CompactModel):
    """Member is one worker of the gang, with its node and its pod.

    Thousands of members fit into one object because a field with its default value is left out.
    """

    unsaid = (
        "index",
        "role",
        "rank",
        "gpus",
        "fence_seconds",
        "boot_id",
        "pod_uid",
        "reads_fence_file",
        "is_replacement",
    )

    index: int = Field(
        -1,
        ge=-1,
        le=4095,
        description=(
            "index is the number of the worker in the gang, and part of its pod's name. It never changes. If index is "
            "absent, the member's place in the list counts."
        ),
    )
    role: Role = Field(
        Role.WORKER,
        description=(
            "role is Worker for a member that trains. Spare is a member that holds a node and trains only after a "
            "replacement; Muster makes none today. If role is absent, the member is a Worker."
        ),
    )
    rank: int = Field(
        -1,
        ge=-1,
        le=4095,
        description=(
            "rank is the number of the worker among the nodes of this attempt; the others connect to the worker of "
            "rank 0. If rank is absent, it equals index."
        ),
    )
    fence_seconds: int = Field(
        FENCE_SECONDS,
        ge=1,
        le=MAX_FENCE_SECONDS,
        description=(
            "fenceSeconds is the longest fence, in seconds, by which the worker's launcher may be counting. A launcher "
            "that is cut off for that long ends its own ranks. If it is absent, the fence is 15 s."
        ),
    )
    node: NodeName = Field(
        "",
        description=(
            "node is the name of the node on which the worker is placed. It is empty while no node is free for the "
            "worker."
        ),
    )
    gpus: int | None = Field(
        None,
        ge=0,
        le=MAX_NODE_GPUS,
        description=(
            "gpus is the number of accelerators on the node when the worker was placed there. The worker holds all of "
            "them. If gpus is absent, the number is not known, and the job's gpusPerNode counts instead."
        ),
    )
    boot_id: str = Field(
        "",
        max_length=8,
        description=(
            "bootId is the first 8 characters of the node's boot ID when the worker's ranks were started. If the node "
            "has another boot ID, it has rebooted, and none of these ranks is left. Empty means not known."
        ),
    )
    incarnation: int = Field(
        1,
        ge=1,
        description="incarnation is the number of the worker's pod. It begins with 1, and grows with each new pod.",
    )
    pod_uid: str = Field(
        "",
        max_length=UID_LENGTH,
        description=(
            "podUid is the UID of the worker's pod. It is empty until the operator has recorded that this pod exists."
        ),
    )
    reads_fence_file: bool = Field(
        False,
        description=(
            "readsFenceFile is true if the worker's launcher ends its ranks when the fence file in the checkpoint "
            "directory shows a newer attempt. It applies only to the fence file that spec.fenceFileId names."
        ),
    )
    is_replacement: bool = Field(
        False,
        description=(
            "isReplacement is true if the worker came to its node after the ranks last ran. Such a worker cannot have "
            "caused a failure of those ranks."
        ),
    )


class Resume(RecordedModel):
    """Resume identifies a checkpoint from which ranks can resume."""

    step: int = Field(ge=0, le=MAX_STEP, description="step is the training step at which the checkpoint was saved.")
    path: str = Field(
        max_length=1024,
        description=(
            "path is where the checkpoint lies: a path in the worker's container, or a URL in an object store."
        ),
    )


class Branch(RecordedModel):
    """Branch is the line of training that the job follows since it went back to an earlier step.

    The job went back because a user asked for it, or because its results were wrong. Checkpoints that were saved beyond
    that step before do not count.
    """

    resume_from: str = Field(
        max_length=1024,
        description=(
            "resumeFrom is the newest spec.checkpoint.resumeFrom of the job that the operator has handled. The "
            "operator does not apply the same value twice in a row. Empty means that nothing was requested, or that "
            "the request was cleared."
        ),
    )
    step: int = Field(
        -1,
        ge=-1,
        le=MAX_STEP,
        description=(
            "step is where the branch begins: the step of the requested checkpoint, or the last step that is not "
            "suspect. With -1 no checkpoint from before counts."
        ),
    )
    frozen: bool = Field(
        False,
        description=(
            "frozen is true while no checkpoint beyond step counts, whenever it was written. The next start lists the "
            "excluded ones in excludedCheckpoints and sets frozen to false."
        ),
    )
    excluded_checkpoints: str = Field(
        "",
        max_length=16384,
        description=(
            "excludedCheckpoints lists the checkpoints beyond step that do not count, separated by commas. Each entry "
            "is the step and the time of writing in nanoseconds, such as 200:1700000000000000000. A checkpoint that is "
            "written again later counts."
        ),
    )


class AttemptStart(RecordedModel):
    """AttemptStart is the release of the start barrier. It fixes what the ranks of the attempt are started with."""

    time: Time = Field(description="time is when the operator let the ranks of this attempt start.")
    master_address: str = Field(
        max_length=NAME_LENGTH,
        description="masterAddress is the address of the worker of rank 0, to which all ranks connect.",
    )
    master_port: int = Field(
        ge=1, le=65535, description="masterPort is the TCP port at masterAddress to which all ranks connect."
    )
    resume: Resume | None = Field(
        None,
        description=(
            "resume is the checkpoint from which the ranks resume. If it is absent, Muster gives them none: they begin "
            "anew, or resume by themselves."
        ),
    )
    resume_preset: str = Field(
        "",
        max_length=64,
        description=(
            "resumePreset names the preset by which launchers pass the resume checkpoint to the training command; "
            "docs/reference/resuming.md lists them. Empty means that no preset is used."
        ),
    )


# Workers that are lost together mostly have equal values in these fields.
_LIKE_THE_ONE_BEFORE = (
    "fenced_time",
    "fence_seconds",
    "remaining_seconds",
    "attempt",
    "proof",
    "fence_file_id",
)


class UnfencedWorker(CompactModel):
    """UnfencedWorker is a pod of an earlier attempt whose ranks are not yet proved to have ended. No rank of a newer
    attempt starts before that.

    In the list, fencedTime, fenceSeconds, remainingSeconds, attempt, proof and fenceFileId are left out where they
    equal those of the entry before.
    """

    unsaid = ("pod_uid", "node", "boot_id", *_LIKE_THE_ONE_BEFORE)

    pod: str = Field(
        max_length=NAME_LENGTH, description="pod is the name of the pod whose ranks are not yet proved to have ended."
    )
    pod_uid: str = Field(
        "",
        max_length=UID_LENGTH,
        description="podUid is the UID of the pod whose ranks are not yet proved to have ended.",
    )
    node: NodeName = Field("", description="node is the name of the node to which the pod was bound.")
    boot_id: str = Field(
        "",
        max_length=8,
        description=(
            "bootId is the first 8 characters of the node's boot ID when the pod's ranks were started. If the node has "
            "another boot ID, it has rebooted, and the ranks have ended. Empty means not known."
        ),
    )
    fenced_time: Time = Field(
        description=(
            "fencedTime is by when the pod's launcher has ended its ranks, even if it is cut off (proof Fence). People "
            "read it; the operator counts remainingSeconds, since clocks may step. With another proof, fencedTime is "
            "since when the worker has been silent."
        )
    )
    fence_seconds: int = Field(
        FENCE_SECONDS,
        ge=1,
        le=MAX_FENCE_SECONDS,
        description=(
            "fenceSeconds is the fence, in seconds, by which the pod's launcher counts. A launcher that is cut off for "
            "that long ends its own ranks."
        ),
    )
    remaining_seconds: int = Field(
        -1,
        ge=-1,
        le=2 * MAX_FENCE_SECONDS,
        description=(
            "remainingSeconds is how many seconds the fence had left when this entry was written; it applies to proof "
            "Fence only. Each leader counts it down by a monotonic clock from when it first reads the entry. -1 means "
            "the whole fence."
        ),
    )
    attempt: int = Field(
        0, ge=0, description="attempt is the number of the attempt whose ranks the pod may still be running."
    )
    proof: Proof = Field(
        Proof.FENCE,
        description=(
            "proof is what has to show that the ranks have ended. Fence is the launcher's own timer, and FenceFile the "
            "fence file in the checkpoint directory. With Death, nothing stops the ranks remotely: the pod's end, a "
            "reboot, a person or a timeout proves it."
        ),
    )
    fence_file_id: str = Field(
        "",
        max_length=MAX_FENCE_FILE_CHARS,
        description=(
            "fenceFileId is the identity of the fence file that the pod's launcher reads. A fence file with another "
            "identity proves nothing about this pod. It is empty unless proof is FenceFile."
        ),
    )


MAX_PREEMPTIONS = 100
"""Of one job within a day."""


class GangPreemption(RecordedModel):
    """GangPreemption is one time at which the gang was to give its nodes to a job of higher priority."""

    time: Time = Field(
        description="time is when the gang gave its nodes back, or when the request to leave was withdrawn."
    )
    answered: bool = Field(
        description=(
            "answered is whether the program had saved, or said that it follows the request. It is true after a "
            "request that was withdrawn. Of two like jobs the one that did not is preempted first."
        )
    )


class Evacuation(RecordedModel):
    """Evacuation is a planned move under way. The operator waits for a new complete checkpoint, and then stops the
    ranks.
    """

    reason: str = Field(
        max_length=64, description="reason is why the workers move, in CamelCase, for example NodeMaintenance."
    )
    nodes: list[NodeName] = Field(
        [],
        max_length=4096,
        description=(
            "nodes are the names of the nodes that the job leaves. An empty list means all nodes: the job is being "
            "suspended or stopped."
        ),
    )
    since: Time = Field(description="since is when the evacuation began.")
    deadline: Time = Field(
        description=(
            "deadline is when the operator stops waiting for a new complete checkpoint. It then stops the ranks "
            "without one."
        )
    )
    after_step: int | None = Field(
        None,
        le=MAX_STEP,
        description=(
            "afterStep is the step beyond which a complete checkpoint ends the wait. If it is absent, any complete "
            "checkpoint does."
        ),
    )


MAX_SHORT_ESTIMATES = 3
MAX_STACK_GROUPS = 8


class StackGroup(RecordedModel):
    """StackGroup is one place at which ranks of a hung attempt stood, by the Python stack of their main thread."""

    ranks: str = Field(
        max_length=256, description="ranks are the numbers of the training processes that stood there, as in 0-2, 5."
    )
    count: int = Field(ge=1, description="count is how many training processes stood there.")
    stack: Annotated[str, shortened_to(2048)] = Field(
        "",
        max_length=2048,
        description=(
            "stack has the frames of the main thread, one a line, innermost first, as the processes printed them. "
            "Empty means not known."
        ),
    )
    problem: Annotated[str, shortened_to(256)] = Field(
        "", max_length=256, description="problem says for people why the stack is not known. Empty if it is."
    )


class GangIncident(RecordedModel):
    """GangIncident is one failure or one planned move of the job. The operator counts the restart budgets from these
    entries.
    """

    attempt: int = Field(ge=0, description="attempt is the number of the attempt that ended by this failure or move.")
    time: Time = Field(description="time is when the operator recorded the failure or move.")
    level: Level = Field(
        description=(
            "level is how the failure was repaired. R0 restarted the ranks in their pods, R0b made new pods on the "
            "same nodes, R2 moved workers to other nodes. R4 placed the whole gang again."
        )
    )
    fault_class: FaultClass
    reason: str = Field(
        max_length=64,
        description="reason is what failed or why workers moved, in CamelCase, for example NodeLost or RankFailed.",
    )
    node: NodeName = Field(
        "",
        description=(
            "node is the name of the node on which the failure began, or which the job left first. Empty means not "
            "known."
        ),
    )
    index: int | None = Field(
        None,
        description=(
            "index is the number of the worker that failed first, as far as the operator can tell. It is absent for a "
            "planned move."
        ),
    )
    rank: int | None = Field(
        None,
        description=(
            "rank is the number of the training process that failed first, as torchrun gives it where torchrun starts "
            "the processes. If it is absent, no single process is known."
        ),
    )
    exit_code: int | None = Field(
        None,
        description=(
            "exitCode is the exit code of the process or container that failed. If it is absent, none is known."
        ),
    )
    signal: int | None = Field(
        None,
        description=(
            "signal is the number of the signal that ended the process that failed. If it is absent, no signal is "
            "known."
        ),
    )
    step: int | None = Field(
        None,
        le=MAX_STEP,
        description=(
            "step is the newest training step that was known to be finished when the failure happened. If it is "
            "absent, no step is known."
        ),
    )
    resumed_step: int | None = Field(
        None,
        le=MAX_STEP,
        description=(
            "resumedStep is the step from which the next attempt resumed. 0 means without a checkpoint from Muster. If "
            "it is absent, no ranks have started since."
        ),
    )
    checkpoint_step: int | None = Field(
        None,
        le=MAX_STEP,
        description=(
            "checkpointStep is the step of the newest complete checkpoint that was known when the failure happened. If "
            "it is absent, none was known."
        ),
    )
    message: Annotated[str, shortened_to(2048)] = Field(
        "",
        max_length=2048,
        description=(
            "message says for people what happened, often with the last lines that the failed process printed. "
            "Messages of older incidents are shortened."
        ),
    )
    settled: bool = Field(
        False,
        description=(
            "settled is true once the operator has decided on faultClass, node and rank. Until then, late reports may "
            "still name another cause."
        ),
    )
    fault_time: Time | None = Field(
        None,
        description=(
            "faultTime is when the failure happened, as far as is known; time is when the operator recorded it. If it "
            "is absent, it is not known."
        ),
    )
    held_seconds: int | None = Field(
        None,
        ge=0,
        le=LONGEST_MILLISECONDS,
        description=(
            "heldSeconds is for how many of the seconds between faultTime and time the failure was held for people to "
            "look into it. If it is absent, it was not."
        ),
    )
    asked_time: Time | None = Field(
        None,
        description=(
            "askedTime is when the planned evacuation began, and the program was asked to save. If it is "
            "absent, this is a failure."
        ),
    )
    resumed_time: Time | None = Field(
        None,
        description=(
            "resumedTime is when the first training step after the failure was finished. If it is absent, none has "
            "been yet, or its time is not known."
        ),
    )
    lost_milliseconds: int | None = Field(
        None,
        ge=0,
        le=LONGEST_MILLISECONDS,
        description=(
            "lostMilliseconds is the training time that the failure cost, in milliseconds: steps to be made again, and "
            "the one that it interrupted. If it is absent, it is not known."
        ),
    )
    account_offset_milliseconds: int = Field(
        0,
        ge=-LONGEST_MILLISECONDS,
        le=LONGEST_MILLISECONDS,
        description="By how much the clock of the account was ahead of the one that its times go by.",
    )
    lost_steps: int | None = Field(
        None,
        ge=0,
        le=MAX_STEP,
        description=(
            "lostSteps is how many steps had to be made again. The operator sets it when a later "
            "spec.checkpoint.resumeFrom lowers step, checkpointStep and resumedStep. If it is absent, the number is "
            "step minus resumedStep."
        ),
    )
    trained: bool = Field(
        False,
        description=(
            "trained is true if a training step of the attempt had been seen before it failed. If it is false, the "
            "attempt failed while it was starting, or it was a planned move."
        ),
    )
    other_workers: int | None = Field(
        None,
        ge=0,
        le=4096,
        description=(
            "otherWorkers is how many other workers failed by themselves at the same time. For a job of one worker, it "
            "is how many other ranks did. If it is absent, it is not known, as after a hang of a job of one worker."
        ),
    )
    own_exception: bool = Field(
        False,
        description=(
            "ownException is true if the process that failed ended with a traceback of the program's own. Nothing in "
            "it points to a device, to files or to a connection. Such a failure says nothing about its node."
        ),
    )
    stacks: list[StackGroup] = Field(
        [],
        max_length=MAX_STACK_GROUPS,
        description=(
            "stacks says after a hang where the ranks stood, most ranks first. It is kept for the newest hangs. Empty "
            "means not known."
        ),
    )


class BurnInFailure(RecordedModel):
    """BurnInFailure is a node that failed the burn-in of this gang, with the test that it failed."""

    node: NodeName = Field(description="node is the name of the node that failed.")
    boot: str = Field(
        "", max_length=64, description="boot is the node's boot ID when it failed. Empty means not known."
    )
    time: Time = Field(description="time is when the operator recorded the failure.")
    probe: str = Field(
        max_length=128, description="probe is the name of the test that the node failed, for example gemm-bf16."
    )
    message: Annotated[str, shortened_to(512)] = Field(
        "", max_length=512, description="message says for people what was measured and what was expected."
    )
    partners: list[NodeName] = Field(
        [],
        max_length=16,
        description=(
            "partners are the names of proven nodes together with which this node failed. An empty list means that it "
            "failed a test by itself."
        ),
    )


class BurnInAllReduce(RecordedModel):
    """BurnInAllReduce is the result of an all-reduce over all nodes of the gang."""

    time: Time = Field(description="time is when the operator let the ranks start after the all-reduce.")
    message: Annotated[str, shortened_to(512)] = Field(
        max_length=512, description="message says for people what the all-reduce over the whole gang reached."
    )


class BurnIn(RecordedModel):
    """BurnIn is what the tests of the gang's nodes before training have shown, as far as later decisions need it."""

    profile: str = Field(
        "",
        max_length=16,
        description="profile is how thoroughly the nodes were tested: Quick, Standard or Deep. Empty means not known.",
    )
    time: Time = Field(description="time is when the operator last wrote the results of the burn-in.")
    tries: int = Field(
        0,
        ge=0,
        description=(
            "tries is how many times in a row nodes were replaced after failed or inconclusive tests, since the last "
            "start. Beyond spec.preflight.maxReplacements of the FleetPolicy the gang gives its nodes back."
        ),
    )
    since_attempt: int = Field(
        0,
        ge=0,
        description=(
            "sinceAttempt is the attempt in which the first of the replacements that tries counts happened. A node "
            "that has passed since then is not tested again."
        ),
    )
    failures: list[BurnInFailure] = Field(
        [],
        max_length=64,
        description="failures are the newest 64 failures of nodes in the burn-in of this gang, oldest first.",
    )
    untested: list[NodeName] = Field(
        [],
        max_length=4096,
        description=(
            "untested are the names of nodes whose tests gave no answer, and on which the ranks started all the same."
        ),
    )
    message: Annotated[str, shortened_to(512)] = Field(
        "",
        max_length=512,
        description="message says for people why tests gave no answer. It is empty if there is nothing to say.",
    )
    all_reduce: BurnInAllReduce | None = Field(
        None,
        description=(
            "allReduce is the newest all-reduce over all nodes of the gang. It is a measurement: no node is blamed for "
            "it. If it is absent, none was made."
        ),
    )


class Examination(StrEnum):
    """Examination is what tests of the job's nodes showed after its results were found wrong.

    CulpritFound means that a node gave wrong results, and NothingFound that every node passed. Inconclusive means that
    the tests gave no clear answer, and NotTested that none was made.
    """

    CULPRIT_FOUND = "CulpritFound"
    NOTHING_FOUND = "NothingFound"
    INCONCLUSIVE = "Inconclusive"
    NOT_TESTED = "NotTested"


class CorruptionStatus(ApiModel):
    """CorruptionStatus is the newest case in which the training program found its own results wrong, and what
    followed.
    """

    attempt: int = Field(ge=0, description="attempt is the number of the attempt whose ranks found wrong results.")
    time: Time = Field(description="time is when the operator learned of the wrong results.")
    reason: str = Field(
        max_length=64,
        description=(
            "reason is what the training program reported: ReplayMismatch or NonFiniteLoss. ExitCode means that the "
            "program exited with code 86 and reported nothing else."
        ),
    )
    node: NodeName = Field(
        "",
        description=(
            "node is the name of the node whose rank reported the wrong results. That node need not be the cause; see "
            "culprits."
        ),
    )
    found_at: int = Field(
        ge=0,
        description=(
            "foundAt is the step at which the wrong results were found. If the program named none, it is the newest "
            "step known to be finished then."
        ),
    )
    suspect_steps: list[int] = Field(
        [],
        max_length=16,
        description=(
            "suspectSteps are the steps of the newest 16 suspect checkpoints. A suspect checkpoint does not count "
            "until it is written again. The list is filled when the training resumes."
        ),
    )
    suspect_count: int = Field(
        0,
        ge=0,
        description=(
            "suspectCount is how many steps have suspect checkpoints, including those that suspectSteps has no room "
            "for."
        ),
    )
    resumed_step: int | None = Field(
        None,
        le=MAX_STEP,
        description=(
            "resumedStep is the step from which the training resumed afterwards. 0 means without a checkpoint from "
            "Muster. If it is absent, the training has not resumed yet."
        ),
    )
    examination: Examination | None = Field(
        None,
        description=(
            "examination is what tests of the job's nodes showed; it is absent until they are over. CulpritFound means "
            "that a node gave wrong results, and NothingFound that every node passed. Inconclusive means no clear "
            "answer, and NotTested no test."
        ),
    )
    culprits: list[NodeName] = Field(
        [],
        max_length=16,
        description=(
            "culprits are the names of the nodes that gave wrong results in the tests that followed. An empty list "
            "means that the tests found none, or are not over."
        ),
    )
    message: Annotated[str, shortened_to(1024)] = Field(
        "",
        max_length=1024,
        description=(
            "message describes the case for people. In the job's status it also says what followed; in the Gang it "
            "holds the program's report alone."
        ),
    )


class Corruption(CorruptionStatus, RecordedModel):
    """Corruption is the newest case in which the training program found its own results wrong, with what the
    operator needs for its decisions.
    """

    last_good: int | None = Field(
        None,
        ge=0,
        description=(
            "lastGood is the last step whose results the training program is sure of. If it is absent, the program did "
            "not say."
        ),
    )
    suspect_beyond_step: int = Field(
        ge=-1,
        le=MAX_STEP,
        description=(
            "suspectBeyondStep is the step beyond which checkpoints are suspect if they existed when the wrong results "
            "were found. With -1 all of them are."
        ),
    )
    newest_checkpoint: Resume | None = Field(
        None,
        description=(
            "newestCheckpoint is the newest complete checkpoint that was known when the wrong results were found. If "
            "it is absent, none was known."
        ),
    )
    occurrences: int = Field(
        1,
        ge=1,
        description=(
            "occurrences is how many times in a row wrong results were found without a culprit and without a "
            "checkpoint at foundAt or beyond in between. From the second time on, the nodes are tested with the Deep "
            "profile."
        ),
    )
    open: bool = Field(
        True,
        description=(
            "open is true until the ranks have been started again. Until then, the job's nodes are tested before the "
            "next start."
        ),
    )


class SuspectCheckpoint(RecordedModel):
    """SuspectCheckpoint is a checkpoint from which attempts resumed and failed before their first step, by no other
    cause that is known than the program itself.
    """

    checkpoint: Resume = Field(description="checkpoint is the one from which the attempts resumed.")
    attempts: list[int] = Field(
        [],
        max_length=128,
        description=(
            "attempts are the numbers of the attempts that resumed from checkpoint and failed before their first step, "
            "oldest first. One counts only if its incident is of class Application."
        ),
    )
    fallback: Resume | None = Field(
        None,
        description=(
            "fallback is the next older complete checkpoint, from which an attempt resumed instead. If it is absent, "
            "none has yet."
        ),
    )
    fallback_attempts: list[int] = Field(
        [],
        max_length=128,
        description=(
            "fallbackAttempts are the numbers of the attempts that resumed from fallback and failed before their first "
            "step, too. If one of them is of class Application, the program is the likelier cause, and checkpoint "
            "counts again, unless it was moved away."
        ),
    )
    excluded_checkpoints: str = Field(
        "",
        max_length=16384,
        description=(
            "excludedCheckpoints lists what the start from fallback added to branch.excludedCheckpoints, so that it "
            "can be taken back."
        ),
    )


MAX_EXCLUDED_NODES = 4096
# Older ones of an attempt are long withdrawn: no rank says any more that it follows one of them.
MAX_EVACUATION_REQUESTS = 16


def _longest_of(excluded: object) -> object:
    """The exclusions that a record has room for, those that last longest: a whole gang's may join those before."""
    if not isinstance(excluded, dict) or len(excluded) <= MAX_EXCLUDED_NODES:
        return excluded
    return dict(sorted(excluded.items(), key=lambda item: str(item[1]))[-MAX_EXCLUDED_NODES:])


class SaveRequest(RecordedModel):
    """SaveRequest is a request of a user that the ranks save and go on. It is over once a new complete checkpoint is
    seen, or at its deadline.
    """

    name: str = Field(max_length=63, description="name is the job's spec.checkpoint.saveRequest that asked for it.")
    attempt: int = Field(description="attempt is the number of the attempt whose ranks were asked last.")
    number: int = Field(description="number is that of the request among all requests of that attempt.")
    since: Time = Field(description="since is when the ranks were asked first.")
    deadline: Time = Field(description="deadline is when the operator stops waiting for a new complete checkpoint.")
    after_step: int | None = Field(
        None,
        le=MAX_STEP,
        description=(
            "afterStep is the step beyond which a complete checkpoint is new. If it is absent, any complete checkpoint "
            "is."
        ),
    )
    over: bool = Field(False, description="over is whether the ranks are asked no more.")
    saved_step: int | None = Field(
        None,
        le=MAX_STEP,
        description=(
            "savedStep is the step of the checkpoint that was waited for. If it is absent, there is none yet, or none "
            "came in time."
        ),
    )


class HeldFailure(RecordedModel):
    """HeldFailure is a failure of the current attempt that people look into, as the job's spec.recovery.onFailure asks.
    Until the hold is over, pods and ranks stay as they are.
    """

    since: Time = Field(description="since is when the hold began.")
    reason: str = Field(max_length=64, description="reason is what failed, in CamelCase, for example RankFailed.")
    index: int | None = Field(
        None,
        ge=0,
        le=4095,
        description="index is the number of the worker that failed. If it is absent, it is not known which one did.",
    )
    message: Annotated[str, shortened_to(512)] = Field(
        max_length=512, description="message says for people what happened."
    )
    step: int | None = Field(
        None,
        le=MAX_STEP,
        description="step is the newest step that was finished before the hold. If it is absent, none was known.",
    )
    over: bool = Field(
        False,
        description="over is whether the hold has ended while the attempt goes on. An attempt is held once at most.",
    )


class GangSpec(RecordedModel):
    """GangSpec is the record of the job's current attempt. The operator alone writes it, one guarded update at a
    time.
    """

    job_uid: str = Field(
        max_length=UID_LENGTH,
        json_schema_extra=checks(
            rule("self == oldSelf", "a Gang belongs to one job for ever: delete and re-create it")
        ),
        description="jobUid is the UID of the TrainingJob to which this Gang belongs. It never changes.",
    )
    attempt: int = Field(
        ge=1,
        json_schema_extra=checks(
            rule("self >= oldSelf", "a committed attempt is never taken back: commit a later one")
        ),
        description="attempt is the number of the current attempt, which is one start of the gang. It only grows.",
    )
    time: Time = Field(description="time is when the operator recorded the current attempt.")
    level: Level
    reason: str = Field(
        max_length=64, description="reason is why this attempt began, in CamelCase, for example NodeLost."
    )
    members: list[Member] = Field(
        [],
        max_length=4096,
        description=(
            "members are the workers of the gang, ordered by index. The list is empty while the job is suspended or "
            "waits for nodes."
        ),
    )
    topology: list[LevelCount] = Field(
        [],
        max_length=16,
        description="topology says for each topology level in how many domains the members were placed.",
    )
    start: AttemptStart | None = Field(
        None,
        description=(
            "start is what the ranks of this attempt are started with. If it is absent, the operator has not let them "
            "start yet."
        ),
    )
    ejected: bool = Field(
        False,
        json_schema_extra=checks(
            rule("self || !oldSelf", "an ejected gang is never taken back: delete the job and create it again")
        ),
        description=(
            "ejected is whether the gang has left Muster on the user's request. Its ranks train on to their end, and "
            "the operator decides nothing about them any more."
        ),
    )
    unfenced_workers: list[UnfencedWorker] = Field(
        [],
        max_length=4096,
        description=(
            "unfencedWorkers are pods of earlier attempts whose ranks are not yet proved to have ended. No rank of "
            "this attempt starts before all of them have."
        ),
    )
    listing_round: int = Field(
        0,
        ge=0,
        description=(
            "listingRound grows when the last unfenced worker of this attempt is proved to have ended; each attempt "
            "begins at 0. That worker may have saved until then, so the workers list the checkpoints again before the "
            "start."
        ),
    )
    requests: int = Field(
        0,
        ge=0,
        description=(
            "requests is how often the ranks of this attempt were asked for something, to leave or to save. It is the "
            "number of the newest request."
        ),
    )
    evacuation_requests: list[int] = Field(
        [],
        max_length=MAX_EVACUATION_REQUESTS,
        description=(
            "evacuationRequests are the numbers of the newest requests of this attempt to leave, oldest first. While "
            "there is an evacuation, the last one stands."
        ),
    )
    save_request: SaveRequest | None = Field(
        None,
        description=(
            "saveRequest is the newest request to save and go on. If it is absent, the ranks were never asked for that."
        ),
    )
    held_failure: HeldFailure | None = Field(
        None,
        description=(
            "heldFailure is the failure of this attempt that is, or was, held. If it is absent, none has been held."
        ),
    )
    backfilled: bool = Field(
        False,
        description=(
            "backfilled is whether the gang has nodes that were reserved for other jobs: it is expected to end before "
            "these start, or leaves them enough. From lentUntil on it gives way, after a save, to the jobs before it "
            "in the queue. It stays set while the gang has given them back and its pods end."
        ),
    )
    backfill_until: Time | None = Field(
        None,
        description=(
            "backfillUntil is by when the gang ends, by the estimate with which it got nodes that were reserved for "
            "others. If it is absent, it has none of these, or has returned to them before its pods had left."
        ),
    )
    lent_until: Time | None = Field(
        None,
        description=(
            "lentUntil is until when the gang keeps nodes that were reserved for others, by the API server's clock. "
            "A gang that lacks a node, or a job that preempts it, may have them sooner. If it is absent, so may each "
            "job before it in the queue."
        ),
    )
    short_estimates: list[Time] = Field(
        [],
        max_length=MAX_SHORT_ESTIMATES,
        description=(
            "shortEstimates are the newest times, three at most, at which the job still trained after backfillUntil, "
            "and was asked to leave. After three within a day the jobs of its namespace backfill no more for a while."
        ),
    )
    placed_time: Time | None = Field(
        None,
        description=(
            "placedTime is when the gang last got nodes while it had none. If it is absent, time counts in its place."
        ),
    )
    preemptions: list[GangPreemption] = Field(
        [],
        max_length=MAX_PREEMPTIONS,
        description=(
            "preemptions are the times of the last 24 hours at which the gang was to give its nodes to jobs of higher "
            "priority, oldest first. A request that was withdrawn counts, too."
        ),
    )
    evacuation: Evacuation | None = Field(
        None, description="evacuation is the planned move of workers that is under way. If it is absent, there is none."
    )
    incidents: list[GangIncident] = Field(
        [],
        max_length=256,
        description="incidents are the newest 256 failures and planned moves of the job, oldest first.",
    )
    excluded_nodes: Annotated[dict[str, Time], BeforeValidator(_longest_of)] = Field(
        {},
        max_length=MAX_EXCLUDED_NODES,
        description=(
            "excludedNodes are the nodes that this job avoids. Each name maps to the time until which the job avoids "
            "the node."
        ),
    )
    hold_until: Time | None = Field(
        None,
        description=(
            "holdUntil is the time before which the operator does not start this attempt (back-off). If it is absent, "
            "the attempt starts as soon as it can."
        ),
    )
    releases: int = Field(
        0,
        ge=0,
        description=(
            "releases is how many times in a row the gang gave its nodes back because it could not be assembled on "
            "them. Each time, the job waits longer before it tries again. A start resets it to 0."
        ),
    )
    checkpoint: Resume | None = Field(
        None, description="checkpoint is the newest complete checkpoint in this record. If it is absent, none is known."
    )
    move_incomplete_beyond: Resume | None = Field(
        None,
        description=(
            "moveIncompleteBeyond is a checkpoint: incomplete checkpoints of higher steps beside it are moved away "
            "before this attempt starts. It is absent if the job does not ask for that, not yet, or if the attempt "
            "starts without a checkpoint from Muster."
        ),
    )
    local_since_attempt: int = Field(
        0,
        ge=0,
        description=(
            "localSinceAttempt is the first attempt whose checkpoints on the nodes' own disks count. Those of earlier "
            "attempts do not: the training went on without them, or their Gang was deleted."
        ),
    )
    last_published_checkpoint: Resume | None = Field(
        None,
        description=(
            "lastPublishedCheckpoint is the checkpoint that the job's status showed at the last start. The operator "
            "dealt with it then: it was resumed from, excluded or gone. Only a checkpoint that the status shows later "
            "counts again."
        ),
    )
    fence_file_id: str = Field(
        "",
        max_length=MAX_FENCE_FILE_CHARS,
        description=(
            "fenceFileId is the identity of the fence file in the checkpoint directory that the members' launchers "
            "read. Empty means that none is known, and that no fence file can stop the ranks."
        ),
    )
    branch: Branch | None = Field(
        None,
        description=(
            "branch is the line of training that the job follows since it went back to an earlier step. If it is "
            "absent, no such step was requested, and no checkpoint was ever suspect."
        ),
    )
    burn_in: BurnIn | None = Field(
        None,
        description=(
            "burnIn is what the burn-in of the gang's nodes has shown. If it is absent, no node failed or was left "
            "untested, and the whole gang was not measured."
        ),
    )
    corruption: Corruption | None = Field(
        None,
        description=(
            "corruption is the newest case in which the training program found its own results wrong. If it is absent, "
            "there was none."
        ),
    )
    suspect_checkpoint: SuspectCheckpoint | None = Field(
        None,
        description=(
            "suspectCheckpoint is the checkpoint from which the newest attempts resumed and failed before their first "
            "step. It is absent once an attempt has made a step, and if there is none."
        ),
    )
    verifier_round: int = Field(
        0,
        ge=0,
        description=(
            "verifierRound is how many times the operator chose other workers to verify checkpoints, because those "
            "before gave no answer. The number shifts the choice."
        ),
    )
    verifier_round_time: Time | None = Field(
        None,
        description=(
            "verifierRoundTime is when the operator last chose other workers to verify checkpoints. If it is absent, "
            "it never did."
        ),
    )
    account: Account | None = Field(
        None, description="account says where the job's time went. If it is absent, nothing is counted yet."
    )

    def place_of(self, index: int) -> int | None:
        """The place in the list of the member with this index, which most often is the same; None if there is none."""
        if 0 <= index < len(self.members) and self.members[index].index == index:
            return index
        return next((place for place, member in enumerate(self.members) if member.index == index), None)

    @property
    def open_corruption(self) -> Corruption | None:
        """The wrong results that were found, until a start of the ranks has followed; else None."""
        return self.corruption if self.corruption is not None and self.corruption.open else None

    @property
    def least_profile(self) -> Profile:
        """The least profile with which the nodes are tested before the next start, whatever job and policy say."""
        corruption = self.open_corruption
        if corruption is None:
            return Profile.DISABLED
        # A fault that shows once in many repeats needs more of them where the first test has found no culprit.
        return Profile.STANDARD if corruption.occurrences == 1 else Profile.DEEP

    @cached_property
    def node_count(self) -> int:
        """How many workers the gang has. It is cached: thousands of launchers get it in their directives."""
        return sum(member.role is Role.WORKER for member in self.members)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with other values. The cached count of workers is not copied."""
        copied = super().model_copy(update=update, deep=deep)
        copied.__dict__.pop("node_count", None)
        return copied

    @property
    def first(self) -> Member | None:
        """The worker of rank 0, to which the others connect; None while there are no members."""
        return next((member for member in self.members if member.rank == 0 and member.role is Role.WORKER), None)

    @property
    def nodes(self) -> frozenset[str]:
        """The names of the nodes of all members and unfenced workers."""
        return frozenset(m.node for m in self.members if m.node) | {
            unfenced_worker.node for unfenced_worker in self.unfenced_workers
        }

    def obeys_fence_file(self, member: Member) -> bool:
        """Whether the member's launcher ends its ranks when the known fence file shows a newer attempt."""
        return bool(self.fence_file_id) and member.reads_fence_file

    def to_json(self) -> dict[str, Any]:
        """The spec as it is sent to the API server.

        Values that members and unfenced workers share are left out, or 4,096 members would not fit into etcd.
        """
        spec = super().to_json()
        return {
            **spec,
            "members": Member.compact([_unnumbered(member, place) for place, member in enumerate(spec["members"])]),
            "unfencedWorkers": _without_repeated_values(spec["unfencedWorkers"]),
        }

    @model_validator(mode="before")
    @classmethod
    def _numbered(cls, data: Any) -> Any:
        """Give members without index or rank their place in the list as both, and the others the index as rank."""
        if not isinstance(data, dict):
            return data
        members, unfenced_workers = data.get("members"), data.get("unfencedWorkers")
        if isinstance(members, list):
            data = {**data, "members": [_numbered(member, place) for place, member in enumerate(members)]}
        return (
            {**data, "unfencedWorkers": _with_repeated_values(unfenced_workers)}
            if isinstance(unfenced_workers, list)
            else data
        )

    @model_validator(mode="after")
    def _members_make_a_gang(self) -> Self:
        """Refuse equal indices and a gang without rank 0: no schema can, and a user may edit the record."""
        seen = Counter(member.index for member in self.members)
        twice = next((index for index, count in seen.items() if count > 1), None)
        if twice is not None:
            raise ValueError(f"members: {seen[twice]} have the index {twice}, and each needs one of its own")
        if self.members and self.first is None:
            raise ValueError("members: none of them is the worker of rank 0, to which the others connect")
        return self


def _numbered(member: Any, place: int) -> Any:
    if isinstance(member, Member):
        missing = {name: place for name in ("index", "rank") if getattr(member, name) < 0}
        return member.model_copy(update=missing) if missing else member
    if isinstance(member, dict):
        index = _or(member.get("index", -1), place)
        return {**member, "index": index, "rank": _or(member.get("rank", -1), index)}
    return member


def _unnumbered(member: dict[str, Any], place: int) -> dict[str, Any]:
    """Return the JSON of a member without the numbers that `_numbered` gives it in this place of the list."""
    derived = {"index": place, "rank": member["index"]}
    return {name: value for name, value in member.items() if name not in derived or value != derived[name]}


def _or(number: Any, otherwise: int) -> Any:
    return otherwise if number == -1 else number


def _without_repeated_values(unfenced_workers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Unfenced workers without the values that equal those of the entry before."""
    entries: list[dict[str, Any]] = []
    previous: dict[str, Any] = {}
    for unfenced_worker in unfenced_workers:
        shared = {name: unfenced_worker[name] for name in _SHARED}
        own = {k: v for k, v in unfenced_worker.items() if k not in _SHARED and (v != "" or k not in _UNSAID_IF_EMPTY)}
        entries.append(own | {name: value for name, value in shared.items() if previous.get(name) != value})
        previous = shared
    return entries


def _with_repeated_values(unfenced_workers: list[Any]) -> list[Any]:
    """Unfenced workers with the values that `_without_repeated_values` left out."""
    entries: list[Any] = []
    previous: dict[str, Any] = {}
    for unfenced_worker in unfenced_workers:
        entry = {**previous, **unfenced_worker} if isinstance(unfenced_worker, dict) else unfenced_worker
        previous = {name: entry[name] for name in _SHARED if name in entry} if isinstance(entry, dict) else {}
        entries.append(entry)
    return entries


_SHARED = tuple(map(to_camel, _LIKE_THE_ONE_BEFORE))
_UNSAID_IF_EMPTY = frozenset(map(to_camel, UnfencedWorker.unsaid)) - {*_SHARED}


class Gang(ApiModel):
    """Gang is the record of the current attempt of the TrainingJob with the same name and namespace. The operator
    writes it and decides from it; users read it and do not edit it.
    """

    metadata: ObjectMeta
    spec: GangSpec

    def to_json(self) -> dict[str, Any]:
        """The object as it is sent to the API server, with the compact spec."""
        return {**super().to_json(), "spec": self.spec.to_json()}

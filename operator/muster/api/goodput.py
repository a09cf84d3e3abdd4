"""Where a job's time went: the account in the Gang, and the figures of it in the job's status.

What the buckets mean, and which clock counts, stands in docs/goodput.md and docs/decisions/0025.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field

from muster.api.base import ApiModel, Time, shortened_to
from muster.api.throughput import MAX_PEAK
from muster.protocol.messages import MAX_VALUE_CHARS

MAX_STRETCHES = 16
MAX_NODE_GPUS = 1024
"""Of one node: slices and time shares of an accelerator count as it has them."""
MAX_FINGERPRINTS = 4
LONGEST_MILLISECONDS = 2**53 - 1
MAX_STEP = 2**53 - 1


class Bucket(StrEnum):
    """What a moment of a job's life was spent on; each is in exactly one."""

    QUEUED = "queued"
    BURN_IN = "burnIn"
    STARTING = "starting"
    COMPUTE = "compute"
    INPUT_WAIT = "inputWait"
    COMMUNICATION = "communication"
    CHECKPOINT_STALL = "checkpointStall"
    LOST_WORK = "lostWork"
    UNDETECTED = "undetected"
    RECLAIM = "reclaim"
    REQUEUED = "requeued"
    RESTARTING = "restarting"
    SUSPENDED = "suspended"
    FINISHING = "finishing"
    UNKNOWN = "unknown"


# In these a step goes on that counts.
PRODUCTIVE = (Bucket.COMPUTE, Bucket.INPUT_WAIT, Bucket.COMMUNICATION)
# What the program itself tells of the time in its steps; the rest of that time is compute.
TOLD = (Bucket.INPUT_WAIT, Bucket.COMMUNICATION, Bucket.CHECKPOINT_STALL)

Milliseconds = Annotated[int, Field(ge=0, le=LONGEST_MILLISECONDS)]
Joules = Annotated[int, Field(ge=0, le=LONGEST_MILLISECONDS)]
ClassCounts = Annotated[
    dict[str, Annotated[int, Field(ge=0, le=2**31 - 1)]],
    Field(max_length=8, description="Failures of attempts of which a step was seen, by fault class: the newest 256."),
]
Amounts = Annotated[
    dict[str, Milliseconds],
    Field(max_length=len(Bucket), description="By bucket; what has none is left out."),
]


MeasuredTflops = Annotated[
    int | None,
    Field(
        ge=1,
        le=MAX_PEAK,
        description="10^12 bf16 operations a second that one accelerator has reached in the newest burn-in of the "
        "slowest of its nodes; absent: not of all of them known.",
    ),
]


Tells = Annotated[
    list[Bucket],
    Field(
        max_length=len(Bucket),
        description=(
            "Buckets that the program has reported, though it may have spent nothing there: of others nothing is known."
        ),
    ),
]


class Segment(ApiModel):
    """Consecutive steps that no later attempt has repeated."""

    after_step: int = Field(ge=0, le=MAX_STEP, description="The step before the first of them.")
    step: int = Field(ge=0, le=MAX_STEP, description="The last of them.")
    gpus: int = Field(ge=0, le=4096 * MAX_NODE_GPUS)
    milliseconds: Amounts = Field({}, description="What they took.")


MOST_AHEAD_SECONDS = 10**9
"""A clock that is years ahead must still be a time that can be written."""


class AttemptProgress(ApiModel):
    """How far the ranks of the current attempt had come when the record was last written; times in milliseconds from
    `Account.counted_until`, when they were started."""

    start_milliseconds: Milliseconds = Field(description="When the ranks were started.")
    first_step_milliseconds: Milliseconds = Field(description="When the first reported step was finished.")
    last_step_milliseconds: Milliseconds = Field(description="When the newest step was finished.")
    first_step: int = Field(ge=0, le=MAX_STEP)
    step: int = Field(ge=0, le=MAX_STEP)
    step_milliseconds: Milliseconds = Field(0, description="Median time of a step.")
    step_p90_milliseconds: Milliseconds = Field(0, description="One step in ten takes longer; 0: unknown.")
    loss: Annotated[str, shortened_to(MAX_VALUE_CHARS)] = Field(
        "",
        max_length=MAX_VALUE_CHARS,
        description="As the program has printed it last; empty: it prints none that is read.",
    )
    tokens_per_gpu_second: int = Field(
        0, ge=0, le=MAX_STEP, description="As the program has printed it last; 0: it prints none that is read."
    )
    printed_step_milliseconds: Milliseconds = Field(
        0, description="What a step takes, as the program has printed it last; 0: it prints none that is read."
    )
    checkpoint_steps: int = Field(
        0, ge=0, le=MAX_STEP, description="Steps between two complete checkpoints; 0: unknown."
    )
    reported_milliseconds: Amounts = Field(
        {},
        description="What its steps have spent otherwise than computing, as the program reports or prints it. Where "
        "it says nothing of saves, what launchers have measured.",
    )
    measured_saves: int = Field(
        0,
        ge=0,
        le=MAX_STEP,
        description="Saves whose stall launchers have measured; 0: none, or the program reports it.",
    )
    gflops_per_gpu: int = Field(
        0,
        ge=0,
        le=MAX_STEP,
        description=(
            "10^9 operations of each accelerator in a second, as the program has printed them last; 0: it prints "
            "none that is read."
        ),
    )
    mfu_permille: int = Field(
        0, ge=0, le=1000, description="MFU, as the program has printed it last; 0: it prints none that is read."
    )
    step_stride: int = Field(0, ge=0, le=MAX_STEP, description="Steps from one printed line to the next; 0: unknown.")
    lost_steps: int = Field(
        0,
        ge=0,
        le=MAX_STEP,
        description="That the program has made and taken back by itself, without having been started anew.",
    )
    lost_milliseconds: Milliseconds = Field(0, description="What those took, going back included.")
    lowest_restarted_step: int | None = Field(
        None, ge=0, le=MAX_STEP, description="The lowest step from which it went on so; absent: it never went back."
    )
    joules: Joules = Field(
        0, description="That its accelerators have used since their ranks were started, as far as is known."
    )
    metered_gpu_milliseconds: Milliseconds = Field(
        0, description="The time in which they did, times how many they are."
    )

    @property
    def made(self) -> int:
        """Orders evidence by how far it reaches: the newest step, and all that were made and taken back before it."""
        return self.step + self.lost_steps

    @property
    def pace_milliseconds(self) -> int:
        """What a step takes: as it was measured between lines, else as the only line says; 0: unknown."""
        return self.step_milliseconds or self.printed_step_milliseconds


class Fingerprint(ApiModel):
    """What the ranks ran with from an attempt on. `several`: the workers were not all alike; empty: not known."""

    attempt: int = Field(ge=0, le=MAX_STEP, description="The first that ran with it.")
    image: Annotated[str, shortened_to(71)] = Field(
        "",
        max_length=71,
        description="Digest of the image of the container that trains, as the nodes' kubelets told it.",
    )
    gpu_model: Annotated[str, shortened_to(63)] = Field("", max_length=63, description="By the nodes' labels.")
    driver: Annotated[str, shortened_to(32)] = Field(
        "", max_length=32, description="Its version, by the nodes' labels."
    )
    collectives: Annotated[str, shortened_to(63)] = Field(
        "", max_length=63, description="NCCL or RCCL with its version, as the ranks had it loaded."
    )
    environment: Annotated[str, shortened_to(16)] = Field(
        "",
        max_length=16,
        description="Digest of the container's variables, without the values of those that are called like secrets.",
    )
    revision: Annotated[str, shortened_to(63)] = Field(
        "",
        max_length=63,
        description="Of the code, by the annotation muster.dev/git-revision or the variable GIT_COMMIT.",
    )


class Account(ApiModel):
    """Where the time has gone. The sum of all buckets is the time between `creation_time` and `counted_until`, to the
    millisecond.

    What has passed since `counted_until` is put into buckets when the attempt changes or starts. Until then the record
    and the launchers' reports hold what it is.
    """

    creation_time: Time = Field(description="When the job was created.")
    counted_until: Time = Field(description="Up to when it counts; by the leader's clock, and never back.")
    milliseconds: Amounts = Field({}, description="Of the wall clock.")
    gpu_milliseconds: Amounts = Field({}, description="The same times the accelerators that the gang held.")
    segments: list[Segment] = Field([], max_length=MAX_STRETCHES, description="Oldest first.")
    has_run: bool = Field(False, description="An attempt with ranks has ended.")
    has_steps: bool = Field(False, description="Steps have been seen.")
    reported_buckets: Tells = Field([])
    failures: int = Field(0, ge=0, le=2**31 - 1, description="Attempts that ended by a failure.")
    failed_starts: int = Field(0, ge=0, le=2**31 - 1, description="Those of them of which no step was seen.")
    lost_steps: int = Field(0, ge=0, le=MAX_STEP)
    first_checkpoint_milliseconds: Milliseconds | None = Field(
        None, description="From creationTime until a complete checkpoint was first known; absent: none yet."
    )
    fingerprints: list[Fingerprint] = Field(
        [], max_length=MAX_FINGERPRINTS, description="What the ranks ran with: the newest changes, oldest first."
    )
    measured_tflops: MeasuredTflops = None
    joules: Joules = Field(0, description="That its accelerators have used while ranks ran, as far as is known.")
    metered_gpu_milliseconds: Milliseconds = Field(
        0, description="The time in which they did, times how many they are."
    )
    progress: AttemptProgress | None = None

    def amount(self, *buckets: Bucket) -> int:
        """The milliseconds in these buckets together."""
        return sum(self.milliseconds.get(bucket, 0) for bucket in buckets)


class OpenPhase(ApiModel):
    """What the job does since its figures were counted: it is closed at the moment of reading, and nothing is written
    while it lasts."""

    bucket: Bucket = Field(description="Where its time belongs, as far as is known before it is over.")
    since: Time = Field(description="Its begin: the figures count up to then.")
    gpus: int = Field(ge=0, le=4096 * MAX_NODE_GPUS, description="Accelerators that the job holds meanwhile.")


class Goodput(ApiModel):
    """Where the job's time went, in figures: for people and programs, never an input to decisions."""

    creation_time: Time
    counted_until: Time = Field(description="Up to when these figures count: while steps are made, the newest one.")
    seconds: Amounts = Field(
        {}, description="Where the time went; the sum is the time from creationTime to countedUntil."
    )
    gpu_seconds: Amounts = Field({}, description="The same times the accelerators that the gang held.")
    ettr_permille: int | None = Field(
        None, ge=0, le=1000, description="Time in steps that count, of all time but that in suspension."
    )
    ettr_after_queue_permille: int | None = Field(
        None, ge=0, le=1000, description="The same without the wait for the first nodes."
    )
    unsaved_seconds: int | None = Field(
        None,
        ge=0,
        le=LONGEST_MILLISECONDS,
        description=(
            "Time in steps that no complete checkpoint holds yet, of a job that has not ended; absent: not known."
        ),
    )
    progress_unknown: bool = Field(
        False,
        description="The job has no ETTR: it has not succeeded and has no spec.checkpoint.directory, or of none of "
        "its steps the time is known.",
    )
    failures: int = Field(0, ge=0, le=2**31 - 1)
    failed_starts: int = Field(0, ge=0, le=2**31 - 1, description="Those of them of which no step was seen.")
    failures_by_class: ClassCounts = Field({})
    steps: int | None = Field(
        None,
        ge=0,
        le=MAX_STEP,
        description=(
            "Steps that count, and of which the time is known; absent: of none it is, or figures of older versions."
        ),
    )
    reported_buckets: Tells = Field([])
    lost_steps: int = Field(0, ge=0, le=MAX_STEP, description="Steps that were made and had to be made again.")
    first_checkpoint_seconds: int | None = Field(
        None,
        ge=0,
        le=LONGEST_MILLISECONDS,
        description="From creationTime until a complete checkpoint was first known.",
    )
    step_milliseconds: int | None = Field(
        None, ge=0, le=LONGEST_MILLISECONDS, description="Median time of a step, or of the mean of stepStride steps."
    )
    step_stride: int = Field(
        1,
        ge=1,
        le=MAX_STEP,
        description="Steps from one line of the program to the next: what one of them takes is unknown.",
    )
    step_p90_milliseconds: int | None = Field(
        None, ge=0, le=LONGEST_MILLISECONDS, description="One step in ten takes longer, of the last 64."
    )
    checkpoint_steps: int | None = Field(None, ge=0, le=MAX_STEP, description="Steps between two complete checkpoints.")
    checkpoint_stall_milliseconds: int | None = Field(
        None,
        ge=0,
        le=LONGEST_MILLISECONDS,
        description="How long a save stops the training, as the program reports it, else as launchers have measured.",
    )
    gpu_model: Annotated[str, shortened_to(63)] = Field(
        "", max_length=63, description="Of its accelerators, by its nodes' labels; empty: not known, or not all alike."
    )
    fingerprints: list[Fingerprint] = Field(
        [], max_length=MAX_FINGERPRINTS, description="What the ranks ran with: the newest changes, oldest first."
    )
    measured_tflops: MeasuredTflops = None
    joules: Joules = Field(0, description="That its accelerators have used while ranks ran, as far as is known.")
    metered_gpu_seconds: Milliseconds = Field(0, description="The time in which they did, times how many they are.")
    open_phase: OpenPhase | None = Field(
        None, description="What goes on since then, which the figures do not count yet; absent: the job has ended."
    )
    progress: AttemptProgress | None = Field(None, description="How far the ranks of the current attempt have come.")
    clock_ahead_seconds: int = Field(
        0,
        ge=-MOST_AHEAD_SECONDS,
        le=MOST_AHEAD_SECONDS,
        description=(
            "By how much the clock of creationTime and countedUntil was ahead of the API server's; 0: they agree to "
            "a few seconds."
        ),
    )

    def amount(self, *buckets: Bucket) -> int:
        """The seconds in these buckets together."""
        return sum(self.seconds.get(bucket, 0) for bucket in buckets)

    @property
    def wall_seconds(self) -> int:
        """All of them."""
        return sum(self.seconds.values())


def added(amounts: Mapping[Any, int], more: Mapping[Any, int], times: int = 1) -> dict[str, int]:
    """The sum of both; what comes to nothing is left out."""
    both = {name: amounts.get(name, 0) + times * more.get(name, 0) for name in (*amounts, *more)}
    return {str(name): min(value, LONGEST_MILLISECONDS) for name, value in both.items() if value}

"""Where a job's time went: the account in the Gang, and the figures of it in the job's status.

docs/goodput.md says what the buckets mean, and docs/decisions/0025 which clock counts.

Tests: tests/unit/goodput/test_account.py, tests/unit/goodput/test_opened.py.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field

from muster.api.base import ApiModel, RecordedModel, Time, shortened_to
from muster.api.throughput import MAX_PEAK
from muster.protocol.messages import MAX_VALUE_CHARS

MAX_STRETCHES = 16
MAX_NODE_GPUS = 1024
"""Most accelerators of one node. Slices and time shares of an accelerator count one each."""
MAX_FINGERPRINTS = 4
MAX_COUNT = 2**31 - 1
LONGEST_MILLISECONDS = 2**53 - 1
MAX_STEP = 2**53 - 1


class Bucket(StrEnum):
    """Bucket is what a moment of a job's life was spent on. Each moment is in exactly one bucket; docs/goodput.md
    defines them.
    """

    QUEUED = "queued"
    BURN_IN = "burnIn"
    STARTING = "starting"
    COMPUTE = "compute"
    INPUT_WAIT = "inputWait"
    COMMUNICATION = "communication"
    CHECKPOINT_STALL = "checkpointStall"
    LOST_WORK = "lostWork"
    UNDETECTED = "undetected"
    HELD = "held"
    RECLAIM = "reclaim"
    REQUEUED = "requeued"
    RESTARTING = "restarting"
    SUSPENDED = "suspended"
    FINISHING = "finishing"
    UNKNOWN = "unknown"


# Time in these buckets went to steps that count.
PRODUCTIVE = (Bucket.COMPUTE, Bucket.INPUT_WAIT, Bucket.COMMUNICATION)
# The program itself reports the time in these buckets; the rest of the time in its steps is compute.
TOLD = (Bucket.INPUT_WAIT, Bucket.COMMUNICATION, Bucket.CHECKPOINT_STALL)

Milliseconds = Annotated[int, Field(ge=0, le=LONGEST_MILLISECONDS)]
Joules = Annotated[int, Field(ge=0, le=LONGEST_MILLISECONDS)]
ClassCounts = Annotated[
    dict[str, Annotated[int, Field(ge=0, le=MAX_COUNT)]],
    Field(
        max_length=8,
        description=(
            "failuresByClass is the number of failures of each fault class, such as Hardware, among the newest 256. It "
            "counts only attempts of which a training step was seen."
        ),
    ),
]
Amounts = Annotated[
    dict[str, Milliseconds],
    Field(max_length=len(Bucket), description="The amount of time in each bucket. Buckets without time are left out."),
]


MeasuredTflops = Annotated[
    int | None,
    Field(
        ge=1,
        le=MAX_PEAK,
        description=(
            "measuredTflops is what one accelerator of the job's slowest node reached in its newest burn-in, in 10^12 "
            "bf16 operations per second. If it is absent, not all nodes have reported a figure."
        ),
    ),
]


Tells = Annotated[
    list[Bucket],
    Field(
        max_length=len(Bucket),
        description=(
            "reportedBuckets are those of inputWait, communication and checkpointStall that were reported or measured, "
            "even if no time went there. The time of the others is unknown, and counts as compute."
        ),
    ),
]


class Segment(RecordedModel):
    """Segment is a run of consecutive training steps that no later attempt has repeated."""

    after_step: int = Field(ge=0, le=MAX_STEP, description="afterStep is the step before the segment's first one.")
    step: int = Field(ge=0, le=MAX_STEP, description="step is the last step of the segment.")
    gpus: int = Field(
        ge=0,
        le=4096 * MAX_NODE_GPUS,
        description="gpus is the number of accelerators that the job held during the segment's steps.",
    )
    milliseconds: Amounts = Field(
        {},
        description=(
            "milliseconds is the time that the segment's steps took, in milliseconds by bucket. Buckets without time "
            "are left out."
        ),
    )


MOST_AHEAD_SECONDS = 10**9
"""Largest clock difference on record: a clock that is years ahead must still be a time that can be written."""


class AttemptProgress(RecordedModel):
    """AttemptProgress is how far the ranks of the current attempt had come when the object was last written."""

    start_milliseconds: Milliseconds = Field(
        description=(
            "startMilliseconds is when the ranks were started, in milliseconds after countedUntil of the Gang's "
            "account."
        )
    )
    first_step_milliseconds: Milliseconds = Field(
        description=(
            "firstStepMilliseconds is when the first reported step was finished, in milliseconds after countedUntil of "
            "the Gang's account."
        )
    )
    last_step_milliseconds: Milliseconds = Field(
        description=(
            "lastStepMilliseconds is when the newest step was finished, in milliseconds after countedUntil of the "
            "Gang's account."
        )
    )
    first_step: int = Field(
        ge=0, le=MAX_STEP, description="firstStep is the number of the first step that the attempt reported."
    )
    step: int = Field(
        ge=0, le=MAX_STEP, description="step is the number of the newest step that the attempt has finished."
    )
    step_milliseconds: Milliseconds = Field(
        0, description="stepMilliseconds is the median time of a step, in milliseconds. 0 means unknown."
    )
    step_p90_milliseconds: Milliseconds = Field(
        0,
        description=(
            "stepP90Milliseconds is the 90th percentile of the time of a step, in milliseconds: one step in ten takes "
            "longer. 0 means unknown."
        ),
    )
    loss: Annotated[str, shortened_to(MAX_VALUE_CHARS)] = Field(
        "",
        max_length=MAX_VALUE_CHARS,
        description=(
            "loss is the training loss that the program last printed. Empty means that Muster reads none from the "
            "program's output."
        ),
    )
    tokens_per_gpu_second: int = Field(
        0,
        ge=0,
        le=MAX_STEP,
        description=(
            "tokensPerGpuSecond is the number of tokens per second and accelerator that the program last printed. If "
            "it is 0, Muster reads none from the program's output."
        ),
    )
    printed_step_milliseconds: Milliseconds = Field(
        0,
        description=(
            "printedStepMilliseconds is the time of a step that the program last printed, in milliseconds. If it is 0, "
            "Muster reads none from the program's output."
        ),
    )
    checkpoint_steps: int = Field(
        0,
        ge=0,
        le=MAX_STEP,
        description="checkpointSteps is the number of steps between two complete checkpoints. 0 means unknown.",
    )
    reported_milliseconds: Amounts = Field(
        {},
        description=(
            "reportedMilliseconds is the time that steps spent otherwise than computing, in milliseconds by bucket, as "
            "the program reports or prints it. If it reports no saves, checkpointStall is what the launchers measured."
        ),
    )
    measured_saves: int = Field(
        0,
        ge=0,
        le=MAX_STEP,
        description=(
            "measuredSaves is the number of saves whose stall the launchers have measured. If it is 0, none was "
            "measured, or the program reports the stall itself."
        ),
    )
    gflops_per_gpu: int = Field(
        0,
        ge=0,
        le=MAX_STEP,
        description=(
            "gflopsPerGpu is the speed of each accelerator that the program last printed, in 10^9 floating-point "
            "operations per second. If it is 0, Muster reads none from the program's output."
        ),
    )
    mfu_permille: int = Field(
        0,
        ge=0,
        le=1000,
        description=(
            "mfuPermille is the model FLOPs utilization (MFU) that the program last printed, in thousandths. If it is "
            "0, Muster reads none from the program's output."
        ),
    )
    step_stride: int = Field(
        0,
        ge=0,
        le=MAX_STEP,
        description=(
            "stepStride is the number of steps from one line that the program prints to the next. 0 means unknown."
        ),
    )
    lost_steps: int = Field(
        0,
        ge=0,
        le=MAX_STEP,
        description="lostSteps is the number of steps that the program took back by itself, without being restarted.",
    )
    lost_milliseconds: Milliseconds = Field(
        0,
        description=(
            "lostMilliseconds is the time that the steps in lostSteps took, in milliseconds, including the time to go "
            "back."
        ),
    )
    lowest_restarted_step: int | None = Field(
        None,
        ge=0,
        le=MAX_STEP,
        description=(
            "lowestRestartedStep is the lowest step from which the program went on after it had gone back by itself. "
            "If it is absent, the program never went back."
        ),
    )
    joules: Joules = Field(
        0,
        description=(
            "joules is the energy, in joules, that the job's accelerators used since this attempt's ranks were "
            "started, as far as metered."
        ),
    )
    metered_gpu_milliseconds: Milliseconds = Field(
        0,
        description=(
            "meteredGpuMilliseconds is the accelerator time for which energy was metered, in milliseconds: the time "
            "multiplied by the number of accelerators. The figure in joules covers this time alone."
        ),
    )

    @property
    def made(self) -> int:
        """How many steps were made, including those taken back. It orders evidence by how far it reaches."""
        return self.step + self.lost_steps

    @property
    def pace_milliseconds(self) -> int:
        """The time of a step in milliseconds, as measured between lines, else as printed; 0 if it is unknown."""
        return self.step_milliseconds or self.printed_step_milliseconds


class Fingerprint(RecordedModel):
    """Fingerprint is what the ranks ran with, from one attempt on until the next change."""

    attempt: int = Field(
        ge=0, le=MAX_STEP, description="attempt is the number of the first attempt that ran with these values."
    )
    image: Annotated[str, shortened_to(71)] = Field(
        "",
        max_length=71,
        description=(
            "image is the digest of the training container's image, as the nodes' kubelets report it. It is several if "
            "the workers differ, and empty if it is not known."
        ),
    )
    gpu_model: Annotated[str, shortened_to(63)] = Field(
        "",
        max_length=63,
        description=(
            "gpuModel is the model of the accelerators, from the labels of the nodes. It is several if the workers "
            "differ, and empty if it is not known."
        ),
    )
    driver: Annotated[str, shortened_to(32)] = Field(
        "",
        max_length=32,
        description=(
            "driver is the version of the accelerators' driver, from the labels of the nodes. It is several if the "
            "workers differ, and empty if it is not known."
        ),
    )
    collectives: Annotated[str, shortened_to(63)] = Field(
        "",
        max_length=63,
        description=(
            "collectives is the NCCL or RCCL library with its version, as the ranks had loaded it. It is several if "
            "the workers differ, and empty if it is not known."
        ),
    )
    environment: Annotated[str, shortened_to(16)] = Field(
        "",
        max_length=16,
        description=(
            "environment is a digest of the training container's environment variables. Of variables that are named "
            "like secrets, only the name is in it. Empty means that the container has no variables."
        ),
    )
    revision: Annotated[str, shortened_to(63)] = Field(
        "",
        max_length=63,
        description=(
            "revision is the revision of the code, from the annotation muster.dev/git-revision or a variable such as "
            "GIT_COMMIT. Empty means that neither is set."
        ),
    )


class Account(RecordedModel):
    """Account is where the job's time went. The sum of all buckets is the time between creationTime and countedUntil,
    to the millisecond.

    Time after countedUntil is added when the attempt changes or starts.
    """

    creation_time: Time = Field(description="creationTime is when the job was created, by the operator's clock.")
    counted_until: Time = Field(
        description=(
            "countedUntil is the time up to which the account counts, by the first leader's clock. It never goes back."
        )
    )
    clock_ahead_seconds: int | None = Field(
        None,
        ge=-MOST_AHEAD_SECONDS,
        le=MOST_AHEAD_SECONDS,
        description=(
            "clockAheadSeconds is how far that clock was ahead of the API server's when the account began, in seconds. "
            "Later leaders reckon by it. If it is absent, it is not known."
        ),
    )
    milliseconds: Amounts = Field(
        {},
        description=(
            "milliseconds is where the job's time went, in milliseconds of wall clock by bucket, such as compute or "
            "queued (see docs/goodput.md). Buckets without time are left out."
        ),
    )
    gpu_milliseconds: Amounts = Field(
        {},
        description=(
            "gpuMilliseconds is the accelerator time of the job, by bucket: milliseconds multiplied by the "
            "accelerators that the gang held. Buckets without time are left out."
        ),
    )
    segments: list[Segment] = Field(
        [],
        max_length=MAX_STRETCHES,
        description=(
            "segments are the runs of steps that count, oldest first. At most 16 are kept; older ones are merged."
        ),
    )
    has_run: bool = Field(False, description="hasRun is true once an attempt whose ranks were started has ended.")
    has_steps: bool = Field(False, description="hasSteps is true once a training step of the job was seen.")
    reported_buckets: Tells = Field([])
    failures: int = Field(
        0,
        ge=0,
        le=MAX_COUNT,
        description="failures is the number of attempts that ended by a failure. Planned moves do not count.",
    )
    failed_starts: int = Field(
        0,
        ge=0,
        le=MAX_COUNT,
        description=(
            "failedStarts is how many of the failures happened before a training step of the attempt was seen."
        ),
    )
    lost_steps: int = Field(
        0, ge=0, le=MAX_STEP, description="lostSteps is the number of training steps that had to be made again."
    )
    first_checkpoint_milliseconds: Milliseconds | None = Field(
        None,
        description=(
            "firstCheckpointMilliseconds is the time from creationTime until a complete checkpoint was first known, in "
            "milliseconds. If it is absent, there was none yet."
        ),
    )
    fingerprints: list[Fingerprint] = Field(
        [],
        max_length=MAX_FINGERPRINTS,
        description=(
            "fingerprints are what the ranks ran with, such as image and driver version: the newest 4 changes, oldest "
            "first."
        ),
    )
    measured_tflops: MeasuredTflops = None
    joules: Joules = Field(
        0,
        description=(
            "joules is the energy, in joules, that the job's accelerators used while ranks ran, as far as it was "
            "metered."
        ),
    )
    metered_gpu_milliseconds: Milliseconds = Field(
        0,
        description=(
            "meteredGpuMilliseconds is the accelerator time for which energy was metered, in milliseconds: the time "
            "multiplied by the number of accelerators. The figure in joules covers this time alone."
        ),
    )
    progress: AttemptProgress | None = Field(
        None,
        description=(
            "progress is how far the current attempt had come when the record was last written. If it is absent, no "
            "step of the attempt is noted."
        ),
    )

    def amount(self, *buckets: Bucket) -> int:
        """The milliseconds in these buckets together."""
        return sum(self.milliseconds.get(bucket, 0) for bucket in buckets)


class OpenPhase(ApiModel):
    """OpenPhase is what the job does since its figures were counted. Nothing is written while the phase lasts:
    readers add its time themselves.
    """

    bucket: Bucket = Field(
        description=(
            "bucket is where the time of the open phase belongs, as far as is known. The account may correct it when "
            "the phase is over."
        )
    )
    since: Time = Field(description="since is when the open phase began. The figures count up to then.")
    gpus: int = Field(
        ge=0,
        le=4096 * MAX_NODE_GPUS,
        description="gpus is the number of accelerators that the job holds during the open phase.",
    )


class Goodput(ApiModel):
    """Goodput is where the job's time went, in figures for people and programs. The operator decides nothing by it."""

    creation_time: Time = Field(description="creationTime is when the job was created, by the operator's clock.")
    counted_until: Time = Field(
        description=(
            "countedUntil is the time up to which these figures count. While the job trains, it is when the newest "
            "step was finished."
        )
    )
    seconds: Amounts = Field(
        {},
        description=(
            "seconds is where the job's time went, in seconds by bucket, such as compute or queued (see "
            "docs/goodput.md). The sum is the time from creationTime to countedUntil. Buckets without time are left "
            "out."
        ),
    )
    gpu_seconds: Amounts = Field(
        {},
        description=(
            "gpuSeconds is the accelerator time of the job, by bucket: seconds multiplied by the number of "
            "accelerators that the gang held. Buckets without time are left out."
        ),
    )
    ettr_permille: int | None = Field(
        None,
        ge=0,
        le=1000,
        description=(
            "ettrPermille is the effective training time ratio (ETTR) in thousandths: the time in steps that count, of "
            "all time except suspension. If it is absent, the ratio is unknown."
        ),
    )
    ettr_after_queue_permille: int | None = Field(
        None,
        ge=0,
        le=1000,
        description=(
            "ettrAfterQueuePermille is the effective training time ratio (ETTR) in thousandths, without the wait for "
            "the first nodes. If it is absent, the ratio is unknown."
        ),
    )
    unsaved_seconds: int | None = Field(
        None,
        ge=0,
        le=LONGEST_MILLISECONDS,
        description=(
            "unsavedSeconds is the time in steps that no complete checkpoint holds yet, in seconds. If it is absent, "
            "the time is not known, or the job has ended."
        ),
    )
    lost_at_end_seconds: int = Field(
        0,
        ge=0,
        le=LONGEST_MILLISECONDS,
        description=(
            "lostAtEndSeconds is the part of lostWork in steps that no complete checkpoint held when the job ended "
            "without success, in seconds."
        ),
    )
    progress_unknown: bool = Field(
        False,
        description=(
            "progressUnknown is true if the job has no ETTR. Then it has not succeeded and has no "
            "spec.checkpoint.directory, or the time of none of its steps is known."
        ),
    )
    failures: int = Field(
        0,
        ge=0,
        le=MAX_COUNT,
        description="failures is the number of attempts that ended by a failure. Planned moves do not count.",
    )
    failed_starts: int = Field(
        0,
        ge=0,
        le=MAX_COUNT,
        description=(
            "failedStarts is how many of the failures happened before a training step of the attempt was seen."
        ),
    )
    failures_by_class: ClassCounts = Field({})
    steps: int | None = Field(
        None,
        ge=0,
        le=MAX_STEP,
        description=(
            "steps is the number of training steps that count and whose time is known. If it is absent, the time of no "
            "step is known."
        ),
    )
    reported_buckets: Tells = Field([])
    lost_steps: int = Field(
        0,
        ge=0,
        le=MAX_STEP,
        description=(
            "lostSteps is the number of training steps that had to be made again. Of a job that ended without success "
            "it counts also the steps that no complete checkpoint held."
        ),
    )
    first_checkpoint_seconds: int | None = Field(
        None,
        ge=0,
        le=LONGEST_MILLISECONDS,
        description=(
            "firstCheckpointSeconds is the time from creationTime until a complete checkpoint was first known, in "
            "seconds. If it is absent, there was none yet."
        ),
    )
    step_milliseconds: int | None = Field(
        None,
        ge=0,
        le=LONGEST_MILLISECONDS,
        description=(
            "stepMilliseconds is the median time of a step, in milliseconds. If stepStride is above 1, each value is "
            "the mean of stepStride steps. If it is absent, the time is unknown."
        ),
    )
    step_stride: int = Field(
        1,
        ge=1,
        le=MAX_STEP,
        description=(
            "stepStride is the number of steps from one line that the program prints to the next. If it is above 1, "
            "the time of a single step is unknown."
        ),
    )
    step_p90_milliseconds: int | None = Field(
        None,
        ge=0,
        le=LONGEST_MILLISECONDS,
        description=(
            "stepP90Milliseconds is the 90th percentile of the newest 64 step times, in milliseconds: one step in ten "
            "takes longer. If it is absent, it is unknown."
        ),
    )
    checkpoint_steps: int | None = Field(
        None,
        ge=0,
        le=MAX_STEP,
        description=(
            "checkpointSteps is the number of steps between two complete checkpoints. If it is absent, the number is "
            "unknown."
        ),
    )
    checkpoint_stall_milliseconds: int | None = Field(
        None,
        ge=0,
        le=LONGEST_MILLISECONDS,
        description=(
            "checkpointStallMilliseconds is how long a save stops the training, in milliseconds, as the program "
            "reports it or launchers measure it. If it is absent, the time is unknown."
        ),
    )
    gpu_model: Annotated[str, shortened_to(63)] = Field(
        "",
        max_length=63,
        description=(
            "gpuModel is the model of the job's accelerators, from the labels of its nodes. Empty means that the model "
            "is not known, or that the nodes differ."
        ),
    )
    fingerprints: list[Fingerprint] = Field(
        [],
        max_length=MAX_FINGERPRINTS,
        description=(
            "fingerprints are what the ranks ran with, such as image and driver version: the newest 4 changes, oldest "
            "first."
        ),
    )
    measured_tflops: MeasuredTflops = None
    joules: Joules = Field(
        0,
        description=(
            "joules is the energy, in joules, that the job's accelerators used while ranks ran, as far as it was "
            "metered."
        ),
    )
    metered_gpu_seconds: Milliseconds = Field(
        0,
        description=(
            "meteredGpuSeconds is the accelerator time for which energy was metered, in seconds: the time multiplied "
            "by the number of accelerators. The figure in joules covers this time alone."
        ),
    )
    open_phase: OpenPhase | None = Field(
        None,
        description=(
            "openPhase is what the job does since countedUntil, which the figures do not include. If it is absent, the "
            "job has ended."
        ),
    )
    suspension_time: Time | None = Field(
        None,
        description=(
            "suspensionTime is when the condition Suspended last changed, by the clock of creationTime and "
            "countedUntil. If it is absent, the condition's own time is all that is known."
        ),
    )
    progress: AttemptProgress | None = Field(
        None,
        description=(
            "progress is how far the ranks of the current attempt have come. If it is absent, no step of the attempt "
            "was seen yet."
        ),
    )
    clock_ahead_seconds: int = Field(
        0,
        ge=-MOST_AHEAD_SECONDS,
        le=MOST_AHEAD_SECONDS,
        description=(
            "clockAheadSeconds is how many seconds the clock of creationTime and countedUntil was ahead of the API "
            "server's. A negative number means behind, and 0 that both agree to a few seconds."
        ),
    )

    def amount(self, *buckets: Bucket) -> int:
        """The seconds in these buckets together."""
        return sum(self.seconds.get(bucket, 0) for bucket in buckets)

    @property
    def wall_seconds(self) -> int:
        """The seconds in all buckets together."""
        return sum(self.seconds.values())


def added(amounts: Mapping[Any, int], more: Mapping[Any, int], times: int = 1) -> dict[str, int]:
    """The sum of both amounts by bucket, the second one multiplied; buckets with 0 are left out."""
    both = {name: amounts.get(name, 0) + times * more.get(name, 0) for name in (*amounts, *more)}
    return {str(name): min(value, LONGEST_MILLISECONDS) for name, value in both.items() if value}

"""EndedJob: what is kept of a job that has ended, for reports that span quarters. The operator writes it once, and
nothing changes it.

It belongs to Muster's own namespace: the object outlives the job's namespace, and the platform team reads what
it says of all tenants. docs/decisions/0032 says why EndedJob is a kind of its own, and how it is written.

Tests: tests/unit/goodput/test_history.py.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field

from muster.api.base import (
    NAME_LENGTH,
    UID_LENGTH,
    ApiModel,
    NodeName,
    ObjectMeta,
    RecordedModel,
    Time,
    checks,
    rule,
    shortened_to,
)
from muster.api.goodput import (
    LONGEST_MILLISECONDS,
    MAX_COUNT,
    MAX_FINGERPRINTS,
    MAX_STEP,
    Amounts,
    ClassCounts,
    Fingerprint,
    Joules,
    MeasuredTflops,
)
from muster.api.throughput import Throughput

PLURAL = "endedjobs"
MAX_BYTES = 4096
"""Largest size of the whole object as the API server keeps it."""
MAX_CAUSES = 8
MAX_BLAMED = 8
LABEL_LENGTH = 63
MESSAGE_LENGTH = 200

Seconds = Annotated[int, Field(ge=0, le=LONGEST_MILLISECONDS)]
Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]


class Ending(StrEnum):
    """Ending is how a job ended: Succeeded, Failed or Deleted. Unknown means that the end was not observed."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    DELETED = "Deleted"
    UNKNOWN = "Unknown"


class Cause(RecordedModel):
    """Cause is what failures and planned moves of one kind took from the job."""

    fault_class: str = Field(
        max_length=32,
        description="faultClass is the kind of failure: Application, Hardware, Infrastructure, Planned or Unknown.",
    )
    reason: str = Field(
        max_length=64,
        description=(
            "reason is what failed, in CamelCase, for example NodeLost. Others stands for several small causes "
            "together, and NotRecorded for time of which no failure is on record."
        ),
    )
    incidents: Count = Field(0, description="incidents is the number of failures and planned moves of this kind.")
    gpu_seconds: Seconds = Field(
        0,
        description=(
            "gpuSeconds is this cause's share of the accelerator-seconds in the buckets lostWork, undetected, reclaim, "
            "requeued and restarting. It is an estimate: the operator divides that time by how long each failure took."
        ),
    )


class Blamed(RecordedModel):
    """Blamed is a node to which failures of the job are charged."""

    node: NodeName = Field(description="node is the name of the node on which the job failed.")
    incidents: Count = Field(
        0, description="incidents is the number of the job's failures that are charged to this node."
    )
    gpu_seconds: Seconds = Field(
        0,
        description=(
            "gpuSeconds is the share of this node's failures in the accelerator-seconds in the buckets lostWork, "
            "undetected, reclaim, requeued and restarting. It is an estimate, as in causes."
        ),
    )


class EndedJobSpec(RecordedModel):
    """EndedJobSpec is what is kept of a job that has ended. It never changes."""

    job_uid: str = Field(
        min_length=1, max_length=UID_LENGTH, description="jobUid is the UID of the TrainingJob that has ended."
    )
    namespace: str = Field(
        max_length=LABEL_LENGTH, description="namespace is the namespace of the TrainingJob that has ended."
    )
    name: str = Field(max_length=LABEL_LENGTH, description="name is the name of the TrainingJob that has ended.")
    experiment: str = Field(
        "",
        max_length=LABEL_LENGTH,
        description=(
            "experiment is the value of the job's label muster.dev/experiment. Empty means that the job had none."
        ),
    )
    owner: str = Field(
        "",
        max_length=LABEL_LENGTH,
        description="owner is the value of the job's label muster.dev/owner. Empty means that the job had none.",
    )
    priority_class: Annotated[str, shortened_to(LABEL_LENGTH)] = Field(
        "",
        max_length=LABEL_LENGTH,
        description="priorityClass is the priorityClassName of the job's pods. Empty means that they had none.",
    )
    gpu_model: str = Field(
        "",
        max_length=LABEL_LENGTH,
        description=(
            "gpuModel is the model of the job's accelerators, from the labels of its nodes. Empty means that it is not "
            "known."
        ),
    )
    gpus: int = Field(0, ge=0, le=4096 * 64, description="gpus is the number of accelerators that the job asked for.")
    nodes: int = Field(0, ge=0, le=4096, description="nodes is the number of nodes that the job asked for.")
    creation_time: Time = Field(description="creationTime is when the job was created.")
    end_time: Time = Field(
        description=(
            "endTime is the time up to which the job is counted: its end, or the last time known if the end was not "
            "observed."
        )
    )
    state: Ending = Field(
        description=(
            "state is how the job ended: Succeeded, Failed or Deleted. Unknown means that the job disappeared while no "
            "operator ran, or before its end was known."
        )
    )
    reason: str = Field(
        "",
        max_length=64,
        description=(
            "reason is the reason of the job's end, in CamelCase, from the job's status. It is empty if the job was "
            "deleted before it ended."
        ),
    )
    message: str = Field(
        "",
        max_length=MESSAGE_LENGTH,
        description=(
            "message is the message of the job's end from the job's status, shortened to 200 characters. It is left "
            "out where the object would become too large."
        ),
    )
    seconds: Amounts = Field(
        {},
        description=(
            "seconds is where the job's time went, in seconds by bucket, such as compute or queued (see "
            "docs/goodput.md). The sum is the time from creationTime to endTime. Buckets without time are left out."
        ),
    )
    gpu_seconds: Amounts = Field(
        {},
        description=(
            "gpuSeconds is the accelerator time of the job, by bucket: seconds multiplied by the number of "
            "accelerators that the job held. Buckets without time are left out."
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
    progress_unknown: bool = Field(
        False,
        description=(
            "progressUnknown is true if the job has no ETTR. Then it did not succeed and had no "
            "spec.checkpoint.directory, or the time of none of its steps is known."
        ),
    )
    attempts: Count = Field(
        0, description="attempts is the number of the job's last attempt. Each start of the gang is one attempt."
    )
    failures: Count = Field(
        0, description="failures is the number of attempts that ended by a failure. Planned moves do not count."
    )
    failed_starts: Count = Field(
        0,
        description=(
            "failedStarts is how many of the failures happened before a training step of the attempt was seen."
        ),
    )
    failures_by_class: ClassCounts = Field({})
    step: int | None = Field(
        None,
        ge=0,
        le=MAX_STEP,
        description="step is the newest training step that the job finished. If it is absent, no step was seen.",
    )
    steps: int | None = Field(
        None,
        ge=0,
        le=MAX_STEP,
        description=(
            "steps is the number of training steps that count and whose time is known. If it is absent, the time of no "
            "step is known."
        ),
    )
    throughput: Throughput = Field(
        Throughput(), description="throughput is what the job stated about one training step, from its spec.throughput."
    )
    measured_tflops: MeasuredTflops = None
    joules: Joules = Field(
        0,
        description=(
            "joules is the energy, in joules, that the job's accelerators used while ranks ran, as far as it was "
            "metered."
        ),
    )
    metered_gpu_seconds: Seconds = Field(
        0,
        description=(
            "meteredGpuSeconds is the accelerator time for which energy was metered, in seconds: the time multiplied "
            "by the number of accelerators. The figure in joules covers this time alone."
        ),
    )
    lost_steps: int = Field(
        0, ge=0, le=MAX_STEP, description="lostSteps is the number of training steps that had to be made again."
    )
    lost_seconds: Seconds = Field(
        0,
        description=(
            "lostSeconds is the training time that failures and planned moves took back or interrupted, in seconds."
        ),
    )
    checkpoint_step: int | None = Field(
        None,
        ge=0,
        le=MAX_STEP,
        description=(
            "checkpointStep is the step of the job's newest complete checkpoint. If it is absent, none was known."
        ),
    )
    first_checkpoint_seconds: Seconds | None = Field(
        None,
        description=(
            "firstCheckpointSeconds is the time from creationTime until a complete checkpoint was first known, in "
            "seconds. If it is absent, there was none."
        ),
    )
    causes: list[Cause] = Field(
        [],
        max_length=MAX_CAUSES,
        description=(
            "causes are what failures and planned moves took from the job, by kind. The kind that took most stands "
            "first."
        ),
    )
    blamed_nodes: list[Blamed] = Field(
        [],
        max_length=MAX_BLAMED,
        description=(
            "blamedNodes are the nodes to which failures of the job are charged. The node that took most stands first."
        ),
    )
    fingerprints: list[Fingerprint] = Field(
        [],
        max_length=MAX_FINGERPRINTS,
        description=(
            "fingerprints are what the ranks ran with, oldest first: the newest changes for which there was room."
        ),
    )
    other_blamed_nodes: Count = Field(
        0,
        description=(
            "otherBlamedNodes is the number of further nodes to which failures are charged, and for which blamedNodes "
            "had no room."
        ),
    )


class EndedJob(ApiModel):
    """EndedJob is the account of a job that has ended; its name is the job's UID. The operator writes it once, in
    Muster's own namespace, and it stays when the job is deleted.
    """

    model_config = ConfigDict(
        json_schema_extra=checks(
            rule(
                "self.spec.jobUid == self.metadata.name",
                "each job has one, which is called by the job's uid",
                at=".metadata.name",
            )
        )
    )

    metadata: ObjectMeta
    spec: EndedJobSpec = Field(
        json_schema_extra={
            "x-kubernetes-map-type": "atomic",
            **checks(rule("self == oldSelf", "what has been is not changed: export it, or delete it")),
        }
    )


def is_named_well(name: str) -> bool:
    """Whether a UID can be the name of an object."""
    return (
        0 < len(name) <= UID_LENGTH <= NAME_LENGTH
        and all(c.isascii() and (c.isdigit() or c.islower() or c == "-") for c in name)
        and name.strip("-") == name
    )

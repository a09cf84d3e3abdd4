"""EndedJob: what is kept of a job that has ended, for reports that span quarters. Written once, by the operator, and
never changed.

It belongs to Muster's own namespace: the object outlives the job's, and what it says of all tenants is the platform
team's to read. Why it is a kind of its own, and how it is written, stands in docs/decisions/0032.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field

from muster.api.base import NAME_LENGTH, UID_LENGTH, ApiModel, NodeName, ObjectMeta, Time, checks, rule, shortened_to
from muster.api.goodput import (
    LONGEST_MILLISECONDS,
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
"""Of the whole object as the API server keeps it."""
MAX_CAUSES = 8
MAX_BLAMED = 8
LABEL_LENGTH = 63
MESSAGE_LENGTH = 200
MAX_COUNT = 2**31 - 1

Seconds = Annotated[int, Field(ge=0, le=LONGEST_MILLISECONDS)]
Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]


class Ending(StrEnum):
    """How a job ended."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    DELETED = "Deleted"
    UNKNOWN = "Unknown"


class Cause(ApiModel):
    """What failures and planned evacuations of one kind have taken."""

    fault_class: str = Field(max_length=32)
    reason: str = Field(max_length=64, description="Others: several that are too small to be told apart.")
    incidents: Count = 0
    gpu_seconds: Seconds = Field(
        0,
        description=(
            "Their share of lostWork, undetected, reclaim, requeued and restarting, by the time that each took."
        ),
    )


class Blamed(ApiModel):
    """A node on which the job has failed."""

    node: NodeName
    incidents: Count = 0
    gpu_seconds: Seconds = Field(0, description="As of causes.")


class EndedJobSpec(ApiModel):
    """All that is kept."""

    job_uid: str = Field(min_length=1, max_length=UID_LENGTH)
    namespace: str = Field(max_length=LABEL_LENGTH, description="The job's.")
    name: str = Field(max_length=LABEL_LENGTH, description="The job's.")
    experiment: str = Field("", max_length=LABEL_LENGTH, description="The job's label muster.dev/experiment.")
    owner: str = Field("", max_length=LABEL_LENGTH, description="The job's label muster.dev/owner.")
    priority_class: Annotated[str, shortened_to(LABEL_LENGTH)] = Field("", max_length=LABEL_LENGTH)
    gpu_model: str = Field("", max_length=LABEL_LENGTH, description="By its nodes' labels; empty: not known.")
    gpus: int = Field(0, ge=0, le=4096 * 64, description="Accelerators that it asked for.")
    nodes: int = Field(0, ge=0, le=4096, description="Nodes that it asked for.")
    creation_time: Time = Field(description="When the job was created.")
    end_time: Time = Field(
        description="Up to when its time is counted: its end, or where nobody saw that the last that is known."
    )
    state: Ending = Field(description="Unknown: it went while no operator ran, or before one could tell how.")
    reason: str = Field("", max_length=64)
    message: str = Field("", max_length=MESSAGE_LENGTH)
    seconds: Amounts = Field(
        {}, description="Where its time went, by bucket; the sum is the time from creationTime to endTime."
    )
    gpu_seconds: Amounts = Field({}, description="The same times the accelerators that it held.")
    ettr_permille: int | None = Field(None, ge=0, le=1000)
    ettr_after_queue_permille: int | None = Field(None, ge=0, le=1000)
    progress_unknown: bool = Field(
        False,
        description=(
            "It has no ETTR: it did not succeed and had no spec.checkpoint.directory, or of none of its steps the "
            "time is known."
        ),
    )
    attempts: Count = 0
    failures: Count = 0
    failed_starts: Count = Field(0, description="Those of them of which no step was seen.")
    failures_by_class: ClassCounts = Field({})
    step: int | None = Field(None, ge=0, le=MAX_STEP, description="Newest finished step.")
    steps: int | None = Field(
        None,
        ge=0,
        le=MAX_STEP,
        description="Steps that count, and of which the time is known; absent: an older version.",
    )
    throughput: Throughput = Field(Throughput(), description="What the job said that a step is worth.")
    measured_tflops: MeasuredTflops = None
    joules: Joules = Field(0, description="That its accelerators have used while ranks ran, as far as is known.")
    metered_gpu_seconds: Seconds = Field(0, description="The time in which they did, times how many they are.")
    lost_steps: int = Field(0, ge=0, le=MAX_STEP)
    lost_seconds: Seconds = Field(0, description="Work that incidents took back or broke off.")
    checkpoint_step: int | None = Field(None, ge=0, le=MAX_STEP, description="Of the newest complete checkpoint.")
    first_checkpoint_seconds: Seconds | None = None
    causes: list[Cause] = Field([], max_length=MAX_CAUSES, description="What took most first.")
    blamed_nodes: list[Blamed] = Field([], max_length=MAX_BLAMED, description="What took most first.")
    fingerprints: list[Fingerprint] = Field(
        [],
        max_length=MAX_FINGERPRINTS,
        description="What its ranks ran with, oldest first: the newest changes for which there was room.",
    )
    other_blamed_nodes: Count = Field(0, description="Further nodes, for which there was no room.")


class EndedJob(ApiModel):
    """The account of a job that has ended; its name is the job's uid."""

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
    """Whether an uid can be the name of an object."""
    return (
        0 < len(name) <= UID_LENGTH <= NAME_LENGTH
        and all(c.isascii() and (c.isdigit() or c.islower() or c == "-") for c in name)
        and name.strip("-") == name
    )

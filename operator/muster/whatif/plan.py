"""Describes the question: a gang, its nodes and spares, and how it trains and saves.

Tests: tests/unit/whatif/test_answer.py.
"""

from pydantic import Field

from muster.api.base import ApiModel
from muster.api.trainingjob import Recovery

DAY_SECONDS = 86400.0
# Published cold starts of whole gangs, 200 s on 16,384 GPUs to 900 s on 98,304 (Meta, FT-HSDP), lie on this line.
START_FIRST_SECONDS = 50.0
START_SECONDS_PER_GPU = 0.0087


def usual_start_seconds(gpus: int) -> float:
    """Return the published time from the start of the ranks to their first step on this many GPUs."""
    return START_FIRST_SECONDS + START_SECONDS_PER_GPU * gpus


class Plan(ApiModel):
    """One gang over some days. Times are in seconds."""

    nodes: int = Field(ge=1, description="Workers, one on each node.")
    gpus_per_node: int = Field(8, ge=1)
    days: float = Field(54.0, gt=0, description="For how long it is watched, from its first step on.")
    mttf_days: float = Field(gt=0, description="Mean time between two failures of one node, of any cause.")
    spares: int = Field(0, ge=0, description="Free nodes that no other job takes.")
    repair_seconds: float = Field(gt=0, description="Mean time until a node that was left can be used again.")
    checkpoint_seconds: float = Field(gt=0, description="Training time between two saves.")
    save_seconds: float = Field(ge=0, description="Time for which a save stops the training.")
    durable_seconds: float = Field(0.0, ge=0, description="Time from then until the checkpoint is complete.")
    step_seconds: float = Field(gt=0, description="Time of a step.")
    hang_seconds: float = Field(gt=0, description="A hang is noticed after this long.")
    pod_seconds: float = Field(ge=0, description="From the binding of a new pod to its launcher, with the image.")
    start_seconds: float = Field(ge=0, description="From the start of the ranks to their first step, loading included.")
    unreachable_seconds: float = Field(
        float(Recovery().unreachable_timeout_seconds),
        ge=0,
        description="recovery.unreachableTimeoutSeconds of the job.",
    )

    @property
    def gpus(self) -> int:
        """Return the number of GPUs of the gang."""
        return self.nodes * self.gpus_per_node

    @property
    def seconds(self) -> float:
        """Return the simulated duration."""
        return self.days * DAY_SECONDS

    @property
    def gang_mttf_seconds(self) -> float:
        """Return the mean time between two failures of the gang: it fails with each of its nodes."""
        return self.mttf_days * DAY_SECONDS / self.nodes

    @property
    def interval_seconds(self) -> float:
        """Return the training time between two saves: a save waits for the one before it to be complete."""
        return max(self.checkpoint_seconds, self.durable_seconds)

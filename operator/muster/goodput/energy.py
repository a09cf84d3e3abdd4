"""What a job's training has cost in energy, as far as the drivers' counters tell. Pure.

Metered is the time in which ranks ran, from a moment after their start to the last reading before their end: the energy of waiting
nodes, and all that is not in the accelerators, is not in it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from muster.api.goodput import PRODUCTIVE, Bucket

RUNNING = (*PRODUCTIVE, Bucket.CHECKPOINT_STALL, Bucket.LOST_WORK)
"""In these ranks run for certain."""
MAY_RUN = (Bucket.STARTING, Bucket.RESTARTING, Bucket.UNDETECTED, Bucket.FINISHING, Bucket.UNKNOWN)
"""In these they may run, too, and what is metered then must not stand for what is not metered of the others."""
LEAST_SHARE = 0.95
"""With less of it metered the energy of a token would be told too low."""


@dataclass(frozen=True, slots=True)
class Energy:
    """None: not known.

    Attributes:
        joules: that all accelerators have used, lost work included.
        watts_per_gpu: the mean of one accelerator in the time that was metered.
        metered: share of the time in which ranks ran or may have run, starts among it; of that in which they ran it is no less.
        joules_per_token: of those that count.
    """

    joules: int
    watts_per_gpu: float
    metered: float
    joules_per_token: float | None = None


def energy(joules: int, metered_gpu_seconds: int, gpu_seconds: Mapping[str, int], tokens: int | None) -> Energy | None:
    """The figures; None where nothing was metered.

    Args:
        gpu_seconds: of the accelerators that the job asks for, by bucket: others of its nodes it cannot use.
        tokens: of the steps that count; None: not known.
    """
    ran = sum(gpu_seconds.get(bucket, 0) for bucket in RUNNING)
    if joules <= 0 or metered_gpu_seconds <= 0 or ran <= 0:
        return None
    may_run = sum(gpu_seconds.get(bucket, 0) for bucket in MAY_RUN)
    share = min(metered_gpu_seconds / (ran + may_run), 1.0)
    each = joules / tokens if tokens and share >= LEAST_SHARE else None
    return Energy(joules, joules / metered_gpu_seconds, share, each)

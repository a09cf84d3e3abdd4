"""Compute the energy of a job's training from the drivers' counters. Pure.

Metered is the time in which ranks ran, from a moment after their start to the last reading before their end. The energy
of waiting nodes, and of anything but the accelerators, is not included.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from muster.api.goodput import PRODUCTIVE, Bucket, Goodput

RUNNING = (*PRODUCTIVE, Bucket.CHECKPOINT_STALL, Bucket.LOST_WORK)
"""Ranks certainly run in these buckets."""
MAY_RUN = (Bucket.STARTING, Bucket.RESTARTING, Bucket.UNDETECTED, Bucket.HELD, Bucket.FINISHING, Bucket.UNKNOWN)
"""Ranks may run in these buckets, too; energy metered then must not replace unmetered energy of the others."""
LEAST_SHARE = 0.95
"""With a smaller metered share the energy of a token would be too low."""
MOST_SHARE = 1.05
"""With a larger metered share than this the figures include more than this job."""

LEAST_HELD_SECONDS = 1800
"""Prometheus has means of 3 min: the first 90 s of a job's nodes include earlier use, up to 5 % of half an hour."""


@dataclass(frozen=True, slots=True)
class Energy:
    """Energy of one job's training. None: not known.

    Attributes:
        joules: used by all accelerators, lost work included.
        watts_per_gpu: the mean of one accelerator in the metered time.
        metered: share of the time in which ranks ran or may have run, starts included; the share of the running time is
            no less.
        joules_per_token: of the tokens that count.
        joules_per_token_unknown: why joules_per_token is not known; "" otherwise.
    """

    joules: int
    watts_per_gpu: float
    metered: float
    joules_per_token: float | None = None
    joules_per_token_unknown: str = ""


@dataclass(frozen=True, slots=True)
class MeteredEnergy:
    """Prometheus' counters for the accelerators of all nodes that a job held, for as long as it held them.

    Attributes:
        joules: used by these accelerators.
        gpu_seconds: the metered time, times the number of accelerators.
    """

    joules: float
    gpu_seconds: float


def energy(joules: int, metered_gpu_seconds: int, gpu_seconds: Mapping[str, int], tokens: int | None) -> Energy | None:
    """Compute the energy from launchers' counters; None where nothing was metered. `gpu_seconds` are those of the
    accelerators that the job asks for, by bucket: it cannot use others of its nodes. `tokens` are of the steps that
    count; None: not known.
    """
    ran = sum(gpu_seconds.get(bucket, 0) for bucket in RUNNING)
    if joules <= 0 or metered_gpu_seconds <= 0 or ran <= 0:
        return None
    may_run = sum(gpu_seconds.get(bucket, 0) for bucket in MAY_RUN)
    return _figures(joules, metered_gpu_seconds, ran + may_run, tokens)


def energy_of_nodes(metered: MeteredEnergy, goodput: Goodput, tokens: int | None) -> Energy | None:
    """Compute the energy from Prometheus' figures of the same time as `goodput`. None without these, or where
    `why_no_energy` says what is wrong. `tokens` are of the steps that count; None: not known.
    """
    held = sum(goodput.gpu_seconds.values())
    if metered.joules <= 0 or metered.gpu_seconds <= 0 or held <= 0 or why_no_energy(metered, goodput):
        return None
    return _figures(metered.joules, metered.gpu_seconds, held, tokens)


def why_no_energy(metered: MeteredEnergy, goodput: Goodput) -> str:
    """Say why Prometheus' figure of the time of `goodput` cannot be the energy of this job; "" where it can be."""
    seconds = sum(goodput.seconds.get(bucket, 0) for bucket, held in goodput.gpu_seconds.items() if held)
    if seconds < LEAST_HELD_SECONDS:
        return (
            f"the job held its nodes for {seconds // 60} min: power is a mean of 3 min, and that misses too much of "
            f"a job of less than {LEAST_HELD_SECONDS // 60} min"
        )
    share = metered.gpu_seconds / max(sum(goodput.gpu_seconds.values()), 1)
    if share > MOST_SHARE:
        return (
            f"Prometheus has {share:.0%} of the time in which the job held accelerators: it evaluates the rules at "
            "another interval than 30 s, the address is of more than one Prometheus, or others' accelerators are in "
            "it"
        )
    return ""


def _figures(joules: float, metered: float, gpu_seconds: float, tokens: int | None) -> Energy:
    """Compute the figures from what was metered during these GPU-seconds."""
    share = min(metered / gpu_seconds, 1.0)
    why = _why_unknown(share, tokens)
    return Energy(round(joules), joules / metered, share, None if why or not tokens else joules / tokens, why)


def _why_unknown(share: float, tokens: int | None) -> str:
    """Say why the energy of a token is unknown; "" where it is known."""
    if share < LEAST_SHARE:
        return f"only {share:.0%} of the time was metered, and the rest may differ"
    return "" if tokens else "the tokens that count are not known"

"""Compute how often a job's ranks fail while they run, with its confidence interval, and by class. Pure.

Failures come as a Poisson process. With n failures in a time T the mean time between two is T/n. The bounds of 95 % are
the exact ones of a test that ends by time: 2T over the quantiles of chi squared, with 2n+2 and 2n degrees of freedom
(Garwood, Biometrika 28, 1936).
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from muster.api.gang import FaultClass, GangIncident
from muster.api.goodput import PRODUCTIVE, Bucket

# With no failure in a time the mean time between failures is at least a third of it, with 95 % confidence.
NONE_SEEN = -math.log(0.05)
# While these go on, ranks run and can fail.
EXPOSED = (*PRODUCTIVE, Bucket.CHECKPOINT_STALL, Bucket.LOST_WORK, Bucket.UNDETECTED)
# With a larger share of time of unknown use, its failures show no rate.
BLIND = 0.1
HOUR = 3600
"""Seconds of an hour, for all figures."""
_TAIL = 0.025
_MANY = 1000
"""Beyond so many failures the quantile is that of Wilson and Hilferty, which is exact to five digits there."""
_NORMAL = 1.959964


@dataclass(frozen=True, slots=True)
class TimeBetween:
    """The time between two failures, in hours, with its bounds of 95 %; `high` is None for less than one failure."""

    failures: float
    mean: float
    low: float
    high: float | None


def exposed_seconds(seconds: Mapping[str, int]) -> int:
    """Return how long ranks were seen to run, from an account by buckets; 0 where too much of it is unknown."""
    exposed, unknown = sum(seconds.get(bucket, 0) for bucket in EXPOSED), seconds.get(Bucket.UNKNOWN, 0)
    return exposed if unknown <= BLIND * (exposed + unknown) else 0


def in_steps(failures: int, failed_starts: int) -> int:
    """Count the failures that belong to that time, which has no starts."""
    return max(failures - failed_starts, 0)


def by_class(incidents: Iterable[GangIncident]) -> dict[str, int]:
    """Count the failures of that time by class."""
    counted = Counter(
        str(incident.fault_class)
        for incident in incidents
        if incident.trained and incident.fault_class is not FaultClass.PLANNED
    )
    return dict(sorted(counted.items()))


def time_between(exposed: float, failures: float) -> TimeBetween | None:
    """Compute the time between `failures` in `exposed` seconds; None with no failure, or no time."""
    if exposed <= 0 or failures <= 0:
        return None
    hours = exposed / HOUR
    high = hours / _gamma_quantile(_TAIL, failures) if failures >= 1 else None
    return TimeBetween(failures, hours / failures, hours / _gamma_quantile(1 - _TAIL, failures + 1), high)


def _gamma_quantile(share: float, shape: float) -> float:
    """Return the quantile of a gamma distribution with scale 1: half that of chi squared with twice the degrees."""
    if shape > _MANY:
        ninth = 1 / (9 * shape)
        return float(shape * (1 - ninth + math.copysign(_NORMAL, share - 0.5) * math.sqrt(ninth)) ** 3)
    low, high = 0.0, shape + 10 * math.sqrt(shape) + 20
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if _gamma_share(shape, middle) > share else (middle, high)
    return high


def _gamma_share(shape: float, value: float) -> float:
    """Compute the share of a gamma distribution below a value, by the series of the incomplete gamma function."""
    term = total = 1 / shape
    divisor = shape
    while term > total * 1e-13:
        divisor += 1
        term *= value / divisor
        total += term
    return total * math.exp(shape * math.log(value) - value - math.lgamma(shape))

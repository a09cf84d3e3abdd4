"""The figures that the FleetPolicy requires, in place of the fleet's history and published floors. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from muster.api.preflight import LimitedProbe, PreflightLimit
from muster.protocol.numerals import significant
from muster.world.checks import ProbeThreshold

SOURCE = "spec.preflight.limits of the FleetPolicy"


@dataclass(frozen=True, slots=True)
class Best:
    """The best figure that a node of one kind has reached in a probe over a transport, with its unit."""

    figure: float
    unit: str


@dataclass(frozen=True, slots=True)
class Tuned:
    """The thresholds after the FleetPolicy's limits were applied.

    Attributes:
        thresholds: what probes have to reach.
        unused: the limits that have no effect, and why, as messages.
    """

    thresholds: tuple[ProbeThreshold, ...]
    unused: tuple[str, ...] = ()


def apply_limits(
    like: ProbeThreshold,
    thresholds: Iterable[ProbeThreshold],
    best: Mapping[tuple[str, str], Best],
    limits: Sequence[PreflightLimit],
) -> Tuned:
    """Return the thresholds of one kind of node under the FleetPolicy's limits.

    A figure that no node has reached proves nothing. So a limit above today's threshold counts only once a node that is
    heard has reached it; until then history and floors hold. A percentage changes the share of the history's middle,
    and published floors hold beside it. For pairs the history's middle stays, as what a healthy pair reaches.

    Args:
        like: a threshold of this kind that asks for nothing.
        thresholds: the thresholds by history and floors.
        best: by probe and transport, the best figure reached.
        limits: of the FleetPolicy.
    """
    by_key = {(threshold.probe, threshold.transport): threshold for threshold in thresholds}
    unused = []
    for key in sorted(by_key.keys() | best.keys()):
        plain, shown = replace(like, probe=key[0], transport=key[1]), best.get(key)
        threshold, limit = by_key.get(key, plain), _limit(plain, limits)
        if limit is None:
            continue
        if limit.minimum_percent is not None:
            if threshold.middle is not None:
                by_key[key] = _with_share(threshold, limit.minimum_percent)
                unused += _too_strict(by_key[key], limit.minimum_percent)
        elif limit.minimum is not None:
            least = float(limit.minimum)
            if least <= max(threshold.least, shown.figure if shown is not None else 0.0):
                unit = shown.unit if shown is not None else threshold.unit
                by_key[key] = _with_minimum(replace(plain, unit=unit), threshold, least)
            # Where another transport reaches it, this one is not what the owner means.
            elif (
                shown is not None and max(record.figure for (name, _), record in best.items() if name == key[0]) < least
            ):
                unused.append(_unused(plain, limit.minimum, shown))
    return Tuned(tuple(by_key.values()), tuple(unused))


def _with_share(threshold: ProbeThreshold, percent: int) -> ProbeThreshold:
    """Return the threshold with another share of the history's middle, as far as healthy figures reach that.

    Healthy figures vary: what they do not all reach says nothing about nodes either.
    """
    ratio = min(percent / 100, max(threshold.healthy, threshold.ratio))
    source = (
        f"{significant(100 * ratio, 4)} % of the fleet's middle of {significant(threshold.middle or 0.0, 4)} ({SOURCE})"
    )
    source += f"; not below {significant(threshold.floor, 4)}" if threshold.floor else ""
    return replace(threshold, ratio=ratio, source=source)


def _with_minimum(plain: ProbeThreshold, present: ProbeThreshold, least: float) -> ProbeThreshold:
    """Return the threshold by a minimum; for pairs with what a healthy pair reaches, of which it is a share (perhaps
    above 1).

    Args:
        plain: a threshold that asks for nothing.
        present: the threshold by history and floors.
        least: the minimum.
    """
    threshold = replace(plain, floor=least, source=SOURCE, is_required=True)
    if plain.probe != LimitedProbe.PAIR:
        return threshold
    if not present.middle:
        return threshold if least else replace(threshold, ratio=0.0)
    return replace(threshold, middle=present.middle, ratio=least / present.middle, miss_share=present.miss_share)


def _limit(plain: ProbeThreshold, limits: Iterable[PreflightLimit]) -> PreflightLimit | None:
    """Return the limit that counts for a probe on a model: the one with the longest model name that fits; None: none
    fits."""
    fitting = [limit for limit in limits if str(limit.probe) == plain.probe and plain.model.startswith(limit.model)]
    return max(fitting, key=lambda limit: len(limit.model), default=None)


def _too_strict(threshold: ProbeThreshold, percent: int) -> list[str]:
    """Return the message that a share is lowered to the one that healthy figures reach; empty where it is not."""
    if threshold.ratio >= percent / 100:
        return []
    return [
        f"spec.preflight.limits: {threshold.probe} asks for {percent} % of the middle, and healthy figures of "
        f"{threshold.model or 'nodes'}{_way(threshold)} vary by more than that: {significant(100 * threshold.ratio)} % "
        "counts. Lower percent"
    ]


def _unused(plain: ProbeThreshold, least: str, shown: Best) -> str:
    return (
        f"spec.preflight.limits: {plain.probe} asks for {least}, and no {plain.model or 'node'} that is heard has "
        f"reached more than {significant(shown.figure, 4)} {shown.unit}{_way(plain)}: it counts for nothing until one "
        "does. Lower minimum"
    )


def _way(threshold: ProbeThreshold) -> str:
    return f" over {threshold.transport}" if threshold.transport else ""

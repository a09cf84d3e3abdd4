"""The figures that the FleetPolicy requires, in place of the fleet's history and published floors. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from muster.api.preflight import LimitedProbe, PreflightLimit
from muster.protocol.numerals import significant
from muster.world.checks import Standard

SOURCE = "spec.preflight.limits of the FleetPolicy"


@dataclass(frozen=True, slots=True)
class Best:
    """The best figure that a node of one kind has reached in a probe over a transport, with its unit."""

    figure: float
    unit: str


@dataclass(frozen=True, slots=True)
class Tuned:
    """The standards after the FleetPolicy's limits were applied.

    Attributes:
        standards: what probes have to reach.
        unused: the limits that have no effect, and why, as messages.
    """

    standards: tuple[Standard, ...]
    unused: tuple[str, ...] = ()


def apply_limits(
    like: Standard,
    known: Iterable[Standard],
    best: Mapping[tuple[str, str], Best],
    limits: Sequence[PreflightLimit],
) -> Tuned:
    """Return the standards of one kind of node under the FleetPolicy's limits.

    A figure that no node has reached proves nothing. So a limit above today's standard counts only once a node that is
    heard has reached it; until then history and floors hold. A percentage changes the share of the history's middle,
    and published floors hold beside it. For pairs the history's middle stays, as what a healthy pair reaches.

    Args:
        like: a standard of this kind that asks for nothing.
        known: the standards by history and floors.
        best: by probe and transport, the best figure reached.
        limits: of the FleetPolicy.
    """
    found = {(one.probe, one.transport): one for one in known}
    unused = []
    for probe, over in sorted(found.keys() | best.keys()):
        limit = _limit(probe, like.model, limits)
        if limit is None:
            continue
        one, shown = found.get((probe, over)), best.get((probe, over))
        if limit.minimum_percent is not None:
            if one is not None and one.middle is not None:
                # Healthy figures vary: what they do not all reach says nothing about nodes either.
                ratio = min(limit.minimum_percent / 100, max(one.healthy, one.ratio))
                if ratio < limit.minimum_percent / 100:
                    unused.append(_too_strict(probe, like.model, limit.minimum_percent, over, ratio))
                source = (
                    f"{significant(100 * ratio, 4)} % of the fleet's middle of {significant(one.middle, 4)} ({SOURCE})"
                )
                source += f"; not below {significant(one.floor, 4)}" if one.floor else ""
                found[probe, over] = replace(one, ratio=ratio, source=source)
        elif limit.minimum is not None:
            least = float(limit.minimum)
            if least > max(one.least if one is not None else 0.0, shown.figure if shown is not None else 0.0):
                # Where another transport reaches it, this one is not what the owner means.
                others = (each.figure for (name, _), each in best.items() if name == probe)
                if shown is not None and max(others) < least:
                    unused.append(_unused(probe, like.model, limit.minimum, over, shown))
                continue
            unit = shown.unit if shown is not None else one.unit if one is not None else ""
            plain = replace(like, probe=probe, transport=over, unit=unit)
            found[probe, over] = replace(_of_pairs(plain, one, least), floor=least, source=SOURCE)
    return Tuned(tuple(found.values()), tuple(unused))


def _of_pairs(plain: Standard, one: Standard | None, least: float) -> Standard:
    """Return the standard; for a pair with what a healthy pair reaches, of which the limit is a share (perhaps above
    1).

    Args:
        plain: the standard by the limit alone.
        one: the standard by history; None: there is none.
        least: the limit's figure.
    """
    if plain.probe != LimitedProbe.PAIR:
        return plain
    if one is None or not one.middle:
        return plain if least else replace(plain, ratio=0.0)
    return replace(plain, middle=one.middle, ratio=least / one.middle, miss_share=one.miss_share)


def _limit(probe: str, model: str, limits: Iterable[PreflightLimit]) -> PreflightLimit | None:
    """Return the limit that counts for a probe on a model: the one with the longest model name that fits; None: none
    fits."""
    fitting = [each for each in limits if str(each.probe) == probe and model.startswith(each.model)]
    return max(fitting, key=lambda each: len(each.model), default=None)


def _too_strict(probe: str, model: str, percent: int, over: str, ratio: float) -> str:
    way = f" over {over}" if over else ""
    return (
        f"spec.preflight.limits: {probe} asks for {percent} % of the middle, and healthy figures of "
        f"{model or 'nodes'}{way} vary by more than that: {significant(100 * ratio)} % counts. Lower percent"
    )


def _unused(probe: str, model: str, least: str, over: str, shown: Best) -> str:
    way = f" over {over}" if over else ""
    return (
        f"spec.preflight.limits: {probe} asks for {least}, and no {model or 'node'} that is heard has reached more "
        f"than {significant(shown.figure, 4)} {shown.unit}{way}: it counts for nothing until one does. Lower minimum"
    )

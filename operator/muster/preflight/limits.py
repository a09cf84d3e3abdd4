"""What the fleet's owner says that figures have to reach, where history and floors shall not say it. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from muster.api.preflight import LimitedProbe, PreflightLimit
from muster.world.checks import Standard

SOURCE = "spec.preflight.limits of the FleetPolicy"


@dataclass(frozen=True, slots=True)
class Best:
    """The best figure that a node of one kind has shown for a probe over a transport."""

    figure: float
    unit: str


@dataclass(frozen=True, slots=True)
class Tuned:
    """Standards with the owner's limits in them.

    Attributes:
        unused: limits that count for nothing, and why, in words.
    """

    standards: tuple[Standard, ...]
    unused: tuple[str, ...] = ()


def tuned(
    like: Standard,
    known: Iterable[Standard],
    best: Mapping[tuple[str, str], Best],
    limits: Sequence[PreflightLimit],
) -> Tuned:
    """The standards of one kind of node under these limits.

    What no node has reached proves nothing about those that do not: a limit that asks for more than is asked now counts
    while one that is heard has, and else history and floors hold. A percentage changes the share of the history, and
    published floors hold beside it. Pairs keep their history, as what a healthy one reaches; where there is none the
    gang's own pairs say it.

    Args:
        like: one of the kind that asks for nothing.
        known: by history and floors.
        best: by probe and transport.
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
                source = f"{100 * ratio:.4g} % of the fleet's middle of {one.middle:.4g} ({SOURCE})"
                source += f"; not below {one.floor:.4g}" if one.floor else ""
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
    """With what a healthy pair reaches, where that is known: the figure is a share of it, which may be more than
    all."""
    if plain.probe != LimitedProbe.PAIR:
        return plain
    if one is None or not one.middle:
        return plain if least else replace(plain, ratio=0.0)
    return replace(plain, middle=one.middle, ratio=least / one.middle, miss_share=one.miss_share)


def _limit(probe: str, model: str, limits: Iterable[PreflightLimit]) -> PreflightLimit | None:
    """The one that counts: the longest name that fits."""
    fitting = [each for each in limits if str(each.probe) == probe and model.startswith(each.model)]
    return max(fitting, key=lambda each: len(each.model), default=None)


def _too_strict(probe: str, model: str, percent: int, over: str, ratio: float) -> str:
    way = f" over {over}" if over else ""
    return (
        f"spec.preflight.limits: {probe} asks for {percent} % of the middle, and healthy figures of "
        f"{model or 'nodes'}{way} vary by more than that: {100 * ratio:.3g} % counts. Lower percent"
    )


def _unused(probe: str, model: str, least: str, over: str, shown: Best) -> str:
    way = f" over {over}" if over else ""
    return (
        f"spec.preflight.limits: {probe} asks for {least}, and no {model or 'node'} that is heard has reached more "
        f"than {shown.figure:.4g} {shown.unit}{way}: it counts for nothing until one does. Lower minimum"
    )

"""The yardsticks by which a gang's pairs are judged: the fleet's history, the FleetPolicy's limits and published
floors. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable

from muster.preflight.evidence import is_foreign
from muster.preflight.limits import SOURCE
from muster.preflight.outcomes import Yardstick
from muster.preflight.verdict import PAIR
from muster.world.checks import Standard


def yardsticks(
    standards: Iterable[Standard], kinds: Collection[tuple[str, str, str]], transport: str
) -> tuple[Yardstick, ...]:
    """Return the yardsticks by which a gang's pairs are judged: one for each transport of which anything is known.

    A history of one transport alone also judges pairs over any other: a gang that has fallen back to a slower one must
    not be its own yardstick. A published floor holds for its own transport only.

    Args:
        standards: of the fleet.
        kinds: model, library and version of each member's checker; a transport with standards for several of them has
            no
        yardstick.
        transport: what pairs have to run over; "": any.
    """
    known = [
        each
        for each in standards
        if each.probe == PAIR
        and (each.model, each.library, each.version) in kinds
        and not is_foreign(each.transport, transport)
    ]
    counts = Counter(each.transport for each in known)
    own = [each for each in known if each.middle is not None or each.source == SOURCE]
    return tuple(
        Yardstick(
            each.middle,
            each.ratio,
            each.floor,
            each.miss_share,
            transport="" if len(own) == 1 and each is own[0] else each.transport,
        )
        for each in known
        if counts[each.transport] == 1
    )

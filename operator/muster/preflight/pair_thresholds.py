"""What the pairs of a gang have to reach, and what they have to run over. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from muster.preflight.outcomes import NVLINK, PAIR
from muster.world.checks import ProbeThreshold

_UNKNOWN = ProbeThreshold()


@dataclass(frozen=True, slots=True)
class PairThresholds:
    """What the pairs of a gang have to reach at each level.

    Attributes:
        known: by transport; those without a transport by level, from 0 on, the last one for deeper levels too. Empty:
            nothing is known.
        transport: what tests have to run over, where they do not run over NVLink; "": any.
    """

    known: tuple[ProbeThreshold, ...] = ()
    transport: str = ""

    def at_level(self, level: int, over: str) -> ProbeThreshold:
        """Return the threshold of a level.

        Args:
            level: the level.
            over: the transport that most of its pairs run over.
        """
        by_level = []
        for threshold in self.known:
            if not threshold.transport:
                by_level.append(threshold)
            elif threshold.transport == over:
                return threshold
        return by_level[min(level, len(by_level) - 1)] if by_level else _UNKNOWN

    def is_foreign(self, transport: str) -> bool:
        """Whether a test ran over another transport than the expected one; NVLink is better than any network and never
        foreign."""
        return bool(transport and self.transport) and transport not in (self.transport, NVLINK)

    @classmethod
    def for_gang(
        cls, thresholds: Iterable[ProbeThreshold], kinds: Collection[tuple[str, str, str]], transport: str
    ) -> "PairThresholds":
        """Return the thresholds of a gang's pairs: one for each transport of which anything is known.

        A history of one transport alone, or one figure that the FleetPolicy requires, also judges pairs over any other:
        a gang that has fallen back to a slower one must not be its own measure. A published floor holds for its own
        transport only.

        Args:
            thresholds: of the fleet.
            kinds: model, library and version of each member's checker. A transport with thresholds for several of them
                has none.
            transport: what pairs have to run over; "": any.
        """
        any_of_it = cls(transport=transport)
        fitting = [
            threshold
            for threshold in thresholds
            if threshold.probe == PAIR
            and (threshold.model, threshold.library, threshold.version) in kinds
            and not any_of_it.is_foreign(threshold.transport)
        ]
        counts = Counter(threshold.transport for threshold in fitting)
        own = [threshold for threshold in fitting if threshold.middle is not None or threshold.is_required]
        unambiguous = (
            replace(threshold, transport="") if len(own) == 1 and threshold is own[0] else threshold
            for threshold in fitting
            if counts[threshold.transport] == 1
        )
        return cls(tuple(unambiguous), transport)

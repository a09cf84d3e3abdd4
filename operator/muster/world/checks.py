"""What decisions know of checkers, and what they want of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from muster.protocol.checks import CheckAnswer, CheckGrant, CheckOrder, CheckReport

# Checkers answer at least once in the time for which their polls are held: one that is silent for longer does not
# count.
FRESH_SECONDS = 25.0


@dataclass(frozen=True, slots=True)
class CheckerView:
    """What the checker of a node last said, as of now.

    Attributes:
        heard_age_seconds: since then, by the coordinator's monotonic clock.
        report: as it came; the ages of its passes have grown since.
        state_seconds: for how long it has said that it is in its state.
        given: order id -> for how many seconds this process has had it in the node's directive.
    """

    heard_age_seconds: float
    report: CheckReport
    given: Mapping[str, float] = field(default_factory=dict)
    state_seconds: float = 0.0

    @property
    def is_fresh(self) -> bool:
        """Whether it was heard lately."""
        return self.heard_age_seconds <= FRESH_SECONDS

    def answer(self, order_id: str) -> CheckAnswer | None:
        """What it has answered to an order."""
        return next((each for each in self.report.answers if each.order == order_id), None)

    def tested_gpus(self, asked: int | None) -> int:
        """With how many GPUs a test was made that so many were asked for: all that there are are tested, and no fewer
        pass."""
        return max(asked or 0, self.report.gpus)

    def knows(self, grant_id: str) -> bool:
        """Whether it has taken in a grant, and the pass still holds."""
        return any(each.granted == grant_id for each in self.report.passes)


@dataclass(frozen=True, slots=True)
class NodeChecks:
    """What a node's checker shall do: all orders of a burn-in, those that were answered included, and its passes.

    Attributes:
        known: False: nobody knows yet, and it shall keep what it has.
    """

    orders: tuple[CheckOrder, ...] = ()
    grants: tuple[CheckGrant, ...] = ()
    known: bool = True


@dataclass(frozen=True, slots=True)
class Standard:
    """What a healthy figure is, for one key: from the fleet's own history and published floors (preflight.baselines).

    Attributes:
        transport: "" for probes that use none.
        middle: median of the history; None while that is too young.
        ratio: below this share of the middle a figure is a miss.
        floor: below it a figure is bad whatever the history says; 0 where none is known.
        miss_share: of healthy figures.
        source: for people.
        healthy: share of the middle below which hardly any healthy figure lies, however strict `ratio` is; 1 where that
            is not known.
    """

    probe: str
    model: str
    transport: str
    library: str
    version: str
    middle: float | None
    ratio: float
    floor: float
    miss_share: float
    unit: str
    source: str
    healthy: float = 1.0

    @property
    def least(self) -> float:
        """What a figure has to reach."""
        return max(self.floor, (self.middle or 0.0) * self.ratio)

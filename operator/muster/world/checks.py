"""Define what decisions know of checkers, and what checkers shall run.

Tests: tests/unit/burnin/test_progress.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from muster.protocol.checks import CheckAnswer, CheckGrant, CheckOrder, CheckReport

# Checkers answer at least once in the time for which their polls are held: a checker that is silent for longer does not
# count.
FRESH_SECONDS = 25.0


@dataclass(frozen=True, slots=True)
class CheckerView:
    """Last report of a node's checker, as of now.

    Attributes:
        heard_age_seconds: age of the report, by the coordinator's monotonic clock.
        report: as it came; the ages of its passes have grown since.
        state_seconds: for how long it has reported this state.
        given: order id -> for how many seconds this process has had it in the node's directive.
    """

    heard_age_seconds: float
    report: CheckReport
    given: Mapping[str, float] = field(default_factory=dict)
    state_seconds: float = 0.0

    @property
    def is_fresh(self) -> bool:
        """Whether it has reported lately."""
        return self.heard_age_seconds <= FRESH_SECONDS

    def answer(self, order_id: str) -> CheckAnswer | None:
        """Return its answer to an order; None: there is none yet."""
        return next((answer for answer in self.report.answers if answer.order == order_id), None)

    def tested_gpus(self, asked: int | None) -> int:
        """Return the number of GPUs of a test that asked for `asked`: all that the node has are tested, and no fewer
        pass."""
        return max(asked or 0, self.report.gpus)

    def knows(self, grant_id: str) -> bool:
        """Whether the checker has received a grant, and the pass is still valid."""
        return any(pass_report.granted == grant_id for pass_report in self.report.passes)


@dataclass(frozen=True, slots=True)
class NodeChecks:
    """Desired state of a node's checker: all orders of a burn-in, answered ones included, and its passes.

    Attributes:
        known: False: the orders are not known yet, and the checker shall keep what it has.
    """

    orders: tuple[CheckOrder, ...] = ()
    grants: tuple[CheckGrant, ...] = ()
    known: bool = True


@dataclass(frozen=True, slots=True)
class ProbeThreshold:
    """What a figure has to reach, by the fleet's history (preflight.baselines), published floors and the FleetPolicy.

    Attributes:
        probe: for which it holds, say "gemm-bf16" or "pair".
        model: of the GPU; of a published floor the start of its name.
        transport: "" for probes that use none; for pairs: for all transports that have no threshold of their own.
        library: with its version.
        version: of the probe.
        middle: median of the history; None while that is too young.
        ratio: below this share of the middle a figure is a miss.
        floor: below it a figure is bad whatever the history says; 0 where none is known.
        miss_share: share of misses among healthy figures.
        source: for people.
        healthy: share of the middle below which hardly any healthy figure lies, however strict `ratio` is; 1 where that
            is not known.
        is_required: whether `floor` is a figure that the FleetPolicy requires, and no published one.
    """

    probe: str = ""
    model: str = ""
    transport: str = ""
    library: str = ""
    version: str = ""
    middle: float | None = None
    ratio: float = 0.75
    floor: float = 0.0
    miss_share: float = 0.01
    unit: str = ""
    source: str = ""
    healthy: float = 1.0
    is_required: bool = False

    @property
    def least(self) -> float:
        """Return the least figure that passes."""
        return max(self.floor, (self.middle or 0.0) * self.ratio)

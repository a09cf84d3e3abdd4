"""The state of a gang's burn-in, as the rest of the lifecycle reads it, and the reasons for which a start waits for it.

Tests: tests/unit/burnin/test_progress.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from muster.checkpoints.resume import Missing
from muster.preflight.outcomes import Fail
from muster.world.checks import NodeChecks

BURNING_IN = "BurningIn"
CHECKERS_MISSING = "CheckersMissing"
INCONCLUSIVE = "BurnInInconclusive"


@dataclass(frozen=True, slots=True)
class BurnInState:
    """The state of a gang's burn-in now, and what follows from it.

    Attributes:
        missing: what the start waits for; None: for nothing.
        checks: by node, what its checker has to do.
        fails: nodes that are proved to be bad; they leave the gang.
        untested: nodes of which nothing is proved.
        message: why nothing is proved, or what else people should know (a slow uplink).
        measured: the result of the all-reduce of the whole gang; "" where there was none.
        is_odd: whether that result is in `message`, too, because the pairs have shown another one.
        is_wrong: whether the gang's all-reduce, or a pair of nodes that stay, gave wrong sums: then no node is proved
            good.
    """

    missing: Missing | None = None
    checks: Mapping[str, NodeChecks] = field(default_factory=dict)
    fails: tuple[Fail, ...] = ()
    untested: tuple[str, ...] = ()
    message: str = ""
    measured: str = ""
    is_odd: bool = False
    is_wrong: bool = False

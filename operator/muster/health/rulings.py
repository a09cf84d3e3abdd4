"""What may be done about one node: what `muster.health.breaker` rules, and what a ruling has NodeHealth record.

Tests: tests/unit/health/test_breaker.py, tests/unit/health/test_budgets.py.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from muster.health.verdict import Verdict


class Act(StrEnum):
    """What may be done about one node.

    Nothing: the node may be used. Take: jobs are evacuated, and Muster taints the node where the policy asks for that.
    Hold: the node is unhealthy, but the budget keeps it in use: only new workers avoid it. Yield: another system
    repairs the node: new workers avoid it, and jobs are evacuated after the next checkpoint. Untaint: the node has
    Muster's taint without need.
    """

    NOTHING = "Nothing"
    TAKE = "Take"
    HOLD = "Hold"
    YIELD = "Yield"
    UNTAINT = "Untaint"


@dataclass(frozen=True, slots=True)
class Ruling:
    """What the breaker allows to be done about one node.

    Attributes:
        act: what may be done.
        why: the reason as text for users, for Hold and Yield; "" for others.
        charge: whether this act is new, so that the incident has to record it first (`charged`).
        cause: the cause to which the budget is charged, e.g. `agent/Xid79`.
        certain: whether the budget's part for certain faults is used.
        pool: the pool whose budget is used.
    """

    act: Act
    why: str = ""
    charge: bool = False
    cause: str = ""
    certain: bool = False
    pool: str = ""

    def charged(self, verdict: Verdict, now: datetime) -> Verdict:
        """Return the verdict as NodeHealth has to record it before this ruling is carried out.

        Args:
            verdict: on the node of the ruling.
            now: the time that the incident records.
        """
        if not self.charge:
            return verdict
        if self.act is Act.YIELD:
            return verdict.after_yielding(now)
        return verdict.after_taking_out(now, self.cause, self.certain, self.pool)


def held_back(ruling: Ruling) -> Ruling:
    """Return the ruling to use while the FleetPolicy cannot be read: no new node is taken out, no taint is removed."""
    if ruling.charge:
        return Ruling(Act.HOLD, "the FleetPolicy cannot be read, and Muster takes no node out until it can")
    return Ruling(Act.NOTHING) if ruling.act is Act.UNTAINT else ruling

"""A sign: one thing that speaks against a node now, whoever says it, and what it weighs.

Agent, other systems' marks on Node objects and jobs are all translated into signs; a verdict is made of nothing else.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from muster.api.nodehealth import Finding, RecommendedAction, Severity
from muster.world.fleet import Removal

AGENT = "agent"
BURN_IN = "burn-in"
JOBS = "jobs"
MAINTENANCE = "maintenance"
REPAIR = "repair"

CHECK_WANTED = "CheckRequested"
FAILED_BURN_IN = "BurnInFailed"
FOLLOWED_BY_FAILURES = "FollowedByFailures"

WEIGHT = {Severity.INFO: 0, Severity.WARNING: 1, Severity.DEGRADED: 2, Severity.FATAL: 3}
"""Severities, lightest first."""

EFFORT = {action: rank for rank, action in enumerate(("None", "Inspect", "Reset", "Reboot", "Replace"))}
"""Actions by what they repair: each makes those before it unnecessary."""


class Clears(StrEnum):
    """What ends a sign.

    Evidence: it is not reported any more. Boot: besides, the node has another boot id than when it was seen; a log line
    that is too old to be reported proves no repair.
    """

    EVIDENCE = "Evidence"
    BOOT = "Boot"


@dataclass(frozen=True, slots=True)
class Sign:
    """One thing that speaks against a node.

    Attributes:
        source: who says it: agent, jobs, or a source of `sources`.
        reason: stable and CamelCase, e.g. Xid79.
        severity: what it weighs.
        since: since when it is so.
        newest: when it was last news: a human's release from before does not cover it.
        action: what somebody should do with the machine.
        subject: GPU, port, disk; "" for the node.
        message: for people who may see the whole cluster.
        in_public: the same for everybody, where the message names what is one tenant's; "" where it does not.
        clears: what ends it.
        planned: maintenance, no fault.
        repairs: whoever says it is repairing the node: it is not ours to take out.
        offence: whether it is remembered against the hardware.
        stays: it proves no fault of the hardware: new workers keep away, running ones stay, and no budget is charged.
        then: the action if the same took the node out before; None: the same one.
        dated: `newest` by the clock of whoever has seen it, which may be ahead; None: it is not known apart.
        removal: it says that the machine is being taken away.
    """

    source: str
    reason: str
    severity: Severity
    since: datetime
    newest: datetime
    action: RecommendedAction = RecommendedAction.NONE
    subject: str = ""
    message: str = ""
    in_public: str = ""
    clears: Clears = Clears.EVIDENCE
    planned: bool = False
    repairs: bool = False
    offence: bool = True
    stays: bool = False
    then: RecommendedAction | None = None
    dated: datetime | None = None
    removal: Removal | None = None

    @property
    def weighs(self) -> int:
        """0 for information up to 3 for fatal."""
        return WEIGHT[self.severity]

    @property
    def key(self) -> tuple[str, str, str]:
        """Equal for the same sign at different times."""
        return self.source, self.reason, self.subject

    @property
    def strength(self) -> tuple[int, int, datetime, tuple[str, str, str]]:
        """Sorts the strongest sign first, the older one among equals."""
        return -self.weighs, -EFFORT[self.action], self.since, self.key

    def finding(self, *, observed: bool = False) -> Finding:
        """As NodeHealth shows it.

        Args:
            observed: the policy only observes it.
        """
        return Finding(
            source=self.source,
            reason=self.reason,
            subject=self.subject,
            severity=self.severity,
            message=self.message,
            since=self.since,
            observed=observed,
        )


@dataclass(frozen=True, slots=True)
class Repetition:
    """What is not grave once is so when it comes often: at least `times` bursts within `seconds`, on the average."""

    times: int
    seconds: int
    severity: Severity
    action: RecommendedAction

    def reached(self, count: int, first: datetime, last: datetime) -> bool:
        """Whether so many bursts between these two moments are that often."""
        span = max(0.0, (last - first).total_seconds())
        return count >= self.times and span * self.times <= self.seconds * count

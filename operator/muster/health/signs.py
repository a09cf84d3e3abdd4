"""A sign: one reason against the use of a node now, from any source, with its severity.

The agent's evidence, other systems' marks on Node objects and failures of jobs are all translated into signs. A verdict
is made of nothing else.

Tests: tests/unit/health/test_collect.py.
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
OWN_SOURCES = frozenset({AGENT, BURN_IN, JOBS, MAINTENANCE, REPAIR})
"""The sources by which Muster itself sees or decides something; all others are marks of other systems on Nodes."""

CHECK_WANTED = "CheckRequested"
FAILED_BURN_IN = "BurnInFailed"
FOLLOWED_BY_FAILURES = "FollowedByFailures"

WEIGHT = {Severity.INFO: 0, Severity.WARNING: 1, Severity.DEGRADED: 2, Severity.FATAL: 3}
"""Severities, lightest first."""

EFFORT = {action: rank for rank, action in enumerate(("None", "Inspect", "Reset", "Reboot", "Replace"))}
"""Actions by what they repair: each makes those before it unnecessary."""


class Clears(StrEnum):
    """What ends a sign.

    Evidence: the sign ends when it is not reported any more. Boot: the node must also have another boot id than when
    the sign was seen. A log line that is too old to be reported proves no repair.
    """

    EVIDENCE = "Evidence"
    BOOT = "Boot"


@dataclass(frozen=True, slots=True)
class Sign:
    """One reason against the use of a node, from any source.

    Attributes:
        source: the reporter: agent, jobs, or a source of `sources`.
        reason: stable and in CamelCase, e.g. Xid79.
        severity: the severity of the sign.
        since: since when the sign has been there.
        newest: when the sign was last new: a user's release from before does not cover it.
        action: what should be done with the machine.
        subject: GPU, port or disk; "" for the node.
        message: text for users who may see the whole cluster.
        in_public: the message without names of a tenant, for all users; "" where the message names none.
        job: `namespace/name` of the job whose burn-in it is from, for users who may see the whole cluster; "" for none.
        clears: what ends the sign.
        planned: whether the sign is planned maintenance and no fault.
        repairs: whether the reporter is repairing the node, so that Muster does not take it out.
        offence: whether the sign is charged to the hardware.
        stays: whether the sign proves no fault of the hardware: new workers avoid the node, running ones stay, and no
            budget is charged.
        then: the action if the same sign took the node out before; None: `action`.
        dated: `newest` by the reporter's clock, which may be ahead; None: it is not known separately.
        removal: how and when the machine is removed; None: the sign announces no removal.
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
    job: str = ""
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
        """The weight of the sign: 0 for Info, 1 for Warning, 2 for Degraded, 3 for Fatal."""
        return WEIGHT[self.severity]

    @property
    def key(self) -> tuple[str, str, str]:
        """The source, reason and subject of the sign, which are equal for the same sign at different times."""
        return self.source, self.reason, self.subject

    @property
    def strength(self) -> tuple[int, int, datetime, tuple[str, str, str]]:
        """The sort key by which the strongest sign comes first, and among equals the older one."""
        return -self.weighs, -EFFORT[self.action], self.since, self.key

    def finding(self, *, observed: bool = False) -> Finding:
        """Return the sign as the finding that NodeHealth shows.

        Args:
            observed: whether the policy only observes the sign.
        """
        return Finding(
            source=self.source,
            reason=self.reason,
            subject=self.subject,
            severity=self.severity,
            message=self.message,
            job=self.job,
            since=self.since,
            observed=observed,
        )


@dataclass(frozen=True, slots=True)
class Repetition:
    """The severity and action of an error that is grave only when it comes often.

    Attributes:
        times: at least this many bursts.
        seconds: within this time, on the average.
        severity: the severity of the frequent error.
        action: what to do with the machine then.
    """

    times: int
    seconds: int
    severity: Severity
    action: RecommendedAction

    def reached(self, count: int, first: datetime, last: datetime) -> bool:
        """Whether the bursts between two moments are frequent enough.

        Args:
            count: the number of bursts.
            first: when the first one was.
            last: when the last one was.
        """
        span = max(0.0, (last - first).total_seconds())
        return count >= self.times and span * self.times <= self.seconds * count

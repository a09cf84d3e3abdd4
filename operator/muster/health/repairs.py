"""Repairs by other systems: what a RepairRequest means for its node, and which requests have to exist. Pure.

A node is held from before its request exists until after the request has ended. So no job is on the node when another
system begins the repair, however fast or slow the systems are. The hold is on record in NodeHealth before the request
is made. A request that no system has begun is deleted only in the version that was read. So either the deletion
succeeds or the repair system's write does, and the node comes back only after the deletion.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Self

from muster.api.fleetpolicy import RepairPolicy
from muster.api.nodehealth import Finding, RecommendedAction, Severity
from muster.api.repairrequest import (
    MAX_REPAIR_EVIDENCE,
    Machine,
    RepairAction,
    RepairPhase,
    RepairRequest,
    RepairRequestSpec,
)
from muster.health.signs import EFFORT, REPAIR, WEIGHT, Sign

REQUESTED = "RepairRequested"
IN_PROGRESS = "RepairInProgress"
FAILED = "RepairFailed"
UNPROVEN = "RepairNotVerified"

NOT_EMPTY = "the node is in use"

LOOK_SECONDS = 90.0
"""An agent that is Ready this long after a repair has checked the whole node since. While it is Ready, its last
complete scan is at most 60 s old. The kubelet needs two failed probes, ten seconds apart, to mark it as not ready."""

GONE_SECONDS = 86400.0
"""A node may be missing for this long while it is repaired: a machine that is installed again comes back under its old
name."""


class Stage(StrEnum):
    """The stage of a repair.

    Unknown: RepairRequests have not been read yet. Asked: no system has begun the repair, or the request is about to be
    made.
    InProgress: another system works on the machine. Done, Failed: the repair has ended.
    """

    UNKNOWN = "Unknown"
    ASKED = "Asked"
    IN_PROGRESS = "InProgress"
    DONE = "Done"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class RepairStatus:
    """The state of a node's RepairRequest.

    Attributes:
        stage: of the repair.
        action: what is to be done with the machine; "" where that cannot be read.
        message: of the repair system.
    """

    stage: Stage
    action: str = ""
    message: str = ""


NOT_READ = RepairStatus(Stage.UNKNOWN)

_REASONS = {Stage.ASKED: REQUESTED, Stage.IN_PROGRESS: IN_PROGRESS, Stage.FAILED: FAILED}
_HOLDS = frozenset({REQUESTED, IN_PROGRESS})


def is_held(findings: Iterable[Finding]) -> bool:
    """Whether the node waits for its repair or is being repaired, by the findings on record."""
    return any(finding.source == REPAIR and finding.reason in _HOLDS for finding in findings)


def is_in_progress(findings: Iterable[Finding]) -> bool:
    """Whether the node is being repaired, by the findings on record."""
    return any(finding.source == REPAIR and finding.reason == IN_PROGRESS for finding in findings)


def was_worked_on(findings: Iterable[Finding], status: RepairStatus | None) -> bool:
    """Whether a repair that was on record has just ended, so that the machine may be another than before.

    A request that was deleted while it was in progress has ended, too, whether another one follows or not.

    Args:
        findings: on the node's record.
        status: the state of the node's RepairRequest; None: there is none.
    """
    held = {finding.reason for finding in findings if finding.source == REPAIR} & _HOLDS
    if status is None or status.stage is Stage.ASKED:
        return IN_PROGRESS in held
    return bool(held) and status.stage in (Stage.DONE, Stage.FAILED)


def hold_signs(findings: Iterable[Finding], status: RepairStatus | None, now: datetime) -> list[Sign]:
    """Return the sign that keeps a node out for its repair, in spite of a user's release; none where no repair is due.

    While a repair is requested or in progress, the machine may be rebooted at any moment.

    Args:
        findings: on the node's record.
        status: the state of the node's RepairRequest; None: there is none.
        now: the time.
    """
    repair_findings = {finding.reason: finding for finding in findings if finding.source == REPAIR}
    if status is not None and status.stage is Stage.UNKNOWN:
        return [
            _sign(reason, repair_findings[reason].since, now, repair_findings[reason].message)
            for reason in _HOLDS & repair_findings.keys()
        ]
    if status is None or status.stage not in (Stage.ASKED, Stage.IN_PROGRESS):
        return []
    reason = _REASONS[status.stage]
    since = repair_findings[reason].since if reason in repair_findings else now
    repair_text = f"{status.action} of the machine" if status.action else "a repair"
    if status.stage is Stage.ASKED:
        text = f"{repair_text} is requested by the RepairRequest of the node's name; no repair system has begun it"
    else:
        text = f"{repair_text} is in progress, by the RepairRequest of the node's name"
    return [_sign(reason, since, now, f"{text}: {status.message}" if status.message else text)]


def unverified_sign(findings: Iterable[Finding], ended: datetime, now: datetime, work: str) -> Sign:
    """Return the sign that keeps a node out after work on it, until its agent has checked all of it.

    Args:
        findings: on the node's record.
        ended: when the work was seen to have ended.
        now: the time.
        work: what has ended, as a word for the message: repair or maintenance.
    """
    recorded = _recorded(findings, UNPROVEN)
    text = f"the {work} has ended, and the node's agent has not checked the whole node since"
    return _sign(UNPROVEN, recorded.since if recorded is not None else ended, now, text)


def failure_signs(findings: Iterable[Finding], status: RepairStatus | None, now: datetime) -> list[Sign]:
    """Return the sign that the repair of a node has failed, which a user's release covers; none where none has failed.

    Args:
        findings: on the node's record.
        status: the state of the node's RepairRequest; None: there is none.
        now: the time.
    """
    recorded = _recorded(findings, FAILED)
    since = recorded.since if recorded is not None else now
    if status is not None and status.stage is Stage.UNKNOWN and recorded is not None:
        return [_sign(FAILED, since, since, recorded.message)]
    if status is None or status.stage is not Stage.FAILED:
        return []
    why = f": {status.message}" if status.message else "; its RepairRequest gives no reason"
    return [_sign(FAILED, since, since, f"{status.action} of the machine has failed{why}")]


def _recorded(findings: Iterable[Finding], reason: str) -> Finding | None:
    return next((finding for finding in findings if finding.source == REPAIR and finding.reason == reason), None)


def _sign(reason: str, since: datetime, newest: datetime, message: str) -> Sign:
    """Return a sign for work of other systems on a node: it is no offence, and takes no budget."""
    return Sign(
        REPAIR,
        reason,
        Severity.DEGRADED,
        since=min(since, newest),
        newest=newest,
        action=RecommendedAction.INSPECT if reason == FAILED else RecommendedAction.NONE,
        message=message,
        planned=True,
        offence=False,
        stays=True,
    )


@dataclass(frozen=True, slots=True)
class Case:
    """A node that is out or has a RepairRequest, as its verdict and record describe it.

    Attributes:
        node: its name.
        incident_time: since when the node is out; None: it is in use.
        wants: what has to be done with the machine; None: nothing, or Muster is not the one that keeps the node out.
        reason: of the verdict.
        message: of the verdict.
        findings: of the verdict.
        node_uid: of the Node object.
        machine: the hardware.
        held: whether the node waits for its repair or is being repaired, by its record.
        is_empty: whether neither a job nor another pod with accelerators is on the node.
    """

    node: str
    incident_time: datetime | None
    wants: RepairAction | None = None
    reason: str = ""
    message: str = ""
    findings: tuple[Finding, ...] = ()
    node_uid: str = ""
    machine: Machine = Machine()
    held: bool = False
    is_empty: bool = True

    def asks(self, policy: RepairPolicy) -> RepairAction | None:
        """Return the action to request for the node now; None: the node is in use, or the policy does not request the
        action."""
        return self.wants if self.is_empty and self.wants in policy.actions else None

    def spec(self) -> RepairRequestSpec:
        """Return the spec of the RepairRequest for this node.

        The caller has made sure that `wants` and `incident_time` are set.
        """
        assert self.wants is not None
        assert self.incident_time is not None
        counting = (finding for finding in self.findings if not finding.observed)
        weighing = [finding for finding in counting if WEIGHT[finding.severity] >= WEIGHT[Severity.DEGRADED]]
        return RepairRequestSpec(
            node=self.node,
            node_uid=self.node_uid,
            action=self.wants,
            incident_time=self.incident_time,
            reason=self.reason,
            message=self.message,
            evidence=[finding for finding in weighing if finding.source != REPAIR][:MAX_REPAIR_EVIDENCE],
            machine=self.machine,
        )


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """What has to be done about RepairRequests.

    Attributes:
        ends: by node, why its request is to be deleted, in the version that was read.
        creates: nodes for which a request is to be made; their records show already that they wait for it.
        holds: nodes whose records have to show first that they wait for a repair.
        kept: by node, the state of a request that stays.
    """

    ends: Mapping[str, str]
    creates: tuple[str, ...]
    holds: tuple[str, ...]
    kept: Mapping[str, RepairStatus]


@dataclass(frozen=True, slots=True)
class ExistingRequest:
    """A RepairRequest that exists.

    Attributes:
        status: the state of the request.
        incident_time: of the incident that the request is about; None where it cannot be read.
    """

    status: RepairStatus
    incident_time: datetime | None

    @classmethod
    def from_object(cls, request: RepairRequest) -> Self:
        """Return the stage, action and incident of a RepairRequest that was read."""
        stage = {
            None: Stage.ASKED,
            RepairPhase.IN_PROGRESS: Stage.IN_PROGRESS,
            RepairPhase.DONE: Stage.DONE,
            RepairPhase.FAILED: Stage.FAILED,
        }[request.status.phase]
        return cls(RepairStatus(stage, request.spec.action.value, request.status.message), request.spec.incident_time)

    @classmethod
    def unreadable(cls, phase: str, error: str) -> Self:
        """Return a request that does not fit its schema. One that is in progress, or in a phase that only a later
        version knows, is left alone; any other is made again.

        Args:
            phase: the text in its status.
            error: why the object cannot be read.
        """
        stage = Stage.ASKED if phase in ("", RepairPhase.DONE, RepairPhase.FAILED) else Stage.IN_PROGRESS
        return cls(RepairStatus(stage, "", f"the RepairRequest cannot be read ({error[:256]})"), None)


@dataclass(frozen=True, slots=True)
class RepairWorld:
    """All that the plan of repairs reads, as one frozen value.

    Attributes:
        cases: by name, the nodes that are out or have a request; absent: nothing is known of the node just now.
        requests: by node, all requests that exist.
        policy: what to request; without actions, only repairs in progress are awaited.
        missing_seconds: by name, for how long each node that does not exist has been missing, as far as known.
        resting: nodes for which no repair is requested now.
    """

    cases: Mapping[str, Case]
    requests: Mapping[str, ExistingRequest]
    policy: RepairPolicy
    missing_seconds: Mapping[str, float] = field(default_factory=dict)
    resting: Collection[str] = frozenset()


def plan(world: RepairWorld) -> RepairPlan:
    """Return which RepairRequests to make, to keep and to delete."""
    why_ended = {
        name: _why_ended(world.cases.get(name), request, world.policy, world.missing_seconds.get(name))
        for name, request in world.requests.items()
    }
    kept = {name: request.status for name, request in world.requests.items() if not why_ended[name]}
    room = world.policy.max_concurrent - sum(
        status.stage in (Stage.ASKED, Stage.IN_PROGRESS) for status in kept.values()
    )
    chosen = _waiting(world)[: max(0, room)]
    return RepairPlan(
        {name: why for name, why in why_ended.items() if why},
        tuple(case.node for case in chosen if case.held),
        tuple(case.node for case in chosen if not case.held),
        kept,
    )


def _waiting(world: RepairWorld) -> list[Case]:
    """Return the nodes that need a request and have none; the one that has been out for longest comes first.

    A node that is held already comes before all others, or its record would be changed to and fro.
    """
    waiting = [
        case
        for name, case in world.cases.items()
        if case.asks(world.policy)
        and case.incident_time is not None
        and name not in world.requests
        and name not in world.resting
    ]
    return sorted(waiting, key=lambda case: (not case.held, case.incident_time, case.node))


def _why_ended(case: Case | None, request: ExistingRequest, policy: RepairPolicy, missing_seconds: float | None) -> str:
    """Return why a RepairRequest is to be deleted; "" if it stays.

    Args:
        case: the node; None: nothing is known of it just now.
        request: the node's request.
        policy: what to request.
        missing_seconds: for how long the node has been missing; None: it exists.
    """
    stage, action = request.status.stage, request.status.action
    if missing_seconds is not None:
        return "the node is gone" if stage is not Stage.IN_PROGRESS or missing_seconds >= GONE_SECONDS else ""
    if stage is Stage.IN_PROGRESS or case is None:
        return ""
    if case.held and stage is not Stage.ASKED:
        return ""  # the end of the repair is recorded first
    if case.incident_time is None:
        return "the node is in use again"
    if case.incident_time != request.incident_time:
        return "the request is about a fault that has ended"
    if stage is Stage.ASKED:
        if not policy.actions:
            return "the FleetPolicy requests no repairs"
        if not case.is_empty:
            return NOT_EMPTY
        return "" if case.asks(policy) == action else "the node needs another action now, or none"
    wants = case.asks(policy)
    if wants is not None and EFFORT[wants.value] > EFFORT[action]:
        return f"the node needs {wants.value} now"
    return ""

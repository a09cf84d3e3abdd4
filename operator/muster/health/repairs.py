"""Repairs that others do: what a request means for its node, and which requests there have to be. Pure.

A node is held from before its request exists until after it has ended, so that no job is there when whoever repairs
takes it on. Nobody has to be fast for that: the hold is on record in NodeHealth before the request is made, and a
request that nobody has taken on is deleted only as it was read. Either the deletion wins or the one who repairs, and
only after the deletion the node comes back.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

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

NOT_EMPTY = "somebody uses the node"

LOOK_SECONDS = 90.0
"""An agent that is Ready so long after a repair has looked at everything since: its last complete look is at most 60 s
old while it says that it is ready, and the kubelet takes two askings, ten seconds apart, to believe that it is not."""

GONE_SECONDS = 86400.0
"""For so long a node may be missing while it is repaired: machines that are installed anew come back under the old
name."""


class Stage(StrEnum):
    """Where a repair stands. Asked: nobody has taken it on, or the request is about to be made. Unknown: requests have
    not been read yet."""

    UNKNOWN = "Unknown"
    ASKED = "Asked"
    IN_PROGRESS = "InProgress"
    DONE = "Done"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class RepairWord:
    """What the request for a node says.

    Attributes:
        action: what is to be done; "" where that cannot be read.
        message: of whoever repairs.
    """

    stage: Stage
    action: str = ""
    message: str = ""


NOT_READ = RepairWord(Stage.UNKNOWN)

_REASONS = {Stage.ASKED: REQUESTED, Stage.IN_PROGRESS: IN_PROGRESS, Stage.FAILED: FAILED}
_HOLDS = frozenset({REQUESTED, IN_PROGRESS})


def is_held(findings: Iterable[Finding]) -> bool:
    """Whether it is on record that the node waits for its repair."""
    return any(finding.source == REPAIR and finding.reason in _HOLDS for finding in findings)


def is_in_progress(findings: Iterable[Finding]) -> bool:
    """Whether it is on record that somebody has it who repairs it."""
    return any(finding.source == REPAIR and finding.reason == IN_PROGRESS for finding in findings)


def was_worked_on(findings: Iterable[Finding], word: RepairWord | None) -> bool:
    """Whether a repair has just ended that was on record: the machine is not the one that it was.

    A request that somebody has deleted while it was in progress has ended, too, whether another one follows or not.
    """
    held = {finding.reason for finding in findings if finding.source == REPAIR} & _HOLDS
    if word is None or word.stage is Stage.ASKED:
        return IN_PROGRESS in held
    return bool(held) and word.stage in (Stage.DONE, Stage.FAILED)


def holds(findings: Iterable[Finding], word: RepairWord | None, now: datetime) -> list[Sign]:
    """What keeps the node out whatever a human's release says: somebody may reboot it at any moment."""
    known = {finding.reason: finding for finding in findings if finding.source == REPAIR}
    if word is not None and word.stage is Stage.UNKNOWN:
        return [_sign(reason, known[reason].since, now, known[reason].message) for reason in _HOLDS & known.keys()]
    if word is None or word.stage not in (Stage.ASKED, Stage.IN_PROGRESS):
        return []
    reason = _REASONS[word.stage]
    since = known[reason].since if reason in known else now
    what = f"{word.action} of the machine" if word.action else "a repair"
    if word.stage is Stage.ASKED:
        text = f"{what} is asked for by the RepairRequest of the node's name; nobody has taken it on"
    else:
        text = f"{what} is in progress, says the RepairRequest of the node's name"
    return [_sign(reason, since, now, f"{text}: {word.message}" if word.message else text)]


def unproven(
    findings: Iterable[Finding], ended: datetime, is_seen: bool, now: datetime, what: str = "repair"
) -> list[Sign]:
    """What keeps a node out that was worked on until its agent has looked at all of it: that somebody says so repairs
    nothing.

    Args:
        findings: as they are on record.
        ended: when the repair was seen to have ended.
        is_seen: the agent is Ready, and has looked at this boot.
        what: has ended, for people.
    """
    if is_seen and (now - ended).total_seconds() >= LOOK_SECONDS:
        return []
    old = next((each for each in findings if each.source == REPAIR and each.reason == UNPROVEN), None)
    text = f"its {what} has ended, and its agent has not looked at everything since"
    return [_sign(UNPROVEN, old.since if old is not None else ended, now, text)]


def failures(findings: Iterable[Finding], word: RepairWord | None, now: datetime) -> list[Sign]:
    """That a repair has failed; a human's release covers it."""
    old = next((each for each in findings if each.source == REPAIR and each.reason == FAILED), None)
    since = old.since if old is not None else now
    if word is not None and word.stage is Stage.UNKNOWN and old is not None:
        return [_sign(FAILED, since, since, old.message, RecommendedAction.INSPECT)]
    if word is None or word.stage is not Stage.FAILED:
        return []
    why = f": {word.message}" if word.message else "; its RepairRequest does not say why"
    text = f"{word.action} of the machine has failed{why}"
    return [_sign(FAILED, since, since, text, RecommendedAction.INSPECT)]


def _sign(
    reason: str,
    since: datetime,
    newest: datetime,
    message: str,
    action: RecommendedAction = RecommendedAction.NONE,
) -> Sign:
    """A mark of ours for what others do: it charges nobody, and takes no budget."""
    return Sign(
        REPAIR,
        reason,
        Severity.DEGRADED,
        since=min(since, newest),
        newest=newest,
        action=action,
        message=message,
        planned=True,
        offence=False,
        stays=True,
    )


@dataclass(frozen=True, slots=True)
class Case:
    """A node as its verdict and its record have it.

    Attributes:
        incident: since when it is out; None: it is in use.
        wants: what has to be done with it, where it is Muster that keeps it out; None: nothing, or it is for somebody
            else to say.
        reason: of its verdict.
        message: likewise.
        findings: of its verdict.
        node_uid: of the Node object.
        machine: the hardware.
        held: whether its record says that it waits for its repair, or that this is in progress.
        is_empty: no job, and nobody else's pod with accelerators, is on it.
    """

    node: str
    incident: datetime | None
    wants: RepairAction | None = None
    reason: str = ""
    message: str = ""
    findings: tuple[Finding, ...] = ()
    node_uid: str = ""
    machine: Machine = Machine()
    held: bool = False
    is_empty: bool = True

    def asks(self, policy: RepairPolicy) -> RepairAction | None:
        """What is to be asked for now."""
        return self.wants if self.is_empty and self.wants in policy.actions else None

    def spec(self) -> RepairRequestSpec:
        """The request for it."""
        assert self.wants is not None
        assert self.incident is not None
        counting = (each for each in self.findings if not each.observed)
        weighing = [each for each in counting if WEIGHT[each.severity] >= WEIGHT[Severity.DEGRADED]]
        return RepairRequestSpec(
            node=self.node,
            node_uid=self.node_uid,
            action=self.wants,
            incident_time=self.incident,
            reason=self.reason,
            message=self.message,
            evidence=[each for each in weighing if each.source != REPAIR][:MAX_REPAIR_EVIDENCE],
            machine=self.machine,
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """What has to become of the requests.

    Attributes:
        ends: requests to be deleted as they were read, by node, and why.
        creates: nodes for which one is to be made: their hold is on record.
        holds: nodes that are to be held first.
        kept: requests that stay, by node.
    """

    ends: Mapping[str, str]
    creates: tuple[str, ...]
    holds: tuple[str, ...]
    kept: Mapping[str, RepairWord]


@dataclass(frozen=True, slots=True)
class Request:
    """A request that exists.

    Attributes:
        incident: which it is about; None where it cannot be read.
    """

    word: RepairWord
    incident: datetime | None

    @classmethod
    def of(cls, found: RepairRequest) -> "Request":
        """One that was read."""
        stage = {
            None: Stage.ASKED,
            RepairPhase.IN_PROGRESS: Stage.IN_PROGRESS,
            RepairPhase.DONE: Stage.DONE,
            RepairPhase.FAILED: Stage.FAILED,
        }[found.status.phase]
        return cls(RepairWord(stage, found.spec.action.value, found.status.message), found.spec.incident_time)

    @classmethod
    def unreadable(cls, phase: str, error: str) -> "Request":
        """One that does not fit its schema. Whoever is at work is let be; otherwise it is asked for anew."""
        stage = Stage.IN_PROGRESS if phase == RepairPhase.IN_PROGRESS else Stage.ASKED
        return cls(RepairWord(stage, "", f"it cannot be read ({error[:256]})"), None)


def plan(
    cases: Mapping[str, Case],
    requests: Mapping[str, Request],
    policy: RepairPolicy,
    missing_seconds: Mapping[str, float],
    resting: Collection[str] = frozenset(),
) -> Plan:
    """What to make, keep and delete; whoever has been out for longest comes first.

    Args:
        cases: all nodes that are out, and those that have a request; absent: of that node nothing is known just now.
        requests: all that there are, by name.
        policy: what is asked for; without actions only what is in progress is seen through.
        missing_seconds: nodes that do not exist, and for how long, as far as this process knows.
        resting: nodes for which nothing is asked for now.
    """
    ends: dict[str, str] = {}
    kept: dict[str, RepairWord] = {}
    for name, request in requests.items():
        why = _why_ended(cases.get(name), request, policy, missing_seconds.get(name))
        if why:
            ends[name] = why
        else:
            kept[name] = request.word
    room = policy.max_concurrent - sum(word.stage in (Stage.ASKED, Stage.IN_PROGRESS) for word in kept.values())
    wanting = [
        case
        for name, case in cases.items()
        if case.asks(policy) and case.incident is not None and name not in requests and name not in resting
    ]
    # Whoever is held already goes on being held, or the record would be written to and fro.
    wanting.sort(key=lambda case: (not case.held, case.incident, case.node))
    chosen = wanting[: max(0, room)]
    return Plan(
        ends,
        tuple(case.node for case in chosen if case.held),
        tuple(case.node for case in chosen if not case.held),
        kept,
    )


def _why_ended(case: Case | None, request: Request, policy: RepairPolicy, missing_seconds: float | None) -> str:
    """Why a request is to be deleted; "" if it stays."""
    stage, action = request.word.stage, request.word.action
    if missing_seconds is not None:
        return "the node is gone" if stage is not Stage.IN_PROGRESS or missing_seconds >= GONE_SECONDS else ""
    if stage is Stage.IN_PROGRESS or case is None:
        return ""
    if case.held and stage is not Stage.ASKED:
        return ""  # that the machine was worked on goes on record first
    if case.incident is None:
        return "the node is in use again"
    if case.incident != request.incident:
        return "it is about a fault that is over"
    if stage is Stage.ASKED:
        if not policy.actions:
            return "the FleetPolicy asks for no repairs"
        if not case.is_empty:
            return NOT_EMPTY
        return "" if case.asks(policy) == action else "something else has to be done now, or nothing"
    wants = case.asks(policy)
    if wants is not None and EFFORT[wants.value] > EFFORT[action]:
        return f"{wants.value} has to be done now"
    return ""

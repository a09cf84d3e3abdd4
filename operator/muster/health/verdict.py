"""The verdict on one node, in four parts by their readers, and what follows from it for jobs.

Tests: tests/unit/health/test_assess.py, tests/unit/health/test_observe.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from muster.api.maintenance import NodeMaintenance
from muster.api.nodehealth import (
    CheckResult,
    Evacuate,
    Finding,
    HealthIncident,
    Offences,
    RecommendedAction,
    Severity,
    VerdictState,
)
from muster.health.repairs import is_in_progress
from muster.health.signs import MAINTENANCE, WEIGHT
from muster.world.fleet import Removal

CORDONED = "Cordoned"
RELEASED = "Released"
REPEAT_OFFENDER = "RepeatOffender"
AWAITS_BURN_IN = "AwaitsBurnIn"

OUT = {VerdictState.VALIDATING: 0, VerdictState.DEGRADED: 1, VerdictState.UNHEALTHY: 2, VerdictState.QUARANTINED: 3}


@dataclass(frozen=True, slots=True)
class ObservedEffect:
    """What would follow for a node if the findings counted that the policy only observes.

    Attributes:
        state: the verdict that the node would have.
        reason: of the strongest observed finding.
        message: of that finding, as text for users of all tenants.
        evacuate: when jobs would leave the node.
        in_charge: the system to which the node would be left for repair; "" if none.
    """

    state: VerdictState
    reason: str
    message: str
    evacuate: Evacuate
    in_charge: str = ""


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What people read of a verdict: in NodeHealth, in the Node's condition, in Events and metrics.

    Attributes:
        state: None while nothing is known.
        reason: of the strongest finding, in CamelCase.
        message: what happened, as text for users.
        findings: everything that counts or is observed, strongest first.
        since: when the node entered this state; None while nothing is known.
        own: the state without the marks of other systems. What they may react to follows it, so that their answer
            cannot hold what it answers. None: Muster itself knows nothing of the node.
        would: what the findings that are only observed would change; None: nothing.
    """

    state: VerdictState | None
    reason: str = ""
    message: str = ""
    findings: tuple[Finding, ...] = ()
    since: datetime | None = None
    own: VerdictState | None = None
    would: ObservedEffect | None = None


@dataclass(frozen=True, slots=True)
class Grounds:
    """What has the node out: the breaker and the effects on jobs follow from it.

    Attributes:
        causes: the causes to which the breaker may charge its budget, strongest first; at least one while the node is
            out.
        certain: whether independent signs report the same fault (`muster.health.causes`).
        fatal: whether jobs should leave at once, not after their next checkpoint.
        stays: whether no finding that has the node out blames its hardware, so that running jobs stay.
        needs_boot: whether only another boot ends what has the node out.
        cordoned: whether a user has cordoned the node in NodeHealth.
        in_charge: the other system that repairs the node; "" if none.
        maintenance: the maintenance window that applies to the node; None: none is near.
        removal: how and when the machine is removed; None: it is not.
        gone_by: when running jobs must have left for a window or a removal of the machine; None: no time is known.
        only_planned: whether only a window or a removal has the node out, so that no budget applies.
    """

    causes: tuple[str, ...] = ()
    certain: bool = False
    fatal: bool = False
    stays: bool = False
    needs_boot: bool = False
    cordoned: bool = False
    in_charge: str = ""
    maintenance: NodeMaintenance | None = None
    removal: Removal | None = None
    gone_by: datetime | None = None
    only_planned: bool = False


@dataclass(frozen=True, slots=True)
class Record:
    """What lasts: the next verdict begins with it, under whatever leader.

    Attributes:
        incidents: newest last; the last one is open while the node is out.
        offences: the machine's account of offences.
        offences_if_taken: the account once Muster takes the node out. A node that the breaker holds, or that another
            system repairs, is not charged.
        earlier_offences: the accounts of other machines that had the node's name before.
        node_uid: the UID of the judged Node object.
        boot_id: the boot id of the node when it was judged.
        check: the result of the last test that a user requested.
    """

    incidents: tuple[HealthIncident, ...] = ()
    offences: Offences = Offences()
    offences_if_taken: Offences = Offences()
    earlier_offences: tuple[Offences, ...] = ()
    node_uid: str = ""
    boot_id: str = ""
    check: CheckResult | None = None


@dataclass(frozen=True, slots=True)
class FollowUp:
    """What is to be done later: repair the machine, judge the node again, test it.

    Attributes:
        recommended_action: what should be done with the machine.
        repair: the same about the fault alone; marks of a running repair do not change it.
        wake: when to evaluate the node again even if nothing changes; None: never.
        faded: whether the offences have faded enough, by the given time, to end the quarantine on record.
        followed: the time of the newest job failure that counts against the node; None: none counts.
        wants_check: whether those failures are of several owners, so that the node should be tested.
        asked_by: these owners.
    """

    recommended_action: RecommendedAction = RecommendedAction.NONE
    repair: RecommendedAction = RecommendedAction.NONE
    wake: datetime | None = None
    faded: bool = False
    followed: datetime | None = None
    wants_check: bool = False
    asked_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What Muster concludes about one node now. NodeHealth records most of it.

    Attributes:
        conclusion: what people read.
        grounds: what has the node out.
        record: what lasts.
        follow_up: what is to be done later.
    """

    conclusion: Conclusion
    grounds: Grounds = Grounds()
    record: Record = Record()
    follow_up: FollowUp = FollowUp()

    @property
    def out(self) -> bool:
        """Whether the node should not be used: it is Validating, Degraded, Unhealthy or Quarantined."""
        return self.conclusion.state in OUT

    @property
    def handed_over(self) -> bool:
        """Whether a repair by another system is in progress, so that the node may go down at any moment."""
        return is_in_progress(self.conclusion.findings)

    @property
    def open_incident(self) -> HealthIncident | None:
        """The incident that has the node out now; None: the node is not out."""
        last = self.record.incidents[-1] if self.record.incidents else None
        return last if last is not None and last.cleared_time is None else None

    def after_taking_out(self, now: datetime, cause: str = "", certain: bool = False, pool: str = "") -> "Verdict":
        """Return the verdict whose incident records that Muster takes the node out, with the offence charged.

        It has to be recorded before anything is done. A verdict without an open incident is returned as it is.

        Args:
            now: when Muster takes the node out.
            cause: the cause to which the breaker's budget is charged.
            certain: whether the budget's part for certain faults is used.
            pool: the pool whose budget is used.
        """
        taken_out_fields = {"taken_out_time": now, "charged_to": cause, "certain": certain, "pool": pool}
        return self._with_incident(taken_out_fields, self.record.offences_if_taken)

    def after_yielding(self, now: datetime) -> "Verdict":
        """Return the verdict with its incident marked as left to the system that repairs the node; nothing is charged.

        A verdict without an open incident is returned as it is.
        """
        return self._with_incident({"yielded_time": now}, self.record.offences)

    def _with_incident(self, changes: Mapping[str, object], offences: Offences) -> "Verdict":
        if self.open_incident is None:
            return self
        incidents = (*self.record.incidents[:-1], changed(self.open_incident, changes))
        return replace(self, record=replace(self.record, incidents=incidents, offences=offences))


def changed(incident: HealthIncident, changes: Mapping[str, object]) -> HealthIncident:
    """Return the incident with some values replaced, which are cut to the lengths that the API allows."""
    return HealthIncident.model_validate({**dict(incident), **changes}) if changes else incident


def node_fault(verdict: Verdict) -> str:
    """Return the fault of a node that is out, as `reason: message` for users of all tenants; "" where nothing is wrong
    with the node.

    A cordon, a planned window or removal, and the wait for a burn-in are no faults.
    """
    conclusion, grounds = verdict.conclusion, verdict.grounds
    counting = (finding for finding in conclusion.findings if not finding.observed)
    weighing = (finding for finding in counting if WEIGHT[finding.severity] >= WEIGHT[Severity.DEGRADED])
    fault = next((finding for finding in weighing if finding.source != MAINTENANCE), None)
    harmless = grounds.cordoned or grounds.only_planned or conclusion.state is VerdictState.VALIDATING
    if not verdict.out or (fault is None and harmless):
        return ""
    return f"{fault.reason}: {fault.message}" if fault is not None else f"{conclusion.reason}: {conclusion.message}"

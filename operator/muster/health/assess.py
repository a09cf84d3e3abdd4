"""The verdict on one node, from all reports about it.

`assess` is a pure function of stored objects and the time. Its inputs are the agent's evidence, marks of other systems,
failures of jobs, decisions of users and the last verdict. Lasting facts are read from the status that was written last.
These are incidents, offences and findings that only a reboot ends. So a new leader continues where the old one stopped.

Without a report there is no verdict: a node without an agent and without a mark has no state. A time in the future
counts as now, so that a clock that jumps neither takes a node out nor releases it.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from muster.api.fleetpolicy import SourceName
from muster.api.maintenance import NodeMaintenance
from muster.api.nodehealth import (
    MAX_EVIDENCE,
    MAX_INCIDENTS,
    AgentStatus,
    CheckResult,
    Decision,
    Evidence,
    Finding,
    HealthIncident,
    HumanDecision,
    NodeHealth,
    NodeHealthStatus,
    Offences,
    RecommendedAction,
    Severity,
    VerdictState,
)
from muster.health.causes import causes_of, is_certain
from muster.health.equals import FEWER_THAN_EQUALS, Lack
from muster.health.facts import NodeFacts
from muster.health.job_failures import Following, following
from muster.health.kinds import latched, sign_of
from muster.health.maintenance import REASONS, MaintenanceState, was_within
from muster.health.memory import (
    MachineOffences,
    accounts_to_keep,
    charged_score,
    identity,
    identity_to_keep,
    may_be_same,
    same_machine,
    score,
)
from muster.health.repairs import (
    LOOK_SECONDS,
    RepairStatus,
    failure_signs,
    hold_signs,
    is_in_progress,
    unverified_signs,
    was_worked_on,
)
from muster.health.signs import (
    AGENT,
    BURN_IN,
    CHECK_WANTED,
    EFFORT,
    FAILED_BURN_IN,
    FOLLOWED_BY_FAILURES,
    JOBS,
    MAINTENANCE,
    OWN_SOURCES,
    REPAIR,
    WEIGHT,
    Clears,
    Sign,
)
from muster.health.silence import AGENT_SILENT, Silence
from muster.health.sources import Rules, in_charge
from muster.world.fleet import Evacuate, Removal, Suspicion
from muster.world.jobfailures import JobFailureReport

SAME_FAULT_SECONDS = 30 * 86400
"""A fault that comes back within this time was not repaired by what was done about it."""

ONE_FAULT_SECONDS = 3600
"""A fault that comes back this soon after it was charged, in the same boot and for the same cause, is charged once."""

STEADY_SECONDS = (0, 900)
"""For how long another system's mark counts at least, the first and the second time within `ONE_FAULT_SECONDS`. From
the third time on it counts for `ONE_FAULT_SECONDS`."""

CLOCK_ERROR_SECONDS = 300
"""A user's release with a time further in the future waits for that time, or it would cover faults not seen yet."""

CORDONED = "Cordoned"
RELEASED = "Released"
REPEAT_OFFENDER = "RepeatOffender"
AWAITS_BURN_IN = "AwaitsBurnIn"

ANOTHER_MACHINE = "another machine has the node's name now"


OUT = {VerdictState.VALIDATING: 0, VerdictState.DEGRADED: 1, VerdictState.UNHEALTHY: 2, VerdictState.QUARANTINED: 3}
_STATES = (VerdictState.HEALTHY, VerdictState.SUSPECT, VerdictState.DEGRADED, VerdictState.UNHEALTHY)


@dataclass(frozen=True, slots=True)
class FailedBurnIn:
    """A burn-in test that a node has failed: Muster's own checkers measured it, beside nodes that are proven.

    Attributes:
        boot: the node's boot id at that time; "" if it was not known.
        probe: the name of the failed probe.
        message: what was measured.
        time: when the test failed.
        job: `namespace/name` of the job that the node was tested for; "" for a node that no job had.
    """

    boot: str
    probe: str
    message: str
    time: datetime
    job: str = ""


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
class Verdict:
    """What Muster concludes about one node now. NodeHealth records most of it.

    Attributes:
        state: None while nothing is known.
        reason: of the strongest finding, in CamelCase.
        message: what happened, as text for users.
        recommended_action: what should be done with the machine.
        findings: everything that counts or is observed, strongest first.
        since: when the node entered this state; None while nothing is known.
        incidents: newest last; the last one is open while the node is out.
        offences: the machine's account of offences.
        offences_if_taken: the account once Muster takes the node out. A node that the breaker holds, or that another
        system repairs, is not charged.
        earlier_offences: the accounts of other machines that had the node's name before.
        node_uid: the UID of the judged Node object.
        boot_id: the boot id of the node when it was judged.
        fatal: whether jobs should leave at once, not after their next checkpoint.
        needs_boot: whether only another boot ends what has the node out.
        cordoned: whether a user has cordoned the node in NodeHealth.
        in_charge: the other system that repairs the node; "" if none.
        causes: the causes to which the breaker may charge its budget, strongest first; at least one while the node is
        out.
        certain: whether independent signs report the same fault (`muster.health.causes`).
        wake: when to evaluate the node again even if nothing changes; None: never.
        stays: whether no finding that has the node out blames its hardware, so that running jobs stay.
        check: the result of the last test that a user requested.
        followed: the time of the newest job failure that counts against the node; None: none counts.
        wants_check: whether those failures are of several owners, so that the node should be tested.
        asked_by: these owners.
        repair: what has to be done with the machine about the fault; marks of a running repair do not change it.
        maintenance: the maintenance window that applies to the node; None: none is near.
        gone_by: when running jobs must have left for a window or a removal of the machine; None: no time is known.
        only_planned: whether only a window or a removal has the node out, so that no budget applies.
        removal: how and when the machine is removed; None: it is not.
        would: what the findings that are only observed would change; None: nothing.
        faded: whether the offences have faded enough, by the given time, to end the quarantine on record.
        own: the state without the marks of other systems. What they may react to follows it, so that their answer
            cannot hold what it answers. None: Muster itself knows nothing of the node.
    """

    state: VerdictState | None
    reason: str
    message: str
    recommended_action: RecommendedAction
    findings: tuple[Finding, ...]
    since: datetime | None
    incidents: tuple[HealthIncident, ...]
    offences: Offences
    offences_if_taken: Offences = Offences()
    earlier_offences: tuple[Offences, ...] = ()
    node_uid: str = ""
    boot_id: str = ""
    fatal: bool = False
    needs_boot: bool = False
    cordoned: bool = False
    in_charge: str = ""
    causes: tuple[str, ...] = ()
    certain: bool = False
    stays: bool = False
    wake: datetime | None = None
    check: CheckResult | None = None
    followed: datetime | None = None
    wants_check: bool = False
    asked_by: tuple[str, ...] = ()
    repair: RecommendedAction = RecommendedAction.NONE
    maintenance: NodeMaintenance | None = None
    gone_by: datetime | None = None
    only_planned: bool = False
    removal: Removal | None = None
    would: ObservedEffect | None = None
    faded: bool = False
    own: VerdictState | None = None

    @property
    def out(self) -> bool:
        """Whether the node should not be used: it is Validating, Degraded, Unhealthy or Quarantined."""
        return self.state in OUT

    @property
    def handed_over(self) -> bool:
        """Whether a repair by another system is in progress, so that the node may go down at any moment."""
        return is_in_progress(self.findings)

    @property
    def open_incident(self) -> HealthIncident | None:
        """The incident that has the node out now; None: the node is not out."""
        last = self.incidents[-1] if self.incidents else None
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
        if self.open_incident is None:
            return self
        acted = _changed(
            self.open_incident, {"taken_out_time": now, "charged_to": cause, "certain": certain, "pool": pool}
        )
        return replace(self, incidents=(*self.incidents[:-1], acted), offences=self.offences_if_taken)

    def after_yielding(self, now: datetime) -> "Verdict":
        """Return the verdict with its incident marked as left to the system that repairs the node; nothing is charged.

        A verdict without an open incident is returned as it is.
        """
        if self.open_incident is None:
            return self
        return replace(self, incidents=(*self.incidents[:-1], _changed(self.open_incident, {"yielded_time": now})))


def assess(
    facts: NodeFacts,
    health: NodeHealth,
    rules: Rules,
    now: datetime,
    *,
    memory: MachineOffences | None = None,
    reports: Sequence[JobFailureReport] = (),
    burn_ins: Sequence[FailedBurnIn] = (),
    passed: datetime | None = None,
    answered: datetime | None = None,
    silence: Silence | None = None,
    lack: Lack | None = None,
    repair: RepairStatus | None = None,
    time_is_sure: bool = True,
) -> Verdict:
    """Return the verdict on one node, from stored objects and the time alone.

    Args:
        facts: the Node object.
        health: the node's NodeHealth: evidence, decisions of users, and the last verdict.
        rules: the fleet's policy.
        now: the time.
        memory: the offences of all machines; None: none is remembered.
        reports: failures of jobs that have followed the node.
        burn_ins: tests that the node has failed, as far as records of gangs still hold them.
        passed: when the node last passed a test, if the pass still holds; None: it has none.
        answered: failures of jobs before this time do not count, because the node passed a thorough test then, or was
            another machine. None: all count.
        silence: of the node's agent; None: the agent is not silent.
        lack: what the machine has less of than its peers; None: nothing.
        repair: the state of the node's RepairRequest; None: there is none.
        time_is_sure: whether `now` may end a quarantine: the clock has shown for a while that the offences have faded.
    """
    before = health.status
    machine = identity(before.agent)
    replaced = _is_replaced(machine, before, facts)
    earlier = () if replaced else tuple(before.findings)
    boot = before.agent.boot_id if before.agent and before.agent.boot_id else facts.node.boot_id
    known = {(finding.source, finding.reason, finding.subject): finding for finding in earlier}

    marks, ripe = rules.signs(facts, known, now)
    signs = marks
    if AGENT in rules.listens:
        said = [
            each
            for each in before.evidence
            if _of_this_boot(each, before.agent)
            and not rules.ignored_ports.ignores(facts.node.labels, each, before.agent)
        ]
        signs = [*signs, *_agent_signs(said, before, earlier, boot, now), *_silence_signs(silence, known, now)]
        signs = [*signs, *_lack_signs(lack, known, _released(health.spec.override, now), now)]
    if BURN_IN in rules.listens:
        signs = [*signs, *_burn_in_signs(burn_ins, earlier, boot, now)]
    steady_until = _steady_until(before, boot, _released(health.spec.override, now), now)
    if steady_until is not None:
        signs = [*signs, *_kept_signs(before, earlier, rules)]
    signs = [*signs, *failure_signs(before.findings, repair, now)]
    followed = _following(reports, before, health.spec.override, answered, now) if JOBS in rules.listens else None
    signs = sorted(_distinct([*signs, *([_job_sign(followed)] if followed else [])]), key=lambda sign: sign.strength)

    human = health.spec.override
    released = _released(human, now)
    signs = [_steady(sign, known, now) for sign in signs]
    # A user's release does not stop the removal of the machine.
    waivable = [s for s in signs if s.removal is None]
    waived = [s for s in waivable if released and _is_waived(s, known, released, before, now)]
    forgiven = {s.key for s in waived}
    unforgiven = [_renewed(s, known, released, now) for s in signs if s.key not in forgiven]
    watched = [sign for sign in unforgiven if rules.observes(sign)]
    standing = [sign for sign in unforgiven if not rules.observes(sign)]
    fades = followed.ends if followed else None
    if any(sign.source == JOBS for sign in watched):
        followed = None
    past = [*before.incidents]
    was_open = past.pop() if past and past[-1].cleared_time is None else None
    if replaced and was_open:
        past.append(_closed(was_open, ANOTHER_MACHINE, now))
        was_open = None
    window, next_stage = rules.windows.state_of_node(facts.node, now)
    if was_open:
        was_open = _worked_on(was_open, before, repair, window, now)
    faults = sorted((sign for sign in standing if sign.source != REPAIR), key=lambda sign: sign.strength)
    standing += hold_signs(before.findings, repair, now)
    standing += [] if window is None else [window.sign(known, now)]
    ended = was_open.repair_ended_time if was_open and AGENT in rules.listens and before.agent else None
    if ended is not None and (released is None or released < ended):
        what = "maintenance" if was_open and was_open.reason in REASONS else "repair"
        standing += unverified_signs(before.findings, ended, _is_seen(before.agent, silence, facts), now, what)
    standing.sort(key=lambda sign: sign.strength)
    weighing = [sign for sign in standing if sign.weighs >= WEIGHT[Severity.DEGRADED]]

    account = _Account.from_record(before, machine, replaced, rules, memory, now)
    worst = max((sign.weighs for sign in standing), default=0)
    cordoned = human is not None and human.decision is Decision.CORDON
    blamed = any(sign.offence for sign in weighing)
    faded = account.has_faded(was_open, released)
    stays_in = account.quarantines(blamed, was_open, released) or (faded and not time_is_sure)
    quarantined = not cordoned and stays_in

    removal = _removal(standing)
    state = _state(worst, cordoned, quarantined, before.agent is not None or bool(signs or window))
    seen = [sign for sign in standing if sign.source in OWN_SOURCES]
    most = max((sign.weighs for sign in seen), default=0)
    own = _state(most, cordoned, quarantined, before.agent is not None or bool(seen))
    would = None if cordoned or quarantined else _observed_effect(standing, watched, worst, facts.node.unschedulable)
    forgiven_now = [replace(s, severity=Severity.INFO) for s in waived]
    listed = _signs_that_fit([*standing, *watched, *forgiven_now])
    findings = tuple(
        _finding(sign, known, observed=rules.observes(sign), forgiven=sign.key in forgiven) for sign in listed
    )
    strongest = standing[0] if standing and standing[0].weighs else None
    reason, message = _reason_and_message(
        state, human, cordoned, quarantined, account, strongest, bool(standing or waived), before.agent
    )
    let_go = _is_only_observed_now(was_open, watched, weighing)
    untested = not let_go and _is_to_pass(was_open, released, rules, passed)
    by_others = any(sign.source not in OWN_SOURCES and was_open and sign.reason == was_open.reason for sign in standing)
    if own in (VerdictState.HEALTHY, VerdictState.SUSPECT) and untested and not by_others:
        own = VerdictState.VALIDATING
    if state in (VerdictState.HEALTHY, VerdictState.SUSPECT) and untested:
        state, reason = VerdictState.VALIDATING, AWAITS_BURN_IN
        message = "no finding counts against the node any more; its checker tests it before Muster uses it again"
    incidents = _incidents(past, was_open, state, reason, message, cordoned, human, released, boot, now, let_go)
    unchanged = before.state is state and not replaced
    causes = causes_of(standing, reason)
    return Verdict(
        state=state,
        reason=reason,
        message=message,
        recommended_action=_action(standing, worst, quarantined, past),
        findings=findings,
        since=None if state is None else (before.since if unchanged and before.since else now),
        incidents=incidents,
        offences=account.offences,
        offences_if_taken=account.charged()
        if blamed and not account.has_paid(past, causes, boot, released)
        else account.offences,
        earlier_offences=account.earlier,
        node_uid=facts.node.uid,
        boot_id=boot,
        check=before.check,
        fatal=worst >= WEIGHT[Severity.FATAL],
        needs_boot=any(s.clears is Clears.BOOT and s.weighs >= WEIGHT[Severity.DEGRADED] for s in standing),
        cordoned=cordoned,
        in_charge="" if cordoned else in_charge(standing, facts.node.unschedulable),
        causes=causes,
        certain=is_certain(standing),
        followed=followed.newest if followed else None,
        wants_check=followed is not None and followed.wants_check,
        asked_by=followed.owners if followed is not None and followed.wants_check else (),
        repair=_repair(faults, quarantined, past),
        maintenance=window.recorded if window is not None else None,
        gone_by=_earliest(window.gone_by if window else None, removal.gone_by if removal else None),
        only_planned=(window is not None or removal is not None)
        and not (cordoned or quarantined)
        and all(sign.stays or (sign.planned if removal else sign.source == MAINTENANCE) for sign in weighing),
        removal=removal,
        stays=bool(weighing) and all(sign.stays for sign in weighing) and not (cordoned or quarantined),
        would=would,
        faded=faded,
        own=own,
        wake=min(
            (
                moment
                for moment in (
                    ripe,
                    next_stage,
                    fades,
                    steady_until,
                    account.quarantine_ends if quarantined and not faded else None,
                    human.time if human and released is None and human.decision is Decision.RELEASE else None,
                    ended + timedelta(seconds=LOOK_SECONDS) if ended is not None else None,
                )
                if moment is not None and moment > now
            ),
            default=None,
        ),
    )


def _removal(standing: Iterable[Sign]) -> Removal | None:
    """Return the removal of the machine that several marks report together; None: no mark reports one.

    The mark with the earliest known time names the removal, and one final mark makes the removal final. Among equals a
    mark of another system comes before one of Kubernetes, which takes no machine away by itself.
    """
    found = [sign.removal for sign in standing if sign.removal is not None]
    if not found:
        return None
    first = min(
        found, key=lambda each: (each.gone_by or datetime.max.replace(tzinfo=UTC), each.by == SourceName.KUBERNETES)
    )
    return replace(first, final=any(each.final for each in found))


def _earliest(*moments: datetime | None) -> datetime | None:
    return min((moment for moment in moments if moment is not None), default=None)


def node_fault(verdict: Verdict) -> str:
    """Return the fault of a node that is out, as `reason: message` for users of all tenants; "" where nothing is wrong
    with the node.

    A cordon, a planned window or removal, and the wait for a burn-in are no faults.
    """
    counting = (finding for finding in verdict.findings if not finding.observed)
    weighing = (finding for finding in counting if WEIGHT[finding.severity] >= WEIGHT[Severity.DEGRADED])
    found = next((finding for finding in weighing if finding.source != MAINTENANCE), None)
    harmless = verdict.cordoned or verdict.only_planned or verdict.state is VerdictState.VALIDATING
    if not verdict.out or (found is None and harmless):
        return ""
    return f"{found.reason}: {found.message}" if found is not None else f"{verdict.reason}: {verdict.message}"


def suspicion_of(verdict: Verdict) -> Suspicion | None:
    """Return why another node is the better choice than a node with this verdict; None: it is as good as others."""
    if verdict.state is not VerdictState.SUSPECT and verdict.followed is None:
        return None
    return Suspicion(verdict.followed, verdict.wants_check)


def _is_replaced(machine: str, before: NodeHealthStatus, facts: NodeFacts) -> bool:
    """Whether another machine bears the node's name now.

    A virtual machine may get another board by a new start. That proves nothing as long as no GPU answers and the Node
    is the same.

    Args:
        machine: the identity of the machine now; "" if unknown.
        before: the record of the last verdict.
        facts: the Node object.
    """
    hardware = before.offences.hardware
    if not machine or not hardware or same_machine(machine, hardware):
        return False
    return before.node_uid != facts.node.uid or not may_be_same(machine, hardware)


def _agent_signs(
    said: Iterable[Evidence], before: NodeHealthStatus, earlier: Iterable[Finding], boot: str, now: datetime
) -> list[Sign]:
    """Return the signs of the agent's evidence, and those seen earlier in this boot that only another boot ends.

    Args:
        said: the agent's evidence that counts.
        before: the record of the last verdict.
        earlier: the findings on that record.
        boot: the node's boot id; "" if unknown.
        now: the time.
    """
    seen = [sign_of(evidence, now) for evidence in said]
    keys = {sign.key for sign in seen}
    if not boot or boot != before.boot_id:
        return seen
    kept = (latched(finding, now) for finding in earlier if finding.source == AGENT)
    return [*seen, *(sign for sign in kept if sign is not None and sign.key not in keys)]


def _silence_signs(silence: Silence | None, known: Mapping[tuple[str, str, str], Finding], now: datetime) -> list[Sign]:
    """Return the sign that the node's agent is silent, if anything follows from it.

    A finding on record counts until the agent is Ready again, also under another leader.
    """
    if silence is None:
        return []
    old = known.get((AGENT, AGENT_SILENT, ""))
    severities = [each for each in (silence.weighs, old.severity if old else None) if each is not None]
    if not severities:
        return []
    since = min(old.since, now) if old else now
    return [
        Sign(
            AGENT,
            AGENT_SILENT,
            max(severities, key=lambda each: WEIGHT[each]),
            since=since,
            newest=since,
            action=RecommendedAction.INSPECT,
            message=old.message if old else silence.message,
            offence=False,
            stays=True,
        )
    ]


def _lack_signs(
    lack: Lack | None, known: Mapping[tuple[str, str, str], Finding], released: datetime | None, now: datetime
) -> list[Sign]:
    """Return the sign that the machine has less than its peers, if that has lasted or is on record.

    There is no sign where a user has released the machine, and so has accepted its equipment.
    """
    old = known.get((AGENT, FEWER_THAN_EQUALS, ""))
    if lack is None or released is not None or not (lack.lasts or old):
        return []
    since = min(old.since, now) if old else now
    action = RecommendedAction.INSPECT
    return [
        Sign(AGENT, FEWER_THAN_EQUALS, lack.severity, since=since, newest=since, action=action, message=lack.message)
    ]


def _of_this_boot(evidence: Evidence, agent: AgentStatus | None) -> bool:
    """Whether a piece of evidence is not left over from an earlier boot. Evidence without a boot id counts."""
    return not (agent and agent.boot_id and evidence.boot_id and evidence.boot_id != agent.boot_id)


def _burn_in_signs(
    failures: Iterable[FailedBurnIn], earlier: Iterable[Finding], boot: str, now: datetime
) -> list[Sign]:
    """Return the signs of the burn-in tests that the node has failed, one for each probe.

    They count until a user releases the node, because neither silence nor a reboot repairs anything. A gang's record
    holds a failure for a while, and a finding keeps it after that. A failure of another boot without a finding was
    released, or is of another machine.

    Args:
        failures: from records of gangs.
        earlier: the findings on the node's record.
        boot: the node's boot id; "" if unknown.
        now: the time.
    """
    standing = (finding for finding in earlier if finding.source == BURN_IN and finding.severity is not Severity.INFO)
    found = {finding.subject: finding for finding in standing}
    newest: dict[str, FailedBurnIn] = {}
    for failure in sorted(failures, key=lambda each: each.time):
        if failure.probe in found or failure.boot in ("", boot):
            newest[failure.probe] = failure
    kept = [
        _burn_in_sign(subject, finding.message, finding.job, finding.since, now)
        for subject, finding in found.items()
        if subject not in newest
    ]
    return [*kept, *(_burn_in_sign(probe, word.message, word.job, word.time, now) for probe, word in newest.items())]


def _burn_in_sign(probe: str, message: str, job: str, time: datetime, now: datetime) -> Sign:
    return Sign(
        BURN_IN,
        FAILED_BURN_IN,
        Severity.DEGRADED,
        since=min(time, now),
        newest=min(time, now),
        action=RecommendedAction.INSPECT,
        subject=probe,
        message=message,
        job=job,
    )


def _steady_until(before: NodeHealthStatus, boot: str, released: datetime | None, now: datetime) -> datetime | None:
    """Return until when a mark that comes and goes still counts although it is gone; None: it does not.

    Each flip would cost jobs a move, and the API server two writes. A mark no longer counts after a release, a reboot
    or a repair, nor where the node is left to another system.

    Args:
        before: the record of the last verdict.
        boot: the node's boot id.
        released: up to when a user's release covers all findings; None: there is no release.
        now: the time.
    """

    def counts(incident: HealthIncident) -> bool:
        done = incident.repair_ended_time is not None or incident.boot_id != boot or _is_forgiven(incident, released)
        return incident.yielded_time is None and not done

    if not before.incidents:
        return None
    *past, last = before.incidents
    if last.cleared_time is not None or not counts(last):
        return None
    same = [i for i in past if counts(i) and i.reason == last.reason]
    times = sum(0 <= (last.time - i.time).total_seconds() < ONE_FAULT_SECONDS for i in same)
    seconds = STEADY_SECONDS[times] if times < len(STEADY_SECONDS) else ONE_FAULT_SECONDS
    until = last.time + timedelta(seconds=seconds)
    return until if last.time <= now < until else None


def _kept_signs(before: NodeHealthStatus, earlier: Iterable[Finding], rules: Rules) -> Iterator[Sign]:
    """Yield the recorded marks of other systems that have the node out."""
    for finding in earlier:
        opened = finding.reason == before.incidents[-1].reason and WEIGHT[finding.severity] >= WEIGHT[Severity.DEGRADED]
        if opened and rules.is_fault_reported_by_others(finding):
            yield Sign(
                finding.source,
                finding.reason,
                finding.severity,
                since=finding.since,
                newest=finding.since,
                action=before.recommended_action,
                subject=finding.subject,
                message=finding.message,
            )


def _following(
    reports: Sequence[JobFailureReport],
    before: NodeHealthStatus,
    human: HumanDecision | None,
    answered: datetime | None,
    now: datetime,
) -> Following | None:
    """Return the result of the job failures that followed the node; None: they have no effect.

    Only failures count that came after a user's release, the last thorough test and the last time the node was taken
    out.

    Args:
        reports: the failures.
        before: the record of the last verdict.
        human: the user's decision in NodeHealth's spec; None: there is none.
        answered: failures before this time do not count; None: all do.
        now: the time.
    """
    taken = (incident.time for incident in before.incidents if incident.taken_out_time is not None)
    over = [moment for moment in (_released(human, now), answered, *taken) if moment is not None]
    since = max(over, default=None)
    latest = now + timedelta(seconds=CLOCK_ERROR_SECONDS)  # one from a clock far ahead waits for its time
    counting = (replace(report, time=min(report.time, now)) for report in reports if report.time <= latest)
    return following((report for report in counting if since is None or report.time > since), now)


def _job_sign(found: Following) -> Sign:
    """Return the failures of jobs as one sign. It only warns: a tenant's failures alone take no node out of use."""
    return Sign(
        JOBS,
        CHECK_WANTED if found.wants_check else FOLLOWED_BY_FAILURES,
        Severity.WARNING,
        since=found.since,
        newest=found.newest,
        action=RecommendedAction.INSPECT,
        message=found.in_full,
        in_public=found.in_public,
        offence=False,
        stays=True,
    )


def _distinct(signs: Iterable[Sign]) -> list[Sign]:
    """Return the strongest of the signs with the same key."""
    found: dict[tuple[str, str, str], Sign] = {}
    for sign in signs:
        if sign.key not in found or sign.strength < found[sign.key].strength:
            found[sign.key] = sign
    return list(found.values())


def _released(human: HumanDecision | None, now: datetime) -> datetime | None:
    """Return the time up to which a user's release covers all findings; None: there is no release."""
    if human is None or human.decision is not Decision.RELEASE:
        return None
    if human.time > now + timedelta(seconds=CLOCK_ERROR_SECONDS):
        return None
    return min(human.time, now)


def _is_waived(
    sign: Sign,
    known: Mapping[tuple[str, str, str], Finding],
    released: datetime,
    before: NodeHealthStatus,
    now: datetime,
) -> bool:
    """Whether a user's release covers a sign.

    The date of a sign does not decide, because the node's clock may be behind or ahead. A sign that was not there at
    the release is new. A sign that was there and has not changed since is covered.

    Args:
        sign: the sign now.
        known: the findings on record, by key of the sign.
        released: the time up to which the release covers signs.
        before: the record of the last verdict.
        now: the time.
    """
    finding = known.get(sign.key)
    if finding is not None and sign.dated is not None and sign.dated > released:
        if finding.released_time is not None:
            return finding.released_time == sign.dated
        return sign.dated > now and finding.since <= released
    if sign.newest > released or (finding and finding.since > released and finding.severity is not Severity.INFO):
        return False
    return finding is not None or len(known) >= MAX_EVIDENCE or not _has_taken_in(released, before)


def _has_taken_in(released: datetime, before: NodeHealthStatus) -> bool:
    """Whether a verdict after the release has recorded everything that the release covers."""
    ends = (moment for i in before.incidents for moment in (i.time, i.cleared_time) if moment is not None)
    return before.reason == RELEASED or any(moment >= released for moment in ends)


def _renewed(
    sign: Sign, known: Mapping[tuple[str, str, str], Finding], released: datetime | None, now: datetime
) -> Sign:
    """Return the sign, with a beginning after the user's release if it began before."""
    if released is None or sign.since > released:
        return sign
    finding = known.get(sign.key)
    if finding and finding.since > released:
        return replace(sign, since=finding.since)
    return replace(sign, since=sign.newest if sign.newest > released else now)


def _steady(sign: Sign, known: Mapping[tuple[str, str, str], Finding], now: datetime) -> Sign:
    """Return the sign, with the time when it was first found if it claims to begin now or later."""
    finding = known.get(sign.key)
    return replace(sign, since=finding.since) if finding and sign.since >= now else sign


def _observed_effect(
    counting: Sequence[Sign], watched: Sequence[Sign], worst: int, unschedulable: bool
) -> ObservedEffect | None:
    """Return what the signs that are only observed would change; None: nothing.

    Args:
        counting: the signs that count, strongest first.
        watched: the signs that the policy only observes.
        worst: the greatest weight of the signs that count.
        unschedulable: whether the Node is cordoned in Kubernetes.
    """
    strongest = min(watched, key=lambda sign: sign.strength, default=None)
    if strongest is None or strongest.weighs <= worst:
        return None
    every = sorted([*counting, *watched], key=lambda sign: sign.strength)
    weighing = [sign for sign in every if sign.weighs >= WEIGHT[Severity.DEGRADED]]
    evacuate = Evacuate.NO
    if not all(sign.stays for sign in weighing):
        evacuate = Evacuate.NOW if strongest.severity is Severity.FATAL else Evacuate.AFTER_CHECKPOINT
    seen = strongest.in_public or strongest.message
    message = ": ".join(filter(None, (strongest.subject, seen)))
    return ObservedEffect(
        _STATES[strongest.weighs], strongest.reason, message, evacuate, in_charge(every, unschedulable)
    )


def _is_only_observed_now(was_open: HealthIncident | None, watched: Iterable[Sign], weighing: Collection[Sign]) -> bool:
    """Whether the fault that had the node out is still there, but only observed by now.

    Then the node need not pass a test, because nothing was repaired.

    Args:
        was_open: the node's open incident; None: there is none.
        watched: the signs that the policy only observes.
        weighing: the signs that have the node out now.
    """
    if was_open is None or was_open.repair_ended_time is not None or weighing:
        return False
    return any(s.reason == was_open.reason and s.weighs >= WEIGHT[Severity.DEGRADED] for s in watched)


def _finding(sign: Sign, known: Mapping[tuple[str, str, str], Finding], *, observed: bool, forgiven: bool) -> Finding:
    """Return the finding that records a sign.

    Where only figures differ from the finding on record, its message is kept, so that nothing is written again.

    Args:
        sign: the sign now.
        known: the findings on record, by key of the sign.
        observed: whether the policy only observes the sign.
        forgiven: whether a user's release covers the sign.
    """
    finding = sign.finding(observed=observed)
    if forgiven:
        finding = finding.model_copy(update={"released_time": sign.dated})
    old = known.get(sign.key)
    if (
        old is None
        or sign.source in (JOBS, MAINTENANCE)
        or old.severity is not finding.severity
        or old.job != finding.job
        or _meaning(old.message) != _meaning(finding.message)
    ):
        return finding
    return finding.model_copy(update={"message": old.message})


def _signs_that_fit(signs: Sequence[Sign]) -> Iterable[Sign]:
    """Yield the first signs, as many as the record has room for; signs about a repair are always among them."""
    left = MAX_EVIDENCE - sum(sign.source == REPAIR for sign in signs)
    for sign in signs:
        if sign.source == REPAIR:
            yield sign
        elif left > 0:
            left -= 1
            yield sign


def _meaning(message: str) -> str:
    return message.partition(":")[0]


@dataclass(frozen=True, slots=True)
class _Account:
    """The offences of a machine, with their present score, and those of machines that had the node's name before."""

    offences: Offences
    earlier: tuple[Offences, ...]
    now_worth: Decimal
    rules: Rules
    now: datetime

    @classmethod
    def from_record(
        cls,
        before: NodeHealthStatus,
        machine: str,
        replaced: bool,
        rules: Rules,
        memory: MachineOffences | None,
        now: datetime,
    ) -> "_Account":
        half_life = rules.quarantine.half_life_seconds
        offences = Offences(hardware=machine) if replaced else before.offences
        own = score(offences, now, half_life)
        earlier = tuple(before.earlier_offences)
        if replaced:
            earlier = accounts_to_keep(earlier, before.offences, machine, now, half_life)
        known = before.offences.hardware
        met = bool(machine) and (replaced or not known or may_be_same(known, machine))
        elsewhere = memory.highest_score(machine, now, half_life) if memory and met else Decimal(0)
        if elsewhere > own:
            offences = Offences(hardware=machine, score=str(elsewhere), as_of=now)
        if machine and offences.hardware != machine:
            kept = identity_to_keep(machine, offences.hardware) if offences.hardware else machine
            offences = offences.model_copy(update={"hardware": kept})
        return cls(offences, earlier, max(own, elsewhere), rules, now)

    def charged(self) -> Offences:
        """Return the account with one more offence."""
        return self.offences.model_copy(update={"score": str(self.now_worth + 1), "as_of": self.now})

    def has_paid(
        self, past: Iterable[HealthIncident], causes: Collection[str], boot: str, released: datetime | None
    ) -> bool:
        """Whether the machine was charged for this fault less than an hour ago, and no one has acted on it since.

        A fault that comes and goes is charged once. A release, a reboot or a repair in between makes it a new fault.

        Args:
            past: the node's closed incidents.
            causes: of the fault now.
            boot: the node's boot id.
            released: up to when a user's release covers all findings; None: there is no release.
        """
        charged = self.offences.as_of
        if charged is None or abs((self.now - charged).total_seconds()) >= ONE_FAULT_SECONDS:
            return False
        if released is not None and released >= charged:
            return False
        return any(
            i.taken_out_time is not None
            and i.charged_to in causes
            and i.boot_id == boot
            and i.repair_ended_time is None
            and abs((self.now - i.taken_out_time).total_seconds()) < ONE_FAULT_SECONDS
            for i in past
        )

    def quarantines(self, blamed: bool, was_open: HealthIncident | None, released: datetime | None) -> bool:
        """Whether the machine stays in quarantine for its offences, whatever is reported of it now.

        Args:
            blamed: whether a sign that is an offence has the node out now.
            was_open: the node's open incident; None: there is none.
            released: up to when a user's release covers all findings; None: there is no release.
        """
        if was_open is None:
            return False
        if _is_in_quarantine(was_open):
            return not _is_forgiven(was_open, released) and not self.has_faded(was_open, released)
        charged = was_open.taken_out_time and self.offences.as_of and self.offences.as_of >= was_open.taken_out_time
        return bool(charged) and blamed and self.now_worth >= self._limit

    def has_faded(self, was_open: HealthIncident | None, released: datetime | None) -> bool:
        """Whether a quarantine that no user has ended is over by time alone.

        Args:
            was_open: the node's open incident; None: there is none.
            released: up to when a user's release covers all findings; None: there is no release.
        """
        if was_open is None or not _is_in_quarantine(was_open) or _is_forgiven(was_open, released):
            return False
        return self.now_worth < self._limit / 2

    @property
    def last(self) -> str:
        """The score after the last charge, as text for users. It does not change while the score fades."""
        return f"{charged_score(self.offences):.1f}"

    @property
    def quarantine_ends(self) -> datetime | None:
        """The time at which the offences have faded enough to end the quarantine; None: nothing is left of them."""
        if self.now_worth <= 0:
            return None
        halvings = math.log2(float(2 * self.now_worth / self._limit))
        # A minute beyond, because the account is kept in ten thousandths.
        seconds = max(0.0, halvings) * self.rules.quarantine.half_life_seconds
        return self.now + timedelta(seconds=seconds + 60)

    @property
    def _limit(self) -> Decimal:
        """The score at which the machine is quarantined: half of one below the policy's number of incidents.

        Each earlier offence has faded a little when the last one comes.
        """
        return Decimal(self.rules.quarantine.incidents) - Decimal("0.5")


def _is_in_quarantine(incident: HealthIncident) -> bool:
    """Whether the machine's offences, and not a cordon, have the node out in this incident."""
    return incident.state is VerdictState.QUARANTINED and incident.reason != CORDONED


def _is_forgiven(incident: HealthIncident, released: datetime | None) -> bool:
    return released is not None and released >= incident.time


def _state(worst: int, cordoned: bool, quarantined: bool, known: bool) -> VerdictState | None:
    if cordoned or quarantined:
        return VerdictState.QUARANTINED
    return _STATES[worst] if known else None


def _worked_on(
    was_open: HealthIncident,
    before: NodeHealthStatus,
    repair: RepairStatus | None,
    window: MaintenanceState | None,
    now: datetime,
) -> HealthIncident:
    """Return the incident with the time at which work on the machine was last seen to have ended.

    A recorded time in the future is replaced by now.

    Args:
        was_open: the node's open incident.
        before: the record of the last verdict.
        repair: the state of the node's RepairRequest; None: there is none.
        window: the state of the node's maintenance windows; None: no window applies.
        now: the time.
    """
    ended = was_worked_on(before.findings, repair) or was_within(before.maintenance, window, now)
    if ended or (was_open.repair_ended_time is not None and was_open.repair_ended_time > now):
        return _changed(was_open, {"repair_ended_time": now})
    return was_open


def _is_seen(agent: AgentStatus | None, silence: Silence | None, facts: NodeFacts) -> bool:
    """Whether the agent is Ready and reports about the node's present boot."""
    boots = {boot for boot in (agent.boot_id if agent else "", facts.node.boot_id) if boot}
    return silence is None and len(boots) < 2


def _is_to_pass(
    was_open: HealthIncident | None, released: datetime | None, rules: Rules, passed: datetime | None
) -> bool:
    """Whether a node that was taken out has yet to pass a burn-in before it comes back.

    A pass from before the incident, or from before the end of the repair, does not count.

    Args:
        was_open: the node's open incident; None: there is none.
        released: up to when a user's release covers all findings; None: there is no release.
        rules: the fleet's policy.
        passed: when the node last passed a test; None: never.
    """
    if not rules.validates or was_open is None or was_open.reason == CORDONED:
        return False
    if was_open.taken_out_time is None and was_open.repair_ended_time is None:
        return False
    if released is not None and released >= was_open.time:
        return False
    since = was_open.time if was_open.repair_ended_time is None else max(was_open.time, was_open.repair_ended_time)
    return passed is None or passed <= since


def _reason_and_message(
    state: VerdictState | None,
    human: HumanDecision | None,
    cordoned: bool,
    quarantined: bool,
    account: _Account,
    strongest: Sign | None,
    found: bool,
    agent: AgentStatus | None,
) -> tuple[str, str]:
    """Return the reason and the message of the verdict; both are "" where there is nothing to report.

    Args:
        state: of the verdict.
        human: the user's decision in NodeHealth's spec; None: there is none.
        cordoned: whether that decision is a cordon.
        quarantined: whether the machine's offences have the node out.
        account: of the machine.
        strongest: the strongest sign that counts; None: no sign weighs anything.
        found: whether there is any sign, counting or waived.
        agent: the agent's report; None: there is none.
    """
    seen = f"{strongest.in_public or strongest.message or strongest.reason}" if strongest else ""
    if strongest and strongest.subject:
        seen = f"{strongest.subject}: {seen}"
    if cordoned and human:
        return CORDONED, f"cordoned by {human.user or 'a user'}: {human.reason}"
    if quarantined:
        what = f"; now {strongest.reason}: {seen}" if strongest else "; no fault is reported now"
        return REPEAT_OFFENDER, f"the machine keeps failing (offence score {account.last}){what}"
    if strongest:
        return strongest.reason, seen
    if state is None:
        return "", ""
    problem = f"the agent cannot check the whole node: {agent.problem}" if agent and agent.problem else ""
    if human and human.decision is Decision.RELEASE and found:
        return RELEASED, f"released by {human.user or 'a user'}: {human.reason}"
    return "", problem


def _incidents(
    past: list[HealthIncident],
    was_open: HealthIncident | None,
    state: VerdictState | None,
    reason: str,
    message: str,
    cordoned: bool,
    human: HumanDecision | None,
    released: datetime | None,
    boot: str,
    now: datetime,
    only_observed: bool,
) -> tuple[HealthIncident, ...]:
    out = state is not None and state in OUT
    if was_open and not out:
        why = _why_cleared(was_open, human, released, boot, only_observed)
        past.append(_closed(was_open, why, now))
    elif was_open and state is not None:
        worse = OUT[state] > OUT.get(was_open.state, 0)
        uncordoned = was_open.reason == CORDONED and not cordoned
        other = {"state": state, "reason": reason, "message": message} if worse or uncordoned else {}
        past.append(_changed(was_open, other))
    elif out and state is not None:
        past.append(HealthIncident(time=now, state=state, reason=reason, message=message, boot_id=boot))
    return tuple(past[-MAX_INCIDENTS:])


def _closed(incident: HealthIncident, why: str, now: datetime) -> HealthIncident:
    return _changed(incident, {"cleared_time": now, "cleared_by": why})


def _changed(incident: HealthIncident, changes: Mapping[str, object]) -> HealthIncident:
    """Return the incident with some values replaced, which are cut to the lengths that the API allows."""
    return HealthIncident.model_validate({**dict(incident), **changes}) if changes else incident


def _why_cleared(
    incident: HealthIncident, human: HumanDecision | None, released: datetime | None, boot: str, only_observed: bool
) -> str:
    if human and released is not None and released >= incident.time:
        return f"released by {human.user or 'a user'}: {human.reason}"
    if only_observed:
        return f"the FleetPolicy only observes {incident.reason} now"
    if incident.reason == CORDONED:
        return "a user ended the cordon"
    if incident.state is VerdictState.QUARANTINED:
        return "the machine's offence score has faded"
    if incident.reason == AWAITS_BURN_IN:
        return "the node passed its burn-in"
    if incident.reason in REASONS:
        was_begun = incident.repair_ended_time is not None
        what = "the maintenance window is over" if was_begun else "the maintenance window did not begin"
        return f"{what}, and no finding counts against the node"
    if incident.repair_ended_time is not None:
        return "the repair has ended, and the evidence is gone"
    if incident.boot_id and boot and incident.boot_id != boot:
        return "the node was rebooted, and the evidence is gone"
    return "the evidence is gone"


def _action(signs: Sequence[Sign], worst: int, quarantined: bool, past: Sequence[HealthIncident]) -> RecommendedAction:
    """Return the action that repairs most among the gravest signs; a stronger one if it was tried before.

    Args:
        signs: the signs that count.
        worst: the greatest weight among them.
        quarantined: whether the machine's offences have the node out.
        past: the node's closed incidents.
    """
    least = min(worst, WEIGHT[Severity.DEGRADED])
    weighing = [sign for sign in signs if sign.weighs and sign.weighs >= least]
    actions = [_repeated(sign, past) for sign in weighing]
    action = max(actions, key=lambda action: EFFORT[action], default=RecommendedAction.NONE)
    if not quarantined:
        return action
    repaired_in_vain = action in (RecommendedAction.RESET, RecommendedAction.REBOOT, RecommendedAction.REPLACE)
    return RecommendedAction.REPLACE if repaired_in_vain else RecommendedAction.INSPECT


def _repair(faults: Sequence[Sign], quarantined: bool, past: Sequence[HealthIncident]) -> RecommendedAction:
    """Return what has to be done with the machine about its faults; NONE where no fault has the node out.

    Args:
        faults: the signs that count, without marks of a running repair.
        quarantined: whether the machine's offences have the node out.
        past: the node's closed incidents.
    """
    worst = max((sign.weighs for sign in faults), default=0)
    if worst < WEIGHT[Severity.DEGRADED] and not quarantined:
        return RecommendedAction.NONE
    return _action(faults, worst, quarantined, past)


def _repeated(sign: Sign, past: Sequence[HealthIncident]) -> RecommendedAction:
    if sign.then is None:
        return sign.action
    of_another = max((i for i, incident in enumerate(past) if incident.cleared_by == ANOTHER_MACHINE), default=-1)
    since = sign.since - timedelta(seconds=SAME_FAULT_SECONDS)
    again = any(i.reason == sign.reason and i.cleared_time and i.time >= since for i in past[of_another + 1 :])
    return sign.then if again else sign.action

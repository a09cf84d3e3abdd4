"""One node's verdict, from everything that is said about it.

A pure function of stored objects and the time: what the agent sees, what other systems have marked, what jobs say, what
a human has decided, and what was concluded before. What has to outlast the moment (incidents, the account of offences, findings that
only a reboot ends) is read from the status written last time, so that a new leader goes on where the old one was.

No knowledge is no verdict: without an agent's word and without a mark there is no state. A time that lies ahead counts as
now, so that a clock that jumps neither condemns nor releases.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal

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
from muster.health.facts import NodeFacts
from muster.health.kinds import latched, sign_of
from muster.health.memory import Memory, fuller, identity, same_machine, score
from muster.health.signs import AGENT, BURN_IN, EFFORT, JOBS, WEIGHT, Clears, Sign
from muster.health.sources import Rules, in_charge

JOB_WORDS_SECONDS = 86400
"""For so long a job's word about a node counts."""

SAME_FAULT_SECONDS = 30 * 86400
"""A fault that comes back within this time was not repaired by what was done about it."""

CLOCK_ERROR_SECONDS = 300
"""A human's release that is dated further ahead waits for its time: it would cover what nobody has seen yet."""

CORDONED = "Cordoned"
REPEAT_OFFENDER = "RepeatOffender"
REPORTED_BY_JOBS = "ReportedByJobs"
FAILED_BURN_IN = "BurnInFailed"
AWAITS_BURN_IN = "AwaitsBurnIn"

ANOTHER_MACHINE = "another machine has the name now"

OUT = {VerdictState.VALIDATING: 0, VerdictState.DEGRADED: 1, VerdictState.UNHEALTHY: 2, VerdictState.QUARANTINED: 3}
_STATES = (VerdictState.HEALTHY, VerdictState.SUSPECT, VerdictState.DEGRADED, VerdictState.UNHEALTHY)


@dataclass(frozen=True, slots=True)
class JobWord:
    """What a job's own containers say about a node: weak, because a tenant can write anything.

    Attributes:
        owner: whose job, its namespace: two of them count, two jobs of one do not.
        job: `<namespace>/<name>`.
        message: what it says.
        time: when.
    """

    owner: str
    job: str
    message: str
    time: datetime


@dataclass(frozen=True, slots=True)
class BurnInWord:
    """A test that a node has failed: Muster's own checkers measured it, beside nodes that are proven.

    Attributes:
        boot: the boot id of the node then; "" where that was not known.
        probe: what it failed.
        message: how, for people.
        time: when.
    """

    boot: str
    probe: str
    message: str
    time: datetime


@dataclass(frozen=True, slots=True)
class Verdict:
    """What Muster makes of one node now; all of it goes to NodeHealth, `wake` and the flags excepted.

    Attributes:
        state: None while nothing is known.
        reason: the strongest, CamelCase.
        message: what happened, for people.
        recommended_action: what somebody should do with the machine.
        findings: all that counts, strongest first.
        since: in this state since; None while nothing is known.
        incidents: newest last; the last one is open while the node is out.
        offences: the machine's account.
        offences_if_taken: the account when Muster acts on what it found: a node that the breaker holds back, or that
            somebody else repairs, is not charged, because many sick at once are seldom each one's own fault.
        node_uid: the Node object that this is about.
        boot_id: the boot that this is about.
        fatal: jobs should leave at once, not after their next checkpoint.
        needs_boot: only another boot ends it.
        cordoned: a human has said so.
        in_charge: the system that repairs the node by itself; "" if none.
        wake: when to look again even if nothing changes; None: never.
        check: what came of the last test that somebody wished for.
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
    node_uid: str = ""
    boot_id: str = ""
    fatal: bool = False
    needs_boot: bool = False
    cordoned: bool = False
    in_charge: str = ""
    wake: datetime | None = None
    check: CheckResult | None = None

    @property
    def out(self) -> bool:
        """Whether the node should not be used."""
        return self.state in OUT

    @property
    def open_incident(self) -> HealthIncident | None:
        """The incident that has the node out now."""
        last = self.incidents[-1] if self.incidents else None
        return last if last is not None and last.cleared is None else None

    def taken(self, now: datetime) -> "Verdict":
        """The same, its incident marked as one that Muster acts on: to be written before anything is done."""
        if self.open_incident is None:
            return self
        acted = self.open_incident.model_copy(update={"taken": now})
        return replace(self, incidents=(*self.incidents[:-1], acted), offences=self.offences_if_taken)


def assess(
    facts: NodeFacts,
    health: NodeHealth,
    rules: Rules,
    now: datetime,
    *,
    memory: Memory | None = None,
    words: Sequence[JobWord] = (),
    burn_ins: Sequence[BurnInWord] = (),
    passed: datetime | None = None,
) -> Verdict:
    """The verdict on one node.

    Args:
        facts: the Node object.
        health: its NodeHealth: evidence, what people decided, and the last verdict.
        rules: the fleet's policy.
        now: the time.
        memory: what is remembered against all machines.
        words: what jobs say about the node.
        burn_ins: tests that it has failed, as far as the records of gangs still tell of them.
        passed: when it has last passed one, if that holds.
    """
    before = health.status
    machine = identity(before.agent)
    replaced = bool(machine and before.offences.hardware) and not same_machine(machine, before.offences.hardware)
    earlier = () if replaced else tuple(before.findings)
    boot = before.agent.boot_id if before.agent and before.agent.boot_id else facts.node.boot_id
    known = {(finding.source, finding.reason, finding.subject): finding for finding in earlier}

    marks, ripe = rules.signs(facts, known, now)
    signs = marks
    if AGENT in rules.listens:
        signs = [*signs, *_agent_signs(before, earlier, boot, now)]
    if BURN_IN in rules.listens:
        signs = [*signs, *_burn_in_signs(burn_ins, earlier, boot, now)]
    word, word_ends = _job_sign(words, health.spec.human, now) if JOBS in rules.listens else (None, None)
    signs = sorted(_distinct([*signs, *([word] if word else [])]), key=lambda sign: sign.strength)

    human = health.spec.human
    released = _released(human, now)
    signs = [_steady(sign, known, now) for sign in signs]
    standing = [_renewed(s, known, released) for s in signs if released is None or s.newest > released]
    waived = [s for s in signs if released is not None and s.newest <= released]
    standing.sort(key=lambda sign: sign.strength)

    past = [*before.incidents]
    was_open = past.pop() if past and past[-1].cleared is None else None
    if replaced and was_open:
        past.append(_closed(was_open, ANOTHER_MACHINE, now))
        was_open = None
    account = _Account.of(before, machine, replaced, rules, memory, now)
    worst = max((sign.weighs for sign in standing), default=0)
    cordoned = human is not None and human.decision is Decision.CORDON
    blamed = any(sign.offence and sign.weighs >= WEIGHT[Severity.DEGRADED] for sign in standing)
    quarantined = not cordoned and account.quarantines(blamed, was_open, released)

    state = _state(worst, cordoned, quarantined, before.agent is not None or bool(signs))
    findings = tuple(
        _finding(sign, known) for sign in (*standing, *(replace(s, severity=Severity.INFO) for s in waived))
    )[:MAX_EVIDENCE]
    strongest = standing[0] if standing and standing[0].weighs else None
    reason, message = _told(state, human, cordoned, quarantined, account, strongest, findings, before.agent)
    if state in (VerdictState.HEALTHY, VerdictState.SUSPECT) and _is_to_pass(was_open, released, rules, passed):
        state, reason = VerdictState.VALIDATING, AWAITS_BURN_IN
        message = "nothing stands against it any more; its checker tests it before it is used again"
    incidents = _incidents(past, was_open, state, reason, message, cordoned, human, released, boot, now)
    unchanged = before.state is state and not replaced
    return Verdict(
        state=state,
        reason=reason,
        message=message,
        recommended_action=_action(standing, worst, quarantined, past),
        findings=findings,
        since=None if state is None else (before.since if unchanged and before.since else now),
        incidents=incidents,
        offences=account.offences,
        offences_if_taken=account.charged() if blamed else account.offences,
        node_uid=facts.node.uid,
        boot_id=boot,
        check=before.check,
        fatal=worst >= WEIGHT[Severity.FATAL],
        needs_boot=any(s.clears is Clears.BOOT and s.weighs >= WEIGHT[Severity.DEGRADED] for s in standing),
        cordoned=cordoned,
        in_charge="" if cordoned else in_charge(standing, facts.node.unschedulable),
        wake=min(
            (
                moment
                for moment in (
                    ripe,
                    word_ends,
                    account.quarantine_ends if quarantined else None,
                    human.time if human and released is None and human.decision is Decision.RELEASE else None,
                )
                if moment is not None and moment > now
            ),
            default=None,
        ),
    )


def ailment(verdict: Verdict) -> str:
    """What is wrong with a node whose verdict is at least Degraded, in words, whatever is done about it; "" for others.

    That somebody has cordoned it is nothing wrong with it.
    """
    weighing = (finding for finding in verdict.findings if WEIGHT[finding.severity] >= WEIGHT[Severity.DEGRADED])
    found = next(weighing, None)
    if not verdict.out or (verdict.cordoned and found is None):
        return ""
    return f"{found.reason}: {found.message}" if found is not None else f"{verdict.reason}: {verdict.message}"


def _agent_signs(before: NodeHealthStatus, earlier: Iterable[Finding], boot: str, now: datetime) -> list[Sign]:
    """What the agent sees, and what it has seen in this boot that only another boot ends."""
    seen = [sign_of(evidence, now) for evidence in before.evidence if _of_this_boot(evidence, before.agent)]
    keys = {sign.key for sign in seen}
    if not boot or boot != before.boot_id:
        return seen
    kept = (latched(finding, now) for finding in earlier if finding.source == AGENT)
    return [*seen, *(sign for sign in kept if sign is not None and sign.key not in keys)]


def _of_this_boot(evidence: Evidence, agent: AgentStatus | None) -> bool:
    """Whether it is not left over from before a reboot: as long as the agent is silent, it stands."""
    return not (agent and agent.boot_id and evidence.boot_id and evidence.boot_id != agent.boot_id)


def _burn_in_signs(failures: Iterable[BurnInWord], earlier: Iterable[Finding], boot: str, now: datetime) -> list[Sign]:
    """Tests that the node has failed. They stand until a human says otherwise: neither silence nor a boot repairs anything.

    A record of a gang tells of them for a while; what was found then stays a finding. One of another boot that is no
    finding was released, or is of another machine.
    """
    standing = (finding for finding in earlier if finding.source == BURN_IN and finding.severity is not Severity.INFO)
    found = {finding.subject: finding for finding in standing}
    newest: dict[str, BurnInWord] = {}
    for failure in sorted(failures, key=lambda each: each.time):
        if failure.probe in found or failure.boot in ("", boot):
            newest[failure.probe] = failure
    kept = [
        _burn_in_sign(subject, finding.message, finding.since, now)
        for subject, finding in found.items()
        if subject not in newest
    ]
    return [*kept, *(_burn_in_sign(probe, word.message, word.time, now) for probe, word in newest.items())]


def _burn_in_sign(probe: str, message: str, time: datetime, now: datetime) -> Sign:
    return Sign(
        BURN_IN,
        FAILED_BURN_IN,
        Severity.DEGRADED,
        since=min(time, now),
        newest=min(time, now),
        action=RecommendedAction.INSPECT,
        subject=probe,
        message=message,
    )


def _job_sign(
    words: Sequence[JobWord], human: HumanDecision | None, now: datetime
) -> tuple[Sign | None, datetime | None]:
    """What jobs say, as one sign, and when it will weigh less: one owner asks for a look, two of them count."""
    released = _released(human, now)
    lasts = timedelta(seconds=JOB_WORDS_SECONDS)
    newest: dict[str, JobWord] = {}
    for word in sorted(words, key=lambda word: (word.time, word.job)):
        moment = min(word.time, now)
        if moment + lasts > now and (released is None or moment > released):
            newest[word.owner] = word
    if not newest:
        return None, None
    several = len(newest) > 1
    times = sorted(min(word.time, now) for word in newest.values())
    jobs = ", ".join(sorted(word.job for word in newest.values())[:4])
    last = max(newest.values(), key=lambda word: (word.time, word.job))
    sign = Sign(
        JOBS,
        REPORTED_BY_JOBS,
        Severity.DEGRADED if several else Severity.WARNING,
        since=times[0],
        newest=times[-1],
        action=RecommendedAction.INSPECT,
        message=f"{jobs}: {last.message}",
    )
    return sign, times[-2 if several else -1] + lasts


def _distinct(signs: Iterable[Sign]) -> list[Sign]:
    """The strongest of each key."""
    found: dict[tuple[str, str, str], Sign] = {}
    for sign in signs:
        if sign.key not in found or sign.strength < found[sign.key].strength:
            found[sign.key] = sign
    return list(found.values())


def _released(human: HumanDecision | None, now: datetime) -> datetime | None:
    """Up to when a human has forgiven everything; None: not at all."""
    if human is None or human.decision is not Decision.RELEASE:
        return None
    if human.time > now + timedelta(seconds=CLOCK_ERROR_SECONDS):
        return None
    return min(human.time, now)


def _renewed(sign: Sign, known: Mapping[tuple[str, str, str], Finding], released: datetime | None) -> Sign:
    """The sign as something new since the human's release, if it began before."""
    if released is None or sign.since > released:
        return sign
    finding = known.get(sign.key)
    return replace(sign, since=finding.since if finding and finding.since > released else sign.newest)


def _steady(sign: Sign, known: Mapping[tuple[str, str, str], Finding], now: datetime) -> Sign:
    """What says that it begins just now, or only later, began when it was first found."""
    finding = known.get(sign.key)
    return replace(sign, since=finding.since) if finding and sign.since >= now else sign


def _finding(sign: Sign, known: Mapping[tuple[str, str, str], Finding]) -> Finding:
    """As it is written down: with the words of last time where only figures differ, so that nothing is written anew."""
    finding = sign.finding()
    old = known.get(sign.key)
    if old is None or old.severity is not finding.severity or _meaning(old.message) != _meaning(finding.message):
        return finding
    return finding.model_copy(update={"message": old.message})


def _meaning(message: str) -> str:
    return message.partition(":")[0]


@dataclass(frozen=True, slots=True)
class _Account:
    """What is held against the machine."""

    offences: Offences
    now_worth: Decimal
    rules: Rules
    now: datetime

    @classmethod
    def of(
        cls,
        before: NodeHealthStatus,
        machine: str,
        replaced: bool,
        rules: Rules,
        memory: Memory | None,
        now: datetime,
    ) -> "_Account":
        half_life = rules.quarantine.half_life_seconds
        offences = Offences(hardware=machine) if replaced else before.offences
        own = score(offences, now, half_life)
        met = bool(machine) and (replaced or not before.offences.hardware)
        elsewhere = memory.of(machine, now, half_life) if memory and met else Decimal(0)
        if elsewhere > own:
            offences = Offences(hardware=machine, score=str(elsewhere), as_of=now)
        if machine and offences.hardware != machine:
            kept = fuller(machine, offences.hardware) if offences.hardware else machine
            offences = offences.model_copy(update={"hardware": kept})
        return cls(offences, max(own, elsewhere), rules, now)

    def charged(self) -> Offences:
        """The account with one more."""
        return self.offences.model_copy(update={"score": str(self.now_worth + 1), "as_of": self.now})

    def quarantines(self, blamed: bool, was_open: HealthIncident | None, released: datetime | None) -> bool:
        """Whether the machine stays out for what it did, whatever is seen of it now."""
        if was_open is None:
            return False
        if was_open.state is VerdictState.QUARANTINED and was_open.reason != CORDONED:
            forgiven = released is not None and released >= was_open.time
            return not forgiven and self.now_worth >= self._limit / 2
        charged = was_open.taken and self.offences.as_of and self.offences.as_of >= was_open.taken
        return bool(charged) and blamed and self.now_worth >= self._limit

    @property
    def last(self) -> str:
        """The account after the last charge, for people: it does not change while it fades."""
        return f"{float(self.offences.score):.1f}"

    @property
    def quarantine_ends(self) -> datetime | None:
        """When so much has faded that the quarantine ends by itself."""
        if self.now_worth <= 0:
            return None
        halvings = math.log2(float(2 * self.now_worth / self._limit))
        # A minute beyond, because the account is kept in ten thousandths.
        seconds = max(0.0, halvings) * self.rules.quarantine.half_life_seconds
        return self.now + timedelta(seconds=seconds + 60)

    @property
    def _limit(self) -> Decimal:
        """Half of one less than the incidents: each of them has faded a little when the last one comes."""
        return Decimal(self.rules.quarantine.incidents) - Decimal("0.5")


def _state(worst: int, cordoned: bool, quarantined: bool, known: bool) -> VerdictState | None:
    if cordoned or quarantined:
        return VerdictState.QUARANTINED
    return _STATES[worst] if known else None


def _is_to_pass(
    was_open: HealthIncident | None, released: datetime | None, rules: Rules, passed: datetime | None
) -> bool:
    """Whether a node that was taken out has to pass a test before it comes back, and has not: a pass from before is none."""
    if not rules.validates or was_open is None or was_open.taken is None or was_open.reason == CORDONED:
        return False
    if released is not None and released >= was_open.time:
        return False
    return passed is None or passed <= was_open.time


def _told(
    state: VerdictState | None,
    human: HumanDecision | None,
    cordoned: bool,
    quarantined: bool,
    account: _Account,
    strongest: Sign | None,
    findings: Collection[Finding],
    agent: AgentStatus | None,
) -> tuple[str, str]:
    """Reason and message."""
    seen = f"{strongest.message or strongest.reason}" if strongest else ""
    if strongest and strongest.subject:
        seen = f"{strongest.subject}: {seen}"
    if cordoned and human:
        return CORDONED, f"cordoned by {human.by or 'somebody'}: {human.reason}"
    if quarantined:
        what = f"; now {strongest.reason}: {seen}" if strongest else "; nothing is seen of it now"
        return REPEAT_OFFENDER, f"the machine keeps failing (account {account.last}){what}"
    if strongest:
        return strongest.reason, seen
    if state is None:
        return "", ""
    problem = f"the agent does not see everything: {agent.problem}" if agent and agent.problem else ""
    if human and human.decision is Decision.RELEASE and findings:
        return "Released", f"released by {human.by or 'somebody'}: {human.reason}"
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
) -> tuple[HealthIncident, ...]:
    out = state is not None and state in OUT
    if was_open and not out:
        past.append(_closed(was_open, _why_cleared(was_open, human, released, boot), now))
    elif was_open and state is not None:
        worse = OUT[state] > OUT.get(was_open.state, 0)
        uncordoned = was_open.reason == CORDONED and not cordoned
        other = {"state": state, "reason": reason, "message": message} if worse or uncordoned else {}
        past.append(_changed(was_open, other))
    elif out and state is not None:
        past.append(HealthIncident(time=now, state=state, reason=reason, message=message, boot_id=boot))
    return tuple(past[-MAX_INCIDENTS:])


def _closed(incident: HealthIncident, why: str, now: datetime) -> HealthIncident:
    return _changed(incident, {"cleared": now, "cleared_by": why})


def _changed(incident: HealthIncident, changes: Mapping[str, object]) -> HealthIncident:
    """The incident with other values, which are cut to what the API has room for."""
    return HealthIncident.model_validate({**dict(incident), **changes}) if changes else incident


def _why_cleared(incident: HealthIncident, human: HumanDecision | None, released: datetime | None, boot: str) -> str:
    if human and released is not None and released >= incident.time:
        return f"released by {human.by or 'somebody'}: {human.reason}"
    if incident.reason == CORDONED:
        return "the cordon was taken back"
    if incident.state is VerdictState.QUARANTINED:
        return "what was held against the machine has faded"
    if incident.reason == AWAITS_BURN_IN:
        return "it has passed its burn-in"
    if incident.boot_id and boot and incident.boot_id != boot:
        return "a new boot, and the evidence is gone"
    return "the evidence is gone"


def _action(
    standing: Sequence[Sign], worst: int, quarantined: bool, past: Sequence[HealthIncident]
) -> RecommendedAction:
    """What repairs the most of what weighs the most; more, if it was tried before."""
    least = min(worst, WEIGHT[Severity.DEGRADED])
    weighing = [sign for sign in standing if sign.weighs and sign.weighs >= least]
    actions = [_repeated(sign, past) for sign in weighing]
    action = max(actions, key=lambda action: EFFORT[action], default=RecommendedAction.NONE)
    if not quarantined:
        return action
    repaired_in_vain = action in (RecommendedAction.RESET, RecommendedAction.REBOOT, RecommendedAction.REPLACE)
    return RecommendedAction.REPLACE if repaired_in_vain else RecommendedAction.INSPECT


def _repeated(sign: Sign, past: Sequence[HealthIncident]) -> RecommendedAction:
    if sign.then is None:
        return sign.action
    of_another = max((i for i, incident in enumerate(past) if incident.cleared_by == ANOTHER_MACHINE), default=-1)
    since = sign.since - timedelta(seconds=SAME_FAULT_SECONDS)
    again = any(i.reason == sign.reason and i.cleared and i.time >= since for i in past[of_another + 1 :])
    return sign.then if again else sign.action

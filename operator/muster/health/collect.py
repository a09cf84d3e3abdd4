"""What speaks against a node now, as signs: from its agent, from marks of other systems, from tests and jobs.

Nothing is forgiven here and nothing weighed: `muster.health.weigh` does that.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from muster.api.nodehealth import AgentStatus, Evidence, HealthIncident, RecommendedAction, Severity
from muster.health.equals import FEWER_THAN_EQUALS
from muster.health.incidents import ONE_FAULT_SECONDS, is_forgiven
from muster.health.job_failures import Following, following
from muster.health.kinds import latched, sign_of
from muster.health.node_world import CLOCK_ERROR_SECONDS, FailedBurnIn, NodeWorld
from muster.health.repairs import failure_signs
from muster.health.signs import (
    AGENT,
    BURN_IN,
    CHECK_WANTED,
    FAILED_BURN_IN,
    FOLLOWED_BY_FAILURES,
    JOBS,
    WEIGHT,
    Sign,
)
from muster.health.silence import AGENT_SILENT

STEADY_SECONDS = (0, 900)
"""For how long another system's mark counts at least, the first and the second time within `ONE_FAULT_SECONDS`. From
the third time on it counts for `ONE_FAULT_SECONDS`."""


@dataclass(frozen=True, slots=True)
class Signs:
    """What speaks against a node now.

    Attributes:
        all: the signs, strongest first, each once.
        followed: the job failures that followed the node, of which one of the signs is; None: none is.
        ripe: when the next mark will be old enough to count; None: no mark waits for its age.
        steady_until: until when a mark that is gone still counts; None: no such mark does.
    """

    all: tuple[Sign, ...]
    followed: Following | None
    ripe: datetime | None
    steady_until: datetime | None


def collect(world: NodeWorld) -> Signs:
    """Return the signs from all sources that the policy listens to."""
    listens = world.rules.listens
    marks, ripe = world.rules.signs(world.facts, world.known, world.now)
    signs = list(marks)
    if AGENT in listens:
        signs += [*_agent_signs(world), *_silence_signs(world), *_lack_signs(world)]
    if BURN_IN in listens:
        signs += _burn_in_signs(world)
    steady_until = _steady_until(world)
    if steady_until is not None:
        signs += _kept_signs(world)
    signs += failure_signs(world.before.findings, world.repair, world.now)
    followed = _following(world) if JOBS in listens else None
    if followed is not None:
        signs.append(_job_sign(followed))
    return Signs(tuple(sorted(_distinct(signs), key=lambda sign: sign.strength)), followed, ripe, steady_until)


def _distinct(signs: Iterable[Sign]) -> Iterable[Sign]:
    """Return the strongest of the signs with the same key."""
    strongest: dict[tuple[str, str, str], Sign] = {}
    for sign in signs:
        if sign.key not in strongest or sign.strength < strongest[sign.key].strength:
            strongest[sign.key] = sign
    return strongest.values()


def _agent_signs(world: NodeWorld) -> list[Sign]:
    """Return the signs of the agent's evidence, and those seen earlier in this boot that only another boot ends."""
    previous, labels, ignored = world.before, world.facts.node.labels, world.rules.ignored_ports
    current_evidence = (evidence for evidence in previous.evidence if _of_this_boot(evidence, previous.agent))
    seen = [
        sign_of(evidence, world.now)
        for evidence in current_evidence
        if not ignored.ignores(labels, evidence, previous.agent)
    ]
    if not world.boot or world.boot != previous.boot_id:
        return seen
    keys = {sign.key for sign in seen}
    kept = (latched(finding, world.now) for finding in world.earlier if finding.source == AGENT)
    return [*seen, *(sign for sign in kept if sign is not None and sign.key not in keys)]


def _of_this_boot(evidence: Evidence, agent: AgentStatus | None) -> bool:
    """Whether a piece of evidence is not left over from an earlier boot. Evidence without a boot id counts."""
    return not (agent and agent.boot_id and evidence.boot_id and evidence.boot_id != agent.boot_id)


def _silence_signs(world: NodeWorld) -> Iterator[Sign]:
    """Yield the sign that the node's agent is silent, if anything follows from it.

    A finding on record counts until the agent is Ready again, also under another leader.
    """
    silence, old = world.silence, world.known.get((AGENT, AGENT_SILENT, ""))
    if silence is None:
        return
    severities = [severity for severity in (silence.weighs, old.severity if old else None) if severity is not None]
    if not severities:
        return
    since = min(old.since, world.now) if old else world.now
    yield Sign(
        AGENT,
        AGENT_SILENT,
        max(severities, key=lambda severity: WEIGHT[severity]),
        since=since,
        newest=since,
        action=RecommendedAction.INSPECT,
        message=old.message if old else silence.message,
        offence=False,
        stays=True,
    )


def _lack_signs(world: NodeWorld) -> Iterator[Sign]:
    """Yield the sign that the machine has less than its peers, if that has lasted or is on record.

    There is no sign where a user has released the machine, and so has accepted its equipment.
    """
    lack, old = world.lack, world.known.get((AGENT, FEWER_THAN_EQUALS, ""))
    if lack is None or world.released is not None or not (lack.lasts or old):
        return
    since = min(old.since, world.now) if old else world.now
    action = RecommendedAction.INSPECT
    yield Sign(AGENT, FEWER_THAN_EQUALS, lack.severity, since=since, newest=since, action=action, message=lack.message)


def _burn_in_signs(world: NodeWorld) -> Iterator[Sign]:
    """Yield the signs of the burn-in tests that the node has failed, one for each probe.

    They count until a user releases the node, because neither silence nor a reboot repairs anything. A gang's record
    holds a failure for a while, and a finding keeps it after that. A failure of another boot without a finding was
    released, or is of another machine.
    """
    counting = (
        earlier for earlier in world.earlier if earlier.source == BURN_IN and earlier.severity is not Severity.INFO
    )
    findings = {finding.subject: finding for finding in counting}
    newest: dict[str, FailedBurnIn] = {}
    for failure in sorted(world.burn_ins, key=lambda failed: failed.time):
        if failure.probe in findings or failure.boot in ("", world.boot):
            newest[failure.probe] = failure
    for subject, finding in findings.items():
        if subject not in newest:
            yield _burn_in_sign(FailedBurnIn("", subject, finding.message, finding.since, finding.job), world.now)
    for failure in newest.values():
        yield _burn_in_sign(failure, world.now)


def _burn_in_sign(failure: FailedBurnIn, now: datetime) -> Sign:
    return Sign(
        BURN_IN,
        FAILED_BURN_IN,
        Severity.DEGRADED,
        since=min(failure.time, now),
        newest=min(failure.time, now),
        action=RecommendedAction.INSPECT,
        subject=failure.probe,
        message=failure.message,
        job=failure.job,
    )


def _steady_until(world: NodeWorld) -> datetime | None:
    """Return until when a mark that comes and goes still counts although it is gone; None: it does not.

    Each flip would cost jobs a move, and the API server two writes. A mark no longer counts after a release, a reboot
    or a repair, nor where the node is left to another system.
    """

    def counts(incident: HealthIncident) -> bool:
        is_of_boot = incident.repair_ended_time is None and incident.boot_id == world.boot
        return incident.yielded_time is None and is_of_boot and not is_forgiven(incident, world.released)

    if not world.before.incidents:
        return None
    *past, last = world.before.incidents
    if last.cleared_time is not None or not counts(last):
        return None
    same = [i for i in past if counts(i) and i.reason == last.reason]
    times = sum(0 <= (last.time - i.time).total_seconds() < ONE_FAULT_SECONDS for i in same)
    seconds = STEADY_SECONDS[times] if times < len(STEADY_SECONDS) else ONE_FAULT_SECONDS
    until = last.time + timedelta(seconds=seconds)
    return until if last.time <= world.now < until else None


def _kept_signs(world: NodeWorld) -> Iterator[Sign]:
    """Yield the recorded marks of other systems that have the node out."""
    opened = world.before.incidents[-1].reason
    for finding in world.earlier:
        has_it_out = finding.reason == opened and WEIGHT[finding.severity] >= WEIGHT[Severity.DEGRADED]
        if has_it_out and world.rules.is_fault_reported_by_others(finding):
            yield Sign(
                finding.source,
                finding.reason,
                finding.severity,
                since=finding.since,
                newest=finding.since,
                action=world.before.recommended_action,
                subject=finding.subject,
                message=finding.message,
            )


def _following(world: NodeWorld) -> Following | None:
    """Return the result of the job failures that followed the node; None: they have no effect.

    Only failures count that came after a user's release, the last thorough test and the last time the node was taken
    out.
    """
    taken_out_times = (incident.time for incident in world.before.incidents if incident.taken_out_time is not None)
    over = [moment for moment in (world.released, world.answered, *taken_out_times) if moment is not None]
    since = max(over, default=None)
    latest = world.now + timedelta(seconds=CLOCK_ERROR_SECONDS)  # one from a clock far ahead waits for its time
    counting = (replace(report, time=min(report.time, world.now)) for report in world.reports if report.time <= latest)
    return following((report for report in counting if since is None or report.time > since), world.now)


def _job_sign(summary: Following) -> Sign:
    """Return the failures of jobs as one sign. It only warns: a tenant's failures alone take no node out of use."""
    return Sign(
        JOBS,
        CHECK_WANTED if summary.wants_check else FOLLOWED_BY_FAILURES,
        Severity.WARNING,
        since=summary.since,
        newest=summary.newest,
        action=RecommendedAction.INSPECT,
        message=summary.in_full,
        in_public=summary.in_public,
        offence=False,
        stays=True,
    )

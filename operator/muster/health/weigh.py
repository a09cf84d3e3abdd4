"""Which signs count against a node: a user's release forgives some, and the policy only observes others.

What keeps a node out in spite of a release is added here: its repair, and its maintenance.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from muster.api.fleetpolicy import SourceName
from muster.api.nodehealth import MAX_EVIDENCE, Finding, HealthIncident, NodeHealthStatus, Severity
from muster.health.collect import Signs
from muster.health.incidents import IncidentHistory
from muster.health.job_failures import Following
from muster.health.maintenance import REASONS
from muster.health.node_world import NodeWorld
from muster.health.repairs import LOOK_SECONDS, hold_signs, unverified_sign
from muster.health.signs import JOBS, MAINTENANCE, REPAIR, WEIGHT, Sign
from muster.health.verdict import RELEASED
from muster.world.fleet import Removal


@dataclass(frozen=True, slots=True)
class Weighed:
    """The signs against a node by what they do.

    Attributes:
        counting: the signs that count, strongest first.
        observed: the signs that the policy only observes.
        forgiven: the signs that a user's release covers.
        faults: the signs that count, strongest first, without repairs and maintenance windows.
        followed: the job failures that followed the node and count; None: none do.
        is_known: whether its agent or anyone else reports anything of the node, or a window applies to it.
        only_observed: whether the fault that had the node out is still there, but only observed by now. Then the node
            need not pass a test, because nothing was repaired.
    """

    counting: tuple[Sign, ...]
    observed: tuple[Sign, ...]
    forgiven: tuple[Sign, ...]
    faults: tuple[Sign, ...]
    followed: Following | None
    is_known: bool
    only_observed: bool

    @property
    def worst(self) -> int:
        """The greatest weight of the signs that count."""
        return heaviest(self.counting)

    @property
    def weighing(self) -> list[Sign]:
        """The signs that have the node out, strongest first."""
        return weighing(self.counting)

    @property
    def strongest(self) -> Sign | None:
        """The strongest sign that counts; None: no sign weighs anything."""
        return self.counting[0] if self.counting and self.counting[0].weighs else None

    @property
    def is_offence(self) -> bool:
        """Whether a sign has the node out that is charged to the hardware."""
        return any(sign.offence for sign in self.weighing)

    @property
    def removal(self) -> Removal | None:
        """The removal of the machine that several marks report together; None: no mark reports one.

        The mark with the earliest known time names the removal, and one final mark makes the removal final. Among
        equals a mark of another system comes before one of Kubernetes, which takes no machine away by itself.
        """
        removals = [sign.removal for sign in self.counting if sign.removal is not None]
        if not removals:
            return None
        end = datetime.max.replace(tzinfo=UTC)
        first = min(removals, key=lambda removal: (removal.gone_by or end, removal.by == SourceName.KUBERNETES))
        return replace(first, final=any(removal.final for removal in removals))


def heaviest(signs: Iterable[Sign]) -> int:
    """Return the greatest weight of some signs; 0 where there is none."""
    return max((sign.weighs for sign in signs), default=0)


def weighing(signs: Iterable[Sign]) -> list[Sign]:
    """Return the signs that are grave enough to have a node out."""
    return [sign for sign in signs if sign.weighs >= WEIGHT[Severity.DEGRADED]]


def weigh(world: NodeWorld, signs: Signs, history: IncidentHistory) -> Weighed:
    """Return which of the signs count, with those that no release covers added.

    Args:
        world: what is known of the node.
        signs: what speaks against it.
        history: the incidents on its record.
    """
    steady = [_steady(sign, world) for sign in signs.all]
    forgiven = tuple(sign for sign in steady if _is_forgiven(sign, world))
    keys = {sign.key for sign in forgiven}
    left = [_renewed(sign, world) for sign in steady if sign.key not in keys]
    observed = tuple(sign for sign in left if world.rules.observes(sign))
    counting = [sign for sign in left if not world.rules.observes(sign)]
    faults = _sorted(sign for sign in counting if sign.source != REPAIR)
    counting += _held(world, history)
    return Weighed(
        _sorted(counting),
        observed,
        forgiven,
        faults,
        None if any(sign.source == JOBS for sign in observed) else signs.followed,
        world.before.agent is not None or bool(signs.all) or world.window is not None,
        _is_only_observed_now(history.open, observed, weighing(counting)),
    )


def _sorted(signs: Iterable[Sign]) -> tuple[Sign, ...]:
    return tuple(sorted(signs, key=lambda sign: sign.strength))


def _held(world: NodeWorld, history: IncidentHistory) -> Iterator[Sign]:
    """Yield the signs that a user's release does not cover: of a repair, of a window, and of the time after both."""
    yield from hold_signs(world.before.findings, world.repair, world.now)
    if world.window is not None:
        yield world.window.sign(world.known, world.now)
    ended = history.repair_ended
    if ended is None or (world.released is not None and world.released >= ended) or _is_verified(world, ended):
        return
    work = "maintenance" if history.open and history.open.reason in REASONS else "repair"
    yield unverified_sign(world.before.findings, ended, world.now, work)


def _is_verified(world: NodeWorld, ended: datetime) -> bool:
    """Whether the agent has checked the whole node since work on it ended.

    For that it has to be Ready, and to report about the node's present boot.
    """
    agent = world.before.agent
    boots = {boot for boot in (agent.boot_id if agent else "", world.facts.node.boot_id) if boot}
    is_reporting = world.silence is None and len(boots) < 2
    return is_reporting and (world.now - ended).total_seconds() >= LOOK_SECONDS


def _steady(sign: Sign, world: NodeWorld) -> Sign:
    """Return the sign, with the time when it was first found if it claims to begin now or later."""
    finding = world.known.get(sign.key)
    return replace(sign, since=finding.since) if finding and sign.since >= world.now else sign


def _is_forgiven(sign: Sign, world: NodeWorld) -> bool:
    """Whether a user's release covers a sign. It does not stop the removal of the machine.

    The date of a sign does not decide, because the node's clock may be behind or ahead. A sign that was not there at
    the release is new. A sign that was there and has not changed since is covered.
    """
    released, finding = world.released, world.known.get(sign.key)
    if released is None or sign.removal is not None:
        return False
    if finding is not None and sign.dated is not None and sign.dated > released:
        if finding.released_time is not None:
            return finding.released_time == sign.dated
        return sign.dated > world.now and finding.since <= released
    if sign.newest > released or (finding and finding.since > released and finding.severity is not Severity.INFO):
        return False
    return finding is not None or len(world.known) >= MAX_EVIDENCE or not _has_taken_in(released, world.before)


def _has_taken_in(released: datetime, previous: NodeHealthStatus) -> bool:
    """Whether a verdict after the release has recorded everything that the release covers."""
    ends = (moment for i in previous.incidents for moment in (i.time, i.cleared_time) if moment is not None)
    return previous.reason == RELEASED or any(moment >= released for moment in ends)


def _renewed(sign: Sign, world: NodeWorld) -> Sign:
    """Return the sign, with a beginning after the user's release if it began before."""
    released = world.released
    if released is None or sign.since > released:
        return sign
    finding = world.known.get(sign.key)
    if finding and finding.since > released:
        return replace(sign, since=finding.since)
    return replace(sign, since=sign.newest if sign.newest > released else world.now)


def _is_only_observed_now(was_open: HealthIncident | None, observed: Sequence[Sign], out: Sequence[Sign]) -> bool:
    """Whether the fault that had the node out is still there, but only observed by now.

    Args:
        was_open: the node's open incident; None: there is none.
        observed: the signs that the policy only observes.
        out: the signs that have the node out now.
    """
    if was_open is None or was_open.repair_ended_time is not None or out:
        return False
    return any(sign.reason == was_open.reason for sign in weighing(observed))


def findings_of(world: NodeWorld, weighed: Weighed) -> tuple[Finding, ...]:
    """Return the findings that record the signs, as many as the record has room for."""
    forgiven = [replace(sign, severity=Severity.INFO) for sign in weighed.forgiven]
    keys = {sign.key for sign in forgiven}
    listed = _signs_that_fit([*weighed.counting, *weighed.observed, *forgiven])
    return tuple(_finding(sign, world, is_forgiven=sign.key in keys) for sign in listed)


def _signs_that_fit(signs: Sequence[Sign]) -> Iterator[Sign]:
    """Yield the first signs, as many as the record has room for; signs about a repair are always among them."""
    left = MAX_EVIDENCE - sum(sign.source == REPAIR for sign in signs)
    for sign in signs:
        if sign.source == REPAIR:
            yield sign
        elif left > 0:
            left -= 1
            yield sign


def _finding(sign: Sign, world: NodeWorld, *, is_forgiven: bool) -> Finding:
    """Return the finding that records a sign.

    Where only figures differ from the finding on record, its message is kept, so that nothing is written again.

    Args:
        sign: the sign now.
        world: what is known of the node.
        is_forgiven: whether a user's release covers the sign.
    """
    finding = sign.finding(observed=world.rules.observes(sign))
    if is_forgiven:
        finding = finding.model_copy(update={"released_time": sign.dated})
    old = world.known.get(sign.key)
    if (
        old is None
        or sign.source in (JOBS, MAINTENANCE)
        or old.severity is not finding.severity
        or old.job != finding.job
        or _meaning(old.message) != _meaning(finding.message)
    ):
        return finding
    return finding.model_copy(update={"message": old.message})


def _meaning(message: str) -> str:
    return message.partition(":")[0]

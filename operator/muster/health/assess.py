"""The verdict on one node.

`assess` is a pure function of a `NodeWorld`. Lasting facts are read from the status that was written last. These are
incidents, offences and findings that only a reboot ends. So a new leader continues where the old one stopped.

Without a report there is no verdict: a node without an agent and without a mark has no state. A time in the future
counts as now, so that a clock that jumps neither takes a node out nor releases it.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from muster.api.nodehealth import MAX_INCIDENTS, Decision, HealthIncident, RecommendedAction, Severity
from muster.health.account import OffenceAccount, account_of, offences_if_taken
from muster.health.action import action
from muster.health.causes import causes_of, is_certain
from muster.health.collect import Signs, collect
from muster.health.conclude import conclude
from muster.health.incidents import IncidentHistory, history_of, incidents_of
from muster.health.node_world import NodeWorld
from muster.health.repairs import LOOK_SECONDS
from muster.health.signs import MAINTENANCE, WEIGHT, Clears
from muster.health.sources import in_charge
from muster.health.verdict import FollowUp, Grounds, Record, Verdict
from muster.health.weigh import Weighed, heaviest, weigh


def assess(world: NodeWorld) -> Verdict:
    """Return the verdict on one node, from what is known of it alone."""
    history = history_of(world)
    signs = collect(world)
    weighed = weigh(world, signs, history)
    account = account_of(world, history, is_offence=weighed.is_offence)
    conclusion = conclude(world, history, weighed, account)
    grounds = _grounds(world, weighed, account, conclusion.reason)
    incidents = incidents_of(world, history, conclusion, only_observed=weighed.only_observed)
    record = Record(
        incidents[-MAX_INCIDENTS:],
        account.offences,
        offences_if_taken(world, incidents, account, grounds.causes) if weighed.is_offence else account.offences,
        account.earlier,
        world.facts.node.uid,
        world.boot,
        world.before.check,
    )
    wake = _wake(world, signs, account, history)
    return Verdict(conclusion, grounds, record, _follow_up(weighed, account, incidents, wake))


def _grounds(world: NodeWorld, weighed: Weighed, account: OffenceAccount, reason: str) -> Grounds:
    """Return what has the node out.

    Args:
        world: what is known of the node.
        weighed: the signs against it.
        account: the offences of its machine.
        reason: of the verdict.
    """
    out, window, removal = weighed.weighing, world.window, weighed.removal
    is_out_anyway = world.is_cordoned or account.is_quarantined
    ends = (window.gone_by if window else None, removal.gone_by if removal else None)
    return Grounds(
        causes_of(weighed.counting, reason),
        is_certain(weighed.counting),
        fatal=weighed.worst >= WEIGHT[Severity.FATAL],
        stays=bool(out) and all(sign.stays for sign in out) and not is_out_anyway,
        needs_boot=any(sign.clears is Clears.BOOT for sign in out),
        cordoned=world.is_cordoned,
        in_charge="" if world.is_cordoned else in_charge(weighed.counting, world.facts.node.unschedulable),
        maintenance=window.recorded if window is not None else None,
        removal=removal,
        gone_by=min((moment for moment in ends if moment is not None), default=None),
        only_planned=(window is not None or removal is not None)
        and not is_out_anyway
        and all(sign.stays or (sign.planned if removal else sign.source == MAINTENANCE) for sign in out),
    )


def _follow_up(
    weighed: Weighed, account: OffenceAccount, incidents: Sequence[HealthIncident], wake: datetime | None
) -> FollowUp:
    """Return what is to be done later.

    Args:
        weighed: the signs against the node.
        account: the offences of its machine.
        incidents: of the node, with that of this verdict.
        wake: when to judge it again.
    """
    is_fault = heaviest(weighed.faults) >= WEIGHT[Severity.DEGRADED] or account.is_quarantined
    followed = weighed.followed
    return FollowUp(
        action(weighed.counting, account, incidents),
        action(weighed.faults, account, incidents) if is_fault else RecommendedAction.NONE,
        wake,
        account.faded,
        followed.newest if followed is not None else None,
        followed is not None and followed.wants_check,
        followed.owners if followed is not None and followed.wants_check else (),
    )


def _wake(world: NodeWorld, signs: Signs, account: OffenceAccount, history: IncidentHistory) -> datetime | None:
    """Return when the verdict may change by time alone; None: never."""
    human, ended = world.decision, history.repair_ended
    is_to_come = human and world.released is None and human.decision is Decision.RELEASE
    moments = (
        signs.ripe,
        world.window_changes,
        signs.followed.ends if signs.followed else None,
        signs.steady_until,
        account.fades(world),
        human.time if human and is_to_come else None,
        ended + timedelta(seconds=LOOK_SECONDS) if ended is not None else None,
    )
    return min((moment for moment in moments if moment is not None and moment > world.now), default=None)

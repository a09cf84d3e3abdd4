"""What should be done with a machine, from the signs that count and from what was tried before."""

from collections.abc import Sequence
from datetime import timedelta

from muster.api.nodehealth import HealthIncident, RecommendedAction, Severity
from muster.health.account import OffenceAccount
from muster.health.incidents import ANOTHER_MACHINE
from muster.health.signs import EFFORT, WEIGHT, Sign
from muster.health.weigh import heaviest

SAME_FAULT_SECONDS = 30 * 86400
"""A fault that comes back within this time was not repaired by what was done about it."""


def action(signs: Sequence[Sign], account: OffenceAccount, incidents: Sequence[HealthIncident]) -> RecommendedAction:
    """Return the action that repairs most among the gravest signs; a stronger one if it was tried before.

    Args:
        signs: the signs that count.
        account: the offences of the machine.
        incidents: of the node, with that of this verdict.
    """
    least = min(heaviest(signs), WEIGHT[Severity.DEGRADED])
    actions = [_repeated(sign, incidents) for sign in signs if sign.weighs and sign.weighs >= least]
    gravest = max(actions, key=lambda action: EFFORT[action], default=RecommendedAction.NONE)
    if not account.is_quarantined:
        return gravest
    repaired_in_vain = gravest in (RecommendedAction.RESET, RecommendedAction.REBOOT, RecommendedAction.REPLACE)
    return RecommendedAction.REPLACE if repaired_in_vain else RecommendedAction.INSPECT


def _repeated(sign: Sign, incidents: Sequence[HealthIncident]) -> RecommendedAction:
    if sign.then is None:
        return sign.action
    of_another = max((i for i, incident in enumerate(incidents) if incident.cleared_by == ANOTHER_MACHINE), default=-1)
    since = sign.since - timedelta(seconds=SAME_FAULT_SECONDS)
    has_recurred = any(
        i.reason == sign.reason and i.cleared_time and i.time >= since for i in incidents[of_another + 1 :]
    )
    return sign.then if has_recurred else sign.action

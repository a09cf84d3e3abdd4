"""The Node condition by which other systems can read what Muster itself has seen of a node. Pure.

It has no figures, ages or texts of users, so that it changes only when the verdict does. A node of which nothing was
ever known has no such condition. Muster itself never reads it as evidence.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from muster.api.base import rfc3339
from muster.api.nodehealth import VerdictState
from muster.health.signs import OWN_SOURCES, WEIGHT
from muster.health.verdict import AWAITS_BURN_IN, OUT, Verdict
from muster.world.views import MUSTER_HEALTHY, ConditionView

TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"
HEALTHY, NOTHING_KNOWN, MARKED_BY_OTHERS = "Healthy", "NothingKnown", "MarkedByOthers"


@dataclass(frozen=True, slots=True)
class Mark:
    """The content of the condition `MusterHealthy` of one node.

    Attributes:
        status: True: the node is in use, even with weak evidence. False: it should not be used. Unknown: nothing is
            known about it now.
        reason: of the strongest finding of Muster itself, in CamelCase.
        message: text for users.
    """

    status: str
    reason: str
    message: str


def mark_of(name: str, verdict: Verdict) -> Mark:
    """Return the content of the condition `MusterHealthy` for a node's verdict.

    Another system may mark the node because this condition is False, and remove its mark only when it is True. So marks
    of others do not change the status. The reason and the message say that they are there.

    Args:
        name: of the node.
        verdict: on the node.
    """
    conclusion = verdict.conclusion
    weighing = [finding for finding in conclusion.findings if WEIGHT[finding.severity] and not finding.observed]
    own = next((finding.reason for finding in weighing if finding.source in OWN_SOURCES), "")
    other = next((finding for finding in weighing if finding.source not in OWN_SOURCES), None)
    where = f"kubectl describe nodehealth {name} shows"
    beside = f" {other.source} marks it ({other.reason}), which does not count here: {where} both." if other else ""
    state = conclusion.own
    if state is None:
        return Mark(UNKNOWN, NOTHING_KNOWN, f"Muster itself knows nothing about this node.{beside}")
    if state is VerdictState.HEALTHY:
        return Mark(TRUE, MARKED_BY_OTHERS if other else HEALTHY, f"Muster itself sees no fault of this node.{beside}")
    if state is VerdictState.QUARANTINED:
        own = conclusion.reason
    elif state is VerdictState.VALIDATING:
        own = AWAITS_BURN_IN
    return Mark(FALSE if state in OUT else TRUE, own, f"{state.value}: {where} the reason.{beside}")


def patch(conditions: Iterable[ConditionView], wanted: Mark | None, now: datetime) -> dict[str, Any] | None:
    """Return the strategic merge patch of the Node's status that makes the condition `MusterHealthy` as wanted.

    The patch leaves the conditions of other systems alone. The result is None where the condition is as wanted already,
    or where it does not exist and would be Unknown.

    Args:
        conditions: of the node, as last read.
        wanted: the content; None: the condition is to be removed.
        now: the time that a change of the status gets.
    """
    is_there = next((condition for condition in conditions if condition.type == MUSTER_HEALTHY), None)
    if wanted is None:
        return None if is_there is None else removal()
    if is_there is None and wanted.status == UNKNOWN:
        return None
    if is_there is not None and (is_there.status, is_there.reason, is_there.message) == (
        wanted.status,
        wanted.reason,
        wanted.message,
    ):
        return None
    new_condition = {
        "type": MUSTER_HEALTHY,
        "status": wanted.status,
        "reason": wanted.reason,
        "message": wanted.message,
    }
    moment = rfc3339(now.astimezone(UTC).replace(microsecond=0))
    new_condition["lastHeartbeatTime"] = moment
    if is_there is None or is_there.status != wanted.status or is_there.since is None:
        new_condition["lastTransitionTime"] = moment
    return {"status": {"conditions": [new_condition]}}


def removal() -> dict[str, Any]:
    """Return the strategic merge patch of a Node's status that removes the condition `MusterHealthy`."""
    return {"status": {"conditions": [{"$patch": "delete", "type": MUSTER_HEALTHY}]}}

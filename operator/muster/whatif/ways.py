"""What the shipped recovery does about a failure, by how it shows: after how long, and whether another node is needed.

Time-outs, fences and what evidence weighs are asked of the modules that decide by them. What Muster itself needs beyond
them is a constant here, held to the full simulation by a test.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from muster.api.gang import FENCE_SECONDS
from muster.api.nodehealth import Severity
from muster.health.kinds import KINDS
from muster.health.xids import XIDS, xid
from muster.lifecycle.directive import POLL_SECONDS
from muster.protocol.fence import fenced_after_seconds, marked_after_seconds, wanted_fence_seconds
from muster.whatif.plan import Plan

CRASH, HANG, SILENT = "Crash", "Hang", "Silent"
# From the first word of a failure to the launchers' starting: one report, one decision, one answer. 0.3 s in a
# simulated gang of four; among 1,024 a failed pod is back after 1.7 s, the pod's own start included (make bench-gang).
DECIDE_SECONDS = POLL_SECONDS
# From a sign on a node to the verdict: the agent looks about once a second, the operator needs less (make
# bench-health).
EVIDENCE_SECONDS = 1.0
_XID = re.compile(r"Xid(\d{1,9})")


class HowError(ValueError):
    """Nothing shows like that; the message says what does."""


class Leaves(StrEnum):
    """Whether the worker moves to another node."""

    NEVER = "Never"
    IF_FREE = "IfFree"
    ALWAYS = "Always"


@dataclass(frozen=True, slots=True)
class Way:
    """How one kind of failure goes.

    Attributes:
        noticed_seconds: from the failure until the ranks may start again where they are, as far as it is up to Muster.
        leaves: whether the worker moves to another node.
        needs_ranks: it can strike only while ranks run.
        own: it counts as the job's own doing, and not as that of a node.
    """

    noticed_seconds: float
    leaves: Leaves
    needs_ranks: bool
    own: bool = False


def way_of_words(how: str) -> Severity | None:
    """What the evidence weighs that `how` names; None for the words that name none.

    Raises:
        HowError: there is no such evidence.
    """
    if how in (CRASH, HANG, SILENT):
        return None
    number = _XID.fullmatch(how)
    if number and int(number[1]) in XIDS:
        return xid(int(number[1])).severity
    if how in KINDS and how not in ("Xid", "SXid", "RecoveryAction"):
        return KINDS[how].severity
    raise HowError(
        f"nothing shows as {how!r}: write {CRASH}, {HANG}, {SILENT}, an XID like Xid79, or a kind of evidence like "
        "IbPortDown (docs/node-health.md lists them)"
    )


def way_of(how: str, plan: Plan) -> Way:
    """How a failure that shows like this goes in the gang of a plan.

    Raises:
        HowError: nothing shows like that.
    """
    severity = way_of_words(how)
    if how == HANG:
        return Way(plan.hang_seconds + DECIDE_SECONDS, Leaves.NEVER, True, own=True)
    if how == SILENT:
        return Way(silent_seconds(plan) + DECIDE_SECONDS, Leaves.ALWAYS, False)
    if severity is Severity.FATAL:
        return Way(EVIDENCE_SECONDS + DECIDE_SECONDS, Leaves.ALWAYS, False)
    # A rank that fails on a sick node goes elsewhere if that is possible.
    if severity is Severity.DEGRADED:
        return Way(DECIDE_SECONDS, Leaves.IF_FREE, True)
    return Way(DECIDE_SECONDS, Leaves.NEVER, True, own=True)


def silent_seconds(plan: Plan) -> float:
    """From the moment at which a node falls silent until its worker is given up and its ranks are proved to have ended.

    In a gang of more the two run side by side: its fence counts from its last sign. A gang of one has nobody who misses
    it: the fence file is written once it is given up, and waited for (docs/decisions/0012).
    """
    fence = wanted_fence_seconds(FENCE_SECONDS, plan.step_seconds)
    if plan.nodes == 1:
        return plan.unreachable_seconds + marked_after_seconds(fence)
    return max(plan.unreachable_seconds, fenced_after_seconds(fence))

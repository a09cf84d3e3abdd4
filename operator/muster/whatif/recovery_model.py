"""Models the shipped recovery from a failure, by its symptom: how long it takes, and whether another node is needed.

Time-outs, fences and the severity of evidence come from the modules that decide by them. The time that Muster itself
needs beyond them is a constant here; a test compares it with the full simulation.
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
# From the first report of a failure to the start by the launchers: one report, one decision, one answer. 0.3 s in a
# simulated gang of four; among 1,024 a failed pod is back after 1.7 s, the pod's own start included (make bench-gang).
DECIDE_SECONDS = POLL_SECONDS
# From a sign on a node to the verdict: the agent polls about once a second, the operator needs less (make
# bench-health).
EVIDENCE_SECONDS = 1.0
_XID = re.compile(r"Xid(\d{1,9})")


class SymptomError(ValueError):
    """No failure shows in this way; the message lists the known ones."""


class Leaves(StrEnum):
    """Whether the worker moves to another node."""

    NEVER = "Never"
    IF_FREE = "IfFree"
    ALWAYS = "Always"


@dataclass(frozen=True, slots=True)
class Way:
    """The recovery from one kind of failure.

    Attributes:
        noticed_seconds: from the failure until Muster allows the ranks to start again in place.
        leaves: whether the worker moves to another node.
        needs_ranks: the failure can strike only while ranks run.
        own: the failure counts against the job's application budget, and not against the hardware budget.
    """

    noticed_seconds: float
    leaves: Leaves
    needs_ranks: bool
    own: bool = False


def severity_of_evidence(symptom: str) -> Severity | None:
    """Return the severity of the evidence that `symptom` names; None for Crash, Hang and Silent.

    Raises:
        SymptomError: `symptom` names no known evidence.
    """
    if symptom in (CRASH, HANG, SILENT):
        return None
    number = _XID.fullmatch(symptom)
    if number and int(number[1]) in XIDS:
        return xid(int(number[1])).severity
    if symptom in KINDS and symptom not in ("Xid", "SXid", "RecoveryAction"):
        return KINDS[symptom].severity
    raise SymptomError(
        f"{symptom!r} is no symptom of a failure: write {CRASH}, {HANG}, {SILENT}, an XID like Xid79, or a kind of "
        "evidence like IbPortDown (docs/node-health.md lists them)"
    )


def way_of(symptom: str, plan: Plan) -> Way:
    """Return the recovery from a failure that shows like `symptom`, in the gang of a plan.

    Raises:
        SymptomError: no failure shows in this way.
    """
    severity = severity_of_evidence(symptom)
    if symptom == HANG:
        return Way(plan.hang_seconds + DECIDE_SECONDS, Leaves.NEVER, True, own=True)
    if symptom == SILENT:
        return Way(silent_seconds(plan) + DECIDE_SECONDS, Leaves.ALWAYS, False)
    if severity is Severity.FATAL:
        return Way(EVIDENCE_SECONDS + DECIDE_SECONDS, Leaves.ALWAYS, False)
    # A rank that fails on a degraded node moves to another node if one is free.
    if severity is Severity.DEGRADED:
        return Way(DECIDE_SECONDS, Leaves.IF_FREE, True)
    return Way(DECIDE_SECONDS, Leaves.NEVER, True, own=True)


def silent_seconds(plan: Plan) -> float:
    """Return the time from the moment at which a node falls silent until its worker is given up and its ranks are
    fenced.

    In a gang of several workers the two run in parallel: the fence counts from the last sign of life. In a gang of one
        no peer misses the worker: the fence file is written after the worker is given up, and then waited for
        (docs/decisions/0012).
    """
    fence = wanted_fence_seconds(FENCE_SECONDS, plan.step_seconds)
    if plan.nodes == 1:
        return plan.unreachable_seconds + marked_after_seconds(fence)
    return max(plan.unreachable_seconds, fenced_after_seconds(fence))

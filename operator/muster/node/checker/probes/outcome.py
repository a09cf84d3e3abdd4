"""Names the possible outcomes of a probe: those that say something about the node, and those that do not.

Tests: tests/unit/preflight_probes/test_rules.py.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Optional

DONE = "Done"
"""The probe has figures; it does not decide whether they are good."""

WRONG = "Wrong"
"""A result was wrong: bits that differ, memory that loses data, a file that reads back differently."""
MISSING = "Missing"
"""There are fewer devices than expected."""
HUNG = "Hung"
"""The probe did not end before its deadline, or not even after it was killed."""
CRASHED = "Crashed"
"""The process ended without an answer."""
FAILED = "Failed"
"""The driver, the library or the file system answered with an error."""

NO_RESULT = "NoResult"
"""The members connected, and then had no result in time: in a pair either node may be the cause."""
COULD_NOT_CONNECT = "CouldNotConnect"
"""The members never met."""
OTHER_ENDED = "OtherEnded"
"""Another member ended: this one is its victim."""

CANCELLED = "Cancelled"
"""The sender cancelled the order, or there was nothing left to wait for."""
FLOODED = "Flooded"
"""The probe printed without end and was killed for it."""
IN_USE = "InUse"
"""A process of another user has the GPU."""
MIG = "Mig"
"""The GPU is divided into MIG slices: it has no rate of its own."""
UNFIT = "Unfit"
"""The order cannot run here: no such directory, not enough memory."""
REFUSED = "Refused"
"""The order makes no sense."""
NO_TIME = "NoTime"
"""The profile's time was over before the probe's start."""

NEEDS = (WRONG, MISSING, HUNG, CRASHED, FAILED, NO_RESULT, COULD_NOT_CONNECT, OTHER_ENDED)
"""The worst first: the whole is named after its worst part. The others follow in any order."""
ABOUT_THE_NODE = frozenset({WRONG, MISSING, HUNG, CRASHED, FAILED})

_GONE = re.compile(
    r"connection reset|reset by peer|closed by (?:peer|remote)|connection closed|broken pipe|socket closed|"
    r"remote process exited|ncclRemoteError",
    re.IGNORECASE,
)
_LATE = re.compile(r"timed out|timeout|time out", re.IGNORECASE)


class ProblemError(Exception):
    """Ends a probe with an outcome, a message for people and the figures so far."""

    def __init__(self, outcome: str, message: str, figures: Optional[Dict[str, Any]] = None) -> None:
        super().__init__(message)
        self.outcome = outcome
        self.figures = figures or {}


def worst(outcomes: "list[str]") -> str:
    """Return the worst of these outcomes."""
    for outcome in NEEDS:
        if outcome in outcomes:
            return outcome
    return next((outcome for outcome in outcomes if outcome != DONE), DONE)


def of_network(text: str, connected: bool) -> str:
    """Return the outcome for an error of gloo, NCCL or the store, by its message.

    gloo says "Timed out waiting 2000ms for recv operation" and "Connection reset by peer" (gloo/transport/tcp); NCCL
    says "remote process exited or there was a network error" (ncclRemoteError).
    """
    if not connected:
        return COULD_NOT_CONNECT
    if _GONE.search(text):
        return OTHER_ENDED
    if _LATE.search(text):
        return NO_RESULT
    return FAILED

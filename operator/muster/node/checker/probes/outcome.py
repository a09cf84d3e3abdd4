"""How a probe may end, each by a word of its own: what says something about the node, and what says nothing."""

from __future__ import annotations

import re
from typing import Any, Dict, Optional

DONE = "Done"
"""It has figures; whether they are good is not for the probe to say."""

WRONG = "Wrong"
"""A result was not what it must be: bits that differ, memory that forgets, a file that reads back otherwise."""
MISSING = "Missing"
"""Fewer devices than expected."""
HUNG = "Hung"
"""No end before its deadline, or not even after it was killed."""
CRASHED = "Crashed"
"""The process ended without an answer."""
FAILED = "Failed"
"""The driver, the library or the file system answered with an error."""

NO_RESULT = "NoResult"
"""Connected, and then no result in time: of a pair either may be the cause."""
COULD_NOT_CONNECT = "CouldNotConnect"
"""The members never met."""
OTHER_ENDED = "OtherEnded"
"""Another member went away: this one is its victim."""

CANCELLED = "Cancelled"
"""Whoever gave the order took it back, or there was nothing left to wait for."""
FLOODED = "Flooded"
"""It printed without end and was ended for it."""
IN_USE = "InUse"
"""A process that is not ours has the GPU."""
MIG = "Mig"
"""The GPU is cut into slices: it has no rate of its own."""
UNFIT = "Unfit"
"""What was asked cannot be run here: no such directory, not enough memory."""
REFUSED = "Refused"
"""The order makes no sense."""
NO_TIME = "NoTime"
"""The profile's time was over before its turn."""

NEEDS = (WRONG, MISSING, HUNG, CRASHED, FAILED, NO_RESULT, COULD_NOT_CONNECT, OTHER_ENDED)
"""The worst first: what the whole is called where its parts differ. The others follow in any order."""
ABOUT_THE_NODE = frozenset({WRONG, MISSING, HUNG, CRASHED, FAILED})

_GONE = re.compile(
    r"connection reset|reset by peer|closed by (?:peer|remote)|connection closed|broken pipe|socket closed|"
    r"remote process exited|ncclRemoteError",
    re.IGNORECASE,
)
_LATE = re.compile(r"timed out|timeout|time out", re.IGNORECASE)


class ProblemError(Exception):
    """Ends a probe with an outcome, words for people and the figures that it has so far."""

    def __init__(self, outcome: str, message: str, figures: Optional[Dict[str, Any]] = None) -> None:
        super().__init__(message)
        self.outcome = outcome
        self.figures = figures or {}


def worst(outcomes: "list[str]") -> str:
    """What the whole is called."""
    for outcome in NEEDS:
        if outcome in outcomes:
            return outcome
    return next((outcome for outcome in outcomes if outcome != DONE), DONE)


def of_network(text: str, connected: bool) -> str:
    """Which outcome an error of gloo, NCCL or the store stands for, by its words.

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

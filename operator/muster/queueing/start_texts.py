"""The reasons in the estimate of a start: why a job starts then, or why its start is not known. Pure.

Tests: tests/unit/queueing/test_starts.py.
"""

from dataclasses import dataclass
from datetime import datetime

from muster.placement.names import OTHERS
from muster.queueing.ends import BASIS_TEXT, EndBasis
from muster.queueing.freed import Event, Freed
from muster.world.queuedecision import NotPlaced

GIVE_WAY = "other jobs give way after a save"
NOT_SIDE_BY_SIDE = "too few nodes that it could use are side by side"
_ESTIMATE = "spec.queueing.expectedDurationSeconds there"


@dataclass(frozen=True, slots=True)
class Cause:
    """The job, or the pod, that another job waits for.

    Attributes:
        name: its name, as the owner of the waiting job may see it.
        basis: what its end follows from; None: it is not said.
        overdue_since: when it should have ended; None: it need not have.
        is_outranked: whether it has nodes of its own, and lower priority.
    """

    name: str
    basis: EndBasis | None = None
    overdue_since: datetime | None = None
    is_outranked: bool = False


def known_text(last: Freed, cause: Cause) -> str:
    """Return why a job starts when the last of its nodes is free."""
    name = cause.name
    if last.event is Event.NOTHING:
        return "its nodes are free"
    if last.event is Event.HOLDERS_GIVE_WAY:
        if not last.seconds:
            return GIVE_WAY
        if not cause.is_outranked:
            return f"nodes are lent to {name} until then"
        nodes = "their nodes" if name in OTHERS else "its nodes"
        return f"{name} {_fit(name, 'keeps')} {nodes} until then, and {_fit(name, 'has')} lower priority"
    if last.event is Event.HOLDER_LEAVES:
        return f"{name} {_fit(name, 'gives')} way to a job before it in the queue then"
    if last.event is Event.WAITING_JOB_STARTS:
        return f"{name} {_fit(name, 'starts')}, before it in the queue"
    ends = f"{_fit(name, 'ends')}{_basis_text(cause)}"
    if last.event is Event.WAITING_JOB_ENDS:
        return f"{name}, before it in the queue, {_fit(name, 'has')} started, and {ends}"
    return f"{name} {ends}"


def unknown_text(freed: Freed, cause: Cause) -> str:
    """Return why it is not known when nodes are free, and what would let it be known."""
    name = cause.name
    if freed.event is Event.OTHER_PODS_END:
        return "when other pods leave enough room on its nodes is not known"
    if freed.event is Event.WAITING_JOB_STARTS:
        return f"when {name} {_fit(name, 'starts')}, before it in the queue, is not known"
    if freed.event is Event.WAITING_JOB_ENDS:
        return f"when {name}, before it in the queue, {_fit(name, 'ends')} is not known{_remedy_text(name)}"
    if name not in OTHERS and cause.overdue_since is not None:
        remedy = f": raise {_ESTIMATE}" if cause.basis is EndBasis.EXPECTED else ""
        return f"{name} should have ended at {cause.overdue_since:%Y-%m-%d %H:%M} UTC{_basis_text(cause)}{remedy}"
    if name not in OTHERS and cause.basis is EndBasis.STEPS:
        return f"when {name} ends is not known: it makes no steps"
    return f"when {name} {_fit(name, 'ends')} is not known{_remedy_text(name)}"


def other_reason_text(answer: NotPlaced) -> str:
    """Return why the start of a job is not known that waits for something else than the end of other jobs."""
    return f"it is not known for how long {answer.reason} keeps it waiting"


def _fit(name: str, verb: str) -> str:
    """Return the verb to fit the name of one job, or the words for jobs that are not named."""
    return {"has": "have"}.get(verb, verb.removesuffix("s")) if name in OTHERS else verb


def _basis_text(cause: Cause) -> str:
    text = f" {BASIS_TEXT[cause.basis]}" if cause.basis is not None else ""
    return text.replace(" its ", " their ") if cause.name in OTHERS else text


def _remedy_text(name: str) -> str:
    return "" if name in OTHERS or name.startswith("pod ") else f": set {_ESTIMATE}"

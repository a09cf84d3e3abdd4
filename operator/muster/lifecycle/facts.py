"""What a decision is made from: the phase is chosen by it, and the phases plan with it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from muster.api.gang import Gang
from muster.api.trainingjob import CompletionRecord
from muster.recovery.failure import Failure


class Step(StrEnum):
    """The next step of a planned evacuation.

    Cancelled: the evacuation is not needed any more. Released: a suspended job that has not started gives its nodes
    back. Moved: members move before the start. Begun: the gang is asked to save. Over: the ranks stop, saved or out of
    time.
    """

    CANCELLED = "Cancelled"
    RELEASED = "Released"
    MOVED = "Moved"
    BEGUN = "Begun"
    OVER = "Over"


@dataclass(frozen=True, slots=True)
class Due:
    """The next step of a planned evacuation, with what it needs.

    Attributes:
        step: the step.
        why: by node to leave, why, as text; empty: all nodes, because of a suspension.
        reason: of the evacuation, in CamelCase.
        saves_until: until when the evacuation waits for a checkpoint; None: it has not begun.
    """

    step: Step
    why: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    saves_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts from which one decision about a job is made.

    Attributes:
        deleted: whether the job is being deleted.
        completion: the recorded end of a job that has ended; None: none is recorded.
        gang: the record; None: there is none.
        end: how the job has ended just now, to be recorded; None: it has not.
        failures: what is wrong with the current attempt; for a job without nodes, what its last ranks report.
        settles: whether the blame for an incident is to be made final now.
        evacuation: the next step of a planned evacuation; None: there is none.
    """

    deleted: bool = False
    completion: CompletionRecord | None = None
    gang: Gang | None = None
    end: CompletionRecord | None = None
    failures: tuple[Failure, ...] = ()
    settles: bool = False
    evacuation: Due | None = None

"""What a decision is made from: the phase is chosen by it, and the phases plan with it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from muster.api.gang import Gang
from muster.api.trainingjob import CompletionRecord
from muster.recovery.failure import Failure


class Step(StrEnum):
    """How far a planned evacuation has come."""

    CANCELLED = "Cancelled"
    RELEASED = "Released"
    MOVED = "Moved"
    BEGUN = "Begun"
    OVER = "Over"


@dataclass(frozen=True, slots=True)
class Due:
    """The next step of a planned evacuation.

    Attributes:
        why: nodes to leave -> what is the matter with them, in words; empty: all of them, because of a suspension.
        reason: of the evacuation.
        saves_until: how long the evacuation waits for a checkpoint; None: it has not begun.
    """

    step: Step
    why: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    saves_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """What is so.

    Attributes:
        deleted: the job is being deleted.
        completion: of a job that has ended, as it is recorded.
        gang: the record, if there is one.
        end: what has to be recorded, of a job that has ended just now.
        failures: what is wrong with the current attempt; of a job without nodes what its last ranks say.
        settles: it is time to make the blame for an incident final.
        evacuation: what a planned evacuation comes to now, if anything.
    """

    deleted: bool = False
    completion: CompletionRecord | None = None
    gang: Gang | None = None
    end: CompletionRecord | None = None
    failures: tuple[Failure, ...] = ()
    settles: bool = False
    evacuation: Due | None = None

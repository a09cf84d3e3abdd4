"""What a decision reports of a job, before conditions, messages and Events are made of it.

Tests: tests/unit/status/test_job_status.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from muster.api.trainingjob import CompletionRecord
from muster.world.queuedecision import NotPlaced

ASSEMBLING = "Assembling"
"""The reason of a start that waits for pods."""


@dataclass(frozen=True, slots=True)
class Announcement:
    """An Event about the job: `reason` is stable CamelCase, `note` is for people."""

    reason: str
    note: str
    warning: bool = False


class State(StrEnum):
    """The state of a job that its status reports, before conditions and messages are made of it."""

    PENDING = "Pending"
    STALLED = "Stalled"
    SUSPENDED = "Suspended"
    STARTING = "Starting"
    TRAINING = "Training"
    HELD = "Held"
    EJECTED = "Ejected"
    COMPLETED = "Completed"


@dataclass(frozen=True, slots=True)
class StatusReport:
    """What the status of the job has to report.

    Attributes:
        state: of the job.
        reason: stable and in CamelCase; "" where the state itself has a better one.
        message: for people.
        answer: why a job that waits for nodes gets none; None: it does not wait.
        template_refused: whether the API server does not accept the template.
        completion: the end of a job that has ended; None: it has not.
        without_place: of a job that trains: by node, the reason to leave it, where no worker has a node to move to.
    """

    state: State
    reason: str = ""
    message: str = ""
    answer: NotPlaced | None = None
    template_refused: bool = False
    completion: CompletionRecord | None = None
    without_place: Mapping[str, str] = field(default_factory=dict)

"""What a decision may ask for. Every action carries what it expects, so that doing it twice or too late is harmless."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from muster.api.gang import GangSpec
from muster.api.trainingjob import CompletionRecord, TrainingJobStatus
from muster.world.checks import NodeChecks
from muster.world.turn import NotPlaced


@dataclass(frozen=True, slots=True)
class CommitGang:
    """Create the Gang (`resource_version` empty) or replace its spec if it still has that resourceVersion."""

    spec: GangSpec
    resource_version: str


@dataclass(frozen=True, slots=True)
class CheckTemplate:
    """Ask the API server, by a dry run of worker 0, whether it accepts the template, and try the step pattern.

    Attributes:
        step_pattern: spec.progress.stepPattern, which nothing here may compile: it is a user's; "" = none.
        claims: names of volume claims of which to find out whether only the cluster's scheduler can deal with them.
    """

    pod: dict[str, Any]
    generation: int
    claims: tuple[str, ...] = ()
    step_pattern: str = ""


@dataclass(frozen=True, slots=True)
class ApplySupport:
    """Create or update an object that all workers share (certificates, disruption budget, service)."""

    manifest: dict[str, Any]


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Create a worker's pod; that it exists already is fine.

    Attributes:
        node: where it is to run; "" where somebody else chooses.
    """

    manifest: dict[str, Any]
    node: str = ""


@dataclass(frozen=True, slots=True)
class BindPod:
    """Bind exactly this pod (by uid) to its node; that it is bound already is fine."""

    name: str
    uid: str
    node: str


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete exactly this pod (by uid)."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Delete the finished job; everything it owns follows."""


Action = CommitGang | CheckTemplate | ApplySupport | CreatePod | BindPod | DeletePod | DeleteJob


@dataclass(frozen=True, slots=True)
class Announcement:
    """An Event about the job: `reason` is stable CamelCase, `note` is for people."""

    reason: str
    note: str
    warning: bool = False


class State(StrEnum):
    """What there is to tell of a job, before it is put into words and conditions."""

    PENDING = "Pending"
    STALLED = "Stalled"
    SUSPENDED = "Suspended"
    STARTING = "Starting"
    TRAINING = "Training"
    COMPLETED = "Completed"


@dataclass(frozen=True, slots=True)
class Telling:
    """What people shall be told of the job.

    Attributes:
        reason: stable CamelCase; "" where the state itself knows a better one.
        message: for people.
        answer: of a job that waits for nodes: why there are none.
        template_refused: the API server does not accept the template.
        completion: of a job that has ended.
    """

    state: State
    reason: str = ""
    message: str = ""
    answer: NotPlaced | None = None
    template_refused: bool = False
    completion: CompletionRecord | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The outcome of one decision.

    Attributes:
        actions: performed in order; a failing one ends the pass.
        telling: what people shall be told, None to leave what they have been told.
        status: the same as the job's status; filled in once, at the end of a decision.
        announcements: Events, emitted only after actions and status have succeeded.
        wake_in_seconds: decide again after this long even if nothing is seen to change.
        checks: by node, what the checkers of the gang's nodes shall do from now on; None: nothing.
        overtaken: the nodes that the queue had promised are no longer to be had: its plan has to be made anew.
    """

    actions: tuple[Action, ...] = ()
    telling: Telling | None = None
    announcements: tuple[Announcement, ...] = ()
    wake_in_seconds: float | None = None
    overtaken: bool = False
    checks: Mapping[str, NodeChecks] | None = None
    status: TrainingJobStatus | None = None

    @property
    def acts(self) -> bool:
        """Whether anything is done that the next decision can go on from at once.

        Asking for what is there already is not; nor is a binding, which only the watch will show.
        """
        return any(not isinstance(action, ApplySupport | BindPod) for action in self.actions)

    @property
    def commits(self) -> bool:
        """Whether a Gang is committed: launchers that wait for their directive are answered then."""
        return any(isinstance(action, CommitGang) for action in self.actions)

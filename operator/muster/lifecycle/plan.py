"""What a decision may ask for. Every action carries what it expects, so that doing it twice or too late is harmless.

Tests: tests/unit/controller/test_reconciler.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from muster.api.gang import GangSpec
from muster.api.trainingjob import TrainingJobStatus
from muster.placement.eligibility import Requirements
from muster.status.report import Announcement, StatusReport
from muster.world.checks import NodeChecks


@dataclass(frozen=True, slots=True)
class CommitGang:
    """Create the Gang (`resource_version` empty) or replace its spec if it still has that resourceVersion."""

    spec: GangSpec
    resource_version: str


@dataclass(frozen=True, slots=True)
class CheckTemplate:
    """Ask the API server, by a dry run of worker 0, whether it accepts the template, and try the step pattern.

    Attributes:
        pod: the manifest of worker 0.
        generation: of the job that is checked.
        claims: names of volume claims; for these it is found out whether only the cluster's scheduler can place them.
        step_pattern: spec.progress.stepPattern; "": none. It is a user's, so that no code here may compile it.
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
    """Create a worker's pod; it is no error that the pod exists already.

    Attributes:
        manifest: of the pod.
        node: where the pod is to run; "" where another scheduler chooses.
    """

    manifest: dict[str, Any]
    node: str = ""


@dataclass(frozen=True, slots=True)
class BindPod:
    """Bind exactly this pod (by UID) to its node; it is no error that the pod is bound already."""

    name: str
    uid: str
    node: str


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete exactly this pod (by UID)."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Delete the finished job; everything it owns follows."""


Action = CommitGang | CheckTemplate | ApplySupport | CreatePod | BindPod | DeletePod | DeleteJob


@dataclass(frozen=True, slots=True)
class Plan:
    """The result of one decision about a job.

    Attributes:
        actions: performed in order; the first one that fails ends the pass.
        status_report: what the status has to report; None: it stays as it is.
        announcements: Events, emitted only after actions and status have succeeded.
        wake_in_seconds: after this long to decide again even if nothing changes; None: never.
        overtaken: whether the nodes that the queue had promised are taken, so that the queue has to plan again.
        checks: by node, the tasks of the checkers of the gang's nodes from now on; None: none.
        status: the job's status made of `status_report`; filled in once, at the end of a decision.
        unprepared: what the solver has to be prepared for, by `Tree.prepare`, before this job can be decided about; the
            plan has nothing else then. None: it is prepared.
    """

    actions: tuple[Action, ...] = ()
    status_report: StatusReport | None = None
    announcements: tuple[Announcement, ...] = ()
    wake_in_seconds: float | None = None
    overtaken: bool = False
    checks: Mapping[str, NodeChecks] | None = None
    status: TrainingJobStatus | None = None
    unprepared: Requirements | None = None

    @property
    def acts(self) -> bool:
        """Whether the plan changes anything from which the next decision can go on at once.

        Support objects may exist already, and only the watch shows a binding: these actions do not count.
        """
        return any(not isinstance(action, ApplySupport | BindPod) for action in self.actions)

    @property
    def commits(self) -> bool:
        """Whether a Gang is committed: launchers that wait for their directive are answered then."""
        return any(isinstance(action, CommitGang) for action in self.actions)

"""Explain the state of one job: pure, from the TrainingJob and its Events to the answer of `status`.

Tests: tests/unit/cli/test_explanation.py.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from pydantic import Field

from muster.answers.reasons import NEXT_BY_REASON, OPERATOR_LOGS
from muster.api.base import ApiModel, Time
from muster.api.trainingjob import Condition, TrainingJob, TrainingJobStatus

OUTPUT_VERSION = "cli.muster.dev/v1alpha1"
MAX_EVENTS = 16
# The condition whose message goes with a state.
_CONDITIONS: Mapping[str, str] = {
    "Pending": "Placed",
    "Starting": "Reconciling",
    "Recovering": "Reconciling",
    "Running": "Running",
    "Saving": "Running",
    "Held": "Running",
    "Suspended": "Suspended",
    "Stalled": "Stalled",
    "Succeeded": "Succeeded",
    "Failed": "Succeeded",
}
ENDED = frozenset({"Succeeded", "Failed"})
# Next steps by state, with the names in braces of `Reason.next`.
NEXT_BY_STATE: Mapping[str, Sequence[str]] = {
    "": (
        "is the operator running, or is Muster installed with a profile that runs no jobs? "
        "kubectl -n muster-system get pods -l app.kubernetes.io/name=muster",
        f"what does it say? {OPERATOR_LOGS}",
    ),
    "Failed": (
        "what the workers printed: {logs}",
        "the same job once more, as it is: kubectl muster requeue {called}",
        "when the cause is repaired, delete the job and create it again{resuming}",
    ),
    "Suspended": ('let it go on: {inside} patch tj {job} --type=merge -p \'{{"spec":{{"suspend":false}}}}\'',),
}


class JobEvent(ApiModel):
    """One Event of the job."""

    time: Time | None = None
    type: str = ""
    reason: str = ""
    message: str = ""
    count: int = 1
    reporter: str | None = Field(
        None, description="The component that wrote it, e.g. muster.dev/operator; left out: the Event does not say."
    )


@dataclass(frozen=True, slots=True)
class StateExplanation:
    """Why a job is in its state.

    Attributes:
        message: of the condition that goes with the state.
        since: when the job came into this state.
        next: what to do or to inspect, most useful first.
        nodes_ready: e.g. `6/6`; empty once the job has ended.
        notes: what limits this answer.
    """

    message: str
    since: datetime | None
    next: list[str]
    nodes_ready: str
    notes: list[str]


def explain(job: TrainingJob) -> StateExplanation:
    """Say why a job is in its state."""
    status = job.status
    condition = _condition(status)
    message = condition.message if condition else ""
    since = condition.last_transition_time if condition else None
    if status.completion is not None:
        message, since = status.completion.message, status.completion.time
    waiting = status.waiting
    if waiting is not None and waiting.since is not None:
        since = waiting.since
    ready = "" if status.state in ENDED else status.nodes_ready
    return StateExplanation(message, since, _next(job), ready, _notes(job))


def newest_events(events: Iterable[JobEvent]) -> list[JobEvent]:
    """The newest Events, oldest first."""
    return sorted(events, key=_when)[-MAX_EVENTS:]


def _when(event: JobEvent) -> float:
    return event.time.timestamp() if event.time else 0.0


def _condition(status: TrainingJobStatus) -> Condition | None:
    """Return the condition of the state: it has the state's reason."""
    wanted = _CONDITIONS.get(status.state)
    return next((condition for condition in status.conditions if condition.type == wanted), None)


def _next(job: TrainingJob) -> list[str]:
    """Say what to do or to inspect, beyond what the messages and `remedies` have."""
    status, inside = job.status, f"kubectl -n {job.metadata.namespace}"
    workers = f"-l muster.dev/job={job.metadata.name}"
    words = {
        "inside": inside,
        "called": f"{job.metadata.namespace}/{job.metadata.name}",
        "job": job.metadata.name,
        "logs": f"{inside} logs {workers} --prefix --tail=20",
        "pods": f"{inside} describe pods {workers}",
        "resuming": _resuming(job),
    }
    steps = NEXT_BY_STATE.get(status.state) or NEXT_BY_REASON.get(status.reason, ())
    older = f"go on from an older checkpoint: kubectl muster fork {words['called']} --from-step STEP"
    has_checkpoints = status.state == "Failed" and status.checkpoint is not None and job.spec.checkpoint.directory
    return [*(step.format_map(words) for step in steps), *([older] if has_checkpoints else [])]


def _resuming(job: TrainingJob) -> str:
    checkpoint, directory = job.status.checkpoint, job.spec.checkpoint.directory
    if any(warning.reason == "CheckpointSuspect" for warning in job.status.warnings):
        return ", with the spec.checkpoint.resumeFrom of the message above: starts from the newest checkpoint failed"
    if checkpoint is None or not directory:
        return ""
    return f": it goes on from step {checkpoint.step} in {directory}"


def _notes(job: TrainingJob) -> list[str]:
    status, notes = job.status, []
    if job.metadata.deletion_timestamp is not None:
        notes.append("the job is being deleted")
    if status.state and status.observed_generation < job.metadata.generation:
        notes.append("the operator has not looked at the newest change of the job yet: this is how it stood before")
    return notes

"""Build the status of one job for one screen: pure, from its TrainingJob, record, pods and nodes.

Tests: tests/unit/cli/test_status.py.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Literal

from pydantic import Field

from muster.answers.explanation import ENDED, OUTPUT_VERSION, JobEvent, explain, newest_events
from muster.answers.health import HealthRow
from muster.answers.queue import loan_text, start_text
from muster.answers.reported import has_untimed_steps
from muster.answers.text_parts import count, duration, folded
from muster.answers.training import OpenIncident, open_incident, step_rate, still_since
from muster.api.base import ApiModel, LevelCount, Time
from muster.api.gang import FaultClass, GangSpec, Role
from muster.api.trainingjob import CheckpointConcern, Incident, JobWarning, ProgressPreset, TrainingJob, Waiting
from muster.checkpoints.resume import NOT_FOUND
from muster.goodput.figures import ettr_at_most, thousandth
from muster.goodput.opened import TRAINS, figures_as_of
from muster.placement.reasons import NEVER_FITS
from muster.protocol.resuming import is_own
from muster.queueing.enabling import NOT_ENABLED
from muster.world.names import verb_for
from muster.world.views import ContainerView, PodView

SHOWN_NODES = 8
UNREADABLE_EVENTS = "its Events may not be read: ask for the cluster's role view in this namespace"


class WorkerRow(ApiModel):
    """One member of the gang, its pod and its node."""

    worker: int = Field(description="Index.")
    role: str = Field("Worker", description="Worker or Spare.")
    node: str = Field("", description="Empty: none is free for it.")
    health: HealthRow | None = Field(None, description="Left out: nothing is known, or it may not be read.")
    pod: str = Field("", description="Name; empty: it has none, or pods may not be read.")
    pod_state: str = Field("", description="E.g. Running, Terminating, or `Pending: ImagePullBackOff`.")

    @property
    def is_well(self) -> bool:
        """Whether the worker has no problem to report."""
        return bool(self.node) and self.pod_state in ("Running", "") and not (self.health and self.health.is_unhealthy)


class Saved(ApiModel):
    """The newest complete checkpoint."""

    step: int
    path: str
    time: Time = Field(description="When it was first seen.")
    steps_since: int | None = Field(None, description="Steps since then; a failure now takes them back.")


class JobStatusView(ApiModel):
    """The state of one job. Fields without a value are left out of JSON and YAML."""

    api_version: str = OUTPUT_VERSION
    kind: Literal["JobStatus"] = "JobStatus"
    name: str
    namespace: str
    time: Time = Field(description="Of this answer.")
    state: str = Field(description="As `kubectl get tj`; empty: no operator has looked at the job yet.")
    reason: str
    message: str
    since: Time | None = None
    status_time: Time | None = Field(
        None, description="When the operator last wrote the job's status; left out: it is not known."
    )
    step: int | None = None
    step_unseen: str = Field(
        "", description="How Muster learns of steps, while ranks run and none is known; empty: otherwise."
    )
    steps_per_second: float | None = Field(None, description="By the median step; left out while no steps are made.")
    still_since: Time | None = Field(
        None, description="Since when it trains without finishing a step; left out: it makes steps, or none are seen."
    )
    step_seconds: float | None = Field(None, description="Median time of a step; left out: not known.")
    ettr: float | None = Field(None, description="Share of the time in steps that count.")
    ettr_after_queue: float | None = None
    ettr_at_most: float | None = Field(
        None, description="ettr if all unknown time were in steps that count; absent: hardly any time is unknown."
    )
    unsaved_seconds: int | None = Field(None, description="Time in steps that no complete checkpoint holds yet.")
    progress_unknown: bool = Field(
        False,
        description="There is no ETTR: without spec.checkpoint.directory it is unknown what is kept before success, "
        "or no step has a known time.",
    )
    untimed_steps: bool = Field(
        False,
        description=("progressUnknown because no step has a known time: one line in an attempt, and no pace."),
    )
    checkpoint: Saved | None = None
    checkpoint_directory: str = Field("", description="Where Muster looks for checkpoints; empty: nowhere.")
    concerns: list[CheckpointConcern] = Field([], description="About saving.")
    warnings: list[JobWarning] = Field([], description="About the job, without the one that is its reason.")
    attempt: int = 0
    restarts: int = 0
    nodes_wanted: int = Field(description="Workers, one on each node.")
    nodes_ready: str = ""
    topology: list[LevelCount] = Field([], description="How many domains of each level it is in, outermost first.")
    workers: list[WorkerRow] = Field([], description="By index.")
    nodes: list[str] = Field([], description="Node of each worker, by index; empty where it has none.")
    open_incident: OpenIncident | None = Field(None, description="Left out: there is none.")
    waiting: Waiting | None = Field(None, description="Only while it waits for nodes: the numbers.")
    next: list[str] = Field([], description="Sentences: what Muster does or waits for.")
    actions: list[str] = Field([], description="Sentences: what the user can do, most useful first.")
    events: list[JobEvent] | None = Field(None, description="Oldest first; left out: they may not be read.")
    notes: list[str] = Field([], description="What limits this answer.")


def job_status(
    job: TrainingJob,
    record: GangSpec | None,
    pods: Sequence[PodView] | None,
    healths: Mapping[str, HealthRow] | None,
    now: datetime,
    notes: Sequence[str] = (),
    events: Sequence[JobEvent] | None = (),
    written: datetime | None = None,
) -> JobStatusView:
    """Build the status of a job.

    Args:
        job: as the API server has it.
        record: None: there is none, or it may not be read.
        pods: of the job; None: they may not be read.
        healths: of its nodes, by name; None: they may not be read.
        now: by the API server's clock.
        notes: what could not be seen.
        events: of the job, in any order; None: they may not be read.
        written: when its status was last written, by the API server's clock; None: not known.
    """
    status, base = job.status, explain(job)
    goodput, saved = figures_as_of(job, now), status.checkpoint
    since = None if saved is None or status.step is None else max(status.step - saved.step, 0)
    incident = open_incident(job)
    return JobStatusView(
        name=job.metadata.name,
        namespace=job.metadata.namespace,
        time=now,
        state=status.state,
        reason=status.reason,
        message=base.message,
        since=base.since,
        status_time=written,
        step=status.step,
        step_unseen=_step_unseen(job) if status.state in TRAINS and status.step is None else "",
        steps_per_second=step_rate(job, now),
        still_since=None if status.reason == "RanksStarted" else still_since(job, now),
        step_seconds=goodput.step_milliseconds / 1000 if goodput and goodput.step_milliseconds else None,
        ettr=thousandth(goodput.ettr_permille if goodput else None),
        ettr_after_queue=thousandth(goodput.ettr_after_queue_permille if goodput else None),
        ettr_at_most=ettr_at_most(goodput) if goodput else None,
        unsaved_seconds=goodput.unsaved_seconds if goodput else None,
        progress_unknown=goodput is not None and goodput.progress_unknown,
        untimed_steps=goodput is not None and has_untimed_steps(job, goodput),
        checkpoint=Saved(step=saved.step, path=saved.path, time=saved.time, steps_since=since) if saved else None,
        checkpoint_directory=job.spec.checkpoint.directory or "",
        concerns=saved.concerns if saved and status.state not in ENDED else [],
        warnings=[warning for warning in status.warnings if warning.reason != status.reason],
        attempt=status.attempt,
        restarts=status.restarts,
        nodes_wanted=job.spec.nodes,
        nodes_ready=base.nodes_ready,
        topology=status.topology,
        workers=[] if status.state in ENDED else list(_workers(job, record, pods, healths or {})),
        nodes=status.nodes,
        open_incident=incident,
        waiting=status.waiting,
        next=list(_next(job, record, now)),
        actions=list(_actions(job, base.next, incident, healths or {})),
        events=None if events is None else newest_events(events),
        notes=[*base.notes, *notes, *([UNREADABLE_EVENTS] if events is None else [])],
    )


def _step_unseen(job: TrainingJob) -> str:
    """Return how Muster learns of the steps of a job."""
    progress = job.spec.progress
    if progress.preset is ProgressPreset.OFF:
        return "spec.progress.preset is Off, so that they are read from the file in MUSTER_PROGRESS alone"
    if progress.step_pattern is not None:
        return "by spec.progress.stepPattern in what is printed, or from the file in MUSTER_PROGRESS"
    if progress.preset is not None and progress.preset is not ProgressPreset.AUTO:
        return f"from the printed lines of {progress.preset.value}, or from the file in MUSTER_PROGRESS"
    return (
        "from printed lines (those of frameworks, or step 12 | loss 0.53; the bars of Lightning's TQDMProgressBar and "
        "torchtune only by spec.progress.preset), or from the file in MUSTER_PROGRESS: docs/trainer-contract.md"
    )


def pod_state(pod: PodView) -> str:
    """Return a pod's state, in a few words."""
    if pod.deleting:
        return "Terminating"
    if pod.terminal:
        died = next((c for c in pod.containers if c.terminated and c.exit_code), None)
        return f"{pod.phase}: {pod.reason or (_end(died) if died else '')}".removesuffix(": ")
    held = next((c.waiting_reason for c in pod.containers if c.waiting_reason), "")
    if held and held != "PodInitializing":
        return f"{pod.phase}: {held}"
    return pod.phase or "Pending"


def _end(container: ContainerView) -> str:
    if container.terminated_reason not in ("", "Error"):
        return container.terminated_reason
    return f"exit code {container.exit_code}"


def newest_pods(pods: Sequence[PodView]) -> dict[int, PodView]:
    """Return the newest pod of each worker, by index."""
    newest: dict[int, PodView] = {}
    for pod in sorted(pods, key=lambda pod: pod.incarnation):
        newest[pod.index] = pod
    return newest


def _workers(
    job: TrainingJob, record: GangSpec | None, pods: Sequence[PodView] | None, healths: Mapping[str, HealthRow]
) -> Iterator[WorkerRow]:
    newest = newest_pods(pods or ())
    if record is not None:
        members = [(member.index, str(member.role), member.node) for member in record.members]
    else:
        members = [(index, str(Role.WORKER), node) for index, node in enumerate(job.status.nodes)]
    for index, role, node in sorted(members):
        pod = newest.get(index)
        missing = "gone" if pods is not None and node else ""
        yield WorkerRow(
            worker=index,
            role=role,
            node=node,
            health=healths.get(node),
            pod=pod.name if pod else "",
            pod_state=pod_state(pod) if pod else missing,
        )


def _next(job: TrainingJob, record: GangSpec | None, now: datetime) -> Iterator[str]:
    """Yield what Muster does or waits for."""
    status = job.status
    if status.state in ENDED or status.completion is not None:
        return
    waiting = status.waiting
    if waiting is not None and waiting.needs:
        place = f"place {waiting.position} of {waiting.queued} in the queue; " if waiting.position else ""
        if status.reason == NEVER_FITS:
            yield f"{place}it cannot start on the fleet as it is; Muster looks again whenever a node changes"
        elif status.reason == NOT_ENABLED:
            yield "it starts only once an administrator has enabled its namespace"
        elif waiting.counts_nodes:
            needed = f"{count(waiting.needs, 'node')} {verb_for(waiting.needs)}"
            yield f"{place}it starts when {needed} free for it at once ({waiting.free} {verb_for(waiting.free)} now)"
        else:
            yield f"{place}it starts on {count(waiting.needs, 'node')}, all at once"
        if starts := start_text(job, now):
            yield starts
    if record is None:
        return
    if record.unfenced_workers:
        nodes = sorted({unfenced_worker.node for unfenced_worker in record.unfenced_workers if unfenced_worker.node})
        yield (
            f"it waits for proof that the ranks of {count(len(record.unfenced_workers), 'earlier pod')} have ended "
            f"({_named(nodes)}); none start before"
        )
    if record.members and (loan := loan_text(job, now)):
        yield loan
    if record.evacuation is not None:
        left = _named(record.evacuation.nodes) if record.evacuation.nodes else "all its nodes"
        until = duration(max((record.evacuation.deadline - now).total_seconds(), 0))
        saves = job.spec.checkpoint.directory is not None
        when = f"after its next complete checkpoint, in {until} at the latest" if saves else "without a checkpoint, now"
        yield f"it leaves {left} {when} ({record.evacuation.reason})"
    if record.save_request is not None and not record.save_request.over:
        seconds = max((record.save_request.deadline - now).total_seconds(), 0)
        yield f"it was asked to save ({record.save_request.name}), which is waited for {duration(seconds)} more"
    waits = status.state not in (*TRAINS, "Stalled") and status.reason != "AwaitingEvidence"  # that may be the end
    if record.start is None and record.members and waits:
        if record.hold_until is not None and record.hold_until > now:
            yield (
                f"attempt {record.attempt} starts in {duration((record.hold_until - now).total_seconds())} (back-off "
                "after failures)"
            )
        elif status.nodes_ready != f"{job.spec.nodes}/{job.spec.nodes}":  # else the message says what it waits for
            yield f"attempt {record.attempt} starts when all workers are ready ({status.nodes_ready or 'none yet'})"
    goodput, saved = status.goodput, status.checkpoint
    if (
        status.state == "Running"
        and status.reason != "RanksStarted"
        and goodput is not None
        and saved is not None
        and status.step is not None
        and goodput.checkpoint_steps
        and goodput.step_milliseconds
        and still_since(job, now) is None
    ):
        due = saved.step + goodput.checkpoint_steps
        left_seconds = (due - status.step) * goodput.step_milliseconds / 1000
        soon = f", in about {duration(left_seconds)}" if left_seconds >= 1 else ""
        yield f"the next checkpoint is due at step {due}{soon}"


def _actions(
    job: TrainingJob, steps: Sequence[str], incident: OpenIncident | None, healths: Mapping[str, HealthRow]
) -> Iterator[str]:
    """Yield what the user can do. Only what is known to help: a job that runs needs nothing."""
    status, called = job.status, f"{job.metadata.namespace}/{job.metadata.name}"
    if status.waiting is not None:
        yield from status.waiting.remedies
    if incident is not None:
        yield f"see what was seen and decided: kubectl muster report {called} --incident {incident.number}"
    if status.reason == NOT_FOUND:
        yield from _instead_of_resume_from(job)
    last: Incident | None = status.incidents[-1] if status.incidents else None
    failed = status.state == "Failed" or (incident is not None and incident.fault_class == FaultClass.APPLICATION)
    if failed and last is not None and last.node:  # of a hang it may not be known
        yield f"what the failed rank printed: kubectl muster logs {called} --failed"
    yield from steps
    unhealthy = sorted(name for name, health in healths.items() if health.is_unhealthy)
    if unhealthy and status.state not in ENDED:
        yield f"see the findings on {_named(unhealthy)}: kubectl muster nodes {unhealthy[0]}"
    if status.state == "Succeeded":
        yield f"see where the time went: kubectl muster report {called}"


def _instead_of_resume_from(job: TrainingJob) -> Iterator[str]:
    """Yield the ways on for a job whose spec.checkpoint.resumeFrom names no checkpoint that can be had."""
    patch = f"kubectl -n {job.metadata.namespace} patch tj {job.metadata.name} --type=merge -p"
    saved = job.status.checkpoint
    if saved is not None and is_own(saved.path, job.spec.checkpoint.directory or ""):
        removal = '{"spec":{"checkpoint":{"resumeFrom":null}}}'
        yield f"go on from its own newest checkpoint, step {saved.step}: {patch} '{removal}'"
    other = '{"spec":{"checkpoint":{"resumeFrom":"/path/of/it"}}}'
    yield f"name a checkpoint that all workers see: {patch} '{other}'"


def _named(nodes: Sequence[str]) -> str:
    more = f" and {len(nodes) - SHOWN_NODES} more" if len(nodes) > SHOWN_NODES else ""
    return (folded(nodes[:SHOWN_NODES]) or "nodes that are not known") + more

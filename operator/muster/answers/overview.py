"""Summarise many jobs: pure, from TrainingJobs to the answer of `top`.

Tests: tests/unit/cli/test_top.py.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from pydantic import Field

from muster.answers.explanation import ENDED, OUTPUT_VERSION, explain
from muster.answers.text_parts import duration
from muster.answers.training import open_incident, step_rate, still_since
from muster.api.base import ApiModel, Time
from muster.api.goodput import Bucket
from muster.api.trainingjob import TrainingJob
from muster.goodput.figures import progress_share, thousandth
from muster.goodput.opened import TRAINS, figures_as_of
from muster.kube.decode import Undecodable

# Jobs that need attention come first.
_ORDER = (
    "Stalled",
    "Held",
    "Recovering",
    "",
    "Pending",
    "Starting",
    "Saving",
    "Running",
    "Suspended",
    "Failed",
    "Succeeded",
)
_MAX_WHY = 300


class TopRow(ApiModel):
    """One job."""

    name: str
    namespace: str
    state: str = Field(description="As `kubectl get tj`; Unreadable: this version cannot read the job.")
    reason: str = ""
    since: Time | None = Field(None, description="Since when it is in this state.")
    nodes: int = Field(0, description="Workers wanted, one on each node.")
    gpus: int = Field(0, description="Accelerators that they have together.")
    step: int | None = None
    steps_per_second: float | None = Field(None, description="By the median step; left out while no steps are made.")
    ettr: float | None = Field(None, description="Share of the time in steps that count.")
    unsaved_seconds: int | None = Field(None, description="Time in steps that no complete checkpoint holds yet.")
    checkpoint_time: Time | None = Field(None, description="When the newest complete checkpoint was first seen.")
    restarts: int = 0
    position: int | None = Field(None, description="Place in the queue, of a job that waits; 1 is the next.")
    open_incident: int | None = Field(None, description="Number of the failure that it has not come back from yet.")
    warnings: list[str] = Field([], description="Reasons of what a person should know about the job.")
    message: str = Field(
        "",
        description="Of a job that does not train: why, or what would let it start. Of one that leaves nodes: why, and "
        "until when.",
    )


class JobsTop(ApiModel):
    """All jobs at one moment."""

    api_version: str = OUTPUT_VERSION
    kind: Literal["JobsTop"] = "JobsTop"
    namespace: str = Field(description="Empty: all.")
    time: Time
    jobs: list[TopRow] = Field(
        description="First the jobs that need a user, then waiting ones by place, then those that train."
    )
    states: dict[str, int] = Field({}, description="How many jobs are in each state; ended ones, too.")
    nodes: int = Field(0, description="Nodes of jobs that train.")
    goodput: float | None = Field(
        None, description="Of all accelerator-hours that the jobs listed have held, the share in steps that count."
    )
    ettr: float | None = Field(None, description="The same of their wall clock, without suspension.")
    notes: list[str] = Field([], description="What limits this answer.")


def overview(
    jobs: Sequence[TrainingJob | Undecodable],
    namespace: str,
    now: datetime,
    *,
    ended: bool = False,
    notes: Sequence[str] = (),
) -> JobsTop:
    """Summarise all jobs at one moment; with `ended` also those that have ended."""
    rows = [_one(job, now) for job in jobs]
    states = Counter(row.state or "New" for row in rows)
    listed = [row for row in rows if ended or row.state not in ENDED]
    listed.sort(key=_place)
    shown = {(row.namespace, row.name) for row in listed}
    shown_jobs = [j for j in jobs if isinstance(j, TrainingJob) and (j.metadata.namespace, j.metadata.name) in shown]
    accounts = [goodput for job in shown_jobs if (goodput := figures_as_of(job, now)) is not None]
    return JobsTop(
        namespace=namespace,
        time=now,
        jobs=listed,
        states=dict(sorted(states.items())),
        nodes=sum(row.nodes for row in rows if row.state in TRAINS),
        goodput=progress_share((account.gpu_seconds, account.progress_unknown) for account in accounts),
        ettr=progress_share(
            ({**account.seconds, Bucket.SUSPENDED: 0}, account.progress_unknown) for account in accounts
        ),
        notes=list(notes),
    )


def _one(job: TrainingJob | Undecodable, now: datetime) -> TopRow:
    """Summarise one job; figures that make no sense hide no others."""
    try:
        return _row(job, now)
    except (ValueError, ArithmeticError) as error:
        assert isinstance(job, TrainingJob)
        metadata, why = job.metadata, f"its status makes no sense: {error}"[:_MAX_WHY]
        return TopRow(name=metadata.name, namespace=metadata.namespace, state="Unreadable", message=why)


def _row(job: TrainingJob | Undecodable, now: datetime) -> TopRow:
    if isinstance(job, Undecodable):
        return TopRow(name=job.name, namespace=job.namespace, state="Unreadable", message=job.error[:_MAX_WHY])
    status, waiting = job.status, job.status.waiting
    base, incident = explain(job), open_incident(job)
    goodput = figures_as_of(job, now)
    return TopRow(
        name=job.metadata.name,
        namespace=job.metadata.namespace,
        state=status.state,
        reason=status.reason,
        since=base.since,
        nodes=job.spec.nodes,
        gpus=job.spec.nodes * job.spec.gpus_per_node,
        step=status.step,
        steps_per_second=step_rate(job, now),
        ettr=thousandth(goodput.ettr_permille) if goodput else None,
        unsaved_seconds=goodput.unsaved_seconds if goodput else None,
        checkpoint_time=status.checkpoint.time if status.checkpoint else None,
        restarts=status.restarts,
        position=waiting.position or None if waiting else None,
        open_incident=incident.number if incident else None,
        warnings=[warning.reason for warning in status.warnings],
        message=_why(job, base.message, now),
    )


def _why(job: TrainingJob, message: str, now: datetime) -> str:
    status, waiting, still = job.status, job.status.waiting, still_since(job, now)
    if status.state == "Saving" and message:
        return f"{status.reason}: {message}"[:_MAX_WHY]
    if still is not None:
        return f"no step for {duration((now - still).total_seconds())}"
    if not status.state:
        return "no operator has looked at it yet, or Muster is installed with a profile that runs no jobs"
    if status.state in TRAINS or status.state == "Succeeded":
        concerns = status.checkpoint.concerns if status.checkpoint and status.state in TRAINS else []
        messages = [*(warning.message for warning in status.warnings), *(concern.message for concern in concerns)]
        return messages[0][:_MAX_WHY] if messages else ""
    if waiting is not None and waiting.needs:
        free = f", {waiting.free} free" if waiting.counts_nodes else ""
        needs = f"needs {waiting.needs}{f' in one {waiting.level}' if waiting.level else ''}{free}"
        return f"{needs}; {waiting.remedies[0]}"[:_MAX_WHY] if waiting.remedies else needs
    lines = message.strip().splitlines()
    return lines[0][:_MAX_WHY] if lines else status.reason


def _place(row: TopRow) -> tuple[int, int, str, str]:
    order = _ORDER.index(row.state) if row.state in _ORDER else 0
    return order, row.position or 10**9, row.namespace, row.name

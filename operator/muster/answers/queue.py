"""Show the queue: pure, from TrainingJobs to the answer of `queue`.

Who waits in which place and from when on it may run, who holds nodes until when, and how good such estimates were.

Tests: tests/unit/cli/test_queue.py.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from statistics import median, quantiles
from typing import Literal

from pydantic import Field

from muster.answers.explanation import OUTPUT_VERSION
from muster.answers.text_parts import age, count, duration, on_one_line
from muster.api.base import ApiModel, Time
from muster.api.trainingjob import TrainingJob
from muster.checkpoints.resume import saves_unseen
from muster.queueing.ends import BASIS_TEXT, end_of, history
from muster.queueing.preemption import is_lent
from muster.queueing.starts import MAX_ESTIMATED, NOT_ESTIMATED
from muster.world.names import verb_for

MOST_SCORED = 20
"""How many starts are compared with what was estimated first: the newest."""
ON_TIME_SECONDS = 60.0
NOT_COUNTED = (
    "not counted: jobs that were deleted, suspended or changed while they waited, or started before there was an "
    "estimate"
)
"""Which starts the score leaves out."""


class QueueRow(ApiModel):
    """One job that waits for nodes."""

    position: int = Field(description="Place in the queue of the whole cluster; 1 is the next, 0 not known yet.")
    name: str
    namespace: str
    nodes: int = Field(description="Nodes that it needs, all at once.")
    level: str | None = Field(None, description="The level inside one domain of which they have to be; left out: none.")
    since: Time | None = Field(None, description="Since when it waits.")
    reason: str = ""
    reserved: int = Field(0, description="Free nodes that are reserved for it.")
    starts: Time | None = Field(None, description="When it starts, by Muster's estimate; left out: not known.")
    why: str = Field(description="What has to happen until then, or why it is not known.")


class HolderRow(ApiModel):
    """One job that holds nodes."""

    name: str
    namespace: str
    state: str
    nodes: int
    gives_way: bool = Field(False, description="Whether it is preemptible or backfills.")
    lent_until: Time | None = Field(None, description="Until when it gives way to none before it; left out: it does.")
    ends: Time | None = Field(None, description="When it ends, by what is said of it; left out: not known.")
    overdue_since: Time | None = Field(None, description="When it should have ended; left out: it is not late.")
    why: str = Field(description="What the end follows from, or why it is not known.")


class EstimateScore(ApiModel):
    """How good the first estimates of the newest starts were."""

    starts: int = Field(description="How many are compared, 20 at most.")
    median_late_seconds: float = Field(description="Below 0: the jobs started earlier.")
    lower_late_seconds: float = Field(description="A quarter of them was less late than that.")
    upper_late_seconds: float = Field(description="A quarter of them was later than that.")


class QueueView(ApiModel):
    """The queue at one moment, as far as its reader may see jobs."""

    api_version: str = OUTPUT_VERSION
    kind: Literal["QueueView"] = "QueueView"
    namespace: str = Field(description="Empty: all.")
    time: Time
    queue: list[QueueRow] = Field(description="In the order of the queue.")
    holders: list[HolderRow] = Field(description="Those that end first come first.")
    score: EstimateScore | None = Field(None, description="Left out: no start could be compared yet.")
    notes: list[str] = Field([], description="What limits this answer.")


def queue_view(jobs: Sequence[TrainingJob], namespace: str, now: datetime, notes: Sequence[str] = ()) -> QueueView:
    """Show the queue that these jobs make, at a moment of the API server's clock."""
    rows = [_row(job) for job in jobs if job.wants_nodes and job.status.waiting is not None]
    earlier = history(jobs)
    holders = [_holder(job, earlier, now) for job in jobs if job.wants_nodes and any(job.status.nodes)]
    return QueueView(
        namespace=namespace,
        time=now,
        queue=sorted(rows, key=lambda row: (row.position or 10**9, row.namespace, row.name)),
        holders=sorted(holders, key=lambda row: (row.ends is None, row.ends or now, row.namespace, row.name)),
        score=score_of(jobs),
        notes=list(notes),
    )


def score_of(jobs: Sequence[TrainingJob]) -> EstimateScore | None:
    """Compare the newest starts with what was estimated first; None where there is none to compare."""
    estimates = [job.status.start_estimate for job in jobs]
    started = [
        (estimate.started_time, late)
        for estimate in estimates
        if estimate is not None and estimate.started_time is not None and (late := estimate.late_seconds) is not None
    ]
    newest = sorted(late for _, late in sorted(started)[-MOST_SCORED:])
    if not newest:
        return None
    lower, _, upper = quantiles(newest, n=4, method="inclusive") if len(newest) > 1 else newest * 3
    return EstimateScore(
        starts=len(newest), median_late_seconds=median(newest), lower_late_seconds=lower, upper_late_seconds=upper
    )


def score_text(score: EstimateScore | None) -> str:
    """Say how good the estimates were, in a sentence."""
    if score is None:
        return "no start could be compared with an estimate yet"
    middle = score.median_late_seconds
    when = f"{_late_text(middle)} than first estimated" if abs(middle) >= ON_TIME_SECONDS else "as first estimated"
    if score.starts == 1:
        return f"the last start came {when}"
    lower, upper = _late_text(score.lower_late_seconds), _late_text(score.upper_late_seconds)
    return f"the last {score.starts} starts came {when} in the median, half of them between {lower} and {upper}"


def _late_text(seconds: float) -> str:
    if abs(seconds) < ON_TIME_SECONDS:
        return "on time"
    return f"{duration(abs(seconds))} {'later' if seconds > 0 else 'earlier'}"


def _minutes_until(time: datetime, now: datetime) -> int:
    return round((time - now).total_seconds() / 60)


def estimated_text(time: datetime | None, now: datetime) -> str:
    """Say when something happens that was estimated, to a minute."""
    if time is None:
        return "not known"
    minutes = _minutes_until(time, now)
    if minutes <= 0:
        return "any moment"
    time = now + timedelta(minutes=minutes)
    day = "" if time.date() == now.date() else f"{time:%m-%d} "
    return f"{day}{time:%H:%M}, in {duration(minutes * 60)}"


def start_text(job: TrainingJob, now: datetime) -> str:
    """Say when a waiting job starts, by Muster's estimate; "" where nothing is estimated."""
    estimate = job.status.start_estimate
    if estimate is None or estimate.started_time is not None:
        return ""
    when = "at no known time" if estimate.time is None else estimated_text(estimate.time, now)
    if estimate.time is not None and _minutes_until(estimate.time, now) > 0:
        when = f"about {when} (UTC)"
    return f"by Muster's estimate it starts {when}: {estimate.reason}"


QUEUE_HEADS = ("PLACE", "JOB", "NODES", "WAITS", "RESERVED", "STARTS ABOUT", "WHY")
HOLDER_HEADS = ("NODES", "HELD BY", "STATE", "ENDS ABOUT", "WHY")


def queue_cells(it: QueueView) -> list[list[str]]:
    """Return the jobs that wait as the lines of a table with QUEUE_HEADS."""
    return [
        [
            str(row.position or ""),
            _called(it, row.namespace, row.name),
            f"{row.nodes} in one {row.level}" if row.level else str(row.nodes),
            age(row.since, it.time),
            str(row.reserved or ""),
            estimated_text(row.starts, it.time),
            on_one_line(row.why),
        ]
        for row in it.queue
    ]


def holder_cells(it: QueueView) -> list[list[str]]:
    """Return the jobs that hold nodes as the lines of a table with HOLDER_HEADS."""
    return [
        [
            str(row.nodes),
            _called(it, row.namespace, row.name),
            on_one_line(row.state),
            estimated_text(row.ends, it.time),
            on_one_line(row.why),
        ]
        for row in it.holders
    ]


def _called(it: QueueView, namespace: str, name: str) -> str:
    return name if it.namespace else f"{namespace}/{name}"


def _row(job: TrainingJob) -> QueueRow:
    waiting, estimate = job.status.waiting, job.status.start_estimate
    assert waiting is not None
    waits = estimate is not None and estimate.started_time is None
    return QueueRow(
        position=waiting.position,
        name=job.metadata.name,
        namespace=job.metadata.namespace,
        nodes=waiting.needs,
        level=waiting.level,
        since=waiting.since,
        reason=job.status.reason,
        reserved=waiting.reserved,
        starts=estimate.time if estimate is not None and waits else None,
        why=estimate.reason if estimate is not None and waits else _why_none(job),
    )


def _why_none(job: TrainingJob) -> str:
    waiting = job.status.waiting
    assert waiting is not None
    if job.status.state != "Pending":
        return "its gang waits for other nodes, and comes before jobs that start"
    if waiting.position > MAX_ESTIMATED:
        return NOT_ESTIMATED
    return "not estimated yet"


def _holder(job: TrainingJob, earlier: Mapping[str, Sequence[float]], now: datetime) -> HolderRow:
    end = end_of(job, earlier.get(job.metadata.namespace, ()), now)
    loan = loan_text(job, now)
    basis = f"{BASIS_TEXT[end.basis]}: " if end.basis is not None else ""
    late = f"should have ended {duration((now - end.overdue_since).total_seconds())} ago " if end.overdue_since else ""
    return HolderRow(
        name=job.metadata.name,
        namespace=job.metadata.namespace,
        state=job.status.state,
        nodes=sum(map(bool, job.status.nodes)),
        gives_way=bool(loan),
        lent_until=_lent_until(job, now),
        ends=end.time,
        overdue_since=end.overdue_since,
        why=f"{loan and f'{loan}; '}{late}{basis}{end.detail}",
    )


def loan_text(job: TrainingJob, now: datetime) -> str:
    """Say to which jobs a job gives the nodes that are lent to it; "" where none are."""
    unsaved = saves_unseen(job)
    at_once = f", without waiting for a save ({unsaved})" if unsaved else ""
    if job.spec.queueing.preemptible:
        return f"it is preemptible, and gives way to jobs that are not{at_once}"
    if not job.status.backfilled:
        return ""
    until = _lent_until(job, now)
    keeps = "and" if until is None else f"keeps its nodes for {duration((until - now).total_seconds())}, then"
    return f"it backfills, {keeps} gives way to jobs before it in the queue{at_once}"


def _lent_until(job: TrainingJob, now: datetime) -> datetime | None:
    until = job.status.lent_until
    return until if is_lent(until, now) else None


def head_text(it: QueueView) -> str:
    """Say in a line how many jobs wait and how many nodes are held."""
    where = f"namespace {it.namespace}" if it.namespace else "all namespaces"
    waits, holds = sum(row.nodes for row in it.queue), sum(row.nodes for row in it.holders)
    reserved, promised = sum(row.reserved for row in it.queue), sum(row.nodes for row in it.holders if row.lent_until)
    lent = sum(row.nodes for row in it.holders if row.gives_way) - promised
    parts = [
        f"{count(len(it.queue), 'job')} {'waits' if len(it.queue) == 1 else 'wait'} for {count(waits, 'node')}",
        f"{count(len(it.holders), 'job')} {'holds' if len(it.holders) == 1 else 'hold'} {holds}",
    ]
    if lent:
        parts.append(f"{lent} of these until other jobs need them")
    if promised:
        parts.append(f"{promised} of these are lent for a while")
    if reserved:
        parts.append(f"{count(reserved, 'free node')} {verb_for(reserved)} reserved")
    return f"{where}: {', '.join(parts)}; times are UTC"

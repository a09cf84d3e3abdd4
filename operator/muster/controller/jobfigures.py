"""Prometheus figures of jobs' time and saves, made when Prometheus asks, from the status that was last published.

Names of jobs are users' to choose and a queue may be long, so only so many jobs have rows of their own. The figures are
those of the job's status, and of a wait that lasts what the command line adds, so that the two never differ. In a
process that does not lead there is nothing. Gauges with a value for each bucket would have to be set and removed one by
one with each new status. Here a decision costs one entry of a table. The label is `job_name`, as kube-state-metrics has
it: `job` is Prometheus's own name for what it scrapes.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from prometheus_client import REGISTRY
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from muster.api.goodput import Goodput
from muster.api.throughput import Throughput
from muster.api.trainingjob import (
    CheckpointSave,
    CheckpointStatus,
    CheckpointTrouble,
    CompletionResult,
    ConditionStatus,
    TrainingJobStatus,
)
from muster.goodput.efficiency import job_efficiency
from muster.goodput.opened import clock_lead_seconds, figures_until
from muster.goodput.prices import NO_PRICES, Prices

MAX_JOBS = 500
"""That have figures of their own. Where there are more, those that hold nodes come first, and namespaces share the
rows."""
MAX_NODES = 16_384
"""Rows of nodes that jobs hold. Of a job that does not fit no node has a row: a part of its energy would stand for all
of it."""
MAX_REASONS = 100
"""Some are the container runtime's words, so that there is no list of them: of more than these the others are
`Other`."""
ALERTED = frozenset({"CrashLoopBackOff", "NoCheckpointSeen", "StepsStopped"})
"""Alerts ask for these: they are told whatever else has been."""
OTHER = "Other"
MAX_FAILED = 100
FAILED_FOR = timedelta(days=1)
"""Jobs that ended as Failed are shown for so long, at most so many: the latest ones, and of each namespace in turn."""
MOST = 2**53
"""What a trainer says may be any number: as far as these a float is exact."""

Key = tuple[str, str]
"""Namespace and name."""

WAITING = frozenset({"Pending", "Starting", "Recovering", "Stalled"})
"""States of a job that ought to run and does not."""
ENDED = frozenset({"Succeeded", "Failed"})
_JOB = ("namespace", "job_name")


@dataclass(frozen=True, slots=True)
class _Family:
    """One metric of Muster's.

    Attributes:
        name: as scraped.
        labels: beyond those that name the job.
    """

    name: str
    text: str
    labels: tuple[str, ...] = ()

    def begun(self) -> Metric:
        """The metric without any row."""
        kind = CounterMetricFamily if self.name.endswith("_total") else GaugeMetricFamily
        return kind(self.name, self.text, labels=[*_JOB, *self.labels])


_STATE = _Family("muster_job_state", "The state that a job is in, and why (1).", ("state", "reason"))
_WAITS = _Family(
    "muster_job_waiting_since_timestamp_seconds",
    "Since when a job should run and does not, in seconds since the epoch.",
)
_TIME = _Family(
    "muster_job_time_seconds", "A job's time by bucket; the buckets add up to its wall-clock time.", ("bucket",)
)
_GPUS = _Family(
    "muster_job_gpu_seconds", "muster_job_time_seconds, multiplied by the accelerators that the job held.", ("bucket",)
)
_ETTR = _Family(
    "muster_job_ettr_ratio", "Share of a job's time that went into steps that count; suspended time is left out."
)
_AFTER_QUEUE = _Family(
    "muster_job_ettr_after_queue_ratio", "muster_job_ettr_ratio without the wait for the first nodes."
)
_UNSAVED = _Family("muster_job_unsaved_seconds", "Time in steps of a job that no complete checkpoint holds yet.")
_FAILURES = _Family("muster_job_failures_total", "Attempts of a job that ended with a failure.")
_FAILED = _Family("muster_job_failed_timestamp_seconds", "When a job ended as Failed, since the epoch; for a day.")
_LOST = _Family("muster_job_lost_steps_total", "Steps that a job has lost and had to repeat.")
_STEP = _Family("muster_job_step", "A job's newest finished step.")
_STEP_SECONDS = _Family(
    "muster_job_step_seconds",
    "Median duration of a job's steps; where it prints several steps at once, of their means.",
)
_STEP_P90 = _Family("muster_job_step_p90_seconds", "Ninetieth percentile of the durations of a job's last 64 steps.")
_TOKENS = _Family(
    "muster_job_tokens", "Tokens of a job's steps that count, by spec.throughput; lost steps are subtracted."
)
_TOKENS_PER_SECOND = _Family(
    "muster_job_tokens_per_second", "Tokens per second of a job, over the time in steps that count."
)
_MFU = _Family("muster_job_mfu_ratio", "Model FLOP/s utilisation of a job in the time in steps that count.")
_MFU_OVERALL = _Family(
    "muster_job_mfu_overall_ratio", "muster_job_mfu_ratio over all the time in which the job held accelerators."
)
_COST = _Family(
    "muster_job_cost",
    "Cost of the accelerators that a job has held, by the prices of the FleetPolicy.",
    ("currency",),
)
_NODE = _Family(
    "muster_job_node",
    "1 for each node that a job holds; it assigns the energy of a node's accelerators to the job.",
    ("node",),
)
_SAVED = _Family(
    "muster_checkpoint_timestamp_seconds", "When a job's newest complete checkpoint was written, since the epoch."
)
_SAVED_STEP = _Family("muster_checkpoint_step", "The step of a job's newest complete checkpoint.")
_BYTES = _Family("muster_checkpoint_bytes", "Size of a job's newest complete checkpoint.")
_SAVE = _Family("muster_checkpoint_save_seconds", "Time from that checkpoint's first finished file to its last.")
_STALL = _Family("muster_checkpoint_stall_seconds", "Additional time of the steps around that save, beyond the usual.")
_DURABLE = _Family(
    "muster_checkpoint_durable_seconds", "Time from the end of that step until its checkpoint was seen complete."
)
_FREE = _Family(
    "muster_checkpoint_free_bytes", "Free space of that checkpoint's file system when it was seen complete."
)
_CONCERN = _Family(
    "muster_checkpoint_concern", "1 where a job's checkpoints need attention for this reason.", ("reason",)
)
_OF_JOBS = (
    _STATE,
    _WAITS,
    _TIME,
    _GPUS,
    _ETTR,
    _AFTER_QUEUE,
    _UNSAVED,
    _FAILURES,
    _FAILED,
    _LOST,
    _STEP,
    _STEP_SECONDS,
    _STEP_P90,
    _TOKENS,
    _TOKENS_PER_SECOND,
    _MFU,
    _MFU_OVERALL,
    _COST,
    _NODE,
    _SAVED,
    _SAVED_STEP,
    _BYTES,
    _SAVE,
    _STALL,
    _DURABLE,
    _FREE,
    _CONCERN,
)


class _Row(NamedTuple):
    """The published status of one job."""

    state: str
    reason: str
    goodput: Goodput | None
    throughput: Throughput
    step: int | None
    checkpoint: CheckpointStatus | None
    waits_since: datetime | None
    rank: int
    nodes: Sequence[str]


class JobFigures:
    """Keeps the published status of jobs. Only the event loop's thread may change it; a scrape may read from another
    one.

    The newest instance is the one that is scraped: a process has one.

    Args:
        now: the API server's clock, as far as it is known.
        prices: returns the present prices of accelerators.
    """

    def __init__(
        self,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        prices: Callable[[], Prices] = lambda: NO_PRICES,
    ) -> None:
        self._now = now
        self._prices = prices
        self._rows: dict[Key, _Row] = {}
        self._states: dict[Key, str] = {}  # of all jobs
        self._counts: dict[str, int] = {}
        self._failed: dict[Key, datetime] = {}
        self._ejected: set[Key] = set()  # jobs whose gang has left Muster: as those that have ended, they have no row
        self._reasons: set[str] = set(ALERTED)
        _collector.figures = self

    def set_status(self, key: Key, status: TrainingJobStatus, throughput: Throughput | None = None) -> None:
        """Take in the published status of a job, "" as its state where none is yet, and what the job reports of its
        steps."""
        if not status.state:
            return
        self._count(key, status.state)
        self._ejected.discard(key)
        if status.completion is not None:
            self._rows.pop(key, None)
            if status.completion.result is CompletionResult.FAILED:
                self._failed[key] = status.completion.time
        elif status.is_ejected:
            self._rows.pop(key, None)
            self._ejected.add(key)
        elif key in self._rows or self._makes_room(key[0], _rank(status)):
            self._rows[key] = _row(status, self._shown(status.reason), throughput or Throughput())

    def forget(self, key: Key) -> None:
        """Drop a job that is gone or cannot be read."""
        self._rows.pop(key, None)
        self._failed.pop(key, None)
        self._ejected.discard(key)
        self._count(key, None)

    def collected(self) -> Iterator[Metric]:
        """All rows, as of now; called by the thread that serves a scrape."""
        # Each a single step: nothing changes meanwhile.
        rows, counts, failed = self._rows.copy(), self._counts.copy(), self._failed.copy()
        ejected = len(self._ejected)
        jobs = GaugeMetricFamily(*_JOBS, labels=["state"])
        for state, count in sorted(counts.items()):
            jobs.add_metric([state], count)
        yield jobs
        going_on = sum(count for state, count in counts.items() if state not in ENDED) - ejected
        now = self._now()
        recent = {key: time for key, time in failed.items() if now - time < FAILED_FOR}
        shown = _latest(recent)
        yield GaugeMetricFamily(*_UNSHOWN, value=max(going_on - len(rows), 0) + len(recent) - len(shown))
        yield from _families(rows, shown, now, self._prices())

    def _shown(self, reason: str) -> str:
        if len(self._reasons) < MAX_REASONS:
            self._reasons.add(reason)
        return reason if reason in self._reasons else OTHER

    def _count(self, key: Key, state: str | None) -> None:
        old_state = self._states.pop(key, None)
        if old_state is not None:
            self._counts[old_state] -= 1
        if state is not None:
            self._states[key] = state
            self._counts[state] = self._counts.get(state, 0) + 1

    def _makes_room(self, namespace: str, rank: int) -> bool:
        """Whether there is a row for one more job of this namespace.

        The job takes the row of one that ranks below it. Otherwise it takes an equal's whose namespace has at least two
        rows more, so that no job gets another's row only to lose it again.
        """
        if len(self._rows) < MAX_JOBS:
            return True
        counts = Counter(key[0] for key in self._rows)
        lowest = min(row.rank for row in self._rows.values())
        owner_namespace, most = max(
            ((key[0], counts[key[0]]) for key, row in self._rows.items() if row.rank == lowest),
            key=lambda item: item[1],
        )
        if lowest > rank or (lowest == rank and most < counts[namespace] + 2):
            return False
        del self._rows[next(key for key, row in self._rows.items() if row.rank == lowest and key[0] == owner_namespace)]
        return True


def _rank(status: TrainingJobStatus) -> int:
    """The rank of a job for a row: jobs that have nodes come first, then those that had some, then those that wait."""
    if status.nodes:
        return 2
    return 1 if status.goodput is not None else 0  # there is an account from the first nodes on


def _row(status: TrainingJobStatus, reason: str, throughput: Throughput) -> _Row:
    running = next((condition for condition in status.conditions if condition.type == "Running"), None)
    waits = status.state in WAITING and running is not None and running.status is ConditionStatus.FALSE
    return _Row(
        status.state,
        reason,
        status.goodput,
        throughput,
        status.step,
        status.checkpoint,
        running.last_transition_time if waits and running is not None else None,
        _rank(status),
        status.nodes,
    )


def _latest(failed: dict[Key, datetime]) -> dict[Key, datetime]:
    """The failed jobs that have a row: the latest of each namespace, then the latest but one of each, and so on."""
    newer: Counter[str] = Counter()
    ordered = []
    for key, time in sorted(failed.items(), key=lambda item: item[1], reverse=True):
        ordered.append((newer[key[0]], -time.timestamp(), key))
        newer[key[0]] += 1
    return {key: failed[key] for _, _, key in heapq.nsmallest(MAX_FAILED, ordered)}


def _families(rows: dict[Key, _Row], failed: dict[Key, datetime], now: datetime, prices: Prices) -> Iterable[Metric]:
    metrics = {family.name: family.begun() for family in _OF_JOBS}

    def put(family: _Family, key: Key, value: float | None, *labels: str) -> None:
        if value is not None:
            metrics[family.name].add_metric([*key, *labels], float(min(value, MOST)))  # type: ignore[attr-defined] # of both kinds of family

    for key, time in failed.items():
        put(_FAILED, key, time.timestamp())
    nodes = 0
    for key, row in rows.items():
        held = [node for node in dict.fromkeys(row.nodes) if node]
        nodes += len(held)
        for node in held if nodes <= MAX_NODES else ():
            put(_NODE, key, 1, node)
        put(_STATE, key, 1, row.state, row.reason)
        put(_WAITS, key, _moment(row.waits_since))
        put(_STEP, key, row.step)
        for family, value, *labels in _save_figures(row.checkpoint) if row.checkpoint is not None else ():
            put(family, key, value, *labels)
        if row.goodput is None:
            continue
        account = figures_until(row.goodput, now + clock_lead_seconds(row.goodput), row.state)
        for bucket, seconds in account.seconds.items():
            put(_TIME, key, seconds, bucket)
        for bucket, seconds in account.gpu_seconds.items():
            put(_GPUS, key, seconds, bucket)
        put(_ETTR, key, _thousandth(account.ettr_permille))
        put(_AFTER_QUEUE, key, _thousandth(account.ettr_after_queue_permille))
        put(_UNSAVED, key, account.unsaved_seconds)
        put(_FAILURES, key, account.failures)
        put(_LOST, key, account.lost_steps)
        put(_STEP_SECONDS, key, _thousandth(account.step_milliseconds))
        put(_STEP_P90, key, _thousandth(account.step_p90_milliseconds))
        made = job_efficiency(account, row.throughput)
        put(_TOKENS, key, made.tokens)
        put(_TOKENS_PER_SECOND, key, made.tokens_per_second)
        put(_MFU, key, made.mfu)
        put(_MFU_OVERALL, key, made.overall)
        put(_COST, key, prices.cost(account.gpu_seconds, account.gpu_model), prices.currency)
    return metrics.values()


def _save_figures(checkpoint: CheckpointStatus) -> Iterator[tuple[_Family, float | None, *tuple[str, ...]]]:
    """The figures of the newest save, and what concerns people."""
    unknown = CheckpointSave(step=checkpoint.step)
    newest = next((save for save in checkpoint.saves if save.step == checkpoint.step), unknown)
    yield _SAVED, _moment(checkpoint.time)
    yield _SAVED_STEP, checkpoint.step
    yield _BYTES, newest.bytes
    yield _SAVE, newest.save_seconds
    yield _STALL, newest.stall_seconds
    yield _DURABLE, newest.durable_seconds
    yield _FREE, newest.free_bytes
    reasons = {concern.reason for concern in checkpoint.concerns}
    for reason in CheckpointTrouble:
        yield _CONCERN, 1 if reason in reasons else None, reason.value


def _moment(time: datetime | None) -> float | None:
    return time.timestamp() if time is not None else None


def _thousandth(value: int | None) -> float | None:
    return value / 1000 if value is not None else None


_JOBS = ("muster_jobs", "Jobs by state, ended ones included until they are deleted.")
_UNSHOWN = (
    "muster_jobs_without_metrics",
    "Jobs that have not ended, or failed within a day, and have no rows of their own, because there are too many.",
)


class _Collector:
    """The entry in Prometheus's registry that reads the newest JobFigures."""

    figures: JobFigures | None = None

    def describe(self) -> Iterable[Metric]:
        """The metrics that there can be, without rows."""
        yield GaugeMetricFamily(*_JOBS, labels=["state"])
        yield GaugeMetricFamily(*_UNSHOWN, labels=[])
        for family in _OF_JOBS:
            yield family.begun()

    def collect(self) -> Iterable[Metric]:
        """The metrics with their present rows."""
        return self.figures.collected() if self.figures is not None else ()


_collector = _Collector()
REGISTRY.register(_collector)

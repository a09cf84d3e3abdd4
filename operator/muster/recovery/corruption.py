"""Reports of ranks that their own results are wrong, and beyond which step checkpoints are suspect. Pure.

A rank reports it by a line in its progress file, or by its exit code. The report ends the tenant's attempt, is charged
to the job, and sends the job back to an earlier checkpoint. Only Muster's own tests say whether a node is bad.

Tests: tests/unit/record/test_corruption.py.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from muster.api.gang import Corruption, GangSpec, Level
from muster.protocol.messages import CORRUPTION_EXIT_CODE, CORRUPTIONS, RankReport, last_unsuspected
from muster.recovery.failure import Failure, Kind
from muster.world.job import JobWorld, WorkerView
from muster.world.names import index_of
from muster.world.views import LauncherView

EXIT_CODE = "ExitCode"


@dataclass(frozen=True, slots=True)
class CorruptionReport:
    """What one rank has reported about wrong results of its own.

    Attributes:
        pod_uid: of its pod.
        node: of its pod.
        where: its worker, as text.
        attempt: the attempt in which the rank ran.
        rank: its number.
        reason: one of muster.protocol.messages.CORRUPTIONS, or EXIT_CODE.
        found_at: the step at which the rank found the results wrong; None: not reported.
        last_good: the last step whose results the rank vouches for; None: not reported.
    """

    pod_uid: str
    node: str
    where: str
    attempt: int
    rank: int
    reason: str
    found_at: int | None
    last_good: int | None

    @property
    def text(self) -> str:
        """The report as text for people."""
        if self.reason == EXIT_CODE:
            return f"rank {self.rank} exited with code {CORRUPTION_EXIT_CODE}: it has found its own results wrong"
        at = "" if self.found_at is None else f" at step {self.found_at}"
        sure = "" if self.last_good is None else f", and is sure of step {self.last_good}"
        return f"rank {self.rank} has found {self.reason}{at}{sure}"

    @property
    def beyond(self) -> int | None:
        """The step after which checkpoints are suspect by this report alone; None: the report names no step."""
        return last_unsuspected(self.found_at, self.last_good)


def new_reports(world: JobWorld) -> tuple[CorruptionReport, ...]:
    """Return the reports of wrong results that are not yet on the job's record."""
    return world.derived(_all_reports)


def corruption_failure(world: JobWorld, worker_view: WorkerView) -> Failure | None:
    """Return a worker's report of wrong results as a failure that restarts the ranks; None: the worker reports none.

    The worker moves to another node where its node is known to be unhealthy, as with any rank that fails.
    """
    report = _worker_of_pod(world, worker_view.pod.uid if worker_view.pod else "")
    if report is None:
        return None
    node_fault = world.fleet.node_fault(report.node)
    level, on_unhealthy = (
        (Level.REPLACE, f" on an unhealthy node ({node_fault})") if node_fault else (Level.IN_PLACE, "")
    )
    return _failure(report, worker_view.index, level, on_unhealthy, node_fault=node_fault, if_free=bool(node_fault))


def failures_of_leavers(world: JobWorld) -> list[Failure]:
    """Return the reports of wrong results from unfenced workers as failures that restart the ranks in place.

    Those workers are members no more, so that no member moves for them.
    """
    record = world.gang.spec if world.gang else None
    reports = (
        [
            (unfenced_worker, _worker_of_pod(world, unfenced_worker.pod_uid))
            for unfenced_worker in record.unfenced_workers
        ]
        if record
        else []
    )
    return [
        _failure(report, index_of(unfenced_worker.pod), Level.IN_PLACE)
        for unfenced_worker, report in reports
        if report is not None
    ]


def _failure(report: CorruptionReport, index: int, level: Level, on_unhealthy: str = "", **changes: Any) -> Failure:
    code = CORRUPTION_EXIT_CODE if report.reason == EXIT_CODE else None
    message = f"{report.where}: {report.text}{on_unhealthy}"
    return Failure(Kind.CORRUPTION, level, index, report.node, message, rank=report.rank, exit_code=code, **changes)


def _worker_of_pod(world: JobWorld, pod_uid: str) -> CorruptionReport | None:
    return next((report for report in new_reports(world) if report.pod_uid == pod_uid), None)


def _all_reports(world: JobWorld) -> tuple[CorruptionReport, ...]:
    if world.gang is None:
        return ()
    spec = world.gang.spec
    speakers = [
        (worker_view.pod.uid, worker_view.member.node, worker_view.where)
        for worker_view in world.worker_views
        if worker_view.pod is not None
    ]
    speakers += [
        (unfenced_worker.pod_uid, unfenced_worker.node, f"pod {unfenced_worker.pod} on {unfenced_worker.node}")
        for unfenced_worker in spec.unfenced_workers
    ]
    reports = (
        report
        for speaker in speakers
        if (view := world.launchers.get(speaker[0])) is not None
        for attempt, ranks in _ranks_of(spec, view)
        for rank in ranks
        if (report := _report_of_rank(speaker, attempt, rank)) is not None and _is_new(spec.corruption, report)
    )
    return tuple(reports)


def _ranks_of(spec: GangSpec, view: LauncherView) -> Iterator[tuple[int, tuple[RankReport, ...]]]:
    """Yield the ranks of a launcher whose reports count, with their attempt.

    Once the ranks have started, those of the present attempt count; before that, those of earlier attempts.

    Args:
        spec: the job's record.
        view: the launcher's last report.
    """
    if spec.start is not None:
        if view.attempt == spec.attempt:
            yield view.attempt, view.ranks
        return
    for attempt, ranks in ((view.attempt, view.ranks), (view.previous_attempt, view.previous_ranks)):
        if attempt < spec.attempt:
            yield attempt, ranks


def _report_of_rank(speaker: tuple[str, str, str], attempt: int, rank: RankReport) -> CorruptionReport | None:
    if rank.corruption in CORRUPTIONS:
        return CorruptionReport(*speaker, attempt, rank.rank, rank.corruption, rank.found_at, rank.last_good)
    if rank.exit_code == CORRUPTION_EXIT_CODE and not rank.alive and not rank.ended_by_launcher:
        return CorruptionReport(*speaker, attempt, rank.rank, EXIT_CODE, None, None)
    return None


def _is_new(recorded: Corruption | None, report: CorruptionReport) -> bool:
    if recorded is None:
        return True
    if not recorded.open:
        return report.attempt > recorded.attempt
    # Until the ranks start again, reports are about what is on record: one that reaches further back counts.
    return (
        report.attempt >= recorded.attempt
        and report.beyond is not None
        and report.beyond < recorded.suspect_beyond_step
    )

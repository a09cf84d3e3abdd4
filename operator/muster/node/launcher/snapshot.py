"""The state of the launcher at a moment, with times as monotonic readings; it becomes a Report when it is sent.

Tests: tests/unit/launcher/test_reporting.py.
"""

from __future__ import annotations

import dataclasses
import operator
from typing import Any, Optional, Tuple

from muster.protocol.messages import IDLE, CheckpointReport, LocalReport, PeerReport, RankReport, Report, StackReport

_MAX_TAILS_CHARS = 32 * 1024  # of one report, which must stay below MAX_REPORT_BYTES when each takes six bytes in JSON


@dataclasses.dataclass(frozen=True)
class RankSnapshot:
    """The state of one rank; `exited_at` is a monotonic reading."""

    rank: int
    local_rank: int
    alive: bool
    exit_code: Optional[int] = None
    signal: Optional[int] = None
    ended_by_launcher: bool = False
    exited_at: Optional[float] = None
    tail: str = ""
    corruption: str = ""
    found_at: Optional[int] = None
    last_good: Optional[int] = None
    starter: str = ""
    failed_rank: Optional[int] = None
    failed_local_rank: Optional[int] = None
    failed_exit_code: Optional[int] = None
    failed_signal: Optional[int] = None
    memory_limit_bytes: Optional[int] = None

    def report(self, now: float, tail_chars: int) -> RankReport:
        """The rank's part of a report.

        Args:
            now: seconds of the monotonic clock, from which ages are counted back.
            tail_chars: the most characters of the rank's last output.
        """
        tail = self.tail[-tail_chars:] if tail_chars else ""
        fields = dict(vars(self), exited_age_seconds=_age(now, self.exited_at), tail=tail)
        del fields["exited_at"]
        return RankReport(**fields)


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """The whole state of the launcher."""

    state: str = IDLE
    attempt: int = 0
    ranks: Tuple[RankSnapshot, ...] = ()
    is_starting: bool = False  # more ranks are about to come up; not reported
    started_at: Optional[float] = None
    step: Optional[int] = None
    step_at: Optional[float] = None
    standstill_seconds: float = 0.0
    step_seconds: Optional[float] = None
    step_p90_seconds: Optional[float] = None
    fence_seconds: float = 15.0
    fenced: bool = False
    previous_attempt: int = 0
    previous_ranks: Tuple[RankSnapshot, ...] = ()
    previous_step: Optional[int] = None
    previous_fenced: bool = False
    peers: Tuple[Tuple[int, float], ...] = ()  # index, heard at
    checkpoints: Tuple[CheckpointReport, ...] = ()
    stamps: Optional[str] = None
    other_directory: Tuple[CheckpointReport, ...] = ()
    other_directory_error: str = ""
    other_directory_error_kind: str = ""
    checkpoints_scanned_for_attempt: int = 0
    listing_round: int = 0
    scanned_at: Optional[float] = None
    listed_at: Optional[float] = None
    checkpoint_error: str = ""
    checkpoint_error_kind: str = ""
    checkpoint_warning: str = ""
    checkpoint_trap: str = ""
    lists_after_end: bool = False
    free_bytes: Optional[int] = None
    turned_at: Optional[float] = None
    first_step: Optional[int] = None
    first_step_at: Optional[float] = None
    input_wait_seconds: Optional[float] = None
    communication_seconds: Optional[float] = None
    checkpoint_stall_seconds: Optional[float] = None
    lost_steps: int = 0
    lost_seconds: float = 0.0
    lowest_restarted_step: Optional[int] = None
    step_stride: Optional[int] = None
    longest_wait_seconds: Optional[float] = None
    collectives: str = ""
    energy_joules: Optional[int] = None
    energy_gpu_milliseconds: Optional[int] = None
    progress_error: str = ""
    progress_preset: str = ""
    printed_loss: str = ""
    printed_tokens: Optional[float] = None
    printed_step_seconds: Optional[float] = None
    printed_tflops: Optional[float] = None
    printed_mfu: Optional[float] = None
    measured_stall_seconds: float = 0.0
    measured_saves: int = 0
    likely_preset: str = ""
    likely_pattern: str = ""
    likely_line: str = ""
    loss_not_finite_since: Optional[int] = None
    heard_at: Optional[float] = None
    reads_fence_file: bool = False
    fence_file_attempt: int = 0
    fence_file_at: Optional[float] = None
    fence_file_id: str = ""
    fence_file_error: str = ""
    moved_attempt: int = 0
    moved: str = ""
    moved_error: str = ""
    local: Tuple[LocalReport, ...] = ()
    local_attempt: int = 0
    local_listing_round: int = 0
    local_error: str = ""
    stacks: Tuple[StackReport, ...] = ()
    stacks_attempt: int = 0
    request: int = 0
    request_answered: int = 0
    ejected: bool = False

    def is_news(self, previous: "Snapshot") -> bool:
        """Whether this state differs from the one before in something that cannot wait for the next periodic report."""
        return _news(self) != _news(previous)

    def report(self, now: float, sequence: int, **sender: Any) -> Report:
        """The report of this number to the coordinator, with ages counted back from `now`. `sender` has the fields that
        the reporter knows.
        """
        failed = sum(1 for rank in self.ranks + self.previous_ranks if rank.tail)
        tail_chars = _MAX_TAILS_CHARS // max(failed, 1)
        fields = {name: getattr(self, name) for name in _TOLD}
        fields.update((age, _age(now, getattr(self, moment))) for moment, age in _AGES)
        fields.update(
            ranks=tuple(rank.report(now, tail_chars) for rank in self.ranks),
            previous_ranks=tuple(rank.report(now, tail_chars) for rank in self.previous_ranks),
            peers=tuple(PeerReport(index, max(0.0, now - heard_at)) for index, heard_at in self.peers),
            loop_age_seconds=_age(now, self.turned_at) or 0.0,
            quiet_age_seconds=_age(now, self.heard_at),
        )
        return Report(sequence=sequence, **fields, **sender)


_REPORTED = {field.name for field in dataclasses.fields(Report)} - {"ranks", "previous_ranks", "peers"}
_TOLD = [field.name for field in dataclasses.fields(Snapshot) if field.name in _REPORTED]
_MOMENTS = [field.name for field in dataclasses.fields(Snapshot) if field.name.endswith("_at")]
_AGES = [(name, age) for name in _MOMENTS for age in [name[: -len("at")] + "age_seconds"] if age in _REPORTED]


# What changes all the time, and can wait.
_QUIET = {
    "step",
    "step_at",
    "first_step_at",
    "step_seconds",
    "step_p90_seconds",
    "input_wait_seconds",
    "communication_seconds",
    "checkpoint_stall_seconds",
    "printed_loss",
    "printed_tokens",
    "printed_step_seconds",
    "printed_tflops",
    "printed_mfu",
    "loss_not_finite_since",
    "measured_stall_seconds",
    "measured_saves",
    "lost_steps",
    "lost_seconds",
    "lowest_restarted_step",
    "step_stride",
    "longest_wait_seconds",
    "energy_joules",
    "energy_gpu_milliseconds",
    "standstill_seconds",
    "fence_seconds",
    "peers",
    "turned_at",
    "heard_at",
    "free_bytes",
    "listed_at",
}
_news = operator.attrgetter(*[field.name for field in dataclasses.fields(Snapshot) if field.name not in _QUIET])


def _age(now: float, moment: Optional[float]) -> Optional[float]:
    return None if moment is None else max(0.0, now - moment)

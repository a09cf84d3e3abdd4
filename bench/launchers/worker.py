"""One worker's state, converging to its directive as the supervisor of the real launcher does. Pure: time is an
argument.

The order of states is the launcher's own (muster.node.launcher.supervisor): Idle, Running, Exited, Reclaiming,
Terminating, the same reports with the same fields. Ranks are numbers here, and dying takes as long as the Pace says.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from bench.launchers.training import Pace, Training
from muster.node.launcher.moves import Move, next_move, wanted_listing
from muster.node.launcher.reporter_core import is_done, supersedes
from muster.node.launcher.snapshot import Snapshot
from muster.protocol.messages import (
    EXIT,
    EXITED,
    IDLE,
    RECLAIMING,
    RUNNING,
    TERMINATING,
    Directive,
    Peer,
    PeerReport,
    RankReport,
    Report,
)

PING_SECONDS = 1.0
SIGKILL = 9

# Since when a neighbour has not answered; None while it does.
SilentSince = Callable[[Peer], float | None]


@dataclass(frozen=True, slots=True)
class Identity:
    """What a launcher knows of itself from the beginning."""

    pod_uid: str
    address: str
    peer_port: int
    version: str = "simulated"


class Worker:
    """The state of one launcher.

    Attributes:
        changed: something happened that a report must carry at once; sending it resets this.
        directive: the one in force.
    """

    def __init__(self, identity: Identity, training: Training, pace: Pace, silent_since: SilentSince) -> None:
        self.identity = identity
        self.changed = True
        self.directive: Directive | None = None
        self._training = training
        self._pace = pace
        self._silent_since = silent_since
        self._sequence = 0
        self._state = IDLE
        self._idle_attempt = 0
        self._listing = 0
        self._scanned_for = (0, 0)  # attempt and listing
        self._scan_ends_at: float | None = None
        self._running_attempt = 0  # whose ranks are here, alive or ended; 0 = none
        self._ranks: tuple[RankReport, ...] = ()
        self._started_at = self._ended_at = 0.0
        self._reclaim_ends_at: float | None = None
        self._previous: tuple[int, tuple[RankReport, ...]] = (0, ())

    @property
    def attempt(self) -> int:
        """The attempt whose ranks are here; 0 = none."""
        return self._running_attempt

    @property
    def is_active(self) -> bool:
        """Whether to report at the coordinator's pace even without news, as the real one does."""
        return self._state in (RUNNING, RECLAIMING)

    @property
    def is_done(self) -> bool:
        """Whether nothing is to be told soon that the coordinator waits for (muster.node.launcher.reporter.is_done)."""
        snapshot = Snapshot(
            state=self._state,
            attempt=self._running_attempt or self._idle_attempt,
            checkpoints_scanned_for_attempt=self._scanned_for[0],
            listing_round=self._scanned_for[1],
        )
        return is_done(self.directive, snapshot, bool(self._training.directory))

    @property
    def must_exit(self) -> bool:
        """Whether there is nothing left to do but to say so and exit."""
        return self.directive is not None and self.directive.kind == EXIT and not self._running_attempt

    def obey(self, directive: Directive) -> None:
        """Take over a directive unless it is older than the one in force."""
        if supersedes(directive, self.directive):
            self.directive = directive

    def next_at(self) -> float | None:
        """When `turn` has something to do although no directive arrives."""
        return self._reclaim_ends_at if self._reclaim_ends_at is not None else self._scan_ends_at

    def turn(self, now: float) -> None:
        """Converge as far as that is possible now."""
        if self._reclaim_ends_at is not None:
            if now < self._reclaim_ends_at:
                return
            self._finish_reclaim(now)
        directive = self.directive
        if directive is None:
            return
        move = next_move(directive, self._running_attempt or None, (self._idle_attempt, self._listing))
        if move is Move.START:
            self._start(directive, now)
        elif move is Move.END:
            self._begin_reclaim(now)
        elif move is Move.LIST:
            (self._idle_attempt, self._listing), self.changed = wanted_listing(directive), True
            self._scan_ends_at = now + (self._pace.scan_seconds if self._training.directory else 0.0)
        if self._scan_ends_at is not None and now >= self._scan_ends_at:
            self._scan_ends_at = None
            self._scanned_for, self.changed = (self._idle_attempt, self._listing), True

    def fail(self, exit_code: int, now: float) -> bool:
        """Ranks here end by themselves: all of them with code 0, else the first, and the others wait for it for ever.

        Returns:
            False when no rank is alive.
        """
        if self._state != RUNNING:
            return False
        others = self._ranks[1:] if exit_code else ()
        ended = self._ranks[: len(self._ranks) - len(others)]
        self._ranks = (*(_exited(rank, exit_code) for rank in ended), *others)
        self._ended_at, self.changed = now, True
        if any(rank.alive for rank in others):
            self._training.stall(self._running_attempt, now)
        else:
            self._state = EXITED
            self._training.end(self.identity.pod_uid, self._running_attempt, now)
        return True

    def kill(self, now: float) -> None:
        """Every rank ends at once: SIGTERM to the launcher, or the end of its container or its node."""
        if self._running_attempt:
            self._bury(now)
        self._state = TERMINATING

    def report(self, now: float, directive_seen: str, hold_seconds: float) -> Report:
        """The next report."""
        self._sequence += 1
        here = self._running_attempt
        made = self._training.step(here, now) if here else None
        return Report(
            sequence=self._sequence,
            state=self._state,
            attempt=here or self._idle_attempt,
            ranks=tuple(_aged(rank, now - self._ended_at) for rank in self._ranks),
            step=made[0] if made else None,
            step_age_seconds=now - made[1] if made else None,
            started_age_seconds=now - self._started_at if here else None,
            step_seconds=self._pace.step_seconds if made else None,
            previous_attempt=self._previous[0],
            previous_ranks=tuple(_aged(rank, now - self._ended_at) for rank in self._previous[1]),
            peer_port=self.identity.peer_port,
            peers=self._peers(now),
            checkpoints=self._training.checkpoints(now) if self._scanned_for[0] else (),
            checkpoints_scanned_for_attempt=self._scanned_for[0],
            listing_round=self._scanned_for[1],
            address=self.identity.address,
            launcher_version=self.identity.version,
            directive_seen=directive_seen,
            hold_seconds=hold_seconds,
        )

    def _peers(self, now: float) -> tuple[PeerReport, ...]:
        """A neighbour that answers was heard within the last second; one that does not, before it fell silent."""
        directive = self.directive
        if not self._running_attempt or directive is None:
            return ()
        found = []
        for peer in directive.peers:
            since = self._silent_since(peer)
            heard_at = now - now % PING_SECONDS if since is None else max(since, self._started_at)
            found.append(PeerReport(peer.index, max(0.0, now - heard_at)))
        return tuple(found)

    def _start(self, directive: Directive, now: float) -> None:
        first = directive.node_rank * directive.processes_per_node
        self._ranks = tuple(
            RankReport(first + local, local, alive=True) for local in range(directive.processes_per_node)
        )
        self._state, self._running_attempt, self._started_at = RUNNING, directive.attempt, now
        self._scan_ends_at, self.changed = None, True
        self._training.start(self.identity.pod_uid, directive.attempt, directive.node_count, directive.resume_step, now)

    def _begin_reclaim(self, now: float) -> None:
        self._training.stall(self._running_attempt, now)
        self._state, self._reclaim_ends_at, self.changed = RECLAIMING, now + self._pace.reclaim_seconds, True

    def _finish_reclaim(self, now: float) -> None:
        self._bury(now)
        self._previous = (self._running_attempt, self._ranks)
        self._reclaim_ends_at, self._ranks, self._running_attempt = None, (), 0
        self._state, self.changed = IDLE, True

    def _bury(self, now: float) -> None:
        if any(rank.alive for rank in self._ranks):
            self._ended_at = now
        self._ranks = tuple(_killed(rank) for rank in self._ranks)
        self._training.end(self.identity.pod_uid, self._running_attempt, now)


def _killed(rank: RankReport) -> RankReport:
    return replace(rank, alive=False, signal=SIGKILL, ended_by_launcher=True) if rank.alive else rank


def _aged(rank: RankReport, age_seconds: float) -> RankReport:
    return rank if rank.alive else replace(rank, exited_age_seconds=max(0.0, age_seconds))


def _exited(rank: RankReport, exit_code: int) -> RankReport:
    tail = f"RuntimeError: this rank was told to end with exit code {exit_code}\n" if exit_code else ""
    return replace(rank, alive=False, exit_code=exit_code, tail=tail)

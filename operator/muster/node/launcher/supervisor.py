"""The loop that never blocks: it watches the ranks, reports, and does what the directive says.

Tests: tests/unit/launcher/test_cut_off.py, tests/unit/launcher/test_running.py.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import signal
from typing import Any, Callable, Deque, Dict, FrozenSet, List, Optional, Tuple

from muster.node.launcher.collectives import Collectives
from muster.node.launcher.energy import EnergyMeter
from muster.node.launcher.environment import Settings
from muster.node.launcher.fence_file import FenceFile
from muster.node.launcher.host import Host
from muster.node.launcher.incomplete_mover import IncompleteMover
from muster.node.launcher.local import LocalLister
from muster.node.launcher.matcher import Matcher
from muster.node.launcher.moves import GangView, Move, is_alone, next_move, wanted_listing, why_to_fence
from muster.node.launcher.peers import Peers
from muster.node.launcher.printed import MFU, STEP_SECONDS, TFLOPS, TOKENS
from muster.node.launcher.ranks import Rank, Starting
from muster.node.launcher.reclaim import Leftover, Reclaim
from muster.node.launcher.reporter import Reporter
from muster.node.launcher.reporter_core import OVERDUE_SECONDS
from muster.node.launcher.requests import Requests
from muster.node.launcher.saves import Saves
from muster.node.launcher.scanner import Scanner, ScanResult
from muster.node.launcher.snapshot import RankSnapshot, Snapshot
from muster.node.launcher.stacks import StackDump
from muster.node.launcher.stepclock import StepClock, lowest
from muster.protocol.fence import fence_seconds, has_silent_peer
from muster.protocol.messages import (
    CHECKPOINT_STALL,
    COMMUNICATION,
    EXIT,
    EXITED,
    IDLE,
    INPUT_WAIT,
    RECLAIMING,
    RUNNING,
    TERMINATING,
    CheckpointReport,
    Directive,
    StackReport,
)

_SHORT_TICK_SECONDS = 0.01  # while processes are ending
_IDLE_TICK_SECONDS = 1.0
_STANDSTILL_SECONDS = 5.0  # without a turn: the node or the container was frozen, and the ranks with it
_LEAVE_SECONDS = 0.8  # to end the ranks and to say so
_LEAVE_RECLAIM_SECONDS = 0.5
_LEAVE_REPORT_SECONDS = 0.5
_LEAVE_DRAIN_SECONDS = 0.1
_EXIT_REPORT_SECONDS = 2.0
_STOP_SECONDS = 5.0  # for ranks that were asked to leave, from SIGTERM to SIGKILL
_LAST_SCAN_SECONDS = 30.0  # the end of a job waits no longer for it
_EXIT_DRAIN_SECONDS = 5.0
TERMINATED = 128 + signal.SIGTERM


@dataclasses.dataclass
class LocalGang:
    """The ranks of one attempt on this worker.

    Attributes:
        count: the number of ranks.
        told_at: when the report was sent whose answer opened the start barrier. The coordinator may have heard nothing
        later, so the fence counts from here, however long the answer took.
        obeys_fence_file: whether the coordinator may rely on the fence file, since it knows that this launcher reads
            it.
        ejected: whether the ranks go on to their end without a coordinator, which it has ordered.
        served_fence_seconds: the fence that the coordinator has set for this attempt; 0 = none.
        last_scan: number of the scan that was begun once all ranks had ended well, 0 = there is none; None: they have
            not
        ended.
        ended_at: when all ranks had ended.
    """

    attempt: int
    count: int
    starting: Starting
    started_at: float
    shared_memory_before: FrozenSet[Leftover]
    told_at: float
    fenced: bool = False
    obeys_fence_file: bool = False
    ejected: bool = False
    served_fence_seconds: float = 0.0
    last_scan: Optional[int] = None
    ended_at: float = 0.0

    @property
    def ranks(self) -> Tuple[Rank, ...]:
        """The ranks that are up."""
        return self.starting.ranks

    @property
    def has_ended(self) -> bool:
        """Whether every rank has come up and ended. Of an ejected gang no more ranks come up once one has failed."""
        all_came = len(self.ranks) == self.count or (self.ejected and self.starting.is_over)
        return all_came and all(rank.has_ended for rank in self.ranks)


class Supervisor:
    """Owns all child processes of the launcher, and does all its work in the main thread."""

    def __init__(
        self,
        settings: Settings,
        host: Host,
        reporter: Reporter,
        peers: Peers,
        fence_file: FenceFile,
        scanner: Scanner,
        matcher: Matcher,
        log: Callable[[str], None],
        aside: Optional[IncompleteMover] = None,
        energy: Optional[EnergyMeter] = None,
        local: Optional[LocalLister] = None,
        collectives: Optional[Collectives] = None,
    ) -> None:
        self._local = local or LocalLister(settings.local_directory, settings.gang, settings.scan_deadline_seconds)
        self._energy = energy or EnergyMeter()
        self._collectives = collectives or Collectives()
        self._aside = aside or IncompleteMover(settings.checkpoint_directory)
        self._settings = settings
        self._host = host
        self._reporter = reporter
        self._peers = peers
        self._fence_file = fence_file
        self._log = log
        self._now = host.now
        self._scanner = scanner
        self._matcher = matcher
        self._gang: Optional[LocalGang] = None
        self._requests = Requests(host.put_request, log)
        self._stops_until: Optional[float] = None  # ranks have SIGTERM, and until then to end by themselves
        self._dump: Optional[StackDump] = None
        self._stacks: Tuple[int, Tuple[StackReport, ...]] = (0, ())  # attempt, and where its ranks stood
        self._reclaim: Optional[Reclaim] = None
        self._fencing = False
        self._idle_attempt = 0
        self._listing = 0  # as it was last asked for
        # Attempt, its ranks, its newest step, whether they were fenced.
        self._previous: Tuple[int, Tuple[RankSnapshot, ...], Optional[int], bool] = (0, (), None, False)
        self._checkpoints: Tuple[CheckpointReport, ...] = ()
        self._stamps: Optional[str] = None
        self._elsewhere: Tuple[CheckpointReport, ...] = ()
        self._elsewhere_error = self._elsewhere_error_kind = ""
        self._scanned_for = (0, 0)  # attempt and listing
        self._scan_error = self._scan_error_kind = ""
        self._scan_warning = ""
        self._scan_trap = ""
        self._saves = Saves()
        self._free_bytes: Optional[int] = None
        self._listed_at: Optional[float] = None
        self._logged_ranks: FrozenSet[int] = frozenset()
        self._logged_words: FrozenSet[Tuple[int, str]] = frozenset()
        self._ended: Dict[int, int] = {}  # statuses of children that may belong to a rank that is not up yet
        self._scanned_at: Optional[float] = None
        self._told_to_leave = False
        self._started_at = self._turned_at = self._now()
        self._standstills: Deque[Tuple[float, float]] = collections.deque(maxlen=64)  # when one ended, and its seconds

    def leave(self) -> None:
        """Have the loop end the ranks and return soon, upon SIGTERM."""
        self._told_to_leave = True

    def run(self) -> int:
        """Supervise until the launcher is told to exit; returns the exit code."""
        turn_at = self._now()
        while True:
            descriptors = (
                part.descriptor
                for part in (self._peers, self._scanner, self._matcher, self._aside, self._energy, self._local)
            )
            ready = self._host.wait(tuple(descriptors), min(turn_at, self.hears_at()) - self._now())
            if ready <= {self._peers.descriptor} and self._now() < turn_at and not self.hear():
                continue
            code = self.poll()
            if code is not None:
                return code
            turn_at = self._now() + self.timeout_seconds()

    def hears_at(self) -> float:
        """The time at which `hear` has to be called although no neighbour has sent anything: then it has to ping
        them."""
        moment = self._peers.next_at()
        return math.inf if moment is None else moment

    def hear(self) -> bool:
        """Answer the neighbours' packets and ping them when it is time. Returns whether `poll` has to follow."""
        return self._peers.poll(self._now())

    def poll(self) -> Optional[int]:
        """Look, act and report once. Returns the exit code when that was the last time, else None."""
        if self._told_to_leave:
            return self._leave()
        self._poll(self._now())
        directive = self._reporter.directive()
        if directive is not None and directive.kind == EXIT and self._is_clean():
            return self._exit(directive)
        if self._gang is not None and self._gang.ejected and self._gang.has_ended and not self._is_ending:
            return self._exit_with_ranks(self._gang)
        self._reporter.publish(self._snapshot())
        return None

    def timeout_seconds(self) -> float:
        """The seconds after which `poll` has to be called although nothing happens."""
        if self._is_ending:
            return _SHORT_TICK_SECONDS
        tick = _IDLE_TICK_SECONDS
        if self._gang is not None:
            tick = self._host.tick_seconds
            ends = self._gang.has_ended and self._gang.last_scan is None
            if ends or any(rank.is_reaped and not rank.has_ended for rank in self._gang.ranks):
                tick = _SHORT_TICK_SECONDS
        moments = [
            moment
            for moment in (part.next_at() for part in (self._scanner, self._fence_file, self._matcher))
            if moment is not None
        ]
        return min([tick] + [moment - self._now() for moment in moments])

    def _poll(self, now: float) -> None:
        if now - self._turned_at > _STANDSTILL_SECONDS:
            self._standstills.append((now, now - self._turned_at))
        self._turned_at = now
        ended = self._host.reap()
        self._note_ended(ended)
        self._peers.poll(now)
        ranks = self._gang.ranks if self._gang is not None else ()
        self._matcher.poll(now, ended, [rank.printed for rank in ranks])
        for rank in ranks:
            rank.update_progress(self._requests.numbers)
            self._log_reports(rank)
        self._note_step()
        self._detect_missing_peers(now)
        self._poll_fence_file(now)
        self._converge(now)
        self._move_incomplete(now, ended)
        self._list_local_checkpoints(now, ended)
        self._begin_last_scan(now)
        self._take_scan(self._scanner.poll(now, ended))
        self._energy.poll(now, ended, self._gang.attempt if self._gang is not None else None)
        trains = self._gang is not None and any(rank.clock.first_step is not None for rank in self._gang.ranks)
        self._collectives.poll(now, ended, self._gang.attempt if self._gang is not None and trains else None)

    def _begin_last_scan(self, now: float) -> None:
        """Begin to scan for the last checkpoint once the ranks have ended well: the job may be complete by it."""
        gang = self._gang
        if gang is None or gang.last_scan is not None or self._is_ending or not gang.has_ended:
            return
        # Ranks that follow a request to leave, be it withdrawn or not, have saved, whatever their exit code.
        leaves = self._answered_request(gang) in self._requests.leave_numbers
        well = leaves or all(rank.view().exit_code == 0 for rank in gang.ranks)
        gang.last_scan, gang.ended_at = self._scanner.scan_last() if well else 0, now

    def _answered_request(self, gang: LocalGang) -> int:
        return max((rank.answered_request for rank in gang.ranks), default=0) or self._requests.signalled

    def _lists_last(self, gang: LocalGang) -> bool:
        """Whether the scan for the last checkpoint of the ranks is under way."""
        if gang.last_scan is None or self._scanner.is_over(gang.last_scan):
            return False
        return self._now() < gang.ended_at + _LAST_SCAN_SECONDS

    def _move_incomplete(self, now: float, ended: Dict[int, int]) -> None:
        previous_attempt = self._aside.attempt
        self._aside.poll(now, ended, self._reporter.directive() if self._is_clean() else None)
        text = "; ".join(filter(None, (self._aside.words, self._aside.error)))
        if self._aside.attempt != previous_attempt and text:
            self._log("attempt %d: checkpoints: %s" % (self._aside.attempt, text))

    def _list_local_checkpoints(self, now: float, ended: Dict[int, int]) -> None:
        previous_error = self._local.error
        self._local.poll(now, ended, self._reporter.directive() if self._is_clean() else None)
        if self._local.error and self._local.error != previous_error:
            self._log("checkpoints on this node's own disk: %s" % self._local.error)

    def _note_step(self) -> None:
        last = lowest([rank.clock for rank in self._counted_ranks(self._gang)]) if self._gang is not None else None
        if last is not None and last.step is not None and last.finished_at is not None:
            self._saves.stepped(last.step, last.finished_at)

    def _log_reports(self, rank: Rank) -> None:
        """Log, once for each attempt, what a rank reports of its own results, and what is wrong with its progress
        file."""
        corruption = rank.corruption
        words = [rank.progress_problem] if rank.progress_problem else []
        if corruption is not None:
            at = "" if corruption.found_at is None else " at step %d" % corruption.found_at
            words.append("it has found %s%s: the attempt will be ended, and its nodes tested" % (corruption.reason, at))
        for text in words:
            if self._gang is not None and (rank.rank, text) not in self._logged_words:
                self._logged_words |= {(rank.rank, text)}
                self._log("attempt %d: %s: %s" % (self._gang.attempt, self._name_of(rank), text))

    def _note_ended(self, ended: Dict[int, int]) -> None:
        """Hand the exit statuses of reaped children to their ranks. The status of a rank that is not up yet is kept for
        later."""
        self._fence_file.note_ended(ended)
        self._ended.update(ended)
        gang, none_comes = self._gang, self._gang is None or self._gang.starting.is_over
        for rank in gang.ranks if gang is not None else ():
            if rank.pid in self._ended:
                rank.note_exit(self._ended.pop(rank.pid), self._is_ending, self._requests.numbers)
            if gang is not None and rank.has_ended and rank.rank not in self._logged_ranks and not self._is_ending:
                self._logged_ranks |= {rank.rank}
                self._log("attempt %d: %s %s" % (gang.attempt, self._name_of(rank), _end_of(rank.view())))
        if none_comes:
            self._ended.clear()

    def _name_of(self, rank: Rank) -> str:
        """The name of a rank for people; that of the program where it starts the ranks, which have other numbers."""
        is_starter = self._host.starter and self._gang is not None and self._gang.count == 1
        return "%s on node %d" % (self._host.starter, rank.rank) if is_starter else "rank %d" % rank.rank

    def _take_scan(self, result: Optional[ScanResult]) -> None:
        if result is None:
            return
        if result.error and result.error != self._scan_error:
            self._log("checkpoints: %s" % result.error)
        self._scan_error, self._scan_error_kind = result.error, result.error_kind
        if result.error and not result.attempt:
            return
        self._checkpoints = result.checkpoints
        if self._gang is not None:
            self._checkpoints = self._saves.with_costs(result.checkpoints, self._now(), _step_seconds(self._gang))
        self._elsewhere, self._elsewhere_error = result.elsewhere, result.elsewhere_error
        self._elsewhere_error_kind = result.elsewhere_error_kind
        if result.done or result.attempt:
            self._scan_trap = result.trap
        if result.done:
            self._scan_warning, self._free_bytes = result.warning, result.free_bytes
            self._listed_at = self._now()
        if result.stamps is not None:
            self._stamps = result.stamps
        if result.attempt and (result.attempt, self._listing) > self._scanned_for:
            self._scanned_for, self._scanned_at = (result.attempt, self._listing), self._now()

    # Converging

    def _converge(self, now: float) -> None:
        if self._dump is not None:
            if not self._dump.poll(now):
                return
            self._finish_dump(self._dump)
        if self._reclaim is not None:
            if not self._is_reclaimed(self._reclaim):
                return
            self._finish_reclaim()
        directive = self._reporter.directive()
        if directive is not None:
            self._peers.note_attempt(directive.attempt)
            self._scanner.follow(directive)
        why = self._why_to_fence(now)
        if why:
            self._fencing = True
            self._begin_reclaim(why)
        elif directive is not None and not (self._gang is not None and self._gang.ejected):
            self._follow(directive, now)

    def _follow(self, directive: Directive, now: float) -> None:
        gang = self._gang
        move = next_move(directive, gang.attempt if gang is not None else None, (self._idle_attempt, self._listing))
        if move is Move.END and gang is not None and directive.stacks_of_attempt == gang.attempt != self._stacks[0]:
            gang.starting.stop()
            self._log("attempt %d: no step for too long: its processes print their stacks" % gang.attempt)
            self._dump, self._stacks = self._host.dump_stacks(gang.ranks), (gang.attempt, ())
            self._host.wake()
        elif move is Move.END:
            self._begin_reclaim(directive.reason or "attempt %d is next" % directive.attempt)
        elif move is Move.GO_ON and gang is not None:
            gang.served_fence_seconds = max(gang.served_fence_seconds, directive.fence_seconds)
            self._peers.set_neighbours(directive.peers, directive.neighbours, now)
            self._requests.follow(directive)
            self._requests.signal_once(now, lambda: self._host.ask_by_signal(gang.ranks))
            if directive.ejected:
                gang.ejected = True
                if not gang.fenced:
                    self._log("attempt %d: ejected: its ranks train on without Muster until they end" % gang.attempt)
        elif move is Move.LIST:
            self._idle_attempt, self._listing = wanted_listing(directive)
            self._stamps = None
            self._take_scan(self._scanner.scan_for(directive.attempt))
        elif move is Move.START:
            # Nothing may be moved under the ranks, and what they save is of no attempt before.
            is_busy = self._aside.pids or (self._local.pids and not self._local.error)
            # A launcher that was frozen in between may find its gang gone on: then the coordinator has to say it again.
            if not is_busy and now - self._due_at() < OVERDUE_SECONDS:
                self._start(directive, now)

    def _start(self, directive: Directive, now: float) -> None:
        self._scanner.ranks_start()
        self._saves.begin()
        self._requests.begin()
        self._stamps = None
        self._stacks = (self._stacks[0], ())
        self._announce(directive)
        shared_memory = self._host.shared_memory()
        self._gang = LocalGang(
            directive.attempt,
            directive.processes_per_node,
            self._host.start_ranks(directive, self._matcher.is_on),
            now,
            shared_memory,
            self._answered_at(),
            obeys_fence_file=self._fence_file.is_readable,
            served_fence_seconds=max(0.0, directive.fence_seconds),
        )
        self._logged_ranks = frozenset()
        self._logged_words = frozenset()
        self._peers.begin(directive.attempt, directive.peers, directive.neighbours, now, self._gang.told_at)
        self._host.wake()

    def _finish_dump(self, dump: StackDump) -> None:
        self._dump, self._stacks = None, (self._stacks[0], dump.reports)
        for report in dump.reports:
            place = report.frames.partition("\n")[0] or "unknown: " + report.problem
            self._log("attempt %d: rank %d stood at %s" % (self._stacks[0], report.rank, place))

    def _begin_reclaim(self, why: str) -> None:
        if self._gang is not None:
            self._gang.starting.stop()
        if self._gang is not None and any(not rank.is_reaped for rank in self._gang.ranks):
            self._log("attempt %d: ending its processes: %s" % (self._gang.attempt, why))
        self._reclaim = self._host.reclaim()
        self._begin_stop()
        self._host.wake()

    def _begin_stop(self) -> None:
        """Send SIGTERM to ranks that were asked to leave. All others are killed at once: they may be stuck."""
        if self._gang is not None and self._requests.asks_to_end and not self._fencing and self._stops_until is None:
            self._stops_until = self._now() + _STOP_SECONDS
            self._host.stop(self._gang.ranks)

    def _has_stopped(self) -> bool:
        """Whether the time for ranks to end by themselves is over, or none is left that could."""
        if self._stops_until is None or self._gang is None:
            return True
        if all(rank.is_reaped for rank in self._gang.ranks):
            return True
        # Who may be replaced elsewhere has no time left.
        return self._now() >= self._stops_until or bool(self._why_to_fence(self._now()))

    def _is_reclaimed(self, reclaim: Reclaim) -> bool:
        """Kill the ranks' processes in one round; returns whether none is left.

        Processes that come up later, because their start was under way, take rounds of their own.
        """
        if not self._has_stopped():
            return False
        none_comes = self._gang is None or self._gang.starting.is_over
        clean = reclaim.step(
            self._scanner.pids
            | self._fence_file.pids
            | self._matcher.pids
            | self._aside.pids
            | self._energy.pids
            | self._local.pids
            | self._collectives.pids
        )
        if not none_comes:
            self._reclaim = self._host.reclaim()
        return clean and none_comes

    def _finish_reclaim(self) -> None:
        self._reclaim = self._stops_until = None
        gang = self._gang
        if gang is None:
            return
        self._host.remove_shared_memory(gang.shared_memory_before)
        if self._fencing:
            self._fencing = False
            gang.fenced = True
            return
        last = lowest([rank.clock for rank in self._counted_ranks(gang)])
        views = tuple(rank.last_view() for rank in gang.ranks)
        self._previous = (gang.attempt, views, last.step if last is not None else None, gang.fenced)
        self._gang = None
        self._peers.begin(0, (), 0, self._now())

    def _detect_missing_peers(self, now: float) -> None:
        """Find out by this launcher's own pings whether a member of the gang is missing, and pass that on to the
        neighbours."""
        gang = self._gang
        if gang is None or gang.ejected:
            return
        missing = has_silent_peer(self._fence_seconds(gang), self._peers.silent_seconds(now))
        if gang.fenced or self._fencing or missing:
            self._peers.found_broken(now)

    def _poll_fence_file(self, now: float) -> None:
        gang = self._gang
        if gang is not None and gang.ejected:  # no attempt follows
            return
        attempt = None if gang is None else 0 if gang.fenced else gang.attempt
        directive = self._reporter.directive() if self._is_clean() else None
        alone = is_alone(self._answered_at(), self._due_at(), now)
        self._fence_file.follow(now, directive, attempt, self._idle_attempt, is_alone=alone)
        if gang is not None and self._fence_file.standing.attempt >= gang.attempt:
            gang.obeys_fence_file = True

    def _answered_at(self) -> float:
        """The time at which the last report was sent that the coordinator has answered; the launcher's start if there
        was none."""
        contact = self._reporter.contact()
        return contact.sent_at if contact is not None else self._started_at

    def _due_at(self) -> float:
        """When the coordinator's next answer is due; the launcher's start before the first one."""
        contact = self._reporter.contact()
        return contact.next_due_at if contact is not None else self._started_at

    def _why_to_fence(self, now: float) -> str:
        """Why the launcher has to end the ranks without a directive; "" if it need not."""
        gang = self._gang
        if gang is None or gang.fenced or gang.has_ended:
            return ""
        if gang.ejected:
            failed = any(_failed_code(rank.view()) for rank in gang.ranks if rank.has_ended)
            return "a rank has failed, and nothing restarts an ejected gang" if failed else ""
        steps = [rank.clock.finished_at for rank in gang.ranks if rank.clock.finished_at is not None]
        view = GangView(
            attempt=gang.attempt,
            started_at=gang.started_at,
            stepped_at=max([gang.told_at, *steps]),
            answered_at=self._answered_at(),
            due_at=self._due_at(),
            fence_seconds=self._known_fence_seconds(gang),
            peer_seconds=self._peers.silent_seconds(now),
            obeys_fence_file=gang.obeys_fence_file,
            newest_heard=self._peers.newest_heard,
            broken_at=self._peers.broken_at,
        )
        return why_to_fence(view, self._fence_file, now)

    def _is_clean(self) -> bool:
        return self._gang is None and self._reclaim is None

    @property
    def _is_ending(self) -> bool:
        """Whether the launcher is ending its ranks, after their stacks were printed or while they are."""
        return self._reclaim is not None or self._dump is not None

    # Telling

    def _snapshot(self) -> Snapshot:
        gang = self._gang
        fields: Dict[str, Any] = {
            "state": RECLAIMING if self._is_ending else IDLE,
            "attempt": self._idle_attempt,
            "fence_seconds": self._settings.fence_seconds,
            "previous_attempt": self._previous[0],
            "previous_ranks": self._previous[1],
            "previous_step": self._previous[2],
            "previous_fenced": self._previous[3],
            "peers": self._peers.heard(),
            "checkpoints": self._checkpoints,
            "stamps": self._stamps,
            "other_directory": self._elsewhere,
            "other_directory_error": self._elsewhere_error,
            "other_directory_error_kind": self._elsewhere_error_kind,
            # The go waits for it, and with the go it is fixed what the gang obeys.
            "checkpoints_scanned_for_attempt": self._scanned_for[0] if self._fence_file.has_looked else 0,
            "listing_round": self._scanned_for[1],
            "scanned_at": self._scanned_at,
            "listed_at": self._listed_at,
            "checkpoint_error": self._scan_error,
            "checkpoint_error_kind": self._scan_error_kind,
            "checkpoint_warning": self._scan_warning,
            "checkpoint_trap": self._scan_trap,
            "free_bytes": self._free_bytes,
            "turned_at": self._now(),
            "reads_fence_file": self._fence_file.is_readable,
            "fence_file_attempt": self._fence_file.standing.attempt,
            "fence_file_at": self._fence_file.claimed_at,
            "fence_file_id": self._fence_file.standing.identity,
            "fence_file_error": self._fence_file.standing.error,
            "moved_attempt": self._aside.attempt,
            "moved": self._aside.words,
            "moved_error": self._aside.error,
            "local": self._local.found,
            "local_attempt": self._local.scanned_for[0],
            "local_listing_round": self._local.scanned_for[1],
            "local_error": self._local.error,
            "stacks_attempt": self._stacks[0] if self._dump is None else 0,
            "stacks": self._stacks[1],
            "ejected": gang is not None and gang.ejected and not gang.fenced,
        }
        return Snapshot(**fields) if gang is None else Snapshot(**dict(fields, **self._of_gang(gang)))

    def _of_gang(self, gang: LocalGang) -> Dict[str, Any]:
        """The fields of the snapshot that are known only while there are ranks."""
        views = tuple(rank.view() for rank in gang.ranks)
        uncounted = self._why_uncounted(gang)
        clocks = [rank.clock for rank in gang.ranks]
        last = lowest([rank.clock for rank in self._counted_ranks(gang)])
        ended = not self._is_ending and gang.has_ended and gang.last_scan is not None
        running = EXITED if ended else RECLAIMING if gang.fenced else RUNNING
        step_at = last.finished_at if last is not None and not uncounted else None
        return {
            "state": RECLAIMING if self._is_ending else running,
            "attempt": gang.attempt,
            "lists_after_end": self._lists_last(gang),
            "ranks": views,
            "is_starting": not gang.starting.is_over,
            "started_at": gang.started_at,
            "first_step": min((clock.first_step for clock in clocks if clock.first_step is not None), default=None),
            "first_step_at": max(
                (clock.first_step_at for clock in clocks if clock.first_step_at is not None), default=None
            ),
            **_other_seconds(gang),
            "measured_stall_seconds": self._saves.stall_seconds,
            "measured_saves": self._saves.count,
            "collectives": self._collectives.version if self._collectives.attempt == gang.attempt else "",
            "energy_joules": self._energy.joules,
            "energy_gpu_milliseconds": self._energy.gpu_milliseconds,
            **_undone_work(last),
            "step": last.step if last is not None else None,
            # A hang needs steps that are counted.
            "step_at": step_at,
            "standstill_seconds": self._stood_still_since(gang.started_at if step_at is None else step_at),
            "progress_error": uncounted,
            "progress_preset": next((rank.preset for rank in gang.ranks if rank.preset), ""),
            "printed_loss": next((rank.printed.loss for rank in gang.ranks if rank.printed.loss), ""),
            "printed_tokens": _highest([rank.printed.figures.get(TOKENS) for rank in gang.ranks]),
            "printed_step_seconds": _highest([rank.printed.figures.get(STEP_SECONDS) for rank in gang.ranks]),
            "printed_tflops": _highest([rank.printed.figures.get(TFLOPS) for rank in gang.ranks]),
            "printed_mfu": _highest([rank.printed.figures.get(MFU) for rank in gang.ranks]),
            "likely_preset": self._matcher.looks_like,
            "likely_pattern": self._matcher.proposed[0],
            "likely_line": self._matcher.proposed[1],
            "loss_not_finite_since": min(
                (rank.printed.not_finite_since for rank in gang.ranks if rank.printed.not_finite_since is not None),
                default=None,
            ),
            "heard_at": max((rank.heard_at for rank in gang.ranks), default=gang.started_at),
            "step_seconds": _step_seconds(gang),
            "step_p90_seconds": _highest([rank.clock.step_p90_seconds() for rank in gang.ranks]),
            "longest_wait_seconds": _highest([rank.clock.longest_wait_seconds() for rank in gang.ranks]),
            "request": self._requests.number,
            "request_answered": self._answered_request(gang),
            "fence_seconds": self._fence_seconds(gang),
            "fenced": gang.fenced or self._fencing,
        }

    def _stood_still_since(self, moment: float) -> float:
        return sum(seconds for ended_at, seconds in self._standstills if ended_at > moment)

    def _counted_ranks(self, gang: LocalGang) -> Tuple[Rank, ...]:
        """The ranks whose steps count. Once output is no longer searched, they are those that write to their progress
        file."""
        writing = tuple(rank for rank in gang.ranks if rank.has_progress_file) if self._matcher.error else ()
        return writing or gang.ranks

    def _why_uncounted(self, gang: LocalGang) -> str:
        """Why finished steps are not known any more; "" while they are."""
        if any(rank.has_progress_file for rank in gang.ranks):
            return ""
        return self._matcher.error or next((rank.printed.problem for rank in gang.ranks if rank.printed.problem), "")

    def _fence_seconds(self, gang: LocalGang) -> float:
        return gang.served_fence_seconds or fence_seconds(self._settings.fence_seconds, _step_seconds(gang))

    def _known_fence_seconds(self, gang: LocalGang) -> float:
        """The length of the fence that the coordinator knows of: what it has set, else what was last reported to it."""
        contact = self._reporter.contact()
        if gang.served_fence_seconds or contact is None:
            return self._fence_seconds(gang)
        return contact.fence_seconds

    def _announce(self, directive: Directive) -> None:
        first = directive.node_rank * directive.processes_per_node
        last = first + directive.processes_per_node - 1
        world = directive.node_count * directive.processes_per_node
        which = "rank %d" % first if first == last else "ranks %d to %d" % (first, last)
        if self._host.starter and first == last:
            which = "%s on node %d" % (self._host.starter, directive.node_rank)
        start = "without a checkpoint from Muster"
        if directive.resume_path:
            start = "resuming from %s" % directive.resume_path
        self._log("attempt %d: %s of %d starting, %s" % (directive.attempt, which, world, start))

    # Ending

    def _leave(self) -> int:
        """End the ranks upon SIGTERM, send one last report, and return the exit code within a second.

        Ranks that were asked to leave first have some seconds to end by themselves.
        """
        self._scanner.stop()
        self._fence_file.stop()
        self._matcher.stop()
        self._aside.stop()
        self._energy.stop()
        self._local.stop()
        self._collectives.stop()
        was_reclaiming = self._is_ending
        self._dump = None
        if self._gang is not None:
            self._gang.starting.stop()
        self._reclaim = self._reclaim or self._host.reclaim()
        self._begin_stop()
        while not self._has_stopped():
            self._note_ended(self._host.reap())
            self._host.pause(0.01)
        began = self._now()
        clean = False
        while not clean and self._reclaim is not None and self._now() < began + _LEAVE_RECLAIM_SECONDS:
            clean = self._is_reclaimed(self._reclaim)
            self._note_ended(self._host.reap())
            if not clean:
                self._host.pause(0.002)
        if self._gang is not None and not was_reclaiming:
            self._log("attempt %d: received the signal to terminate, and ends its processes" % self._gang.attempt)
        report_seconds = min(_LEAVE_REPORT_SECONDS, began + _LEAVE_SECONDS - self._now())
        self._last_report(clean, report_seconds, _LEAVE_DRAIN_SECONDS)
        return TERMINATED

    def _exit(self, directive: Directive) -> int:
        text = ": " + directive.reason if directive.reason else ""
        self._log("exiting with code %d%s" % (directive.exit_code, text))
        self._last_report(True, _EXIT_REPORT_SECONDS, _EXIT_DRAIN_SECONDS)
        return directive.exit_code

    def _exit_with_ranks(self, gang: LocalGang) -> int:
        """Exit as the ranks of an ejected gang have ended: with the code of the first that failed by itself.

        Else it is 0, or 1 where this launcher has ended ranks, before it heard of the ejection.
        """
        codes = [_failed_code(rank.view()) for rank in gang.ranks]
        code = next((code for code in codes if code), int(gang.fenced))
        self._log("attempt %d: ejected: its ranks have ended; exiting with code %d" % (gang.attempt, code))
        self._last_report(True, _EXIT_REPORT_SECONDS, _EXIT_DRAIN_SECONDS)
        return code

    def _last_report(self, clean: bool, report_seconds: float, drain_seconds: float) -> None:
        snapshot = self._snapshot()
        ranks = tuple(rank.last_view() for rank in self._gang.ranks) if self._gang is not None else ()
        state = TERMINATING if clean else RECLAIMING
        self._reporter.send_last(dataclasses.replace(snapshot, state=state, ranks=ranks), report_seconds)
        until = self._now() + drain_seconds
        for rank in self._gang.ranks if self._gang is not None else []:
            rank.drain(until)


def _other_seconds(gang: LocalGang) -> Dict[str, Optional[float]]:
    """The seconds of steps that did not go into computing, as fields of the snapshot, by the rank that reports most of
    them."""
    rank_seconds = max(
        (rank.other_seconds for rank in gang.ranks), key=lambda seconds: sum(seconds.values()), default={}
    )
    return {
        "input_wait_seconds": rank_seconds.get(INPUT_WAIT),
        "communication_seconds": rank_seconds.get(COMMUNICATION),
        "checkpoint_stall_seconds": rank_seconds.get(CHECKPOINT_STALL),
    }


def _undone_work(clock: Optional[StepClock]) -> Dict[str, Any]:
    """The work that the rank furthest behind has undone by itself, and the steps between its lines, as fields of the
    snapshot."""
    if clock is None:
        return {}
    return {
        "lost_steps": clock.lost_steps,
        "lost_seconds": clock.lost_seconds,
        "lowest_restarted_step": clock.back_to,
        "step_stride": clock.stride(),
    }


def _step_seconds(gang: LocalGang) -> Optional[float]:
    return _highest([rank.clock.step_seconds() for rank in gang.ranks])


def _highest(values: List[Optional[float]]) -> Optional[float]:
    return max((seconds for seconds in values if seconds is not None), default=None)


def _failed_code(view: RankSnapshot) -> int:
    """The exit code for a rank that failed by itself, as a shell gives it; 0: it did not."""
    if view.ended_by_launcher:
        return 0
    return view.exit_code or (128 + view.signal if view.signal else 0)


def _end_of(view: RankSnapshot) -> str:
    ended = _ending(view.exit_code, view.signal)
    if view.memory_limit_bytes is not None:
        ended += " after the container reached its memory limit of %d bytes" % view.memory_limit_bytes
    if view.failed_exit_code is None and view.failed_signal is None:
        return ended
    which = "a process of its own" if view.failed_local_rank is None else "local rank %d" % view.failed_local_rank
    if view.failed_rank is not None:
        which = "rank %d" % view.failed_rank
    return "%s: %s %s" % (ended, which, _ending(view.failed_exit_code, view.failed_signal))


def _ending(exit_code: Optional[int], by_signal: Optional[int]) -> str:
    if by_signal is None:
        return "ended with exit code %s" % exit_code
    try:
        return "was ended by %s" % signal.Signals(by_signal).name
    except ValueError:
        return "was ended by signal %d" % by_signal

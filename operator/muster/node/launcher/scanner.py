"""Scans the checkpoint directory in a child process: a stalled filesystem then stalls only the child.

The child lives on between scans, because it remembers what it judged; what it judged is kept here, too, and handed to
the next child when one dies. It answers in parts (`scan_child.py`), and gives signs of life while it reads: only one
that gives none for the length of the deadline is killed. A process in the D state cannot be, and then no second one is
sent after it.

Many workers share one file system. While ranks run only a few of a gang scan, and a scan that looked at many files is
followed by a longer pause. An object store is asked more seldom still, by a child that sees the packages of the image;
after each scan of it that failed the pause is longer, and what was told last stays. The same holds while the directory
that a person asks to go on from is in a store, wherever the job's own is.
"""

from __future__ import annotations

import dataclasses
import json
import time
from typing import Any, Callable, Dict, FrozenSet, Optional, Tuple

from muster.node.launcher.children import Child, converse, converse_in_image
from muster.protocol.checkpoint_names import is_url
from muster.protocol.checkpoints import ERROR_KINDS, UNVERIFIED, UNVERIFIED_FOR_NOW
from muster.protocol.messages import (
    LONGEST_SECONDS,
    MAX_NANOSECONDS,
    MAX_NUMBER,
    MAX_PATH_CHARS,
    MAX_PROBLEM_CHARS,
    CheckpointReport,
    Directive,
)

_MAX_LINE_BYTES = 256 * 1024
_MAX_VERDICTS = 64
_MAX_HANDED_ON_BYTES = 32 * 1024  # a pipe that is not read yet takes twice that
LOOKS_PER_SECOND = 30.0  # at files and directories, by each worker that scans while ranks run
_LONGEST_PAUSE_SECONDS = 30.0
_TOLD_FAILURES = 3  # of a store while ranks run: one that answers now and then is well
# A store is asked by few and seldom: it charges for each request, and one that is throttling is not helped by more of
# them.
_STORE_PERIOD_SECONDS = 10.0
_STORE_DEADLINE_SECONDS = 60.0  # the packages of the image are imported, and try again themselves
_STORE_LONGEST_PAUSE_SECONDS = 60.0
_STORE_REST = 10.0  # while ranks run, for each second of a scan
_LOOKER_PERIODS = 4  # between two looks of a worker that judges nothing, while it waits for its start


@dataclasses.dataclass(frozen=True)
class ScanResult:
    """The outcome of a scan, or what is known of it so far.

    Attributes:
        attempt: the attempt before whose start the scan began, while no rank ran. 0 = ranks may have run, or the newest
        complete checkpoint is not known yet.
        error: why nothing, or not all, could be seen. If `attempt` is set, the rest counts nevertheless.
        error_kind: the error's kind, of `muster.protocol.checkpoints.ERROR_KINDS`; "" = none of them.
        done: whether no checkpoint is left to verify.
        stamps: of all checkpoints that are there (muster.protocol.checkpoints); None where they were not asked for.
        warning: why the checkpoints may not be what people think (muster.node.checkpoint.find.Found).
        trap: why a framework that follows its own pointer would not resume, or from an incomplete checkpoint
            (likewise).
        elsewhere: the requested checkpoint in another directory, and the newest there.
        elsewhere_error: why that directory cannot be seen.
        elsewhere_error_kind: the kind of that error, like `error_kind`.
        free_bytes: what may still be written into the directory; None = not known, or not yet.
    """

    attempt: int
    checkpoints: Tuple[CheckpointReport, ...]
    error: str = ""
    done: bool = True
    stamps: Optional[str] = None
    warning: str = ""
    elsewhere: Tuple[CheckpointReport, ...] = ()
    elsewhere_error: str = ""
    elsewhere_error_kind: str = ""
    free_bytes: Optional[int] = None
    trap: str = ""
    error_kind: str = ""


class Scanner:
    """Asks the child for a scan when it is time, and never waits for it. Used from the supervisor's thread only. A
    child of `converse_in_image` sees the packages of the image. `clock` is the wall clock, for people.

    Attributes:
        scans: the number of scans that were begun.
        looks: the number of files and directories that finished scans looked at.
        scanned_at: when the first scan for the attempt of `scan_for` had found the newest checkpoint.
    """

    def __init__(
        self,
        directory: str,
        period_seconds: float,
        deadline_seconds: float,
        converse: Callable[..., Child] = converse,
        converse_in_image: Callable[..., Child] = converse_in_image,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.scans = 0
        self.looks = 0
        self.scanned_at: Optional[float] = None
        self._directory = directory
        self._converse = converse
        self._converse_in_image = converse_in_image
        self._period_seconds = period_seconds
        self._deadline_seconds = deadline_seconds
        self._is_store = is_url(directory)
        self._clock = clock
        self._failures = 0  # one after the other
        self._listed_at: Optional[float] = None  # by the wall clock
        self._child: Optional[Child] = None
        self._sees_packages = False  # the child
        self._dying = False  # the child was killed and is not reaped yet
        self._answer = b""
        self._verdicts: Dict[str, Dict[str, Any]] = {}  # by path, the newest last
        self._heard_at: Optional[float] = None  # a scan is under way; when the child last said something
        self._asked_for = 0
        self._asked_at = 0.0
        self._looks_before = 0  # this scan's own that are counted already
        self._next_at = 0.0
        self._idle_attempt = 0  # no rank is alive, ready for this attempt; 0 = ranks may be alive
        self._wanted = False  # scan as soon as possible, and thoroughly
        self._stamped = False  # of all that are there it has been told, for the attempt of `scan_for`
        self._judges = True
        self._branch: Optional[Tuple[int, str, bool]] = None
        self._requested = ""
        self._requested_directory = ""

    @property
    def pids(self) -> FrozenSet[int]:
        """The pid of the child process, which belongs to no rank; empty while there is none."""
        return frozenset([self._child.pid]) if self._child is not None else frozenset()

    @property
    def descriptor(self) -> Optional[int]:
        """The file descriptor to wait on for the child's answer; None while there is none to wait for."""
        return self._child.descriptor if self._child is not None and self._heard_at is not None else None

    def follow(self, directive: Directive) -> None:
        """Take over a directive: whether this worker verifies, which branch counts, which checkpoint is requested.

        If any of them has changed, the next scan begins at once.
        """
        step, branch = directive.branch_step, None
        if step is not None:
            branch = (step, directive.excluded_checkpoints or "", bool(directive.branch_frozen))
        looked_for = branch, directive.requested_resume or "", directive.requested_directory or ""
        if looked_for != (self._branch, self._requested, self._requested_directory) or (
            directive.verifies and not self._judges
        ):
            self._wanted = self._idle_attempt != 0
        (self._branch, self._requested, self._requested_directory), self._judges = looked_for, directive.verifies
        if self._asks_store and self._child is not None and not self._sees_packages and not self._dying:
            self._heard_at = None  # whatever it is doing: another one does it
            self._kill()

    def scan_for(self, attempt: int) -> Optional[ScanResult]:
        """Have the scans from now on count for an attempt, because no rank is alive.

        Returns an empty result at once where there is no directory, else None.
        """
        if not self._directory:
            return ScanResult(attempt, ())
        self._asked_for = 0  # one under way counts no more, whichever it was for
        self._idle_attempt, self._wanted, self.scanned_at, self._stamped = attempt, True, None, False
        return None

    def scan_last(self) -> int:
        """Begin one more thorough scan, because the ranks have ended well.

        Returns the scan's number; 0 where this worker scans nothing.
        """
        if not self._directory or not self._judges:
            return 0
        self._wanted = True
        return self.scans + 1

    def is_over(self, scan: int) -> bool:
        """Whether the scan of this number is done, or has failed."""
        return self.scans > scan or (self.scans == scan and self._heard_at is None) or not scan

    def ranks_start(self) -> None:
        """Note that ranks are about to run: a scan that begins later counts for no attempt."""
        self._idle_attempt = 0

    def next_at(self) -> Optional[float]:
        """The time at which `poll` next has something to do; None = no such time."""
        if not self._directory:
            return None
        if self._wanted and not self._dying:
            return 0.0
        if self._heard_at is not None:
            return self._heard_at + self.deadline_seconds
        return None if self._dying or not self._scans_again else self._next_at

    def poll(self, now: float, ended: Dict[int, int]) -> Optional[ScanResult]:
        """Begin a scan, read its answer, or give it up. Returns its newest result; None if there is nothing new."""
        if not self._directory:
            return None
        result = self._read_results(now)
        if self._child is not None and self._child.pid in ended:
            if self._heard_at is not None and not self._dying:
                result = self._failed(now, "the process that scans %s ended unexpectedly" % self._directory)
            self._forget()
        if self._heard_at is not None and now >= self._heard_at + self.deadline_seconds:
            self._kill()
            behind = "does the store answer?" if self._asks_store else "is the filesystem stalled?"
            where = " or ".join(filter(None, (self._directory, self._requested_directory)))
            result = self._failed(now, "no answer from %s within %g s: %s" % (where, self.deadline_seconds, behind))
        if not self._dying and (
            self._wanted or (self._heard_at is None and self._scans_again and now >= self._next_at)
        ):
            result = self._ask(now) or result
        return result

    @property
    def period_seconds(self) -> float:
        """The shortest time between two scans."""
        return max(self._period_seconds, _STORE_PERIOD_SECONDS) if self._asks_store else self._period_seconds

    @property
    def deadline_seconds(self) -> float:
        """The time without a sign of life after which a child is killed."""
        return max(self._deadline_seconds, _STORE_DEADLINE_SECONDS) if self._asks_store else self._deadline_seconds

    def stop(self) -> None:
        """End the child without waiting for it, because the launcher exits."""
        self._kill()

    @property
    def _scans_again(self) -> bool:
        """Whether the next scan follows without being requested."""
        return self._judges or self._idle_attempt != 0

    @property
    def _asks_store(self) -> bool:
        """Whether an object store is scanned: the job's own directory, or the requested one."""
        return self._is_store or is_url(self._requested_directory)

    def _ask(self, now: float) -> Optional[ScanResult]:
        self.scans += 1
        self._asked_for, self._looks_before = self._idle_attempt, 0
        thorough = self._wanted or (self._idle_attempt != 0 and self.scanned_at is None)
        request = {
            "scan": self.scans,
            "thorough": thorough,
            "judges": self._judges,
            "stamps": self._judges and self._idle_attempt != 0 and (thorough or not self._stamped),
            "branch": self._branch,
            "requested": self._requested,
            "requestedDirectory": self._requested_directory,
        }
        self._heard_at, self._wanted = now, False
        self._asked_at = now
        message = _line(request)
        try:
            if self._child is None:
                self._child = self._spawn()
                message = self._handed_on() + message
            self._child.write(message)
        except OSError as error:
            return self._failed(now, "cannot scan %s: %s" % (self._directory, error))
        return None

    def _handed_on(self) -> bytes:
        """The verdicts of earlier children for the next one, as a line; the oldest are left out where they are too
        long."""
        verdicts = list(self._verdicts.values())
        while len(_line({"verdicts": verdicts})) > _MAX_HANDED_ON_BYTES:
            del verdicts[0]
        return _line({"verdicts": verdicts})

    def _spawn(self) -> Child:
        self._sees_packages = self._asks_store
        begin = self._converse_in_image if self._sees_packages else self._converse
        child = begin("--scan-on-request", self._directory)
        self._answer = b""
        return child

    def _read_results(self, now: float) -> Optional[ScanResult]:
        """Read what the child has printed; the newest result, or None if there is nothing new."""
        if self._child is None or self._heard_at is None or self._dying:
            return None
        try:
            data = self._child.read(_MAX_LINE_BYTES)
        except BlockingIOError:
            return None
        if data:
            self._heard_at = now
        lines = (self._answer + data).split(b"\n")
        self._answer = lines.pop()
        result = None
        try:
            for line in lines:
                result = self._heard(json.loads(line), now) or result
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self._kill()
            return self._failed(now, "the scan of %s answered nonsense: %s" % (self._directory, error))
        if len(self._answer) > _MAX_LINE_BYTES:
            self._kill()
            return self._failed(now, "the scan of %s answered too much" % self._directory)
        return result

    def _heard(self, message: Dict[str, Any], now: float) -> Optional[ScanResult]:
        verdict = message.get("verdict")
        if verdict is not None and len(verdict["path"]) <= MAX_PATH_CHARS:
            self._verdicts.pop(verdict["path"], None)
            self._verdicts[verdict["path"]] = verdict
            while len(self._verdicts) > _MAX_VERDICTS:
                del self._verdicts[next(iter(self._verdicts))]
        if message.get("scan") != self.scans or self._heard_at is None:
            return None
        self.looks += message["looks"] - self._looks_before
        self._looks_before = message["looks"]
        if message["error"]:
            return self._failed(now, str(message["error"]), str(message.get("errorKind", "")))
        if message["done"]:
            unseen = message.get("elsewhereErrorKind", "") in ERROR_KINDS
            self._failures, self._listed_at = self._failures + 1 if unseen else 0, self._clock()
            self._over(now)
        items = list(message["checkpoints"])
        if self._idle_attempt == 0:
            items = [item for item in items if item["judged"]]
        else:  # what is not judged yet, or incomplete, matters to a start, where some worker may not see it
            items += [dict(item, incomplete=True) for item in message.get("incomplete", ())]
        checkpoints = tuple(_report(item) for item in items if len(item["path"]) <= MAX_PATH_CHARS)
        counts = message["settled"] or not self._judges
        attempt = self._asked_for if counts and self._asked_for == self._idle_attempt else 0
        if attempt and self.scanned_at is None:
            self.scanned_at = now
        stamps = message.get("stamps") if self._asked_for and self._asked_for == self._idle_attempt else None
        self._stamped = self._stamped or stamps is not None
        return ScanResult(
            attempt=attempt,
            checkpoints=checkpoints,
            error=str(message["note"]),
            done=bool(message["done"]),
            stamps=stamps,
            warning=str(message.get("warning", "")),
            elsewhere=tuple(
                _report(item) for item in message.get("elsewhere", ()) if len(item["path"]) <= MAX_PATH_CHARS
            ),
            elsewhere_error=str(message.get("elsewhereError", "")),
            elsewhere_error_kind=str(message.get("elsewhereErrorKind", "")),
            free_bytes=message.get("freeBytes"),
            trap=str(message.get("trap", "")),
        )

    def _failed(self, now: float, error: str, kind: str = "") -> Optional[ScanResult]:
        self._failures += 1
        self._over(now)
        if not self._is_store:
            return ScanResult(0, (), error)
        if kind not in ERROR_KINDS:
            error, kind = ERROR_KINDS[UNVERIFIED_FOR_NOW] % error, UNVERIFIED_FOR_NOW
        if self._idle_attempt == 0 and self._failures < _TOLD_FAILURES and kind != UNVERIFIED:
            return None
        if self._listed_at is not None:
            error += time.strftime(" (listed last at %Y-%m-%d %H:%M:%S UTC)", time.gmtime(self._listed_at))
        return ScanResult(0, (), error, error_kind=kind)

    def _over(self, now: float) -> None:
        self._heard_at = None
        pause = self.period_seconds * (1 if self._judges else _LOOKER_PERIODS)
        if self._idle_attempt == 0:
            pause = max(pause, min(self._looks_before / LOOKS_PER_SECOND, _LONGEST_PAUSE_SECONDS))
            if self._is_store:  # which lists by the thousand: that takes a processor, for as long as it lasts
                pause = max(pause, min(_STORE_REST * (now - self._asked_at), _STORE_LONGEST_PAUSE_SECONDS))
        if self._asks_store and self._failures:
            longer = self.period_seconds * 2.0 ** min(self._failures, 30)
            pause = max(pause, min(longer, _STORE_LONGEST_PAUSE_SECONDS))
        self._next_at = now + pause

    def _kill(self) -> None:
        if self._child is not None and not self._dying:
            self._child.kill()
            self._dying = True

    def _forget(self) -> None:
        if self._child is not None:
            self._child.hang_up()
        self._child = None
        self._dying = False


def _line(message: Dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _report(item: Dict[str, Any]) -> CheckpointReport:
    return CheckpointReport(
        step=int(item["step"]),
        path=str(item["path"]),
        written_ns=min(max(int(item["writtenNs"]), 0), MAX_NANOSECONDS),  # a file may have any time
        verified=bool(item["judged"]),
        incomplete=bool(item.get("incomplete")),
        problem=str(item.get("problem", ""))[:MAX_PROBLEM_CHARS],
        format=str(item.get("format", "")),
        size_bytes=None if item.get("sizeBytes") is None else min(int(item["sizeBytes"]), MAX_NUMBER),
        save_seconds=None if item.get("saveSeconds") is None else min(float(item["saveSeconds"]), LONGEST_SECONDS),
    )

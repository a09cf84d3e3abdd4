"""Looks into a checkpoint directory: reads as little as possible, remembers its verdicts, and answers in parts.

A large checkpoint has a thousand files, and a metadata file of a hundred megabytes. To see which checkpoints there are
takes three or four looks at files for each. To verify that one is complete takes a look at every file, and for one
without an earlier verdict the metadata. The newest is verified first, and the answer so far is there after each.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import os
import time
from typing import Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Set, Tuple

from muster.node.checkpoint.candidate import MAX_TEXT_BYTES, Candidate, Reading, ask_rule
from muster.node.checkpoint.formats.base import NO_OPTIMIZER, WEIGHTS_ONLY, Format
from muster.node.checkpoint.formats.table import FORMATS
from muster.node.checkpoint.listing import THIS_MACHINE, Children, Files, Listing, Status, StorageError, no_sign
from muster.node.checkpoint.pointers import POINTERS, Pointer, Problem, pointer_problem
from muster.node.checkpoint.unrecognized import (
    MOST_INSIDE,
    has_trained_weights,
    highest_stray,
    holds_weights,
    is_called_so,
    is_evidence,
    is_stray,
    is_stray_below,
    may_lead_to_checkpoints,
    misleading,
)
from muster.node.checkpoint.verdict import Verdict, digest, saving_ns, stamp
from muster.node.checkpoint.whole import UNLIKE_OTHERS
from muster.protocol.checkpoint_names import absolute, joined, order_candidates, put_away, readable, step_in_name
from muster.protocol.checkpoints import MAX_LISTED, MAX_STAMPS, BranchFilter, FoundCheckpoint, Stamp, newest_first
from muster.protocol.messages import MAX_NUMBER, is_plain

MAX_EXAMINED = 64
MAX_PASSED_IN_STORE = 512  # directories that prove to be no checkpoint: each costs a request
MAX_WITHOUT_STEP = 16
MAX_REQUESTED = 64  # directories that may be what a person asked for
MAX_UNORDERED = 32  # of which only what is in them tells the step, before those whose names tell it
MAX_SIBLINGS = 8  # files to which one is compared that does not begin as its name says
MAX_STEPPED = 4096  # looked into for stamps: most may hold no checkpoint
_MAX_REMEMBERED = 4 * MAX_EXAMINED
SETTLE_SECONDS = 5.0  # what has no atomic marker stays the same for so long before it counts
_PAUSE_SECONDS = 0.25  # between two signs of life while nothing is left to do but to wait for that
_STILL_WRITTEN = "it may still be written: no marker shows when it is complete, and its files have not been seen twice"
_LESS = "files that were in it are gone: it is being removed, or was until something stopped that"
GRACE_SECONDS = 60.0  # while a save is under way, something newer is not complete, and a pointer not written yet
TOO_MANY_FILES = "too many files"
_STRANGE = (
    "%s is a link to another file system and is not followed: whether all workers see the same there is not known. "
    "Let the checkpoints lie in %s itself, or name their directory in spec.checkpoint.directory"
)
_DEEPER = (
    "no checkpoint lies in %s itself, and %s (%s) is deeper, where none is looked for: name its directory in "
    "spec.checkpoint.directory. Where each rank saves to a directory of its own, nothing shows whether all have saved: "
    "let all save to one"
)
_DEEPER_UNRECOGNIZED = (
    "no checkpoint lies in %s itself. %s is deeper, where none is looked for, and is of no format that Muster knows, "
    "or was not finished: name its directory in spec.checkpoint.directory, and in spec.checkpoint.pattern what the "
    "program writes"
)
_UNRECOGNIZED = (
    "%s is of no format that Muster knows, or was not finished: it does not count%s. If the program has finished it, "
    "name in spec.checkpoint.pattern what it writes (state-{step}.pt, run_{step}/DONE), or let it write "
    "muster-checkpoint.json last"
)
_STEPLESS_UNRECOGNIZED = (
    "%s is of no format that Muster knows, and its name has no step: it does not count. If it is a checkpoint, let the "
    "program put the step into its name, and name it in spec.checkpoint.pattern (state-{step}.pt, run_{step}/DONE), or "
    "let it write muster-checkpoint.json last"
)
_PUT_AWAY = (
    "%s (%s)%s does not count: its name says that it is not finished or was put away. To go on from it, rename it as "
    "the program names its checkpoints. If the program writes such names, say so in spec.checkpoint.pattern"
)
_UNRECOGNIZED_SECONDS = 600.0  # as long as NoCheckpointSeen takes
_STEPLESS = (
    "%s is a checkpoint (%s), and nothing shows its step: it does not count. Save to a directory with the step in "
    "its name, or let the program write muster-checkpoint.json last"
)
_MAX_PUT_AWAY = 8  # that are looked into for the message about them
_MAX_UNRECOGNIZED = 8  # directories of which none is known
_DEEPER_AGAIN_SECONDS = 600.0  # they may be large
_DEEPER_LEVELS = 3  # of directories: programs save to PROJECT/RUN/, Lightning to lightning_logs/version_0/checkpoints/
_MAX_DEEPER, _MAX_DEEPER_IN_STORE = 64, 24  # directories that are listed for it
_MAX_PROBLEM_CHARS = 1000
_ABOUT_UNRECOGNIZED = "what is of no format"
_UNREADABLE = "a file cannot be read now: "
_NAMES_SHARE = (
    0.1  # of the time goes into reading the names in a directory, at most: beside checkpoints a million files may lie
)
_LOOK_AGAIN_SECONDS = (2.0, 30.0)  # at what is not complete though nothing seems to change: from, to


@dataclasses.dataclass(frozen=True)
class ScanOptions:
    """The options of one look into a checkpoint directory.

    Attributes:
        thorough: whether to look at every file, whatever was known before; else only where something seems to have
        changed.
        judges: whether to verify checkpoints; False = only list which there are.
        branch: leave out what belongs to another branch; None = nothing.
        limit: the largest number of checkpoints in the answer, the newest.
        requested: a requested step or path; its checkpoints come in addition.
        stamps: whether to report the stamps of all checkpoints that are there, those of other branches included.
    """

    thorough: bool = True
    judges: bool = True
    branch: Optional[BranchFilter] = None
    limit: int = MAX_LISTED
    stamps: bool = False
    requested: str = ""

    def is_requested(self, checkpoint: FoundCheckpoint) -> bool:
        """Whether a checkpoint is the requested one."""
        return bool(self.requested) and self.requested in (str(checkpoint.step), checkpoint.path)

    def may_be_requested(self, path: str) -> bool:
        """Whether a path may be the requested checkpoint, by its name alone."""
        return bool(self.requested) and self.requested in (str(step_in_name(os.path.basename(path))), path)


@dataclasses.dataclass(frozen=True)
class Found:
    """The checkpoints that a look has found so far.

    Attributes:
        checkpoints: newest step first, and after them older ones that were requested.
        incomplete: the newest of those that are incomplete; without their marker only in a thorough look.
        done: whether nothing is left to verify.
        note: what could not be seen, though the directory is not known to be unreadable; "" = nothing.
        stamps: of all that have their marker, MAX_STAMPS at most; None = not known (yet).
        warning: why what is there may not be what people expect: newer ones stay incomplete, or a pointer leads
            elsewhere.
        trap: why a framework that follows its pointer would not resume at all, or from an incomplete checkpoint; known
        once `is_settled`.
    """

    checkpoints: Tuple[FoundCheckpoint, ...]
    done: bool
    note: str = ""
    incomplete: Tuple[FoundCheckpoint, ...] = ()
    stamps: Optional[Tuple[Stamp, ...]] = None
    warning: str = ""
    trap: str = ""

    @property
    def is_settled(self) -> bool:
        """Whether the newest complete checkpoint is known: what may still come is older."""
        return self.done or (bool(self.checkpoints) and self.checkpoints[0].judged)


@dataclasses.dataclass(frozen=True)
class _MarkedCandidate:
    """A candidate whose marker was found, before its other files were looked at.

    Attributes:
        directory: where its files are: the checkpoint itself, unless that is a single file.
    """

    checkpoint: FoundCheckpoint
    format: Format
    directory: str
    marker: str
    marker_stamp: str
    directory_stamp: str


@dataclasses.dataclass
class _Search:
    """The state of one look into a checkpoint directory.

    Attributes:
        candidates: the paths that are left, each with whether it counts among the newest.
        found: candidates that may be complete, by path.
        counted: those of `found` that count among the newest.
        complete: those of `found` that were verified, by path.
        incomplete: incomplete checkpoints.
        examined: the number of candidates with a step that may be of this branch.
        passed: the number of names with a step that are no checkpoints.
        stamps: of all candidates that have their marker.
        unrecognized: directories with a step that no format knows, the highest first.
        blind: whether something could not be seen.
        settling: until when the files of a path have to stay the same, by path.
    """

    candidates: Iterator[Tuple[str, bool]]
    found: Dict[str, _MarkedCandidate] = dataclasses.field(default_factory=dict)
    counted: Set[str] = dataclasses.field(default_factory=set)
    complete: Dict[str, FoundCheckpoint] = dataclasses.field(default_factory=dict)
    incomplete: List[FoundCheckpoint] = dataclasses.field(default_factory=list)
    examined: int = 0
    passed: int = 0
    stamps: List[Stamp] = dataclasses.field(default_factory=list)
    unrecognized: List[str] = dataclasses.field(default_factory=list)
    blind: bool = False
    settling: Dict[str, float] = dataclasses.field(default_factory=dict)


def _newest_checkpoints(search: _Search, how: ScanOptions) -> List[FoundCheckpoint]:
    """The newest of what may be complete, and after them older ones that were requested.

    What was converted from a checkpoint of the same step that is there, too, does not count unless it was requested.
    """
    checkpoints = [search.complete.get(path, marked.checkpoint) for path, marked in search.found.items()]
    originals = {(checkpoint.format, checkpoint.step) for checkpoint in checkpoints}
    original_of = {path: (marked.format.made_of, marked.checkpoint.step) for path, marked in search.found.items()}
    counting = [item for item in checkpoints if original_of[item.path] not in originals or item.path == how.requested]
    newest = newest_first(counting, how.limit)
    return newest + [item for item in counting if how.is_requested(item) and item not in newest][: how.limit]


class Finder:
    """Finds the newest complete checkpoints in one directory, again and again. A checkpoint without an atomic marker
    has to stay the same for `settle_seconds`: None = SETTLE_SECONDS, 0 where nothing can be writing. Formats are tried
    in their order.

    Attributes:
        looks: the number of looks at single files and directories so far.
    """

    def __init__(
        self,
        directory: str,
        sign: Callable[[], None] = no_sign,
        judged: Callable[[Verdict], None] = lambda verdict: None,
        now: Callable[[], float] = time.monotonic,
        files: Files = THIS_MACHINE,
        pause: Callable[[float], None] = time.sleep,
        settle_seconds: Optional[float] = None,
        formats: Sequence[Format] = FORMATS,
    ) -> None:
        self.looks = 0
        self._formats = formats
        self._singles = [kind for kind in formats if not kind.markers]
        self._settle_seconds = max(SETTLE_SECONDS if settle_seconds is None else settle_seconds, files.settle_seconds)
        self._directory = absolute(directory)
        self._sign = sign
        self._judged = judged
        self._now = now
        self._files = files
        self._pause = pause
        self._verdicts: Dict[str, Verdict] = {}
        self._reading = Reading(files, sign)
        self._again: Dict[str, Tuple[float, float]] = {}  # when to look at it again, and how long to wait then
        # What has to settle: the digest of its files, and since when.
        self._first_seen: Dict[str, Tuple[str, float]] = {}
        # What it was, for as long as the directory's own stamp is the same.
        self._kinds: Dict[str, _MarkedCandidate] = {}
        self._warned = ("", 0.0)  # and since when
        self._deeper_seen, self._deeper_until = "", 0.0  # what was, and until when it is not looked for again
        self._single: Set[str] = set()  # candidates that are files
        self._names = Children([], [])  # that were there
        self._names_until = 0.0  # a light look takes them as they were
        self._ordered_singles: Dict[str, List[str]] = {}  # by format, those of the highest steps first; made on demand
        self._times: Dict[str, int] = {}  # of what no name orders, since the last thorough look
        self._note = ""
        self._strays: Set[str] = set()  # single files of no format that have weights by their names
        # The one of them that is reported, as it was seen last, and whether it was written more than once.
        self._stray_seen: Tuple[str, Optional[Status]] = ("", None)
        self._is_rewritten = False
        self._put_away: List[str] = []  # paths that do not count for their names, the highest steps first
        self._stepless = ""  # the message about a checkpoint whose step is not known
        # Whether a directory of no format has files of weights, and until when that counts.
        self._with_weights: Dict[str, Tuple[bool, float]] = {}
        self._misread = ""  # what is left out because a file in it is not what it should be

    def remember(self, verdicts: Iterable[Verdict]) -> None:
        """Take over the verdicts of another process."""
        self._verdicts.update((verdict.path, verdict) for verdict in verdicts)

    def find(self, limit: int = MAX_LISTED) -> List[FoundCheckpoint]:
        """The newest complete checkpoints among the directory itself and its children, newest step first.

        Raises:
            OSError: the directory cannot be read. A missing directory is no error: it has no checkpoints.
        """
        checkpoints: Tuple[FoundCheckpoint, ...] = ()
        for answer in self.scan(ScanOptions(limit=limit)):
            checkpoints = answer.checkpoints
        return list(checkpoints)

    def scan(self, how: ScanOptions) -> Iterator[Found]:
        """Look for checkpoints, and yield the answer so far whenever one more is verified.

        Raises:
            OSError: the directory cannot be read.
        """
        self._note = self._misread = self._stepless = ""
        self._files.refresh()
        if how.thorough:
            self._kinds.clear()
            self._times.clear()
        search = _Search(self._candidates(how))
        stamps: Optional[Tuple[Stamp, ...]] = None
        while True:
            self._examine_candidates(search, how)
            newest = _newest_checkpoints(search, how)
            unverified = [checkpoint for checkpoint in newest if not checkpoint.judged] if how.judges else []
            if not unverified and how.stamps and stamps is None:
                stamps = self._stamps(search)
            answer = dataclasses.replace(self._answer_so_far(search, how, newest, not unverified), stamps=stamps)
            yield answer
            if not unverified:
                return
            if answer.is_settled and how.stamps and stamps is None:
                stamps = self._stamps(search)
            ready = [item for item in unverified if self._now() >= search.settling.get(item.path, 0.0)]
            if not ready:
                self._pause(_PAUSE_SECONDS)
                self._sign()
                continue
            self._verify_candidate(search, next(filter(how.is_requested, ready), ready[0]).path, how.thorough)

    def _answer_so_far(self, search: _Search, how: ScanOptions, newest: List[FoundCheckpoint], done: bool) -> Found:
        """The answer of a look so far, without stamps.

        What is wrong with pointers is known with the newest complete checkpoint, what is suspicious or was cut short
        only when all is verified.
        """
        incomplete = tuple(
            dataclasses.replace(checkpoint, problem=self._verdict_of(checkpoint))
            for checkpoint in newest_first(search.incomplete, how.limit)
        )
        note = self._note or (self._misread if how.thorough else "")  # else it may be under way
        answer = Found(tuple(newest), done, note, incomplete)
        if not how.judges or not answer.is_settled:
            return answer
        pointed = self._pointed_elsewhere(newest, incomplete)
        trap = pointed.words if pointed is not None and pointed.is_trap else ""
        if not done:
            return dataclasses.replace(answer, trap=trap)
        unrecognized_text = self._unrecognized(search.unrecognized, newest, incomplete)
        warning = self._suspicion(newest, incomplete, pointed, unrecognized_text, how.thorough)
        cut_short = self._begun(search.unrecognized, newest) if how.thorough else ()
        incomplete += tuple(newest_first(cut_short, max(how.limit - len(incomplete), 0)))  # judged ones first
        return dataclasses.replace(answer, warning=warning, trap=trap, incomplete=incomplete)

    def _verify_candidate(self, search: _Search, path: str, thorough: bool) -> None:
        """Verify a candidate: then it is complete, waits until its files have stayed the same, or is incomplete."""
        if self._is_complete(search.found[path]):
            search.complete[path] = _complete(search.found[path].checkpoint, self._verdicts[path])
        elif thorough and path not in search.settling and self._settles(path):
            search.settling[path] = self._first_seen[path][1] + self._settle_seconds
        else:
            search.incomplete.append(search.found.pop(path).checkpoint)

    def _settles(self, path: str) -> bool:
        verdict = self._verdicts.get(path)
        return verdict is not None and verdict.problem == _STILL_WRITTEN and path in self._first_seen

    def free_bytes(self) -> Optional[int]:
        """The bytes that may still be written into the directory; None where that cannot be known."""
        return self._files.free_bytes(self._directory)

    def _suspicion(
        self,
        complete: Sequence[FoundCheckpoint],
        incomplete: Sequence[FoundCheckpoint],
        pointed: Optional[Problem],
        unrecognized: str,
        thorough: bool,
    ) -> str:
        """The message about what has looked wrong for so long that no save under way explains it; "" = nothing.

        A start gets the message about unrecognized directories at once, because no save is under way then, and later
        listings repeat it. While ranks run, that message comes later than the others: the first save of a run may take
        long. Once there was a second save, it comes at once.

        Args:
            complete: the complete checkpoints, newest first.
            incomplete: the incomplete ones.
            pointed: what is wrong with a framework's pointer; None = nothing.
            unrecognized: the message about directories of no known format; "" = none.
            thorough: whether this look is thorough, as the one before a start is.
        """
        newest = complete[0].step if complete else -1
        newer = [checkpoint for checkpoint in incomplete if checkpoint.step > newest]
        if len(newer) == 1 and complete:  # what a save that a fault cut short has left: the next will be whole
            newer = []
        text = next(filter(None, map(self._incomplete_message, newer)), "") or (
            pointed.words if pointed is not None else ""
        )
        is_bare = not complete and not incomplete and all(step_in_name(name) is None for name in self._strays)
        deeper = self._put_away_message(newest) or (self._nested_checkpoints_message(thorough) if is_bare else "")
        about, after = text or deeper, GRACE_SECONDS
        if not about and unrecognized:  # the newest of them is another one after each save
            about, after = _ABOUT_UNRECOGNIZED, _UNRECOGNIZED_SECONDS
        if about != self._warned[0]:
            self._warned = about, self._now()
        if not text and (thorough or (unrecognized and not deeper and self._is_rewritten)):
            self._warned = about, -math.inf
        return (text or deeper or unrecognized) if self._now() >= self._warned[1] + after else ""

    def _put_away_message(self, step: int) -> str:
        """The message about checkpoints beyond a step that do not count for their names; "" = there are none."""
        seen = (self._recognize(path) for path in self._put_away[:_MAX_PUT_AWAY])
        newer = [
            candidate.checkpoint for candidate in seen if candidate is not None and candidate.checkpoint.step > step
        ]
        if not newer:
            return ""
        more = ", as %d more," % (len(newer) - 1) if len(newer) > 1 else ""
        return _PUT_AWAY % (newer[0].path, newer[0].format, more)

    def _unrecognized(
        self, paths: Sequence[str], complete: Sequence[FoundCheckpoint], incomplete: Sequence[FoundCheckpoint]
    ) -> str:
        """The message about directories of no known format with a higher step than every checkpoint; "" = there are
        none.

        A single one beside a complete checkpoint is a save that a fault cut short: the next save will be whole.
        """
        newest = max((checkpoint.step for checkpoint in (*complete, *incomplete)), default=-1)
        newer = [path for path in paths if (step_in_name(os.path.basename(path)) or 0) > newest]
        few = 1 if complete else 0
        with_weights = list(itertools.islice(filter(self._has_weights, newer), 2)) if len(newer) > few else []
        if len(with_weights) > few:
            behind = "" if not complete else ", and the newest that does is %s" % complete[0].path
            return _UNRECOGNIZED % (readable(with_weights[0]), behind)
        if complete or incomplete:
            return ""
        stray = highest_stray(self._strays)
        if not stray or (step_in_name(stray) is None and self._stepless):
            return self._stepless
        self._note_stray(os.path.join(self._directory, stray))
        path = readable(os.path.join(self._directory, stray))
        return _STEPLESS_UNRECOGNIZED % path if step_in_name(stray) is None else _UNRECOGNIZED % (path, "")

    def _begun(self, paths: Sequence[str], complete: Sequence[FoundCheckpoint]) -> Tuple[FoundCheckpoint, ...]:
        """The saves of higher steps than the newest complete checkpoint that ended before the file that makes them one:
        directories of no format that are called as it is but for the numbers.

        Args:
            paths: of the directories that no format knows.
            complete: the complete checkpoints, newest first.
        """
        kind = next((kind for kind in self._formats if complete and kind.name == complete[0].format), None)
        if kind is None or not kind.markers:
            return ()
        above, name = os.path.split(complete[0].path)
        alike = misleading([os.path.basename(path) for path in paths if os.path.dirname(path) == above], name)
        problem = "%s does not exist, as in a save that was cut short" % " or ".join(kind.markers)
        cut_short = []
        for path in filter(is_plain, (os.path.join(above, name) for name in alike)):
            status = self._stat(path)
            if status is not None and holds_weights(self._files, path, self._sign):
                step, written_ns = step_in_name(os.path.basename(path)) or 0, status.modified_ns
                cut_short.append(
                    FoundCheckpoint(step, path, written_ns, judged=False, format=kind.name, problem=problem)
                )
        return tuple(cut_short)

    def _note_stray(self, path: str) -> None:
        """Note whether files of no format were written by more than one save: then the first one is finished.

        A file that is being written grows. One that changes without growing, or is another file, is written again.
        """
        self._is_rewritten = self._is_rewritten or len({step_in_name(name) for name in self._strays} - {None}) > 1
        seen_path, seen_status = self._stray_seen
        try:
            status = None if self._is_rewritten else self._stat(path)
        except PermissionError:
            return
        if status is None:
            return
        if seen_path == path and seen_status is not None and seen_status.modified_ns != status.modified_ns:
            grows = status.size_bytes > seen_status.size_bytes and status.inode == seen_status.inode
            self._is_rewritten = self._files.is_store or not grows
        self._stray_seen = path, status

    def _has_weights(self, path: str) -> bool:
        """Whether a directory, or one in it, has files of weights. A "no" is checked again after a while."""
        cached = self._with_weights.get(path)
        if cached is not None and (cached[0] or self._now() < cached[1]):
            return cached[0]
        if len(self._with_weights) >= MAX_STEPPED:
            self._with_weights.clear()
        has = holds_weights(self._files, path, self._sign)
        self._with_weights[path] = has, self._now() + _DEEPER_AGAIN_SECONDS
        return has

    def _nested_checkpoints_message(self, thorough: bool) -> str:
        """The message about checkpoints further below the directory, where no scan looks, or of no format and without a
        step; "" = there are none.

        They are looked for now and then.
        """
        if self._now() < self._deeper_until and not thorough:
            return self._deeper_seen
        self._deeper_seen, self._deeper_until = "", self._now() + _DEEPER_AGAIN_SECONDS
        unknown = stepless = ""
        for directory, inner in self._below(may_lead_to_checkpoints(self._names.directories)):
            is_here = directory == self._directory  # what else is in it is looked at by every scan
            if not stepless and not (is_here and self._strays) and has_trained_weights(inner.files):
                stepless = directory
            if is_here:
                continue
            stepped = [name for name in order_candidates(inner.directories) if step_in_name(name) is not None]
            paths = [os.path.join(directory, name) for name in stepped[:MOST_INSIDE]]
            recognized = (
                (seen.checkpoint.path, seen.format) for seen in map(self._recognize, paths) if seen is not None
            )
            strays = list(filter(is_stray_below, inner.files))
            single = (
                (os.path.join(directory, name), kind)
                for name in strays
                for kind in self._singles
                if _is_known_alone(kind, name)
            )
            seen = next(itertools.chain(recognized, single), None)
            if seen is not None:
                self._deeper_seen = _DEEPER % (self._directory, readable(seen[0]), seen[1].name)
                return self._deeper_seen
            named = (path for path in paths if is_called_so(os.path.basename(path)))
            unknown = unknown or next(filter(self._has_weights, named), "")
            unknown = unknown or (os.path.join(directory, highest_stray(strays)) if strays else "")
        if unknown:
            self._deeper_seen = _DEEPER_UNRECOGNIZED % (self._directory, readable(unknown))
        elif stepless:
            self._deeper_seen = _STEPLESS_UNRECOGNIZED % readable(stepless)
        return self._deeper_seen

    def _below(self, names: Sequence[str]) -> Iterator[Tuple[str, Children]]:
        """The directory, and those below the named ones of it, the nearest first, with what is in each."""
        most = _MAX_DEEPER_IN_STORE if self._files.is_store else _MAX_DEEPER
        waiting = [(self._directory, _DEEPER_LEVELS), *((os.path.join(self._directory, name), 1) for name in names)]
        for path, level in waiting:
            most -= 1
            if most < 0:
                return
            try:
                inner = self._files.children(path, self._is_single_or_like_one, self._sign)
            except (FileNotFoundError, NotADirectoryError, PermissionError):
                continue
            yield path, inner
            if level < _DEEPER_LEVELS:
                below = may_lead_to_checkpoints(inner.directories)
                waiting += [(os.path.join(path, name), level + 1) for name in below]

    def _incomplete_message(self, incomplete: FoundCheckpoint) -> str:
        if not incomplete.problem:
            return ""
        return "checkpoint %d (%s) is not complete: %s" % (incomplete.step, incomplete.path, incomplete.problem)

    def _verdict_of(self, incomplete: FoundCheckpoint) -> str:
        verdict = self._verdicts.get(incomplete.path)
        return verdict.problem if verdict is not None else ""

    def _pointed_elsewhere(
        self, complete: Sequence[FoundCheckpoint], incomplete: Sequence[FoundCheckpoint]
    ) -> Optional[Problem]:
        cut_short = [
            checkpoint for checkpoint in incomplete if not checkpoint.problem.startswith((WEIGHTS_ONLY, NO_OPTIMIZER))
        ]
        known_incomplete = {checkpoint.path for checkpoint in incomplete}

        def is_whole(name: str) -> bool:
            path = os.path.join(self._directory, name)
            return path not in known_incomplete and self._stat(path) is not None

        for pointer in POINTERS:
            if any(map(pointer.is_for, complete or incomplete)):
                is_own = not self._files.leads_out(os.path.join(self._directory, pointer.name))
                problem = pointer_problem(
                    pointer, self._read_pointer(pointer), complete, is_whole, cut_short, is_own=is_own
                )
                if problem is not None:
                    return problem
        return None

    def _read_pointer(self, pointer: Pointer) -> Optional[str]:
        """The text in a framework's pointer file, or the target of its pointer link; None where there is none."""
        path = os.path.join(self._directory, pointer.name)
        self.looks += 1
        try:
            if pointer.is_link:
                return self._files.link(path)
            return self._files.part(path, 0, MAX_TEXT_BYTES, self._sign).decode("utf-8", "replace")
        except StorageError:
            raise
        except OSError:
            return None
        except ValueError:  # no regular file: nothing in it names a checkpoint
            return ""

    def _candidates(self, how: ScanOptions) -> Iterator[Tuple[str, bool]]:
        """The paths that may be a checkpoint, and whether each counts among the newest, from the newest on."""
        try:
            directories, files, strange = self._children(how)
        except FileNotFoundError:
            self._note = "%s does not exist" % self._directory
            return
        odd = next((name for name in order_candidates(strange) if step_in_name(name) is not None), None)
        if odd is not None and is_plain(odd):
            self._note = _STRANGE % (os.path.join(self._directory, odd), self._directory)
        self._single = {os.path.join(self._directory, name) for name in files}
        names = order_candidates(directories + files)
        away = set() if any(kind.is_named_by_job for kind in self._formats) else put_away(names)
        self._put_away = [os.path.join(self._directory, name) for name in names if name in away]
        names = [name for name in names if name not in away or os.path.join(self._directory, name) == how.requested]
        yield self._directory, False
        requested = [name for name in names if how.may_be_requested(os.path.join(self._directory, name))]
        requested = requested[:MAX_REQUESTED]
        others = [name for name in names if name not in requested] if requested else names
        unordered = self._by_number_and_time(
            [name for name in others if any(kind.hides_step(name) for kind in self._formats)]
        )
        hidden = set(unordered)
        nameless = [name for name in others if name not in hidden and step_in_name(name) is None]
        stepped = [name for name in others if name not in hidden and step_in_name(name) is not None]
        # They do not count among the newest: whether they are is known once they were looked into.
        for name in nameless[:MAX_WITHOUT_STEP] + unordered[:MAX_UNORDERED] + requested:
            yield os.path.join(self._directory, name), False
        for name in stepped[:MAX_STEPPED] + unordered[MAX_UNORDERED:MAX_STEPPED]:
            yield os.path.join(self._directory, name), True
        if len(stepped) > MAX_STEPPED or len(unordered) > MAX_STEPPED:
            self._note = "%s has more than %d directories" % (self._directory, MAX_STEPPED)

    def _by_number_and_time(self, names: Sequence[str]) -> List[str]:
        """The names in turn by highest number and by newest time, since neither alone shows the highest step.

        Where all of them are looked into anyway, their times are not looked up.
        """
        if len(names) <= MAX_UNORDERED:
            return list(names)
        by_time = sorted(names[: 2 * MAX_STEPPED], key=self._time, reverse=True)
        return list(dict.fromkeys(name for pair in zip(by_time, names) for name in pair))

    def _time(self, name: str) -> int:
        if name not in self._times:
            try:
                status = self._stat(os.path.join(self._directory, name))
            except PermissionError:
                status = None
            self._times[name] = status.modified_ns if status is not None else 0
        return self._times[name]

    def _is_single(self, name: str) -> bool:
        """Whether a file may be a checkpoint by itself, by its name."""
        for kind in self._singles:  # noqa: SIM110 - beside checkpoints a million files may lie, and this is the fastest
            if kind.claims(name):
                return True
        return False

    def _is_single_or_stray(self, name: str) -> bool:
        """Whether a file may be a checkpoint by itself, by its name.

        A file of weights in no known format is noted for the message about unrecognized files.
        """
        if self._is_single(name):
            return True
        if len(self._strays) < MAX_STEPPED and is_stray(name):
            self._strays.add(name)
        return False

    def _is_single_or_like_one(self, name: str) -> bool:
        return self._is_single(name) or is_stray_below(name) or is_evidence(name)

    def _children(self, how: ScanOptions) -> Children:
        """The names in the directory. A light look uses those read before for a while, the longer it takes to read
        them."""
        began = self._now()
        if how.thorough or began >= self._names_until:
            self._strays.clear()
            self._ordered_singles.clear()
            self._names = self._files.children(self._directory, self._is_single_or_stray, self._sign)
            self._names_until = self._now() + (self._now() - began) / _NAMES_SHARE
        return self._names

    def _examine_candidates(self, search: _Search, how: ScanOptions) -> None:
        """Look at candidates until there are enough, not counting those that need not be among the newest."""
        with_step = len(search.counted.intersection(search.found))
        most_passed = MAX_PASSED_IN_STORE if self._files.is_store else MAX_STEPPED
        while with_step < how.limit and search.examined < MAX_EXAMINED:
            path, counts = next(search.candidates, ("", False))
            if not path:
                return
            seen = self._note_stamp(search, path)
            if seen is not None and how.branch is not None and not how.branch.has(*seen.checkpoint.stamp):
                continue
            # What proves to be no checkpoint is passed over until there is one: samples, profiles and the like may be
            # many.
            search.passed += counts and seen is None
            search.examined += counts and (seen is not None or with_step > 0 or search.passed >= most_passed)
            if seen is None:
                if counts and len(search.unrecognized) < _MAX_UNRECOGNIZED and path not in self._single:
                    search.unrecognized.append(path)
                continue
            if not how.thorough and how.judges and self._is_known_bad(seen):
                search.incomplete.append(seen.checkpoint)
                continue
            search.found[path] = self._with_known_verdict(seen) if not how.thorough else seen
            if counts:
                search.counted.add(path)
                with_step += 1

    def _stamps(self, search: _Search) -> Optional[Tuple[Stamp, ...]]:
        """The stamps of all checkpoints that are there, those of the highest steps first; None where something could
        not be seen."""
        note = self._note
        for path, _ in search.candidates:
            self._note_stamp(search, path)
            # Those that do not count come first, whatever their step.
            if len(search.stamps) > MAX_STAMPS + MAX_WITHOUT_STEP + MAX_UNORDERED + MAX_REQUESTED + 1:
                break
        if search.blind or self._note != note:
            return None
        return tuple(sorted(search.stamps, reverse=True)[:MAX_STAMPS])

    def _note_stamp(self, search: _Search, path: str) -> Optional[_MarkedCandidate]:
        note = self._note
        seen = self._recognize(path)
        search.blind = search.blind or self._note != note  # may be there, and is not told
        if seen is not None:
            search.stamps.append(seen.checkpoint.stamp)
        return seen

    def _recognize(self, path: str) -> Optional[_MarkedCandidate]:
        """The candidate at a path, recognized by its format's marker; None without a marker or a step."""
        name = os.path.basename(path)
        try:
            itself = self._stat(path)
            if itself is None:
                return None
            for kind, marker in self._likely(path, name, stamp(itself)):
                directory = path if kind.markers else self._directory
                if self._lacks_other(kind, name):
                    continue
                status = self._stat(joined(directory, marker))
                if status is not None and not any(self._stat(joined(directory, other)) for other in kind.unless):
                    return self._of_format(kind, path, directory, marker, status, stamp(itself))
        except PermissionError as error:  # lost+found and the like have no step in their names
            if step_in_name(name) is not None:
                self._note = "%s cannot be read: %s" % (readable(path), error.strerror)
        return None

    def _lacks_other(self, kind: Format, name: str) -> bool:
        """Whether a single file is of no format for want of the file beside it: then it is noted as such."""
        other = "" if kind.markers else kind.beside(name)
        if not other or self._stat(joined(self._directory, other)) is not None:
            return False
        self._strays.add(name)
        return True

    def _likely(self, path: str, name: str, itself: str) -> Iterator[Tuple[Format, str]]:
        """The formats that a path may have, each with a marker.

        While no name in the directory has changed, the format found before comes first.
        """
        cached = self._kinds.get(path)
        if cached is not None and cached.directory_stamp == itself:
            yield cached.format, cached.marker
        for kind in self._formats:
            if (path in self._single) != bool(kind.markers) and kind.claims(name):
                yield from ((kind, marker) for marker in kind.markers or (name,))

    def _of_format(
        self, kind: Format, path: str, directory: str, marker: str, status: Status, itself: str
    ) -> Optional[_MarkedCandidate]:
        cached, marker_stamp = self._kinds.get(path), stamp(status)
        if cached is not None and (cached.directory_stamp, cached.marker, cached.marker_stamp) == (
            itself,
            marker,
            marker_stamp,
        ):
            return cached
        name, problem = os.path.basename(path), ""
        candidate = Candidate(directory, name, {marker: status.file}, self._reading)
        try:
            step = ask_rule(lambda: kind.step(candidate))
        except (FileNotFoundError, IsADirectoryError):
            step = None
        except ValueError as error:  # by its name it is one that is not complete
            step, problem = step_in_name(name), str(error)
        if step is None or not 0 <= step <= MAX_NUMBER:
            if problem:
                self._misread = "%s is left out: %s" % (readable(path), _problem_text(problem))
            elif step is None:
                self._stepless = self._stepless or _STEPLESS % (readable(path), kind.name)
            return None
        if not is_plain(path):  # no report may have it: statuses, Events and terminals show the path as it is
            self._note = "%r is left out: its name has control characters, or is no UTF-8: rename it" % path
            return None
        checkpoint = FoundCheckpoint(step, path, status.modified_ns, judged=False, format=kind.name)
        seen = _MarkedCandidate(checkpoint, kind, directory, marker, marker_stamp, itself)
        if len(self._kinds) >= MAX_STEPPED:
            self._kinds.clear()
        self._kinds[path] = seen
        return seen

    def _stat(self, path: str) -> Optional[Status]:
        self.looks += 1
        self._sign()
        return self._files.status(path)

    def _quick_stamps(self, seen: _MarkedCandidate, probe: str) -> str:
        """The stamps of what a save changes first, for comparison with those of the verdict."""
        names = filter(None, (probe, seen.format.beside(os.path.basename(seen.checkpoint.path))))
        statuses = [self._stat(joined(seen.directory, name)) for name in names]
        stamps = [stamp(status) if status else "-" for status in statuses] or ["-"]
        return " ".join([seen.marker_stamp, seen.directory_stamp, *stamps])

    def _with_known_verdict(self, seen: _MarkedCandidate) -> _MarkedCandidate:
        """The candidate with its earlier verdict "complete", if nothing has changed since; else unchanged."""
        verdict = self._verdicts.get(seen.checkpoint.path)
        if verdict is None or verdict.problem or verdict.glance != self._quick_stamps(seen, verdict.probe):
            return seen
        return dataclasses.replace(seen, checkpoint=_complete(seen.checkpoint, verdict))

    def _is_known_bad(self, seen: _MarkedCandidate) -> bool:
        """Whether a candidate was found incomplete a moment ago, and still looks the same."""
        path = seen.checkpoint.path
        verdict = self._verdicts.get(path)
        if verdict is None or not verdict.problem or self._now() >= self._again.get(path, (0.0, 0.0))[0]:
            return False
        return verdict.glance == self._quick_stamps(seen, verdict.probe)

    def _is_complete(self, seen: _MarkedCandidate) -> bool:
        path = seen.checkpoint.path
        try:
            verdict = self._verify(seen)
        except PermissionError as error:
            self._note = "%s cannot be read: %s" % (path, error.strerror)
            return False
        previous = self._verdicts.get(path)
        if verdict != previous and not _may_pass(verdict.problem):
            self._judged(verdict)
        self._remember(verdict, unchanged=previous is not None and previous.files == verdict.files)
        return not verdict.problem

    def _verify(self, seen: _MarkedCandidate) -> Verdict:
        """Verify a candidate: look at every file, and at what the marker says unless all are the same as before."""
        path, name = seen.checkpoint.path, os.path.basename(seen.checkpoint.path)
        listing = self._listing(seen)
        self.looks += len(listing.files)
        files, previous = digest(listing), self._verdicts.get(path)
        probe = min((name for name in listing.files if name != seen.marker and not name.startswith("../")), default="")
        if previous is not None and previous.files == files and not _may_pass(previous.problem):
            problem = previous.problem
        elif listing.truncated:
            problem = TOO_MANY_FILES
        else:
            siblings = functools.partial(self._siblings, seen)
            candidate = Candidate(listing.path, name, listing.files, self._reading, siblings, listing.deeper)
            problem = self._problem(seen, candidate)
            if not problem and seen.format.settles and not self._is_settled(path, files):
                problem = _STILL_WRITTEN
        own = [file for file_name, file in listing.files.items() if file_name != seen.format.beside(name)]
        size_bytes = sum(file.size_bytes for file in own)
        newest_ns = max((file.modified_ns for file in own), default=0)
        # No save makes it smaller and writes nothing: a program removes them, or did until something stopped it.
        if (
            seen.format.is_open
            and previous is not None
            and previous.size_bytes > size_bytes
            and previous.newest_ns >= newest_ns
        ):
            problem, size_bytes, newest_ns = problem or _LESS, previous.size_bytes, previous.newest_ns
        return Verdict(
            path, files, self._quick_stamps(seen, probe), probe, problem, size_bytes, saving_ns(listing), newest_ns
        )

    def _siblings(self, seen: _MarkedCandidate) -> List[str]:
        """Names beside a single file that are of its format, too: those of the highest steps."""
        kind = seen.format
        if kind.markers:
            return []
        if kind.name not in self._ordered_singles:
            names = order_candidates(filter(kind.claims, self._names.files))
            self._ordered_singles[kind.name] = names[: MAX_SIBLINGS + 1]
        return [name for name in self._ordered_singles[kind.name] if name != seen.marker][:MAX_SIBLINGS]

    def _listing(self, seen: _MarkedCandidate) -> Listing:
        """All files of a candidate, and the one beside it on which it depends."""
        if seen.format.markers:
            listing = self._files.listing(seen.directory, self._sign, seen.format.depth)
        else:
            listing = Listing(seen.directory, {})
        name = os.path.basename(seen.checkpoint.path)
        files = dict(listing.files)
        for more in filter(None, ("" if seen.format.markers else name, seen.format.beside(name))):
            status = self._stat(joined(seen.directory, more))
            if status is not None:
                files[more] = status.file
        return dataclasses.replace(listing, files=files)

    def _is_settled(self, path: str, files: str) -> bool:
        """Whether all files of a checkpoint have stayed the same for long enough.

        Args:
            path: of the checkpoint.
            files: digest of its files.
        """
        seen_files, since = self._first_seen.get(path, ("", 0.0))
        if seen_files != files:
            if len(self._first_seen) >= _MAX_REMEMBERED:
                self._first_seen.clear()
            self._first_seen[path] = files, self._now()
            return self._settle_seconds <= 0
        return self._now() >= since + self._settle_seconds

    def _remember(self, verdict: Verdict, unchanged: bool) -> None:
        if len(self._verdicts) >= _MAX_REMEMBERED and verdict.path not in self._verdicts:
            self._verdicts.clear()
            self._again.clear()
        self._verdicts[verdict.path] = verdict
        shortest, longest = _LOOK_AGAIN_SECONDS
        wait = self._again.get(verdict.path, (0.0, shortest))[1] if unchanged else shortest
        self._again[verdict.path] = (self._now() + wait, min(2 * wait, longest))

    @staticmethod
    def _problem(seen: _MarkedCandidate, candidate: Candidate) -> str:
        """Why a candidate is not complete; "" = it is."""
        if seen.marker not in candidate.files:
            return "its marker vanished"
        try:
            return _problem_text(ask_rule(lambda: seen.format.problem(candidate)))
        except (PermissionError, StorageError):
            raise
        except ValueError as error:
            return _problem_text(str(error))
        except OSError as error:  # of a file that is gone meanwhile, or on storage that fails: others may be whole
            return _UNREADABLE + _problem_text(str(error))


def _is_known_alone(kind: Format, name: str) -> bool:
    """Whether a single file is of this format, whatever lies beside it."""
    return kind.claims(name) and not kind.beside(name)


def _complete(checkpoint: FoundCheckpoint, verdict: Verdict) -> FoundCheckpoint:
    """The checkpoint with the figures of its verdict, once it was found complete."""
    seconds = round(verdict.saving_ns / 1e9, 3)
    return dataclasses.replace(checkpoint, judged=True, size_bytes=verdict.size_bytes, save_seconds=seconds)


def _problem_text(problem: str) -> str:
    """A format's message cut to one line of readable characters: it may quote what an incomplete file contains."""
    return readable(problem[:_MAX_PROBLEM_CHARS])


def _may_pass(problem: str) -> bool:
    """Whether a problem may be gone although no file has changed."""
    return problem == _STILL_WRITTEN or problem.startswith((_UNREADABLE, UNLIKE_OTHERS))

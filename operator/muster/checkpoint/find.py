"""Looks into a checkpoint directory: reads as little as possible, remembers what it judged, and answers in parts.

A large checkpoint has a thousand files, and a metadata file of a hundred megabytes. Which checkpoints there are takes
three or four looks at files for each; whether one is complete takes a look at every file, and for one that nobody has
judged before the metadata. The newest is judged first, and the answer so far is there after each.
"""

from __future__ import annotations

import dataclasses
import os
import time
from typing import Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple, Union

from muster.checkpoint.dcp import METADATA_NAME, MetadataError, shard_sizes
from muster.checkpoint.listing import Listing, child_directories, no_sign, read_content, read_listing
from muster.checkpoint.manifest import MANIFEST_NAME, Manifest, ManifestError, parse_manifest
from muster.checkpoint.scan import (
    CLOCKS_DIFFER_NS,
    FSDP_PARTS,
    MAX_STAMPS,
    TRAINER_STATE_NAME,
    Checkpoint,
    Lineage,
    Stamp,
    dcp_problem,
    manifest_problem,
    newest_first,
    order_candidates,
    part_of,
    step_in_name,
    trainer_step,
)
from muster.checkpoint.verdict import Verdict, digest, stamp

LIMIT = 8
MAX_EXAMINED = 64
MAX_WITHOUT_STEP = 16
MAX_WISHED = 64  # directories that may be what a person asked for
MAX_STEPPED = 4096  # looked into for stamps: most may hold no checkpoint
_MAX_REMEMBERED = 4 * MAX_EXAMINED
_LOOK_AGAIN_SECONDS = (2.0, 30.0)  # at what is not complete though nothing seems to change: from, to

_Parsed = Union[Manifest, Mapping[str, int], str]  # str: why it cannot be parsed


@dataclasses.dataclass(frozen=True)
class Look:
    """How to look.

    Attributes:
        thorough: at every file, whatever was known before; else only where something seems to have changed.
        judges: False: only which checkpoints there are.
        lineage: leave out what belongs to another history.
        limit: so many checkpoints, the newest.
        wish: a step or a path; what is there of it comes in addition.
        stamps: tell of all that there are, too, those of other histories included.
    """

    thorough: bool = True
    judges: bool = True
    lineage: Optional[Lineage] = None
    limit: int = LIMIT
    stamps: bool = False
    wish: str = ""

    def wishes(self, checkpoint: Checkpoint) -> bool:
        """Whether it is what was asked for."""
        return bool(self.wish) and self.wish in (str(checkpoint.step), checkpoint.path)

    def may_wish(self, path: str) -> bool:
        """The same, by the name alone."""
        return bool(self.wish) and self.wish in (str(step_in_name(os.path.basename(path))), path)


@dataclasses.dataclass(frozen=True)
class Found:
    """The answer so far.

    Attributes:
        checkpoints: newest step first, and after them older ones that were asked for.
        torn: the newest of those that have their marker and of which not all is there.
        done: nothing is left to judge.
        note: what could not be seen, though the directory is not known to be unreadable; "" = nothing.
        stamps: of all that have their marker, MAX_STAMPS at most; None: not known (yet).
    """

    checkpoints: Tuple[Checkpoint, ...]
    done: bool
    note: str = ""
    torn: Tuple[Checkpoint, ...] = ()
    stamps: Optional[Tuple[Stamp, ...]] = None

    @property
    def is_settled(self) -> bool:
        """Whether the newest complete checkpoint is known: what may come will be older."""
        return self.done or (bool(self.checkpoints) and self.checkpoints[0].judged)


@dataclasses.dataclass(frozen=True)
class _Seen:
    """A directory with a marker, before anything else in it was looked at."""

    checkpoint: Checkpoint
    marker: str
    marker_stamp: str
    directory_stamp: str


@dataclasses.dataclass
class _Search:
    """One look, as far as it has come.

    Attributes:
        candidates: that are left: a directory, and whether its name tells a step.
        found: what may be complete, by path.
        examined: candidates with a step that may be of this history.
        stamps: of what has its marker.
        blind: something could not be seen.
    """

    candidates: Iterator[Tuple[str, bool]]
    found: Dict[str, _Seen] = dataclasses.field(default_factory=dict)
    torn: List[Checkpoint] = dataclasses.field(default_factory=list)
    examined: int = 0
    stamps: List[Stamp] = dataclasses.field(default_factory=list)
    blind: bool = False


class Finder:
    """Finds the newest complete checkpoints in one directory, again and again.

    Attributes:
        looks: at single files and directories so far.
    """

    def __init__(
        self,
        directory: str,
        sign: Callable[[], None] = no_sign,
        judged: Callable[[Verdict], None] = lambda verdict: None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.looks = 0
        self._directory = os.path.abspath(directory)
        self._sign = sign
        self._judged = judged
        self._now = now
        self._verdicts: Dict[str, Verdict] = {}
        self._parsed: Dict[str, Tuple[str, _Parsed]] = {}
        self._again: Dict[str, Tuple[float, float]] = {}  # when to look at it again, and how long to wait then
        self._note = ""

    def remember(self, verdicts: Iterable[Verdict]) -> None:
        """Take over what another process judged."""
        self._verdicts.update((verdict.path, verdict) for verdict in verdicts)

    def find(self, limit: int = LIMIT) -> List[Checkpoint]:
        """The newest complete checkpoints among the directory itself and its children, newest step first.

        Raises:
            OSError: the directory cannot be read; a missing one holds nothing.
        """
        found: Tuple[Checkpoint, ...] = ()
        for answer in self.look(Look(limit=limit)):
            found = answer.checkpoints
        return list(found)

    def look(self, how: Look) -> Iterator[Found]:
        """The same in parts: the answer so far, whenever one more is judged.

        Raises:
            OSError: the directory cannot be read.
        """
        self._note = ""
        search = _Search(self._candidates(how))
        complete: Dict[str, Checkpoint] = {}
        stamps: Optional[Tuple[Stamp, ...]] = None
        while True:
            self._fill(search, how)
            there = [complete.get(path, seen.checkpoint) for path, seen in search.found.items()]
            newest = newest_first(there, how.limit)
            newest += [one for one in there if how.wishes(one) and one not in newest][: how.limit]
            open_ones = [checkpoint for checkpoint in newest if not checkpoint.judged] if how.judges else []
            if not open_ones and how.stamps and stamps is None:
                stamps = self._stamps(search)
            torn = tuple(newest_first(search.torn, how.limit))
            found = Found(tuple(newest), not open_ones, self._note, torn, stamps)
            yield found
            if not open_ones:
                return
            if found.is_settled and how.stamps and stamps is None:
                stamps = self._stamps(search)
            path = next(filter(how.wishes, open_ones), open_ones[0]).path
            if self._is_complete(search.found[path]):
                complete[path] = dataclasses.replace(search.found[path].checkpoint, judged=True)
            else:
                search.torn.append(search.found.pop(path).checkpoint)

    def _candidates(self, how: Look) -> Iterator[Tuple[str, bool]]:
        """Directories that may hold a checkpoint, and whether they are among those that are looked at from the newest on."""
        try:
            names = order_candidates(child_directories(self._directory, self._sign))
        except FileNotFoundError:
            self._note = "%s does not exist" % self._directory
            return
        yield self._directory, False
        wished = [name for name in names if how.may_wish(os.path.join(self._directory, name))][:MAX_WISHED]
        others = [name for name in names if name not in wished] if wished else names
        nameless = [name for name in others if step_in_name(name) is None][:MAX_WITHOUT_STEP]
        stepped = [name for name in others if step_in_name(name) is not None]
        for name in nameless + wished:  # they do not count among the newest
            yield os.path.join(self._directory, name), False
        for name in stepped[:MAX_STEPPED]:
            yield os.path.join(self._directory, name), True
        if len(stepped) > MAX_STEPPED:
            self._note = "%s has more than %d directories" % (self._directory, MAX_STEPPED)

    def _fill(self, search: _Search, how: Look) -> None:
        """Look at candidates until there are enough, not counting those that need not be among the newest."""
        counted = (path for path in search.found if not how.may_wish(path))
        with_step = sum(1 for path in counted if step_in_name(os.path.basename(path)) is not None)
        while with_step < how.limit and search.examined < MAX_EXAMINED:
            path, has_step = next(search.candidates, ("", False))
            if not path:
                return
            seen = self._note_stamp(search, path)
            if seen is not None and how.lineage is not None and not how.lineage.has(*seen.checkpoint.stamp):
                continue
            search.examined += has_step
            if seen is None:
                continue
            if not how.thorough and how.judges and self._is_known_bad(seen):
                search.torn.append(seen.checkpoint)
                continue
            search.found[path] = self._known(seen) if not how.thorough else seen
            with_step += has_step

    def _stamps(self, search: _Search) -> Optional[Tuple[Stamp, ...]]:
        """Of all that there are, those of the highest steps first; None where something could not be seen."""
        note = self._note
        for path, _ in search.candidates:
            self._note_stamp(search, path)
            if (
                len(search.stamps) > MAX_STAMPS + MAX_WITHOUT_STEP + MAX_WISHED + 1
            ):  # those come first, whatever their step
                break
        if search.blind or self._note != note:
            return None
        return tuple(sorted(search.stamps, reverse=True)[:MAX_STAMPS])

    def _note_stamp(self, search: _Search, path: str) -> Optional[_Seen]:
        note = self._note
        seen = self._see(path)
        search.blind = search.blind or self._note != note  # may be there, and is not told
        if seen is not None:
            search.stamps.append(seen.checkpoint.stamp)
        return seen

    def _see(self, path: str) -> Optional[_Seen]:
        """The marker in it; None without one, or without a step."""
        try:
            for name in (MANIFEST_NAME, METADATA_NAME, TRAINER_STATE_NAME):
                status = self._stat(os.path.join(path, name))
                if status is None:
                    continue
                if name == TRAINER_STATE_NAME and self._stat(os.path.join(path, FSDP_PARTS[0], METADATA_NAME)) is None:
                    continue  # of another kind, which is not understood
                marker = stamp(status)
                step = step_in_name(os.path.basename(path))
                if name == MANIFEST_NAME:
                    manifest = self._parse(os.path.join(path, name), marker)
                    step = manifest.step if isinstance(manifest, Manifest) else None
                directory = self._stat(path)
                if step is None or directory is None:
                    return None
                if not _is_text(path):  # it could neither be told nor be put on record
                    self._note = "%r is left out: its name is no UTF-8, rename it" % path
                    return None
                checkpoint = Checkpoint(step, path, status.st_mtime_ns, judged=False)
                return _Seen(checkpoint, name, marker, stamp(directory))
        except PermissionError as error:  # lost+found and the like have no step in their names
            if step_in_name(os.path.basename(path)) is not None:
                self._note = "%s cannot be read: %s" % (path, error.strerror)
        return None

    def _stat(self, path: str) -> Optional[os.stat_result]:
        self.looks += 1
        self._sign()
        try:
            return os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _glance(self, seen: _Seen, probe: str) -> str:
        """What changes first."""
        status = self._stat(os.path.join(seen.checkpoint.path, probe)) if probe else None
        return " ".join((seen.marker_stamp, seen.directory_stamp, stamp(status) if status else "-"))

    def _known(self, seen: _Seen) -> _Seen:
        """With the verdict of before, if nothing has changed since."""
        verdict = self._verdicts.get(seen.checkpoint.path)
        if verdict is None or verdict.problem or verdict.glance != self._glance(seen, verdict.probe):
            return seen
        return dataclasses.replace(seen, checkpoint=dataclasses.replace(seen.checkpoint, judged=True))

    def _is_known_bad(self, seen: _Seen) -> bool:
        """Whether it was not complete a moment ago, and still looks the same."""
        path = seen.checkpoint.path
        verdict = self._verdicts.get(path)
        if verdict is None or not verdict.problem or self._now() >= self._again.get(path, (0.0, 0.0))[0]:
            return False
        return verdict.glance == self._glance(seen, verdict.probe)

    def _is_complete(self, seen: _Seen) -> bool:
        path = seen.checkpoint.path
        try:
            verdict = self._judge(seen)
        except PermissionError as error:
            self._note = "%s cannot be read: %s" % (path, error.strerror)
            return False
        known = self._verdicts.get(path)
        if verdict != known:
            self._judged(verdict)
        self._remember(verdict, unchanged=known is not None and known.files == verdict.files)
        return not verdict.problem

    def _judge(self, seen: _Seen) -> Verdict:
        """Look at every file, and at what the marker says unless all are the same as before."""
        path = seen.checkpoint.path
        listing = read_listing(path, self._sign)
        self.looks += len(listing.files)
        files, known = digest(listing), self._verdicts.get(path)
        probe = min((name for name in listing.files if name != seen.marker), default="")
        problem = known.problem if known is not None and known.files == files else self._problem(seen, listing)
        return Verdict(path, files, self._glance(seen, probe), probe, problem)

    def _remember(self, verdict: Verdict, unchanged: bool) -> None:
        if len(self._verdicts) >= _MAX_REMEMBERED and verdict.path not in self._verdicts:
            self._verdicts.clear()
            self._again.clear()
        self._verdicts[verdict.path] = verdict
        shortest, longest = _LOOK_AGAIN_SECONDS
        wait = self._again.get(verdict.path, (0.0, shortest))[1] if unchanged else shortest
        self._again[verdict.path] = (self._now() + wait, min(2 * wait, longest))

    def _problem(self, seen: _Seen, listing: Listing) -> str:
        """Why it is not complete; "" = it is."""
        if listing.truncated:
            return "too many files"
        if seen.marker not in listing.files:
            return "its marker vanished"
        if seen.marker == TRAINER_STATE_NAME:
            return self._fsdp_problem(seen, listing)
        parsed = self._parse(os.path.join(listing.path, seen.marker), seen.marker_stamp)
        if isinstance(parsed, str):
            return parsed
        if isinstance(parsed, Manifest):
            return manifest_problem(listing, parsed)
        return dcp_problem(listing, parsed)

    def _fsdp_problem(self, seen: _Seen, listing: Listing) -> str:
        """The same of what Hugging Face's Trainer writes of sharded ranks: a DCP for each part, then its own state."""
        state = listing.files[TRAINER_STATE_NAME]
        data = read_content(os.path.join(listing.path, TRAINER_STATE_NAME), self._sign)
        if trainer_step(data) != seen.checkpoint.step:
            return "%s does not tell step %d" % (TRAINER_STATE_NAME, seen.checkpoint.step)
        for part in FSDP_PARTS:
            below = part_of(listing, part)
            metadata = below.files.get(METADATA_NAME)
            if metadata is None:
                return "%s does not exist" % os.path.join(part, METADATA_NAME)
            if metadata.modified_ns > state.modified_ns + CLOCKS_DIFFER_NS:
                return "%s is newer than %s" % (part, TRAINER_STATE_NAME)
            version = "%d-%d" % (metadata.size_bytes, metadata.modified_ns)
            parsed = self._parse(os.path.join(below.path, METADATA_NAME), version)
            if isinstance(parsed, (str, Manifest)):
                return "%s: %s" % (part, parsed)
            problem = dcp_problem(below, parsed)
            if problem:
                return "%s: %s" % (part, problem)
        return ""

    def _parse(self, path: str, version: str) -> _Parsed:
        known = self._parsed.get(path)
        if known is not None and known[0] == version:
            return known[1]
        is_manifest = os.path.basename(path) == MANIFEST_NAME
        try:
            data = read_content(path, self._sign)
            parsed: _Parsed = parse_manifest(data) if is_manifest else shard_sizes(data, self._sign)
        except (ManifestError, MetadataError) as error:
            parsed = str(error)
        except (FileNotFoundError, IsADirectoryError) as error:
            return str(error)
        if len(self._parsed) > _MAX_REMEMBERED:
            self._parsed.clear()
        self._parsed[path] = (version, parsed)
        return parsed


def _is_text(name: str) -> bool:
    """Whether a name from the file system, which takes any bytes, is Unicode."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True

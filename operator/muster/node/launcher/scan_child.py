"""The other end of `scanner.py`: looks into a directory as it is asked to, and tells what it finds while it goes on.

One JSON object on each line. In: `{"verdicts": [...]}`, what an earlier child judged; `{"scan": 7, "thorough": true,
"judges": true, "stamps": false, "branch": [step, sinceNs, excluded, frozen] or null, "requested": "",
"requestedDirectory": ""}`,
which ends a scan under way. Out: `{"sign": true}`, a sign of life; `{"verdict": {...}}`, to be handed to the next
child; and the answer so far: `{"scan": 7, "checkpoints": [{"step", "path", "writtenNs", "judged", "format",
"sizeBytes", "saveSeconds"}], "incomplete": [the same], "stamps": text or null, "settled", "done", "looks", "note",
"warning", "trap", "error", "freeBytes": as it was after the scan before, "elsewhere": [as checkpoints],
"elsewhereError", "errorKind", "elsewhereErrorKind": of muster.protocol.checkpoints.ERROR_KINDS}`. A scan is over once
it is done, or has an error.

Tests: tests/unit/launcher/test_scanner.py.
"""

from __future__ import annotations

import gc
import json
import os
import select
import sys
import threading
import time
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Tuple

from muster.node.checkpoint.find import Finder, Found, ScanOptions
from muster.node.checkpoint.formats.table import FORMATS, formats_by
from muster.node.checkpoint.listing import THIS_MACHINE, Files, StorageError
from muster.node.checkpoint.verdict import Verdict, verdict_from
from muster.protocol.checkpoint_names import is_url
from muster.protocol.checkpoints import FoundCheckpoint, branch_of, write_stamps

_BETWEEN_SIGNS_SECONDS = 0.5
_BETWEEN_ANSWERS_SECONDS = 0.5  # that tell nothing but how far it has come
_INPUT = 0


def finder_of(directory: str, pattern: str = "") -> Finder:
    """The finder of checkpoints in a directory, or below a URL.

    Args:
        directory: path, or URL of an object store.
        pattern: of the names of the job's own checkpoints; "" = any format that is known.

    Raises:
        ValueError: the pattern is invalid.
    """
    return Finder(directory, files=files_at(directory), formats=formats_by(pattern))


def files_at(directory: str) -> Files:
    """The access to the files of a directory, or below a URL. Only a URL needs more than the standard library."""
    if not is_url(directory):
        return THIS_MACHINE
    from muster.node.checkpoint.store import Store

    return Store(directory)


def scan_once(finder: Finder) -> str:
    """The checkpoints that a finder sees as JSON, newest first: `{"checkpoints": [{"step", "path"}], "error": ""}`."""
    try:
        checkpoints = finder.find()
    except (OSError, ValueError) as error:
        return json.dumps({"checkpoints": [], "error": str(error)})
    return json.dumps({"checkpoints": [{"step": c.step, "path": c.path} for c in checkpoints], "error": ""})


def tree_once(files: Files, directory: str) -> str:
    """The files below a directory with their sizes, oldest first, in the form of tests/data/reports/trees.

    Raises:
        OSError: the directory cannot be read.
    """
    listing = files.listing(directory)
    written = sorted(listing.files.items(), key=lambda item: (item[1].modified_ns, item[0]))
    case = {"input": {name: file.size_bytes for name, file in written}, "right": ""}
    return json.dumps({"source": "", "meaning": "", "cases": [case]}, indent=1)


def scan_on_request(directory: str, pattern: str) -> None:
    """Answer the requests for scans on standard input, until that is closed.

    Raises:
        ValueError: the pattern is invalid.
    """
    asked = _RequestLines()
    collect_seldom()
    _keep_output_to_itself()
    looks = ScanServer(directory, _say, asked.is_waiting, pattern=pattern)
    while True:
        lines = asked.lines()
        if asked.closed:
            return
        looks.hear(lines)


def collect_seldom() -> None:
    """Have Python search for cycles seldom: a scan of many files makes as many objects that stay."""
    gc.set_threshold(100_000, 20, 20)


class FreeSpace:
    """The free space of a directory. A file system may never answer, so each scan has what was known before it.

    Attributes:
        free_bytes: as it was found last; None = not yet, or it cannot be known.
    """

    def __init__(self, ask: Callable[[], Optional[int]], aside: Callable[[Callable[[], None]], None]) -> None:
        self._ask = ask
        self._aside = aside
        self._is_under_way = False
        self.free_bytes: Optional[int] = None

    def refresh(self) -> None:
        """Look up the free space in a thread, unless an earlier look-up is still under way."""
        if self._is_under_way:
            return
        self._is_under_way = True
        try:
            self._aside(self._find)
        except RuntimeError:  # no thread is to be had now: it is asked for again with the next scan
            self._is_under_way = False

    def _find(self) -> None:
        try:
            self.free_bytes = self._ask()
        finally:
            self._is_under_way = False


def in_a_thread(call: Callable[[], None]) -> None:
    """Call a function in a thread, and do not wait for its end.

    Raises:
        RuntimeError: no thread can be started.
    """
    threading.Thread(target=call, name="aside", daemon=True).start()


class ScanServer:
    """Scans for checkpoints as requests ask for it, and prints whole lines only.

    Args:
        directory: path, or URL of an object store.
        say: prints one line.
        is_asked_again: whether a new request waits.
        now: monotonic seconds.
        files_at: the access to the files of the directory, or of another one that a request names.
        aside: calls what may never end.
        pattern: of the names of the job's own checkpoints. Another directory may be another job's: there the pattern
            counts
        beside all known formats.
    """

    def __init__(
        self,
        directory: str,
        say: Callable[[bytes], None],
        is_asked_again: Callable[[], bool],
        now: Callable[[], float] = time.monotonic,
        files_at: Callable[[str], Files] = files_at,
        aside: Callable[[Callable[[], None]], None] = in_a_thread,
        pattern: str = "",
    ) -> None:
        own = formats_by(pattern)
        self._finder = Finder(directory, self._sign, self._print_verdict, now, files_at(directory), formats=own)
        self._formats_elsewhere = (*own, *FORMATS) if pattern else FORMATS
        self._say = say
        self._is_asked_again = is_asked_again
        self._now = now
        self._said_at = 0.0
        self._files_at = files_at
        self._elsewhere: Tuple[str, Optional[Finder]] = ("", None)
        self._room = FreeSpace(self._finder.free_bytes, aside)

    def hear(self, lines: Iterable[bytes]) -> None:
        """Do what these requests ask for; of several scans only the last is done."""
        request = None
        for item in map(json.loads, lines):
            if "verdicts" in item:
                self._finder.remember(verdict_from(verdict) for verdict in item["verdicts"])
            else:
                request = item
        if request is not None:
            self._scan(request)

    def _scan(self, request: Mapping[str, Any]) -> None:
        looks, written_news, written_at = self._finder.looks, (False, False), self._now()
        answer: Dict[str, Any] = {"scan": request["scan"], "error": ""}
        # Before the rest: who has heard that this directory was looked through may decide by both.
        if request.get("requestedDirectory"):
            answer.update(self._scan_elsewhere(str(request["requestedDirectory"]), request))
            if self._is_asked_again():
                return
        try:
            for result in self._finder.scan(_scan_options(request)):
                now = self._now()
                answer.update(_answer(result), looks=self._finder.looks - looks)
                if result.done:
                    answer["freeBytes"] = self._room.free_bytes
                news = (result.is_settled, result.stamps is not None)
                if result.done or news != written_news or now >= written_at + _BETWEEN_ANSWERS_SECONDS:
                    self._write(answer)
                    written_news, written_at = news, now
                if result.done:
                    self._room.refresh()
                if not result.done and self._is_asked_again():
                    return
        except (OSError, ValueError) as error:
            answer.update(
                checkpoints=[], incomplete=[], stamps=None, settled=False, done=False, note="", warning="", trap=""
            )
            answer.update(looks=self._finder.looks - looks, error=str(error) or type(error).__name__)
            answer.update(errorKind=_kind(error))
            self._write(answer)

    def _scan_elsewhere(self, directory: str, request: Mapping[str, Any]) -> Dict[str, Any]:
        """The newest checkpoint in another directory and the requested one there, as fields of the answer."""
        finder_directory, finder = self._elsewhere
        if finder is None or finder_directory != directory:
            files, formats = self._files_at(directory), self._formats_elsewhere
            finder = Finder(directory, self._sign, self._print_verdict, self._now, files, formats=formats)
            self._elsewhere = directory, finder
        requested = str(request["requested"])
        how = ScanOptions(bool(request["thorough"]), bool(request["judges"]), limit=1, requested=requested)
        try:
            result = Found((), False)
            for result in finder.scan(how):  # noqa: B007 - the last answer
                if self._is_asked_again():
                    break
        except (OSError, ValueError) as error:
            text = str(error) or type(error).__name__
            return {"elsewhere": [], "elsewhereError": text, "elsewhereErrorKind": _kind(error)}
        return {"elsewhere": _listed_items(result.checkpoints), "elsewhereError": result.note, "elsewhereErrorKind": ""}

    def _sign(self) -> None:
        if self._now() >= self._said_at + _BETWEEN_SIGNS_SECONDS:
            self._write({"sign": True})

    def _print_verdict(self, verdict: Verdict) -> None:
        self._write({"verdict": verdict.to_json()})

    def _write(self, message: Mapping[str, Any]) -> None:
        self._said_at = self._now()
        self._say(json.dumps(message).encode() + b"\n")


class _RequestLines:
    """The requests on standard input, by lines.

    Attributes:
        closed: whether standard input has ended.
    """

    def __init__(self) -> None:
        self.closed = False
        self._buffer = b""

    def is_waiting(self) -> bool:
        """Whether a request can be read now."""
        return bool(select.select([_INPUT], [], [], 0)[0])

    def lines(self) -> List[bytes]:
        """Wait for a request, and return all lines that are there."""
        while b"\n" not in self._buffer and not self.closed:
            data = os.read(_INPUT, 65536)
            self.closed = not data
            self._buffer += data
        lines = self._buffer.split(b"\n")
        self._buffer = lines.pop()
        return lines


def _keep_output_to_itself() -> None:
    """Redirect the output of the user's packages, so that it does not mix with answers."""
    answer_fd = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    sys.stdout = os.fdopen(answer_fd, "w")


def _say(line: bytes) -> None:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


def _scan_options(request: Mapping[str, Any]) -> ScanOptions:
    branch: Optional[List[Any]] = request["branch"]
    return ScanOptions(
        thorough=bool(request["thorough"]),
        judges=bool(request["judges"]),
        stamps=bool(request["stamps"]),
        branch=branch_of(int(branch[0]), str(branch[1]), bool(branch[2])) if branch else None,
        requested=str(request["requested"]),
    )


def _kind(error: Exception) -> str:
    return error.kind if isinstance(error, StorageError) else ""


def _answer(result: Found) -> Dict[str, Any]:
    return {
        "checkpoints": _listed_items(result.checkpoints),
        "incomplete": _listed_items(result.incomplete),
        "stamps": None if result.stamps is None else write_stamps(result.stamps),
        "settled": result.is_settled,
        "done": result.done,
        "note": result.note,
        "warning": result.warning,
        "trap": result.trap,
    }


def _listed_items(items: Iterable[FoundCheckpoint]) -> List[Dict[str, Any]]:
    return [
        {
            "step": c.step,
            "path": c.path,
            "writtenNs": c.written_ns,
            "judged": c.judged,
            "format": c.format,
            "sizeBytes": c.size_bytes,
            "saveSeconds": c.save_seconds,
            "problem": c.problem,
        }
        for c in items
    ]

"""The other end of `scanner.py`: looks into a directory as it is asked to, and tells what it finds while it goes on.

One JSON object on each line. In: `{"verdicts": [...]}`, what an earlier child judged; `{"scan": 7, "thorough": true,
"judges": true, "stamps": false, "lineage": [step, sinceNs, disowned] or null, "wish": ""}`, which ends a scan under way. Out:
`{"sign": true}`, a sign of life; `{"verdict": {...}}`, to be handed to the next child; and the answer so far: `{"scan": 7,
"checkpoints": [{"step", "path", "writtenNs", "judged"}], "torn": [the same], "stamps": text or null, "settled", "done",
"looks", "note", "error"}`. A scan is over once it is done, or has an error.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from typing import Any, Dict, Iterable, List, Mapping, Optional

from muster.checkpoint.find import Finder, Found, Look
from muster.checkpoint.scan import Checkpoint, lineage_of, write_stamps
from muster.checkpoint.verdict import Verdict, verdict_from

_BETWEEN_SIGNS_SECONDS = 0.5
_BETWEEN_ANSWERS_SECONDS = 0.5  # that tell nothing but how far it has come
_INPUT = 0


def scan_once(finder: Finder) -> str:
    """`{"checkpoints": [{"step", "path"}], "error": ""}`, newest first."""
    try:
        found = finder.find()
    except (OSError, ValueError) as error:
        return json.dumps({"checkpoints": [], "error": str(error)})
    return json.dumps({"checkpoints": [{"step": c.step, "path": c.path} for c in found], "error": ""})


def scan_on_request(directory: str) -> None:
    """Scan as often as it is asked for on stdin, until that is closed."""
    _Child(directory).run()


class _Child:
    """Scans, and writes nothing but whole lines."""

    def __init__(self, directory: str) -> None:
        self._finder = Finder(directory, self._sign, self._tell_verdict)
        self._buffer = b""
        self._closed = False
        self._wrote_at = 0.0

    def run(self) -> None:
        """Until stdin is closed."""
        while True:
            requests = self._requests()
            if self._closed:
                return
            request = None
            for item in requests:
                if "verdicts" in item:
                    self._finder.remember(verdict_from(verdict) for verdict in item["verdicts"])
                else:
                    request = item
            if request is not None:
                self._scan(request)

    def _scan(self, request: Mapping[str, Any]) -> None:
        looks, told, told_at = self._finder.looks, (False, False), time.monotonic()
        answer: Dict[str, Any] = {"scan": request["scan"], "error": ""}
        try:
            for found in self._finder.look(_look(request)):
                now = time.monotonic()
                answer.update(_answer(found), looks=self._finder.looks - looks)
                news = (found.is_settled, found.stamps is not None)
                if found.done or news != told or now >= told_at + _BETWEEN_ANSWERS_SECONDS:
                    self._write(answer)
                    told, told_at = news, now
                if not found.done and self._is_asked_again():
                    return
        except (OSError, ValueError) as error:
            answer.update(checkpoints=[], torn=[], stamps=None, settled=False, done=False, note="")
            answer.update(looks=self._finder.looks - looks, error=str(error) or type(error).__name__)
            self._write(answer)

    def _is_asked_again(self) -> bool:
        return bool(select.select([_INPUT], [], [], 0)[0])

    def _requests(self) -> List[Dict[str, Any]]:
        """The lines that are there, once there is one."""
        while b"\n" not in self._buffer and not self._closed:
            data = os.read(_INPUT, 65536)
            self._closed = not data
            self._buffer += data
        lines = self._buffer.split(b"\n")
        self._buffer = lines.pop()
        return [json.loads(line) for line in lines]

    def _sign(self) -> None:
        if time.monotonic() >= self._wrote_at + _BETWEEN_SIGNS_SECONDS:
            self._write({"sign": True})

    def _tell_verdict(self, verdict: Verdict) -> None:
        self._write({"verdict": verdict.to_json()})

    def _write(self, message: Mapping[str, Any]) -> None:
        self._wrote_at = time.monotonic()
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


def _look(request: Mapping[str, Any]) -> Look:
    lineage: Optional[List[Any]] = request["lineage"]
    return Look(
        thorough=bool(request["thorough"]),
        judges=bool(request["judges"]),
        stamps=bool(request["stamps"]),
        lineage=lineage_of(int(lineage[0]), int(lineage[1]), str(lineage[2])) if lineage else None,
        wish=str(request["wish"]),
    )


def _answer(found: Found) -> Dict[str, Any]:
    def told(items: Iterable[Checkpoint]) -> List[Dict[str, Any]]:
        return [{"step": c.step, "path": c.path, "writtenNs": c.written_ns, "judged": c.judged} for c in items]

    return {
        "checkpoints": told(found.checkpoints),
        "torn": told(found.torn),
        "stamps": None if found.stamps is None else write_stamps(found.stamps),
        "settled": found.is_settled,
        "done": found.done,
        "note": found.note,
    }

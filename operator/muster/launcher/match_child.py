"""The other end of `matcher.py`: looks for steps in lines of output, each within a limit of processor time.

In: lines `PLACE TEXT`, `PLACE` being the number of a rank, and an empty line at the end of each batch. Out, for each
batch, one line of JSON: `{"steps": [[place, first, newest, preset], ...], "looksLike": ""}`, or once
`{"error": why the pattern is no use}`. Of a pattern of people's own the preset is "".

A pattern may take years for a line. While it is matched no other code of the same process runs, but the kernel's timer
ends the process.
"""

from __future__ import annotations

import json
import signal
import sys
from typing import BinaryIO, Callable, Dict, List, Optional, Tuple

from muster.launcher.printed import Found, Reader
from muster.launcher.progress import compile_pattern, step_in_line

LINE_SECONDS = 1.0  # of processor time: however busy the machine is, a harmless pattern is not taken for a bad one


_Read = Callable[[int, bytes], Optional[Found]]


def match_on_request(pattern: str, lines: BinaryIO) -> None:
    """Look for steps by a pattern in what comes, until it is closed. Ended by SIGPROF when one line takes too long."""

    def start() -> "Tuple[_Read, Callable[[], str]]":
        compiled = compile_pattern(pattern)

        def read(_place: int, text: bytes) -> Optional[Found]:
            step = step_in_line(compiled, text)
            # Progress bars begin with 0, also when they go on from 300: nothing is finished then.
            return Found(step, "") if step else None

        return read, lambda: ""

    _answer(start, lines)


def read_on_request(preset: str, lines: BinaryIO) -> None:
    """The same by a preset (muster.protocol.presets)."""

    def start() -> "Tuple[_Read, Callable[[], str]]":
        reader = Reader(preset)
        return reader.read, lambda: reader.looks_like

    _answer(start, lines)


def _answer(start: "Callable[[], Tuple[_Read, Callable[[], str]]]", lines: BinaryIO) -> None:
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPROF})
    signal.setitimer(signal.ITIMER_PROF, LINE_SECONDS)
    try:
        read, looks_like = start()
    except ValueError as error:
        _tell({"error": str(error)})
        return
    found: Dict[int, List[object]] = {}
    for line in lines:
        signal.setitimer(signal.ITIMER_PROF, LINE_SECONDS)
        place, _, text = line.rstrip(b"\n").partition(b" ")
        if place:
            one = read(int(place), text)
            if one is not None:
                found.setdefault(int(place), [int(place), one.step, one.step, one.preset])[2] = one.step
        else:
            _tell({"steps": list(found.values()), "looksLike": looks_like()})
            found = {}


def _tell(message: Dict[str, object]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()

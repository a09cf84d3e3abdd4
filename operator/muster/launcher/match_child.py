"""The other end of `matcher.py`: looks for steps in lines of output, each within a limit of processor time.

In: lines `PLACE TEXT`, `PLACE` being the number of a rank, and an empty line at the end of each batch. Out, for each
batch, one line of JSON: `{"steps": [[place, first, newest], ...]}`, or once `{"error": why the pattern is no use}`.

A pattern may take years for a line. While it is matched no other code of the same process runs, but the kernel's timer
ends the process.
"""

from __future__ import annotations

import json
import signal
import sys
from typing import BinaryIO, Dict, List

from muster.launcher.progress import compile_pattern, step_in_line

LINE_SECONDS = 1.0  # of processor time: however busy the machine is, a harmless pattern is not taken for a bad one


def match_on_request(pattern: str, lines: BinaryIO) -> None:
    """Look for steps in what comes, until it is closed. Ended by SIGPROF when one line takes too long."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPROF})
    signal.setitimer(signal.ITIMER_PROF, LINE_SECONDS)
    try:
        compiled = compile_pattern(pattern)
    except ValueError as error:
        _tell({"error": str(error)})
        return
    found: Dict[int, List[int]] = {}
    for line in lines:
        signal.setitimer(signal.ITIMER_PROF, LINE_SECONDS)
        place, _, text = line.rstrip(b"\n").partition(b" ")
        if place:
            step = step_in_line(compiled, text)
            if step:  # progress bars begin with 0, also when they go on from 300: nothing is finished then
                found.setdefault(int(place), [step, step])[1] = step
        else:
            _tell({"steps": [[place_of, first, newest] for place_of, (first, newest) in found.items()]})
            found = {}


def _tell(message: Dict[str, object]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()

"""The other end of `matcher.py`: looks for steps in lines of output, each within a limit of processor time.

In: lines `PLACE RESUMED TEXT`, PLACE being the number of a rank and RESUMED the step that it went on from (0 = none),
and an empty line at the end of each batch. Out, for each batch, one line of JSON: `{"steps": [[place, [step, ...],
preset, loss, figures, seconds], ...], "looksLike": ""}`, or once `{"error": why the pattern is no use}`. Of a pattern
of people's own the preset is "". Of very many steps the newest are told, of the loss and each of the figures
(muster.node.launcher.printed) the one that was printed last, and of seconds that went elsewhere than into computing the
sum.

A pattern may take years for a line. While it is matched no other code of the same process runs, but the kernel's timer
ends the process.

Tests: tests/unit/launcher/test_matcher.py.
"""

from __future__ import annotations

import json
import signal
import sys
from typing import BinaryIO, Callable, Dict, List, Optional, Tuple

from muster.node.launcher.printed import Found, Reader
from muster.node.launcher.progress import compile_pattern, step_in_line

MAX_STEPS = 256  # of a rank, in a batch
LINE_SECONDS = 1.0  # of processor time: however busy the machine is, a harmless pattern is not taken for a bad one


_Read = Callable[[int, bytes, int], Optional[Found]]


def match_on_request(pattern: str, lines: BinaryIO) -> None:
    """Print the steps that a pattern finds in each batch of lines, until `lines` is closed.

    SIGPROF ends the process when one line takes too long.

    Args:
        pattern: a regular expression with a group for the step.
        lines: standard input, in the form that the module describes.
    """

    def start() -> "Tuple[_Read, Callable[[], str]]":
        compiled = compile_pattern(pattern)

        def read(_place: int, text: bytes, _resumed_step: int) -> Optional[Found]:
            step = step_in_line(compiled, text)
            # Progress bars begin with 0, also when they go on from 300: nothing is finished then.
            return Found(step, "") if step else None

        return read, lambda: ""

    _answer(start, lines)


def read_on_request(preset: str, lines: BinaryIO) -> None:
    """Print the steps that a preset (muster.protocol.presets) finds in each batch of lines, until `lines` is closed."""

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
        _write_answer({"error": str(error)})
        return
    found: Dict[int, List[Found]] = {}
    for line in lines:
        signal.setitimer(signal.ITIMER_PROF, LINE_SECONDS)
        place, _, rest = line.rstrip(b"\n").partition(b" ")
        if place:
            resumed_step, _, text = rest.partition(b" ")
            one = read(int(place), text, int(resumed_step))
            if one is not None:
                found.setdefault(int(place), []).append(one)
        else:
            steps = [_of_rank(place, told) for place, told in found.items()]
            _write_answer({"steps": steps, "looksLike": looks_like()})
            found = {}


def _of_rank(place: int, told: List[Found]) -> List[object]:
    loss = next((one.loss for one in reversed(told) if one.loss), "")
    figures: Dict[str, float] = {}
    seconds: Dict[str, float] = {}
    for one in told:
        figures.update(one.figures)
        for name, more in one.seconds.items():
            seconds[name] = seconds.get(name, 0.0) + more
    steps = [one.step for one in told if one.step is not None]
    preset = next((one.preset for one in told if one.step is not None), "")
    return [place, steps[-MAX_STEPS:], preset, loss, figures, seconds]


def _write_answer(message: Dict[str, object]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()

"""The other end of `matcher.py`: looks for steps in lines of output, each within a limit of processor time.

In: lines `PLACE START RESUMED TEXT`, PLACE being the number of a rank, START that of its start and RESUMED the step
that it went on from (0 = none), and an empty line at the end of each batch. Out, for each batch, one line of JSON:
`{"steps": [[place, [step, ...], preset, loss, figures, seconds], ...], "states": [[place, problem, notFiniteSince],
...], "looksLike": "", "proposed": [pattern, line]}`, or once `{"error": why the pattern is no use}`.

Of a pattern of people's own the preset is "". Of very many steps the newest are told, of the loss and each of the
figures (muster.node.launcher.printed) the one that was printed last, and of seconds that went elsewhere than into
computing the sum. A state is that of a rank with a line in the batch.

A pattern may take years for a line. While it is matched no other code of the same process runs, but the kernel's timer
ends the process.

Tests: tests/unit/launcher/test_matcher.py.
"""

from __future__ import annotations

import json
import signal
import sys
from typing import BinaryIO, Callable, Dict, List

from muster.node.launcher.printed import PrintedProgress, Reader
from muster.node.launcher.progress import compile_pattern
from muster.protocol.presets import OFF

MAX_STEPS = 256  # of a rank, in a batch
LINE_SECONDS = 1.0  # of processor time: however busy the machine is, a harmless pattern is not taken for a bad one


def match_on_request(pattern: str, lines: BinaryIO) -> None:
    """Print the steps that a pattern finds in each batch of lines, until `lines` is closed.

    SIGPROF ends the process when one line takes too long.

    Args:
        pattern: a regular expression with a group for the step.
        lines: standard input, in the form that the module describes.
    """
    _answer(lambda: Reader(OFF, compile_pattern(pattern)), lines)


def read_on_request(preset: str, lines: BinaryIO) -> None:
    """Print the steps that a preset (muster.protocol.presets) finds in each batch of lines, until `lines` is closed."""
    _answer(lambda: Reader(preset), lines)


def _answer(start: Callable[[], Reader], lines: BinaryIO) -> None:
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPROF})
    signal.setitimer(signal.ITIMER_PROF, LINE_SECONDS)
    try:
        reader = start()
    except ValueError as error:
        _write_answer({"error": str(error)})
        return
    findings: Dict[int, List[PrintedProgress]] = {}
    starts: Dict[int, bytes] = {}
    for line in lines:
        signal.setitimer(signal.ITIMER_PROF, LINE_SECONDS)
        first, _, rest = line.rstrip(b"\n").partition(b" ")
        if first:
            number, resumed_step, text = rest.split(b" ", 2)
            place = int(first)
            if starts.get(place) != number:
                starts[place] = number
                reader.begin(place)
            rank_findings = findings.setdefault(place, [])
            finding = reader.read(place, text, int(resumed_step))
            if finding is not None:
                rank_findings.append(finding)
        else:
            proposal = reader.proposal()
            _write_answer(
                {
                    "steps": [
                        _of_rank(place, rank_findings) for place, rank_findings in findings.items() if rank_findings
                    ],
                    "states": [[place, reader.problem(place), reader.not_finite_since(place)] for place in findings],
                    "looksLike": reader.looks_like,
                    "proposed": list(proposal) if proposal is not None else ["", ""],
                }
            )
            findings = {}


def _of_rank(place: int, findings: List[PrintedProgress]) -> List[object]:
    loss = next((finding.loss for finding in reversed(findings) if finding.loss), "")
    figures: Dict[str, float] = {}
    seconds: Dict[str, float] = {}
    for finding in findings:
        figures.update(finding.figures)
        for name, more in finding.seconds.items():
            seconds[name] = seconds.get(name, 0.0) + more
    steps = [finding.step for finding in findings if finding.step is not None]
    preset = next((finding.preset for finding in findings if finding.step is not None), "")
    return [place, steps[-MAX_STEPS:], preset, loss, figures, seconds]


def _write_answer(message: Dict[str, object]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()

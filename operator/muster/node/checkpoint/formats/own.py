"""The format that a job describes for its own checkpoints (`spec.checkpoint.pattern`), for programs whose saves are of
no known format.

`state-{step}.npz` for a file each, `run_{step}/DONE` for a directory each, in which DONE is written last.
"""

from __future__ import annotations

import functools
import re
from typing import Optional, Pattern

from muster.node.checkpoint.candidate import Candidate
from muster.node.checkpoint.formats.base import Format, Words
from muster.node.checkpoint.whole import own_file_problem
from muster.protocol.checkpoint_names import step_in_name

# As spec.checkpoint.pattern (muster.api.trainingjob) says it to the API server.
_PATTERN = re.compile(r"([^/{}\x00-\x1f\x7f]*)\{step\}([^/{}\x00-\x1f\x7f]*)(?:/(?!\.\.?\Z)([^/{}\x00-\x1f\x7f]+))?\Z")


def own(pattern: str) -> Format:
    """The format that a pattern describes.

    Raises:
        ValueError: the text is no pattern.
    """
    parts = _PATTERN.match(pattern)
    if parts is None:
        raise ValueError("%r is neither like state-{step}.npz nor like run_{step}/DONE" % pattern)
    prefix, suffix, marker = parts.groups()
    named = re.compile("%s([0-9]{1,15})%s\\Z" % (re.escape(prefix), re.escape(suffix)))
    name = "%s{step}%s" % (prefix, suffix)
    return Format(
        "Pattern",
        Words(
            written_by="any trainer whose job has a `spec.checkpoint.pattern`",
            place="a directory `%s`" % name if marker else "a file `%s`" % name,
            step="the number in its place",
            complete="`%s` is there, and nothing is newer" % marker
            if marker
            else "the file is neither empty nor all zeros",
        ),
        (marker,) if marker else (),
        functools.partial(_directory_problem, marker) if marker else _file_problem,
        lambda candidate: _step(named, candidate.name),
        claims=lambda name: name.endswith(suffix) and named.match(name) is not None,
        # Another number in the name may look more like a step.
        hides_step=lambda name: named.match(name) is not None and step_in_name(name) != _step(named, name),
        settles=not marker,
        is_open=bool(marker),
        is_named_by_job=True,
    )


def _step(named: Pattern[str], name: str) -> Optional[int]:
    match = named.match(name)
    return int(match[1]) if match else None


def _directory_problem(marker: str, candidate: Candidate) -> str:
    later = candidate.later_than(marker)
    return "%s is newer than %s" % (min(later), marker) if later else ""


def _file_problem(candidate: Candidate) -> str:
    return own_file_problem(candidate, candidate.name)

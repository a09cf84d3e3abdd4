"""The other end of `incomplete_mover.py`: moves directories aside once, for the line of JSON on stdin, and tells what
it has done.

In: `{"path", "branch": [step, sinceNs, excluded, frozen] or null}`. Out, on lines: `{"sign": true}`, a sign of life;
last `{"moved": for people, "error"}`.

Tests: tests/unit/launcher/test_incomplete_mover.py.
"""

from __future__ import annotations

import functools
from typing import Any, BinaryIO, Callable, Dict

from muster.node.checkpoint.find import Finder
from muster.node.checkpoint.formats.table import formats_by
from muster.node.checkpoint.move_incomplete import move_incomplete_beyond
from muster.node.launcher.task_child import answer_once
from muster.protocol.checkpoints import branch_of


def move_on_request(directory: str, requests: BinaryIO, say: Callable[[str], None], pattern: str) -> None:
    """Move checkpoint directories aside as the first line of JSON asks, and print what was moved.

    Does nothing where the requests end before a line has come.

    Args:
        directory: spec.checkpoint.directory.
        requests: standard input.
        say: prints one line.
        pattern: of the names of the job's own checkpoints; "" = any format that is known.
    """
    finder_of = functools.partial(Finder, formats=formats_by(pattern))

    def move(request: Dict[str, Any], sign: Callable[[], None]) -> Dict[str, Any]:
        branch = request["branch"]
        history = branch_of(int(branch[0]), str(branch[1]), bool(branch[2])) if branch else None
        moved = move_incomplete_beyond(directory, str(request["path"]), history, sign, finder_of)
        return {"moved": moved.summary, "error": moved.error}

    answer_once(requests, say, move)

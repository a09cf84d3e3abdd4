"""The other end of `local.py`: lists the checkpoints on a node's own disk once, for the line of JSON on stdin.

In: `{"gang", "attempt", "share"}`. Out, on lines: `{"sign": true}`, a sign of life; last `{"held": [[step, path,
attempt, format]], "error"}`.

Tests: tests/unit/launcher/test_local.py.
"""

from __future__ import annotations

from typing import Any, BinaryIO, Callable, Dict

from muster.node.checkpoint.formats.table import formats_by
from muster.node.checkpoint.local import list_local_shares
from muster.node.launcher.task_child import answer_once


def list_on_request(directory: str, requests: BinaryIO, say: Callable[[str], None], pattern: str) -> None:
    """List the local checkpoints that the first line of JSON asks for, and print them.

    Does nothing where the requests end before a line has come.

    Args:
        directory: where the job saves on this node.
        requests: standard input.
        say: prints one line.
        pattern: of the names of the job's own checkpoints; "" = any format that is known.
    """
    formats = formats_by(pattern)

    def look(request: Dict[str, Any], sign: Callable[[], None]) -> Dict[str, Any]:
        try:
            shares, error = list_local_shares(
                directory, request["gang"], int(request["attempt"]), request["share"], sign, formats
            )
        except OSError as failed:
            shares, error = [], str(failed)
        return {"held": shares, "error": error}

    answer_once(requests, say, look)

"""The other end of `aside.py`: moves directories aside once, for the line of JSON on stdin, and tells what it has done.

In: `{"path", "lineage": [step, sinceNs, disowned, shut] or null}`. Out, on lines: `{"sign": true}`, a sign of life; last
`{"moved": for people, "error"}`.
"""

from __future__ import annotations

import json
import time
from typing import BinaryIO, Callable

from muster.checkpoint.aside import move_aside
from muster.checkpoint.scan import lineage_of

_BETWEEN_SIGNS_SECONDS = 0.5


def move_on_request(
    directory: str, requests: BinaryIO, say: Callable[[str], None], now: Callable[[], float] = time.monotonic
) -> None:
    """Do what the first line asks for; nothing where it is closed before."""
    line = requests.readline()
    if not line:
        return
    request = json.loads(line)
    lineage = request["lineage"]
    last = [now()]

    def sign() -> None:
        if now() >= last[0] + _BETWEEN_SIGNS_SECONDS:
            last[0] = now()
            say(json.dumps({"sign": True}) + "\n")

    history = lineage_of(int(lineage[0]), int(lineage[1]), str(lineage[2]), bool(lineage[3])) if lineage else None
    moved = move_aside(directory, str(request["path"]), history, sign)
    say(json.dumps({"moved": moved.words, "error": moved.error}) + "\n")

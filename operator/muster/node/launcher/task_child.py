"""The other end of `child_task.py`: one request on stdin, signs of life while the work lasts, and the answer as the
last line.

Tests: tests/unit/launcher/test_incomplete_mover.py.
"""

from __future__ import annotations

import json
import time
from typing import Any, BinaryIO, Callable, Dict

_BETWEEN_SIGNS_SECONDS = 0.5

Work = Callable[[Dict[str, Any], Callable[[], None]], Dict[str, Any]]
"""Does what the request asks, calls the function now and then, and returns the answer, which has an `error`."""


def answer_once(requests: BinaryIO, say: Callable[[str], None], work: Work) -> None:
    """Do the work that the first line of JSON asks for, print signs of life meanwhile, and print the answer last.

    Does nothing where the requests end before a line has come.

    Args:
        requests: standard input.
        say: prints one line.
        work: makes the answer of the request.
    """
    line = requests.readline()
    if not line:
        return
    last = [time.monotonic()]

    def sign() -> None:
        now = time.monotonic()
        if now >= last[0] + _BETWEEN_SIGNS_SECONDS:
            last[0] = now
            say(json.dumps({"sign": True}) + "\n")

    say(json.dumps(work(json.loads(line), sign)) + "\n")

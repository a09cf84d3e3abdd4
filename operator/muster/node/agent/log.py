"""Writes the agent's log: one JSON object a line on stderr, one line per decision, like the operator's."""

import json
import sys
import threading
from datetime import UTC, datetime

_lock = threading.Lock()


def log(event: str, **fields: object) -> None:
    """Write one line."""
    line = json.dumps(
        {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event, **fields}, default=str
    )
    with _lock:
        print(line, file=sys.stderr, flush=True)

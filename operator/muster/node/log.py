"""Writes the log of agent and checker: one JSON object a line on stderr, one line per decision, like the operator's."""

from __future__ import annotations

import json
import sys
import threading
from datetime import datetime, timezone

_lock = threading.Lock()


def log(event: str, **fields: object) -> None:
    """Write one line."""
    moment = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    line = json.dumps({"time": moment, "event": event, **fields}, default=str)
    with _lock:
        print(line, file=sys.stderr, flush=True)

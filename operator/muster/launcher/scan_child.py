"""The other end of `scanner.py`: scans a directory and prints what it found as one line of JSON."""

from __future__ import annotations

import json
import sys

from muster.checkpoint.find import Finder


def scan_once(finder: Finder) -> str:
    """`{"checkpoints": [{"step", "path"}], "error": ""}`, newest first."""
    try:
        found = finder.find()
    except (OSError, ValueError) as error:
        return json.dumps({"checkpoints": [], "error": str(error)})
    return json.dumps({"checkpoints": [{"step": c.step, "path": c.path} for c in found], "error": ""})


def scan_on_request(directory: str) -> None:
    """One scan for each line on stdin, until it is closed."""
    finder = Finder(directory)
    for _ in sys.stdin:
        sys.stdout.write(scan_once(finder) + "\n")
        sys.stdout.flush()

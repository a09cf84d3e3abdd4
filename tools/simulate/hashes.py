"""The order of sets is a part of a life, and Python draws it anew for each process."""

import os
import sys


def fix_hashes(module: str) -> None:
    """Go on as the same program with hashes that are the same each time, if they are not: `python -m module`, arguments
    and all."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(sys.executable, [sys.executable, "-m", module, *sys.argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"})

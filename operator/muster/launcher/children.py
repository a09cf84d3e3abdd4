"""How the launcher starts small processes of its own code, for work that may hang: on storage, or in a pattern."""

from __future__ import annotations

import os
import sys
from typing import List

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # the archive, or the source root
_BOOT = "import sys; sys.path.insert(0, sys.argv.pop(1)); from muster.launcher.__main__ import main; main()"


def own_command(*arguments: str) -> List[str]:
    """What runs this launcher's code with these arguments, whatever the user's environment says of Python."""
    return [sys.executable or "python3", "-I", "-S", "-c", _BOOT, ROOT, *arguments]

"""Reads the Python stack that a rank prints upon SIGABRT.

Tests: tests/unit/launcher/test_stacks.py.
"""

from __future__ import annotations

import re
import threading
from typing import List, Optional, Sequence, Tuple

_MAX_FRAMES = 32
_MAX_NAME_CHARS = 160
_MAX_LINE_BYTES = 2048
_THREAD = re.compile(rb"(?:Current thread|Thread) 0x[0-9a-f]{1,16} [^\n]{0,64}\(most recent call first\):")
_FRAME = re.compile(rb'  File "([^"\n]{1,1024})", line ([0-9]{1,9}|\?\?\?) in ([^\n]{1,600})')
# What a path begins with that says nothing: where packages and the standard library lie.
_PACKAGES = re.compile(r"^.*/(?:site-packages|dist-packages|lib/python3\.[0-9]+)/")


class StackReader:
    """Reads what faulthandler prints, line by line, and keeps the stack of the main thread.

    Python prints the newest thread first, and so the main thread last. It prints 100 threads at most: where there are
    more, no stack is known to be the main thread's.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._newest: Optional[List[str]] = None  # the stack that was begun last
        self._is_cut = False

    def feed(self, lines: Sequence[bytes]) -> None:
        """Take in whole lines; called by threads that read a rank's output."""
        with self._lock:
            for line in lines:
                self._read_line(line[:_MAX_LINE_BYTES])

    def _read_line(self, line: bytes) -> None:
        if _THREAD.fullmatch(line) is not None:
            self._newest = []
            return
        if line == b"...":
            self._is_cut = True
        frame = _FRAME.fullmatch(line)
        if frame is not None and self._newest is not None and len(self._newest) < _MAX_FRAMES:
            path, number, name = (group.decode("ascii", "replace").replace("\ufffd", "?") for group in frame.groups())
            shown = _PACKAGES.sub("", path)[-_MAX_NAME_CHARS:]
            self._newest.append("%s:%s in %s" % (shown, number, name[:_MAX_NAME_CHARS]))

    @property
    def frames(self) -> Tuple[str, ...]:
        """The frames of the main thread, innermost first, such as `/code/train.py:88 in main`; empty: not known."""
        with self._lock:
            return () if self._is_cut else tuple(self._newest or ())

    @property
    def problem(self) -> str:
        """Why the frames are not known though something was printed; "" if nothing was."""
        with self._lock:
            if self._is_cut:
                return "it has more than the 100 threads that Python prints"
            return "Python printed no frame of its main thread" if self._newest is not None else ""

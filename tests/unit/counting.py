"""Counted work: what a call costs in executed lines and calls, which is the same on any machine."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any, Self


class CountedWork:
    """Counts lines and calls, of built-in functions too, that this thread executes within its block.

    Work within a built-in function counts as one call, however long it takes.

    Attributes:
        steps: lines and calls so far.
    """

    def __init__(self) -> None:
        self.steps = 0
        self._before: tuple[Any, Any] = (None, None)

    def __enter__(self) -> Self:
        self._before = sys.gettrace(), sys.getprofile()
        sys.setprofile(self._note_call)
        sys.settrace(self._note_line)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before[0])
        sys.setprofile(self._before[1])

    def _note_line(self, _frame: FrameType, _event: str, _argument: object) -> Any:
        self.steps += 1
        return self._note_line

    def _note_call(self, _frame: FrameType, event: str, _argument: object) -> None:
        self.steps += event == "c_call"

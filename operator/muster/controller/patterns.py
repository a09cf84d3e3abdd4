"""Tries the step patterns of users: once each, in a child process with a deadline, and keeps the answer.

A regular expression of 253 characters can take a third of a second to compile, and whatever inspects patterns first has
gaps. While the engine works, no other code of its process runs. So the leader never compiles one: a child does, one
pattern after the other, and it ends itself when a pattern takes too long. The child lasts as long as patterns wait, so
that 500 jobs at the start of a leader share one. Each namespace waits for its own patterns first (`pool`).
"""

import asyncio
import contextlib
import json
import signal
import sys
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

from muster.controller import pattern_child

DEADLINE_SECONDS = 30.0  # by the wall clock: only a child that hardly gets any processor time reaches it
_COMMAND = (sys.executable, "-I", "-S", str(Path(pattern_child.__file__)))
_TOO_SLOW = f"it takes more than {pattern_child.CPU_SECONDS:g} s of processor time to compile; write a simpler one"
_MAX_KEPT = 4096
_TRIES = 2  # a child may be killed for what it has nothing to do with


class PatternUntriedError(Exception):
    """The child ended before it had an answer, and it is not known that the pattern is the cause."""


class StepPatterns:
    """Checks users' step patterns in a child process, and keeps the answers.

    Args:
        command: starts the child.
        deadline_seconds: for one answer.
    """

    def __init__(self, command: Sequence[str] = _COMMAND, deadline_seconds: float = DEADLINE_SECONDS) -> None:
        self._command = command
        self._deadline_seconds = deadline_seconds
        self._kept: OrderedDict[str, str] = OrderedDict()  # the one unused for longest first
        self._turn = asyncio.Lock()
        self._asking = 0
        self._child: asyncio.subprocess.Process | None = None

    async def problem(self, pattern: str) -> str:
        """Why a text is no step pattern; "" = it is one.

        Raises:
            PatternUntriedError: the pattern could not be tried. Nothing is kept: ask again later.
        """
        self._asking += 1
        try:
            async with self._turn:
                if pattern not in self._kept:
                    self._kept[pattern] = await self._try(pattern)
                self._kept.move_to_end(pattern)
                if len(self._kept) > _MAX_KEPT:
                    self._kept.popitem(last=False)
                return self._kept[pattern]
        finally:
            self._asking -= 1
            if not self._asking:
                await self._end_child()

    async def _try(self, pattern: str) -> str:
        for _ in range(_TRIES):
            answer = await self._ask(pattern)
            if answer is not None:
                return answer
        raise PatternUntriedError(f"the process that tries spec.progress.stepPattern was killed {_TRIES} times")

    async def _ask(self, pattern: str) -> str | None:
        """The answer of one child about a pattern; None if the child ended without any."""
        answer: str | None = None
        try:
            async with asyncio.timeout(self._deadline_seconds):
                child = self._child = self._child or await self._start_child()
                assert child.stdin is not None
                assert child.stdout is not None
                with contextlib.suppress(ConnectionError):  # it has ended: its status says why
                    child.stdin.write(json.dumps(pattern).encode() + b"\n")
                    await child.stdin.drain()
                line = await child.stdout.readline()
                if line.endswith(b"\n"):
                    answer = str(json.loads(line))
                elif await child.wait() == -signal.SIGPROF:
                    return _TOO_SLOW
        except OSError:  # it cannot be started, or the deadline is over
            return None
        finally:
            if answer is None:
                await self._end_child()
        return answer

    async def _start_child(self) -> asyncio.subprocess.Process:
        pipe, nowhere = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        return await asyncio.create_subprocess_exec(*self._command, stdin=pipe, stdout=pipe, stderr=nowhere)

    async def _end_child(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            await child.wait()

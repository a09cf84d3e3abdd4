"""`python -m bench.checkers`: events go to standard output, commands come from standard input, a line of JSON each.

`{"forget": true}` begins a new burn-in; `{"tell": true}` prints what was tested since; `{"exchange": n}` has all
checkers speak at the same moment, n times, and prints how long it took until the last was answered.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import signal
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.checkers.checker import Checker
from bench.checkers.journal import Trial, own_seconds, rounds_of
from bench.checkers.probes import Pace, Probes
from bench.launchers.__main__ import GARBAGE_THRESHOLD, emit
from bench.launchers.channel import Endpoint, own_address, save_memory

REST_SECONDS = 1.0  # between two exchanges: polls that follow the last one are over


class Fleet:
    """All checkers, and what they have done since they were last told to forget it.

    Args:
        tokens: a folder with one file for each node: its token.
    """

    def __init__(self, endpoint: Endpoint, tokens: Path, pace: Pace) -> None:
        self._endpoint = endpoint
        self._pace = pace
        self._tokens = {path.name: path.read_text() for path in sorted(tokens.iterdir())}
        self._probes = Probes(pace)
        self._tests: list[Trial] = []
        self._counts: Counter[str] = Counter()
        self._checkers: list[Checker] = []
        self._exchange: asyncio.Task[None] | None = None
        # The probes tell monotonic time; the reader compares it with other processes.
        self._offset = time.time() - time.monotonic()

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for number, (node, token) in enumerate(self._tokens.items()):
                endpoint = replace(self._endpoint, source=own_address(number))
                checker = Checker(
                    node, endpoint.source, endpoint, token, self._probes, self._tests.append, self._counts
                )
                self._checkers.append(checker)
                group.create_task(checker.run())
            emit("running", checkers=len(self._tokens))

    def obey(self, command: dict[str, Any]) -> None:
        """A line of the input."""
        if "forget" in command:
            self._tests.clear()
            self._counts.clear()
            self._probes.late_seconds = 0.0
        elif "tell" in command:
            emit("told", **self._told())
        elif "exchange" in command:
            self._exchange = asyncio.get_running_loop().create_task(self._exchanges(command["exchange"]))

    async def _exchanges(self, times: int) -> None:
        """One word of each checker and its answer, all at once: what a turn costs where nobody has anything to
        decide."""
        seconds = []
        for _ in range(times):
            began = time.monotonic()
            await asyncio.gather(*(checker.speak() for checker in self._checkers))
            seconds.append(round(time.monotonic() - began, 3))
            await asyncio.sleep(REST_SECONDS)
        emit("exchanged", seconds=seconds)

    def _told(self) -> dict[str, Any]:
        rounds = rounds_of(self._tests)
        for row in rounds:
            for name in ("first_began", "last_began", "last_ended"):
                row[name] = round(row[name] + self._offset, 3)
        return {
            "own_seconds": own_seconds(self._tests, self._pace.node_seconds, self._pace.pair_seconds),
            "rounds": rounds,
            "late_seconds": round(self._probes.late_seconds, 3),
            "counts": dict(self._counts),
        }


def main() -> None:
    """Run until a signal."""
    parser = argparse.ArgumentParser(prog="python -m bench.checkers", description=__doc__)
    parser.add_argument("--coordinator", required=True, help="https://host:port of the leader")
    parser.add_argument("--server-name", required=True, help="name in its certificate")
    parser.add_argument("--ca", type=Path, required=True, help="authorities to trust")
    parser.add_argument("--tokens", type=Path, required=True, help="folder with a file for each node")
    parser.add_argument("--node-seconds", type=float, required=True, help="that the probes of one node take")
    parser.add_argument("--pair-seconds", type=float, required=True, help="that an all-reduce takes")
    arguments = parser.parse_args()
    save_memory()
    gc.set_threshold(GARBAGE_THRESHOLD)
    endpoint = Endpoint.of(arguments.coordinator, arguments.server_name, arguments.ca.read_text())
    fleet = Fleet(endpoint, arguments.tokens, Pace(arguments.node_seconds, arguments.pair_seconds))
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(_serve(fleet))


async def _serve(fleet: Fleet) -> None:
    loop, this = asyncio.get_running_loop(), asyncio.current_task()
    assert this is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, this.cancel)
    threading.Thread(target=_read_commands, args=(fleet, loop), name="commands", daemon=True).start()
    await fleet.run()


def _read_commands(fleet: Fleet, loop: asyncio.AbstractEventLoop) -> None:
    with open(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as stream:
        for line in stream:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(fleet.obey, json.loads(line))


if __name__ == "__main__":
    main()

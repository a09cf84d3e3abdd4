"""Reads what the trainer itself logged: the demo's figures never come from Muster's own status."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True)
class Line:
    """One event of one rank; `at` in seconds on the clock of the log's reader."""

    event: str
    attempt: int
    rank: int
    at: float
    step: int | None


class Files(Protocol):
    """A run's folder on the shared volume."""

    @property
    def clock(self) -> str:
        """The key of the time in each line."""

    @property
    def pause_seconds(self) -> float:
        """How long to wait between two looks."""

    def now(self) -> float:
        """The time on the clock that all lines are compared by."""

    def logs(self) -> str:
        """All lines of all ranks and attempts."""

    def result(self) -> str:
        """What the first rank wrote at the end."""


@dataclass(frozen=True)
class HostFiles:
    """The folder as the host sees it; the nodes share the host's kernel and so its CLOCK_MONOTONIC."""

    folder: Path
    clock: str = "monotonic_seconds"
    pause_seconds: float = 0.1

    def now(self) -> float:
        return time.monotonic()

    def logs(self) -> str:
        return "".join(path.read_text(encoding="utf-8") for path in sorted((self.folder / "log").glob("*.jsonl")))

    def result(self) -> str:
        return (self.folder / "result.json").read_text(encoding="utf-8")


@dataclass(frozen=True)
class PodFiles:
    """The folder as a pod sees it, on a cluster of somebody else's; the nodes have only the time of day in common."""

    execute: Callable[[str], str]
    folder: str
    clock: str = "wall_seconds"
    pause_seconds: float = 1.0

    def now(self) -> float:
        return time.time()

    def logs(self) -> str:
        return self.execute(
            f"import glob; print(''.join(open(p).read() for p in sorted(glob.glob('{self.folder}/log/*.jsonl'))), "
            "end='')"
        )

    def result(self) -> str:
        return self.execute(f"print(open('{self.folder}/result.json').read())")


class TrainerLog:
    """All lines of all ranks and attempts, read anew on each call."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def now(self) -> float:
        """The time on the clock of `Line.at`."""
        return self._files.now()

    @property
    def pause_seconds(self) -> float:
        """How long to wait between two looks."""
        return self._files.pause_seconds

    def lines(self) -> list[Line]:
        """What is there now; a line that is being written is left out."""
        whole = [text for text in self._files.logs().splitlines(keepends=True) if text.endswith("}\n")]
        found = map(json.loads, whole)
        return [
            Line(raw["event"], raw["attempt"], raw["rank"], raw[self._files.clock], raw.get("step")) for raw in found
        ]

    def result(self) -> dict[str, Any]:
        """What the first rank wrote at the end."""
        answer: dict[str, Any] = json.loads(self._files.result())
        return answer


def newest_step(lines: Iterable[Line]) -> int:
    """The highest step that any rank of the newest attempt has finished; 0 before the first."""
    seen = [line for line in lines if line.event == "step" and line.step is not None]
    newest = max((line.attempt for line in seen), default=0)
    return max((line.step or 0 for line in seen if line.attempt == newest), default=0)


def newest_checkpoint(lines: Iterable[Line]) -> int:
    """The step of the newest checkpoint that the trainer has finished writing; 0 before the first."""
    return max((line.step or 0 for line in lines if line.event == "checkpoint"), default=0)


def stepped_attempt(lines: list[Line], after: int, ranks: int) -> int | None:
    """The first attempt beyond `after` in which every rank has finished a step."""
    for attempt in sorted({line.attempt for line in lines if line.attempt > after}):
        if len({line.rank for line in lines if line.attempt == attempt and line.event == "step"}) == ranks:
            return attempt
    return None


def last_first(lines: Iterable[Line], attempt: int, event: str) -> float:
    """When the slowest rank of an attempt had its first event of this kind."""
    first: dict[int, float] = {}
    for line in lines:
        if line.attempt == attempt and line.event == event:
            first[line.rank] = min(first.get(line.rank, line.at), line.at)
    return max(first.values())


def resumed_step(lines: Iterable[Line], attempt: int) -> int:
    """The step that an attempt resumed from; 0 when it began from scratch."""
    return max((line.step or 0 for line in lines if line.attempt == attempt and line.event == "resumed"), default=0)

"""Reads what the trainer itself logged: the demo's figures never come from Muster's own status."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Line:
    """One event of one rank; `at` is CLOCK_MONOTONIC in seconds, one clock for all nodes of the local cluster."""

    event: str
    attempt: int
    rank: int
    at: float
    step: int | None


class TrainerLog:
    """All lines of all ranks and attempts, read anew on each call."""

    def __init__(self, run_folder: Path) -> None:
        self._run_folder = run_folder

    def lines(self) -> list[Line]:
        """What is there now; a line that is being written is left out."""
        found = []
        for path in sorted((self._run_folder / "log").glob("*.jsonl")):
            for text in path.read_text(encoding="utf-8").splitlines(keepends=True):
                if text.endswith("\n"):
                    raw = json.loads(text)
                    found.append(
                        Line(raw["event"], raw["attempt"], raw["rank"], raw["monotonic_seconds"], raw.get("step"))
                    )
        return found

    def result(self) -> dict[str, object]:
        """What the first rank wrote at the end."""
        answer: dict[str, object] = json.loads((self._run_folder / "result.json").read_text(encoding="utf-8"))
        return answer


def newest_step(lines: Iterable[Line], until: float = float("inf")) -> int:
    """The highest step that any rank of the newest attempt had finished by then; 0 before the first."""
    seen = [line for line in lines if line.event == "step" and line.step is not None and line.at <= until]
    newest = max((line.attempt for line in seen), default=0)
    return max((line.step or 0 for line in seen if line.attempt == newest), default=0)


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

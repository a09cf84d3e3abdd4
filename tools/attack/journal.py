"""What the trainers themselves wrote down: every start, step and save, with one clock, that of the machine."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from testbed.bed import ROOT

# A job that was deleted and created anew under its name begins with attempt 1 again: here with 1001, then 2001.
GENERATION = 1000
TRAINER = ROOT / "tests" / "e2e" / "trainers" / "steps.py"


@dataclass(frozen=True)
class Line:
    """One event of one rank.

    Attributes:
        attempt: of a job that has replaced one of its name, GENERATION more than that one's.
        event: "start", "resumed", "ready", "step", "checkpoint" (after it was published), "orphan", "done", ...
        at: seconds on the machine's monotonic clock, taken before the line was written.
        weights: of "step" and "done".
    """

    event: str
    attempt: int
    rank: int
    at: float
    step: int = 0
    node: str = ""
    weights: str = ""


def read(folder: Path) -> list[Line]:
    """All lines of one job, in the order of their times; what a rank was writing when it was killed is left out."""
    texts = [text for path in folder.glob("log-*.jsonl") for text in path.read_text().splitlines(keepends=True)]
    raws = sorted((json.loads(text) for text in texts if text.endswith("}\n")), key=lambda raw: raw["monotonic"])
    generations: dict[str, int] = {}  # by what the names of a job's pods begin with
    found: list[Line] = []
    for raw in raws:
        generation = generations.setdefault(raw["host"].rsplit("-", 2)[0], len(generations))
        found.append(
            Line(
                event=raw["event"],
                attempt=generation * GENERATION + raw["attempt"],
                rank=raw["rank"],
                at=raw["monotonic"],
                step=raw.get("step", 0),
                node=raw.get("node", ""),
                weights=raw.get("weights", raw.get("weights_sha256", "")),
            )
        )
    return found


def newest_step(lines: Iterable[Line]) -> int:
    """Of the attempt that stepped last; 0 before the first."""
    return max(((line.attempt, line.step) for line in lines if line.event == "step"), default=(0, 0))[1]


def newest_checkpoint(lines: Iterable[Line]) -> int:
    """0 before the first."""
    return max((line.step for line in lines if line.event == "checkpoint"), default=0)


def training(lines: Iterable[Line], ranks: int) -> int:
    """The newest attempt, once all its ranks have finished a step; else 0."""
    stepped: dict[int, set[int]] = {}
    newest = 0
    for line in lines:
        newest = max(newest, line.attempt)
        if line.event == "step":
            stepped.setdefault(line.attempt, set()).add(line.rank)
    return newest if len(stepped.get(newest, ())) == ranks else 0


def reference(ranks: int, steps: int) -> list[str]:
    """The weights after each step of an undisturbed run, from the trainer's own arithmetic; [0] is before the first."""
    trainer = _trainer()
    weights = [str(trainer.INITIAL_WEIGHTS)]
    for step in range(1, steps + 1):
        total = sum(trainer.gradient(step, rank) for rank in range(ranks))
        weights.append(trainer.updated(weights[-1], total))
    return weights


def _trainer() -> ModuleType:
    specification = importlib.util.spec_from_file_location("steps", TRAINER)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module

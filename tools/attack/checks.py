"""What must have held, by the journals alone: nothing that Muster says of itself is believed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from attack.journal import GENERATION, Line

# What was frozen may do this long what it was about to do: its launcher wakes with it, sees that it has been replaced,
# and ends it. Whatever it publishes then is a violation all the same.
WAKING_SECONDS = 1.0
# What a job has published that was deleted counts for its successor if it was there this long before that one's start:
# what ends meanwhile may go on to its end.
SETTLED_SECONDS = 5.0
# What only the ranks of the newest attempt may do. A rank that was frozen may still say that it lost its peers.
_DEEDS = ("step", "checkpoint", "orphan", "resumed", "done")


@dataclass(frozen=True)
class Violation:
    """Something that must never be has been.

    Attributes:
        at: when, on the machine's monotonic clock.
    """

    rule: str
    text: str
    at: float


@dataclass(frozen=True)
class Removal:
    """Somebody has taken a checkpoint away, at this time."""

    step: int
    at: float


@dataclass(frozen=True)
class Thaw:
    """Something on a node runs again that was frozen, from this time on."""

    node: str
    at: float


def check_job(
    job: str,
    lines: Sequence[Line],
    weights: Sequence[str],
    removals: Iterable[Removal] = (),
    thaws: Iterable[Thaw] = (),
) -> list[Violation]:
    """All rules about one job; `weights`: those of the undisturbed run, by step.

    One that has replaced another of its name is another job: the ranks of the first may end while its own begin.
    """
    found = [*_right_values(lines, weights), *_nothing_lost(lines, list(removals))]
    for generation in {_generation(line.attempt) for line in lines}:
        own = [line for line in lines if _generation(line.attempt) == generation]
        found += [*_attempts_grow(own), *_one_attempt_at_a_time(own, list(thaws))]
    return [Violation(it.rule, f"{job}: {it.text}", it.at) for it in found]


def _generation(attempt: int) -> int:
    return attempt // GENERATION


def _first_starts(lines: Iterable[Line]) -> dict[int, float]:
    started: dict[int, float] = {}
    for line in lines:
        if line.event == "start":
            started[line.attempt] = min(line.at, started.get(line.attempt, line.at))
    return started


def _attempts_grow(lines: Iterable[Line]) -> list[Violation]:
    found: list[Violation] = []
    seen: set[tuple[int, int]] = set()
    newest = 0
    for line in lines:
        if line.event != "start":
            continue
        if line.attempt < newest:
            text = f"rank {line.rank} of attempt {line.attempt} starts on {line.node} after attempt {newest} has"
            found.append(Violation("attempts grow", text, line.at))
        if (line.attempt, line.rank) in seen:
            text = f"rank {line.rank} of attempt {line.attempt} starts a second time, on {line.node}"
            found.append(Violation("a rank starts once in an attempt", text, line.at))
        newest = max(newest, line.attempt)
        seen.add((line.attempt, line.rank))
    return found


def _one_attempt_at_a_time(lines: Sequence[Line], thaws: list[Thaw]) -> list[Violation]:
    found: list[Violation] = []
    nodes = {(line.attempt, line.rank): line.node for line in lines if line.event == "start"}

    def wakes(line: Line) -> bool:
        node = nodes.get((line.attempt, line.rank))
        return line.event != "checkpoint" and any(
            thaw.node == node and 0 <= line.at - thaw.at <= WAKING_SECONDS for thaw in thaws
        )

    newest, since, told = 0, 0.0, set()
    for line in lines:
        if line.event == "start" and line.attempt > newest:
            newest, since = line.attempt, line.at
        key = (line.attempt, line.rank, line.event)
        if line.event in _DEEDS and line.attempt < newest and key not in told and not wakes(line):
            told.add(key)
            text = (
                f"rank {line.rank} of attempt {line.attempt} has done this: {line.event} {line.step}, "
                f"{line.at - since:.3f} s after attempt {newest} started"
            )
            found.append(Violation("ranks of one attempt only do anything", text, line.at))
    return found


def _right_values(lines: Iterable[Line], weights: Sequence[str]) -> list[Violation]:
    found: list[Violation] = []
    last: dict[tuple[int, int], int] = {}
    for line in lines:
        who = f"rank {line.rank} of attempt {line.attempt}"
        key = (line.attempt, line.rank)
        if line.event in ("step", "done") and line.weights != weights[line.step]:
            found.append(Violation("every value is right", f"{who} has wrong weights at step {line.step}", line.at))
        if line.event == "step" and line.step != last.get(key, line.step - 1) + 1:
            text = f"{who} makes step {line.step} after {last[key]}"
            found.append(Violation("steps follow each other", text, line.at))
        if line.event in ("ready", "step"):
            last[key] = line.step
    return found


def _nothing_lost(lines: Sequence[Line], removals: list[Removal]) -> list[Violation]:
    found: list[Violation] = []
    resumed: dict[int, int] = defaultdict(int)
    for line in lines:
        if line.event == "ready":
            resumed[line.attempt] = max(resumed[line.attempt], line.step)
    for attempt, at in _first_starts(lines).items():
        published = [
            line
            for line in lines
            if line.event == "checkpoint"
            and line.at < at - (0.0 if _generation(line.attempt) == _generation(attempt) else SETTLED_SECONDS)
        ]
        there = [
            line.step
            for line in published
            if not any(gone.step == line.step and line.at < gone.at < at for gone in removals)
        ]
        newest = max(there, default=0)
        if attempt in resumed and resumed[attempt] < newest:
            text = f"attempt {attempt} goes on from step {resumed[attempt]}, and there is a checkpoint of step {newest}"
            found.append(Violation("never behind the newest complete checkpoint", text, at))
    return found


def check_nodes(jobs: Mapping[str, Sequence[Line]]) -> list[Violation]:
    """No node runs ranks of two jobs at once."""
    spans: dict[str, list[tuple[float, float, str, str]]] = defaultdict(list)
    for job, lines in jobs.items():
        node_of: dict[tuple[int, int], str] = {}
        begun: dict[tuple[int, int], float] = {}
        ended: dict[tuple[int, int], float] = {}
        for line in lines:
            key = (line.attempt, line.rank)
            if line.event == "start":
                node_of[key], begun[key] = line.node, line.at
            ended[key] = line.at
        for key, node in node_of.items():
            whose = f"{job} {_generation(key[0])}"
            spans[node].append((begun[key], ended[key], whose, f"rank {key[1]} of attempt {key[0]} of {job}"))
    found: list[Violation] = []
    for node, those in spans.items():
        those.sort()
        for (_, end, its_job, one), (start, _, others_job, other) in combinations(those, 2):
            if start < end and its_job != others_job:
                text = f"{other} starts on {node}, where {one} is alive"
                found.append(Violation("a node is given to one job", text, start))
    return found

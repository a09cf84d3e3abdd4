"""Plays a life from its seed: trouble, then a quiet time in which everything has to come to its end."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from muster.simulate.checks import ViolationError
from muster.simulate.faults import FOR_EVER, Fault, Undo, begin, draw
from muster.simulate.life import Life
from muster.simulate.training import Script

JOBS = {"a": 3, "b": 2, "plain": 2}
RECOVERY = {"applicationRestartsPerDay": 100, "hardwareRestartsPerDay": 100}
SPECS: dict[str, dict[str, Any]] = {
    "a": {"progress": {"stepTimeoutSeconds": 60, "startTimeoutSeconds": 120}},
    "b": {"progress": {"stepTimeoutSeconds": 60, "startTimeoutSeconds": 120}},
    "plain": {"launch": {"mode": "Plain"}, "checkpoint": {}},
}
NODES = 8
# Beyond the exclusion of nodes after a failure there, the longest back-off, and a second try after either.
QUIET_SECONDS = 7200.0


@dataclass
class Story:
    """What makes a life: everything else follows.

    Attributes:
        sparse: few faults with long pauses, so that long timers ripen.
    """

    seed: int
    faults: list[Fault]
    sparse: bool = False


@dataclass
class Outcome:
    """What has become of it.

    Attributes:
        cells: (phase of the job at that time, kind of fault) -> how often they met.
    """

    story: Story
    seconds: float = 0.0
    events: int = 0
    violation: str = ""
    tail: list[str] = field(default_factory=list)
    cells: Counter[tuple[str, str]] = field(default_factory=Counter)
    checks: Counter[str] = field(default_factory=Counter)


def story(seed: int) -> Story:
    """A life at random."""
    chance = random.Random(seed)
    sparse = chance.random() < 0.5
    mean = 200.0 if sparse else 8.0
    length = 3000.0 if sparse else 400.0
    found: list[Fault] = []
    at = 0.0
    while True:
        at += chance.expovariate(1.0 / mean)
        if at >= length:
            return Story(seed, found, sparse)
        found.append(draw(chance, at, list(JOBS)))
        if chance.random() < 0.3:  # another one with it, or a moment later
            found.append(draw(chance, at + chance.choice((0.0, 0.0, 0.05, 0.5, 2.0)), list(JOBS)))


def play(told: Story) -> Outcome:
    """Play it to its end."""
    life, outcome = Life(told.seed, NODES), Outcome(told)
    try:
        _play(life, told, outcome)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what this life has shown
        outcome.violation = str(error) if isinstance(error, ViolationError) else f"{type(error).__name__}: {error}"
        outcome.tail = life.journal.lines()
    outcome.seconds, outcome.events = life.age_seconds, life.agenda.events
    outcome.checks = life.checks.made
    life.close()
    return outcome


def _play(life: Life, told: Story, outcome: Outcome) -> None:
    last = max((fault.at for fault in told.faults), default=0.0)
    for name, nodes in JOBS.items():
        script = Script(total_steps=40 + int(last / 4), step_seconds=3.0 if told.sparse else 1.5)
        life.submit(name, nodes, script, recovery=RECOVERY, **SPECS[name])
    undos: list[Undo] = []
    for fault in sorted(told.faults, key=lambda fault: fault.at):
        life.run(max(0.0, fault.at - life.age_seconds))
        outcome.cells[life.state_of(fault.job) if fault.job else life.state_of("a"), fault.kind] += 1
        life.journal.note("FAULT", f"{fault}")
        undo = begin(life, fault)
        if undo is not None and fault.seconds < FOR_EVER:
            life.agenda.after(fault.seconds, undo)
        elif undo is not None:
            undos.append(undo)
    life.run(30.0)
    life.journal.note("QUIET", "from here on nothing happens any more, and what was broken is mended")
    for undo in undos:
        undo()
    life.calm_down()
    if not life.run_until(lambda: all(life.state_of(name) == "Succeeded" for name in JOBS), QUIET_SECONDS):
        states = {name: _status(life, name) for name in JOBS}
        raise ViolationError(f"after {QUIET_SECONDS:.0f} quiet seconds not every job has ended: {states}")


def _status(life: Life, name: str) -> str:
    status = life.job(name).get("status") or {}
    conditions: Sequence[dict[str, str]] = status.get("conditions") or ()
    return f"{status.get('state')}: {status.get('reason')} {[c.get('message') for c in conditions][:1]}"

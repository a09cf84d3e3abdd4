"""Plays a life from its seed: trouble, then a quiet time in which everything has to come to its end."""

import functools
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from muster.recovery.budgets import OWN_DOING
from muster.simulate.checks import ViolationError
from muster.simulate.faults import FOR_EVER, FOR_GOOD, KINDS, THEMES, Fault, Undo, begin, draw, draw_for_good
from muster.simulate.jobs import DAYS
from muster.simulate.life import Life

# Beyond the exclusion of nodes after a failure there, the longest back-off, and a second try after either.
QUIET_SECONDS = 7200.0
PERSON_SECONDS = 300.0
SLOW_STARTS = 0.25
# How many times as often as usual something goes wrong in a dense life, and how many times sooner it is over.
HURRIES = (1.0, 3.0, 10.0)
AIMED = 0.5  # share of the faults of nodes that hit those of a job
ENDS = ("Succeeded", "Failed")


@dataclass
class Story:
    """What makes a life: everything else follows.

    Attributes:
        sparse: few faults with long pauses, so that long timers ripen.
        day: which jobs there are, see `muster.simulate.jobs.DAYS`.
    """

    seed: int
    faults: list[Fault]
    sparse: bool = False
    day: str = "Three"


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
    sparse, day = chance.random() < 0.5, chance.choice(list(DAYS))
    # Where everything breaks at once nothing ever gets far: most lives have a few kinds of trouble, and time between.
    if chance.random() < 0.5:
        kinds = list(THEMES[chance.choice(list(THEMES))])
    else:
        kinds = chance.sample(list(KINDS), chance.choice((2, 4, 8, 16, len(KINDS))))
    mean = chance.choice((100.0, 200.0) if sparse else (5.0, 10.0, 20.0))
    length = 3000.0 if sparse else 400.0
    hurry = 1.0 if sparse else chance.choice(HURRIES)
    found: list[Fault] = []
    if chance.random() < 0.3:
        found.append(draw_for_good(chance, chance.uniform(0.0, length)))
    jobs: list[str] = list(DAYS[day].jobs)
    at = 0.0
    while True:
        at += chance.expovariate(hurry / mean)
        if at >= length:
            return Story(seed, [_hurried(fault, hurry) for fault in found], sparse, day)
        found.append(draw(chance, at, jobs, kinds, AIMED))
        while chance.random() < 0.3:  # another one with it, or a moment later, often where it hurts already
            same = [found[-1].job] if found[-1].job and chance.random() < 0.7 else jobs
            found.append(draw(chance, at + chance.choice((0.0, 0.0, 0.05, 0.5, 2.0, 10.0)), same, kinds, AIMED))


def _hurried(fault: Fault, hurry: float) -> Fault:
    """The same, over sooner."""
    return fault if fault.seconds >= FOR_EVER else replace(fault, seconds=round(fault.seconds / hurry, 2))


def play(told: Story) -> Outcome:
    """Play it to its end."""
    life, outcome = Life(told.seed, DAYS[told.day].nodes), Outcome(told)
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
    jobs, limit = DAYS[told.day].jobs, DAYS[told.day].limit
    life.slow_starts = SLOW_STARTS
    if limit is not None:
        life.limit(limit)
        life.checks.watch_limit(limit)
    for name, plan in jobs.items():
        life.submit(name, plan.nodes, plan.script(last, told.sparse), has_sidecar=plan.has_sidecar, **plan.spec)
    undos: list[Undo] = []
    broken: dict[str, Fault] = {}
    for fault in sorted(told.faults, key=lambda fault: fault.at):
        life.run(max(0.0, fault.at - life.age_seconds))
        outcome.cells[life.state_of(fault.job) if fault.job else life.state_of("a"), fault.kind] += 1
        life.journal.note("FAULT", f"{fault}")
        if KINDS[fault.kind].spares_training:
            life.checks.excuse(fault.seconds)
        undo = begin(life, fault)
        if undo is not None and fault.seconds < FOR_EVER:
            life.agenda.after(fault.seconds, undo)
        elif undo is not None and fault.seconds < FOR_GOOD:
            undos.append(undo)
        elif undo is not None:
            broken[list(life.machines)[fault.number % len(life.machines)]] = fault
    life.run(30.0)
    life.journal.note("QUIET", "from here on nothing happens any more, and what was broken is mended")
    for undo in undos:
        undo()
    life.calm_down(besides=broken)
    if limit is not None:
        life.checks.watch_limit(limit)  # whatever was an excuse is none any more
    for node, fault in broken.items():
        begin(life, fault)  # what is cut is cut from all that are there now
        if fault.kind != "CutFromOperator":  # which nobody but Muster sees
            life.agenda.after(PERSON_SECONDS, functools.partial(_give_up, life, node))
    if not life.run_until(lambda: all(life.state_of(name) in ENDS for name in jobs), QUIET_SECONDS):
        states = {name: _status(life, name) for name in jobs}
        raise ViolationError(f"after {QUIET_SECONDS:.0f} quiet seconds not every job has ended: {states}")
    for name, plan in jobs.items():
        if plan.forgets and life.trainer_of(name).has_forgotten and not life.was_told(name, "ResumedBehind"):
            raise ViolationError(f"a trainer that does not go on from its checkpoint is told: {name}")
        if plan.is_sound and all(KINDS[fault.kind].spares_program for fault in told.faults):
            _nobody_is_charged(life, name)
        if plan.is_sound and all(_spares(fault, name) for fault in told.faults):
            _trains_on(life, name)
        if life.state_of(name) != plan.ends:
            raise ViolationError(f"a job does not end as it should: {name} is to be {plan.ends}: {_status(life, name)}")


def _nobody_is_charged(life: Life, name: str) -> None:
    """A job pays from the budget of its program for nothing else."""
    uid = life.job(name)["metadata"]["uid"]
    for gang in life.server.all("gangs"):
        if gang["spec"]["jobUid"] == uid:
            charged = [it for it in gang["spec"].get("incidents", ()) if it["faultClass"] in OWN_DOING]
            if charged:
                raise ViolationError(f"a program is charged for what it has not done: {name}: {charged}")


def _spares(fault: Fault, job: str) -> bool:
    """Whether a job trains on whatever else this does: what is another job's is no concern of its."""
    return KINDS[fault.kind].spares_training or fault.job not in ("", job)


def _trains_on(life: Life, name: str) -> None:
    """Neither the operator's trouble nor a neighbour's ends an attempt."""
    attempt = life.attempt_of(life.job(name)["metadata"]["uid"])
    if attempt > 1:
        raise ViolationError(f"whom no trouble concerns trains on: {name} has come to attempt {attempt}")


def _give_up(life: Life, node: str) -> None:
    """A person pulls the plug of a machine, and says so once Kubernetes has seen it."""
    life.machines[node].cut_power()
    life.agenda.after(PERSON_SECONDS, lambda: life.say_lost(node))


def _status(life: Life, name: str) -> str:
    status = life.job(name).get("status") or {}
    conditions: Sequence[dict[str, str]] = status.get("conditions") or ()
    return f"{status.get('state')}: {status.get('reason')} {[c.get('message') for c in conditions][:1]}"

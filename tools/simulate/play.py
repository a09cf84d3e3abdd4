"""Plays a life from its seed: trouble, then a quiet time in which everything has to come to its end."""

import functools
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from simulate.fault import FOR_EVER, FOR_GOOD, Fault, MissedError, Undo
from simulate.faults import KINDS, THEMES, begin, draw, draw_for_good
from simulate.jobs import BACKFILLED, CONTENDED_DAYS, DAYS, LEAST_OFTEN, OUTRANKED, PREEMPTED, QUIETER, Day, JobPlan
from simulate.life import Life
from simulate.surroundings import key_of
from simulate.violation import ViolationError

# Beyond the exclusion of nodes after a failure there, the longest back-off, and a second try after either.
QUIET_SECONDS = 7200.0
PERSON_SECONDS = 300.0
# What has lasted until the quiet is repaired one thing after the other, with time between.
MENDING_SECONDS = (0.0, 0.0, 1.0, 10.0, 60.0)
AT_ONCE = 0.5  # share of the lives in which all is repaired at one moment
# Of the dense lives. The simulated time of contended lives takes two to three times as long as that of others.
CONTENDED_SHARE = 1 / 3
CONTENDED_SHARE_WHERE_SPARSE = 1 / 6
PREEMPTED_SHARE = 1 / 3  # of the contended lives
OUTRANKED_SHARE = 1 / 6
BACKFILLED_SHARE = 1 / 4
LARGE, LARGE_WHERE_SPARSE = 1 / 2, 3 / 4  # share of the lives that are a part of a large fleet
SLOW_STARTS = 0.25
# How many times sooner than usual what goes wrong in a dense life is over, and the seconds from one such thing to the
# next.
HURRIES = ((1.0, 5.0), (3.0, 2.0), (3.0, 4.0), (10.0, 1.0), (10.0, 2.0))
DENSE_SECONDS = (800.0, 3200.0)
SPARSE_SECONDS = 3000.0
SPARSE_MEANS = (25.0, 50.0, 100.0, 200.0)
AIMED = 0.5  # share of the faults of nodes that hit those of a job
ENDS = ("Succeeded", "Failed")
SPENT = ("ApplicationRestartsExhausted", "HardwareRestartsExhausted")


@dataclass
class Story:
    """What makes a life: everything else follows.

    Attributes:
        sparse: few faults with long pauses, so that long timers ripen.
        day: which jobs there are, see `simulate.jobs.DAYS`.
        large: this is a part of a large fleet, see `Life.is_large`.
        lasts: jobs train until the trouble is over, where not for a number of steps: there is always something to hit.
        until: seconds of the life after which it has shown what it is kept for, and ends; 0: it goes on to its end.
    """

    seed: int
    faults: list[Fault]
    sparse: bool = False
    day: str = "Three"
    large: bool = False
    lasts: bool = False
    until: float = 0.0


@dataclass
class Outcome:
    """What has become of it.

    Attributes:
        cells: (phase of the job at that time, kind of fault) -> how often they met: of faults that had something to
            hit.
    """

    story: Story
    seconds: float = 0.0
    events: int = 0
    violation: str = ""
    tail: list[str] = field(default_factory=list)
    cells: Counter[tuple[str, str]] = field(default_factory=Counter)
    checks: Counter[str] = field(default_factory=Counter)

    @property
    def faults(self) -> int:
        """How many had something to hit."""
        return self.cells.total()


def story(seed: int) -> Story:
    """A life at random."""
    chance = random.Random(seed)
    sparse = chance.random() < 0.5
    is_contended = chance.random() < (CONTENDED_SHARE_WHERE_SPARSE if sparse else CONTENDED_SHARE)
    day = chance.choice(CONTENDED_DAYS if is_contended else QUIETER)
    if is_contended and random.Random(f"preempted {seed}").random() < PREEMPTED_SHARE:  # other lives stay what they are
        day = PREEMPTED
    if is_contended and random.Random(f"outranked {seed}").random() < OUTRANKED_SHARE:
        day = OUTRANKED
    if is_contended and random.Random(f"backfilled {seed}").random() < BACKFILLED_SHARE:
        day = BACKFILLED
    large = chance.random() < (LARGE_WHERE_SPARSE if sparse else LARGE)
    # Where everything breaks at once nothing ever gets far: most lives have a few kinds of trouble, and time between.
    if chance.random() < 0.5:
        kinds = list(THEMES[chance.choice(list(THEMES))])
    else:
        kinds = chance.sample(list(KINDS), chance.choice((2, 4, 8, 16, len(KINDS))))
    hurry, mean = (1.0, chance.choice(SPARSE_MEANS)) if sparse else chance.choice(HURRIES)
    length = SPARSE_SECONDS if sparse else chance.choice(DENSE_SECONDS)
    found: list[Fault] = []
    if chance.random() < 0.3:
        found.append(draw_for_good(chance, chance.uniform(0.0, length)))
    jobs: list[str] = list(DAYS[day].jobs)
    at = 0.0
    while True:
        at += chance.expovariate(1.0 / mean)
        if at >= length:
            return Story(seed, [_hurried(fault, hurry) for fault in found], sparse, day, large, lasts=True)
        found.append(draw(chance, at, jobs, kinds, AIMED))
        while chance.random() < 0.3:  # another one with it, or a moment later, often where it hurts already
            same = [found[-1].job] if found[-1].job and chance.random() < 0.7 else jobs
            found.append(draw(chance, at + chance.choice((0.0, 0.0, 0.05, 0.5, 2.0, 10.0)), same, kinds, AIMED))


def _hurried(fault: Fault, hurry: float) -> Fault:
    """The same, over sooner."""
    return fault if fault.seconds >= FOR_EVER else replace(fault, seconds=round(fault.seconds / hurry, 2))


def play(told: Story) -> Outcome:
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
    last, day = max((fault.at for fault in told.faults), default=0.0), DAYS[told.day]
    life.slow_starts, life.is_large = SLOW_STARTS, told.large
    _open(life, told, day, last)
    undos: list[tuple[Fault, Undo]] = []
    broken: dict[str, Fault] = {}
    for fault in sorted(told.faults, key=lambda fault: fault.at):
        life.run(max(0.0, fault.at - life.age_seconds))
        state = life.state_of(fault.job or "a")
        life.journal.note("FAULT", f"{fault}")
        if KINDS[fault.kind].spares_training:
            life.checks.excuse(fault.seconds + KINDS[fault.kind].lingers_seconds)
        try:
            undo = begin(life, fault)
        except MissedError:
            continue
        outcome.cells[state, fault.kind] += 1
        life.checks.trail.fault(fault, KINDS[fault.kind])
        if undo is not None and fault.seconds < FOR_EVER:
            life.agenda.after(fault.seconds, undo)
        elif undo is not None and fault.seconds < FOR_GOOD:
            undos.append((fault, undo))
        elif undo is not None:
            broken[list(life.machines)[fault.number % len(life.machines)]] = fault
    life.run(30.0)
    life.journal.note("QUIET", "from here on nothing happens any more, and what was broken is repaired")
    _repair(life, told, undos)
    life.calm_down(besides=broken)
    life.checks.calm()
    life.checks.watch_limits(day.limits)  # whatever was an excuse is none any more
    for node, fault in broken.items():
        with suppress(MissedError):
            begin(life, fault)  # what is cut is cut from all that are there now
        if fault.kind != "CutFromOperator":  # which nobody but Muster sees
            life.agenda.after(PERSON_SECONDS, functools.partial(_give_up, life, node))
    _submit(life, told, day.late, last)
    jobs = {name: plan for name, plan in {**day.jobs, **day.late}.items() if plan.ends}

    def have_ended() -> bool:
        return all(life.state_of(name) in ENDS for name in jobs)

    if told.until and not life.run_until(have_ended, max(0.0, told.until - life.age_seconds)):
        return
    if not life.run_until(have_ended, QUIET_SECONDS):
        states = {name: _status(life, name) for name in jobs}
        raise ViolationError(f"after {QUIET_SECONDS:.0f} quiet seconds not every job has ended: {states}")
    for name, plan in jobs.items():
        if plan.forgets and life.trainer_of(name).has_forgotten and not life.was_reported(name, "ResumedBehind"):
            raise ViolationError(f"a trainer that does not go on from its checkpoint is told: {name}")
        if (
            plan.is_sound
            and not plan.gives_way
            and not day.preempting
            and all(_spares(fault, name) for fault in told.faults)
        ):
            _trains_on(life, name)  # says more than that what has ended its attempt is charged for nothing
        if plan.is_sound:
            life.checks.trail.judge(name)
        if life.state_of(name) != plan.ends and not _may_fail(life, name, plan):
            raise ViolationError(f"a job does not end as it should: {name} is to be {plan.ends}: {_status(life, name)}")


def _open(life: Life, told: Story, day: Day, trouble_seconds: float) -> None:
    """What administrators and users have to say: now, or in a moment."""
    life.govern(day.limits, day.counted, day.preempting)
    for name, value in day.classes.items():
        life.add_priority(name, value)
    priorities = {key_of(name): day.priority_of(plan) for name, plan in {**day.jobs, **day.late}.items()}
    life.checks.waits.begin(priorities.__getitem__, day.limits)
    life.checks.watch_limits(day.limits)
    _submit(life, told, day.jobs, trouble_seconds)


def _submit(life: Life, told: Story, jobs: Mapping[str, JobPlan], trouble_seconds: float) -> None:
    """Users submit jobs: now, or in a moment."""
    for name, plan in jobs.items():
        script = plan.script(trouble_seconds, sparse=told.sparse, lasts=told.lasts)
        submit = functools.partial(
            life.submit,
            name,
            plan.nodes,
            script,
            has_sidecar=plan.has_sidecar,
            image=plan.image,
            priority_class=plan.priority_class,
            **plan.spec_of(script),
        )
        if plan.comes_at:
            life.agenda.after(plan.comes_at, submit)
        else:
            submit()
        if plan.preemptible_at is not None:
            preemptible = {"queueing": {"preemptible": True}}
            life.agenda.after(plan.comes_at + plan.preemptible_at, functools.partial(life.edit, name, preemptible))


def _repair(life: Life, told: Story, undos: list[tuple[Fault, Undo]]) -> None:
    """All at one moment, or one after the other as people come to it."""
    chance = random.Random(f"mend {told.seed}")
    at_once = chance.random() < AT_ONCE
    if not at_once:
        chance.shuffle(undos)
    for fault, undo in undos:
        if not at_once:
            life.run(chance.choice(MENDING_SECONDS))
        undo()
        life.checks.trail.repaired(fault)


def _may_fail(life: Life, name: str, plan: JobPlan) -> bool:
    """Whether a job was started so often that it had no restart left: dense lives that are long have more faults than
    these."""
    status = life.job(name).get("status") or {}
    return status.get("reason") in SPENT and (not plan.is_often or int(status.get("attempt", 0)) > LEAST_OFTEN)


def _spares(fault: Fault, job: str) -> bool:
    """Whether a job trains on whatever else this does: what is another job's is no concern of its."""
    return KINDS[fault.kind].spares_training or fault.job not in ("", job)


def _trains_on(life: Life, name: str) -> None:
    """Neither the operator's trouble nor a neighbour's ends an attempt."""
    attempt = life.attempt_of(life.job(name)["metadata"]["uid"])
    if attempt > 1:
        raise ViolationError(f"a job that no fault concerns trains on: {name} has come to attempt {attempt}")


def _give_up(life: Life, node: str) -> None:
    """A person pulls the plug of a machine, and says so once Kubernetes has seen it."""
    life.machines[node].cut_power()
    life.agenda.after(PERSON_SECONDS, lambda: life.say_lost(node))


def _status(life: Life, name: str) -> str:
    status = life.job(name).get("status") or {}
    conditions: Sequence[dict[str, str]] = status.get("conditions") or ()
    return f"{status.get('state')}: {status.get('reason')} {[c.get('message') for c in conditions][:1]}"

"""Draws plans of jobs and turns each into a history: a plan is short, so that a failing one can be shrunk and
printed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from tests.unit.nightly.goodput.reference import Attempt, End, History, Line, Save, Throughput, Wait

CLASSES = ("Application", "Hardware", "Infrastructure")
HOUR = 3_600_000
AHEAD = (0, 0, 2 * HOUR, -3 * HOUR, 26 * HOUR)
MILLION = 10**6
COMPLETE = 0.9
"""Share of the saves that become complete."""


@dataclass(frozen=True)
class AttemptPlan:
    """One attempt, in milliseconds: what passes before it, what it does and how it ends."""

    seed: int = 0
    waits: int = 0
    suspended: int = 0
    tested: int = 0
    pods: int = 8000
    loads: int = 20_000
    step: int = 2000
    spread: int = 0
    """Per cent by which the time of a step varies."""
    steps: int = 20
    end: End = End.FAILURE
    tail: int = 700
    unseen: int = 4000
    gone: int = 0
    fault_class: str = "Application"
    ran: bool = True


@dataclass(frozen=True)
class Plan:
    """One job."""

    attempts: tuple[AttemptPlan, ...]
    nodes: int = 2
    gpus_of_node: int = 8
    asked: int = 8
    stride: int = 1
    save_every: int = 0
    has_directory: bool = True
    tells_waits: bool = False
    lag: int = 0
    """By how much one rank may finish a step later than the others."""
    ahead: int = 0
    """By how much the leaders' clocks are ahead of the API server's."""
    leaders: tuple[tuple[int, int], ...] = ()
    """New leaders: at which per mille of the job's life, and by how much its clock differs from the first one's."""
    reads: int = 0
    """Times at which the status is written, beside those of saves."""


def drawn(seed: int) -> Plan:
    """The plan of this seed."""
    rng = random.Random(seed)
    has_directory = rng.random() < 0.85
    stride = rng.choice((1, 1, 1, 3, 10, 25))
    count = rng.choice((1, 1, 2, 3, 4, 5, 8)) if rng.random() < 0.96 else 22
    attempts = tuple(_attempt(rng, number, count, stride) for number in range(count))
    disagree = rng.random() < 0.15
    leaders = tuple(
        (rng.randrange(1000), rng.choice((HOUR, -HOUR, 3 * HOUR, -700)) if disagree else 0)
        for _ in range(rng.choice((0, 0, 1, 3)))
    )
    gpus = rng.choice((1, 4, 8, 8))
    return Plan(
        attempts,
        nodes=rng.choice((1, 2, 3, 4)),
        gpus_of_node=gpus,
        asked=rng.choice((1, gpus)),
        stride=stride,
        save_every=rng.choice((0, 5, 20, 40)) if has_directory else 0,
        has_directory=has_directory,
        tells_waits=rng.random() < 0.35,
        lag=rng.choice((0, 0, 0, 150)),
        ahead=rng.choice(AHEAD),
        leaders=tuple(sorted(leaders)),
        reads=rng.choice((0, 3, 10)),
    )


def _attempt(rng: random.Random, number: int, count: int, stride: int) -> AttemptPlan:
    last = number == count - 1
    ends = (
        [End.SUCCESS, End.SUCCESS, End.FAILURE, End.DELETION] if last else [End.FAILURE] * 4 + [End.HANG, End.PLANNED]
    )
    end = rng.choice(ends)
    ran = end not in (End.FAILURE, End.PLANNED) or rng.random() < 0.93
    steps = rng.choice((1, 2, 7, 30, 90, 150)) * (1 if stride == 1 else 2)
    if rng.random() < 0.08 and end in (End.FAILURE, End.PLANNED):
        steps = 0
    step = rng.choice((40, 900, 2000, 11_000))
    return AttemptPlan(
        seed=rng.randrange(MILLION),
        waits=rng.choice((0, 0, 5000, 40 * 60_000 + 123)),
        suspended=rng.choice((7 * 60_000, 3 * HOUR)) if not number and rng.random() < 0.1 else 0,
        tested=rng.choice((0, 0, 31_000)),
        pods=rng.randrange(500, 200_000),
        loads=rng.randrange(1000, 90_000),
        step=step,
        spread=rng.choice((0, 5, 60)),
        steps=steps,
        end=end,
        tail=int(step * rng.choice((0.0, 0.4, 1.3, 5.0))),
        unseen=rng.randrange(0, 60_000) if end is not End.HANG else rng.randrange(60_000, 600_000),
        gone=rng.choice((0, 0, 3000, 9000)),
        fault_class=rng.choice(CLASSES),
        ran=ran,
    )


def history(plan: Plan) -> History:
    """What truly happens by a plan, in milliseconds since the creation of the job."""
    return _Writer(plan).write()


class _Writer:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.gpus = plan.nodes * plan.gpus_of_node
        self.held: list[tuple[int, int]] = [(0, 0)]
        self.suspended: list[tuple[int, int]] = []
        self.attempts: list[Attempt] = []
        self.saves: list[Save] = []

    def write(self) -> History:
        now = 0
        for plan in self.plan.attempts:
            before = self.attempts[-1] if self.attempts else None
            if (before is not None and before.end is End.PLANNED) or plan.suspended:
                self.hold(now, 0)
                # Conditions tell whole seconds.
                begin = now
                until = (begin + (plan.suspended or 500_000)) // 1000 * 1000
                self.suspended.append((begin, until))
                now = until + max(plan.waits, 1500)
            elif before is None:
                now += plan.waits + 1000
            elif plan.waits:
                self.hold(now, self.gpus - self.plan.gpus_of_node)
                now = max(now + plan.waits, (before.gone or 0) + 1000)
            self.hold(now, self.gpus)
            attempt = self.attempt(plan, now)
            self.attempts.append(attempt)
            now = attempt.seen
        return History(
            created=0,
            attempts=tuple(self.attempts),
            held=tuple(self.held),
            suspended=tuple(self.suspended),
            ended=now,
            has_directory=self.plan.has_directory,
            leaders=tuple(share * now // 1000 for share, _ in self.plan.leaders),
            throughput=Throughput(4096, 6 * 10**9, 10**15, Fraction(5, 2)),
        )

    def hold(self, since: int, gpus: int) -> None:
        """So many accelerators are held from then on."""
        self.held.append((since, gpus))

    def attempt(self, plan: AttemptPlan, placed: int) -> Attempt:
        before = self.attempts[-1] if self.attempts else None
        gone = before.gone if before is not None and before.gone is not None else 0
        started = max(placed + plan.tested + plan.pods, gone + plan.tested + 500)
        if not plan.ran:
            is_failure = plan.end is End.FAILURE
            fault = started - min(plan.unseen, plan.pods // 2) if is_failure else started
            return Attempt(
                0,
                placed,
                started,
                plan.end,
                started,
                fault,
                tested=plan.tested,
                fault_class=plan.fault_class,
                ran=False,
            )
        resumed = max((save.step for save in self.saves), default=0)
        rng = random.Random(plan.seed)
        lines, last = self.lines(plan, resumed, started + plan.loads, rng)
        finished = max(last, max(lines[-1].finished) if lines else 0)
        # A program that hangs has made its newest step with the line that was printed last.
        fault = finished + (0 if plan.end is End.SUCCESS and lines else plan.tail)
        if plan.end is End.HANG and lines:
            fault = max(lines[-1].finished)
        seen = fault + plan.unseen
        if plan.end is End.HANG and not lines:
            fault = started + plan.loads
        planned = plan.end in (End.PLANNED, End.DELETION, End.SUCCESS)
        saves = self.saved(lines, resumed, fault, rng)
        self.saves = [save for save in self.saves if save.step <= resumed] + saves
        return Attempt(
            resumed,
            placed,
            started,
            plan.end,
            seen,
            seen if planned else fault,
            lines=tuple(lines),
            saves=tuple(saves),
            tested=plan.tested,
            gone=None if planned or not plan.gone else seen + plan.gone,
            fault_class="" if planned else plan.fault_class,
        )

    def lines(self, plan: AttemptPlan, resumed: int, begin: int, rng: random.Random) -> tuple[list[Line], int]:
        """The printed steps, and when the last step was finished, printed or not."""
        lines: list[Line] = []
        now, nodes = begin, self.plan.nodes
        waits = [Wait()] * nodes
        for step in range(resumed + 1, resumed + plan.steps + 1):
            took = max(plan.step * rng.randint(100 - plan.spread, 100 + plan.spread) // 100, 2)
            if self.plan.tells_waits:
                took, waits = self.waited(step, took, waits, rng)
            now += took
            if step % self.plan.stride == 0:
                finished = tuple(
                    now - (rng.randint(0, self.plan.lag) if node and took > 2000 else 0) for node in range(nodes)
                )
                lines.append(Line(step, finished, tuple(waits) if self.plan.tells_waits else ()))
                waits = [Wait()] * nodes
        return lines, now

    def waited(self, step: int, took: int, waits: list[Wait], rng: random.Random) -> tuple[int, list[Wait]]:
        """A step that waits: the loader of the first node is the slowest, and the others wait for it in a
        collective."""
        longest, talk = took * rng.randint(0, 30) // 100, took * rng.randint(0, 20) // 100
        save = 3000 if self.plan.save_every and step % self.plan.save_every == 0 else 0
        found = []
        for node, before in enumerate(waits):
            own = longest if node == 0 else longest * rng.randint(0, 100) // 100
            found.append(
                Wait(before.input + own, before.communication + talk + longest - own, before.checkpoint + save)
            )
        return took + save, found

    def saved(self, lines: list[Line], resumed: int, until: int, rng: random.Random) -> list[Save]:
        """The saves that were complete and listed before the end."""
        every = self.plan.save_every
        if not every:
            return []
        saves = []
        for line in lines:
            if line.step % every == 0 and line.step > resumed:
                known = max(line.finished) + rng.randint(100, 15_000)
                known = max(known, saves[-1].known + 1 if saves else 0)
                if known < until and rng.random() < COMPLETE:
                    saves.append(Save(line.step, known))
        return saves


def smaller(plan: Plan) -> Iterator[Plan]:
    """Plans that are simpler by one thing each."""
    for place in range(len(plan.attempts)):
        if len(plan.attempts) > 1:
            yield replace(plan, attempts=plan.attempts[:place] + plan.attempts[place + 1 :])
    plain = Plan(())
    for name in ("leaders", "ahead", "reads", "lag", "tells_waits", "stride", "save_every", "has_directory", "nodes"):
        if getattr(plan, name) != getattr(plain, name):
            yield replace(plan, **{name: getattr(plain, name)})
    for place in range(len(plan.leaders)):
        yield replace(plan, leaders=plan.leaders[:place] + plan.leaders[place + 1 :])
    simple = AttemptPlan()
    for place, attempt in enumerate(plan.attempts):
        for name in (
            "waits",
            "suspended",
            "tested",
            "pods",
            "loads",
            "step",
            "spread",
            "steps",
            "tail",
            "unseen",
            "gone",
        ):
            if getattr(attempt, name) != getattr(simple, name):
                changed = replace(attempt, **{name: getattr(simple, name)})
                yield replace(plan, attempts=(*plan.attempts[:place], changed, *plan.attempts[place + 1 :]))

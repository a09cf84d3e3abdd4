"""A reference for the figures of a job, written from docs/goodput.md alone: it imports nothing of Muster.

A history says what truly happened, in milliseconds of one perfect clock. `figures` reckons what the documentation
promises for it, with fractions, so that no rounding of the shipped code can hide in it. Where the shipped code differs,
one of three is wrong: the code, this file, or the sentence that it was written from.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from itertools import pairwise

PRODUCTIVE = ("compute", "inputWait", "communication")
RANKS_LIVED = (*PRODUCTIVE, "checkpointStall", "lostWork", "undetected")
"""Buckets in which ranks made steps, saved, or stood still unseen: the time between failures divides these."""
NEWEST_STEPS = 64
NEWEST_STRETCHES = 16
LEAST_STEPS_FOR_PERCENTILE = 10
KEPT = 8
"""So many checkpoints the program keeps: steps between two are as most of these are apart."""
UNSEEN_MILLISECONDS = 600_000
"""A program whose steps nobody sees is taken to be starting for less than this."""
LEAST_MILLISECONDS_FOR_RATE = 10_000


class End(Enum):
    """How an attempt ended."""

    FAILURE = "Failure"
    HANG = "Hang"
    PLANNED = "Planned"
    SUCCESS = "Success"
    DELETION = "Deletion"


@dataclass(frozen=True)
class Wait:
    """What one line of one rank says that the steps since the line before went into, in milliseconds."""

    input: int = 0
    communication: int = 0
    checkpoint: int = 0


@dataclass(frozen=True)
class Line:
    """A step that the program printed: the time at which each rank finished it, and what each rank said of it."""

    step: int
    finished: tuple[int, ...]
    waits: tuple[Wait, ...] = ()


@dataclass(frozen=True)
class Save:
    """A checkpoint that became complete, and when a launcher's listing first showed it."""

    step: int
    known: int


@dataclass(frozen=True)
class Attempt:
    """One start of the gang and its end."""

    resumed: int
    """Step of the checkpoint that it goes on from; 0: from scratch."""
    placed: int
    """All of its workers have nodes from here on."""
    started: int
    """Its ranks were started; equal to `seen` where it ended before that."""
    end: End
    seen: int
    """Its end was seen and acted on."""
    fault: int
    """When the rank exited, or the worker was heard last. Of an end that is no failure: `seen`."""
    lines: tuple[Line, ...] = ()
    saves: tuple[Save, ...] = ()
    tested: int = 0
    """How long the burn-in of its slowest node took before its start."""
    gone: int | None = None
    """When the last launcher that stays said that the ranks have ended; None: at once."""
    fault_class: str = ""
    ran: bool = True
    """Its ranks were started."""


@dataclass(frozen=True)
class Throughput:
    """What a step is worth and what an accelerator costs."""

    tokens_per_step: int
    flops_per_token: int
    peak_flops: int
    price: Fraction


@dataclass(frozen=True)
class History:
    """A job from its creation to its end."""

    created: int
    attempts: tuple[Attempt, ...]
    held: tuple[tuple[int, int], ...]
    """From when on the job held how many accelerators, in order."""
    suspended: tuple[tuple[int, int], ...] = ()
    """When its condition Suspended held."""
    ended: int = 0
    has_directory: bool = True
    throughput: Throughput | None = None
    leaders: tuple[int, ...] = ()
    """When a new leader took over."""


@dataclass(frozen=True)
class BetweenFailures:
    """Time between failures with its 95 % bounds, in milliseconds. Without failures it is a lower bound alone."""

    mean: Fraction | None
    least: float
    most: float | None
    failures: int


@dataclass
class Figures:
    """What the report shows. None is "unknown"."""

    milliseconds: dict[str, Fraction] = field(default_factory=dict)
    gpu_milliseconds: dict[str, Fraction] = field(default_factory=dict)
    steps: int = 0
    lost_steps: int = 0
    failures: int = 0
    failed_starts: int = 0
    ettr: Fraction | None = None
    ettr_after_queue: Fraction | None = None
    between_failures: BetweenFailures | None = None
    between_failures_by_class: dict[str, BetweenFailures] = field(default_factory=dict)
    first_checkpoint: int | None = None
    step_median: Fraction | None = None
    """Of the mean of `stride` steps."""
    stride: int | None = None
    step_p90: Fraction | None = None
    checkpoint_steps: int | None = None
    tokens: int | None = None
    tokens_per_second: Fraction | None = None
    mfu: Fraction | None = None
    cost: Fraction | None = None
    cost_of_no_progress: Fraction | None = None
    cost_of_million_tokens: Fraction | None = None
    cost_of_checkpoint: Fraction | None = None
    away: list[int | None] = field(default_factory=list)
    """Of each failure, from the fault to the first step after it; None: there is none."""
    stretches: list[_Stretch] = field(default_factory=list)


@dataclass
class _Stretch:
    """Steps of one attempt that count, with the time that they took."""

    after: int
    step: int
    milliseconds: dict[str, Fraction]
    gpus: int
    timed: bool = True


def figures(history: History) -> Figures:
    """Reckon all figures of a job that has ended."""
    answer = Figures()
    ledger = _Ledger(history, answer)
    for number, attempt in enumerate(history.attempts):
        ledger.has_steps = bool(ledger.stretches)
        ledger.cut(goes_on_from(history, attempt, ledger.has_steps))
        ledger.count_attempt(number, attempt)
    last = history.attempts[-1]
    if not history.attempts or last.seen < history.ended:
        ledger.count_gap(last.seen, history.ended)
    if last.end is not End.SUCCESS and history.has_directory:
        known = [save.step for attempt in history.attempts for save in attempt.saves]
        ledger.cut(max(known, default=0))
    ledger.close()
    _ratios(history, answer)
    _failures(history, answer)
    _pace(history, answer)
    _checkpoints(history, answer)
    _worth(history, answer)
    return answer


class _Ledger:
    """Each moment of a history in one bucket, weighed by the accelerators held."""

    def __init__(self, history: History, answer: Figures) -> None:
        self.history = history
        self.answer = answer
        self.milliseconds: defaultdict[str, Fraction] = defaultdict(Fraction)
        self.gpu_milliseconds: defaultdict[str, Fraction] = defaultdict(Fraction)
        self.stretches: list[_Stretch] = []
        self.has_run = False
        self.has_steps = False
        self.until = history.created

    def add(self, bucket: str, amount: Fraction | int, gpus: int) -> None:
        """Add an amount of time during which so many accelerators were held."""
        self.milliseconds[bucket] += amount
        self.gpu_milliseconds[bucket] += amount * gpus

    def add_between(self, bucket: str, begin: int, end: int) -> None:
        """Add the time between two moments, weighed by what was held in it; suspensions in it are `suspended`."""
        for begin_of_part, end_of_part, gpus in _parts(self.history.held, begin, end):
            free = end_of_part - begin_of_part
            for since, until in self.history.suspended:
                shared = min(until, end_of_part) - max(since, begin_of_part)
                if shared > 0:
                    self.add("suspended", shared, gpus)
                    free -= shared
            self.add(bucket, free, gpus)

    def count_gap(self, begin: int, end: int) -> None:
        """Count the time from the end of an attempt until the next one has all its nodes: `requeued` goes before
        `reclaim`."""
        self.add_between("requeued" if self.has_run else "queued", begin, end)

    def count_attempt(self, number: int, attempt: Attempt) -> None:
        """Count an attempt from the end of the one before it to its own."""
        before = self.history.attempts[number - 1] if number else None
        gone = before.gone if before is not None else None
        if before is not None and any(before.seen <= moment <= attempt.started for moment in self.history.leaders):
            gone = None  # a leader that came later cannot tell it from the rest
        self.count_gap(self.until, attempt.placed)
        self.until = attempt.placed
        if gone is not None and gone > self.until:
            self.add_between("reclaim", self.until, min(gone, attempt.seen))
            self.until = min(gone, attempt.seen)
        gpus = _held_at(self.history.held, attempt.placed)
        start = "restarting" if self.has_run else "starting"
        self.count_start(attempt, start, gpus)
        self.until = attempt.seen
        self.has_run = self.has_run or attempt.ran

    def count_start(self, attempt: Attempt, start: str, gpus: int) -> None:
        """Count the start of an attempt, its steps and its tail."""
        self.add("burnIn", attempt.tested, gpus)
        if not attempt.lines:
            self.without_steps(attempt, start, gpus)
            return
        times = [max(line.finished) for line in attempt.lines]
        strides = line_strides(attempt)
        resumed = goes_on_from(self.history, attempt, self.has_steps)
        assert resumed is not None
        made = attempt.lines[0].step - resumed
        normal = median_step(attempt)
        names_no_step = not (self.history.has_directory and attempt.resumed)
        if normal is None and (made > 1 or (names_no_step and attempt.lines[0].step > 1)):
            # One line tells several steps and no pace: nobody knows what of it was start.
            # It begins with the start of the ranks: what lies before that is no training.
            self.add(start, attempt.started - self.until - attempt.tested, gpus)
            self.add("unknown", times[0] - attempt.started, gpus)
            self.put(_Stretch(resumed, attempt.lines[0].step, {}, gpus, timed=False))
            self.tail(attempt, times[0], None, gpus)
            return
        # A lone step has no excess that anybody knows: all of it is start.
        first = min((normal or Fraction(0)) * made, Fraction(times[0] - attempt.started))
        self.add(start, times[0] - first - self.until - attempt.tested, gpus)
        spent = spent_otherwise(attempt)
        total = {bucket: Fraction(amount) for bucket, amount in spent.items()}
        total["compute"] = first + times[-1] - times[0] - sum(spent.values())
        self.put(_Stretch(resumed, attempt.lines[-1].step, total, gpus, timed=normal is not None))
        # Where every n-th step is printed, two of the tail's steps are two lines.
        self.tail(attempt, times[-1], None if normal is None else normal * max(strides), gpus)

    def put(self, stretch: _Stretch) -> None:
        """Keep one more stretch; of more than the newest 16 the two oldest become one."""
        self.stretches.append(stretch)
        if len(self.stretches) > NEWEST_STRETCHES:
            first, second, *others = self.stretches
            both = {
                bucket: first.milliseconds.get(bucket, Fraction(0)) + second.milliseconds.get(bucket, Fraction(0))
                for bucket in {*first.milliseconds, *second.milliseconds}
            }
            begin = second.after - (first.step - first.after)
            self.stretches = [_Stretch(begin, second.step, both, second.gpus, first.timed or second.timed), *others]

    def without_steps(self, attempt: Attempt, start: str, gpus: int) -> None:
        """Count an attempt of which no step was seen: up to the fault it is start, as long as nobody can think that it
        trains."""
        seen_before = any(each.lines for each in self.history.attempts[: self.history.attempts.index(attempt)])
        too_long = attempt.seen - attempt.started >= UNSEEN_MILLISECONDS and not seen_before
        if attempt.ran and (too_long or attempt.end is End.SUCCESS):
            self.add(start, attempt.started - self.until - attempt.tested, gpus)
            self.add("unknown", attempt.seen - attempt.started, gpus)
            return
        fault = max(attempt.fault, self.until + attempt.tested)
        self.add(start, fault - self.until - attempt.tested, gpus)
        self.add("undetected" if attempt.ran else start, attempt.seen - fault, gpus)

    def tail(self, attempt: Attempt, last: int, step: Fraction | None, gpus: int) -> None:
        """Count the time from the newest step to the end that was seen.

        Where nobody knows what a step takes all of it until the end is taken for the step that was broken off.
        """
        if attempt.end is End.SUCCESS:
            self.add("finishing", attempt.seen - last, gpus)
            return
        fault = last if attempt.end is End.HANG else max(attempt.fault, last)
        broken = Fraction(fault - last) if step is None else min(Fraction(fault - last), 2 * step)
        self.add("lostWork", broken, gpus)
        # What lies beyond two steps before a failure is `undetected`; that before a planned end is `unknown`.
        planned = attempt.end in (End.PLANNED, End.DELETION)
        self.add("unknown" if planned else "undetected", attempt.seen - last - broken, gpus)

    def cut(self, resumed: int | None) -> None:
        """Take back the steps beyond the one that a start goes on from."""
        if resumed is None:
            return
        kept: list[_Stretch] = []
        for stretch in self.stretches:
            if stretch.step <= resumed:
                kept.append(stretch)
                continue
            rest = max(resumed - stretch.after, 0)
            made = stretch.step - stretch.after
            self.answer.lost_steps += made - rest
            for bucket, amount in list(stretch.milliseconds.items()):
                lost = amount * (made - rest) / made
                self.add("lostWork", lost, stretch.gpus)
                stretch.milliseconds[bucket] = amount - lost
            if rest:
                stretch.step = resumed
                kept.append(stretch)
        self.stretches = kept

    def close(self) -> None:
        """Put what counts into its buckets."""
        for stretch in self.stretches:
            for bucket, amount in stretch.milliseconds.items():
                self.add(bucket, amount, stretch.gpus)
            if stretch.timed:
                self.answer.steps += stretch.step - stretch.after
        self.answer.milliseconds = {bucket: amount for bucket, amount in self.milliseconds.items() if amount}
        self.answer.gpu_milliseconds = {bucket: amount for bucket, amount in self.gpu_milliseconds.items() if amount}
        self.answer.stretches = self.stretches


def goes_on_from(history: History, attempt: Attempt, before: bool) -> int | None:
    """Step after which an attempt goes on, as far as Muster can know it; None: nothing is taken back.

    Where no checkpoint is known the first line says it: as many steps before it as lines lie apart. A lone line does
        not
    say it. Where steps were made before it is taken for the next one of those, else the program has begun with step 1.
    """
    if not attempt.ran:
        return None
    if history.has_directory and attempt.resumed:
        return attempt.resumed
    if not attempt.lines:
        return None
    strides = line_strides(attempt)
    if strides:
        return max(attempt.lines[0].step - statistics.median_low(strides), 0)
    return attempt.lines[0].step - 1 if before else 0


def line_strides(attempt: Attempt) -> list[int]:
    """Steps from each line to the next."""
    return [after.step - before.step for before, after in pairwise(attempt.lines)]


def step_times(attempt: Attempt) -> list[Fraction]:
    """Time of a step, of the rank that is slowest in each; the mean where a line tells several steps."""
    times = []
    for before, after in pairwise(attempt.lines):
        slowest = max(end - begin for begin, end in zip(before.finished, after.finished, strict=True))
        times.append(Fraction(slowest, after.step - before.step))
    return times[-NEWEST_STEPS:]


def median_step(attempt: Attempt) -> Fraction | None:
    """Median time of the newest steps; None: fewer than two lines were printed."""
    times = step_times(attempt)
    return statistics.median(times) if times else None


def spent_otherwise(attempt: Attempt) -> dict[str, int]:
    """What the steps of an attempt spent otherwise than computing; what the first line says belongs to the start.

    The longest wait for input counts, since all wait for the slowest loader. Of communication the least counts, without
    what a rank waited there for that loader.
    """
    lines = [line for line in attempt.lines[1:] if line.waits]
    if not lines:
        return {}
    ranks = range(len(lines[0].waits))
    waited = [sum(line.waits[rank].input for line in lines) for rank in ranks]
    talked = [sum(line.waits[rank].communication for line in lines) for rank in ranks]
    longest = max(waited)
    communication = min(max(talked[rank] - (longest - waited[rank]), 0) for rank in ranks)
    saved = max(sum(line.waits[rank].checkpoint for line in lines) for rank in ranks)
    spent = {"inputWait": longest, "communication": communication, "checkpointStall": saved}
    return {bucket: amount for bucket, amount in spent.items() if amount}


def _parts(held: tuple[tuple[int, int], ...], begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    moments = sorted({begin, end, *(since for since, _ in held if begin < since < end)})
    for since, until in pairwise(moments):
        yield since, until, _held_at(held, since)


def _held_at(held: tuple[tuple[int, int], ...], moment: int) -> int:
    return next((gpus for since, gpus in reversed(held) if since <= moment), 0)


def _ratios(history: History, answer: Figures) -> None:
    total = sum(answer.milliseconds.values(), Fraction(0))
    productive = _sum_of(answer.milliseconds, PRODUCTIVE)
    all_time = total - answer.milliseconds.get("suspended", 0)
    succeeded = history.attempts[-1].end is End.SUCCESS
    nothing_timed = bool(answer.stretches) and not productive
    if nothing_timed or not (succeeded or history.has_directory):
        return
    after_queue = all_time - answer.milliseconds.get("queued", 0)
    answer.ettr = Fraction(productive) / all_time if all_time else None
    answer.ettr_after_queue = Fraction(productive) / after_queue if after_queue else None


def _failures(history: History, answer: Figures) -> None:
    failed = [attempt for attempt in history.attempts if attempt.end in (End.FAILURE, End.HANG)]
    trained = [attempt for attempt in failed if attempt.lines]
    answer.failures = len(failed)
    for place, attempt in enumerate(history.attempts):
        if attempt in failed:
            then = next((each for each in history.attempts[place + 1 :] if each.lines), None)
            answer.away.append(None if then is None else max(then.lines[0].finished) - attempt.fault)
    answer.failed_starts = len(failed) - len(trained)
    lived = _sum_of(answer.milliseconds, RANKS_LIVED)
    unknown = answer.milliseconds.get("unknown", Fraction(0))
    if not lived or unknown * 10 > lived + unknown:
        return
    answer.between_failures = between_failures(lived, len(trained))
    for name, count in Counter(attempt.fault_class for attempt in trained).items():
        answer.between_failures_by_class[name] = between_failures(lived, count)


def between_failures(lived: Fraction, count: int) -> BetweenFailures:
    """The exponential fit with censoring, and its exact bounds."""
    if not count:
        return BetweenFailures(None, float(lived) / 3, None, 0)
    # The true mean number of failures m satisfies P(N >= count | least) = 2.5 % and P(N <= count | most) = 2.5 %.
    fewest = _solve(lambda mean: 1 - _poisson(count - 1, mean) - 0.025)
    most = _solve(lambda mean: 0.025 - _poisson(count, mean))
    return BetweenFailures(lived / count, float(lived) / most, float(lived) / fewest, count)


def _poisson(count: int, mean: float) -> float:
    return sum(math.exp(-mean + number * math.log(mean) - math.lgamma(number + 1)) for number in range(count + 1))


def _solve(rising: Callable[[float], float]) -> float:
    low, high = 1e-9, 1e4
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return (low + high) / 2


def _pace(history: History, answer: Figures) -> None:
    """Reckon the time of a step in the newest attempt of which steps were seen."""
    attempt = next((attempt for attempt in reversed(history.attempts) if attempt.lines), None)
    if attempt is None or not step_times(attempt):
        return
    times = sorted(step_times(attempt))
    answer.step_median = statistics.median(times)
    answer.stride = max(line_strides(attempt))
    if answer.stride == 1 and len(times) >= LEAST_STEPS_FOR_PERCENTILE:
        # The nearest rank.
        answer.step_p90 = times[math.ceil(len(times) * 9 / 10) - 1]


def _checkpoints(history: History, answer: Figures) -> None:
    begun_with = history.attempts[0].resumed
    saves = [save for attempt in history.attempts for save in attempt.saves]
    beyond = [save.known for save in saves if save.step > begun_with]
    answer.first_checkpoint = min(beyond) - history.created if beyond else None
    kept: list[int] = []
    for attempt in history.attempts:
        # A start goes on from the newest one that is complete: what is saved later lies beyond it.
        kept = sorted({*kept, *(save.step for save in attempt.saves)})[-KEPT:]
    if len(kept) > 1:
        answer.checkpoint_steps = statistics.median_high([after - before for before, after in pairwise(kept)])


def _worth(history: History, answer: Figures) -> None:
    worth = history.throughput
    if worth is None:
        return
    held = Fraction(sum(answer.gpu_milliseconds.values()))
    productive = _sum_of(answer.gpu_milliseconds, PRODUCTIVE)
    answer.cost = held / 3_600_000 * worth.price
    tokens = answer.steps * worth.tokens_per_step
    time = _sum_of(answer.milliseconds, PRODUCTIVE)
    if time >= LEAST_MILLISECONDS_FOR_RATE:
        answer.tokens_per_second = tokens / (time / 1000)
        if productive:
            answer.mfu = tokens * worth.flops_per_token / (productive / 1000 * worth.peak_flops)
    if answer.ettr is None:
        return
    answer.cost_of_no_progress = (held - productive) / 3_600_000 * worth.price
    answer.tokens = tokens
    if tokens:
        answer.cost_of_million_tokens = answer.cost / tokens * 10**6
    if answer.checkpoint_steps and answer.steps:
        answer.cost_of_checkpoint = answer.cost * answer.checkpoint_steps / answer.steps


def _sum_of(amounts: dict[str, Fraction], buckets: tuple[str, ...]) -> Fraction:
    return sum((amounts.get(bucket, Fraction(0)) for bucket in buckets), Fraction(0))

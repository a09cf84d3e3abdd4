"""Steps in what a framework prints, by its preset (muster.protocol.presets): the part that runs in the child of
`matcher.py`.

Without the name of a preset all that are distinct count: those that print together, as Hugging Face's Trainer and
DeepSpeed do, number their steps alike. Those that are not distinct are only noticed, once three of their lines agree:
what their numbers lack to be those of the checkpoints stands in no line. What no preset reads may be a loop of the
user's own (`plainloop.py`).
"""

from __future__ import annotations

import math
import re
from typing import Dict, Mapping, Match, NamedTuple, Optional, Pattern, Tuple

from muster.node.launcher.plainloop import CONFIRMING_LINES, LoopLine, PlainLoop, Proposal, printed_loss
from muster.node.launcher.progress import MAX_MATCHED_BYTES, step_in_line
from muster.protocol.messages import INPUT_WAIT, LONGEST_SECONDS, MAX_NUMBER, MAX_VALUE_CHARS
from muster.protocol.presets import AUTO, PLAIN_LOOP, PRESETS, LinePreset, Timer
from muster.protocol.rank_lines import TERMINAL

# What a line may print beside its step.
TOKENS = "tokens"  # that each accelerator trains in a second
STEP_SECONDS = "stepSeconds"  # what a step takes
TFLOPS = "tflops"  # of each accelerator
MFU = "mfu"  # the share of its peak

# Between two drawings of a bar in a log that lost what moves back to the line's beginning; the first may end early
_NEXT_DRAWING = re.compile(r"(?:(?<=it/s\])|(?<=s/it\])|(?<=\d%\|)) +(?=\d{1,3}%\|)")
_NOT_FINITE_LINES = 2  # a single step that is skipped, as by mixed precision, is no concern
_THOUSANDS = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
_Kinds = Tuple[Tuple[str, Pattern[str]], ...]


class PrintedProgress(NamedTuple):
    """A step that a line of output reports as finished, figures of it, or time that was not spent on computing.

    Attributes:
        step: number of the finished step over the whole training; None = the line finishes none.
        preset: the preset that the line belongs to.
        loss: the step's loss as it is printed; "" = not there.
        figures: the other numbers in the line, by TOKENS, STEP_SECONDS, TFLOPS and MFU.
        seconds: the time not spent on computing, by INPUT_WAIT and COMMUNICATION of muster.protocol.messages.
    """

    step: Optional[int]
    preset: str
    loss: str = ""
    figures: Mapping[str, float] = {}
    seconds: Mapping[str, float] = {}


class _Compiled(NamedTuple):
    preset: LinePreset
    lines: _Kinds
    begins: _Kinds
    confirms: _Kinds
    figures_beside: _Kinds
    loss: Optional[Pattern[str]]
    figures: Tuple[Tuple[str, Pattern[str]], ...]
    timers: Tuple[Tuple[Timer, Pattern[str]], ...]

    @classmethod
    def from_preset(cls, preset: LinePreset) -> "_Compiled":
        lines, begins, confirms, beside = (
            tuple((line.holds, re.compile(line.pattern)) for line in kind)
            for kind in (preset.lines, preset.begins, preset.confirms, preset.figures_beside)
        )
        figures = (
            (TOKENS, preset.tokens),
            (STEP_SECONDS, preset.pace),
            (TFLOPS, preset.tflops),
            (MFU, preset.mfu),
        )
        timers = tuple((timer, re.compile(timer.pattern)) for timer in preset.timers)
        patterns = tuple((name, re.compile(pattern)) for name, pattern in figures if pattern)
        loss = re.compile(preset.loss) if preset.loss else None
        return cls(
            preset=preset,
            lines=lines,
            begins=begins,
            confirms=confirms,
            figures_beside=beside,
            loss=loss,
            figures=patterns,
            timers=timers,
        )


class LossWatch:
    """Since which step the printed loss of a rank is not a finite number.

    Attributes:
        since: that step; None = the newest loss is finite, or too few lines have come.
    """

    def __init__(self) -> None:
        self.since: Optional[int] = None
        self._lines = 0
        self._first = 0

    def note(self, loss: str, step: int) -> None:
        """Take in a loss as it is printed, and the step beside it or before it."""
        if loss.lower().lstrip("+-") not in ("nan", "inf"):
            self.since, self._lines = None, 0
            return
        self._first = self._first if self._lines else step
        self._lines += 1
        if self._lines >= _NOT_FINITE_LINES:
            self.since = self._first


class _Rank:
    """The state of one rank's output: which of its progress bars counts, and from which step the rank resumed."""

    def __init__(self) -> None:
        self.bar: Optional[Tuple[int, int]] = None  # step and total of the newest bar
        self.total: Optional[int] = None  # of the bar that counts
        self.resumed_step = 0  # of the checkpoint that it went on from, 0 = none
        self.epoch = 0  # that has begun, from 0
        self.begun: Optional[int] = None  # the step that has begun
        self.before: Optional[int] = None  # steps before the epoch in whose middle that was
        self.told: Dict[str, Tuple[int, int]] = {}  # by preset: the newest step, and how many its line has told
        # By preset that is not distinct: the newest epoch and number, and how many lines had a higher one than before.
        self.noticed: Dict[str, Tuple[Tuple[int, int], int]] = {}
        self.by_preset = False  # a preset, or the pattern, has found a step
        self.plain: Optional[PlainLoop] = None  # what the rest of its lines are
        self.loss = LossWatch()

    def note(self, preset: str, step: int) -> None:
        """Note a finished step; its line stands for all steps since the line before.

        For the first line the number of steps that it stands for is not known.
        """
        newest, count = self.told.get(preset, (step, 0))
        if step != newest:
            count = max(step - newest, 0)
        self.told[preset] = step, count


class Reader:
    """Finds steps in the output of several ranks, by presets or by a pattern of the user's own.

    Attributes:
        looks_like: a preset that is not distinct, and of which several lines in order were seen; "" = none.
    """

    def __init__(self, name: str, pattern: Optional[Pattern[str]] = None) -> None:
        """Read by the preset of this name, by any that is distinct (AUTO), or by the pattern alone (OFF).

        Raises:
            ValueError: no preset has this name.
        """
        chosen = [preset for preset in PRESETS if name in (AUTO, preset.name)]
        if not chosen and pattern is None:
            raise ValueError("there is no preset %s" % name)
        self.looks_like = ""
        self._asked = [_Compiled.from_preset(preset) for preset in chosen if preset.is_distinct or name != AUTO]
        self._noticed = [_Compiled.from_preset(preset) for preset in chosen if not preset.is_distinct and name == AUTO]
        self._pattern = pattern
        self._counts_plain = name == AUTO
        self._ranks: Dict[int, _Rank] = {}

    def begin(self, place: int) -> None:
        """Forget the loop of the user's own that a rank has printed, because another attempt of it begins."""
        rank = self._ranks.setdefault(place, _Rank())
        rank.plain, rank.by_preset, rank.loss = None, False, LossWatch()

    def problem(self, place: int) -> str:
        """Why the lines of a loop of the user's own do not count any more; "" = they do, or none did."""
        rank = self._ranks.get(place)
        return rank.plain.problem if rank is not None and rank.plain is not None and not rank.by_preset else ""

    def not_finite_since(self, place: int) -> Optional[int]:
        """The step from which on the loss that a rank prints is not a finite number; None = it is one."""
        rank = self._ranks.get(place)
        return rank.loss.since if rank is not None else None

    def proposal(self) -> Optional[Proposal]:
        """A step pattern for what no preset reads; None = a rank's steps count, or nothing is likely."""
        plain = [rank.plain for rank in self._ranks.values() if rank.plain is not None]
        if self.looks_like or any(rank.by_preset for rank in self._ranks.values()):
            return None
        if any(reader.has_counted for reader in plain):
            return None
        return next(filter(None, (reader.proposal() for reader in plain)), None)

    def read(self, place: int, line: bytes, resumed_step: int = 0) -> Optional[PrintedProgress]:
        """What a line of a rank's output reports; None if the line reports nothing.

        Args:
            place: number of the rank on this worker.
            line: the line, without its end.
            resumed_step: step of the checkpoint that the rank resumed from; 0 = none.
        """
        text = TERMINAL.sub("", line[:MAX_MATCHED_BYTES].decode("utf-8", "replace"))
        if "%|" in text:
            text = _NEXT_DRAWING.split(text)[-1]
        rank = self._ranks.setdefault(place, _Rank())
        finding = self._read_by_presets(rank, text, resumed_step)
        if finding is None and self._pattern is not None:
            step = step_in_line(self._pattern, line)
            # Progress bars begin with 0, also when they go on from 300: nothing is finished then.
            finding = PrintedProgress(step, "", printed_loss(text)[:MAX_VALUE_CHARS]) if step else None
        if finding is not None:
            rank.by_preset |= finding.step is not None
            if finding.loss:
                step = finding.step
                rank.loss.note(finding.loss, rank.told.get(finding.preset, (0, 0))[0] if step is None else step)
            return finding
        if rank.by_preset:
            return None
        if rank.plain is None:
            rank.plain = PlainLoop(counts=self._counts_plain)
        is_noticed = any(rank_state.noticed for rank_state in self._ranks.values())
        rank.plain.counts = self._counts_plain and (rank.plain.has_counted or not is_noticed)
        return self._of_plain_loop(rank, rank.plain.read(text, resumed_step))

    def _of_plain_loop(self, rank: _Rank, line: Optional[LoopLine]) -> Optional[PrintedProgress]:
        if line is None:
            return None
        if line.loss:
            rank.loss.note(line.loss, line.number)
        return PrintedProgress(line.step, PLAIN_LOOP, line.loss[:MAX_VALUE_CHARS]) if line.step is not None else None

    def _read_by_presets(self, rank: _Rank, text: str, resumed_step: int) -> Optional[PrintedProgress]:
        if rank.resumed_step != resumed_step:
            rank.resumed_step, rank.before, rank.told = resumed_step, None, {}
        for compiled in self._asked:
            step = _step_of(compiled, rank, text)
            if step is not None:
                rank.note(compiled.preset.name, step)
                return PrintedProgress(
                    step, compiled.preset.name, _value(compiled.loss, text), _figures(compiled, text)
                )
            seconds = _seconds(compiled, rank, text)
            if seconds:
                return PrintedProgress(None, compiled.preset.name, seconds=seconds)
            if _match(compiled.figures_beside, text):
                return PrintedProgress(
                    None, compiled.preset.name, _value(compiled.loss, text), _figures(compiled, text)
                )
        if not self.looks_like:
            self._notice(rank, text)
        return None

    def _notice(self, rank: _Rank, text: str) -> None:
        """Take in a line that a preset may read which counts only by name."""
        for compiled in self._noticed:
            match = _match(compiled.lines, text)
            if match is None:
                continue
            number = int(match.groupdict().get("epoch") or 0), int(match.group("step"))
            newest, lines = rank.noticed.get(compiled.preset.name, ((0, 0), 0))
            if number > newest:
                newest, lines = number, lines + 1
            rank.noticed[compiled.preset.name] = newest, lines
            if lines >= CONFIRMING_LINES:
                self.looks_like = compiled.preset.name


def _step_of(compiled: _Compiled, rank: _Rank, text: str) -> Optional[int]:
    match = _match(compiled.lines, text)
    if compiled.begins:
        return _of_begun(compiled, rank, text, match is not None)
    if not compiled.confirms:
        return _number(match, rank) if match else None
    if match is not None:
        rank.bar = int(match.group("step")), int(match.group("total"))
    confirmed = _match(compiled.confirms, text)
    if match is None and confirmed is None:
        return None
    if confirmed is not None and "total" in confirmed.re.groupindex:
        rank.total = int(confirmed.group("total").replace(",", ""))
    elif confirmed is not None and rank.bar is not None and (match is None or rank.total is None):
        rank.total = rank.bar[1]
    if rank.bar is None or rank.bar[1] != rank.total:
        return None
    return _finished(rank.bar[0])


def _of_begun(compiled: _Compiled, rank: _Rank, text: str, is_end: bool) -> Optional[int]:
    """The step that a line finishes whose number stood in the line with which it began; None: it finishes none."""
    if is_end:
        step, rank.begun = rank.begun, None
        return step
    match = _match(compiled.begins, text)
    if match is not None and "epoch_begins" in match.re.groupindex:
        rank.epoch = int(match.group("epoch_begins")) - 1
    elif match is not None:
        rank.begun = _finished(int(match.group("step")), rank.epoch * int(match.group("total")))
    return None


def _value(pattern: Optional[Pattern[str]], text: str) -> str:
    match = pattern.search(text) if pattern is not None else None
    return match.group("value")[:MAX_VALUE_CHARS] if match is not None else ""


def _figures(compiled: _Compiled, text: str) -> Dict[str, float]:
    """The figures in a line, by name, with times in seconds; values that are no quantity are left out."""
    read: Dict[str, float] = {}
    for name, pattern in compiled.figures:
        match = pattern.search(text)
        if match is None:
            continue
        unit, printed = next((unit, text) for unit, text in match.groupdict().items() if text is not None)
        number = float(printed.replace(",", "").rstrip("KMBT")) * _THOUSANDS.get(printed[-1], 1.0)
        if unit == "milliseconds":
            number /= 1000.0
        elif unit == "percent":
            number /= 100.0
        elif unit == "rate":
            number = 1.0 / number if number else math.inf
        if 0 < number <= LONGEST_SECONDS:  # as a report takes them; neither NaN nor infinity is
            read[name] = number
    return read


def _seconds(compiled: _Compiled, rank: _Rank, text: str) -> Dict[str, float]:
    """The seconds not spent on computing that a line reports, by name.

    The values are 0 up to the first step's line: that time is part of the start.
    """
    seconds: Dict[str, float] = {}
    for timer, pattern in compiled.timers:
        match = pattern.search(text) if timer.holds in text else None
        if match is None:
            continue
        groups = match.groupdict()
        printed = groups["value"] or groups["most" if timer.spent_on == INPUT_WAIT else "least"]
        _, count = rank.told.get(compiled.preset.name, (0, 0))
        times = count if timer.is_mean else int(compiled.preset.name in rank.told)
        spent = times * float(printed.replace(",", "")) / 1000.0
        if spent <= LONGEST_SECONDS:
            seconds[timer.spent_on] = seconds.get(timer.spent_on, 0.0) + spent
    return seconds


def _match(kinds: _Kinds, text: str) -> Optional[Match[str]]:
    for holds, pattern in kinds:
        if holds in text:
            match = pattern.search(text)
            if match is not None:
                return match
    return None


def _number(match: Match[str], rank: _Rank) -> Optional[int]:
    groups = match.groupdict()
    steps_before: Optional[int] = 0  # this epoch
    if "unnamed" in groups:
        steps_before = _before_the_epoch(rank, int(groups["step"]))
    elif "epoch" in groups:
        steps_before = int(groups["epoch"]) * int(groups["total"])
    elif "next_epoch" in groups:
        steps_before = (int(groups["next_epoch"]) - 1) * int(groups["total"])
    step = None if steps_before is None else _finished(int(groups["step"]), steps_before)
    return None if groups.get("restored") and step == rank.resumed_step else step


def _before_the_epoch(rank: _Rank, batch: int) -> Optional[int]:
    """The number of steps before the epoch in whose middle the rank resumed; None where it is not known.

    It follows from the first batch that the rank prints. In the first epoch batches are steps. A later epoch is no
    longer than the steps before it. The first printed batch is taken for the next step. Where not every batch is
    printed, steps are reported too low until the epoch ends.
    """
    if rank.before is None and rank.resumed_step and batch:
        rank.before = 0 if batch > rank.resumed_step else rank.resumed_step + 1 - batch
    return rank.before


def _finished(step: int, steps_before: int = 0) -> Optional[int]:
    """The step over the whole training that a bar reports as finished; None for the 0 with which each bar begins.

    Args:
        step: what the bar shows.
        steps_before: steps before the epoch of the bar.
    """
    return steps_before + step if step and steps_before + step <= MAX_NUMBER else None

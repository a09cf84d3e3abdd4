"""Steps in what a loop of a user's own prints, such as `step 12 | loss 0.53`: the part of the reader for no framework.

Numbers that rise are everywhere in a log, so a line is a step only where all of this holds. It has the word step or
iter(ation) right before the number, and a loss. Three such lines of one shape have come, each with a higher number.
Nothing in it speaks of an evaluation, of epochs that the number does not outlast, or of another loop. No other line of
the rank counts differently, and the numbers do not begin below the checkpoint from which the rank resumed. Whatever
rises and lacks one of these is only proposed, as a `progress.stepPattern` that would match. A number that falls back
closes its shape for the rest of the attempt.

Everything is bounded: the part of a line that is read, the shapes that are remembered, and the length of a proposal.
"""

from __future__ import annotations

import collections
import itertools
import re
from typing import Deque, Dict, List, Match, NamedTuple, Optional, Pattern, Tuple

from muster.protocol.messages import MAX_LIKELY_CHARS, MAX_NUMBER, is_plain

CONFIRMING_LINES = 3
_READ_CHARS = 512  # of a line
_MAX_SHAPES = 16
_MAX_SHAPE_CHARS = 96
_MAX_COUNTERS = 4  # that are looked at in a line
_RECENT = 2  # numbers that may come again: several ranks print into one stream, and none is further ahead
_FAR = 64  # lines: what is so far from the newest number is of another count
_MAX_WORDS_CHARS = 48  # of a proposal, before the number

# A number may have its thousands apart by one of these, as `1,000`: the last are ’ and a no-break, a thin and a narrow
# no-break space.
_APART = r"\d{1,3}(?:(?P<%s>[,_' \u2019\u00a0\u2009\u202f])\d{3})(?:(?P=%s)\d{3}){0,3}(?!\d)"
_MARKS = str.maketrans("", "", ",_' \u2019\u00a0\u2009\u202f")
# With a unit of time, or as the begin of a range, a number counts nothing.
_COUNTER = re.compile(
    r"(?<![a-z0-9_.-])(?P<word>(?:global|train(?:ing)?|optim(?:izer)?)[ _/-]?steps?|steps?|iter(?:ation|ations|s)?)\b"
    r"(?P<gap>[ \t:=#\[(|\"']{0,24})(?P<number>" + _APART % ("mark", "mark") + r"|\d{1,15})"
    r"(?:(?P<slash> ?/ ?)(?P<total>" + _APART % ("total_mark", "total_mark") + r"|\d+|\?+))?"
    r"(?![\d.]*\d|[\w%]|[-']\d| ?/ ?s(?:ec(?:onds?)?)?\b| (?:[mun]?s|secs?|seconds?|min|per|left|remaining|ahead)\b)"
)
_VALUE = r"(?P<value>nan|-?inf|[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)(?![\w.])"
_LOSS = re.compile(
    r"loss(?:es)?(?:[_/](?:train|total|mean|avg|value|step))?[\"'\])]{0,2}"
    r"(?: (?:at|after) (?:step|iter(?:ation)?) \d+)? ?[:=|]? {0,4}"
    r"(?:\w{1,12}\()?[\[(]?" + _VALUE
)
_EPOCH = re.compile(r"(?<![a-z_])epoch[ \t:=#\[(]{0,4}(?P<number>\d{1,9})(?![\d.]*\d)")
_EVALUATION = re.compile(r"(?<![a-z])(?:val|valid(?:at\w+)?|eval(?:uat\w+)?|test(?:ing)?|dev)(?![a-z])")
# What another loop than that of the training prints.
_OTHER_LOOP = re.compile(
    r"(?<![a-z])(?:micro|inner|accum\w*|warm-?up|load\w*|download\w*|map|mapping|shards?|files?|tokeniz\w*|denois\w*|"
    r"infer\w*|generat\w*|sampling|decod\w*|env|environment|episod\w*|rollout\w*|search|calibrat\w*|resum\w*|"
    r"sav(?:e|ed|ing)|checkpoint(?= )|snapshot\w*|delet\w*|renam\w*|releas\w*|wait(?:ed|ing)|restor\w*|profil\w*|num|"
    r"max|total|every|per|bench(?:mark)?|sanity|held|holdout|finder|attack|pgd|"
    r"lbfgs|newton|k-?means|scheduler|skip\w*|next|last|since|until|improve\w*|patience|remaining)(?![a-z])"
)
_BAR = re.compile(r"%\|[^|]{0,120}\| (?P<number>\d{1,15})/(?P<total>\d{1,15}) \[")  # tqdm's
_NUMBERS = re.compile(r"[-+]?(?:\d[\d.,:]*(?:e[-+]?\d+)?|\bnan\b|\binf\b)")
_SPACES = re.compile(r"\s+")


class LoopLine(NamedTuple):
    """What a line of a plain loop has.

    Attributes:
        step: the step that it reports as finished; None = it is not known to report one.
        loss: the loss that it prints; "" = none.
        number: the number beside the loss, whether it counts or not.
    """

    step: Optional[int]
    loss: str
    number: int


class Proposal(NamedTuple):
    """A pattern that would match lines that rise and do not count, with one of them."""

    pattern: str
    line: str


class _Counter(NamedTuple):
    """A number in a line that may count.

    Attributes:
        shape: what lines of its kind have in common.
        may_count: whether such lines count by themselves once enough have come.
        rank: of several kinds that rise the lowest is proposed.
        begin: where the number begins in the line.
        unit: what it counts, as the line has it.
        loss: the loss beside it, as it is printed; "" = none.
        of_epoch: whether it may be a step of an epoch that the line names.
        has_blanks: whether its thousands are apart by blanks.
        is_sure: whether these belong to one number by the line alone: `12 300` may be two.
    """

    shape: str
    number: int
    may_count: bool
    rank: int
    begin: int
    unit: str
    loss: str = ""
    of_epoch: bool = False
    has_blanks: bool = False
    is_sure: bool = True


class _Shape:
    """The numbers in lines of one shape."""

    def __init__(self, counter: _Counter, text: str, epoch: Optional[int]) -> None:
        self.first = counter.number
        self.newest = counter.number
        self.stride = 0
        self.lines = 1  # each with a higher number than the one before
        self.recent: Deque[int] = collections.deque([counter.number], maxlen=_RECENT)
        self.counter = counter
        self.text = text
        self.epoch = epoch
        self.outlasts_epochs = False
        self.fell_to: Optional[int] = None  # the number that began again
        self.is_misread = False  # its pattern finds other numbers in other lines
        self.has_blanks = counter.has_blanks

    def goes_on(self, counter: _Counter) -> bool:
        """Whether a number that may be two is the next one of these lines."""
        return self.has_blanks or 0 < counter.number - self.newest <= _FAR * self.stride

    def note(self, counter: _Counter, text: str, epoch: Optional[int]) -> bool:
        """Take in a line; returns whether its number is higher than all before."""
        number = counter.number
        if number in self.recent:
            return False
        if number < self.newest:
            self.fell_to = number
            return False
        if epoch is not None and self.epoch is not None and epoch > self.epoch:
            self.outlasts_epochs = True
        self.stride, self.newest, self.epoch = number - self.newest, number, epoch
        self.lines += 1
        self.recent.append(number)
        self.counter, self.text = counter, text
        self.has_blanks |= counter.has_blanks
        return True

    @property
    def rises(self) -> bool:
        """Whether enough lines have come, and the number never fell."""
        return self.lines >= CONFIRMING_LINES and self.fell_to is None


class PlainLoop:
    """What one rank prints in one attempt, read without knowing its framework.

    Attributes:
        counts: whether steps may be counted; else lines are only proposed.
        problem: why the lines that counted do not any more; "" = they do, or none did.
    """

    def __init__(self, *, counts: bool) -> None:
        self.counts = counts
        self.problem = ""
        self._shapes: Dict[str, _Shape] = {}
        self._chosen: Optional[_Shape] = None
        self._epoch: Optional[int] = None
        self._proposal: Optional[Proposal] = None
        self._proposed: Optional[Tuple[_Shape, Pattern[str]]] = None

    def read(self, text: str, resumed_step: int = 0) -> Optional[LoopLine]:
        """What a line reports; None where it has no number that may be a step.

        Args:
            text: the line, without colours.
            resumed_step: step of the checkpoint that the rank resumed from; 0 = none.
        """
        text = text[:_READ_CHARS]
        low = text.lower()
        if len(low) != len(text):  # of a few letters: places in the two would differ
            return None
        if "poch" in low:
            match = _EPOCH.search(low)
            self._epoch = int(match.group("number")) if match is not None else self._epoch
        counter = _counter(low)
        self._check_proposal(text, counter)
        if counter is None or counter.number > MAX_NUMBER:
            return None
        if counter.of_epoch:
            self._note_epoch(text, low, resumed_step)
        shape, is_news = self._noted(counter, text)
        if shape is None:
            return None
        if not is_news:
            self._close(shape)
            return None if shape.fell_to is not None else LoopLine(None, counter.loss, counter.number)
        step = counter.number if self._is_step(shape, resumed_step) else None
        if self._chosen is None and self._proposal is None and shape.lines >= CONFIRMING_LINES:
            self._propose(resumed_step)
        return LoopLine(step or None, counter.loss, counter.number)

    @property
    def has_counted(self) -> bool:
        """Whether lines have counted as steps."""
        return self._chosen is not None

    def proposal(self) -> Optional[Proposal]:
        """A pattern for steps that are printed and do not count; None where some did, or none is likely."""
        return self._proposal

    def _noted(self, counter: _Counter, text: str) -> Tuple[Optional[_Shape], bool]:
        shape = self._shapes.get(counter.shape)
        if not (counter.is_sure or (shape is not None and shape.goes_on(counter))):
            return None, False
        if shape is not None:
            return (None, False) if shape.fell_to is not None else (shape, shape.note(counter, text, self._epoch))
        if len(self._shapes) >= _MAX_SHAPES:
            return None, False
        shape = self._shapes[counter.shape] = _Shape(counter, text, self._epoch)
        return shape, True

    def _note_epoch(self, text: str, low: str, resumed_step: int) -> None:
        """Take in the epoch of a line, which may be proposed where its steps are those of the epoch."""
        counter = _epoch(low)
        if counter is None:
            return
        shape, is_news = self._noted(counter, text)
        if shape is not None and not is_news:
            self._close(shape)
        elif self._chosen is None and self._proposal is None and shape is not None:
            self._propose(resumed_step)

    def _close(self, shape: _Shape) -> None:
        """Take back what a shape was taken for, once its number began again."""
        if shape.fell_to is None:
            return
        if shape is self._chosen and not self.problem:
            self.problem = (
                "the number in the printed lines that were read as steps began again, at %d after %d: it is not that "
                "of the whole training. Set progress.stepPattern, or write steps to MUSTER_PROGRESS; finished steps "
                "are not counted" % (shape.fell_to, shape.newest)
            )
        if self._proposed is not None and self._proposed[0] is shape:
            self._proposal = self._proposed = None

    def _is_step(self, shape: _Shape, resumed_step: int) -> bool:
        if not self.counts or self.problem:
            return False
        if self._chosen is not None:
            if shape is self._chosen:
                return True
            self._check_rival(shape)
            return False
        if not self._may_count(shape, resumed_step):
            return False
        rivals = [rival for rival in self._shapes.values() if rival is not shape and self._is_countable(rival)]
        if any(_contradict(shape, rival) for rival in rivals):
            return False
        self._chosen = shape
        self._proposal = self._proposed = None
        return True

    def _check_rival(self, shape: _Shape) -> None:
        if self._chosen is not None and self._is_countable(shape) and _contradict(self._chosen, shape):
            self.problem = (
                "two kinds of printed lines have a step, and they differ (%d, %d). Say by progress.stepPattern which "
                "counts; finished steps are not counted" % (self._chosen.newest, shape.newest)
            )

    def _is_countable(self, shape: _Shape) -> bool:
        if not (shape.counter.may_count and shape.rises):
            return False
        return self._epoch is None or shape.outlasts_epochs

    def _may_count(self, shape: _Shape, resumed_step: int) -> bool:
        return self._is_countable(shape) and shape.first >= resumed_step

    def _propose(self, resumed_step: int) -> None:
        rising = [candidate for candidate in self._shapes.values() if candidate.rises and not candidate.is_misread]
        for shape in sorted(rising, key=lambda candidate: candidate.counter.rank):
            pattern = _pattern(shape.counter, shape.text) if shape.first >= resumed_step else ""
            match = re.search(pattern, shape.text) if pattern else None
            if match is not None and int(match.group(1)) == shape.newest:
                self._proposed = shape, re.compile(pattern)
                self._proposal = Proposal(pattern, _printable(shape.text.strip()))
                return

    def _check_proposal(self, text: str, counter: Optional[_Counter]) -> None:
        """Withdraw the proposal once its pattern finds numbers in other lines that do not go on with its own."""
        if self._proposed is None:
            return
        shape, compiled = self._proposed
        match = compiled.search(text)
        if counter is not None and counter.shape == shape.counter.shape:
            if match is None or int(match.group(1)) != counter.number:  # of `1,000` it reads 1
                shape.is_misread = True
                self._proposal = self._proposed = None
            return
        if match is None or int(match.group(1)) in shape.recent:
            return
        if not 0 < int(match.group(1)) - shape.newest <= _FAR * shape.stride:
            shape.is_misread = True
            self._proposal = self._proposed = None


# What is proposed first.
_STEPS, _ITERATIONS, _WITHOUT_LOSS, _BARS, _EPOCHS = range(5)


def _counter(low: str) -> Optional[_Counter]:
    """The number in a line, in lower case, that may count; None where it has none."""
    if "%|" in low:
        return _bar(low)
    matches: List[Match[str]] = []
    if "step" in low or "iter" in low:
        matches = list(itertools.islice(_COUNTER.finditer(low), _MAX_COUNTERS))
    if matches:
        return _step(low, matches)
    return _epoch(low) if "poch" in low and "loss" in low else None


def _step(low: str, matches: List[Match[str]]) -> Optional[_Counter]:
    evaluates = _EVALUATION.search(low) is not None
    if evaluates and "train" not in low:
        return None
    best = min(matches, key=lambda match: (_order(match.group("word")), match.start()))
    if _OTHER_LOOP.search(low[: best.start()]) is not None:
        return None
    loss, word = _loss(low), best.group("word")
    rank = _WITHOUT_LOSS if not loss else _STEPS if "step" in word else _ITERATIONS
    # What stands behind the epoch, or names it without its number, is mostly a step of that epoch.
    is_numbered = "poch" in low and _EPOCH.search(low) is not None
    of_epoch = "poch" in low and (not is_numbered or "poch" in low[: best.start()])
    may_count = bool(loss) and len(matches) == 1 and not evaluates and "|" not in best.group("gap")
    may_count = may_count and (is_numbered or not of_epoch)
    shape = _shape(low, best.start("number"), best.group("total")) + ("" if may_count else "?")
    digits, has_blanks = best.group("number"), best.group("mark") == " "
    is_sure = not has_blanks or " 0" in digits or best.group("total_mark") == " "
    number, begin = int(digits.translate(_MARKS)), best.start("number")
    return _Counter(shape, number, may_count, rank, begin, word, loss, of_epoch, has_blanks, is_sure)


def _order(word: str) -> int:
    return 2 if word.startswith("iter") else 1 if word.startswith("step") else 0


def _bar(low: str) -> Optional[_Counter]:
    """A progress bar with a loss beside it. Without one it may be that of anything."""
    match = _BAR.search(low)
    if match is None or "loss" not in low or _EVALUATION.search(low) is not None:
        return None
    shape = "%|" + _shape(low, match.start(), match.group("total"))
    return _Counter(shape, int(match.group("number")), False, _BARS, match.start("number"), "%|")


def _epoch(low: str) -> Optional[_Counter]:
    match = _EPOCH.search(low)
    if match is None or (_EVALUATION.search(low) is not None and "train" not in low):
        return None
    begin = match.start("number")
    return _Counter("epoch " + _shape(low, begin, None), int(match.group("number")), False, _EPOCHS, begin, "epoch")


def _shape(low: str, end: int, total: Optional[str]) -> str:
    constant = _SPACES.sub(" ", _NUMBERS.sub("#", low[:end]))
    return "%s/%s" % (constant[-_MAX_SHAPE_CHARS:], total or "")


def _pattern(counter: _Counter, text: str) -> str:
    """The pattern for a number by the constant text before it; "" where that has nothing to hold on to.

    What stands before a digit, as times and ranks do, is left out.
    """
    if counter.of_epoch:
        return ""
    if counter.rank == _BARS:
        return _pattern_of_bar(text)
    prefix = text[: counter.begin]
    constant = re.split(r"\d", prefix)[-1]
    whole = constant == prefix and len(prefix) <= _MAX_WORDS_CHARS
    words = constant if whole else constant[-_MAX_WORDS_CHARS:]
    if len(words) < len(constant):
        words = words[words.find(" ") + 1 :]  # whole ones
    if not whole:
        begin = re.search(r"[A-Za-z|]", words)
        words = words[begin.start() :] if begin is not None else ""
    if counter.unit not in words.lower() or not is_plain(words.replace("\t", " ")):
        return ""
    start = r"^\s*" if whole else r"\b" if words[:1].isalpha() else ""
    made = "%s%s([0-9]+)" % (start, _escaped(words.lstrip() if whole else words))
    return made if len(made) <= MAX_LIKELY_CHARS else ""


def _pattern_of_bar(text: str) -> str:
    match = _BAR.search(text)
    if match is None:
        return ""
    words = text[: match.start()].rstrip("0123456789").strip(" :\t")[-_MAX_WORDS_CHARS:]
    head = _escaped(words) + (": *" if words else "")
    if "loss" in words.lower():
        head = r"loss.*"
    elif any(map(str.isdigit, words)) or not is_plain(words) or len(head) > MAX_LIKELY_CHARS // 2:
        head = ""
    tail = r" \[.*loss" if "loss" in text[match.end() :].lower() else ""
    return head + r"[0-9]+%\|[^|]*\| ([0-9]+)/[0-9]+" + tail


def _escaped(words: str) -> str:
    """A pattern for words, with room for any number of blanks where there are some."""
    return r"\s+".join(re.escape(part) for part in _SPACES.split(words))


def printed_loss(text: str) -> str:
    """The loss of the training in a line, as it is printed; "" = there is none."""
    low = text[:_READ_CHARS].lower()
    return "" if _EVALUATION.search(low) is not None and "train" not in low else _loss(low)


def _loss(low: str) -> str:
    match = _LOSS.search(low) if "loss" in low else None
    return match.group("value") if match is not None else ""


def _contradict(shape: _Shape, other: _Shape) -> bool:
    """Whether the numbers of two shapes are not those of one count."""
    return abs(shape.newest - other.newest) > max(shape.stride, 1) + max(other.stride, 1)


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)[:MAX_LIKELY_CHARS]

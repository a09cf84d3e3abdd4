"""Steps in what a framework prints, by its preset (muster.protocol.presets): the part that runs in the child of `matcher.py`.

Without the name of a preset all that are distinct count: those that print together, as Hugging Face's Trainer and DeepSpeed do,
number their steps alike. Those that are not distinct are only noticed.
"""

from __future__ import annotations

import re
from typing import Dict, Match, NamedTuple, Optional, Pattern, Tuple

from muster.launcher.progress import MAX_MATCHED_BYTES
from muster.protocol.messages import MAX_NUMBER
from muster.protocol.presets import AUTO, PRESETS, Preset

_COLOURS = re.compile("\x1b\\[[0-9;]*m")
_Kinds = Tuple[Tuple[str, Pattern[str]], ...]


class Found(NamedTuple):
    """A finished step.

    Attributes:
        step: over the whole training.
        preset: whose line told it.
    """

    step: int
    preset: str


class _Compiled(NamedTuple):
    preset: Preset
    lines: _Kinds
    confirms: _Kinds

    @classmethod
    def of(cls, preset: Preset) -> "_Compiled":
        lines, confirms = (
            tuple((line.holds, re.compile(line.pattern)) for line in kind) for kind in (preset.lines, preset.confirms)
        )
        return cls(preset, lines, confirms)


class _Rank:
    """Which of its bars counts, where that has to be confirmed."""

    def __init__(self) -> None:
        self.bar: Optional[Tuple[int, int]] = None  # step and total of the newest bar
        self.total: Optional[int] = None  # of the bar that counts


class Reader:
    """Looks for steps in lines of several ranks.

    Attributes:
        looks_like: a preset that is not distinct, and whose lines came; "" = none.
    """

    def __init__(self, name: str) -> None:
        """Read by the preset of this name, or by any that is distinct (AUTO).

        Raises:
            ValueError: there is none.
        """
        chosen = [preset for preset in PRESETS if name in (AUTO, preset.name)]
        if not chosen:
            raise ValueError("there is no preset %s" % name)
        self.looks_like = ""
        self._asked = [_Compiled.of(preset) for preset in chosen if preset.is_distinct or name != AUTO]
        self._noticed = [_Compiled.of(preset) for preset in chosen if not preset.is_distinct and name == AUTO]
        self._ranks: Dict[int, _Rank] = {}

    def read(self, place: int, line: bytes) -> Optional[Found]:
        """The step that this line of a rank finishes, None if it finishes none."""
        text = _COLOURS.sub("", line[:MAX_MATCHED_BYTES].decode("utf-8", "replace"))
        rank = self._ranks.setdefault(place, _Rank())
        for one in self._asked:
            step = _step_of(one, rank, text)
            if step is not None:
                return Found(step, one.preset.name)
        if not self.looks_like:
            self.looks_like = next((one.preset.name for one in self._noticed if _match(one.lines, text)), "")
        return None


def _step_of(one: _Compiled, rank: _Rank, text: str) -> Optional[int]:
    found = _match(one.lines, text)
    if not one.confirms:
        return _number(found) if found else None
    if found is not None:
        rank.bar = int(found.group("step")), int(found.group("total"))
    else:
        confirmed = _match(one.confirms, text)
        if confirmed is None:
            return None
        if "total" in confirmed.re.groupindex:
            rank.total = int(confirmed.group("total").replace(",", ""))
        elif rank.bar is not None:
            rank.total = rank.bar[1]
    if rank.bar is None or rank.bar[1] != rank.total:
        return None
    return _finished(rank.bar[0])


def _match(kinds: _Kinds, text: str) -> Optional[Match[str]]:
    for holds, pattern in kinds:
        if holds in text:
            found = pattern.search(text)
            if found is not None:
                return found
    return None


def _number(found: Match[str]) -> Optional[int]:
    groups = found.groupdict()
    before = 0  # this epoch
    if "epoch" in groups:
        before = int(groups["epoch"]) * int(groups["total"])
    elif "next_epoch" in groups:
        before = (int(groups["next_epoch"]) - 1) * int(groups["total"])
    return _finished(int(groups["step"]), before)


def _finished(step: int, before: int = 0) -> Optional[int]:
    """The step over the whole training. Bars begin with 0, also those that go on from 300: nothing is finished then."""
    return before + step if step and before + step <= MAX_NUMBER else None

"""Recognise programs that save and end upon a signal, with ranks that agree on it.

Sources:

- Megatron-LM (megatron/training/arguments.py, megatron/training/dist_signal_handler.py): with --exit-signal-handler any
  rank's signal is gathered by all at the end of each iteration; they save and exit.
- MaxText (src/maxtext/common/checkpointing.py: reached_preemption): with enable_autocheckpoint=true all processes save
  at a step ahead on which JAX lets them agree after any one's SIGTERM, and stop.
- NeMo Automodel (nemo_automodel/components/training/step_scheduler.py, signal_handler.py): by default any rank's
  SIGTERM is gathered by all at each step; they save and stop. Its YAML file may name another signal, or none. Then no
  rank handles SIGTERM, and none gets it.

Tests: tests/unit/protocol/test_exit_signals.py.
"""

from __future__ import annotations

import re
import signal
from typing import Optional, Sequence

from muster.protocol.shell_words import commands, resolved
from muster.protocol.starters import LONGEST_LINE, PYTHON, TORCHRUN, shell_line, starter_of

_MAXTEXT = re.compile(r"(?:.*/)?(?:MaxText|maxtext)[./](?:\w+[./])*train(?:\.py)?")
_AUTOCHECKPOINT = "enable_autocheckpoint="
_AUTOMODEL = re.compile(r"(?:.*/)?nemo_automodel[./]recipes[./](?:\w+[./])*\w+")
_AUTOMODEL_CHOICE = "--step_scheduler.preemption_signal"
_SWITCH, _CHOICE = "--exit-signal-handler", "--exit-signal"
# Not SIGINT: every Python process handles it, and ends by it until the program has a handler of its own.
_CHOSEN = {name: int(signal.Signals[name]) for name in ("SIGTERM", "SIGUSR1", "SIGUSR2")}


def exit_signal_of(command: Sequence[str]) -> Optional[int]:
    """Return the signal on which the ranks of a command save and end together; None: they do not, or it is not seen.

    A program that torchrun starts counts, and one that Python runs directly. With another starter or a script file in
    between it is not known which process is a rank.
    """
    line = shell_line(command)
    if line is None:
        return _signal_in(command)
    if len(line) > LONGEST_LINE:
        return None
    signals = (_signal_in(words) for words in resolved(commands(line)))
    return next((number for number in signals if number is not None), None)


def _signal_in(words: Sequence[str]) -> Optional[int]:
    starter = starter_of(words)
    is_rank = not starter and any(PYTHON.match(word.rsplit("/", 1)[-1]) for word in words)
    if not (is_rank or starter == TORCHRUN):
        return None
    if _SWITCH in words:
        return _chosen(words)
    saves = _saves_automatically(words) if any(map(_MAXTEXT.fullmatch, words)) else _is_automodel(words)
    return _CHOSEN["SIGTERM"] if saves else None


def _saves_automatically(words: Sequence[str]) -> bool:
    """Whether MaxText's own option is on; of several the last one counts."""
    values = [word[len(_AUTOCHECKPOINT) :] for word in words if word.startswith(_AUTOCHECKPOINT)]
    return values[-1:] in (["true"], ["True"])


def _is_automodel(words: Sequence[str]) -> bool:
    """Whether a recipe of NeMo Automodel runs with the signal that it has by default, as far as the command says."""
    return any(map(_AUTOMODEL.fullmatch, words)) and not any(word.startswith(_AUTOMODEL_CHOICE) for word in words)


def _chosen(words: Sequence[str]) -> Optional[int]:
    """Return the signal that Megatron-LM is told to take."""
    for place, word in enumerate(words):
        name, sign, value = word.partition("=")
        if name == _CHOICE:
            return _CHOSEN.get(value if sign else "".join(words[place + 1 : place + 2]))
    return _CHOSEN["SIGTERM"]

"""Recognise programs that start a process for each GPU of a node, also behind other programs and in a shell's line.

Sources: torch.distributed.run (options and PET_ variables), accelerate/commands/launch.py, composer/cli/launcher.py,
deepspeed/launcher/runner.py, lightning/fabric/cli.py, torchtune/_cli/run.py.

Tests: tests/unit/convert/test_documents.py.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import islice
from typing import Iterable, List, Optional, Sequence, Tuple

from muster.protocol.shell_words import ASSIGNMENT, SHELLS, commands, resolved

TORCHRUN = "torchrun"
ACCELERATE = "accelerate"
COMPOSER = "composer"
DEEPSPEED = "deepspeed"
FABRIC = "fabric"
TUNE = "tune"

_NAMES = {
    "torchrun": TORCHRUN,
    "torch.distributed.run": TORCHRUN,
    "torch.distributed.launch": TORCHRUN,
    "accelerate": ACCELERATE,
    "accelerate-launch": ACCELERATE,
    "accelerate.commands.launch": ACCELERATE,
    "composer": COMPOSER,
    "composer.cli.launcher": COMPOSER,
    "deepspeed": DEEPSPEED,
    "deepspeed.launcher.runner": DEEPSPEED,
    "fabric": FABRIC,
    "lightning": FABRIC,
    "lightning.fabric": FABRIC,
    "tune": TUNE,
}
# Programs with other uses, which start processes with this word behind them.
_DOING = {"accelerate": "launch", "fabric": "run", "lightning": "run", "lightning.fabric": "run", "tune": "run"}

# The options of torchrun that have no value.
_FLAGS = frozenset(
    ("--standalone", "-m", "--module", "--no-python", "--run-path", "--virtual-local-rank", "--use-env", "-h", "--help")
)
PYTHON = re.compile(r"python[0-9.]*\Z")
# Words that may precede the program, or each other, in a command of a shell's line.
_BEFORE = frozenset(
    ("exec", "then", "do", "else", "time", "nohup", "command", "eval", "{", "!", "if", "while", "until")
)
WRAPPERS = frozenset(
    [
        "env",
        "numactl",
        "taskset",
        "nice",
        "ionice",
        "chrt",
        "stdbuf",
        "timeout",
        "tini",
        "dumb-init",
        "catatonit",
        "gosu",
        "su-exec",
        "setpriv",
        "nsys",
        "ncu",
        "conda",
        "mamba",
        "micromamba",
        "uv",
        "poetry",
        "pipenv",
        "pdm",
        "hatch",
        "strace",
        "ddtrace-run",
        "opentelemetry-instrument",
        "pixi",
        "rye",
        "sudo",
        "runuser",
        "setsid",
        "singularity",
        "apptainer",
        "rocprofv3",
        "py-spy",
    ]
)
LONGEST_LINE = 32_768  # of a shell, that is parsed: a longer one is a program of its own
_MOST_STARTED = 16  # in one line
_MOST_NAMED = 256  # programs of one line
_KEPT_LINES = 4096  # as many jobs may have one each, and are parsed again and again


def starter_of(command: Sequence[str]) -> str:
    """Return one of the names above; "" for a program that starts no processes, or that a shell hides."""
    return _NAMES.get(_last_part(started(command)[:1]), "")


def starter_of_all(command: Sequence[str]) -> str:
    """Return the name of the one program that starts processes for a command, also in a shell's line; "" for none, or
    for several."""
    names = {starter_of(inner_command) for inner_command in commands_of(command)}
    return names.pop() if len(names) == 1 else ""


def started(command: Sequence[str]) -> Tuple[str, ...]:
    """Return the command from the first program that starts processes; () where there is none."""
    for place, word in enumerate(command):
        name = _last_part((word,))
        if name in _NAMES and _DOING.get(name) in (None, "".join(command[place + 1 : place + 2])):
            return tuple(command[place:])
        if _is_program(word) or (" " in word and not ASSIGNMENT.match(word)):
            break
    return ()


def commands_of(command: Sequence[str]) -> List[Tuple[str, ...]]:
    """Return the commands that start processes, each from its program on: the command itself, or some of its shell's
    line."""
    line = shell_line(command)
    if line is None:
        started_command = started(command)
        return [started_command] if started_command else []
    return list(_within(line))


def programs(command: Sequence[str]) -> Tuple[str, ...]:
    """Return the programs that a command runs: its first word, or that of each command of its shell's line."""
    line = shell_line(command)
    return _named([command]) if line is None else _named_in(line)


@lru_cache(maxsize=_KEPT_LINES)
def _named_in(line: str) -> Tuple[str, ...]:
    return _named(commands(line)) if len(line) <= LONGEST_LINE else ()


def _named(listed: Iterable[Sequence[str]]) -> Tuple[str, ...]:
    names = dict.fromkeys(_last_part(without_prefix(words)[:1]) for words in listed)
    return tuple(islice(filter(None, names), _MOST_NAMED))


def shell_line(command: Sequence[str]) -> Optional[str]:
    """Return the line that a shell runs, also behind another program; None: it runs none.

    No words that follow are passed to it.
    """
    place = shell_at(command)
    return None if place is None else _line(command[place + 1 :])


def shell_at(command: Sequence[str]) -> Optional[int]:
    """Return the index of the shell that a command starts, also behind another program; None: it starts none."""
    for place, word in enumerate(command):
        if _last_part((word,)) in SHELLS:
            return place
        if _is_program(word) or PYTHON.match(_last_part((word,))):
            break
    return None


def _line(words: Sequence[str]) -> Optional[str]:
    """Return the line among a shell's words: the first that is no option, where -c is one, also as a letter of
    several."""
    rest, runs = iter(words), False
    for word in rest:
        if word[:1] not in ("-", "+") or word in ("-", "--"):
            following = next(rest, "") if word in ("-", "--") else word
            return following if runs else None
        if word.startswith("--"):
            if word in ("--rcfile", "--init-file"):
                next(rest, None)
            continue
        runs = runs or (word[0] == "-" and "c" in word)
        for _ in range(word.count("o") + word.count("O")):  # each has a value of its own
            next(rest, None)
    return "" if runs else None


@lru_cache(maxsize=_KEPT_LINES)
def _within(line: str) -> Tuple[Tuple[str, ...], ...]:
    """Return the first commands of a shell's line that start processes."""
    if len(line) > LONGEST_LINE:
        return ()
    return tuple(islice(filter(None, map(started_in_shell, resolved(commands(line)))), _MOST_STARTED))


def started_in_shell(words: Sequence[str]) -> Tuple[str, ...]:
    """Do the same as `started` for a command of a shell's line: another command may name a starter (`pip install
    deepspeed`)."""
    words = without_prefix(words)
    name = _last_part(words[:1])
    if PYTHON.match(name) and "pip" in words[1:4]:
        return ()
    if name in WRAPPERS and not {"install", "pip", "add", "sync"}.isdisjoint(words[1:4]):
        return ()
    return started(words) if name in _NAMES or name in WRAPPERS or PYTHON.match(name) else ()


def without_prefix(words: Sequence[str]) -> Sequence[str]:
    """Return the words of a shell's command from its program on."""
    place = 0
    while place < len(words) and (words[place] in _BEFORE or ASSIGNMENT.match(words[place])):
        place += 1
    return words[place:]


def option(command: Sequence[str], *names: str) -> Optional[str]:
    """Return the value of the first of these options that is given, written `--a=1` or `--a 1`.

    "" for one that has none; None: not given.
    """
    for place in range(program_at(command)):  # what follows are the options of that program
        name, sign, value = command[place].partition("=")
        if name.replace("_", "-") in names:
            return value if sign else "".join(command[place + 1 : place + 2])
    return None


def program_at(command: Sequence[str]) -> int:
    """Return the index of the program that a starter runs, behind all options of the starter; the length without one.

    Of torchrun all options are known. Of the others a program is what ends in .py, or follows --module.
    """
    first = len(command) - len(started(command))
    if first < len(command) and _NAMES[_last_part(command[first:])] == TORCHRUN:
        rest = iter(range(first + 1, len(command)))
        for place in rest:
            word = command[place]
            if word[:1] not in ("-", "$"):  # a shell's variable may hold options
                return place
            if word[0] == "-" and "=" not in word and word.replace("_", "-") not in _FLAGS:
                next(rest, None)
        return len(command)
    for place in range(first + 1 if first < len(command) else 0, len(command)):
        is_module = command[place - 1] in ("-m", "--module") and not command[place].startswith("-")
        if _is_program(command[place]) or (is_module and first < len(command)):
            return place
    return len(command)


def _is_program(word: str) -> bool:
    return word.endswith(".py")


def _last_part(words: Sequence[str]) -> str:
    """Return the first word without its folder."""
    return words[0].rsplit("/", 1)[-1] if words else ""

"""Options of the command by which a program learns where to save, and the warning that this is another place. Pure.

Tests: tests/unit/checkpoints/test_save_options.py, tests/unit/convert/test_saving.py.
"""

import posixpath
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from muster.api.trainingjob import TrainingJob
from muster.checkpoints import location, resume
from muster.pods.launching import command_of
from muster.pods.warned import Warned
from muster.pods.worker_pod import worker_container
from muster.protocol.resuming import is_own
from muster.protocol.shell_words import commands, resolved
from muster.protocol.starters import LONGEST_LINE, PYTHON, commands_of, shell_line, without_prefix
from muster.world.job import JobWorld

SAVES_ELSEWHERE = "SavesElsewhere"
# Options by which programs learn where to save, without dashes, prefixes (`trainer.`) and case; `-` is `_`.
_SURE = frozenset(["out_dir", "output_dir", "output_directory", "save", "save_dir", "save_directory"])
# These may also name results, or the checkpoint of a model to begin with.
_UNSURE = frozenset(
    [
        "checkpoint_dir",
        "checkpoint_directory",
        "checkpoints",
        "checkpoints_dir",
        "ckpt_dir",
        "out",
        "outdir",
        "output",
    ]
)
# Prefixes of sure options: others, such as `logger.save_dir`, may name a directory for something else.
_PREFIXES = frozenset(["", "args", "checkpoint", "ckpt", "train", "trainer", "training", "training_args"])
_LONGEST_PATH = 1024
_MOST_KEPT = 4096  # commands
_FILE = re.compile(r"\.[A-Za-z]{2,11}$")
_PLAIN = re.compile(r"([a-z][a-z0-9]*:/)?/[^\s$`*?\[\]{}\x00-\x1f\x7f]*")


class SaveOption(NamedTuple):
    """An option of a command that may say where the program saves.

    Attributes:
        option: as it is written, without its value.
        value: without a slash at its end.
        is_sure: whether it can hardly mean anything else.
    """

    option: str
    value: str
    is_sure: bool


def save_options(command: Sequence[str]) -> list[SaveOption]:
    """Return the options of a command without a shell that may say where the program saves."""
    options = []
    for index, word in enumerate(command):
        option, sign, value = word.partition("=")
        if not sign:
            value = "".join(command[index + 1 : index + 2]) if word.startswith("-") else ""
        prefix, _, name = option.lstrip("-+").replace("-", "_").lower().rpartition(".")
        if name in _SURE or name in _UNSURE:
            options.append(SaveOption(option, value.rstrip("/"), name in _SURE and prefix in _PREFIXES))
    return options


def commands_in(command: Sequence[str]) -> Iterable[Sequence[str]]:
    """Return the commands that a command runs: itself, or those of its shell's line."""
    line = shell_line(command)
    if line is None:
        return [command]
    return resolved(commands(line)) if len(line) <= LONGEST_LINE else ()


def is_directory(value: str) -> bool:
    """Whether a value is the absolute path or the URL of a directory, with nothing in it that is still to be
    resolved."""
    is_plain = len(value) <= _LONGEST_PATH and _PLAIN.fullmatch(value) is not None
    path = value.rpartition("://")[2]
    return is_plain and posixpath.normpath(path) == path and not _FILE.search(value)


def elsewhere_warning(world: JobWorld) -> Warned | None:
    """Return the warning that the program saves beside spec.checkpoint.directory, by its command; None: it is not
    known to, or a checkpoint was seen there."""
    job, directory = world.job, world.job.spec.checkpoint.directory
    if not directory:
        return None
    options = _options_of_program(tuple(command_of(worker_container(job) or {})))
    # One whose value is not known may be the one that counts.
    if not options or not all(
        is_directory(candidate.value) and _is_elsewhere(job, candidate.value) for candidate in options
    ):
        return None
    newest = resume.newest_checkpoint(world, world.gang.spec) if world.gang else resume.published_checkpoint(world)
    if newest is not None and is_own(newest.path, directory):
        return None
    option, value, _ = options[0]
    return Warned(
        SAVES_ELSEWHERE,
        f"the command says {option} {value}, and spec.checkpoint.directory is {directory}: Muster sees no checkpoint "
        f"that is saved elsewhere, and restarts would begin without one. Write {directory} into the command, or "
        "correct spec.checkpoint.directory",
    )


def _options_of_program(command: tuple[str, ...]) -> tuple[SaveOption, ...]:
    """Return the options by which the one program that trains learns where to save; () where it may be one of several,
    or the command is too long to be parsed and kept."""
    return _options_of(command) if sum(map(len, command)) <= LONGEST_LINE else ()


@lru_cache(maxsize=_MOST_KEPT)
def _options_of(command: tuple[str, ...]) -> tuple[SaveOption, ...]:
    command_lines: Sequence[Sequence[str]] = commands_of(command) or [
        words
        for words in commands_in(command)
        if shell_line(command) is None or any(map(PYTHON.match, map(posixpath.basename, without_prefix(words)[:1])))
    ]
    options = save_options(command_lines[0]) if len(command_lines) == 1 else []
    return tuple(option for option in options if option.is_sure)


def _is_elsewhere(job: TrainingJob, value: str) -> bool:
    """Whether a directory surely is none of those that the job names, nor lies in one of them or around it."""
    checkpoint = job.spec.checkpoint
    return not any(
        _may_be_one(job, value, named) for named in (checkpoint.directory, checkpoint.local_directory) if named
    )


def _may_be_one(job: TrainingJob, value: str, named: str) -> bool:
    (kind, _, path), (own_kind, _, own) = value.rpartition("://"), named.rpartition("://")
    # A program may upload what it saves to a path, and a store may be mounted at one.
    if kind != own_kind or _overlap(path, posixpath.normpath(own)):
        return True
    return not kind and _overlap(location.location(job, path), location.location(job, posixpath.normpath(own)))


def _overlap(directory: str, other: str) -> bool:
    """Whether one of two directories is the other, or lies in it."""
    return bool(directory and other) and (location.is_below(directory, other) or location.is_below(other, directory))

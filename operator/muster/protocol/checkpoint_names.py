"""Read from the name of a directory or file whether it may be a finished checkpoint, and of which step.

Tests: tests/unit/checkpoint/test_find.py, tests/unit/checkpoint/test_store.py.
"""

from __future__ import annotations

import functools
import os
import re
from typing import Iterable, List, Optional, Set, Tuple

# Where frameworks write a checkpoint before they rename it: complete today, gone tomorrow.
_UNFINISHED = re.compile(r"\A\.|(?:\A|[._-])(?:tmp|temp|unfinished)(?:[._-]|\d*\Z)", re.IGNORECASE)
# Words that say that a checkpoint is not finished, as uploads and Orbax's `500.partial_save` do, or that a person has
# put it out of the way. `_` is any one character between words, or none.
PUT_AWAY_WORDS = (
    "partial", "partial_save", "incomplete", "in_progress", "uploading", "downloading", "copying", "writing",
    "staging", "pending", "trash", "trashed", "delete", "deleted", "deleting", "remove", "removed", "removing",
    "discard", "discarded", "bad", "broken", "corrupt", "corrupted", "damaged", "invalid", "wrong", "diverged",
    "bak", "old", "orig", "copy", "disabled", "ignore", "ignored", "skip", "skipped", "unused", "hidden", "aside",
    "stale", "archive", "archived", "obsolete", "quarantine", "quarantined", "do_not_use",
)  # fmt: skip
# Words that frameworks and programs write behind the step: NeMo `-last`, fms-fsdp `step_500_ckp`, kohya's scripts
# `NAME-000500-state`, DeepSpeed `global_step500_universal`, OLMo `step500-unsharded`.
WRITTEN_BEHIND = (
    "last", "latest", "best", "final", "end", "emergency", "preempted", "interrupted", "state", "ckp", "ckpt",
    "checkpoint", "model", "universal", "unsharded", "sharded", "ema", "hf", "lora",
)  # fmt: skip
_PUT_AWAY_WORD = "|".join(word.replace("_", "[-_. ]?") for word in PUT_AWAY_WORDS)
_BETWEEN = r"[-_.+~ (]"
_ENDING = r"(?:\.(?:ckpt|pt|pth|safetensors))"
# Steps as frameworks write them: `500`, `checkpoint-500`, `epoch=1-step=500-val_loss=0.3`, `ep1-ba500`.
_STEP_ALONE = (
    r"(?:(?:checkpoint|ckpt|(?:(?:global|train)[_-]?)?step|iter|iteration|epoch|ep|ba|batch)s?[_.-]?|[a-z_]+=)?\d+"
)
_STEPS_ALONE = r"%s(?:[-_.]%s)*" % (_STEP_ALONE, _STEP_ALONE)
_NEWEST_ALONE = r"(?:checkpoint|ckpt|last|latest|final)"
_PUT_AWAY = re.compile(
    "|".join(
        (
            # `_500`, `old_500`
            rf"\A(?:[-_~#@! ]+|(?:{_PUT_AWAY_WORD}){_BETWEEN}*)"
            rf"(?:{_STEPS_ALONE}(?:[-_.][a-z]+)*|{_NEWEST_ALONE}){_ENDING}?\Z",
            # `500.bak.2`
            rf"\A{_STEPS_ALONE}{_ENDING}?{_BETWEEN}+(?:{_PUT_AWAY_WORD})(?![a-z])",
            # `last.old`, `run-500_broken`, `NAME-000500-state.bak2`
            rf"(?:\d|\A{_NEWEST_ALONE})(?:[-_](?:{'|'.join(WRITTEN_BEHIND)}))*{_ENDING}?{_BETWEEN}+"
            rf"(?:{_PUT_AWAY_WORD}|backup)\d*(?![a-z\d])\D*\Z",
            # `500 (1)`, `500~`
            rf"\d{_ENDING}?(?: ?\(\d+\)|[-_.~#! ]+\Z)",
        )
    ),
    re.IGNORECASE,
)
_ADDED = re.compile(rf"(.*\d)((?:{_BETWEEN}+[a-z]+)+)\Z", re.IGNORECASE)
_FILE_ENDING = re.compile(_ENDING + r"\Z", re.IGNORECASE)
_WORD = re.compile("[a-z]+")
_NUMBER = re.compile(r"\d+")
# The number that a framework calls the step, beside others: Lightning `epoch=9-step=9000-val_loss=1.25`, NeMo
# `model--val_loss=1.25-epoch=3-step=500-consumed_samples=64.0`, DeepSpeed `global_step500`, Megatron `iter_0000500`,
# Composer `ep1-ba500-rank0`.
_STEP = re.compile(
    r"(?:\A|[^a-z])(?:(?:global|train)[_-]?)?(?:step|iter|iteration)s?[=_.-]?(\d+(?:(?:\.\d+)?[km](?![a-z\d]))?)",
    re.IGNORECASE,
)
# The same where no other number is called a step: `batch32_step100` has the size of a batch.
_BATCH = re.compile(r"(?:\A|[^a-z])(?:ba|batch)(?:es)?[=_.-]?(\d+)", re.IGNORECASE)
# The number behind "checkpoint" where that of an epoch follows: Parler-TTS `checkpoint-150000-epoch-10`.
_BEFORE_EPOCH = re.compile(
    r"(?:\A|[^a-z])(?:checkpoint|ckpt)[=_.-]?(\d+)(?=[-_.](?:.*[^a-z])?ep(?:och)?[=_.-]?\d)", re.IGNORECASE
)
# Names of checkpoints that end in a number: `ckpt500-bf16`.
_NUMBERED = re.compile(r"(?:\A|[^a-z])(?:checkpoint|ckpt|epoch|ep)(\d+)(?!\d|\.\d)", re.IGNORECASE)
# A whole number without a letter beside it, unlike that of a type, a model or a size: `ckpt-500-bf16`, `500-llama-7b`.
_ALONE = re.compile(r"(?<![a-z\d])(?<!\d\.)\d+(?![a-z\d]|\.\d)", re.IGNORECASE)
_THOUSANDS = re.compile(r"(?<![a-z\d])(?<!\d\.)\d+k(?![a-z\d])", re.IGNORECASE)
# A whole number that is neither part of a decimal one nor a version (`last-v1`).
_INTEGER = re.compile(r"(?<!\d)(?<!-v)(?<!\d\.)\d+(?!\d|\.\d)")
# A date, and a time behind it: neither is a step if there is another number.
_DATE = re.compile(
    r"(?<!\d)(?:19|20)\d\d([-_]?)(?:0[1-9]|1[0-2])\1(?:0[1-9]|[12]\d|3[01])(?:[-_T "
    r"]?\d\d[-_:]?\d\d(?:[-_:]?\d\d)?)?(?!\d)"
)
_ITERATION = re.compile(r"iter_\d{7,15}\Z")
_URL = re.compile(r"[a-z][a-z0-9+.-]*://.")
_UNITS = {"k": 3, "m": 6}  # exponents of ten
_MAX_STEP_DIGITS = 15  # the most that a report can hold (muster.protocol.messages.MAX_NUMBER)


@functools.lru_cache(maxsize=16384)
def step_in_name(name: str) -> Optional[int]:
    """Return the step in a checkpoint's name: the number that is called a step, else the last whole number.

    A number beside a letter counts only where there is no other, and so does a date. `10k` is 10,000.
    """
    numbers = _called_step(name)
    for text in dict.fromkeys((_DATE.sub("-", name), name)):
        for pattern in (_ALONE, _THOUSANDS, _NUMBERED, _INTEGER):
            numbers = numbers or pattern.findall(text)[-1:]
    return _short(numbers)


def named_step(name: str) -> Optional[int]:
    """Return the number in a name that is called a step; None where the name has only other numbers."""
    return _short(_called_step(name))


def dated(name: str) -> bool:
    """Return whether all numbers in a name are those of a date and time: it is that of a run, and has no step."""
    without = _DATE.sub("", name)
    return without != name and not any(char.isdigit() for char in without)


def _called_step(name: str) -> List[str]:
    return _STEP.findall(name)[:1] or _BATCH.findall(name)[:1] or _BEFORE_EPOCH.findall(_DATE.sub("-", name))[:1]


def is_url(path: str) -> bool:
    """Whether a path leads to an object store or the like, and not into a file system of this machine."""
    return _URL.match(path) is not None


def absolute(path: str) -> str:
    """Normalise a directory's path: absolute, and without a slash at its end."""
    return path.rstrip("/") if is_url(path) else os.path.abspath(path)


def above(path: str) -> str:
    """Return the parent directory of a path; a URL without a parent (a bucket) is its own."""
    parent = os.path.dirname(path)
    return path if is_url(path) and not is_url(parent) else parent


@functools.lru_cache(maxsize=1024)
def joined(directory: str, name: str) -> str:
    """Join the path of a directory and the name of a file, in it or beside it."""
    scheme, separator, place = directory.rpartition("://")
    return scheme + separator + os.path.normpath(os.path.join(place, name))


def is_iteration(name: str) -> bool:
    """Whether a directory's name is that of a Megatron-LM iteration."""
    return _ITERATION.match(name) is not None


def readable(text: str) -> str:
    """Replace what cannot be encoded in a name, or in a text with one: file systems take any bytes, and files may be
    corrupt."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def _short(numbers: List[str]) -> Optional[int]:
    if not numbers:
        return None
    unit = _UNITS.get(numbers[0][-1].lower())
    digits, _, fraction = numbers[0].rstrip("kKmM").partition(".")
    if unit is not None:  # 1.5k
        digits += (fraction + unit * "0")[:unit]
    return int(digits) if len(digits) <= _MAX_STEP_DIGITS else None


def order_candidates(names: Iterable[str]) -> List[str]:
    """Order names that may hold a finished checkpoint: names without a step first, then from the highest step down."""
    return sorted((name for name in names if not _is_unfinished(name)), key=_place)


@functools.lru_cache(maxsize=16384)
def _is_unfinished(name: str) -> bool:
    return _UNFINISHED.search(name) is not None


def put_away(names: Iterable[str]) -> Set[str]:
    """Return which of these names are a step, or the newest checkpoint, with something added that no framework adds.

    Their directories and files do not count. A word that says nothing of it counts, unless others of these names are
    written without one: then the program does not write it.
    """
    split = {name: _added(name) for name in names}
    bare = {_shape(stem) for stem, added in split.values() if not added}
    odd = {name for name, (stem, added) in split.items() if added and _shape(stem) in bare}
    return odd.union(filter(_is_put_away, split))


@functools.lru_cache(maxsize=16384)
def _is_put_away(name: str) -> bool:
    return _PUT_AWAY.search(name) is not None


@functools.lru_cache(maxsize=16384)
def _added(name: str) -> Tuple[str, str]:
    """Return a name before and from the words behind its last number; the second is "" where programs write these."""
    name = _FILE_ENDING.sub("", name)
    match = _ADDED.match(name)
    if match is None or set(_WORD.findall(match[2].lower())) <= set(WRITTEN_BEHIND):
        return name, ""
    return match[1], match[2]


def _shape(name: str) -> str:
    return _NUMBER.sub("0", _FILE_ENDING.sub("", name))


@functools.lru_cache(maxsize=16384)
def _place(name: str) -> Tuple[bool, int, str]:
    step = step_in_name(name)
    return step is not None, -(step or 0), name

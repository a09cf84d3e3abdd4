"""What the name of a directory or a file tells: whether it may be a finished checkpoint, and of which step."""

from __future__ import annotations

import os
import re
from typing import Iterable, List, Optional

# Where frameworks assemble a checkpoint before they rename it: complete today, gone tomorrow.
_UNFINISHED = re.compile(r"\A\.|(?:\A|[._-])(?:tmp|temp|unfinished)(?:[._-]|\d*\Z)", re.IGNORECASE)
# The number that a framework calls the step, whatever else it tells: Lightning `epoch=9-step=9000-val_loss=1.25`, NeMo
# `model--val_loss=1.25-epoch=3-step=500-consumed_samples=64.0`, DeepSpeed `global_step500`, Megatron `iter_0000500`,
# Composer `ep1-ba500-rank0`.
_STEP = re.compile(
    r"(?:\A|[^a-z])(?:(?:global|train)[_-]?)?(?:step|iter|iteration|ba|batch)s?[=_.-]?(\d+)", re.IGNORECASE
)
# A whole number that is neither part of a decimal one nor a version (`last-v1`).
_INTEGER = re.compile(r"(?<!\d)(?<!-v)(?<!\d\.)\d+(?!\d|\.\d)")
_ITERATION = re.compile(r"iter_\d{7,15}\Z")
_URL = re.compile(r"[a-z][a-z0-9+.-]*://.")
_MAX_STEP_DIGITS = 15  # what a report can tell (muster.protocol.messages.MAX_NUMBER)


def step_in_name(name: str) -> Optional[int]:
    """The step that a checkpoint's name tells: the number that is called so, else the last whole one."""
    return _short(_STEP.findall(name)[:1] or _INTEGER.findall(name)[-1:])


def named_step(name: str) -> Optional[int]:
    """The number in a name that is called a step; None where only other numbers are in it."""
    return _short(_STEP.findall(name)[:1])


def is_url(path: str) -> bool:
    """Whether it leads to an object store or the like, and not into a file system of this machine."""
    return _URL.match(path) is not None


def absolute(path: str) -> str:
    """A directory's one way of being written: absolute, and without a slash at its end."""
    return path.rstrip("/") if is_url(path) else os.path.abspath(path)


def above(path: str) -> str:
    """The directory in which it lies; of a URL that has none above it (a bucket), that URL."""
    parent = os.path.dirname(path)
    return path if is_url(path) and not is_url(parent) else parent


def joined(directory: str, name: str) -> str:
    """The path of a file in a directory, or beside it."""
    scheme, separator, place = directory.rpartition("://")
    return scheme + separator + os.path.normpath(os.path.join(place, name))


def is_iteration(name: str) -> bool:
    """Whether Megatron-LM calls a directory so."""
    return _ITERATION.match(name) is not None


def _short(numbers: List[str]) -> Optional[int]:
    return int(numbers[0]) if numbers and len(numbers[0]) <= _MAX_STEP_DIGITS else None


def order_candidates(names: Iterable[str]) -> List[str]:
    """Names that may hold a finished checkpoint, those without a step first, then from the highest step down."""
    kept = [name for name in names if not _UNFINISHED.search(name)]
    return sorted(kept, key=lambda name: (step_in_name(name) is not None, -(step_in_name(name) or 0), name))

"""Parses JSON that a tenant's process wrote: whatever it holds, the reader gets plain data or a ValueError.

`json.loads` alone raises RecursionError for deep nesting, accepts NaN and 1e999, and takes seconds over a number of a
million digits (before Python 3.11). Every reader of files in a checkpoint directory parses them here.

Tests: tests/unit/checkpoint/test_hostile_files.py.
"""

from __future__ import annotations

import json
import math
from typing import Any

MAX_BYTES = 32 * 1024 * 1024  # parsed it takes ten times that
_MAX_DIGITS = 32


def parse_json(data: bytes) -> Any:
    """Parse a JSON document.

    Raises:
        ValueError: the document is too large, not UTF-8, not JSON, nested too deep, or has a number that no reader of
            JSON
        can hold.
    """
    if len(data) > MAX_BYTES:
        raise ValueError("larger than %d bytes" % MAX_BYTES)
    try:
        return json.loads(data, parse_int=_integer, parse_float=_finite, parse_constant=_refuse)
    except (RecursionError, MemoryError):
        raise ValueError("nested too deep, or too large") from None


def _integer(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise ValueError("a number of %d digits" % len(text))
    return int(text)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number that is not finite")
    return number


def _refuse(name: str) -> Any:
    raise ValueError("%s is no number" % name)

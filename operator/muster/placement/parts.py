"""Work that is made in parts: a generator yields after each, and returns the result.

Tests: tests/unit/placement/test_parts.py.
"""

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


def at_once(parts: Generator[None, None, T]) -> T:
    """Return the result of such work, made without a pause."""
    while True:
        try:
            next(parts)
        except StopIteration as made:
            result: T = made.value
            return result

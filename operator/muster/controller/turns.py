"""Who is served next where one may have thousands of things to be done: each in turn, so that nobody waits for
another's flood."""

from collections.abc import Callable, Iterable
from itertools import zip_longest
from typing import TypeVar

T = TypeVar("T")


def in_turns(items: Iterable[T], whose: Callable[[T], str]) -> list[T]:
    """The items with their owners taking turns; those of one owner stay in their order, and who comes first stays
    first."""
    queues: dict[str, list[T]] = {}
    for item in items:
        queues.setdefault(whose(item), []).append(item)
    return [item for row in zip_longest(*queues.values(), fillvalue=None) for item in row if item is not None]

"""Orders work by turns of its owners, so that no owner waits behind another's thousands of items."""

from collections.abc import Callable, Iterable
from itertools import zip_longest
from typing import TypeVar

T = TypeVar("T")


def in_round_robin(items: Iterable[T], owner_of: Callable[[T], str]) -> list[T]:
    """The items with their owners, which `owner_of` returns, taking turns.

    The items of one owner stay in their order, and the owner of the first item comes first.
    """
    queues: dict[str, list[T]] = {}
    for item in items:
        queues.setdefault(owner_of(item), []).append(item)
    return [item for row in zip_longest(*queues.values(), fillvalue=None) for item in row if item is not None]

"""Counts the memory that the templates and metadata of each namespace's jobs take in the operator, and enforces each
namespace's share.

A template is any JSON: parsed, 128 KiB of `{},{},...` take thirty times as much. Each replica keeps all jobs, so
hundreds of such templates would end leader and standby together. The memory of a template is estimated from its bytes
before it is parsed, and counted for as long as a parsed version of the job is alive.
"""

import sys
import weakref
from collections import Counter
from collections.abc import Mapping
from typing import Any

Key = tuple[str, str]  # namespace, name

MAX_NAMESPACE_BYTES = 192 * 1024 * 1024
# CPython 3.11 to 3.14, 64 bits, rounded up: a dictionary with its first entries, a list with one, a further value in
# either, and a key.
_OBJECT_BYTES, _LIST_BYTES, _VALUE_BYTES, _KEY_BYTES = 240, 104, 96, 130


def parsed_bytes(template: bytes) -> int:
    """Return how many bytes of memory this JSON takes at most once it is parsed."""
    costs = ((b"{", _OBJECT_BYTES), (b"[", _LIST_BYTES), (b",", _VALUE_BYTES), (b":", _KEY_BYTES))
    return len(template) + sum(template.count(sign) * cost for sign, cost in costs)


def texts_bytes(texts: Mapping[str, str]) -> int:
    """Return how many bytes of memory these labels or annotations take."""
    return sum(_KEY_BYTES + sys.getsizeof(name) + sys.getsizeof(value) for name, value in texts.items())


class TemplateShares:
    """Counts the parsed versions that are alive. Several versions of one job share most of their memory, and count
    once.

    Args:
        most_bytes: the share of one namespace.
    """

    def __init__(self, most_bytes: int = MAX_NAMESPACE_BYTES) -> None:
        self._most_bytes = most_bytes
        self._held: dict[Key, tuple[int, int]] = {}  # bytes, and how many versions are alive
        self._totals: Counter[str] = Counter()
        self._refused: dict[Key, int] = {}  # jobs for which there was no room -> bytes

    def has_room(self, key: Key, size_bytes: int) -> bool:
        """Whether a version of this job may be parsed within the namespace's share."""
        held_bytes = self._held.get(key, (0, 0))[0]
        return size_bytes <= held_bytes or self._totals[key[0]] - held_bytes + size_bytes <= self._most_bytes

    def refuse(self, key: Key, size_bytes: int) -> None:
        """Note that there was no room for a version of this job."""
        self._refused[key] = size_bytes

    def forget(self, key: Key) -> None:
        """Note that the job does not wait for room any more."""
        self._refused.pop(key, None)

    def refused(self) -> list[tuple[Key, int]]:
        """Return the jobs for which there was no room, with the bytes of each."""
        return list(self._refused.items())

    def hold(self, key: Key, size_bytes: int, version: Any) -> None:
        """Count a version until it is garbage-collected."""
        held_bytes, alive = self._held.get(key, (0, 0))
        self._held[key] = max(held_bytes, size_bytes), alive + 1
        self._totals[key[0]] += max(size_bytes - held_bytes, 0)
        weakref.finalize(version, self._release, key).atexit = False

    def _release(self, key: Key) -> None:
        size_bytes, alive = self._held[key]
        if alive > 1:
            self._held[key] = size_bytes, alive - 1
            return
        del self._held[key]
        self._totals[key[0]] -= size_bytes
        if not self._totals[key[0]]:
            del self._totals[key[0]]

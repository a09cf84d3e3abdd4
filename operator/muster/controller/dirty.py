"""A queue of keys to work on: each at most once, some due later, none handed out twice at a time.

There is one of jobs and one of nodes.

Namespaces take turns among the keys that are due. A namespace may have thousands of jobs, or change its own all the
time. It then keeps another namespace's jobs waiting for one decision, not for thousands.
"""

import asyncio
import contextlib
import heapq
import time
from collections import OrderedDict
from collections.abc import Callable

from muster.controller.bus import Key

_STALE = 1024  # entries of the heap that an earlier time of their key has replaced: they go when they are so many


class DirtyKeys:
    """The keys that are due, busy or resting. Only the event loop's thread may touch it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due: dict[Key, float] = {}
        self._heap: list[tuple[float, Key]] = []
        # Those whose time has come, by namespace, the first to be due first. The namespace that was served last is
        # last.
        self._ready: OrderedDict[str, OrderedDict[Key, None]] = OrderedDict()
        self._busy: dict[Key, float | None] = {}  # being worked on -> when due again, if added meanwhile
        self._rests: dict[Key, float] = {}  # until when a key is left alone
        self._purged_at = _STALE  # the number of rests at which those that are over are dropped
        self._hurried: set[Key] = set()  # being worked on, and not to rest afterwards
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._due)

    def add(self, key: Key, in_seconds: float = 0.0) -> None:
        """Make the key due after `in_seconds`, or sooner if it already is; not before its rest is over."""
        due = self._clock() + in_seconds
        if key in self._busy:
            old_due = self._busy[key]
            self._busy[key] = due if old_due is None else min(old_due, due)
            return
        due = max(due, self._rests.get(key, due))
        if due < self._due.get(key, float("inf")):
            self._due[key] = due
            heapq.heappush(self._heap, (due, key))
            if len(self._heap) > 2 * len(self._due) + _STALE:
                self._heap = [(at, of) for of, at in self._due.items()]
                heapq.heapify(self._heap)
            self._changed.set()

    def hurry(self, key: Key) -> None:
        """Make the key due now, even while it rests, because what it waited for is there."""
        self._rests.pop(key, None)
        if key in self._busy:
            self._hurried.add(key)
        self.add(key)

    async def next_key(self) -> Key:
        """Wait for the next key that is due, and return it; `done` must follow."""
        await self.wait()
        key = self._next()
        self._changed.set()  # others waiting have a new head to look at
        return key

    async def wait(self, seconds: float | None = None) -> None:
        """Wait until a key is due, for so many seconds at most; None: for as long as it takes."""
        ends = None if seconds is None else self._clock() + seconds
        while True:
            self._changed.clear()
            pauses = [self._wait_seconds(), None if ends is None else ends - self._clock()]
            if self._ready or (ends is not None and self._clock() >= ends):
                return
            with contextlib.suppress(TimeoutError):
                # wait_for can lose a cancellation before Python 3.12
                async with asyncio.timeout(min((pause for pause in pauses if pause is not None), default=None)):
                    await self._changed.wait()

    def next_keys(self) -> list[Key]:
        """Return all keys that are due, for one decision about all of them; `done` must follow for each."""
        self._wait_seconds()
        keys = []
        while self._ready:
            keys.append(self._next())
        return keys

    def reserve_key(self, key: Key) -> bool:
        """Take a key that is not due for work that is to be done now; `done` must follow. It is due later as before.

        Returns:
            False if the key is due, is being worked on or rests. Then it is due, or will be afterwards.
        """
        now = self._clock()
        if key in self._busy or self._rests.get(key, now) > now or self._due.get(key, now + 1) <= now:
            self.add(key)
            return False
        self._busy[key] = self._due.pop(key, None)
        return True

    def has_news(self, key: Key) -> bool:
        """Whether a key that is being worked on was added meanwhile, so that it is due again at once."""
        due = self._busy.get(key)
        return due is not None and due <= self._clock()

    def _wait_seconds(self) -> float | None:
        """Make the keys ready that are due; returns the seconds until the next one is due, None when there is none."""
        now = self._clock()
        while self._heap:
            due, key = self._heap[0]
            if self._due.get(key) == due:  # otherwise an earlier entry has taken its place
                if due > now:
                    return due - now
                self._ready.setdefault(key[0], OrderedDict())[key] = None
            heapq.heappop(self._heap)
        return None

    def _next(self) -> Key:
        namespace, keys = self._ready.popitem(last=False)
        key, _ = keys.popitem(last=False)
        if keys:
            self._ready[namespace] = keys
        del self._due[key]
        self._busy[key] = None
        return key

    def done(self, key: Key, rest_seconds: float = 0.0) -> None:
        """Note that the work on the key has ended. If it was added meanwhile, or will be, it is due after
        `rest_seconds`."""
        due, now = self._busy.pop(key), self._clock()
        self._rests.pop(key, None)
        if key in self._hurried:
            self._hurried.discard(key)
            rest_seconds = 0.0
        if rest_seconds > 0:
            if len(self._rests) >= self._purged_at:
                self._rests = {other: until for other, until in self._rests.items() if until > now}
                self._purged_at = 2 * len(self._rests) + _STALE
            self._rests[key] = now + rest_seconds
        if due is not None:
            self.add(key, due - now)

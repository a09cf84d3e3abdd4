"""Limit the share of the core that each user of the page takes, so that no user's requests delay those of others.

A request is answered first and charged afterwards, because only then is its cost known. A user that has taken more than
its share waits until the share has grown to what it took. A browser never waits: it takes a few per cent.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator, Hashable
from typing import Any, Generic, TypeVar

from muster.serve import CpuShare

SHARE_OF_USER = 0.1  # of the core
BURST_SECONDS = 1.0  # of the core at once, after a quiet time
MAX_ACCOUNTS = 1024  # beyond it those that owe nothing are forgotten

T = TypeVar("T")


class Shares:
    """What each user has taken lately.

    Args:
        clock: monotonic seconds.
        sleep: waits for so many seconds.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._shares: dict[Hashable, CpuShare] = {}  # of users that have taken something lately

    async def wait_for_share(self, user: Hashable, is_wanted: Callable[[], bool] = lambda: True) -> bool:
        """Wait while the user has taken more than its share. False: its request is not wanted any more."""
        while (pause := self._pause_seconds(user)) > 0:
            await self._sleep(pause)
            if not is_wanted():
                return False
        return True

    def has_share(self, user: Hashable) -> bool:
        """Whether a request of this user would not wait now."""
        return self._pause_seconds(user) <= 0

    def charge(self, user: Hashable, seconds: float) -> None:
        """Count seconds of the core that were taken for this user."""
        if user not in self._shares:
            if len(self._shares) >= MAX_ACCOUNTS:
                self._shares = {user: share for user, share in self._shares.items() if not share.owes_nothing}
            self._shares[user] = CpuShare(SHARE_OF_USER, BURST_SECONDS, self._clock)
        self._shares[user].charge(seconds)

    def _pause_seconds(self, user: Hashable) -> float:
        share = self._shares.get(user)
        return share.pause_seconds() if share is not None else 0.0


class Metered(Generic[T]):
    """An awaitable that counts the seconds which its thread computes for it, without those of other tasks.

    Attributes:
        seconds: counted so far.
    """

    def __init__(self, awaitable: Awaitable[T], cpu_clock: Callable[[], float] = time.thread_time) -> None:
        self._awaitable = awaitable
        self._cpu_clock = cpu_clock
        self.seconds = 0.0

    def __await__(self) -> Generator[Any, Any, T]:
        """Pass everything on to the awaitable, and count each step."""
        steps: Any = self._awaitable.__await__()
        step, argument = steps.send, None
        while True:
            begin_seconds = self._cpu_clock()
            try:
                waits_for = step(argument)
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                self.seconds += self._cpu_clock() - begin_seconds
            try:
                step, argument = steps.send, (yield waits_for)
            except BaseException as error:  # noqa: BLE001 - whatever it is, what is awaited has to see it
                step, argument = steps.throw, error

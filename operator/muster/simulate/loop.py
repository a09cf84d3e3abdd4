"""An event loop whose time is simulated: it goes on to the next event at once, and stands still while one is handled."""

import asyncio
import heapq
from collections.abc import Callable
from typing import Any


class StandstillError(Exception):
    """Nothing is left that could ever happen."""


class SimulatedLoop(asyncio.BaseEventLoop):
    """Runs coroutines and callbacks in simulated time. The same calls give the same order of events.

    Attributes:
        agenda: events that are no coroutines.
    """

    def __init__(self, now: float = 1000.0) -> None:
        super().__init__()
        self._now = now
        self._clock_resolution = 1e-9
        self.agenda = Agenda(self)
        self._selector = self  # nobody outside can wake the loop: to wait is only a matter of turning the clock

    def time(self) -> float:
        """Seconds, by a clock that only goes on."""
        return self._now

    def pass_to(self, moment: float) -> None:
        """It is this late now."""
        self._now = max(self._now, moment)

    def select(self, timeout: float | None) -> list[Any]:
        """Go on to what is due next, at most so far; called by the loop itself where a real one waits for descriptors."""
        timers: list[Any] = self._scheduled  # type: ignore[attr-defined]
        ready: Any = self._ready  # type: ignore[attr-defined]
        while not ready:
            due = self.agenda.next_at
            timer = timers[0].when() if timers else float("inf")
            moment = min(due, timer)
            if moment == float("inf"):
                raise StandstillError("nothing is ready, and nothing is due")
            self.pass_to(moment)
            if timer <= due:
                break
            self.agenda.run_one()
        return []

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


class Agenda:
    """Events that are no coroutines, by the thousand: cheaper than timers of the loop.

    Attributes:
        events: that have been handled so far.
    """

    def __init__(self, loop: SimulatedLoop) -> None:
        self.events = 0
        self._loop = loop
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._count = 0

    @property
    def now(self) -> float:
        """The loop's time."""
        return self._loop.time()

    @property
    def next_at(self) -> float:
        """When the next one is due."""
        return self._due[0][0] if self._due else float("inf")

    def at(self, moment: float, event: Callable[[], object]) -> None:
        """Call it at this moment, after those that were asked for before it and are due then, too."""
        self._count += 1
        heapq.heappush(self._due, (max(moment, self._loop.time()), self._count, event))

    def after(self, seconds: float, event: Callable[[], object]) -> None:
        """Call it in so many seconds."""
        self.at(self._loop.time() + seconds, event)

    def run_one_due(self) -> None:
        """Turn the clock to the next one: for whoever has no coroutines."""
        self._loop.pass_to(self.next_at)
        self.run_one()

    def run_one(self) -> None:
        """The one that is due."""
        _, _, event = heapq.heappop(self._due)
        self.events += 1
        try:
            event()
        except Exception as error:  # noqa: BLE001 - as the loop does with what it calls
            self._loop.call_exception_handler({"message": "an event failed", "exception": error})

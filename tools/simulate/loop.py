"""An event loop whose time is simulated: it goes on to the next event at once, and stands still while one is
handled."""

import asyncio
import heapq
from collections.abc import Callable
from contextvars import Context, ContextVar
from typing import Any, Protocol


class Pausable(Protocol):
    """A process that can be stopped and continued.

    Attributes:
        parked: what its coroutines would have done meanwhile; None while it runs.
    """

    parked: list[asyncio.Handle] | None


whose: ContextVar[Pausable | None] = ContextVar("whose", default=None)


class StandstillError(Exception):
    """Nothing is left that could ever happen."""


class _Handle(asyncio.Handle):
    """A callback that waits while its process is paused."""

    __slots__ = ()

    def _run(self) -> None:
        if not _park(self):
            super()._run()


class _Timer(asyncio.TimerHandle):
    """The same at a time."""

    __slots__ = ()

    def _run(self) -> None:
        if not _park(self):
            super()._run()


def _park(handle: asyncio.Handle) -> bool:
    process = handle._context.get(whose)  # type: ignore[attr-defined]  # noqa: SLF001 - they have it for this
    if process is None or process.parked is None:
        return False
    process.parked.append(handle)
    return True


class SimulatedLoop(asyncio.BaseEventLoop):
    """Runs coroutines and callbacks in simulated time. The same calls give the same order of events.

    Attributes:
        agenda: events that are no coroutines.
        between_steps: called with False when a step has ended (all that was ready at once), with True when the next
            begins.
    """

    def __init__(self, now: float = 1000.0) -> None:
        super().__init__()
        self.between_steps: Callable[[bool], None] = lambda _: None
        self._now = now
        self._clock_resolution = 1e-9
        self.agenda = Agenda(self)
        self._selector = self  # nobody outside can wake the loop: to wait is only a matter of turning the clock

    def time(self) -> float:
        return self._now

    def resume(self, process: Pausable) -> None:
        """Let a paused process go on with what has come meanwhile."""
        parked, process.parked = process.parked or [], None
        self._ready.extend(parked)  # type: ignore[attr-defined]

    def pass_to(self, moment: float) -> None:
        """It is this late now."""
        self._now = max(self._now, moment)

    def select(self, timeout: float | None) -> list[Any]:
        """Go on to what is due next, at most so far; called by the loop itself where a real one waits for
        descriptors."""
        self.between_steps(False)
        timers: list[Any] = self._scheduled  # type: ignore[attr-defined]
        ready: Any = self._ready  # type: ignore[attr-defined]
        agenda, never = self.agenda, float("inf")
        while not ready:
            due = agenda.next_at
            timer = timers[0].when() if timers else never
            moment = min(timer, due)
            if moment == never:
                raise StandstillError("nothing is ready, and nothing is due")
            if moment > self._now:
                self._now = moment
            if timer <= due:
                break
            agenda.run_one()
        self.between_steps(True)
        return []

    def _call_soon(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> asyncio.Handle:
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = _Timer(when, callback, args, self, context)
        heapq.heappush(self._scheduled, timer)  # type: ignore[attr-defined]
        timer._scheduled = True  # type: ignore[attr-defined]  # noqa: SLF001 - as the loop does itself
        return timer

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
        return self._loop._now  # noqa: SLF001 - the loop is its own, and this is asked more often than anything else

    @property
    def next_at(self) -> float:
        return self._due[0][0] if self._due else float("inf")

    def at(self, moment: float, event: Callable[[], object]) -> None:
        """Call it at this moment, after those that were asked for before it and are due then, too."""
        self._count += 1
        now = self.now
        heapq.heappush(self._due, (max(now, moment), self._count, event))

    def after(self, seconds: float, event: Callable[[], object]) -> None:
        self.at(self.now + seconds, event)

    def run_one_due(self) -> None:
        """Turn the clock to the next one: for callers without coroutines."""
        self._loop.pass_to(self.next_at)
        self.run_one()

    def run_one(self) -> None:
        _, _, event = heapq.heappop(self._due)
        self.events += 1
        try:
            event()
        except Exception as error:  # noqa: BLE001 - as the loop does with what it calls
            self._loop.call_exception_handler({"message": "an event failed", "exception": error})

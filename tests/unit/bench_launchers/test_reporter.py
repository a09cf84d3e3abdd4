"""One simulated launcher and a real coordinator: from the first report to the last words."""

import asyncio
import contextlib
import itertools
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from bench.launchers import reporter as module
from bench.launchers.channel import Endpoint
from bench.launchers.reporter import Launcher
from bench.launchers.training import Pace, Training
from bench.launchers.worker import Identity, Worker
from tests.unit.waiting import until

from muster.protocol.messages import EXIT, RUN, WAIT, Directive, decode_report, digest, encode
from simulate.loop import SimulatedLoop

PACE = {"poll_seconds": 0.2, "hold_seconds": 0.2}


@pytest.fixture
async def launcher(coordinator: Any) -> AsyncIterator[Launcher]:
    pace = Pace(step_seconds=0.05, reclaim_seconds=0.01)
    worker = Worker(Identity("uid-0", "10.0.0.1", 5000), Training(pace, "", lambda *_: None), pace, lambda _: None)
    made = Launcher(worker, coordinator.endpoint(), "good", Counter())
    task = asyncio.create_task(made.run())
    yield made
    task.cancel()
    await asyncio.wait({task})


async def test_it_follows_its_directives(coordinator: Any, launcher: Launcher) -> None:
    await until(lambda: coordinator.states[-1:] == ["Idle 1"])
    coordinator.order(Directive(RUN, attempt=1, node_count=1, **PACE))
    await until(lambda: coordinator.states[-1:] == ["Running 1"])
    launcher.fail(1)
    await until(lambda: coordinator.states[-1:] == ["Exited 1"])
    coordinator.order(Directive(WAIT, attempt=2, **PACE))
    await until(lambda: coordinator.states[-1:] == ["Idle 2"])
    coordinator.order(Directive(EXIT, attempt=2, exit_code=4))
    await until(lambda: coordinator.states[-1:] == ["Terminating 2"])
    assert coordinator.hub.proved_dead("uid-0")


class SimulatedCoordinator:
    """A launcher and its coordinator in simulated time: answers come at once, or are held as long as they may be.

    Attributes:
        answered: the state of each report that was answered, its step, and on which connection it came.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loop = SimulatedLoop()
        self.directive = Directive(WAIT, attempt=1, **PACE)
        self.answered: list[tuple[str, int | None, int]] = []
        self._changed = asyncio.Event()
        connections = itertools.count()
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=self.loop.time))
        monkeypatch.setattr(
            module,
            "Channel",
            lambda *_: SimpleNamespace(exchange=partial(self.exchange, next(connections)), close=lambda: None),
        )

    def order(self, directive: Directive) -> None:
        self.directive = directive
        self._changed.set()
        self._changed = asyncio.Event()

    async def exchange(self, connection: int, body: bytes, timeout_seconds: float) -> bytes:
        report = decode_report(body)
        until = self.loop.time() + report.hold_seconds
        while digest(self.directive) == report.directive_seen and self.loop.time() < until:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    await self._changed.wait()
        self.answered.append((f"{report.state} {report.attempt}", report.step, connection))
        return encode(self.directive)

    def run(self, story: Callable[[Launcher], Awaitable[None]]) -> None:
        """Play this with a launcher."""

        async def all_of_it() -> None:
            pace = Pace(step_seconds=0.05, reclaim_seconds=0.01)
            training = Training(pace, "", lambda *_: None)
            worker = Worker(Identity("uid-0", "10.0.0.1", 5000), training, pace, lambda _: None)
            launcher = Launcher(worker, Endpoint("", 0, "", ssl.create_default_context()), "good", Counter())
            task = asyncio.create_task(launcher.run())
            await story(launcher)
            task.cancel()
            await asyncio.wait({task})

        self.loop.run_until_complete(all_of_it())


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> SimulatedCoordinator:
    return SimulatedCoordinator(monkeypatch)


def test_steps_are_told_once_in_each_pace(simulated: SimulatedCoordinator) -> None:
    async def story(_: Launcher) -> None:
        simulated.order(Directive(RUN, attempt=1, node_count=1, **PACE))
        await asyncio.sleep(5.0)
        before = len(simulated.answered)
        await asyncio.sleep(20.0)
        told = simulated.answered[before:]
        assert 99 <= len(told) <= 101
        assert len({connection for _, _, connection in told}) == 1, "the other connection has nothing to say"
        steps = [step or 0 for _, step, _ in told]
        assert all(first < second for first, second in itertools.pairwise(steps))

    simulated.run(story)


def test_a_restart_takes_two_reports(simulated: SimulatedCoordinator) -> None:
    slow = {"poll_seconds": 9.0, "hold_seconds": 9.0}

    async def story(_: Launcher) -> None:
        simulated.order(Directive(RUN, attempt=1, node_count=1, **slow))
        await asyncio.sleep(2.0)
        before = len(simulated.answered)
        simulated.order(Directive(WAIT, attempt=2, **slow))
        await asyncio.sleep(2.0)
        simulated.order(Directive(RUN, attempt=2, node_count=1, **slow))
        await asyncio.sleep(2.0)
        states = [state for state, _, _ in simulated.answered[before:]]
        assert states == ["Running 1", "Idle 2"], "the first was held until the Wait, and that of Running 2 is held"

    simulated.run(story)


def test_an_overdue_poll_is_not_waited_for(simulated: SimulatedCoordinator) -> None:
    async def story(_: Launcher) -> None:
        simulated.order(Directive(RUN, attempt=1, node_count=1, poll_seconds=0.1, hold_seconds=9.0))
        await asyncio.sleep(3.0)
        assert (simulated.answered[-1][1] or 0) >= 20

    simulated.run(story)


def test_a_held_poll_waits_for_the_next_directive(simulated: SimulatedCoordinator) -> None:
    async def story(_: Launcher) -> None:
        simulated.order(Directive(WAIT, attempt=1, poll_seconds=90.0, hold_seconds=90.0))
        await asyncio.sleep(1.0)
        before = len(simulated.answered)
        await asyncio.sleep(80.0)
        assert len(simulated.answered) == before
        simulated.order(Directive(RUN, attempt=1, node_count=1, **PACE))
        await asyncio.sleep(1.0)
        assert simulated.answered[-1][0] == "Running 1"

    simulated.run(story)


async def test_a_new_directive_ends_a_held_poll_of_the_coordinator_as_it_is(
    coordinator: Any, launcher: Launcher
) -> None:
    coordinator.order(Directive(WAIT, attempt=1, poll_seconds=600.0, hold_seconds=600.0))
    await until(lambda: launcher._pace.hold_seconds == 600.0)
    coordinator.order(Directive(RUN, attempt=1, node_count=1, **PACE))
    await until(lambda: coordinator.states[-1:] == ["Running 1"])


async def test_it_goes_on_trying_while_nobody_serves(coordinator: Any, launcher: Launcher) -> None:
    coordinator.why_not = "this replica is not the leader"
    await until(lambda: launcher._counts["refused 503"] >= 2)
    coordinator.why_not = ""
    coordinator.order(Directive(RUN, attempt=1, node_count=1, **PACE))
    await until(lambda: coordinator.states[-1:] == ["Running 1"])


async def test_a_sigterm_ends_the_ranks_and_says_so(coordinator: Any, launcher: Launcher) -> None:
    coordinator.order(Directive(RUN, attempt=1, node_count=1, **PACE))
    await until(lambda: coordinator.states[-1:] == ["Running 1"])
    await launcher.leave()
    assert coordinator.hub.proved_dead("uid-0")

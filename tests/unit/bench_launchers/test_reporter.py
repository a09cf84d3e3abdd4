"""One simulated launcher and a real coordinator: from the first report to the last words."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from bench.launchers.reporter import Launcher
from bench.launchers.training import Pace, Training
from bench.launchers.worker import Identity, Worker

from muster.protocol.messages import EXIT, RUN, WAIT, Directive

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
    await eventually(lambda: coordinator.states[-1:] == ["Idle 1"])
    coordinator.order(Directive(RUN, attempt=1, node_count=1, **PACE))
    await eventually(lambda: coordinator.states[-1:] == ["Running 1"])
    launcher.fail(1)
    await eventually(lambda: coordinator.states[-1:] == ["Exited 1"])
    coordinator.order(Directive(WAIT, attempt=2, **PACE))
    await eventually(lambda: coordinator.states[-1:] == ["Idle 2"])
    coordinator.order(Directive(EXIT, attempt=2, exit_code=4))
    await eventually(lambda: coordinator.states[-1:] == ["Leaving 2"])
    assert coordinator.hub.proved_dead("uid-0")


async def test_steps_are_told_at_the_coordinators_pace(coordinator: Any, launcher: Launcher) -> None:
    began = time.monotonic()
    coordinator.order(Directive(RUN, attempt=1, node_count=1, **PACE))
    await eventually(lambda: coordinator.states[-1:] == ["Running 1"])
    await eventually(lambda: (coordinator.hub.last("uid-0").step or 0) >= 4)
    assert launcher._counts["answered"] < 10 + (time.monotonic() - began) / PACE["poll_seconds"]


async def test_steps_are_told_once_in_each_pace(coordinator: Any, launcher: Launcher) -> None:
    coordinator.order(Directive(RUN, attempt=1, node_count=1, **PACE))
    await eventually(lambda: coordinator.states[-1:] == ["Running 1"])
    await asyncio.sleep(0.3)
    before, began = launcher._counts["answered"], time.monotonic()
    await asyncio.sleep(2.0)
    paces = (time.monotonic() - began) / PACE["poll_seconds"]
    assert 3 <= launcher._counts["answered"] - before <= paces + 1
    assert len(coordinator.server.connections) == 1, "the other connection has nothing to say"


async def test_a_restart_takes_two_reports(coordinator: Any, launcher: Launcher) -> None:
    slow = {"poll_seconds": 9.0, "hold_seconds": 9.0}
    coordinator.order(Directive(RUN, attempt=1, node_count=1, **slow))
    await eventually(lambda: coordinator.states[-1:] == ["Running 1"])
    before = launcher._counts["answered"] + 1  # the answer that is held
    coordinator.order(Directive(WAIT, attempt=2, **slow))
    await eventually(lambda: coordinator.states[-1:] == ["Idle 2"])
    coordinator.order(Directive(RUN, attempt=2, node_count=1, **slow))
    await eventually(lambda: coordinator.states[-1:] == ["Running 2"])
    assert coordinator.states[-3:] == ["Running 1", "Idle 2", "Running 2"]
    assert launcher._counts["answered"] - before == 1, "that of Idle; that of Running is held"


async def test_an_overdue_poll_is_not_waited_for(coordinator: Any, launcher: Launcher) -> None:
    coordinator.order(Directive(RUN, attempt=1, node_count=1, poll_seconds=0.1, hold_seconds=9.0))
    await eventually(lambda: coordinator.states[-1:] == ["Running 1"])
    await eventually(lambda: (coordinator.hub.last("uid-0").step or 0) >= 20, seconds=3.0)


async def test_a_held_poll_waits_for_the_next_directive(coordinator: Any, launcher: Launcher) -> None:
    coordinator.order(Directive(WAIT, attempt=1, poll_seconds=9.0, hold_seconds=9.0))
    await eventually(lambda: launcher._pace.hold_seconds == 9.0)
    await asyncio.sleep(0.2)
    before = launcher._counts["answered"]
    await asyncio.sleep(0.3)
    assert launcher._counts["answered"] == before
    coordinator.order(Directive(RUN, attempt=1, node_count=1, **PACE))
    await eventually(lambda: coordinator.states[-1:] == ["Running 1"], seconds=3.0)


async def test_it_goes_on_trying_while_nobody_serves(coordinator: Any, launcher: Launcher) -> None:
    coordinator.why_not = "this replica is not the leader"
    await eventually(lambda: launcher._counts["refused 503"] >= 2)
    coordinator.why_not = ""
    coordinator.order(Directive(RUN, attempt=1, node_count=1, **PACE))
    await eventually(lambda: coordinator.states[-1:] == ["Running 1"])


async def test_a_sigterm_ends_the_ranks_and_says_so(coordinator: Any, launcher: Launcher) -> None:
    coordinator.order(Directive(RUN, attempt=1, node_count=1, **PACE))
    await eventually(lambda: coordinator.states[-1:] == ["Running 1"])
    await launcher.leave()
    assert coordinator.hub.proved_dead("uid-0")


async def eventually(check: Callable[[], bool], seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while True:
            if check():
                return
            await asyncio.sleep(0.01)

"""One launcher in simulated time whose every report is kept."""

from __future__ import annotations

import dataclasses

from tests.unit.launcher.gang import World

from muster.node.launcher.reporter_core import Send
from muster.protocol.messages import Report
from muster.protocol.retries import Pause


class Paced:
    """One worker in simulated time whose coordinator sets the pace; every report that it sends is kept."""

    def __init__(self, *, hold_seconds: float, poll_seconds: float) -> None:
        self.world = World(1)
        del self.world.replicas[1]  # which would send the launcher on to the one that leads
        of_the_world = self.world.directive_of
        pace = {"hold_seconds": hold_seconds, "poll_seconds": poll_seconds}
        self.world.directive_of = lambda index: dataclasses.replace(  # type: ignore[method-assign]
            of_the_world(index),
            **pace,  # type: ignore[arg-type]
        )
        self.sent: list[tuple[str, Report]] = []
        core = self.world.workers[0].reporter.core
        next_action = core.next_action

        def keep(name: str, now: float) -> Send | Pause:
            action = next_action(name, now)
            if isinstance(action, Send):
                self.sent.append((name, action.report))
            return action

        core.next_action = keep  # type: ignore[method-assign]

    def reports(self, seconds: float) -> list[tuple[str, Report]]:
        """Those that are sent within this time from now on."""
        first = len(self.sent)
        self.world.run(seconds)
        return self.sent[first:]


def an_idle_worker_is_silent_while_its_answer_is_held(hold_seconds: float) -> None:
    paced = Paced(hold_seconds=hold_seconds, poll_seconds=0.05)
    paced.world.runs = False
    paced.reports(10.0)
    assert paced.sent[-1][1].hold_seconds == hold_seconds
    assert paced.reports(hold_seconds * 5 / 6) == []
    assert len(paced.reports(hold_seconds)) == 1, "the next one, when it was held for as long as it may be"

"""Decisions of the theatre, written down; each is made again at once, and must be the same."""

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from tests.unit.lifecycle import theatre as stage
from tests.unit.lifecycle.builders import a_job
from tests.unit.lifecycle.theatre import VICTIM_TAIL, Play, Theatre

from muster.decision.accounted import plan_with_goodput
from muster.decision.decided import Decided, replay, write
from muster.lifecycle.plan import Plan
from muster.lifecycle.step import decide
from muster.pods.worker_pod import WorkerSettings
from muster.world.job import JobWorld


@contextmanager
def written_down() -> Iterator[list[str]]:
    """Lines of the decisions that act, and of one in ten of the others."""
    written: list[str] = []
    idle = itertools.count()

    def checked(world: JobWorld, settings: WorkerSettings) -> Plan:
        plan = decide(world, settings)
        if not plan.actions and next(idle) % 10:
            return plan
        written.append(write(Decided(world, settings, plan_with_goodput(world, plan))))
        replayed = replay(written[-1])
        assert replayed.now == replayed.then
        assert decide(replayed.world, settings) == plan
        return plan

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage, "decide", checked)
        yield written


def power_cut(theatre: Theatre, play: Play) -> None:
    theatre.power_cut(theatre.node_of(play, 1).name)


def partition(theatre: Theatre, play: Play) -> None:
    name = theatre.node_of(play, 2).name
    theatre.partition(name)
    theatre.play_on(120.0)
    theatre.partition(name, on=False)


def cordon(theatre: Theatre, play: Play) -> None:
    theatre.node_of(play, 0).cordoned = True


def crash_of_the_rank_and_the_operator(theatre: Theatre, play: Play) -> None:
    theatre.end_rank(play, 1, code=3, tail="ValueError: loss is NaN \U0001f4a5\n")
    theatre.kill_operator_after_writes(1)


def memory(theatre: Theatre, play: Play) -> None:
    theatre.out_of_memory(play, 0)


ALL_LIVES = [
    (fault, mode)
    for fault in (power_cut, partition, cordon, crash_of_the_rank_and_the_operator, memory)
    for mode in ("Managed", "Plain")
]
CHIEF_LIVES = [(crash_of_the_rank_and_the_operator, "Managed"), (cordon, "Plain")]


def a_life_is_decided_again_the_same(fault: Callable[[Theatre, Play], None], mode: str) -> None:
    with written_down() as lines:
        theatre = Theatre(nodes=6, lag_seconds=1.0)
        play = theatre.submit(a_job(launch={"mode": mode}, recovery={"unfencedTimeoutSeconds": 120}))
        if mode == "Managed":
            theatre.until(lambda: play.step >= 7)
        else:
            theatre.play_on(20.0)
        fault(theatre, play)
        theatre.finish(play)
    assert len(lines) > 20
    actions = [action for line in lines for action in json.loads(line)["plan"]["actions"]]
    assert {"CommitGang", "CheckTemplate", "CreatePod", "ApplySupport"} <= {action["action"] for action in actions}
    assert all(action["spec"]["account"] for action in actions if action["action"] == "CommitGang")


def two_jobs_for_one_place_are_decided_again_the_same(until_the_end: bool) -> None:
    """Until the first one trains; or it fails, too, and both come to their ends."""
    with written_down() as lines:
        theatre = Theatre(nodes=3)
        first, second = theatre.submit(a_job("a")), theatre.submit(a_job("b"))
        theatre.until(lambda: first.step >= 3)
        if until_the_end:
            theatre.until(lambda: first.step >= 7)
            theatre.end_rank(first, 1, code=1, tail=VICTIM_TAIL)
            theatre.finish(first)
            theatre.finish(second)
            assert len(lines) > 20
    assert any(json.loads(line)["world"]["queue_decision"] for line in lines)

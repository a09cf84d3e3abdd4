"""What the operator saw, written down, and what it would do now: the same."""

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from tests.unit.lifecycle import theatre as stage
from tests.unit.lifecycle.builders import SETTINGS, a_fleet, a_job, a_node, at
from tests.unit.lifecycle.theatre import VICTIM_TAIL, Play, Theatre

from muster.lifecycle import decided
from muster.lifecycle.decided import Decided, replay, write
from muster.lifecycle.plan import Plan
from muster.lifecycle.step import decide
from muster.lifecycle.worker_pod import WorkerSettings
from muster.world.fleet import Evacuate, Exclusion
from muster.world.job import JobWorld


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Decisions of the theatre, written down: those that act, and one in ten of the others. That each is made again the
    same is checked at once."""
    written: list[str] = []
    idle = itertools.count()

    def checked(world: JobWorld, settings: WorkerSettings) -> Plan:
        plan = decide(world, settings)
        if not plan.actions and next(idle) % 10:
            return plan
        written.append(write(Decided(world, settings, plan)))
        replayed = replay(written[-1])
        assert replayed.now == replayed.then
        assert decide(replayed.world, settings) == plan
        return plan

    monkeypatch.setattr(stage, "decide", checked)
    yield written
    assert len(written) > 20


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


FAULTS = [power_cut, partition, cordon, crash_of_the_rank_and_the_operator, memory]


@pytest.mark.parametrize("mode", ["Managed", "Plain"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_whole_life_is_decided_again_the_same(
    lines: list[str], fault: Callable[[Theatre, Play], None], mode: str
) -> None:
    theatre = Theatre(nodes=6, lag_seconds=1.0)
    play = theatre.submit(a_job(launch={"mode": mode}, recovery={"unfencedTimeoutSeconds": 120}))
    if mode == "Managed":
        theatre.until(lambda: play.step >= 7)
    else:
        theatre.play_on(20.0)
    fault(theatre, play)
    theatre.finish(play)
    actions = {action["action"] for line in lines for action in json.loads(line)["plan"]["actions"]}
    assert {"CommitGang", "CheckTemplate", "CreatePod", "ApplySupport"} <= actions


def test_two_jobs_for_one_place(lines: list[str]) -> None:
    theatre = Theatre(nodes=3)
    first, second = theatre.submit(a_job("a")), theatre.submit(a_job("b"))
    theatre.until(lambda: first.step >= 7)
    theatre.end_rank(first, 1, code=1, tail=VICTIM_TAIL)
    theatre.finish(first)
    theatre.finish(second)
    assert any(json.loads(line)["world"]["queue_decision"] for line in lines)


def test_a_node_that_has_to_be_left() -> None:
    theatre = Theatre()
    play = theatre.submit(a_job())
    theatre.until(lambda: play.step >= 7)
    world = theatre.world(play)
    world.fleet.exclude(theatre.node_of(play, 1).name, Exclusion("Xid79", "fell off the bus", Evacuate.NOW))
    plan = decide(world, SETTINGS)
    assert plan.commits
    assert replay(write(Decided(world, SETTINGS, plan))).same


def test_another_decision_is_seen() -> None:
    world = JobWorld(at(1), a_job(), fleet=a_fleet([a_node("n0")]))
    plan = decide(world, SETTINGS)
    assert replay(write(Decided(world, SETTINGS, plan))).same
    assert not replay(write(Decided(world, SETTINGS, replace(plan, wake_in_seconds=77.0)))).same


@pytest.mark.parametrize(
    "line", ["[]", "{}", '{"world": {}, "settings": {}, "plan": {}}', "{", '{"a":1, "b":1, "c":1}']
)
def test_what_is_no_decision_is_refused(line: str) -> None:
    with pytest.raises(ValueError):
        replay(line)


def test_a_defect_is_met_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_world: JobWorld, _settings: WorkerSettings) -> Plan:
        raise KeyError("a defect")

    monkeypatch.setattr(decided, "decide", broken)
    failed = Decided(JobWorld(at(1), a_job()), SETTINGS, None, "KeyError: 'a defect'")
    replayed = replay(write(failed))
    assert replayed.same
    assert replayed.now == {"error": "KeyError: 'a defect'"}
    monkeypatch.undo()
    assert not replay(write(failed)).same

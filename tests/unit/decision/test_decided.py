"""What the operator saw, written down, and what it would do now: the same."""

import json
from dataclasses import replace

import pytest
from tests.unit.decision.written import (
    CHIEF_LIVES,
    Fault,
    a_life_is_decided_again_the_same,
    two_jobs_for_one_place_are_decided_again_the_same,
)
from tests.unit.lifecycle.builders import SETTINGS, Scene, a_fleet, a_job, a_node, at, running

from muster.api.nodehealth import Evacuate
from muster.decision import decided
from muster.decision.accounted import plan_with_goodput
from muster.decision.decided import Decided, replay, write
from muster.lifecycle.plan import Plan
from muster.lifecycle.step import decide
from muster.pods.worker_pod import WorkerSettings
from muster.world.fleet import Exclusion
from muster.world.job import JobWorld


@pytest.mark.parametrize(("fault", "mode"), CHIEF_LIVES)
def test_a_whole_life_is_decided_again_the_same(fault: Fault, mode: str) -> None:
    a_life_is_decided_again_the_same(fault, mode)


def test_two_jobs_for_one_place() -> None:
    two_jobs_for_one_place_are_decided_again_the_same(until_the_end=False)


def test_a_node_that_has_to_be_left() -> None:
    world = Scene(a_job()).fleet().gang().pods().all(running(1, step=7)).world()
    world.fleet.exclude("n1", Exclusion("Xid79", "fell off the bus", Evacuate.NOW))
    plan = plan_with_goodput(world, decide(world, SETTINGS))
    assert plan.commits
    assert replay(write(Decided(world, SETTINGS, plan))).same


def test_another_decision_is_seen() -> None:
    world = JobWorld(at(1), a_job(), fleet=a_fleet([a_node("n0")]))
    plan = plan_with_goodput(world, decide(world, SETTINGS))
    assert replay(write(Decided(world, SETTINGS, plan))).same
    assert not replay(write(Decided(world, SETTINGS, replace(plan, wake_in_seconds=77.0)))).same


def test_what_an_older_version_did_not_record_is_no_difference() -> None:
    world = Scene(a_job()).fleet().gang().pods().all(running(1, step=7)).world()
    document = json.loads(write(Decided(world, SETTINGS, plan_with_goodput(world, decide(world, SETTINGS)))))
    assert document["plan"]["status_report"]["state"] == "Training"
    assert "unprepared" not in document["plan"]
    assert "without_place" not in document["plan"]["status_report"]
    assert replay(json.dumps(document)).same


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

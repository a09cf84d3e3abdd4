"""What the queue is told of a job: since when it waits, what it has to pay for, whether it keeps nodes meanwhile."""

from typing import Any

import pytest
from tests.unit.lifecycle.builders import Scene, a_job, at
from tests.unit.queueing.ended import expects, steps, trains

from muster.api.fleetpolicy import FleetPolicySpec
from muster.api.gang import Member
from muster.api.trainingjob import TrainingJob
from muster.lifecycle.queue_needs import (
    QueueNeeds,
    ReturnedNodes,
    expected_seconds,
    preemption_candidate,
    queue_needs,
)
from muster.queueing.preemption import Borrower, PreemptionCandidate, Victim
from muster.world.job import JobWorld


def needs_of(created: float, **gang: object) -> QueueNeeds:
    """Of a job made at a time, looked at 100 s after the epoch; with `gang`, one with a record of 40 s after it."""
    job = a_job()
    job = job.model_copy(update={"metadata": job.metadata.model_copy(update={"creation_timestamp": at(created)})})
    scene = Scene(job, seconds=100.0).fleet(6)
    return queue_needs((scene.gang(go=False, **gang) if gang else scene).world())


def test_a_job_that_never_had_nodes_has_waited_since_it_was_made() -> None:
    needs = needs_of(10.0)
    assert (needs.queued_since, needs.waited_seconds) == (at(10), 90.0)
    assert (needs.is_replacement, needs.returned_nodes) == (False, None)
    assert needs.request is not None


def test_one_whose_gang_was_not_assembled_pays_and_waits_from_then_on() -> None:
    needs = needs_of(10.0, members=[], reason="AssemblyTimedOut")
    assert (needs.queued_since, needs.waited_seconds) == (at(40), 0.0)
    assert needs.returned_nodes == ReturnedNodes(1, 60.0)


def test_one_that_has_given_way_keeps_its_age_and_pays_nothing() -> None:
    needs = needs_of(10.0, members=[], reason="NodesYielded")
    assert (needs.queued_since, needs.returned_nodes) == (at(10), None)


def test_a_gang_that_lacks_one_node_keeps_the_others_meanwhile() -> None:
    members = [Member(index=i, rank=i, node=node, incarnation=1) for i, node in enumerate(("n0", "", "n2"))]
    needs = needs_of(10.0, members=members)
    assert needs.is_replacement
    assert needs.request is not None
    assert needs.request.count == 1


def test_a_gang_with_all_its_nodes_waits_for_none() -> None:
    assert needs_of(10.0, reason="Started").request is None


SAVES: dict[str, Any] = {"checkpoint": {"directory": "/ckpt"}}
HOUR = {"queueing": {"expectedDurationSeconds": 3600}}


@pytest.mark.parametrize(
    ("spec", "seconds"),
    [
        pytest.param({**SAVES, **HOUR}, 3600, id="what its user expects"),
        pytest.param(SAVES, 60, id="what earlier jobs took"),
        pytest.param({"checkpoint": {}, **HOUR}, 7200, id="doubled where it cannot be asked to save"),
        pytest.param({"checkpoint": {}}, None, id="earlier jobs say nothing of such a one"),
        pytest.param({"launch": {"mode": "Plain"}, "checkpoint": {}, **HOUR}, 7200, id="in mode Plain neither"),
    ],
)
def test_for_how_long_backfill_trusts_a_job(spec: dict[str, Any], seconds: float | None) -> None:
    assert expected_seconds(Scene(a_job(**spec)).fleet().world(), [60.0, 60.0, 60.0]) == seconds


@pytest.mark.parametrize("job", [trains(spec=expects(5000)), trains(**steps(2000, 5000))], ids=["expected", "steps"])
def test_what_backfill_trusts_stays_the_same_until_the_status_says_that_a_job_waits(job: TrainingJob) -> None:
    """Else the queue's answer would be to another question by the time the job is looked at."""

    def at_second(seconds: float) -> float | None:
        scene = Scene(job, seconds=seconds).fleet().gang(go=False, members=[], reason="Preempted", time=at(40))
        return expected_seconds(scene.world(), [])

    assert at_second(50.0) == at_second(50.02)


def candidate_of(world: JobWorld) -> PreemptionCandidate | None:
    return preemption_candidate(world, world.gang.spec if world.gang else None, (0, at(0), "default/job"))


@pytest.mark.parametrize(("seconds", "leaves"), [(40.0, True), (159.0, True), (160.0, None)])
@pytest.mark.parametrize("reason", ["Preempted", "Suspended"])
def test_pods_that_do_not_end_are_not_waited_for_in_place_of_other_jobs(
    seconds: float, leaves: bool | None, reason: str
) -> None:
    scene = Scene(a_job(queueing={"preemptible": True}), seconds=seconds).fleet(6)
    scene.gang(go=False, members=[], reason=reason, time=at(40))
    holder = candidate_of(scene.world())
    assert (holder and holder.leaves) == leaves


@pytest.mark.parametrize("ahead", [None, 3600, -3600])
@pytest.mark.parametrize(
    ("until", "counts"), [(50, False), (150, True), (100 + 96 * 3600, True), (101 + 96 * 3600, False)]
)
def test_nodes_are_lent_until_a_time_that_is_near(until: float, counts: bool, ahead: float | None) -> None:
    scene = Scene(a_job(), seconds=100.0 + (ahead or 0.0)).fleet(6).gang(backfilled=True, lent_until=at(until))
    scene.but(ahead_seconds=ahead)
    holder = candidate_of(scene.world())
    assert isinstance(holder, Borrower)
    assert holder.lent_until == (at(until) if counts else None)


@pytest.mark.parametrize("ahead", [-3600, 0, 3600])
def test_a_job_that_has_just_got_its_nodes_is_exempt_by_the_clock_of_the_plan(ahead: float) -> None:
    scene = Scene(a_job(), seconds=100.0 + ahead).fleet(6).gang(placed_time=at(90 + ahead)).but(ahead_seconds=ahead)
    world = scene.world()
    preemption = {"priorityClasses": [{"name": "urgent", "namespaces": ["team"]}], "minRunSeconds": 60}
    world.fleet.policy = FleetPolicySpec.model_validate({"queueing": {"preemption": preemption}})
    victim = candidate_of(world)
    assert isinstance(victim, Victim)
    assert (victim.placed, victim.exempt_until) == (at(90), at(150))

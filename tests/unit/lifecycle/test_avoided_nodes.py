"""Nodes that a job is told to avoid (`kubectl muster move`): it leaves them after a save, and does not come back."""

from collections.abc import Callable

import pytest
from tests.unit.lifecycle.testbed import JOB, PLAIN, OneJob, steps

from simulate.training import OnRequest

Jobs = Callable[..., OneJob]


def avoids(job: OneJob, *nodes: str) -> None:
    job.edit(JOB, {"placement": {"avoidNodes": list(nodes)}})


@pytest.mark.parametrize("spec", [{}, PLAIN], ids=["managed", "plain"])
def test_a_worker_leaves_after_a_save(training: Jobs, spec: dict[str, object]) -> None:
    job = training(**spec)
    avoids(job, "n1")
    job.succeeds()
    (incident,) = job.record.incidents
    assert (incident.reason, incident.node, job.paid) == ("NodeAvoided", "n1", (0, 0))
    assert set(job.nodes) == {"n0", "n2"}
    assert incident.resumed_step == (None if spec else 10)


def test_no_step_is_lost_where_the_program_leaves_when_it_is_asked(training: Jobs) -> None:
    job = training(script=steps(30, every=1000, answers=OnRequest.ENDS_WELL))
    avoids(job, "n0", "n1")
    job.until_go(2)
    assert set(job.nodes) == {"n2", "n1"}, "one is free"
    job.succeeds()
    assert job.trainers[job.uid].made == 30


@pytest.mark.parametrize("writes", range(1, 13))
def test_the_operator_may_die_after_any_write(training: Jobs, writes: int) -> None:
    job = training(script=steps(20))
    job.operator_dies_after(writes)
    avoids(job, "n1")
    job.succeeds()
    assert (job.levels, job.nodes) == (["Start", "R2"], ["n0", "n2"])


def test_where_no_other_node_is_free_it_trains_on(training: Jobs) -> None:
    job = training(nodes=2, script=steps(60))
    avoids(job, "n1")
    job.until(lambda: job.status.reason == "NoNodeToMoveTo")
    assert job.notes("NoNodeToMoveTo")[0].startswith("The job should leave n1 (NodeAvoided), but no other suitable")
    job.succeeds()
    assert job.levels == ["Start"]


def test_a_drain_that_waits_for_a_job_that_avoids_all_other_nodes_says_so(training: Jobs) -> None:
    job = training(nodes=4, script=steps(60))
    avoids(job, "n2", "n3")
    job.cordon("n1")
    job.until(lambda: job.status.reason == "NoNodeToMoveTo")
    assert "It avoids n2, n3 (spec.placement.avoidNodes)." in job.notes("NoNodeToMoveTo")[0]


def test_no_node_of_others_is_taken(training: Jobs) -> None:
    """A job that avoids its nodes gets such as are free, and none before it has one to go to."""
    job = training(nodes=3, script=steps(60))
    other = job.submit("other", 1, steps(20))
    job.until(lambda: job.attempt_of(other) == 1)
    avoids(job, "n0", "n1")
    job.until(lambda: job.status.reason == "NoNodeToMoveTo")
    job.until(lambda: job.has_ended("other"))
    job.until_go(2)
    assert job.attempt_of(other) == 1
    assert len(set(job.nodes) & {"n0", "n1"}) == 1


def test_undone_in_time_it_stays(training: Jobs) -> None:
    job = training(script=steps(60, every=40))
    avoids(job, "n1")
    job.until(lambda: job.record.evacuation is not None)
    avoids(job)
    job.succeeds()
    assert job.levels == ["Start"]
    assert job.notes("EvacuationCancelled")


def test_no_lost_worker_comes_back_to_it_until_that_is_undone(training: Jobs) -> None:
    job = training(nodes=4, workers=3, script=steps(60))
    avoids(job, "n3")
    job.machines["n1"].cut_power()
    job.until(lambda: "" in job.nodes)
    job.run(30)
    assert job.record.start is None
    (placed,) = [each.message for each in job.status.conditions if each.type == "Placed"]
    assert "in spec.placement.avoidNodes" in placed
    avoids(job)
    job.succeeds()
    assert "n3" in job.nodes


def test_a_job_that_waits_says_what_it_avoids(submitted: Jobs) -> None:
    job = submitted(placement={"avoidNodes": ["n1", "n2"]})
    job.until(lambda: job.status.state == "Pending" and bool(job.status.reason))
    (placed,) = [each.message for each in job.status.conditions if each.type == "Placed"]
    assert "take 2 nodes out of spec.placement.avoidNodes" in placed

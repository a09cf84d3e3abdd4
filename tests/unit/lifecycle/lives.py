"""Lives of jobs that the gate has in short, or for some of the crash points, and nightly/ in full."""

from collections.abc import Callable
from typing import Any

from tests.unit.lifecycle.testbed import JOB, PLAIN, OneJob, steps

Training = Callable[..., OneJob]

# Writes of a life: the start has 1 to 9, the restart in place 10 to 15, the move to another node 16 to 26.
ALL_WRITES = range(1, 27)
# One pod of two is missing; the go is given, and that of the restart in place; the new node is on record alone.
CHIEF_WRITES = (2, 6, 12, 18)

# By fault, after which write the operator dies; None: it lives on.
ALL_DEATHS = [(fault, writes) for fault in ("rank", "pod", "power cut") for writes in (None, *range(1, 9))]
# The order to move what is incomplete aside is on record.
CHIEF_DEATHS = [("rank", 3), ("pod", 7)]


def saving(seconds: int, **more: Any) -> dict[str, Any]:
    """Of a spec: how long a planned evacuation waits for a checkpoint."""
    return {"checkpoint": {"directory": f"/ckpt/{JOB}", "saveTimeoutSeconds": seconds, **more}}


def operator_dies_after(training: Training, writes: int) -> None:
    """Start, R0, R2 and the end: one of `ALL_WRITES` is the last before the operator dies."""
    job = training(until_step=0, script=steps(20))
    if writes < 10:
        job.operator_dies_after(writes)
    job.until_step(7)
    if 10 <= writes < 16:
        job.operator_dies_after(writes - 9)
    job.rank(1).kill()
    job.until_step(12)
    if writes >= 16:
        job.operator_dies_after(writes - 15)
    job.machines["n1"].cut_power()
    job.succeeds()
    assert set(job.levels) == {"Start", "R0", "R2"}


def nothing_is_moved_aside_under_ranks(training: Training, fault: str, writes: int | None) -> None:
    """And each start that goes on from a checkpoint has had it done; `simulate.checks` sees to the ranks."""
    job = training(**saving(600, moveIncomplete=True))
    assert not job.checks.made["nothing is moved aside under ranks"]
    job.operator_dies_after(writes or 0)
    if fault == "rank":
        job.rank(1).kill()
    elif fault == "pod":
        job.delete_pod(0)
    else:
        job.machines["n0"].cut_power()
    job.until_go(2)
    assert job.checks.made["nothing is moved aside under ranks"]
    assert job.record.move_incomplete_beyond
    job.succeeds()


def seconds_until_it_leaves(training: Training, announce: Callable[[OneJob], None]) -> float:
    """For how long a job that saves next to never stays on a node that it has to leave."""
    job = training(script=steps(900, every=1000), **saving(4000))
    began = job.age_seconds
    announce(job)
    job.until_attempt(2, 500)
    return job.age_seconds - began


def _resumes_at(job: OneJob, step: int) -> None:
    """Its node comes back, and the job goes on from this step without having paid for anything."""
    job.plan_window("n1", None)
    job.give_back("n1")
    job.until(lambda: job.record.start is not None)
    assert job.record.start is not None
    assert job.record.start.resume is not None
    assert job.record.start.resume.step == step
    assert (job.record.incidents, job.paid) == ([], (0, 0))


def stops_in_time_saved_and_waits(training: Training, notice: float, away: float) -> None:
    """A job without another node, told of a window so long before; its node is away for so long after it has begun."""
    job = training(nodes=2, script=steps(900), **saving(60))
    began = job.age_seconds
    job.plan_window("n1", notice)
    job.run(notice - 130)
    assert job.record.evacuation is None  # it trains for as long as it can
    assert job.levels == ["Start"]
    job.until(lambda: not job.nodes, 120)
    job.until(lambda: not job.pods)
    assert notice - 120 <= job.age_seconds - began <= notice - 95
    assert job.record.reason == "MaintenanceStarts"
    saved = job.saved
    assert saved >= notice - 125
    job.run(began + notice + away - job.age_seconds)
    assert not job.nodes
    _resumes_at(job, saved)


def lets_a_drain_go_after_the_save(training: Training, notice: float | None, away: float) -> None:
    """A job without another node, whose node is taken away for as long as `away`; nobody takes the drain back."""
    job = training(nodes=2, script=steps(900, every=20), **saving(200))
    job.take("n1", notice)
    before = job.pods
    job.until(lambda: job.record.evacuation is not None)
    job.until(lambda: job.pods != before)
    assert job.saved == 20  # nothing is let through before the save
    job.until(lambda: not job.pods, 30)
    assert (job.record.reason, job.nodes) == ("NodeRemoved", [])
    assert job.notes("StoppedForRemoval")
    job.run(away)
    assert not job.nodes
    _resumes_at(job, 20)


def trains_until_shortly_before_the_machine_goes(training: Training, notice: float) -> None:
    """A job without another node, told so long before that its machine is taken away."""
    job = training(nodes=2, script=steps(900), **saving(60))
    began = job.age_seconds
    job.take("n1", notice)
    job.until(lambda: not job.nodes, notice + 100)
    assert notice - 75 <= job.age_seconds - began <= notice - 50


def what_is_saved_behind_a_cut_counts(training: Training, writes: int) -> None:
    """A successor has listed the checkpoints, and a rank of before goes on to save until the network is back. The
    operator dies after so many writes then; 0: it lives on."""
    job = training(workers=1, script=steps(60, every=1))
    node = job.nodes[0]
    job.cut_off(node, keeps_storage=True)
    job.until_attempt(2)
    job.until(lambda: bool(job.machine(0).workers) and job.worker(0).supervisor._scanned_for[0] == 2)
    listed = job.saved
    job.until(lambda: job.saved > listed)
    assert job.record.unfenced_workers
    job.heal(node)
    job.operator_dies_after(writes)
    job.until_go(2)
    go = job.record.start
    assert go is not None
    assert go.resume is not None
    assert (job.attempt, go.resume.step) == (2, job.saved)


def plain_job_waits_for_a_lost_node(training: Training, away: float) -> None:
    job = training(**PLAIN)
    job.machines["n1"].cut_power()
    job.run(away)
    assert job.levels == ["Start"], "nothing proves that its ranks have ended"
    assert job.status.reason == "NodeSilent"
    job.machines["n1"].boot_up()
    job.succeeds()
    assert job.levels == ["Start", "R4"]


def plain_job_outwaits_a_pod_that_is_force_deleted_behind_a_cut(training: Training, away: float) -> None:
    """No rank of its successor starts while one of it is alive: `simulate.checks` looks at that."""
    job = training(nodes=4, **PLAIN)
    job.cut_off("n1")
    job.run(60)
    old = job.worker(1)
    job.delete_pod(1, by_force=True)
    job.run(30)
    assert old.ranks[0].alive
    job.operator_dies()
    job.run(away)
    assert (job.attempt, job.record.start) == (2, None)
    assert "kubectl muster lost n1" in next(c.message for c in job.status.conditions if c.type == "Running")
    job.heal("n1")
    job.until_go(2, 120)
    job.succeeds()
    assert job.levels == ["Start", "R4"]

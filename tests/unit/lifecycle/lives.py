"""Lives of jobs that the gate has in short, or for some of the crash points, and nightly/ in full."""

from collections.abc import Callable
from datetime import timedelta

from tests.unit.lifecycle.builders import a_job, at
from tests.unit.lifecycle.theatre import Play, Theatre

from muster.api.gang import GangIncident
from muster.api.nodehealth import Evacuate, ExclusionCause
from muster.api.trainingjob import CompletionResult, TrainingJob
from muster.recovery import budgets
from muster.world.fleet import Exclusion, Removal

# Writes of a life: the start has 1 to 11, the restart in place 12 to 17, the move to another node 18 to 29.
ALL_WRITES = range(1, 30)
# The record is made, one pod of three is missing, the go is given; then for each recovery its record and its go. In the
# last one, the operator dies between the record of the attempt and its pods, too.
CHIEF_WRITES = (1, 3, 10, 12, 17, 20, 28)

# By fault, after which write the operator dies; None: it lives on.
ALL_DEATHS = [(fault, writes) for fault in ("rank", "pod", "power cut") for writes in (None, *range(1, 9))]
# Ranks are to stop; what is incomplete has been moved aside; pods are there again; nobody dies.
CHIEF_DEATHS = [("rank", 3), ("rank", 5), ("pod", 7), ("power cut", None)]


def training(nodes: int = 4, per_rack: int = 2, lag_seconds: float = 0.0, until_step: int = 7, **spec: object):  # type: ignore[no-untyped-def]
    """A theatre and a job of three workers that has come to step 7, with a checkpoint at 5."""
    theatre = Theatre(nodes, per_rack, lag_seconds)
    play = theatre.submit(a_job(**spec))  # type: ignore[arg-type]
    theatre.until(lambda: play.step >= until_step)
    return theatre, play


def incidents(play: Play) -> list[GangIncident]:
    return list(play.record.incidents)


def succeeded(theatre: Theatre, play: Play) -> None:
    assert theatre.finish(play).result is CompletionResult.SUCCEEDED, theatre.describe()


def window(theatre: Theatre, seconds: float) -> Exclusion:
    """A node that has to be empty so long from now."""
    gone_by = at(theatre.now + seconds)
    words = "kept free for maintenance (w)"
    return Exclusion(
        "MaintenanceAhead", "", Evacuate.AFTER_CHECKPOINT, gone_by, words, cause=ExclusionCause.MAINTENANCE
    )


def taken(theatre: Theatre, seconds: float | None = None, *, final: bool = True) -> Exclusion:
    """A node that another system takes away, so long from now if that is known."""
    gone_by = None if seconds is None else at(theatre.now + seconds)
    removal = Removal("karpenter", gone_by, final)
    words = "being removed by karpenter"
    return Exclusion(
        "NodeDeleted", "", Evacuate.AFTER_CHECKPOINT, gone_by, words, removal=removal, cause=ExclusionCause.REMOVAL
    )


def paid(play: Play) -> tuple[int, int]:
    """Restarts that the job's own budget and the hardware's have paid for, whatever has refilled them since."""
    record = play.record.model_copy(update={"checkpoint": None})
    now = record.time + timedelta(seconds=1)
    return budgets.application_restarts(record, now), budgets.hardware_restarts(record, now)


def operator_dies_after(writes: int) -> None:
    """Start, R0, R2 and the end: one of `ALL_WRITES` is the last before the operator dies."""
    theatre = Theatre()
    play = theatre.submit(a_job())
    if writes < 12:
        theatre.kill_operator_after_writes(writes)
    theatre.until(lambda: play.gang is not None and play.step >= 7)
    if 12 <= writes < 18:
        theatre.kill_operator_after_writes(writes - 11)
    theatre.end_rank(play, 1, signal=9)
    theatre.until(lambda: play.step >= 12)
    if writes >= 18:
        theatre.kill_operator_after_writes(writes - 17)
    theatre.power_cut("n1")
    succeeded(theatre, play)
    assert set(play.levels) == {"Start", "R0", "R2"}


def nothing_is_moved_aside_under_ranks(fault: str, writes: int | None) -> None:
    """And each start that goes on from a checkpoint has had it done; the theatre sees to the ranks."""
    theatre, play = training(checkpoint={"directory": "/checkpoints", "moveIncomplete": True})
    if writes is not None:
        theatre.kill_operator_after_writes(writes)
    if fault == "rank":
        theatre.end_rank(play, 1, signal=9)
    elif fault == "pod":
        theatre.delete_pod(play, 0)
    else:
        theatre.power_cut("n0")
    succeeded(theatre, play)
    assert play.record.attempt > 1
    assert play.asides[-1] == play.record.attempt
    assert 1 not in play.asides


def seconds_until_it_leaves(exclusion: Callable[[Theatre], Exclusion]) -> float:
    """For how long a job that saves next to never stays on a node that it has to leave."""
    theatre = Theatre()
    job = a_job(checkpoint={"directory": "/checkpoints", "saveTimeoutSeconds": 4000})
    play = theatre.submit(job, checkpoint_every=1000, total_steps=900)
    theatre.until(lambda: play.step >= 7)
    theatre.excluded["n1"], began = exclusion(theatre), theatre.now
    theatre.until(lambda: len(play.history) == 2, 500)
    return theatre.now - began


def _resumes_at(theatre: Theatre, play: Play, step: int) -> None:
    """Its node comes back, and the job goes on from this step without having paid for anything."""
    del theatre.excluded["n1"]
    theatre.until(lambda: bool(play.record.start))
    assert play.record.start is not None
    assert play.record.start.resume is not None
    assert play.record.start.resume.step == step
    assert (incidents(play), paid(play)) == ([], (0, 0))


def stops_in_time_saved_and_waits(notice: float, away: float) -> None:
    """A job without another node, told of a window so long before; its node is away for so long after it has begun."""
    theatre = Theatre(nodes=3)
    job = a_job(checkpoint={"directory": "/checkpoints", "saveTimeoutSeconds": 60})
    play = theatre.submit(job, checkpoint_every=5, total_steps=900)
    theatre.until(lambda: play.step >= 7)
    theatre.excluded["n1"], began = window(theatre, notice), theatre.now
    theatre.play_on(notice - 130)
    assert play.record.evacuation is None  # it trains for as long as it can
    assert play.levels == ["Start"]
    theatre.until(lambda: not play.record.members, 120)
    theatre.until(lambda: not theatre.pods)
    assert notice - 120 <= theatre.now - began <= notice - 100
    assert play.record.reason == "MaintenanceStarts"
    saved = max(play.checkpoints)
    assert saved >= notice - 125
    theatre.play_on(began + notice + away - theatre.now)
    assert not play.record.members
    _resumes_at(theatre, play, saved)


def lets_a_drain_go_after_the_save(notice: float | None, away: float) -> None:
    """A job without another node, whose node is taken away for as long as `away`; nobody takes the drain back."""
    theatre = Theatre(nodes=3)
    job = a_job(checkpoint={"directory": "/checkpoints", "saveTimeoutSeconds": 200})
    play = theatre.submit(job, checkpoint_every=20, total_steps=900)
    theatre.until(lambda: play.step >= 7)
    theatre.excluded["n1"], before = taken(theatre, notice), set(theatre.pods)
    theatre.until(lambda: play.record.evacuation is not None)
    theatre.until(lambda: max(play.checkpoints, default=0) >= 20 or set(theatre.pods) != before)
    assert set(theatre.pods) == before  # nothing is let through before the save
    theatre.until(lambda: not theatre.pods, 30)
    assert (play.record.reason, play.record.members) == ("NodeRemoved", [])
    assert "StoppedForRemoval" in [event.reason for event in play.events]
    theatre.play_on(away)
    assert not play.record.members
    _resumes_at(theatre, play, 20)


def trains_until_shortly_before_the_machine_goes(notice: float) -> None:
    """A job without another node, told so long before that its machine is taken away."""
    theatre = Theatre(nodes=3)
    job = a_job(checkpoint={"directory": "/checkpoints", "saveTimeoutSeconds": 60})
    play = theatre.submit(job, checkpoint_every=5, total_steps=900)
    theatre.until(lambda: play.step >= 7)
    theatre.excluded["n1"], began = taken(theatre, notice), theatre.now
    theatre.until(lambda: not play.record.members, notice + 100)
    assert notice - 75 <= theatre.now - began <= notice - 55


def a_plain_job() -> TrainingJob:
    return a_job(launch={"mode": "Plain"}, checkpoint={})


def plain_job_waits_for_a_lost_node(away: float) -> None:
    theatre = Theatre()
    play = theatre.submit(a_plain_job())
    theatre.until(lambda: play.step >= 7)
    theatre.power_cut("n1")
    theatre.play_on(away)
    assert play.levels == ["Start"], "nothing proves that its ranks have ended"
    assert play.job.status.reason == "NodeSilent"
    theatre.power_on("n1")
    succeeded(theatre, play)
    assert play.levels == ["Start", "R4"]


def plain_job_outwaits_a_pod_that_is_force_deleted_behind_a_cut(away: float) -> None:
    """No rank of its successor starts while one of it is alive: the stage looks at that."""
    theatre = Theatre(nodes=6)
    play = theatre.submit(a_plain_job())
    theatre.until(lambda: play.step >= 7)
    theatre.partition("n1")
    theatre.play_on(60)
    theatre.force_delete_pod(play, 1)
    theatre.play_on(30)
    assert len(theatre.orphans) == 1
    theatre.kill_operator()
    theatre.play_on(away)
    assert (play.record.attempt, play.record.start) == (2, None)
    assert "kubectl muster lost n1" in next(c.message for c in play.job.status.conditions if c.type == "Running")
    theatre.partition("n1", on=False)
    theatre.until(lambda: play.record.start is not None, 120)
    succeeded(theatre, play)
    assert play.levels == ["Start", "R4"]

"""A new leader whose clock differs from the last one's: the account goes on by the clock that it began with.

The true times, in seconds since the creation of the job, on three nodes of eight accelerators:

    0       the first leader begins the account: 50 s in the queue
    50      go; step 1 is finished at 60, each further one a second later
    1000    the first leader dies, the second takes over
    1860    step 1801; a rank fails, and the leader sees it at once
    1920    go from the checkpoint of step 1500; its step 1501 is finished at 1930
    2829    step 2400 is finished; all ranks exit with code 0

Queued 50, starting 9, compute 1500 + 900, lost 301, restarting 60 + 9: together 2829 s. ETTR 2400 / 2829 = 84.8 %, and
24 x (2829 - 50) = 66,696 GPU-seconds. One failure in 1801 + 900 = 2701 s of ranks that run.
"""

from dataclasses import dataclass, replace

import pytest
from prometheus_client import REGISTRY
from tests.unit.lifecycle.builders import Scene, a_job, at, idle, running

from muster.answers.reported import report
from muster.api.gang import AttemptStart, FaultClass, GangIncident, GangSpec, Level, Resume
from muster.api.goodput import Account, Goodput
from muster.api.trainingjob import Condition, ConditionStatus, TrainingJob
from muster.controller.jobfigures import JobFigures
from muster.goodput.account import close_account, with_account
from muster.goodput.opened import figures_as_of
from muster.goodput.status_goodput import goodput_of_status, incidents_of_status
from muster.record import attempts
from muster.recovery.failure import Kind
from muster.world.job import JobWorld
from muster.world.queuedecision import Placed

TAKES_OVER, FAILS, GOES_ON, ENDS = 1000, 1860, 1920, 2829
RIGHT = {"queued": 50, "starting": 9, "compute": 2400, "lostWork": 301, "restarting": 69}


@dataclass
class Cluster:
    """One job under two leaders.

    Attributes:
        first: by how much the clock of the first leader is ahead; second: that of the second.
        known: whether leaders know by how much.
        takes_over: when the second takes over.
    """

    first: float
    second: float
    known: bool = True
    takes_over: int = TAKES_OVER
    record: GangSpec | None = None

    def __post_init__(self) -> None:
        job = a_job(checkpoint={"directory": "/ckpt"})
        created = job.metadata.model_copy(update={"creation_timestamp": at(0)})
        self.job: TrainingJob = job.model_copy(update={"metadata": created})

    def ahead(self, true: float) -> float:
        return self.first if true < self.takes_over else self.second

    def world(self, true: float, *launchers: object) -> JobWorld:
        ahead = self.ahead(true)
        scene = Scene(self.job, seconds=true + ahead).fleet()
        scene.record = self.record
        if self.record is not None:
            scene.pods()
        for view in launchers:
            scene.all(view)  # type: ignore[arg-type]
        since = 0 if true < self.takes_over else self.takes_over
        world = scene.world()
        return replace(
            world,
            now=at(true + ahead),
            ahead_seconds=ahead if self.known else None,
            leader_age_seconds=float(true - since),
            attempt_age_seconds=float(true - since),
        )

    def commit(self, world: JobWorld, spec: GangSpec) -> GangSpec:
        self.record = GangSpec.model_validate(with_account(world, spec).to_json())
        account = self.record.account
        assert account is not None
        counted = account.counted_until - account.creation_time
        assert sum(account.milliseconds.values()) == counted.total_seconds() * 1000
        return self.record

    def start(self, true: float, attempt: int, resume: Resume | None) -> None:
        assert self.record is not None
        changes = {
            "start": AttemptStart(
                time=at(true + self.ahead(true)), master_address="job-0", master_port=29500, resume=resume
            ),
            "incidents": [each.model_copy(update={"resumed_step": 1500}) for each in self.record.incidents],
        }
        self.commit(self.world(true, idle(attempt)), self.record.model_copy(update=changes))

    def until_the_failure(self) -> None:
        world = self.world(50)
        self.commit(world, attempts.with_new_placement(world, Placed(("n0", "n1", "n2")), "Started"))
        self.start(50, 1, None)

    def fail(self) -> None:
        assert self.record is not None
        now = at(FAILS + self.ahead(FAILS))
        incident = GangIncident(
            attempt=1,
            time=now,
            fault_time=now,
            level=Level.IN_PLACE,
            fault_class=FaultClass.APPLICATION,
            reason=Kind.RANK_FAILED,
        )
        changes = {"attempt": 2, "start": None, "incidents": [incident], "time": now}
        self.commit(self.world(FAILS, training(1, FAILS, 50)), self.record.model_copy(update=changes))

    def play(self) -> tuple[Goodput, GangIncident]:
        self.until_the_failure()
        self.fail()
        self.start(GOES_ON, 2, Resume(step=1500, path="/ckpt/1500"))
        world = self.world(ENDS, training(2, ENDS, GOES_ON, 1500))
        found = goodput_of_status(world, step=2400, saved=1500, ended=True, succeeded=True)
        assert found is not None
        assert self.record is not None
        (incident,) = incidents_of_status(world, self.record, found)
        return found, incident


def training(attempt: int, true: float, start: float, after: int = 0) -> object:
    """A launcher whose ranks have made a step each second since ten seconds after their start."""
    made = int(true - start - 10)
    return running(
        attempt,
        after + 1 + made,
        first_step=after + 1,
        started_age_seconds=true - start,
        first_step_age_seconds=true - start - 10,
        step_age_seconds=0.0,
        step_seconds=1.0,
    )


@pytest.mark.parametrize(
    ("first", "second"),
    [(0, 0), (300, 0), (0, 300), (300, 300), (-300, 0), (0, -300), (10_800, -3600)],
)
def test_each_figure_is_that_of_leaders_who_agree(first: float, second: float) -> None:
    found, incident = Cluster(first, second).play()
    assert found.seconds == RIGHT
    assert sum(found.gpu_seconds.values()) == 24 * (ENDS - 50)
    assert found.ettr_permille == 848
    assert (found.lost_steps, found.steps, found.clock_ahead_seconds) == (301, 2400, first)
    shown = report(a_job(), found)
    assert (shown.mttf_hours or 0) * 3600 == pytest.approx(2701)
    # Both times of the incident are those of the second leader, who saw the failure and gave the go.
    assert (incident.fault_time, incident.resumed_time) == (at(FAILS + second), at(GOES_ON + second + 10))


@pytest.mark.parametrize(("first", "second"), [(300, 0), (0, 300), (-10_800, 3600)])
def test_a_failure_has_both_times_by_the_clock_of_the_leader_that_saw_it(first: float, second: float) -> None:
    """The second leader takes over at 1890, between the failure and the go: back to training takes 70 s."""
    found, incident = Cluster(first, second, takes_over=1890).play()
    assert found.seconds == RIGHT
    assert (incident.fault_time, incident.resumed_time) == (at(FAILS + first), at(GOES_ON + first + 10))


@pytest.mark.parametrize(
    ("first", "second", "wanted"),
    [
        pytest.param(
            300, 0, {**RIGHT, "queued": 350, "starting": 0, "compute": 2158, "lostWork": 252}, id="the first was ahead"
        ),
        pytest.param(0, 300, {**RIGHT, "starting": 129, "unknown": 180}, id="the second is ahead"),
    ],
)
def test_where_no_leader_knows_the_servers_time_the_difference_is_in_the_account(
    first: float, second: float, wanted: dict[str, int]
) -> None:
    """Ahead first: the queue has 300 s more. The first attempt has as many less, 1510 s for its 1801 steps, of which
    301 are lost: 252.4 s. Ahead second: 300 s more, of which two minutes count as the start."""
    found, _ = Cluster(first, second, known=False).play()
    assert found.seconds == {bucket: amount for bucket, amount in (RIGHT | wanted).items() if amount}


def test_a_leader_without_the_servers_time_ends_the_job_with_all_steps() -> None:
    """The clock of the second leader is two minutes behind, the figures are those of the failure."""
    cluster = Cluster(0, -120, takes_over=1930)
    cluster.until_the_failure()
    cluster.fail()
    cluster.start(GOES_ON, 2, Resume(step=1500, path="/ckpt/1500"))
    world = replace(cluster.world(1980, training(2, 1980, GOES_ON, 1500)), ahead_seconds=None)
    found = goodput_of_status(world, step=1551, saved=1500, ended=True, succeeded=True)
    assert found is not None
    assert (found.steps, found.wall_seconds) == (1551, 1980)


def test_a_launcher_adds_no_more_than_an_hour_by_the_age_that_it_reports() -> None:
    cluster = Cluster(0, 0)
    cluster.until_the_failure()
    world = replace(cluster.world(100, training(1, 1_000_000, 50)), ahead_seconds=None)
    found = goodput_of_status(world, step=101, saved=None, ended=True, succeeded=True)
    assert found is not None
    assert found.wall_seconds == 100 + 3600


@pytest.mark.parametrize(("first", "second"), [(300, 0), (0, 300)])
def test_an_open_phase_lasts_as_long_on_every_surface(first: float, second: float) -> None:
    """After the failure the job waits for 10 minutes; readers go by the API server's clock."""
    cluster = Cluster(first, second)
    cluster.until_the_failure()
    cluster.fail()
    found = goodput_of_status(cluster.world(FAILS, idle(2)), step=1801, saved=1500, ended=False, succeeded=False)
    assert found is not None
    assert found.open_phase is not None
    published = cluster.job.status.model_copy(update={"state": "Recovering", "goodput": found})
    job = cluster.job.model_copy(update={"status": published})
    read = figures_as_of(job, at(FAILS + 600))
    assert read is not None
    assert read.wall_seconds == FAILS + 600
    assert read.seconds[found.open_phase.bucket] == 600
    JobFigures(lambda: at(FAILS + 600)).set_status(("ns", "job"), published)
    labels = {"namespace": "ns", "job_name": "job", "bucket": str(found.open_phase.bucket)}
    assert REGISTRY.get_sample_value("muster_job_time_seconds", labels) == 600


@pytest.mark.parametrize(("first", "second"), [(0, 0), (300, 0), (0, 300), (-300, 0), (0, -300), (300, 300)])
@pytest.mark.parametrize("suspended", [True, False], ids=["suspended at 60", "resumed at 60"])
def test_a_suspension_that_one_leader_dates_is_as_long_for_the_next_one(
    first: float, second: float, suspended: bool
) -> None:
    """The attempt ended at 20 s. At 60 s the first leader writes that the job is suspended, or no longer; at 100 s the
    second one counts."""
    cluster = Cluster(first, second, takes_over=80)
    reason = "NodeLost" if suspended else "Suspended"
    account = Account(creation_time=at(0), counted_until=at(20), has_run=True, clock_ahead_seconds=0)
    scene = Scene(cluster.job).fleet().gang(go=False, members=[], reason=reason)
    assert scene.record is not None
    cluster.record = scene.record.model_copy(update={"account": account, "time": at(20)})
    if not suspended:
        begun = goodput_of_status(cluster.world(20), step=None, ended=False, succeeded=False, suspended=True)
        cluster.job = with_suspension(cluster.job, begun, 20 + first, suspended=True)
    changed = goodput_of_status(cluster.world(60), step=None, ended=False, succeeded=False, suspended=suspended)
    cluster.job = with_suspension(cluster.job, changed, 60 + first, suspended=suspended)
    counted, _ = close_account(cluster.world(100))
    assert counted.milliseconds == {"suspended": 40_000, "requeued": 40_000}


def with_suspension(job: TrainingJob, figures: Goodput | None, dated: float, *, suspended: bool) -> TrainingJob:
    """The job with the condition Suspended as a leader dates it by its own clock, and these figures."""
    condition = Condition(
        type="Suspended",
        status=ConditionStatus.TRUE if suspended else ConditionStatus.FALSE,
        reason="Suspended" if suspended else "Resumed",
        last_transition_time=at(dated),
    )
    status = job.status.model_copy(update={"conditions": [condition], "goodput": figures})
    return job.model_copy(update={"status": status})

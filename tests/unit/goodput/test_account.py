"""How phases are split: by the record, and by the ages that launchers and checkers tell."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.unit.lifecycle.builders import Scene, a_job, at, idle, running

from muster.api.gang import AttemptStart, FaultClass, GangIncident, GangSpec, Level, Resume
from muster.api.goodput import MAX_STRETCHES, Account, AttemptProgress, Bucket, Segment
from muster.api.trainingjob import CheckpointStatus, Condition, ConditionStatus, Incident
from muster.goodput.account import close_account, with_account
from muster.goodput.failure_rate import by_class
from muster.goodput.figures import KeptWork, figures
from muster.goodput.segments import cut_after
from muster.goodput.status_goodput import goodput_of_status, incidents_of_status
from muster.lifecycle import repair
from muster.node.launcher.progress import ProgressFile
from muster.protocol.checks import CheckAnswer, CheckReport, FigureReport
from muster.protocol.messages import CheckpointReport
from muster.record import attempts
from muster.recovery.failure import Failure, Kind
from muster.world.checks import CheckerView
from muster.world.queuedecision import Placed

SUCCEEDED = KeptWork(is_known=True, ended=True, succeeded=True)

GPUS = 24  # of three nodes


def counted(seconds: float, /, **more: Any) -> Account:
    """An account that goes up to this second."""
    return Account(
        creation_time=at(0),
        counted_until=at(seconds),
        milliseconds={"queued": int(seconds * 1000)} if seconds else {},
        **more,
    )


def trains(
    now: float, first_step: int = 1, step: int = 100, resume: int | None = None, nodes: int = 3, **account: Any
) -> Scene:
    """Nodes whose ranks got their go at 50 s; started at once, first step 10 s later, a step a second since."""
    scene = Scene(a_job(nodes=nodes, checkpoint={"directory": "/ckpt"}), seconds=now).fleet().gang(resume=resume).pods()
    assert scene.record is not None
    assert scene.record.start is not None
    go = scene.record.start.model_copy(update={"time": at(50)})
    scene.record = scene.record.model_copy(update={"start": go, "account": counted(50, **account)})
    made = step - first_step
    return scene.all(
        running(
            1,
            step,
            first_step=first_step,
            started_age_seconds=now - 50,
            first_step_age_seconds=now - 60,
            step_age_seconds=now - 60 - made,
            step_seconds=1.0,
        )
    )


def fault(scene: Scene, age_seconds: float = 0.0, kind: Kind = Kind.RANK_FAILED) -> GangIncident:
    now = at(scene.seconds)
    return GangIncident(
        attempt=1,
        time=now,
        fault_time=now - timedelta(seconds=age_seconds),
        level=Level.IN_PLACE,
        fault_class=FaultClass.APPLICATION,
        reason=kind,
        trained=any(view.step is not None for view in scene.launchers.values()),
    )


def broken(scene: Scene, age_seconds: float = 0.0, kind: Kind = Kind.RANK_FAILED) -> GangSpec:
    """The next attempt, after a failure that long ago."""
    assert scene.record is not None
    changes = {
        "attempt": 2,
        "start": None,
        "incidents": [*scene.record.incidents, fault(scene, age_seconds, kind)],
        "time": at(scene.seconds),
    }
    return with_account(scene.world(), scene.record.model_copy(update=changes))


def account_of(spec: GangSpec) -> Account:
    assert spec.account is not None
    account = Account.model_validate(spec.account.to_json())
    total = sum(account.milliseconds.values())
    assert timedelta(milliseconds=total) == account.counted_until - account.creation_time
    return account


def test_the_time_until_the_first_nodes_is_the_queues() -> None:
    world = Scene(a_job(), seconds=30).fleet().world()
    world = replace(
        world,
        job=world.job.model_copy(
            update={"metadata": world.job.metadata.model_copy(update={"creation_timestamp": at(0)})}
        ),
    )
    spec = attempts.with_new_placement(world, Placed(("n0", "n1", "n2")), "Started")
    account = account_of(with_account(world, spec))
    assert (account.milliseconds, account.gpu_milliseconds) == ({"queued": 30_000}, {})


def test_a_record_that_was_deleted_by_hand_leaves_its_time_unknown() -> None:
    job = a_job()
    job = job.model_copy(
        update={
            "metadata": job.metadata.model_copy(update={"creation_timestamp": at(0)}),
            "status": job.status.model_copy(update={"attempt": 3}),
        }
    )
    world = Scene(job, seconds=30).fleet().world()
    spec = attempts.with_new_placement(world, Placed(("n0", "n1", "n2")), "Started")
    assert account_of(with_account(world, spec)).milliseconds == {"unknown": 30_000}


@pytest.mark.parametrize(
    ("status", "reason", "since", "wanted"),
    [
        pytest.param(ConditionStatus.TRUE, "Suspended", 20, {"suspended": 80_000}, id="still suspended"),
        pytest.param(ConditionStatus.FALSE, "Resumed", 70, {"suspended": 50_000, "requeued": 30_000}, id="resumed"),
        pytest.param(ConditionStatus.FALSE, "Resumed", 10, {"requeued": 80_000}, id="never told of"),
    ],
)
def test_a_suspension_is_counted_by_its_condition(
    status: ConditionStatus, reason: str, since: float, wanted: dict[str, int]
) -> None:
    scene = Scene(a_job(), seconds=100).fleet().gang(go=False, members=[], reason="Suspended")
    assert scene.record is not None
    scene.record = scene.record.model_copy(update={"account": counted(20, has_run=True), "time": at(20)})
    told = Condition(type="Suspended", status=status, reason=reason, last_transition_time=at(since))
    scene.job = scene.job.model_copy(update={"status": scene.job.status.model_copy(update={"conditions": [told]})})
    account, _ = close_account(scene.world())
    assert {k: v for k, v in account.milliseconds.items() if k != "queued"} == wanted


def test_steps_are_compute_and_what_is_before_them_is_starting() -> None:
    scene = trains(now=160, step=101)
    account = account_of(broken(scene))
    assert account.milliseconds == {"queued": 50_000, "starting": 9_000, "compute": 101_000}
    assert account.gpu_milliseconds == {"starting": 9_000 * GPUS, "compute": 101_000 * GPUS}
    assert (account.failures, account.failed_starts) == (1, 0)
    assert by_class(broken(scene).incidents) == {"Application": 1}


def test_a_start_that_failed_is_counted_as_one() -> None:
    scene = trains(now=160)
    silent = running(1, None, started_age_seconds=110)
    account = account_of(broken(scene.all(silent)))
    assert (account.failures, account.failed_starts) == (1, 1)
    assert by_class(broken(scene).incidents) == {}
    told = figures(account, None, None, SUCCEEDED)
    assert (told.failures, told.failed_starts) == (1, 1)


def test_no_more_failures_are_counted_than_the_record_can_have() -> None:
    scene = trains(now=160, step=101)
    full = scene.record.account.model_copy(update={"failures": 2**31 - 1, "failed_starts": 2**31 - 1})
    scene.record = scene.record.model_copy(update={"account": full})
    account = account_of(broken(scene))
    assert (account.failures, account.failed_starts) == (2**31 - 1, 2**31 - 1)


def test_what_breaks_off_a_step_is_lost_and_what_is_not_seen_is_undetected() -> None:
    """The newest step is 10 s old: ranks worked on for 2 s of them, as far as anybody knows, and died 5 s ago."""
    account = account_of(broken(trains(now=170, step=101), age_seconds=5))
    assert account.amount(Bucket.LOST_WORK) == 2_000
    assert account.amount(Bucket.UNDETECTED) == 8_000


def test_of_a_hang_nothing_is_work_under_way() -> None:
    account = account_of(broken(trains(now=260, step=101), age_seconds=100, kind=Kind.HANG))
    assert account.amount(Bucket.LOST_WORK) == 0
    assert account.amount(Bucket.UNDETECTED) == 100_000


def test_of_steps_that_are_printed_rarely_the_first_ones_count_too() -> None:
    """Every tenth is told: the ten up to the first one were made before it was printed, one second each."""
    account = account_of(broken(trains(now=160, first_step=10, step=110)))
    assert account.amount(Bucket.COMPUTE) == 110_000
    assert account.amount(Bucket.STARTING) == 0


def test_what_goes_back_is_lost_once() -> None:
    scene = trains(now=160, step=101)
    again = broken(scene)
    assert again.account is not None
    # The next attempt goes on from step 40: 61 of 101 steps are made again.
    later = Scene(scene.job, seconds=170).fleet()
    later.record = again
    go = AttemptStart(
        time=at(170), master_address="10.0.0.1", master_port=20001, resume=Resume(step=40, path="/ckpt/40")
    )
    last = again.incidents[-1].model_copy(update={"resumed_step": 40})
    spec = with_account(later.world(), again.model_copy(update={"start": go, "incidents": [last]}))
    account = account_of(spec)
    assert account.amount(Bucket.LOST_WORK) == 61_000
    assert account.amount(Bucket.COMPUTE) == 40_000
    assert account.lost_steps == 61
    assert spec.incidents[-1].lost_milliseconds == 61_000
    assert cut_after(account, 40) == (account, 0)


def test_what_a_start_takes_back_is_not_charged_to_a_failure_that_has_had_its_start() -> None:
    """The job was suspended meanwhile, and nothing has failed since."""
    scene = trains(now=160, step=101)
    assert scene.record is not None
    mended = fault(scene).model_copy(update={"attempt": 0, "resumed_step": 0, "lost_milliseconds": 5_000})
    record = scene.record.model_copy(update={"incidents": [mended]})
    scene.record = record
    stopped = with_account(scene.world(), record.model_copy(update={"attempt": 2, "start": None, "time": at(160)}))
    later = Scene(scene.job, seconds=170).fleet()
    later.record = stopped
    go = AttemptStart(
        time=at(170), master_address="10.0.0.1", master_port=20001, resume=Resume(step=40, path="/ckpt/40")
    )
    spec = with_account(later.world(), stopped.model_copy(update={"start": go}))
    assert account_of(spec).lost_steps == 61
    assert [incident.lost_milliseconds for incident in spec.incidents] == [5_000]


@pytest.mark.parametrize(("told", "of", "lost"), [(105, 1, 65), (None, 1, 61), (90, 1, 61), (105, 7, 61), (-1, 1, 61)])
def test_steps_that_were_made_after_the_last_report_that_was_known_are_lost_too(
    told: int | None, of: int, lost: int
) -> None:
    """The failure was acted on before the survivors' next report, as of a pod that somebody deletes."""
    again = broken(trains(now=160, step=101))
    later = Scene(a_job(checkpoint={"directory": "/ckpt"}), seconds=170).fleet().gang(attempt=2, go=False).pods()
    known = again.incidents[-1].model_copy(update={"step": 101})
    # Before it gets its go the next attempt fails, too.
    twice = known.model_copy(update={"attempt": 2, "step": None})
    later.record = again.model_copy(update={"attempt": 3, "incidents": [known, twice]})
    later.all(idle(3, previous_attempt=of, previous_step=told))
    go = AttemptStart(
        time=at(170), master_address="10.0.0.1", master_port=20001, resume=Resume(step=40, path="/ckpt/40")
    )
    ends = [each.model_copy(update={"resumed_step": 40}) for each in (known, twice)]
    spec = with_account(later.world(), later.record.model_copy(update={"start": go, "incidents": ends}))
    assert account_of(spec).lost_steps == lost
    assert account_of(spec).segments[-1].step == 40


def test_a_program_that_goes_back_further_than_it_was_told_loses_what_it_makes_again() -> None:
    made = Segment(after_step=0, step=100, gpus=GPUS, milliseconds={"compute": 40_000})
    scene = trains(now=160, resume=100, first_step=61, step=161, segments=[made])
    assert scene.record is not None
    assert scene.record.account is not None
    spent = {"queued": 10_000, "compute": 40_000}
    scene.record = scene.record.model_copy(
        update={"account": scene.record.account.model_copy(update={"milliseconds": spent})}
    )
    account = account_of(broken(scene))
    assert account.amount(Bucket.LOST_WORK) == 16_000
    assert account.lost_steps == 40
    assert [(each.after_step, each.step) for each in account.segments] == [(0, 60), (60, 161)]


def test_a_program_that_goes_on_from_a_checkpoint_of_its_own_has_lost_nothing() -> None:
    """Muster knows of none, so the go names no step to go on from."""
    scene = trains(now=160, step=101)
    again = broken(scene)
    last = again.incidents[-1].model_copy(update={"resumed_step": 0})
    go = AttemptStart(time=at(170), master_address="10.0.0.1", master_port=20001)
    later = Scene(scene.job, seconds=170).fleet()
    later.record = again
    gone_on = with_account(later.world(), again.model_copy(update={"start": go, "incidents": [last]}))
    assert account_of(gone_on).lost_steps == 0
    for first_step, lost in ((102, 0), (1, 101)):
        running_on = trains(now=400, first_step=first_step, step=first_step + 50)
        assert running_on.record is not None
        running_on.record = gone_on.model_copy(update={"start": go.model_copy(update={"time": at(170)})})
        view = running(
            2,
            first_step + 50,
            first_step=first_step,
            started_age_seconds=229.0,
            first_step_age_seconds=200.0,
            step_age_seconds=0.0,
            step_seconds=1.0,
        )
        ended = broken(running_on.all(view))
        assert account_of(ended).lost_steps == lost
        assert (ended.incidents[0].lost_milliseconds or 0) >= 1000 * lost


def test_a_first_step_far_beyond_what_there_was_time_for_is_no_work_of_this_attempt() -> None:
    account = account_of(broken(trains(now=160, first_step=5001, step=5101)))
    assert account.amount(Bucket.COMPUTE) == 101_000 - 1000 + 1000
    assert account.amount(Bucket.STARTING) == 9000


def test_absurd_steps_make_no_record_that_the_api_server_refuses() -> None:
    scene = trains(now=160, step=2**53 - 1)
    account = account_of(broken(scene)).model_copy(update={"lost_steps": 2**53 - 2})
    lost, _ = cut_after(account, 0)
    assert lost.lost_steps == 2**53 - 1


def test_when_the_training_went_on_is_told_once_and_does_not_change_with_ages() -> None:
    scene = trains(now=160, step=101)
    assert scene.record is not None
    before = fault(scene).model_copy(update={"attempt": 0, "time": at(20), "resumed_step": 0})
    scene.record = scene.record.model_copy(update={"incidents": [before]})
    told_before = Incident(
        attempt=0, time=at(20), level="R0", fault_class="Application", reason="RankFailed", resumed_time=at(60.021)
    )
    status = scene.job.status.model_copy(update={"incidents": [told_before]})
    scene.job = scene.job.model_copy(update={"status": status})
    world = scene.world()
    figures = goodput_of_status(world, step=101, ended=False, succeeded=False)
    assert [each.resumed_time for each in incidents_of_status(world, scene.record, figures)] == [at(60.021)]


def test_the_record_says_when_the_training_went_on_after_an_incident() -> None:
    scene = trains(now=160, step=101)
    before = fault(scene).model_copy(update={"attempt": 0, "time": at(20), "resumed_step": 0})
    assert scene.record is not None
    scene.record = scene.record.model_copy(update={"incidents": [before]})
    assert broken(scene).incidents[0].resumed_time == at(60)


def test_a_told_zero_is_no_silence() -> None:
    scene = trains(now=160, step=101)
    told_nothing = account_of(broken(scene))
    assert told_nothing.reported_buckets == []
    views = {index: replace(view, input_wait_seconds=0.0) for index, view in scene.launchers.items()}
    scene.launchers.update(views)
    assert account_of(broken(scene)).reported_buckets == [Bucket.INPUT_WAIT]
    assert account_of(broken(scene)).milliseconds == told_nothing.milliseconds


def test_what_the_program_tells_is_taken_out_of_compute_and_never_more_than_there_is() -> None:
    scene = trains(now=160, step=101)
    view = next(iter(scene.launchers.values()))
    scene.all(replace(view, input_wait_seconds=20.0, checkpoint_stall_seconds=5.0))
    account = account_of(broken(scene))
    assert (account.amount(Bucket.INPUT_WAIT), account.amount(Bucket.CHECKPOINT_STALL)) == (20_000, 5_000)
    assert account.amount(Bucket.COMPUTE) == 76_000
    scene.all(replace(view, input_wait_seconds=1e308, checkpoint_stall_seconds=float("nan")))
    assert account_of(broken(scene)).amount(Bucket.INPUT_WAIT) == 101_000


def test_without_the_time_of_the_first_step_its_time_is_unknown() -> None:
    scene = trains(now=160, step=101)
    scene.all(replace(next(iter(scene.launchers.values())), first_step_age_seconds=None))
    assert account_of(broken(scene)).amount(Bucket.UNKNOWN) == 110_000


def test_where_nobody_is_left_to_tell_what_was_noted_counts_and_the_rest_is_unknown() -> None:
    seen = AttemptProgress(
        start_milliseconds=0,
        first_step_milliseconds=10_000,
        last_step_milliseconds=60_000,
        first_step=1,
        step=51,
        step_milliseconds=1_000,
    )
    scene = trains(now=160, progress=seen)
    scene.launchers.clear()
    account = account_of(broken(scene))
    assert (account.amount(Bucket.COMPUTE), account.amount(Bucket.UNKNOWN)) == (51_000, 50_000)


def test_a_clock_that_jumps_ahead_makes_time_unknown_and_not_productive() -> None:
    scene = trains(now=160, step=101)
    scene.seconds += 5 * 3600  # ages do not jump
    account = account_of(broken(scene))
    assert account.amount(Bucket.COMPUTE) == 101_000
    assert account.amount(Bucket.UNKNOWN) == 5 * 3_600_000 - 120_000


def test_a_clock_that_has_gone_back_adds_nothing_until_it_has_caught_up() -> None:
    scene = trains(now=160, step=101)
    scene.seconds -= 3600
    assert account_of(broken(scene)).counted_until == at(50)


def test_a_leader_that_saw_the_attempt_begin_counts_no_more_than_it_has_lived() -> None:
    scene = Scene(a_job(), seconds=7200).fleet().gang(go=False).pods()
    assert scene.record is not None
    scene.record = scene.record.model_copy(update={"account": counted(100)})
    scene.but(attempt_age_seconds=20.0)
    account, _ = close_account(scene.world())
    assert account.amount(Bucket.STARTING) == 22_000
    assert account.amount(Bucket.UNKNOWN) == 7_100_000 - 22_000


def test_before_the_go_ranks_are_reclaimed_nodes_tested_and_the_rest_is_the_start() -> None:
    scene = Scene(a_job(), seconds=160).fleet().gang(attempt=2, go=False, time=at(100)).pods()
    assert scene.record is not None
    members = [m.model_copy(update={"is_replacement": m.index == 2}) for m in scene.record.members]
    scene.record = scene.record.model_copy(update={"account": counted(100, has_run=True), "members": members})
    for index in (0, 1):
        scene.launcher(index, idle(2, index, previous_attempt=1, attempt_age_seconds=55.0 + index))
    scene.launcher(2, idle(2, 2, attempt_age_seconds=10.0))
    answers = tuple(CheckAnswer(f"o{n}", "Node", "Ended", seconds=20.0) for n in range(2))
    told = CheckerView(0.5, CheckReport(1, answers=answers))
    scene.but(checkers={"n2": told, "n0": replace(told, report=CheckReport(1, answers=answers * 2))})
    account, _ = close_account(scene.world())
    found = {k: v for k, v in account.milliseconds.items() if k != "queued"}
    assert found == {"reclaim": 5_000, "burnIn": 40_000, "restarting": 15_000}


def test_a_program_that_tells_no_steps_is_unknown_once_it_can_no_longer_be_starting() -> None:
    silent = running(1, None, started_age_seconds=110.0)
    scene = trains(now=160).all(silent)
    assert account_of(broken(scene)).amount(Bucket.STARTING) == 110_000
    scene.seconds = 2000
    scene.all(replace(silent, started_age_seconds=1950.0))
    assert account_of(broken(scene)).amount(Bucket.UNKNOWN) == 1_950_000


def test_many_stretches_become_few_and_nothing_is_lost_by_it() -> None:
    stretches = [
        Segment(after_step=n * 10, step=n * 10 + 10, gpus=GPUS, milliseconds={"compute": 10_000})
        for n in range(MAX_STRETCHES)
    ]
    total = 10_000 * MAX_STRETCHES
    scene = trains(
        now=160,
        resume=10 * MAX_STRETCHES,
        first_step=10 * MAX_STRETCHES + 1,
        step=10 * MAX_STRETCHES + 101,
        segments=stretches,
    )
    assert scene.record is not None
    assert scene.record.account is not None
    amounts = {"queued": 50_000, "compute": total}
    old = scene.record.account.model_copy(
        update={"milliseconds": amounts, "creation_time": at(0) - timedelta(milliseconds=total)}
    )
    scene.record = scene.record.model_copy(update={"account": old})
    account = account_of(broken(scene))
    assert len(account.segments) == MAX_STRETCHES
    assert sum(each.milliseconds["compute"] for each in account.segments) == account.amount(Bucket.COMPUTE)
    back, lost = cut_after(account, 0)
    assert lost == account.amount(Bucket.COMPUTE)
    assert back.amount(Bucket.COMPUTE) == 0


def test_what_failed_says_when_it_happened() -> None:
    scene = trains(now=170, step=101)
    assert scene.record is not None
    failure = Failure(Kind.RANK_FAILED, Level.IN_PLACE, 0, "n0", "exit 3", exit_code=3, age_seconds=4.0)
    spec = repair.after_failures(scene.world(), scene.record, [failure])
    assert spec.incidents[-1].fault_time == at(166)
    earlier = replace(failure, age_seconds=30.0)  # a step is newer than that
    assert repair.after_failures(scene.world(), scene.record, [earlier]).incidents[-1].fault_time == at(160)


@pytest.mark.parametrize("step", [2**53 - 1, 10_000_000, 5000])
def test_a_rank_that_tells_an_absurd_step_does_not_speak_for_the_gang(step: int) -> None:
    """Of three the others are nowhere near it; one alone had no time for so many."""
    scene = trains(now=160, step=101)
    true = next(iter(scene.launchers.values()))
    scene.launcher(1, replace(true, step=step))
    account = account_of(broken(scene))
    assert account.segments[-1].step == 101
    assert account.amount(Bucket.COMPUTE) == 101_000


def test_where_all_tell_absurd_steps_their_time_is_unknown() -> None:
    scene = trains(now=160, step=101)
    scene.all(replace(next(iter(scene.launchers.values())), step=2**40))
    account = account_of(broken(scene))
    assert account.amount(Bucket.UNKNOWN) == 110_000
    assert account.lost_steps == 0


def test_ranks_that_are_a_report_apart_are_believed() -> None:
    scene = trains(now=160, step=101)
    true = next(iter(scene.launchers.values()))
    scene.launcher(1, replace(true, step=40, step_age_seconds=61.0)).launcher(2, replace(true, step=41))
    assert account_of(broken(scene)).segments[-1].step == 101


@pytest.mark.parametrize("hours", [-5, 5])
def test_when_the_training_went_on_is_not_told_where_clocks_contradict_each_other(hours: int) -> None:
    """The leader that saw the failure was hours ahead of the one that gave the go; hours behind nobody can tell."""
    scene = trains(now=160, step=101)
    assert scene.record is not None
    assert scene.record.start is not None
    assert scene.record.account is not None
    before = fault(scene).model_copy(update={"attempt": 0, "time": at(20), "resumed_step": 0})
    go = scene.record.start.model_copy(update={"time": at(50 + 3600 * hours)})
    scene.record = scene.record.model_copy(update={"incidents": [before], "start": go})
    wanted = None if hours < 0 else at(60)
    assert broken(scene).incidents[0].resumed_time == wanted


@pytest.mark.parametrize(
    ("generation", "status", "since", "wanted"),
    [
        pytest.param(1, ConditionStatus.TRUE, 1, {"suspended": 99_000, "queued": 1_000}, id="created suspended"),
        pytest.param(2, ConditionStatus.TRUE, 60, {"suspended": 40_000, "queued": 60_000}, id="queued before"),
        pytest.param(4, ConditionStatus.TRUE, 60, {"suspended": 40_000, "unknown": 60_000}, id="twice"),
        pytest.param(2, ConditionStatus.FALSE, 60, {"suspended": 60_000, "queued": 40_000}, id="resumed"),
        pytest.param(3, ConditionStatus.FALSE, 60, {"unknown": 60_000, "queued": 40_000}, id="resumed, queued before"),
    ],
)
def test_a_job_suspended_more_than_once_was_not_suspended_all_the_time(
    generation: int, status: ConditionStatus, since: float, wanted: dict[str, int]
) -> None:
    """The job has no nodes."""
    scene = Scene(a_job(), seconds=100).fleet()
    reason = "Suspended" if status is ConditionStatus.TRUE else "Resumed"
    told = Condition(type="Suspended", status=status, reason=reason, last_transition_time=at(since))
    metadata = scene.job.metadata.model_copy(update={"creation_timestamp": at(0), "generation": generation})
    job_status = scene.job.status.model_copy(update={"conditions": [told]})
    scene.job = scene.job.model_copy(update={"metadata": metadata, "status": job_status})
    account, _ = close_account(scene.but(queue_decision=None).world())
    assert account.milliseconds == wanted


def test_a_job_that_was_resumed_and_suspended_again_leaves_the_time_between_unknown() -> None:
    scene = Scene(a_job(), seconds=200).fleet().gang(go=False, members=[], reason="Suspended")
    assert scene.record is not None
    scene.record = scene.record.model_copy(update={"account": counted(20, has_run=True), "time": at(20)})
    told = Condition(type="Suspended", status=ConditionStatus.TRUE, reason="Suspended", last_transition_time=at(120))
    scene.job = scene.job.model_copy(update={"status": scene.job.status.model_copy(update={"conditions": [told]})})
    account, _ = close_account(scene.world())
    assert (account.amount(Bucket.SUSPENDED), account.amount(Bucket.UNKNOWN)) == (80_000, 100_000)


def figured(*figures: float, device: str = "cuda") -> dict[str, CheckerView]:
    """Checkers of n0, n1, ... that have measured so much."""
    return {
        f"n{number}": CheckerView(
            0.5,
            CheckReport(1, device=device, figures=(FigureReport("gemm-bf16", figure, 60.0, "TFLOP/s"),)),
        )
        for number, figure in enumerate(figures)
    }


@pytest.mark.parametrize(
    ("checkers", "newcomer", "wanted"),
    [
        pytest.param(figured(700.0, 640.9, 720.0), True, 640, id="the slowest node"),
        pytest.param(figured(700.0, 640.0), True, None, id="one does not tell"),
        pytest.param(figured(0.2, 0.3, 0.4, device="cpu"), True, None, id="processors"),
        pytest.param({}, False, 555, id="nobody tells, and nothing has changed"),
        pytest.param(figured(700.0, float("nan"), 720.0), True, None, id="no number"),
        pytest.param(figured(1e308, 1e308, 1e308), True, None, id="absurd"),
    ],
)
def test_what_the_burn_in_has_measured_of_the_slowest_node_is_noted_with_the_go(
    checkers: dict[str, CheckerView], newcomer: bool, wanted: int | None
) -> None:
    scene = Scene(a_job(), seconds=60).fleet().gang(go=False).pods()
    assert scene.record is not None
    members = [member.model_copy(update={"is_replacement": newcomer}) for member in scene.record.members]
    before = counted(50, measured_tflops=555)
    scene.record = scene.record.model_copy(update={"account": before, "members": members})
    go = AttemptStart(time=at(60), master_address="10.0.0.1", master_port=20001)
    spec = with_account(scene.but(checkers=checkers).world(), scene.record.model_copy(update={"start": go}))
    assert account_of(spec).measured_tflops == wanted


def goes_back(scene: Scene, step: int, steps: int, seconds: float, back_to: int) -> Scene:
    view = next(iter(scene.launchers.values()))
    return scene.all(replace(view, step=step, lost_steps=steps, lost_seconds=seconds, lowest_restarted_step=back_to))


def test_what_a_program_has_taken_back_by_itself_is_lost_work() -> None:
    """A step a second from 60 on: 50 steps, back to 30 within 7 s, and on to step 73."""
    scene = goes_back(trains(now=160, step=101), step=73, steps=20, seconds=27.0, back_to=30)
    spec = broken(scene)
    account = account_of(spec)
    assert (account.amount(Bucket.LOST_WORK), account.lost_steps) == (27_000, 20)
    assert account.amount(Bucket.COMPUTE) == 101_000 - 27_000
    assert [(each.after_step, each.step) for each in account.segments] == [(0, 73)]
    assert spec.incidents[-1].lost_milliseconds == 0, "no failure has cost it"


def test_a_program_that_goes_back_to_before_its_start_takes_back_the_work_of_before() -> None:
    made = Segment(after_step=0, step=100, gpus=GPUS, milliseconds={"compute": 40_000})
    scene = trains(now=160, resume=100, first_step=101, step=201, segments=[made])
    assert scene.record is not None
    assert scene.record.account is not None
    spent = {"queued": 10_000, "compute": 40_000}
    scene.record = scene.record.model_copy(
        update={"account": scene.record.account.model_copy(update={"milliseconds": spent})}
    )
    # From 151 back to 60, which took all from the first step on.
    account = account_of(broken(goes_back(scene, step=110, steps=91, seconds=50.0, back_to=60)))
    assert account.lost_steps == 91
    assert account.amount(Bucket.LOST_WORK) == 16_000 + 50_000 + 1_000
    assert [(each.after_step, each.step) for each in account.segments] == [(0, 60), (60, 110)]


def test_steps_are_taken_back_once_across_a_start_with_an_old_checkpoint() -> None:
    """It went back from 42 to 20, was started with the checkpoint of 40 that it had made before, and goes back to
    10."""
    made = [
        Segment(after_step=0, step=20, gpus=GPUS, milliseconds={"compute": 20_000}),
        Segment(after_step=40, step=60, gpus=GPUS, milliseconds={"compute": 20_000}),
    ]
    before = Account(
        creation_time=at(0),
        counted_until=at(40),
        milliseconds={"compute": 40_000},
        gpu_milliseconds={},
        segments=made,
        lost_steps=22,
    )
    account, milliseconds = cut_after(before, 10)
    assert (account.lost_steps, milliseconds) == (22 + 30, 30_000)


def test_a_return_to_before_the_first_step_counts_alike_at_any_later_step() -> None:
    """From 99 of a start with 90 back to 51: nine are lost, and those after 51 that others had made."""
    made = Segment(after_step=0, step=90, gpus=GPUS, milliseconds={"compute": 90_000})
    for step in (54, 70, 90, 95):
        scene = trains(now=190, resume=90, first_step=91, step=99, segments=[made])
        account = account_of(broken(goes_back(scene, step=step, steps=48, seconds=10.0, back_to=51)))
        assert account.lost_steps == 48, step
        assert [(each.after_step, each.step) for each in account.segments] == [(0, 51), (51, step)]


def test_one_rank_of_three_that_says_it_has_gone_back_is_not_believed() -> None:
    scene = trains(now=160, step=101)
    scene.launcher(
        1, replace(next(iter(scene.launchers.values())), lost_steps=5000, lost_seconds=90.0, lowest_restarted_step=3)
    )
    account = account_of(broken(scene))
    assert (account.lost_steps, account.amount(Bucket.LOST_WORK)) == (0, 0)


def test_a_program_with_its_own_checkpoint_has_made_no_steps_before_it() -> None:
    """It loads for 3,000 s, goes on after step 2,000 by itself, makes ten steps of a second each, and begins anew from
    nothing."""
    scene = trains(now=3100, first_step=2001, step=2010)
    view = running(
        1,
        2010,
        first_step=2001,
        started_age_seconds=3050,
        first_step_age_seconds=50,
        step_age_seconds=41,
        step_seconds=1.0,
        step_stride=1,
    )
    account = account_of(broken(scene.all(view)))
    assert [(each.after_step, each.step) for each in account.segments] == [(2000, 2010)]
    assert account.milliseconds["compute"] == 10_000
    assert cut_after(account, 0)[0].lost_steps == 10


@pytest.mark.parametrize(
    ("first_step", "stride", "lost"), [(102, 1, 0), (102, 0, 0), (110, 10, 1), (1, 1, 101), (10, 10, 101), (61, 1, 41)]
)
def test_a_slow_start_takes_no_earlier_work_for_lost(first_step: int, stride: int, lost: int) -> None:
    """Muster knows no checkpoint, and the start took longer than all steps since the first would have."""
    made = Segment(after_step=0, step=101, gpus=GPUS, milliseconds={"compute": 40_000})
    scene = trains(now=1160, first_step=first_step, step=first_step + 50, segments=[made])
    view = replace(
        next(iter(scene.launchers.values())), step_stride=stride, first_step_age_seconds=50.0, step_age_seconds=0.0
    )
    assert account_of(broken(scene.all(view))).lost_steps == lost


@pytest.mark.parametrize("ahead", [5 * 3600.0, -5 * 3600.0, 4.0, 1e300, -1e300])
def test_a_wrong_clock_makes_the_first_wait_no_longer_and_no_shorter(ahead: float) -> None:
    """The job waits 30 s for its nodes; the API server has noted its creation, the leader's clock is hours away."""
    shown = max(min(ahead, 3e5), -3e5)  # what the scene can show
    world = Scene(a_job(), seconds=30 + shown).fleet().world()
    metadata = world.job.metadata.model_copy(update={"creation_timestamp": at(0)})
    world = replace(world, job=world.job.model_copy(update={"metadata": metadata}), ahead_seconds=ahead)
    spec = with_account(world, attempts.with_new_placement(world, Placed(("n0", "n1", "n2")), "Started"))
    assert spec.account is not None
    total = sum(spec.account.milliseconds.values())
    assert timedelta(milliseconds=total) == spec.account.counted_until - spec.account.creation_time
    if abs(ahead) < 1e9:
        assert spec.account.milliseconds == {"queued": 34_000 if ahead == 4.0 else 30_000}


@pytest.mark.parametrize(
    ("ahead", "wanted"),
    [(5 * 3600.0, 18_000), (-18_000.9, -18_000), (4.9, 0), (0.0, 0), (1e300, 10**9), (-1e300, -(10**9))],
)
def test_figures_tell_by_how_much_the_clock_that_they_go_by_is_off(ahead: float, wanted: int) -> None:
    figures = goodput_of_status(
        replace(trains(now=160, step=101).world(), ahead_seconds=ahead), step=101, ended=False, succeeded=False
    )
    assert figures is not None
    assert figures.clock_ahead_seconds == wanted


def test_the_wait_of_the_first_step_takes_nothing_from_the_others(tmp_path: Path) -> None:
    """100 steps of a second, the first of which came after 121 s, of which it waited 120 s for its data."""
    lines = [
        '{"step": 1, "inputWaitSeconds": 120}',
        *(f'{{"step": {n}, "inputWaitSeconds": 0}}' for n in range(2, 101)),
    ]
    (tmp_path / "progress").write_text("\n".join(lines) + "\n")
    file = ProgressFile(str(tmp_path / "progress"))
    assert len(file.read()) == 100
    scene = trains(now=271, step=100).all(
        running(
            1,
            100,
            first_step=1,
            started_age_seconds=221,
            first_step_age_seconds=100,
            step_age_seconds=1,
            step_seconds=1.0,
            input_wait_seconds=file.seconds["inputWaitSeconds"],
        )
    )
    account, _ = close_account(scene.world(), only_steps=True)
    assert account.milliseconds == {"queued": 50_000, "starting": 120_000, "compute": 100_000}


@pytest.mark.parametrize(("step", "first"), [(100, 210_000), (101, 210_000), (0, None), (5000, None)])
def test_a_checkpoint_saved_just_before_a_crash_is_the_first_one(step: int, first: int | None) -> None:
    """The job began with nothing and made 101 steps; the listing after the crash at 160 s, not a report before it,
    found the checkpoint."""
    scene = trains(now=160, step=101)
    scene.record = broken(scene)
    assert account_of(scene.record).first_checkpoint_milliseconds is None
    scene.seconds = 210
    resume = Resume(step=step, path=f"/ckpt/{step}")
    go = AttemptStart(time=at(210), master_address="10.0.0.1", master_port=20001, resume=resume)
    started = with_account(scene.all(idle(2)).world(), scene.record.model_copy(update={"start": go}))
    assert account_of(started).first_checkpoint_milliseconds == first


def test_a_checkpoint_found_after_the_last_crash_is_told_at_the_end() -> None:
    scene = trains(now=160, step=101)
    scene.record, scene.seconds = broken(scene), 210
    found = goodput_of_status(scene.all(idle(2)).world(), step=101, saved=100, ended=True, succeeded=False)
    assert found is not None
    assert (found.first_checkpoint_seconds, found.ettr_permille) == (210, 476)


@pytest.mark.parametrize("later", [5, 40])
def test_the_first_checkpoint_is_known_when_it_is_listed_and_not_a_step_later(later: int) -> None:
    """Steps take a minute: the checkpoint of the second one is listed while the third is made."""
    view = running(1, 2, first_step=1, started_age_seconds=130, first_step_age_seconds=60, step_seconds=60.0)
    scene = trains(now=180).all(replace(view, step_age_seconds=0.0))
    before = goodput_of_status(scene.world(), step=2, ended=False, succeeded=False)
    assert before is not None
    assert before.first_checkpoint_seconds is None
    scene.job = scene.job.model_copy(
        update={"status": scene.job.status.model_copy(update={"goodput": before, "step": 2, "attempt": 1})}
    )
    scene.seconds = 180 + later
    ages: dict[str, Any] = {
        "started_age_seconds": 130 + later,
        "first_step_age_seconds": 60 + later,
        "step_age_seconds": later,
    }
    scene.all(replace(view, **ages, checkpoints=(CheckpointReport(2, "/ckpt/2"),)))
    found = goodput_of_status(scene.world(), step=2, saved=2, ended=False, succeeded=False)
    assert found is not None
    assert found.first_checkpoint_seconds == 180 + later
    scene.job = scene.job.model_copy(
        update={
            "status": scene.job.status.model_copy(
                update={"goodput": found, "checkpoint": CheckpointStatus(step=2, path="/ckpt/2", time=at(0))}
            )
        }
    )
    scene.seconds += 5
    assert goodput_of_status(scene.world(), step=2, saved=2, ended=False, succeeded=False) == found, (
        "nothing is written because time passes"
    )


def test_a_leader_whose_clock_is_behind_at_the_end_counts_all_steps() -> None:
    """58 of 150 steps are in the figures when another leader follows, whose clock is two minutes behind, and sees the
    end."""
    scene = trains(now=118, step=58)
    before = goodput_of_status(scene.world(), step=58, saved=None, ended=False, succeeded=False)
    assert before is not None
    assert before.steps == 58
    status = scene.job.status.model_copy(update={"goodput": before, "step": 58, "attempt": 1})
    scene.job = scene.job.model_copy(update={"status": status})
    ended = trains(now=210, step=150)
    scene.launchers, scene.seconds = ended.launchers, 210 - 120
    found = goodput_of_status(scene.world(), step=150, saved=150, ended=True, succeeded=True)
    assert found is not None
    assert found.steps == 150
    assert found.counted_until >= before.counted_until
    assert sum(found.seconds.values()) == (found.counted_until - found.creation_time).total_seconds()

"""How phases are split: by the record, and by the ages that launchers and checkers tell."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.lifecycle.builders import Scene, a_job, at, idle, running

from muster.api.gang import FaultClass, GangIncident, GangSpec, Go, Level, Resume
from muster.api.goodput import MAX_STRETCHES, Account, Bucket, Seen, Stretch
from muster.api.trainingjob import Condition, ConditionStatus, Incident
from muster.goodput.account import carried, closed, cut
from muster.goodput.told import incidents, told
from muster.lifecycle import record as records
from muster.protocol.checks import CheckAnswer, CheckReport
from muster.recovery.failure import Failure, Kind
from muster.world.checks import CheckerView
from muster.world.turn import Placed

GPUS = 24  # of three nodes


def counted(seconds: float, /, **more: Any) -> Account:
    """An account that goes up to this second."""
    return Account(
        begun=at(0), time=at(seconds), milliseconds={"queued": int(seconds * 1000)} if seconds else {}, **more
    )


def trains(now: float, first_step: int = 1, step: int = 100, resume: int | None = None, **account: Any) -> Scene:
    """Three nodes whose ranks got their go at 50 s; started at once, first step 10 s later, a step a second since."""
    scene = Scene(a_job(checkpoint={"directory": "/ckpt"}), seconds=now).fleet().gang(resume=resume).pods()
    assert scene.record is not None
    assert scene.record.go is not None
    go = scene.record.go.model_copy(update={"time": at(50)})
    scene.record = scene.record.model_copy(update={"go": go, "account": counted(50, **account)})
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
    )


def broken(scene: Scene, age_seconds: float = 0.0, kind: Kind = Kind.RANK_FAILED) -> GangSpec:
    """The next attempt, after a failure that long ago."""
    assert scene.record is not None
    changes = {
        "attempt": 2,
        "go": None,
        "incidents": [*scene.record.incidents, fault(scene, age_seconds, kind)],
        "time": at(scene.seconds),
    }
    return carried(scene.world(), scene.record.model_copy(update=changes))


def account_of(spec: GangSpec) -> Account:
    assert spec.account is not None
    account = Account.model_validate(spec.account.to_json())
    total = sum(account.milliseconds.values())
    assert timedelta(milliseconds=total) == account.time - account.begun
    return account


def test_the_time_until_the_first_nodes_is_the_queues() -> None:
    world = Scene(a_job(), seconds=30).fleet().world()
    world = replace(
        world,
        job=world.job.model_copy(
            update={"metadata": world.job.metadata.model_copy(update={"creation_timestamp": at(0)})}
        ),
    )
    spec = records.placed_anew(world, Placed(("n0", "n1", "n2")), "Started")
    account = account_of(carried(world, spec))
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
    spec = records.placed_anew(world, Placed(("n0", "n1", "n2")), "Started")
    assert account_of(carried(world, spec)).milliseconds == {"unknown": 30_000}


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
    account, _ = closed(scene.world())
    assert {k: v for k, v in account.milliseconds.items() if k != "queued"} == wanted


def test_steps_are_compute_and_what_is_before_them_is_starting() -> None:
    scene = trains(now=160, step=101)
    account = account_of(broken(scene))
    assert account.milliseconds == {"queued": 50_000, "starting": 9_000, "compute": 101_000}
    assert account.gpu_milliseconds == {"starting": 9_000 * GPUS, "compute": 101_000 * GPUS}
    assert account.failures == 1


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
    go = Go(time=at(170), master_address="10.0.0.1", master_port=20001, resume=Resume(step=40, path="/ckpt/40"))
    last = again.incidents[-1].model_copy(update={"resumed_step": 40})
    spec = carried(later.world(), again.model_copy(update={"go": go, "incidents": [last]}))
    account = account_of(spec)
    assert account.amount(Bucket.LOST_WORK) == 61_000
    assert account.amount(Bucket.COMPUTE) == 40_000
    assert account.lost_steps == 61
    assert spec.incidents[-1].lost_milliseconds == 61_000
    assert cut(account, 40) == (account, 0)


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
    go = Go(time=at(170), master_address="10.0.0.1", master_port=20001, resume=Resume(step=40, path="/ckpt/40"))
    ends = [each.model_copy(update={"resumed_step": 40}) for each in (known, twice)]
    spec = carried(later.world(), later.record.model_copy(update={"go": go, "incidents": ends}))
    assert account_of(spec).lost_steps == lost
    assert spec.incidents[0].step == 40 + lost
    assert spec.incidents[1].step is None
    assert account_of(spec).stretches[-1].step == 40


def test_a_program_that_goes_back_further_than_it_was_told_loses_what_it_makes_again() -> None:
    made = Stretch(after=0, step=100, gpus=GPUS, milliseconds={"compute": 40_000})
    scene = trains(now=160, resume=100, first_step=61, step=161, stretches=[made])
    assert scene.record is not None
    assert scene.record.account is not None
    spent = {"queued": 10_000, "compute": 40_000}
    scene.record = scene.record.model_copy(
        update={"account": scene.record.account.model_copy(update={"milliseconds": spent})}
    )
    account = account_of(broken(scene))
    assert account.amount(Bucket.LOST_WORK) == 16_000
    assert account.lost_steps == 40
    assert [(each.after, each.step) for each in account.stretches] == [(0, 60), (60, 161)]


def test_a_program_that_goes_on_from_a_checkpoint_of_its_own_has_lost_nothing() -> None:
    """Muster knows of none, so the go names no step to go on from."""
    scene = trains(now=160, step=101)
    again = broken(scene)
    last = again.incidents[-1].model_copy(update={"resumed_step": 0})
    go = Go(time=at(170), master_address="10.0.0.1", master_port=20001)
    later = Scene(scene.job, seconds=170).fleet()
    later.record = again
    gone_on = carried(later.world(), again.model_copy(update={"go": go, "incidents": [last]}))
    assert account_of(gone_on).lost_steps == 0
    for first_step, lost in ((102, 0), (1, 101)):
        running_on = trains(now=400, first_step=first_step, step=first_step + 50)
        assert running_on.record is not None
        running_on.record = gone_on.model_copy(update={"go": go.model_copy(update={"time": at(170)})})
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
    lost, _ = cut(account, 0)
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
    figures = told(world, step=101, ended=False, succeeded=False)
    assert [each.resumed_time for each in incidents(world, scene.record, figures)] == [at(60.021)]


def test_the_record_says_when_the_training_went_on_after_an_incident() -> None:
    scene = trains(now=160, step=101)
    before = fault(scene).model_copy(update={"attempt": 0, "time": at(20), "resumed_step": 0})
    assert scene.record is not None
    scene.record = scene.record.model_copy(update={"incidents": [before]})
    assert broken(scene).incidents[0].resumed_time == at(60)


def test_what_the_program_tells_is_taken_out_of_compute_and_never_more_than_there_is() -> None:
    scene = trains(now=160, step=101)
    view = next(iter(scene.launchers.values()))
    scene.all(replace(view, input_wait_seconds=20.0, checkpoint_stall_seconds=5.0))
    account = account_of(broken(scene))
    assert (account.amount(Bucket.INPUT_WAIT), account.amount(Bucket.CHECKPOINT_STALL)) == (20_000, 5_000)
    assert account.amount(Bucket.COMPUTE) == 76_000
    scene.all(replace(view, input_wait_seconds=1e308, checkpoint_stall_seconds=float("nan")))
    assert account_of(broken(scene)).amount(Bucket.INPUT_WAIT) == 101_000


def test_a_launcher_of_old_leaves_its_time_unknown() -> None:
    scene = trains(now=160, step=101)
    scene.all(replace(next(iter(scene.launchers.values())), first_step_age_seconds=None))
    assert account_of(broken(scene)).amount(Bucket.UNKNOWN) == 110_000


def test_where_nobody_is_left_to_tell_what_was_noted_counts_and_the_rest_is_unknown() -> None:
    seen = Seen(started=0, first=10_000, last=60_000, first_step=1, step=51, step_milliseconds=1_000)
    scene = trains(now=160, seen=seen)
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
    assert account_of(broken(scene)).time == at(50)


def test_a_leader_that_saw_the_attempt_begin_counts_no_more_than_it_has_lived() -> None:
    scene = Scene(a_job(), seconds=7200).fleet().gang(go=False).pods()
    assert scene.record is not None
    scene.record = scene.record.model_copy(update={"account": counted(100)})
    scene.but(attempt_age_seconds=20.0)
    account, _ = closed(scene.world())
    assert account.amount(Bucket.STARTING) == 22_000
    assert account.amount(Bucket.UNKNOWN) == 7_100_000 - 22_000


def test_before_the_go_ranks_are_reclaimed_nodes_tested_and_the_rest_is_the_start() -> None:
    scene = Scene(a_job(), seconds=160).fleet().gang(attempt=2, go=False, time=at(100)).pods()
    assert scene.record is not None
    members = [m.model_copy(update={"newcomer": m.index == 2}) for m in scene.record.members]
    scene.record = scene.record.model_copy(update={"account": counted(100, has_run=True), "members": members})
    for index in (0, 1):
        scene.launcher(index, idle(2, index, previous_attempt=1, attempt_age_seconds=55.0 + index))
    scene.launcher(2, idle(2, 2, attempt_age_seconds=10.0))
    answers = tuple(CheckAnswer(f"o{n}", "Node", "Ended", seconds=20.0) for n in range(2))
    told = CheckerView(0.5, CheckReport(1, answers=answers))
    scene.but(checkers={"n2": told, "n0": replace(told, report=CheckReport(1, answers=answers * 2))})
    account, _ = closed(scene.world())
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
        Stretch(after=n * 10, step=n * 10 + 10, gpus=GPUS, milliseconds={"compute": 10_000})
        for n in range(MAX_STRETCHES)
    ]
    total = 10_000 * MAX_STRETCHES
    scene = trains(
        now=160,
        resume=10 * MAX_STRETCHES,
        first_step=10 * MAX_STRETCHES + 1,
        step=10 * MAX_STRETCHES + 101,
        stretches=stretches,
    )
    assert scene.record is not None
    assert scene.record.account is not None
    amounts = {"queued": 50_000, "compute": total}
    old = scene.record.account.model_copy(
        update={"milliseconds": amounts, "begun": at(0) - timedelta(milliseconds=total)}
    )
    scene.record = scene.record.model_copy(update={"account": old})
    account = account_of(broken(scene))
    assert len(account.stretches) == MAX_STRETCHES
    assert sum(each.milliseconds["compute"] for each in account.stretches) == account.amount(Bucket.COMPUTE)
    back, lost = cut(account, 0)
    assert lost == account.amount(Bucket.COMPUTE)
    assert back.amount(Bucket.COMPUTE) == 0


def test_what_failed_says_when_it_happened() -> None:
    scene = trains(now=170, step=101)
    assert scene.record is not None
    failure = Failure(Kind.RANK_FAILED, Level.IN_PLACE, 0, "n0", "exit 3", exit_code=3, age_seconds=4.0)
    spec = records.recovered(scene.world(), scene.record, [failure])
    assert spec.incidents[-1].fault_time == at(166)
    earlier = replace(failure, age_seconds=30.0)  # a step is newer than that
    assert records.recovered(scene.world(), scene.record, [earlier]).incidents[-1].fault_time == at(160)

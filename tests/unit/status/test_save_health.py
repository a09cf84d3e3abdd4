"""What people are told of how saving goes: the last saves, and what they should look at before it becomes dear."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.lifecycle.builders import SETTINGS, Scene, a_job, at, running
from tests.unit.lifecycle.saving import GB, HOUR, START_NS, Life, hourly, report, room_comes_and_goes

from muster.api.gang import Resume
from muster.api.trainingjob import MAX_SAVES, CheckpointStatus, TrainingJobStatus
from muster.lifecycle.step import decide
from muster.protocol.messages import CheckpointReport
from muster.status import figures, save_health


def test_each_save_is_told_with_what_is_known_of_it() -> None:
    life = Life()
    life.look(605, report(10, 600, stall_seconds=3.4), step=11, free=900 * GB)
    (save,) = life.saves
    assert (save.step, save.time, save.bytes, save.free_bytes) == (10, at(600), 96 * GB, 900 * GB)
    assert (save.save_seconds, save.stall_seconds, save.durable_seconds) == (20, 3, None)


def test_what_is_known_later_is_added_and_what_is_known_stays() -> None:
    life = Life()
    life.look(605, report(10, 600, durable_seconds=4.0), step=10, free=900 * GB)
    life.look(615, report(10, 600.4, stall_seconds=7.0, durable_seconds=14.0), step=11, free=800 * GB)
    (save,) = life.saves
    assert (save.stall_seconds, save.durable_seconds, save.free_bytes) == (7, 4, 900 * GB)


def test_a_checkpoint_that_is_written_anew_is_another_save() -> None:
    life = Life()
    life.look(605, report(10, 600, stall_seconds=7.0), step=11, free=900 * GB)
    life.look(705, report(10, 700, size_bytes=5), step=11, free=800 * GB)
    (save,) = life.saves
    assert (save.time, save.bytes, save.stall_seconds, save.free_bytes) == (at(700), 5, None, 800 * GB)


def test_the_first_saves_and_the_newest_are_kept_and_the_status_does_not_grow() -> None:
    life = Life()
    hourly(life, 30)
    assert [save.step // 1000 for save in life.saves] == [1, 2, 3, 4, *range(23, 31)]
    assert len(life.saves) == MAX_SAVES


def test_what_lies_beyond_the_newest_is_no_save_of_this_history() -> None:
    life = Life()
    hourly(life, 6)
    scene = Scene(life.job, seconds=HOUR * 7).fleet().gang(checkpoint=Resume(step=3000, path="/checkpoints/step-3000"))
    assert scene.record is not None
    told = CheckpointStatus(step=3000, path="/checkpoints/step-3000", time=at(0), saves=life.saves)
    scene.job = life.job.model_copy(update={"status": TrainingJobStatus(checkpoint=told)})
    now = decide(scene.pods().all(running(1)).world(), SETTINGS).status
    assert now is not None
    assert now.checkpoint is not None
    assert [save.step for save in now.checkpoint.saves] == [1000, 2000, 3000]


@pytest.mark.parametrize("written_ns", [0, 1, 2**63 - 1])
def test_a_time_that_is_none_is_not_told(written_ns: int) -> None:
    life = Life()
    life.look(605, CheckpointReport(10, "/checkpoints/step-10", written_ns, size_bytes=1), step=11)
    assert [(save.time, save.bytes) for save in life.saves] == [(None, 1)]


def test_of_a_step_that_is_saved_twice_one_counts() -> None:
    """Such as `last.ckpt` beside it; and two workers' mounts tell its time with a difference."""
    life = Life()
    twice = [report(10, 600, stall_seconds=3.0), CheckpointReport(10, "/checkpoints/zlast", START_NS + int(603e9))]
    life.look(605, *twice, step=11, free=900 * GB)
    before = life.job.status.checkpoint
    for seconds in range(610, 640, 2):
        twice.reverse()
        later = report(10, 602, stall_seconds=3.0)
        life.look(seconds, *twice, *([later] if seconds % 4 else []), step=11, free=seconds * GB)
        assert life.job.status.checkpoint == before


def test_a_defect_in_what_is_told_of_saves_keeps_no_job_from_its_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(figures, "_logged", set())
    monkeypatch.setattr(save_health, "with_save_concerns", broken)
    life = Life()
    status = life.look(605, report(10, 600), step=11)
    assert (status.state, status.checkpoint is not None) == ("Running", True)


class TestNoNewCheckpoint:
    def test_three_of_the_usual_intervals_without_one_are_told_once(self) -> None:
        life = Life()
        hourly(life, 4)
        life.look(HOUR * 7, report(4000, HOUR * 4), step=6999)
        assert not life.concerns
        life.look(HOUR * 7 + 10, report(4000, HOUR * 4), step=7001)
        assert life.announced == ["NoNewCheckpoint"]
        assert "at most 60 min apart" in life.concerns["NoNewCheckpoint"]
        before = life.job.status
        life.look(HOUR * 9, report(4000, HOUR * 4), step=9000)
        assert life.announced == []
        assert life.job.status.checkpoint == before.checkpoint, "the same words: a status that changes is a write"
        life.look(HOUR * 9 + 60, report(9000, HOUR * 9 + 50), step=9001)
        assert not life.concerns

    def test_a_training_that_became_slow_is_late_with_its_saves(self) -> None:
        life = Life()
        hourly(life, 4)
        life.look(HOUR * 10, report(4000, HOUR * 4), step=6500)
        assert not life.concerns

    def test_a_number_that_counts_epochs_is_no_step(self) -> None:
        life = Life()
        for number in range(1, 5):
            life.look(HOUR * number + 5, report(number, HOUR * number), step=1000 * number)
        life.look(HOUR * 5, report(4, HOUR * 4), step=5000)
        assert not life.concerns

    def test_where_no_step_is_seen_nobody_knows_whether_it_trains(self) -> None:
        life = Life()
        for number in range(1, 5):
            life.look(HOUR * number + 5, report(number * 10, HOUR * number))
        life.look(HOUR * 7 + 10, report(40, HOUR * 4))
        assert not life.concerns

    def test_the_longest_pause_between_two_is_usual_too(self) -> None:
        """A trainer that evaluates after every third one."""
        life, seconds = Life(), 0
        for number in range(1, 10):
            seconds += 1800 if number % 3 == 0 else 300
            life.look(seconds + 5, report(1000 * number, seconds), step=1000 * number + 1)
        life.look(seconds + 3 * 300 + 60, report(9000, seconds), step=13_000)
        assert not life.concerns
        life.look(seconds + 3 * 1800 + 60, report(9000, seconds), step=13_000)
        assert list(life.concerns) == ["NoNewCheckpoint"]

    @pytest.mark.parametrize("blind", [{"checkpoint_error": "no answer within 30 s"}, {"heard_age_seconds": 30.0}])
    def test_while_nobody_sees_the_directory_nobody_is_accused(self, blind: dict[str, Any]) -> None:
        life = Life()
        hourly(life, 4)
        life.look(HOUR * 7 + 10, report(4000, HOUR * 4), step=7001, **blind)
        assert not life.concerns
        life.look(HOUR * 7 + 20, report(4000, HOUR * 4), step=7001)
        assert list(life.concerns) == ["NoNewCheckpoint"]
        life.look(HOUR * 9, report(4000, HOUR * 4), step=9001, **blind)
        assert list(life.concerns) == ["NoNewCheckpoint"], "what was told stands"

    def test_time_counts_from_the_start_of_the_ranks(self) -> None:
        life = Life()
        hourly(life, 4)
        life.look(HOUR * 8, report(4000, HOUR * 4), step=7500, go=HOUR * 6)
        assert not life.concerns

    @pytest.mark.parametrize("known", [1, 2])
    def test_two_intervals_have_to_be_known(self, known: int) -> None:
        life = Life()
        hourly(life, known)
        life.look(HOUR * 50, report(known * 1000, HOUR * known), step=50_000)
        assert not life.concerns

    def test_intervals_of_seconds_are_no_reason_for_haste(self) -> None:
        life = Life()
        for number in range(1, 5):
            life.look(5.0 * number + 1, report(number, 5.0 * number), step=number)
        life.look(120, report(4, 20), step=200)
        assert not life.concerns
        life.look(142, report(4, 20), step=220)
        assert list(life.concerns) == ["NoNewCheckpoint"]


class TestSpace:
    def test_a_disk_that_fills_is_told_before_it_is_full_and_when_it_will_be(self) -> None:
        life = Life()
        hourly(life, 5, free=[(1000 - 96 * n) * GB for n in range(1, 6)])
        assert not life.concerns, "room for five more"
        hourly_more = [report(6000, HOUR * 6), report(5000, HOUR * 5)]
        life.look(HOUR * 6 + 5, *hourly_more, step=6001, free=424 * GB)
        assert life.announced == ["CheckpointSpaceLow"]
        message = life.concerns["CheckpointSpaceLow"]
        assert "424 GB can still be written below /checkpoints" in message
        assert "each save leaves 96 GB less, and it is full after 4 more saves, in about 4 h" in message
        life.look(HOUR * 6 + 90, *hourly_more, step=6010, free=423 * GB)
        assert life.concerns["CheckpointSpaceLow"] == message
        assert life.announced == []

    def test_a_disk_on_which_old_ones_are_deleted_does_not_fill(self) -> None:
        life = Life()
        hourly(life, 12, free=[(200 - 96 * (n % 2)) * GB for n in range(1, 13)])
        assert not life.concerns

    def test_no_room_for_one_more_is_told_however_it_came(self) -> None:
        life = Life()
        hourly(life, 3, free=[200 * GB] * 3)
        assert not life.concerns
        life.look(HOUR * 3 + 60, report(3000, HOUR * 3), step=3010, free=90 * GB)
        assert "90 GB can still be written" in life.concerns["CheckpointSpaceLow"]
        life.look(HOUR * 3 + 70, report(3000, HOUR * 3), step=3011, free=150 * GB)
        assert life.concerns, "a deletion more or less changes nothing"
        life.look(HOUR * 3 + 80, report(3000, HOUR * 3), step=3012, free=200 * GB)
        assert life.concerns, "what comes and goes is told once"
        life.look(HOUR * 3 + 700, report(3000, HOUR * 3), step=3012, free=200 * GB)
        assert not life.concerns

    def test_room_that_comes_and_goes_is_no_storm(self) -> None:
        room_comes_and_goes(turns=100)

    def test_large_and_small_ones_that_take_turns_need_room_for_a_large_one(self) -> None:
        life, told = Life(), 0
        for number in range(1, 12):
            one = report(1000 * number, HOUR * number, size_bytes=(100 if number % 2 else 1) * GB)
            life.look(HOUR * number + 5, one, step=1000 * number + 1, free=80 * GB)
            told += len(life.announced)
        assert (list(life.concerns), told) == (["CheckpointSpaceLow"], 1)

    def test_a_full_disk_is_full_with_the_next_save(self) -> None:
        life = Life()
        hourly(life, 4, free=[300 * GB, 200 * GB, 100 * GB, 10 * GB])
        assert "full with the next save" in life.concerns["CheckpointSpaceLow"]

    @pytest.mark.parametrize("unknown", [{"size_bytes": None}, {"size_bytes": 0}])
    def test_without_a_size_nobody_knows(self, unknown: dict[str, Any]) -> None:
        life = Life()
        hourly(life, 4, free=[1] * 4, **unknown)
        assert not life.concerns

    def test_while_nobody_sees_it_what_was_told_stands(self) -> None:
        life = Life()
        hourly(life, 2, free=[10 * GB] * 2)
        before = life.concerns
        assert list(before) == ["CheckpointSpaceLow"]
        life.look(HOUR * 2 + 60, report(2000, HOUR * 2), step=2010, free=None)
        assert life.concerns == before

    def test_who_judges_no_more_has_old_news(self) -> None:
        job = a_job(nodes=4, checkpoint={"directory": "/checkpoints"})
        scene = Scene(job, seconds=HOUR).fleet(4).gang().pods()
        reports = (report(1000, HOUR - 60),)
        scene.all(running(1, step=1001, checkpoints=reports, free_bytes=900 * GB))
        stale = running(1, step=1001, checkpoints=reports, free_bytes=1)
        # Of four workers three judge: 0, 1 and 2.
        told = decide(scene.launcher(3, stale).world(), SETTINGS).status
        assert told is not None
        assert told.checkpoint is not None
        assert not told.checkpoint.concerns


class TestSavesTakeLonger:
    @pytest.mark.parametrize(
        ("what", "words"),
        [
            ("stall_seconds", "hold up the training for 30 s now, and the first ones 10 s"),
            ("save_seconds", "take from their first file to their last 30 s now, and the first ones 10 s"),
        ],
    )
    def test_saves_that_take_longer_than_the_first_ones_are_told(self, what: str, words: str) -> None:
        life = Life()
        for number, seconds in enumerate([10, 10, 10, 10, 30], 1):
            assert not life.concerns
            changes = {"save_seconds": 10.0, what: float(seconds)}
            life.look(HOUR * number + 5, report(1000 * number, HOUR * number, **changes), step=1000 * number + 1)
        life.look(HOUR * 6, report(6000, HOUR * 6 - 5, **{"save_seconds": 10.0, what: 30.0}), step=6001)
        assert life.announced == ["SavesTakeLonger"]
        assert words in life.concerns["SavesTakeLonger"]

    def test_seconds_more_or_less_change_nothing_once_it_is_told(self) -> None:
        life, told = Life(), 0
        for number, stall in enumerate([4, 4, 4, 4, 9, 9, 9, 8, 8, 8, 9, 9, 9, 8, 8, 8], 1):
            one = report(1000 * number, HOUR * number, stall_seconds=float(stall))
            life.look(HOUR * number + 5, one, step=1000 * number + 1)
            told += len(life.announced)
        assert told == 1

    @pytest.mark.parametrize("slow", [[10, 10, 10, 40, 10, 10, 40, 10], [2, 2, 2, 2, 4, 4, 4, 4], [40] * 8])
    def test_one_slow_save_a_few_seconds_or_slow_ones_from_the_beginning_are_none(self, slow: list[int]) -> None:
        life = Life()
        for number, seconds in enumerate(slow, 1):
            one = report(1000 * number, HOUR * number, save_seconds=float(seconds))
            life.look(HOUR * number + 5, one, step=1000 * number + 1)
        assert not life.concerns


def test_in_a_store_nobody_speaks_of_room() -> None:
    life = Life("s3://bucket/run")
    hourly(life, 4)
    assert not life.concerns


def test_concerns_stay_while_the_gang_restarts_and_are_announced_once() -> None:
    life = Life()
    hourly(life, 2, free=[10 * GB] * 2)
    before = life.job.status.checkpoint
    assert before is not None
    scene = (
        Scene(life.job, seconds=HOUR * 2 + 60).fleet().gang(2, go=False, checkpoint=Resume(step=2000, path=before.path))
    )
    waiting = decide(scene.pods().world(), SETTINGS).status
    assert waiting is not None
    assert waiting.state in ("Starting", "Recovering")
    assert waiting.checkpoint == before
    life.look(HOUR * 2 + 90, report(2000, HOUR * 2), step=2010, free=10 * GB, go=HOUR * 2 + 80)
    assert life.announced == []


def test_what_a_newer_version_has_written_is_read_as_far_as_it_is_known() -> None:
    saves = [{"step": step} for step in range(MAX_SAVES + 3)]
    known = {"reason": "SavesTakeLonger", "message": "longer", "since": "2026-01-31T12:00:00Z"}
    data = {"step": 14, "path": "/c", "time": "2026-01-31T12:00:00Z", "saves": saves}
    read = CheckpointStatus.model_validate({**data, "concerns": [{**known, "reason": "OutOfInodes"}, known]})
    assert [save.step for save in read.saves] == list(range(3, MAX_SAVES + 3))
    assert [concern.reason for concern in read.concerns] == ["SavesTakeLonger"]

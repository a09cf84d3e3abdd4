"""The account beside what Google's ml-goodput-measurement makes of the same event logs: equal where both mean the same.

What the library answered is kept in tests/fixtures/ml-goodput.json; google.py in this folder asks it anew.
docs/goodput.md lists what is different, and each difference is a figure here.
"""

import json
import statistics
from itertools import pairwise
from typing import Any

import pytest
from tests.unit.goodput.google import FIXTURE, Attempt, behind, lives
from tests.unit.lifecycle.builders import Scene, a_job, at, idle, running

from muster.api.gang import AttemptStart, FaultClass, GangIncident, GangSpec, Level, Member, Resume
from muster.api.goodput import Account, Bucket
from muster.goodput.account import close_account, with_account
from muster.recovery.failure import Kind

KEPT = json.loads(FIXTURE.read_text())
ROUNDED = 1  # a millisecond, for each attempt


def life_of(row: dict[str, Any]) -> list[Attempt]:
    return [Attempt(**attempt) for attempt in row["life"]]


def replayed(life: list[Attempt]) -> tuple[Account, list[GangIncident]]:
    """The same log through the fold: each attempt gets its go when its ranks start, and ends when its failure is
    seen."""
    job = a_job(nodes=1)
    job = job.model_copy(update={"metadata": job.metadata.model_copy(update={"creation_timestamp": at(0)})})
    record: GangSpec | None = None

    def scene(milliseconds: int) -> Scene:
        made = Scene(job, seconds=milliseconds / 1000).fleet(1)
        made.record = record
        if record is not None:
            made.pods()
        return made.but(queue_decision=None, leader_age_seconds=1e6, attempt_age_seconds=milliseconds / 1000)

    record = with_account(
        scene(0).world(),
        GangSpec(job_uid="uid", attempt=1, time=at(0), level=Level.START, reason="Started", members=[_member()]),
    )
    for number, attempt in enumerate(life, start=1):
        where = Resume(step=attempt.resume, path="/c") if attempt.resume else None
        go = AttemptStart(time=at(attempt.start / 1000), master_address="a", master_port=20001, resume=where)
        incidents = [
            each if each.resumed_step is not None else each.model_copy(update={"resumed_step": attempt.resume})
            for each in record.incidents
        ]
        waiting = scene(attempt.start).all(idle(number))
        record = with_account(waiting.world(), record.model_copy(update={"start": go, "incidents": incidents}))
        now = attempt.seen or attempt.finished[-1]
        told = scene(now).all(_view(number, attempt, now))
        if attempt.broken is None or attempt.seen is None:
            account, split = close_account(told.world(), ended=True)
            assert split.made is not None
            return account, record.incidents
        fault = GangIncident(
            attempt=number,
            time=at(attempt.seen / 1000),
            fault_time=at(attempt.broken / 1000),
            level=Level.IN_PLACE,
            fault_class=FaultClass.APPLICATION,
            reason=Kind.RANK_FAILED,
        )
        after = {"attempt": number + 1, "start": None, "incidents": [*record.incidents, fault], "time": at(now / 1000)}
        record = with_account(told.world(), record.model_copy(update=after))
    raise AssertionError("the last attempt of a life ends well")


def _member() -> Member:
    return Member(index=0, rank=0, node="n0", incarnation=1, pod_uid="pod-0-1")


def _view(number: int, attempt: Attempt, now: int) -> Any:
    return running(
        number,
        attempt.resume + len(attempt.steps),
        first_step=attempt.resume + 1,
        started_age_seconds=(now - attempt.start) / 1000,
        first_step_age_seconds=(now - attempt.finished[0]) / 1000,
        step_age_seconds=(now - attempt.finished[-1]) / 1000,
        step_seconds=statistics.median(attempt.steps[1:]) / 1000,
    )


def broken_off(life: list[Attempt]) -> int:
    """Of the step that a failure broke off: it is lost work here, and recovery there."""
    return sum(attempt.broken - attempt.finished[-1] for attempt in life if attempt.broken is not None)


def test_what_was_kept_is_of_these_logs() -> None:
    assert [life_of(row) for row in KEPT["even"]] == [lives(seed, even=True) for seed in range(12)]
    assert [life_of(row) for row in KEPT["uneven"]] == [lives(seed, even=False) for seed in range(12)]
    assert [life_of(row) for row in KEPT["behind"]] == [behind()]


@pytest.mark.parametrize("row", KEPT["even"] + KEPT["uneven"])
def test_time_steps_and_failures_are_the_same(row: dict[str, Any]) -> None:
    life, google = life_of(row), row["google"]
    account, _ = replayed(life)
    assert sum(account.milliseconds.values()) == google["elapsed"]
    assert account.failures == google["disruptions"]
    assert account.segments[-1].step == google["step"]


@pytest.mark.parametrize("row", KEPT["even"])
def test_productive_wasted_and_start_are_the_same_where_steps_take_alike(row: dict[str, Any]) -> None:
    life, google = life_of(row), row["google"]
    account, incidents = replayed(life)
    exact = pytest.approx(0, abs=ROUNDED * 2 * len(life))
    assert account.amount(Bucket.COMPUTE) - google["productive"] == exact
    assert account.amount(Bucket.LOST_WORK) - broken_off(life) - google["wasted"] == exact
    # From the last step's start to the next start of the job: the step that was broken off, what nobody saw yet, and
    # the rest.
    recovery = sum(then.start - before.finished[-1] for before, then in pairwise(life))
    assert recovery == google["recovery"]
    before_steps = sum(attempt.first - attempt.start for attempt in life)
    starts = account.amount(Bucket.STARTING, Bucket.RESTARTING, Bucket.UNDETECTED, Bucket.RECLAIM, Bucket.REQUEUED)
    assert starts + broken_off(life) - before_steps - google["recovery"] - google["startup"] == exact
    for each, attempt, then in zip(incidents, life, life[1:], strict=False):
        assert each.lost_milliseconds is not None
        redone = attempt.resume + len(attempt.steps) - then.resume
        assert each.lost_milliseconds - (attempt.broken or 0) + attempt.finished[-1] == pytest.approx(
            redone * attempt.steps[-1], abs=2
        )


@pytest.mark.parametrize("row", KEPT["uneven"])
def test_where_steps_differ_the_first_counts_as_the_median_and_a_cut_by_its_share(row: dict[str, Any]) -> None:
    """Theirs: as the mean of the others that stayed, and each lost step by what it took itself."""
    life, google = life_of(row), row["google"]
    account, _ = replayed(life)
    ours = wasted = single = 0.0
    for attempt, then in zip(life, [*life[1:], None], strict=True):
        steps = attempt.steps
        stay = len(steps) if then is None else then.resume - attempt.resume
        worked = statistics.median(steps[1:]) + sum(steps[1:])
        ours += worked * stay / len(steps)
        wasted += worked * (len(steps) - stay) / len(steps)
        single += steps[0] - statistics.median(steps[1:]) if stay == 1 else 0.0
    exact = 2 * len(life) + 2
    assert account.amount(Bucket.COMPUTE) == pytest.approx(ours, abs=exact)
    assert account.amount(Bucket.LOST_WORK) - broken_off(life) == pytest.approx(wasted, abs=exact)
    # All in all it is little, but where one step alone stays: theirs has nothing to compare it with, and counts its
    # start, too.
    assert account.amount(Bucket.COMPUTE) + single == pytest.approx(google["productive"], rel=0.03)


def test_a_start_behind_the_one_before_takes_all_back_here_and_is_not_seen_there() -> None:
    (row,) = KEPT["behind"]
    life, google = life_of(row), row["google"]
    account, _ = replayed(life)
    assert account.lost_steps == 20
    assert account.amount(Bucket.COMPUTE) == 40_000
    assert google["productive"] == 49_000
    assert google["elapsed"] == sum(account.milliseconds.values())

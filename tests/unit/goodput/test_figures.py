"""The figures of an account: what is made of it and of the attempt that goes on."""

from datetime import UTC, datetime, timedelta

import pytest

from muster.api.goodput import Account, AttemptProgress, Segment
from muster.goodput.figures import KeptWork, figures, give_up_unsaved, progress_share

SUCCEEDED = KeptWork(is_known=True, ended=True, succeeded=True)
DAYS = 3 * 86_400

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("first_step", "step", "stall"),
    [
        pytest.param(1999, 3000, 30_000, id="went on shortly before one: 2000 and 3000"),
        pytest.param(1, 2000, 30_000, id="from the beginning: 1000 and 2000"),
        pytest.param(0, 2999, 30_000, id="counted from 0"),
        pytest.param(1001, 3001, 30_000, id="after one: 2000 and 3000"),
        pytest.param(1001, 1999, None, id="none yet"),
    ],
)
def test_the_stall_of_a_save_is_that_of_as_many_as_there_were(first_step: int, step: int, stall: int | None) -> None:
    times = {
        "start_milliseconds": 0,
        "first_step_milliseconds": 1000,
        "last_step_milliseconds": 2_000_000,
        "step_milliseconds": 1000,
        "checkpoint_steps": 1000,
    }
    seen = AttemptProgress(first_step=first_step, step=step, reported_milliseconds={"checkpointStall": 60_000}, **times)
    account = Account(creation_time=NOW, counted_until=NOW, milliseconds={"compute": 2_000_000})
    assert figures(account, seen, None, SUCCEEDED).checkpoint_stall_milliseconds == stall


def three_days() -> Account:
    """128 accelerators trained for three days after a start of 260 s: 259,200 steps of a second."""
    begun = datetime(2026, 1, 1, tzinfo=UTC)
    spent = {"starting": 260_000, "compute": DAYS * 1000}
    made = Segment(after_step=0, step=DAYS, gpus=128, milliseconds={"compute": DAYS * 1000})
    return Account(
        creation_time=begun,
        counted_until=begun + timedelta(seconds=DAYS + 260),
        milliseconds=spent,
        gpu_milliseconds={name: 128 * amount for name, amount in spent.items()},
        segments=[made],
    )


@pytest.mark.parametrize(
    ("kept", "ettr", "lost", "unsaved", "steps"),
    [
        pytest.param(KeptWork(True, None, True, False), 0, DAYS, None, 0, id="failed without a checkpoint"),
        pytest.param(KeptWork(True, DAYS // 2, True, False), 499, DAYS // 2, None, DAYS // 2, id="failed, half saved"),
        pytest.param(KeptWork(True, 10 * DAYS, True, False), 999, 0, None, DAYS, id="failed, all saved"),
        pytest.param(SUCCEEDED, 999, 0, None, DAYS, id="succeeded"),
        pytest.param(KeptWork(False, None, True, True), 999, 0, None, DAYS, id="succeeded without a directory"),
        pytest.param(KeptWork(False, None, True, False), None, 0, None, DAYS, id="failed without a directory"),
        pytest.param(KeptWork(False), None, 0, None, DAYS, id="runs without a directory"),
        pytest.param(KeptWork(True), 999, 0, DAYS, DAYS, id="runs, nothing saved"),
        pytest.param(KeptWork(True, DAYS - 600), 999, 0, 600, DAYS, id="runs, saved ten minutes ago"),
    ],
)
def test_progress_is_what_is_kept(kept: KeptWork, ettr: int | None, lost: int, unsaved: int | None, steps: int) -> None:
    found = figures(three_days(), None, None, kept)
    assert (found.ettr_permille, found.seconds.get("lostWork", 0)) == (ettr, lost)
    assert (found.unsaved_seconds, found.steps) == (unsaved, steps)
    assert found.progress_unknown == (ettr is None)
    assert sum(found.seconds.values()) == DAYS + 260
    assert sum(found.gpu_seconds.values()) == 128 * (DAYS + 260)
    assert progress_share([(found.gpu_seconds, found.progress_unknown)]) == (
        None if ettr is None else pytest.approx((DAYS - lost) / (DAYS + 260))
    )


def test_what_was_not_saved_of_a_job_that_is_gone_is_lost() -> None:
    found = give_up_unsaved(figures(three_days(), None, None, KeptWork(True, DAYS // 4)))
    assert found.seconds == {"starting": 260, "compute": DAYS // 4, "lostWork": DAYS * 3 // 4}
    assert found.gpu_seconds == {name: 128 * amount for name, amount in found.seconds.items()}
    assert (found.ettr_permille, found.steps, found.unsaved_seconds) == (250, DAYS // 4, None)

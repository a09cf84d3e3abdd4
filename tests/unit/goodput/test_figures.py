"""The figures of an account: what is made of it and of the attempt that goes on."""

from datetime import UTC, datetime

import pytest

from muster.api.goodput import Account, Seen
from muster.goodput.figures import figures

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
    times = {"started": 0, "first": 1000, "last": 2_000_000, "step_milliseconds": 1000, "checkpoint_steps": 1000}
    seen = Seen(first_step=first_step, step=step, told={"checkpointStall": 60_000}, **times)
    account = Account(begun=NOW, time=NOW, milliseconds={"compute": 2_000_000})
    assert figures(account, seen).checkpoint_stall_milliseconds == stall

"""Time that no account has yet: into one bucket by the job's state, with the accelerators that are held, and nothing twice."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.api.goodput import LONGEST_MILLISECONDS, Goodput, added
from muster.api.trainingjob import CompletionRecord, CompletionResult, TrainingJobStatus
from muster.goodput.opened import tail, up_to

TOLD = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def a_goodput(**values: Any) -> Goodput:
    return Goodput(begun=TOLD - timedelta(hours=1), time=TOLD, **{"seconds": {"compute": 3600}, **values})


def passed(state: str, since: timedelta, *, nodes: int = 2, **values: Any) -> Goodput:
    """The figures of a job of 16 accelerators so long after they were told."""
    goodput = a_goodput(**values)
    status = TrainingJobStatus(state=state, nodes=["n", "m"][:nodes] + [""] * (2 - nodes), goodput=goodput)
    return up_to(goodput, tail(status, 16), TOLD + since)


@pytest.mark.parametrize(
    ("state", "values", "nodes", "bucket", "gpus"),
    [
        pytest.param("Running", {}, 2, "unknown", 16, id="nobody sees its steps"),
        pytest.param("Running", {"step_milliseconds": 500}, 2, "restarting", 16, id="its ranks make no step yet"),
        pytest.param("Recovering", {}, 2, "restarting", 16, id="has its nodes again"),
        pytest.param("Recovering", {}, 1, "requeued", 8, id="waits for one more"),
        pytest.param("Recovering", {}, 0, "requeued", 0, id="waits for all"),
        pytest.param("Starting", {"seconds": {"queued": 60}}, 2, "starting", 16, id="starts for the first time"),
        pytest.param("Pending", {"seconds": {"queued": 60}}, 0, "queued", 0, id="waits for its first"),
        pytest.param("Suspended", {}, 0, "suspended", 0, id="shall not run"),
    ],
)
def test_what_goes_on_is_in_one_bucket(state: str, values: dict[str, Any], nodes: int, bucket: str, gpus: int) -> None:
    found = passed(state, HOUR, nodes=nodes, **values)
    before = a_goodput(**values).seconds
    assert found.seconds == added(before, {bucket: 3600})
    assert found.gpu_seconds == ({bucket: 3600 * gpus} if gpus else {})
    assert found.time == TOLD + HOUR
    productive, wanted = before.get("compute", 0), sum(found.seconds.values()) - found.seconds.get("suspended", 0)
    assert found.ettr_permille == productive * 1000 // wanted


def test_ranks_of_which_no_step_was_ever_seen_are_starting_at_first() -> None:
    seconds = {"starting": 60}
    assert passed("Running", timedelta(minutes=9), seconds=seconds).seconds == {"starting": 600}
    assert passed("Running", timedelta(minutes=11), seconds=seconds).seconds == {"starting": 60, "unknown": 660}


def test_what_is_told_with_the_next_step_is_not_counted_before() -> None:
    assert passed("Running", timedelta(minutes=2)) == a_goodput()
    slow = {"step_milliseconds": 120_000}
    assert passed("Running", timedelta(minutes=20), **slow) == a_goodput(**slow)
    assert passed("Running", timedelta(minutes=21), **slow) != a_goodput(**slow)
    assert passed("Recovering", -HOUR) == a_goodput(), "a clock that has gone back"


def test_what_has_ended_is_counted() -> None:
    end = CompletionRecord(result=CompletionResult.SUCCEEDED, reason="Completed", time=TOLD, attempt=1)
    assert tail(TrainingJobStatus(state="Succeeded", goodput=a_goodput(), completion=end), 16) is None
    assert tail(TrainingJobStatus(state="Pending"), 16) is None


@given(
    state=st.sampled_from(["", "Pending", "Running", "Saving", "Recovering", "Starting", "Stalled", "Suspended"]),
    nodes=st.integers(0, 2),
    since=st.timedeltas(-HOUR, timedelta(days=36_500)),
    step=st.none() | st.integers(0, LONGEST_MILLISECONDS),
    seconds=st.dictionaries(st.sampled_from(["compute", "queued", "suspended", "unknown"]), st.integers(1, 10**9)),
)
def test_the_sum_is_the_wall_clock_and_never_less(
    state: str, nodes: int, since: timedelta, step: int | None, seconds: dict[str, int]
) -> None:
    found = passed(state, since, nodes=nodes, seconds=seconds, step_milliseconds=step)
    assert sum(found.seconds.values()) - sum(seconds.values()) == (found.time - TOLD).total_seconds()
    assert timedelta(0) <= found.time - TOLD <= max(since, timedelta(0))
    assert sum(found.gpu_seconds.values()) <= 16 * (sum(found.seconds.values()) - sum(seconds.values()))

"""When a job that holds nodes ends: what says so, what is distrusted, and that nothing hostile breaks it."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.unit.lifecycle.builders import at
from tests.unit.queueing.ended import ended, expects, steps, trains

from muster.api.goodput import MAX_STEP, Bucket
from muster.api.trainingjob import MAX_DURATION_SECONDS, TrainingJob
from muster.queueing.ends import EndBasis, end_of, held_seconds, history

NOW = at(0)
HOURS = [3600.0 * hours for hours in (1, 2, 3, 4, 5)]


@pytest.mark.parametrize(
    ("job", "seconds", "basis", "detail"),
    [
        (trains(**steps(2000, 5000)), 6000, EndBasis.STEPS, "step 2000 of 5000, 2 s each"),
        (
            trains(**steps(2000, 5000, checkpointSteps=100, checkpointStallMilliseconds=20_000)),
            6600,
            EndBasis.STEPS,
            "step 2000 of 5000, 2.2 s each",
        ),
        (trains(spec=expects(5000)), 1400, EndBasis.EXPECTED, "5000 s in all, 3600 s so far"),
        (
            trains(held=5400),
            3600 * 3.5 - 5400,
            EndBasis.HISTORY,
            "the median of the 4 of 5 earlier jobs that trained for longer than this one",
        ),
        # What the steps say counts before what the user expects.
        (
            trains(**{**steps(2000, 5000), "spec": {"progress": {"totalSteps": 5000}, **expects(10**6)}}),
            6000,
            EndBasis.STEPS,
            "step 2000 of 5000, 2 s each",
        ),
        (trains(spec=expects(5000), state="Recovering"), 1400, EndBasis.EXPECTED, "5000 s in all, 3600 s so far"),
        # Steps beyond totalSteps, and more than a year of them, say nothing.
        *(
            (
                trains(**{**steps(2000, total), "spec": {"progress": {"totalSteps": total}, **expects(5000)}}),
                1400,
                EndBasis.EXPECTED,
                "5000 s in all, 3600 s so far",
            )
            for total in (1999, MAX_STEP)
        ),
    ],
    ids=["steps", "with saves", "expected", "history", "steps first", "recovering", "total shrank", "total too large"],
)
def test_what_says_it(job: TrainingJob, seconds: float, basis: EndBasis, detail: str) -> None:
    end = end_of(job, HOURS, NOW)
    assert (end.time, end.basis, end.detail, end.overdue_since) == (at(seconds), basis, detail, None)


UNKNOWN = "neither its steps nor expectedDurationSeconds nor earlier jobs say it"


@pytest.mark.parametrize(
    ("job", "detail"),
    [
        (trains(), UNKNOWN),
        (trains(**steps(2000, None)), UNKNOWN),
        (trains(**steps(2000, 5000, seconds=0)), UNKNOWN),
        (trains(**steps(2000, 5000), until=-1200), "no step for 20 min"),
        (trains(**steps(1, MAX_STEP)), UNKNOWN),
        (trains(**steps(5000, 4000)), UNKNOWN),
    ],
    ids=["nothing", "no total", "rate of zero", "no step comes", "total too large", "total shrank"],
)
def test_not_known(job: TrainingJob, detail: str) -> None:
    end = end_of(job, HOURS[:2], NOW)
    assert (end.time, end.detail, end.overdue_since) == (None, detail, None)


@pytest.mark.parametrize(
    ("job", "late"),
    [
        (trains(spec=expects(3600 - 60)), 60),
        (trains(spec=expects(3600 - 1200)), 1200),
        (trains(**steps(5000, 5000), until=-60), 60),
        (trains(**steps(5000, 5000), until=-1200), 1200),
    ],
    ids=["expected, a minute", "expected", "steps, a minute", "steps"],
)
def test_an_end_that_has_passed(job: TrainingJob, late: float) -> None:
    end = end_of(job, HOURS, NOW)
    assert (end.time, end.overdue_since) == (NOW if late <= 300 else None, at(-late))


def test_a_job_that_is_over_ends_now() -> None:
    assert end_of(ended("old", 60), [], NOW).time == NOW


def test_the_time_without_nodes_does_not_count() -> None:
    waits = {"seconds": {"queued": 500, "suspended": 700, "requeued": 90, "compute": 60, "restarting": 40}}
    assert held_seconds(trains(goodput=waits), at(50)) == 150
    stopped = {**waits, "openPhase": {"bucket": "suspended", "since": at(0), "gpus": 0}}
    assert held_seconds(trains(goodput=stopped, state="Suspended", nodes=[]), at(50)) == 100


def test_the_account_may_be_by_another_clock() -> None:
    assert held_seconds(trains(until=100, goodput={"clockAheadSeconds": 100}), at(50)) == 3650


def test_the_history_is_of_jobs_that_succeeded() -> None:
    jobs = [ended("a", 70), ended("b", 50), ended("c", 60, result="Failed"), trains("d")]
    assert history(jobs) == {"default": [50.0, 70.0]}


CLAIMS = st.integers(0, MAX_STEP)
REPORTS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "stepMilliseconds": CLAIMS,
        "checkpointSteps": CLAIMS,
        "checkpointStallMilliseconds": CLAIMS,
        "clockAheadSeconds": st.integers(-(10**6), 10**6),
        "seconds": st.dictionaries(st.sampled_from([bucket.value for bucket in Bucket]), CLAIMS),
    },
)


@example(
    goodput={"seconds": {"compute": MAX_STEP}},
    step=None,
    total=None,
    expected=1,
    until=0,
    state="Running",
    earlier=[],
)
@given(
    goodput=REPORTS,
    step=CLAIMS | st.none(),
    total=st.integers(1, MAX_STEP) | st.none(),
    expected=st.integers(-(2**63), 2**63) | st.none(),
    until=st.integers(-(10**9), 10**9),
    state=st.sampled_from(["Running", "Saving", "Starting", "Recovering", "Stalled", ""]),
    earlier=st.lists(st.floats(0, 2**53), max_size=6),
)
def test_no_report_breaks_it(
    goodput: dict[str, Any],
    step: int | None,
    total: int | None,
    expected: int | None,
    until: int,
    state: str,
    earlier: list[float],
) -> None:
    spec = {"progress": {"totalSteps": total}, "queueing": {"expectedDurationSeconds": expected}}
    end = end_of(trains(until=until, spec=spec, state=state, step=step, goodput=goodput), sorted(earlier), NOW)
    assert end.time is None or 0 <= (end.time - NOW).total_seconds() <= MAX_DURATION_SECONDS
    assert end.detail


@given(st.integers(0, 4999), st.integers(1, 1000), st.integers(1, 10**6))
def test_more_steps_or_slower_ones_end_later(step: int, more: int, pace: int) -> None:
    def end(done: int, milliseconds: int) -> float:
        found = end_of(trains(**steps(done, 5000, milliseconds / 1000)), [], NOW).time
        return (found - NOW).total_seconds() if found is not None else float("inf")

    assert end(step, pace) >= end(min(step + more, 5000), pace)
    assert end(step, pace + more) >= end(step, pace)

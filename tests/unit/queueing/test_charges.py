"""What a reservation that comes to nothing costs: the rule by rows, and its bound over some queues."""

import pytest
from hypothesis import given, settings
from tests.unit.lifecycle.builders import a_job
from tests.unit.queueing.builders import queue, told, tree, wants
from tests.unit.queueing.charged_stories import Job, a_job_that, passed_once_in_a_pause, stories
from tests.unit.queueing.planned import plan

from muster.queueing import explain
from muster.queueing.charges import FIRST_SECONDS, JOBS_THAT_PAY_ALONE, LONGEST_SECONDS, Charged, Charges
from muster.queueing.preemption import Preemption
from muster.queueing.queue import order

HOUR = FIRST_SECONDS


def many(charges: Charges, now: float, first: int = 0) -> None:
    """One job more than pays alone."""
    for number in range(first, first + JOBS_THAT_PAY_ALONE + 1):
        charges.charge("team", f"job-{number}", now)


def test_a_job_stands_behind_for_an_hour_then_twice_as_long_up_to_a_day() -> None:
    """Its namespace does not stand behind."""
    charges, now = Charges(), 0.0
    pauses = []
    for _ in range(7):
        charges.charge("team", "job", now)
        assert charges.charged(now) == Charged(jobs=frozenset({"job"}))
        pauses.append(next(s for s in range(0, 10**6, 1800) if charges.charged(now + s) == Charged()))
        now += pauses[-1]
    assert pauses == [HOUR, 2 * HOUR, 4 * HOUR, 8 * HOUR, 16 * HOUR, LONGEST_SECONDS, LONGEST_SECONDS]


def test_its_namespace_stands_behind_once_more_jobs_do_than_pay_alone() -> None:
    """It stands behind as long as a job."""
    charges, now = Charges(), 0.0
    for number in range(JOBS_THAT_PAY_ALONE):
        charges.charge("team", f"job-{number}", now)
        charges.charge("team", f"job-{number}", now + number)
        assert charges.charged(now).namespaces == frozenset()
    charges.charge("other", "of-another", now)
    pauses = []
    for number in range(7):
        many(charges, now, first=10 * number)
        assert charges.charged(now).namespaces == {"team"}
        pauses.append(next(s for s in range(0, 10**6, 1800) if not charges.charged(now + s).namespaces))
        now += pauses[-1]
    assert pauses == [HOUR, 2 * HOUR, 4 * HOUR, 8 * HOUR, 16 * HOUR, LONGEST_SECONDS, LONGEST_SECONDS]


def test_what_happens_while_it_stands_behind_is_not_counted() -> None:
    charges = Charges()
    for now in (0.0, 1.0, HOUR - 1):
        charges.charge("team", "job", now)
    assert charges.charged(HOUR) == Charged()
    charges = Charges()
    for now in (0.0, 1.0, HOUR - 1):
        many(charges, now, first=int(now))
    assert charges.charged(HOUR) == Charged()
    assert len(charges._jobs["team"]) == JOBS_THAT_PAY_ALONE + 1, (
        "nothing is kept of a thousand jobs that fail together"
    )


def test_a_day_after_a_pause_all_is_forgotten() -> None:
    for later, two_hours in ((HOUR + LONGEST_SECONDS - 1, True), (HOUR + LONGEST_SECONDS, False)):
        charges = Charges()
        many(charges, 0.0)
        many(charges, later)
        found = charges.charged(later + HOUR)
        assert found == (Charged(frozenset({"job-0"}), frozenset({"team"})) if two_hours else Charged())
    assert charges.charged(later + HOUR + LONGEST_SECONDS) == Charged()
    assert (charges._jobs, charges._namespaces) == ({}, {})


def test_neither_age_nor_priority_helps_but_replacements_go_first() -> None:
    jobs = queue(
        wants("old", 1, namespace="bad", priority=9),
        wants("young", 1, namespace="good", priority=-9),
        wants("hurt", 1, namespace="bad", replacement=True),
        wants("broken", 1, namespace="good", priority=9),
    )
    charged = Charged(frozenset({"uid-of-broken"}), frozenset({"bad"}))
    assert [job.name for job in order(jobs, charged)] == ["bad/hurt", "good/young", "bad/old", "good/broken"]


def test_who_stands_behind_is_told_so() -> None:
    jobs = queue(wants("old", 3, namespace="bad"), wants("young", 2, namespace="good"))
    for charged, words in (
        (Charged(namespaces=frozenset({"bad"})), "namespace default stands behind other namespaces and preempts none"),
        (Charged(jobs=frozenset({"uid-of-old"})), "it stands behind all other jobs and preempts none"),
    ):
        turns = plan(tree("b1/r1:2"), jobs, preemption=Preemption(charged=charged))
        found = {name: turns[f"uid-of-{name}"].answer for name in ("old", "young")}
        assert told(found) == {"old": "NeverFits", "young": 2}
        assert words in explain.message(a_job("old", nodes=3), turns["uid-of-old"])
        assert turns["uid-of-young"].payer is None


@pytest.mark.parametrize(
    "jobs",
    [
        pytest.param([a_job_that("a", 6, "bad", fails=True), a_job_that("b", 6, "good", arrives=1.0)], id="one"),
        pytest.param(
            [a_job_that("a", 6, "bad", fails=True, anew=True), a_job_that("b", 6, "good", arrives=1.0)],
            id="made anew each time",
        ),
        pytest.param(
            [
                a_job_that("a", 5, "bad", fails=True),
                a_job_that("b", 5, "bad", fails=True, anew=True, priority=1),
                a_job_that("c", 3, "worse", fails=True, anew=True),
                a_job_that("d", 8, "good", priority=-1),
            ],
            id="several of two namespaces",
        ),
    ],
)
def test_who_waits_is_passed_by_reservations_that_come_to_nothing_once_in_a_pause(jobs: list[Job]) -> None:
    passed_once_in_a_pause(jobs)


@settings(max_examples=8)
@given(stories(most_jobs=4))
def test_a_waiting_job_is_passed_by_vain_reservations_once_in_a_pause(jobs: list[Job]) -> None:
    """More and longer queues: tests/unit/nightly/queueing/test_charges.py."""
    passed_once_in_a_pause(jobs)

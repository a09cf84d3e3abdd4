"""What one namespace may take of the time of a plan."""

from collections import Counter
from collections.abc import Iterable

from tests.unit.queueing.builders import queue, wants

from muster.queueing.queue import Waiting, order
from muster.queueing.shares import FIRST_SECONDS, OTHERS_SECONDS, Shares


def asked_in_a_plan(shares: Shares, jobs: Iterable[Waiting], seconds: float) -> list[str]:
    """Names of the jobs that are asked for, where each takes so long."""
    shares.begin()
    asked = []
    for job in order(jobs):
        if shares.admits(job):
            shares.spent(job, seconds)
            asked.append(job.name)
    return asked


NOISY = [wants(f"n{number:04}", 1, seconds=number, namespace="noisy") for number in range(2000)]
SMALL = wants("last", 1, seconds=9999, namespace="small")


def test_a_namespace_of_costly_jobs_takes_its_time_and_no_more() -> None:
    asked = asked_in_a_plan(Shares(), queue(*NOISY, SMALL), 0.004)
    assert len(asked) <= (FIRST_SECONDS + OTHERS_SECONDS) / 0.004 + 3
    assert asked[-1] == "small/last"


def test_where_all_are_cheap_all_are_asked() -> None:
    assert len(asked_in_a_plan(Shares(), NOISY, 0.0001)) == 2000


def test_the_first_are_asked_every_time_and_those_behind_them_take_turns() -> None:
    shares, times = Shares(), Counter[str]()
    first = int(FIRST_SECONDS / 0.004) - 1
    for _ in range(64):
        times.update(asked_in_a_plan(shares, NOISY, 0.004))
    names = [job.name for job in NOISY]
    assert {times[name] for name in names[:first]} == {64}
    assert {times[name] for name in names[first + 2 :]} <= {4, 5}


def test_turns_go_on_where_the_queue_has_changed_meanwhile() -> None:
    shares = Shares()
    before = asked_in_a_plan(shares, NOISY, 0.004)
    new = [wants(f"v{number}", 1, priority=1, namespace="noisy") for number in range(200)]
    after = asked_in_a_plan(shares, [*NOISY, *new], 0.004)
    assert after[0] == "noisy/v0"
    assert NOISY[0].name in before
    assert after[-1] > before[-1]

"""What a reservation that comes to nothing costs: its bound over random queues."""

from hypothesis import event, given
from tests.unit.queueing.charged_stories import Job, passed_once_in_a_pause, stories


@given(stories())
def test_who_waits_is_passed_by_reservations_that_come_to_nothing_once_in_a_pause(jobs: list[Job]) -> None:
    for times in passed_once_in_a_pause(jobs):
        event(f"passed {times} times by a namespace that pays")

"""The hours of a fleet under many histories: the same as in the gate, with more examples."""

from hypothesis import given, settings
from tests.unit.goodput.hours import histories, no_second_is_there_twice, what_is_kept_is_bounded

from muster.goodput.fleethours import GpuState


@settings(max_examples=200, deadline=None)
@given(histories)
def test_whatever_happens_no_second_is_there_twice(history: list[tuple[str, float, dict[GpuState, int]]]) -> None:
    no_second_is_there_twice(history)


def test_what_is_kept_is_bounded() -> None:
    what_is_kept_is_bounded(days=500, most_days=400)

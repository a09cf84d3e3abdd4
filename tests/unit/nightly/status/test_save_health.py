"""What people are told of how saving goes, over an hour in which it changes at each look."""

from tests.unit.lifecycle.saving import room_comes_and_goes


def test_room_that_comes_and_goes_is_no_storm() -> None:
    room_comes_and_goes(turns=1800)

"""For how long a leader has seen what it counts by."""

from typing import Any

from muster.api.gang import Gang
from muster.controller.ghosts import Beats, GhostAges


def test_the_go_of_a_record_that_was_made_anew_is_not_the_one_of_before(make: Any) -> None:
    """Somebody has deleted the Gang, and the status lags: the same number may come again."""
    ages, beats, gang = GhostAges(), Beats(lambda: 0.0), make.gang(make.job(), "p0", "p1")

    def go_age(record: Gang | None, now: float) -> float:
        ages.look(record, {}, {}, beats, now, 0.0)
        return ages.go_age_seconds

    assert go_age(gang, 0.0) == 0.0
    assert go_age(gang, 40.0) == 40.0
    assert go_age(None, 50.0) == 0.0
    assert go_age(gang, 60.0) == 0.0
    assert go_age(gang, 65.0) == 5.0

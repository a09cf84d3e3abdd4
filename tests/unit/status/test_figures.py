"""A defect in a figure for people keeps no job from being decided, and is logged once for each kind."""

import pytest

from muster.status import figures
from muster.status.figures import compute_or_fallback


def test_a_figure_that_can_be_computed_is_the_result() -> None:
    assert compute_or_fallback("the account", lambda: 1, 2) == 1


def test_what_fails_leaves_the_fallback_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    def fail(error: Exception) -> int:
        raise error

    for _ in range(2):
        assert compute_or_fallback("the account", lambda: fail(ValueError("no number")), 2) == 2
        assert compute_or_fallback("the account", lambda: fail(KeyError("step")), 3) == 3
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ValueError, KeyError]
    figures._logged.clear()  # else the suite takes it for a defect

"""The tables of `report --incident`: who detected a failure, and which budget pays. Its page: tests/unit/cli."""

from muster.answers import inquiry
from muster.api.gang import FaultClass
from muster.api.trainingjob import Recovery
from muster.recovery.failure import Kind


def test_every_kind_of_failure_says_what_detected_it() -> None:
    assert set(Kind) ^ set(inquiry._SEEN_BY) == set(), "each kind has a line of _SEEN_BY in answers/inquiry.py"


def test_every_class_has_its_budget() -> None:
    assert all(inquiry._paid(each, Recovery()) for each in FaultClass)
    assert "pays" not in inquiry._paid("Planned", Recovery()).replace("no budget pays", "")

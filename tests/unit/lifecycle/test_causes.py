"""The cause is blamed and not who fell over it, in whatever order the exits are heard within the settling time."""

import pytest
from tests.unit.lifecycle.blamed import FAULTS, the_cause_is_blamed

from simulate.training import VICTIM_TAIL


@pytest.mark.parametrize("fault", FAULTS)
def test_the_cause_is_blamed_though_it_is_heard_last(fault: str) -> None:
    the_cause_is_blamed(fault, heard=[0, 6, 3], tail=VICTIM_TAIL, lag=2.0)

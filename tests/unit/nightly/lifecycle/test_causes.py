"""The cause is blamed and not who fell over it, in whatever order the exits are heard within the settling time."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.lifecycle.blamed import FAULTS, VICTIMS, the_cause_is_blamed


@pytest.mark.parametrize("fault", FAULTS)
@settings(max_examples=8)
@given(
    heard=st.lists(st.integers(0, 6), min_size=3, max_size=3),
    tail=st.sampled_from(VICTIMS),
    lag=st.sampled_from([0.0, 1.0, 2.0]),
)
def test_the_cause_is_blamed_in_whatever_order_the_exits_are_heard(
    fault: str, heard: list[int], tail: str, lag: float
) -> None:
    the_cause_is_blamed(fault, heard, tail, lag)

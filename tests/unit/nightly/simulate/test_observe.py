"""A month of an operator of profile observe."""

import pytest
from tests.unit.simulate.observing import WRITES, observed, reasons, writes


@pytest.mark.timeout(7200)  # seven minutes on two quiet cores
def test_a_month() -> None:
    with observed(seed=8, hours=30 * 24, faults_per_hour=1) as life:
        assert writes(life) <= WRITES
        assert {"NodeObserved", "NodeUnhealthy"} & reasons(life)

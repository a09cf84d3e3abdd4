"""Every fault of the fake library becomes its evidence and goes again, one at a time."""

from typing import Any

import pytest
from tests.unit.agent.faults import CASES, assert_that_a_fault_comes_and_goes


@pytest.mark.parametrize("case", CASES)
def test_a_fault_is_evidence_until_it_is_gone(case: str, node: Any, run: Any) -> None:
    assert_that_a_fault_comes_and_goes(case, node, run)

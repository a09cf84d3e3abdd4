"""What tests of more than one room ask for."""

import pytest
from tests.unit.clock import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()

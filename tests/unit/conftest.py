"""What tests of more than one room ask for."""

import os
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from tests.unit.clock import Clock

# However busy the machine is; and what passes today passes tomorrow: `make test-long` draws anew.
settings.register_profile(
    "muster",
    deadline=None,
    derandomize="MUSTER_RANDOM" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("muster")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes minutes begins before all others, so that nobody waits for it alone at the end."""
    items.sort(key=lambda item: item.get_closest_marker("minutes") is None)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(autouse=True)
def _figures_are_worked_out() -> Iterator[None]:
    """A defect in what only people are told is logged and stops nothing: here it fails the test."""
    yield
    figures = sys.modules.get("muster.lifecycle.figures")
    if figures is not None and figures._logged:
        found = sorted(f"{what}: {error.__name__}" for what, error in figures._logged)
        figures._logged.clear()
        raise AssertionError(f"could not be worked out: {', '.join(found)}")

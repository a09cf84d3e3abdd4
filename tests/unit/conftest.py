"""What tests of more than one room ask for."""

import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from tests.unit.clock import Clock

# One seed for all, from the command line (pyproject.toml has the gate's): what passes today passes tomorrow.
settings.register_profile("muster", deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("muster")
# Hypothesis mixes constants of the modules that are loaded into what it draws; each change of a source would move it.
providers.is_local_module_file = lambda _: False


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

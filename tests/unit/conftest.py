"""What tests of more than one room ask for."""

import gc
import sys
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from tests.unit.clock import Clock

# One seed for all, from the command line (pyproject.toml has the gate's): what passes today passes tomorrow. A property
# that says nothing else is tried on 30 examples in the gate, and on 100 in parts of `make test-all`.
settings.register_profile(
    "muster", deadline=None, database=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("nightly", settings.get_profile("muster"), max_examples=100)
settings.load_profile("muster")
# Hypothesis mixes constants of the modules that are loaded into what it draws; each change of a source would move it.
providers.is_local_module_file = lambda _: False

# Else each exception that is logged is drawn with the source and variables of all its frames: up to a second of CPU.
structlog.dev.ConsoleRenderer.get_active().exception_formatter = structlog.dev.plain_traceback

# What pytest collects, 15,000 tests and their modules, stays to the end: looking through it for garbage finds none.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(autouse=True)
def _figures_are_worked_out() -> Iterator[None]:
    """A defect in what only people are told is logged and stops nothing: here it fails the test."""
    yield
    figures = sys.modules.get("muster.status.figures")
    if figures is not None and figures._logged:
        found = sorted(f"{what}: {error.__name__}" for what, error in figures._logged)
        figures._logged.clear()
        raise AssertionError(f"could not be worked out: {', '.join(found)}")

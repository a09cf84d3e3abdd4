"""Draws random delays, so that many waiting processes do not act at the same moment."""

import random
from contextvars import ContextVar

# The simulator gives each simulated run a generator of its own: no other draw in the process may change a run.
generator: ContextVar[random.Random] = ContextVar("generator", default=random.Random())  # noqa: B039 - shared


def uniform(low: float, high: float) -> float:
    """Return a number between `low` and `high`, evenly distributed."""
    return generator.get().uniform(low, high)

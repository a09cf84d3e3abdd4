"""Chance, so that many who wait alike do not come at the same moment."""

import random
from contextvars import ContextVar

# The simulator gives each life one of its own: whoever else draws in the process must not change a life.
generator: ContextVar[random.Random] = ContextVar("generator", default=random.Random())  # noqa: B039 - shared


def uniform(low: float, high: float) -> float:
    """A number between these two, each as likely as any other."""
    return generator.get().uniform(low, high)

"""Fixtures of the scenarios."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.unit.lifecycle.testbed import OneJob


@pytest.fixture
def submitted() -> Iterator[Callable[..., OneJob]]:
    """Makes fleets with a job that was just submitted; they are closed at the end."""
    made: list[OneJob] = []

    def make(**settings: Any) -> OneJob:
        made.append(OneJob(**settings))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def training(submitted: Callable[..., OneJob]) -> Callable[..., OneJob]:
    """The same, once the job has come to step 7, with a checkpoint at 5."""

    def make(until_step: int = 7, **settings: Any) -> OneJob:
        one = submitted(**settings)
        one.until_step(until_step)
        return one

    return make

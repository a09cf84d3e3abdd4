"""Random delays come from the generator of the present context."""

import random
from contextvars import copy_context

from muster.kube import jitter


def test_a_run_with_a_generator_of_its_own_draws_the_same_again() -> None:
    def draws() -> list[float]:
        jitter.generator.set(random.Random(7))
        return [jitter.uniform(2.0, 3.0) for _ in range(20)]

    first = copy_context().run(draws)
    jitter.uniform(0.0, 1.0)
    assert copy_context().run(draws) == first
    assert len(set(first)) == 20
    assert all(2.0 <= each <= 3.0 for each in first)

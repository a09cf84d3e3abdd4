"""What the operator saw, written down, and what it would do now: the same, in the lives that the gate leaves out."""

from collections.abc import Callable

import pytest
from tests.unit.lifecycle.builders import a_job
from tests.unit.lifecycle.theatre import VICTIM_TAIL, Play, Theatre
from tests.unit.lifecycle.written import (
    ALL_LIVES,
    CHIEF_LIVES,
    a_life_is_decided_again_the_same,
    has_queue_decision,
    written_down,
)


@pytest.mark.parametrize(("fault", "mode"), [life for life in ALL_LIVES if life not in CHIEF_LIVES])
def test_a_whole_life_is_decided_again_the_same(fault: Callable[[Theatre, Play], None], mode: str) -> None:
    a_life_is_decided_again_the_same(fault, mode)


def test_two_jobs_for_one_place() -> None:
    with written_down() as lines:
        theatre = Theatre(nodes=3)
        first, second = theatre.submit(a_job("a")), theatre.submit(a_job("b"))
        theatre.until(lambda: first.step >= 7)
        theatre.end_rank(first, 1, code=1, tail=VICTIM_TAIL)
        theatre.finish(first)
        theatre.finish(second)
    assert len(lines) > 20
    assert any(map(has_queue_decision, lines))

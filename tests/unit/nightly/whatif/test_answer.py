"""Intervals of what-if answers, held to the truth of very many lives."""

from tests.unit.whatif.builders import DICE, a_plan
from tests.unit.whatif.test_answer import asked

from muster.whatif.answer import answer
from muster.whatif.rates import LLAMA3


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    plan = a_plan(days=20)
    truth = asked(plan.model_copy(update={"days": 54.0 * 30})).ettr.mean  # so long that chance hardly matters
    covered = 0
    for block in range(60):
        found = answer(plan, LLAMA3, lambda number, block=block: DICE(1000 + 20 * block + number), 20).ettr
        covered += found.low <= truth <= found.high
    assert 50 <= covered <= 60

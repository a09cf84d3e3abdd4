"""How soon a job that trains is decided about again: never too late, in many more examples than in the gate."""

from hypothesis import given, settings
from tests.unit.lifecycle.silence import Silence, nothing_would_have_been_decided_otherwise, silences


@settings(max_examples=400)
@given(news=silences)
def test_until_then_nothing_would_have_been_decided_otherwise(news: Silence) -> None:
    nothing_would_have_been_decided_otherwise(news)

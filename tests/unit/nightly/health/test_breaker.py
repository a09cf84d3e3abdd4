"""Any sequence of faults, repairs and crashes of the operator: the same as in the gate, with more examples."""

from hypothesis import settings
from tests.unit.health.test_breaker import AnySequence


class ManySequences(AnySequence):
    """The same as in the gate, with more examples."""


ManySequences.TestCase.settings = settings(max_examples=40, stateful_step_count=20)
TestAnySequence = ManySequences.TestCase

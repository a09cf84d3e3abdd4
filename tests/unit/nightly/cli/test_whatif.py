"""`kubectl muster what-if` of thousands of nodes and failures."""

from tests.unit.cli.asked import Command, assert_that_what_muster_would_not_allow_is_noted


def test_what_muster_would_not_allow_is_noted(command: Command) -> None:
    assert_that_what_muster_would_not_allow_is_noted(command)

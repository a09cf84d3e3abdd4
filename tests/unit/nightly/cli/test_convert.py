"""Texts of `kubectl muster convert` that are nested and merged far beyond what is refused."""

from tests.unit.cli.converting import assert_that_aliases_are_refused, assert_that_it_is_said_in_a_line, merged_again


def test_what_is_nested_very_deep_is_said_in_a_line() -> None:
    assert_that_it_is_said_in_a_line("[" * 5000, "stdin, document 1 cannot be read: ")


def test_aliases_that_stand_for_more_than_memory_are_refused() -> None:
    assert_that_aliases_are_refused(merged_again(fields=3000, times=10_000))

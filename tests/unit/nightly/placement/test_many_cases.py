"""Answers of the placement in many cases and streams: the same as in the gate, with larger numbers."""

from tests.unit.placement.optimum import left_behind_is_the_least_nearly_always
from tests.unit.placement.rules import fewer_domains_and_more_whole_ones_left, never_more_domains


def test_what_is_left_behind_is_the_least_nearly_always() -> None:
    left_behind_is_the_least_nearly_always(5000)


def test_from_the_same_state_never_more_domains() -> None:
    never_more_domains(60)


def test_over_whole_streams_fewer_domains_and_more_whole_ones_left() -> None:
    fewer_domains_and_more_whole_ones_left(60)

"""Owners take turns: nobody waits behind another's thousands of items."""

from muster.controller.round_robin import in_round_robin


def test_owners_take_turns_and_keep_their_order() -> None:
    assert in_round_robin(["a1", "a2", "a3", "b1", "c1", "b2"], lambda item: item[0]) == [
        "a1",
        "b1",
        "c1",
        "a2",
        "b2",
        "a3",
    ]


def test_none_have_no_turn() -> None:
    assert in_round_robin([], str) == []

"""A human's word that a machine is dead: what it proves, and the signs of life that make it count for nothing."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from tests.unit.lifecycle.builders import a_node

from muster.api.nodehealth import LostNode
from muster.fencing.lost_nodes import Heartbeat, counts_now, sign_of_life

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
WORD = LostNode(time=NOW, reason="pulled the plug", boot_id="boot-1")
BEFORE, AFTER = NOW - timedelta(seconds=30), NOW + timedelta(seconds=5)


@pytest.mark.parametrize(
    ("heartbeat", "want"),
    [
        pytest.param(None, True, id="no lease at all"),
        pytest.param(Heartbeat(30.0, "r", BEFORE), True, id="silent since before"),
        pytest.param(Heartbeat(5.0, "r", BEFORE), False, id="not yet silent for long"),
        pytest.param(Heartbeat(30.0, "r", AFTER), False, id="renewed later"),
        pytest.param(Heartbeat(30.0), True, id="renewed nobody knows when"),
    ],
)
def test_the_word_holds_while_the_kubelet_is_silent(heartbeat: Heartbeat | None, want: bool) -> None:
    assert counts_now(WORD, a_node("n0"), heartbeat) is want


@pytest.mark.parametrize(("boot", "want"), [("boot-1", ""), ("", ""), ("boot-2", "it has booted since")])
def test_another_boot_ends_the_word(boot: str, want: str) -> None:
    assert sign_of_life(WORD, replace(a_node("n0"), boot_id=boot), None) == want


def test_a_node_that_is_gone_says_nothing_against_it() -> None:
    assert counts_now(WORD, None, Heartbeat(300.0, "r", BEFORE))


@pytest.mark.parametrize(
    ("heartbeat", "want"),
    [
        pytest.param(Heartbeat(30.0, "r", AFTER), "", id="none, by a clock that is ahead"),
        pytest.param(Heartbeat(30.0, "s", BEFORE), "renewed its lease since", id="one, by a clock that is behind"),
        pytest.param(Heartbeat(30.0, ""), "", id="cannot be read"),
    ],
)
def test_a_word_that_says_what_it_has_seen_needs_no_clock(heartbeat: Heartbeat, want: str) -> None:
    word = WORD.model_copy(update={"last_renewal": "r"})
    assert want in sign_of_life(word, a_node("n0"), heartbeat)
    assert counts_now(word, a_node("n0"), heartbeat) is (not want)

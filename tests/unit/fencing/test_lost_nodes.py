"""A human's word that a machine is dead: what it proves, and the signs of life that make it count for nothing."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from tests.unit.lifecycle.builders import a_node, running

from muster.api.nodehealth import LostNode
from muster.fencing.lost_nodes import Heartbeat, counts_now, pods_proved_dead, sign_of_life
from muster.world.views import PodView

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


OLD_POD = PodView("default", "p", "uid", 1, created=BEFORE)


@pytest.mark.parametrize(
    ("pod", "heard_age", "known", "dead"),
    [
        pytest.param(OLD_POD, None, 10.0, True, id="never heard"),
        pytest.param(None, None, 10.0, True, id="gone from the API server"),
        pytest.param(replace(OLD_POD, created=NOW), None, 10.0, True, id="made in the same moment"),
        pytest.param(replace(OLD_POD, created=AFTER), None, 10.0, False, id="made after the declaration"),
        pytest.param(OLD_POD, 30.0, 10.0, True, id="silent since before"),
        pytest.param(OLD_POD, 20.0, 20.0, True, id="silent for just long enough"),
        pytest.param(OLD_POD, 19.0, 10.0, False, id="not yet silent for long"),
        pytest.param(OLD_POD, 25.0, 26.0, False, id="heard since the declaration arrived"),
        pytest.param(replace(OLD_POD, created=AFTER), 30.0, 10.0, False, id="made after it, silent before"),
    ],
)
def test_an_old_pod_with_a_silent_launcher_is_proved_dead(
    pod: PodView | None, heard_age: float | None, known: float, dead: bool
) -> None:
    pods = {} if pod is None else {"uid": pod}
    launchers = {} if heard_age is None else {"uid": running(1, heard_age_seconds=heard_age)}
    found = pods_proved_dead(WORD, ["uid"], pods, launchers, known, NOW + timedelta(seconds=20))
    assert found == ({"uid"} if dead else set())


@pytest.mark.parametrize(("late", "dead"), [(30.0, True), (31.0, False)])
def test_a_launcher_heard_after_the_declaration_by_the_clock_is_not_dead(late: float, dead: bool) -> None:
    """The declaration may reach this process late, so that it has known it for less time than it is old."""
    launchers = {"uid": running(1, heard_age_seconds=30.0)}
    found = pods_proved_dead(WORD, ["uid"], {}, launchers, 5.0, NOW + timedelta(seconds=late))
    assert found == ({"uid"} if dead else set())

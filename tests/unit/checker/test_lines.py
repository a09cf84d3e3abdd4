"""When a checker speaks: news at once, a held poll beside it, leaders that change, and a coordinator that is away."""

from __future__ import annotations

from typing import Any

import pytest

from muster.node.checker.lines import Lines, Send
from muster.protocol.checks import NODE, CheckDirective, CheckOrder
from muster.protocol.retries import POLL, TELL, Pause

DIRECTIVE = CheckDirective(poll_seconds=1.0, hold_seconds=10.0)


@pytest.fixture
def lines() -> Lines:
    return Lines(lambda *_, **__: None, lambda: 1.0)


def send(lines: Lines, name: str, news: int, now: float) -> Send:
    found = lines.next(name, news, now)
    assert isinstance(found, Send)
    return found


def poll(
    lines: Lines, news: int = 0, now: float = 0.0, seen: str = "d1", directive: CheckDirective = DIRECTIVE
) -> Send:
    """A poll that is answered at once."""
    sent = send(lines, POLL, news, now)
    assert lines.answered(POLL, sent, directive, seen, now)
    return sent


def test_the_first_answer_comes_at_once_and_the_next_is_held(lines: Lines) -> None:
    assert poll(lines).hold_seconds == 0.0
    sent = send(lines, POLL, 0, 1.0)
    assert (sent.hold_seconds, sent.directive_seen, sent.sequence) == (10.0, "d1", 2)
    assert sent.timeout_seconds > sent.hold_seconds


def test_news_goes_by_the_other_line_while_an_answer_is_held(lines: Lines) -> None:
    poll(lines)
    assert lines.next(TELL, 1, 0.0) == Pause(None), "the poll is about to speak"
    held = send(lines, POLL, 1, 1.0)
    assert lines.next(TELL, 1, 1.0) == Pause(None), "it carries them"
    told = send(lines, TELL, 2, 1.5)
    assert told.hold_seconds == 0.0
    assert lines.next(TELL, 2, 1.5) == Pause(None)
    assert not lines.answered(TELL, told, CheckDirective(known=False), "other", 1.6), "an older directive may overtake"
    assert lines.next(TELL, 2, 2.0) == Pause(None)
    assert lines.answered(POLL, held, DIRECTIVE, "d2", 3.0)


def test_a_test_that_begins_is_reported_by_tell_where_poll_is_silent(lines: Lines) -> None:
    ordered = CheckDirective(orders=(CheckOrder("o", NODE),), hold_seconds=10.0)
    poll(lines, directive=ordered)
    told = send(lines, TELL, 1, 0.0)
    assert not lines.answered(TELL, told, ordered, "d1", 0.1)
    assert send(lines, POLL, 1, 1.0).hold_seconds == 10.0
    poll(lines, news=1, now=2.0, directive=ordered)
    assert lines.next(TELL, 2, 2.0) == Pause(None), "it is open: the poll is about to speak"
    assert send(lines, TELL, 2, 61.0).news == 2


def test_news_that_were_not_told_are_told_again(lines: Lines) -> None:
    poll(lines)
    send(lines, POLL, 0, 1.0)
    told = send(lines, TELL, 1, 1.5)
    lines.failed(TELL, told, "refused", 1.5)
    assert isinstance(lines.next(TELL, 1, 1.5), Pause)
    assert send(lines, TELL, 1, 2.0).news == 1


def test_without_a_hold_it_keeps_the_pace_and_breaks_it_for_news(lines: Lines) -> None:
    plain = CheckDirective(poll_seconds=1.0, hold_seconds=0.0)
    poll(lines, directive=plain)
    poll(lines, now=1.0, directive=plain)
    assert lines.next(POLL, 0, 1.0) == Pause(1.0)
    assert send(lines, POLL, 1, 1.0).news == 1


def test_a_pace_beyond_reason_is_none(lines: Lines) -> None:
    odd = CheckDirective(poll_seconds=1e8, hold_seconds=1e8)
    poll(lines, directive=odd)
    assert send(lines, POLL, 0, 1.0).hold_seconds <= 20.0
    other = CheckDirective(poll_seconds=-5.0, hold_seconds=-5.0)
    poll(lines, now=30.0, seen="d2", directive=other)
    poll(lines, now=31.0, seen="d2", directive=other)
    assert isinstance(lines.next(POLL, 0, 31.0), Pause)


def test_the_leader_is_followed_and_left(lines: Lines) -> None:
    sent = send(lines, POLL, 0, 0.0)
    lines.redirected(POLL, sent, ("10.0.0.9", 8443), 0.0)
    sent = send(lines, POLL, 0, 0.0)
    assert sent.target == ("10.0.0.9", 8443)
    lines.redirected(POLL, sent, ("10.0.0.9", 8443), 0.0)
    pause: Any = lines.next(POLL, 0, 0.0)
    assert pause.seconds > 0
    assert send(lines, POLL, 0, 5.0).target is None


def test_trouble_makes_pauses_that_grow_and_end() -> None:
    told: list[str] = []
    lines = Lines(lambda event, **_: told.append(event), lambda: 1.0)
    pauses = []
    for turn in range(10):
        now = 100.0 * turn
        lines.failed(POLL, send(lines, POLL, 0, now), "refused", now)
        pause: Any = lines.next(POLL, 0, now)
        pauses.append(pause.seconds)
    assert pauses[0] == pytest.approx(0.1)
    assert pauses == sorted(pauses)
    assert pauses[-1] == pytest.approx(2.0)
    poll(lines, now=5000.0)
    assert told == ["no answer from the coordinator; trying again", "the coordinator answers again"]

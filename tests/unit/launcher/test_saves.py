"""What a save costs, from steps and from the moment when a checkpoint is seen whole."""

from __future__ import annotations

from muster.node.launcher import saves
from muster.node.launcher.saves import Saves
from muster.protocol.messages import CheckpointReport

STEP_SECONDS = 2.0


def report(step, **changes):
    return CheckpointReport(step, f"/c/{step}", 1_700_000_000_000_000_000 + step, **changes)


def stepped(upto, stalls=None, every=1):
    """Steps of 2 s each; those in `stalls` begin so much later. Returns when the last one ended, too."""
    found, now = Saves(), 1000.0
    for step in range(1, upto + 1):
        now += STEP_SECONDS + (stalls or {}).get(step, 0.0)
        if step % every == 0:
            found.stepped(step, now)
    return found, now


def costs(found, steps, now):
    told = found.with_costs([report(step) for step in steps], now, STEP_SECONDS)
    return [(one.stall_seconds, one.durable_seconds) for one in told]


def test_what_a_save_holds_up_and_when_it_is_whole():
    found, now = stepped(25, stalls={21: 30.0})  # the save of step 20 blocks the next step
    assert costs(found, [20, 10], now)[0] == (30.0, 5 * STEP_SECONDS + 30.0)


def test_each_save_of_an_attempt_counts_once_in_what_saves_have_cost_it():
    found, now = stepped(25, stalls={21: 30.0})
    costs(found, [20, 10], now)
    for step in range(26, 36):
        now += STEP_SECONDS + (4.0 if step == 31 else 0.0)
        found.stepped(step, now)
    for later in (0.0, 10.0):
        costs(found, [30, 20, 10], now + later)
        assert (found.stall_seconds, found.count) == (34.0, 2)  # of the first one nothing is known
    found.begin()
    assert (found.stall_seconds, found.count) == (0.0, 0)


def test_a_save_beside_the_training_holds_up_nothing_and_stays_as_it_was_seen_first():
    found, now = stepped(24)
    assert costs(found, [20, 10], now)[0] == (0.0, 8.0)
    assert costs(found, [20, 10], now + 500)[0] == (0.0, 8.0)


def test_a_save_before_its_step_is_told_holds_up_that_step():
    found, now = stepped(25, stalls={20: 12.0})
    assert costs(found, [20, 10], now)[0] == (12.0, 10.0)


def test_the_stall_is_known_once_the_next_step_is_finished():
    found, now = stepped(20)
    assert costs(found, [20, 10], now + 3.0)[0] == (None, 3.0)
    found.stepped(21, now + 9.0)
    assert costs(found, [20, 10], now + 10.0)[0] == (7.0, 3.0)


def test_steps_that_the_program_makes_again_are_no_stall_of_a_save():
    """It goes back from step 20, which it has saved, to step 10; and saves step 30 as fast as before."""
    found, now = stepped(20)
    assert costs(found, [20, 10], now)[0] == (None, 0.0)
    for step in range(11, 36):
        now += STEP_SECONDS
        found.stepped(step, now)
    assert costs(found, [30, 20, 10], now)[:2] == [(0.0, 5 * STEP_SECONDS), (None, 0.0)]
    assert (found.stall_seconds, found.count) == (0.0, 1)


def test_steps_that_are_printed_seldom_tell_of_it_too():
    found, now = stepped(300, stalls={201: 40.0}, every=100)
    stall, durable = costs(found, [200, 100], now)[0]
    assert stall == 40.0
    assert durable == 100 * STEP_SECONDS + 40.0
    found, now = stepped(300, every=100)
    assert costs(found, [250, 150], now)[0] == (0.0, 50 * STEP_SECONDS), "between two lines"


def test_numbers_that_count_saves_or_epochs_tell_nothing():
    found, now = stepped(700)
    assert costs(found, [7, 6, 5], now) == [(None, None)] * 3


def test_of_one_checkpoint_alone_nobody_knows_what_its_number_counts():
    found, now = stepped(25)
    assert costs(found, [20], now) == [(None, None)]


def test_what_was_there_when_the_attempt_began_was_not_saved_by_it():
    found = Saves()
    found.stepped(41, 10.0)
    found.stepped(42, 12.0)
    assert costs(found, [40, 30], 12.5) == [(None, None), (None, None)]
    found.begin()
    found.stepped(41, 20.0)
    assert costs(found, [41, 40], 21.0)[0] == (None, 1.0)


def test_what_is_not_judged_is_left_as_it_is():
    found, now = stepped(25)
    told = found.with_costs([report(20, verified=False, incomplete=True), report(10)], now, STEP_SECONDS)
    assert told[0] == report(20, verified=False, incomplete=True)


def test_memory_is_bounded_and_still_tells_about_when_a_step_ended(monkeypatch):
    monkeypatch.setattr(saves, "_MAX_STEPS", 16)
    monkeypatch.setattr(saves, "_MAX_SAVES", 4)
    found, now = stepped(1000)
    assert len(found._steps) <= 16
    durable = costs(found, [980, 900], now)[0][1]
    assert durable is not None
    assert abs(durable - 40.0) < 1.0
    costs(found, range(900, 990, 10), now)
    assert len(found._costs) <= 4

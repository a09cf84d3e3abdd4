"""A new leader is heard by every launcher soon after it has the lease, whatever became of the old one."""

from __future__ import annotations

import pytest
from tests.unit.launcher.gang import World

from muster.node.launcher.reporter_core import ReporterCore, Send
from muster.node.launcher.snapshot import Snapshot
from muster.protocol.messages import IDLE, RUNNING, WAIT, Directive, Report
from muster.protocol.retries import POLL, TELL, Pause

HEARD_SECONDS = 2.0
LEASE_SECONDS = 15.0


def hear_all(world: World) -> float:
    """How long the slowest launcher took to speak to the new leader."""
    began = world.agenda.now
    world.run(10)
    assert sorted(world.heard) == list(range(world.size))
    return max(world.heard.values()) - began


# nightly/launcher/test_leaders.py has more of them.
SEEDS = range(2)


@pytest.mark.parametrize("seed", SEEDS)
def test_an_old_leader_that_lost_its_lease_sends_everybody_on(seed):
    an_old_leader_sends_everybody_on(seed)


def an_old_leader_sends_everybody_on(seed):
    world = World(12, seed)
    world.start()
    new = world.replicas[1]
    world.lead(None)
    world.run(LEASE_SECONDS)
    world.lead(new)
    assert hear_all(world) <= HEARD_SECONDS
    assert {worker.reporter.core.leader for worker in world.workers} <= {None, new.address}
    assert all(worker.is_training for worker in world.workers)


@pytest.mark.parametrize("seed", SEEDS)
def test_an_old_leader_on_a_dead_node_still_has_half_of_the_service(seed):
    an_old_leader_has_half_of_the_service(seed)


def an_old_leader_has_half_of_the_service(seed):
    """Every other packet to the Service goes nowhere."""
    world = World(12, seed)
    world.start()
    old, new = world.replicas
    old.listens = old.answers = False
    world.lead(None)
    world.run(LEASE_SECONDS)
    world.lead(new)
    assert hear_all(world) <= HEARD_SECONDS


def test_a_new_leader_is_followed_while_the_service_knows_only_the_old_one():
    world = World(12)
    world.start()
    old, new = world.replicas
    world.replica_at = lambda target: new if target == new.address else old  # type: ignore[method-assign]
    world.lead(new)
    assert hear_all(world) <= HEARD_SECONDS
    assert {worker.reporter.core.leader for worker in world.workers} == {new.address}


def core_of() -> ReporterCore:
    return ReporterCore(Report(0, IDLE), False, 100.0, lambda _text: None, lambda: 1.0)


def sent_by(core: ReporterCore, name: str, now: float) -> Send:
    action = core.next_action(name, now)
    assert isinstance(action, Send)
    return action


LEADER = ("10.0.0.7", 8443)


def test_the_leader_is_asked_at_once_and_kept():
    core = core_of()
    core.on_redirection(POLL, sent_by(core, POLL, 100.0), LEADER, 100.1)
    sent = sent_by(core, POLL, 100.1)
    assert sent.target == LEADER
    core.on_answer(POLL, sent, Directive(WAIT, 1), "digest", 100.2)
    core.publish(Snapshot(attempt=1))
    assert sent_by(core, POLL, 100.2).target == LEADER


def test_when_the_leader_does_not_answer_the_service_is_asked():
    core = core_of()
    core.on_redirection(POLL, sent_by(core, POLL, 100.0), LEADER, 100.1)
    core.on_error(POLL, sent_by(core, POLL, 100.1), "refused", 100.2)
    assert isinstance(core.next_action(POLL, 100.2), Pause)
    assert sent_by(core, POLL, 100.3).target is None


def test_trouble_with_one_who_led_before_does_not_lose_the_one_who_leads():
    core = core_of()
    before = sent_by(core, POLL, 100.0)
    core.on_redirection(TELL, core.send(100.0, 0.0, 3.0), LEADER, 100.1)
    core.on_error(POLL, before, "closed", 100.2)
    assert core.leader == LEADER


def test_replicas_that_name_each_other_are_not_asked_without_a_pause():
    core, now = core_of(), 100.0
    for turn in range(20):
        action = core.next_action(POLL, now)
        if isinstance(action, Pause):
            return
        core.on_redirection(POLL, action, (f"10.0.0.{turn % 2}", 8443), now)
    raise AssertionError("it never pauses")


def test_news_of_a_report_that_was_sent_on_is_told_by_the_next():
    core = core_of()
    core.on_answer(POLL, sent_by(core, POLL, 100.0), Directive(WAIT, 1, hold_seconds=9.0), "digest", 100.0)
    assert isinstance(core.next_action(POLL, 100.1), Pause)
    held = sent_by(core, POLL, 101.1)
    core.publish(Snapshot(state=RUNNING, attempt=1))
    told = sent_by(core, TELL, 101.2)
    core.on_redirection(TELL, told, LEADER, 101.3)
    again = sent_by(core, TELL, 101.3)
    assert (again.report.state, again.target, again.report.sequence > told.report.sequence) == (RUNNING, LEADER, True)
    assert held.report.hold_seconds == 9.0


def test_an_answer_that_says_the_same_in_time_is_nothing_to_do():
    core, told = core_of(), Directive(WAIT, 1, poll_seconds=1.0)

    def answered(now: float, directive: Directive) -> bool:
        return core.on_answer(TELL, core.send(now, 0.0, 3.0), directive, "digest", now)

    assert answered(100.0, told)  # the first
    assert not answered(101.0, told)
    assert not answered(102.9, told)
    assert answered(104.9, told)  # it was overdue: whoever was to start waits for a word
    assert answered(105.9, Directive(WAIT, 2, poll_seconds=1.0))
    assert not answered(106.9, told)  # overtaken by the newer one

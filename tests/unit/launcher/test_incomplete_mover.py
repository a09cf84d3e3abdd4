"""Directories that a launcher moves aside by order, before its ranks start; and a child that does not end."""

from __future__ import annotations

import json

from tests.unit.launcher.real_launchers import HANG, write_checkpoint

from muster.node.launcher.child_task import AGAIN_SECONDS
from muster.node.launcher.incomplete_mover import DEADLINE_SECONDS, IncompleteMover
from muster.protocol.messages import IDLE, RUN, RUNNING, WAIT, Directive


def order(attempt=1, **more):
    return Directive(WAIT, attempt=attempt, move_incomplete_beyond="/c/step-10", **more)


class Child:
    """Says what the test says."""

    descriptor = 7

    def __init__(self, pid, asked):
        self.pid, self.asked, self.said, self.killed, self.begun = pid, asked, b"", 0, True

    def write(self, data):
        self.asked.append(json.loads(data))

    def read(self, _limit):
        if not self.said:
            raise BlockingIOError
        said, self.said = self.said, b""
        return said

    def kill(self):
        self.killed += 1

    def hang_up(self):
        self.begun = False

    def say(self, **message):
        self.said += json.dumps(message).encode() + b"\n"


class Stage:
    """An Aside, and its children."""

    def __init__(self):
        self.children, self.asked = [], []
        self.aside = IncompleteMover("/c", self._begin)

    def _begin(self, *arguments):
        assert arguments == ("--set-aside", "/c")
        self.children.append(Child(100 + len(self.children), self.asked))
        return self.children[-1]


def test_what_is_ordered_is_done_once_and_told_once_the_child_is_gone():
    stage = Stage()
    stage.aside.poll(0.0, {}, order())
    (child,) = stage.children
    child.say(moved="step-20 moved", error="")
    stage.aside.poll(1.0, {}, order())
    assert (stage.aside.attempt, stage.aside.pids) == (0, {child.pid})
    stage.aside.poll(2.0, {child.pid: 0}, order())
    assert (stage.aside.attempt, stage.aside.words, stage.aside.error) == (1, "step-20 moved", "")
    stage.aside.poll(3.0, {}, order())
    assert len(stage.children) == 1
    stage.aside.poll(4.0, {}, order(2))
    assert len(stage.children) == 2


def test_without_an_order_nothing_begins():
    stage = Stage()
    for directive in (None, Directive(WAIT, attempt=1), Directive(RUN, attempt=1, move_incomplete_beyond="/c/step-10")):
        stage.aside.poll(0.0, {}, directive)
    assert stage.children == []


def test_the_history_that_counts_is_handed_on():
    stage = Stage()
    stage.aside.poll(0.0, {}, order(branch_step=5, excluded_checkpoints="9:1"))
    assert stage.asked == [{"path": "/c/step-10", "branch": [5, "9:1", False]}]


def test_a_child_that_hangs_is_killed_and_not_told_as_done_before_it_is_gone():
    stage = Stage()
    stage.aside.poll(0.0, {}, order())
    (child,) = stage.children
    child.say(sign=True)
    stage.aside.poll(DEADLINE_SECONDS - 1, {}, order())
    stage.aside.poll(DEADLINE_SECONDS + 1, {}, order())
    assert child.killed == 0
    now = 2 * DEADLINE_SECONDS
    stage.aside.poll(now, {}, order())
    stage.aside.poll(now + 900, {}, order())
    assert (child.killed, stage.aside.attempt) == (1, 0)


def test_after_three_children_that_said_nothing_it_is_given_up():
    stage, now = Stage(), 0.0
    for place in range(3):
        assert stage.aside.attempt == 0
        stage.aside.poll(now, {}, order())
        stage.aside.poll(now, {stage.children[place].pid: 9}, order())
        now += AGAIN_SECONDS
    assert stage.aside.attempt == 1
    assert "given up" in stage.aside.error


def test_nonsense_ends_the_child():
    stage = Stage()
    stage.aside.poll(0.0, {}, order())
    stage.children[0].said = b"no json\n"
    stage.aside.poll(1.0, {}, order())
    assert stage.children[0].killed == 1


def test_an_order_that_is_withdrawn_ends_the_child():
    stage = Stage()
    stage.aside.poll(0.0, {}, order())
    stage.aside.poll(1.0, {}, Directive(RUN, attempt=1))
    assert stage.children[0].killed == 1


def test_no_child_can_be_started():
    def refused(*_):
        raise OSError("no more processes")

    aside = IncompleteMover("/c", refused)
    for place in range(3):
        aside.poll(place * AGAIN_SECONDS, {}, order())
    assert (aside.attempt, aside.error) == (1, "nothing was moved aside: no more processes")


def test_the_shipped_child_moves_before_the_ranks_start(coordinator, run_python, tmp_path):
    directory = tmp_path / "ckpt"
    write_checkpoint(directory, 10)
    (directory / "step-20").mkdir()
    run_python(HANG, MUSTER_CHECKPOINT_DIRECTORY=str(directory))
    coordinator.wait_to_run(1)
    first = coordinator.wait_for(lambda r: r.checkpoints_scanned_for_attempt == 1)
    assert (first.moved_attempt, (directory / "step-20").is_dir()) == (0, True)
    coordinator.wait_to_run(1, move_incomplete_beyond=str(directory / "step-10"))
    report = coordinator.wait_for(lambda r: r.moved_attempt == 1)
    assert (report.state, report.moved, report.moved_error) == (IDLE, "step-20 moved to .muster-incomplete", "")
    assert [each.name for each in (directory / ".muster-incomplete").iterdir()] == ["step-20"]
    coordinator.run(1)
    coordinator.wait_for(lambda r: r.state == RUNNING)

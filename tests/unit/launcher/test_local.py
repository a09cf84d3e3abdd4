"""The look at a node's own disk before each start: asked anew where the order is, and never in the way of a start."""

from __future__ import annotations

import json

import pytest
from tests.unit.launcher.real_launchers import HANG, write_checkpoint
from tests.unit.launcher.test_incomplete_mover import Child

from muster.node.launcher.child_task import AGAIN_SECONDS
from muster.node.launcher.local import LocalLister
from muster.protocol.messages import IDLE, RUN, RUNNING, WAIT, Directive, LocalReport

DEADLINE_SECONDS = 10.0
HELD = [20, "/local/step-20", 1, "Manifest"]


def order(attempt=2, listing=None, share="0/2x1"):
    return Directive(WAIT, attempt=attempt, listing_round=listing, local_share=share)


class Stage:
    """A Local, and its children."""

    def __init__(self, directory="/local"):
        self.children, self.asked = [], []
        self.local = LocalLister(directory, "job-1", DEADLINE_SECONDS, self._begin)

    def _begin(self, *arguments):
        assert arguments == ("--look-locally", "/local")
        self.children.append(Child(100 + len(self.children), self.asked))
        return self.children[-1]

    def told(self):
        return self.local.scanned_for, self.local.found, self.local.error

    def answer(self, now, directive, held=(HELD,), error=""):
        child = self.children[-1]
        child.say(held=list(held), error=error)
        self.local.poll(now, {child.pid: 0}, directive)


def test_what_is_there_is_told_once_the_child_is_gone():
    stage = Stage()
    stage.local.poll(0.0, {}, order())
    assert stage.told() == ((0, 0), (), "")
    stage.answer(1.0, order())
    assert stage.told() == ((2, 0), (LocalReport(20, "/local/step-20", 1, "Manifest"),), "")
    assert stage.asked == [{"gang": "job-1", "attempt": 2, "share": "0/2x1"}]
    stage.local.poll(2.0, {}, order())
    assert len(stage.children) == 1


def test_it_is_looked_anew_for_each_attempt_and_each_listing():
    stage = Stage()
    for now, directive in enumerate((order(2), order(2, 1), order(3))):
        stage.local.poll(float(now), {}, directive)
        stage.answer(now + 0.5, directive, held=[])
        assert stage.told() == ((directive.attempt, directive.listing_round or 0), (), "")
    assert len(stage.children) == 3


def test_a_child_ended_by_another_order_has_not_failed_and_the_next_begins():
    """The next child begins at once."""
    stage = Stage()
    stage.local.poll(0.0, {}, order(2))
    stage.local.poll(1.0, {}, order(2, 1))
    assert (stage.children[0].killed, stage.told()) == (1, ((0, 0), (), ""))
    stage.local.poll(1.1, {100: -9}, order(2, 1))
    assert (len(stage.children), stage.told()) == (2, ((0, 0), (), ""))
    stage.answer(2.0, order(2, 1))
    assert stage.told() == ((2, 1), (LocalReport(20, "/local/step-20", 1, "Manifest"),), "")


@pytest.mark.parametrize("directive", [None, Directive(RUN, attempt=2, local_share="0/2x1"), order(share=None)])
def test_without_an_order_nothing_begins(directive):
    stage = Stage()
    stage.local.poll(0.0, {}, directive)
    assert stage.children == []


def test_nor_without_a_directory():
    stage = Stage("")
    stage.local.poll(0.0, {}, order())
    assert (stage.children, stage.told()) == ([], ((0, 0), (), ""))


def test_a_disk_that_hangs_is_told_though_the_child_cannot_be_killed():
    stage = Stage()
    stage.local.poll(0.0, {}, order())
    stage.local.poll(DEADLINE_SECONDS, {}, order())
    assert stage.children[0].killed == 1
    assert stage.told() == ((0, 0), (), "no answer from /local")
    stage.local.poll(DEADLINE_SECONDS + 900, {}, order(3))
    assert (len(stage.children), stage.local.error) == (1, "no answer from /local")


def test_a_child_that_gives_signs_of_life_may_take_its_time():
    stage = Stage()
    stage.local.poll(0.0, {}, order())
    for now in range(1, 60, 5):
        stage.children[0].say(sign=True)
        stage.local.poll(float(now), {}, order())
    assert (stage.children[0].killed, stage.local.error) == (0, "")


def test_the_trouble_of_an_attempt_is_forgotten_with_the_next():
    stage = Stage()
    stage.local.poll(0.0, {}, order())
    stage.answer(1.0, order(), held=[], error="No space left on device")
    assert stage.told() == ((2, 0), (), "No space left on device")
    stage.local.poll(2.0, {}, order(3))
    assert stage.local.error == ""


def test_after_a_child_without_a_word_another_one_is_asked():
    stage = Stage()
    stage.local.poll(0.0, {}, order())
    stage.local.poll(1.0, {100: 9}, order())
    assert stage.told() == ((0, 0), (), "no answer from /local")
    stage.local.poll(1.0 + AGAIN_SECONDS, {}, order())
    stage.answer(20.0, order())
    assert stage.told() == ((2, 0), (LocalReport(20, "/local/step-20", 1, "Manifest"),), "")


def test_the_shipped_launcher_tells_what_its_ranks_have_saved(coordinator, run_python, tmp_path):
    shared, disk = tmp_path / "ckpt", tmp_path / "disk"
    run_python(HANG, MUSTER_CHECKPOINT_DIRECTORY=str(shared), MUSTER_LOCAL_CHECKPOINT_DIRECTORY=str(disk))
    coordinator.wait_to_run(1, local_share="0/1x1")
    first = coordinator.wait_for(lambda r: r.local_attempt == 1)
    assert (first.state, first.local, first.local_error) == (IDLE, (), "")
    assert json.loads(next(disk.iterdir()).read_text())["eras"][0][:2] == [1, "0/1x1"]
    coordinator.run(1)
    coordinator.wait_for(lambda r: r.state == RUNNING)
    write_checkpoint(disk, 10)
    coordinator.wait_to_run(2, local_share="0/1x1")
    report = coordinator.wait_for(lambda r: r.local_attempt == 2)
    assert report.local == (LocalReport(10, str(disk / "step-10"), 1, "Manifest"),)

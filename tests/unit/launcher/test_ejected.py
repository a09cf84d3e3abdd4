"""A gang that leaves Muster: its ranks go on to their end whatever the coordinator says, and the launcher ends with
them."""

from __future__ import annotations

import dataclasses

import pytest
from tests.unit.launcher.cut_off import FENCE
from tests.unit.launcher.gang import World
from tests.unit.launcher.real_launchers import HANG

from muster.node.launcher.reporter_core import ReporterCore, Send
from muster.node.launcher.snapshot import Snapshot
from muster.protocol.messages import EXIT, IDLE, RUNNING, TERMINATING, Directive, Report
from muster.protocol.retries import POLL, Pause

GONE = Directive(EXIT, exit_code=1, reason="the job is gone")


def ejected(world: World, members: set[int]) -> None:
    """Tell these that the gang leaves Muster, and wait until they have heard it."""
    told = world.directive_of
    world.directive_of = lambda index: dataclasses.replace(  # type: ignore[method-assign]
        told(index), ejected=True if index in members else None
    )
    world.run(5)
    assert {worker.index for worker in world.workers if worker.snapshot.ejected} == members


def test_only_ejected_ranks_train_on_when_the_job_is_gone():
    world = World(3)
    world.start()
    ejected(world, {0, 1})
    world.directive_of = lambda index: GONE  # type: ignore[method-assign]
    world.run(4 * FENCE)
    assert [worker.is_training for worker in world.workers] == [True, True, False]


def test_a_replaced_pod_ends_its_ranks_although_its_gang_is_ejected():
    """It was no member when the others left: it heard that it is none any more, and never that it may go on."""
    world = World(3)
    world.start()
    replaced = Directive(EXIT, reason="this pod is no longer a member of its gang")
    told = world.directive_of
    world.directive_of = lambda index: (  # type: ignore[method-assign]
        replaced if index == 2 else dataclasses.replace(told(index), ejected=True)
    )
    world.run(4 * FENCE)
    assert [worker.is_training for worker in world.workers] == [True, True, False]


def test_ejected_ranks_train_on_with_a_neighbour_gone_and_nobody_to_hear_them():
    world = World(5, has_storage=True)
    world.start()
    ejected(world, set(range(5)))
    world.cut({4})
    world.makes_steps = False
    world.lead(None)
    world.replicas[0].listens = world.replicas[1].listens = False
    world.write_fence_file(2)
    world.run(20 * FENCE)
    assert all(worker.is_training for worker in world.workers)


def test_what_comes_after_the_ejection_takes_nothing_back():
    world = World(2)
    world.start()
    ejected(world, {0, 1})
    world.runs, world.attempt = False, 2
    world.run(4 * FENCE)
    assert all(worker.is_training for worker in world.workers)


def test_a_job_that_is_gone_hears_no_more_of_its_ejected_gang():
    world = World(2)
    world.start()
    ejected(world, {0, 1})
    world.directive_of = lambda index: GONE  # type: ignore[method-assign]
    world.run(5)
    last_heard = dict(world.last_heard)
    world.run(600)
    assert world.last_heard == last_heard


@pytest.mark.parametrize(("is_ejected", "longest"), [(False, 1.0), (True, 600.0)])
def test_an_ejected_launcher_that_is_refused_asks_ever_more_seldom(is_ejected, longest):
    core = ReporterCore(Report(0, IDLE), False, 100.0, lambda _text: None, lambda: 1.0)
    core.publish(Snapshot(state=RUNNING, attempt=1, ejected=is_ejected))
    now = 100.0
    for _ in range(30):
        action = core.next_action(POLL, now)
        assert isinstance(action, Send)
        core.on_error(POLL, action, "it answered 403", now)
        pause = core.next_action(POLL, now)
        assert isinstance(pause, Pause)
        now += pause.seconds
    assert pause.seconds == longest


def test_a_launcher_that_fenced_before_it_heard_of_the_ejection_fails() -> None:
    """It ended its ranks although its gang had left: exit code 0 would say that they have trained to their end."""
    world = World(3)
    world.makes_steps = False
    world.start()
    world.lead(None)
    world.cut({2})
    world.run(20 * FENCE)
    assert not world.workers[0].is_training
    told = world.directive_of
    world.directive_of = lambda index: dataclasses.replace(  # type: ignore[method-assign]
        told(index), ejected=True
    )
    world.lead(world.replicas[0])
    for _ in range(200):
        world.run(0.1)
        assert not world.workers[0].snapshot.ejected, "it acknowledges nothing"
    assert world.workers[0].exit_code == 1


def test_a_rank_that_fails_while_others_come_up_ends_its_ejected_launcher() -> None:
    world = World(1)
    world.start()
    gang = world.workers[0].supervisor._gang
    assert gang is not None
    gang.count, gang.starting.is_over = 2, False
    ejected(world, {0})
    world.workers[0].rank.exit(7)
    world.run(5)
    assert not world.workers[0].is_over, "the second rank may still come up"
    gang.starting.is_over = True
    world.run(5)
    assert world.workers[0].exit_code == 7


@pytest.mark.parametrize("code", [0, 3])
def test_an_ejected_launcher_ends_with_its_ranks_and_their_exit_code(coordinator, run_python, tmp_path, code):
    launcher = run_python(
        f"import os, sys, time\nwhile not os.path.exists({str(tmp_path / 'end')!r}): time.sleep(0.01)\nsys.exit({code})"
    )
    coordinator.run(1, ejected=True)
    coordinator.wait_for(lambda r: r.ejected)
    coordinator.set(kind=EXIT, exit_code=1, reason="the job is gone")
    (tmp_path / "end").touch()
    assert launcher.wait() == code
    assert f"ejected: its ranks have ended; exiting with code {code}" in launcher.error_text


def test_a_failed_rank_ends_the_other_ranks_of_its_ejected_launcher(coordinator, run_python):
    launcher = run_python("import os, sys\nif os.environ['LOCAL_RANK'] == '1': sys.exit(7)\n" + HANG)
    coordinator.run(1, ejected=True, processes_per_node=2)
    assert launcher.wait() == 7
    assert "a rank has failed, and nothing restarts an ejected gang" in launcher.error_text
    report = coordinator.latest
    assert report.state == TERMINATING
    assert not any(rank.alive for rank in report.ranks)

"""The fence file in the shared directory: who is to start writes it, who has lost his coordinator obeys it."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path

import pytest
from tests.unit.launcher.cut_off import the_fence_file_is_asked_once_an_answer_is_overdue
from tests.unit.launcher.gang import World
from tests.unit.launcher.real_launchers import HANG

from localcluster.patience import PATIENCE_SECONDS
from muster.node.launcher.fence_file import DEADLINE_SECONDS, PERIOD_SECONDS, FenceFile, FenceState, Storage, path_of
from muster.node.launcher.fence_file_child import claim_fence_file, read_fence_file
from muster.protocol.messages import EXITED, IDLE, RUNNING
from simulate.worker import LOOK_SECONDS, OFTEN_SECONDS


def found(text: str) -> tuple[int, bool]:
    document = json.loads(text)
    return document["attempt"], document["error"] != ""


def test_what_is_written_is_read_with_its_identity(tmp_path):
    path = tmp_path / ".muster-gang"
    assert json.loads(read_fence_file(str(path))) == {"attempt": 0, "id": "", "error": ""}
    answer = json.loads(claim_fence_file(str(path), 3))
    assert (answer["attempt"], len(answer["id"]), answer["error"]) == (3, 16, "")
    assert json.loads(read_fence_file(str(path))) == answer
    assert json.loads(path.read_text()) == {"attempt": 3, "id": answer["id"]}
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def identity(text: str) -> str:
    return json.loads(text)["id"]


def test_an_identity_is_kept_where_the_fence_file_is_and_is_another_where_it_is_not(tmp_path):
    here, elsewhere = (tmp_path / name / ".muster-gang" for name in ("shared", "of one pod alone"))
    for path in (here, elsewhere):
        path.parent.mkdir()
    first = identity(claim_fence_file(str(here), 3))
    assert identity(claim_fence_file(str(here), 4)) == identity(read_fence_file(str(here))) == first
    assert identity(claim_fence_file(str(elsewhere), 5)) != first
    here.unlink()
    assert identity(claim_fence_file(str(here), 5)) != first, "nobody knows whose directory this is now"


def test_of_two_who_write_the_first_one_at_once_one_names_the_identity(tmp_path, monkeypatch):
    path, link = tmp_path / ".muster-gang", os.link
    others = []

    def another_is_faster(source, target):
        monkeypatch.setattr(os, "link", link)
        others.append(identity(claim_fence_file(str(path), 3)))
        link(source, target)

    monkeypatch.setattr(os, "link", another_is_faster)
    assert [identity(claim_fence_file(str(path), 3))] == others
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_a_file_system_without_links_does_as_well(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    path = tmp_path / ".muster-gang"
    assert found(claim_fence_file(str(path), 3)) == (3, False)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_fields_of_a_later_version_are_kept_in_the_fence_file(tmp_path):
    path = tmp_path / ".muster-gang"
    path.write_text('{"attempt": 3, "id": "one", "form": 2, "writer": {"pod": "p"}}')
    assert json.loads(claim_fence_file(str(path), 4)) == {"attempt": 4, "id": "one", "error": ""}
    assert json.loads(path.read_text()) == {"attempt": 4, "id": "one", "form": 2, "writer": {"pod": "p"}}


@pytest.mark.parametrize("text", ['{"attempts": [3]}', '{"attempt": "3", "id": "one"}', "[3]", "form: 2"])
def test_a_fence_file_of_another_form_is_an_error_and_stays_as_it_is(tmp_path, text):
    path = tmp_path / ".muster-gang"
    path.write_text(text)
    assert found(read_fence_file(str(path))) == found(claim_fence_file(str(path), 4)) == (0, True)
    assert path.read_text() == text


@pytest.mark.parametrize("text", ['{"attempt": 3}', '{"attempt": 3, "id": "\\u001b[31m"}'])
def test_a_fence_file_without_reportable_identity_gets_one_next_attempt(tmp_path, text):
    path = tmp_path / ".muster-gang"
    path.write_text(text)
    assert json.loads(claim_fence_file(str(path), 3)) == {"attempt": 3, "id": "", "error": ""}
    assert len(identity(claim_fence_file(str(path), 4))) == 16


def test_a_number_is_never_lowered_and_the_same_is_not_written_again(tmp_path):
    path = tmp_path / ".muster-gang"
    claim_fence_file(str(path), 5)
    written = path.stat()
    assert found(claim_fence_file(str(path), 4)) == (5, False)
    assert found(claim_fence_file(str(path), 5)) == (5, False)
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == (written.st_mtime_ns, written.st_ino)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"attempt": "5"}', '{"attempt": true}', '{"attempt": 99999999999999999999}', "\xff"]
)
def test_what_is_no_fence_file_is_an_error_and_is_not_replaced(tmp_path, text):
    path = tmp_path / ".muster-gang"
    path.write_text(text, encoding="latin-1")
    assert found(read_fence_file(str(path))) == (0, True)
    assert found(claim_fence_file(str(path), 5)) == (0, True)
    assert path.read_text(encoding="latin-1") == text


def test_a_directory_that_is_gone_is_named_and_not_made(tmp_path):
    path = tmp_path / "gone" / ".muster-gang"
    for text in (read_fence_file(str(path)), claim_fence_file(str(path), 1)):
        assert "No such file or directory" in json.loads(text)["error"]
        assert str(path.parent) in json.loads(text)["error"]
    assert not path.parent.exists()


def test_before_the_first_checkpoint_the_directory_may_have_to_be_made(tmp_path):
    path = tmp_path / "job" / "checkpoints" / ".muster-gang"
    assert found(read_fence_file(str(path), makes=True)) == (0, False)
    assert list(path.parent.iterdir()) == []


def test_a_write_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(os, "rename", refuse)
    assert "Read-only file system" in json.loads(claim_fence_file(str(tmp_path / ".muster-gang"), 1))["error"]
    assert list(tmp_path.iterdir()) == []


class Shelf:
    """Storage that the test answers for."""

    path, pids = "/checkpoints/.muster-gang", frozenset()

    def __init__(self):
        self.asked, self.answer, self.is_busy, self.killed = [], None, False, 0

    def read(self):
        self.claim(0)

    def claim(self, attempt):
        self.is_busy = True
        self.asked.append(attempt)

    def pop_result(self):
        answer, self.answer = self.answer, None
        self.is_busy = self.is_busy and answer is None
        return answer

    def kill(self):
        self.killed += 1

    def note_ended(self, pids):
        pass


def test_a_claim_counts_from_when_it_is_known_to_stand_and_is_looked_after():
    shelf = Shelf()
    fence_file = FenceFile(shelf)
    fence_file.poll(100.0, 3, reads=False)
    assert (shelf.asked, fence_file.claimed_at) == ([3], None)
    shelf.answer = FenceState(3, "a")
    fence_file.poll(101.0, 3, reads=False)
    assert (fence_file.claimed_at, fence_file.standing) == (101.0, FenceState(3, "a"))
    fence_file.poll(100.0 + PERIOD_SECONDS, 3, reads=False)
    assert shelf.asked == [3, 3]
    shelf.answer = FenceState(3, "a")
    fence_file.poll(106.0, 3, reads=False)
    assert fence_file.claimed_at == 101.0


def test_a_claim_that_somebody_removed_begins_anew():
    shelf = Shelf()
    fence_file = FenceFile(shelf)
    for now, attempt in ((100.0, 4), (105.0, 3), (110.0, 3)):
        fence_file.poll(now, 3, reads=False)
        shelf.answer = FenceState(attempt)
        fence_file.poll(now + 1, 3, reads=False)
    assert fence_file.claimed_at == 106.0


def test_a_claim_of_before_says_nothing_of_the_next():
    shelf = Shelf()
    fence_file = FenceFile(shelf)
    fence_file.poll(100.0, 3, reads=False)
    shelf.answer = FenceState(3)
    fence_file.poll(101.0, 4, reads=False)
    assert (fence_file.claimed_at, shelf.asked) == (None, [3, 4])


def test_the_next_claim_counts_from_when_that_one_stands():
    shelf = Shelf()
    fence_file = FenceFile(shelf)
    for now, claim, stands in ((100.0, 3, 3), (200.0, 4, 3), (210.0, 4, 4)):
        fence_file.poll(now, claim, reads=False)
        shelf.answer = FenceState(stands, "a")
        fence_file.poll(now + 1, claim, reads=False)
    assert fence_file.claimed_at == 211.0


def test_a_later_attempt_that_stands_there_tells_those_of_before_as_well():
    shelf = Shelf()
    fence_file = FenceFile(shelf)
    fence_file.poll(100.0, 3, reads=False)
    shelf.answer = FenceState(5, "a")
    fence_file.poll(101.0, 3, reads=False)
    assert fence_file.claimed_at == 101.0


def test_what_stood_there_is_remembered_when_it_cannot_be_read_any_more():
    shelf = Shelf()
    fence_file = FenceFile(shelf)
    for answer in (FenceState(2, "a"), FenceState(error="stale file handle")):
        fence_file.poll(100.0, 0, reads=True)
        shelf.answer = answer
        fence_file.poll(100.0 + PERIOD_SECONDS, 0, reads=True)
    assert fence_file.standing == FenceState(2, "a", "stale file handle")
    assert fence_file.unread_seconds(160.0, 0.0) == 60.0


def test_the_directory_is_made_until_it_was_read_and_then_no_more(tmp_path):
    directory, over = tmp_path / "job", threading.Event()
    storage = Storage(str(directory / ".muster-gang"), over.set)

    def look():
        over.clear()
        storage.read()
        assert over.wait(PATIENCE_SECONDS)
        return storage.pop_result()

    directory.write_text("in its place")
    assert "cannot read the fence file" in look().error
    directory.unlink()
    assert look() == FenceState()
    directory.rmdir()
    assert "No such file or directory" in look().error
    end(storage)


def end(storage):
    (pid,) = storage.pids
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    storage.note_ended({pid: 9})
    assert not storage.pids


def test_one_process_looks_again_and_again_and_another_one_when_it_has_ended(tmp_path):
    over = threading.Event()
    storage = Storage(str(tmp_path / ".muster-gang"), over.set)

    def look(ask=storage.read):
        over.clear()
        ask()
        assert over.wait(PATIENCE_SECONDS)
        return storage.pop_result()

    assert look(lambda: storage.claim(3)).attempt == 3
    first = storage.pids
    assert look().attempt == 3
    assert storage.pids == first
    end(storage)
    assert look().attempt == 3
    (pid,) = storage.pids
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert "ended unexpectedly" in look().error  # nobody has been told that it has
    assert not storage.pids
    assert look().attempt == 3
    end(storage)


def test_a_look_that_hangs_is_given_up_and_none_is_sent_after_it_before_it_is_gone():
    shelf = Shelf()
    fence_file = FenceFile(shelf)
    fence_file.poll(100.0, 0, reads=True)
    assert fence_file.next_at() == 100.0 + DEADLINE_SECONDS
    fence_file.poll(100.0 + DEADLINE_SECONDS, 0, reads=True)
    assert shelf.killed == 1
    assert "stalled" in fence_file.standing.error
    fence_file.poll(200.0, 0, reads=True)
    assert shelf.asked == [0]
    shelf.answer = FenceState(error="it was killed")
    fence_file.poll(201.0, 0, reads=True)
    assert shelf.asked == [0, 0]
    assert (fence_file.is_readable, fence_file.unread_seconds(201.0, 150.0)) == (False, 51.0)


def test_an_attempt_is_looked_for_ever_more_seldom_until_it_is_seen():
    shelf, looks = Shelf(), []
    fence_file = FenceFile(shelf)
    for now in range(100, 1500):
        shelf.answer = FenceState(1, "a") if shelf.is_busy else None
        before = len(shelf.asked)
        fence_file.poll(float(now), 0, reads=False, attempt=2)
        looks += [now - 100] * (len(shelf.asked) - before)
    assert looks == [1, 3, 7, 15, 31, 63, 127, 255, 511, 831, 1151]
    fence_file.poll(1600.0, 0, reads=False, attempt=2)
    asked, shelf.answer = len(shelf.asked), FenceState(2, "a")
    for now in range(1601, 3000):
        fence_file.poll(float(now), 0, reads=False, attempt=2)
    assert len(shelf.asked) == asked
    fence_file.poll(3001.0, 0, reads=False, attempt=3)
    fence_file.poll(3002.0, 0, reads=False, attempt=3)
    assert len(shelf.asked) == asked + 1


def test_unread_time_counts_from_when_the_last_good_look_began():
    shelf = Shelf()
    fence_file = FenceFile(shelf)
    fence_file.poll(100.0, 0, reads=True)
    shelf.answer = FenceState(2)
    fence_file.poll(103.0, 0, reads=True)
    assert (fence_file.is_readable, fence_file.unread_seconds(110.0, 50.0)) == (True, 10.0)


def test_there_is_none_without_a_directory_or_a_gang():
    assert path_of("/checkpoints", "gang") == "/checkpoints/.muster-gang"
    assert path_of("", "gang") == path_of("/checkpoints", "") == ""


# A gang that is cut off as a whole, through launchers in one thread


def a_gang_alone(**settings: bool) -> World:
    world = World(4, has_storage=True, **settings)
    world.start()
    assert all(worker.snapshot.reads_fence_file for worker in world.workers)
    world.cut(range(4))
    return world


def test_a_gang_that_lost_its_coordinator_trains_on_while_no_successor_comes():
    world = a_gang_alone()
    world.run(200)
    assert all(worker.is_training for worker in world.workers)


def test_a_gang_whose_own_number_stands_there_trains_on():
    """It came after one that was cut off as a whole, and has lost its coordinator itself."""
    world = World(4, has_storage=True)
    world.attempt = 2
    world.write_fence_file(2)
    world.start()
    world.cut(range(4))
    world.run(60)
    assert {worker.supervisor._fence_file.standing.attempt for worker in world.workers} == {2}
    assert all(worker.is_training for worker in world.workers)


def test_a_gang_that_lost_its_coordinator_ends_when_its_successor_comes():
    world = a_gang_alone()
    world.run(60)
    world.write_fence_file(2)
    world.run(PERIOD_SECONDS + OFTEN_SECONDS + max(LOOK_SECONDS))
    assert not any(worker.is_training for worker in world.workers)
    assert all(worker.snapshot.fenced for worker in world.workers)


def test_a_gang_that_cannot_see_whether_a_successor_comes_ends_within_its_fence():
    world = a_gang_alone()
    world.run(60)
    world.storage_stalls = True
    world.run(10)
    assert all(worker.is_training for worker in world.workers)
    world.run(6)
    assert not any(worker.is_training for worker in world.workers)


def test_fence_file_and_storage_are_ignored_while_the_coordinator_answers():
    world = World(4, has_storage=True)
    world.start()
    world.write_fence_file(2)
    world.storage_stalls = True
    world.run(60)
    assert all(worker.is_training for worker in world.workers)


def test_storage_that_was_never_readable_ends_nobody():
    world = World(4, has_storage=True)
    world.storage_stalls = True
    world.start()
    world.cut(range(4))
    world.run(60)
    assert all(worker.is_training for worker in world.workers)


def whose_storage_came_after_its_start() -> World:
    """A gang that has lost its coordinator and trains, and could not read the fence file when it began."""
    world = World(4, has_storage=True)
    world.storage_stalls = True
    world.start()
    world.storage_stalls = False
    world.cut(range(4))
    world.run(2 * DEADLINE_SECONDS)
    assert all(worker.is_training for worker in world.workers)
    return world


def test_storage_that_came_after_the_start_ends_nobody_when_it_goes_again():
    """With the go the coordinator has fixed that these do not obey the fence file; so it does not count on it."""
    world = whose_storage_came_after_its_start()
    assert all(worker.supervisor._fence_file.is_readable for worker in world.workers)
    world.storage_stalls = True
    world.run(60)
    assert all(worker.is_training for worker in world.workers)


def test_a_successor_ends_even_workers_that_could_not_read_the_fence_file():
    """They could not read it at their start."""
    world = whose_storage_came_after_its_start()
    world.write_fence_file(2)
    world.run(PERIOD_SECONDS + OFTEN_SECONDS + max(LOOK_SECONDS))
    assert not any(worker.is_training for worker in world.workers)


@pytest.mark.parametrize("seconds", [8.0, 20.0])
def test_at_any_pace_the_fence_file_is_asked_only_after_an_overdue_answer(seconds):
    """The pace is the coordinator's. Nightly tests have a shorter one, too."""
    the_fence_file_is_asked_once_an_answer_is_overdue(seconds)


def test_without_a_view_of_the_fence_file_a_long_fence_counts_in_full():
    world = World(4, has_storage=True, served_fence_seconds=60.0)
    world.start()
    world.storage_stalls = True
    world.cut(range(4))
    world.run(55)
    assert all(worker.is_training for worker in world.workers)
    world.run(10)
    assert not any(worker.is_training for worker in world.workers)


def test_a_worker_is_not_ready_before_it_knows_whether_it_can_read_the_fence_file():
    world = World(1, has_storage=True)
    world.runs, world.storage_stalls = False, True
    world.run(DEADLINE_SECONDS - 1)
    (told,) = world.workers
    assert (told.snapshot.attempt, told.snapshot.checkpoints_scanned_for_attempt) == (1, 0)
    world.run(2)
    assert (told.snapshot.reads_fence_file, told.snapshot.checkpoints_scanned_for_attempt) == (False, 1)


@pytest.mark.parametrize("unmounted", [0, 2])
def test_a_launcher_without_the_volume_reports_another_fence_file(unmounted):
    world = World(4, has_storage=True, unmounted={unmounted})
    world.runs, world.claims = False, True
    world.run(5)
    told = [worker.snapshot.fence_file_id for worker in world.workers]
    alone = told.pop(unmounted)
    (shared,) = set(told)
    assert (alone != "", shared != "") == (unmounted == 0, unmounted != 0)


def test_a_launcher_that_begins_to_read_the_fence_file_while_it_trains_obeys_it():
    world = World(4, has_storage=True)
    world.storage_stalls = True
    world.start()
    world.storage_stalls = False
    world.write_fence_file(1)
    world.run(60)
    assert {worker.snapshot.fence_file_id for worker in world.workers} == {"id"}
    world.cut(range(4))
    world.run(30)
    assert all(worker.is_training for worker in world.workers)
    world.storage_stalls = True
    world.run(20)
    assert not any(worker.is_training for worker in world.workers)


def test_a_short_fence_leaves_time_to_read():
    world = World(1, has_storage=True, served_fence_seconds=1.0)
    world.start()
    world.cut([0])
    world.run(60)
    assert world.workers[0].is_training


# Real launchers


def test_the_launcher_writes_its_claim_before_it_runs(coordinator, run_python, tmp_path):
    run_python(HANG, MUSTER_CHECKPOINT_DIRECTORY=str(tmp_path), MUSTER_GANG="gang")
    coordinator.wait_to_run(1)
    report = coordinator.wait_for(lambda r: r.attempt == 1 and r.reads_fence_file)
    assert (report.fence_file_attempt, report.fence_file_id, report.fence_file_age_seconds) == (0, "", None)
    coordinator.wait_to_run(2, writes_fence_file=True)
    report = coordinator.wait_for(lambda r: r.attempt == 2 and r.fence_file_age_seconds is not None)
    assert (report.state, report.fence_file_attempt, report.fence_file_error) == (IDLE, 2, "")
    fence_file = Path(tmp_path / ".muster-gang")
    assert json.loads(fence_file.read_text()) == {"attempt": 2, "id": report.fence_file_id}


def test_a_claim_that_cannot_be_written_is_told(coordinator, run_python, tmp_path):
    (tmp_path / "file").write_text("")
    run_python(HANG, MUSTER_CHECKPOINT_DIRECTORY=str(tmp_path / "file" / "gone"), MUSTER_GANG="gang")
    coordinator.wait_to_run(1, writes_fence_file=True)
    report = coordinator.wait_for(lambda r: r.fence_file_error)
    assert (report.fence_file_age_seconds, report.reads_fence_file) == (None, False)
    assert str(tmp_path / "file" / "gone") in report.fence_file_error


def test_without_its_coordinator_the_launcher_obeys_the_fence_file(coordinator, run_python, tmp_path, until):
    launcher = run_python(HANG, MUSTER_CHECKPOINT_DIRECTORY=str(tmp_path), MUSTER_GANG="gang")
    coordinator.wait_to_run(1)
    coordinator.wait_for(lambda r: r.reads_fence_file)
    coordinator.run(1)
    coordinator.wait_for(lambda r: r.state == RUNNING)
    claim_fence_file(str(tmp_path / ".muster-gang"), 2)
    coordinator.stall(stalled=True)
    until(lambda: "attempt 2 has the checkpoints" in launcher.error_text, "the end of the ranks")
    coordinator.stall(stalled=False)
    report = coordinator.wait_for(lambda r: r.fenced and r.state == EXITED)
    assert [rank.signal for rank in report.ranks] == [signal.SIGKILL]

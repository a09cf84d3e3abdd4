"""What a node's own disk holds, and by which attempt it was saved as which share."""

from __future__ import annotations

import json
import os
import time
from functools import partial

import pytest
from tests.unit.checkpoint.recordings import archive

from muster.node.checkpoint import local
from muster.node.checkpoint.find import Finder
from muster.node.checkpoint.local import MAX_ERAS, LocalShare, list_local_shares

GANG = "job-1"
TICK_SECONDS = 0.02  # file systems stamp times by a clock that ticks


def look(directory, attempt, share="0/2x1", gang=GANG):
    found = list_local_shares(str(directory), gang, attempt, share)
    time.sleep(TICK_SECONDS)
    return found


def save(directory, step):
    target = directory / f"step-{step}"
    target.mkdir(parents=True, exist_ok=True)
    (target / "state.json").write_bytes(b"x" * 10)
    manifest = {"step": step, "files": [{"path": "state.json", "bytes": 10}]}
    (target / "muster-checkpoint.json").write_text(json.dumps(manifest))
    time.sleep(TICK_SECONDS)
    return target


@pytest.fixture
def disk(tmp_path):
    """A directory that does not exist yet."""
    return tmp_path / "disk"


def steps(found):
    there, error = found
    assert error == ""
    return [(one.step, one.attempt) for one in there]


def test_what_was_saved_since_an_attempt_began_is_that_attempts(disk):
    assert look(disk, 1) == ([], "")
    path = save(disk, 10)
    assert look(disk, 2) == ([LocalShare(10, str(path), 1, "Manifest")], "")
    save(disk, 20)
    assert steps(look(disk, 3)) == [(20, 2), (10, 1)]


def test_a_step_that_is_saved_anew_is_the_later_attempts(disk):
    look(disk, 1)
    save(disk, 10)
    look(disk, 2)
    save(disk, 10)
    assert steps(look(disk, 3)) == [(10, 2)]


def test_what_was_there_before_anybody_wrote_anything_down_is_nobodys(disk):
    save(disk, 10)
    assert steps(look(disk, 2)) == []
    assert steps(look(disk, 3)) == []


def test_the_share_of_another_rank_does_not_count(disk):
    look(disk, 1, share="1/2x1")
    save(disk, 10)
    assert steps(look(disk, 2)) == []
    look(disk, 2)
    save(disk, 20)
    assert steps(look(disk, 3)) == [(20, 2)]


def test_nor_does_that_of_another_job(disk):
    look(disk, 1, gang="other")
    save(disk, 10)
    assert steps(look(disk, 2)) == []


def test_a_torn_one_does_not_count(disk):
    look(disk, 1)
    (save(disk, 10) / "state.json").write_bytes(b"")
    assert steps(look(disk, 2)) == []


def test_what_a_dying_rank_saves_after_a_first_look_is_the_attempts_before(disk):
    look(disk, 1)
    look(disk, 2)
    save(disk, 10)
    assert steps(look(disk, 2)) == [(10, 1)]
    save(disk, 20)
    assert steps(look(disk, 3)) == [(20, 2), (10, 1)]


def test_a_clock_that_was_set_back_makes_no_save_an_earlier_attempts_twin(disk):
    """A save whose time lies before its attempt's begin is taken for what came before, or for nobody's."""
    look(disk, 1)
    path = save(disk, 10)
    hour_ago = time.time() - 3600
    os.utime(path / "muster-checkpoint.json", (hour_ago, hour_ago))
    assert steps(look(disk, 2)) == []


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"eras": 7}', '{"eras": [[1]]}', '{"eras": [["a", "b", "c"]]}', "[" * 9000]
)
def test_a_file_that_says_nonsense_makes_nothing_count(disk, text):
    look(disk, 1)
    save(disk, 10)
    (disk / f".muster-{GANG}").write_text(text)
    assert steps(look(disk, 2)) == []
    save(disk, 20)
    assert steps(look(disk, 3)) == [(20, 2)]


def test_only_so_many_attempts_are_remembered(disk):
    for attempt in range(1, MAX_ERAS + 9):
        look(disk, attempt)
    eras = json.loads((disk / f".muster-{GANG}").read_text())["eras"]
    assert [era[0] for era in eras] == list(range(9, MAX_ERAS + 9))
    assert [each.name for each in disk.iterdir()] == [f".muster-{GANG}"]


def test_a_disk_that_takes_no_file_says_so_and_tells_what_is_there(disk, monkeypatch):
    look(disk, 1)
    path = save(disk, 10)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    there, error = look(disk, 2)
    assert there == [LocalShare(10, str(path), 1, "Manifest")]
    assert error == f"{disk}/.muster-{GANG} cannot be written: No space left on device"
    assert [each.name for each in disk.glob(".*")] == [f".muster-{GANG}"]


def test_a_directory_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "disk").write_text("a file")
    with pytest.raises(OSError, match="File exists"):
        look(tmp_path / "disk", 1)


def test_what_has_no_atomic_marker_counts_at_once_as_nobody_writes(disk, monkeypatch):
    def pause(_):
        raise AssertionError("nothing is waited for")

    monkeypatch.setattr(local, "Finder", partial(Finder, now=lambda: 1000.0, pause=pause))
    look(disk, 1)
    before = disk / "500"
    before.mkdir()
    (before / "rank_0.pt").write_bytes(archive({}))
    (disk / "dlrover_latest.txt").write_text("500")
    assert steps(look(disk, 2)) == [(500, 1)]

"""How little is looked at, what is remembered, and what the answer is before everything is judged."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from muster.node.checkpoint import find
from muster.node.checkpoint.find import Finder, ScanOptions
from muster.node.checkpoint.listing import File, Files, Listing
from muster.node.checkpoint.verdict import saving_ns, verdict_from
from muster.protocol.checkpoints import branch_of, read_stamps, write_stamps
from muster.protocol.messages import MAX_NUMBER

WRITTEN_NS = 1_700_000_000_000_000_000
LIGHT = ScanOptions(thorough=False)
FILES = 20
EMPTY = 16  # looks at most at a directory that is no checkpoint, as is the one that all are in


def write(directory, step, bytes_each=10):
    target = directory / f"step-{step}"
    target.mkdir(parents=True)
    for place in range(FILES):
        (target / f"part-{place:02}.bin").write_bytes(b"x" * 10)
    manifest = {"step": step, "files": [{"path": f"part-{n:02}.bin", "bytes": bytes_each} for n in range(FILES)]}
    (target / "muster-checkpoint.json").write_text(json.dumps(manifest))
    return target


def answers(finder, how=None):
    return [[(c.step, c.judged) for c in found.checkpoints] for found in finder.scan(how or ScanOptions())]


def last(finder, how):
    return list(finder.scan(how))[-1]


def test_the_newest_is_judged_first_and_the_answer_so_far_is_told(tmp_path):
    for step in (10, 20, 30):
        write(tmp_path, step)
    told = list(Finder(str(tmp_path)).scan(ScanOptions()))
    assert [[(c.step, c.judged) for c in found.checkpoints] for found in told] == [
        [(30, False), (20, False), (10, False)],
        [(30, True), (20, False), (10, False)],
        [(30, True), (20, True), (10, False)],
        [(30, True), (20, True), (10, True)],
    ]
    assert [found.is_settled for found in told] == [False, True, True, True]
    assert [found.done for found in told] == [False, False, False, True]


def test_what_a_complete_one_has_is_told_with_it_and_remembered(tmp_path):
    target = write(tmp_path, 10)
    size = sum(file.stat().st_size for file in target.iterdir())
    for place, file in enumerate(sorted(target.iterdir())):
        os.utime(file, ns=(1, WRITTEN_NS + place * 500_000_000))
    verdicts = []
    first = Finder(str(tmp_path), judged=verdicts.append)
    told = [last(first, ScanOptions()), last(first, LIGHT)]
    heir = Finder(str(tmp_path))
    heir.remember(verdict_from(json.loads(json.dumps(verdict.to_json()))) for verdict in verdicts)
    told.append(last(heir, LIGHT))
    assert [(one.size_bytes, one.save_seconds) for found in told for one in found.checkpoints] == [(size, 10.0)] * 3


@pytest.mark.parametrize(
    ("ended_seconds", "want"),
    [([], 0), ([7], 0), ([0, 3, 12.5], 12.5), ([-86400, 0, 20], 20), ([-86400, -86399, 0], 0), ([0, 599, 1198], 1198)],
    ids=["no-file", "one-file", "a-save", "a-copied-tokenizer", "two-copied-ones", "slow-files"],
)
def test_a_save_lasts_from_its_first_file_to_its_last(ended_seconds, want):
    files = {str(at): File(1, WRITTEN_NS + int(at * 1e9)) for at in ended_seconds}
    assert saving_ns(Listing("/c", files)) == want * 1e9


def test_what_is_free_is_told_of_a_file_system_and_not_of_what_is_gone(tmp_path, monkeypatch):
    free = Finder(str(tmp_path)).free_bytes()
    assert free is not None
    assert 0 <= free <= MAX_NUMBER
    assert Finder(str(tmp_path / "gone")).free_bytes() is None
    endless = SimpleNamespace(f_blocks=2**60, f_bavail=2**60, f_frsize=4096)
    monkeypatch.setattr(os, "statvfs", lambda _path: endless)
    assert Finder(str(tmp_path)).free_bytes() == MAX_NUMBER
    monkeypatch.setattr(os, "statvfs", lambda _path: SimpleNamespace(f_blocks=0, f_bavail=0, f_frsize=4096))
    assert Finder(str(tmp_path)).free_bytes() is None, "a file system that tells nothing is not full"


def test_nothing_is_settled_before_all_that_are_newer_are_judged(tmp_path):
    write(tmp_path, 10)
    write(tmp_path, 20, bytes_each=11)
    told = list(Finder(str(tmp_path)).scan(ScanOptions()))
    assert [[(c.step, c.judged) for c in found.checkpoints] for found in told] == [
        [(20, False), (10, False)],
        [(10, False)],
        [(10, True)],
    ]
    assert [found.is_settled for found in told] == [False, False, True]


def test_a_torn_one_makes_room_for_an_older_one(tmp_path):
    for step in range(1, 11):
        write(tmp_path, step, bytes_each=11 if step > 7 else 10)
    assert answers(Finder(str(tmp_path)), ScanOptions(limit=3))[-1] == [(7, True), (6, True), (5, True)]


@pytest.mark.parametrize("by", ["step", "path"])
def test_what_a_person_asked_for_is_found_however_many_are_newer_and_judged_first(tmp_path, by):
    for step in range(1, 31):
        write(tmp_path, step)
    requested = "5" if by == "step" else str(tmp_path / "step-5")
    told = answers(Finder(str(tmp_path)), ScanOptions(limit=3, requested=requested))
    assert told[1] == [(30, False), (29, False), (28, False), (5, True)]
    assert told[-1] == [(30, True), (29, True), (28, True), (5, True)]


def test_what_a_person_asked_for_is_found_among_many_that_only_have_its_number(tmp_path):
    for number in range(12):
        (tmp_path / f"logs-{number}-step-5").mkdir()
    for step in (5, 6, 7):
        write(tmp_path, step)
    assert answers(Finder(str(tmp_path)), ScanOptions(limit=2, requested="5"))[-1] == [(7, True), (6, True), (5, True)]


def test_a_path_that_a_person_asked_for_is_found_whatever_it_is_called(tmp_path):
    for number in range(20):
        (tmp_path / f"a{'x' * number}").mkdir()
    target = tmp_path / "zzz"
    write(tmp_path, 3).rename(target)
    assert answers(Finder(str(tmp_path)), ScanOptions())[-1] == []
    assert answers(Finder(str(tmp_path)), ScanOptions(requested=str(target)))[-1] == [(3, True)]


def test_of_those_that_were_asked_for_all_are_told_with_all_that_are_newer(tmp_path):
    for step in range(1, find.MAX_STAMPS + 30):
        (tmp_path / f"step-{step}").mkdir()
        (tmp_path / f"step-{step}" / ".metadata").touch()
    stamps = last(Finder(str(tmp_path)), ScanOptions(judges=False, stamps=True, limit=3, requested="1")).stamps
    assert [step for step, _ in stamps] == list(range(find.MAX_STAMPS + 29, 29, -1))


def test_what_a_person_asked_for_takes_no_second_place_where_it_is_among_the_newest(tmp_path):
    for step in range(1, 6):
        write(tmp_path, step)
    assert answers(Finder(str(tmp_path)), ScanOptions(limit=3, requested="4"))[-1] == [(5, True), (4, True), (3, True)]


def test_what_a_person_asked_for_and_is_torn_is_told_as_torn(tmp_path):
    for step in range(1, 6):
        write(tmp_path, step, bytes_each=11 if step == 1 else 10)
    found = last(Finder(str(tmp_path)), ScanOptions(limit=3, requested="1"))
    assert [c.step for c in found.checkpoints] == [5, 4, 3]
    assert [c.step for c in found.incomplete] == [1]


def test_when_the_marker_was_written(tmp_path):
    target = write(tmp_path, 10)
    os.utime(target / "muster-checkpoint.json", ns=(5, 1_700_000_000_000_000_123))
    assert [item.written_ns for item in Finder(str(tmp_path)).find()] == [1_700_000_000_000_000_123]


def test_who_does_not_judge_tells_what_is_there_and_lists_nothing(tmp_path, monkeypatch):
    write(tmp_path, 10)
    write(tmp_path, 20, bytes_each=11)
    (tmp_path / "step-30").mkdir()
    monkeypatch.setattr(Files, "listing", None)
    found = last(Finder(str(tmp_path)), ScanOptions(judges=False))
    assert [(c.step, c.judged, c.written_ns > 0) for c in found.checkpoints] == [(20, False, True), (10, False, True)]
    assert found.done


def dated(directory, step, seconds):
    marker = write(directory, step) / "muster-checkpoint.json"
    os.utime(marker, ns=(0, seconds * 10**9))
    return (step, seconds * 10**9)


@pytest.mark.parametrize("thorough", [True, False], ids=["thorough", "light"])
def test_what_is_disowned_by_name_takes_no_place(tmp_path, thorough, monkeypatch):
    monkeypatch.setattr(find, "MAX_EXAMINED", 4)
    excluded = [dated(tmp_path, step, seconds=10**9) for step in range(5, 21)]
    for step in range(1, 5):
        write(tmp_path, step)
    os.utime(tmp_path / "step-15/muster-checkpoint.json", ns=(0, 10**17))  # written anew, by a clock far behind
    how = ScanOptions(thorough=thorough, branch=branch_of(4, write_stamps(excluded)), limit=3)
    assert answers(Finder(str(tmp_path)), how)[-1] == [(15, True), (4, True), (3, True)]


class TestStamps:
    """Of all that are there, however many are told of."""

    HOW = ScanOptions(limit=2, stamps=True)

    def test_come_once_the_newest_is_judged(self, tmp_path):
        stamps = [dated(tmp_path, step, step) for step in range(1, 6)]
        told = list(Finder(str(tmp_path)).scan(self.HOW))
        assert [found.stamps is None for found in told] == [True, True, False]
        assert [len(found.checkpoints) for found in told] == [2, 2, 2]
        assert sorted(told[-1].stamps) == stamps

    def test_of_nothing_are_none(self, tmp_path):
        assert last(Finder(str(tmp_path / "missing")), self.HOW).stamps == ()

    def test_of_other_histories_too_and_of_what_is_torn(self, tmp_path):
        stamps = [dated(tmp_path, step, step) for step in range(1, 6)]
        (tmp_path / "step-4/part-00.bin").unlink()
        how = dataclasses.replace(self.HOW, branch=branch_of(1, write_stamps(stamps[2:])))
        found = last(Finder(str(tmp_path)), how)
        assert [c.step for c in found.checkpoints] == [2, 1]
        assert sorted(found.stamps) == stamps

    def test_are_no_whole_listing_where_something_cannot_be_seen(self, tmp_path, monkeypatch):
        for step in range(1, 6):
            dated(tmp_path, step, step)
        real = Files.status

        def status(self, path):
            if Path(path).parent == tmp_path / "step-1":
                raise PermissionError(13, "Permission denied", path)
            return real(self, path)

        monkeypatch.setattr(Files, "status", status)
        found = last(Finder(str(tmp_path)), self.HOW)
        assert (found.stamps, "step-1 cannot be read" in found.note) == (None, True)

    def test_are_no_whole_listing_where_there_are_too_many_directories(self, tmp_path, monkeypatch):
        for step in (10, 20, 30):
            write(tmp_path, step)
        monkeypatch.setattr(find, "MAX_STEPPED", 2)
        monkeypatch.setattr(find, "MAX_EXAMINED", 1)
        found = last(Finder(str(tmp_path)), ScanOptions(stamps=True))
        assert found.stamps is None
        assert "has more than 2 directories" in found.note

    def test_are_bounded(self, tmp_path, monkeypatch):
        monkeypatch.setattr(find, "MAX_STAMPS", 3)
        for step in range(1, 6):
            dated(tmp_path, step, step)
        assert [step for step, _ in last(Finder(str(tmp_path)), self.HOW).stamps] == [5, 4, 3]

    def test_as_text_and_back(self):
        text = write_stamps([(100, 5), (200, 1_700_000_000_000_000_123), (100, 5)])
        assert text == "200:1700000000000000123,100:5"
        assert read_stamps(text) == [(200, 1_700_000_000_000_000_123), (100, 5)]
        assert read_stamps("nonsense,:,1:,7:8") == [(7, 8)]


class TestAgain:
    @pytest.fixture
    def clock(self):
        return [1000.0]

    @pytest.fixture
    def finder(self, tmp_path, clock):
        for step in range(1, 9):
            write(tmp_path / "ckpt", step)
        finder = Finder(str(tmp_path / "ckpt"), now=lambda: clock[0])
        assert len(finder.find()) == 8
        return finder

    def test_a_light_look_at_what_has_not_changed_lists_nothing(self, finder, monkeypatch):
        monkeypatch.setattr(Files, "listing", None)
        before = finder.looks
        assert answers(finder, LIGHT) == [[(step, True) for step in range(8, 0, -1)]]
        assert finder.looks - before <= 3 * 8 + EMPTY

    def test_a_thorough_look_lists_but_parses_nothing(self, finder, monkeypatch):
        monkeypatch.setattr(Finder, "_problem", None)
        before = finder.looks
        assert len(finder.find()) == 8
        assert 8 * FILES < finder.looks - before < 8 * (FILES + 6)

    def test_a_new_one_alone_is_judged(self, finder, tmp_path):
        write(tmp_path / "ckpt", 9)
        before = finder.looks
        assert answers(finder, LIGHT)[-1][0] == (9, True)
        assert finder.looks - before <= 4 * 9 + EMPTY + FILES + 2

    def test_names_that_take_long_to_read_are_read_for_a_tenth_of_the_time(self, finder, tmp_path, clock, monkeypatch):
        real, read = Files.children, []

        def slow(self, directory, is_wanted, sign):
            clock[0] += 1.5
            read.append(clock[0])
            return real(self, directory, is_wanted, sign)

        monkeypatch.setattr(Files, "children", slow)
        write(tmp_path / "ckpt", 9)
        assert answers(finder, LIGHT)[-1][0] == (9, True)
        write(tmp_path / "ckpt", 10)
        (tmp_path / "ckpt/step-9/part-07.bin").unlink()
        clock[0] += 14.0
        assert answers(finder, LIGHT)[-1][0] == (8, True), "what is known is looked at all the same"
        assert len(read) == 1
        assert answers(finder)[-1][0] == (10, True), "before a start they are read"
        write(tmp_path / "ckpt", 11)
        clock[0] += 15.0
        assert answers(finder, LIGHT)[-1][0] == (11, True)

    def test_a_light_look_sees_that_a_save_over_it_has_begun(self, finder, tmp_path):
        (tmp_path / "ckpt/step-8/part-00.bin").write_bytes(b"")
        assert answers(finder, LIGHT)[-1][0] == (7, True)

    def test_a_light_look_sees_that_a_file_was_removed(self, finder, tmp_path):
        (tmp_path / "ckpt/step-8/part-07.bin").unlink()
        assert answers(finder, LIGHT)[-1][0] == (7, True)

    def test_a_thorough_look_sees_any_change(self, finder, tmp_path):
        (tmp_path / "ckpt/step-8/part-13.bin").write_bytes(b"x" * 9)
        assert answers(finder)[-1][0] == (7, True)

    def test_a_thorough_look_sees_that_a_torn_one_is_mended_where_no_glance_falls(self, finder, tmp_path):
        target = write(tmp_path / "ckpt", 9)
        (target / "part-13.bin").write_bytes(b"x")
        assert answers(finder, LIGHT)[-1][0] == (8, True)
        (target / "part-13.bin").write_bytes(b"x" * 10)
        assert answers(finder, LIGHT)[-1][0] == (8, True), "soon, not now"
        assert answers(finder)[-1][0] == (9, True)

    def test_what_is_torn_is_listed_again_after_a_while_that_grows(self, finder, tmp_path, clock, monkeypatch):
        write(tmp_path / "ckpt", 9, bytes_each=11)
        listed, real = [], Files.listing
        monkeypatch.setattr(
            Files, "listing", lambda self, path, sign, depth: listed.append(path) or real(self, path, sign, depth)
        )
        for moment in range(1000, 1020):
            clock[0] = moment
            before = len(listed)
            assert answers(finder, LIGHT)[-1][0] == (8, True)
            if len(listed) > before:
                listed[-1] = moment
        assert listed == [1000, 1002, 1006, 1014]

    def test_a_torn_one_that_is_mended_is_seen_at_once(self, finder, tmp_path):
        target = write(tmp_path / "ckpt", 9, bytes_each=11)
        assert answers(finder, LIGHT)[-1][0] == (8, True)
        (target / "muster-checkpoint.json").unlink()
        manifest = {"step": 9, "files": []}
        (target / "muster-checkpoint.json").write_text(json.dumps(manifest))
        assert answers(finder, LIGHT)[-1][0] == (9, True)

    @pytest.mark.parametrize("how", [ScanOptions(), LIGHT], ids=["thorough", "light"])
    def test_another_process_takes_over_the_verdicts(self, tmp_path, how, monkeypatch):
        write(tmp_path / "ckpt", 10)
        write(tmp_path / "ckpt", 20, bytes_each=11)
        told = []
        Finder(str(tmp_path / "ckpt"), judged=told.append).find()
        monkeypatch.setattr(Finder, "_problem", None)
        heir = Finder(str(tmp_path / "ckpt"))
        heir.remember(verdict_from(json.loads(json.dumps(verdict.to_json()))) for verdict in told)
        assert answers(heir, how)[-1] == [(10, True)]


def test_a_missing_directory_is_told(tmp_path):
    found = last(Finder(str(tmp_path / "missing")), ScanOptions())
    assert (found.checkpoints, found.done, found.note) == ((), True, f"{tmp_path / 'missing'} does not exist")


def test_a_directory_that_may_not_be_read_is_an_error(tmp_path, monkeypatch):
    def denied(self, directory, *_):
        raise PermissionError(13, "Permission denied", directory)

    monkeypatch.setattr(Files, "children", denied)
    with pytest.raises(PermissionError):
        list(Finder(str(tmp_path)).scan(ScanOptions()))


@pytest.mark.parametrize(("name", "told"), [("step-20", True), ("lost+found", False)])
def test_a_checkpoint_that_may_not_be_read_is_told(tmp_path, monkeypatch, name, told):
    write(tmp_path, 10)
    (tmp_path / name).mkdir()
    real = Files.status

    def status(self, path):
        if Path(path).parent == tmp_path / name:
            raise PermissionError(13, "Permission denied", path)
        return real(self, path)

    monkeypatch.setattr(Files, "status", status)
    found = last(Finder(str(tmp_path)), ScanOptions())
    assert [c.step for c in found.checkpoints] == [10]
    assert (f"{tmp_path / name} cannot be read: Permission denied" in found.note) == told


def test_signs_of_life_while_one_checkpoint_is_judged(tmp_path):
    write(tmp_path, 10)
    signs = []
    finder = Finder(str(tmp_path), sign=lambda: signs.append(finder.looks))
    finder.find()
    assert len(signs) > FILES


def test_children_are_directories_and_files_that_may_be_checkpoints(tmp_path):
    for name in ("file", "last.ckpt", "ep1-ba5-rank0.pt"):
        (tmp_path / name).touch()
    (tmp_path / "link.ckpt").symlink_to(tmp_path / "last.ckpt")
    (tmp_path / "step-1").mkdir()
    found = Files().children(str(tmp_path), lambda name: name != "file")
    assert (found.directories, sorted(found.files)) == (["step-1"], ["ep1-ba5-rank0.pt", "last.ckpt"])

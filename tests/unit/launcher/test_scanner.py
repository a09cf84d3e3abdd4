"""The scanner alone, with the child that is shipped; and with a child whose every word the test says."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from types import SimpleNamespace

import pytest
from bench import dcp_files

from localcluster.patience import PATIENCE_SECONDS
from muster.node.checkpoint.listing import Files
from muster.node.checkpoint.verdict import Verdict, verdict_from
from muster.node.launcher import children
from muster.node.launcher.scan_child import ScanServer
from muster.node.launcher.scanner import LOOKS_PER_SECOND, Scanner, _report
from muster.protocol.checkpoints import UNVERIFIED, UNVERIFIED_FOR_NOW
from muster.protocol.messages import WAIT, Directive

DEADLINE_SECONDS = 10.0
PERIOD_SECONDS = 2.0
REQUEST = {
    "scan": 1,
    "thorough": True,
    "judges": True,
    "stamps": False,
    "branch": None,
    "requested": "",
    "requestedDirectory": "",
}


def write_checkpoint(directory, step, files=1):
    target = directory / f"step-{step}"
    target.mkdir(parents=True)
    for place in range(files):
        (target / f"part-{place}").write_bytes(b"x")
    manifest = {"step": step, "files": [{"path": f"part-{place}", "bytes": 1} for place in range(files)]}
    (target / "muster-checkpoint.json").write_text(json.dumps(manifest))
    return target


def reaped(scanner):
    """The child, if it has ended."""
    ended = {}
    for pid in scanner.pids:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            ended[found] = status
    return ended


def finished(scanner, now):
    """Turn at this moment until a scan is done, or has failed."""
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until:
        result = scanner.poll(now, reaped(scanner))
        if result is not None and (result.done or result.error):
            return result
        time.sleep(0.005)
    raise AssertionError("the scan does not end")


def seen(result):
    return [(checkpoint.step, checkpoint.verified) for checkpoint in result.checkpoints]


@pytest.fixture
def scanners(tmp_path):
    made = []

    def make(directory=None):
        made.append(Scanner(str(directory or tmp_path / "ckpt"), PERIOD_SECONDS, DEADLINE_SECONDS))
        return made[-1]

    yield make
    for scanner in made:
        scanner.stop()
        for pid in scanner.pids:
            os.waitpid(pid, 0)


class TestShippedChild:
    def test_what_a_checkpoint_has_and_what_is_free(self, scanners, tmp_path):
        target = write_checkpoint(tmp_path / "ckpt", 10, files=3)
        size = sum(file.stat().st_size for file in target.iterdir())
        for seconds, name in enumerate(("part-0", "part-1", "part-2", "muster-checkpoint.json"), 1000):
            os.utime(target / name, (seconds, seconds))
        scanner = scanners()
        result = finished(scanner, now=100.0)
        assert [one.size_bytes for one in result.checkpoints] == [size]
        assert [one.save_seconds for one in result.checkpoints] == [3.0]
        assert any((finished(scanner, now=now).free_bytes or 0) > 0 for now in range(200, 20_000, 100)), (
            "as found before"
        )

    def test_why_one_is_incomplete_is_reported_with_it(self, scanners, tmp_path):
        target = write_checkpoint(tmp_path / "ckpt", 10)
        (target / "part-0").write_bytes(b"")
        scanner = scanners()
        scanner.scan_for(3)
        (found,) = finished(scanner, now=100.0).checkpoints
        assert (found.incomplete, found.verified) == (True, False)
        assert found.problem == "part-0 has 0 bytes, not 1"

    def test_a_scan_that_counts_and_when_it_was_there(self, scanners, tmp_path):
        target = write_checkpoint(tmp_path / "ckpt", 10)
        scanner = scanners()
        finished(scanner, now=100.0)
        assert (scanner.scans, scanner.scanned_at) == (1, None)
        scanner.scan_for(3)
        assert scanner.scanned_at is None
        result = finished(scanner, now=101.0)
        assert (result.attempt, seen(result)) == (3, [(10, True)])
        assert result.checkpoints[0].written_ns == (target / "muster-checkpoint.json").stat().st_mtime_ns
        assert scanner.scanned_at == 101.0
        finished(scanner, now=110.0)
        assert (scanner.scans, scanner.scanned_at) == (3, 101.0)
        scanner.scan_for(4)
        assert scanner.scanned_at is None

    @pytest.mark.parametrize("killed_by", ["somebody", "the deadline"])
    def test_verdicts_outlive_the_child(self, scanners, tmp_path, killed_by):
        tensors = dcp_files.sharded(3, 2)
        dcp_files.write(tmp_path / "ckpt/step-10", dcp_files.metadata_of(tensors), tensors)
        scanner = scanners()
        scanner.scan_for(1)
        assert seen(finished(scanner, now=100.0)) == [(10, True)]
        spoil(tmp_path / "ckpt/step-10/.metadata")  # whoever reads it again finds nothing
        (first,) = scanner.pids
        os.kill(first, signal.SIGSTOP)
        scanner.poll(103.0, {})  # it is asked, and will not answer
        now = 103.0 + DEADLINE_SECONDS
        if killed_by == "somebody":
            os.kill(first, signal.SIGKILL)
            now = 103.0
        assert finished(scanner, now).error
        scanner.scan_for(2)
        result = finished(scanner, now + PERIOD_SECONDS)
        assert (result.attempt, seen(result)) == (2, [(10, True)])
        assert scanner.pids != {first}

    def test_another_history_is_left_out(self, scanners, tmp_path):
        write_checkpoint(tmp_path / "ckpt", 10)
        marker = write_checkpoint(tmp_path / "ckpt", 20) / "muster-checkpoint.json"
        scanner = scanners()
        scanner.scan_for(1)
        assert seen(finished(scanner, now=100.0)) == [(20, True), (10, True)]
        scanner.follow(
            Directive(WAIT, attempt=1, branch_step=10, excluded_checkpoints=f"20:{marker.stat().st_mtime_ns}")
        )
        result = finished(scanner, now=100.1)  # at once
        assert (result.attempt, seen(result)) == (1, [(10, True)])

    def test_what_is_disowned_is_left_out_and_told_of_all_the_same(self, scanners, tmp_path):
        for step in range(10, 31, 10):
            marker = write_checkpoint(tmp_path / "ckpt", step) / "muster-checkpoint.json"
            os.utime(marker, ns=(0, step * 10**9))
        scanner = scanners()
        scanner.scan_for(1)
        result = finished(scanner, now=100.0)
        assert result.stamps == "30:30000000000,20:20000000000,10:10000000000"
        told = Directive(WAIT, attempt=1, branch_step=10, excluded_checkpoints="30:30000000000")
        scanner.follow(told)
        result = finished(scanner, now=100.1)
        assert seen(result) == [(20, True), (10, True)]
        assert result.stamps == "30:30000000000,20:20000000000,10:10000000000"
        assert finished(scanner, scanner.next_at()).stamps is None, "that does not change while no rank runs"

    def test_beyond_a_step_from_which_all_is_suspect_nothing_counts_however_new(self, scanners, tmp_path):
        for step in range(10, 41, 10):
            marker = write_checkpoint(tmp_path / "ckpt", step) / "muster-checkpoint.json"
            os.utime(marker, ns=(0, step * 10**9))
        scanner = scanners()
        scanner.scan_for(1)
        finished(scanner, now=100.0)
        told = Directive(WAIT, attempt=1, branch_step=30, excluded_checkpoints="20:20000000000", branch_frozen=True)
        scanner.follow(told)
        assert seen(finished(scanner, now=100.1)) == [(30, True), (10, True)]

    def test_what_is_asked_for_is_looked_for_at_once(self, scanners, tmp_path):
        for step in range(10, 110, 10):
            write_checkpoint(tmp_path / "ckpt", step)
        scanner = scanners()
        scanner.scan_for(1)
        newest = [(step, True) for step in range(100, 20, -10)]
        assert seen(finished(scanner, now=100.0)) == newest
        scanner.follow(Directive(WAIT, attempt=1, requested_resume="10"))
        result = finished(scanner, now=100.1)
        assert (result.attempt, seen(result)) == (1, [*newest, (10, True)])

    def test_another_directory_is_looked_through_before_the_own_counts(self, scanners, tmp_path):
        for step in (100, 200, 300):
            write_checkpoint(tmp_path / "other", step)
        spoil(tmp_path / "other" / "step-300" / "muster-checkpoint.json")
        write_checkpoint(tmp_path / "ckpt", 10)
        scanner = scanners()
        scanner.follow(Directive(WAIT, attempt=1, requested_resume="100", requested_directory=str(tmp_path / "other")))
        scanner.scan_for(1)
        result = finished(scanner, now=100.0)
        assert (result.attempt, seen(result)) == (1, [(10, True)])
        assert [(c.step, c.verified) for c in result.elsewhere] == [(200, True), (100, True)]
        assert (result.elsewhere_error, result.elsewhere[0].format) == ("", "Manifest")
        scanner.follow(Directive(WAIT, attempt=1, requested_resume="", requested_directory=str(tmp_path / "nowhere")))
        result = finished(scanner, now=100.1)
        assert (result.attempt, seen(result), result.elsewhere) == (1, [(10, True)], ())
        assert "nowhere does not exist" in result.elsewhere_error

    def test_who_is_to_judge_from_now_on_does_so_at_once(self, scanners, tmp_path):
        write_checkpoint(tmp_path / "ckpt", 10)
        scanner = scanners()
        scanner.follow(Directive(WAIT, attempt=1, verifies=False))
        scanner.scan_for(1)
        result = finished(scanner, now=100.0)
        assert (seen(result), result.stamps) == ([(10, False)], None)
        scanner.follow(Directive(WAIT, attempt=1, verifies=True))
        result = finished(scanner, now=100.1)
        assert (result.attempt, seen(result)) == (1, [(10, True)])

    def test_who_does_not_judge_tells_what_there_is(self, scanners, tmp_path):
        write_checkpoint(tmp_path / "ckpt", 10)
        scanner = scanners()
        scanner.follow(Directive(WAIT, attempt=1, verifies=False))
        assert scanner.next_at() is None
        scanner.scan_for(1)
        result = finished(scanner, now=100.0)
        assert (result.attempt, seen(result)) == (1, [(10, False)])

    def test_a_missing_directory_counts_and_is_told(self, scanners, tmp_path):
        scanner = scanners()
        scanner.scan_for(1)
        result = finished(scanner, now=100.0)
        assert (result.attempt, result.checkpoints, result.error) == (1, (), f"{tmp_path / 'ckpt'} does not exist")

    def test_a_directory_that_is_none_does_not_count(self, scanners, tmp_path):
        (tmp_path / "file").touch()
        scanner = scanners(tmp_path / "file")
        scanner.scan_for(1)
        result = finished(scanner, now=100.0)
        assert (result.attempt, scanner.scanned_at) == (0, None)
        assert "Not a directory" in result.error

    def test_looks_while_ranks_run_stay_below_their_rate(self, scanners, tmp_path):
        for step in range(1, 9):
            write_checkpoint(tmp_path / "ckpt", step, files=40)
        scanner = scanners()
        scanner.scan_for(1)
        now = 100.0
        finished(scanner, now)
        scanner.ranks_start()
        looks, began = scanner.looks, now
        for step in range(9, 13):
            write_checkpoint(tmp_path / "ckpt", step, files=40)
            while seen(finished(scanner, scanner.next_at()))[0] != (step, True):
                pass  # the child takes the names as they were for as long as ten readings of them took
        assert scanner.looks - looks > 4 * 40
        assert scanner.looks - looks <= LOOKS_PER_SECOND * (scanner.next_at() - began)


def spoil(marker):
    """Another content of the same size and time."""
    status = marker.stat()
    marker.write_bytes(b"-" * status.st_size)
    os.utime(marker, ns=(status.st_atime_ns, status.st_mtime_ns))


class Played:
    """A child that says what the test says."""

    def __init__(self):
        self._open()

    def again(self):
        """The next child."""
        self._requests.close()
        self._answers.close()
        self._open()

    def _open(self):
        requests, answers = os.pipe(), os.pipe()
        self.stdin, self.stdout = os.fdopen(requests[1], "wb", 0), os.fdopen(answers[0], "rb", 0)
        self._requests, self._answers = os.fdopen(requests[0], "rb", 0), os.fdopen(answers[1], "wb", 0)
        for stream in (self.stdin, self.stdout, self._requests):
            os.set_blocking(stream.fileno(), False)
        self.process = SimpleNamespace(pid=os.getpid(), stdin=self.stdin, stdout=self.stdout)

    def say(self, **message):
        self._answers.write(json.dumps(message).encode() + b"\n")

    def tell(self, scan, checkpoints, settled=True, done=False, **more):
        found = [{"step": s, "path": f"/c/{s}", "writtenNs": 5, "judged": judged} for s, judged in checkpoints]
        self.say(scan=scan, checkpoints=found, settled=settled, done=done, looks=10, note="", error="", **more)

    def heard(self):
        return [json.loads(line) for line in (self._requests.read() or b"").splitlines()]

    def close(self):
        for stream in (self.stdin, self.stdout, self._requests, self._answers):
            stream.close()


class TestPlayedChild:
    @pytest.fixture
    def child(self, monkeypatch):
        child, killed = Played(), []
        monkeypatch.setattr(Scanner, "_spawn", lambda scanner: children.Child(child.process))
        monkeypatch.setattr(children.os, "kill", lambda pid, number: killed.append(number))
        child.killed = killed
        yield child
        child.close()

    @pytest.fixture
    def scanner(self):
        return Scanner("/c", PERIOD_SECONDS, DEADLINE_SECONDS)

    def test_signs_of_life_move_the_deadline(self, scanner, child):
        scanner.poll(100.0, {})
        for now in (109.0, 118.0, 127.0):
            child.say(sign=True)
            assert scanner.poll(now, {}) is None
            assert scanner.next_at() == now + DEADLINE_SECONDS
        assert child.killed == []
        assert "no answer from /c within 10 s" in scanner.poll(137.0, {}).error
        assert child.killed == [signal.SIGKILL]

    def test_nonsense_of_one_that_has_ended_by_then_is_told(self, scanner, child, monkeypatch):
        def nobody(*_):
            raise ProcessLookupError(3, "No such process")

        monkeypatch.setattr(children.os, "kill", nobody)
        scanner.poll(100.0, {})
        child.say(scan=1)
        assert "answered nonsense" in scanner.poll(101.0, {child.process.pid: 0}).error
        assert scanner.pids == frozenset()

    def test_what_is_handed_on_fits_into_a_pipe_that_nobody_reads(self, scanner, child):
        scanner.poll(100.0, {})
        for place in range(60):
            child.say(verdict={"path": "/c/" + "\u4e2d" * 900 + str(place)})
            scanner.poll(101.0, {})
        scanner.poll(102.0, {child.process.pid: 9})  # it died
        child.again()
        scanner.poll(110.0, {})
        handed, asked = child.heard()
        assert handed["verdicts"][-1]["path"].endswith("59")
        assert 3 < len(handed["verdicts"]) < 60
        assert asked["scan"] == 2

    def test_a_partial_answer_counts_once_the_newest_is_judged(self, scanner, child):
        scanner.scan_for(2)
        scanner.poll(100.0, {})
        child.tell(1, [(30, False), (20, False)], settled=False)
        result = scanner.poll(101.0, {})
        assert (result.attempt, seen(result), result.done) == (0, [(30, False), (20, False)], False)
        child.tell(1, [(30, True), (20, False)])
        result = scanner.poll(102.0, {})
        assert (result.attempt, seen(result), scanner.scanned_at) == (2, [(30, True), (20, False)], 102.0)
        child.tell(1, [(30, True), (20, True)], done=True)
        result = scanner.poll(103.0, {})
        assert (result.attempt, seen(result), result.done) == (2, [(30, True), (20, True)], True)
        assert (scanner.scanned_at, scanner.next_at()) == (102.0, 103.0 + PERIOD_SECONDS)

    def test_a_scan_that_began_while_ranks_ran_is_replaced_and_its_answers_do_not_count(self, scanner, child):
        scanner.poll(100.0, {})
        scanner.scan_for(2)
        child.tell(1, [(30, True)])
        assert scanner.poll(101.0, {}).attempt == 0
        child.tell(1, [(30, True)], done=True)
        assert scanner.poll(102.0, {}) is None
        asked = [request for request in child.heard() if "scan" in request]
        assert [(request["scan"], request["thorough"]) for request in asked] == [(1, False), (2, True)]
        child.tell(2, [(30, True)], done=True)
        assert scanner.poll(103.0, {}).attempt == 2

    def test_while_ranks_run_only_what_is_judged_is_told(self, scanner, child):
        scanner.poll(100.0, {})
        child.tell(1, [(30, False), (20, True)], settled=False)
        result = scanner.poll(101.0, {})
        assert (result.attempt, seen(result)) == (0, [(20, True)])

    def test_a_scan_that_failed_is_made_again_as_thoroughly(self, scanner, child):
        scanner.scan_for(2)
        scanner.poll(100.0, {})
        child.say(scan=1, checkpoints=[], settled=False, done=False, looks=1, note="", error="stale")
        assert scanner.poll(101.0, {}).error == "stale"
        scanner.poll(103.0, {})
        assert [request["thorough"] for request in child.heard() if "scan" in request] == [True, True]

    @pytest.mark.parametrize("line", [b"nonsense\n", b'{"scan": 1}\n', b"[]\n", b"x" * 300_000], ids=repr)
    def test_nonsense_ends_the_child(self, scanner, child, line, monkeypatch):
        scanner.poll(100.0, {})
        monkeypatch.setattr(children.os, "read", lambda descriptor, size: line)
        assert "answered" in scanner.poll(101.0, {}).error
        assert child.killed == [signal.SIGKILL]

    def test_who_does_not_judge_looks_while_it_waits_and_not_while_ranks_run(self, scanner, child):
        scanner.follow(Directive(WAIT, attempt=1, verifies=False))
        scanner.scan_for(1)
        scanner.poll(100.0, {})
        child.tell(1, [(30, False)], settled=False, done=True)
        assert scanner.poll(100.0, {}).attempt == 1
        assert scanner.next_at() == 100.0 + 4 * PERIOD_SECONDS
        scanner.ranks_start()
        assert scanner.next_at() is None
        assert scanner.poll(1000.0, {}) is None
        assert len(child.heard()) == 2  # the verdicts that there were, and one scan


class TestStore:
    """What is behind a URL is asked more and more seldom while it fails."""

    ERROR = "unverified for now: s3://b/run: the store is throttling"
    MENDED_BY_PEOPLE = "s3://b/run: the store refuses the worker container's credentials"

    child = TestPlayedChild.child

    @pytest.fixture
    def store(self, child):
        return Scanner("s3://b/run", 10.0, 60.0, clock=lambda: 1_795_348_800.0)

    def fails(self, store, child, now, error, kind=UNVERIFIED_FOR_NOW):
        """The scan that is due at this moment fails; what is said of it, and the pause after it."""
        store.poll(now, {})
        child.say(scan=store.scans, looks=1, error=error, errorKind=kind)
        result = store.poll(now, {})
        assert result is None or result.error_kind == kind
        return (result.error if result else None), store.next_at() - now

    def test_the_pauses_grow_and_end_with_a_scan_that_succeeds(self, store, child):
        store.scan_for(1)
        now, pauses = 100.0, []
        for _ in range(5):
            error, pause = self.fails(store, child, now, self.ERROR)
            assert error == self.ERROR
            pauses.append(pause)
            now += pause
        assert pauses == [20.0, 40.0, 60.0, 60.0, 60.0]
        store.poll(now, {})
        child.tell(store.scans, [(30, True)], done=True)
        assert seen(store.poll(now, {})) == [(30, True)]
        assert store.next_at() == now + 10.0
        error, pause = self.fails(store, child, now + 10.0, self.ERROR)
        assert (error, pause) == (f"{self.ERROR} (listed last at 2026-11-22 12:00:00 UTC)", 20.0)

    @pytest.mark.parametrize(("seconds", "pause"), [(0.5, 10.0), (3.0, 30.0), (20.0, 60.0)])
    def test_while_ranks_run_it_rests_ten_times_as_long_as_it_worked(self, store, child, seconds, pause):
        store.poll(100.0, {})
        child.tell(store.scans, [(30, True)], done=True)
        store.poll(100.0 + seconds, {})
        assert store.next_at() == 100.0 + seconds + pause

    def test_a_start_asks_at_once_whatever_the_pause(self, store, child):
        self.fails(store, child, 100.0, self.ERROR)
        store.scan_for(2)
        assert store.next_at() == 0.0

    def test_while_ranks_run_one_that_fails_now_and_then_is_not_told(self, store, child):
        told = [self.fails(store, child, now, self.ERROR)[0] for now in (100.0, 200.0, 300.0)]
        assert told == [None, None, self.ERROR]

    def test_what_people_have_to_mend_is_told_at_once(self, store, child):
        assert self.fails(store, child, 100.0, self.MENDED_BY_PEOPLE, UNVERIFIED)[0] == self.MENDED_BY_PEOPLE

    def test_one_that_hangs_is_killed_and_asked_again_later(self, store, child):
        store.scan_for(1)
        store.poll(100.0, {})
        assert store.poll(159.0, {}) is None
        result = store.poll(160.0, {})
        assert result.error_kind == UNVERIFIED_FOR_NOW
        assert result.error == "unverified for now: no answer from s3://b/run within 60 s: does the store answer?"
        assert child.killed == [signal.SIGKILL]
        store.poll(161.0, {child.process.pid: 9})
        child.again()
        assert store.next_at() == 180.0
        store.poll(180.0, {})
        assert [request["scan"] for request in child.heard() if "scan" in request] == [2]

    def test_another_directory_that_cannot_be_seen_makes_the_pauses_grow_too(self, child):
        scanner = Scanner("/c", PERIOD_SECONDS, DEADLINE_SECONDS)
        scanner.follow(Directive(WAIT, attempt=1, requested_resume="", requested_directory="s3://b/base"))
        scanner.scan_for(1)
        now, pauses = 100.0, []
        for kind in (UNVERIFIED, UNVERIFIED_FOR_NOW, ""):
            scanner.poll(now, {})
            child.tell(scanner.scans, [(30, True)], done=True, elsewhereError="why", elsewhereErrorKind=kind)
            assert scanner.poll(now, {}).elsewhere_error_kind == kind
            pauses.append(scanner.next_at() - now)
            now += pauses[-1]
        assert pauses == [20.0, 40.0, 10.0]


class TestWhichChild:
    @pytest.mark.parametrize(
        ("directory", "elsewhere", "period", "deadline", "sees_packages"),
        [
            ("/c", None, PERIOD_SECONDS, DEADLINE_SECONDS, False),
            ("/c", "/other", PERIOD_SECONDS, DEADLINE_SECONDS, False),
            ("/c", "s3://b/base", 10.0, 60.0, True),
            ("s3://b/run", None, 10.0, 60.0, True),
            ("s3://b/run", "/other", 10.0, 60.0, True),
        ],
    )
    def test_a_store_is_asked_seldom_and_patiently(self, directory, elsewhere, period, deadline, sees_packages):
        begun = []

        def converse(kind):
            return lambda *arguments: begun.append((kind, arguments)) or SimpleNamespace(write=len, descriptor=0, pid=0)

        scanner = Scanner(directory, PERIOD_SECONDS, DEADLINE_SECONDS, converse(False), converse(True))
        scanner.follow(Directive(WAIT, attempt=1, requested_resume="", requested_directory=elsewhere))
        scanner._ask(100.0)
        assert begun == [(sees_packages, ("--scan-on-request", directory))]
        assert (scanner.period_seconds, scanner.deadline_seconds) == (period, deadline)


class Hanging(Files):
    """A file system that does not tell what is free until it is let go, and then another figure each time."""

    def __init__(self):
        self.let_go = threading.Event()
        self.asked = 0

    def free_bytes(self, directory):
        self.asked += 1
        self.let_go.wait(PATIENCE_SECONDS)
        return self.asked


class TestRoom:
    def test_a_file_system_that_never_tells_what_is_free_keeps_no_scan_waiting(self, tmp_path):
        write_checkpoint(tmp_path, 10)
        said, files, threads = [], Hanging(), []

        def aside(call):
            threads.append(threading.Thread(target=call, daemon=True))
            threads[-1].start()

        looks = ScanServer(
            str(tmp_path),
            lambda line: said.append(json.loads(line)),
            lambda: False,
            files_at=lambda _: files,
            aside=aside,
        )

        def scan(number):
            looks.hear([json.dumps({**REQUEST, "scan": number}).encode()])
            return said[-1]

        for number in (1, 2, 3):
            answer = scan(number)
            assert (answer["scan"], answer["done"], answer["freeBytes"]) == (number, True, None)
        assert files.asked == 1, "one thread that hangs is enough"
        files.let_go.set()
        threads[-1].join(PATIENCE_SECONDS)
        assert scan(4)["freeBytes"] == 1
        threads[-1].join(PATIENCE_SECONDS)
        assert scan(5)["freeBytes"] == 2

    def test_where_no_thread_is_to_be_had_a_scan_ends_nevertheless(self, tmp_path, monkeypatch):
        def refuse(_self):
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(threading.Thread, "start", refuse)
        said = []
        looks = ScanServer(str(tmp_path), lambda line: said.append(json.loads(line)), lambda: False)
        looks.hear([json.dumps(REQUEST).encode()])
        assert (said[-1]["done"], said[-1]["error"], said[-1]["freeBytes"]) == (True, "", None)


@pytest.mark.parametrize(("written_ns", "told"), [(-5, 0), (7, 7), (2**63 - 1, 2**63 - 1), (2**63, 2**63 - 1)])
def test_any_time_that_a_file_has_can_be_reported(written_ns, told):
    item = {"step": 1, "path": "/c/1", "writtenNs": written_ns, "judged": True}
    assert _report(item).written_ns == told


def test_a_verdict_from_before_sizes_were_known_is_one():
    data = Verdict("/c/1", "files", "glance", "probe", "").to_json()
    old = {name: value for name, value in data.items() if name not in ("size_bytes", "saving_ns")}
    assert (verdict_from(old).path, verdict_from(old).size_bytes) == ("/c/1", 0)

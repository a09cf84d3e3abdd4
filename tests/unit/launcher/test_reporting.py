"""The connection to the coordinator: away, stalled, refusing, with another certificate; and news that cannot wait."""

from __future__ import annotations

import dataclasses
import http.client
import itertools
import shutil
import socket
import threading
from types import SimpleNamespace

import pytest
from tests.unit.launcher.paced import Paced, an_idle_worker_is_silent_while_its_answer_is_held
from tests.unit.launcher.real_launchers import (
    STEPS,
    a_missing_setting_is_named,
    a_restart_is_told_with_the_scan_for_it,
    an_error_answer_changes_nothing,
)

from localcluster.patience import PATIENCE_SECONDS
from muster.node.launcher import reporter as reporter_module
from muster.node.launcher.environment import Settings
from muster.node.launcher.reporter import Reporter
from muster.node.launcher.reporter_core import DONE_SECONDS, ReporterCore, is_done, supersedes
from muster.node.launcher.snapshot import Snapshot
from muster.protocol.channel import Channel, Endpoint, UnreachableError, leader_in
from muster.protocol.messages import (
    EXIT,
    EXITED,
    IDLE,
    RECLAIMING,
    REPORT_PATH,
    RUN,
    RUNNING,
    WAIT,
    Directive,
    ProtocolError,
    Report,
    decode_directive,
)
from muster.protocol.retries import POLL, TELL, Pause

END_WHEN_TOLD = """
import os, time
while not os.path.exists(os.path.join(os.environ["TEST_DIRECTORY"], "end")):
    time.sleep(0.01)
"""


def held(coordinator) -> int:
    """How many reports ask for their answer to be held."""
    return sum(1 for item in coordinator.received if item.report.hold_seconds > 0)


def test_news_is_sent_while_an_answer_is_held(coordinator, run_python, tmp_path):
    run_python(END_WHEN_TOLD)
    coordinator.run(1, hold_seconds=600.0, poll_seconds=600.0)
    coordinator.wait_for(lambda r: r.state == RUNNING)
    coordinator.wait_for(lambda _: held(coordinator) == 1)  # it stays held to the end of this test
    (tmp_path / "end").touch()
    coordinator.wait_for(lambda r: r.state == EXITED)
    assert held(coordinator) == 1


def test_a_changed_directive_arrives_by_the_held_answer(coordinator, run_python):
    run_python(STEPS)
    coordinator.wait_to_run(1, hold_seconds=600.0, poll_seconds=600.0)
    coordinator.wait_for(lambda _: held(coordinator) == 1)
    coordinator.run(1)
    coordinator.wait_for(lambda r: r.state == RUNNING)


def test_sequence_grows_and_connections_are_kept(coordinator, run_python):
    run_python(STEPS)
    coordinator.run(1, poll_seconds=0.1)
    coordinator.wait_for(lambda r: r.sequence > 20)
    connections = {item.connection for item in coordinator.received}
    assert len(connections) <= 5, "two, and some more where a machine has stood still for longer than a report may take"
    sequences = [item.report.sequence for item in coordinator.received]
    assert len(set(sequences)) == len(sequences)


def test_an_overdue_poll_is_not_waited_for(coordinator, run_python):
    run_python(STEPS)
    coordinator.run(1, hold_seconds=600.0, poll_seconds=0.2)
    coordinator.wait_for(lambda r: r.step is not None and held(coordinator) == 1)
    first = len(coordinator.received)
    coordinator.wait_for(lambda _: len(coordinator.received) >= first + 5)
    assert held(coordinator) == 1, "its answer is still held"


def test_a_restart_is_told_with_the_scan_for_it(coordinator, run_python, tmp_path):
    (tmp_path / "checkpoints").mkdir()
    a_restart_is_told_with_the_scan_for_it(
        coordinator, run_python, MUSTER_CHECKPOINT_DIRECTORY=str(tmp_path / "checkpoints")
    )


def test_an_error_answer_changes_nothing(coordinator, run_python, until):
    an_error_answer_changes_nothing(coordinator, run_python, until, 503)


def test_a_coordinator_that_is_away_does_not_disturb_training(coordinator, run_python, new_coordinator, until):
    launcher = run_python(STEPS, MUSTER_FENCE_SECONDS="0.3")  # no neighbour: the fence stays open
    coordinator.run(1)
    step = coordinator.wait_for(lambda r: r.step is not None).step
    (progress,) = launcher.directory.glob("attempt-1/*progress*")
    coordinator.close()
    until(lambda: "no answer from the coordinator" in launcher.error_text, "the trouble to be seen")
    made = len(progress.read_text())
    until(lambda: len(progress.read_text()) > made + 200, "more steps, for longer than the fence")
    second = new_coordinator(coordinator.authority, coordinator.port)
    second.run(1)
    report = second.wait_for(lambda r: r.step is not None and r.step > step)
    assert (report.state, report.attempt) == (RUNNING, 1)
    assert report.directive_seen != ""


def test_a_coordinator_that_never_answers_is_not_waited_for(coordinator, run_python, tmp_path, until):
    launcher = run_python(END_WHEN_TOLD + "print('ended by itself', flush=True)")
    coordinator.run(1)
    coordinator.wait_for(lambda r: r.state == RUNNING)
    coordinator.stall(stalled=True)
    (tmp_path / "end").touch()
    until(lambda: "attempt 1: rank 0 ended with exit code 0" in launcher.error_text, "the end of the rank to be seen")
    coordinator.stall(stalled=False)
    coordinator.wait_for(lambda r: r.state == EXITED)


def test_an_answer_that_is_no_directive_changes_nothing(coordinator, run_python, until, monkeypatch):
    launcher = run_python(STEPS)
    coordinator.run(1)
    coordinator.wait_for(lambda r: r.state == RUNNING)
    monkeypatch.setattr(coordinator, "answer", lambda *_: (200, b'{"kind": 5'))
    until(lambda: "not JSON" in launcher.error_text, "the trouble to be seen")
    monkeypatch.undo()
    sequence = coordinator.latest.sequence
    assert coordinator.wait_for(lambda r: r.sequence > sequence).state == RUNNING


def test_the_name_in_the_certificate_is_verified(coordinator, run_python, until):
    launcher = run_python(STEPS, MUSTER_COORDINATOR_NAME="somebody.else.test")
    coordinator.run(1)
    until(lambda: "no answer from the coordinator" in launcher.error_text, "the trouble to be seen")
    assert "certificate" in launcher.error_text
    assert coordinator.latest is None


def test_a_renewed_authority_is_read_again(coordinator, run_python, new_coordinator, new_authority, tmp_path, until):
    bundle = tmp_path / "bundle.pem"
    shutil.copy(coordinator.authority.ca, bundle)
    launcher = run_python(STEPS, MUSTER_CA_FILE=str(bundle))
    coordinator.run(1)
    coordinator.wait_for(lambda r: r.state == RUNNING)
    coordinator.close()
    renewed = new_authority()
    second = new_coordinator(renewed, coordinator.port)
    second.run(1)
    until(lambda: "certificate verify failed" in launcher.error_text, "the new certificate to be refused")
    fresh = tmp_path / "bundle.new"
    fresh.write_bytes(coordinator.authority.ca.read_bytes() + renewed.ca.read_bytes())
    fresh.rename(bundle)
    assert second.wait_for(lambda r: r.state == RUNNING).attempt == 1


def test_a_renewed_token_is_read_again(coordinator, run_python, until):
    launcher = run_python(STEPS)
    coordinator.run(1)
    coordinator.wait_for(lambda r: r.state == RUNNING)
    (launcher.directory / "token").write_text("expired")
    until(lambda: "it answered 401" in launcher.error_text, "the token to be refused")
    (launcher.directory / "token").write_text("a-token")
    sequence = coordinator.latest.sequence
    coordinator.wait_for(lambda r: r.sequence > sequence)


def test_a_launcher_that_starts_before_the_coordinator_waits_for_it(coordinator, launch, new_coordinator, until):
    coordinator.close()
    launcher = launch("true")
    until(lambda: "no answer from the coordinator" in launcher.error_text, "the trouble to be seen")
    second = new_coordinator(coordinator.authority, coordinator.port)
    second.run(1)
    second.wait_for(lambda r: r.state == EXITED)


def test_a_server_that_accepts_and_stays_silent_does_not_hold_up_sigterm(launch, coordinator, until):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        launcher = launch("true", MUSTER_COORDINATOR=f"https://127.0.0.1:{silent.getsockname()[1]}")
        until(lambda: "reports to" in launcher.error_text, "the launcher to start")
        launcher.process.terminate()
        assert launcher.wait() == 143


def test_a_missing_setting_is_named(launch):
    a_missing_setting_is_named(launch, "MUSTER_TOKEN_FILE")


class SteppedTime:
    """The condition and the clock of a reporter: the clock advances only while all of its threads wait.

    Attributes:
        waits: how often a thread has begun to wait.
        over: set at the end of the time, or when there were too many waits.
    """

    def __init__(self, threads: int, seconds: float, most_waits: int) -> None:
        self.now, self.waits, self.over = 1000.0, 0, threading.Event()
        self._end, self._threads, self._most_waits = self.now + seconds, threads, most_waits
        self._inner = threading.Condition()
        self._due: dict[int, float] = {}

    def monotonic(self) -> float:
        return self.now

    def __enter__(self) -> None:
        self._inner.acquire()

    def __exit__(self, *_: object) -> None:
        self._inner.release()

    def notify_all(self) -> None:
        self._due.clear()
        self._inner.notify_all()

    def wait(self, timeout: float | None = None) -> None:
        me = threading.get_ident()
        self.waits += 1
        self._due[me] = self._end + 1.0 if timeout is None else self.now + timeout
        if len(self._due) == self._threads:
            self.now = min(self._due.values())
            self._due = {thread: due for thread, due in self._due.items() if due > self.now}
            self._inner.notify_all()
        if self.now >= self._end or self.waits >= self._most_waits:
            self.over.set()
        while me in self._due or self.over.is_set():  # at the end the threads stay here
            self._inner.wait()


def test_an_idle_launcher_without_a_coordinator_sleeps(monkeypatch):
    """It is overdue all the time, and has nothing to say but that it is there."""
    seconds = 60.0
    stepped = SteppedTime(threads=2, seconds=seconds, most_waits=int(25 * seconds))
    monkeypatch.setattr(reporter_module, "time", stepped)
    monkeypatch.setattr(reporter_module, "random", SimpleNamespace(random=lambda: 0.5))
    tries = []

    def refuse(*_):
        tries.append(stepped.now)
        raise UnreachableError("connection refused")

    settings = Settings("127.0.0.1", 1, "c", "", "", "", 0, "")
    reporter = Reporter(settings, Report(0, IDLE), lambda: None, lambda _: None)
    monkeypatch.setattr(reporter, "_channel", lambda stays=False: SimpleNamespace(exchange=refuse))
    reporter._core._pace = Directive(WAIT, 1, poll_seconds=0.1)
    reporter._changed = stepped
    reporter.start()
    assert stepped.over.wait(PATIENCE_SECONDS)
    assert (stepped.waits < 25 * seconds, stepped.now >= 1000.0 + seconds) == (True, True)
    assert seconds / 2 < len(tries) < 10 * seconds


def test_an_idle_worker_does_not_flood_the_coordinator():
    an_idle_worker_is_silent_while_its_answer_is_held(120.0)


def test_steps_are_told_once_in_each_pace():
    paced = Paced(hold_seconds=1.5, poll_seconds=1.5)
    paced.world.start()
    told = paced.reports(60.0)
    assert 39 <= len(told) <= 40
    assert {name for name, _ in told} == {POLL}, "the other connection has nothing to say"
    steps = [report.step for _, report in told]
    assert all(before < after for before, after in itertools.pairwise(steps))


def test_a_restart_takes_two_reports():
    paced = Paced(hold_seconds=600.0, poll_seconds=600.0)
    paced.world.start()
    paced.world.makes_steps = False  # the first one is news
    for attempt in (2, 3):
        paced.world.attempt, paced.world.runs = attempt, False
        (idle,) = paced.reports(5.0)
        paced.world.runs = True
        (running,) = paced.reports(5.0)
        assert [(report.state, report.attempt) for _, report in (idle, running)] == [
            (IDLE, attempt),
            (RUNNING, attempt),
        ]


class Unsteady(Channel):
    """Fails as told, then answers; every connection is kept."""

    def __init__(self, errors, kept):
        super().__init__(Endpoint("127.0.0.1", 1, "c", "", ""), REPORT_PATH, decode_directive)
        self.errors, self.tries = errors, 0
        self._connection = http.client.HTTPSConnection("127.0.0.1") if kept else None

    def _exchange(self, body, timeout_seconds):
        self.tries += 1
        self._connection = http.client.HTTPSConnection("127.0.0.1")
        if self.errors:
            raise self.errors.pop(0)
        return Directive(WAIT, 1), "digest"


def test_a_kept_connection_that_was_closed_is_replaced_once():
    channel = Unsteady([http.client.RemoteDisconnected("closed")], kept=True)
    assert channel.exchange(Report(1, IDLE), 1.0) == (Directive(WAIT, 1), "digest")
    assert channel.tries == 2


@pytest.mark.parametrize(
    ("errors", "kept", "tries"),
    [
        pytest.param([ConnectionResetError("first"), BrokenPipeError("no more")], True, 2, id="closed again"),
        pytest.param([ConnectionRefusedError("no more")], False, 1, id="a new connection"),
        pytest.param([TimeoutError("no more")], True, 1, id="no answer in time"),
        pytest.param([ProtocolError("no more")], True, 1, id="no directive"),
    ],
)
def test_nobody_is_asked_again_in_vain(errors, kept, tries):
    channel = Unsteady(errors, kept)
    with pytest.raises(UnreachableError, match="no more"):
        channel.exchange(Report(1, IDLE), 1.0)
    assert (channel.tries, channel._connection) == (tries, None)


READY = Snapshot(IDLE, attempt=2, checkpoints_scanned_for_attempt=2)
DONE = {
    "nothing was said yet": (None, READY, True, True),
    "waiting": (Directive(WAIT, 2), READY, True, True),
    "a scan is missing": (Directive(WAIT, 2), Snapshot(IDLE, attempt=2), True, False),
    "a scan is to be made anew": (Directive(WAIT, 2, listing_round=1), READY, True, False),
    "it was": (Directive(WAIT, 2, listing_round=1), dataclasses.replace(READY, listing_round=1), True, True),
    "less is asked for than was": (Directive(WAIT, 2), dataclasses.replace(READY, listing_round=1), True, True),
    "nothing is scanned here": (Directive(WAIT, 2), Snapshot(IDLE, attempt=2), False, True),
    "the scan has failed": (Directive(WAIT, 2), Snapshot(IDLE, attempt=2, checkpoint_error="denied"), True, True),
    "still in the attempt before": (Directive(WAIT, 3), READY, True, False),
    "old ranks are ending": (Directive(WAIT, 2), Snapshot(RECLAIMING, attempt=1), False, False),
    "not started yet": (Directive(RUN, 2), READY, True, False),
    "running": (Directive(RUN, 2), Snapshot(RUNNING, attempt=2), True, True),
    "some ranks are not up": (Directive(RUN, 2), Snapshot(RUNNING, attempt=2, is_starting=True), True, False),
    "ended at once": (Directive(RUN, 2), Snapshot(EXITED, attempt=2), True, True),
    "running the attempt before": (Directive(RUN, 2), Snapshot(RUNNING, attempt=1), True, False),
    "ejected": (Directive(RUN, 2, ejected=True), Snapshot(RUNNING, attempt=2, ejected=True), True, True),
    "not ejected yet": (Directive(RUN, 2, ejected=True), Snapshot(RUNNING, attempt=2), True, False),
    "exiting": (Directive(EXIT), READY, True, False),
    "told something unknown": (Directive("Dance", 9), READY, True, True),
}


@pytest.mark.parametrize(("directive", "snapshot", "scans", "expected"), DONE.values(), ids=DONE.keys())
def test_when_a_directive_is_done(directive, snapshot, scans, expected):
    assert is_done(directive, snapshot, scans) is expected


@pytest.mark.parametrize("seconds", [0.9 * DONE_SECONDS, 1.1 * DONE_SECONDS], ids=["soon", "late"])
def test_the_next_poll_tells_what_is_done_soon(seconds):
    """The other line has no connection while nothing happens, and a gang that is stopped would open one each."""
    core = ReporterCore(Report(0, IDLE), False, 100.0, lambda _text: None, lambda: 1.0)
    core.on_answer(POLL, core.next_action(POLL, 100.0), Directive(RUN, 1), "run", 100.0)
    core.publish(Snapshot(RUNNING, attempt=1, is_starting=True))
    assert isinstance(core.next_action(TELL, 100.0 + 0.9 * seconds), Pause)
    core.publish(Snapshot(RUNNING, attempt=1))
    poll = core.next_action(POLL, 100.0 + seconds)
    assert (poll.report.state, poll.report.attempt) == (RUNNING, 1)
    assert isinstance(core.next_action(TELL, 100.0 + seconds), Pause), "nothing is left to say"


ORDER = {
    "the first": (Directive(WAIT, 1), None, True),
    "the next attempt": (Directive(WAIT, 2), Directive(RUN, 1), True),
    "an older attempt": (Directive(RUN, 1), Directive(WAIT, 2), False),
    "run after wait": (Directive(RUN, 1), Directive(WAIT, 1), True),
    "wait after run": (Directive(WAIT, 1), Directive(RUN, 1), False),
    "the same again": (Directive(RUN, 1, reason="again"), Directive(RUN, 1), True),
    "exit": (Directive(EXIT), Directive(RUN, 5), True),
    "nothing after exit": (Directive(RUN, 6), Directive(EXIT), False),
    "an unknown kind": (Directive("Dance", 9), Directive(RUN, 1), False),
}


@pytest.mark.parametrize(("new", "old", "expected"), ORDER.values(), ids=ORDER.keys())
def test_directives_that_arrive_out_of_order(new, old, expected):
    assert supersedes(new, old) is expected


LEADERS = {
    "an address": (b'{"error": "another leads", "leader": "10.0.0.7:8443"}', ("10.0.0.7", 8443)),
    "one of version 6": (b'{"leader": "[fd00::7]:8443"}', ("fd00::7", 8443)),
    "one of version 6, bare": (b'{"leader": "fd00::7:8443"}', ("fd00::7", 8443)),
    "a name, which would have to be looked up": (b'{"leader": "somebody:8443"}', None),
    "nobody": (b'{"error": "nobody leads", "leader": ""}', None),
    "no port": (b'{"leader": "10.0.0.7"}', None),
    "a port beyond all": (b'{"leader": "10.0.0.7:99999"}', None),
    "something else": (b'{"leader": 5}', None),
    "no answer of a replica": (b"Misdirected Request", None),
}


@pytest.mark.parametrize(("data", "leader"), LEADERS.values(), ids=LEADERS.keys())
def test_who_is_said_to_lead(data, leader):
    assert leader_in(data) == leader


def test_a_launcher_follows_to_the_leader_and_comes_back_when_it_is_gone(
    coordinator, run_python, new_coordinator, until
):
    leader = new_coordinator(coordinator.authority, 0)
    coordinator.misdirect_to(f"127.0.0.1:{leader.port}")
    leader.run(1)
    launcher = run_python(STEPS)
    step = leader.wait_for(lambda r: r.step is not None).step
    assert coordinator.latest is None
    assert "no answer from the coordinator" not in launcher.error_text
    leader.close()
    until(lambda: "no answer from the coordinator" in launcher.error_text, "the end of the leader to be seen")
    coordinator.misdirect_to("")
    coordinator.run(1)
    coordinator.wait_for(lambda r: r.step is not None and r.step > step)


def test_a_replica_that_does_not_lead_is_kept_until_it_knows_who_does(coordinator, run_python, until):
    coordinator.misdirect_to("nobody")
    launcher = run_python(STEPS)
    until(lambda: "it answered 421" in launcher.error_text, "the trouble to be seen")
    until(lambda: coordinator.misdirected > 6, "more reports")
    told = [connection for connection in coordinator.connections if coordinator.connections[connection] > 2]
    assert told, "one line stays"
    coordinator.misdirect_to("")
    coordinator.run(1)
    coordinator.wait_for(lambda r: r.step is not None)


def test_who_leads_must_have_the_certificate_too(coordinator, run_python, new_coordinator, new_authority, until):
    impostor = new_coordinator(new_authority(), 0)
    coordinator.misdirect_to(f"127.0.0.1:{impostor.port}")
    impostor.run(1)
    launcher = run_python(STEPS)
    until(lambda: "certificate verify failed" in launcher.error_text, "the impostor to be refused")
    assert impostor.latest is None

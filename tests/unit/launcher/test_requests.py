"""What ranks are asked for comes to them by a file, and goes again; who was asked to leave gets SIGTERM first."""

from __future__ import annotations

import errno
import json
import signal
import sys

import pytest
from tests.unit.launcher.gang import World

from muster.node.launcher import requests
from muster.node.launcher.requests import RankRequest, Requests
from muster.protocol.messages import EXITED, IDLE, LEAVE, RUN, RUNNING, SAVE, WAIT, Directive

ASKED = {"request": 2, "request_kind": LEAVE, "request_seconds": 300.0, "request_reason": "NodeCordoned"}
# Prints what it is asked for when that changes, follows it, and ends once its own code runs on SIGTERM.
LOOKS = """
import json, os, pathlib, signal, sys, time
def told(number, frame):
    print("has SIGTERM", flush=True)
    sys.exit(7)
signal.signal(signal.SIGTERM, told)
path, seen = pathlib.Path(os.environ["MUSTER_REQUESTS"]), None
print("looks", flush=True)
while True:
    try:
        text = path.read_text()
    except FileNotFoundError:
        text = ""
    if text != seen and (text or seen):
        print("asked:", text.strip() or "nothing", flush=True)
        if text:
            with open(os.environ["MUSTER_PROGRESS"], "a") as file:
                file.write(json.dumps({"request": json.loads(text)["number"]}) + "\\n")
    seen = text
    time.sleep(0.02)
"""
IGNORES = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)"
)


def test_ranks_read_what_they_are_asked_for_and_say_that_they_follow_it(coordinator, run_python, until):
    launcher = run_python(LOOKS)
    coordinator.run(1)
    until(lambda: "looks" in launcher.text, "the rank")
    assert "asked" not in launcher.text
    coordinator.run(1, **ASKED)
    report = coordinator.wait_for(lambda r: r.request_answered == 2)
    assert (report.request, report.state) == (2, RUNNING)
    line = next(line for line in launcher.text.splitlines() if line.startswith("asked: "))
    assert json.loads(line.removeprefix("asked: ")) == {
        "number": 2,
        "kind": "Leave",
        "seconds": 300.0,
        "reason": "NodeCordoned",
    }
    coordinator.run(1)
    until(lambda: "asked: nothing" in launcher.text, "the request to go")
    assert coordinator.wait_for(lambda r: r.request == 0).request_answered == 2


def test_an_answer_to_no_request_hides_none(coordinator, run_python, until):
    launcher = run_python(
        """
import os, time
file = open(os.environ["MUSTER_PROGRESS"], "a", buffering=1)
file.write('{"request": 99}\\n')
while not os.path.exists(os.environ["MUSTER_REQUESTS"]):
    time.sleep(0.02)
file.write('{"request": 2}\\n')
os._exit(0)
"""
    )
    coordinator.run(1)
    until(lambda: "is ignored: no request of that number was made" in launcher.error_text, "the first answer")
    coordinator.run(1, **ASKED)
    assert coordinator.wait_for(lambda r: r.state == EXITED).request_answered == 2
    assert launcher.error_text.count("is ignored") == 1


def test_nothing_is_asked_of_the_next_attempt(coordinator, run_python, until):
    launcher = run_python(LOOKS)
    coordinator.run(1, **ASKED)
    coordinator.wait_for(lambda r: r.request_answered == 2)
    coordinator.wait_to_run(2)
    coordinator.wait_for(lambda r: r.state == IDLE and r.attempt == 2)
    coordinator.run(2)
    until(lambda: launcher.text.count("looks") == 2, "the next rank")
    report = coordinator.wait_for(lambda r: r.state == RUNNING and r.attempt == 2)
    assert (report.request, report.request_answered) == (0, 0)
    assert launcher.text.count("asked") == 1


def test_who_was_asked_to_leave_gets_sigterm(coordinator, run_python):
    launcher = run_python(LOOKS)
    coordinator.run(1, **ASKED)
    coordinator.wait_for(lambda r: r.request_answered == 2)
    coordinator.wait_to_run(2)
    report = coordinator.wait_for(lambda r: r.state == IDLE and r.attempt == 2)
    (rank,) = report.previous_ranks
    assert (rank.exit_code, rank.ended_by_launcher) == (7, True), "its code is no failure of its own"
    assert "has SIGTERM" in launcher.text


@pytest.mark.parametrize("asked", [{}, {**ASKED, "request_kind": SAVE}, {**ASKED, "request_kind": "Dance"}])
def test_who_was_not_is_killed_at_once(coordinator, run_python, until, asked):
    launcher = run_python(LOOKS)
    coordinator.run(1, **asked)
    until(lambda: "looks" in launcher.text, "the rank")
    coordinator.wait_to_run(2)
    report = coordinator.wait_for(lambda r: r.state == IDLE and r.attempt == 2)
    assert [(rank.signal, rank.ended_by_launcher) for rank in report.previous_ranks] == [(signal.SIGKILL, True)]
    assert "has SIGTERM" not in launcher.text


def test_who_ignores_it_is_killed(coordinator, run_python, until):
    launcher = run_python(IGNORES)
    coordinator.run(1, **ASKED)
    until(lambda: "ready" in launcher.text, "the rank")
    coordinator.wait_for(lambda r: r.request == 2)
    coordinator.wait_to_run(2)
    report = coordinator.wait_for(lambda r: r.state == IDLE and r.attempt == 2)
    assert [rank.signal for rank in report.previous_ranks] == [signal.SIGKILL]


def test_a_pod_that_ends_gives_them_the_time_too(coordinator, run_python):
    launcher = run_python(LOOKS)
    coordinator.run(1, **ASKED)
    coordinator.wait_for(lambda r: r.request_answered == 2)
    launcher.process.terminate()
    assert launcher.wait() == 128 + signal.SIGTERM
    assert "has SIGTERM" in launcher.text


@pytest.mark.parametrize("withdrawn", [False, True])
def test_who_has_saved_and_failed_has_the_checkpoints_listed(coordinator, run_python, tmp_path, withdrawn):
    saves = tmp_path / "saves"
    run_python(
        """
import json, os, time
while not os.path.exists(os.environ["MUSTER_REQUESTS"]):
    time.sleep(0.02)
open(os.environ["MUSTER_PROGRESS"], "a").write('{"request": 2}\\n')
while not os.path.exists(os.environ["SAVES"]):
    time.sleep(0.02)
target = os.path.join(os.environ["MUSTER_CHECKPOINT_DIRECTORY"], "step-7")
os.makedirs(target)
open(os.path.join(target, "muster-checkpoint.json"), "w").write('{"step": 7, "files": []}')
os._exit(3)
""",
        MUSTER_CHECKPOINT_DIRECTORY=str(tmp_path / "checkpoints"),
        MUSTER_SCAN_SECONDS="3600",
        SAVES=str(saves),
    )
    coordinator.run(1, **ASKED)
    coordinator.wait_for(lambda r: r.request_answered == 2)
    if withdrawn:
        coordinator.run(1)
        coordinator.wait_for(lambda r: r.request == 0)
    saves.touch()
    report = coordinator.wait_for(lambda r: r.state == EXITED and not r.lists_after_end)
    assert [checkpoint.step for checkpoint in report.checkpoints] == [7]


def test_who_fails_after_a_save_is_reported_at_once(coordinator, run_python, tmp_path):
    """It was not asked to leave, so its code is a failure, for which no list of checkpoints is waited for."""
    run_python(
        """
import os, time
while not os.path.exists(os.environ["MUSTER_REQUESTS"]):
    time.sleep(0.02)
open(os.environ["MUSTER_PROGRESS"], "a").write('{"request": 2}\\n')
os._exit(3)
""",
        MUSTER_CHECKPOINT_DIRECTORY=str(tmp_path / "checkpoints"),
        MUSTER_SCAN_SECONDS="3600",
    )
    coordinator.run(1, **{**ASKED, "request_kind": SAVE})
    report = coordinator.wait_for(lambda r: r.state == EXITED)
    assert (report.request_answered, report.lists_after_end) == (2, False)


def a_directive(number: int | None, kind: str = RUN) -> Directive:
    return Directive(kind, attempt=1, request=number, request_kind=LEAVE, request_seconds=1.0, request_reason="Why")


def test_a_file_that_cannot_be_written_is_tried_again_and_said_once():
    tried: list[tuple[int, str]] = []
    said: list[str] = []

    def put(attempt: int, text: str) -> None:
        tried.append((attempt, text))
        if len(tried) < 3:
            raise OSError(errno.ENOSPC, "No space left on device")

    asks = Requests(put, said.append)
    for expected in (0, 0, 4, 4):
        asks.follow(a_directive(4))
        assert asks.number == expected
    assert len(tried) == 3
    assert said == [
        "attempt 1: the ranks cannot be asked for anything: [Errno 28] No space left on device",
        "attempt 1: asks its ranks for Leave (Why)",
    ]


def test_only_who_runs_ranks_asks_them():
    assert requests.requested(a_directive(1, WAIT)) is None
    assert requests.requested(a_directive(None)) is None
    assert requests.requested(a_directive(1)) == RankRequest(1, LEAVE, 1.0, "Why")


def test_what_lies_in_the_place_of_the_file_is_not_followed(tmp_path):
    """The rank may put anything there."""
    path, elsewhere = tmp_path / "requests.json", tmp_path / "elsewhere"
    elsewhere.write_text("mine")
    for at in (path, tmp_path / "requests.json.new"):
        at.symlink_to(elsewhere)
    requests.write_request(str(path), "text")
    assert (path.read_text(), path.is_symlink(), elsewhere.read_text()) == ("text", False, "mine")
    requests.write_request(str(path), "")
    assert not path.exists()
    requests.write_request(str(path), "")


# As Megatron-LM does: a handler notes the signal, and the loop looks for it. A loader beside it has the same handler.
MEGATRON = """
import os, signal, sys, time
got = []
signal.signal(signal.SIGTERM, lambda *_: got.append(1))
if os.fork() == 0:
    while not got:
        time.sleep(0.02)
    print("the loader has got it", flush=True)
    os._exit(0)
print("handles", flush=True)
while not got:
    time.sleep(0.02)
print("exiting program after receiving SIGTERM", flush=True)
sys.exit(0)
"""
# As torchrun does: it starts a process with an environment of its own, and ends all upon the signal.
STARTER = """
import os, signal, subprocess, sys
signal.signal(signal.SIGTERM, lambda *_: (print("the starter has got it", flush=True), os._exit(1)))
environment = dict(os.environ, TORCHELASTIC_RUN_ID="none", RANK="0", LOCAL_RANK="0")
sys.exit(subprocess.call([sys.executable, "-S", *sys.argv[-2:]], env=environment))
"""


@pytest.mark.parametrize("started", [False, True], ids=["directly", "by torchrun"])
def test_ranks_that_save_upon_a_signal_get_one_and_no_others(coordinator, launch, until, tmp_path, started):
    program, starter = tmp_path / "pretrain_gpt.py", tmp_path / "torchrun"
    program.write_text(MEGATRON)
    starter.write_text(f"#!{sys.executable} -S\n{STARTER}")
    starter.chmod(0o755)
    first = [str(starter)] if started else [sys.executable, "-S"]
    launcher = launch(*first, str(program), "--exit-signal-handler")
    coordinator.run(1)
    until(lambda: "handles" in launcher.text, "the rank")
    coordinator.run(1, **ASKED)
    report = coordinator.wait_for(lambda r: r.state == EXITED)
    assert (report.request_answered, report.ranks[0].exit_code) == (2, 0)
    assert "exiting program" in launcher.text
    assert "the loader has" not in launcher.text
    assert "the starter has" not in launcher.text


def test_a_rank_that_does_not_handle_the_signal_yet_is_not_ended_by_it(coordinator, launch, until, tmp_path):
    program, ready = tmp_path / "pretrain_gpt.py", tmp_path / "ready"
    waits = (
        f"import os, time\nprint('imports', flush=True)\nwhile not os.path.exists({str(ready)!r}): time.sleep(0.02)\n"
    )
    program.write_text(waits + MEGATRON)
    launcher = launch(sys.executable, "-S", str(program), "--exit-signal-handler")
    coordinator.run(1, **ASKED)
    until(lambda: "imports" in launcher.text, "the rank")
    assert coordinator.wait_for(lambda r: r.request == 2).request_answered == 0
    ready.touch()
    assert coordinator.wait_for(lambda r: r.state == EXITED).request_answered == 2


def test_who_may_be_replaced_elsewhere_has_no_time_to_end(monkeypatch):
    """The fence promises that nothing of the gang runs after it."""
    world = World(2)
    world.start()
    supervisor = world.workers[0].supervisor
    supervisor._stops_until = world.workers[0].now() + 5.0
    assert not supervisor._has_stopped()
    monkeypatch.setattr(supervisor, "_why_to_fence", lambda now: "cut off")
    assert supervisor._has_stopped()

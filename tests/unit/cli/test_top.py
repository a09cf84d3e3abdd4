"""`top`: all jobs at a glance."""

import asyncio
import json
import os
import pty
import termios
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from tests.unit.cli.test_status import NOW, a_job, ago, fresh, incident, rfc3339
from tests.unit.waiting import until
from typer.testing import Result

from localcluster.patience import PATIENCE_SECONDS
from muster.answers.fleetreported import AccountedJob, fleet_report
from muster.answers.overview import overview
from muster.api.endedjob import Ending
from muster.api.trainingjob import TrainingJob
from muster.cli.session import Session
from muster.cli.top import screen, watch
from muster.goodput.history import ended_job_record
from muster.goodput.opened import figures_as_of
from muster.kube.errors import Forbidden, Unreachable

Run = Callable[..., Result]
ALL = "/apis/muster.dev/v1alpha1/trainingjobs"
OWN = "/apis/muster.dev/v1alpha1/namespaces/team-a/trainingjobs"


def named(name: str, **status: Any) -> dict[str, Any]:
    job = a_job(**status)
    job["metadata"] = {**job["metadata"], "name": name, "uid": name}
    return job


def waiting(name: str, position: int, fleet: int = 64) -> dict[str, Any]:
    blocked = {
        "needs": 16,
        "level": "block",
        "position": position,
        "queued": 2,
        "free": 4 if fleet else 0,
        "fleet": fleet,
        "remedies": ["2 more nodes"],
    }
    return named(name, state="Pending", reason="InsufficientNodes", waiting=blocked, step=None, goodput=None)


JOBS = [
    fresh(named("runs")),
    waiting("second", 2),
    waiting("first", 1),
    named("done", state="Succeeded", reason="Succeeded"),
    named("heals", state="Recovering", reason="NodeLost", incidents=[incident()]),
]


def test_the_goodput_of_all_is_that_of_the_fleets_report() -> None:
    """One trains, one was suspended for a month: held counts, and nothing else."""
    seconds = {"compute": 36_000, "restarting": 324_000}
    trains, rested = fresh(named("trains")), named("rested", state="Suspended")
    for job, spent in ((trains, seconds), (rested, {"compute": 3600, "suspended": 30 * 86400})):
        held = {name: 8 * amount for name, amount in spent.items() if name != "suspended"}
        job["status"]["goodput"] |= {"creationTime": ago(sum(spent.values())), "countedUntil": ago(0), "seconds": spent}
        job["status"]["goodput"] |= {"gpuSeconds": held}
    jobs = [TrainingJob.model_validate(job) for job in (trains, rested)]
    lives = [
        AccountedJob(ended_job_record(job, None, goodput, Ending.DELETED), "Running", running=True)
        for job in jobs
        if (goodput := figures_as_of(job, NOW)) is not None
    ]
    found, fleet = overview(jobs, "", NOW), fleet_report(lives, NOW)
    assert found.goodput == fleet.goodput == pytest.approx(39.6 / 363.6)
    assert found.ettr == fleet.ettr == pytest.approx(39.6 / 363.6)


def test_a_job_with_a_warning_has_a_mark_and_its_message(printed: Callable[..., str]) -> None:
    warning = {"reason": "DirectoryShared", "message": "that of bert, too", "since": ago(60)}
    found = overview([TrainingJob.model_validate(fresh(named("runs", warnings=[warning])))], "", NOW)
    assert found.jobs[0].warnings == ["DirectoryShared"]
    assert found.jobs[0].message == "that of bert, too"
    assert "! DirectoryShared" in printed(lambda console: console.print(screen(found, NOW, 140)))


@pytest.mark.parametrize("warned", [False, True])
def test_a_job_that_leaves_says_why_and_until_when(warned: bool) -> None:
    leaves = "The job leaves gpu-7 after its next complete checkpoint, at 14:05:11 UTC at the latest."
    running = {"type": "Running", "status": "True", "reason": "NodeCordoned", "lastTransitionTime": ago(60)}
    warning = {"reason": "DirectoryShared", "message": "that of bert, too", "since": ago(60)}
    saving = {"state": "Saving", "reason": "NodeCordoned", "conditions": [{**running, "message": leaves}]}
    job = named("leaves", warnings=[warning] if warned else [], **saving)
    (row,) = overview([TrainingJob.model_validate(fresh(job))], "", NOW).jobs
    assert row.message == f"NodeCordoned: {leaves}"


def test_one_jobs_absurd_figures_hide_no_others() -> None:
    absurd = named("absurd")
    absurd["status"]["goodput"] |= {"stepMilliseconds": 2**53 - 1, "seconds": {"compute": 2**53 - 1}}
    jobs = [TrainingJob.model_validate(job) for job in (absurd, fresh(named("runs")))]
    found = overview(jobs, "", NOW)
    assert {row.name for row in found.jobs} == {"absurd", "runs"}


def test_who_needs_somebody_comes_first_and_ended_ones_only_when_asked(api: Any, command: Run) -> None:
    api.lists(ALL, *JOBS)
    api.is_at(NOW)
    found = json.loads(command("top", "-o", "json").stdout)
    assert [job["name"] for job in found["jobs"]] == ["heals", "first", "second", "runs"]
    assert found["states"] == {"Pending": 2, "Recovering": 1, "Running": 1, "Succeeded": 1}
    assert (found["nodes"], found["namespace"], found["time"][:19]) == (2, "", rfc3339(NOW)[:19])
    first = found["jobs"][1]
    assert (first["position"], first["message"]) == (1, "needs 16 in one block, 4 free; 2 more nodes")
    assert found["jobs"][0]["openIncident"] == 2
    assert found["jobs"][3]["stepsPerSecond"] == 2.0
    assert "done" in command("top", "--all").stdout
    text = command("top").stdout
    assert text.splitlines()[0].startswith(
        "all namespaces: 2 Pending, 1 Recovering, 1 Running, 1 Succeeded; 2 nodes train"
    )
    assert any("team-a/first" in line and "#1: needs 16" in line for line in text.splitlines())


def test_of_a_job_that_only_a_limit_keeps_waiting_no_free_nodes_are_told(api: Any, command: Run) -> None:
    api.lists(ALL, waiting("limited", 1, fleet=0))
    (found,) = json.loads(command("top", "-o", "json").stdout)["jobs"]
    assert found["message"] == "needs 16 in one block; 2 more nodes"


def test_who_may_see_one_namespace_sees_that(api: Any, command: Run) -> None:
    api.errors[ALL] = Forbidden(403, "Forbidden", "no")
    api.lists(OWN, *JOBS)
    found = json.loads(command("top", "-o", "json").stdout)
    assert (found["namespace"], len(found["jobs"])) == ("team-a", 4)
    assert "muster-fleet-view" in found["notes"][0]
    api.errors[OWN] = Forbidden(403, "Forbidden", "no")
    assert command("top").exit_code == 1
    assert command("top", "-n", "team-a").exit_code == 1


@pytest.mark.parametrize("words", [("-A",), ("--all-namespaces",), ("-n", "team-a", "-A")], ids=" ".join)
def test_all_namespaces_are_shown_when_asked_for(words: tuple[str, ...], api: Any, command: Run) -> None:
    api.lists(ALL, *JOBS)
    found = json.loads(command("top", *words, "-o", "json").stdout)
    assert (found["namespace"], len(found["jobs"])) == ("", 4)


def test_a_job_that_cannot_be_read_hides_no_other(api: Any, command: Run) -> None:
    broken = named("broken")
    broken["spec"] = {"nodes": "many"}
    api.lists(ALL, broken, named("runs"))
    found = json.loads(command("top", "-o", "json").stdout)
    assert [(job["name"], job["state"]) for job in found["jobs"]] == [("broken", "Unreadable"), ("runs", "Running")]


def test_no_jobs_at_all(api: Any, command: Run) -> None:
    api.lists(ALL)
    assert command("top").stdout == "all namespaces: no jobs\nthere is no TrainingJob\n"
    api.lists(ALL, named("done", state="Failed"))
    assert "all 1 have ended: --all lists them" in command("top").stdout


def shown(width: int, height: int, jobs: list[dict[str, Any]]) -> list[str]:
    it = overview([TrainingJob.model_validate(job) for job in jobs], "", NOW)
    console = Console(width=width, height=height, markup=False, color_system=None)
    with console.capture() as captured:
        console.print(screen(it, NOW, width, height, "q ends"))
    return captured.get().splitlines()


def test_a_screen_is_never_higher_than_the_terminal() -> None:
    for width in (80, 200):
        lines = shown(width, 24, [named(f"job-{index:03}") for index in range(500)])
        assert len(lines) <= 24
        assert max(map(len, lines)) <= width
        assert "... and 481 more" in [line.rstrip() for line in lines]
        assert lines[-1].rstrip() == "q ends"


def test_what_tenants_wrote_does_not_move_the_cursor() -> None:
    evil = "a\x1b[2J\x07\u202e\x9b\nb"
    condition = {"type": "Stalled", "status": "True", "reason": "R", "message": evil, "lastTransitionTime": ago(60)}
    text = "\n".join(shown(200, 24, [named("x", state="Stalled", reason=evil, conditions=[condition])]))
    assert not {"\x1b", "\x07", "\u202e", "\x9b"} & set(text)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A terminal of which the test holds the other end."""
    ours, theirs = pty.openpty()
    stream = os.fdopen(theirs, "r", closefd=False)
    monkeypatch.setattr("muster.cli.top.sys", SimpleNamespace(stdin=stream, stdout=stream))
    yield SimpleNamespace(ours=ours, theirs=theirs)
    for descriptor in (ours, theirs):
        os.close(descriptor)


async def test_a_key_ends_it_and_the_terminal_is_as_it_was(api: Any, terminal: Any) -> None:
    api.lists(ALL, *JOBS)
    before = termios.tcgetattr(terminal.theirs)
    live = asyncio.ensure_future(watch(Session(api, "team-a"), 0.02, ended=False, one_namespace=False))
    await until(lambda: api.asked.count(ALL) >= 2)
    assert termios.tcgetattr(terminal.theirs) != before
    api.errors[ALL] = Unreachable(0, "Unreachable", "no answer")  # and goes on
    asked = api.asked.count(ALL)
    await until(lambda: api.asked.count(ALL) >= asked + 2)
    os.write(terminal.ours, b"\x1b[A")  # an arrow is no end
    asked = api.asked.count(ALL)
    await until(lambda: api.asked.count(ALL) >= asked + 2)
    assert not live.done()
    os.write(terminal.ours, b"\x1b[B\x1bOAq")  # read at once
    await asyncio.wait_for(live, PATIENCE_SECONDS)
    assert termios.tcgetattr(terminal.theirs) == before


async def test_a_look_that_hangs_does_not_keep_a_key_waiting(
    api: Any, terminal: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.lists(ALL, *JOBS)
    looks = 0
    plain = api.get

    async def get(*arguments: Any, **more: Any) -> bytes:
        nonlocal looks
        looks += 1
        if looks > 1:
            await asyncio.sleep(3600)
        answer: bytes = await plain(*arguments, **more)
        return answer

    monkeypatch.setattr(api, "get", get)
    live = asyncio.ensure_future(watch(Session(api, "team-a"), 0.01, ended=False, one_namespace=False))
    await until(lambda: looks >= 2)
    os.write(terminal.ours, b"q")
    await asyncio.wait_for(live, PATIENCE_SECONDS)

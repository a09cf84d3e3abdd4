"""The command that decides again, as a process of its own: with another order of sets, and without a cluster."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from tests.unit.health.builders import evidence, sick
from tests.unit.health.builders import world as node_world
from tests.unit.lifecycle.builders import SETTINGS, a_job, at
from tests.unit.lifecycle.testbed import OneJob

from localcluster.patience import PATIENCE_SECONDS
from muster import replay
from muster.api.fleetpolicy import FleetPolicySpec
from muster.controller import reconciler
from muster.decision.accounted import plan_with_goodput
from muster.decision.decided import Decided, write
from muster.health import node_decision
from muster.health.assess import assess
from muster.health.effects import effect
from muster.health.node_decision import NodeDecision
from muster.health.orders import Order
from muster.health.rulings import Act, Ruling
from muster.lifecycle.plan import BindPod, DeletePod, Plan
from muster.lifecycle.step import decide
from muster.pods.worker_pod import WorkerSettings
from muster.world.job import JobWorld


@pytest.fixture(scope="module")
def life() -> list[str]:
    """The lines of a life in which a node is cut off."""
    lines: list[str] = []

    def noted(world: JobWorld, settings: WorkerSettings) -> Plan:
        plan = decide(world, settings)
        lines.append(write(Decided(world, settings, plan_with_goodput(world, plan))))
        return plan

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reconciler, "decide", noted)
        with closing(OneJob()) as job:
            job.until_step(7)
            job.cut_off("n1")
            job.ends()
    return lines


def command(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "7"}
    return subprocess.run(
        [sys.executable, "-m", "muster.replay", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        timeout=PATIENCE_SECONDS,
        **options,  # type: ignore[call-overload]
    )


def test_a_life_is_decided_again_the_same_in_another_process(life: list[str], tmp_path: Path) -> None:
    file = tmp_path / "worlds.jsonl"
    file.write_text("\n".join(life) + "\n")
    done = command(str(file))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("decided, then and now:") == len(life)
    assert "does CommitGang attempt 1 (Start, Started) on n0, n1" in done.stdout
    assert "does CreatePod Pod job-" in done.stdout
    assert "announces" in done.stdout
    assert "says Training" in done.stdout


def test_from_standard_input(life: list[str]) -> None:
    assert command("-", input=life[-1]).returncode == 0


@pytest.fixture(scope="module")
def judged() -> str:
    """The line of a node that is taken out."""
    world = node_world(sick(evidence("Xid", 79)))
    verdict, ruling = assess(world), Ruling(Act.TAKE, charge=True, cause="agent/Xid79")
    order = Order("node-1", verdict, ruling, effect(verdict, ruling, world.rules.enforcement))
    return node_decision.write(NodeDecision(FleetPolicySpec(), world, verdict, order=order))


def test_a_node_is_judged_again_the_same_in_another_process(judged: str, life: list[str]) -> None:
    done = command("-", input=f"{judged}\n{life[0]}\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("decided, then and now:") == 2
    assert "2026-11-20T09:42:07+00:00 node node-1" in done.stdout
    assert "says Unhealthy Xid79" in done.stdout
    assert "finds Fatal agent/Xid79 GPU-5d2a3f0e" in done.stdout
    assert "recommends Reboot" in done.stdout
    assert "ordered then, by the budgets of all nodes: Take (charged to agent/Xid79): avoid" in done.stdout


def test_a_verdict_that_is_another_one_now_is_shown_beside(
    judged: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(judged)
    document["verdict"]["reason"] = "Xid48"
    file = tmp_path / "worlds.jsonl"
    file.write_text(f"{json.dumps(document | {'order': None})}\n")
    assert replay.main([str(file)]) == replay.DIFFERS
    shown = capsys.readouterr().out
    assert "says Unhealthy Xid48" in shown.partition("DECIDED NOW:")[0]
    assert 'reason: "Xid48" -> "Xid79"' in shown
    assert "of all nodes: nothing new" in shown


Change = Callable[[dict[str, object]], object]


def changed(line: str, change: Change) -> str:
    document = json.loads(line)
    change(document["plan"])
    return json.dumps(document)


def test_what_is_decided_otherwise_now_is_shown_beside(
    life: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "worlds.jsonl"
    file.write_text(changed(life[0], lambda plan: plan.update(wake_in_seconds=77.0)) + "\n" + life[1])
    assert replay.main([str(file)]) == replay.DIFFERS
    shown = capsys.readouterr().out
    assert "or after 77 s" in shown.partition("DECIDED NOW:")[0]
    assert "wake_in_seconds: 77.0 -> " in shown


def test_where_a_redacted_file_differs_it_says_that_this_can_be_the_cause(
    life: list[str], judged: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wakes = json.loads(changed(life[0], lambda plan: plan.update(wake_in_seconds=77.0)))
    verdict = json.loads(judged)
    verdict["verdict"]["reason"] = "Xid48"
    file = tmp_path / "worlds.jsonl"
    for document, says in ((wakes, 1), (wakes | {"redacted": False}, 0), (verdict, 1), (json.loads(judged), 0)):
        file.write_text(json.dumps({"redacted": True} | document))
        replay.main([str(file)])
        assert capsys.readouterr().out.count("redacted: what was taken out can be the cause") == says


def test_an_error_of_then_is_shown(life: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "worlds.jsonl"
    file.write_text(json.dumps({**json.loads(life[0]), "plan": {"error": "KeyError: 'x'"}}))
    assert replay.main([str(file)]) == replay.DIFFERS
    assert "failed: KeyError: 'x'" in capsys.readouterr().out


def test_every_action_has_words() -> None:
    plan = Plan((DeletePod("job-0-1", "u1"), BindPod("job-1-1", "u2", "n3")))
    replayed = replay.replay(write(Decided(JobWorld(at(0), a_job()), SETTINGS, plan)))
    words = "\n".join(replay.decision_lines(replayed))
    assert "does DeletePod job-0-1 u1" in words
    assert "does BindPod job-1-1 u2 n3" in words


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{}\n", "line 1: an object with world"),
        ("\n", "no decision"),
        ("{\n", "line 1:"),
        ('{"verdict": {}}\n', "line 1: an object with world and verdict"),
    ],
)
def test_what_cannot_be_read_is_refused(
    text: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "worlds.jsonl"
    file.write_text(text)
    assert replay.main([str(file)]) == replay.UNREADABLE
    assert why in capsys.readouterr().err


def test_how_it_is_used(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert replay.main([]) == replay.main(["--help"]) == replay.main([str(tmp_path / "none")]) == replay.UNREADABLE
    assert "usage" in capsys.readouterr().err

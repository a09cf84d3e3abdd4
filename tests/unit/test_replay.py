"""The command that decides again, as a process of its own: with another order of sets, and without a cluster."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.lifecycle import theatre as stage
from tests.unit.lifecycle.builders import SETTINGS, a_job, at
from tests.unit.lifecycle.theatre import Theatre

from localcluster.patience import PATIENCE_SECONDS
from muster import replay
from muster.lifecycle.decided import Decided, write
from muster.lifecycle.plan import BindPod, DeletePod, Plan
from muster.lifecycle.step import decide
from muster.lifecycle.worker_pod import WorkerSettings
from muster.world.job import JobWorld


@pytest.fixture(scope="module")
def life() -> list[str]:
    """The lines of a life in which a node is cut off."""
    lines: list[str] = []

    def noted(world: JobWorld, settings: WorkerSettings) -> Plan:
        plan = decide(world, settings)
        lines.append(write(Decided(world, settings, plan)))
        return plan

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage, "decide", noted)
        theatre = Theatre(nodes=6)
        play = theatre.submit(a_job())
        theatre.until(lambda: play.step >= 7)
        theatre.partition(theatre.node_of(play, 1).name)
        theatre.finish(play)
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
    assert "does CommitGang attempt 1 (Start, Started) on n0, n1, n2" in done.stdout
    assert "does CreatePod Pod job-" in done.stdout
    assert "announces" in done.stdout
    assert "says Training" in done.stdout


def test_from_standard_input(life: list[str]) -> None:
    assert command("-", input=life[-1]).returncode == 0


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
    ("text", "why"), [("{}\n", "line 1: an object with world"), ("\n", "no decision"), ("{\n", "line 1:")]
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

"""Whole lives: the shipped operator and launchers in simulated time."""

import itertools
import os
import random
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.simulate.mutations import MUTATIONS

from muster.launcher.supervisor import Supervisor
from muster.simulate import stories
from muster.simulate.checks import ViolationError
from muster.simulate.faults import KINDS, Fault
from muster.simulate.life import Life
from muster.simulate.play import Story, play, story
from muster.simulate.shrink import rule_of, shrunk
from muster.simulate.training import Script


def test_where_nothing_goes_wrong_a_job_trains_in_one_attempt_to_its_end() -> None:
    life = Life(1)
    uid = life.submit("a", 4, Script(total_steps=30))
    assert life.run_until(lambda: life.state_of("a") == "Succeeded", 600), life.describe()
    assert list(life.trainers[uid].attempts) == [1]
    assert max(saved.step for saved in life.directories[uid].saved.values()) == 30
    life.close()


def test_the_same_story_is_the_same_life(tmp_path: Path) -> None:
    """Also in another process, where other addresses could bring another order."""
    path = tmp_path / "story.json"
    stories.write(path, replace(story(6), faults=story(6).faults[:12]))
    program = (
        "import pathlib, sys; from muster.simulate import play, stories; "
        "life = play.play(stories.read(pathlib.Path(sys.argv[1]))); "
        "print(life.seconds, life.events, sorted(life.checks.items()), life.violation or 'sound')"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    told = {
        subprocess.run(
            [sys.executable, "-c", program, str(path)], env=environment, capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    }
    assert len(told) == 1, told
    assert told.pop().strip().endswith("sound")


def test_a_life_depends_neither_on_the_speed_of_this_machine_nor_on_what_else_draws_lots_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kinds = (
        "ApiAway",
        "LeaderCutOff",
        "ApiRefuses",
        "WatchesEnd",
        "RankExits",
        "HistoryForgotten",
        "ApiSlow",
        "PowerCut",
    )
    told = Story(
        1,
        [
            Fault(20.0 + 25.0 * number, name, seconds=25.0, job="a" * KINDS[name].of_job)
            for number, name in enumerate(kinds)
        ],
    )
    as_it_is = play(told)
    for name in ("monotonic", "time", "perf_counter", "thread_time", "process_time"):
        jumping = itertools.count(1e6, 60.0)
        # Each look at a clock takes one of the process's lots, too.
        monkeypatch.setattr(time, name, lambda jumping=jumping: next(jumping) + 0.0 * random.random())
    other = play(told)
    assert (other.seconds, other.events, other.checks) == (as_it_is.seconds, as_it_is.events, as_it_is.checks)
    assert other.violation == as_it_is.violation == ""


def test_after_every_kind_of_fault_every_job_comes_to_its_end() -> None:
    faults = [
        Fault(
            at=20.0 + 25.0 * number,
            kind=name,
            job="ab"[number % 2] if kind.of_job else "",
            number=number,
            seconds=min(kind.seconds[1], 20.0),
            amount=kind.amounts[-1],
        )
        for number, (name, kind) in enumerate(KINDS.items())
    ]
    outcome = play(Story(3, faults))
    assert not outcome.violation, "\n".join([*outcome.tail[-100:], outcome.violation])
    assert {kind for _, kind in outcome.cells} == set(KINDS)


@pytest.mark.parametrize("seed", [0, 2, 5])
def test_a_life_at_random(seed: int) -> None:
    outcome = play(story(seed))
    assert not outcome.violation, "\n".join([*outcome.tail[-100:], outcome.violation])


def test_without_a_fence_two_attempts_train_and_the_story_is_shrunk_to_the_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the checks are there for: a defect that was put back is found, told in few faults, kept and played again."""
    monkeypatch.setattr(Supervisor, "_why_to_fence", lambda *_: "")
    cut = Fault(30.0, "CutOffButStorage", number=0, count=1, seconds=150.0)
    noise = [Fault(at, "WatchesEnd") for at in (10.0, 40.0, 80.0)]
    outcome = play(Story(1, [*noise, cut]))
    assert "no rank starts while one of another attempt is alive" in outcome.violation
    smallest = shrunk(outcome, most_lives=20)
    assert [fault.kind for fault in smallest.story.faults] == ["CutOffButStorage"]
    assert rule_of(smallest) == rule_of(outcome)


def test_a_story_is_kept_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    told = story(4)
    stories.write(path, told, "a rule: broken")
    assert stories.read(path) == told
    path.write_text(path.read_text().replace(told.faults[0].kind, "Nonsense"))
    with pytest.raises(stories.StoryError, match=r"faults\[0\].kind is 'Nonsense'; there are AnswersLost"):
        stories.read(path)


def test_a_violation_is_seen_whatever_the_operator_makes_of_it() -> None:
    life = Life(1)
    life.submit("a", 2, Script(total_steps=1000))
    life.run(20)
    with pytest.raises(ViolationError):
        life.checks._hold("a rule", holds=False, text="is broken")
    with pytest.raises(ViolationError):
        life.run(20)
    life.close()


LIVES = 5
CRASH_LOOP = "f old refund"  # goes on for two simulated hours: some minutes


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name == CRASH_LOOP)) for name in MUTATIONS]
)
def test_a_defect_that_is_put_back_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation = MUTATIONS[name]
    sound = play(mutation.story)
    assert not sound.violation, "\n".join([*sound.tail[-100:], sound.violation])
    mutation.put_back(monkeypatch)
    # Where a story needs luck: what is drawn in a life changes with the simulator, and the story is to stay.
    lives = (play(replace(mutation.story, seed=mutation.story.seed + n)) for n in range(LIVES))
    assert any(mutation.rule in life.violation for life in lives)

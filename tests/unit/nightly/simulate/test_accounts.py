"""What an account says of a whole life, against what the ranks themselves have done in it."""

from datetime import datetime

from simulate.fault import Fault
from simulate.faults import begin
from simulate.life import Life
from simulate.training import Script


def test_lost_steps_are_those_made_again_and_the_incident_is_timed_right() -> None:
    life = Life(1)
    uid = life.submit("a", 4, Script(total_steps=60, step_seconds=2.0, checkpoint_every=10))
    trainer = life.trainers[uid]
    assert life.run_until(lambda: any(attempt.step >= 27 for attempt in trainer.attempts.values()), 600)
    killed_at = life.wall_clock()
    begin(life, Fault(0.0, "RankKilled", job="a"))
    assert life.run_until(lambda: life.state_of("a") == "Succeeded", 600), life.describe()
    made, resumed = trainer.attempts[1].step, trainer.attempts[2].resume_step
    status = life.job("a")["status"]
    told, (incident,) = status["goodput"], status["incidents"]
    life.close()
    assert told["lostSteps"] == made - resumed
    assert incident["lostSteps"] == made - resumed
    assert told["failures"] == 1
    # Two seconds a step; one more at most was broken off.
    assert 2 * 60 - 2 <= told["seconds"]["compute"] <= 2 * 60 + 4
    assert 2 * (made - resumed) <= told["seconds"]["lostWork"] <= 2 * (made - resumed) + 6
    assert abs(_seconds(incident["faultTime"]) - killed_at.timestamp()) <= 1.0
    assert "unknown" not in told["seconds"]


def test_steps_that_the_program_itself_takes_back_are_told_to_the_step() -> None:
    """Once to a state of its own, and once further back than all that it had saved in between."""
    life = Life(1)
    uid = life.submit("a", 4, Script(total_steps=90, step_seconds=2.0, checkpoint_every=10))
    trainer = life.trainers[uid]
    for step, back in ((37, 15), (60, 50)):
        assert life.run_until(lambda step=step: any(each.step >= step for each in trainer.attempts.values()), 600)
        begin(life, Fault(0.0, "StepsGoBack", job="a", amount=back))
    assert life.run_until(lambda: life.state_of("a") == "Succeeded", 600), life.describe()
    told = life.job("a")["status"]["goodput"]
    life.close()
    assert list(trainer.attempts) == [1], "it is no failure"
    assert (trainer.made, told["steps"], told["lostSteps"]) == (155, 90, 65)
    assert abs(told["seconds"]["compute"] - 2 * 90) <= 4
    assert abs(told["seconds"]["lostWork"] - 2 * 65) <= 4


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()

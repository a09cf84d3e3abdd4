"""`python -m simulate.starts [HOURS]`: a day of a busy fleet, to see how well the starts of jobs are estimated.

The operator that ships runs in simulated time. In the first half jobs come faster than the fleet can take them. A third
of them say how many steps they make, a third how long they train (up to twice as long as they do). A third say nothing,
so only their namespace's history speaks for them. Now and then a node fails. What the operator has first estimated is
compared with the starts.

Tests: tests/unit/nightly/simulate/test_starts.py.
"""

import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from muster.answers.queue import score_of, score_text
from muster.api.trainingjob import TrainingJob
from simulate import faults
from simulate.apiserver import Object
from simulate.fault import Fault
from simulate.hashes import fix_hashes
from simulate.life import Life
from simulate.training import Script

NODES = 12
HOUR = 3600.0
STEP_SECONDS = 30.0
HOURS = 0.1, 2.0  # that a job trains
WIDEST = 6  # nodes
MEAN_BETWEEN_SECONDS = 700.0  # 3.5 nodes for an hour each: one and a half times what the fleet can do
FAULTS_AN_HOUR = 0.5
OVERSTATED = 1.0, 2.0  # what users say, in multiples of what their jobs take
CLAIMS = ("steps", "expected", "nothing")


@dataclass
class Day:
    """What became of the jobs of such a day.

    Attributes:
        jobs: as the API has them at its end.
        writes: how often an estimate was written into a status.
    """

    jobs: list[TrainingJob]
    writes: int = 0

    @property
    def late_seconds(self) -> list[float]:
        """By how much each job that was estimated started later than that."""
        estimates = (job.status.start_estimate for job in self.jobs)
        late = (estimate.late_seconds for estimate in estimates if estimate is not None)
        return [seconds for seconds in late if seconds is not None]


def played(hours: float, between_seconds: float = MEAN_BETWEEN_SECONDS, seed: int = 11) -> Day:
    """Play such a day, with a job every so many seconds in its first half."""
    draw = random.Random(seed)
    life = Life(seed, nodes=NODES)
    life.is_large = True  # else launchers would say every second that nothing is new
    day = Day([])

    def count(resource: str, before: Object | None, after: Object | None) -> None:
        if resource == "trainingjobs" and after is not None:
            old, new = ((one or {}).get("status", {}).get("startEstimate") for one in (before, after))
            day.writes += new is not None and old != new

    life.server.listen(count)
    at, number = 60.0, 0
    while at < hours * HOUR / 2:
        life.agenda.at(at, _submission(life, draw, number))
        at, number = at + draw.expovariate(1 / between_seconds), number + 1
    at = HOUR
    while at < hours * HOUR:
        life.agenda.at(at, _power_cut(life, draw.randrange(NODES)))
        at += draw.expovariate(FAULTS_AN_HOUR / HOUR)
    life.run(hours * HOUR)
    day.jobs = [TrainingJob.model_validate(job) for job in life.server.all("trainingjobs")]
    life.close()
    return day


def _submission(life: Life, draw: random.Random, number: int) -> Callable[[], object]:
    seconds, nodes = draw.uniform(*HOURS) * HOUR, draw.randint(1, WIDEST)
    claim, steps = draw.choice(CLAIMS), int(seconds / STEP_SECONDS)
    spec: dict[str, Any] = {}
    if claim == "steps":
        spec["progress"] = {"totalSteps": steps}
    if claim == "expected":
        spec["queueing"] = {"expectedDurationSeconds": int(seconds * draw.uniform(*OVERSTATED))}
    script = Script(total_steps=steps, step_seconds=STEP_SECONDS, checkpoint_every=10, save_seconds=10.0)
    return lambda: life.submit(f"{claim}-{number}", nodes, script, **spec)


def _power_cut(life: Life, number: int) -> Callable[[], object]:
    def does() -> None:
        undo = faults.begin(life, Fault(life.agenda.now, "PowerCut", number=number, seconds=600.0))
        if undo is not None:
            life.agenda.after(600.0, undo)

    return does


def main() -> None:
    """Play it, and print how well the starts were estimated."""
    day = played(float(sys.argv[1]) if len(sys.argv) > 1 else 24.0)
    late = sorted(day.late_seconds)
    started = sum(bool(job.status.attempt) for job in day.jobs)
    print(f"{len(day.jobs)} jobs, {started} started, {len(late)} of them with an estimate; {day.writes} writes of one")
    for share in (0.1, 0.25, 0.5, 0.75, 0.9):
        print(f"{share:.0%}: {late[int(share * (len(late) - 1))] / 60:.1f} min later than first estimated")
    print(score_text(score_of(day.jobs)))


if __name__ == "__main__":
    fix_hashes("simulate.starts")
    main()

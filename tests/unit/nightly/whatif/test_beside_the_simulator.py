"""What-if beside the full simulation, in which the shipped operator and launchers play: the same failures, the same
cost."""

import random
from contextlib import suppress
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import pytest
from tests.unit.whatif.builders import a_plan

from muster.whatif.failure_model import Blow
from muster.whatif.life import live
from muster.whatif.plan import DAY_SECONDS, Plan
from muster.whatif.recovery_model import CRASH, HANG, SILENT, Leaves, way_of
from simulate.fault import FOR_EVER, Fault, MissedError
from simulate.faults import begin
from simulate.life import Life
from simulate.machines import START_SECONDS
from simulate.training import IMPORT_SECONDS, Script

STEP_LIMIT = 60
SPEC: dict[str, Any] = {
    "recovery": {"applicationRestartsPerDay": 100, "hardwareRestartsPerDay": 100},
    "progress": {"stepTimeoutSeconds": STEP_LIMIT, "startTimeoutSeconds": STEP_LIMIT},
}
SICK = "GpuCount"
KINDS = {CRASH: "RankExits", HANG: "RankHangs", SILENT: "PowerCut"}
CHECKPOINT_STEPS = 30
SAVE_SECONDS = 2.0
# From a pod that is written to a container that runs, as the simulated kubelet has it, and until it has noticed.
POD_SECONDS = fmean(START_SECONDS) + 0.1


@dataclass
class Gang:
    """A gang that trains in the full simulation."""

    life: Life
    uid: str

    @property
    def attempt(self) -> Any:
        trainer = self.life.trainers[self.uid]
        return trainer.attempts.get(trainer.newest_started)

    @property
    def step(self) -> int:
        return self.attempt.step if self.attempt else 0

    def strike(self, how: str, number: int) -> None:
        if how == SICK:
            self.mark(next(name for name, one in self.life.machines.items() if one.workers))
            return
        hosts = [place for place, one in enumerate(self.life.machines.values()) if one.workers]
        target = hosts[number % len(hosts)] if how == SILENT else number
        with suppress(MissedError):  # as a failure of what does not run
            begin(self.life, Fault(self.life.age_seconds, KINDS[how], job="a", number=target, seconds=FOR_EVER))

    def mark(self, node: str) -> None:
        """Somebody who watches nodes says that this one has lost a GPU."""
        server = self.life.server
        found = server.peek("nodes", "", node)
        assert found is not None
        missing = {"type": "GPUMissing", "status": "True", "reason": "Missing", "message": "7 of 8"}
        server.change("nodes", "", node, {"status": {"conditions": [*found["status"]["conditions"], missing]}})


def a_gang(seed: int, nodes: int, step_seconds: float) -> Gang:
    """One that has begun to train, on a fleet of eight nodes."""
    life = Life(seed)
    script = Script(10**9, step_seconds, CHECKPOINT_STEPS, SAVE_SECONDS)
    gang = Gang(life, life.submit("a", nodes, script, **SPEC))
    assert life.run_until(lambda: gang.step > 0, 600)
    return gang


def plan_of(nodes: int, step_seconds: float, **changes: float) -> Plan:
    """The same in the terms of what-if."""
    latest = IMPORT_SECONDS[0] + (IMPORT_SECONDS[1] - IMPORT_SECONDS[0]) * nodes / (nodes + 1)
    return a_plan(
        nodes=nodes,
        step_seconds=step_seconds,
        checkpoint_seconds=CHECKPOINT_STEPS * step_seconds,
        save_seconds=0,
        durable_seconds=SAVE_SECONDS,
        hang_seconds=STEP_LIMIT,
        pod_seconds=POD_SECONDS,
        start_seconds=latest + 0.1,
        **changes,
    )


@pytest.mark.parametrize(
    ("how", "nodes", "step_seconds"),
    [
        (CRASH, 4, 1.0),
        (HANG, 4, 1.0),
        (SICK, 4, 1.0),
        (SILENT, 4, 1.0),
        (SILENT, 2, 1.0),
        (SILENT, 1, 1.0),
        (SILENT, 4, 9.0),
    ],
)
def test_one_failure_keeps_the_ranks_from_starting_for_as_long(how: str, nodes: int, step_seconds: float) -> None:
    plan = plan_of(nodes, step_seconds)
    way = way_of(how, plan)
    expected = way.noticed_seconds + (plan.pod_seconds if way.leaves is Leaves.ALWAYS else 0.0)
    taken = []
    for seed in range(3):
        gang = a_gang(seed, nodes, step_seconds)
        gang.life.run(random.Random(seed).uniform(20, 50) * step_seconds)
        before, struck = gang.attempt, gang.life.age_seconds
        gang.strike(how, seed)

        def starts(gang: Gang = gang, before: Any = before) -> bool:
            return gang.attempt is not before and len(gang.attempt.ranks) == gang.attempt.count

        assert gang.life.run_until(starts, 900), gang.life.describe()
        taken.append(gang.life.age_seconds - struck - 0.5)  # looked at each second
        gang.life.close()
    # A node's last heartbeat may lie up to ten seconds back when its gang of one falls silent with it.
    assert fmean(taken) == pytest.approx(expected, abs=5.0 if nodes == 1 else 2.0)


def both(seed: int, seconds: float, mean_seconds: float) -> tuple[float, float]:
    """Useful seconds of a life by the full simulation and by what-if, struck by the same failures."""
    hows, nodes = (CRASH, SILENT, HANG), 4
    plan = plan_of(nodes, 1.0, days=seconds / DAY_SECONDS, spares=4, repair_seconds=200.0)
    chance = random.Random(seed)
    blows, at = [], 0.0
    while (at := at + chance.expovariate(1.0 / mean_seconds)) < seconds:
        blows.append(Blow(at, len(blows), chance.randrange(len(hows)), 1.0))  # each strikes a node that is there
    gang = a_gang(seed, nodes, 1.0)
    life, begun, first = gang.life, gang.life.age_seconds, gang.step
    for number, blow in enumerate(blows):
        life.run(max(0.0, begun + blow.at - life.age_seconds))
        gang.strike(hows[blow.cause], number)
        if hows[blow.cause] == SILENT:
            life.agenda.after(200.0, lambda: [one.boot_up() for one in life.machines.values()])
    life.run(max(0.0, begun + seconds - life.age_seconds))
    done = float(gang.step - first)
    life.close()
    return done, live(plan, [way_of(how, plan) for how in hows], blows).useful


def test_a_life_with_the_same_failures_gets_as_much_done() -> None:
    full, quick = zip(*(both(seed, 1000.0, 150.0) for seed in (3, 4)), strict=True)
    assert sum(full) / 2000 < 0.8  # there was something to lose
    # A failure at the moment of a save may find one checkpoint more or fewer.
    assert quick == pytest.approx(full, abs=CHECKPOINT_STEPS + 10)


def test_many_lives_with_the_same_failures_get_as_much_done() -> None:
    full, quick = zip(*(both(100 + seed, 6000.0, 400.0) for seed in range(2)), strict=True)
    assert sum(full) / 12_000 < 0.95
    assert sum(quick) == pytest.approx(sum(full), abs=0.006 * 12_000)

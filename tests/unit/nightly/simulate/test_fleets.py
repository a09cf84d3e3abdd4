"""Fleets by the shipped agent and rules: the goals hold, and defects of the rules are found."""

import contextlib
import io
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from muster.health import assess, causes, kinds, silence
from muster.health.budgets import Budgets
from muster.health.signs import Clears
from muster.health.verdict import Verdict
from muster.node.agent.agent import Agent
from simulate.fleets import life
from simulate.fleets.life import DAY_SECONDS, Life, Outcome, Plan, live, plan
from simulate.fleets.oracle import BudgetOracle, Taken, most
from simulate.fleets.sums import Sum

HOUR = 3600.0
SOME = Plan(1, 40, 5.0, 2.3, validates=False, is_fast=False, pools=((0, 40, True),))


def total(*outcomes: Outcome) -> Sum:
    found = Sum()
    for outcome in outcomes:
        found.add(outcome)
    return found


def test_small_fleets_in_which_more_happens_than_in_real_ones_keep_to_the_goals() -> None:
    found = total(*(live(plan(seed, days=4.0, smallest=16, largest=64, busy=10.0)) for seed in range(1, 5)))
    assert found.missed() == []
    assert sum(found.seen.values()) > 5
    assert found.taken > 10
    assert found.alarms > 2
    assert len(found.certain) + len(found.certain_in_alarm) > 2


def test_a_fleet_of_a_seed_is_the_same_each_time() -> None:
    small = plan(3, days=2.0, smallest=16, largest=24, busy=4.0)
    one, other = live(small), live(small)
    assert (one.events, one.out_for, one.certain) == (other.events, other.out_for, other.certain)


class Story(Life):
    """A fleet in which nothing happens but what a test says; each agent has looked at everything before."""

    def __init__(self, plan: Plan, folder: Path, tell: Callable[["Story"], None]) -> None:
        super().__init__(plan, folder)
        self._report = tell

    def _draw_everything(self) -> None:
        for name in sorted(self.nodes):
            self._wake(name)
        self._report(self)

    def breaks(self, days: float, name: str, kind: str, worn: bool) -> None:
        def strike() -> None:
            self._count(name)
            self.nodes[name].machine.strike(kind, 0, worn, self.now)
            self._changed(name)

        self._at(days * DAY_SECONDS, strike)


def a_monitor_is_wrong(story: Story) -> None:
    """A release of another system marks a whole pool, and while its budget is used up two GPUs fall off the bus."""
    story._at(HOUR, story._bad_release)
    for name in ("n0007", "n0033"):
        story._at(HOUR + 120.0, lambda name=name: story._fault(name, "OffTheBus", in_alarm=True))


def all_at_once(story: Story) -> None:
    """The agents themselves are sure of a port on each node: a switch, say."""
    for number, name in enumerate(sorted(story.nodes)):
        story.breaks(0.1 + number / DAY_SECONDS, name, "PortLost", True)


def a_gpu_does_not_come_back(story: Story) -> None:
    """GPUs fall off the bus and are missing after the boot, of which the driver is slow."""
    for number in (3, 13, 23, 33):
        story.breaks(0.2 + number / 100, f"n{number:04}", "OffTheBus", True)


def a_disk_is_broken(story: Story) -> None:
    """Nobody uses it while the node is out, and who looks after it takes his time."""
    story.breaks(0.2, "n0005", "Disk", True)


def no_agent_is_there(story: Story) -> None:
    """A roll-out of the agent that goes wrong."""
    story._at(HOUR, story._bad_roll_out)


def lived(tell: Callable[[Story], None], folder: Path, patch: pytest.MonkeyPatch) -> Sum:
    patch.setattr(life.rates, "INSPECT_SECONDS", 1000 * HOUR)
    with contextlib.redirect_stderr(io.StringIO()):
        return total(Story(SOME, folder, tell).run())


STORIES = (a_monitor_is_wrong, all_at_once, a_gpu_does_not_come_back, a_disk_is_broken, no_agent_is_there)


@pytest.mark.parametrize("tell", STORIES)
def test_the_shipped_rules_keep_to_the_goals(
    tell: Callable[[Story], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lived(tell, tmp_path, monkeypatch).missed() == []


def _nothing_is_certain(patch: pytest.MonkeyPatch) -> None:
    """One sign is as good as two that have nothing in common."""
    patch.setattr(assess, "is_certain", lambda _: False)
    patch.setattr(causes, "CERTAIN", ())


def _twice_the_budget(patch: pytest.MonkeyPatch) -> None:
    """The shares are of twice the pool."""
    share = Budgets._share
    patch.setattr(Budgets, "_share", lambda self, nodes, *rest, **more: share(self, 2 * nodes, *rest, **more))


def _records_are_dated_an_hour_back(patch: pytest.MonkeyPatch) -> None:
    """A node that was taken out counts in no window: each evaluation finds the whole budget."""
    taken = Verdict.after_taking_out

    def dated_back(self: Verdict, now: datetime, *rest: object) -> Verdict:
        return taken(self, now - timedelta(hours=1), *rest)  # type: ignore[arg-type]

    patch.setattr(Verdict, "after_taking_out", dated_back)


def _nobody_waits_for_the_driver(patch: pytest.MonkeyPatch) -> None:
    """The agent speaks after a boot whatever it has seen."""
    patch.setattr(Agent, "_knows_enough", lambda _: True)


def _an_old_line_is_over(patch: pytest.MonkeyPatch) -> None:
    """What the log said of a disk is over after a day."""
    rows = {**kinds.KINDS, "DiskError": replace(kinds.KINDS["DiskError"], clears=Clears.EVIDENCE)}
    patch.setattr(kinds, "KINDS", rows)


def _silence_condemns(patch: pytest.MonkeyPatch) -> None:
    """Each silence counts by itself, however many are silent."""
    patch.setattr(silence, "pools_silent_at_once", lambda *_: {})


@pytest.mark.parametrize(
    ("defect", "tell", "shows"),
    [
        (_nothing_is_certain, a_monitor_is_wrong, "certain faults"),
        (_twice_the_budget, all_at_once, "the budget was broken"),
        (_records_are_dated_an_hour_back, all_at_once, "the budget was broken"),
        (_nobody_waits_for_the_driver, a_gpu_does_not_come_back, "given work again"),
        (_an_old_line_is_over, a_disk_is_broken, "given work again"),
        (_silence_condemns, no_agent_is_there, "healthy nodes were out"),
    ],
)
def test_a_defect_is_found(
    defect: Callable[[pytest.MonkeyPatch], None],
    tell: Callable[[Story], None],
    shows: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    defect(monkeypatch)
    found = lived(tell, tmp_path, monkeypatch)
    assert any(shows in missed for missed in found.missed()), found.figures()
    goals = [violation for violation in found.violations if violation.story]
    assert goals or "healthy" in shows  # who did what, and when, can be read


@pytest.mark.parametrize(
    ("percent", "size", "certain", "nodes"),
    [(10, 100, True, 10), (10, 100, False, 8), (10, 5, True, 2), (10, 5, False, 1), (30, 100, False, 24)],
)
def test_the_promise_as_it_is_documented(percent: int, size: int, certain: bool, nodes: int) -> None:
    assert most(percent, size, certain) == nodes


def test_the_oracle_counts_windows_causes_and_racks() -> None:
    names = [f"n{number:03}" for number in range(100)]
    oracle = BudgetOracle({"p": 100}, dict.fromkeys(names, "p"), {name: f"r{int(name[1:]) // 20}" for name in names})
    spread = [names[20 * (number % 5) + number // 5] for number in range(100)]
    for number in range(6):
        assert list(oracle.take(Taken(0.0, spread[number], "a", certain=False))) == []
    assert any("for a" in each for each in oracle.take(Taken(1.0, spread[6], "a", certain=False)))
    assert list(oracle.take(Taken(700.0, spread[7], "b", certain=False))) == []
    racked = [list(oracle.take(Taken(2000.0 * (n + 1), names[n], f"{n}", certain=False))) for n in range(5)]
    assert any("rack r0" in each for each in racked[-1])

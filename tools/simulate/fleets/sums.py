"""What many fleets come to, and the four goals."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from simulate.fleets import rates
from simulate.fleets.life import CERTAIN_SECONDS, Outcome, Plan, Violation

RETURNED_SHARE, HEALTHY_OUT_SHARE = 0.001, 0.005


@dataclass(slots=True)
class Sum:
    """Of all fleets so far; attributes as of `Outcome`."""

    fleets: int = 0
    nodes: int = 0
    node_days: float = 0.0
    healthy: float = 0.0
    healthy_out: float = 0.0
    healthy_held: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    seen: Counter[str] = field(default_factory=Counter)
    returned: Counter[str] = field(default_factory=Counter)
    out_for: Counter[str] = field(default_factory=Counter)
    certain: list[float] = field(default_factory=list)
    certain_in_alarm: list[float] = field(default_factory=list)
    certain_unheard: int = 0
    certain_without_room: int = 0
    taken: int = 0
    alarms: int = 0
    violations: list[Violation] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        self.fleets += 1
        self.nodes += outcome.plan.nodes
        self.node_days += outcome.plan.nodes * outcome.plan.days
        self.healthy += outcome.healthy_seconds
        self.healthy_out += outcome.healthy_out_seconds
        self.healthy_held += outcome.healthy_held_seconds
        self.faults += outcome.faults
        self.seen += outcome.seen
        self.returned += outcome.returned
        self.out_for += outcome.out_for
        self.certain += outcome.certain
        self.certain_in_alarm += outcome.certain_in_alarm
        self.certain_unheard += outcome.certain_unheard
        self.certain_without_room += outcome.certain_without_room
        self.taken += outcome.taken
        self.alarms += outcome.alarms
        self.violations += outcome.violations

    @property
    def returned_share(self) -> float:
        """Of the faults that stand and that took a node out: how often it was given work again while the fault was
        there."""
        seen = sum(count for kind, count in self.seen.items() if kind not in rates.INTERMITTENT)
        back = sum(count for kind, count in self.returned.items() if kind not in rates.INTERMITTENT)
        return back / seen if seen else 0.0

    @property
    def healthy_out_share(self) -> float:
        """Of the time of healthy nodes: how much of it they were out (taken, left to others, being tested, silent)."""
        return self.healthy_out / self.healthy if self.healthy else 0.0

    @property
    def healthy_held_share(self) -> float:
        """Likewise: held by the budget. New workers come there last, those that run stay."""
        return self.healthy_held / self.healthy if self.healthy else 0.0

    def missed(self) -> list[str]:
        """The goals that are missed, in words."""
        broken = [violation for violation in self.violations if violation.goal == "budget"]
        late = [seconds for seconds in (*self.certain, *self.certain_in_alarm) if seconds > CERTAIN_SECONDS]
        found = []
        if self.returned_share > RETURNED_SHARE:
            found.append(
                f"{self.returned_share:.2%} of the sick nodes were given work again, goal {RETURNED_SHARE:.1%}"
            )
        if self.healthy_out_share > HEALTHY_OUT_SHARE:
            found.append(
                f"healthy nodes were out {self.healthy_out_share:.2%} of their time, goal {HEALTHY_OUT_SHARE:.1%}"
            )
        if late:
            found.append(f"{len(late)} certain faults were not out within {CERTAIN_SECONDS:.0f} s")
        if broken:
            found.append(f"the budget was broken {len(broken)} times")
        return found

    def figures(self) -> dict[str, Any]:
        every = sorted((*self.certain, *self.certain_in_alarm))
        return {
            "fleets": self.fleets,
            "nodes": self.nodes,
            "node_days": round(self.node_days),
            "faults": dict(sorted(self.faults.items())),
            "seen": dict(sorted(self.seen.items())),
            "returned": dict(sorted(self.returned.items())),
            "returned_share": self.returned_share,
            "never_seen": dict(sorted((self.faults - _faults_seen(self.faults, self.seen)).items())),
            "healthy_out_share": self.healthy_out_share,
            "healthy_held_share": self.healthy_held_share,
            "healthy_out_hours": {why: round(s / 3600, 1) for why, s in self.out_for.most_common(12)},
            "certain_faults": len(every),
            "certain_in_a_false_alarm": len(self.certain_in_alarm),
            "certain_out_seconds": {"p50": _at(every, 0.5), "p99": _at(every, 0.99), "most": _at(every, 1.0)},
            "certain_while_the_agent_was_away": self.certain_unheard,
            "certain_with_the_budget_used_up": self.certain_without_room,
            "false_alarms": self.alarms,
            "taken": self.taken,
            "budget_broken": sum(violation.goal == "budget" for violation in self.violations),
            "missed": self.missed(),
        }


def kept(outcome: Outcome) -> dict[str, Any]:
    """A fleet for a file, to be summed up later."""
    plain = {each.name: getattr(outcome, each.name) for each in fields(Outcome)}
    return {**plain, "plan": asdict(outcome.plan), "violations": [asdict(each) for each in outcome.violations]}


def read(data: dict[str, Any]) -> Outcome:
    """A fleet that was `kept`."""
    plan = Plan(**{**data["plan"], "pools": tuple(tuple(pool) for pool in data["plan"]["pools"])})
    found = Outcome(plan)
    for each in fields(Outcome):
        value = data[each.name]
        if each.name == "violations":
            found.violations = [Violation(**violation) for violation in value]
        elif each.name != "plan":
            setattr(found, each.name, Counter(value) if isinstance(value, dict) else value)
    return found


def _faults_seen(faults: Counter[str], seen: Counter[str]) -> Counter[str]:
    """A short boot is counted by how it came about, and seen as what it is."""
    return Counter({kind: seen[kind.removeprefix("boot: ")] for kind in faults})


def _at(values: Sequence[float], share: float) -> float | None:
    if not values:
        return None
    found = values[min(len(values) - 1, int(share * len(values)))]
    return round(found, 2) if math.isfinite(found) else None


def line(outcome: Outcome) -> str:
    """One fleet for people."""
    every = [*outcome.certain, *outcome.certain_in_alarm]
    healthy = max(outcome.healthy_seconds, 1.0)
    goals = Counter(violation.goal for violation in outcome.violations)
    return (
        f"seed {outcome.plan.seed:4} {outcome.plan.nodes:5} nodes {sum(outcome.faults.values()):4} faults "
        f"{outcome.taken:5} taken  returned {sum(outcome.returned.values()):2}  healthy out "
        f"{outcome.healthy_out_seconds / healthy:.3%} held {outcome.healthy_held_seconds / healthy:.3%}  certain "
        f"{len(every):3}, most {max(every, default=0.0):.1f} s  alarms {outcome.alarms}  broken {dict(goals) or '-'}"
    )


def told(violation: Violation, plan_seed: int) -> str:
    """Something that must not be, with its story."""
    head = f"{violation.goal}: node {violation.node} of fleet {plan_seed}: {violation.what}"
    return "\n".join((head, *(f"    {each}" for each in violation.story)))

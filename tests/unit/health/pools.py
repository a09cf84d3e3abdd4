"""Alarms in fleets of several pools, false and certain ones."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.unit.health.builders import NOW, Stored, after, evidence, rules

from muster.api.fleetpolicy import DEFAULT_BUDGETS, DisruptionBudget, FleetPolicySpec
from muster.api.nodehealth import Evidence, HealthIncident
from muster.health.budgets import OF_FLEET, Budgets
from muster.health.pools import MAX_POOLS, WITHOUT, pools_with_own_budget
from muster.health.rulings import Act
from muster.health.sources import Rules
from muster.world.views import ConditionView

GPU_POOL = "nvidia.com/gpu NVIDIA-H200"
NODES: dict[str, Any] = {"enforcement": "Nodes"}
DEFAULT = Budgets.from_policy(DEFAULT_BUDGETS, OF_FLEET)
SMALL_POOL, WATCHED_POOL = f"small: {GPU_POOL}", f"watched: {GPU_POOL}"
SMALL_BUDGETS = [
    {"nodes": "3"},
    {"nodes": "2", "reasons": ["UncertainFault"]},
    {"nodes": "2", "windowSeconds": 300},
    {"nodes": "1", "windowSeconds": 300, "reasons": ["UncertainFault"]},
]
BY_POOL = FleetPolicySpec.model_validate(
    {
        "health": NODES,
        "pools": [
            {"name": "small", "health": {"budgets": SMALL_BUDGETS}},
            {"name": "watched", "health": {"enforcement": "Observe"}},
        ],
    }
)
"""The fleet taints; one pool has budgets of its own, and of another one nodes are only reported."""
SMALL = Budgets.from_policy([DisruptionBudget.model_validate(each) for each in SMALL_BUDGETS], OF_FLEET)


def off_the_bus(at: float = 0, boot: str = "boot-1") -> list[Evidence]:
    """XID 79 as it comes: the kernel's line, and a GPU that does not answer."""
    return [evidence("Xid", 79, at=at, boot_id=boot), evidence("GpuLost", at=at, boot_id=boot)]


def eks(reason: str = "DCGMDiagnosticFailure") -> ConditionView:
    return ConditionView("AcceleratedHardwareReady", "False", reason, "", NOW)


def claim(fleet: Stored, *names: str, labels: dict[str, str] | None = None) -> None:
    """Another system says that it repairs them; {}: no more."""
    labels = {"node.coreweave.cloud/state": "triage"} if labels is None else labels
    for name in names:
        plain = fleet.facts[name]
        fleet.facts[name] = replace(plain, node=replace(plain.node, labels=labels))


def acts(rulings: dict[str, Any]) -> dict[str, int]:
    return dict(Counter(str(ruling.act) for ruling in rulings.values()))


def gpu_nodes_fall_off_the_bus(count: int, others: int, every_hours: int) -> None:
    """All of so many GPU nodes, beside so many nodes without."""
    fleet = Stored.of(count + others, rules(**NODES))
    gpu = sorted(fleet.facts)[:count]
    fleet.pools = {name: GPU_POOL if name in gpu else WITHOUT for name in fleet.facts}
    for name in gpu:
        fleet.report(name, *off_the_bus())
    for hours in range(0, 24 * 7, every_hours):
        fleet.step(after(3600 * hours))
        assert len(fleet.tainted) <= count * 30 // 100
    assert len(fleet.tainted) == count * 30 // 100


def assert_that_labels_do_not_multiply_budgets(count: int) -> None:
    fleet = Stored.of(count, rules(**NODES))
    fleet.pools = {name: f"nvidia.com/gpu {name}" for name in fleet.facts}
    for name in fleet.facts:
        fleet.report(name, evidence("IbPortDown"))
    fleet.step(NOW)
    rest = DEFAULT.in_window(count - MAX_POOLS)
    assert len(fleet.tainted) == MAX_POOLS + rest.cause
    assert len(pools_with_own_budget(dict.fromkeys(fleet.pools.values(), 1))) == MAX_POOLS


def assert_that_a_certain_fault_is_taken_at_once(count: int, days: int) -> None:
    """The case of the review: a false alarm held a real XID 79 for seven days."""
    fleet = Stored.of(count, rules(**NODES), per_domain=10)
    for name in fleet.facts:
        fleet.report(name, evidence("IbPortDown"))
    for hour in range(0, 24 * days + 1, 4):
        fleet.step(after(3600 * hour))
    later = 86400 * days + 60
    name = next(name for name in sorted(fleet.facts, reverse=True) if name not in fleet.tainted)
    fleet.report(name, *off_the_bus(later))
    _, rulings, effects, _ = fleet.step(after(later))
    assert (rulings[name].act, rulings[name].certain, effects[name].evacuate) == (Act.TAKE, True, "Now")
    assert len(fleet.tainted) <= max(2, count * 30 // 100)


def assert_that_a_label_spreads_over_one_rack_of_two(rack: int) -> None:
    fleet = Stored.of(2 * rack, rules(**NODES), per_domain=rack)
    names = sorted(fleet.facts)
    for minute in range(2 * rack):
        claim(fleet, *names[: minute + 1])
        _, rulings, _, _ = fleet.step(after(60 * minute))
    assert acts(rulings) == {"Yield": rack, "Hold": rack}


class Alarms(RuleBasedStateMachine):
    """False alarms of several sources on any nodes of four pools, real faults among them, and any time in between."""

    @initialize(
        gpu=st.integers(2, 24),
        small=st.integers(0, 12),
        watched=st.integers(0, 6),
        cpu=st.integers(0, 42),
        per_domain=st.sampled_from([0, 5]),
    )
    def begin(self, gpu: int, small: int, watched: int, cpu: int, per_domain: int) -> None:
        sizes = {GPU_POOL: gpu, SMALL_POOL: small, WATCHED_POOL: watched, WITHOUT: cpu}
        pools = [pool for pool, size in sizes.items() for _ in range(size)]
        self.fleet = Stored.of(len(pools), Rules.from_policy(BY_POOL), per_domain)
        self.fleet.pools = dict(zip(sorted(self.fleet.facts), pools, strict=True))
        self.now = NOW

    def _step(self) -> dict[str, Any]:
        _, rulings, _, _ = self.fleet.step(self.now)
        return rulings

    @rule(
        kind=st.sampled_from(["IbPortDown", "NvLinkDown", "RowRemapPending", "DiskError"]),
        first=st.integers(0, 83),
        count=st.integers(1, 84),
    )
    def the_agents_are_wrong(self, kind: str, first: int, count: int) -> None:
        at = (self.now - NOW).total_seconds()
        for name in sorted(self.fleet.facts)[first : first + count]:
            self.fleet.report(name, evidence(kind, at=at, boot_id=""))
        self._step()

    @rule(
        reason=st.sampled_from(["DCGMDiagnosticFailure", "FabricManagerNotRunning", "NvidiaDoubleBitError"]),
        on=st.booleans(),
    )
    def a_monitor_is_wrong(self, reason: str, on: bool) -> None:
        for name in self.fleet.facts:
            self.fleet.mark(name, *([replace(eks(reason), since=self.now)] if on else []))
        self._step()

    @rule(on=st.booleans(), first=st.integers(0, 83))
    def somebody_marks_many(self, on: bool, first: int) -> None:
        claim(self.fleet, *sorted(self.fleet.facts)[first:], labels=None if on else {})
        self._step()

    @rule(seconds=st.sampled_from([1, 300, 601, 7200, 3 * 86400]))
    def time_passes(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)
        self._step()

    @rule(index=st.integers(0, 83))
    def one_falls_off_the_bus(self, index: int) -> None:
        """It is taken at once, unless so many certain ones, or its own pool's share of them, are out already."""
        names = sorted(self.fleet.facts)
        name = names[index % len(names)]
        rulings = self._step()
        if rulings[name].act in (Act.TAKE, Act.YIELD):
            return
        certain = [n for n in names if self._open(n) and self._open(n).certain]  # type: ignore[union-attr]
        recent = [
            incident
            for n in names
            for incident in self.fleet.healths[n].status.incidents
            if incident.certain and incident.taken_out_time and incident.taken_out_time > self.now - timedelta(days=4)
        ]
        self.fleet.report(name, *off_the_bus((self.now - NOW).total_seconds(), ""))
        rulings = self._step()
        if not certain and not recent and self.fleet.pools[name] != WATCHED_POOL:
            assert rulings[name].act is Act.TAKE, rulings[name].why

    def _open(self, name: str) -> HealthIncident | None:
        incidents = self.fleet.healths[name].status.incidents
        last = incidents[-1] if incidents else None
        return last if last is not None and last.cleared_time is None and last.taken_out_time is not None else None

    @invariant()
    def nothing_is_done_where_the_policy_observes(self) -> None:
        watched = {name for name, pool in self.fleet.pools.items() if pool == WATCHED_POOL}
        assert not watched & self.fleet.tainted
        assert not any(self._open(name) for name in watched)

    @invariant()
    def no_budget_is_exceeded(self) -> None:
        sizes = Counter(self.fleet.pools.values())
        for pool, size in sizes.items():
            budgets, window = (
                (SMALL, timedelta(seconds=300)) if pool == SMALL_POOL else (DEFAULT, timedelta(minutes=10))
            )
            per_window, cap = budgets.in_window(size), budgets.at_once(size)
            names = [name for name, its in self.fleet.pools.items() if its == pool]
            taken = [(moment, name) for moment, name in self.fleet.taken_at if name in names]
            for moment, _ in taken:  # a node that is taken out again counts once
                assert len({name for other, name in taken if moment - window < other <= moment}) <= per_window.total
            out = [incident for name in names if (incident := self._open(name)) is not None]
            assert len(out) <= cap.total
            uncertain = [incident for incident in out if not incident.certain]
            assert len(uncertain) <= cap.uncertain
            assert max(Counter(incident.charged_to for incident in uncertain).values(), default=0) <= cap.cause
            domains = Counter(self.fleet.domains.get(name) for name in names if self._open(name))
            of = Counter(self.fleet.domains.get(name) for name in names)
            for domain, count in domains.items():
                if domain is not None:
                    assert count <= budgets.in_domain(of[domain]).total

"""Many nodes of a fleet that fall sick at once, whatever the clock does; and any sequence of events."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from itertools import accumulate
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.unit.health.builders import NOW, Stored, after, decided, evidence, rules

from muster.api.nodehealth import Decision
from muster.health.rulings import Act
from muster.health.window_budgets import MAX_PAUSE_SECONDS
from muster.world.views import ConditionView

XID_79 = evidence("Xid", 79)
PORT_DOWN = evidence("IbPortDown", subject="mlx5_3/1")
NODES: dict[str, Any] = {"enforcement": "Nodes"}


def acts(rulings: dict[str, Any]) -> Counter[str]:
    return Counter(str(ruling.act) for ruling in rulings.values())


def all_sick(fleet: Stored, *names: str) -> None:
    for name in names or fleet.facts:
        fleet.report(name, PORT_DOWN)


PAUSES = [10, 20, 40, 80, 160, *[MAX_PAUSE_SECONDS // 60] * 7]


def assert_that_the_budget_is_taken(count: int, budget: int, cap: int) -> None:
    fleet = Stored.of(count, rules(**NODES))
    for name in fleet.facts:
        fleet.report(name, XID_79)
    _, rulings, effects, breaker = fleet.step(NOW)
    assert acts(rulings) == {"Take": budget, "Hold": count - budget}
    assert len(fleet.tainted) == budget
    assert all(effect.avoid for effect in effects.values())
    assert Counter(str(effect.evacuate) for effect in effects.values()) == {"Now": budget, "No": count - budget}
    _, again, _, breaker = fleet.step(after(1))
    assert acts(again) == acts(rulings)
    assert (breaker.held, breaker.cap) == (count - budget, cap)
    assert "spec.health.budgets" in breaker.message


def assert_that_one_is_tried_after_pauses_that_double(count: int, at_once: int, cap: int, uncertain: int) -> None:
    fleet = Stored.of(count, rules(**NODES))
    all_sick(fleet)
    pauses = PAUSES[: cap - at_once]
    tries, last = [], at_once
    for minute in (0, *(minute + early for minute in accumulate(pauses) for early in (-1, 0)), 60 * 120):
        _, _, _, breaker = fleet.step(after(minute * 60))
        if len(fleet.tainted) > last:
            assert len(fleet.tainted) == last + 1
            tries.append(minute)
            last = len(fleet.tainted)
    assert [later - before for before, later in zip([0, *tries], tries, strict=False)] == pauses
    assert len(fleet.tainted) == cap
    _, rulings, _, _ = fleet.step(after(60 * 60 * 120))
    assert {r.why for r in rulings.values() if r.act is Act.HOLD} == {
        f"at most {cap} of the pool's {count} nodes may be out for agent/IbPortDown ({uncertain} for all uncertain "
        "faults): find what they share, or raise spec.health.budgets"
    }
    assert breaker.held == count - cap
    assert breaker.next_try is None


def assert_that_xid_79_on_every_node_may_be_wrong(count: int, budget: int, seconds: Iterable[int]) -> None:
    fleet = Stored.of(count, rules(**NODES), per_domain=20)
    for name in fleet.facts:
        fleet.report(name, XID_79)
    for second in sorted({*seconds, 0, 570, 630, 1770, 1830}):
        _, _, effects, _ = fleet.step(after(second))
        left = [name for name, effect in effects.items() if effect.evacuate != "No"]
        # The budget, one more after ten minutes, and another one after twenty more.
        assert len(left) == len(fleet.tainted) == budget + (second >= 600) + (second >= 1800)
    assert len([name for name, h in fleet.healths.items() if h.status.offences.score != "0"]) == budget + 2
    for name in fleet.facts:
        fleet.reboot(name, "boot-2")
    _, rulings, effects, breaker = fleet.step(after(3000))
    assert acts(rulings) == {"Nothing": count - budget - 2, "Untaint": budget + 2}
    assert not any(effect.avoid for effect in effects.values())
    assert (breaker.held, fleet.tainted) == (0, set())
    fleet.report("node-0050", evidence("IbPortDown", at=3100, boot_id="boot-2"))
    fleet.step(after(3100))
    assert fleet.tainted == {"node-0050"}, "who really falls sick after that is taken at once"


def assert_that_a_condition_that_flaps_does_not_creep(count: int, every: int, budget: int) -> None:
    """Each time it comes the window counts what was taken the times before."""
    fleet = Stored.of(count, rules(**NODES))
    for second in range(0, 600, every):
        for name in fleet.facts:
            on = second % (2 * every) == 0
            fleet.mark(name, ConditionView("GPUMissing", "True" if on else "False", "GPUMissing", "", after(second)))
        fleet.step(after(second))
    assert len(fleet.taken_at) == budget


def assert_that_a_jump_takes_no_more_than_the_cap(count: int, jump: float) -> None:
    fleet = Stored.of(count, rules(**NODES))
    all_sick(fleet)
    fleet.step(NOW)
    for second in range(0, 1200, 60):
        fleet.step(after(jump + second))
        assert len(fleet.tainted) <= count * 30 // 100
    for name in fleet.facts:
        fleet.report(name)
    fleet.step(after(jump + 1300))
    assert fleet.tainted == set()


class AnySequence(RuleBasedStateMachine):
    """Nodes fall sick and get well, are cordoned, repaired by others, come and go; operators crash and start anew."""

    @initialize(count=st.integers(1, 24), per_domain=st.sampled_from([0, 3, 8]))
    def begin(self, count: int, per_domain: int) -> None:
        self.fleet = Stored.of(count, rules(**NODES), per_domain)
        self.now = NOW

    def _name(self, index: int) -> str:
        names = sorted(self.fleet.facts)
        return names[index % len(names)]

    def _step(self, crash: bool = False) -> None:
        verdicts, rulings, _, breaker = self.fleet.step(self.now, crash_before_taints=crash)
        assert not breaker.message or breaker.held
        for name, ruling in rulings.items():
            if ruling.act is Act.TAKE:
                assert verdicts[name].out
            if ruling.act in (Act.NOTHING, Act.UNTAINT):
                assert not verdicts[name].out

    @rule(index=st.integers(0, 99), kind=st.sampled_from(["IbPortDown", "RowRemapPending", "Xid"]), crash=st.booleans())
    def falls_sick(self, index: int, kind: str, crash: bool) -> None:
        seconds = (self.now - NOW).total_seconds()
        boot = self.fleet.healths[self._name(index)].status.boot_id or "boot-1"
        self.fleet.report(self._name(index), evidence(kind, 79, at=seconds, boot_id=boot))
        self._step(crash)

    @rule(crash=st.booleans())
    def all_fall_sick(self, crash: bool) -> None:
        seconds = (self.now - NOW).total_seconds()
        for name in self.fleet.facts:
            self.fleet.report(name, evidence("IbPortDown", at=seconds, boot_id=""))
        self._step(crash)

    @rule(index=st.integers(0, 99))
    def gets_well(self, index: int) -> None:
        self.fleet.reboot(self._name(index), f"boot-{self.now.timestamp()}")
        self._step()

    @rule()
    def all_get_well(self) -> None:
        for name in self.fleet.facts:
            self.fleet.reboot(name, f"boot-{self.now.timestamp()}")
        self._step()

    @rule(index=st.integers(0, 99), decision=st.sampled_from([None, Decision.RELEASE, Decision.CORDON]))
    def a_human_decides(self, index: int, decision: Decision | None) -> None:
        name = self._name(index)
        self.fleet.healths[name] = decided(self.fleet.healths[name], decision, (self.now - NOW).total_seconds())
        self._step()

    @rule(index=st.integers(0, 99), state=st.sampled_from(["", "draining"]))
    def others_repair(self, index: int, state: str) -> None:
        plain = self.fleet.facts[self._name(index)]
        labels = {"dgxc.nvidia.com/nvsentinel-state": state} if state else {}
        self.fleet.facts[self._name(index)] = replace(plain, node=replace(plain.node, labels=labels))
        self._step()

    @rule(seconds=st.sampled_from([1, 59, 600, 601, 3600, 86400, 7 * 86400]))
    def time_passes(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)
        self._step()

    @invariant()
    def the_budget_is_never_exceeded(self) -> None:
        size = len(self.fleet.facts)
        window, per_window, cap = timedelta(seconds=600), max(1, size // 10), max(1, size * 30 // 100)
        for moment, _ in self.fleet.taken_at:
            taken = {name for other, name in self.fleet.taken_at if moment - window < other <= moment}
            assert len(taken) <= per_window, "a node that is taken out again counts once"
        charged = {
            name
            for name, health in self.fleet.healths.items()
            if health.status.incidents
            and not health.status.incidents[-1].cleared_time
            and health.status.incidents[-1].taken_out_time
        }
        assert len(charged) <= cap
        for domain, count in Counter(
            self.fleet.domains[name] for name in charged if name in self.fleet.domains
        ).items():
            members = sum(1 for other in self.fleet.domains.values() if other == domain)
            assert count <= max(1, members // 4)

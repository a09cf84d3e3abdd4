"""How many nodes are taken out, by any sequence of events and restarts."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.unit.health.builders import NOW, Stored, after, budgets, decided, evidence, rules

from muster.api.nodehealth import Decision
from muster.health.breaker import MAX_PAUSE_SECONDS, Act, BreakerState
from muster.world.views import ConditionView

XID_79 = evidence("Xid", 79)
PORT_DOWN = evidence("IbPortDown", subject="mlx5_3/1")
NODES: dict[str, Any] = {"enforcement": "Nodes"}


def acts(rulings: dict[str, Any]) -> Counter[str]:
    return Counter(str(ruling.act) for ruling in rulings.values())


def all_sick(fleet: Stored, *names: str) -> None:
    for name in names or fleet.facts:
        fleet.report(name, PORT_DOWN)


class TestOneNode:
    def test_is_taken_at_once_and_given_back_when_it_is_well(self) -> None:
        fleet = Stored.of(4, rules(**NODES))
        fleet.report("node-0001", PORT_DOWN)
        _, rulings, effects, breaker = fleet.step(NOW)
        assert acts(rulings) == {"Take": 1, "Nothing": 3}
        assert (fleet.tainted, effects["node-0001"].evacuate, breaker.state) == ({"node-0001"}, "Now", "Closed")
        fleet.report("node-0001")
        _, rulings, effects, _ = fleet.step(after(60))
        assert rulings["node-0001"].act is Act.UNTAINT
        assert fleet.tainted == set()

    def test_may_be_taken_in_the_smallest_fleet(self) -> None:
        fleet = Stored.of(1, rules(**NODES))
        all_sick(fleet)
        fleet.step(NOW)
        assert fleet.tainted == {"node-0000"}

    def test_a_taint_that_a_crash_prevented_is_made_up_for_without_another_charge(self) -> None:
        fleet = Stored.of(20, rules(**NODES))
        fleet.report("node-0001", PORT_DOWN)
        fleet.step(NOW, crash_before_taints=True)
        assert fleet.tainted == set()
        _, rulings, _, breaker = fleet.step(after(5))
        assert (fleet.tainted, breaker.used) == ({"node-0001"}, 1)
        assert not rulings["node-0001"].charge
        assert fleet.taken_at == [(NOW, "node-0001")]

    def test_taints_whose_records_were_deleted_are_paid_for_but_come_first(self) -> None:
        fleet = Stored.of(40, rules(**NODES))
        all_sick(fleet)
        fleet.tainted = {"node-0011", "node-0012", "node-0013", "node-0014"}
        _, rulings, _, breaker = fleet.step(NOW)
        assert fleet.tainted == {"node-0011", "node-0012", "node-0013"}
        assert (rulings["node-0011"].charge, breaker.out) == (True, 3)

    def test_a_cordon_that_is_taken_back_leaves_a_sick_node_to_the_budget(self) -> None:
        fleet = Stored.of(10, rules(**NODES))
        all_sick(fleet, "node-0001", "node-0002")
        fleet.healths["node-0002"] = decided(fleet.healths["node-0002"], Decision.CORDON)
        fleet.step(NOW)
        assert fleet.tainted == {"node-0001", "node-0002"}
        fleet.healths["node-0002"] = decided(fleet.healths["node-0002"], None)
        _, rulings, effects, _ = fleet.step(after(60))
        assert (fleet.tainted, rulings["node-0002"].act) == ({"node-0001"}, Act.HOLD)
        assert effects["node-0002"].avoid


_PAUSES = [10, 20, 40, 80, 160, *[MAX_PAUSE_SECONDS // 60] * 7]
_TRIES = list(accumulate(_PAUSES))


class TestManyAtOnce:
    @pytest.mark.parametrize(("count", "budget", "cap"), [(2048, 123, 615), (100, 6, 30), (9, 1, 3), (3, 1, 2)])
    def test_the_budget_is_taken_and_the_rest_is_only_avoided(self, count: int, budget: int, cap: int) -> None:
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
        assert (breaker.state, breaker.held, breaker.cap) == ("Open", count - budget, cap)
        assert "spec.health.budgets" in breaker.message

    def test_it_tries_one_at_a_time_after_pauses_that_double_up_to_the_cap(self) -> None:
        fleet = Stored.of(100, rules(**NODES))
        all_sick(fleet)
        tries, last = [], 6
        for minute in (0, *(minute + early for minute in _TRIES for early in (-1, 0)), 60 * 120):
            _, _, _, breaker = fleet.step(after(minute * 60))
            if len(fleet.tainted) > last:
                assert len(fleet.tainted) == last + 1
                tries.append(minute)
                last = len(fleet.tainted)
        pauses = [later - before for before, later in zip([0, *tries], tries, strict=False)]
        assert pauses == _PAUSES
        assert len(fleet.tainted) == 18
        _, rulings, _, _ = fleet.step(after(60 * 60 * 120))
        assert {r.why for r in rulings.values() if r.act is Act.HOLD} == {
            "of the pool's 100 nodes, at most 18 may be out for agent/IbPortDown (24 for all uncertain faults): find "
            "what they share, or raise spec.health.budgets"
        }
        assert breaker.held == 82
        assert breaker.next_try is None

    def test_half_open_is_said_when_one_may_be_tried(self) -> None:
        fleet = Stored.of(100, rules(**NODES))
        all_sick(fleet)
        fleet.step(NOW)
        _, _, _, waits = fleet.step(after(599))
        assert (waits.state, waits.next_try) == (BreakerState.OPEN, after(600))
        _, rulings, _, tried = fleet.step(after(600))
        assert (tried.state, acts(rulings)["Take"]) == (BreakerState.HALF_OPEN, 7)

    def test_every_node_reports_xid_79_at_once_and_it_was_all_wrong(self) -> None:
        fleet = Stored.of(200, rules(**NODES), per_domain=20)
        for name in fleet.facts:
            fleet.report(name, XID_79)
        for second in sorted({*range(0, 3000, 150), 570, 630, 1770, 1830}):
            _, _, effects, _ = fleet.step(after(second))
            left = [name for name, effect in effects.items() if effect.evacuate != "No"]
            # The budget, one more after ten minutes, and another one after twenty more.
            assert len(left) == len(fleet.tainted) == 12 + (second >= 600) + (second >= 1800)
        assert len([name for name, h in fleet.healths.items() if h.status.offences.score != "0"]) == 14
        for name in fleet.facts:
            fleet.reboot(name, "boot-2")
        _, rulings, effects, breaker = fleet.step(after(3000))
        assert acts(rulings) == {"Nothing": 186, "Untaint": 14}
        assert not any(effect.avoid for effect in effects.values())
        assert (breaker.state, breaker.held, fleet.tainted) == (BreakerState.CLOSED, 0, set())
        fleet.report("node-0100", evidence("IbPortDown", at=3100, boot_id="boot-2"))
        fleet.step(after(3100))
        assert fleet.tainted == {"node-0100"}, "who really falls sick after that is taken at once"

    def test_a_roll_out_that_calls_sixty_percent_unready(self) -> None:
        fleet = Stored.of(100, rules(**NODES), per_domain=10)
        bad = ConditionView("AcceleratedHardwareReady", "False", "DCGMError", "", NOW)
        for name in sorted(fleet.facts)[:60]:
            fleet.mark(name, bad)
        for minute in range(9):
            _, rulings, effects, _ = fleet.step(after(60 * minute))
            assert acts(rulings) == {"Take": 6, "Hold": 54, "Nothing": 40}
            assert sum(effect.evacuate != "No" for effect in effects.values()) == len(fleet.tainted) == 6
            racks = Counter(fleet.domains[name] for name in fleet.tainted)
            assert max(racks.values()) <= 2
        assert {str(e.evacuate) for e in effects.values()} == {"AfterCheckpoint", "No"}
        for name in fleet.facts:
            fleet.mark(name, replace(bad, status="True", since=after(600)))
        fleet.step(after(601))
        assert fleet.tainted == set()
        _, rulings, effects, breaker = fleet.step(after(602))
        assert (acts(rulings), breaker.held, breaker.state) == ({"Nothing": 100}, 0, BreakerState.CLOSED)
        assert not any(effect.avoid for effect in effects.values())

    def test_a_condition_that_flaps_on_every_node_does_not_creep(self) -> None:
        """Each time it comes the window counts what was taken the times before."""
        fleet = Stored.of(100, rules(**NODES))
        for second in range(0, 600, 20):
            for name in fleet.facts:
                on = second % 40 == 0
                fleet.mark(
                    name, ConditionView("GPUMissing", "True" if on else "False", "GPUMissing", "", after(second))
                )
            fleet.step(after(second))
        assert len(fleet.taken_at) == 6

    def test_the_gravest_go_first_then_those_that_wait_for_longest(self) -> None:
        fleet = Stored.of(30, rules(**NODES))
        fleet.report("node-0001", evidence("RowRemapPending"))
        fleet.report("node-0002", evidence("RowRemapPending"))
        fleet.report("node-0003", PORT_DOWN)
        fleet.step(NOW)
        assert fleet.tainted == {"node-0001", "node-0003"}


class TestDomains:
    def test_no_more_than_a_quarter_of_a_rack_is_out(self) -> None:
        fleet = Stored.of(80, rules(**NODES, budgets=budgets(domain=25)), per_domain=8)
        all_sick(fleet)
        _, rulings, _, breaker = fleet.step(NOW)
        assert set(Counter(fleet.domains[name] for name in fleet.tainted).values()) == {1}
        assert {r.why for r in rulings.values() if r.act is Act.HOLD} == {
            f"of the pool's 8 nodes in block/rack-{rack}, at most 1 may be out for uncertain faults"
            for rack in range(10)
        }
        assert breaker.next_try is None, "no time will do"

    def test_at_least_one_of_the_smallest_rack(self) -> None:
        fleet = Stored.of(6, rules(**NODES, budgets=budgets(domain=25)), per_domain=2)
        all_sick(fleet)
        fleet.step(NOW)
        assert len(fleet.tainted) == 3

    @pytest.mark.parametrize("path", [("", ""), ("b1", ""), ("", "r1")], ids=["no label", "no rack", "no block"])
    def test_nodes_that_lack_a_label_are_in_no_domain(self, path: tuple[str, str]) -> None:
        fleet = Stored.of(20, rules(**NODES, budgets=budgets(domain=0)))
        fleet.domains = dict.fromkeys(fleet.facts, path)
        all_sick(fleet)
        fleet.step(NOW)
        assert len(fleet.tainted) == 20

    def test_one_full_rack_does_not_open_the_breaker_for_the_others(self) -> None:
        fleet = Stored.of(100, rules(**NODES), per_domain=10)
        rack = sorted(fleet.facts)[:10]
        all_sick(fleet, *rack)
        fleet.step(NOW)
        assert len(fleet.tainted) == 2
        for minute in (30, 60, 90):
            fleet.report(f"node-00{minute}", PORT_DOWN)
            _, _, _, breaker = fleet.step(after(minute * 60))
            assert f"node-00{minute}" in fleet.tainted
            assert breaker.state is BreakerState.CLOSED


class TestOthers:
    def test_a_node_that_somebody_repairs_is_not_taken_a_second_time(self) -> None:
        fleet = Stored.of(10, rules(**NODES))
        label = {"dgxc.nvidia.com/nvsentinel-state": "draining"}
        fleet.facts["node-0001"] = replace(
            fleet.facts["node-0001"], node=replace(fleet.facts["node-0001"].node, labels=label, unschedulable=True)
        )
        fleet.report("node-0001", PORT_DOWN)
        verdicts, rulings, effects, breaker = fleet.step(NOW)
        assert rulings["node-0001"].act is Act.YIELD
        assert (effects["node-0001"].avoid, effects["node-0001"].evacuate) == (True, "AfterCheckpoint")
        assert (fleet.tainted, breaker.used, breaker.held) == (set(), 0, 0)
        assert verdicts["node-0001"].open_incident is not None

    def test_our_taint_neither_goes_nor_comes_while_others_repair(self) -> None:
        fleet = Stored.of(10, rules(**NODES))
        fleet.report("node-0001", PORT_DOWN)
        seen = []
        plain = fleet.facts["node-0001"]
        for index, state in enumerate(["", "quarantined", "draining", "remediating", "remediation-succeeded", ""]):
            labels = {"dgxc.nvidia.com/nvsentinel-state": state} if state else {}
            fleet.facts["node-0001"] = replace(
                plain, node=replace(plain.node, labels=labels, unschedulable=bool(state))
            )
            if state == "remediation-succeeded":
                fleet.reboot("node-0001", "boot-2")
            fleet.step(after(30 * index))
            seen.append("node-0001" in fleet.tainted)
        assert seen == [True, True, True, True, True, False]

    def test_repairs_of_others_use_up_no_budget(self) -> None:
        fleet = Stored.of(10, rules(**NODES))
        for name in sorted(fleet.facts)[:8]:
            plain = fleet.facts[name]
            labels = {"cloud.google.com/active-node-maintenance": "ONGOING"}
            fleet.facts[name] = replace(plain, node=replace(plain.node, labels=labels))
        fleet.report("node-0009", PORT_DOWN)
        fleet.step(NOW)
        assert fleet.tainted == {"node-0009"}

    def test_what_a_human_cordons_uses_up_no_budget_and_is_not_held(self) -> None:
        fleet = Stored.of(10, rules(**NODES))
        for name in sorted(fleet.facts)[:9]:
            fleet.healths[name] = decided(fleet.healths[name], Decision.CORDON)
        fleet.report("node-0009", PORT_DOWN)
        _, rulings, effects, _ = fleet.step(NOW)
        assert len(fleet.tainted) == 10
        assert effects["node-0000"].evacuate == "AfterCheckpoint"
        assert [name for name, ruling in rulings.items() if ruling.charge] == ["node-0009"]

    def test_a_cordon_over_a_node_that_muster_took_makes_no_room_for_another(self) -> None:
        fleet = Stored.of(4, rules(**NODES))
        fleet.report("node-0001", PORT_DOWN)
        fleet.step(NOW)
        fleet.healths["node-0001"] = decided(fleet.healths["node-0001"], Decision.CORDON, at=10)
        fleet.report("node-0002", evidence("IbPortDown", at=700))
        _, rulings, _, breaker = fleet.step(after(700))
        assert (rulings["node-0002"].act, breaker.out, breaker.state) == (Act.HOLD, 1, "Open")


class TestEnforcement:
    @pytest.mark.parametrize(
        ("enforcement", "avoid", "evacuate", "taint"),
        [("Observe", False, "No", False), ("Jobs", True, "Now", False), ("Nodes", True, "Now", True)],
    )
    def test_says_what_is_done(self, enforcement: str, avoid: bool, evacuate: str, taint: bool) -> None:
        fleet = Stored.of(4, rules(enforcement=enforcement))
        fleet.report("node-0001", PORT_DOWN)
        _, _, effects, _ = fleet.step(NOW)
        what = effects["node-0001"]
        assert (what.avoid, str(what.evacuate), what.taint) == (avoid, evacuate, taint)

    @pytest.mark.parametrize("enforcement", ["Observe", "Jobs"])
    def test_a_cordon_is_obeyed_in_any_case(self, enforcement: str) -> None:
        fleet = Stored.of(4, rules(enforcement=enforcement))
        fleet.healths["node-0001"] = decided(fleet.healths["node-0001"], Decision.CORDON)
        _, _, effects, _ = fleet.step(NOW)
        assert (effects["node-0001"].avoid, str(effects["node-0001"].evacuate)) == (True, "AfterCheckpoint")
        assert not effects["node-0001"].taint

    def test_after_a_time_of_observing_the_budget_holds(self) -> None:
        fleet = Stored.of(100, rules(enforcement="Observe"))
        all_sick(fleet)
        for second in (0, 600, 1200):
            _, rulings, effects, _ = fleet.step(after(second))
            assert acts(rulings) == {"Take": 6, "Hold": 94}
            assert not any(effect.avoid for effect in effects.values())
        fleet.rules = rules(**NODES)
        fleet.step(after(1300))
        assert len(fleet.tainted) == 6

    def test_jobs_leave_within_the_budget_too(self) -> None:
        fleet = Stored.of(100, rules())
        all_sick(fleet)
        for second in (0, 1, 300):
            _, _, effects, _ = fleet.step(after(second))
            assert sum(effect.evacuate != "No" for effect in effects.values()) == 6


class TestClocks:
    @pytest.mark.parametrize("jump", [-(10**8), -86400, -60, 86400, 10**8])
    def test_a_jump_never_takes_more_than_the_cap_and_recovery_goes_on(self, jump: float) -> None:
        fleet = Stored.of(100, rules(**NODES))
        all_sick(fleet)
        fleet.step(NOW)
        for second in range(0, 1200, 60):
            fleet.step(after(jump + second))
            assert len(fleet.tainted) <= 30
        for name in fleet.facts:
            fleet.report(name)
        fleet.step(after(jump + 1300))
        assert fleet.tainted == set()

    def test_what_was_taken_by_a_clock_that_was_ahead_counts_until_a_window_has_really_passed(self) -> None:
        """Each further leader, its clock less wrong than the one before, used to find the whole budget."""
        fleet = Stored.of(100, rules(**NODES))
        all_sick(fleet, *sorted(fleet.facts)[:40])
        wrong = after(3 * 3600)
        fleet.step(wrong)
        for seconds, known in ((60, {}), (360, {wrong: 300.0}), (659, {wrong: 599.0})):
            fleet.ahead = known
            _, _, _, breaker = fleet.step(after(seconds))
            assert (len(fleet.tainted), breaker.used, breaker.state) == (6, 6, BreakerState.OPEN)
        fleet.ahead = {wrong: 600.0}
        fleet.step(after(660))
        assert 6 < len(fleet.tainted) <= 12


def test_after_a_clock_that_was_wrong_nodes_can_still_be_taken() -> None:
    fleet = Stored.of(100, rules(**NODES))
    all_sick(fleet, *sorted(fleet.facts)[:10])
    fleet.step(NOW)
    fleet.report("node-0050", PORT_DOWN)
    fleet.step(after(-86400))
    assert "node-0050" not in fleet.tainted, "the window of those that were taken is not over"
    fleet.ahead = {NOW: 600.0}
    fleet.step(after(-85800))
    assert "node-0050" in fleet.tainted


def test_incidents_of_nodes_that_are_gone_count_for_the_window() -> None:
    fleet = Stored.of(20, rules(**NODES))
    all_sick(fleet, "node-0001", "node-0002")
    fleet.step(NOW)
    for name in ("node-0001", "node-0002"):
        del fleet.facts[name]
        fleet.tainted.discard(name)
    fleet.report("node-0003", PORT_DOWN)
    _, rulings, _, _ = fleet.step(after(60))
    assert rulings["node-0003"].act is Act.HOLD


def test_an_agent_whose_reports_come_and_go_uses_up_the_budget_of_one_node() -> None:
    """By claiming another machine each time it escapes the quarantine."""
    fleet = Stored.of(100, rules(**NODES))
    sick, neighbour = "node-0003", "node-0050"
    for round_ in range(20):
        known = fleet.healths[sick].status
        assert known.agent is not None
        liar = known.agent.model_copy(update={"system_uuid": f"board-{round_}", "gpu_serials": [f"gpu-{round_}"]})
        status = known.model_copy(update={"agent": liar})
        fleet.healths[sick] = fleet.healths[sick].model_copy(update={"status": status})
        for reported in ([evidence("IbPortDown", subject="mlx5_3/1", at=4 * round_)], []):
            fleet.report(sick, *reported)
            fleet.step(after(4 * round_ + 2 * (not reported)))
    assert len(fleet.taken_at) == 20
    fleet.report(neighbour, PORT_DOWN)
    _, rulings, _, breaker = fleet.step(after(80))
    assert (rulings[neighbour].act, breaker.used) == (Act.TAKE, 2)


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
        times = [moment for moment, _ in self.fleet.taken_at]
        for moment in times:
            assert sum(1 for other in times if moment - window < other <= moment) <= per_window
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


# Three times as many examples run in tests/unit/nightly/health/test_breaker.py.
AnySequence.TestCase.settings = settings(max_examples=14, stateful_step_count=20)
TestAnySequence = AnySequence.TestCase

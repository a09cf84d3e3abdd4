"""How many nodes are taken out, by any sequence of events and restarts."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import settings
from tests.unit.health.alarms import (
    NODES,
    PORT_DOWN,
    AnySequence,
    acts,
    all_sick,
    assert_that_a_condition_that_flaps_does_not_creep,
    assert_that_a_jump_takes_no_more_than_the_cap,
    assert_that_one_is_tried_after_pauses_that_double,
    assert_that_the_budget_is_taken,
    assert_that_xid_79_on_every_node_may_be_wrong,
)
from tests.unit.health.builders import NOW, Stored, after, budgets, decided, evidence, rules
from tests.unit.health.pools import claim

from muster.api.nodehealth import Decision
from muster.health.budgets import OF_FLEET
from muster.health.figures import (
    MESSAGE_LENGTH,
    BudgetKind,
    ExhaustedBudget,
    PoolFigures,
    breaker_of,
)
from muster.health.rulings import Act
from muster.world.views import ConditionView


class TestOneNode:
    def test_is_taken_at_once_and_given_back_when_it_is_well(self) -> None:
        fleet = Stored.of(4, rules(**NODES))
        fleet.report("node-0001", PORT_DOWN)
        _, rulings, effects, breaker = fleet.step(NOW)
        assert acts(rulings) == {"Take": 1, "Nothing": 3}
        assert (fleet.tainted, effects["node-0001"].evacuate, breaker.held) == ({"node-0001"}, "Now", 0)
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


class TestManyAtOnce:
    @pytest.mark.parametrize(("count", "budget", "cap"), [(100, 6, 30), (9, 1, 3), (3, 1, 2)])
    def test_the_budget_is_taken_and_the_rest_is_only_avoided(self, count: int, budget: int, cap: int) -> None:
        assert_that_the_budget_is_taken(count, budget, cap)

    def test_it_tries_one_at_a_time_after_pauses_that_double_up_to_the_cap(self) -> None:
        assert_that_one_is_tried_after_pauses_that_double(30, at_once=2, cap=6, uncertain=8)

    def test_it_is_said_when_the_next_one_is_tried(self) -> None:
        fleet = Stored.of(100, rules(**NODES))
        all_sick(fleet)
        fleet.step(NOW)
        _, _, _, waits = fleet.step(after(599))
        assert (waits.held, waits.next_try) == (94, after(600))
        _, rulings, _, tried = fleet.step(after(600))
        assert (tried.held, acts(rulings)["Take"]) == (93, 7)

    def test_every_node_reports_xid_79_at_once_and_it_was_all_wrong(self) -> None:
        assert_that_xid_79_on_every_node_may_be_wrong(100, 6, ())

    def test_a_roll_out_that_calls_sixty_percent_unready(self) -> None:
        fleet = Stored.of(100, rules(**NODES), per_domain=10)
        bad = ConditionView("AcceleratedHardwareReady", "False", "DCGMDiagnosticFailure", "", NOW)
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
        assert (acts(rulings), breaker.held) == ({"Nothing": 100}, 0)
        assert not any(effect.avoid for effect in effects.values())

    def test_a_condition_that_flaps_on_every_node_does_not_creep(self) -> None:
        assert_that_a_condition_that_flaps_does_not_creep(50, every=50, budget=3)

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
            f"at most 1 of the pool's 8 nodes in block/rack-{rack} may be out for uncertain faults: find what they "
            "share, or raise spec.health.budgets"
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

    def test_a_budget_of_a_rack_opens_the_breaker_and_is_named_with_the_number_of_nodes(self) -> None:
        fleet = Stored.of(100, rules(**NODES), per_domain=10)
        all_sick(fleet, *sorted(fleet.facts)[:5])
        _, _, _, breaker = fleet.step(NOW)
        assert (breaker.held, breaker.next_try) == (3, None)
        assert "The budgets keep 3 unhealthy nodes in use (agent/IbPortDown: 3)." in breaker.message
        limit = "3 wait because at most 2 of the pool's 10 nodes in block/rack-0 may be out for uncertain faults."
        assert limit in breaker.message
        assert "raise the items with per: Domain in spec.health.budgets" in breaker.message

    def test_each_kind_of_budget_is_named_with_its_nodes(self) -> None:
        fleet = Stored.of(100, rules(**NODES), per_domain=10)
        all_sick(fleet, *sorted(fleet.facts)[:40])
        _, _, _, breaker = fleet.step(NOW)
        assert [(budget.kind, count) for budget, count in breaker.pools[0].by_budget] == [
            (BudgetKind.WINDOW, 10),
            (BudgetKind.DOMAIN, 8),
            (BudgetKind.DOMAIN, 8),
            (BudgetKind.DOMAIN, 8),
        ]
        assert "10 wait because the budget of 6 nodes in 600 s for agent/IbPortDown is exhausted" in breaker.message
        assert "8 wait for other budgets." in breaker.message
        assert "raise the items with per: Domain and with windowSeconds in" in breaker.message
        assert "next node out at 2026-11-20 09:51:07 UTC" in breaker.message

    def test_one_full_rack_holds_no_node_of_the_others(self) -> None:
        fleet = Stored.of(100, rules(**NODES), per_domain=10)
        rack = sorted(fleet.facts)[:10]
        all_sick(fleet, *rack)
        fleet.step(NOW)
        assert len(fleet.tainted) == 2
        for minute in (30, 60, 90):
            fleet.report(f"node-00{minute}", PORT_DOWN)
            _, _, _, breaker = fleet.step(after(minute * 60))
            assert f"node-00{minute}" in fleet.tainted
            assert breaker.held == 8


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

    def test_our_taint_stays_while_others_repair_until_we_see_no_fault_any_more(self) -> None:
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
        assert seen == [True, True, True, True, False, False]

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
        assert (rulings["node-0002"].act, breaker.out, breaker.held) == (Act.HOLD, 1, 1)


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

    @pytest.mark.parametrize(
        ("enforcement", "avoid", "evacuate"), [("Observe", False, "No"), ("Jobs", True, "AfterCheckpoint")]
    )
    def test_a_mark_of_a_repair_by_others_counts_as_faults_do(
        self, enforcement: str, avoid: bool, evacuate: str
    ) -> None:
        fleet = Stored.of(4, rules(enforcement=enforcement))
        claim(fleet, "node-0001")
        _, _, effects, _ = fleet.step(NOW)
        assert (effects["node-0001"].avoid, str(effects["node-0001"].evacuate)) == (avoid, evacuate)

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
    @pytest.mark.parametrize("jump", [-86400, 86400])
    def test_a_jump_never_takes_more_than_the_cap_and_recovery_goes_on(self, jump: float) -> None:
        assert_that_a_jump_takes_no_more_than_the_cap(20, jump)

    def test_what_a_clock_ahead_took_counts_until_a_window_has_really_passed(self) -> None:
        """Each further leader, its clock less wrong than the one before, used to find the whole budget."""
        fleet = Stored.of(100, rules(**NODES))
        all_sick(fleet, *sorted(fleet.facts)[:40])
        wrong = after(3 * 3600)
        fleet.step(wrong)
        for seconds, known in ((60, {}), (360, {wrong: 300.0}), (659, {wrong: 599.0})):
            fleet.ahead = known
            _, _, _, breaker = fleet.step(after(seconds))
            assert (len(fleet.tainted), breaker.used, breaker.held > 0) == (6, 6, True)
        fleet.ahead = {wrong: 600.0}
        fleet.step(after(660))
        assert 6 < len(fleet.tainted) <= 12


def test_a_message_about_much_fits_into_an_event_and_keeps_what_to_do() -> None:
    budget = ExhaustedBudget(BudgetKind.DOMAIN, f"at most 1 of the pool's 8 nodes in {'b' * 63}/{'r' * 63} may be out")
    pools = [
        PoolFigures(f"{number}-{'p' * 126}", 1, 1, 3, 1, number, by_budget=((budget, number),))
        for number in range(1, 17)
    ]
    message = breaker_of(pools, after(60), NOW, lambda _pool: OF_FLEET).message
    assert len(message) == MESSAGE_LENGTH
    assert message.startswith("The budgets keep 16 unhealthy nodes of pool '16-")
    assert message.endswith("raise the items with per: Domain in spec.health.budgets of the FleetPolicy.")


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
    fleet = Stored.of(51, rules(**NODES))
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


def test_a_node_that_is_taken_out_for_another_cause_counts_for_the_first_one_too() -> None:
    fleet = Stored.of(51, rules(**NODES))
    again, *others, last = names = [f"node-{number:04}" for number in range(5)]
    for name in (again, *others):
        fleet.report(name, PORT_DOWN)
    fleet.step(NOW)
    fleet.reboot(again, "boot-2")
    fleet.step(after(10))
    fleet.report(again, evidence("DiskError", at=20, boot_id="boot-2"))
    fleet.step(after(20))
    assert sorted(name for _, name in fleet.taken_at) == [again, *names[:-1]]
    fleet.report(last, PORT_DOWN)
    _, rulings, _, breaker = fleet.step(after(30))
    assert (rulings[last].act, breaker.used) == (Act.HOLD, 4)


class FewSequences(AnySequence):
    """Ten times as many examples run in tests/unit/nightly/health/test_breaker.py."""


FewSequences.TestCase.settings = settings(max_examples=4, stateful_step_count=20)
TestAnySequence = FewSequences.TestCase

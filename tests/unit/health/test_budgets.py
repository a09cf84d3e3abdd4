"""Budgets by pool and by cause, the part that is kept for what is certain, and what is left to other systems."""

from typing import Any

import pytest
from hypothesis import settings
from tests.unit.health.builders import GPU, NOW, Stored, after, budgets, decided, evidence, facts, node, rules
from tests.unit.health.pools import (
    DEFAULT,
    GPU_POOL,
    NODES,
    Alarms,
    acts,
    assert_that_a_certain_fault_is_taken_at_once,
    assert_that_a_label_spreads_over_one_rack_of_two,
    assert_that_labels_do_not_multiply_budgets,
    claim,
    eks,
    gpu_nodes_fall_off_the_bus,
    off_the_bus,
)

from muster.api.fleetpolicy import DisruptionBudget
from muster.api.nodehealth import Decision, Evidence, HealthIncident, NodeHealth, Severity, VerdictState
from muster.health.assess import assess
from muster.health.budgets import OF_FLEET, Budgets, Share, in_nodes
from muster.health.causes import CERTAIN, causes_of
from muster.health.kinds import KINDS
from muster.health.node_world import NodeWorld
from muster.health.pools import WITHOUT, pool_of
from muster.health.rulings import Act
from muster.health.signs import Sign
from muster.health.xids import RECOVERY_ACTIONS, XIDS
from muster.world.views import ConditionView


def from_json(found: list[dict[str, Any]]) -> Budgets:
    return Budgets.from_policy([DisruptionBudget.model_validate(each) for each in found], OF_FLEET)


class TestPools:
    def test_twenty_gpu_nodes_among_others_lose_their_share_of_twenty(self) -> None:
        """A tenth at once, three tenths in the end, however many others there are (nine hundred: nightly)."""
        gpu_nodes_fall_off_the_bus(20, others=60, every_hours=24)

    def test_one_pool_that_is_full_holds_nothing_in_another(self) -> None:
        fleet = Stored.of(40, rules(**NODES))
        names = sorted(fleet.facts)
        fleet.pools = {name: GPU_POOL if name in names[:20] else WITHOUT for name in names}
        for name in names[:20]:
            fleet.report(name, evidence("IbPortDown"))
        fleet.step(NOW)
        fleet.report(names[30], evidence("DiskError", at=60))
        _, rulings, _, breaker = fleet.step(after(60))
        assert rulings[names[30]].act is Act.TAKE
        assert [(pool.pool, pool.out, pool.held) for pool in breaker.pools] == [(WITHOUT, 1, 0), (GPU_POOL, 1, 19)]
        assert GPU_POOL in breaker.message

    @pytest.mark.parametrize(
        ("changes", "pool"),
        [
            ({}, WITHOUT),
            ({"labels": {"node.kubernetes.io/instance-type": "m7i.large"}}, WITHOUT),
            ({"capacity": {"nvidia.com/gpu": 8}}, "nvidia.com/gpu"),
            ({"capacity": {"nvidia.com/gpu": 0}, "labels": {"nvidia.com/gpu.product": "NVIDIA-H200"}}, GPU_POOL),
            ({"labels": {"nvidia.com/gpu.product": "NVIDIA-H200"}}, GPU_POOL),
            (
                {"capacity": {"nvidia.com/gpu": 8}, "labels": {"node.kubernetes.io/instance-type": "p5.48xlarge"}},
                "nvidia.com/gpu p5.48xlarge",
            ),
        ],
    )
    def test_a_pool_is_an_accelerator_and_its_model_even_when_the_plugin_finds_none(
        self, changes: dict[str, Any], pool: str
    ) -> None:
        assert pool_of(node(**changes), "nvidia.com/gpu") == pool

    def test_a_label_that_differs_on_every_node_does_not_multiply_budgets(self) -> None:
        assert_that_labels_do_not_multiply_budgets(50)


class TestShares:
    @pytest.mark.parametrize("size", [1, 2, 3, 7, 9, 10, 33, 100, 2048, 16384])
    @pytest.mark.parametrize("percent", [0, 1, 10, 30, 95])
    def test_something_is_left_for_certain_and_for_other_causes(self, size: int, percent: int) -> None:
        share = from_json(budgets(out=percent)).at_once(size)
        assert 1 <= share.cause <= share.uncertain < share.total
        assert share.total <= max(2, -(-size * percent // 100))

    def test_the_default(self) -> None:
        shares = (DEFAULT.in_window(100), DEFAULT.at_once(100), DEFAULT.in_domain(100))
        assert shares == (Share(10, 8, 6), Share(30, 24, 18), Share(25, 20, 20))
        assert (DEFAULT.window_seconds, DEFAULT.repaired_by_others(100)) == (600, 30)

    def test_what_has_no_budget_has_no_bound(self) -> None:
        none = from_json([])
        assert {none.in_window(8), none.at_once(8), none.in_domain(8)} == {Share(8, 8, 8)}
        assert (none.repaired_by_others(8), none.window_limit(8), none.limit(8), none.window_seconds) == (8, 8, 8, 600)
        assert from_json([{"nodes": "100%"}]).at_once(8) == Share(8, 8, 8)

    def test_the_smallest_budget_for_the_same_thing_counts(self) -> None:
        found = from_json([{"nodes": "50%"}, {"nodes": "4"}, {"nodes": "3", "windowSeconds": 60}])
        assert [found.at_once(size).total for size in (100, 6, 2)] == [4, 3, 1]
        assert (found.in_window(100).total, found.window_seconds) == (3, 60)

    def test_without_a_budget_of_its_own_an_uncertain_fault_may_use_all_of_it(self) -> None:
        assert from_json([{"nodes": "20%"}]).at_once(100) == Share(20, 20, 20)

    @pytest.mark.parametrize(
        ("budget", "nodes", "found"),
        [("10%", 9, 1), ("10%", 11, 2), ("1%", 2048, 21), ("100%", 7, 7), ("4", 100, 4), ("4", 3, 3), ("0%", 5, 1)],
    )
    def test_a_percentage_is_rounded_up_and_at_least_one_node_is_always_allowed(
        self, budget: str, nodes: int, found: int
    ) -> None:
        assert in_nodes(budget, nodes) == found


class TestCauses:
    def test_a_false_alarm_of_one_source_leaves_room_for_others(self) -> None:
        fleet = Stored.of(100, rules(**NODES))
        for name in sorted(fleet.facts)[:90]:
            fleet.mark(name, eks())
        fleet.step(NOW)
        assert len(fleet.tainted) == 6
        fleet.report("node-0095", evidence("IbPortDown", at=60))
        fleet.step(after(60))
        assert "node-0095" in fleet.tainted

    def test_a_false_alarm_that_waits_for_its_next_try_keeps_no_other_cause_waiting(self) -> None:
        fleet = Stored.of(100, rules(**NODES))
        for name in sorted(fleet.facts)[:90]:
            fleet.mark(name, eks())
        for name in ("node-0095", "node-0096"):
            fleet.report(name, evidence("IbPortDown"))
        fleet.step(NOW)
        assert len(fleet.tainted) == 8, "all that is not certain"
        fleet.step(after(600))
        assert len(fleet.tainted) == 9, "one is tried"
        fleet.report("node-0099", evidence("NvLinkDown", at=660))
        fleet.step(after(660))
        assert "node-0099" in fleet.tainted

    def test_another_system_that_names_another_reason_each_time_has_one_budget(self) -> None:
        fleet = Stored.of(100, rules(**NODES))
        for number, name in enumerate(sorted(fleet.facts)):
            fleet.mark(name, eks(f"Dcgm{number}Error"))
        _, rulings, _, _ = fleet.step(NOW)
        assert acts(rulings) == {"Take": 6, "Hold": 94}

    def test_a_node_that_changes_its_reason_is_charged_to_what_it_was_taken_for(self) -> None:
        fleet = Stored.of(100, rules(**NODES))
        names = sorted(fleet.facts)
        for name in names:
            fleet.report(name, evidence("IbPortDown"))
        fleet.step(NOW)
        assert len(fleet.tainted) == 6
        for name in fleet.tainted:
            fleet.report(name, evidence("NvLinkDown", at=1))
        _, rulings, _, _ = fleet.step(after(1))
        assert acts(rulings) == {"Take": 6, "Hold": 94}

    def test_all_causes_together_stay_within_the_pool_s_budget(self) -> None:
        fleet = Stored.of(100, rules(**NODES))
        kinds = ["IbPortDown", "NvLinkDown", "DiskError", "Temperature", "InfoRom"]
        for number, name in enumerate(sorted(fleet.facts)):
            fleet.report(name, evidence(kinds[number % 5]))
        _, rulings, _, breaker = fleet.step(NOW)
        assert acts(rulings) == {"Take": 8, "Hold": 92}
        assert (breaker.used, breaker.budget) == (8, 10)

    def test_a_node_with_two_findings_is_taken_for_the_one_that_has_room(self) -> None:
        fleet = Stored.of(100, rules(**NODES))
        for name in sorted(fleet.facts):
            fleet.report(name, evidence("IbPortDown"))
        fleet.step(NOW)
        fleet.report("node-0077", evidence("IbPortDown"), evidence("RowRemapPending", at=60))
        _, rulings, _, _ = fleet.step(after(60))
        assert (rulings["node-0077"].act, rulings["node-0077"].cause) == (Act.TAKE, "agent/RowRemapPending")

    def test_it_says_which_cause_is_held(self) -> None:
        fleet = Stored.of(100, rules(**NODES))
        for name in sorted(fleet.facts):
            fleet.mark(name, eks())
        _, rulings, _, breaker = fleet.step(NOW)
        assert breaker.pools[0].by_cause == (("eks", 94),)
        assert "(eks: 94)" in breaker.message
        assert "for eks is exhausted" in next(r.why for r in rulings.values() if r.act is Act.HOLD)


class TestCertain:
    @pytest.mark.parametrize(("count", "days"), [(2, 7), (3, 0), (20, 1), (100, 0)])
    def test_a_certain_fault_is_taken_at_once_whatever_false_alarm_is_held(self, count: int, days: int) -> None:
        assert_that_a_certain_fault_is_taken_at_once(count, days)

    def test_one_sign_alone_is_not_certain_however_grave(self) -> None:
        fleet = Stored.of(1, rules())
        for seen in off_the_bus():
            fleet.report("node-0000", seen)
            verdict = assess(NodeWorld(fleet.facts["node-0000"], fleet.healths["node-0000"], fleet.rules, NOW))
            assert (verdict.grounds.fatal, verdict.grounds.certain) == (True, False)

    @pytest.mark.parametrize(
        ("logged", "answered", "certain"),
        [
            pytest.param(GPU, GPU, True, id="the same GPU"),
            pytest.param(GPU, GPU.replace("5d2a", "77aa"), False, id="another GPU: two signs that stand alone"),
            pytest.param("0000:5d:00", "0000:5e:00", False, id="another address"),
            pytest.param("0000:5d:00", GPU, True, id="the line came before its GPU was known"),
            pytest.param(GPU, "GPU 3", True, id="the library does not say which"),
        ],
    )
    def test_both_signs_must_tell_of_one_gpu(self, logged: str, answered: str, certain: bool) -> None:
        fleet = Stored.of(1, rules(**NODES))
        fleet.report("node-0000", evidence("Xid", 79, subject=logged), evidence("GpuLost", subject=answered))
        assert (
            assess(NodeWorld(fleet.facts["node-0000"], fleet.healths["node-0000"], fleet.rules, NOW)).grounds.certain
            is certain
        )

    def test_a_missing_gpu_goes_with_a_line_about_any(self) -> None:
        fleet = Stored.of(1, rules(**NODES))
        fleet.report("node-0000", evidence("Xid", 79), evidence("GpuCount", subject=""))
        assert assess(NodeWorld(fleet.facts["node-0000"], fleet.healths["node-0000"], fleet.rules, NOW)).grounds.certain

    @pytest.mark.parametrize("code", [119, 175])
    def test_a_gpu_processor_time_out_is_certain_if_the_driver_asks_for_reset(self, code: int) -> None:
        fleet = Stored.of(1, rules(**NODES))
        fleet.report("node-0000", evidence("Xid", code, subject=GPU), evidence("RecoveryAction", 1, subject=GPU))
        assert assess(NodeWorld(fleet.facts["node-0000"], fleet.healths["node-0000"], fleet.rules, NOW)).grounds.certain

    def test_what_others_say_is_never_certain(self) -> None:
        fleet = Stored.of(1, rules())
        fleet.report("node-0000", evidence("Xid", 79))
        fleet.mark("node-0000", ConditionView("GPUMissing", "True", "GpuLost", "", NOW))
        assert not assess(
            NodeWorld(fleet.facts["node-0000"], fleet.healths["node-0000"], fleet.rules, NOW)
        ).grounds.certain

    def test_a_defect_that_makes_every_node_certain_takes_no_more_than_the_budget(self) -> None:
        fleet = Stored.of(100, rules(**NODES))
        for name in fleet.facts:
            fleet.report(name, *off_the_bus())
        fleet.step(NOW)
        assert len(fleet.tainted) == 10
        fleet.step(after(599))
        assert len(fleet.tainted) == 10
        fleet.step(after(600))
        assert len(fleet.tainted) == 11, "one is tried"

    def test_the_table_names_only_fatal_signs_of_the_agent(self) -> None:
        actions = {f"RecoveryAction{name}": severity for name, severity, _ in RECOVERY_ACTIONS.values()}
        for logged, asked in CERTAIN:
            assert {XIDS[int(reason.removeprefix("Xid"))].severity for reason in logged} == {"Fatal"}
            for reason in asked:
                assert (actions[reason] if reason in actions else KINDS[reason].severity) == "Fatal"


class TestYield:
    def test_a_label_on_the_whole_fleet_lets_jobs_stay_and_tells(self) -> None:
        fleet = Stored.of(100, rules(**NODES))
        claim(fleet, *fleet.facts)
        _, rulings, effects, breaker = fleet.step(NOW)
        assert acts(rulings) == {"Yield": 30, "Hold": 70}
        assert sum(effect.evacuate != "No" for effect in effects.values()) == 30
        assert (breaker.held, breaker.pools[0].held_yields) == (70, 70)
        assert "budget for RepairByOthers in spec.health.budgets" in breaker.message
        before = {name for name, ruling in rulings.items() if ruling.act is Act.YIELD}
        _, again, _, _ = fleet.step(after(60))
        assert {name for name, ruling in again.items() if ruling.act is Act.YIELD} == before
        assert not any(ruling.charge for ruling in again.values())
        assert fleet.tainted == set()

    @pytest.mark.parametrize("racks", [2, 4, 10])
    def test_the_planned_maintenance_of_one_rack_is_let_happen(self, racks: int) -> None:
        fleet = Stored.of(40, rules(**NODES), per_domain=40 // racks)
        rack = sorted(fleet.facts)[: 40 // racks]
        claim(fleet, *rack, labels={"sagemaker.amazonaws.com/deep-health-check-status": "InProgress"})
        _, rulings, _, breaker = fleet.step(NOW)
        assert {rulings[name].act for name in rack} == {Act.YIELD}
        assert (breaker.held, breaker.message) == (0, "")

    def test_a_rack_that_is_the_whole_pool_is_no_rack(self) -> None:
        fleet = Stored.of(10, rules(**NODES), per_domain=10)
        claim(fleet, *fleet.facts)
        _, rulings, _, _ = fleet.step(NOW)
        assert acts(rulings) == {"Yield": 3, "Hold": 7}

    def test_a_label_that_spreads_from_rack_to_rack_stops_at_the_share(self) -> None:
        assert_that_a_label_spreads_over_one_rack_of_two(10)

    def test_the_next_one_is_left_when_one_is_done(self) -> None:
        fleet = Stored.of(10, rules(**NODES))
        claim(fleet, *fleet.facts)
        _, rulings, _, _ = fleet.step(NOW)
        done = next(name for name, ruling in rulings.items() if ruling.act is Act.YIELD)
        claim(fleet, done, labels={})
        _, rulings, _, _ = fleet.step(after(600))
        assert acts(rulings) == {"Nothing": 1, "Yield": 3, "Hold": 6}

    def test_a_node_whose_record_is_refused_leaves_the_place_to_others(self) -> None:
        fleet = Stored.of(10, rules(**NODES))
        claim(fleet, *fleet.facts)
        fleet.refused = {"node-0000"}
        _, rulings, _, _ = fleet.step(NOW)
        assert {name for name, ruling in rulings.items() if ruling.charge} == {"node-0001", "node-0002", "node-0003"}

    def test_a_node_with_an_unreadable_record_takes_no_place_but_keeps_its_own(self) -> None:
        fleet = Stored.of(10, rules(**NODES))
        claim(fleet, *fleet.facts)
        fleet.unreadable = {"node-0000"}
        _, rulings, _, breaker = fleet.step(NOW)
        assert {name for name, ruling in rulings.items() if ruling.charge} == {"node-0001", "node-0002", "node-0003"}
        assert (rulings["node-0000"].act, breaker.held) == (Act.HOLD, 6)
        fleet.unreadable = {"node-0001"}
        assert fleet.step(after(60))[1]["node-0001"].act is Act.YIELD

    def test_a_certain_fault_on_a_node_that_is_held_so_is_taken(self) -> None:
        fleet = Stored.of(100, rules(**NODES))
        claim(fleet, *fleet.facts)
        _, rulings, _, _ = fleet.step(NOW)
        name = next(name for name, ruling in rulings.items() if ruling.act is Act.HOLD)
        fleet.report(name, *off_the_bus(60))
        _, rulings, _, _ = fleet.step(after(60))
        assert (rulings[name].act, rulings[name].cause) == (Act.TAKE, "agent/GpuLost")

    def test_where_the_policy_says_so_everything_is_left(self) -> None:
        fleet = Stored.of(10, rules(**NODES, budgets=budgets()))
        claim(fleet, *fleet.facts)
        assert acts(fleet.step(NOW)[1]) == {"Yield": 10}


class TestOlderRecords:
    def test_what_an_older_version_took_is_out_and_counts(self) -> None:
        fleet = Stored.of(100, rules(**NODES))
        old = {"time": NOW.isoformat(), "state": "Unhealthy", "reason": "IbPortDown", "takenOutTime": NOW.isoformat()}
        for name in sorted(fleet.facts):
            fleet.report(name, evidence("IbPortDown"))
        for name in sorted(fleet.facts)[:10]:
            status = fleet.healths[name].to_json()["status"] | {"incidents": [old], "state": "Unhealthy"}
            fleet.healths[name] = NodeHealth.model_validate({"metadata": {"name": name}, "status": status})
        _, rulings, _, breaker = fleet.step(after(60))
        assert acts(rulings) == {"Take": 10, "Hold": 90}
        assert breaker.used == 10

    def test_an_older_incident_of_a_node_that_is_gone_costs_every_pool_one(self) -> None:
        fleet = Stored.of(20, rules(**NODES))
        gone = HealthIncident(time=NOW, state=VerdictState.UNHEALTHY, reason="IbPortDown", taken_out_time=NOW)
        gone_status = fleet.healths["node-0000"].status.model_copy(update={"incidents": [gone]})
        fleet.healths["node-0000"] = fleet.healths["node-0000"].model_copy(update={"status": gone_status})
        del fleet.facts["node-0000"]
        fleet.report("node-0001", evidence("IbPortDown", at=60))
        assert fleet.step(after(60))[1]["node-0001"].act is Act.HOLD
        fleet.report("node-0002", *off_the_bus(60))
        assert fleet.step(after(61))[1]["node-0002"].act in (Act.TAKE, Act.HOLD)
        assert fleet.step(after(700))[1]["node-0002"].act is Act.TAKE


class FewAlarms(Alarms):
    """Twenty times as many examples run in tests/unit/nightly/health/test_budgets.py."""


FewAlarms.TestCase.settings = settings(max_examples=3, stateful_step_count=20, deadline=None)
TestAlarms = FewAlarms.TestCase


def test_a_node_without_anything_is_in_some_pool() -> None:
    assert pool_of(facts().node, "nvidia.com/gpu") == WITHOUT


class TestTheLastChoice:
    """What is held is given work where no other node is left, unless its fault is no alarm."""

    def held(self, *more: Evidence) -> tuple[Stored, str]:
        """A fleet in which the last of a hundred nodes is held, for a port and for this."""
        fleet = Stored.of(100, rules(**NODES))
        for name in fleet.facts:
            fleet.report(name, evidence("IbPortDown", subject="mlx5_0/1"))
        fleet.step(NOW)
        last = max(fleet.facts)
        assert last not in fleet.tainted
        fleet.report(last, evidence("IbPortDown", subject="mlx5_0/1"), *more)
        return fleet, last

    def test_for_a_false_alarm_of_one_cause_on_every_node(self) -> None:
        fleet, last = self.held()
        _, rulings, effects, breaker = fleet.step(after(60))
        assert rulings[last].act is Act.HOLD
        assert (effects[last].avoid, effects[last].last_choice) == (True, True)
        assert sum(effect.last_choice for effect in effects.values()) == breaker.held == 94
        assert "only where no other node is left" in breaker.message

    def test_also_where_others_claim_too_many(self) -> None:
        fleet = Stored.of(10, rules(**NODES))
        claim(fleet, *fleet.facts)
        _, rulings, effects, _ = fleet.step(NOW)
        assert acts(rulings) == {"Yield": 3, "Hold": 7}
        assert all(effects[name].last_choice == (ruling.act is Act.HOLD) for name, ruling in rulings.items())

    def test_not_for_a_node_that_is_taken(self) -> None:
        fleet, _ = self.held()
        _, rulings, effects, _ = fleet.step(after(60))
        assert not any(effects[name].last_choice for name, ruling in rulings.items() if ruling.act is Act.TAKE)

    def test_never_for_a_certain_fault_that_the_budget_holds(self) -> None:
        fleet = Stored.of(100, rules(**NODES))
        for name in fleet.facts:
            fleet.report(name, *off_the_bus())
        verdicts, rulings, effects, _ = fleet.step(NOW)
        held = [name for name, ruling in rulings.items() if ruling.act is Act.HOLD]
        assert len(held) == 90
        assert not any(effects[name].last_choice for name in held)
        assert all(verdicts[name].grounds.certain for name in held)

    def test_never_for_what_a_human_has_cordoned(self) -> None:
        fleet, last = self.held()
        fleet.healths[last] = decided(fleet.healths[last], Decision.CORDON, reason="look at it")
        effects = fleet.step(after(60))[2]
        assert not effects[last].last_choice


def test_a_fault_that_another_system_repairs_anyway_is_charged_last() -> None:
    repaired = Sign("eks", "Repair", Severity.FATAL, NOW, NOW, repairs=True)
    lost = Sign("agent", "GpuLost", Severity.FATAL, NOW, NOW)
    assert causes_of([repaired, lost], "GpuLost") == ("agent/GpuLost", "eks")

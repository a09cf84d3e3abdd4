"""What `health` of an entry of `spec.pools` changes for the nodes of that pool, and for no other node."""

import json
from collections import Counter
from typing import Any

import pytest
from tests.unit.health.builders import NOW, Stored, after, evidence, facts, healthy, node, sick, written
from tests.unit.health.pools import BY_POOL, GPU_POOL, SMALL_POOL, WATCHED_POOL, acts

from muster.api.fleetpolicy import Enforcement, FleetPolicySpec
from muster.api.installation import InstallationProfile
from muster.api.nodehealth import HealthIncident, VerdictState
from muster.health import maintenance
from muster.health.assess import assess
from muster.health.effects import Effect
from muster.health.node_decision import NodeDecision, replay, write
from muster.health.node_world import NodeWorld
from muster.health.orders import Order
from muster.health.pools import (
    MAX_POOLS,
    OTHERS,
    WITHOUT,
    Pools,
    budget_pool_of,
    entry_of,
    others_of,
    pools_with_own_budget,
)
from muster.health.rulings import Act, Ruling
from muster.health.silence import AgentSilence, pools_silent_at_once
from muster.health.sources import Rules
from muster.health.story import EFFECT_LENGTH, effect_text, status_message

LABEL = "example.org/pool"
PORT_DOWN, XID_79 = evidence("IbPortDown"), evidence("Xid", 79)
LOOSE: dict[str, Any] = {"budgets": []}


def policy(health: dict[str, Any] | None = None, **pools: Any) -> FleetPolicySpec:
    """Pools in this order, each selected by a label with its name, with this `health`; None: without."""
    listed = [
        {"name": name, "nodeSelector": {LABEL: name}} | ({} if own is None else {"health": own})
        for name, own in pools.items()
    ]
    return FleetPolicySpec.model_validate({"health": health or {}, "pools": listed})


def fleet_of(spec: FleetPolicySpec, **counts: int) -> Stored:
    """So many GPU nodes with the label of each pool; "none": without it."""
    names = [f"{pool}-{number:02}" for pool, count in counts.items() for number in range(count)]
    fleet = Stored.of(len(names), Rules.from_policy(spec))
    for old, name in zip(sorted(fleet.facts), names, strict=True):
        fleet.healths[name] = fleet.healths.pop(old)
        pool = name.split("-", maxsplit=1)[0]
        labels = {"nvidia.com/gpu.product": "NVIDIA-H200"} | ({} if pool == "none" else {LABEL: pool})
        fleet.facts[name] = facts(name, labels=labels)
        del fleet.facts[old]
        fleet.pools[name] = budget_pool_of(fleet.facts[name].node, spec)
    return fleet


def all_fail(fleet: Stored, *fault: Any) -> None:
    for name in fleet.facts:
        fleet.report(name, *(fault or (XID_79,)))


class TestPools:
    @pytest.mark.parametrize(
        ("label", "pool"),
        [
            ("small", SMALL_POOL),
            ("watched", WATCHED_POOL),
            ("plain", GPU_POOL),
            ("", GPU_POOL),
        ],
    )
    def test_only_a_pool_with_health_is_counted_apart(self, label: str, pool: str) -> None:
        spec = policy(small={"enforcement": "Jobs"}, watched={}, plain=None)
        one = node(labels={"nvidia.com/gpu.product": "NVIDIA-H200", LABEL: label})
        assert budget_pool_of(one, spec) == pool

    def test_a_node_is_of_the_first_pool_whose_labels_it_has(self) -> None:
        rest = {"name": "rest", "health": {"enforcement": "Observe"}}
        plain = {"name": "plain", "nodeSelector": {LABEL: "plain"}}
        spec = FleetPolicySpec.model_validate({"pools": [plain, rest]})
        assert budget_pool_of(node(labels={LABEL: "plain"}), spec) == WITHOUT
        assert budget_pool_of(node(), spec) == f"rest: {WITHOUT}"
        assert (spec.enforcement_of({LABEL: "plain"}), spec.enforcement_of({})) == ("Jobs", "Observe")

    def test_the_longest_names_keep_the_pool(self) -> None:
        spec = FleetPolicySpec.model_validate({"pools": [{"name": "p" * 63, "health": {}}]})
        name = budget_pool_of(node(labels={"nvidia.com/gpu.product": "m" * 63}), spec)
        assert (len(name), entry_of(name)) == (128, "p" * 63)

    def test_under_each_policy_the_largest_pools_have_budgets_of_their_own(self) -> None:
        many = {f"nvidia.com/gpu model-{number:02}": 1 for number in range(MAX_POOLS + 4)}
        sizes = many | {f"small: {pool}": 2 for pool in many}
        assert Counter(map(entry_of, pools_with_own_budget(sizes))) == {"": MAX_POOLS, "small": MAX_POOLS}
        assert (others_of(GPU_POOL), others_of(SMALL_POOL)) == (OTHERS, f"small: {OTHERS}")


class TestEnforcement:
    def test_one_pool_is_tainted_in_a_fleet_that_is_observed(self) -> None:
        spec = policy({"enforcement": "Observe"}, first={"enforcement": "Nodes", **LOOSE})
        fleet = fleet_of(spec, first=2, none=2)
        all_fail(fleet)
        verdicts, _, effects, _ = fleet.step(NOW)
        assert fleet.tainted == {"first-00", "first-01"}
        assert [effects[name] for name in ("none-00", "none-01")] == [Effect(), Effect()]
        assert {name for name in verdicts if verdicts[name].open_incident.taken_out_time} == fleet.tainted  # type: ignore[union-attr]

    def test_one_pool_is_observed_in_a_fleet_that_is_tainted(self) -> None:
        fleet = fleet_of(
            policy({"enforcement": "Nodes", **LOOSE}, watched={"enforcement": "Observe"}), watched=2, none=2
        )
        all_fail(fleet)
        _, rulings, effects, _ = fleet.step(NOW)
        assert fleet.tainted == {"none-00", "none-01"}
        assert effects["watched-00"] == Effect()
        assert not any(rulings[name].charge for name in ("watched-00", "watched-01"))

    def test_the_taint_goes_and_the_charge_stays_when_the_pool_returns_to_jobs(self) -> None:
        fleet = fleet_of(policy(LOOSE, first={"enforcement": "Nodes"}), first=1, none=1)
        all_fail(fleet)
        fleet.step(NOW)
        assert fleet.tainted == {"first-00"}
        fleet.rules = Rules.from_policy(policy(LOOSE, first={"enforcement": "Jobs"}))
        _, rulings, effects, _ = fleet.step(after(60))
        assert fleet.tainted == set()
        assert (effects["first-00"].avoid, rulings["first-00"].charge) == (True, False)

    def test_a_node_that_moves_is_treated_as_its_new_pool_at_once(self) -> None:
        spec = policy({"enforcement": "Observe", **LOOSE}, first={"enforcement": "Nodes"})
        fleet = fleet_of(spec, none=1)
        all_fail(fleet)
        fleet.step(NOW)
        assert fleet.tainted == set()
        for label, tainted in (("first", {"none-00"}), ("none", set())):
            fleet.pools["none-00"] = budget_pool_of(node(labels={LABEL: label}), spec)
            fleet.step(after(60))
            assert fleet.tainted == tainted

    @pytest.mark.parametrize(
        ("own", "path"),
        [
            ({"enforcement": "Observe"}, "spec.pools[some].health.enforcement"),
            ({"budgets": []}, "spec.health.enforcement"),
        ],
    )
    def test_people_read_which_field_decides(self, own: dict[str, Any], path: str) -> None:
        spec = policy({"enforcement": "Observe"}, some=own)
        rules = Rules.from_policy(spec).of_pool("some: x")
        verdict = assess(NodeWorld(facts(), sick(XID_79), rules, NOW))
        order = Order("node-1", verdict, Ruling(Act.TAKE), Effect())
        assert effect_text(order, rules) == f"nothing: {path} of the FleetPolicy is Observe"
        assert f"nothing: {path} of the FleetPolicy is Observe" in status_message(order, rules)

    def test_a_long_name_fits_into_the_text(self) -> None:
        name = "p" * 63
        rules = Rules.from_policy(policy(**{name: {"enforcement": "Observe"}})).of_pool(f"{name}: x")
        order = Order("node-1", assess(NodeWorld(facts(), sick(XID_79), rules, NOW)), Ruling(Act.TAKE), Effect())
        assert len(effect_text(order, rules)) < EFFECT_LENGTH


class TestBudgets:
    def test_those_of_one_pool_hold_nothing_in_another(self) -> None:
        fleet = fleet_of(policy(None, small={"budgets": [{"nodes": "2"}]}), small=8, none=20)
        all_fail(fleet, PORT_DOWN)
        _, rulings, _, breaker = fleet.step(NOW)
        for pool, taken in (("small", 2), ("none", 1)):
            assert acts({name: r for name, r in rulings.items() if name.startswith(pool)})["Take"] == taken
        assert [(pool.pool, pool.cap, pool.out) for pool in breaker.pools] == [
            (GPU_POOL, 6, 1),
            (SMALL_POOL, 2, 2),
        ]

    def test_a_pool_without_budgets_of_its_own_uses_up_none_of_the_fleet(self) -> None:
        spec = policy({"budgets": [{"nodes": "1"}]}, watched={"enforcement": "Observe"}, more={"enforcement": "Nodes"})
        fleet = fleet_of(spec, watched=3, more=3, none=3)
        all_fail(fleet)
        verdicts, rulings, _, breaker = fleet.step(NOW)
        assert acts(rulings) == {"Take": 3, "Hold": 6}
        assert [(pool.pool, pool.out) for pool in breaker.pools] == [
            (f"more: {GPU_POOL}", 1),
            (GPU_POOL, 1),
            (WATCHED_POOL, 1),
        ]
        charged = [verdict.open_incident.pool for verdict in verdicts.values() if verdict.open_incident]
        assert sorted(filter(None, charged)) == [f"more: {GPU_POOL}", GPU_POOL]

    def test_the_list_replaces_that_of_the_fleet(self) -> None:
        fleet = fleet_of(policy({"budgets": [{"nodes": "1"}]}, small=LOOSE), small=9)
        all_fail(fleet)
        _, rulings, _, _ = fleet.step(NOW)
        assert acts(rulings) == {"Take": 9}

    def test_each_pool_has_the_window_of_its_own_budgets(self) -> None:
        spec = policy(
            {"budgets": [{"nodes": "1", "windowSeconds": 600}]},
            small={"budgets": [{"nodes": "1", "windowSeconds": 60}]},
        )
        fleet = fleet_of(spec, small=3, none=3)
        all_fail(fleet)
        for seconds, taken in ((0, 2), (59, 2), (60, 3), (599, 4), (600, 5)):
            fleet.step(after(seconds))
            assert len(fleet.taken_at) == taken, seconds
        assert Rules.from_policy(spec).longest_window_seconds == 600

    def test_what_is_held_says_whose_budgets_hold_it(self) -> None:
        fleet = fleet_of(policy(None, small={"budgets": [{"nodes": "1"}]}), small=3, none=9)
        all_fail(fleet)
        _, rulings, _, breaker = fleet.step(NOW)
        whys = {ruling.why.partition("raise ")[2] for name, ruling in rulings.items() if name.startswith("small")}
        assert whys == {"", "spec.pools[small].health.budgets"}
        assert "in spec.health.budgets, spec.pools[small].health.budgets of the FleetPolicy" in breaker.message

    def test_a_node_that_is_gone_counts_for_the_window_of_its_pool(self) -> None:
        spec = policy(None, small={"budgets": [{"nodes": "1", "windowSeconds": 600}]})
        fleet = fleet_of(spec, small=2, none=2)
        incident = {"time": NOW, "state": "Unhealthy", "reason": "Xid79", "takenOutTime": NOW, "pool": SMALL_POOL}
        gone = healthy("gone")
        last = [HealthIncident.model_validate(incident)]
        fleet.healths["gone"] = gone.model_copy(update={"status": gone.status.model_copy(update={"incidents": last})})
        all_fail(fleet)
        _, rulings, _, _ = fleet.step(after(60))
        assert {name: str(ruling.act) for name, ruling in rulings.items()} == {
            "small-00": "Hold",
            "small-01": "Hold",
            "none-00": "Take",
            "none-01": "Hold",
        }

    def test_so_many_agents_of_a_pool_may_be_silent_as_its_windows_allow(self) -> None:
        rules = Rules.from_policy(policy(None, small={"budgets": [{"nodes": "3", "windowSeconds": 60}]}))
        silent = {f"{pool}-{number}": AgentSilence(900.0, 900.0) for pool in ("small", "none") for number in range(3)}
        by_node = {
            name: SMALL_POOL if name.startswith("small") else GPU_POOL for name in (*silent, "small-3", "none-3")
        }
        pools = Pools(by_node, {SMALL_POOL: 10, GPU_POOL: 10})
        assert pools_silent_at_once(silent, pools, {"small-3", "none-3"}, rules.window_limit) == {GPU_POOL: 3}

    def test_a_window_of_maintenance_is_compared_with_those_of_the_pool(self) -> None:
        window = {"name": "w", "startTime": after(0), "endTime": after(3600), "nodes": {"names": ["a", "b"]}}
        spec = policy(small={"budgets": [{"nodes": "1"}]}, wide=LOOSE).model_copy(
            update={"maintenance": {"windows": [window]}}
        )
        nodes = [node("a", labels={LABEL: "small"}), node("b", labels={LABEL: "small"})]
        (problem,) = filter(None, maintenance.problems(spec, nodes, NOW))
        assert "takes 2 of 2 nodes of small: no accelerator out" in problem.message
        assert "more than the 1 that spec.pools[small].health.budgets allows for faults" in problem.message
        wide = [node("a", labels={LABEL: "wide"}), node("b", labels={LABEL: "wide"})]
        assert list(filter(None, maintenance.problems(spec, wide, NOW))) == []


class TestThresholds:
    @pytest.mark.parametrize(
        ("fleet", "own", "counts"),
        [
            ([], ["Xid79"], False),
            (["Xid79"], [], True),
            (["Xid79"], None, False),
        ],
    )
    def test_reasons_are_observed_by_pool(self, fleet: list[str], own: list[str] | None, counts: bool) -> None:
        spec = policy({"observedReasons": fleet}, some={} if own is None else {"observedReasons": own})
        rules = Rules.from_policy(spec).of_pool("some: x")
        verdict = assess(NodeWorld(facts(), sick(XID_79), rules, NOW))
        assert verdict.out is counts
        order = Order("node-1", verdict, Ruling(Act.NOTHING), Effect())
        if not counts:
            path = "spec.health" if own is None else "spec.pools[some].health"
            assert effect_text(order, rules) == f"nothing: {path} of the FleetPolicy only observes Xid79"

    def test_incidents_put_a_machine_into_quarantine_by_pool(self) -> None:
        fleet_rules = Rules.from_policy(
            policy({"quarantine": {"halfLifeSeconds": 60}}, some={"quarantine": {"incidents": 1}})
        )
        rules = fleet_rules.of_pool("some: x")
        assert (rules.quarantine.incidents, rules.quarantine.half_life_seconds) == (1, 60)
        for judging, state in ((rules, VerdictState.QUARANTINED), (fleet_rules, VerdictState.UNHEALTHY)):
            health = sick(XID_79)
            for seconds in range(3):
                verdict = assess(NodeWorld(facts(), health, judging, after(seconds)))
                taken = Ruling(Act.TAKE, charge=True, cause="agent/Xid79").charged(verdict, after(seconds))
                health = written(health, taken)
            assert verdict.conclusion.state is state

    def test_a_decision_is_replayed_by_the_rules_of_its_pool(self) -> None:
        spec = policy(some={"observedReasons": ["Xid79"]})
        labeled = facts(labels={LABEL: "some"})
        rules = Rules.from_policy(spec).of_pool(budget_pool_of(labeled.node, spec))
        world = NodeWorld(labeled, sick(XID_79), rules, NOW)
        replayed = replay(json.loads(write(NodeDecision(spec, world, assess(world)))))
        assert replayed.same
        assert replayed.world.rules == rules


class TestProblems:
    @pytest.mark.parametrize(
        ("health", "pools", "problems"),
        [
            ({}, {"a": {"enforcement": "Observe"}}, []),
            ({"enforcement": "Observe", **LOOSE}, {"a": {"enforcement": "Nodes"}}, []),
            (
                {"enforcement": "Observe", **LOOSE},
                {"a": {"enforcement": "Nodes", **LOOSE}},
                ["spec.health.budgets has no effect while spec.health.enforcement is Observe"],
            ),
            (
                {},
                {"a": {"enforcement": "Observe", **LOOSE}},
                ["spec.pools[a].health.budgets has no effect while spec.pools[a].health.enforcement is Observe"],
            ),
            (
                {"enforcement": "Observe"},
                {"a": LOOSE},
                ["spec.pools[a].health.budgets has no effect while spec.health.enforcement is Observe"],
            ),
            (
                {},
                {"a": {"observedReasons": ["Xid79", "PcieRepay"]}},
                [
                    "spec.pools[a].health.observedReasons: Muster makes no finding with the reason PcieRepay: did you "
                    "mean PcieReplay?"
                ],
            ),
        ],
    )
    def test_what_has_no_effect_is_named(self, health: Any, pools: Any, problems: list[str]) -> None:
        remedy = ": set enforcement to Jobs or Nodes, or remove the budgets"
        named = Rules.from_policy(policy(health, **pools)).problems
        assert [problem.removesuffix(remedy) for problem in named] == problems

    def test_budgets_wait_for_a_profile_that_acts(self) -> None:
        observe = InstallationProfile.OBSERVE
        asked = policy({"enforcement": "Nodes", **LOOSE}, a={"enforcement": "Nodes", **LOOSE})
        assert Rules.from_policy(observe.bounded(asked), observe).problems == ()


def test_a_policy_without_health_by_pool_is_that_of_the_fleet() -> None:
    rules = Rules.from_policy(policy({"enforcement": "Nodes"}, plain=None))
    assert rules.of_pool(GPU_POOL) is rules
    assert list(rules.entries) == []
    assert Rules.from_policy(BY_POOL).of_pool(GPU_POOL).enforcement is Enforcement.NODES

"""Maintenance windows: what they mean for a node at each moment, what they ask of its return, and what is told of
them."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.unit.health.builders import (
    Stored,
    after,
    agent,
    decided,
    evidence,
    facts,
    healthy,
    node,
    sick,
    written,
)

from muster.api.fleetpolicy import FleetPolicySpec
from muster.api.maintenance import MaintenancePolicy, MaintenanceStage
from muster.api.nodehealth import Decision, Evacuate, NodeHealth, VerdictState
from muster.api.preflight import PreflightPolicy, Profile
from muster.health.assess import assess
from muster.health.maintenance import AHEAD, OLD_SECONDS, WITHIN, Windows, problems, was_within, window_text
from muster.health.node_world import NodeWorld
from muster.health.orders import Order
from muster.health.repairs import LOOK_SECONDS, UNPROVEN
from muster.health.rulings import Act
from muster.health.silence import Silence
from muster.health.sources import Rules
from muster.health.story import effect_text, status_message
from muster.health.verdict import AWAITS_BURN_IN, Verdict, node_fault
from muster.world.views import NodeView

CLOSED, LEAVING, IN = MaintenanceStage.CLOSED, MaintenanceStage.EVACUATING, MaintenanceStage.IN_PROGRESS
HOUR = 3600.0
SILENT = Silence(None, "it has no Pod")
STARTS, ENDS = 2 * HOUR, 4 * HOUR  # of the one window; closed an hour before, left half an hour before


def window(name: str = "rack-7", starts: float = STARTS, ends: float = ENDS, **nodes: Any) -> dict[str, Any]:
    return {"name": name, "startTime": after(starts), "endTime": after(ends), "nodes": nodes or {"names": ["node-1"]}}


def policy(*windows: dict[str, Any], **more: Any) -> FleetPolicySpec:
    maintenance = MaintenancePolicy.model_validate({"windows": list(windows), **more})
    return FleetPolicySpec(maintenance=maintenance)


RULES = Rules.from_policy(policy(window()))


def judged(health: NodeHealth, at: float, rules: Rules = RULES, **more: Any) -> Verdict:
    return assess(NodeWorld(facts(boot_id="boot-1"), health, rules, after(at), **more))


def lived(rules: Rules, *moments: float, health: NodeHealth | None = None) -> tuple[NodeHealth, Verdict]:
    """The record after looks at these moments, and the last verdict."""
    health = health or healthy()
    for moment in moments:
        verdict = judged(health, moment, rules)
        health = written(health, verdict)
    return health, verdict


class TestStages:
    @pytest.mark.parametrize(
        ("at", "stage", "gone_by", "wake"),
        [
            pytest.param(0, None, None, HOUR, id="far ahead"),
            pytest.param(HOUR - 1, None, None, HOUR, id="just before it is closed"),
            pytest.param(HOUR, CLOSED, None, 1.5 * HOUR, id="closed"),
            pytest.param(1.5 * HOUR, LEAVING, STARTS, STARTS, id="jobs leave"),
            pytest.param(STARTS, IN, STARTS, ENDS, id="open"),
            pytest.param(ENDS - 1, IN, STARTS, ENDS, id="just before its end"),
            pytest.param(ENDS, None, None, None, id="over"),
        ],
    )
    def test_of_one_window(
        self, at: float, stage: MaintenanceStage | None, gone_by: float | None, wake: float | None
    ) -> None:
        word, then = Windows.from_policy(policy(window()).maintenance).state_of_node(node(), after(at))
        assert (word and word.stage) == stage
        assert (word and word.gone_by) == (None if gone_by is None else after(gone_by))
        assert then == (None if wake is None else after(wake))

    @pytest.mark.parametrize(
        ("nodes", "labels", "covered"),
        [
            pytest.param({"names": ["node-1"]}, {}, True, id="by name"),
            pytest.param({"names": ["node-10"]}, {}, False, id="another name"),
            pytest.param({"selector": {}}, {}, True, id="the whole fleet"),
            pytest.param({"selector": {"matchLabels": {"rack": "r7"}}}, {"rack": "r7"}, True, id="a label"),
            pytest.param({"selector": {"matchLabels": {"rack": "r7"}}}, {"rack": "r70"}, False, id="another value"),
            pytest.param(
                {"selector": {"matchLabels": {"rack": "r7", "row": "b"}}}, {"rack": "r7"}, False, id="not all labels"
            ),
            pytest.param(
                {"selector": {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["r6", "r7"]}]}},
                {"rack": "r7"},
                True,
                id="In",
            ),
            pytest.param(
                {"selector": {"matchExpressions": [{"key": "rack", "operator": "NotIn", "values": ["r7"]}]}},
                {},
                True,
                id="NotIn, as in Kubernetes, where there is no such label",
            ),
            pytest.param(
                {"selector": {"matchExpressions": [{"key": "rack", "operator": "Exists"}]}}, {}, False, id="Exists"
            ),
            pytest.param(
                {"selector": {"matchExpressions": [{"key": "rack", "operator": "DoesNotExist"}]}},
                {},
                True,
                id="DoesNotExist",
            ),
            pytest.param(
                {"names": ["node-1"], "selector": {"matchLabels": {"rack": "r7"}}}, {}, True, id="either of both"
            ),
        ],
    )
    def test_which_nodes(self, nodes: dict[str, Any], labels: dict[str, str], covered: bool) -> None:
        windows = Windows.from_policy(policy(window(**nodes)).maintenance)
        word, wake = windows.state_of_node(node(labels=labels), after(STARTS))
        assert (word is not None) == covered
        assert (wake is not None) == covered

    def test_the_nearest_window_counts_with_those_that_follow_without_a_gap(self) -> None:
        """The node is free after the last of them."""
        following = [window("b", ENDS + HOUR, ENDS + 2 * HOUR), window(), window("c", 30 * HOUR, 31 * HOUR)]
        windows = Windows.from_policy(policy(*following).maintenance)
        word, _ = windows.state_of_node(node(), after(STARTS))
        assert word is not None
        assert (word.recorded.window, word.recorded.end_time) == ("rack-7", after(ENDS + 2 * HOUR))
        word, _ = windows.state_of_node(node(), after(ENDS))
        assert word is not None
        assert (word.recorded.window, word.stage, word.gone_by) == ("b", CLOSED, None)

    def test_one_that_ends_before_it_starts_counts_for_nothing(self) -> None:
        windows = Windows.from_policy(policy(window(starts=ENDS, ends=STARTS)).maintenance)
        assert windows.state_of_node(node(), after(3 * HOUR)) == (None, None)

    def test_the_time_in_which_jobs_leave_is_never_open_to_new_ones(self) -> None:
        # The API server refuses that; an object from before the rule existed is read all the same.
        windows = Windows.from_policy(policy(window(), closeBeforeSeconds=60, evacuateBeforeSeconds=1800).maintenance)
        word, _ = windows.state_of_node(node(), after(1.5 * HOUR))
        assert word is not None
        assert word.stage is LEAVING

    def test_waiting_jobs_read_the_window_and_its_end(self) -> None:
        windows = Windows.from_policy(policy(window()).maintenance)
        word, _ = windows.state_of_node(node(), after(HOUR))
        assert word is not None
        assert window_text(word.recorded) == (
            "kept free for maintenance (rack-7) from 2026-11-20 11:41 UTC until 2026-11-20 13:41 UTC"
        )
        word, _ = windows.state_of_node(node(), after(STARTS))
        assert word is not None
        assert window_text(word.recorded) == "in maintenance (rack-7) until 2026-11-20 13:41 UTC"


class TestVerdict:
    def test_it_is_out_and_neither_ailing_nor_charged(self) -> None:
        _, verdict = lived(RULES, 0, HOUR, 1.5 * HOUR, STARTS)
        assert (verdict.conclusion.state, verdict.conclusion.reason) == (VerdictState.DEGRADED, WITHIN)
        assert verdict.grounds.only_planned
        assert verdict.grounds.maintenance is not None
        assert verdict.grounds.maintenance.stage is MaintenanceStage.IN_PROGRESS
        assert node_fault(verdict) == ""
        assert verdict.after_taking_out(after(STARTS)).record.offences.score == "0"
        assert verdict.follow_up.recommended_action == "None"

    def test_a_fault_besides_is_one(self) -> None:
        verdict = judged(sick(evidence("Xid", 79)), STARTS)
        assert (verdict.conclusion.state, verdict.conclusion.reason) == (VerdictState.UNHEALTHY, "Xid79")
        assert not verdict.grounds.only_planned
        assert "Xid79" in node_fault(verdict)
        assert verdict.grounds.causes == ("agent/Xid79",)
        assert verdict.grounds.gone_by == after(STARTS)

    def test_it_comes_back_once_its_agent_has_looked_at_everything_after_the_end(self) -> None:
        health, verdict = lived(RULES, 0, HOUR, STARTS, ENDS)
        assert (verdict.conclusion.state, verdict.conclusion.reason) == (VerdictState.DEGRADED, UNPROVEN)
        assert (
            verdict.conclusion.message
            == "the maintenance has ended, and the node's agent has not checked the whole node since"
        )
        silent = judged(health, ENDS + LOOK_SECONDS, silence=SILENT)
        assert silent.conclusion.state is VerdictState.DEGRADED
        other = health.model_copy(update={"status": health.status.model_copy(update={"agent": agent(boot="another")})})
        assert judged(other, ENDS + LOOK_SECONDS).conclusion.state is VerdictState.DEGRADED
        assert judged(health, ENDS + LOOK_SECONDS - 1).conclusion.state is VerdictState.DEGRADED
        verdict = judged(health, ENDS + LOOK_SECONDS)
        assert (verdict.conclusion.state, verdict.record.incidents[-1].cleared_by) == (
            VerdictState.HEALTHY,
            "the maintenance window is over, and no finding counts against the node",
        )

    def test_where_nodes_are_tested_it_is_tested_first(self) -> None:
        tests = PreflightPolicy(profile=Profile.QUICK)
        tested = Rules.from_policy(FleetPolicySpec(maintenance=policy(window()).maintenance, preflight=tests))
        health, verdict = lived(tested, 0, HOUR, STARTS, ENDS)
        verdict = judged(health, ENDS + LOOK_SECONDS, tested, passed=after(HOUR))
        assert (verdict.conclusion.state, verdict.conclusion.reason) == (VerdictState.VALIDATING, AWAITS_BURN_IN)
        verdict = judged(written(health, verdict), ENDS + HOUR, tested, passed=after(ENDS + 600))
        assert verdict.conclusion.state is VerdictState.HEALTHY

    def test_one_that_was_called_off_before_it_began_asks_for_nothing(self) -> None:
        health, _ = lived(RULES, 0, HOUR, 1.5 * HOUR)
        off = Rules.from_policy(FleetPolicySpec())
        verdict = judged(health, 1.6 * HOUR, off)
        assert verdict.conclusion.state is VerdictState.HEALTHY
        assert "the maintenance window did not begin" in verdict.record.incidents[-1].cleared_by

    def test_one_that_came_and_went_while_nobody_looked_asks_for_proof_all_the_same(self) -> None:
        health, _ = lived(RULES, 0, HOUR)
        verdict = judged(health, ENDS + HOUR)
        assert verdict.conclusion.reason == UNPROVEN

    def test_a_clock_that_jumps_back_and_forth_brings_no_node_back_unproved(self) -> None:
        for moments in ((STARTS, 0), (STARTS, HOUR, STARTS, ENDS + 1), (HOUR, 0, HOUR, ENDS + 1)):
            _, verdict = lived(RULES, *moments)
            assert (verdict.conclusion.state, verdict.conclusion.reason) == (VerdictState.DEGRADED, UNPROVEN)

    def test_no_release_opens_it(self) -> None:
        health, _ = lived(RULES, STARTS)
        verdict = judged(decided(health, Decision.RELEASE, STARTS + 10), STARTS + 20)
        assert verdict.conclusion.reason == WITHIN

    def test_a_node_of_which_nothing_is_known_is_out_too_and_comes_back_without_an_agent(self) -> None:
        bare = NodeHealth(metadata=healthy().metadata)
        health, verdict = lived(RULES, STARTS, health=bare)
        assert verdict.conclusion.state is VerdictState.DEGRADED
        verdict = judged(health, ENDS)
        assert (verdict.conclusion.state, verdict.out) == (None, False)

    def test_the_record_says_which_and_survives_the_api_server(self) -> None:
        health, verdict = lived(RULES, 1.5 * HOUR)
        assert verdict.grounds.maintenance is not None
        stored = NodeHealth.model_validate(json.loads(json.dumps(health.to_json())))
        assert stored.status.maintenance == verdict.grounds.maintenance
        assert was_within(stored.status.maintenance, None, after(1.6 * HOUR)) is False


class TestWhatIsDone:
    def fleet(self, count: int, enforcement: str = "Nodes") -> Stored:
        spec = policy(window(selector={}))
        spec = spec.model_copy(update={"health": spec.health.model_validate({"enforcement": enforcement})})
        return Stored.of(count, Rules.from_policy(spec))

    @pytest.mark.parametrize(
        ("at", "evacuate", "act"),
        [
            pytest.param(HOUR, Evacuate.NO, Act.NOTHING, id="closed: jobs stay"),
            pytest.param(1.5 * HOUR, Evacuate.AFTER_CHECKPOINT, Act.TAKE, id="they leave after their next checkpoint"),
            pytest.param(STARTS, Evacuate.AFTER_CHECKPOINT, Act.TAKE, id="open"),
        ],
    )
    @pytest.mark.parametrize("enforcement", ["Observe", "Jobs", "Nodes"])
    def test_no_budget_and_no_enforcement_bounds_it(
        self, at: float, evacuate: Evacuate, act: Act, enforcement: str
    ) -> None:
        fleet = self.fleet(40, enforcement)
        _, rulings, effects, breaker = fleet.step(after(at))
        assert {ruling.act for ruling in rulings.values()} == {act}
        assert all(each.avoid and each.evacuate is evacuate for each in effects.values())
        tainted = enforcement == "Nodes" and act is Act.TAKE
        assert {each.taint for each in effects.values()} == {tainted}
        assert (breaker.held, breaker.out, breaker.used) == (0, 0, 0)
        assert fleet.taken_at == []

    def test_a_fault_is_taken_as_ever_while_others_are_maintained(self) -> None:
        fleet = self.fleet(40)
        fleet.step(after(STARTS))
        fleet.report("node-0003", evidence("Xid", 79, at=STARTS))
        _, rulings, effects, breaker = fleet.step(after(STARTS + 1))
        assert (rulings["node-0003"].act, effects["node-0003"].evacuate) == (Act.TAKE, Evacuate.NOW)
        assert breaker.used == 1

    def test_what_the_breaker_holds_is_left_for_the_window(self) -> None:
        fleet = self.fleet(40)
        for name in fleet.facts:
            fleet.report(name, evidence("RowRemapPending"))
        _, rulings, effects, _ = fleet.step(after(1.5 * HOUR))
        held = [name for name, ruling in rulings.items() if ruling.act is Act.HOLD]
        assert held
        assert {effects[name].evacuate for name in held} == {Evacuate.AFTER_CHECKPOINT}

    def test_taints_go_with_the_window(self) -> None:
        fleet = self.fleet(3)
        fleet.step(after(STARTS))
        assert len(fleet.tainted) == 3
        fleet.rules = Rules.from_policy(FleetPolicySpec())
        fleet.step(after(STARTS + 1))
        _, _, effects, _ = fleet.step(after(STARTS + 2 + LOOK_SECONDS))
        assert not any(each.taint for each in effects.values())

    def test_people_read_which_window_and_when_the_node_comes_back(self) -> None:
        fleet = self.fleet(1)
        verdicts, rulings, effects, _ = fleet.step(after(1.5 * HOUR))
        (name,) = verdicts
        text = status_message(Order(name, verdicts[name], rulings[name], effects[name]), fleet.rules)
        assert text.startswith(f"{AHEAD}: maintenance window rack-7 is about to start")
        assert "running jobs are evacuated after their next checkpoint" in text
        assert "Muster uses the node again after 2026-11-20 13:41 UTC" in text
        verdicts, rulings, effects, _ = fleet.step(after(HOUR))
        said = effect_text(Order(name, verdicts[name], rulings[name], effects[name]), fleet.rules)
        assert said == "excluded from placement; running jobs stay"


class TestProblems:
    def told(self, spec: FleetPolicySpec, nodes: Sequence[NodeView], at: float = 0) -> list[str]:
        return [problem.message for problem in problems(spec, nodes, after(at)) if problem is not None]

    @pytest.mark.parametrize(
        ("windows", "at", "words"),
        [
            pytest.param([window()], 0, [], id="nothing to tell"),
            pytest.param(
                [window(starts=ENDS, ends=STARTS)],
                0,
                ["is not after its startTime. Muster ignores the window"],
                id="backwards",
            ),
            pytest.param([window()], ENDS + OLD_SECONDS, ["has been over since"], id="long over"),
            pytest.param([window()], ENDS + OLD_SECONDS - 1, [], id="just over"),
            pytest.param(
                [window(names=["elsewhere"])],
                0,
                ["selects no node of the cluster. Muster takes none out"],
                id="no node",
            ),
            pytest.param(
                [window(names=["node-1", "nod-2"])],
                0,
                ["there is no node nod-2. Muster takes out the others"],
                id="a slip",
            ),
            pytest.param(
                [window(selector={})], 0, ["takes 10 of 10 nodes of nvidia.com/gpu H200 out"], id="the whole fleet"
            ),
            pytest.param(
                [window(), window("again", STARTS + HOUR, ENDS + HOUR)],
                0,
                ["windows[rack-7] overlaps on some nodes with again. Muster uses these"],
                id="an overlap",
            ),
            pytest.param(
                [window(), window("other", STARTS + HOUR, ENDS + HOUR, names=["node-2"])], 0, [], id="of other nodes"
            ),
            pytest.param([window(), window("next", ENDS, ENDS + HOUR)], 0, [], id="one after the other"),
        ],
    )
    def test_what_may_not_be_meant_is_told(self, windows: list[dict[str, Any]], at: float, words: list[str]) -> None:
        nodes = [node(f"node-{index}", labels={"nvidia.com/gpu.product": "H200"}) for index in range(10)]
        found = self.told(policy(*windows), nodes, at)
        assert len(found) == len(words)
        assert all(part in text for part, text in zip(words, found, strict=True))


def test_many_windows_that_overlap_are_told_once_each() -> None:
    many = policy(*(window(f"w-{number}") for number in range(64)))
    found = [problem for problem in problems(many, [node()], after(0)) if problem is not None]
    assert len(found) == 63
    assert "overlaps on some nodes with w-1, w-2, w-3, w-4 and 59 more" in found[0].message


def test_times_have_a_zone() -> None:
    at = datetime(2026, 1, 31, 8, tzinfo=UTC) + timedelta(0)
    found = MaintenancePolicy.model_validate(
        {"windows": [{**window(), "startTime": "2026-01-31T09:00:00+01:00", "endTime": "2026-01-31T10:00:00Z"}]}
    )
    assert found.windows[0].start_time == at
    with pytest.raises(ValueError, match="a time needs a zone"):
        MaintenancePolicy.model_validate({"windows": [{**window(), "startTime": "2026-01-31T09:00:00"}]})

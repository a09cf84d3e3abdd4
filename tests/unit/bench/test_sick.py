"""The pure parts of the health bench: who falls sick, what is wrong, what was measured; and the watch of taints."""

import json
from collections import Counter
from datetime import datetime
from typing import Any, cast

import pytest
from bench.api import Connection
from bench.burst import Burst
from bench.sick.evidence import Agent
from bench.sick.requests import all_requests, nodes_by_verdict, requests_made, writes
from bench.sick.taints import requests
from bench.sick.taintwatch import TaintWatch
from bench.sick.verdicts import (
    CONDITION,
    OWN_TAINT,
    REASONS,
    STATE,
    TAINT,
    Sick,
    beyond,
    choose,
    condition,
    delays,
    let_through,
    percentile,
    wrong_verdicts,
)
from tests.unit.bench.watched import Server

from localcluster.kwok import FakeNode, fleet
from localcluster.patience import PATIENCE_SECONDS
from muster.api.fleetpolicy import DEFAULT_BUDGETS, FleetPolicySpec
from muster.api.nodehealth import Evidence
from muster.health.budgets import OF_FLEET, Budgets, Share
from muster.health.facts import NodeFacts
from muster.health.kinds import sign_of
from muster.health.signs import Sign
from muster.health.sources import Rules
from muster.kube import decode
from muster.node.agent.client import ApiError

NODES = [node.name for node in fleet(2048)]


def node(name: str, *keys: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"taints": [{"key": key} for key in ("kwok", *keys)]}}


def health(name: str, state: str | None, reason: str = "", effect: str = "") -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"state": state, "reason": reason, "effect": effect}}


def signs_of(*, sick: bool) -> tuple[list[Sign], datetime | None]:
    """What the operator's tables make of a node with the bench's condition, at the time of that."""
    manifest = FakeNode("a", "b0", "r0").manifest()
    manifest["metadata"] |= {"uid": "a", "resourceVersion": "1"}
    manifest["status"] |= condition(sick, "2026-01-31T12:00:00Z")["status"]
    facts = NodeFacts.from_node(decode.node(json.dumps(manifest).encode()))
    now = facts.conditions[0].since
    assert now is not None
    return Rules.from_policy(FleetPolicySpec()).signs(facts, {}, now)


class TestWhoFallsSick:
    @pytest.mark.parametrize("count", [1, 200, 2048])
    def test_as_many_as_asked_for_half_of_them_with_an_agent(self, count: int) -> None:
        sick = choose(NODES, count)
        assert len({each.node for each in sick}) == len(sick) == count
        agents = set(NODES[::2])
        assert all((each.node in agents) == (each.by == "agent") for each in sick)
        assert sum(each.by == "agent" for each in sick) == (count + 1) // 2

    def test_no_rack_has_more_than_its_budget_of_them(self) -> None:
        racks = {each.name: each.rack for each in fleet(2048)}
        most = Counter(racks[each.node] for each in choose(NODES, 408)).most_common(1)[0][1]
        assert most <= 16 * 25 // 100

    def test_not_more_than_there_are(self) -> None:
        with pytest.raises(ValueError, match="choose fewer"):
            choose(NODES[:3], 4)


class TestWhatIsSaid:
    """The operator's own tables have to agree that it is fatal at once."""

    def test_the_condition_is_one_of_the_table(self) -> None:
        signs, ripe = signs_of(sick=True)
        assert [(sign.reason, sign.severity.value) for sign in signs] == [(CONDITION, "Fatal")]
        assert ripe is None

    def test_a_condition_that_is_fine_says_nothing(self) -> None:
        assert signs_of(sick=False) == ([], None)

    def test_the_agents_word_is_fatal_and_goes_with_the_boot(self, tmp_path: Any, monkeypatch: Any) -> None:
        said: list[dict[str, Any]] = []
        monkeypatch.setattr("bench.sick.evidence.NodeHealthClient.apply", lambda _self, status: said.append(status))
        agent = Agent("gpu-00000", "https://127.0.0.1:1", tmp_path / "ca", tmp_path / "token")
        for act in (agent.boot, agent.fall_off, agent.boot):
            act()
        assert [len(each["evidence"]) for each in said] == [0, 1, 0]
        evidence = Evidence.model_validate(said[1]["evidence"][0])
        sign = sign_of(evidence, evidence.last_seen)
        assert (sign.reason, sign.severity.value) == (REASONS["agent"], "Fatal")
        assert len({each["agent"]["bootId"] for each in said}) == 2

    def test_an_agent_that_gets_no_answer_tries_again(self, tmp_path: Any, monkeypatch: Any) -> None:
        tries: list[float] = []

        def apply(_self: Any, _status: Any) -> None:
            tries.append(0.0)
            if len(tries) < 3:
                raise ApiError("no answer: timed out")

        monkeypatch.setattr("bench.sick.evidence.NodeHealthClient.apply", apply)
        monkeypatch.setattr("bench.sick.evidence.time.sleep", lambda _seconds: None)
        Agent("gpu-00000", "https://127.0.0.1:1", tmp_path / "ca", tmp_path / "token").boot()
        assert len(tries) == 3


class TestWhatIsWrong:
    SICK = (Sick("a", "agent"), Sick("b", "condition"))
    RIGHT = (health("a", STATE, "Xid79", "tainted; running jobs"), health("b", STATE, CONDITION, "tainted"))

    def wrong(self, healths: Any, nodes: Any, *, all_out: bool = True) -> list[str]:
        return wrong_verdicts(self.SICK, healths, nodes, all_out)

    def test_nothing(self) -> None:
        nodes = [node("a", TAINT), node("b", TAINT), node("c"), node("d")]
        assert self.wrong([*self.RIGHT, health("d", "Healthy")], nodes) == []

    @pytest.mark.parametrize(
        ("record", "keys"),
        [
            pytest.param(health("c", "Suspect"), (), id="suspected"),
            pytest.param(health("c", "Healthy"), (TAINT,), id="tainted"),
        ],
    )
    def test_a_node_that_is_well_must_be_left_alone(self, record: Any, keys: tuple[str, ...]) -> None:
        assert len(self.wrong([*self.RIGHT, record], [node("c", *keys)])) == 1

    @pytest.mark.parametrize(
        "record",
        [
            pytest.param(health("a", "Degraded", "Xid79", "tainted"), id="too light"),
            pytest.param(health("a", STATE, CONDITION, "tainted"), id="another reason"),
            pytest.param(health("a", STATE, "Xid79", "excluded from placement"), id="the record knows no taint"),
            pytest.param(health("other", STATE), id="no record"),
        ],
    )
    def test_a_sick_node_must_be_known_as_what_it_is(self, record: Any) -> None:
        assert len(self.wrong([record], [node("a", TAINT)])) == 1

    def test_a_sick_node_may_be_held_back_only_by_the_budget(self) -> None:
        held = health("a", STATE, "Xid79", "given work only where no other node is left; running jobs stay: the budget")
        assert len(self.wrong([held], [node("a")])) == 1
        assert self.wrong([held], [node("a")], all_out=False) == []
        assert len(self.wrong([health("a", STATE, "Xid79", "")], [node("a")], all_out=False)) == 1
        assert len(self.wrong([held], [node("a", TAINT)], all_out=False)) == 1


class TestFigures:
    @pytest.mark.parametrize(
        ("values", "percent", "want"),
        [([3.0, 1.0, 2.0], 50, 2.0), ([1.0, 2.0], 50, 1.0), ([1.0], 99, 1.0), (list(range(1, 201)), 99, 198)],
    )
    def test_percentiles_are_values_that_were_measured(self, values: list[float], percent: int, want: float) -> None:
        assert percentile(values, percent) == want

    def test_delays_are_each_nodes_own(self) -> None:
        took = delays({"a": 10.0, "b": 10.5}, {"a": 11.0, "b": 12.0, "other": 99.0})
        assert took == {"p50": 1.0, "p99": 1.5, "max": 1.5, "taints_per_second": 1.0, "sending_seconds": 0.5}

    def test_a_node_that_was_never_tainted_is_not_passed_over(self) -> None:
        with pytest.raises(KeyError):
            delays({"a": 1.0, "b": 1.0}, {"a": 2.0})


METRICS = """
# HELP muster_api_requests_total Requests to the API server.
muster_api_requests_total{code="200",resource="nodes",verb="PATCH"} 12.0
muster_api_requests_total{code="422",resource="nodes",verb="PATCH"} 1.0
muster_api_requests_total{code="200",resource="nodes",verb="GET"} 5.0
muster_api_requests_total{code="200",resource="nodes",verb="WATCH"} 3.0
muster_api_requests_total{code="200",resource="leases",verb="PUT"} 9.0
muster_nodes{state="Healthy"} 1024.0
muster_nodes{state="Unknown"} 0.0
"""


def test_requests_are_the_operators_without_its_lease() -> None:
    made = requests_made(METRICS)
    assert made == {"PATCH nodes": 13, "GET nodes": 5}
    assert writes(made) == 13
    assert nodes_by_verdict(METRICS) == {"Healthy": 1024, "Unknown": 0}
    everything = all_requests(METRICS)
    assert made.items() < everything.items()
    assert {key.partition(" ")[0] for key in everything.keys() - made.keys()} >= {"WATCH", "PUT"}


def test_the_raw_client_keeps_the_nodes_own_taint_and_notes_when_it_sent() -> None:
    sent: dict[str, float] = {}
    made = list(requests(Burst("https://127.0.0.1:6443", "token"), ["a", "b"], "k", sent))
    assert made[0].startswith(b"PATCH /api/v1/nodes/a HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer token\r\n")
    head, body = made[0].split(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}".encode() in head
    assert [taint["key"] for taint in json.loads(body)["spec"]["taints"]] == [OWN_TAINT["key"], "k"]
    assert sent.keys() == {"a", "b"}
    removed = next(requests(Burst("https://127.0.0.1:6443", "token"), ["a"], "", sent))
    assert json.loads(removed.split(b"\r\n\r\n")[1]) == {"spec": {"taints": [OWN_TAINT]}}


def test_the_first_moment_of_a_taint_counts() -> None:
    server = Server(node("a"), node("b", TAINT))
    watch = TaintWatch(cast("Connection", server), TAINT)
    server.say("MODIFIED", node("a", TAINT))
    assert watch.wait(lambda tainted: "a" in tainted, PATIENCE_SECONDS)
    first = watch.tainted()
    assert first["b"] == 0.0
    assert first["a"] > 0.0
    server.say("MODIFIED", node("a", TAINT, "another"))
    server.say("MODIFIED", node("b"))
    assert watch.wait(lambda tainted: "b" not in tainted, PATIENCE_SECONDS)
    assert watch.tainted() == {"a": first["a"]}
    assert server.versions == ["7"]
    watch.close()
    server.lines.put(None)


@pytest.mark.parametrize("ends", [True, False], ids=["it ends", "it is refused"])
def test_a_watch_that_breaks_is_told_and_keeps_nobody_waiting(ends: bool) -> None:
    server = Server(node("a"))
    watch = TaintWatch(cast("Connection", server), TAINT)
    if ends:
        server.lines.put(None)
    else:
        server.say("ERROR", {"code": 410, "message": "too old"})
    assert watch.wait(lambda tainted: len(tainted) > 5, PATIENCE_SECONDS)
    assert watch.broken
    server.lines.put(None)


class TestTheBudgetOfRunB:
    @pytest.mark.parametrize(
        ("share", "tainted"),
        [
            pytest.param(Share(205, 164, 123), 164, id="2,048 nodes: two causes use up what is not certain"),
            pytest.param(Share(10, 8, 3), 6, id="a part for one cause that is small bounds both"),
        ],
    )
    def test_is_what_two_causes_are_let_through(self, share: Share, tainted: int) -> None:
        assert let_through(share) == tainted

    def test_no_cause_has_more_than_its_part(self) -> None:
        sick = [Sick("a", "agent"), Sick("b", "agent"), Sick("c", "condition")]
        assert beyond(Share(4, 3, 1), sick, {"a", "c"}) == []
        assert beyond(Share(4, 3, 1), sick, {"a", "b", "c"}) == ["2 nodes are tainted for agent: more than 1"]

    def test_is_that_of_the_shipped_policy(self) -> None:
        """As docs/benchmarks.md tells it."""
        share = Budgets.from_policy(DEFAULT_BUDGETS, OF_FLEET).in_window(2048)
        assert (let_through(share), share.cause) == (164, 123)

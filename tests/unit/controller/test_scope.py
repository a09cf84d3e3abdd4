"""Nodes outside the FleetPolicy's scope: nothing is written about them, and Muster's marks leave a node that leaves
it."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.unit.controller.health_stage import EVERYTHING, OTHER, Stage
from tests.unit.controller.repair_shop import REPAIRS, Shop
from tests.unit.controller.test_agents import Fleet
from tests.unit.controller.test_equipment import Kind
from tests.unit.controller.test_fleethours import GPU, Process, Server
from tests.unit.controller.test_upkeep import Everything
from tests.unit.health.builders import budgets
from tests.unit.lifecycle.builders import a_node

from muster.api.fleetpolicy import FleetPolicy, FleetPolicySpec
from muster.controller.nodeperform import REST_SECONDS
from muster.health.equals import LASTS_SECONDS
from muster.health.silence import AVOID_SECONDS
from muster.kube.errors import ServerError
from muster.world.views import NodeView

CELL = "example.org/cell"
SCOPE = {"nodeSelector": {"matchLabels": {CELL: "a"}}}
CONDITION = {"type": "MusterHealthy", "status": "False", "reason": "Xid79"}


def set_policy(stage: Stage, scope: dict[str, Any], **health: Any) -> None:
    stage.api.version += 1
    spec = {"scope": scope, "health": {"enforcement": "Nodes", "budgets": EVERYTHING, **health}}
    meta = {"name": "default", "uid": "policy", "resourceVersion": str(stage.api.version)}
    stage.cluster.policies.store.assume(FleetPolicy.model_validate({"metadata": meta, "spec": spec}))


def label(stage: Stage, *names: str, cell: str = "a") -> None:
    for name in names:
        node = stage.api.objects["nodes", name]
        labels = {**node["metadata"]["labels"], CELL: cell}
        stage.api.put("nodes", {**node, "metadata": {**node["metadata"], "labels": labels}})


@pytest.fixture
async def stage() -> Stage:
    """Two faulty nodes of cell a, both tainted, in a scope of that cell."""
    made = Stage()
    made.add("a", "b")
    label(made, "a", "b")
    set_policy(made, SCOPE)
    made.say("a", 79)
    made.say("b", 79)
    await made.look()
    assert made.tainted() == {"a", "b"}
    made.api.calls.clear()
    return made


async def test_whatever_a_record_says_nothing_is_written_about_a_node_outside() -> None:
    stage = Stage()
    stage.add("a")
    set_policy(stage, SCOPE, nodeCondition=True)
    incident = {"time": stage.now.isoformat(), "state": "Unhealthy", "reason": "Xid79"}
    stage.say("a", 79, state="Unhealthy", reason="Xid79", incidents=[incident])
    await stage.look()
    assert not await stage.nodes.marks.write_condition("a")
    assert (stage.api.calls, stage.told.reasons) == ([], [])
    assert stage.nodes.reconciler.out() == []
    assert stage.cluster.fleet.exclusion("a") is None


async def test_a_node_that_leaves_the_scope_loses_the_taint_and_keeps_its_record(stage: Stage) -> None:
    record = stage.status("a")
    label(stage, "a", cell="b")
    await stage.look()
    assert stage.tainted() == {"b"}
    assert stage.api.objects["nodes", "a"]["spec"]["taints"] == [OTHER]
    assert [call[:2] for call in stage.api.calls] == [("GET", "nodes"), ("PATCH", "nodes")]
    assert stage.status("a") == record
    assert stage.cluster.fleet.exclusion("a") is None, "a gang there is not moved by what Muster knew"
    label(stage, "a")
    await stage.look()
    assert stage.tainted() == {"a", "b"}
    assert len(stage.status("a")["incidents"]) == 1


async def test_the_scope_outlasts_a_policy_that_is_deleted(stage: Stage) -> None:
    label(stage, "a", cell="b")
    await stage.look()
    stage.api.calls.clear()
    stage.cluster.policies.store.assume_deleted(("", "default"), "policy")
    stage.say("a", 79, 94)
    await stage.look()
    assert set(stage.cluster.fleet.outside) == {"a"}
    assert [call for call in stage.api.calls if "a" in call] == []


async def test_so_do_all_nodes_that_another_scope_leaves_out(stage: Stage) -> None:
    set_policy(stage, {"nodeSelector": {"matchExpressions": [{"key": CELL, "operator": "DoesNotExist"}]}})
    await stage.look()
    assert stage.tainted() == set()


async def test_a_taint_that_could_not_be_removed_is_tried_again(stage: Stage) -> None:
    stage.api.fails["a"] = [ServerError(500, "", "not now")]
    label(stage, "a", cell="b")
    await stage.look()
    assert "a" in stage.tainted()
    stage.later_seconds += REST_SECONDS
    await stage.look()
    assert stage.tainted() == {"b"}


async def test_a_node_that_leaves_the_scope_loses_the_condition(stage: Stage) -> None:
    set_policy(stage, SCOPE, nodeCondition=True)
    node = stage.api.objects["nodes", "a"]
    stage.api.put("nodes", {**node, "status": {"conditions": [CONDITION]}})
    label(stage, "a", cell="b")
    await stage.look()
    bodies: list[Any] = []

    async def patch(_path: str, body: Any, _kind: str) -> bytes:
        bodies.append(body)
        return json.dumps(stage.api.objects["nodes", "a"]).encode()

    stage.nodes.marks._client = SimpleNamespace(patch=patch)  # type: ignore[assignment]
    assert await stage.nodes.marks.write_condition("a")
    assert bodies[0]["status"]["conditions"] == [{"type": "MusterHealthy", "$patch": "delete"}]


async def test_nodes_outside_neither_take_a_budget_nor_make_it_larger() -> None:
    stage = Stage()
    names = [f"n{number}" for number in range(10)]
    stage.add(*names, rack="r0")
    label(stage, "n0", "n1")
    set_policy(stage, SCOPE, budgets=[{"nodes": "20%"}])
    for name in ("n0", "n1", "n2"):
        stage.say(name, 79)
    await stage.look()
    assert len(stage.tainted()) == 1, "20 % of two nodes"
    set_policy(stage, {}, budgets=[{"nodes": "20%"}])
    await stage.look()
    assert len(stage.tainted()) == 2
    set_policy(stage, SCOPE, budgets=budgets(window=1))
    await stage.look()
    assert stage.tainted() <= {"n0", "n1"}


async def test_a_share_of_the_fleet_is_one_of_the_nodes_inside(stage: Stage) -> None:
    label(stage, "a", cell="b")
    counted = SimpleNamespace(failures_on=lambda _node, nodes, _now: [nodes])
    stage.nodes.failures._job_failures = counted  # type: ignore[assignment]
    assert stage.nodes.failures.job_failures("b", stage.now) == [1]


async def test_a_request_for_the_repair_of_a_node_outside_is_withdrawn() -> None:
    shop = Shop()
    shop.add("a")
    await shop.asked()
    set_policy(shop, SCOPE, **REPAIRS)
    await shop.turn()
    assert shop.request() is None
    await shop.turn()
    assert shop.request() is None


async def test_a_repair_that_has_begun_goes_on() -> None:
    shop = Shop()
    shop.add("a")
    await shop.asked()
    shop.becomes("InProgress")
    set_policy(shop, SCOPE, **REPAIRS)
    await shop.turn()
    assert shop.request() is not None


def test_no_idle_node_outside_is_tested() -> None:
    everything = Everything()
    policy = FleetPolicySpec.model_validate({"scope": SCOPE})
    everything.fleet.set_policy(policy)
    everything.fleet.put_node(a_node("n0", labels={CELL: "a"}))
    assert [everything.keeper._is_free(name) for name in ("n0", "n1")] == [True, False]


async def test_no_agent_outside_is_missed() -> None:
    fleet = Fleet()
    for name in ("n0", "n1", "n2"):
        fleet.node(name, **({CELL: "a"} if name != "n1" else {}))
        fleet.say(name)
        fleet.pod(name, ready=name == "n2")
    set_policy(fleet, SCOPE, budgets=budgets(window=10))
    await fleet.look()
    await fleet.after(AVOID_SECONDS + 1)
    assert [fleet.cluster.fleet.exclusion(name) is not None for name in ("n0", "n1")] == [True, False]
    fleet.node("n0")
    await fleet.look()
    assert not fleet.nodes.worlds._agents.contacts.silent


async def test_no_machine_outside_is_compared_with_others() -> None:
    fleet = Kind()
    set_policy(fleet, SCOPE, budgets=budgets(window=10))
    for number in range(4):
        fleet.has(f"n{number}", 8 if number == 3 else 16)
    for number in range(3):
        fleet.node(f"n{number}", **{"node.kubernetes.io/instance-type": "p5"})
    fleet.node("n3", **{"node.kubernetes.io/instance-type": "p5", CELL: "a"})
    await fleet.after(0)
    await fleet.after(LASTS_SECONDS)
    assert fleet.state("n3")[0] == "Healthy"
    set_policy(fleet, {}, budgets=budgets(window=10))
    await fleet.after(0)
    await fleet.after(LASTS_SECONDS)
    assert fleet.state("n3")[0] == "Degraded"


async def test_the_hours_of_nodes_outside_are_not_counted(scene: Any) -> None:
    process = Process(scene, Server())
    process.cluster.fleet.set_policy(FleetPolicySpec.model_validate({"scope": SCOPE}))
    process.nodes("n0")
    process.cluster.fleet.put_node(NodeView("n1", "n1", 1, {CELL: "a"}, ready=True, capacity={GPU: 4}))
    assert (await process.keeper._count()).total() == 4


async def test_a_scope_that_selects_no_node_and_jobs_that_it_leaves_out_are_named_once(stage: Stage) -> None:
    stage.cluster.fleet.occupy("gang", "uid-1", frozenset({"a"}))
    stage.cluster.fleet.occupy("pod", "pod/default/web", frozenset({"b"}))
    stage.cluster.fleet.set_name("uid-1", "team-a/llama")
    texts: list[str] = []
    record = stage.told.record

    def recorded(about: Any, kind: str, reason: str, note: str) -> None:
        record(about, kind, reason, note)
        if about.kind == "FleetPolicy":
            texts.append(note)

    stage.told.record = recorded  # type: ignore[method-assign]
    set_policy(stage, {"nodeSelector": {"matchLabels": {CELL: "nowhere"}}})
    with capture_logs() as lines:
        await stage.look()
        await stage.look()
    assert stage.told.policies == ["ScopeEmpty", "JobsOutsideScope"]
    assert "selects none of the cluster's nodes (2), so no job starts" in texts[0]
    assert "leaves out nodes of 1 job (a). Workers go on there" in texts[1]
    assert not any("llama" in text for text in texts), "any user may read Events of the FleetPolicy"
    assert [line["jobs"] for line in lines if line["event"] == "jobs outside the scope"] == ["team-a/llama"]
    set_policy(stage, SCOPE)
    await stage.look()
    assert len(texts) == 2


async def test_a_job_is_named_when_it_comes_to_be_outside(stage: Stage) -> None:
    for job, node in (("uid-1", "a"), ("uid-2", "b")):
        stage.cluster.fleet.occupy(job, job, frozenset({node}))
    label(stage, "a", cell="b")
    await stage.look()
    assert stage.told.policies == ["JobsOutsideScope"]
    set_policy(stage, SCOPE, nodeCondition=True)
    await stage.look()
    assert stage.told.policies == ["JobsOutsideScope"]
    label(stage, "b", cell="b")
    await stage.look()
    assert stage.told.policies == ["JobsOutsideScope", "ScopeEmpty", "JobsOutsideScope"]
    label(stage, "a", "b")
    await stage.look()
    label(stage, "a", cell="b")
    await stage.look()
    assert stage.told.policies.count("JobsOutsideScope") == 3

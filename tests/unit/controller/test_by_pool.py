"""Health by pool: one pool is tainted while another one is only reported, and a node is treated as its pool at once."""

from typing import Any

import pytest
from tests.unit.controller.health_stage import Stage
from tests.unit.controller.test_scope import label

from muster.api.installation import InstallationProfile
from muster.kube.errors import Forbidden

LABEL = "example.org/cell"
OBSERVED = "nothing: spec.pools[b].health.enforcement of the FleetPolicy is Observe"


def pool(name: str, **health: Any) -> dict[str, Any]:
    """A pool of the nodes of the cell with its name."""
    return {"name": name, "nodeSelector": {LABEL: name}, "health": health}


@pytest.fixture
async def stage() -> Stage:
    """Two nodes with the same fault: one in a pool that is tainted, one in a pool that is only reported."""
    made = Stage()
    made.add("a", "b")
    label(made, "a", cell="a")
    label(made, "b", cell="b")
    made.policy_of(
        health={"enforcement": "Jobs"}, pools=[pool("a", enforcement="Nodes"), pool("b", enforcement="Observe")]
    )
    made.say("a", 79)
    made.say("b", 79)
    await made.look()
    return made


async def test_a_fault_is_tainted_in_one_pool_and_reported_in_another(stage: Stage) -> None:
    assert stage.tainted() == {"a"}
    assert stage.status("a")["effect"].startswith("tainted; running jobs are evacuated now")
    assert stage.status("b")["effect"] == OBSERVED
    assert [stage.status(name)["state"] for name in "ab"] == ["Unhealthy", "Unhealthy"]
    assert stage.status("a")["incidents"][0]["pool"] == "a: no accelerator"
    assert "takenOutTime" not in stage.status("b")["incidents"][0]
    texts = dict(stage.told.texts)
    assert f"Muster: {OBSERVED}" in texts["b"]


async def test_jobs_neither_avoid_nor_leave_a_node_that_is_only_reported(stage: Stage) -> None:
    fleet = stage.cluster.fleet
    assert fleet.exclusion("a") is not None
    assert (fleet.exclusion("b"), fleet.suspicion_of("b")) == (None, None)


async def test_a_node_that_moves_is_treated_as_its_new_pool(stage: Stage) -> None:
    label(stage, "a", cell="b")
    label(stage, "b", cell="a")
    await stage.look()
    assert stage.tainted() == {"b"}
    assert (stage.cluster.fleet.exclusion("a"), stage.status("a")["effect"]) == (None, OBSERVED)


async def test_a_record_names_the_field_of_the_new_pool_though_nothing_else_changes(stage: Stage) -> None:
    stage.policy_of(health={"enforcement": "Observe"}, pools=[pool("b", enforcement="Observe")])
    await stage.look()
    assert stage.tainted() == set()
    assert stage.status("b")["effect"] == OBSERVED
    label(stage, "b", cell="a")
    await stage.look()
    assert stage.status("b")["effect"] == "nothing: spec.health.enforcement of the FleetPolicy is Observe"


async def test_a_reason_is_observed_in_one_pool(stage: Stage) -> None:
    stage.policy_of(pools=[pool("b", observedReasons=["Xid79"])])
    await stage.look()
    assert stage.tainted() == {"a"}
    assert stage.status("b")["effect"] == "nothing: spec.pools[b].health of the FleetPolicy only observes Xid79"


async def test_the_taint_goes_when_its_pool_returns_to_jobs(stage: Stage) -> None:
    stage.policy_of(health={"enforcement": "Jobs"}, pools=[pool("a"), pool("b", enforcement="Observe")])
    await stage.look()
    assert stage.tainted() == set()
    assert stage.cluster.fleet.exclusion("a") is not None


async def test_a_new_leader_does_the_same(stage: Stage) -> None:
    new = Stage(stage.api)
    new.policy_of(
        health={"enforcement": "Jobs"}, pools=[pool("a", enforcement="Nodes"), pool("b", enforcement="Observe")]
    )
    for (kind, _), value in sorted(stage.api.objects.items()):
        stage.api.put(kind, value)
    stage.api.calls.clear()
    await new.look()
    assert new.tainted() == {"a"}
    assert new.api.calls == []


async def test_a_profile_that_observes_taints_in_no_pool() -> None:
    stage = Stage(profile=InstallationProfile.OBSERVE)
    stage.add("a", "b")
    label(stage, "a", cell="a")
    stage.policy_of(pools=[pool("a", enforcement="Nodes")])
    stage.say("a", 79)
    await stage.look()
    assert stage.tainted() == set()
    assert stage.cluster.fleet.exclusion("a") is None
    assert stage.status("a")["effect"] == "nothing: Muster is installed with profile observe"
    assert "Muster: nothing: Muster is installed with profile observe" in dict(stage.told.texts)["a"]


async def test_a_refused_taint_names_the_field_that_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    stage.api.refuses["PATCH", "nodes"] = Forbidden(403, "Forbidden", "no")
    notes: list[str] = []
    monkeypatch.setattr(stage.told, "record", lambda _about, _kind, _reason, note: notes.append(note))
    stage.add("a", taints=())
    label(stage, "a", cell="a")
    stage.policy_of(health={"enforcement": "Jobs"}, pools=[pool("a", enforcement="Nodes")])
    stage.say("a", 79)
    await stage.look()
    assert any("or set spec.pools[a].health.enforcement to Jobs." in note for note in notes)


async def test_a_pool_that_has_no_node_is_reported_once_until_it_has_one(stage: Stage) -> None:
    assert "PoolEmpty" not in stage.told.policies
    own = [pool("a", enforcement="Nodes"), pool("all"), pool("b", enforcement="Observe"), {"name": "plain"}]
    own[1]["nodeSelector"] = {}
    stage.policy_of(pools=own)
    await stage.look()
    await stage.look()
    assert stage.told.policies == ["PoolEmpty"], "the pool before it has the node"
    stage.policy_of(pools=[own[2]])
    await stage.look()
    stage.policy_of(pools=own)
    await stage.look()
    assert stage.told.policies == ["PoolEmpty", "PoolEmpty"]


async def test_a_pool_whose_nodes_are_outside_the_scope_is_told_of_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: dict[str, str] = {}
    monkeypatch.setattr(stage.told, "record", lambda _about, _kind, reason, note: notes.update({reason: note}))
    stage.policy_of(scope={"nodeSelector": {"matchLabels": {LABEL: "a"}}}, pools=[pool("b", enforcement="Nodes")])
    await stage.look()
    assert "or they are outside spec.scope. Correct the selector or the scope" in notes["PoolEmpty"]


async def test_a_pool_that_gets_another_name_is_not_treated_as_the_fleet_meanwhile(stage: Stage) -> None:
    """A node that changes between a new policy and the next look stays in a pool that the rules know."""
    renamed = {**pool("b", enforcement="Observe"), "name": "c"}
    stage.policy_of(health={"enforcement": "Nodes"}, pools=[renamed])
    label(stage, "b", cell="b")
    pools, rules = stage.nodes.engine.node_index.pools, stage.nodes.worlds.rules
    assert rules.of_pool(pools["b"]).enforcement == "Observe"
    await stage.look()
    assert (stage.tainted(), pools["b"]) == ({"a"}, "c: no accelerator")

"""Sick nodes: what the operator concludes from evidence, and what becomes of the jobs there."""

import functools
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from muster.api.base import rfc3339
from muster.api.nodehealth import NodeHealth
from muster.controller.forgetting import Forgetting
from muster.controller.nodeperform import JSON_PATCH, TAINT_KEY, taint_patch
from muster.kube import decode, paths
from muster.kube.errors import Invalid
from stage.hand import patiently
from stage.health import (
    NODES,
    agent_says,
    are_tainted,
    evidence,
    has_score,
    health,
    is_in_state,
    set_conditions,
    tainted,
)
from stage.scene import Scene

# All of them at once, where that is not what a test is about.
NO_BUDGET = {"budgets": [{"nodes": "100%"}]}
FREE = {"health": {"enforcement": "Nodes", **NO_BUDGET}}


async def test_a_fault_of_the_application_evicts_nobody(scene: Scene) -> None:
    await scene.add_nodes(3, "n")
    async with scene.policy(NODES):
        await scene.operators.start()
        training = await scene.create_job(nodes=2)
        await scene.training_at(1, training)
        for code in (13, 31, 43, 45):
            await agent_says(scene, scene.hand.worker(0).node, evidence("Xid", code))
        await agent_says(scene, scene.hand.worker(1).node, evidence("Xid", 99999))

        async def told() -> bool:
            return bool((await health(scene, scene.hand.worker(1).node)).get("findings"))

        await scene.eventually("the unknown one is written down", told)
        assert await tainted(scene) == []
        gang = await scene.gang()
        assert gang
        assert gang["attempt"] == 1


async def test_a_degraded_node_is_left_after_the_next_checkpoint(scene: Scene) -> None:
    await scene.add_nodes(3, "n")
    async with scene.policy(NODES):
        await scene.operators.start()
        training = await scene.create_job(nodes=2, training={"last_step": 40})
        await scene.training_at(1, training)
        sick = scene.hand.worker(1).node
        await agent_says(scene, sick, evidence("RowRemapPending"))

        async def leaving() -> bool:
            gang = await scene.gang()
            return bool(gang and (gang.get("evacuation") or {}).get("reason") == "NodeDegraded")

        await scene.eventually("the leave is planned", leaving)
        training.hold_at += 10
        await scene.training_at(2, training)
        gang = await scene.gang()
        assert gang
        assert sick not in [member["node"] for member in gang["members"]]
        assert gang["incidents"][0]["faultClass"] == "Planned"


async def test_many_at_once_are_held_back_by_the_budget_and_are_the_last_choice(scene: Scene) -> None:
    await scene.add_nodes(6, "n")
    async with scene.policy(NODES):
        await scene.operators.start()
        for number in range(5):
            await agent_says(scene, f"n-{number}", evidence("Xid", 79))

        async def judged() -> bool:
            states = [(await health(scene, f"n-{number}")).get("state") for number in range(5)]
            return states == ["Unhealthy"] * 5

        await scene.eventually("all are judged", judged)
        assert len(await tainted(scene)) <= 1

        async def held() -> bool:
            effects = [(await health(scene, f"n-{number}")).get("effect", "") for number in range(5)]
            return sum("running jobs stay" in effect for effect in effects) == 4

        await scene.eventually("four are held back", held)
        assert len(await tainted(scene)) <= 1
        out = await tainted(scene)
        await scene.create_job("alone", nodes=1)

        async def placed(name: str) -> str:
            conditions = (await scene.job(name)).get("status", {}).get("conditions", [])
            return next(
                (each["message"] for each in conditions if (each["type"], each["status"]) == ("Placed", "True")), ""
            )

        told = await scene.eventually("it is placed", functools.partial(placed, "alone"))
        assert "on n-5" in told, "as long as there is a node that nothing stands against"
        await scene.create_job("beside", nodes=1)
        told = await scene.eventually("it is placed", functools.partial(placed, "beside"))
        assert "is unhealthy (Xid79): the breaker holds it back" in told
        assert not any(f"on {name}" in told for name in out)
        await scene.create_job("waits", nodes=4)

        async def waiting() -> Any:
            return (await scene.job("waits")).get("status", {}).get("waiting")

        found = await scene.eventually("it waits", waiting)
        assert {"reason": "unhealthy (Xid79)", "nodes": len(out)} in found["blockers"], (
            "what is taken out is nobody's choice"
        )


async def test_a_humans_word_sticks(scene: Scene) -> None:
    await scene.add_nodes(2, "n")
    async with scene.policy(FREE):
        await scene.operators.start()
        await agent_says(scene, "n-0", evidence("Xid", 79))
        await scene.eventually("it is out", functools.partial(are_tainted, scene, "n-0"))
        now = rfc3339(datetime.now(UTC))
        release = {"spec": {"override": {"decision": "Release", "reason": "checked by hand", "time": now}}}
        await scene.api.patch(paths.muster("nodehealths", name="n-0"), release)
        await scene.eventually("it is back", functools.partial(are_tainted, scene))
        cordon = {"spec": {"override": {"decision": "Cordon", "reason": "cable to be changed", "time": now}}}
        await scene.api.patch(paths.muster("nodehealths", name="n-0"), cordon)
        await scene.eventually("it is out again", functools.partial(are_tainted, scene, "n-0"))
        assert "cable to be changed" in (await health(scene, "n-0"))["message"]


async def test_a_gone_machines_record_is_deleted_unless_it_has_been_written_to(scene: Scene) -> None:
    ticks = [0.0]
    store: dict[tuple[str, str], Any] = {}
    cluster: Any = SimpleNamespace(
        healths=SimpleNamespace(store=store), fleet=SimpleNamespace(nodes={}), policy_unknown=False
    )
    forgetting = Forgetting(scene.api, cluster, lambda: ticks[0])
    for name in ("gone", "written"):
        await agent_says(scene, name)
        found = await scene.api.get(paths.muster("nodehealths", name=name))
        store["", name] = decode.custom(NodeHealth)(found)
        forgetting.note(name)
    await agent_says(scene, "written", evidence("Xid", 79))
    ticks[0] = 3601.0
    rules: Any = SimpleNamespace(quarantine=SimpleNamespace(half_life_seconds=604800), longest_window_seconds=600)
    await forgetting.forget_some(rules, datetime.now(UTC) + timedelta(days=40))
    names = {found["metadata"]["name"] for found in await scene.listed(paths.muster("nodehealths"))}
    assert names & {"gone", "written"} == {"written"}


async def test_a_policy_that_contradicts_the_table_is_told_and_the_stronger_counts(scene: Scene) -> None:
    """What contradicts itself within the policy, the API server refuses."""
    await scene.add_nodes(2, "n")
    broken = {"type": "AcceleratedHardwareReady", "reason": "NvidiaDoubleBitError"}
    rule = {"name": "mild", "condition": {**broken, "badWhenFalse": True}, "severity": "Warning"}
    async with scene.policy({"health": {"enforcement": "Nodes", "rules": [rule], **NO_BUDGET}}):
        operator = await scene.operators.start()
        await set_conditions(scene, "n-0", {**broken, "status": "False"})
        await scene.eventually("it is out", functools.partial(are_tainted, scene, "n-0"))
        told = await health(scene, "n-0")
        assert (told["state"], told["reason"], told["recommendedAction"]) == (
            "Unhealthy",
            "NvidiaDoubleBitError",
            "Reboot",
        )
        lines = [line for line in operator.log.read_text().splitlines() if "the FleetPolicy contradicts itself" in line]
        assert len(lines) == 1
        assert "mild (Warning) matches marks that eks/hardware (Fatal) matches" in lines[0]
        assert "muster_health_policy_problems 1.0\n" in await operator.metrics()


async def test_a_renamed_machine_keeps_its_account_and_its_old_name_has_none(scene: Scene) -> None:
    await scene.add_nodes(2, "n")
    async with scene.policy(FREE):
        await scene.operators.start()
        await agent_says(scene, "n-0", evidence("Xid", 79), machine="board-1")
        await scene.eventually("it is out", functools.partial(are_tainted, scene, "n-0"))
        await scene.eventually("it is charged", functools.partial(has_score, scene, "n-0", "0.99"))
        await scene.hand.remove_node("n-0")
        await scene.hand.add_node("m-0")
        await scene.hand.add_node("n-0")
        await agent_says(scene, "m-0", evidence("Xid", 79), machine="board-1")
        await agent_says(scene, "n-0", boot="boot-9", machine="board-2")
        await scene.eventually("the machine is out again", functools.partial(are_tainted, scene, "m-0"))
        await scene.eventually("the name is not", functools.partial(is_in_state, scene, "n-0", "Healthy"))
        await scene.eventually("it is charged anew", functools.partial(has_score, scene, "m-0", "1.99"))
        moved, other = await health(scene, "m-0"), await health(scene, "n-0")
        assert Decimal(moved["offences"]["score"]) <= 2
        assert Decimal(other["offences"].get("score", "0")) == 0
        assert other["incidents"][0]["clearedBy"] == "another machine has the node's name now"


async def test_our_taint_joins_others_in_one_request_or_is_refused(scene: Scene) -> None:
    """What the API server makes of `taint_patch`, by which the operator saves reading each node first."""
    bare, other = (paths.core("nodes", name=name) for name in await scene.add_nodes(2, "n"))
    reserved = {"key": "example.org/reserved", "effect": "NoSchedule"}
    await patiently(lambda: scene.api.patch(other, {"spec": {"taints": [reserved]}}))
    without, with_one = decode.node(await scene.api.get(bare)), decode.node(await scene.api.get(other))
    assert (len(without.taints), len(with_one.taints)) == (0, 1)
    for path, stale in ((bare, with_one), (other, without)):
        with pytest.raises(Invalid):
            await scene.api.patch(path, taint_patch(stale, "Xid79"), JSON_PATCH)
    assert await tainted(scene) == []
    for path, view in ((bare, without), (other, with_one)):
        after = decode.node(await scene.api.patch(path, taint_patch(view, "Xid79"), JSON_PATCH, one_of_many=True))
        assert [taint.key for taint in after.taints] == [*(taint.key for taint in view.taints), TAINT_KEY]
        with pytest.raises(Invalid):
            await scene.api.patch(path, taint_patch(after, "Xid79"), JSON_PATCH)

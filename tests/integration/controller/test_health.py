"""Sick nodes: what the operator concludes from evidence, and what becomes of the jobs there."""

import contextlib
import functools
from datetime import UTC, datetime
from typing import Any

import pytest

from muster.api.base import API_VERSION, rfc3339
from muster.controller.health import JSON_PATCH, TAINT_KEY, taint_patch
from muster.kube import decode, paths
from muster.kube.client import APPLY_PATCH
from muster.kube.errors import AlreadyExists, Invalid, NotFound
from stage.hand import patiently
from stage.scene import Scene

NODES = {"health": {"enforcement": "Nodes"}}
# All of them at once, where that is not what a test is about.
NO_BUDGET = {"budget": {"nodesPercent": 100, "totalPercent": 100, "domainPercent": 100}}
FREE = {"health": {"enforcement": "Nodes", **NO_BUDGET}}


def evidence(kind: str, code: int = 0, subject: str = "GPU-1", boot: str = "boot-1", **more: Any) -> dict[str, Any]:
    """What an agent tells of one thing."""
    now = rfc3339(datetime.now(UTC))
    return {"kind": kind, "code": code, "subject": subject, "firstSeen": now, "lastSeen": now, "bootId": boot, **more}


async def agent_says(scene: Scene, node: str, *several: dict[str, Any], boot: str = "boot-1") -> None:
    """The agent of a node writes its part of NodeHealth."""
    collection = paths.muster("nodehealths")
    body: dict[str, Any] = {"apiVersion": API_VERSION, "kind": "NodeHealth", "metadata": {"name": node}}
    with contextlib.suppress(AlreadyExists):
        await scene.api.post(collection, body)
    agent = {"version": "test", "bootId": boot, "systemUuid": f"board-of-{node}", "gpus": 8}
    path = paths.muster("nodehealths", name=node, subresource="status")
    said = {**body, "status": {"evidence": list(several), "agent": agent}}
    query = {"fieldManager": "muster-agent", "force": "true"}
    await patiently(lambda: scene.api.patch(path, said, APPLY_PATCH, query))


async def health(scene: Scene, node: str) -> dict[str, Any]:
    """The status of the node's record; empty when there is none."""
    try:
        found = await patiently(lambda: scene.api.get(paths.muster("nodehealths", name=node)))
    except NotFound:
        return {}
    status: dict[str, Any] = found.get("status", {})
    return status


async def is_in_state(scene: Scene, node: str, state: str) -> bool:
    return (await health(scene, node)).get("state") == state


async def tainted(scene: Scene) -> list[str]:
    """The nodes that bear Muster's taint."""
    nodes = await scene.listed(paths.core("nodes"))
    return sorted(
        node["metadata"]["name"]
        for node in nodes
        if any(taint["key"] == "muster.dev/unhealthy" for taint in node["spec"].get("taints") or ())
    )


async def are_tainted(scene: Scene, *names: str) -> bool:
    return await tainted(scene) == sorted(names)


async def test_a_gpu_that_fell_off_the_bus_sends_the_job_elsewhere_and_comes_back_with_a_reboot(scene: Scene) -> None:
    await scene.add_nodes(4, "n")
    async with scene.policy(NODES):
        await scene.operators.start()
        training = await scene.create_job(nodes=2)
        await scene.training_at(1, training)
        sick = scene.hand.worker(1).node
        await agent_says(scene, sick, evidence("Xid", 79, message="GPU has fallen off the bus"))
        await scene.training_at(2, training)
        gang = await scene.gang()
        assert gang
        assert sick not in [member["node"] for member in gang["members"]]
        assert (gang["level"], gang["incidents"][0]["reason"], gang["incidents"][0]["faultClass"]) == (
            "R2",
            "NodeUnhealthy",
            "Hardware",
        )
        await scene.eventually("the taint", functools.partial(are_tainted, scene, sick))
        told = await health(scene, sick)
        assert (told["state"], told["reason"], told["recommendedAction"]) == ("Unhealthy", "Xid79", "Reboot")
        assert "fallen off the bus" in told["message"]
        await agent_says(scene, sick, boot="boot-2")
        await scene.eventually("it is well again", functools.partial(is_in_state, scene, sick, "Healthy"))
        await scene.eventually("no taint", functools.partial(are_tainted, scene))
        assert (await health(scene, sick))["incidents"][0]["cleared"]


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
            return bool(gang and (gang.get("leave") or {}).get("reason") == "NodeDegraded")

        await scene.eventually("the leave is planned", leaving)
        training.hold_at += 10
        await scene.training_at(2, training)
        gang = await scene.gang()
        assert gang
        assert sick not in [member["node"] for member in gang["members"]]
        assert gang["incidents"][0]["faultClass"] == "Planned"


async def test_many_at_once_are_held_back_by_the_budget_and_avoided_all_the_same(scene: Scene) -> None:
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
        held = [n for n in range(5) if "running jobs stay" in (await health(scene, f"n-{n}")).get("effect", "")]
        assert len(held) == 4
        await scene.create_job("waits", nodes=2)

        async def waiting() -> Any:
            return (await scene.job("waits")).get("status", {}).get("waiting")

        found = await scene.eventually("it waits", waiting)
        assert {"reason": "unhealthy (Xid79)", "nodes": 5 - len(await tainted(scene))} in found["blockers"] or found[
            "free"
        ] == 1


async def test_a_humans_word_sticks(scene: Scene) -> None:
    await scene.add_nodes(2, "n")
    async with scene.policy(FREE):
        await scene.operators.start()
        await agent_says(scene, "n-0", evidence("Xid", 79))
        await scene.eventually("it is out", functools.partial(are_tainted, scene, "n-0"))
        now = rfc3339(datetime.now(UTC))
        release = {"spec": {"human": {"decision": "Release", "reason": "checked by hand", "time": now}}}
        await scene.api.patch(paths.muster("nodehealths", name="n-0"), release)
        await scene.eventually("it is back", functools.partial(are_tainted, scene))
        cordon = {"spec": {"human": {"decision": "Cordon", "reason": "cable to be changed", "time": now}}}
        await scene.api.patch(paths.muster("nodehealths", name="n-0"), cordon)
        await scene.eventually("it is out again", functools.partial(are_tainted, scene, "n-0"))
        assert "cable to be changed" in (await health(scene, "n-0"))["message"]


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

"""Nodes outside the FleetPolicy's scope: forged records have nothing written there, and gangs there go on."""

import functools
from datetime import UTC, datetime
from typing import Any

from muster.api.base import API_VERSION, rfc3339
from muster.kube import paths
from muster.world.names import gang_name
from stage.hand import Object, job_manifest, patiently
from stage.health import agent_says, are_tainted, evidence, node
from stage.queueing import policy_event
from stage.scene import Scene

BLOCK = "topology.muster.dev/block"
HEALTH = {
    "enforcement": "Nodes",
    "nodeCondition": True,
    "budgets": [{"nodes": "100%"}],
    "repair": {"actions": ["Reset", "Reboot", "Inspect", "Replace"]},
}


def selects(block: str) -> Object:
    """A scope of the nodes that were added with this prefix."""
    return {"nodeSelector": {"matchLabels": {BLOCK: block}}}


async def forge_health(scene: Scene, name: str) -> None:
    """A record of an agent's and of the operator's, and a user's request for a test."""
    now = rfc3339(datetime.now(UTC))
    await agent_says(scene, name, evidence("Xid", 79))
    finding = {"source": "burn-in", "reason": "BurnInFailed", "severity": "Fatal", "since": now, "message": "forged"}
    incident = {"time": now, "state": "Unhealthy", "reason": "Xid79", "takenOutTime": now}
    status = {"state": "Unhealthy", "reason": "Xid79", "findings": [finding], "incidents": [incident]}
    path = paths.muster("nodehealths", name=name, subresource="status")
    await patiently(lambda: scene.api.patch(path, {"status": status}))
    asked = {"spec": {"check": {"id": "forged", "profile": "Quick", "time": now}}}
    await patiently(lambda: scene.api.patch(paths.muster("nodehealths", name=name), asked))


async def forge_gang(scene: Scene, job: Object, *nodes: str) -> None:
    """A record by which the job has these nodes, of which the first has failed its test."""
    now, uid = rfc3339(datetime.now(UTC)), job["metadata"]["uid"]
    owner = {"apiVersion": API_VERSION, "kind": "TrainingJob", "name": "job", "uid": uid, "controller": True}
    failure = {"node": nodes[0], "time": now, "probe": "gemm-bf16", "message": "forged"}
    gang = {
        "apiVersion": API_VERSION,
        "kind": "Gang",
        "metadata": {"name": gang_name("job", uid), "ownerReferences": [owner]},
        "spec": {
            "jobUid": uid,
            "attempt": 1,
            "time": now,
            "level": "Start",
            "reason": "Created",
            "members": [{"index": i, "rank": i, "node": name, "incarnation": 1} for i, name in enumerate(nodes)],
            "burnIn": {"time": now, "failures": [failure]},
        },
    }
    await patiently(lambda: scene.api.post(paths.muster("gangs", namespace=scene.namespace), gang))


async def marked(scene: Scene, name: str) -> bool:
    """Whether the node has Muster's condition."""
    return any(each["type"] == "MusterHealthy" for each in (await node(scene, name))["status"]["conditions"])


async def test_forged_records_have_nothing_written_outside_the_scope(scene: Scene) -> None:
    outside = await scene.add_nodes(2, "out")
    await scene.add_nodes(3, "in")
    async with scene.policy({"scope": selects("in"), "health": HEALTH}):
        training = scene.hand.train("job", nodes=2)
        await forge_gang(scene, await scene.create(job_manifest("job", 2)), *outside)
        for name in outside:
            await forge_health(scene, name)
        await agent_says(scene, "in-2", evidence("Xid", 79))

        async def written() -> list[Any]:
            records = [paths.muster("nodehealths", name=name) for name in outside]
            found = [paths.core("nodes", name=name) for name in outside] + records
            return [await patiently(functools.partial(scene.api.get, path)) for path in found]

        before = await written()
        await scene.operators.start()
        await scene.eventually("a node inside is tainted", functools.partial(are_tainted, scene, "in-2"))
        await scene.eventually("a node inside is marked", functools.partial(marked, scene, "in-2"))

        async def requests() -> list[str]:
            return [each["metadata"]["name"] for each in await scene.listed(paths.muster("repairrequests"))]

        assert await scene.eventually("its repair is requested", requests) == ["in-2"]
        await scene.training_at(2, training)
        assert {worker.node for worker in scene.hand.workers.values()} == {"in-0", "in-1"}
        assert await written() == before


async def test_a_gang_goes_on_outside_a_new_scope_and_is_repaired_within_it(scene: Scene) -> None:
    await scene.add_nodes(2, "old")
    async with scene.policy({"health": HEALTH}):
        await scene.operators.start()
        training = await scene.create_job(nodes=2)
        await scene.training_at(1, training)
        await scene.add_nodes(2, "new")
        async with scene.policy({"scope": selects("new")}):
            await policy_event(scene, "JobsOutsideScope", "leaves out nodes of 1 job (old-0, old-1). Workers")
            training.hold_at += 5
            await scene.training_at(1, training)
            pod = scene.hand.worker(1).name
            path = paths.core("pods", namespace=scene.namespace, name=pod)
            await patiently(lambda: scene.api.delete(path))
            await scene.training_at(2, training)
            gang = await scene.gang()
            assert gang
            assert [member["node"] for member in gang["members"]] == ["old-0", "new-0"]


async def test_a_node_that_leaves_the_scope_loses_the_marks(scene: Scene) -> None:
    await scene.add_nodes(1, "old")
    async with scene.policy({"health": HEALTH}):
        await scene.operators.start()
        await agent_says(scene, "old-0", evidence("Xid", 79))
        await scene.eventually("it is tainted", functools.partial(are_tainted, scene, "old-0"))
        await scene.eventually("it is marked", functools.partial(marked, scene, "old-0"))
        async with scene.policy({"scope": selects("new")}):
            await scene.eventually("the taint is gone", functools.partial(are_tainted, scene))

            async def is_unmarked() -> bool:
                return not await marked(scene, "old-0")

            await scene.eventually("the condition is gone", is_unmarked)
            await policy_event(scene, "ScopeEmpty", "selects none of the cluster's nodes (1), so no job starts")

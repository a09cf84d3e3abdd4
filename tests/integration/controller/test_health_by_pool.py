"""Health by pool: the same fault is tainted in one pool and only reported in another."""

import functools

from stage.hand import Object
from stage.health import agent_says, are_tainted, evidence, health, label
from stage.scene import Scene

BLOCK = "topology.muster.dev/block"
OBSERVED = "nothing: spec.pools[b].health.enforcement of the FleetPolicy is Observe"


def pool(block: str, enforcement: str) -> Object:
    """A pool of the nodes that were added with this prefix, of which any number may be taken out."""
    return {"name": block, "nodeSelector": {BLOCK: block}, "health": {"enforcement": enforcement, "budgets": []}}


async def test_a_fault_is_tainted_in_one_pool_and_reported_in_another(scene: Scene) -> None:
    await scene.add_nodes(1, "a")
    await scene.add_nodes(1, "b")
    async with scene.policy({"pools": [pool("a", "Nodes"), pool("b", "Observe")]}):
        await scene.operators.start()
        for name in ("a-0", "b-0"):
            await agent_says(scene, name, evidence("Xid", 79))
        await scene.eventually("the node of one pool is tainted", functools.partial(are_tainted, scene, "a-0"))

        async def is_reported() -> bool:
            status = await health(scene, "b-0")
            return (status.get("state"), status.get("effect")) == ("Unhealthy", OBSERVED)

        await scene.eventually("the node of the other one is reported", is_reported)
        training = await scene.create_job(nodes=1)
        await scene.training_at(1, training)
        assert {worker.node for worker in scene.hand.workers.values()} == {"b-0"}
        await label(scene, "b-0", {BLOCK: "a"})
        await scene.eventually("it is tainted in its new pool", functools.partial(are_tainted, scene, "a-0", "b-0"))

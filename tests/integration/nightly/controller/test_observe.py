"""What the FleetPolicy only observes, from evidence to words and back to a taint."""

import functools

from stage.health import NODES, agent_says, are_tainted, evidence, health, is_in_state
from stage.scene import Scene

OBSERVED = {"health": {"enforcement": "Nodes", "observedReasons": ["Xid79"]}}


async def test_what_is_only_observed_is_on_record_and_moves_no_job_until_it_counts(scene: Scene) -> None:
    await scene.add_nodes(4, "n")
    async with scene.policy(OBSERVED):
        await scene.operators.start()
        training = await scene.create_job(nodes=2)
        await scene.training_at(1, training)
        sick = scene.hand.worker(1).node
        await agent_says(scene, sick, evidence("Xid", 79, message="GPU has fallen off the bus"))

        async def told() -> bool:
            return [each["observed"] for each in (await health(scene, sick)).get("findings", [])] == [True]

        await scene.eventually("it is on record", told)
        record = await health(scene, sick)
        assert (record["state"], record["incidents"]) == ("Healthy", [])
        assert "Only observed: Xid79" in record["message"]
        assert await are_tainted(scene)
        gang = await scene.gang()
        assert gang
        assert gang["attempt"] == 1
    async with scene.policy(NODES):
        await scene.training_at(2, training)
        await scene.eventually("the taint", functools.partial(are_tainted, scene, sick))
    async with scene.policy(OBSERVED):
        await scene.eventually("it is well again", functools.partial(is_in_state, scene, sick, "Healthy"))
        await scene.eventually("no taint", functools.partial(are_tainted, scene))
        [incident] = (await health(scene, sick))["incidents"]
        assert incident["clearedBy"] == "the FleetPolicy only observes Xid79 now"

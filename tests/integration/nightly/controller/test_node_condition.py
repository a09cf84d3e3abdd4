"""The condition MusterHealthy on Nodes, on a real API server."""

import json
from typing import Any

from muster.kube import paths
from stage.health import agent_says, evidence
from stage.scene import Scene

ON = {"health": {"nodeCondition": True}}
OFF: dict[str, Any] = {"health": {}}
TYPE = "MusterHealthy"
STRATEGIC = "application/strategic-merge-patch+json"


async def conditions(scene: Scene, name: str) -> dict[str, dict[str, Any]]:
    found = json.loads(await scene.api.get(paths.core("nodes", name=name)))
    return {each["type"]: each for each in found["status"].get("conditions", [])}


async def test_the_condition_follows_the_verdict_and_goes_when_switched_off(scene: Scene) -> None:
    """It follows through a change of leader, too."""
    await scene.add_nodes(2, "n")

    async def says(status: str, reason: str) -> bool:
        mine = (await conditions(scene, "n-0")).get(TYPE, {})
        return (mine.get("status"), mine.get("reason")) == (status, reason)

    async with scene.policy(ON):
        first = await scene.operators.start()
        await agent_says(scene, "n-0")
        await scene.eventually("it is well", lambda: says("True", "Healthy"))
        before = await conditions(scene, "n-0")
        await agent_says(scene, "n-0", evidence("Xid", 79))
        await scene.eventually("it is sick", lambda: says("False", "Xid79"))
        sick = await conditions(scene, "n-0")
        assert {name for name in sick if name != TYPE} == {name for name in before if name != TYPE}
        assert TYPE not in await conditions(scene, "n-1")

        body = {"status": {"conditions": [{"type": TYPE, "status": "True", "reason": "SomebodyElse"}]}}
        await scene.api.patch(paths.core("nodes", name="n-0", subresource="status"), body, STRATEGIC)
        await scene.eventually("it is mended", lambda: says("False", "Xid79"))
        settled = (await conditions(scene, "n-0"))[TYPE]
        await first.kill()
        await scene.operators.succeed(scene.api)
        await agent_says(scene, "n-1")

        async def told() -> bool:
            return TYPE in await conditions(scene, "n-1")

        await scene.eventually("the new leader writes", told)
        assert (await conditions(scene, "n-0"))[TYPE] == settled
    async with scene.policy(OFF):

        async def gone() -> bool:
            found = [await conditions(scene, name) for name in ("n-0", "n-1")]
            return not any(TYPE in each for each in found)

        await scene.eventually("it is taken away", gone)
        assert set(await conditions(scene, "n-0")) == {name for name in before if name != TYPE}

"""Unhealthy nodes from the evidence to the end, with jobs of one and of two owners."""

import functools
from datetime import UTC, datetime
from typing import Any

from muster.api.base import API_VERSION, rfc3339
from muster.kube import paths
from muster.world.names import gang_name
from stage.hand import patiently
from stage.health import NODES, agent_says, are_tainted, evidence, health, is_in_state, tainted
from stage.scene import Scene


async def test_a_gpu_off_the_bus_moves_the_job_and_a_reboot_clears_the_node(scene: Scene) -> None:
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
        assert (await health(scene, sick))["incidents"][0]["clearedTime"]


async def test_a_node_where_jobs_of_two_owners_fail_is_to_be_tested_and_left(scene: Scene) -> None:
    """A job that fails there again leaves it."""
    await scene.add_nodes(3, "n")
    other = f"{scene.namespace}-b"
    async with scene.policy(NODES):
        operator = await scene.operators.start()
        training = await scene.create_job(nodes=2)
        await scene.training_at(1, training)
        bad = scene.hand.worker(1).node
        scene.hand.launchers()[1].fail(exit_code=7, tail="ValueError: the secret of a tenant")
        await scene.training_at(2, training)

        async def settled() -> Any:
            gang = await scene.gang()
            return gang and gang["incidents"][0].get("settled") and gang["incidents"][0]

        incident = await scene.eventually("class and blame are final", settled)
        assert (incident["node"], incident["otherWorkers"], incident["faultClass"]) == (bad, 0, "Application")
        assert (await health(scene, bad)).get("reason", "") == "", "one failure is anybody's"

        await patiently(
            lambda: scene.api.post(
                paths.core("namespaces"), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other}}
            )
        )
        failure = {**incident, "attempt": 4, "time": rfc3339(datetime.now(UTC))}
        spec = {
            "jobUid": "uid-gpt",
            "attempt": 5,
            "time": failure["time"],
            "level": "R0",
            "reason": "RankFailed",
            "incidents": [failure],
        }
        record = {
            "apiVersion": API_VERSION,
            "kind": "Gang",
            "metadata": {"name": gang_name("gpt", "uid-gpt"), "namespace": other},
            "spec": spec,
        }
        await patiently(lambda: scene.api.post(paths.muster("gangs", namespace=other), record))
        await scene.eventually("it is suspect", functools.partial(is_in_state, scene, bad, "Suspect"))
        told = await health(scene, bad)
        (finding,) = told["findings"]
        assert (told["reason"], finding["source"], told["effect"]) == ("CheckRequested", "jobs", "")
        assert f"{scene.namespace}/job attempt 1 RankFailed (exit code 7)" in finding["message"]
        assert f"{other}/gpt attempt 4 RankFailed (exit code 7)" in finding["message"]
        assert "secret" not in finding["message"]
        assert scene.namespace not in told["message"]
        assert (await tainted(scene), told.get("incidents", [])) == ([], [])

        scene.hand.launchers()[1].fail(exit_code=7)
        await scene.training_at(3, training)
        gang = await scene.gang()
        assert gang
        assert bad not in [member["node"] for member in gang["members"]]
        assert [each["faultClass"] for each in gang["incidents"]] == ["Application"] * 2, "its job pays"

        await operator.stop()
        await scene.operators.start()
        await scene.eventually("a new leader says the same", functools.partial(is_in_state, scene, bad, "Suspect"))
        assert (await health(scene, bad))["reason"] == "CheckRequested"
        await patiently(lambda: scene.api.delete(paths.muster("gangs", namespace=other)))

"""Maintenance windows on a real API server: jobs leave in time after a checkpoint, and nodes come back when they are
proved."""

import functools
from datetime import UTC, datetime, timedelta
from typing import Any

from muster.api.base import rfc3339
from muster.kube import paths
from stage.hand import patiently
from stage.health import agent_says, are_tainted, health, is_in_state
from stage.scene import Scene


def window(name: str, begins: float, lasts: float = 7200, **nodes: Any) -> dict[str, Any]:
    """One that starts so many seconds from now."""
    start = datetime.now(UTC) + timedelta(seconds=begins)
    return {
        "name": name,
        "startTime": rfc3339(start),
        "endTime": rfc3339(start + timedelta(seconds=lasts)),
        "nodes": nodes,
        "reason": "new cables",
    }


def policy(*windows: dict[str, Any]) -> dict[str, Any]:
    return {"health": {"enforcement": "Nodes"}, "maintenance": {"windows": list(windows)}}


async def change(scene: Scene, *windows: dict[str, Any]) -> None:
    path = paths.muster("fleetpolicies", name="default")
    await patiently(lambda: scene.api.patch(path, {"spec": {"maintenance": {"windows": list(windows)}}}))


async def events(scene: Scene, reason: str) -> list[str]:
    found = await scene.listed("/apis/events.k8s.io/v1/events")
    return [event["note"] for event in found if event["reason"] == reason]


async def test_jobs_save_and_leave_for_maintenance_and_the_node_returns_proved(scene: Scene) -> None:
    """Nothing is placed on the node meanwhile."""
    await scene.add_nodes(3, "n")
    for number in range(3):
        await agent_says(scene, f"n-{number}")
    async with scene.policy(policy()):
        operator = await scene.operators.start()
        training = await scene.create_job(nodes=2, training={"last_step": 100_000})
        await scene.training_at(1, training)
        node = scene.hand.worker(1).node
        await change(scene, window("rack-7", 3000, names=[node]))
        await scene.eventually("it is closed", functools.partial(is_in_state, scene, node, "Degraded"))
        told = await health(scene, node)
        assert (told["reason"], told["maintenance"]["stage"]) == ("MaintenanceAhead", "Closed")
        assert told["effect"] == "excluded from placement; running jobs stay"
        gang = await scene.gang()
        assert gang
        assert (gang["attempt"], gang.get("evacuation")) == (1, None)

        await change(scene, window("rack-7", 1200, names=[node]))

        async def leaving() -> bool:
            gang = await scene.gang()
            return bool(gang and (gang.get("evacuation") or {}).get("reason") == "NodeMaintenance")

        await scene.eventually("the leave is planned", leaving)
        await operator.kill()
        await scene.operators.start()

        async def has_left() -> bool:
            training.hold_at += 2  # a new leader begins the leave anew, and waits for a checkpoint of after that
            gang = await scene.gang()
            return bool(gang and gang["attempt"] == 2)

        await scene.eventually("it has left", has_left)
        await scene.training_at(2, training)
        gang = await scene.gang()
        assert gang
        assert node not in [member["node"] for member in gang["members"]]
        assert gang["incidents"][0]["faultClass"] == "Planned"
        assert gang["incidents"][0]["resumedStep"] > 0

        # Nothing is placed there, and who waits reads why and until when.
        await scene.create_job("second", nodes=1)

        async def says_why() -> bool:
            job = await scene.job("second")
            conditions = job.get("status", {}).get("conditions", [])
            return any("kept free for maintenance (rack-7)" in each["message"] for each in conditions)

        await scene.eventually("it waits", says_why)
        await scene.delete_job("second")

        await change(scene, window("rack-7", -5, names=[node]))

        async def within() -> bool:
            return (await health(scene, node)).get("reason") == "InMaintenance"

        await scene.eventually("the window is open", within)
        await scene.eventually("the taint", functools.partial(are_tainted, scene, node))
        await change(scene)

        async def unproven() -> bool:
            return (await health(scene, node)).get("reason") == "RepairNotVerified"

        await scene.eventually("it has to be looked at", unproven)
        told = await health(scene, node)
        assert told["offences"]["score"] == "0"
        assert told["incidents"][-1].get("takenOutTime") is None
        assert told["incidents"][-1]["repairEndedTime"]


async def test_a_window_over_the_whole_fleet_is_obeyed_and_told_and_the_job_stops_saved(scene: Scene) -> None:
    await scene.add_nodes(2, "n")
    held = await events(scene, "BudgetExhausted")  # of tests before this one
    async with scene.policy(policy()):
        await scene.operators.start()
        checkpoint = {"directory": "/checkpoints", "saveTimeoutSeconds": 600}
        training = await scene.create_job(nodes=2, training={"last_step": 60}, checkpoint=checkpoint)
        await scene.training_at(1, training)
        await change(scene, window("all", 300, selector={}), window("none", 300, names=["nowhere"]))

        async def leaving() -> bool:
            gang = await scene.gang()
            return bool(gang and (gang.get("evacuation") or {}).get("reason") == "MaintenanceStarts")

        await scene.eventually("the job has to stop", leaving)
        training.hold_at += 10

        async def stopped() -> bool:
            gang = await scene.gang()
            return bool(gang and not gang["members"] and gang["reason"] == "MaintenanceStarts")

        await scene.eventually("its nodes are free", stopped)
        gang = await scene.gang()
        assert gang
        assert gang["checkpoint"]["step"] > 0

        async def told() -> bool:
            notes = await events(scene, "MaintenanceWindow")
            return any("takes 2 of 2 nodes" in note for note in notes) and any(
                "windows[none].nodes selects no node" in note for note in notes
            )

        await scene.eventually("people are told", told, 60.0)
        assert await events(scene, "BudgetExhausted") == held, "no budget is asked"

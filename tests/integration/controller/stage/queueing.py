"""What a job that waits for nodes tells, and the FleetPolicy of all of them."""

from typing import Any

from muster.kube import paths
from stage.scene import Scene


async def waiting(scene: Scene, name: str) -> Any:
    """The job's numbers once it waits."""

    async def told() -> Any:
        return (await scene.job(name)).get("status", {}).get("waiting")

    return await scene.eventually(f"{name} waits", told)


async def is_reason(scene: Scene, name: str, wanted: str) -> bool:
    """Whether that is why the job is in its state."""
    return (await scene.job(name)).get("status", {}).get("reason", "") == wanted


async def is_told(scene: Scene, name: str, words: str) -> bool:
    return words in (await scene.condition("Placed", name))[2]


async def policy_event(scene: Scene, reason: str, text: str) -> None:
    """Wait until an Event of the FleetPolicy says this."""

    async def is_there() -> bool:
        events = await scene.listed(paths.group("events.k8s.io/v1", "events", namespace="default"))
        return any(each["reason"] == reason and text in each["note"] for each in events)

    await scene.eventually(f"Event {reason}", is_there)

"""What a job that waits for nodes tells."""

from typing import Any

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

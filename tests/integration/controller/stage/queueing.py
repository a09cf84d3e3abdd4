"""What a job that waits for nodes tells."""

from typing import Any

from muster.kube import paths
from stage.hand import patiently
from stage.scene import Scene


async def waiting(scene: Scene, name: str) -> Any:
    """The job's numbers once it waits."""

    async def told() -> Any:
        return (await scene.job(name)).get("status", {}).get("waiting")

    return await scene.eventually(f"{name} waits", told)


async def reason(scene: Scene, name: str) -> str:
    """Why the job is in its state."""
    return str((await scene.job(name)).get("status", {}).get("reason", ""))


async def is_reason(scene: Scene, name: str, wanted: str) -> bool:
    return await reason(scene, name) == wanted


async def priority_class(scene: Scene, name: str, value: int) -> None:
    path = paths.group("scheduling.k8s.io/v1", "priorityclasses")
    await patiently(lambda: scene.api.post(path, {"metadata": {"name": name}, "value": value}))


async def is_told(scene: Scene, name: str, words: str) -> bool:
    return words in (await scene.condition("Placed", name))[2]

"""A gang leaves Muster, and the operator leaves its pods alone."""

from muster.kube import paths
from muster.kube.errors import NotFound
from stage.hand import patiently
from stage.operators import OperatorProcess
from stage.scene import Scene

DIRECTORY = {"directory": "s3://bucket/run"}
NEVER = {"hold_at": 10**6, "last_step": 10**6, "checkpoint_every": 100}


async def leave(scene: Scene, name: str) -> None:
    """Ask the job to leave, wait until all its launchers know, and delete it without its pods."""
    await scene.patch_job({"eject": True}, name)

    async def is_ejected() -> bool:
        return (await scene.condition("Ejected", name))[0] == "True"

    await scene.eventually("every launcher knows", is_ejected)
    path = paths.muster("trainingjobs", namespace=scene.namespace, name=name)
    await patiently(lambda: scene.api.delete(path, {"propagationPolicy": "Orphan"}))

    async def is_gone() -> bool:
        try:
            await scene.api.get(path)
        except NotFound:
            return True
        return False

    await scene.eventually("the job is gone", is_gone)


async def is_held(scene: Scene, name: str) -> str:
    """The message of a job that waits for its directory; empty while it does not."""
    _, reason, message = await scene.condition("Placed", name)
    return message if reason == "DirectoryInUse" else ""


async def test_its_ranks_train_to_their_end_and_the_next_job_waits_for_that(scene: Scene) -> None:
    await scene.add_nodes(6, "n")
    first: OperatorProcess = await scene.operators.start()
    training = await scene.create_job("first", training=NEVER, checkpoint=DIRECTORY)
    await scene.state("Running", "first")
    await leave(scene, "first")
    pods = {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in await scene.pods()}
    await scene.create_job("second", checkpoint=DIRECTORY)
    message = await scene.eventually("the second job waits", lambda: is_held(scene, "second"))
    assert f"first (ejected; {', '.join(sorted(pods.values()))} may train on" in message
    await first.kill()
    second = await scene.operators.start()
    await scene.patch_job({"placement": {"avoidNodes": ["n-none"]}}, "second")  # it is decided about anew

    async def is_seen() -> bool:
        job = await scene.job("second")
        return bool(job["status"]["observedGeneration"] == job["metadata"]["generation"])

    await scene.eventually("a new leader has decided", is_seen)
    assert await is_held(scene, "second")
    assert {pod["metadata"]["uid"] for pod in await scene.pods()} == set(pods)
    assert all(launcher.rank_alive for launcher in training.launchers.values())
    assert not [write for write in (*first.writes, *second.writes) if "DELETE" in write and "/pods/" in write]
    training.last_step = training.step + 20
    await scene.state("Running", "second")
    ended = {pod["metadata"]["uid"]: pod["status"]["phase"] for pod in await scene.pods()}
    assert {ended[uid] for uid in pods} == {"Succeeded"}

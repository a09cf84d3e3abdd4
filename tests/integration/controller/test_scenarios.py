"""What users see happen, from the first write to the last, with real requests and scripted launchers."""

from stage.scene import Scene


async def test_a_job_starts_trains_and_finishes(scene: Scene) -> None:
    await scene.add_nodes(3, "n")
    await scene.operators.start()
    training = await scene.create_job(training={"last_step": 20})
    await scene.training_at(1, training)
    assert (await scene.state("Running"))["status"]["nodesReady"] == "3/3"
    training.hold_at = 20
    job = await scene.succeeded()
    assert job["status"]["completion"]["attempt"] == 1
    assert job["status"]["checkpoint"]["step"] == 20
    assert scene.ledger.started(1) == [0, 1, 2]
    assert len(await scene.pods()) == 3

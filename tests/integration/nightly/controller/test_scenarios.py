"""Ends that take many attempts."""

from stage.scene import Scene


async def test_an_application_that_always_fails_is_given_up(scene: Scene) -> None:
    await scene.add_nodes(2, "n")
    await scene.operators.start()
    await scene.create_job(nodes=2, training={"fails_at": 12})
    job = await scene.state("Failed", seconds=120)
    completion = job["status"]["completion"]
    assert completion["reason"] == "ApplicationRestartsExhausted"
    for word in ("rank ", "code 3", "ValueError: loss is nan"):
        assert word in completion["message"]
    status, reason, message = await scene.condition("Succeeded")
    assert (status, reason) == ("False", "ApplicationRestartsExhausted")
    assert "ValueError: loss is nan" in message
    assert len(scene.ledger.starts) == 2 * (1 + 3), "three restarts"
    await scene.eventually("workers have exited", scene.all_exited)

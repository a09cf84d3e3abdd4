"""What a real operator saw is decided again the same by another process."""

from muster.decision.decided import replay
from stage.scene import Scene


async def test_what_the_operator_saw_is_decided_again_the_same(scene: Scene) -> None:
    await scene.add_nodes(4, "n")
    operator = await scene.operators.start()
    training = await scene.create_job()
    await scene.training_at(1, training)
    scene.hand.launchers()[2].fail(signal=9)
    await scene.training_at(2, training)
    lines = await operator.worlds(scene.namespace, "job")
    assert 0 < len(lines) <= 3
    replayed = [replay(line) for line in lines]
    assert [each.now for each in replayed] == [each.then for each in replayed]
    gang = replayed[-1].world.gang
    assert gang is not None
    assert (gang.spec.attempt, replayed[-1].world.job.metadata.namespace) == (2, scene.namespace)

"""The core of the promise: at most one attempt alive, whatever comes in between. The scene's ledger is the judge."""

import pytest

from muster.kube import paths
from stage.scene import Scene


@pytest.mark.parametrize("checkpoint", [{}, {"directory": "/checkpoints"}], ids=["no-checkpoints", "checkpoints"])
async def test_the_barrier_waits_for_slow_ranks(scene: Scene, checkpoint: dict[str, str]) -> None:
    await scene.add_nodes(3, "n")
    await scene.operators.start()
    every = {} if checkpoint else {"checkpoint_every": 10**6}
    training = await scene.create_job(training=every, checkpoint=checkpoint)
    await scene.training_at(1, training)
    scene.hand.launchers()[0].reclaim_seconds = 1.5
    scene.hand.launchers()[2].fail(signal=9)
    await scene.training_at(2, training)


async def test_a_fault_within_a_recovery_takes_the_next_number(scene: Scene) -> None:
    await scene.add_nodes(5, "n")
    await scene.operators.start()
    training = await scene.create_job()
    await scene.training_at(1, training)
    slow = scene.hand.launchers()[0]
    slow.may_reclaim.clear()  # attempt 2 does not start meanwhile
    scene.hand.launchers()[2].fail(signal=9)
    await scene.eventually("attempt 2 assembles", lambda: attempt_is(scene, 2))
    await scene.hand.shut_down(scene.hand.worker(1).node)
    await scene.eventually("attempt 3 assembles", lambda: attempt_is(scene, 3))
    slow.may_reclaim.set()
    await scene.training_at(3, training)
    assert scene.ledger.started(2) == []
    assert scene.hand.worker(1).incarnation == 2


async def test_every_worker_is_lost_at_once(scene: Scene) -> None:
    await scene.add_nodes(6, "n")
    await scene.operators.start()
    training = await scene.create_job()
    await scene.training_at(1, training)
    for index in range(3):
        await scene.hand.shut_down(scene.hand.worker(index).node)
    await scene.eventually("all are elsewhere", lambda: all(scene.hand.worker(i).incarnation > 1 for i in range(3)))
    gang = await scene.eventually("it trains", lambda: started_gang(scene))
    await scene.training_at(gang["attempt"], training)


async def test_a_record_deleted_by_hand_starts_nothing_beside_the_old_ranks(scene: Scene) -> None:
    await scene.add_nodes(6, "n")
    await scene.operators.start()
    training = await scene.create_job()
    await scene.training_at(1, training)
    for launcher in scene.hand.launchers().values():
        launcher.reclaim_seconds = 1.5
    # Its workers cannot all go back to where they were.
    first = scene.hand.worker(0).node
    await scene.patch_job({"placement": {"avoidNodes": [first]}})
    await scene.api.delete(paths.muster("gangs", namespace=scene.namespace))
    await scene.training_at(2, training)
    gang = await scene.gang()
    assert gang
    assert first not in [member["node"] for member in gang["members"]]


async def test_a_rolling_update_restarts_nobody(scene: Scene) -> None:
    await scene.add_nodes(3, "n")
    first = await scene.operators.start()
    training = await scene.create_job(training={"hold_at": 10**6, "last_step": 10**6, "checkpoint_every": 100})
    await scene.state("Running")
    await first.stop()
    second = await scene.operators.start()  # both have one port here
    for launcher in scene.hand.launchers().values():
        launcher.answers.clear()
    await scene.eventually(
        "the next one answers", lambda: all("Run" in launcher.answers for launcher in scene.hand.launchers().values())
    )
    assert not [write for write in second.writes if "gangs" in write or "POST pods" in write]
    training.last_step = training.step + 20
    assert (await scene.succeeded())["status"]["attempt"] == 1


async def attempt_is(scene: Scene, attempt: int) -> bool:
    gang = await scene.gang()
    return bool(gang and gang["attempt"] == attempt)


async def started_gang(scene: Scene) -> dict[str, int] | None:
    gang = await scene.gang()
    return gang if gang and gang.get("start") else None

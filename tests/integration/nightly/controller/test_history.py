"""The accounts of ended jobs, on a real API server: written once, whole, small, and not at the cost of a job's end."""

import json
from typing import Any

import pytest

from muster.api.endedjob import MAX_BYTES, EndedJobSpec, Ending
from muster.api.goodput import Bucket
from muster.controller.history import NOTE
from muster.goodput.history import MAX_SPEC_BYTES, size, within_record_limit
from muster.kube import paths
from stage.scene import Scene

LAST_STEP = 20


async def kept(scene: Scene) -> list[dict[str, Any]]:
    """What is kept."""
    return await scene.listed(paths.muster("endedjobs", namespace=scene.operators.namespace))


async def is_kept(scene: Scene, count: int = 1) -> list[dict[str, Any]]:
    """Wait until so many accounts are kept."""

    async def look() -> list[dict[str, Any]]:
        found = await kept(scene)
        return found if len(found) == count else []

    found: list[dict[str, Any]] = await scene.eventually(f"{count} accounts are kept", look)
    return found


async def test_a_job_that_has_ended_leaves_what_its_status_says(scene: Scene) -> None:
    await scene.add_nodes(4, "n")
    await scene.operators.start()
    training = await scene.create_job(nodes=3, training={"last_step": LAST_STEP})
    await scene.training_at(1, training)
    training.hold_at = 14
    scene.hand.launchers()[1].fail(signal=9)
    await scene.training_at(2, training)
    training.hold_at = LAST_STEP
    job = await scene.succeeded()
    (found,) = await is_kept(scene)
    spec, goodput = found["spec"], job["status"]["goodput"]
    assert found["metadata"]["name"] == spec["jobUid"] == job["metadata"]["uid"]
    assert (spec["seconds"], spec["endTime"]) == (goodput["seconds"], goodput["countedUntil"])
    assert (spec["state"], spec["attempts"], spec["failures"], spec["step"]) == ("Succeeded", 2, 1, LAST_STEP)
    assert sum(spec["seconds"].values()) == pytest.approx(
        (EndedJobSpec.model_validate(spec).end_time - EndedJobSpec.model_validate(spec).creation_time).total_seconds(),
        abs=1,
    )
    assert sum(cause["incidents"] for cause in spec["causes"]) == 1


async def test_one_that_is_deleted_while_it_runs_is_kept(scene: Scene) -> None:
    await scene.add_nodes(3, "n")
    await scene.operators.start()
    training = await scene.create_job(nodes=3, training={"last_step": LAST_STEP, "hold_at": 5})
    await scene.training_at(1, training)
    await scene.state("Running")
    await scene.delete_job()
    (found,) = await is_kept(scene)
    assert found["spec"]["state"] == Ending.DELETED
    assert found["spec"]["gpus"] == 3 * 8


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_the_account_is_written_once_though_the_operator_dies_on_it(scene: Scene, moment: str) -> None:
    await scene.add_nodes(3, "n")
    first = await scene.operators.start(fatal=f"{moment} POST endedjobs 1")
    training = await scene.create_job(nodes=3, training={"last_step": LAST_STEP})
    training.hold_at = LAST_STEP
    await first.death()
    before = [item["metadata"]["uid"] for item in await kept(scene)]
    assert len(before) == (moment == "after")
    await scene.operators.succeed(scene.api)
    (found,) = await is_kept(scene)
    assert found["spec"]["state"] == "Succeeded"
    assert not before or before == [found["metadata"]["uid"]]


async def test_a_finished_job_is_deleted_once_it_is_kept(scene: Scene) -> None:
    await scene.add_nodes(3, "n")
    operator = await scene.operators.start(fatal="before POST endedjobs 1")
    training = await scene.create_job(
        nodes=3, training={"last_step": LAST_STEP}, completion={"ttlSecondsAfterFinished": 0}
    )
    training.hold_at = LAST_STEP
    await operator.death()
    assert (await scene.job())["status"]["state"] == "Succeeded", "it is still there"
    await scene.operators.succeed(scene.api)
    await is_kept(scene)
    path = paths.muster("trainingjobs", namespace=scene.namespace)

    async def gone() -> bool:
        return not await scene.listed(path)

    await scene.eventually("the job is deleted", gone)


async def test_who_goes_while_no_operator_runs_is_known_by_the_note(scene: Scene) -> None:
    await scene.add_nodes(3, "n")
    first = await scene.operators.start()
    training = await scene.create_job(nodes=3, training={"last_step": LAST_STEP, "hold_at": 5})
    await scene.training_at(1, training)

    async def is_noted() -> bool:
        found = await scene.listed(paths.core("configmaps", namespace=scene.operators.namespace))
        return any(item["metadata"]["name"] == NOTE for item in found)

    await scene.eventually("running jobs are noted", is_noted, 100)
    await first.kill()
    await scene.delete_job()
    await scene.operators.succeed(scene.api)
    (found,) = await is_kept(scene)
    assert found["spec"]["state"] == Ending.UNKNOWN
    assert sum(found["spec"]["seconds"].values()) >= 0


async def test_the_largest_account_takes_no_more_than_four_kilobytes_of_etcd(scene: Scene) -> None:
    widest = EndedJobSpec.model_validate(
        {
            "jobUid": "f" * 64,
            "namespace": "n" * 63,
            "name": "j" * 63,
            "experiment": "e" * 63,
            "owner": "o" * 63,
            "priorityClass": "p" * 63,
            "gpuModel": "g" * 63,
            "gpus": 4096 * 64,
            "nodes": 4096,
            "creationTime": "2026-01-01T00:00:00Z",
            "endTime": "2026-01-02T00:00:00Z",
            "state": "Succeeded",
            "reason": "<" * 64,
            "message": "é" * 200,
            "seconds": dict.fromkeys(map(str, Bucket), 2**53 - 1),
            "gpuSeconds": dict.fromkeys(map(str, Bucket), 2**53 - 1),
            "ettrPermille": 1000,
            "ettrAfterQueuePermille": 1000,
            "attempts": 2**31 - 1,
            "failures": 2**31 - 1,
            "step": 2**53 - 1,
            "lostSteps": 2**53 - 1,
            "lostSeconds": 2**53 - 1,
            "checkpointStep": 2**53 - 1,
            "firstCheckpointSeconds": 2**53 - 1,
            "causes": [
                {"faultClass": "Infrastructure", "reason": f"{n}" * 64, "incidents": 2**28 - 1, "gpuSeconds": 2**50 - 1}
                for n in range(8)
            ],
            "blamedNodes": [{"node": f"{n}" * 253, "incidents": 2**31 - 1, "gpuSeconds": 2**53 - 1} for n in range(8)],
        }
    )
    spec = within_record_limit(widest)
    assert MAX_SPEC_BYTES - 600 < size(spec) <= MAX_SPEC_BYTES
    body = {
        "apiVersion": "muster.dev/v1alpha1",
        "kind": "EndedJob",
        "metadata": {"name": spec.job_uid, "namespace": scene.operators.namespace},
        "spec": spec.to_json(),
    }
    answer = await scene.api.post(paths.muster("endedjobs", namespace=scene.operators.namespace), body, guarded=False)
    assert len(json.dumps(json.loads(answer), separators=(",", ":"))) <= MAX_BYTES

"""What users see happen, from the first write to the last, with real requests and scripted launchers."""

import pytest

from muster.kube import paths
from muster.kube.errors import TooManyRequests
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


async def test_a_lost_process_restarts_every_rank_in_place(scene: Scene) -> None:
    await scene.add_nodes(3, "n")
    await scene.operators.start()
    training = await scene.create_job()
    await scene.training_at(1, training)
    scene.hand.launchers()[2].fail(signal=9)
    await scene.training_at(2, training)
    status = (await scene.recovered(2))["status"]
    incident = status["incidents"][0]
    assert (incident["level"], incident["reason"], incident["lostSteps"]) == ("R0", "RankFailed", 2)
    assert "rank 2 was ended by SIGKILL" in incident["message"]
    assert [start.resumed_step for start in scene.ledger.starts] == [None] * 3 + [10] * 3
    assert len(scene.hand.workers) == 3, "the pods stay"
    await scene.eventually("an Event tells it", lambda: told(scene, "RankFailed", "rank 2 was ended by SIGKILL"))


async def test_a_deleted_pod_comes_back_on_its_node(scene: Scene) -> None:
    await scene.add_nodes(4, "n")
    await scene.operators.start()
    training = await scene.create_job()
    await scene.training_at(1, training)
    lost = scene.hand.worker(0)
    await scene.api.delete(paths.core("pods", namespace=scene.namespace, name=lost.name))
    await scene.training_at(2, training)
    found = scene.hand.worker(0)
    assert (found.node, found.incarnation) == (lost.node, 2)
    assert len(scene.hand.workers) == 4
    gang = await scene.gang()
    assert gang
    assert gang["level"] == "R0b"


@pytest.mark.parametrize("how", ["cut_power", "cut_off"])
async def test_a_silent_node_is_replaced_once_its_ranks_are_fenced(scene: Scene, how: str) -> None:
    await scene.add_nodes(4, "n")
    await scene.operators.start()
    training = await scene.create_job(recovery={"unreachableTimeoutSeconds": 5})
    await scene.training_at(1, training)
    lost = scene.hand.worker(1)
    getattr(scene.hand, how)(lost.node)
    await scene.training_at(2, training)
    gang = await scene.gang()
    assert gang
    assert gang["level"] == "R2"
    assert gang["incidents"][0]["reason"] == "NodeUnreachable"
    assert lost.node in gang["excludedNodes"]
    assert scene.hand.worker(1).node not in {lost.node, *(scene.hand.worker(i).node for i in (0, 2))}
    assert len(scene.hand.workers) == 4
    training.hold_at = training.last_step = 20
    await scene.state("Succeeded")


async def test_suspend_waits_for_a_checkpoint_and_frees_the_nodes(scene: Scene) -> None:
    await scene.add_nodes(3, "n")
    await scene.operators.start()
    training = await scene.create_job(training={"last_step": 30})
    await scene.training_at(1, training)
    await scene.told_step(training)
    await scene.patch_job({"suspend": True})
    await scene.state("Saving")
    assert len(scene.ledger.alive()) == 3, "nothing is stopped before the checkpoint"
    training.hold_at = 16
    await scene.state("Suspended")
    await scene.eventually("the pods are gone", lambda: no_pods(scene))
    gang = await scene.gang()
    assert gang
    assert gang["members"] == []
    await scene.patch_job({"suspend": False})
    await scene.training_at(3, training)
    assert [start.resumed_step for start in scene.ledger.starts[3:]] == [15] * 3
    training.hold_at = 30
    await scene.succeeded()


async def test_a_cordoned_node_is_left_after_a_checkpoint(scene: Scene) -> None:
    await scene.add_nodes(4, "n")
    await scene.operators.start()
    training = await scene.create_job(training={"last_step": 30})
    await scene.training_at(1, training)
    await scene.told_step(training)
    left = scene.hand.worker(2).node
    await scene.hand.cordon(left)
    await scene.state("Saving")
    training.hold_at = 17
    await scene.training_at(2, training)
    gang = await scene.gang()
    assert gang
    assert left not in [member["node"] for member in gang["members"]]
    assert gang["incidents"][0]["faultClass"] == "Planned"
    assert [start.resumed_step for start in scene.ledger.starts[3:]] == [15] * 3
    await scene.eventually("an Event tells it", lambda: told(scene, "NodeEvacuated", left))


async def test_a_deleted_node_without_another_one_is_let_go_after_a_checkpoint(scene: Scene) -> None:
    await scene.add_nodes(3, "n")
    await scene.operators.start()
    training = await scene.create_job(training={"last_step": 30})
    await scene.training_at(1, training)
    await scene.told_step(training)
    worker = scene.hand.worker(2)
    await scene.hand.patch_node(worker.node, {"metadata": {"finalizers": ["example.com/drain"]}})
    await scene.api.delete(paths.core("nodes", name=worker.node))
    await scene.state("Saving")
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": worker.name, "namespace": scene.namespace},
    }
    path = paths.core("pods", namespace=scene.namespace, name=worker.name, subresource="eviction")
    with pytest.raises(TooManyRequests, match="disruption budget"):
        await scene.api.post(path, eviction)
    training.hold_at = 17
    await scene.eventually("no pod keeps the node", lambda: no_pods(scene))
    gang = await scene.gang()
    assert gang
    assert (gang["members"], gang["reason"]) == ([], "NodeRemoved")
    await scene.eventually("an Event tells it", lambda: told(scene, "StoppedForRemoval", worker.node))
    await scene.hand.patch_node(worker.node, {"metadata": {"finalizers": None}})
    await scene.add_nodes(1, "m")
    await scene.training_at(gang["attempt"] + 1, training)
    assert [start.resumed_step for start in scene.ledger.starts[3:]] == [15] * 3


async def test_a_finished_job_goes_after_its_time(scene: Scene) -> None:
    await scene.add_nodes(2, "n")
    await scene.operators.start()
    await scene.create_job(nodes=2, training={"last_step": 6, "hold_at": 6}, completion={"ttlSecondsAfterFinished": 1})
    await scene.eventually("the job and all that it owned are gone", lambda: nothing_left(scene))
    assert scene.ledger.started(1) == [0, 1]


async def test_a_job_created_anew_under_its_name_adopts_nothing(scene: Scene) -> None:
    await scene.add_nodes(3, "n")
    await scene.operators.start()
    training = await scene.create_job()
    await scene.training_at(1, training)
    old = {worker.uid for worker in scene.hand.workers.values()}
    await scene.delete_job()
    # The checkpoints are the user's and stay: this is a new training that finds them.
    again = await scene.create_job(training={"disk": training.disk})
    await scene.training_at(1, again)
    gang = await scene.gang()
    assert gang
    assert gang["attempt"] == 1
    assert gang["jobUid"] == (await scene.job())["metadata"]["uid"]
    assert not old & {member["podUid"] for member in gang["members"]}
    assert len(scene.hand.workers) == 6
    await scene.eventually("the old pods are gone", lambda: only_pods_of(scene, gang))


async def test_two_jobs_never_share_a_node(scene: Scene) -> None:
    await scene.add_nodes(4, "n")
    await scene.operators.start()
    trainings = [await scene.create_job(name, nodes=2, training={"last_step": 20}) for name in ("a", "b", "c")]
    places: dict[str, set[str]] = {}

    async def two_run() -> bool:
        for name in ("a", "b", "c"):
            gang = await scene.gang(name)
            places[name] = {member["node"] for member in gang["members"]} if gang else set()
        return sum(len(nodes) == 2 for nodes in places.values()) == 2

    await scene.eventually("two jobs have nodes", two_run)
    waiting = next(name for name, nodes in places.items() if not nodes)
    busy = [name for name in places if name != waiting]
    assert not places[busy[0]] & places[busy[1]]
    await scene.eventually("the third waits", lambda: waits_for_nodes(scene, waiting))
    for training in trainings:
        training.hold_at = 20
    for name in ("a", "b", "c"):
        await scene.state("Succeeded", name)


async def test_deleting_a_job_while_it_trains_frees_everything(scene: Scene) -> None:
    await scene.add_nodes(3, "n")
    await scene.operators.start()
    training = await scene.create_job()
    await scene.training_at(1, training)
    await scene.delete_job()
    await scene.eventually("everything is gone", lambda: nothing_left(scene))
    assert not scene.ledger.alive()
    other = await scene.create_job("other")
    await scene.training_at(1, other)


async def told(scene: Scene, reason: str, part: str) -> bool:
    return any(event["reason"] == reason and part in event["note"] for event in await scene.events())


async def waits_for_nodes(scene: Scene, name: str) -> bool:
    status = (await scene.job(name)).get("status", {})
    return (status.get("state"), status.get("reason")) == ("Pending", "InsufficientNodes")


async def no_pods(scene: Scene) -> bool:
    return not await scene.pods()


async def only_pods_of(scene: Scene, gang: dict[str, list[dict[str, str]]]) -> bool:
    uids = {pod["metadata"]["uid"] for pod in await scene.pods()}
    return uids == {member["podUid"] for member in gang["members"]}


async def nothing_left(scene: Scene) -> bool:
    """No job, record, pod, ConfigMap of ours or disruption budget."""
    where = {"namespace": scene.namespace}
    kinds = [paths.muster("trainingjobs", **where), paths.muster("gangs", **where), paths.core("pods", **where)]
    kinds += [paths.group("policy/v1", "poddisruptionbudgets", **where)]
    maps = [item["metadata"]["name"] for item in await scene.listed(paths.core("configmaps", **where))]
    return maps == ["kube-root-ca.crt"] * len(maps) and not any([await scene.listed(kind) for kind in kinds])

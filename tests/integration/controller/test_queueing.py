"""Jobs that wait for nodes: whose turn it is, what they are told, and what becomes of gangs that come to a standstill."""

import functools
from typing import Any

from muster.kube import paths
from stage.hand import job_manifest, patiently
from stage.operators import OperatorProcess
from stage.scene import Scene

DIRECT = {"pools": [{"name": "all", "binding": "Direct"}]}


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


async def test_the_next_is_the_one_with_the_highest_priority_then_the_oldest(scene: Scene) -> None:
    await scene.add_nodes(3, "n")
    urgent = f"urgent-{scene.namespace}"
    await priority_class(scene, urgent, 1000)
    await scene.operators.start()
    first = await scene.create_job("first", training={"last_step": 30})
    await scene.training_at(1, first)
    await scene.create_job("old", nodes=2)
    assert (await waiting(scene, "old"))["position"] == 1
    important = job_manifest("important", 2)
    important["spec"]["template"]["spec"]["priorityClassName"] = urgent
    training = scene.hand.train("important", nodes=2)
    await scene.create(important)
    found = await waiting(scene, "important")
    assert (found["position"], found["needs"], found["free"], found["suitable"]) == (1, 2, 0, 3)
    assert found["blockers"] == [{"reason": f"in use by {scene.namespace}/first", "nodes": 3}]
    first.hold_at = 30
    await scene.state("Succeeded", "first")
    await scene.training_at(1, training)
    assert (await scene.state("Pending", "old"))["status"]["waiting"]["needs"] == 2
    await patiently(
        lambda: scene.api.delete(paths.group("scheduling.k8s.io/v1", "priorityclasses", name=urgent)),
    )


async def test_a_small_job_does_not_overtake_a_large_one_on_the_nodes_that_it_waits_for(scene: Scene) -> None:
    await scene.add_nodes(3, "n")
    await scene.operators.start()
    first = await scene.create_job("first", nodes=1, training={"last_step": 30})
    await scene.training_at(1, first)
    large = await scene.create_job("large", nodes=3)
    await waiting(scene, "large")
    await scene.create_job("small", nodes=1)
    await scene.eventually("small stands behind large", functools.partial(is_reason, scene, "small", "BehindInQueue"))
    assert f"reserved for {scene.namespace}/large" in (await scene.condition("Placed", "small"))[2]
    first.hold_at = 30
    await scene.state("Succeeded", "first")
    await scene.training_at(1, large)


async def test_a_namespace_holds_no_more_nodes_than_its_limit(scene: Scene) -> None:
    await scene.add_nodes(4, "n")
    limit = {"queueing": {"limits": [{"namespace": scene.namespace, "nodes": 3}]}}
    async with scene.policy(limit):
        await scene.operators.start()
        first = await scene.create_job("first", nodes=2)
        await scene.training_at(1, first)
        second = await scene.create_job("second", nodes=2)
        await scene.eventually("the limit holds", functools.partial(is_reason, scene, "second", "NamespaceLimit"))
    await scene.training_at(1, second)


async def test_a_gang_whose_pods_cannot_all_be_created_gives_its_nodes_to_others(scene: Scene) -> None:
    await scene.add_nodes(3, "n")
    quota = {"metadata": {"name": "pods"}, "spec": {"hard": {"pods": "2"}}}
    path = paths.core("resourcequotas", namespace=scene.namespace)
    await patiently(lambda: scene.api.post(path, quota))

    async def counted() -> bool:
        used = (await scene.listed(path))[0].get("status", {}).get("used", {})
        return "pods" in used

    await scene.eventually("the quota is in force", counted)
    async with scene.policy({"queueing": {"assemblyTimeoutSeconds": 10}}):
        await scene.operators.start()
        await scene.create_job("halfway", nodes=3)
        await scene.eventually("it stops", functools.partial(is_reason, scene, "halfway", "QuotaExceeded"))
        small = await scene.create_job("small", nodes=2)
        await scene.eventually("it gives up", functools.partial(is_reason, scene, "halfway", "AssemblyTimedOut"))
        gang = await scene.gang("halfway")
        assert gang
        assert (gang.get("members", []), gang["releases"]) == ([], 1)
        await scene.training_at(1, small)


async def test_a_suspended_job_leaves_the_queue_and_comes_back_by_its_age(scene: Scene) -> None:
    await scene.add_nodes(2, "n")
    await scene.operators.start()
    first = await scene.create_job("first", nodes=2, training={"last_step": 30})
    await scene.training_at(1, first)
    second = await scene.create_job("second", nodes=2)
    await waiting(scene, "second")
    await scene.told_step(first)
    await scene.patch_job({"suspend": True}, "first")
    await scene.state("Saving", "first")
    first.hold_at = 20  # one more checkpoint
    await scene.training_at(1, second)
    await scene.state("Suspended", "first")
    await scene.create_job("third", nodes=2)
    await scene.patch_job({"suspend": False}, "first")
    assert (await waiting(scene, "first"))["position"] == 1
    await scene.eventually("the third is behind", functools.partial(is_at, scene, "third", 2))


async def is_at(scene: Scene, name: str, position: int) -> bool:
    return bool((await waiting(scene, name))["position"] == position)


async def test_muster_binds_the_gang_when_every_pod_is_there_and_no_gate_is_left(scene: Scene) -> None:
    await scene.add_nodes(3, "n")
    async with scene.policy(DIRECT):
        operator = await scene.operators.start()
        manifest = job_manifest("gated", 2)
        manifest["spec"]["template"]["spec"]["schedulingGates"] = [{"name": "example.org/quota"}]
        training = scene.hand.train("gated", nodes=2)
        await scene.create(manifest)
        await scene.eventually("it is held back", functools.partial(is_reason, scene, "gated", "SchedulingGated"))
        pods = await scene.pods()
        assert [pod["spec"].get("nodeName") for pod in pods] == [None, None]
        for pod in pods:
            path = paths.core("pods", namespace=scene.namespace, name=pod["metadata"]["name"])
            lift = [{"op": "remove", "path": "/spec/schedulingGates"}]
            await scene.api.patch(path, lift, "application/json-patch+json")
        await scene.training_at(1, training)
        await scene.eventually("it tells of both bindings", lambda: bindings(operator) >= 2)
        await operator.stop()  # nothing that it told is under way any more
        assert bindings(operator) == 2


def bindings(operator: OperatorProcess) -> int:
    return sum("after POST pods/binding" in write for write in operator.writes)


async def test_a_kubelet_that_refuses_a_pod_is_a_conflict_that_costs_nothing(scene: Scene) -> None:
    await scene.add_nodes(3, "n")
    scene.hand.starting.clear()
    async with scene.policy(DIRECT):
        await scene.operators.start()
        training = await scene.create_job(nodes=2)

        async def bound() -> bool:
            return [bool(pod["spec"].get("nodeName")) for pod in await scene.pods()] == [True, True]

        await scene.eventually("both are bound", bound)
        refused = scene.hand.worker(1)
        status = {"phase": "Failed", "reason": "OutOfnvidia.com/gpu", "message": "Node didn't have enough resource"}
        path = paths.core("pods", namespace=scene.namespace, name=refused.name, subresource="status")
        await scene.api.patch(path, {"status": status})
        await scene.eventually("it goes elsewhere", lambda: scene.hand.worker(1).node not in ("", refused.node))
        scene.hand.starting.set()
        await scene.training_at(2, training)
    gang = await scene.gang()
    assert gang
    assert (gang.get("incidents", []), gang["level"]) == ([], "Start")
    assert refused.node in gang["excludedNodes"]

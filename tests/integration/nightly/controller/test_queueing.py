"""Whose turn it is among several that wait, listed classes that preempt none, and a limit that falls below what a gang
holds."""

import functools

from muster.kube import paths
from stage.hand import job_manifest, patiently
from stage.queueing import is_reason, is_told, policy_event, waiting
from stage.scene import Scene


async def test_the_next_is_the_one_with_the_highest_priority_then_the_oldest(scene: Scene) -> None:
    await scene.add_nodes(3, "n")
    urgent = f"urgent-{scene.namespace}"
    classes = paths.group("scheduling.k8s.io/v1", "priorityclasses")
    await patiently(lambda: scene.api.post(classes, {"metadata": {"name": urgent}, "value": 1000}))
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


async def test_a_job_whose_class_is_deleted_waits_for_the_class_and_then_for_nodes(scene: Scene) -> None:
    await scene.add_nodes(3, "n")
    named = f"named-{scene.namespace}"
    classes = paths.group("scheduling.k8s.io/v1", "priorityclasses")
    body = {"metadata": {"name": named}, "value": 1000}
    await patiently(lambda: scene.api.post(classes, body))
    await scene.operators.start()
    first = await scene.create_job("first", training={"last_step": 30})
    await scene.training_at(1, first)
    job = job_manifest("second", 2)
    job["spec"]["template"]["spec"]["priorityClassName"] = named
    training = scene.hand.train("second", nodes=2)
    await scene.create(job)
    await waiting(scene, "second")
    await patiently(lambda: scene.api.delete(paths.group("scheduling.k8s.io/v1", "priorityclasses", name=named)))
    missing = functools.partial(is_reason, scene, "second", "PriorityClassMissing")
    await scene.eventually("the status says what is waited for", missing)
    first.hold_at = 30
    await scene.state("Succeeded", "first")
    await patiently(lambda: scene.api.post(classes, body))
    await scene.training_at(1, training)
    await patiently(lambda: scene.api.delete(paths.group("scheduling.k8s.io/v1", "priorityclasses", name=named)))


async def test_listed_classes_by_which_no_job_preempts_are_named(scene: Scene) -> None:
    await scene.add_nodes(1, "n")
    never, missing = f"never-{scene.namespace}", f"missing-{scene.namespace}"
    classes = paths.group("scheduling.k8s.io/v1", "priorityclasses")
    polite = {"metadata": {"name": never}, "value": 1000, "preemptionPolicy": "Never"}
    await patiently(lambda: scene.api.post(classes, polite))
    listed = [{"name": name, "namespaces": [scene.namespace]} for name in (never, missing)]
    async with scene.policy({"queueing": {"preemption": {"priorityClasses": listed}}}):
        await scene.operators.start()
        await policy_event(scene, "PreemptionWithoutEffect", f"{never}, which has preemptionPolicy Never")
        await policy_event(scene, "PreemptionWithoutEffect", f"{missing}, which does not exist")
    await patiently(
        lambda: scene.api.delete(paths.group("scheduling.k8s.io/v1", "priorityclasses", name=never)),
    )


async def test_a_gang_that_loses_a_node_takes_another_although_its_limit_is_lower(scene: Scene) -> None:
    await scene.add_nodes(3, "n")
    limit = {"queueing": {"limits": [{"namespace": scene.namespace, "nodes": 2}]}}
    async with scene.policy(limit):
        await scene.operators.start()
        training = await scene.create_job("first", nodes=2)
        await scene.training_at(1, training)
        lower = {"spec": {"queueing": {"limits": [{"namespace": scene.namespace, "nodes": 0}]}}}
        await patiently(lambda: scene.api.patch(paths.muster("fleetpolicies", name="default"), lower))
        await scene.create_job("probe", nodes=1)
        lowered = functools.partial(is_told, scene, "probe", "may hold 0 at most")
        await scene.eventually("the operator knows of the lower limit", lowered)
        lost = scene.hand.worker(1).node
        await scene.hand.shut_down(lost)
        await scene.eventually("it has another node", lambda: scene.hand.worker(1).node not in ("", lost))
        await scene.state("Running", "first")

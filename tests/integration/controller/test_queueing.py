"""Jobs that wait for nodes: whose turn it is, what they are told, and what becomes of gangs that come to a
standstill."""

import functools
from collections import Counter
from typing import Any

import msgspec

from muster.kube import decode, paths
from muster.world.names import pod_name
from muster.world.quotas import QuotaClaim, claim_of_pod
from stage.hand import job_manifest, patiently
from stage.operators import OperatorProcess
from stage.queueing import is_reason, is_told, waiting
from stage.scene import Scene

DIRECT = {"pools": [{"name": "all", "binding": "Direct"}]}


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


async def quota(scene: Scene, name: str, hard: dict[str, str], **spec: Any) -> None:
    """A ResourceQuota that is in force."""
    path = paths.core("resourcequotas", namespace=scene.namespace)
    await patiently(lambda: scene.api.post(path, {"metadata": {"name": name}, "spec": {"hard": hard, **spec}}))

    async def counted() -> bool:
        return (await used(scene, name)).keys() == hard.keys()

    await scene.eventually(f"the quota {name} is in force", counted)


async def used(scene: Scene, name: str) -> dict[str, str]:
    found = await patiently(lambda: scene.api.get(paths.core("resourcequotas", namespace=scene.namespace, name=name)))
    return dict(found.get("status", {}).get("used", {}))


async def test_a_job_without_room_in_its_quota_keeps_no_node_from_others(scene: Scene) -> None:
    """One GPU each on nodes of eight: the quota of eight is one node, and the two nodes are for whoever comes later."""
    await scene.add_nodes(2, "n")
    await quota(scene, "gpus", {"requests.nvidia.com/gpu": "8"})
    await scene.operators.start()
    await scene.create_job("greedy", nodes=2, gpusPerNode=1)
    await scene.eventually("it waits", functools.partial(is_reason, scene, "greedy", "QuotaExceeded"))
    message = (await scene.condition("Placed", "greedy"))[2]
    assert "requests.nvidia.com/gpu: hard 8, used 0, needed 16 (a worker holds its node whole, 8 each)" in message
    shown = await waiting(scene, "greedy")
    assert "raise requests.nvidia.com/gpu of ResourceQuota gpus from 8 to 16" in shown["remedies"]
    assert await scene.gang("greedy") is None
    small = await scene.create_job("small", nodes=1, gpusPerNode=1)
    await scene.training_at(1, small)
    await scene.eventually("what small holds counts", functools.partial(is_told, scene, "greedy", "used 8, needed 16"))
    raised = {"spec": {"hard": {"requests.nvidia.com/gpu": "24"}}}
    path = paths.core("resourcequotas", namespace=scene.namespace, name="gpus")
    await patiently(lambda: scene.api.patch(path, raised))
    await scene.eventually("it waits for nodes", functools.partial(is_reason, scene, "greedy", "InsufficientNodes"))


async def test_pods_count_in_quotas_as_the_api_server_counts_them(scene: Scene) -> None:
    """Quotas of every scope and resource, and pods of many kinds: what Muster reckons is what the controller counts."""
    compute = [f"{part}.{name}" for part in ("requests", "limits") for name in ("memory", "ephemeral-storage")]
    hard = dict.fromkeys([*compute, "ephemeral-storage", "hugepages-2Mi", "requests.nvidia.com/gpu"], "1Ti")
    await quota(scene, "compute", {**hard, "pods": "100", "count/pods": "100"})
    scopes = ("Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "CrossNamespacePodAffinity")
    for scope in scopes:
        await quota(scene, scope.lower(), {"pods": "100"}, scopes=[scope])
    selector = {"operator": "NotIn", "scopeName": "PriorityClass", "values": ["system-node-critical"]}
    await quota(scene, "class", {"pods": "100"}, scopeSelector={"matchExpressions": [selector]})
    path = paths.core("pods", namespace=scene.namespace)
    claims: list[QuotaClaim] = []
    for number, (resources, spec) in enumerate(_PODS):
        memory = {"requests": {"memory": "0"}, "limits": {"memory": "0"}}
        every = {part: {**memory[part], **resources.get(part, {})} for part in memory}
        containers = [{"name": "main", "image": "example.org/main:1", "resources": every}]
        body = {"metadata": {"generateName": "p-"}, "spec": {"containers": containers, **spec}}
        tried = await patiently(functools.partial(scene.api.post, path, body, {"dryRun": "All"}))
        claims.append(claim_of_pod(tried))
        made = {**body, "metadata": {"name": f"p{number}"}}
        await patiently(functools.partial(scene.api.post, path, made))
    found = await scene.listed(paths.core("resourcequotas", namespace=scene.namespace))
    views = [decode.resource_quota(msgspec.json.encode(each)) for each in found]
    assert len(views) == 2 + len(scopes)
    for view in views:
        reckoned = Counter[str]()
        for claim in claims:
            if claim.falls_under(view):
                reckoned.update({name: claim.usage.get(name, 0) for name in view.hard})
        assert {name: reckoned[name] for name in view.hard} == dict(view.used), view.name


_CROSSING = {"labelSelector": {}, "topologyKey": "kubernetes.io/hostname", "namespaceSelector": {}}
_PODS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({"limits": {"nvidia.com/gpu": "8"}}, {"activeDeadlineSeconds": 60}),
    ({"requests": {"memory": "1Gi", "cpu": "250m"}, "limits": {"memory": "2Gi"}}, {}),
    ({"limits": {"cpu": "2", "ephemeral-storage": "1Gi", "memory": "64Mi", "hugepages-2Mi": "4Mi"}}, {}),
    ({}, {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_CROSSING]}}}),
]


async def test_a_gang_whose_pods_cannot_all_be_created_gives_its_nodes_to_others(scene: Scene) -> None:
    await scene.add_nodes(3, "n")
    async with scene.policy({"queueing": {"assemblyTimeoutSeconds": 10}}):
        await scene.operators.start()
        await scene.create_job("halfway", nodes=3, suspend=True)
        await scene.state("Suspended", "halfway")
        taken = pod_name("halfway", (await scene.job("halfway"))["metadata"]["uid"], 2, 1)
        stranger = {
            "metadata": {"name": taken},
            "spec": {"containers": [{"name": "main", "image": "example.org/main:1"}]},
        }
        path = paths.core("pods", namespace=scene.namespace)
        await patiently(lambda: scene.api.post(path, stranger))
        await scene.patch_job({"suspend": False}, "halfway")
        await scene.eventually("it stops", functools.partial(is_reason, scene, "halfway", "PodNameTaken"))
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

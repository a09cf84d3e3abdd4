"""Bad input and an API server in trouble: a clear condition soon, no storm of requests, and going on when it is
over."""

import asyncio
import contextlib
import time
from typing import Any

import pytest

from localcluster.controlplane import ControlPlane
from muster.kube import paths
from muster.kube.errors import ApiError, Forbidden, NotFound
from stage.hand import job_manifest, patiently
from stage.operators import OperatorProcess
from stage.scene import Scene

CALM_SECONDS = 2.0
# What the lease's renewal, Events and a retry now and then may cost in each such time; a storm makes hundreds.
CALM_REQUESTS = 12


async def assert_calm(operator: OperatorProcess) -> None:
    """Nothing is tried again and again. The time is a window to count in, not a deadline."""
    began = time.monotonic()
    before = sum((await operator.requests()).values())
    await asyncio.sleep(CALM_SECONDS)
    made = sum((await operator.requests()).values()) - before
    windows = (time.monotonic() - began) / CALM_SECONDS  # a busy machine may look away for longer
    assert made <= CALM_REQUESTS * windows, operator.writes[-CALM_REQUESTS:]


async def told(scene: Scene, reason: str) -> bool:
    return any(event["reason"] == reason for event in await scene.events())


async def stalled(scene: Scene, reason: str) -> str:
    """Wait until the job is stalled for this reason; returns the message."""

    async def found() -> str:
        status, why, message = await scene.condition("Stalled")
        return message if (status, why) == ("True", reason) else ""

    message: str = await scene.eventually(f"stalled: {reason}", found)
    await scene.eventually("an Event tells it", lambda: told(scene, reason))
    assert (await scene.job())["status"]["reason"] == reason
    return message


@pytest.mark.parametrize(
    ("changes", "reason", "words"),
    [
        ({"placement": {"required": "pod"}}, "UnknownTopologyLevel", ("spec.placement", "'pod'", "block, rack")),
        (
            {"progress": {"stepPattern": "step=([0-9]+"}},
            "InvalidStepPattern",
            ("spec.progress.stepPattern", "regular expression"),
        ),
        ({"progress": {"stepPattern": "(step) ([0-9]+)"}}, "InvalidStepPattern", ("exactly one group", "has 2")),
        (
            {"template": {"spec": {"containers": [{"name": "trainer", "image": "i"}]}}},
            "CommandMissing",
            ("spec.template.spec.containers[trainer].command", "Plain"),
        ),
        (
            {
                "template": {
                    "spec": {
                        "containers": [
                            {
                                "name": "trainer",
                                "image": "i",
                                "command": ["python3"],
                                "volumeMounts": [{"name": "nowhere", "mountPath": "/x"}],
                            }
                        ]
                    }
                }
            },
            "TemplateInvalid",
            ("spec.template", "volumeMounts", "nowhere"),
        ),
    ],
    ids=["unknown-level", "bad-pattern", "two-groups", "no-command", "invalid-pod"],
)
async def test_what_can_never_start_is_said_at_once(
    scene: Scene, changes: dict[str, Any], reason: str, words: tuple[str, ...]
) -> None:
    await scene.add_nodes(2, "n")
    operator = await scene.operators.start()
    await scene.create_job(nodes=2, **changes)
    message = await stalled(scene, reason)
    for word in words:
        assert word in message
    await assert_calm(operator)
    assert not await scene.pods()


async def test_pod_security_refuses_the_template(scene: Scene) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    await scene.api.patch(paths.core("namespaces", name=scene.namespace), {"metadata": {"labels": labels}})
    await scene.eventually("the label is in force", lambda: refuses_privileges(scene))
    await scene.add_nodes(2, "n")
    operator = await scene.operators.start()
    await scene.create_job(nodes=2)
    message = await stalled(scene, "PodSecurityViolation")
    assert "allowPrivilegeEscalation" in message
    status, _, _ = await scene.condition("TemplateAccepted")
    assert status == "False"
    await assert_calm(operator)


async def refuses_privileges(scene: Scene) -> bool:
    """The API server hears of a namespace's labels a moment after they are written."""
    pod = {"metadata": {"name": "pod"}, "spec": {"containers": [{"name": "main", "image": "example.org/main:1"}]}}
    try:
        await scene.api.post(paths.core("pods", namespace=scene.namespace), pod, {"dryRun": "All"})
    except Forbidden:
        return True
    return False


async def test_a_quota_holds_the_gang_until_it_is_raised(scene: Scene) -> None:
    await scene.add_nodes(3, "n")
    await set_quota(scene, 2)
    operator = await scene.operators.start()
    training = await scene.create_job()
    reason = await scene.eventually("the quota is named", lambda: running_reason(scene, "QuotaExceeded"))
    assert "ResourceQuota few" in reason
    assert "room for pods: hard 2, used 0, needed 3" in reason
    assert "raise pods of ResourceQuota few from 2 to 3" in reason
    assert await scene.gang() is None, "it holds no node"
    await scene.eventually("an Event tells it", lambda: told(scene, "QuotaExceeded"))
    await assert_calm(operator)
    assert not scene.ledger.starts, "all or nothing"
    await set_quota(scene, 3)
    await scene.training_at(1, training)


async def test_a_quota_without_room_for_one_pod_is_waited_for(scene: Scene) -> None:
    await scene.add_nodes(2, "n")
    await set_quota(scene, 0)
    operator = await scene.operators.start()
    training = await scene.create_job(nodes=2)
    await scene.eventually("the quota is named", lambda: running_reason(scene, "QuotaExceeded"))
    assert (await scene.job())["status"]["state"] == "Pending"
    await assert_calm(operator)
    await set_quota(scene, 2)
    await scene.training_at(1, training)


async def set_quota(scene: Scene, pods: int) -> None:
    """Set the quota, and wait until the API server enforces it."""
    body = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "few"},
        "spec": {"hard": {"pods": str(pods)}},
    }
    path = paths.core("resourcequotas", namespace=scene.namespace)
    named = paths.core("resourcequotas", namespace=scene.namespace, name="few")
    try:
        await scene.api.patch(named, {"spec": body["spec"]})
    except NotFound:
        await scene.api.post(path, body)

    async def counted() -> bool:
        quota = await patiently(lambda: scene.api.get(named))
        return bool(quota.get("status", {}).get("hard", {}).get("pods") == str(pods))

    await scene.eventually("the quota is in force", counted)


async def running_reason(scene: Scene, wanted: str) -> str:
    _, reason, message = await scene.condition("Running")
    return message if reason == wanted else ""


async def test_too_few_gpus_are_waited_for(scene: Scene) -> None:
    await scene.add_nodes(1, "n")
    await scene.hand.add_node("small", gpus=4)
    operator = await scene.operators.start()
    training = await scene.create_job(nodes=2)
    message = await scene.eventually("nodes are missing", lambda: running_reason(scene, "NeverFits"))
    assert "fewer than 8 nvidia.com/gpu" in message
    await scene.eventually("an Event tells it", lambda: told(scene, "NeverFits"))
    await assert_calm(operator)
    await scene.hand.add_node("big")
    await scene.training_at(1, training)


async def test_a_topology_that_is_not_there_is_waited_for(scene: Scene) -> None:
    await scene.add_nodes(4, "n", racks=2)
    operator = await scene.operators.start()
    training = await scene.create_job(placement={"required": "rack"})
    await scene.eventually("the rack is too small", lambda: running_reason(scene, "NeverFits"))
    await assert_calm(operator)
    await scene.hand.add_node("third", rack="n-r0", block="n")
    await scene.training_at(1, training)


async def test_an_image_that_cannot_be_pulled_is_named(scene: Scene) -> None:
    await scene.add_nodes(2, "n")
    scene.hand.pulled.clear()
    operator = await scene.operators.start()
    training = await scene.create_job(nodes=2)
    message = await scene.eventually("the image is named", lambda: running_reason(scene, "ImagePullBackOff"))
    assert "on n-" in message
    assert "Back-off pulling image" in message
    await scene.eventually("an Event tells it", lambda: told(scene, "ImagePullBackOff"))
    await assert_calm(operator)
    scene.hand.pulled.set()
    await scene.training_at(1, training)


async def test_an_image_without_python_fails_the_job(scene: Scene) -> None:
    await scene.add_nodes(2, "n")
    scene.hand.start_error = 'exec: "python3": executable file not found in $PATH: unknown'
    operator = await scene.operators.start()
    await scene.create_job(nodes=2)
    completion = (await scene.state("Failed"))["status"]["completion"]
    assert completion["reason"] == "ContainerCannotStart"
    for word in ("python3 (3.8 or later, ", "executable file not found", "Plain"):
        assert word in completion["message"]
    await assert_calm(operator)


async def test_a_namespace_is_deleted_under_its_job(scene: Scene) -> None:
    await scene.add_nodes(3, "n")
    operator = await scene.operators.start()
    training = await scene.create_job()
    await scene.training_at(1, training)
    await scene.api.delete(paths.core("namespaces", name=scene.namespace))

    async def gone() -> bool:
        with contextlib.suppress(NotFound):
            await scene.api.get(paths.core("namespaces", name=scene.namespace))
            return False
        return True

    await scene.eventually("the namespace is gone", gone)
    assert not scene.ledger.alive()
    assert len(scene.hand.workers) == 3, "nothing is created in it any more"
    await assert_calm(operator)


async def test_the_api_server_restarts_in_the_middle_of_a_recovery(scene: Scene, control_plane: ControlPlane) -> None:
    await scene.add_nodes(4, "n")
    operator = await scene.operators.start()
    # A restart that takes longer than its lease ends it, and its kubelet starts another.
    kubelet = asyncio.create_task(_started_again(scene, operator))
    training = await scene.create_job()
    await scene.training_at(1, training)
    scene.hand.starting.clear()
    await scene.api.delete(paths.core("pods", namespace=scene.namespace, name=scene.hand.worker(1).name))
    await scene.eventually("the successor is created", lambda: scene.hand.worker(1).incarnation == 2)
    await asyncio.to_thread(control_plane.restart_apiserver)
    scene.hand.starting.set()
    await scene.training_at(2, training)
    assert len(scene.hand.workers) == 4
    training.hold_at = training.last_step = 20
    assert (await scene.succeeded())["status"]["attempt"] == 2
    kubelet.cancel()


async def _started_again(scene: Scene, operator: OperatorProcess) -> None:
    await operator.death(600)
    await scene.operators.succeed(scene.api)


async def test_training_goes_on_while_the_api_server_is_away(scene: Scene, control_plane: ControlPlane) -> None:
    await scene.add_nodes(3, "n")
    operator = await scene.operators.start()
    training = await scene.create_job(training={"hold_at": 10**6, "last_step": 10**6, "checkpoint_every": 100})
    await scene.state("Running")
    await asyncio.to_thread(control_plane.stop_apiserver)
    launchers = scene.hand.launchers()
    for launcher in launchers.values():
        launcher.answers.clear()
    # Without the API server the lease cannot be renewed: its process ends, as it must, and the ranks do not care.
    await operator.death()
    step = training.step
    answers = [set(launcher.answers) for launcher in launchers.values()]
    await scene.eventually("steps are made", lambda: training.step > step + 10)
    await asyncio.to_thread(control_plane.start_apiserver)
    # 421: the lease has run out, and its process has not ended yet.
    assert all({"Run"} <= seen <= {"Run", "503", "421", *UNREACHABLE} for seen in answers), answers
    await scene.operators.succeed(scene.api)
    for launcher in launchers.values():
        launcher.answers.clear()
    await scene.eventually("every launcher is told to run", lambda: all("Run" in x.answers for x in launchers.values()))
    assert len(scene.ledger.alive()) == len(scene.ledger.starts) == 3, "nobody was killed"
    training.last_step = training.step + 20
    assert (await scene.succeeded())["status"]["attempt"] == 1


UNREACHABLE = ("ClientConnectorError", "ServerDisconnectedError", "ClientOSError", "ClientConnectionResetError")


async def test_a_job_that_does_not_fit_its_schema_harms_nobody(scene: Scene) -> None:
    """It was stored when the schema was another one."""
    await scene.add_nodes(2, "n")
    operator = await scene.operators.start()
    crd = paths.group("apiextensions.k8s.io/v1", "customresourcedefinitions", name="trainingjobs.muster.dev")
    nodes = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/nodes"
    stored = await patiently(lambda: scene.api.get(crd))
    properties = stored["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    rules = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/x-kubernetes-validations"
    checks = stored["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"][
        "x-kubernetes-validations"
    ]
    loose = [
        {"op": "replace", "path": nodes, "value": {"x-kubernetes-preserve-unknown-fields": True}},
        {"op": "remove", "path": rules},
    ]
    await scene.api.patch(crd, loose, "application/json-patch+json")
    bad = job_manifest("bad", 1)
    bad["spec"]["nodes"] = "three"

    async def accepted() -> bool:
        try:
            await scene.create(bad)
        except ApiError:
            return False
        return True

    try:
        await scene.eventually("the loose schema is in force", accepted)
        await scene.eventually("an Event tells it", lambda: told(scene, "InvalidSpec"))
    finally:
        strict = [
            {"op": "replace", "path": nodes, "value": properties["nodes"]},
            {"op": "add", "path": rules, "value": checks},
        ]
        await scene.api.patch(crd, strict, "application/json-patch+json")
    training = await scene.create_job("good", nodes=2)
    await scene.training_at(1, training)
    assert not operator.dead.is_set()

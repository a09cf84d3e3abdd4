"""Other systems repair nodes, too: Muster does not fight them, whoever was first.

Each system's keys come and go in the order in which it documents them, one write at a time. What Muster writes to the
node meanwhile is counted, the job moves once, and no mark of anybody else is touched.
"""

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from muster.kube import paths
from stage.hand import Object, patiently
from stage.health import (
    agent_says,
    health,
    is_in_state,
    label,
    node,
    others_taints,
    set_conditions,
    set_taints,
    tainted,
)
from stage.launcher import Training
from stage.operators import OperatorProcess
from stage.scene import Scene

TAINTS = {"health": {"enforcement": "Nodes"}}
OWN = "example.org/team"
"""A label and a taint of people, which are there all the time."""
PEOPLES = {"key": OWN, "value": "red", "effect": "PreferNoSchedule"}


@dataclass(frozen=True)
class Step:
    """Everything that others say about the node now.

    Attributes:
        told: what NodeHealth's findings or message then hold, or the node's state when nothing is left to be told.
        by_muster: whether Muster's taint is there, once that is told.
    """

    told: str
    by_muster: bool
    conditions: tuple[Object, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Object, ...] = ()
    cordoned: bool = False
    ready: str = "True"


NVSENTINEL = "dgxc.nvidia.com/nvsentinel-state"


def nvsentinel(state: str, told: str, *, bad: bool = True, ready: str = "True", by_muster: bool) -> Step:
    watch = {
        "type": "GpuNvlinkWatch",
        "status": "True" if bad else "False",
        "reason": "GpuNvlinkWatchIsNotHealthy" if bad else "GpuNvlinkWatchIsHealthy",
        "message": "ErrorCode:DCGM_FR_NVLINK_DOWN GPU:3 Recommended Action=RESTART_VM" if bad else "No Health Failures",
    }
    labels = {NVSENTINEL: state} if state else {}
    return Step(told, by_muster, (watch,), labels, cordoned=bool(state), ready=ready)


def nvsentinel_repairs(*, by_muster: bool) -> tuple[Step, ...]:
    """From its quarantine to its release: monitor, quarantine, drainer, remediation, and the label goes."""
    return (
        nvsentinel("quarantined", "nvsentinel-state=quarantined", by_muster=by_muster),
        nvsentinel("draining", "nvsentinel-state=draining", by_muster=by_muster),
        nvsentinel("drain-succeeded", "nvsentinel-state=drain-succeeded", by_muster=by_muster),
        nvsentinel("remediating", "nvsentinel-state=remediating", by_muster=by_muster),
        nvsentinel("remediating", "nvsentinel-state=remediating", ready="False", by_muster=by_muster),
        nvsentinel("remediation-succeeded", "nvsentinel-state=remediation-succeeded", bad=False, by_muster=False),
        nvsentinel("", "Healthy", bad=False, by_muster=False),
    )


NVSENTINEL_SEES = nvsentinel("", "GpuNvlinkWatchIsNotHealthy", by_muster=True)


def eks(told: str, *, bad: bool, cordoned: bool, ready: str = "True", by_muster: bool) -> Step:
    condition = {
        "type": "AcceleratedHardwareReady",
        "status": "False" if bad else "True",
        "reason": "NvidiaXID79Error" if bad else "NvidiaAcceleratedHardwareIsReady",
        "message": "GPU has fallen off the bus" if bad else "",
    }
    return Step(told, by_muster, (condition,), cordoned=cordoned, ready=ready)


EKS = (
    eks("NvidiaXID79Error", bad=True, cordoned=False, by_muster=True),
    # After ten minutes the repair begins: cordon, reboot.
    eks("Muster uses the node again when eks has finished with it", bad=True, cordoned=True, by_muster=True),
    eks(
        "Muster uses the node again when eks has finished with it",
        bad=True,
        cordoned=True,
        ready="False",
        by_muster=True,
    ),
    eks("Healthy", bad=False, cordoned=True, by_muster=False),
    eks("Healthy", bad=False, cordoned=False, by_muster=False),
)

GOOGLE = "cloud.google.com"
SCHEDULED = {f"{GOOGLE}/scheduled-maintenance-time": "1790000000"}
ONGOING = {f"{GOOGLE}/active-node-maintenance": "ONGOING"}
WINDOW = {"key": f"{GOOGLE}/maintenance-window-started", "value": "", "effect": "NoSchedule"}
TERMINATION = {"key": f"{GOOGLE}/impending-node-termination", "value": "", "effect": "NoSchedule"}
GKE = (
    Step("MaintenanceScheduled", by_muster=False, labels=SCHEDULED),
    Step("MaintenanceWindow", by_muster=False, labels=SCHEDULED, taints=(WINDOW,)),
    Step("MaintenanceOngoing", by_muster=False, labels=ONGOING, taints=(WINDOW,)),
    Step("ImpendingTermination", by_muster=False, labels=ONGOING, taints=(WINDOW, TERMINATION)),
    Step("ImpendingTermination", by_muster=False, labels=ONGOING, taints=(WINDOW, TERMINATION), ready="False"),
    Step("MaintenanceOngoing", by_muster=False, labels=ONGOING, taints=(WINDOW,)),
    Step("Healthy", by_muster=False),
)
THEIR_LABELS = (NVSENTINEL, *SCHEDULED, *ONGOING)


async def say(scene: Scene, name: str, step: Step) -> None:
    """Make others' marks what the step says: conditions first, as those who measure are before those who act."""
    await set_conditions(scene, name, *step.conditions, ready=step.ready)
    if (await node(scene, name))["spec"].get("unschedulable", False) != step.cordoned:
        await scene.hand.cordon(name, cordoned=step.cordoned)
    await label(scene, name, {key: step.labels.get(key) for key in THEIR_LABELS})
    await set_taints(scene, name, PEOPLES, *step.taints)


async def is_told(scene: Scene, name: str, step: Step) -> bool:
    status = await health(scene, name)
    if step.told == "Healthy":
        return status.get("state") == "Healthy"
    return step.told in json.dumps([status.get("findings"), status.get("message")])


async def muster_bears_it(scene: Scene, name: str, step: Step) -> bool:
    return await tainted(scene) == ([name] if step.by_muster else [])


async def go_through(scene: Scene, name: str, step: Step) -> None:
    await say(scene, name, step)
    await scene.eventually(f"it is told: {step}", functools.partial(is_told, scene, name, step))
    await scene.eventually(f"Muster's taint is right: {step}", functools.partial(muster_bears_it, scene, name, step))
    found = await node(scene, name)
    theirs = await others_taints(scene, name)
    assert sorted(theirs, key=json.dumps) == sorted((_stored(t) for t in (PEOPLES, *step.taints)), key=json.dumps)
    assert {key: value for key, value in found["metadata"]["labels"].items() if key in THEIR_LABELS} == step.labels
    assert found["metadata"]["labels"][OWN] == "red"
    assert found["spec"].get("unschedulable", False) == step.cordoned


def _stored(taint: Object) -> Object:
    return {key: value for key, value in taint.items() if value}


async def a_job_on_a_node(scene: Scene) -> tuple[OperatorProcess, Training, str]:
    await scene.add_nodes(4, "n")
    operator = await scene.operators.start()
    training = await scene.create_job(nodes=2, training={"last_step": 60})
    await scene.training_at(1, training)
    name = scene.hand.worker(1).node
    await label(scene, name, {OWN: "red"})
    await set_taints(scene, name, PEOPLES)
    await agent_says(scene, name)
    await scene.eventually("its agent has spoken", functools.partial(is_in_state, scene, name, "Healthy"))
    await operator.arm()
    return operator, training, name


async def leaves_after_the_next_checkpoint(scene: Scene, training: Training) -> None:
    async def planned() -> bool:
        return bool(((await scene.gang()) or {}).get("evacuation"))

    await scene.eventually("the leave is planned", planned)
    assert {launcher.attempt for launcher in training.launchers.values()} == {1}, "nobody is hurried"
    training.hold_at += 10
    await scene.training_at(2, training)


async def moved_once(scene: Scene, name: str, training: Training) -> Object:
    """The job's only incident."""
    await scene.training_at(2, training)
    gang = await scene.gang()
    assert gang
    assert (gang["attempt"], len(gang["incidents"])) == (2, 1)
    assert name not in [member["node"] for member in gang["members"]]
    assert len(scene.hand.workers) == 3, "one worker has been replaced, once"
    incident: Object = gang["incidents"][0]
    return incident


async def writes_to_nodes(scene: Scene, operator: OperatorProcess, least: int = 0) -> int:
    """How many there were; ends the operator, so that nothing that it told is under way any more.

    Args:
        least: so many are waited for: others see a write before the operator has its answer.
    """

    def told() -> int:
        return sum(write.startswith("after PATCH nodes ") for write in operator.writes)

    await scene.eventually(f"it tells of {least} writes to nodes", lambda: told() >= least)
    await operator.stop()
    return told()


@pytest.mark.parametrize(
    ("first", "then"),
    [(NVSENTINEL_SEES, nvsentinel_repairs(by_muster=True)), (EKS[0], EKS[1:])],
    ids=["nvsentinel", "eks"],
)
async def test_a_node_is_left_before_later_repairs_and_tainted_until_healthy(
    scene: Scene, first: Step, then: tuple[Step, ...]
) -> None:
    """Whoever repairs it later finds it left, and the taint stays until the fault is gone."""
    async with scene.policy(TAINTS):
        operator, training, name = await a_job_on_a_node(scene)
        await go_through(scene, name, first)
        assert (await moved_once(scene, name, training))["reason"] == "NodeUnhealthy"
        for step in then:
            await go_through(scene, name, step)
        await moved_once(scene, name, training)
        assert await writes_to_nodes(scene, operator, 2) == 2, "one to put the taint on, one to take it off"
        incidents = (await health(scene, name))["incidents"]
        assert [bool(incident["clearedTime"]) for incident in incidents] == [True]


@pytest.mark.parametrize("evicts", [False, True], ids=["waits for the job", "evicts at once"])
async def test_who_has_begun_before_muster_looks_is_left_to_it(scene: Scene, evicts: bool) -> None:
    async with scene.policy(TAINTS):
        first, training, name = await a_job_on_a_node(scene)
        await first.kill()
        steps = nvsentinel_repairs(by_muster=False)
        await say(scene, name, steps[0])
        operator = await scene.operators.succeed(scene.api)
        await go_through(scene, name, steps[0])
        await go_through(scene, name, steps[1])
        if evicts:
            pod = paths.core("pods", namespace=scene.namespace, name=scene.hand.worker(1).name)
            await patiently(functools.partial(scene.api.delete, pod))
        else:
            await leaves_after_the_next_checkpoint(scene, training)
        await moved_once(scene, name, training)
        for step in steps[2:]:
            await go_through(scene, name, step)
        await moved_once(scene, name, training)
        assert await writes_to_nodes(scene, operator) == 0
        assert (await health(scene, name))["offences"].get("score", "0") == "0", (
            "it is not charged for another's repair"
        )


async def test_a_clouds_maintenance_is_left_in_time_and_nothing_is_written_to_the_node(scene: Scene) -> None:
    async with scene.policy(TAINTS):
        operator, training, name = await a_job_on_a_node(scene)
        await go_through(scene, name, GKE[0])
        gang = await scene.gang()
        assert gang
        assert not gang.get("evacuation"), "what is only announced moves nobody"
        await go_through(scene, name, GKE[1])
        await leaves_after_the_next_checkpoint(scene, training)
        assert (await moved_once(scene, name, training))["faultClass"] == "Planned"
        for step in GKE[2:]:
            await go_through(scene, name, step)
        await moved_once(scene, name, training)
        assert await writes_to_nodes(scene, operator) == 0


async def test_others_write_while_muster_writes_and_no_taint_is_lost(scene: Scene) -> None:
    """Another system changes the node's taints all the time; Muster's comes and goes among them."""
    async with scene.policy(TAINTS):
        _, training, name = await a_job_on_a_node(scene)
        wanted: list[Object] = []
        for number in range(12):
            noisy = [{"key": f"example.org/{number}", "effect": "PreferNoSchedule"}]
            wanted = [PEOPLES, *noisy]
            await set_taints(scene, name, *wanted)
            if number == 4:
                await set_conditions(scene, name, *EKS[0].conditions)
            assert await others_taints(scene, name) == wanted
        await scene.eventually("the taint", functools.partial(muster_bears_it, scene, name, EKS[0]))
        assert await others_taints(scene, name) == wanted
        await moved_once(scene, name, training)

"""The operator dies before each of the health keeper's writes, one after the other; the end is the same.

A node's story has four parts, each of which one write of another client begins: another system's mark makes Muster
write about the node first, the mark goes, the node's agent reports a fault, and the node comes back from a reboot.
tests/integration/nightly/controller/test_health_crash_points.py has each point in a story of its own.
"""

import functools
from dataclasses import dataclass
from decimal import Decimal

from stage.health import (
    agent_says,
    are_tainted,
    evidence,
    health,
    is_in_state,
    others_taints,
    set_conditions,
    set_taints,
    tainted,
)
from stage.launcher import Training
from stage.operators import OperatorProcess
from stage.scene import Scene

TAINTS = {"health": {"enforcement": "Nodes"}}
THEIRS = {"key": "example.org/rack-7", "value": "leaks", "effect": "PreferNoSchedule"}
CREATE, RECORD, TAINT = "POST nodehealths", "PATCH nodehealths/status", "PATCH nodes"
SUSPECTED = {"type": "GpuDcgmUnresponsive", "status": "True", "reason": "DcgmIsSilent"}
"""Of a row that warns and no more."""


@dataclass(frozen=True)
class Act:
    """A part of the story.

    Attributes:
        writes: what the keeper writes, in this order; each once.
        attempt: the job's attempt when it has ended.
        state: of the node, when it has ended; None while nobody says anything.
        tainted: whether it bears the taint then.
    """

    name: str
    writes: tuple[str, ...]
    attempt: int
    state: str | None
    tainted: bool


MARKED = Act("marked by others", (CREATE, RECORD), 1, "Suspect", tainted=False)
UNMARKED = Act("mark taken off", (RECORD,), 1, None, tainted=False)
SICK = Act("sick", (RECORD, TAINT), 2, "Unhealthy", tainted=True)
WELL = Act("well again", (RECORD, TAINT), 2, "Healthy", tainted=False)
STORY = (MARKED, UNMARKED, SICK, WELL)
HARMLESS = (MARKED, UNMARKED)


async def begin(scene: Scene, act: Act, name: str) -> None:
    if act is MARKED:
        await set_conditions(scene, name, SUSPECTED)
    elif act is UNMARKED:
        await set_conditions(scene, name)
    elif act is SICK:
        await agent_says(scene, name, evidence("Xid", 79, message="GPU has fallen off the bus"))
    else:
        await agent_says(scene, name, boot="boot-2")


async def ended(scene: Scene, act: Act, name: str, training: Training) -> None:
    await scene.training_at(act.attempt, training)
    await scene.recovered(act.attempt)
    await scene.eventually(f"it is {act.state}", functools.partial(is_in_state, scene, name, act.state))
    bear_it = [name] if act.tainted else []
    await scene.eventually("taints are right", functools.partial(are_tainted, scene, *bear_it))


def written(*processes: OperatorProcess) -> list[str]:
    """The keeper's writes that were made, in order."""
    done = [write for process in processes for write in process.writes if write.startswith("after ")]
    kinds = [write.removeprefix("after ").rpartition(" ")[0] for write in done]
    return [kind for kind in kinds if kind in (CREATE, RECORD, TAINT)]


def has_written(operator: OperatorProcess, count: int) -> bool:
    return len(written(operator)) >= count


async def until(scene: Scene, last: Act, operator: OperatorProcess, name: str, training: Training) -> None:
    """Let the story happen up to before this act, and be told of all its writes: they are seen before that."""
    await scene.training_at(1, training)
    before = STORY[: STORY.index(last)]
    for act in before:
        await begin(scene, act, name)
        await ended(scene, act, name, training)
    count = sum(len(act.writes) for act in before)
    await scene.eventually("it tells of them", functools.partial(has_written, operator, count))


async def a_taint_has_its_record(scene: Scene) -> None:
    """At any moment, also between the death of one operator and the birth of the next."""
    for name in await tainted(scene):
        incident = (await health(scene, name))["incidents"][-1]
        assert incident["takenOutTime"], "what is done is written down first"


async def the_end_is_the_same(scene: Scene, act: Act, name: str) -> None:
    status = await health(scene, name)
    incidents = status.get("incidents", [])
    assert len(incidents) == (0 if act in HARMLESS else 1), "one fault is one incident"
    assert Decimal(status.get("offences", {}).get("score", "0")) == len(incidents), "it is charged once"
    assert [bool(incident.get("clearedTime")) for incident in incidents] == ([] if act in HARMLESS else [act is WELL])
    assert all(incident["takenOutTime"] for incident in incidents)
    gang = await scene.gang()
    assert gang
    assert (gang["attempt"], len(gang["incidents"])) == (act.attempt, act.attempt - 1), "the job has moved once"
    assert (await scene.job())["status"]["restarts"] == act.attempt - 1
    on_it = [member["node"] for member in gang["members"]].count(name)
    assert on_it == (1 if act in HARMLESS else 0)
    assert len(scene.hand.workers) == 2 + act.attempt - 1, "one worker has been replaced, once"
    assert await others_taints(scene, name) == [THEIRS]


async def a_job_on_a_node(scene: Scene) -> tuple[OperatorProcess, Training, str]:
    await scene.add_nodes(4, "n")
    operator = await scene.operators.start()
    training = await scene.create_job(nodes=2)
    await scene.training_at(1, training)
    await scene.state("Running")
    name = scene.hand.worker(1).node
    await set_taints(scene, name, THEIRS)
    return operator, training, name


async def test_an_operator_that_dies_at_every_write_of_a_story_comes_to_the_same_end(scene: Scene) -> None:
    async with scene.policy(TAINTS):
        operator, training, name = await a_job_on_a_node(scene)
        for act in STORY:
            for number, write in enumerate(act.writes):
                await operator.arm(f"before {write} 1")
                if number == 0:
                    await begin(scene, act, name)
                await operator.death()
                await a_taint_has_its_record(scene)
                operator = await scene.operators.succeed(scene.api)
            await ended(scene, act, name, training)
            await the_end_is_the_same(scene, act, name)

"""The operator is killed before and after every write of start, R0, R2 and finish; a fresh one comes to the same end.

A point is named by what is written and how many writes of that kind have gone before it in the scenario, so that it
means the same in every run. `test_the_points_are_all_there_are` compares the list with what a scenario really writes.
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from stage.launcher import Training
from stage.operators import OperatorProcess
from stage.scene import Scene

NODES = 3
LAST_STEP = 20


@dataclass(frozen=True)
class Act:
    """A part of a job's life: how it begins, and how it has ended.

    Attributes:
        writes: kind of write -> how many of it there are.
        attempt: the job's attempt when it has ended.
        incarnations: of the workers' pods, by index, when it has ended.
        level: of the record.
    """

    name: str
    writes: dict[str, int]
    attempt: int = 1
    incarnations: tuple[int, ...] = (1, 1, 1)
    level: str = "Start"


# How often the status is written in between depends on timing: of these as many as there always are.
STATUS = "PATCH trainingjobs/status"
START = Act(
    "start",
    {
        "POST secrets": 1,  # the coordinator's certificate
        "POST pods": 1 + NODES,  # the trial of the template, the workers
        "POST gangs": 1,
        "PATCH poddisruptionbudgets": 1,
        "PATCH configmaps": 1,
        "PUT gangs": 1,  # the go
        STATUS: 2,
        "POST events": 2,
    },
)
IN_PLACE = Act("R0", {"PUT gangs": 2, STATUS: 1, "POST events": 2}, 2, (1, 1, 1), "R0")
REPLACE = Act(
    "R2",
    {
        "PUT gangs": 2,
        "DELETE pods": 1,
        # What workers share is there already, unless somebody has deleted it: that is not looked up but put right.
        "PATCH poddisruptionbudgets": 1,
        "PATCH configmaps": 1,
        "POST pods": 1,
        STATUS: 2,
        "POST events": 2,
    },
    2,
    (1, 2, 1),
    "R2",
)
FINISH = Act("finish", {STATUS: 1, "POST events": 1, "POST endedjobs": 1})
ACTS = (START, IN_PLACE, REPLACE, FINISH)


def points() -> Iterator[object]:
    for act in ACTS:
        for kind, count in act.writes.items():
            for number in range(1, count + 1):
                for moment in ("before", "after"):
                    yield pytest.param(act, f"{moment} {kind} {number}", id=f"{act.name}: {moment} {kind} {number}")


async def begin(scene: Scene, act: Act, training: Training) -> None:
    """Let happen what the act is about."""
    if act is IN_PLACE:
        training.hold_at = 14
        scene.hand.launchers()[1].fail(signal=9)
    elif act is REPLACE:
        training.hold_at = 14
        await scene.hand.shut_down(scene.hand.worker(1).node)
    elif act is FINISH:
        training.hold_at = LAST_STEP


async def ended(scene: Scene, act: Act, training: Training) -> None:
    """Wait until it is over."""
    if act is FINISH:
        await scene.succeeded()
        return
    await scene.training_at(act.attempt, training)
    await scene.state("Running")


@pytest.mark.parametrize(("act", "point"), list(points()))
async def test_a_killed_operator_is_survived(scene: Scene, act: Act, point: str) -> None:
    await scene.add_nodes(NODES + 1, "n")
    first = await scene.operators.start(fatal=point if act is START else "")
    training = await scene.create_job(nodes=NODES, training={"last_step": LAST_STEP})
    if act is not START:
        await ended(scene, START, training)
        await first.arm(point)
    await begin(scene, act, training)
    await first.death()
    await scene.operators.succeed(scene.api)
    await ended(scene, act, training)
    training.hold_at = LAST_STEP
    job = await scene.succeeded()
    await same_end(scene, act, job["status"])


BINDS_DIRECTLY = {"pools": [{"name": "all", "binding": "Direct"}]}
BINDINGS = [f"{moment} POST pods/binding {n}" for n in range(1, NODES + 1) for moment in ("before", "after")]


@pytest.mark.parametrize("point", BINDINGS)
async def test_a_killed_operator_binds_each_pod_in_the_end(scene: Scene, point: str) -> None:
    await scene.add_nodes(NODES + 1, "n")
    async with scene.policy(BINDS_DIRECTLY):
        first = await scene.operators.start(fatal=point)
        training = await scene.create_job(nodes=NODES, training={"last_step": LAST_STEP})
        await first.death()
        second = await scene.operators.succeed(scene.api)
        await ended(scene, START, training)
        training.hold_at = LAST_STEP
        job = await scene.succeeded()
        await same_end(scene, START, job["status"])
    bindings = [write for process in (first, second) for write in process.writes if "POST pods/binding" in write]
    assert bindings, "Muster has bound them, not the hand"


async def same_end(scene: Scene, act: Act, status: dict[str, object]) -> None:
    gang = await scene.gang()
    assert gang is not None
    assert (gang["attempt"], gang["level"]) == (act.attempt, act.level)
    assert tuple(member["incarnation"] for member in gang["members"]) == act.incarnations
    assert len({member["node"] for member in gang["members"]}) == NODES
    assert len(gang["incidents"]) == status["restarts"] == act.attempt - 1
    assert status["state"] == "Succeeded"
    assert status["attempt"] == act.attempt
    created = sorted((worker.index, worker.incarnation) for worker in scene.hand.workers.values())
    wanted = [(index, n) for index, last in enumerate(act.incarnations) for n in range(1, last + 1)]
    assert created == wanted, "each pod is created once"
    left = sorted(pod["metadata"]["uid"] for pod in await scene.pods())
    assert left == sorted(member["podUid"] for member in gang["members"])
    for attempt in range(1, act.attempt + 1):
        assert scene.ledger.started(attempt) == list(range(NODES))
    assert len(scene.ledger.starts) == NODES * act.attempt


@pytest.mark.parametrize("acts", [(START, IN_PLACE, FINISH), (START, REPLACE, FINISH)], ids=["R0", "R2"])
async def test_the_points_are_all_there_are(scene: Scene, acts: tuple[Act, ...]) -> None:
    await scene.add_nodes(NODES + 1, "n")
    operator = await scene.operators.start()
    training = await scene.create_job(nodes=NODES, training={"last_step": LAST_STEP})
    for act in acts:
        await begin(scene, act, training)
        await ended(scene, act, training)
        last = {f"after {kind} {count}" for kind, count in act.writes.items()}
        await scene.eventually("its writes are all made", functools.partial(has_told, operator, last))
        found = {write.removeprefix("after ") for write in operator.writes if write.startswith("after ")}
        written = {kind: sum(write.rpartition(" ")[0] == kind for write in found) for kind in act.writes}
        assert written.pop(STATUS) >= act.writes[STATUS]
        assert written == {kind: count for kind, count in act.writes.items() if kind != STATUS}
        assert {write.rpartition(" ")[0] for write in found} == act.writes.keys()
        await operator.arm()


def has_told(operator: OperatorProcess, writes: set[str]) -> bool:
    """The API server's answer is known to others, and to a watch, before the operator tells of it."""
    return writes <= set(operator.writes)

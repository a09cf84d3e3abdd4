"""The operator is killed before and after every write of start, R0, R2 and finish; a fresh one comes to the same end.

A point is named by what is written and how many writes of that kind have gone before it in the scenario, so that it
means the same in every run. `test_the_points_are_all_there_are` compares the list with what a scenario really writes.
"""

import functools
from collections.abc import Iterator

import pytest
from tests.integration.controller.test_crash_points import (
    FINISH,
    IN_PLACE,
    LAST_STEP,
    NODES,
    REPLACE,
    START,
    STATUS,
    Act,
    begin,
    ended,
    same_end,
)

from stage.operators import OperatorProcess
from stage.scene import Scene

ACTS = (START, IN_PLACE, REPLACE, FINISH)


def points() -> Iterator[object]:
    for act in ACTS:
        for kind, count in act.writes.items():
            for number in range(1, count + 1):
                for moment in ("before", "after"):
                    yield pytest.param(act, f"{moment} {kind} {number}", id=f"{act.name}: {moment} {kind} {number}")


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

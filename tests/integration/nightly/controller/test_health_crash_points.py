"""The operator is killed before and after each of the health keeper's writes; a fresh one comes to the same end.

The points are named as in test_crash_points.py. A node's story has four parts, each of which one write of somebody
else's begins: another system's mark makes Muster write about it first, the mark goes, its agent reports a fault, and it
comes back from a reboot.
"""

import functools
from collections.abc import Iterator
from typing import Any

import pytest
from tests.integration.controller.test_health_crash_points import (
    RECORD,
    SICK,
    STORY,
    TAINT,
    TAINTS,
    THEIRS,
    WELL,
    Act,
    a_job_on_a_node,
    a_taint_has_its_record,
    begin,
    ended,
    has_written,
    the_end_is_the_same,
    until,
    written,
)

from muster.kube import paths
from stage.health import (
    are_tainted,
    health,
    node,
    set_taints,
)
from stage.scene import Scene


def points() -> Iterator[Any]:
    for act in STORY:
        for write in act.writes:
            for moment in ("before", "after"):
                yield pytest.param(act, f"{moment} {write} 1", id=f"{act.name}: {moment} {write}")


@pytest.mark.parametrize(("act", "point"), list(points()))
async def test_a_killed_operator_is_survived(scene: Scene, act: Act, point: str) -> None:
    async with scene.policy(TAINTS):
        first, training, name = await a_job_on_a_node(scene)
        await until(scene, act, first, name, training)
        await first.arm(point)
        await begin(scene, act, name)
        await first.death()
        await a_taint_has_its_record(scene)
        second = await scene.operators.succeed(scene.api)
        await ended(scene, act, name, training)
        await the_end_is_the_same(scene, act, name)
        # What the first one had written is not written again; of the write that it died after nobody told us.
        moment, _, kind = point.removesuffix(" 1").partition(" ")
        done = written(first) + ([kind] if moment == "after" else [])
        left = len(act.writes) - len(done)
        await scene.eventually("the rest is written", functools.partial(has_written, second, left))
        await second.stop()  # nothing that it told is under way any more
        assert tuple(done + written(second)) == act.writes


async def test_the_points_are_all_there_are(scene: Scene) -> None:
    async with scene.policy(TAINTS):
        operator, training, name = await a_job_on_a_node(scene)
        for act in STORY:
            await operator.arm()
            await begin(scene, act, name)
            await ended(scene, act, name, training)
            await the_end_is_the_same(scene, act, name)
            await scene.eventually("they are made", functools.partial(has_written, operator, len(act.writes)))
            assert tuple(written(operator)) == act.writes


async def test_a_node_that_was_made_anew_is_tainted_again_and_not_counted_again(scene: Scene) -> None:
    """Its kubelet has registered it again, without the taint; the machine and its fault are the same."""
    async with scene.policy(TAINTS):
        operator, training, name = await a_job_on_a_node(scene)
        await until(scene, WELL, operator, name, training)
        await operator.kill()
        uid = (await node(scene, name))["metadata"]["uid"]
        await scene.api.delete(paths.core("nodes", name=name))
        await scene.api.delete(paths.leases("kube-node-lease", name))
        await scene.hand.add_node(name, rack="n-r0", block="n")
        await set_taints(scene, name, THEIRS)
        second = await scene.operators.succeed(scene.api)
        await scene.eventually("the taint", functools.partial(are_tainted, scene, name))
        await the_end_is_the_same(scene, SICK, name)
        status = await health(scene, name)
        assert status["nodeUid"] == (await node(scene, name))["metadata"]["uid"] != uid
        await scene.eventually("it tells of both", functools.partial(has_written, second, 2))
        await second.stop()
        assert written(second) == [RECORD, TAINT]

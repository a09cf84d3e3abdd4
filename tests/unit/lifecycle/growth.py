"""What a decision costs, counted in calls, which no busy machine changes."""

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.unit.lifecycle.builders import SETTINGS, Scene, a_job, a_node, idle, running

from muster.api.gang import GangSpec
from muster.lifecycle.plan import CommitGang
from muster.lifecycle.step import decide
from muster.world.job import JobWorld

# What grows with the square would be sixteen times as much where there are four times as many.
LIMIT = 6.0
BLOCK, RACK = 64, 16  # nodes of each: there are several blocks, and four times as many in the larger gang


def trains(workers: int, **view: Any) -> Scene:
    scene = Scene(a_job(nodes=workers), seconds=1000.0).gang().pods().all(running(1, 50, **view))
    for number in range(2 * workers):
        scene.nodes[f"n{number}"] = a_node(f"n{number}", block=f"b{number // BLOCK}", rack=f"r{number // RACK}")
    return scene


def silent(workers: int, seconds: float) -> Scene:
    """Nobody is heard any more, neither launchers nor nodes."""
    scene = trains(workers, heard_age_seconds=seconds, step_age_seconds=seconds)
    for number in range(workers):
        scene.node(f"n{number}", ready=False).lease(f"n{number}", seconds)
    return scene


def after_loss(workers: int) -> Scene:
    """Elsewhere, and waiting for proof of the end of all those from before."""
    before = silent(workers, 400.0)
    record = committed(before.world())
    scene = Scene(before.job, seconds=1001.0)
    scene.nodes, scene.record = before.nodes, record
    scene.pod_views = {name: replace(pod, deleting=True) for name, pod in before.pod_views.items()}
    scene.pods()
    for member in record.members:
        scene.launchers[scene.uid(member.index, member.incarnation)] = idle(record.attempt)
    return scene


def committed(world: JobWorld) -> GangSpec:
    (commit,) = decide(world, SETTINGS).actions
    assert isinstance(commit, CommitGang)
    return commit.spec


def calls_of(world: JobWorld) -> int:
    """How many functions are called by one decision."""
    count = 0

    def note(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        decide(world, SETTINGS)
    finally:
        sys.setprofile(None)
    return count


SCENES: dict[str, Callable[[int], Scene]] = {
    "trains": trains,
    "is silent": lambda workers: silent(workers, 60.0),
    "is lost": lambda workers: silent(workers, 400.0),
    "waits for the end of those before": after_loss,
    "has a new leader": lambda workers: trains(workers).but(leader_age_seconds=1.0),
}


def costs_in_proportion(scene: str, few: int) -> None:
    """A decision about four times as many workers costs about four times as much."""
    cheap, dear = (calls_of(SCENES[scene](workers).world()) for workers in (few, 4 * few))
    assert dear / cheap < LIMIT, (cheap, dear)

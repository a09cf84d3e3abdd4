"""GPU-hours are those of the nodes that are held: all of a node's accelerators, however few the job asks for."""

import pytest
from tests.unit.lifecycle.builders import GPU, Scene, a_job, a_node

from muster.api.gang import GangSpec
from muster.decision.accounted import record_with_account
from muster.goodput.account import close_account
from muster.goodput.status_goodput import goodput_of_status
from muster.record import attempts
from muster.world.queuedecision import Placed


def placed(gpus_per_node: int, gpus: int = 8) -> tuple[Scene, GangSpec]:
    """A job of two nodes that is placed on two of `gpus` accelerators each."""
    scene = Scene(a_job(nodes=2, gpusPerNode=gpus_per_node), seconds=30)
    scene.nodes = {name: a_node(name, allocatable={GPU: gpus}) for name in ("n0", "n1")}
    world = scene.world()
    return scene, committed(scene, attempts.with_new_placement(world, Placed(("n0", "n1")), "Started"))


def committed(scene: Scene, spec: GangSpec) -> GangSpec:
    """The record as it is written."""
    return record_with_account(scene.world(), spec)


@pytest.mark.parametrize(("asked", "gpus"), [(1, 8), (8, 8), (0, 8), (0, 0), (1, 4000)])
def test_a_nodes_accelerators_are_written_at_placement(asked: int, gpus: int) -> None:
    _, spec = placed(asked, gpus)
    held = min(gpus, 1024)
    assert [member.gpus for member in GangSpec.model_validate(spec.to_json()).members] == [held, held]


@pytest.mark.parametrize("asked", [1, 0])
def test_two_whole_nodes_for_an_hour_are_sixteen_gpu_hours(asked: int) -> None:
    """Nodes of eight, of which the job asks for one, or for none: 61 minutes and 7 seconds, and both nodes are gone by
    then."""
    scene, spec = placed(asked)
    assert spec.account is not None
    scene.record, scene.nodes, scene.seconds = spec, {}, 30 + 3667
    account, _ = close_account(scene.world())
    assert sum(account.gpu_milliseconds.values()) / 3_600_000 == pytest.approx(16.3, abs=0.005)
    found = goodput_of_status(scene.world(), step=None, ended=False, succeeded=False)
    assert found is not None
    assert found.open_phase is not None
    assert found.open_phase.gpus == 16


def test_a_worker_that_moves_holds_what_its_new_node_has() -> None:
    scene, spec = placed(1)
    scene.record = spec
    scene.nodes["n2"] = a_node("n2", allocatable={GPU: 4})
    moved = [m.model_copy(update={"node": "n2"}) if m.index else m for m in spec.members]
    assert [m.gpus for m in committed(scene, spec.model_copy(update={"members": moved})).members] == [8, 4]
    without = [m.model_copy(update={"node": ""}) if m.index else m for m in spec.members]
    assert [m.gpus for m in committed(scene, spec.model_copy(update={"members": without})).members] == [8, None]

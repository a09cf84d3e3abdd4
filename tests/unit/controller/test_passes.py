"""A pass counts that is deep enough, and that tested all accelerators of its node."""

from typing import Any

import pytest

from muster.api.preflight import Profile
from muster.controller.passes import pass_age_seconds
from muster.coordinator.auth import Caller
from muster.protocol.checks import READY, CheckReport, PassReport
from muster.world.views import NodeView


@pytest.mark.parametrize(
    ("gpus", "fleet", "least", "want"),
    [
        pytest.param(8, Profile.QUICK, None, 50.0, id="the newest of the fleet's profile or a deeper one"),
        pytest.param(8, Profile.DEEP, None, 700.0, id="the fleet asks for more"),
        pytest.param(8, Profile.QUICK, Profile.DEEP, 700.0, id="the caller asks for more than the fleet"),
        pytest.param(9, Profile.QUICK, None, None, id="not with all of its accelerators"),
    ],
)
def test_the_age_of_the_newest_pass_that_counts(
    scene: Any, gpus: int, fleet: Profile, least: Profile | None, want: float | None
) -> None:
    cluster = scene.cluster
    spec = {"preflight": {"profile": fleet}}
    scene.apply_policy(spec, version=2)
    cluster.nodes.store.assume(NodeView("n0", "nu", 1, capacity={"nvidia.com/gpu": gpus}))
    passes = (PassReport("Quick", 50.0, gpus=8), PassReport("Deep", 700.0, gpus=8))
    caller = Caller("muster-check", "c", "c-uid", "n0", "nu", "muster-check")
    cluster.checkers.record(caller, CheckReport(1, state=READY, passes=passes))
    assert pass_age_seconds(cluster, "n0", least) == want


def test_a_node_without_a_checker_has_no_pass(scene: Any) -> None:
    assert pass_age_seconds(scene.cluster, "n0") is None

"""Events about the FleetPolicy name the policy that is there, readable or not."""

from typing import Any

import pytest
from tests.unit.controller.health_stage import stage_with_a_policy

from muster.api.base import API_VERSION
from muster.controller.policyevents import record_policy_event
from muster.kube.decode import Undecodable
from muster.kube.events import WARNING, Regarding


class Recorder:
    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []

    def record(self, *event: Any) -> None:
        self.events.append(event)


@pytest.mark.parametrize("is_readable", [True, False])
def test_an_event_names_the_policy_that_is_there(is_readable: bool) -> None:
    cluster, recorder = stage_with_a_policy().cluster, Recorder()
    if not is_readable:
        cluster.policies.store.assume(Undecodable("", "default", "policy", 10**6, 2, "spec.health: bad"))
    assert record_policy_event(cluster, recorder, WARNING, "Reason", "what is wrong")  # type: ignore[arg-type]
    about = Regarding(API_VERSION, "FleetPolicy", "default", "policy")
    assert recorder.events == [(about, WARNING, "Reason", "what is wrong")]


def test_without_a_policy_there_is_no_event() -> None:
    cluster, recorder = stage_with_a_policy().cluster, Recorder()
    cluster.policies.store.assume_deleted(("", "default"), "policy")
    assert not record_policy_event(cluster, recorder, WARNING, "Reason", "what is wrong")  # type: ignore[arg-type]
    assert recorder.events == []

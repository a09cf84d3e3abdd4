"""A world that is written down and read again is the same world."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from tests.unit.lifecycle.builders import EPOCH, a_fleet, a_job, a_node, at
from tests.unit.world.odd_worlds import again, content, odd_worlds

from muster.api.fleetpolicy import FleetPolicySpec
from muster.api.nodehealth import Evacuate
from muster.world.checks import ProbeThreshold
from muster.world.fleet import Exclusion, Fleet, KnownAges, Suspicion
from muster.world.job import JobWorld
from muster.world.written import read, write


@settings(max_examples=10, suppress_health_check=list(HealthCheck))
@given(world=odd_worlds())
def test_whatever_is_seen_comes_back(world: JobWorld) -> None:
    """Fifty such worlds: tests/unit/nightly/world/test_written.py."""
    assert content(again(world)) == content(world)


def a_used_fleet() -> Fleet:
    """One in which every part says something, of a node that is gone, too."""
    policy = FleetPolicySpec.model_validate({"topology": {"levels": [{"name": "row", "label": "example.com/row"}]}})
    nodes = {name: a_node(name) for name in ("n2", "n1", "n0")}
    fleet = Fleet.from_parts(nodes, {"n0": ["a", "b"]}, {"n1": 3.5, "gone": 50.0}, policy, {"n1": {"cpu": 1500}})
    fleet.occupy("pod", "a", frozenset({"gone"}))
    fleet.set_name("a", "default/a")
    fleet.exclude("n1", Exclusion("Xid79", "fell off the bus", Evacuate.AFTER_CHECKPOINT, last_choice=True))
    fleet.set_node_fault("n2", "Xid48: held by the breaker")
    fleet.set_suspicion("n0", Suspicion(EPOCH, True))
    return fleet


def test_a_fleet_comes_back_with_all_its_parts() -> None:
    fleet = a_used_fleet().snapshot(KnownAges({"n1": 3.5, "gone": 50.0}))
    read_fleet = again(JobWorld(EPOCH, a_job(), fleet=fleet)).fleet
    assert read_fleet.parts() == fleet.parts()
    assert list(read_fleet.nodes) == ["n2", "n1", "n0"]  # who comes first is part of what is decided
    assert read_fleet.holders("n0") == {"a", "b"}
    assert set(read_fleet.nodes_of("a")) == {"n0", "gone"}
    assert (read_fleet.name_of("a"), read_fleet.used("n1")) == ("default/a", {"cpu": 1500})
    assert read_fleet.exclusion("n1") == Exclusion(
        "Xid79", "fell off the bus", Evacuate.AFTER_CHECKPOINT, last_choice=True
    )
    assert (read_fleet.node_fault("n1"), read_fleet.node_fault("n2")) == ("", "Xid48: held by the breaker")
    assert (read_fleet.suspicion_of("n0"), read_fleet.suspicion_of("n1")) == (Suspicion(EPOCH, True), None)
    assert read_fleet.policy == fleet.policy
    assert (read_fleet.heartbeats.age_seconds("n1"), list(read_fleet.heartbeats.older_than(10))) == (3.5, ["gone"])


def test_writing_leaves_the_world_as_it_is() -> None:
    world = JobWorld(at(1), a_job(), fleet=a_fleet([a_node("n0")]))
    before = replace(world)
    write(world)
    assert content(world) == content(before)


def test_a_field_that_an_older_release_did_not_know_has_its_default() -> None:
    written = write(JobWorld(at(1), a_job(), leader_age_seconds=5.0))
    del written["leader_age_seconds"]
    assert read(written).leader_age_seconds == 0.0


def test_a_field_that_was_renamed_is_written_under_its_first_name() -> None:
    written = write(JobWorld(at(1), a_job(), thresholds=(ProbeThreshold("pair", floor=5.0),)))
    assert "thresholds" not in written
    assert written["standards"][0]["floor"] == 5.0
    assert read(written).thresholds == (ProbeThreshold("pair", floor=5.0),)


def test_what_is_no_world_is_refused_with_the_field() -> None:
    written = write(JobWorld(at(1), a_job()))
    with pytest.raises(ValueError, match="heard_age_seconds"):
        read(written | {"launchers": {"u1": {"heard_age_seconds": "long", "attempt": 1, "state": "Idle"}}})
    with pytest.raises(ValueError, match="no job"):
        read({"now": written["now"]})
